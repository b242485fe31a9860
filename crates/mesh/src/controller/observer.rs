//! `ClusterObserver`: watches one cluster's nodes and peers for as long as any mesh names the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fleet::resources::{Change, ListQuery, watch_as};
use fleet::{Connection, Error};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node, NodeSpec, NodeStatus};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use objects::kinds::MeshClusterRef;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stallproof::backoff::Curve;
use stallproof::{Backoff, Deadline, Snapshot, sentence};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::cluster_access::{ClusterAccess, why_unknown};
use super::observed_clusters::{ObservedCluster, ObservedClusters};
use crate::observation::{Index, Observation, Observed};
use crate::peer::Peer;
use crate::peer_crd::{PEER_CRD_NAME, peer_crd};

/// What a cluster waits for that does not know Kilo's peers.
pub(super) const PEER_CRD: &str = "the Peer CRD";
const FIELD_MANAGER: &str = "fairlead";

/// For a list and the opening of its watch.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Between attempts to list in a cluster that is connected and answers with an error.
const RETRY: Curve = Curve { first: Duration::from_millis(500), most: Duration::from_secs(20) };
/// How often a kind that is missing is asked for when nothing says that it was installed.
const MISSING_KIND_RETRY: Duration = Duration::from_secs(10);
/// How often everything is read again, in case a change was missed; up to half more at random.
const RESYNC: Duration = Duration::from_secs(10 * 60);
/// More objects than any cluster has: the objects beyond a limit would look deleted.
const LIST_LIMIT: u32 = 1_000_000;

pub(super) struct ClusterObserver {
    pub(super) cluster: MeshClusterRef,
    pub(super) access: ClusterAccess,
    pub(super) clusters: Snapshot<ObservedClusters>,
    /// Whether a mesh asks for the Peer CRD to be installed.
    pub(super) install_crd: watch::Receiver<bool>,
}

/// A kind that plans are made from.
trait ObservedKind: ResourceExt + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static {
    const RESOURCE: &'static str;
    /// What a cluster waits for that does not know the kind.
    const MISSING: &'static str;
    /// The definition that may be installed where the kind is missing.
    const DEFINITION: Option<fn() -> Value>;
    /// Removes what no plan depends on.
    const STRIP: fn(Self) -> Self;

    fn part(observation: &mut Observation) -> &mut Observed<Index<Self>>;
}

impl ObservedKind for Node {
    const RESOURCE: &'static str = "nodes";
    const MISSING: &'static str = "the API of nodes";
    const DEFINITION: Option<fn() -> Value> = None;
    const STRIP: fn(Self) -> Self = strip_node;

    fn part(observation: &mut Observation) -> &mut Observed<Index<Self>> {
        &mut observation.nodes
    }
}

impl ObservedKind for Peer {
    const RESOURCE: &'static str = PEER_CRD_NAME;
    const MISSING: &'static str = PEER_CRD;
    const DEFINITION: Option<fn() -> Value> = Some(peer_crd);
    const STRIP: fn(Self) -> Self = strip_peer;

    fn part(observation: &mut Observation) -> &mut Observed<Index<Self>> {
        &mut observation.peers
    }
}

