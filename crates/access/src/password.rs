//! Hashes and verifies passwords: argon2id with OWASP's parameters, kept as PHC strings.
//!
//! Contract:
//! - A verification takes [`MEMORY`] and tens of milliseconds of a core, so that it runs on a blocking
//!   thread, at most [`AT_ONCE`] at a time; [`WAITING`] more may wait until their deadline, and the
//!   others are told at once to come back.
//! - It takes as long for an unknown user as for a wrong password: a hash is computed all the same.
//! - A stored hash may have higher costs than our own, within bounds: whoever can write it must not be
//!   able to use up the machine's memory.

use std::sync::Arc;
use std::time::Duration;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{ARGON2ID_IDENT, Algorithm, Argon2, Params, Version};
use stallproof::{Deadline, Expired, Tasks};
use tokio::sync::Semaphore;

use crate::secret::Secret;

/// The memory of one verification, in KiB.
pub const MEMORY: u32 = Params::DEFAULT_M_COST;
/// Four fill four cores and take 76 MiB.
pub const AT_ONCE: usize = 4;
/// At 30 ms each these take half a second. More would only miss their deadlines.
pub const WAITING: usize = 64;
/// The least number of characters. Only length and variety are required.
pub const SHORTEST: usize = 12;
/// The most bytes, because argon2 reads all of them before it begins.
pub const LONGEST: usize = 1024;

/// The highest costs of a stored hash: KiB, passes, lanes.
const MOST: (u32, u32, u32) = (64 * 1024, 8, 4);

/// Why a password is refused; the sentence says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeakPassword {
    #[error("a password has at least {SHORTEST} characters; a few words make a good one")]
    TooShort,
    #[error("a password has at most {LONGEST} bytes")]
    TooLong,
    #[error("the password repeats too few characters; a few words make a good one")]
    TooPlain,
    #[error("the password contains the user's name; choose one that does not")]
    ContainsName,
}

/// Why a password was not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordUnchecked {
    #[error("too many passwords are being checked; come back in {retry_after:?}")]
    Busy { retry_after: Duration },
    #[error("the password was not checked within the deadline")]
    TooLate,
}

/// Checks whether `user` may have this password.
pub fn check_new(user: &str, password: &Secret) -> Result<(), WeakPassword> {
    let password = password.expose();
    if password.chars().count() < SHORTEST {
        return Err(WeakPassword::TooShort);
    }
    if password.len() > LONGEST {
        return Err(WeakPassword::TooLong);
    }
    let mut different: Vec<_> = password.chars().collect();
    different.sort_unstable();
    different.dedup();
    if different.len() < 5 {
        return Err(WeakPassword::TooPlain);
    }
    if user.len() >= 3 && password.to_lowercase().contains(&user.to_lowercase()) {
        return Err(WeakPassword::ContainsName);
    }
    Ok(())
}

/// Checks whether a stored hash can be verified; the error says why not.
pub(crate) fn check_stored(hash: &str) -> Result<(), String> {
    let hash = PasswordHash::new(hash).map_err(|_| "it is not a PHC string".to_owned())?;
    if hash.algorithm != ARGON2ID_IDENT {
        return Err(format!("it is {}, not argon2id", hash.algorithm));
    }
    let params = Params::try_from(&hash).map_err(|_| "its parameters cannot be read".to_owned())?;
    let (memory, passes, lanes) = MOST;
    if params.m_cost() > memory || params.t_cost() > passes || params.p_cost() > lanes {
        return Err(format!("it asks for more than m={memory},t={passes},p={lanes}"));
    }
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err("it has no salt or no hash".to_owned());
    }
    Ok(())
}

/// Hashes and verifies passwords, a bounded number at once. Clones share the bound.
#[derive(Clone, Debug)]
pub(crate) struct Passwords {
    tasks: Tasks,
    at_once: Arc<Semaphore>,
    /// The number of verifications that run or wait.
    within: Arc<Semaphore>,
}

impl Passwords {
    pub(crate) fn new(tasks: &Tasks) -> Self {
        Self {
            tasks: tasks.clone(),
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            within: Arc::new(Semaphore::new(AT_ONCE + WAITING)),
        }
    }

    /// Whether `password` matches `hash`. Without a hash it does not, and that takes as long.
    pub(crate) async fn verify(
        &self,
        password: Secret,
        hash: Option<String>,
        deadline: Deadline,
    ) -> Result<bool, PasswordUnchecked> {
        let work = move || match hash.as_deref().map(PasswordHash::new) {
            Some(Ok(hash)) => argon2().verify_password(password.expose().as_bytes(), &hash).is_ok(),
            _ => {
                let mut out = [0; Params::DEFAULT_OUTPUT_LEN];
                let salt = [0; argon2::RECOMMENDED_SALT_LEN];
                let bytes = password.expose().as_bytes();
                let _ = std::hint::black_box(argon2().hash_password_into(bytes, &salt, &mut out));
                false
            }
        };
        self.run("verify password", deadline, work).await
    }

    /// Returns the PHC string to keep.
    pub(crate) async fn hash(
        &self,
        password: Secret,
        deadline: Deadline,
    ) -> Result<String, PasswordUnchecked> {
        let work = move || {
            let hash = argon2().hash_password(password.expose().as_bytes());
            hash.expect("the parameters are argon2's own, and a salt is at hand").to_string()
        };
        self.run("hash password", deadline, work).await
    }

    async fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        deadline: Deadline,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PasswordUnchecked> {
        let within = Arc::clone(&self.within).try_acquire_owned();
        let within =
            within.map_err(|_| PasswordUnchecked::Busy { retry_after: Duration::from_secs(1) })?;
        let too_late = |Expired| PasswordUnchecked::TooLate;
        let slot = deadline.bound(Arc::clone(&self.at_once).acquire_owned()).await;
        let slot = slot.map_err(too_late)?.expect("the semaphore is never closed");
        // The work itself holds the place: a caller that goes away does not free it before its end.
        let work = move || {
            let _places = (within, slot);
            work()
        };
        let task = self.tasks.spawn_blocking(name, deadline, work).await.map_err(too_late)?;
        let done = deadline.bound(task).await.map_err(too_late)?;
        // The task reports a panic; here it is a check without a result.
        done.map_err(|_| PasswordUnchecked::TooLate)
    }
}

fn argon2() -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT)
}

#[cfg(test)]
mod tests;
