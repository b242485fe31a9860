//! An observer: one cluster's nodes and peers, for as long as any mesh names the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fleet::resources::{Change, ListQuery, Page, watch};
use fleet::{Connection, Error, Fleet, SourceKind};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node, NodeSpec, NodeStatus};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use objects::kinds::MeshClusterRef;
use serde::de::DeserializeOwned;
use stallproof::backoff::Curve;
use stallproof::{Backoff, Deadline, Snapshot, sentence};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::world::{Observed, World};
use crate::definition::{DEFINITION, definition};
use crate::peer::Peer;
use crate::plan::Seen;
use crate::state::Index;

/// What a cluster waits for that does not know Kilo's peers.
pub(super) const PEER_CRD: &str = "the Peer CRD";
const PEERS: &str = "peers.kilo.squat.ai";
const NODES: &str = "nodes";
const FIELD_MANAGER: &str = "fairlead";

/// A list and the opening of its watch.
const OPEN: Duration = Duration::from_secs(30);
const CALL: Duration = Duration::from_secs(10);
/// A cluster that cannot be listed, though it is connected.
const RETRY: Curve = Curve { first: Duration::from_millis(500), most: Duration::from_secs(20) };
/// How often a kind that is missing is asked for when nothing says that it came.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// How often everything is read anew, in case a change was missed after all; half more at random.
const RESYNC: Duration = Duration::from_secs(10 * 60);
/// More than any cluster has: a list that is cut would make the rest look gone.
const ALL: u32 = 1_000_000;

/// How a reference becomes a connection.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    pub(super) reference: MeshClusterRef,
    /// The fleet that everybody sees, or the one of kubeconfigs in Secrets.
    pub(super) fleet: Fleet,
}

impl Reach {
    /// What a cluster from a Secret is called in the private fleet.
    pub(super) fn name_of(namespace: &str, name: &str, key: &str) -> String {
        format!("{namespace}/{name}/{key}")
    }

    pub(super) fn connection(&self) -> Result<Connection, Error> {
        match &self.reference {
            MeshClusterRef::Fleet(name) => self.fleet.connection(name),
            MeshClusterRef::Secret(namespace, name, key) => {
                self.fleet.connection(&Self::name_of(namespace, name, key))
            }
            MeshClusterRef::Local => {
                let view = self.fleet.view();
                let local = view.clusters.values().find(|c| c.source.kind == SourceKind::InCluster);
                let cluster = "local".to_owned();
                let local = local.ok_or(Error::NoSuchCluster { cluster })?;
                view.connection(&local.name)
            }
        }
    }

    fn missing<T>(&self, error: &Error) -> Seen<T> {
        match (error, &self.reference) {
            (Error::NoSuchCluster { .. }, MeshClusterRef::Secret(namespace, name, _)) => {
                Seen::Waiting(format!("Secret {namespace}/{name}"))
            }
            (Error::NoSuchCluster { .. }, MeshClusterRef::Fleet(name)) => {
                Seen::Waiting(format!("cluster {name} to be in the fleet"))
            }
            (Error::NoSuchCluster { .. }, MeshClusterRef::Local) => Seen::Away(
                "Fairlead does not run in a cluster here; name the cluster with clusterRef instead \
                 of local"
                    .to_owned(),
            ),
            (error, _) => Seen::Away(sentence(error)),
        }
    }
}

pub(super) struct Observer {
    pub(super) reach: Reach,
    pub(super) world: Snapshot<World>,
    /// Whether a mesh asks for the definition of peers to be installed.
    pub(super) install: tokio::sync::watch::Receiver<bool>,
}

impl Observer {
    pub(super) async fn run(self) {
        let mut changes = self.reach.fleet.changes();
        loop {
            match self.reach.connection() {
                Ok(connection) => {
                    let resync = RESYNC.mul_f64(1.0 + fastrand::f64() / 2.0);
                    tokio::select! {
                        () = self.nodes(&connection) => {}
                        () = self.peers(&connection) => {}
                        () = self.identify(&connection) => {}
                        () = self.until_other(&connection, &mut changes) => {}
                        () = sleep(resync) => {}
                    }
                }
                Err(error) => {
                    self.edit(|observed| {
                        let (nodes, peers) =
                            (self.reach.missing(&error), self.reach.missing(&error));
                        let changed =
                            observed.sight.nodes != nodes || observed.sight.peers != peers;
                        observed.sight.nodes = nodes;
                        observed.sight.peers = peers;
                        changed
                    });
                    changes.changed().await;
                }
            }
        }
    }

