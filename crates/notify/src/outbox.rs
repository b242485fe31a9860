//! `Outbox`: what receivers are still to be told, on disk.
//!
//! ```text
//! put ──► GroupCommit: one transaction and one sync for all that wait ──► queue of each receiver, by number
//! delivery task ──► read the next few ──► … ──► took: remove up to a number
//! ```
//!
//! Contract:
//! - [`Outbox::put`] returns once the event is on disk for every receiver that it was accepted for.
//! - A queue holds a bounded number of events and of bytes. A full one accepts no more: what it has is older,
//!   and is delivered. What was not accepted is counted, and [`Queue::take_missed`] tells how many.
//! - Numbers of a queue only grow; [`Outbox::read`] gives events in their order.
//! - An event is removed only after it was delivered, so that `kill -9` in between repeats it and loses none.
//! - A disk that fails refuses what is put while it does, and is opened again with the next attempt. A file that
//!   is damaged is kept beside the new one.

mod disk;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(feature = "simulation")]
pub mod simulation;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use stallproof::group_commit::{GroupWriter, QueueError};
use stallproof::{Deadline, GroupCommit, Tasks};
use tokio::sync::{Notify, oneshot};
use tracing::{error, info};

use crate::event::Event;
use crate::metrics::Metrics;
use disk::{Counts, Disk};

/// Why notifications are not kept: the values of the metric's label.
pub(crate) const WHYS: [&str; 4] = ["full", "disk", "refused", "removed"];

/// Requests that wait for one sync: each is one event, and the router puts one after the other. Deliveries
/// add one for each batch they finish.
const WAITING: usize = 1024;
/// How long a delivery waits for room in its own queue.
const ROOM: Duration = Duration::from_secs(10);

/// How much one receiver's queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxLimits {
    pub events: u64,
    pub bytes: u64,
}

impl Default for OutboxLimits {
    fn default() -> Self {
        Self { events: 10_000, bytes: 16 << 20 }
    }
}

/// Which receivers an event was accepted for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    pub by: Vec<Arc<str>>,
    /// Those whose queues are full.
    pub refused: Vec<Arc<str>>,
}

#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    #[error("more events wait for the disk than may; come back in a second")]
    Busy,
    #[error("the outbox is closed: the process is about to end")]
    Closed,
    #[error("the disk did not take the event in time")]
    Late,
    #[error("the outbox cannot be written: {0}")]
    Disk(Arc<str>),
}

/// What is known of one receiver's queue. The thread that writes the disk writes it, everybody reads it.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Has a permit when there may be something new to read.
    pub(crate) wake: Notify,
    events: AtomicU64,
    bytes: AtomicU64,
    /// Events that were not accepted, ever.
    dropped: AtomicU64,
    /// Those of them that the receiver was not told of yet.
    missed: AtomicU64,
}

impl Queue {
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Relaxed)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// How many events were not accepted since this was last asked.
    pub(crate) fn take_missed(&self) -> u64 {
        self.missed.swap(0, Relaxed)
    }

    pub(crate) fn missed_again(&self, count: u64) {
        self.missed.fetch_add(count, Relaxed);
    }

    fn drop_one(&self) {
        self.dropped.fetch_add(1, Relaxed);
        self.missed.fetch_add(1, Relaxed);
    }
}

/// A handle; clones share the file.
#[derive(Clone)]
pub struct Outbox {
    commit: GroupCommit<Request>,
    shared: Arc<Shared>,
    tasks: Tasks,
}

struct Shared {
    disk: Arc<Disk>,
    /// Made by whoever first names a receiver; each a few words.
    queues: Mutex<BTreeMap<Arc<str>, Arc<Queue>>>,
    limits: OutboxLimits,
    metrics: Metrics,
}

enum Request {
    Put {
        receivers: Vec<Arc<str>>,
        json: Vec<u8>,
        done: oneshot::Sender<Result<Accepted, OutboxError>>,
    },
    /// Removes what was delivered.
    Took { receiver: Arc<str>, through: u64, done: oneshot::Sender<()> },
    /// Removes everything of a receiver that is gone.
    Purge { receiver: Arc<str> },
}

