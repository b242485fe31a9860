//! `Fleet`: connects to every cluster that the sources offer, and publishes the state of each.
//!
//! ```text
//! sources ──whole sets──► merge ──one generation──► FleetView ──► readers
//!                           │                          ▲
//!                           └──access──► a task a cluster: connect, probe ──its own entry──┘
//! ```
//!
//! Contract:
//! - A reader loads one generation and waits for nobody. `connection` is a load and a map lookup.
//! - A change of the sources becomes visible in one step, whatever its size; the clusters' tasks hear
//!   of it after that. So a listed name leads to the server that its source says, or to none yet.
//! - A cluster that was removed or disabled has no connection from that generation on. Whoever holds a
//!   connection keeps it until it is dropped.

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

use crate::actor::Actor;
use crate::client::{Attempt, attempt};
use crate::config::{FleetConfig, Timing};
use crate::connect::Connector;
use crate::connection::{ClusterCalls, Connection};
use crate::context::FleetContext;
use crate::credentials::Access;
use crate::dial::Step;
use crate::error::Error;
use crate::resources::usage_history::PrometheusService;
use crate::resources::{LiveTables, TableKey, TableSubscription};
use crate::source::{Offer, Offers, Sources, merge};
use crate::view::{ClusterView, DesiredCluster, FleetView, Heartbeat, Source, State};

/// A handle to the fleet. All clones share it.
#[derive(Clone, Debug)]
pub struct Fleet {
    published: Snapshot<FleetView>,
    context: Arc<FleetContext>,
    objects: Objects,
    /// The namespace of the store that holds imports and the list of disabled clusters.
    namespace: Arc<str>,
    tables: Arc<LiveTables>,
    /// Whether imports may name addresses of this machine.
    local_imports: bool,
    prometheus: Option<Arc<PrometheusService>>,
}

/// The result of [`Fleet::test`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TestReport {
    pub cluster: String,
    /// The steps in their order, up to the one that failed: `credentials`, `resolve`, `tcp`, `proxy-tls` and
    /// `proxy` when there is one, `tls`, `authenticate`, `version`, and `impersonate` where users act under
    /// their own names.
    pub steps: Vec<Step>,
    /// The state that the cluster would have by this attempt alone.
    pub verdict: State,
    pub why: Option<String>,
    pub version: Option<String>,
}

impl Fleet {
    /// Starts the sources and connects to the clusters that they offer, until `tasks` stops.
    pub fn start(config: FleetConfig, objects: Objects, ledger: Ledger, tasks: &Tasks) -> Self {
        let tasks = tasks.child("fleet");
        let namespace: Arc<str> = config.namespace.as_str().into();
        let context = FleetContext::new(config.timing, ledger, tasks.clone());
        let local_imports = config.local_imports;
        let prometheus = config.prometheus.clone();
        let impersonate = config.impersonate.clone();
        let sources = Sources::start(config, &objects, &tasks).impersonating(impersonate);
        let disabled = disabled::watch(&objects, &namespace, &tasks);
        let mut fleet = Self::reconciled(context, sources, disabled, objects, namespace);
        fleet.local_imports = local_imports;
        fleet.prometheus = prometheus.map(Arc::new);
        status::start(&fleet.published, &fleet.objects, &fleet.context.ledger, &tasks);
        fleet
    }

    /// Starts a fleet of the clusters that its owner offers. Nobody else sees it, and it keeps nothing
    /// in the store.
    pub fn private(
        timing: Timing,
        objects: Objects,
        ledger: Ledger,
        tasks: &Tasks,
    ) -> (Self, Offers) {
        let context = FleetContext::new(timing, ledger, tasks.child("private fleet"));
        let (offers, sources) = Offers::source();
        let disabled = Snapshot::new(Some(BTreeSet::new()));
        (Self::reconciled(context, sources, disabled, objects, "".into()), offers)
    }