    /// Until the cluster is away, or is reached through another client.
    async fn until_other(
        &self,
        connection: &Connection,
        changes: &mut stallproof::snapshot::Changes<fleet::FleetView>,
    ) {
        while self.reach.connection().is_ok_and(|now| now.is_same_client(connection)) {
            changes.changed().await;
        }
    }

    fn edit(&self, edit: impl FnOnce(&mut Observed) -> bool) {
        self.world.update(|world| world.edit(&self.reach.reference, edit));
    }

    fn connect(&self) -> impl Fn() -> Result<Connection, Error> + Send + Sync + 'static {
        let reach = self.reach.clone();
        move || reach.connection()
    }

    /// Who may not read it is told nothing, and two references to one cluster are then taken for two.
    async fn identify(&self, connection: &Connection) {
        let mut backoff = Backoff::new(RETRY);
        loop {
            let found = connection
                .call("asking who it is", Deadline::after(CALL), |client| async move {
                    Api::<Namespace>::all(client).get_metadata("kube-system").await
                })
                .await;
            if let Ok(found) = found {
                let identity: Option<Arc<str>> = found.uid().map(Into::into);
                self.edit(|observed| {
                    let changed = observed.identity != identity;
                    observed.identity = identity;
                    changed
                });
                return std::future::pending().await;
            }
            sleep(backoff.failed().wait).await;
        }
    }

    async fn nodes(&self, connection: &Connection) {
        let mut backoff = Backoff::new(RETRY);
        loop {
            let query = ListQuery { limit: Some(ALL), ..ListQuery::of(NODES) };
            // On the heap while it lasts: a watch that is open is small.
            match Box::pin(watch(self.connect(), query, Deadline::after(OPEN))).await {
                Ok(changes) => {
                    backoff.succeeded();
                    let mut changes = std::pin::pin!(changes);
                    while let Some(change) = changes.next().await {
                        self.edit(|observed| tell(&mut observed.sight.nodes, change, essential));
                    }
                }
                Err(error) => {
                    debug!(cluster = connection.cluster(), %error, "cannot watch nodes");
                    self.edit(|observed| {
                        say(&mut observed.sight.nodes, Seen::Away(sentence(&error)))
                    });
                }
            }
            sleep(backoff.failed().wait).await;
        }
    }

    async fn peers(&self, connection: &Connection) {
        let mut backoff = Backoff::new(RETRY);
        let mut install = self.install.clone();
        loop {
            // From before it is asked: what comes meanwhile is not missed.
            let mut resets = connection.discovery().resets();
            let query = ListQuery { limit: Some(ALL), ..ListQuery::of(PEERS) };
            // On the heap while it lasts: a watch that is open is small.
            match Box::pin(watch(self.connect(), query, Deadline::after(OPEN))).await {
                Ok(changes) => {
                    backoff.succeeded();
                    tokio::select! {
                        () = self.follow(changes) => {}
                        () = until_unknown(connection, &mut resets) => {}
                    }
                }
                Err(error) if is_no_such_kind(&error) => {
                    let waiting = || Seen::Waiting(PEER_CRD.to_owned());
                    self.edit(|observed| say(&mut observed.sight.peers, waiting()));
                    if *install.borrow_and_update() {
                        self.teach(connection).await;
                    }
                    tokio::select! {
                        _ = resets.changed() => {}
                        Ok(()) = install.changed() => {}
                        () = sleep(ASK_AGAIN) => {}
                    }
                    continue;
                }
                Err(error) => {
                    debug!(cluster = connection.cluster(), %error, "cannot watch peers");
                    self.edit(|observed| {
                        say(&mut observed.sight.peers, Seen::Away(sentence(&error)))
                    });
                }
            }
            sleep(backoff.failed().wait).await;
        }
    }

    async fn follow(
        &self,
        changes: impl Stream<Item = Change<Page<DynamicObject>, DynamicObject>>,
    ) {
        let mut changes = std::pin::pin!(changes);
        while let Some(change) = changes.next().await {
            self.edit(|observed| match change {
                Change::Applied(object) => {
                    parsed(&object, bare).is_some_and(|(_, peer)| observed.put(peer))
                }
                Change::Deleted(object) => observed.remove(&object.name_any(), None),
                listed => tell(&mut observed.sight.peers, listed, bare),
            });
        }
    }

    /// Installs the definition. Only where there is none: one that Kilo brought is Kilo's.
    async fn teach(&self, connection: &Connection) {
        let applied = connection
            .call("installing the Peer CRD", Deadline::after(CALL), |client| async move {
                let api = Api::<CustomResourceDefinition>::all(client);
                let params = PatchParams::apply(FIELD_MANAGER);
                api.patch(DEFINITION, &params, &Patch::Apply(definition())).await
            })
            .await;
        match applied {
            Ok(_) => info!(cluster = connection.cluster(), "installed the Peer CRD"),
            Err(error) => {
                warn!(
                    cluster = connection.cluster(),
                    error = sentence(&error),
                    "cannot install the Peer CRD"
                );
            }
        }
    }
}

