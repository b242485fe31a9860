//! Whether a queue lasts. Waiters alone are no stall: a lock at full load has a queue at any moment.
//! Minutes in the headers, a second dump, or a holder that cannot proceed make it one.

use rustc_hash::FxHashSet;

use crate::report::{Confidence, FaultClass, Finding, Level, Severity};

use super::super::queue::{Key, Queue};
use super::super::wait::Wait;
use super::{LISTED, LONG, Locks};

/// From here on the number alone is alarming.
const CROWD: u64 = 1000;
/// From here on a queue of unknown age is more than a few.
const MANY: u64 = 100;

impl Locks<'_, '_> {
    /// How many waiters an earlier dump shows in the same place.
    pub(super) fn unmoved(&self, queue: &Queue) -> usize {
        if self.unmoved.same.is_empty() {
            return 0;
        }
        let stacks: FxHashSet<(u32, u64)> = queue
            .actors
            .iter()
            .map(|&a| &self.scene.actors[a as usize])
            .map(|a| (a.stack, a.lock))
            .collect();
        let goroutines = &self.scene.dump.goroutines;
        goroutines
            .iter()
            .filter(|g| self.unmoved.same.contains(&g.id) && stacks.contains(&(g.stack, g.lock())))
            .count()
    }

    /// Whether somebody who waited in the earlier dump has had the lock since.
    pub(super) fn is_moving(&self, q: usize) -> bool {
        let queue = &self.queues[q];
        let stacks = queue.actors.iter().map(|&a| self.scene.actors[a as usize].stack).collect();
        let lock = match queue.key {
            Key::Lock(lock) => Some(lock),
            Key::Receiver(_) | Key::Unknown => None,
        };
        let left = self.unmoved.left(lock, &stacks);
        // Without an address, those who left may have waited for a sibling.
        let enough = if lock.is_some() { 0 } else { self.unmoved(queue) as u64 };
        left > enough && self.minutes(&queue.actors) == 0
    }

    /// Whether the queue is seen to have lasted.
    pub(super) fn has_lasted(&self, q: usize) -> bool {
        let queue = &self.queues[q];
        self.minutes(&queue.actors) > 0 || (self.unmoved(queue) > 0 && !self.is_moving(q))
    }

    /// Whether nobody is outside the queue but loops that wait for work.
    pub(super) fn only_loops(&self, q: usize) -> bool {
        self.candidates[q].outside.iter().all(|c| (c.idle || c.shallow) && !c.takes)
    }

    /// Whether those who run are all that can hold the lock: nobody blocked comes into question.
    pub(super) fn next_best_is_running(&self, q: usize) -> bool {
        let blocked = |c: &super::Candidate| {
            self.wait(c).is_blocked() && (c.exact || c.takes) && !c.idle && !c.shallow
        };
        !self.candidates[q].outside.iter().any(blocked)
    }

    /// A lock that many want and that changes hands.
    pub(super) fn hot(&self, q: usize) -> Finding {
        let mut finding = self.describe(q);
        finding.class = FaultClass::HotLock;
        finding.severity = Severity::Minor;
        let why = if self.is_moving(q) {
            "goroutines that waited for it in the earlier dump have had it since"
        } else {
            "the goroutine inside it is running, and nobody is seen to have waited for long"
        };
        finding.title = format!("a busy lock: {}", finding.title);
        finding.confidence = Confidence { level: Level::Possible, why: why.to_owned() };
        if self.is_moving(q) {
            finding.confidence.level = Level::Likely;
        }
        let candidates = &self.candidates[q].outside;
        finding.holders = candidates
            .iter()
            .filter(|c| !self.wait(c).is_blocked())
            .take(LISTED)
            .map(|c| self.holder(c, Level::Possible))
            .collect();
        finding.no_holder =
            Some("it changes hands: who has it now is not who has it next".to_owned());
        self.finish(finding, q)
    }

    /// The severity that the evidence can carry: what may be a moment's queue is not critical.
    pub(super) fn weighed(&self, finding: &Finding, q: usize) -> Severity {
        let total = finding.waiters.total;
        let sure = finding.confidence.level <= Level::Likely;
        let cannot_end = matches!(
            finding.class,
            FaultClass::LockOrderInversion
                | FaultClass::RecursiveReadLock
                | FaultClass::SelfDeadlock
                | FaultClass::Deadlock
        );
        let best = self.candidates[q].outside.first().map(|c| self.wait(c));
        let least = if finding.class == FaultClass::HotLock {
            if total >= CROWD { Severity::Serious } else { Severity::Minor }
        } else if self.has_lasted(q)
            || total >= CROWD
            || (cannot_end && sure)
            || best == Some(Wait::Forever)
        {
            Severity::Critical
        } else if cannot_end || total >= MANY {
            Severity::Serious
        } else {
            match (finding.class, best) {
                (FaultClass::LostUnlock, _) => Severity::Minor,
                // The disk, a child or a pause: as a rule they end by themselves.
                (_, Some(Wait::Syscall | Wait::Sleep)) => Severity::Minor,
                (_, Some(wait)) if !wait.is_blocked() => Severity::Minor,
                (_, None) if total < LONG => Severity::Minor,
                _ => Severity::Serious,
            }
        };
        finding.severity.max(least)
    }
}

#[cfg(test)]
mod tests;