    fn reconciled(
        context: FleetContext,
        sources: Sources,
        disabled: Snapshot<Option<BTreeSet<String>>>,
        objects: Objects,
        namespace: Arc<str>,
    ) -> Self {
        let (published, context) = (Snapshot::default(), Arc::new(context));
        FleetReconciler::new(published.clone(), Arc::clone(&context), sources, disabled).start();
        let tables = Arc::default();
        Self {
            published,
            context,
            objects,
            namespace,
            tables,
            local_imports: true,
            prometheus: None,
        }
    }

    /// Where clusters have a Prometheus, if that was said.
    pub fn prometheus(&self) -> Option<&PrometheusService> {
        self.prometheus.as_deref()
    }

    /// Returns the newest generation of the whole fleet.
    pub fn view(&self) -> View<FleetView> {
        self.published.load()
    }

    /// Subscribes to new generations.
    pub fn changes(&self) -> Changes<FleetView> {
        self.published.subscribe()
    }

    /// Returns the connection of a cluster. This costs a load and a map lookup.
    pub fn connection(&self, name: &str) -> Result<Connection, Error> {
        self.published.read(|fleet| fleet.connection(name))
    }

    /// Subscribes to a table of one cluster, which all who look at it share. Waits for nothing: the
    /// table says how it stands with it.
    pub fn table(&self, key: TableKey) -> Result<TableSubscription, Error> {
        let FleetContext { ledger, tasks, .. } = &*self.context;
        self.tables.subscribe(key, &self.published, ledger, tasks)
    }

    /// Returns the connection of a cluster on which everything is done as `actor`, where users act under
    /// their own names.
    pub fn connection_as(&self, name: &str, actor: &Actor) -> Result<Connection, Error> {
        self.published.read(|fleet| fleet.connection_as(name, actor))
    }

    /// Returns the connection for Fairlead's own work, which no user asked for.
    pub fn own_connection(&self, name: &str) -> Result<Connection, Error> {
        self.published.read(|fleet| fleet.own_connection(name))
    }