/// Until the server no longer has peers at all. It is asked when its definitions change.
async fn until_unknown(connection: &Connection, resets: &mut tokio::sync::watch::Receiver<u64>) {
    loop {
        if resets.changed().await.is_err() {
            return std::future::pending().await;
        }
        let found = connection.find(PEERS, Deadline::after(CALL)).await;
        if found.as_ref().is_err_and(is_no_such_kind) {
            return;
        }
    }
}

fn is_no_such_kind(error: &Error) -> bool {
    match error {
        Error::NoSuchKind { .. } => true,
        Error::Refused { status, .. } => status.code == 404,
        _ => false,
    }
}

fn say<T>(seen: &mut Seen<Index<T>>, now: Seen<Index<T>>) -> bool
where
    T: PartialEq,
{
    let changed = *seen != now;
    *seen = now;
    changed
}

/// Takes a change into the index; whether it made a difference.
fn tell<T: Clone + PartialEq + DeserializeOwned>(
    seen: &mut Seen<Index<T>>,
    change: Change<Page<DynamicObject>, DynamicObject>,
    keep: fn(T) -> T,
) -> bool {
    match (change, &mut *seen) {
        (Change::Listed(page), _) => {
            let all = page.items.into_iter().filter_map(|object| parsed(&object, keep));
            say(seen, Seen::Known(all.map(|(name, one)| (name, Arc::new(one))).collect()))
        }
        (Change::Applied(object), Seen::Known(index)) => {
            let Some((name, one)) = parsed(&object, keep) else { return false };
            let same = index.get(&name).is_some_and(|known| **known == one);
            if !same {
                index.insert(name, Arc::new(one));
            }
            !same
        }
        (Change::Deleted(object), Seen::Known(index)) => {
            index.remove(object.name_any().as_str()).is_some()
        }
        // It goes on from what is known; the fleet says when the cluster is away.
        _ => false,
    }
}

fn parsed<T: DeserializeOwned>(object: &DynamicObject, keep: fn(T) -> T) -> Option<(Arc<str>, T)> {
    let name: Arc<str> = object.name_any().into();
    match serde_json::to_value(object).and_then(serde_json::from_value) {
        Ok(one) => Some((name, keep(one))),
        Err(error) => {
            warn!(object = %name, %error, "an object cannot be read and is left out");
            None
        }
    }
}

/// What of a node a plan can depend on: the rest changes all the time.
fn essential(node: Node) -> Node {
    let ours = |annotations: BTreeMap<String, String>| {
        annotations.into_iter().filter(|(key, _)| key.starts_with("kilo.squat.ai/")).collect()
    };
    let mut kept = Node::default();
    kept.metadata.name = node.metadata.name;
    kept.metadata.annotations = node.metadata.annotations.map(ours);
    kept.spec = node.spec.map(|spec| NodeSpec {
        pod_cidr: spec.pod_cidr,
        pod_cidrs: spec.pod_cidrs,
        ..NodeSpec::default()
    });
    kept.status = node
        .status
        .map(|status| NodeStatus { addresses: status.addresses, ..NodeStatus::default() });
    kept
}

/// A peer without what nobody asks for.
pub(super) fn bare(peer: Peer) -> Peer {
    let mut kept = Peer { metadata: Default::default(), spec: peer.spec };
    kept.metadata.name = peer.metadata.name;
    kept.metadata.labels = peer.metadata.labels;
    kept.metadata.resource_version = peer.metadata.resource_version;
    kept
}

#[cfg(test)]
mod tests;
