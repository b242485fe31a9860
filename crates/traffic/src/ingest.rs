//! Ingest: reports of agents in, a map of who talks to whom out.
//!
//! ```text
//!  offer ──► Router ──► ShardHandle ══ Owner (a thread for each shard) ──► View
//!              ▲                       ▲  └──► Learner (a thread) ──► learned rules, violations
//!          Inventory                   │                                   │
//!  (pods, services, nodes,          Policy ◄───────────────────────────────┘
//!   groups: one snapshot)            ▲ └──► AgentPolicy, for agents
//!                     Names ───┘    NetworkRules
//! ```
//!
//! Contract:
//! - One replica ingests, for one term of its lease ([`ActiveIngest`]). A report is acknowledged when every
//!   shard has counted its part, and what was acknowledged as durable is known after `kill -9`.
//! - A shard that hangs holds up those who wait for it, and they have a deadline; who finds its queue
//!   full is refused at once with a time to come back. Reads, other shards, facts and rules go on.
//! - Readers see what was published, less than a second old.
//! - Everything that waits is bounded: [`shard_owner::WAITING`] bytes before the shards, and a part of that
//!   before the learner.

mod acks;
mod active;
mod agent_policy;
mod checkpoints;
mod compare;
mod facts;
mod follow;
mod inventory;
mod learner;
mod metrics;
mod observed;
mod policy;
mod policy_store;
mod query;
mod queue_budget;
mod rule_change;
mod shard_owner;
#[cfg(feature = "simulation")]
pub mod simulation;
mod sink;
mod statuses;
mod worker;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use objects::kinds::GroupMode;
use stallproof::snapshot::{Changes, View as Published};
use stallproof::{Deadline, Ledger, Op, Snapshot, Tasks};
use tokio::sync::oneshot;

pub use active::ActiveIngest;
pub use agent_policy::{AgentGroup, AgentPolicy, AgentRule};
pub use compare::{Comparison, Difference, Proposal};
pub use inventory::Inventory;
pub use learner::LearnedView;
pub use policy::{WrittenRule, WrittenRules};
pub use policy_store::PolicyStore;
pub use query::{Cursor, Page, Query, VerdictFilter};
pub use rule_change::RuleChange;
pub use sink::{Counted, NotCounted, ReportSink};

use crate::conversations::{
    Judge, Limits, LocalWorkload, Moment, NoRules, Readers, Report, Router, View,
};
use crate::history::HistorySettings;
use crate::names::Names;
use crate::violations::ViolationsView;
use acks::Acks;
use checkpoints::{Checkpoints, Restored};
use metrics::Metrics;
use policy::Policies;
use shard_owner::{Message, ShardHandle, ShardOwner};

/// How often shards publish and age.
const TICK: Duration = Duration::from_millis(500);
/// How soon to come back to a shard that is busy; longer the longer it has been at one thing.
const COME_BACK: Duration = Duration::from_secs(1);
const COME_BACK_MOST: Duration = Duration::from_secs(10);
/// When an agent's totals find no room: some are forgotten as agents go on.
const NO_ROOM: Duration = Duration::from_secs(30);

/// What users are told wherever they could think otherwise.
pub const NOT_ENFORCED: &str = "protect stops connections on nodes whose agents enforce policies, which `fairlead policy status` \
     shows; elsewhere what is against the rules is reported";

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
    shards: Vec<ShardHandle>,
    learner: learner::LearnerHandle,
    readers: Readers,
    learned: learner::Published,
    inventory: Snapshot<Inventory>,
    /// Kinds that are followed and were not listed yet.
    unlisted: Snapshot<BTreeSet<&'static str>>,
    names: Names,
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
    /// Where history is kept, and how much of it.
    pub history: HistorySettings,
}

