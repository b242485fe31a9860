//! `Learner`: the thread that owns the learned rules and the violations.
//!
//! Contract:
//! - Shards tell it of conversations without waiting. Those that find no room are counted; a
//!   conversation that was missed is learned from the published view, at the next tick.
//! - Learned rules and violations are published at a tick, if they changed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use stallproof::ledger::Outcome;
use stallproof::{Ledger, Snapshot};
use tokio::sync::{mpsc, oneshot};

use super::metrics::Metrics;
use super::queue_budget::{QueueBudget, Reservation};
use super::shard_owner::LATE;
use crate::conversations::{Applied, Conversation, Moment, Readers, Verdict};
use crate::rules::{Learned, LearnedRule};
use crate::violations::{Violations, ViolationsView};

/// Some sixty thousand conversations.
const WAITING: usize = 16 << 20;
/// What conversations that are told together are taken to weigh at least, so that the budget is spent
/// before the queue is full.
const LEAST: usize = 1 << 10;
/// Places for ticks, saves and promoted rules, which have no budget of their own.
const SPARE: usize = 256;
/// The weight of the names that a conversation points at.
const NAMES: usize = 64;

const KIND: &str = "learner";
const TENANT: &str = "guard";

enum Message {
    Seen { discovered: Vec<Conversation>, violations: Vec<Conversation>, _reserved: Reservation },
    Forget { from: Arc<str>, to: Arc<str>, done: oneshot::Sender<()> },
    Tick,
    Save(oneshot::Sender<Saved>),
    Close,
}

/// Its parts of a checkpoint.
pub(super) struct Saved {
    pub(super) learned: Vec<u8>,
    pub(super) violations: Vec<u8>,
}

/// What was learned, as it was published.
#[derive(Clone, Debug, Default)]
pub struct LearnedView {
    /// In the order of their groups.
    pub rules: Arc<[LearnedRule]>,
    /// Conversations from which nothing was learned for want of room.
    pub let_go: u64,
}

/// Where conversations are left for the learner. Clones are the same handle.
#[derive(Clone, Debug)]
pub(super) struct LearnerHandle {
    queue: mpsc::Sender<Message>,
    budget: Arc<QueueBudget>,
    /// A tick waits already.
    ticking: Arc<AtomicBool>,
    missed: Arc<Missed>,
    metrics: Metrics,
}

/// What found no room.
#[derive(Debug, Default)]
struct Missed {
    discovered: AtomicU64,
    violations: AtomicU64,
}

struct Learner {
    learned: Learned,
    violations: Violations,
    readers: Readers,
    ledger: Ledger,
    ticking: Arc<AtomicBool>,
    missed: Arc<Missed>,
    /// Up to here what was missed has been learned from the view.
    caught_up: u64,
    published: Published,
    changed: Changed,
}

#[derive(Clone, Copy, Debug, Default)]
struct Changed {
    learned: bool,
    violations: bool,
}

/// What it publishes.
#[derive(Clone, Debug)]
pub(super) struct Published {
    pub(super) learned: Snapshot<LearnedView>,
    pub(super) violations: Snapshot<ViolationsView>,
}

/// Gives them to a thread. The last is told when that has ended: false by a panic.
pub(super) fn start(
    learned: Learned,
    violations: Violations,
    readers: Readers,
    ledger: Ledger,
    metrics: Metrics,
) -> std::io::Result<(LearnerHandle, Published, oneshot::Receiver<bool>)> {
    let (queue, work) = mpsc::channel(WAITING / LEAST + SPARE);
    let handle = LearnerHandle {
        queue,
        budget: QueueBudget::new(WAITING),
        ticking: Arc::default(),
        missed: Arc::default(),
        metrics,
    };
    let published = Published {
        learned: Snapshot::new(view(&learned)),
        violations: Snapshot::new(violations.view()),
    };
    ledger.expect(KIND, LATE);
    let mut learner = Learner {
        learned,
        violations,
        readers,
        ledger,
        ticking: Arc::clone(&handle.ticking),
        missed: Arc::clone(&handle.missed),
        caught_up: 0,
        published: published.clone(),
        changed: Changed::default(),
    };
    let (ended, end) = oneshot::channel();
    thread::Builder::new().name("learner".to_owned()).spawn(move || {
        let ran = catch_unwind(AssertUnwindSafe(|| learner.run(work)));
        let _ = ended.send(ran.is_ok());
    })?;
    Ok((handle, published, end))
}