/// A node with its name, Kilo's annotations, pod networks and addresses. The rest changes all the time.
pub(super) fn strip_node(node: Node) -> Node {
    let kilo = |annotations: BTreeMap<String, String>| {
        annotations.into_iter().filter(|(key, _)| key.starts_with("kilo.squat.ai/")).collect()
    };
    let mut kept = Node::default();
    kept.metadata.name = node.metadata.name;
    kept.metadata.annotations = node.metadata.annotations.map(kilo);
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

/// A peer with its name, labels, version and spec.
pub(super) fn strip_peer(peer: Peer) -> Peer {
    let mut kept = Peer { metadata: Default::default(), spec: peer.spec };
    kept.metadata.name = peer.metadata.name;
    kept.metadata.labels = peer.metadata.labels;
    kept.metadata.resource_version = peer.metadata.resource_version;
    kept
}

impl ClusterObserver {
    /// Observes the cluster until it is dropped.
    pub(super) async fn run(self) {
        let mut fleet_changes = self.access.fleet_of(&self.cluster).changes();
        loop {
            match self.access.connection(&self.cluster) {
                Ok(connection) => {
                    let resync = RESYNC.mul_f64(1.0 + fastrand::f64() / 2.0);
                    tokio::select! {
                        () = self.watch::<Node>(&connection) => {}
                        () = self.watch::<Peer>(&connection) => {}
                        () = self.identify(&connection) => {}
                        () = self.until_reconnected(&connection, &mut fleet_changes) => {}
                        () = sleep(resync) => {}
                    }
                }
                Err(error) => {
                    let nodes = why_unknown(&self.cluster, &error);
                    let peers = why_unknown(&self.cluster, &error);
                    self.edit(|ObservedCluster { observation, .. }| {
                        observation.nodes.replace(nodes) | observation.peers.replace(peers)
                    });
                    fleet_changes.changed().await;
                }
            }
        }
    }

    /// Waits until the cluster is away, or is reached through another client.
    async fn until_reconnected(
        &self,
        connection: &Connection,
        fleet_changes: &mut stallproof::snapshot::Changes<fleet::FleetView>,
    ) {
        let connect = || self.access.connection(&self.cluster);
        while connect().is_ok_and(|now| now.is_same_client(connection)) {
            fleet_changes.changed().await;
        }
    }

    fn edit(&self, edit: impl FnOnce(&mut ObservedCluster) -> bool) {
        self.clusters.update(|clusters| clusters.edit(&self.cluster, edit));
    }

    fn set<T: ObservedKind>(&self, now: Observed<Index<T>>) {
        self.edit(|observed| T::part(&mut observed.observation).replace(now));
    }

    /// Reads the cluster's identity once. If that is forbidden, two references to this cluster are taken
    /// for two clusters.
    async fn identify(&self, connection: &Connection) {
        let mut backoff = Backoff::new(RETRY);
        loop {
            let deadline = Deadline::after(CALL_TIMEOUT);
            let found = connection
                .call("reading the cluster's identity", deadline, |client| async move {
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

    /// Keeps what is known of one kind up to date.
    async fn watch<T: ObservedKind>(&self, connection: &Connection) {
        let mut backoff = Backoff::new(RETRY);
        let mut install_crd = self.install_crd.clone();
        loop {
            // Subscribed before the list, so that a kind that is installed meanwhile is not missed.
            let mut resets = connection.discovery().resets();
            let query = ListQuery { limit: Some(LIST_LIMIT), ..ListQuery::of(T::RESOURCE) };
            let (access, cluster) = (self.access.clone(), self.cluster.clone());
            let connect = move || access.connection(&cluster);
            // The future of the opening is large and is freed when the watch is open.
            match Box::pin(watch_as::<T>(connect, query, Deadline::after(OPEN_TIMEOUT))).await {
                Ok(changes) => {
                    backoff.succeeded();
                    tokio::select! {
                        () = self.follow(changes) => {}
                        () = until_kind_is_gone::<T>(connection, &mut resets),
                            if T::DEFINITION.is_some() => {}
                    }
                }
                Err(error) if is_no_such_kind(&error) => {
                    self.set::<T>(Observed::Waiting(T::MISSING.to_owned()));
                    if let Some(definition) = T::DEFINITION
                        && *install_crd.borrow_and_update()
                    {
                        install(connection, T::RESOURCE, definition()).await;
                    }
                    tokio::select! {
                        _ = resets.changed() => {}
                        Ok(()) = install_crd.changed() => {}
                        () = sleep(MISSING_KIND_RETRY) => {}
                    }
                    continue;
                }
                Err(error) => {
                    let (cluster, kind) = (connection.cluster(), T::RESOURCE);
                    debug!(cluster, kind, %error, "cannot watch a kind");
                    self.set::<T>(Observed::Away(sentence(&error)));
                }
            }
            sleep(backoff.failed().wait).await;
        }
    }

    async fn follow<T: ObservedKind>(&self, changes: impl Stream<Item = Change<Vec<T>, T>>) {
        let mut changes = std::pin::pin!(changes);
        while let Some(change) = changes.next().await {
            self.edit(|observed| T::part(&mut observed.observation).apply(change, T::STRIP));
        }
    }
}

/// Installs a definition where there is none. A definition that Kilo installed is left alone.
async fn install(connection: &Connection, name: &str, definition: Value) {
    let deadline = Deadline::after(CALL_TIMEOUT);
    let applied = connection.call("installing the Peer CRD", deadline, |client| async move {
        let params = PatchParams::apply(FIELD_MANAGER);
        let api = Api::<CustomResourceDefinition>::all(client);
        api.patch(name, &params, &Patch::Apply(definition)).await
    });
    let cluster = connection.cluster();
    match applied.await {
        Ok(_) => info!(cluster, "installed the Peer CRD"),
        Err(error) => warn!(cluster, error = sentence(&error), "cannot install the Peer CRD"),
    }
}

/// Waits until the server does not have the kind any more. It is asked when its definitions change.
async fn until_kind_is_gone<T: ObservedKind>(
    connection: &Connection,
    resets: &mut watch::Receiver<u64>,
) {
    loop {
        if resets.changed().await.is_err() {
            return std::future::pending().await;
        }
        let found = connection.find(T::RESOURCE, Deadline::after(CALL_TIMEOUT)).await;
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
