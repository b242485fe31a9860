//! `Beacon`: how a loop tells the watchdog that it moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::Progress;

/// Held by whoever does the work; clones are one beacon. Once all are dropped it is forgotten.
#[derive(Clone, Debug)]
pub struct Beacon(Arc<Moves>);

/// While one is alive, its beacon owes progress. Taking it and giving it back are progress too.
#[derive(Debug)]
#[must_use = "nothing is owed once this is dropped"]
pub struct Owed(Arc<Moves>);

// Relaxed throughout: the watchdog looks twice a second and needs no order between the two fields.
#[derive(Debug, Default)]
pub(super) struct Moves {
    owed: AtomicUsize,
    count: AtomicU64,
}

impl Beacon {
    pub(super) fn new() -> (Self, std::sync::Weak<Moves>) {
        let moves = Arc::new(Moves::default());
        let weak = Arc::downgrade(&moves);
        (Self(moves), weak)
    }

    /// Progress was made: one relaxed atomic add.
    pub fn beat(&self) {
        self.0.count.fetch_add(1, Relaxed);
    }

    /// From now on there is work to do, until the guard is dropped.
    pub fn owe(&self) -> Owed {
        self.beat();
        self.0.owed.fetch_add(1, Relaxed);
        Owed(Arc::clone(&self.0))
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.0.count.fetch_add(1, Relaxed);
        self.0.owed.fetch_sub(1, Relaxed);
    }
}

impl Moves {
    pub(super) fn progress(&self) -> Progress {
        Progress { owed: self.owed.load(Relaxed) > 0, count: self.count.load(Relaxed) }
    }
}
