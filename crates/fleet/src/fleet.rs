//! `Fleet`: every cluster there is, connected to as well as it can be.
//!
//! ```text
//! sources ──whole sets──► merge ──one generation──► FleetView ──► readers
//!                           │                          ▲
//!                           └──access──► a task a cluster: connect, probe ──its own entry──┘
//! ```
//!
//! Contract:
//! - A reader loads one generation and waits for nobody. `connection` is a load and a map lookup.
//! - What the sources say becomes visible in one step, whatever its size; the tasks of clusters are
//!   told after that. So a name that is listed has the server that its source says, or none yet.
//! - A cluster that was removed or disabled has no connection from that generation on. Who holds
//!   one keeps it until it is dropped.

mod change;
mod disabled;
mod follow;
mod status;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use objects::Objects;
use prometheus_client::registry::Registry;
use serde::Serialize;
use stallproof::snapshot::{Changes, View};
use stallproof::{Deadline, Ledger, Snapshot, Tasks};
use tokio::sync::watch;
use tracing::info;

use crate::config::{FleetConfig, Timing};
use crate::connect::Connector;
use crate::connection::{ClusterCalls, Connection};
use crate::context::FleetContext;
use crate::credentials::Access;
use crate::dial::Step;
use crate::error::Error;
use crate::link::{Attempt, attempt};
use crate::source::{Offer, Offers, Sources, merge};
use crate::view::{ClusterView, DesiredCluster, FleetView, Heartbeat, Source, State};

/// A handle; clones are the same fleet.
#[derive(Clone, Debug)]
pub struct Fleet {
    published: Snapshot<FleetView>,
    context: Arc<FleetContext>,
    objects: Objects,
    /// Where imports and the list of disabled clusters are kept.
    namespace: Arc<str>,
}

/// What [`Fleet::test`] found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TestReport {
    pub cluster: String,
    /// In order, up to the one that failed: `credentials`, `resolve`, `tcp`, `proxy-tls` and
    /// `proxy` when there is one, `tls`, `authenticate`, `version`.
    pub steps: Vec<Step>,
    /// What the cluster would be if this were all we knew of it.
    pub verdict: State,
    pub why: Option<String>,
    pub version: Option<String>,
}

impl Fleet {
    /// Starts the sources and connects to what they bring. Ends with `tasks`.
    pub fn start(config: FleetConfig, objects: Objects, ledger: Ledger, tasks: &Tasks) -> Self {
        let tasks = tasks.child("fleet");
        let namespace = config.namespace.clone();
        let context = Arc::new(FleetContext::new(config.timing, ledger, tasks.clone()));
        let published = Snapshot::<FleetView>::default();
        let fleet = Self {
            published: published.clone(),
            context: Arc::clone(&context),
            objects: objects.clone(),
            namespace: namespace.as_str().into(),
        };
        let sources = Sources::start(config, &objects, &tasks);
        let disabled = disabled::watch(&objects, &namespace, &tasks);
        status::start(&published, &objects, &context.ledger, &tasks);
        FleetReconciler::new(published, context, sources, disabled).start(&tasks);
        fleet
    }

    /// A fleet of the clusters that its owner offers, connected to as any other's, which nobody else
    /// sees. It keeps nothing in the store.
    pub fn private(
        timing: Timing,
        objects: Objects,
        ledger: Ledger,
        tasks: &Tasks,
    ) -> (Self, Offers) {
        let tasks = tasks.child("private fleet");
        let context = Arc::new(FleetContext::new(timing, ledger, tasks.clone()));
        let published = Snapshot::<FleetView>::default();
        let (offers, sources) = Offers::source();
        let fleet = Self {
            published: published.clone(),
            context: Arc::clone(&context),
            objects,
            namespace: "".into(),
        };
        let disabled = Snapshot::new(Some(BTreeSet::new()));
        FleetReconciler::new(published, context, sources, disabled).start(&tasks);
        (fleet, offers)
    }

    /// One generation of everything.
    pub fn view(&self) -> View<FleetView> {
        self.published.load()
    }

    /// Tells of new generations.
    pub fn changes(&self) -> Changes<FleetView> {
        self.published.subscribe()
    }

    /// A load and a map lookup.
    pub fn connection(&self, name: &str) -> Result<Connection, Error> {
        self.published.read(|fleet| fleet.connection(name))
    }

