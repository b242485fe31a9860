//! `ClusterObserver`: watches one cluster's nodes, peers and Services for as long as any mesh names the
//! cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fleet::resources::{Change, ListQuery, watch_as};
use fleet::{Connection, Error};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node, NodeSpec, NodeStatus, Service, ServiceSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, CustomResourceExt, ResourceExt};
use objects::kinds::{
    AddressBlock, ClusterMesh, DataPlane, MeshClusterRef, WireguardNode, WireguardNodeStatus,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use stallproof::backoff::Curve;
use stallproof::{Backoff, Deadline, Snapshot, sentence};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::cluster_access::{ClusterAccess, why_unknown};
use super::observed_clusters::{ObjectIndex, ObservedCluster, ObservedClusters};
use super::observed_services::ObservedServices;
use super::participants::data_planes;
use crate::endpoint::WIREGUARD_ENDPOINT;
use crate::mesh_node::GATEWAY;
use crate::observation::{Index, Observed};
use crate::peer::Peer;
use crate::peer_crd::{PEER_CRD_NAME, peer_crd};
use crate::peer_index::PeerIndex;
use crate::services::{
    ClusterServices, ENDPOINT_SLICES, Endpoint, EndpointSlice, SERVICE_EXPORTS, SERVICE_IMPORTS,
    SERVICE_NAME, SLICE_SERVICE, SOURCE_CLUSTER, ServiceExport, ServiceImport, service_export_crd,
    service_import_crd,
};

const PEER_CRD: &str = "the Peer CRD";
const WIREGUARD_PEER_CRD: &str = "the WireguardPeer CRD";

/// What a cluster waits for that does not know the peers of a data plane.
pub(super) fn peer_crd_of(plane: DataPlane) -> &'static str {
    match plane {
        DataPlane::Kilo => PEER_CRD,
        DataPlane::Wireguard => WIREGUARD_PEER_CRD,
    }
}
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
    pub(super) services: Snapshot<ObservedServices>,
    /// What meshes want of the cluster.
    pub(super) wants: watch::Receiver<Wants>,
}

/// What meshes want of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wants {
    pub(super) kilo: bool,
    pub(super) wireguard: bool,
    pub(super) services: bool,
    /// The definitions of peers are to be installed where they are missing.
    pub(super) install_crds: bool,
}

impl Wants {
    pub(super) fn add(&mut self, mesh: &ClusterMesh, services: bool) {
        let planes = data_planes(mesh, mesh.status.as_ref());
        self.kilo |= planes.contains(&DataPlane::Kilo);
        self.wireguard |= planes.contains(&DataPlane::Wireguard);
        self.services |= services;
        self.install_crds |= mesh.spec.install_crds;
    }

    /// The same, except for what does not change which kinds are watched.
    fn watched(self) -> Self {
        Self { install_crds: false, ..self }
    }
}

/// What kinds are a part of: the nodes and peers of a cluster, or its Services.
trait Whole: Sized {
    fn edit(observer: &ClusterObserver, edit: impl FnOnce(&mut Self) -> bool);
}

impl Whole for ObservedCluster {
    fn edit(observer: &ClusterObserver, edit: impl FnOnce(&mut Self) -> bool) {
        observer.clusters.update(|clusters| clusters.edit(&observer.cluster, edit));
    }
}

impl Whole for ClusterServices {
    fn edit(observer: &ClusterObserver, edit: impl FnOnce(&mut Self) -> bool) {
        observer.services.update(|clusters| clusters.edit(&observer.cluster, edit));
    }
}

