//! Ingest: reports of agents in, a map of who talks to whom out.
//!
//! ```text
//!  offer ──► Router ──► ShardHandle ══ Owner (a thread for each shard) ──► View
//!              ▲                  ▲  └──► Learner (a thread) ──► learned rules, violations
//!            Inventory                │                                   │
//!  (pods, services, nodes,      Policy ◄──────────────────────────────┘
//!   groups: one snapshot)         ▲ └──► Shipped, for agents
//!                            NetworkRules
//! ```
//!
//! Contract:
//! - One replica ingests, for one term of its lease ([`ActiveIngest`]). A report is acknowledged when every
//!   shard has counted its part, and what was acknowledged as durable is known after `kill -9`.
//! - A shard that hangs holds up those who wait for it, and they have a deadline; who finds its queue
//!   full is refused at once with a time to come back. Reads, other shards, facts and rules go on.
//! - Readers see what was published, less than a second old.
//! - Everything that waits is bounded: [`owner::WAITING`] bytes before the shards, and a part of that
//!   before the learner.

mod acks;
mod active;
mod book;
mod checkpoints;
mod facts;
mod follow;
mod inventory;
mod learner;
mod metrics;
mod owner;
mod policy;
mod query;
mod room;
mod rule_change;
mod shipped;
mod statuses;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use objects::kinds::GroupMode;
use stallproof::ledger::Outcome;
use stallproof::snapshot::{Changes, View as Published};
use stallproof::{Deadline, Ledger, Snapshot, Tasks};
use tokio::sync::oneshot;

pub use active::ActiveIngest;
pub use book::Book;
pub use inventory::{Inventory, LocalWorkload};
pub use learner::LearnedView;
pub use policy::{Rules, WrittenRule};
pub use query::{Asked, Cursor, Page, Query};
pub use rule_change::RuleChange;
pub use shipped::{Shipped, ShippedGroup, ShippedRule};

use crate::conversations::{Judge, Limits, Moment, Readers, Report, Router, Unruled, View};
use crate::violations::ViolationsView;
use acks::Acks;
use checkpoints::{Checkpoints, Restored};
use metrics::Metrics;
use owner::Answer;
use policy::Policies;

/// How often shards publish and age.
const TICK: Duration = Duration::from_millis(500);
/// How soon to come back to a shard that is busy; longer the longer it has been at one thing.
const COME_BACK: Duration = Duration::from_secs(1);
const COME_BACK_MOST: Duration = Duration::from_secs(10);
/// When an agent's totals find no room: some are forgotten as agents go on.
const NO_ROOM: Duration = Duration::from_secs(30);

/// What is said wherever somebody could think otherwise.
pub const NOT_ENFORCED: &str =
    "protect is not enforced yet: what is against the rules is reported, and nothing is stopped";

/// Reports on the ledger.
const KIND: &str = "report";

/// Where a report is counted. Clones are the same.
#[derive(Clone, Debug)]
pub struct Ingest(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    router: Router,
    epoch: u64,
    ledger: Ledger,
    metrics: Metrics,
    acks: Acks,
    shards: Vec<owner::ShardHandle>,
    learner: learner::LearnerHandle,
    readers: Readers,
    learned: learner::Published,
    inventory: Snapshot<Inventory>,
    policies: Policies,
    checkpoints: Checkpoints,
}

/// How to ingest.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where checkpoints are kept.
    pub dir: PathBuf,
    pub shards: usize,
    pub limits: Limits,
    /// Of workloads in no group that has one.
    pub mode: GroupMode,
}

impl Settings {
    /// As many shards as there are cores, and two at least.
    pub fn new(dir: PathBuf) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self { dir, shards: cores.max(2), limits: Limits::default(), mode: GroupMode::Discover }
    }
}

/// What an agent is told of its batches, those of its incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// This batch was counted, and none before it is still being counted.
    pub through: u64,
    /// In a checkpoint on disk.
    pub durable: u64,
}

/// Nothing is lost by it: what was counted of the batch is not counted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCounted {
    #[error("no room; come back in {retry:?}")]
    Busy { retry: Duration },
    #[error("a newer incarnation of this agent is known")]
    Outdated { known: u64 },
}