impl Settings {
    /// As many shards as there are cores, and two at least.
    pub fn new(dir: PathBuf) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let history = HistorySettings::new(dir.join("history"));
        let (shards, limits) = (cores.max(2), Limits::default());
        Self { dir, shards, limits, mode: GroupMode::Discover, history }
    }
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
        let read = readers.clone();
        let (learner, learned) =
            learner::start(learned, violations, read, metrics.clone(), ledger, tasks)?;
        let judge: Snapshot<Arc<dyn Judge>> = Snapshot::new(Arc::new(NoRules));
        let bytes = shard_owner::WAITING / shards.len();
        let owners = shards.into_iter().enumerate().map(|(number, shard)| ShardOwner {
            shard,
            number,
            judge: judge.clone(),
            judged: None,
            learner: learner.clone(),
            metrics: metrics.clone(),
        });
        let handles = owners.map(|owner| owner.start(bytes, ledger, tasks));
        let handles = handles.collect::<std::io::Result<_>>()?;
        let inventory = Snapshot::new(Inventory::new(settings.mode));
        let names = Names::default();
        let policies = Policies::start(
            judge,
            inventory.clone(),
            learned.learned.clone(),
            names.clone(),
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
            unlisted: Snapshot::default(),
            names,
            policies,
            checkpoints,
        }));
        tasks.spawn("guard-clock", ingest.clone().tick(tasks.clone()));
        Ok(ingest)
    }

    async fn count(
        &self,
        report: &Report,
        alive: impl Fn(&str) -> bool + Send,
        deadline: Deadline,
        op: &Op,
    ) -> Result<(), NotCounted> {
        let Inner { router, metrics, shards, inventory, .. } = &*self.0;
        op.step("route");
        let routed = router.route(report, &inventory.load().directory, alive);
        metrics.left_out(routed.left_out);
        // Room in all of them, or nothing is begun.
        let mut places = Vec::with_capacity(shards.len());
        for (handle, part) in shards.iter().zip(routed.parts) {
            let reserved = handle.reserve(shard_owner::weight(&part));
            if reserved.is_none() && !part.is_empty() {
                op.waits_on(handle.name.to_string(), handle.current().map(|it| it.op));
                return Err(come_back(handle));
            }
            places.push((handle, part, reserved));
        }
        op.step("count");
        let mut waiting = Vec::with_capacity(shards.len());
        for (handle, part, reserved) in places {
            // An empty one tells a shard that the agent is there, which need not be waited for.
            let Some(reserved) = reserved else { continue };
            let answer = (!part.is_empty()).then(|| {
                let (answer, counted) = oneshot::channel();
                waiting.push((handle, counted));
                answer
            });
            if !handle.send_reserved(Message::Count(part, answer), reserved) {
                return Err(come_back(handle));
            }
        }
        let mut all = Ok(());
        for (handle, counted) in waiting {
            if let Some(current) = handle.current() {
                op.waits_on(handle.name.to_string(), Some(current.op));
            }
            let Ok(Ok(counted)) = deadline.bound(counted).await else {
                return Err(come_back(handle));
            };
            all = all.and(counted);
        }
        all
    }

    /// Takes in all workloads of a node, as its agent told them. They count where Kubernetes tells of no
    /// pods.
    pub fn set_workloads(&self, node: &str, workloads: &[LocalWorkload]) {
        self.0.inventory.update(|inventory| inventory.set_local(node, workloads, Moment::now()));
    }

    /// Whether it is the same one, of the same term.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Where the conversations are published.
    pub(super) fn readers(&self) -> Readers {
        self.0.readers.clone()
    }

    /// The conversations, as they were last published.
    pub fn view(&self) -> View {
        self.0.readers.view()
    }

    /// What names of rules resolved to, by node.
    pub fn names(&self) -> &Names {
        &self.0.names
    }

    pub fn inventory(&self) -> Published<Inventory> {
        self.0.inventory.load()
    }

    /// The rules that are written, and whether they decide.
    pub fn rules(&self) -> Published<WrittenRules> {
        self.0.policies.rules.load()
    }

    pub fn learned(&self) -> Published<LearnedView> {
        self.0.learned.learned.load()
    }

    pub fn learned_changes(&self) -> Changes<LearnedView> {
        self.0.learned.learned.subscribe()
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
            self.0.shards.iter().for_each(ShardHandle::tick);
            self.0.metrics.waiting(self.0.shards.iter().map(ShardHandle::waiting).sum());
            self.0.learner.tick();
        }
    }

    fn close(&self) {
        self.0.shards.iter().for_each(ShardHandle::close);
        self.0.learner.close();
    }
}

impl ReportSink for Ingest {
    async fn offer(
        &self,
        report: &Report,
        alive: impl Fn(&str) -> bool + Send,
        deadline: Deadline,
        op: &Op,
    ) -> Result<Counted, NotCounted> {
        let began = Instant::now();
        if let Some(workloads) = &report.workloads {
            self.set_workloads(&report.agent, workloads);
        }
        if let Some(names) = &report.names {
            self.0.names.tell(&report.agent, names, Moment::now());
        }
        let counted = match self.0.acks.begin(report, began) {
            Ok(flight) => self.count(report, alive, deadline, op).await.map(|()| flight.counted()),
            Err(outdated) => Err(outdated),
        };
        let outcome = match counted {
            Ok(_) => "counted",
            Err(NotCounted::Busy { .. }) => "busy",
            Err(NotCounted::Outdated { .. }) => "outdated",
        };
        self.0.metrics.report(outcome, began.elapsed());
        counted
    }

    fn set_node_addresses(&self, node: &str, addresses: &[IpAddr], local: &[IpAddr]) {
        self.0.inventory.update(|inventory| {
            inventory.set_host(node, addresses, Moment::now())
                | inventory.directory.set_local_addresses(node, local)
        });
    }

    fn forget_agent(&self, node: &str) {
        let Inner { acks, shards, inventory, names, .. } = &*self.0;
        acks.forget(node);
        names.forget(node);
        let name: Arc<str> = node.into();
        // A full queue is no harm: an agent that stays away is forgotten after a day.
        shards.iter().for_each(|handle| handle.try_send(Message::Forget(Arc::clone(&name))));
        let now = Moment::now();
        inventory.update(|inventory| {
            inventory.set_local(node, &[], now)
                | inventory.set_host(node, &[], now)
                | inventory.directory.set_local_addresses(node, &[])
        });
    }

    fn epoch(&self) -> u64 {
        self.0.epoch
    }

    fn agent_policy(&self) -> &Snapshot<AgentPolicy> {
        &self.0.policies.agent_policy
    }
}

/// When to come back to a shard that is busy: later the longer it has been at one thing.
fn come_back(handle: &ShardHandle) -> NotCounted {
    let since = handle.current().map_or(Duration::ZERO, |current| current.since.elapsed());
    NotCounted::Busy { retry: since.clamp(COME_BACK, COME_BACK_MOST) }
}

#[cfg(test)]
mod tests;
