//! The thread that owns the [`Publisher`], and the task that brings it changes.
//!
//! Contract: changes that come while it compiles are taken in together. Publishing costs what changed and
//! the programs of the nodes that it concerns; a node that nobody follows has none.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt;
use jiff::Timestamp;
use policy::compile::RuleKey;
use policy::program::{PolicyKind, Program};
use policy::spec::{GuardGroup, GuardRule, Settings};
use policy::{Change, Compiler, Inputs, Publisher};
use serde_json::Value;
use stallproof::watchdog::Severity;
use stallproof::{Snapshot, Tasks, Watchdog};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{error, info, warn};
use traffic::ingest::{ActiveIngest, LearnedView};
use traffic::rules::LearnedRule;

use crate::metrics::Metrics;
use crate::sources::{SourceChange, Sources};
use crate::{Programs, WAITING};

/// The least time between two publishings: pods come and go in bursts. A generation is counted in
/// milliseconds since 1970 at first, so that this also keeps it behind the clock.
const PACE: Duration = Duration::from_millis(10);
/// Batches of changes that are gathered for one publishing, at most.
const GATHERED: usize = 64;

/// A policy, as users know it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyName {
    pub kind: PolicyKind,
    /// With its namespace if it has one.
    pub name: Arc<str>,
}

/// What programs are made of, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub inputs: Inputs,
    /// In which generation each policy was published as it is now.
    pub published: BTreeMap<PolicyName, u64>,
    /// The policies as they are written.
    pub documents: BTreeMap<PolicyName, Arc<Value>>,
    /// What is wrong with policies.
    pub problems: BTreeMap<PolicyName, String>,
    /// The generation that was published last.
    pub generation: u64,
}

/// What the thread is asked to do.
pub(crate) enum Work {
    Changes(Vec<SourceChange>),
    /// Every source has told all that it has.
    Synced,
    Follow(Arc<str>, oneshot::Sender<watch::Receiver<Option<Arc<Program>>>>),
    /// None until the sources have told.
    Facts(oneshot::Sender<Option<Arc<Facts>>>),
}

/// What compiling stands on.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) ingest: ActiveIngest,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) metrics: Metrics,
}

/// Begins to compile. The channel says when the thread has ended.
pub(crate) fn start(
    sources: Sources,
    settings: Settings,
    environment: &Environment,
    tasks: &Tasks,
) -> std::io::Result<(Programs, oneshot::Receiver<()>)> {
    let (work, inbox) = mpsc::channel(WAITING);
    let waiting = Snapshot::new(sources.waiting());
    let nodes = Arc::default();
    let thread = CompilerThread {
        publisher: Publisher::new(Compiler::new(settings), now()),
        synced: false,
        early: Vec::new(),
        followed: HashMap::new(),
        facts: Facts::default(),
        told: None,
        metrics: environment.metrics.clone(),
    };
    let beacon = environment.watchdog.beacon("compile-policies", Severity::Noted);
    let (ended, end) = oneshot::channel();
    thread::Builder::new().name("compile-policies".to_owned()).spawn(move || {
        let mut thread = thread;
        let mut inbox = inbox;
        while let Some(work) = inbox.blocking_recv() {
            let owed = beacon.owe();
            thread.serve(work);
            drop(owed);
        }
        let _ = ended.send(());
    })?;
    let gathering = Gathering {
        sources,
        learned: LearnedSource::new(&environment.ingest, settings),
        work: work.clone(),
        waiting: waiting.clone(),
    };
    let stop = tasks.stopping();
    tasks.spawn("policy-sources", async move {
        stop.bound(gathering.run()).await;
    });
    Ok((Programs { work, nodes, waiting, settings }, end))
}

fn now() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(1)
}

/// Brings changes to the thread.
struct Gathering {
    sources: Sources,
    learned: LearnedSource,
    work: mpsc::Sender<Work>,
    waiting: Snapshot<Vec<&'static str>>,
}

impl Gathering {
    async fn run(mut self) {
        let mut synced = false;
        loop {
            let mut changes = self.changed().await;
            for _ in 0..GATHERED {
                let Some(more) = self.changed().now_or_never() else { break };
                changes.extend(more);
            }
            if !changes.is_empty() && self.work.send(Work::Changes(changes)).await.is_err() {
                return;
            }
            if !synced {
                let mut waiting = self.sources.waiting();
                if self.learned.is_waited_for() {
                    waiting.push("learned rules");
                }
                synced = waiting.is_empty();
                self.waiting.publish(waiting);
                if synced && self.work.send(Work::Synced).await.is_err() {
                    return;
                }
            }
            tokio::time::sleep(PACE).await;
        }
    }