impl Outbox {
    /// Opens the outbox in a directory, and makes both if they are not there. Blocks.
    pub fn open(dir: &Path, limits: OutboxLimits, tasks: &Tasks) -> io::Result<Self> {
        Self::with_metrics(dir, limits, Metrics::default(), tasks)
    }

    pub(crate) fn with_metrics(
        dir: &Path,
        limits: OutboxLimits,
        metrics: Metrics,
        tasks: &Tasks,
    ) -> io::Result<Self> {
        let (disk, found) = Disk::open(dir)?;
        let shared =
            Arc::new(Shared { disk: Arc::new(disk), queues: Mutex::default(), limits, metrics });
        for (name, counts) in &found {
            shared.publish(name, *counts, true);
        }
        let writer = Writer { shared: Arc::clone(&shared), counts: found };
        let commit = GroupCommit::start("outbox", WAITING, writer, tasks)?;
        Ok(Self { commit, shared, tasks: tasks.clone() })
    }

    /// Writes an event down for each of these receivers.
    pub async fn put(
        &self,
        receivers: Vec<Arc<str>>,
        event: &Event,
        deadline: Deadline,
    ) -> Result<Accepted, OutboxError> {
        let json =
            serde_json::to_vec(event).map_err(|e| OutboxError::Disk(e.to_string().into()))?;
        let (done, answer) = oneshot::channel();
        let named = receivers.clone();
        let queued = deadline.bound(self.commit.send(Request::Put { receivers, json, done })).await;
        let result = match queued {
            Err(_) => Err(OutboxError::Busy),
            Ok(Err(QueueError::Full)) => Err(OutboxError::Busy),
            Ok(Err(QueueError::Closed)) => Err(OutboxError::Closed),
            Ok(Ok(())) => match deadline.bound(answer).await {
                Err(_) => Err(OutboxError::Late),
                Ok(Err(_)) => Err(OutboxError::Closed),
                Ok(Ok(result)) => result,
            },
        };
        if result.is_err() {
            for receiver in &named {
                self.queue(receiver).drop_one();
                self.shared.metrics.dropped(receiver, "disk", 1);
            }
        }
        result
    }

    /// The next events of a receiver after a number, with their numbers.
    pub(crate) async fn read(
        &self,
        receiver: &Arc<str>,
        after: u64,
        most: usize,
        deadline: Deadline,
    ) -> Result<Vec<(u64, Event)>, OutboxError> {
        let (disk, name) = (Arc::clone(&self.shared.disk), Arc::clone(receiver));
        let reading = move || disk.read(&name, after, most);
        let started = self.tasks.spawn_blocking("outbox read", deadline, reading).await;
        let handle = started.map_err(|_| OutboxError::Late)?;
        match deadline.bound(handle).await {
            Err(_) => Err(OutboxError::Late),
            Ok(Err(_)) => Err(OutboxError::Closed),
            Ok(Ok(read)) => read.map_err(|error| OutboxError::Disk(error.to_string().into())),
        }
    }

    /// Everything that waits for a receiver, the oldest first.
    pub async fn waiting(
        &self,
        receiver: &str,
        deadline: Deadline,
    ) -> Result<Vec<Event>, OutboxError> {
        let read = self.read(&receiver.into(), 0, usize::MAX, deadline).await?;
        Ok(read.into_iter().map(|(_, event)| event).collect())
    }

    /// Removes what a receiver took, up to a number. What cannot be removed is delivered once more after a
    /// restart, and never before.
    pub(crate) async fn took(&self, receiver: &Arc<str>, through: u64) {
        let (done, removed) = oneshot::channel();
        let request = Request::Took { receiver: Arc::clone(receiver), through, done };
        // An error: the process is about to end.
        let _ = self.commit.send(request).await;
        // Who has something to say of a full queue waits until it has room.
        if self.queue(receiver).missed.load(Relaxed) > 0 {
            let _ = Deadline::after(ROOM).bound(removed).await;
        }
    }

    /// Removes everything of a receiver that is gone.
    pub(crate) async fn purge(&self, receiver: &Arc<str>) {
        let _ = self.commit.send(Request::Purge { receiver: Arc::clone(receiver) }).await;
    }

    /// The receivers of which there is something in the file.
    pub(crate) fn known(&self) -> Vec<Arc<str>> {
        let queues = self.shared.queues.lock();
        queues
            .iter()
            .filter(|(_, queue)| queue.events() > 0)
            .map(|(name, _)| Arc::clone(name))
            .collect()
    }