    /// Tries it now, on a connection of its own, and says how each step went. Its task does the
    /// same, so that the view soon says what this saw.
    pub async fn test(&self, name: &str, deadline: Deadline) -> Result<TestReport, Error> {
        let wanted = self.published.read(|fleet| fleet.wanted.get(name).cloned());
        let wanted = wanted.ok_or_else(|| Error::NoSuchCluster { cluster: name.to_owned() })?;
        let report = |steps, verdict, why, version| {
            Ok(TestReport { cluster: name.to_owned(), steps, verdict, why, version })
        };
        let access = match &wanted.offer.access {
            Ok(access) => Arc::clone(access),
            Err(why) => return report(Vec::new(), State::Misconfigured, Some(why.clone()), None),
        };
        wanted.tenant.trigger.probe();
        // On a heap of its own: it is as large as all of connecting.
        let tried = Box::pin(attempt(name, &access, &self.context, false, deadline));
        match deadline.bound(tried).await {
            Ok(Attempt { steps, result: Ok((_, said)) }) => {
                report(steps, State::Ready, None, said.answer.version)
            }
            Ok(Attempt { steps, result: Err(failure) }) => {
                report(steps, failure.reason.state(), Some(failure.why), None)
            }
            Err(_) => {
                Err(Error::TooLate { cluster: name.to_owned(), doing: "testing it".to_owned() })
            }
        }
    }

    pub fn register(&self, registry: &mut Registry) {
        self.context.metrics.register(&self.published, registry);
        self.context.plugins.register(registry);
    }
}

/// How long the first merge waits to be told which clusters are disabled. A store that cannot be
/// reached is not to keep a fleet from its clusters.
const DISABLED_WITHIN: Duration = Duration::from_secs(2);

/// Makes the fleet what its sources say.
struct FleetReconciler {
    published: Snapshot<FleetView>,
    context: Arc<FleetContext>,
    sources: Sources,
    disabled: Snapshot<Option<BTreeSet<String>>>,
    connectors: HashMap<Arc<str>, ConnectorTask>,
    incarnations: u64,
}

/// A cluster's task: dropping this ends it.
struct ConnectorTask {
    incarnation: u64,
    wanted: watch::Sender<Arc<Access>>,
}

impl FleetReconciler {
    fn new(
        published: Snapshot<FleetView>,
        context: Arc<FleetContext>,
        sources: Sources,
        disabled: Snapshot<Option<BTreeSet<String>>>,
    ) -> Self {
        let connectors = HashMap::new();
        Self { published, context, sources, disabled, connectors, incarnations: 0 }
    }

    /// Its task is essential: without it no change would ever be seen again.
    fn start(self, tasks: &Tasks) {
        let stop = tasks.stopping();
        tasks.spawn_essential("merge", async move {
            stop.bound(self.run()).await;
        });
    }

    async fn run(mut self) {
        let mut disabled = self.disabled.subscribe();
        if self.disabled.read(Option::is_none) {
            let _ = Deadline::after(DISABLED_WITHIN).bound(disabled.changed()).await;
        }
        loop {
            self.merge();
            tokio::select! {
                () = self.sources.told.notified() => {}
                _ = disabled.changed() => {}
            }
        }
    }

    fn merge(&mut self) {
        let (found, synced) = self.sources.found();
        let disabled = self.disabled.load();
        let is_disabled =
            |name: &str| disabled.as_ref().is_some_and(|disabled| disabled.contains(name));
        // While sources are still telling for the first time, nobody had a name before the others.
        let before = self.published.load();
        let holder = |name: &str| {
            let held = before.wanted.get(name).filter(|_| before.synced);
            held.map(|wanted| wanted.offer.source.clone())
        };
        let merged = merge(found.iter().flat_map(|offers| offers.iter()), holder, is_disabled);
        let shadowed = merged.shadowed.into_iter().map(|(offer, by)| {
            let mut view = first_view(&offer, Heartbeat::default());
            view.why = Some(format!("its name is taken: {by} has it; give this one another name"));
            view.shadowed_by = Some(by);
            Arc::new(view)
        });
        self.reconcile(merged.wanted, shadowed.collect(), synced);
    }

