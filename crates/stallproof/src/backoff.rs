//! `Backoff`: how long to stay away from what keeps failing.
//!
//! Contract: the wait doubles with every failure in a row up to a bound, and a success begins anew.
//! The number of attempts is there to be shown. [`Backoffs`] keeps one per key, a bounded number of
//! them, and forgets a key that has been quiet.
//!
//! Jitter is "equal": half the wait is fixed, half is random. Full jitter spreads a crowd a little
//! better, but may answer "at once", and then a dead peer or an API server in trouble is hit again
//! by exactly those who were told to stay away.

use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use crate::deadline::LONGEST;
use crate::expiring::Expiring;
use crate::sync::Mutex;

/// From the first wait, doubling, to the longest (a day at most).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Curve {
    pub first: Duration,
    pub most: Duration,
}

impl Curve {
    /// The wait after the `attempt`th failure in a row; `chance` in 0..1 picks within the jitter.
    pub fn wait(self, attempt: u32, chance: f64) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        let half = self.first.saturating_mul(1 << doublings).min(self.most).min(LONGEST) / 2;
        half + half.mul_f64(chance)
    }
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Failures in a row, this one included.
    pub attempt: u32,
    pub wait: Duration,
}

/// The failures in a row of one thing: a connection, a loop.
#[derive(Clone, Debug)]
pub struct Backoff {
    curve: Curve,
    failures: u32,
}

impl Backoff {
    pub fn new(curve: Curve) -> Self {
        Self { curve, failures: 0 }
    }

    pub fn failed(&mut self) -> Retry {
        self.failures = self.failures.saturating_add(1);
        let wait = self.curve.wait(self.failures, fastrand::f64());
        Retry { attempt: self.failures, wait }
    }

    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Failures in a row so far.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// The failures in a row of each key. A key that does well costs nothing.
#[derive(Debug)]
pub struct Backoffs<K> {
    curve: Curve,
    forget: Duration,
    failing: Mutex<Expiring<K, Backoff>>,
}

impl<K: Clone + Eq + Hash> Backoffs<K> {
    /// Remembers at most `keys` keys that fail, each for `forget` after its retry was due. When
    /// there are more, the one that would be forgotten soonest begins anew.
    pub fn new(curve: Curve, keys: usize, forget: Duration) -> Self {
        Self { curve, forget: forget.min(LONGEST), failing: Mutex::new(Expiring::new(keys)) }
    }

    pub fn failed(&self, key: &K) -> Retry {
        let now = Instant::now();
        let mut failing = self.failing.lock();
        let mut backoff =
            failing.get(key, now).cloned().unwrap_or_else(|| Backoff::new(self.curve));
        let retry = backoff.failed();
        let _ = failing.insert(key.clone(), backoff, now + retry.wait + self.forget, now);
        retry
    }

    pub fn succeeded(&self, key: &K) {
        self.failing.lock().remove(key);
    }

    /// Failures in a row so far.
    pub fn failures(&self, key: &K) -> u32 {
        self.failing.lock().get(key, Instant::now()).map_or(0, Backoff::failures)
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
