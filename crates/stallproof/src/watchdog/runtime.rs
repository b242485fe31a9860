//! Watching a tokio runtime from outside: does it run what it is given, and which of its workers
//! does not come back?
//!
//! Both answers come from metrics that tokio publishes on stable. A worker publishes when it parks
//! (its park/unpark count turns odd), when it is unparked (even) and, while busy, with its busy time
//! after every `event_interval` polls, 61 unless the runtime was built otherwise. So "unparked, and
//! neither number moved" is a worker inside one long poll, or one whose polls are so long that 61
//! of them outlast our patience: 65 ms each, which blocks its neighbours as well.
//! Work handed off with `block_in_place` is not held against the worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tokio::runtime::{Handle, RuntimeMetrics};

use super::Progress;

/// A watched runtime and the one task at a time that is given to it to see whether it runs.
#[derive(Debug)]
pub(super) struct Probed {
    handle: Handle,
    outstanding: AtomicBool,
    answers: AtomicU64,
    /// Once shut down it owes nothing, though its workers never park again.
    gone: AtomicBool,
}

/// Dropped when the task has run; or, without having run, by a runtime that was shut down.
struct ProbeReply {
    probed: Arc<Probed>,
    ran: bool,
}

impl ProbeReply {
    fn give(mut self) {
        self.ran = true;
    }
}

impl Drop for ProbeReply {
    fn drop(&mut self) {
        if !self.ran {
            self.probed.gone.store(true, Relaxed);
        }
        self.probed.answers.fetch_add(1, Relaxed);
        self.probed.outstanding.store(false, Relaxed);
    }
}

impl Probed {
    pub(super) fn new(handle: Handle) -> Arc<Self> {
        Arc::new(Self {
            handle,
            outstanding: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            gone: AtomicBool::new(false),
        })
    }

    pub(super) fn workers(&self) -> usize {
        self.handle.metrics().num_workers()
    }

    /// The runtime as a whole. It owes an answer to the probe; but any worker that moves is
    /// progress, so that a probe at the end of a long queue is no alarm.
    pub(super) fn whole(self: &Arc<Self>) -> Progress {
        if !self.gone.load(Relaxed) && !self.outstanding.swap(true, Relaxed) {
            let answer = ProbeReply { probed: Arc::clone(self), ran: false };
            // Owned by the flag above: never more than one, and it ends at its first poll.
            self.handle.spawn(async move { answer.give() });
        }
        let metrics = self.handle.metrics();
        let count = (0..metrics.num_workers())
            .map(|worker| moves(&metrics, worker))
            .fold(self.answers.load(Relaxed), u64::wrapping_add);
        Progress { owed: self.outstanding.load(Relaxed), count }
    }

    /// One worker. It owes a return to its scheduler whenever it is not parked.
    pub(super) fn worker(&self, worker: usize) -> Progress {
        let metrics = self.handle.metrics();
        let parked = metrics.worker_park_unpark_count(worker) % 2 == 1;
        let gone = self.gone.load(Relaxed);
        Progress { owed: !parked && !gone, count: moves(&metrics, worker) }
    }
}

/// Both numbers only grow, so their sum changes whenever one does.
fn moves(metrics: &RuntimeMetrics, worker: usize) -> u64 {
    let busy = metrics.worker_total_busy_duration(worker).as_nanos() as u64;
    busy.wrapping_add(metrics.worker_park_unpark_count(worker))
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