    fn reconcile(
        &mut self,
        offers: BTreeMap<Arc<str>, Arc<Offer>>,
        shadowed: Vec<Arc<ClusterView>>,
        synced: bool,
    ) {
        // This is the only writer of `wanted`, so what is read here is still so when it is changed.
        let before = self.published.load().wanted.clone();
        let mut wanted = before.clone();
        let gone: Vec<_> =
            before.keys().filter(|name| !offers.contains_key(*name)).cloned().collect();
        for name in &gone {
            wanted.remove(name);
        }
        let mut changed = Vec::new();
        for (name, offer) in offers {
            let known = before.get(&name);
            if known.is_some_and(|known| known.offer == offer) {
                continue;
            }
            let life = match known {
                // Its clients, its callers' standing and what is known of its kinds go on.
                Some(known) if goes_on(known, &offer) => DesiredCluster { offer, ..known.clone() },
                _ => {
                    self.incarnations += 1;
                    let tenant = Arc::new(ClusterCalls::new(&self.context));
                    DesiredCluster {
                        offer,
                        incarnation: self.incarnations,
                        tenant,
                        heartbeat: Heartbeat::default(),
                    }
                }
            };
            wanted.insert(Arc::clone(&name), life.clone());
            changed.push((name, life));
        }

        // One generation for all of it.
        self.published.update(|fleet| {
            let same_shadows = fleet.shadowed.len() == shadowed.len()
                && fleet.shadowed.iter().zip(&shadowed).all(|(a, b)| same_shadow(a, b));
            if gone.is_empty() && changed.is_empty() && same_shadows && fleet.synced == synced {
                return false;
            }
            for name in &gone {
                fleet.clusters.remove(name);
                fleet.connections.remove(name);
            }
            for (name, life) in &changed {
                let known = before.get(name);
                let goes_on = known.is_some_and(|known| known.incarnation == life.incarnation);
                let view = match fleet.clusters.get(name) {
                    Some(view) if goes_on => ClusterView {
                        source: life.offer.source.clone(),
                        labels: life.offer.labels.clone(),
                        ..(**view).clone()
                    },
                    _ => {
                        fleet.connections.remove(name);
                        first_view(&life.offer, life.heartbeat.clone())
                    }
                };
                fleet.clusters.insert(Arc::clone(name), Arc::new(view));
            }
            if !same_shadows {
                fleet.shadowed = shadowed.into();
            }
            fleet.wanted = wanted;
            fleet.synced = synced;
            true
        });

        for name in &gone {
            self.connectors.remove(name);
            info!(cluster = %name, "gone");
        }
        for (name, life) in changed {
            self.set_going(name, &life);
        }
    }

    /// Tells a cluster's task what is wanted; starts or ends it if need be.
    fn set_going(&mut self, name: Arc<str>, life: &DesiredCluster) {
        let Some(access) = life.access() else {
            self.connectors.remove(&name);
            return;
        };
        let same_life = |task: &&ConnectorTask| task.incarnation == life.incarnation;
        if let Some(task) = self.connectors.get(&name).filter(same_life) {
            task.wanted.send_if_modified(|current| {
                let differs = *current != *access;
                if differs {
                    *current = Arc::clone(access);
                }
                differs
            });
            return;
        }
        let (sender, wanted) = watch::channel(Arc::clone(access));
        let connector = Connector {
            cluster: Arc::clone(&name),
            incarnation: life.incarnation,
            tenant: Arc::clone(&life.tenant),
            heartbeat: life.heartbeat.clone(),
            context: Arc::clone(&self.context),
            published: self.published.clone(),
        };
        let stop = self.context.tasks.stopping();
        self.context.tasks.spawn(format!("cluster {name}"), async move {
            stop.bound(connector.run(wanted)).await;
        });
        // The task of the life before, if there is one, ends with its sender.
        self.connectors
            .insert(name, ConnectorTask { incarnation: life.incarnation, wanted: sender });
    }
}

/// Whether what is known of a cluster still holds when it is offered like this: the same server, to
/// be connected to as before.
fn goes_on(before: &DesiredCluster, now: &Offer) -> bool {
    match (before.access(), &now.access) {
        (Some(before), Ok(now_access)) => now.enabled && before.endpoint == now_access.endpoint,
        _ => false,
    }
}

/// They are made anew with each merge.
fn same_shadow(a: &ClusterView, b: &ClusterView) -> bool {
    (&a.name, &a.source, &a.labels, &a.why, &a.shadowed_by)
        == (&b.name, &b.source, &b.labels, &b.why, &b.shadowed_by)
}

/// A cluster of which nothing is known yet.
fn first_view(offer: &Offer, heartbeat: Heartbeat) -> ClusterView {
    let (state, why) = match &offer.access {
        _ if !offer.enabled => (State::Disabled, None),
        Ok(_) => (State::Connecting, None),
        Err(why) => (State::Misconfigured, Some(why.clone())),
    };
    ClusterView {
        name: Arc::clone(&offer.name),
        source: offer.source.clone(),
        labels: offer.labels.clone(),
        server: offer.access.as_ref().ok().map(|access| access.endpoint.address()),
        state,
        since: Timestamp::now(),
        why,
        version: None,
        nodes: None,
        next_try: None,
        shadowed_by: None::<Source>,
        heartbeat,
    }
}

#[cfg(test)]
mod tests;
