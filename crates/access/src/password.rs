//! Passwords: argon2id with OWASP's parameters, kept as PHC strings.
//!
//! Contract:
//! - A verification takes [`MEMORY`] and tens of milliseconds of a core, so it runs on a thread where
//!   it may block, [`AT_ONCE`] at a time; [`WAITING`] more may wait until their deadline; the others
//!   are told at once to come back.
//! - It takes as long for a user who is not there as for a wrong password: then a hash is worked
//!   out for nothing.
//! - A stored hash may ask for more than our own, within bounds: whoever can write it must not be
//!   able to take the machine's memory.

use std::sync::Arc;
use std::time::Duration;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{ARGON2ID_IDENT, Algorithm, Argon2, Params, Version};
use stallproof::{Deadline, Expired, Tasks};
use tokio::sync::Semaphore;

use crate::secret::Secret;

/// Of one verification, in KiB.
pub const MEMORY: u32 = Params::DEFAULT_M_COST;
/// Four fill four cores and take 76 MiB.
pub const AT_ONCE: usize = 4;
/// At 30 ms each these are through in half a second: more would only wait to be late.
pub const WAITING: usize = 64;
/// In characters. Long beats complicated, so nothing but length and variety is asked for.
pub const SHORTEST: usize = 12;
/// In bytes: argon2 reads them all before it begins.
pub const LONGEST: usize = 1024;

/// What a stored hash may ask for: KiB, passes, lanes.
const MOST: (u32, u32, u32) = (64 * 1024, 8, 4);

/// Why a password will not do; the sentence tells what to do.
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

/// Why there is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoVerdict {
    #[error("too many passwords are being checked; come back in {retry_after:?}")]
    Busy { retry_after: Duration },
    #[error("the password was not checked within the deadline")]
    TooLate,
}

/// Whether `password` will do for `user`.
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

/// Whether a stored hash is one that we verify; the sentence says why not.
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

/// Hashes and verifies, a bounded number at a time. Clones share the bound.
#[derive(Clone, Debug)]
pub(crate) struct Passwords {
    tasks: Tasks,
    at_once: Arc<Semaphore>,
    /// Those that run and those that wait for it.
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

    /// Whether `password` is the one of `hash`; without a hash no, as slowly.
    pub(crate) async fn verify(
        &self,
        password: Secret,
        hash: Option<String>,
        deadline: Deadline,
    ) -> Result<bool, NoVerdict> {
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

    /// The PHC string to keep.
    pub(crate) async fn hash(
        &self,
        password: Secret,
        deadline: Deadline,
    ) -> Result<String, NoVerdict> {
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
    ) -> Result<T, NoVerdict> {
        let within = Arc::clone(&self.within).try_acquire_owned();
        let within = within.map_err(|_| NoVerdict::Busy { retry_after: Duration::from_secs(1) })?;
        let too_late = |Expired| NoVerdict::TooLate;
        let slot = deadline.bound(Arc::clone(&self.at_once).acquire_owned()).await;
        let slot = slot.map_err(too_late)?.expect("the semaphore is never closed");
        // Kept by the work itself: a caller that went away does not make room before its end.
        let work = move || {
            let _places = (within, slot);
            work()
        };
        let task = self.tasks.spawn_blocking(name, deadline, work).await.map_err(too_late)?;
        let done = deadline.bound(task).await.map_err(too_late)?;
        // A panic is reported by its task; here it is a check that did not end.
        done.map_err(|_| NoVerdict::TooLate)
    }
}

fn argon2() -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT)
}

#[cfg(test)]
mod tests;