    pub(crate) fn queue(&self, receiver: &Arc<str>) -> Arc<Queue> {
        Arc::clone(self.shared.queues.lock().entry(Arc::clone(receiver)).or_default())
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

impl Shared {
    /// `added`: there is something new to read, however much was removed meanwhile.
    fn publish(&self, receiver: &Arc<str>, counts: Counts, added: bool) {
        let queue = {
            let mut queues = self.queues.lock();
            Arc::clone(queues.entry(Arc::clone(receiver)).or_default())
        };
        queue.events.store(counts.events, Relaxed);
        queue.bytes.store(counts.bytes, Relaxed);
        self.metrics.queued(receiver, counts.events);
        if added {
            queue.wake.notify_one();
        }
    }
}

/// The thread's own: what is on disk, counted.
struct Writer {
    shared: Arc<Shared>,
    counts: BTreeMap<Arc<str>, Counts>,
}

impl GroupWriter for Writer {
    type Request = Request;

    fn write(&mut self, group: Vec<Request>) {
        let mut draft = self.counts.clone();
        let mut changes = Vec::with_capacity(group.len());
        let mut answers = Vec::new();
        // Dropped at the end, which is the sign.
        let mut removed = Vec::new();
        for request in group {
            match request {
                Request::Put { receivers, json, done } => {
                    let mut accepted = Accepted::default();
                    let json: Arc<[u8]> = json.into();
                    for receiver in receivers {
                        let counts = draft.entry(Arc::clone(&receiver)).or_default();
                        if self.shared.has_room(*counts, json.len()) {
                            let number = counts.add(json.len());
                            let json = Arc::clone(&json);
                            changes.push(disk::Change::Put(Arc::clone(&receiver), number, json));
                            accepted.by.push(receiver);
                        } else {
                            accepted.refused.push(receiver);
                        }
                    }
                    answers.push((accepted, done));
                }
                Request::Took { receiver, through, done } => {
                    changes.push(disk::Change::Took(receiver, through));
                    removed.push(done);
                }
                Request::Purge { receiver } => changes.push(disk::Change::Purge(receiver)),
            }
        }
        match self.shared.disk.commit(&changes, &mut draft) {
            Ok(purged) => {
                for (receiver, count) in purged {
                    self.shared.metrics.dropped(&receiver, "removed", count);
                    info!(%receiver, count, "notifications of a receiver that is gone were removed");
                }
                self.publish(draft);
                for (accepted, done) in answers {
                    for receiver in &accepted.refused {
                        let queues = self.shared.queues.lock();
                        if let Some(queue) = queues.get(receiver) {
                            queue.drop_one();
                        }
                        drop(queues);
                        self.shared.metrics.dropped(receiver, "full", 1);
                    }
                    // An error: whoever asked did not wait.
                    let _ = done.send(Ok(accepted));
                }
            }
            Err(why) => {
                let why: Arc<str> = stallproof::sentence(&why).into();
                error!(%why, "the outbox cannot be written");
                for (_, done) in answers {
                    let _ = done.send(Err(OutboxError::Disk(Arc::clone(&why))));
                }
            }
        }
    }

    fn panicked(&mut self, why: &str) {
        error!(why, "the outbox panicked; what was being written is refused");
    }

    fn close(self) {}
}

impl Writer {
    fn publish(&mut self, next: BTreeMap<Arc<str>, Counts>) {
        for (receiver, counts) in &next {
            let before = self.counts.get(receiver).copied().unwrap_or_default();
            if before != *counts {
                self.shared.publish(receiver, *counts, counts.last > before.last);
            }
        }
        for receiver in self.counts.keys().filter(|receiver| !next.contains_key(*receiver)) {
            self.shared.publish(receiver, Counts::default(), false);
            self.shared.queues.lock().remove(receiver);
        }
        self.counts = next;
    }
}

impl Shared {
    fn has_room(&self, counts: Counts, bytes: usize) -> bool {
        counts.events < self.limits.events
            && counts.bytes.saturating_add(bytes as u64) <= self.limits.bytes
    }
}

#[cfg(test)]
mod tests;
