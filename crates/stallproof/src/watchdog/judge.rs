//! When "owes progress and makes none" becomes a stall. No clock and no thread in here.

use std::time::{Duration, Instant};

use super::{Progress, Severity, WatchdogLimits};

/// The progress of one subject so far.
#[derive(Debug)]
pub(super) struct Patience {
    count: u64,
    /// The last look at which it had moved, or owed nothing.
    moved: Instant,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Fine,
    Named,
    Failed,
}

/// A change at a look. Each is logged once per stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Named,
    Failed,
    Recovered { after: Duration },
}

impl Patience {
    pub(super) fn new(now: Instant) -> Self {
        Self { count: 0, moved: now, stage: Stage::Fine }
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    pub(super) fn stalled_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.moved)
    }

    /// Time in which nobody could move, or in which we could not look, is held against no one.
    pub(super) fn forgive(&mut self, time: Duration) {
        self.moved += time;
    }

    /// A stall is said one stage at a time, so that whoever fails has been named before.
    pub(super) fn look(
        &mut self,
        now: Instant,
        progress: Progress,
        severity: Severity,
        limits: &WatchdogLimits,
    ) -> Option<Verdict> {
        if !progress.owed || progress.count != self.count {
            let after = self.stalled_for(now);
            let was = std::mem::replace(&mut self.stage, Stage::Fine);
            self.count = progress.count;
            self.moved = now;
            return (was != Stage::Fine).then_some(Verdict::Recovered { after });
        }
        let stalled = self.stalled_for(now);
        match self.stage {
            Stage::Fine if stalled >= limits.name_after => {
                self.stage = Stage::Named;
                Some(Verdict::Named)
            }
            Stage::Named if severity == Severity::Critical && stalled >= limits.fail_after => {
                self.stage = Stage::Failed;
                Some(Verdict::Failed)
            }
            _ => None,
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
