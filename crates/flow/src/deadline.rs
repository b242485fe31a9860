//! `Deadline`: the instant by which an answer is worth having.
//!
//! Contract: every wait in Fairlead takes one. It is made once, where a request enters (from a gRPC
//! or HTTP timeout, or a configured default), and passed down by value; a step may only shorten it.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::sleep_until;

/// The instant by which an answer is worth having. Copy it freely; earlier sorts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Instant);

/// The deadline passed before the work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deadline passed")]
pub struct Expired;

/// The longest a deadline may lie ahead. A caller that asks for more gets this: nothing waits for ever.
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

impl Deadline {
    pub fn after(wait: Duration) -> Self {
        Self(Instant::now() + wait.min(LONGEST))
    }

    pub fn at(instant: Instant) -> Self {
        Self(instant)
    }

    pub fn instant(self) -> Instant {
        self.0
    }

    /// What is left; zero once passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    pub fn has_passed(self) -> bool {
        Instant::now() >= self.0
    }

    /// This deadline, or `wait` from now if that is sooner: the budget of one step.
    #[must_use]
    pub fn within(self, wait: Duration) -> Self {
        self.min(Self::after(wait))
    }

    /// Runs `work` until the deadline, then drops it.
    pub async fn bound<F: Future>(self, work: F) -> Result<F::Output, Expired> {
        tokio::select! {
            // Work that is ready at the deadline counts as done.
            biased;
            done = work => Ok(done),
            () = sleep_until(self.0) => Err(Expired),
        }
    }
}