fn view(learned: &Learned) -> LearnedView {
    LearnedView { rules: learned.rules().into(), let_go: learned.let_go() }
}

impl LearnerHandle {
    pub(super) fn tell(&self, applied: Applied) {
        let Applied { discovered, violations, .. } = applied;
        let count = discovered.len() + violations.len();
        if count == 0 {
            return;
        }
        let (learnable, against) = (discovered.len() as u64, violations.len() as u64);
        let reserved = self.budget.reserve(LEAST + count * (size_of::<Conversation>() + NAMES));
        let told = reserved.is_some_and(|_reserved| {
            self.queue.try_send(Message::Seen { discovered, violations, _reserved }).is_ok()
        });
        if !told {
            self.missed.discovered.fetch_add(learnable, Ordering::Relaxed);
            self.missed.violations.fetch_add(against, Ordering::Relaxed);
            self.metrics.violations_missed(against);
        }
    }

    /// Violations that came faster than they were written down.
    pub(super) fn missed_violations(&self) -> u64 {
        self.missed.violations.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn missed_discovered(&self) -> u64 {
        self.missed.discovered.load(Ordering::Relaxed)
    }

    pub(super) fn tick(&self) {
        if !self.ticking.swap(true, Ordering::AcqRel) && self.queue.try_send(Message::Tick).is_err()
        {
            self.ticking.store(false, Ordering::Release);
        }
    }

    /// Waits for as long as it takes: bound it.
    pub(super) async fn save(&self) -> Option<Saved> {
        let (answer, saved) = oneshot::channel();
        self.queue.send(Message::Save(answer)).await.ok()?;
        saved.await.ok()
    }

    /// Waits for as long as it takes: bound it. False if its owner is gone.
    pub(super) async fn forget(&self, from: &str, to: &str) -> bool {
        let (done, forgotten) = oneshot::channel();
        let forget = Message::Forget { from: from.into(), to: to.into(), done };
        self.queue.send(forget).await.is_ok() && forgotten.await.is_ok()
    }

    pub(super) fn close(&self) {
        let _ = self.queue.try_send(Message::Close);
    }
}

impl Learner {
    fn run(&mut self, mut queue: mpsc::Receiver<Message>) {
        while let Some(message) = queue.blocking_recv() {
            let step = match &message {
                Message::Seen { .. } => "learn",
                Message::Forget { .. } => "forget",
                Message::Tick => "publish",
                Message::Save(_) => "save",
                Message::Close => break,
            };
            let op = self.ledger.begin(KIND, "learned rules and violations", TENANT);
            let _in_span = op.span().entered();
            op.step(step);
            #[cfg(any(test, feature = "faults"))]
            crate::faults::pass(crate::faults::Part::Learner);
            self.work(message);
            op.finish(Outcome::Done);
        }
    }

    fn work(&mut self, message: Message) {
        match message {
            Message::Seen { discovered, violations, _reserved } => {
                for seen in &discovered {
                    self.changed.learned |= self.learned.learn(seen);
                }
                self.changed.violations |= !violations.is_empty();
                violations.iter().for_each(|seen| self.violations.add(seen));
            }
            Message::Forget { from, to, done } => {
                self.learned.forget(&from, &to);
                self.changed.learned = true;
                self.publish();
                let _ = done.send(());
            }
            Message::Tick => {
                self.ticking.store(false, Ordering::Release);
                self.catch_up();
                self.publish();
            }
            Message::Save(answer) => {
                let (learned, violations) = (self.learned.save(), self.violations.save());
                let _ = answer.send(Saved { learned, violations });
            }
            Message::Close => {}
        }
    }

    fn publish(&mut self) {
        let Changed { learned, violations } = std::mem::take(&mut self.changed);
        if learned {
            let view = view(&self.learned);
            self.published.learned.update(|published| {
                *published = view;
                true
            });
        }
        if violations {
            let view = self.violations.view();
            self.published.violations.update(|published| {
                *published = view;
                true
            });
        }
    }

    /// Learns what it was not told of.
    fn catch_up(&mut self) {
        let missed = self.missed.discovered.load(Ordering::Relaxed);
        if missed == self.caught_up {
            return;
        }
        self.caught_up = missed;
        let view = self.readers.view();
        let seen = view.conversations(|_| true, Moment(0));
        let discovered = seen.filter(|seen| seen.verdict() == Some(Verdict::Discovered));
        for seen in discovered.filter_map(|seen| seen.to_conversation()) {
            self.changed.learned |= self.learned.learn(&seen);
        }
    }
}