impl Ingest {
    /// What there was, from the checkpoint; then everything that an ingest runs, in `tasks`. When
    /// one of its threads ends, `tasks` stops.
    async fn open(
        settings: &Settings,
        ledger: &Ledger,
        metrics: &Metrics,
        checkpoints: Checkpoints,
        tasks: &Tasks,
    ) -> std::io::Result<Self> {
        let restored = checkpoints.restore(settings, ledger, tasks).await?;
        let Restored { epoch, router, shards, readers, progress, learned, violations } = restored;
        let (learner, learned, end) =
            learner::start(learned, violations, readers.clone(), ledger.clone(), metrics.clone())?;
        watch_thread("learner", end, tasks);
        let judge: Snapshot<Arc<dyn Judge>> = Snapshot::new(Arc::new(Unruled));
        let room = owner::WAITING / shards.len();
        let mut handles = Vec::new();
        for (number, shard) in shards.into_iter().enumerate() {
            let tools = owner::Tools {
                ledger: ledger.clone(),
                judge: judge.clone(),
                learner: learner.clone(),
                metrics: metrics.clone(),
            };
            let (handle, end) = owner::start(shard, number, room, tools)?;
            watch_thread("shard", end, tasks);
            handles.push(handle);
        }
        let inventory = Snapshot::new(Inventory::new(settings.mode));
        let policies = Policies::start(
            judge,
            inventory.clone(),
            learned.learned.clone(),
            settings.mode,
            tasks,
        );
        let ingest = Self(Arc::new(Inner {
            router,
            epoch,
            ledger: ledger.clone(),
            metrics: metrics.clone(),
            acks: Acks::of(&progress, Instant::now()),
            shards: handles,
            learner,
            readers,
            learned,
            inventory,
            policies,
            checkpoints,
        }));
        tasks.spawn("guard-clock", ingest.clone().tick(tasks.clone()));
        Ok(ingest)
    }

    /// Counts a report. Returns when every shard has counted its part; or at once if there is no
    /// room for it, or at the deadline. `alive` says whether a node has an agent now.
    pub async fn offer(
        &self,
        report: &Report,
        alive: impl Fn(&str) -> bool + Send,
        deadline: Deadline,
    ) -> Result<Counted, NotCounted> {
        let Inner { ledger, metrics, acks, .. } = &*self.0;
        let began = Instant::now();
        let op = ledger.begin(KIND, report.agent.to_string(), report.agent.to_string());
        let flight = acks.begin(report, began);
        let counted = match flight {
            Ok(flight) => self.count(report, alive, deadline, &op).await.map(|()| flight.counted()),
            Err(outdated) => Err(outdated),
        };
        let (word, outcome) = match counted {
            Ok(_) => ("counted", Outcome::Done),
            Err(NotCounted::Busy { .. }) => ("busy", Outcome::Refused),
            Err(NotCounted::Outdated { .. }) => ("outdated", Outcome::Failed),
        };
        metrics.report(word, began.elapsed());
        op.finish(outcome);
        counted
    }

    async fn count(
        &self,
        report: &Report,
        alive: impl Fn(&str) -> bool + Send,
        deadline: Deadline,
        op: &stallproof::Op,
    ) -> Result<(), NotCounted> {
        let Inner { router, metrics, shards, inventory, .. } = &*self.0;
        op.step("route");
        let routed = router.route(report, &inventory.load().directory, alive);
        metrics.left_out(routed.left_out);
        // Room in all of them, or nothing is begun.
        let mut places = Vec::with_capacity(shards.len());
        for (handle, batch) in shards.iter().zip(routed.batches) {
            let taken = handle.room_for(&batch);
            if taken.is_none() && !batch.is_empty() {
                op.waits_on(format!("shard {}", handle.number), handle.working().map(|it| it.op));
                return Err(handle.come_back());
            }
            places.push((handle, batch, taken));
        }
        op.step("count");
        let mut waiting = Vec::with_capacity(shards.len());
        for (handle, batch, taken) in places {
            // An empty one tells a shard that the agent is there, which need not be waited for.
            let Some(taken) = taken else { continue };
            let answer = (!batch.is_empty()).then(|| {
                let (answer, answered) = oneshot::channel();
                waiting.push((handle, answered));
                answer
            });
            if !handle.count(batch, taken, answer) {
                return Err(handle.come_back());
            }
        }
        let mut refused = 0;
        for (handle, answered) in waiting {
            if let Some(working) = handle.working() {
                op.waits_on(format!("shard {}", handle.number), Some(working.op));
            }
            let answer = deadline.bound(answered).await;
            let Ok(Ok(answer)) = answer else { return Err(handle.come_back()) };
            if let Some(known) = answer.outdated {
                return Err(NotCounted::Outdated { known });
            }
            let Answer { refused: more, .. } = answer;
            refused += more;
        }
        if refused > 0 {
            return Err(NotCounted::Busy { retry: NO_ROOM });
        }
        Ok(())
    }

