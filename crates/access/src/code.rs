//! The one-time codes of login links.
//!
//! Contract: a code is 256 random bits. It works once, within [`LASTS`], and only while its user has not
//! changed. There are at most [`PER_USER`] for a user and [`IN_ALL`] altogether; the oldest makes room.

use std::sync::Arc;
use std::time::Duration;

use stallproof::TrackedMutex;
use tokio::time::Instant;

use crate::secret::{Fingerprint, Secret};

/// Long enough to open a link that was printed, and too short for a log that is read later.
pub const LASTS: Duration = Duration::from_secs(15 * 60);
/// One that is used and a few that never are.
pub const PER_USER: usize = 4;
pub const IN_ALL: usize = 1024;

#[derive(Debug)]
pub(crate) struct Codes(TrackedMutex<Vec<Code>>);

/// The list has the oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    fingerprint: Fingerprint,
    until: Instant,
    pub(crate) user: Arc<str>,
    pub(crate) stamp: Fingerprint,
}

impl Codes {
    pub(crate) fn new() -> Self {
        Self(TrackedMutex::new("access login codes", Vec::new()))
    }

    pub(crate) fn issue(&self, user: &Arc<str>, stamp: Fingerprint) -> Secret {
        let (secret, now) = (Secret::random(), Instant::now());
        let fingerprint = Fingerprint::of(secret.expose());
        let code = Code { fingerprint, until: now + LASTS, user: Arc::clone(user), stamp };
        let mut codes = self.0.lock();
        codes.retain(|code| now < code.until);
        if codes.iter().filter(|code| code.user == *user).count() >= PER_USER {
            let oldest = codes.iter().position(|code| code.user == *user);
            oldest.map(|at| codes.remove(at));
        } else if codes.len() >= IN_ALL {
            codes.remove(0);
        }
        codes.push(code);
        secret
    }

    /// Redeems a code, which removes it.
    pub(crate) fn redeem(&self, code: &str) -> Option<Code> {
        let fingerprint = Fingerprint::of(code);
        let mut codes = self.0.lock();
        let at = codes.iter().position(|code| code.fingerprint == fingerprint)?;
        let code = codes.remove(at);
        (Instant::now() < code.until).then_some(code)
    }
}

#[cfg(test)]
mod tests;
