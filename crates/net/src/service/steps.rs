//! `StepTracker`: how far a piece of kernel work has come, and whether anybody still waits for it.
//!
//! A kernel call that hangs cannot be cancelled. So the request that waits for it gives up at its
//! deadline, and the work, when it comes back, learns at its next step or at its end that it was
//! abandoned, and undoes what it did. One lock decides which of the two came first.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use stallproof::metrics::Histogram;
use stallproof::{Deadline, Op};
use tokio::time::Instant;

use crate::datapath::{Abandoned, Progress};

pub(crate) type ByStep = Family<[(&'static str, &'static str); 1], Histogram>;

/// The thread that works and the task that waits for it share it.
#[derive(Debug)]
pub struct StepTracker {
    /// The request's entry: it stays on the ledger for as long as the work runs.
    op: Arc<Op>,
    took: ByStep,
    /// Written by the work at each step and by the waiter when it gives up; read by the waiter and
    /// by whoever is told that this hangs.
    position: Mutex<Position>,
}

#[derive(Clone, Copy, Debug)]
struct Position {
    step: &'static str,
    since: Instant,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Working,
    Abandoned,
    /// The abandoned work has come back, and may go on to undo itself.
    Undoing,
    Ended,
}

impl StepTracker {
    pub(crate) fn begin(op: Arc<Op>, took: ByStep) -> Self {
        let at = Position { step: "thread", since: Instant::now(), stage: Stage::Working };
        Self { op, took, position: Mutex::new(at) }
    }

    /// The work calls this before each step. Abandoned work must not go on, unless to undo.
    pub fn step(&self, name: &'static str) -> Result<(), Abandoned> {
        let now = Instant::now();
        let before = {
            let mut at = self.position.lock();
            let before = *at;
            *at = Position { step: name, since: now, ..before };
            before
        };
        self.op.step(name);
        self.observe(before, now);
        if before.stage == Stage::Abandoned { Err(Abandoned) } else { Ok(()) }
    }

    /// The work calls this at its end. If it was abandoned before that, it may now undo itself.
    pub(crate) fn end(&self) -> Result<(), Abandoned> {
        let before = {
            let mut at = self.position.lock();
            let before = *at;
            at.stage = match before.stage {
                Stage::Abandoned => Stage::Undoing,
                _ => Stage::Ended,
            };
            before
        };
        self.observe(before, Instant::now());
        if before.stage == Stage::Abandoned { Err(Abandoned) } else { Ok(()) }
    }

    /// Gives up on the work, unless it has ended just now. Returns the step in which it is.
    pub(crate) fn abandon(&self) -> Option<&'static str> {
        let mut at = self.position.lock();
        if at.stage == Stage::Ended {
            return None;
        }
        at.stage = Stage::Abandoned;
        Some(at.step)
    }

    /// Returns the step in which the work is, and since when.
    pub(crate) fn now(&self) -> (&'static str, Instant) {
        let at = self.position.lock();
        (at.step, at.since)
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(self.position.lock().stage, Stage::Abandoned | Stage::Undoing)
    }

    /// Returns when the work is late: at `deadline`, or when one step has taken `limit`.
    pub(crate) async fn late(&self, deadline: Deadline, limit: Duration) {
        loop {
            let until = deadline.min(Deadline::at(self.now().1 + limit));
            tokio::time::sleep_until(until.instant()).await;
            if deadline.has_passed() || self.now().1.elapsed() >= limit {
                return;
            }
        }
    }

    fn observe(&self, at: Position, now: Instant) {
        let histogram = self.took.get_or_create(&[("step", at.step)]).clone();
        histogram.observe(now.saturating_duration_since(at.since));
    }
}

impl Progress for StepTracker {
    fn step(&self, name: &'static str) -> Result<(), Abandoned> {
        Self::step(self, name)
    }
}