    /// The node is gone, and its agent with it. If it ever comes back, it begins a new incarnation.
    pub fn forget_agent(&self, node: &str) {
        let Inner { acks, shards, inventory, .. } = &*self.0;
        acks.forget(node);
        let name: Arc<str> = node.into();
        shards.iter().for_each(|handle| handle.forget(&name));
        let now = Moment::now();
        inventory.update(|inventory| {
            inventory.set_local(node, &[], now)
                | inventory.set_host(node, &[], now)
                | inventory.directory.set_local_addresses(node, &[])
        });
    }

    /// Whether it is the same one, of the same term.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Another one means that what agents have told so far may not be known here: they send all.
    pub fn epoch(&self) -> u64 {
        self.0.epoch
    }

    /// What agents need to know of rules and groups.
    pub fn shipped(&self) -> &Snapshot<Shipped> {
        &self.0.policies.shipped
    }

    /// The workloads that a node has, as its agent knows them: all of them. Where Kubernetes is asked
    /// about pods, that is what counts.
    pub fn pods_of(&self, node: &str, workloads: &[LocalWorkload]) {
        self.0.inventory.update(|inventory| inventory.set_local(node, workloads, Moment::now()));
    }

    /// The addresses of a node, as its agent knows them: all of them. Where Kubernetes is asked about
    /// nodes, that is what counts.
    pub fn addresses_of(&self, node: &str, addresses: &[IpAddr]) {
        self.0.inventory.update(|inventory| inventory.set_host(node, addresses, Moment::now()));
    }

    /// The addresses of all interfaces of a node, as its agent knows them: all of them. In what that
    /// agent reports, an address among them that is nobody else's is the node's.
    pub fn local_addresses_of(&self, node: &str, addresses: &[IpAddr]) {
        self.0
            .inventory
            .update(|inventory| inventory.directory.set_local_addresses(node, addresses));
    }

    /// The conversations, as they were last published.
    pub fn view(&self) -> View {
        self.0.readers.view()
    }

    pub fn inventory(&self) -> Published<Inventory> {
        self.0.inventory.load()
    }

    /// The rules that are written, and whether they decide.
    pub fn rules(&self) -> Published<Rules> {
        self.0.policies.rules.load()
    }

    pub fn learned(&self) -> Published<LearnedView> {
        self.0.learned.learned.load()
    }

    pub fn violations(&self) -> Published<ViolationsView> {
        self.0.learned.violations.load()
    }

    pub fn violation_changes(&self) -> Changes<ViolationsView> {
        self.0.learned.violations.subscribe()
    }

    /// Violations that came faster than they were written down.
    pub fn violations_missed(&self) -> u64 {
        self.0.learner.missed_violations()
    }

    /// A learned rule is written now, or was not wanted; if it is seen again it is learned again.
    /// False if that could not be said in time.
    pub async fn forget_learned(&self, from: &str, to: &str, deadline: Deadline) -> bool {
        deadline.bound(self.0.learner.forget(from, to)).await.unwrap_or(false)
    }

    async fn tick(self, tasks: Tasks) {
        let stop = tasks.stopping();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.bound(ticks.tick()).await.is_some() {
            self.0.shards.iter().for_each(owner::ShardHandle::tick);
            self.0.metrics.waiting(self.0.shards.iter().map(owner::ShardHandle::waiting).sum());
            self.0.learner.tick();
        }
    }

    fn close(&self) {
        self.0.shards.iter().for_each(owner::ShardHandle::close);
        self.0.learner.close();
    }
}

impl owner::ShardHandle {
    fn come_back(&self) -> NotCounted {
        let since = self.working().map_or(Duration::ZERO, |working| working.since.elapsed());
        NotCounted::Busy { retry: since.clamp(COME_BACK, COME_BACK_MOST) }
    }
}

/// Without one of its threads an ingest is no use: another term begins with the checkpoint.
fn watch_thread(name: &'static str, end: oneshot::Receiver<bool>, tasks: &Tasks) {
    let group = tasks.clone();
    let stop = tasks.stopping();
    tasks.spawn(format!("guard-{name}"), async move {
        if let Some(ended) = stop.bound(end).await
            && !ended.unwrap_or(false)
        {
            tracing::error!(thread = name, "a thread of the conversations panicked");
            group.stop(format!("the {name} of the conversations panicked"));
        }
    });
}

#[cfg(test)]
mod tests;
