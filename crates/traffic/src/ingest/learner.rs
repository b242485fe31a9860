//! `Learner`: the thread that owns the learned rules and the violations.
//!
//! Contract:
//! - Shards tell it of conversations without waiting. Those that find no room are counted; a
//!   conversation that was missed is learned from the published view, at the next tick.
//! - Learned rules and violations are published at a tick, if they changed.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stallproof::{Ledger, Snapshot, Tasks};
use tokio::sync::oneshot;

use super::metrics::Metrics;
use super::worker::{self, Worker, WorkerHandle};
use crate::conversations::{Applied, Conversation, Moment, Readers, Verdict};
use crate::rules::{Learned, LearnedRule};
use crate::violations::{Violations, ViolationsView};

/// Some sixty thousand conversations.
const WAITING: usize = 16 << 20;
/// The weight of the names that a conversation points at.
const NAMES: usize = 64;

pub(super) enum Message {
    Seen { discovered: Vec<Conversation>, violations: Vec<Conversation> },
    Forget { from: Arc<str>, to: Arc<str>, done: oneshot::Sender<()> },
    Save(oneshot::Sender<Saved>),
}

/// Its parts of a checkpoint.
pub(super) struct Saved {
    pub(super) learned: Vec<u8>,
    pub(super) violations: Vec<u8>,
}

/// What was learned, as it was published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnedView {
    /// In the order of their groups.
    pub rules: Arc<[LearnedRule]>,
    /// Conversations from which nothing was learned for want of room.
    pub let_go: u64,
}

/// Where conversations are left for the learner. Clones are the same handle.
#[derive(Clone, Debug)]
pub(super) struct LearnerHandle {
    worker: Arc<WorkerHandle<Message>>,
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

/// Gives learned rules and violations to a thread.
pub(super) fn start(
    learned: Learned,
    violations: Violations,
    readers: Readers,
    metrics: Metrics,
    ledger: &Ledger,
    tasks: &Tasks,
) -> std::io::Result<(LearnerHandle, Published)> {
    let published = Published {
        learned: Snapshot::new(view(&learned)),
        violations: Snapshot::new(violations.view()),
    };
    let missed: Arc<Missed> = Arc::default();
    let learner = Learner {
        learned,
        violations,
        readers,
        missed: Arc::clone(&missed),
        caught_up: 0,
        published: published.clone(),
        changed: Changed::default(),
    };
    let names = ("learner".to_owned(), "learned rules and violations".to_owned());
    let worker = Arc::new(worker::start(learner, names, WAITING, ledger, tasks)?);
    Ok((LearnerHandle { worker, missed, metrics }, published))
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
        let reserved = self.reserve(count * (size_of::<Conversation>() + NAMES));
        let seen = Message::Seen { discovered, violations };
        let told = reserved.is_some_and(|reserved| self.send_reserved(seen, reserved));
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

    /// Takes as long as the learner needs: bound it. False if it is gone.
    pub(super) async fn forget(&self, from: &str, to: &str) -> bool {
        let (from, to) = (from.into(), to.into());
        self.ask(|done| Message::Forget { from, to, done }).await.is_some()
    }
}

impl Deref for LearnerHandle {
    type Target = WorkerHandle<Message>;

    fn deref(&self) -> &Self::Target {
        &self.worker
    }
}

impl Worker for Learner {
    const KIND: &'static str = "learner";
    type Message = Message;

    fn step(message: &Message) -> &'static str {
        match message {
            Message::Seen { .. } => "learn",
            Message::Forget { .. } => "forget",
            Message::Save(_) => "save",
        }
    }

    fn prepare(&mut self) {
        #[cfg(any(test, feature = "faults"))]
        crate::faults::pass(crate::faults::Part::Learner);
    }

    fn work(&mut self, message: Message) {
        match message {
            Message::Seen { discovered, violations } => {
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
            Message::Save(answer) => {
                let (learned, violations) = (self.learned.save(), self.violations.save());
                let _ = answer.send(Saved { learned, violations });
            }
        }
    }

    fn tick(&mut self) {
        self.catch_up();
        self.publish();
    }
}

impl Learner {
    fn publish(&mut self) {
        let Changed { learned, violations } = std::mem::take(&mut self.changed);
        if learned {
            self.published.learned.publish(view(&self.learned));
        }
        if violations {
            self.published.violations.publish(self.violations.view());
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
