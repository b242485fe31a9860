//! `QueueBudget`: the bytes that may wait in a queue. A sender that finds no room is refused before
//! anything is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(super) struct QueueBudget {
    most: usize,
    reserved: AtomicUsize,
}

/// A part of the budget. Dropping it gives the part back.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<QueueBudget>,
    bytes: usize,
}

impl QueueBudget {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, reserved: AtomicUsize::new(0) })
    }

    /// Reserves `bytes`, if there is room. More than the whole budget fits when nothing else is reserved.
    pub(super) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let fits = |reserved: usize| {
            let after = reserved.saturating_add(bytes);
            (after <= self.most || reserved == 0).then_some(after)
        };
        self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Reservation { budget: Arc::clone(self), bytes })
    }

    pub(super) fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
