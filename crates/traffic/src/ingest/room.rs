//! `Room`: bytes that may wait in a queue. Who finds none is refused before anything is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(super) struct Room {
    most: usize,
    taken: AtomicUsize,
}

/// Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    room: Arc<Room>,
    bytes: usize,
}

impl Room {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: AtomicUsize::new(0) })
    }

    /// What is larger than all the room there is has it when nobody else has any.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<Taken> {
        let fits = |taken: usize| {
            let after = taken.saturating_add(bytes);
            (after <= self.most || taken == 0).then_some(after)
        };
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Taken { room: Arc::clone(self), bytes })
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
