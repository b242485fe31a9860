//! How fast one agent may send: so many at once, then one every so often (the generic cell rate
//! algorithm). All it keeps of an agent is one number.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// In milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pace: u64,
    /// How far ahead of its pace an agent may be.
    ahead: u64,
}

impl Rate {
    pub(super) fn new(pace: Duration, burst: u32) -> Self {
        let pace = super::millis(pace);
        Self { pace, ahead: pace.saturating_mul(u64::from(burst.saturating_sub(1))) }
    }

    /// Takes one, or says when one may be taken. `due` is when its last one would have been due;
    /// `now` never goes back.
    pub(super) fn admit(self, due: &AtomicU64, now: u64) -> Result<(), Duration> {
        let take = |due: u64| {
            let due = due.max(now);
            (due - now <= self.ahead).then(|| due.saturating_add(self.pace))
        };
        match due.try_update(Relaxed, Relaxed, take) {
            Ok(_) => Ok(()),
            Err(due) => Err(Duration::from_millis(due - now - self.ahead)),
        }
    }
}

#[cfg(test)]
mod tests;
