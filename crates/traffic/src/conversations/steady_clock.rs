//! `SteadyClock`: the time that a shard has been through, and for how long its clock has gone on steadily.
//!
//! Wall clocks are set: by a person, by NTP after a start without a battery, by a machine that wakes
//! up. A total's mark must not be forgotten for that, or the total is counted again; nor may a
//! conversation look old that is not.
//!
//! Contract: what the clock moved by between two looks counts if it can have been lived through: up to
//! [`SILENCE`], where an owner looks twice a second. More than that, either way, is a jump: it counts
//! for nothing, and the clock has not stood from then on. Time between a checkpoint and its restoring
//! is not lived.

use std::time::Duration;

use super::Moment;
use super::watermarks::SILENCE;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SteadyClock {
    /// Begins anywhere: only how far two of them are apart says something.
    now: Moment,
    /// What the clock said last.
    clock: Option<Moment>,
    /// When it jumped last, or was first looked at.
    since: Moment,
}

impl SteadyClock {
    /// The time now, of which only the distance to another one means something.
    pub(super) fn advance(&mut self, clock: Moment) -> Moment {
        if let Some(before) = self.clock.replace(clock) {
            let (forward, back) = (clock.since(before), before.since(clock));
            if forward.max(back) <= SILENCE {
                self.now = self.now.after(forward);
            } else {
                self.since = self.now;
            }
        }
        self.now
    }

    /// For how long the clock has been looked at without a jump.
    pub(super) fn steady_for(&self) -> Duration {
        self.now.since(self.since)
    }

    /// Goes on from what an earlier one said, or a later one.
    pub(super) fn resume(&mut self, at: Moment) {
        self.now = self.now.max(at);
        self.since = self.now;
    }
}

#[cfg(test)]
mod tests;