/// What is observed of a cluster: one kind of objects that plans are made from.
trait ObservedKind: Send + Sync + 'static {
    type Object: ResourceExt + DeserializeOwned + Send + Sync + 'static;
    const RESOURCE: &'static str;
    /// What a cluster waits for that does not know the kind; none where it has no objects of it then.
    const MISSING: Option<&'static str>;
    /// The definition that may be installed where the kind is missing.
    const DEFINITION: Option<fn() -> Value>;
    /// Removes what no plan depends on.
    const STRIP: fn(Self::Object) -> Self::Object;
    /// Whether what is known stays when a list fails: then only the fleet says that a cluster is away.
    const STAYS: bool = false;
    type Whole: Whole;
    type Index: ObjectIndex<Object = Self::Object>;

    fn part(observed: &mut Self::Whole) -> &mut Observed<Self::Index>;
}

struct Nodes;
struct KiloPeers;
struct WireguardPeers;
struct WireguardNodes;
struct Blocks;

impl ObservedKind for Nodes {
    type Object = Node;
    const RESOURCE: &'static str = "nodes";
    const MISSING: Option<&'static str> = Some("the API of nodes");
    const DEFINITION: Option<fn() -> Value> = None;
    const STRIP: fn(Node) -> Node = strip_node;

    type Whole = ObservedCluster;
    type Index = Index<Node>;

    fn part(observed: &mut ObservedCluster) -> &mut Observed<Index<Node>> {
        &mut observed.kilo.nodes
    }
}

impl ObservedKind for KiloPeers {
    type Object = Peer;
    const RESOURCE: &'static str = PEER_CRD_NAME;
    const MISSING: Option<&'static str> = Some(PEER_CRD);
    const DEFINITION: Option<fn() -> Value> = Some(peer_crd);
    const STRIP: fn(Peer) -> Peer = strip_peer;

    type Whole = ObservedCluster;
    type Index = PeerIndex;

    fn part(observed: &mut ObservedCluster) -> &mut Observed<PeerIndex> {
        &mut observed.kilo.peers
    }
}

impl ObservedKind for WireguardPeers {
    type Object = Peer;
    const RESOURCE: &'static str = "wireguardpeers.fairlead.dev";
    const MISSING: Option<&'static str> = Some(WIREGUARD_PEER_CRD);
    const DEFINITION: Option<fn() -> Value> = Some(definition::<objects::kinds::WireguardPeer>);
    const STRIP: fn(Peer) -> Peer = strip_peer;

    type Whole = ObservedCluster;
    type Index = PeerIndex;

    fn part(observed: &mut ObservedCluster) -> &mut Observed<PeerIndex> {
        &mut observed.wireguard.peers
    }
}

impl ObservedKind for WireguardNodes {
    type Object = WireguardNode;
    const RESOURCE: &'static str = "wireguardnodes.fairlead.dev";
    const MISSING: Option<&'static str> = Some("the WireguardNode CRD");
    const DEFINITION: Option<fn() -> Value> = Some(definition::<WireguardNode>);
    const STRIP: fn(WireguardNode) -> WireguardNode = |node| {
        let mut kept = strip_metadata(node);
        // How far it is with peers that move is all that counts.
        let moves = kept.status.take().map(|status| status.moves).filter(|it| !it.is_empty());
        kept.status =
            moves.map(|moves| WireguardNodeStatus { moves, ..WireguardNodeStatus::default() });
        kept
    };

    type Whole = ObservedCluster;
    type Index = Index<WireguardNode>;

    fn part(observed: &mut ObservedCluster) -> &mut Observed<Index<WireguardNode>> {
        &mut observed.wireguard_nodes
    }
}

impl ObservedKind for Blocks {
    type Object = AddressBlock;
    const RESOURCE: &'static str = "addressblocks.fairlead.dev";
    // A cluster with another pod network.
    const MISSING: Option<&'static str> = None;
    const DEFINITION: Option<fn() -> Value> = None;
    const STRIP: fn(AddressBlock) -> AddressBlock = |block| {
        let mut kept = strip_metadata(block);
        kept.status = None;
        kept
    };

    type Whole = ObservedCluster;
    type Index = Index<AddressBlock>;

