//! `ShardOwner`: the worker that writes one shard.
//!
//! Contract: a caller that waits for its report waits for this shard alone. A tick publishes what changed,
//! and ages a part of the table: all of it within [`ROUND`] ticks.

use std::sync::Arc;

use stallproof::{Snapshot, Tasks};
use tokio::sync::oneshot;

use super::learner::LearnerHandle;
use super::metrics::Metrics;
use super::worker::{self, Worker, WorkerHandle};
use super::{NO_ROOM, NotCounted};
use crate::conversations::{Applied, Judge, Moment, Shard, ShardReport};

/// The budget of all shards together: half a million records, which are counted in less than a second.
pub(super) const WAITING: usize = 64 << 20;
/// The weight of a record, with its part of what it points at.
const RECORD: usize = 160;
/// Ticks in which the whole table is looked at, and the least of it in one.
const ROUND: usize = 120;
const PLACES: usize = 4096;

pub(super) type ShardHandle = WorkerHandle<Message>;

pub(super) enum Message {
    /// Nobody waits for a report without records.
    Count(ShardReport, Option<oneshot::Sender<Result<(), NotCounted>>>),
    Forget(Arc<str>),
    Save(oneshot::Sender<Vec<u8>>),
}

pub(super) struct ShardOwner {
    pub(super) shard: Shard,
    pub(super) number: usize,
    pub(super) judge: Snapshot<Arc<dyn Judge>>,
    /// The generation of the rules that the shard goes by; none before the first.
    pub(super) judged: Option<u64>,
    pub(super) learner: LearnerHandle,
    pub(super) metrics: Metrics,
}

impl ShardOwner {
    pub(super) fn start(
        self,
        bytes: usize,
        ledger: &stallproof::Ledger,
        tasks: &Tasks,
    ) -> std::io::Result<ShardHandle> {
        let number = self.number;
        worker::start(self, (format!("shard {number}"), number.to_string()), bytes, ledger, tasks)
    }
}

/// The weight of a report in a shard's queue.
pub(super) fn weight(report: &ShardReport) -> usize {
    report.len() * RECORD
}

impl Worker for ShardOwner {
    const KIND: &'static str = "shard";
    type Message = Message;

    fn step(message: &Message) -> &'static str {
        match message {
            Message::Count(..) => "count",
            Message::Forget(_) => "forget",
            Message::Save(_) => "save",
        }
    }

    fn prepare(&mut self) {
        #[cfg(any(test, feature = "faults"))]
        crate::faults::pass(crate::faults::Part::Shard(self.number));
        let judge = self.judge.load();
        if self.judged.replace(judge.generation()) != Some(judge.generation()) {
            self.shard.govern(Arc::clone(&judge));
        }
    }

    fn work(&mut self, message: Message) {
        match message {
            Message::Count(report, counted) => {
                let applied = self.shard.apply(&report, Moment::now());
                drop(report);
                if let Some(counted) = counted {
                    let outcome = match applied {
                        Applied { outdated: Some(known), .. } => {
                            Err(NotCounted::Outdated { known })
                        }
                        Applied { refused: 0, .. } => Ok(()),
                        _ => Err(NotCounted::Busy { retry: NO_ROOM }),
                    };
                    // The caller may have given up; the report is counted all the same.
                    let _ = counted.send(outcome);
                }
                self.learner.tell(applied);
            }
            Message::Forget(agent) => self.shard.forget_agent(&agent),
            Message::Save(answer) => _ = answer.send(self.shard.save()),
        }
    }

    fn tick(&mut self) {
        let places = self.shard.pairs().div_ceil(ROUND).max(PLACES);
        let applied = self.shard.age(Moment::now(), places);
        self.shard.publish();
        self.metrics.shard(self.number, &self.shard);
        self.learner.tell(applied);
    }

    fn end(&mut self) {
        self.shard.publish();
    }
}
