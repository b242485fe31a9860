//! `Owner`: the thread that writes one shard, and the [`ShardHandle`] at which work is left for it.
//!
//! Contract:
//! - The queue is bounded in bytes, and a report that finds no room is refused at once. A caller that
//!   waits for its report waits for this shard alone.
//! - While the thread works it is on the ledger as `shard`, by its number, with the step it is in:
//!   one that hangs is late after [`LATE`].
//! - A tick publishes what changed, and ages a part of the table: all of it within [`ROUND`] ticks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stallproof::ledger::Outcome;
use stallproof::{Ledger, OpId, Snapshot};
use tokio::sync::{mpsc, oneshot};

use super::learner;
use super::metrics::Metrics;
use super::queue_budget::{QueueBudget, Reservation};
use super::{NO_ROOM, NotCounted};
use crate::conversations::{Applied, Judge, Moment, Shard, ShardReport};

/// The budget of all shards together: half a million records, which are counted in less than a second.
pub(super) const WAITING: usize = 64 << 20;
/// What a report is taken to weigh beside its records, so that the budget is spent before the queue is
/// full.
const LEAST: usize = 1 << 10;
/// The weight of a record, with its part of what it points at.
const RECORD: usize = 160;
/// Places for ticks, saves and agents that left, which have no budget of their own.
const SPARE: usize = 256;
/// The longest piece of work, saving half a million rows, takes a fraction of this.
pub(super) const LATE: Duration = Duration::from_secs(3);
/// Ticks in which the whole table is looked at, and the least of it in one.
const ROUND: usize = 120;
const PLACES: usize = 4096;

pub(super) const KIND: &str = "shard";
const TENANT: &str = "guard";

pub(super) enum Message {
    Count {
        report: ShardReport,
        reserved: Reservation,
        /// None: nobody waits, because nothing is in it.
        counted: Option<oneshot::Sender<Result<(), NotCounted>>>,
    },
    Forget(Arc<str>),
    Tick,
    Save(oneshot::Sender<Vec<u8>>),
    Close,
}

/// Where work is left for an owner. Clones are the same handle.
#[derive(Clone, Debug)]
pub(super) struct ShardHandle {
    pub(super) number: usize,
    queue: mpsc::Sender<Message>,
    budget: Arc<QueueBudget>,
    /// A tick waits already.
    ticking: Arc<AtomicBool>,
    /// Written by the owner at both ends of each piece of work.
    working: Arc<Mutex<Option<Working>>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Working {
    pub(super) op: OpId,
    pub(super) since: Instant,
}

/// What an owner has beside its shard.
pub(super) struct OwnerContext {
    pub(super) ledger: Ledger,
    pub(super) judge: Snapshot<Arc<dyn Judge>>,
    pub(super) learner: learner::LearnerHandle,
    pub(super) metrics: Metrics,
}

struct Owner {
    shard: Shard,
    number: usize,
    context: OwnerContext,
    /// The generation of the rules that the shard goes by.
    judged: u64,
    ticking: Arc<AtomicBool>,
    working: Arc<Mutex<Option<Working>>>,
}

/// Gives the shard to a thread. The receiver is told when the thread has ended: false if it panicked.
pub(super) fn start(
    shard: Shard,
    number: usize,
    bytes: usize,
    context: OwnerContext,
) -> std::io::Result<(ShardHandle, oneshot::Receiver<bool>)> {
    let (queue, work) = mpsc::channel(bytes / LEAST + SPARE);
    let (ticking, working) = (Arc::default(), Arc::default());
    let budget = QueueBudget::new(bytes);
    let handle = ShardHandle { number, queue, budget, ticking, working };
    let (ticking, working) = (Arc::clone(&handle.ticking), Arc::clone(&handle.working));
    context.ledger.expect(KIND, LATE);
    let mut owner = Owner { shard, number, context, judged: 0, ticking, working };
    let (ended, end) = oneshot::channel();
    thread::Builder::new().name(format!("shard-{number}")).spawn(move || {
        owner.heed_rules(true);
        let ran = catch_unwind(AssertUnwindSafe(|| owner.run(work)));
        let _ = ended.send(ran.is_ok());
    })?;
    Ok((handle, end))
}

impl ShardHandle {
    /// Reserves room in the queue; none if there is not enough.
    pub(super) fn reserve(&self, report: &ShardReport) -> Option<Reservation> {
        self.budget.reserve(LEAST + report.len() * RECORD)
    }

    /// False if the owner is gone.
    pub(super) fn count(
        &self,
        report: ShardReport,
        reserved: Reservation,
        counted: Option<oneshot::Sender<Result<(), NotCounted>>>,
    ) -> bool {
        self.queue.try_send(Message::Count { report, reserved, counted }).is_ok()
    }

    /// Forgets an agent soon, or not at all if the queue is full: it is forgotten after a day anyway.
    pub(super) fn forget(&self, agent: &Arc<str>) {
        let _ = self.queue.try_send(Message::Forget(Arc::clone(agent)));
    }

    pub(super) fn tick(&self) {
        if !self.ticking.swap(true, Ordering::AcqRel) && self.queue.try_send(Message::Tick).is_err()
        {
            self.ticking.store(false, Ordering::Release);
        }
    }

    /// Takes as long as the shard needs: bound it.
    pub(super) async fn save(&self) -> Option<Vec<u8>> {
        let (answer, saved) = oneshot::channel();
        self.queue.send(Message::Save(answer)).await.ok()?;
        saved.await.ok()
    }

    pub(super) fn close(&self) {
        let _ = self.queue.try_send(Message::Close);
    }

    /// The piece of work that the owner is at; none if it waits for work.
    pub(super) fn working(&self) -> Option<Working> {
        *self.working.lock()
    }

    /// The bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.budget.reserved()
    }
}

impl Owner {
    fn run(&mut self, mut queue: mpsc::Receiver<Message>) {
        while let Some(message) = queue.blocking_recv() {
            if matches!(message, Message::Close) {
                break;
            }
            self.work(message);
        }
        self.shard.publish();
    }

    fn work(&mut self, message: Message) {
        let op = self.context.ledger.begin(KIND, self.number.to_string(), TENANT);
        let _in_span = op.span().entered();
        op.step(match &message {
            Message::Count { .. } => "count",
            Message::Tick => "age and publish",
            Message::Save(_) => "save",
            Message::Forget(_) | Message::Close => "forget",
        });
        *self.working.lock() = Some(Working { op: op.id(), since: Instant::now() });
        #[cfg(any(test, feature = "faults"))]
        crate::faults::pass(crate::faults::Part::Shard(self.number));
        self.heed_rules(false);
        match message {
            Message::Count { report, reserved, counted } => {
                let applied = self.shard.apply(&report, Moment::now());
                drop((report, reserved));
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
                self.context.learner.tell(applied);
            }
            Message::Tick => {
                self.ticking.store(false, Ordering::Release);
                let places = self.shard.pairs().div_ceil(ROUND).max(PLACES);
                let applied = self.shard.age(Moment::now(), places);
                self.shard.publish();
                self.context.metrics.shard(self.number, &self.shard);
                self.context.learner.tell(applied);
            }
            Message::Save(answer) => {
                let _ = answer.send(self.shard.save());
            }
            Message::Forget(agent) => self.shard.forget_agent(&agent),
            Message::Close => {}
        }
        *self.working.lock() = None;
        op.finish(Outcome::Done);
    }

    fn heed_rules(&mut self, first: bool) {
        let judge = self.context.judge.load();
        if first || judge.generation() != self.judged {
            self.judged = judge.generation();
            self.shard.govern(Arc::clone(&judge));
        }
    }
}