    fn part(observed: &mut ObservedCluster) -> &mut Observed<Index<AddressBlock>> {
        &mut observed.blocks
    }
}

macro_rules! services {
    ($($name:ident: $object:ty, $part:ident, $resource:expr, $missing:expr, $definition:expr, $strip:expr;)*) => {$(
        struct $name;

        impl ObservedKind for $name {
            type Object = $object;
            const RESOURCE: &'static str = $resource;
            const MISSING: Option<&'static str> = $missing;
            const DEFINITION: Option<fn() -> Value> = $definition;
            const STRIP: fn($object) -> $object = $strip;
            const STAYS: bool = true;
            type Whole = ClusterServices;
            type Index = Index<$object>;

            fn part(observed: &mut ClusterServices) -> &mut Observed<Index<$object>> {
                &mut observed.$part
            }
        }
    )*};
}

services! {
    Namespaces: Namespace, namespaces, "namespaces", Some("the API of namespaces"), None, strip_namespace;
    Services: Service, services, "services", Some("the API of Services"), None, strip_service;
    Slices: EndpointSlice, slices, ENDPOINT_SLICES, Some("the API of EndpointSlices"), None, strip_slice;
    // A cluster that does not know the kind exports nothing.
    Exports: ServiceExport, exports, SERVICE_EXPORTS, None, Some(service_export_crd), strip_export;
    Imports: ServiceImport, imports, SERVICE_IMPORTS, Some(IMPORT_CRD), Some(service_import_crd), strip_import;
}

/// What a cluster waits for that does not know what an imported Service is.
const IMPORT_CRD: &str = "the ServiceImport CRD";

/// An object with its names, its version, and those of its labels that plans read.
fn strip_labelled<K: ResourceExt>(mut object: K) -> K {
    let metadata = std::mem::take(object.meta_mut());
    let kept = |key: &str| [SERVICE_NAME, SOURCE_CLUSTER, SLICE_SERVICE].contains(&key);
    let ours = |key: &str| key.starts_with("fairlead.dev/mesh");
    let mut labels = metadata.labels.unwrap_or_default();
    let is_ours = labels.keys().any(|key| ours(key));
    // Of a slice that is ours all labels count.
    labels.retain(|key, _| is_ours || kept(key));
    let kept = object.meta_mut();
    kept.labels = (!labels.is_empty()).then_some(labels);
    // Only what is ours is written, for the version that is known.
    kept.resource_version = metadata.resource_version.filter(|_| is_ours);
    kept.name = metadata.name;
    kept.namespace = metadata.namespace;
    object
}

fn strip_namespace(mut namespace: Namespace) -> Namespace {
    let deleted = namespace.metadata.deletion_timestamp.take();
    let mut kept = Namespace::default();
    kept.metadata.name = namespace.metadata.name;
    kept.metadata.deletion_timestamp = deleted;
    kept
}

pub(super) fn strip_service(service: Service) -> Service {
    let mut kept = strip_labelled(service);
    kept.status = None;
    kept.spec = kept.spec.map(|spec| ServiceSpec {
        type_: spec.type_,
        cluster_ip: spec.cluster_ip,
        cluster_ips: spec.cluster_ips,
        ports: spec.ports,
        session_affinity: spec.session_affinity,
        session_affinity_config: spec.session_affinity_config,
        ..ServiceSpec::default()
    });
    kept
}

pub(super) fn strip_slice(slice: EndpointSlice) -> EndpointSlice {
    let mut kept = strip_labelled(slice);
    if let Some(endpoints) = &mut kept.endpoints {
        endpoints.retain(Endpoint::is_ready);
    }
    kept
}

pub(super) fn strip_export(mut export: ServiceExport) -> ServiceExport {
    let metadata = std::mem::take(&mut export.metadata);
    export.metadata = ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        resource_version: metadata.resource_version,
        generation: metadata.generation,
        creation_timestamp: metadata.creation_timestamp,
        deletion_timestamp: metadata.deletion_timestamp,
        ..ObjectMeta::default()
    };
    export
}

