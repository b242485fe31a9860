//! The outbox over a simulated disk, without its thread: whoever simulates is the one who writes.

use std::sync::Arc;

use stallproof::group_commit::GroupWriter;
use tokio::sync::oneshot;

use super::disk::Disk;
use super::{Accepted, OutboxError, OutboxLimits, Request, Shared, Writer};
use crate::event::Event;
use crate::metrics::Metrics;

/// One life of an outbox.
pub struct SimulatedOutbox {
    shared: Arc<Shared>,
    writer: Writer,
}

impl std::fmt::Debug for SimulatedOutbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimulatedOutbox")
    }
}

impl SimulatedOutbox {
    /// Opens what is on the disk that `backend` gives, each time that it is opened anew.
    pub fn open<B: redb::StorageBackend>(
        backend: impl Fn() -> B + Send + Sync + 'static,
        limits: OutboxLimits,
    ) -> Result<Self, redb::Error> {
        let (disk, found) = Disk::over(backend)?;
        let (disk, metrics) = (Arc::new(disk), Metrics::default());
        let shared = Arc::new(Shared { disk, queues: Default::default(), limits, metrics });
        for (name, counts) in &found {
            shared.publish(name, *counts, true);
        }
        let writer = Writer { shared: Arc::clone(&shared), counts: found };
        Ok(Self { shared, writer })
    }

    /// Writes one group of events, each for some receivers, and removes what receivers took, all in one commit.
    pub fn write(
        &mut self,
        events: Vec<(Vec<Arc<str>>, Event)>,
        took: Vec<(Arc<str>, u64)>,
    ) -> Vec<Result<Accepted, OutboxError>> {
        let mut answers = Vec::new();
        let mut group = Vec::new();
        for (receivers, event) in events {
            let (done, answer) = oneshot::channel();
            let json = serde_json::to_vec(&event).unwrap_or_default();
            group.push(Request::Put { receivers, json, done });
            answers.push(answer);
        }
        for (receiver, through) in took {
            let (done, _) = oneshot::channel();
            group.push(Request::Took { receiver, through, done });
        }
        self.writer.write(group);
        let answer =
            |mut it: oneshot::Receiver<_>| it.try_recv().unwrap_or(Err(OutboxError::Closed));
        answers.into_iter().map(answer).collect()
    }

    /// The next events of a receiver after a number, with their numbers.
    pub fn read(
        &self,
        receiver: &str,
        after: u64,
        most: usize,
    ) -> Result<Vec<(u64, Event)>, redb::Error> {
        self.shared.disk.read(receiver, after, most)
    }

    /// How many events wait for a receiver, and how many were not accepted for it in this life.
    pub fn counts(&self, receiver: &str) -> (u64, u64) {
        let queues = self.shared.queues.lock();
        queues.get(receiver).map_or((0, 0), |queue| (queue.events(), queue.dropped()))
    }
}
