//! `Worker`: a thread that owns something and works off a queue, and the [`WorkerHandle`] at which work is
//! left for it.
//!
//! Contract:
//! - Messages that reserved room are bounded in bytes; a sender that finds no room is refused at once.
//!   Others have [`SPARE`] places.
//! - While the thread works it is on the ledger, with the step it is in: one that hangs is late after
//!   [`LATE`].
//! - A tick waits in the queue once at most.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stallproof::ledger::Outcome;
use stallproof::{Ledger, OpId, Tasks};
use tokio::sync::{mpsc, oneshot};

use super::queue_budget::{QueueBudget, Reservation};

/// What a message with a reservation weighs at least, so that the budget is spent before the queue is
/// full.
const LEAST: usize = 1 << 10;
/// Places for messages without a reservation.
const SPARE: usize = 256;
/// The longest piece of work, saving half a million rows, takes a fraction of this.
pub(super) const LATE: Duration = Duration::from_secs(3);

const TENANT: &str = "guard";

pub(super) trait Worker: Send + 'static {
    /// The kind of its work on the ledger.
    const KIND: &'static str;
    type Message: Send + 'static;

    /// Names the work of a message.
    fn step(message: &Self::Message) -> &'static str;

    /// Runs before each piece of work.
    fn prepare(&mut self);

    fn work(&mut self, message: Self::Message);

    /// Publishes what has changed.
    fn tick(&mut self);

    /// The last that it does.
    fn end(&mut self) {}
}

enum Queued<M> {
    Message(M, Option<Reservation>),
    Tick,
    Close,
}

/// Where work is left for a worker.
pub(super) struct WorkerHandle<M> {
    /// What is worked at, for whoever waits for it: `shard 0`.
    pub(super) name: Arc<str>,
    queue: mpsc::Sender<Queued<M>>,
    budget: Arc<QueueBudget>,
    /// A tick waits already.
    ticking: Arc<AtomicBool>,
    /// Written by the worker at both ends of each piece of work.
    current: Arc<Mutex<Option<CurrentWork>>>,
}

/// A piece of work that a worker is at.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentWork {
    pub(super) op: OpId,
    pub(super) since: Instant,
}

/// Gives the worker to a thread; `bytes` may wait for it. If it panics, `tasks` stops: without one of
/// its threads an ingest is no use, and another term begins with the checkpoint.
pub(super) fn start<W: Worker>(
    mut worker: W,
    (name, key): (String, String),
    bytes: usize,
    ledger: &Ledger,
    tasks: &Tasks,
) -> std::io::Result<WorkerHandle<W::Message>> {
    let (queue, mut work) = mpsc::channel(bytes / LEAST + SPARE);
    let (ticking, current) = (Arc::default(), Arc::default());
    let budget = QueueBudget::new(bytes);
    let handle = WorkerHandle { name: name.as_str().into(), queue, budget, ticking, current };
    ledger.expect(W::KIND, LATE);
    // Not the handle: the queue ends with the last of those.
    let (ticking, current) = (Arc::clone(&handle.ticking), Arc::clone(&handle.current));
    let ledger = ledger.clone();
    let (ended, end) = oneshot::channel();
    thread::Builder::new().name(name.replace(' ', "-")).spawn(move || {
        let run = || {
            while let Some(queued) = work.blocking_recv() {
                let step = match &queued {
                    Queued::Message(message, _) => W::step(message),
                    Queued::Tick => "tick",
                    Queued::Close => break,
                };
                let op = ledger.begin(W::KIND, key.clone(), TENANT);
                let _in_span = op.span().entered();
                op.step(step);
                *current.lock() = Some(CurrentWork { op: op.id(), since: Instant::now() });
                worker.prepare();
                match queued {
                    Queued::Message(message, _reserved) => worker.work(message),
                    _ => {
                        ticking.store(false, Ordering::Release);
                        worker.tick();
                    }
                }
                *current.lock() = None;
                op.finish(Outcome::Done);
            }
            worker.end();
        };
        let _ = ended.send(catch_unwind(AssertUnwindSafe(run)).is_ok());
    })?;
    let (group, stop) = (tasks.clone(), tasks.stopping());
    tasks.spawn(format!("guard-{name}"), async move {
        if let Some(ended) = stop.bound(end).await
            && !ended.unwrap_or(false)
        {
            tracing::error!(thread = name, "a thread of the conversations panicked");
            group.stop(format!("the {name} of the conversations panicked"));
        }
    });
    Ok(handle)
}

impl<M> WorkerHandle<M> {
    /// Reserves room for a message of about so many bytes; none if there is not enough.
    pub(super) fn reserve(&self, bytes: usize) -> Option<Reservation> {
        self.budget.reserve(LEAST + bytes)
    }

    /// Leaves a message; false if the worker is gone.
    pub(super) fn send_reserved(&self, message: M, reserved: Reservation) -> bool {
        self.queue.try_send(Queued::Message(message, Some(reserved))).is_ok()
    }

    /// Leaves a message if there is a place for it.
    pub(super) fn try_send(&self, message: M) {
        let _ = self.queue.try_send(Queued::Message(message, None));
    }

    /// Leaves a message and waits for its answer, for as long as the worker needs: bound it. None if the
    /// worker is gone.
    pub(super) async fn ask<A>(&self, message: impl FnOnce(oneshot::Sender<A>) -> M) -> Option<A> {
        let (answer, answered) = oneshot::channel();
        self.queue.send(Queued::Message(message(answer), None)).await.ok()?;
        answered.await.ok()
    }

    pub(super) fn tick(&self) {
        if !self.ticking.swap(true, Ordering::AcqRel) && self.queue.try_send(Queued::Tick).is_err()
        {
            self.ticking.store(false, Ordering::Release);
        }
    }

    pub(super) fn close(&self) {
        let _ = self.queue.try_send(Queued::Close);
    }

    /// The piece of work that the worker is at; none if it waits for work.
    pub(super) fn current(&self) -> Option<CurrentWork> {
        *self.current.lock()
    }

    /// The bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.budget.reserved()
    }
}

impl<M> fmt::Debug for WorkerHandle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkerHandle").field(&self.name).finish()
    }
}