pub(super) fn strip_import(mut import: ServiceImport) -> ServiceImport {
    let metadata = std::mem::take(&mut import.metadata);
    import.metadata = ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        resource_version: metadata.resource_version,
        labels: metadata.labels,
        annotations: metadata.annotations,
        ..ObjectMeta::default()
    };
    import
}

/// The definition of a kind of ours, as an API server takes it.
fn definition<K: CustomResourceExt>() -> Value {
    let name = K::crd_name();
    let all = objects::kinds::definitions().into_iter();
    let fitted = all.filter(|definition| definition.name_any() == name);
    fitted.map(|it| objects::kinds::manifest(&it)).next().and_then(Result::ok).unwrap_or_default()
}

/// An object with its name and version.
fn strip_metadata<K: ResourceExt>(mut object: K) -> K {
    let metadata = std::mem::take(object.meta_mut());
    object.meta_mut().name = metadata.name;
    object.meta_mut().resource_version = metadata.resource_version;
    object
}

/// A node with its name, its annotations for meshes, pod networks and addresses. The rest changes all the
/// time.
pub(super) fn strip_node(node: Node) -> Node {
    let kilo = |annotations: BTreeMap<String, String>| {
        let own = [WIREGUARD_ENDPOINT, GATEWAY];
        let kept = |key: &str| key.starts_with("kilo.squat.ai/") || own.contains(&key);
        annotations.into_iter().filter(|(key, _)| kept(key)).collect()
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
    let mut kept = Peer { spec: peer.spec, ..Peer::default() };
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
                    let wants = self.wants.borrow().watched();
                    let Wants { kilo, wireguard, services, .. } = wants;
                    if !services {
                        // What nobody follows must not be taken for the present later.
                        self.services.update(|all| all.remove(&self.cluster));
                    }
                    tokio::select! {
                        () = self.watch::<Nodes>(&connection) => {}
                        () = self.watch::<KiloPeers>(&connection), if kilo => {}
                        () = self.watch::<WireguardPeers>(&connection), if wireguard => {}
                        () = self.watch::<WireguardNodes>(&connection), if wireguard => {}
                        () = self.watch::<Blocks>(&connection), if wireguard => {}
                        () = self.watch::<Namespaces>(&connection), if services => {}
                        () = self.watch::<Services>(&connection), if services => {}
                        () = self.watch::<Slices>(&connection), if services => {}
                        () = self.watch::<Exports>(&connection), if services => {}
                        () = self.watch::<Imports>(&connection), if services => {}
                        () = self.until_wanted_otherwise(wants) => {}
                        () = self.identify(&connection) => {}
                        () = self.until_reconnected(&connection, &mut fleet_changes) => {}
                        () = sleep(resync) => {}
                    }
                }
                Err(error) => {
                    let nodes = why_unknown(&self.cluster, &error);
                    let kilo = why_unknown(&self.cluster, &error);
                    let wireguard = why_unknown(&self.cluster, &error);
                    self.edit(|observed| {
                        observed.kilo.nodes.replace(nodes)
                            | observed.kilo.peers.replace(kilo)
                            | observed.wireguard.peers.replace(wireguard)
                    });
                    if self.wants.borrow().services {
                        self.all_services_away(&sentence(&error));
                    }
                    let wants = self.wants.borrow().watched();
                    tokio::select! {
                        _ = fleet_changes.changed() => {}
                        () = self.until_wanted_otherwise(wants) => {}
                    }
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

    /// Waits until meshes of other data planes name the cluster.
    async fn until_wanted_otherwise(&self, before: Wants) {
        let mut wants = self.wants.clone();
        let otherwise = |wants: &Wants| wants.watched() != before;
        if wants.wait_for(otherwise).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn edit(&self, edit: impl FnOnce(&mut ObservedCluster) -> bool) {
        ObservedCluster::edit(self, edit);
    }

    fn set<T: ObservedKind>(&self, now: Observed<T::Index>) {
        T::Whole::edit(self, |observed| T::part(observed).replace(now));
    }

    /// Notes that a list failed.
    fn failed<T: ObservedKind>(&self, error: &Error) {
        T::Whole::edit(self, |observed| {
            let part = T::part(observed);
            let stays = T::STAYS && part.known().is_some();
            !stays && part.replace(Observed::Away(sentence(error)))
        });
    }

    /// Notes that nothing of the cluster's Services can be known while the cluster is away.
    fn all_services_away(&self, why: &str) {
        fn away<T: PartialEq>(part: &mut Observed<Index<T>>, why: &str) -> bool {
            part.replace(Observed::Away(why.to_owned()))
        }
        ClusterServices::edit(self, |observed| {
            away(&mut observed.namespaces, why)
                | away(&mut observed.services, why)
                | away(&mut observed.slices, why)
                | away(&mut observed.exports, why)
                | away(&mut observed.imports, why)
        });
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
        let mut wants = self.wants.clone();
        loop {
            // Subscribed before the list, so that a kind that is installed meanwhile is not missed.
            let mut resets = connection.discovery().resets();
            let query = ListQuery { limit: Some(LIST_LIMIT), ..ListQuery::of(T::RESOURCE) };
            let (access, cluster) = (self.access.clone(), self.cluster.clone());
            let connect = move || access.connection(&cluster);
            // The future of the opening is large and is freed when the watch is open.
            match Box::pin(watch_as::<T::Object>(connect, query, Deadline::after(OPEN_TIMEOUT)))
                .await
            {
                Ok(changes) => {
                    backoff.succeeded();
                    tokio::select! {
                        () = self.follow::<T>(changes) => {}
                        () = until_kind_is_gone::<T>(connection, &mut resets),
                            if T::DEFINITION.is_some() => {}
                    }
                }
                Err(error) if is_no_such_kind(&error) => {
                    self.set::<T>(match T::MISSING {
                        Some(what) => Observed::Waiting(what.to_owned()),
                        None => Observed::Known(T::Index::listed(Vec::new())),
                    });
                    if let Some(definition) = T::DEFINITION
                        && wants.borrow_and_update().install_crds
                    {
                        install(connection, T::RESOURCE, definition()).await;
                    }
                    tokio::select! {
                        _ = resets.changed() => {}
                        Ok(()) = wants.changed() => {}
                        () = sleep(MISSING_KIND_RETRY) => {}
                    }
                    continue;
                }
                Err(error) => {
                    let (cluster, kind) = (connection.cluster(), T::RESOURCE);
                    debug!(cluster, kind, %error, "cannot watch a kind");
                    self.failed::<T>(&error);
                }
            }
            sleep(backoff.failed().wait).await;
        }
    }

    async fn follow<T: ObservedKind>(
        &self,
        changes: impl Stream<Item = Change<Vec<T::Object>, T::Object>>,
    ) {
        let mut changes = std::pin::pin!(changes);
        while let Some(change) = changes.next().await {
            T::Whole::edit(self, |observed| T::part(observed).apply(change, T::STRIP));
        }
    }
}

/// Installs a definition where there is none. A definition that Kilo installed is left alone.
async fn install(connection: &Connection, name: &str, definition: Value) {
    let deadline = Deadline::after(CALL_TIMEOUT);
    let applied = connection.call("installing a CRD", deadline, |client| async move {
        let params = PatchParams::apply(FIELD_MANAGER);
        let api = Api::<CustomResourceDefinition>::all(client);
        api.patch(name, &params, &Patch::Apply(definition)).await
    });
    let cluster = connection.cluster();
    match applied.await {
        Ok(_) => info!(cluster, name, "installed a CRD"),
        Err(error) => warn!(cluster, error = sentence(&error), "cannot install a CRD"),
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