    /// Dropping the wait loses nothing.
    async fn changed(&mut self) -> Vec<SourceChange> {
        tokio::select! {
            changes = self.sources.changed() => {
                for change in &changes {
                    self.learned.heed(&change.change);
                }
                changes
            }
            change = self.learned.changed() => {
                let change = change.map(SourceChange::plain);
                change.into_iter().collect()
            }
        }
    }
}

/// The rules that were learned. They decide nothing while everything is in discover, and are then not
/// looked at.
struct LearnedSource {
    ingest: ActiveIngest,
    /// Groups that have a mode other than discover.
    strict: std::collections::BTreeSet<Arc<str>>,
    strict_by_default: bool,
    told: BTreeMap<Arc<str>, Arc<GuardRule>>,
    began: bool,
}

impl LearnedSource {
    fn new(ingest: &ActiveIngest, settings: Settings) -> Self {
        Self {
            ingest: ingest.clone(),
            strict: Default::default(),
            strict_by_default: settings.mode != objects::kinds::GroupMode::Discover,
            told: BTreeMap::new(),
            began: false,
        }
    }

    fn is_needed(&self) -> bool {
        self.strict_by_default || !self.strict.is_empty()
    }

    /// Whether programs have to wait for it: without what was learned, more would be denied than should be.
    fn is_waited_for(&self) -> bool {
        self.is_needed() && !self.began
    }

    /// Looks whether some group is stricter than discover.
    fn heed(&mut self, change: &Change) {
        if let Change::Group(name, group) = change {
            let mode = group.as_ref().and_then(|group| group.mode);
            match mode.is_some_and(|mode| mode != objects::kinds::GroupMode::Discover) {
                true => _ = self.strict.insert(Arc::clone(name)),
                false => _ = self.strict.remove(name),
            }
        }
    }

    /// Waits until what was learned is another, and is needed.
    async fn changed(&mut self) -> Option<Change> {
        if !self.is_needed() {
            return std::future::pending().await;
        }
        let mut terms = self.ingest.changes();
        let ingest = match self.ingest.ingest() {
            Some(ingest) => ingest,
            None => {
                terms.changed().await;
                self.ingest.ingest()?
            }
        };
        let mut changes = ingest.learned_changes();
        loop {
            let learned = ingest.learned();
            let began = std::mem::replace(&mut self.began, true);
            let differs = self.differences(&learned);
            if !differs.is_empty() || !began {
                return Some(Change::Rules(differs));
            }
            tokio::select! {
                _ = changes.changed() => {}
                _ = terms.changed() => return None,
            }
        }
    }

    fn differences(&mut self, learned: &LearnedView) -> Vec<(RuleKey, Option<Arc<GuardRule>>)> {
        let now: BTreeMap<Arc<str>, Arc<GuardRule>> = learned
            .rules
            .iter()
            .map(guard_rule)
            .map(|rule| (Arc::clone(&rule.name), rule))
            .collect();
        let gone = self.told.keys().filter(|name| !now.contains_key(*name));
        let gone = gone.map(|name| ((true, Arc::clone(name)), None));
        let other = now.iter().filter(|(name, rule)| self.told.get(*name) != Some(*rule));
        let other = other.map(|(name, rule)| ((true, Arc::clone(name)), Some(Arc::clone(rule))));
        let all = gone.chain(other).collect();
        self.told = now;
        all
    }
}

fn guard_rule(rule: &LearnedRule) -> Arc<GuardRule> {
    Arc::new(GuardRule {
        name: rule.name().into(),
        learned: true,
        priority: 0,
        from: GuardGroup::parse(&rule.from),
        to: GuardGroup::parse(&rule.to),
        ports: rule.ports.clone(),
        applications: Vec::new(),
        allows: true,
    })
}

struct CompilerThread {
    publisher: Publisher,
    synced: bool,
    /// Changes of before the sources had told everything.
    early: Vec<SourceChange>,
    followed: HashMap<Arc<str>, watch::Sender<Option<Arc<Program>>>>,
    /// All but the inputs, which are made when somebody asks.
    facts: Facts,
    /// What was told last, until something changes.
    told: Option<Arc<Facts>>,
    metrics: Metrics,
}