    /// Connects to a cluster now, on a connection of its own, and reports how each step went. The
    /// cluster's task probes as well, so that the view soon shows the same. Where users act under their own
    /// names, it is tried whether `actor` can.
    pub async fn test(
        &self,
        name: &str,
        actor: &Actor,
        deadline: Deadline,
    ) -> Result<TestReport, Error> {
        let wanted = self.published.read(|fleet| fleet.wanted.get(name).cloned());
        let wanted = wanted.ok_or_else(|| Error::NoSuchCluster { cluster: name.to_owned() })?;
        let report = |steps, verdict, why, version| {
            Ok(TestReport { cluster: name.to_owned(), steps, verdict, why, version })
        };
        let access = match &wanted.offer.access {
            Ok(access) => Arc::clone(access),
            Err(why) => return report(Vec::new(), State::Misconfigured, Some(why.clone()), None),
        };
        wanted.calls.trigger.probe();
        // Boxed, because it is as large as everything that connecting does.
        let tried = Box::pin(attempt(name, &access, &self.context, false, deadline));
        match deadline.bound(tried).await {
            Ok(Attempt { mut steps, result: Ok((client, said)) }) => {
                if let Some(impersonation) = &access.impersonation {
                    let began = tokio::time::Instant::now();
                    let tried = client.act(name, impersonation, actor, deadline).await;
                    let (ok, took) = (tried.is_ok(), began.elapsed());
                    steps.push(Step { name: "impersonate", ok, took });
                    if let Err(error) = tried {
                        let why = Some(stallproof::sentence(&error));
                        return report(steps, State::Misconfigured, why, said.answer.version);
                    }
                }
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

/// How long the first merge waits for the list of disabled clusters. A store that cannot be reached
/// must not keep a fleet from its clusters.
const DISABLED_WITHIN: Duration = Duration::from_secs(2);

/// Merges what the sources offer, publishes it, and runs one connector for each cluster.
struct FleetReconciler {
    published: Snapshot<FleetView>,
    context: Arc<FleetContext>,
    sources: Sources,
    disabled: Snapshot<Option<BTreeSet<String>>>,
    connectors: HashMap<Arc<str>, ConnectorTask>,
    incarnations: u64,
}

/// A running connector. Dropping its sender ends it.
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
    fn start(self) {
        let tasks = self.context.tasks.clone();
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
        // Until every source has told once, no source can have had a name before the others.
        let before = self.published.load();
        let holder = |name: &str| {
            let held = before.wanted.get(name).filter(|_| before.synced);
            held.map(|wanted| wanted.offer.source.clone())
        };
        let merged = merge(found.iter().flat_map(|offers| offers.iter()), holder, is_disabled);
        let shadowed = merged.shadowed.into_iter().map(|(offer, by)| {
            let mut view = first_view(&offer, Heartbeat::default());
            view.why = Some(format!(
                "another cluster has its name, from {by}; give this one another name"
            ));
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
        // Nobody else writes `wanted`, so that it is still the same when it is changed below.
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
            let desired = match known {
                // Its clients, its queue of calls and its discovered kinds stay.
                Some(known) if is_same_incarnation(known, &offer) => {
                    DesiredCluster { offer, ..known.clone() }
                }
                _ => {
                    self.incarnations += 1;
                    let calls = Arc::new(ClusterCalls::new(&self.context));
                    DesiredCluster {
                        offer,
                        incarnation: self.incarnations,
                        calls,
                        heartbeat: Heartbeat::default(),
                    }
                }
            };
            wanted.insert(Arc::clone(&name), desired.clone());
            changed.push((name, desired));
        }

        // One generation for the whole change.
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
            for (name, desired) in &changed {
                let known = before.get(name);
                let is_same_incarnation =
                    known.is_some_and(|known| known.incarnation == desired.incarnation);
                let view = match fleet.clusters.get(name) {
                    Some(view) if is_same_incarnation => ClusterView {
                        source: desired.offer.source.clone(),
                        labels: desired.offer.labels.clone(),
                        impersonating: desired
                            .access()
                            .is_some_and(|access| access.impersonation.is_some()),
                        ..(**view).clone()
                    },
                    _ => {
                        fleet.connections.remove(name);
                        first_view(&desired.offer, desired.heartbeat.clone())
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
        for (name, desired) in changed {
            self.start_or_update(name, &desired);
        }
    }

    /// Gives a cluster's connector its new access. Starts or ends the connector where that is needed.
    fn start_or_update(&mut self, name: Arc<str>, desired: &DesiredCluster) {
        let Some(access) = desired.access() else {
            self.connectors.remove(&name);
            return;
        };
        let is_same = |task: &&ConnectorTask| task.incarnation == desired.incarnation;
        if let Some(task) = self.connectors.get(&name).filter(is_same) {
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
            incarnation: desired.incarnation,
            calls: Arc::clone(&desired.calls),
            heartbeat: desired.heartbeat.clone(),
            context: Arc::clone(&self.context),
            published: self.published.clone(),
        };
        let stop = self.context.tasks.stopping();
        self.context.tasks.spawn(format!("cluster {name}"), async move {
            stop.bound(connector.run(wanted)).await;
        });
        // The connector of the incarnation before, if there is one, ends with its sender.
        self.connectors
            .insert(name, ConnectorTask { incarnation: desired.incarnation, wanted: sender });
    }
}

/// Whether a cluster stays the same incarnation: its endpoint is the same, it is still enabled, and users
/// act on it as before. A client from before would go on acting as Fairlead.
fn is_same_incarnation(before: &DesiredCluster, now: &Offer) -> bool {
    match (before.access(), &now.access) {
        (Some(before), Ok(now_access)) => {
            now.enabled
                && before.endpoint == now_access.endpoint
                && before.impersonation == now_access.impersonation
        }
        _ => false,
    }
}

/// Shadowed views are made anew with each merge, so that only their content can be compared.
fn same_shadow(a: &ClusterView, b: &ClusterView) -> bool {
    (&a.name, &a.source, &a.labels, &a.why, &a.shadowed_by)
        == (&b.name, &b.source, &b.labels, &b.why, &b.shadowed_by)
}

/// The view of a cluster that has not been tried yet.
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
        impersonating: offer.access.as_ref().is_ok_and(|access| access.impersonation.is_some()),
        shadowed_by: None::<Source>,
        heartbeat,
    }
}

#[cfg(test)]
mod tests;