impl CompilerThread {
    fn serve(&mut self, work: Work) {
        match work {
            Work::Changes(changes) if !self.synced => self.early.extend(changes),
            Work::Changes(changes) => {
                let began = Instant::now();
                changes.into_iter().for_each(|change| self.apply(change));
                self.publish(began);
            }
            Work::Synced => {
                let began = Instant::now();
                let mut changes = std::mem::take(&mut self.early);
                // Pods last: each is then placed once, among all policies.
                changes.sort_by_key(|it| match it.change {
                    Change::Pod(..) => 2,
                    _ if it.policy.is_some() => 0,
                    _ => 1,
                });
                changes.into_iter().for_each(|change| self.apply(change));
                self.synced = true;
                let sizes = self.publisher.compiler().sizes();
                info!(took = ?began.elapsed(), ?sizes, "policies are compiled");
                for (node, newest) in &self.followed {
                    newest.send_replace(Some(self.publisher.follow(node)));
                }
                self.publish(began);
            }
            Work::Follow(node, answer) => {
                let newest = self.followed.entry(Arc::clone(&node)).or_insert_with(|| {
                    let program = self.synced.then(|| self.publisher.follow(&node));
                    watch::Sender::new(program)
                });
                let _ = answer.send(newest.subscribe());
                self.metrics.followed.set(count(self.followed.len()));
            }
            Work::Facts(answer) => {
                let _ = answer.send(self.synced.then(|| self.facts()));
            }
        }
    }

    fn apply(&mut self, change: SourceChange) {
        let SourceChange { change, policy, problem, written } = change;
        self.told = None;
        if let Some(policy) = policy {
            let is_gone = matches!(
                &change,
                Change::NetworkPolicy(_, None)
                    | Change::ClusterPolicy(_, None)
                    | Change::Group(_, None)
                    | Change::Rule(_, None)
            );
            match problem {
                Some(problem) => {
                    warn!(kind = %policy.kind, policy = %policy.name, problem, "a policy has a problem");
                    self.facts.problems.insert(policy.clone(), problem);
                }
                None => _ = self.facts.problems.remove(&policy),
            }
            match written {
                Some(written) => _ = self.facts.documents.insert(policy.clone(), written),
                None => _ = self.facts.documents.remove(&policy),
            }
            match is_gone {
                true => _ = self.facts.published.remove(&policy),
                // It is in the next generation.
                false => {
                    let next = self.publisher.generation() + 1;
                    self.facts.published.insert(policy, next);
                }
            }
        }
        self.publisher.apply(change);
    }

    fn publish(&mut self, began: Instant) {
        let gone: Vec<_> = self
            .followed
            .iter()
            .filter(|(_, newest)| newest.receiver_count() == 0)
            .map(|(node, _)| Arc::clone(node))
            .collect();
        for node in gone {
            self.followed.remove(&node);
            self.publisher.forget(&node);
        }
        let published = self.publisher.publish();
        self.facts.generation = self.publisher.generation();
        for (node, program) in &published {
            if let Some(newest) = self.followed.get(node) {
                newest.send_replace(Some(Arc::clone(program)));
            }
        }
        let metrics = &self.metrics;
        metrics.took.observe(began.elapsed());
        metrics.published.inc_by(published.len() as u64);
        metrics.followed.set(count(self.followed.len()));
        metrics.generation.set(i64::try_from(self.publisher.generation()).unwrap_or(i64::MAX));
        metrics.problems.set(count(self.facts.problems.len()));
    }

    fn facts(&mut self) -> Arc<Facts> {
        let Self { publisher, facts, told, .. } = self;
        let make = || {
            let compiler = publisher.compiler();
            let inputs = Inputs {
                cluster: compiler.cluster().clone(),
                policies: compiler.policies().clone(),
            };
            Arc::new(Facts { inputs, ..facts.clone() })
        };
        Arc::clone(told.get_or_insert_with(make))
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Drop for CompilerThread {
    fn drop(&mut self) {
        if thread::panicking() {
            error!(
                "policies are not compiled any more: the thread has panicked; it is begun again"
            );
        }
        self.metrics.term_ended();
    }
}
