//! `ClusterMesh`: clusters whose pods reach each other through WireGuard. The field names are those
//! of kilo-clustermesh, so that moving over is an import.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{field, wireguard};
use crate::name;
use crate::store::{Invalid, Kind};

/// The most characters of a mesh's name, which is a label's value on every peer.
const LONGEST_NAME: usize = 63;
/// The most clusters of a mesh. Every cluster is joined to every other: the peers grow with the square.
const MOST_CLUSTERS: usize = 256;
/// The most clusters that may have peers: those in the mesh, and as many on their way out.
const MOST_JOINED: usize = 2 * MOST_CLUSTERS;
const MOST_NETWORKS: usize = 64;
/// The most characters of a network: an IPv6 network, written out, its end as an IPv4 address.
const LONGEST_NETWORK: usize = 49;
/// The characters of a network. Whether it is one, `check` says.
const NETWORK: &str = r"^[0-9a-fA-F:.]+/[0-9]{1,3}$";
const LONGEST_CLUSTER: usize = 63;
/// One that dies must leave another.
pub const FEWEST_GATEWAYS: u32 = 2;
const MOST_GATEWAYS: u32 = 16;
pub(super) const MOST_EXTERNAL_NETWORKS: usize = 8;
/// The most machines outside of clusters: each is a peer of every node.
const MOST_EXTERNAL_PEERS: usize = 256;
/// How many skipped nodes a status lists; it counts all of them.
pub const MOST_SKIPPED: usize = 32;

/// Clusters whose pods reach each other through WireGuard, carried by Kilo or by Fairlead's agents.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "ClusterMesh",
    doc = "Clusters whose pods reach each other through WireGuard, carried by Kilo or by Fairlead's agents.",
    namespaced,
    category = "fairlead",
    plural = "clustermeshes",
    shortname = "fcm",
    status = "ClusterMeshStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("a mesh's name has 63 characters at most"),
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Why","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].message","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct ClusterMeshSpec {
    /// The clusters to join, each to each.
    #[schemars(
        length(min = 2, max = MOST_CLUSTERS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    #[x_kube(validation = Rule::new("self.filter(c, has(c.local) && c.local).size() <= 1").message("at most one cluster is local"))]
    pub clusters: Vec<MeshCluster>,
    /// Who carries the packets, where a cluster does not say otherwise.
    #[serde(rename = "dataPlane", default, skip_serializing_if = "is_kilo")]
    pub data_plane: DataPlane,
    /// Install the CRD of peers in clusters that do not have it, instead of waiting until somebody does.
    #[serde(rename = "installCRDs", default, skip_serializing_if = "is_false")]
    pub install_crds: bool,
    /// Take over the peers that kilo-clustermesh made for a mesh of this name.
    #[serde(default, skip_serializing_if = "is_false")]
    pub adopt: bool,
    /// Join Services: one with a `ServiceExport` (multicluster.x-k8s.io) is reached from every cluster.
    #[serde(default, skip_serializing_if = "is_false")]
    pub services: bool,
    /// The ranges from which machines outside of clusters get their addresses.
    #[serde(rename = "externalNetworks", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_EXTERNAL_NETWORKS),
        inner(length(min = 1, max = LONGEST_NETWORK), regex(pattern = NETWORK))
    )]
    pub external_networks: Vec<String>,
    /// Machines outside of clusters that reach all of them: a laptop, an office.
    // One value to server-side apply: of a list by keys, Kubernetes 1.20 makes null when its last entry
    // is no longer applied, and refuses that.
    #[serde(rename = "externalPeers", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_EXTERNAL_PEERS),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub external_peers: Vec<ExternalPeer>,
}

/// A machine outside of clusters. Its private key is on that machine alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalPeer {
    #[schemars(length(min = 1, max = LONGEST_CLUSTER), regex(pattern = field::LABEL))]
    pub name: String,
    /// The public half of its key.
    #[schemars(length(min = wireguard::KEY_LENGTH, max = wireguard::KEY_LENGTH), regex(pattern = wireguard::KEY))]
    pub public_key: String,
    /// Its addresses, each in one of `externalNetworks`.
    #[schemars(length(min = 1, max = MOST_EXTERNAL_NETWORKS), inner(length(min = 1, max = LONGEST_NETWORK)))]
    pub addresses: Vec<String>,
    /// The networks behind it, which clusters reach through it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_EXTERNAL_NETWORKS),
        inner(length(min = 1, max = LONGEST_NETWORK), regex(pattern = NETWORK))
    )]
    pub networks: Vec<String>,
}

impl ExternalPeer {
    /// What is sent to it: its addresses, then the networks behind it. What does not parse is left out.
    pub fn routes(&self) -> Vec<IpNet> {
        let own = self.addresses.iter().filter_map(|it| it.parse::<std::net::IpAddr>().ok());
        let behind = self.networks.iter().filter_map(|it| it.parse::<IpNet>().ok());
        own.map(IpNet::from).chain(behind.map(|it| it.trunc())).collect()
    }
}

/// Who carries a mesh's packets.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Deserialize,
    Serialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum DataPlane {
    /// Kilo, by its peers.
    #[default]
    Kilo,
    /// Fairlead's agents, by WireGuard interfaces of their own.
    Wireguard,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_kilo(plane: &DataPlane) -> bool {
    *plane == DataPlane::Kilo
}

/// A cluster of the mesh: the local one, one with a kubeconfig in a Secret, or one of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.local) && self.local ? 1 : 0) + (has(self.kubeconfigSecretRef) ? 1 : 0) + (has(self.clusterRef) ? 1 : 0) == 1").message("exactly one of local, kubeconfigSecretRef and clusterRef says which cluster it is"))]
pub struct MeshCluster {
    /// The cluster's name in the mesh.
    #[schemars(length(min = 1, max = LONGEST_CLUSTER), regex(pattern = field::LABEL))]
    pub name: String,
    /// The cluster that Fairlead itself runs in.
    #[serde(default, skip_serializing_if = "is_false")]
    pub local: bool,
    /// A Secret beside the mesh that holds a kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<KubeconfigSecretRef>,
    /// The name of a cluster of the fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = LONGEST_CLUSTER), regex(pattern = field::NAME))]
    pub cluster_ref: Option<String>,
    /// Every network of the cluster that the others may reach: of pods, of WireGuard, of services.
    #[schemars(
        length(min = 1, max = MOST_NETWORKS),
        inner(length(min = 1, max = LONGEST_NETWORK), regex(pattern = NETWORK))
    )]
    pub allowed_networks: Vec<String>,
    /// Where a node listens if only its external address is known.
    #[serde(default = "wireguard_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub wireguard_port: u16,
    /// Seconds between keepalives, for clusters behind NAT; 0 is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 65535))]
    pub persistent_keepalive: u16,
    /// How many nodes carry the networks that no node has, such as those of services. Each node of another
    /// cluster sends to the first of them that answers. Without it one node carries them, until it is
    /// gone. With `dataPlane: wireguard` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = FEWEST_GATEWAYS, max = MOST_GATEWAYS))]
    pub gateways: Option<u32>,
    /// Which of its nodes have tunnels to other clusters. With `dataPlane: wireguard` alone.
    #[serde(default, skip_serializing_if = "is_nodes")]
    pub topology: Topology,
    /// Who carries this cluster's packets, if that is not the mesh's `dataPlane`. Two clusters use
    /// `wireguard` between them when both have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_plane: Option<DataPlane>,
}

/// Which nodes of a cluster have tunnels to other clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// Every node.
    #[default]
    Nodes,
    /// Gateways alone, two unless `gateways` says more. The other nodes send to the first that answers.
    Gateways,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_nodes(topology: &Topology) -> bool {
    *topology == Topology::Nodes
}

impl ClusterMeshSpec {
    /// Who is to carry a cluster's packets.
    pub fn data_plane_of(&self, cluster: &MeshCluster) -> DataPlane {
        cluster.data_plane.unwrap_or(self.data_plane)
    }

    /// The data plane of all clusters if they have the same, else the mesh's own.
    pub fn main_data_plane(&self) -> DataPlane {
        let planes = self.data_planes();
        if planes.len() == 1 { planes.into_iter().next() } else { None }.unwrap_or(self.data_plane)
    }

    /// The data planes that clusters of the mesh are to have.
    pub fn data_planes(&self) -> BTreeSet<DataPlane> {
        self.clusters.iter().map(|cluster| self.data_plane_of(cluster)).collect()
    }
}

#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
pub struct KubeconfigSecretRef {
    #[schemars(length(min = 1, max = field::LONGEST_NAME), regex(pattern = field::NAME))]
    pub name: String,
    #[serde(default = "kubeconfig_key")]
    #[schemars(length(min = 1, max = field::LONGEST_NAME), regex(pattern = field::SECRET_KEY))]
    pub key: String,
}

/// The state of the mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterMeshStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(default)]
    #[schemars(length(max = MOST_CLUSTERS))]
    pub clusters: Vec<MeshClusterStatus>,
    /// Every cluster that may have peers of this mesh. It is listed here before its first peer is written,
    /// so that a cluster which leaves is still found and cleared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_JOINED))]
    pub joined: Vec<JoinedCluster>,
    /// The data planes of which clusters may have peers of this mesh: those that the spec names, and one
    /// that clusters are being moved from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub data_planes: Vec<DataPlane>,
    /// The conditions Ready, Progressing, NetworksOverlap and, of a mesh that joins Services, Services.
    #[serde(default)]
    #[schemars(length(max = field::MOST_CONDITIONS))]
    pub conditions: Vec<MeshCondition>,
}

/// A cluster that may have peers of the mesh, and how it is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinedCluster {
    #[schemars(length(max = LONGEST_CLUSTER))]
    pub name: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub local: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<KubeconfigSecretRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_CLUSTER))]
    pub cluster_ref: Option<String>,
    /// The uid of its namespace `kube-system`, by which it is known whatever leads to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = field::LONGEST_NAME))]
    pub identity: Option<String>,
    /// Whether it may have imported Services, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub services: bool,
    /// What the removal of its peers waits for, when the cluster has left the mesh or the mesh is being
    /// deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = field::LONGEST_MESSAGE))]
    pub leaving: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeshClusterStatus {
    #[schemars(length(max = LONGEST_CLUSTER))]
    pub name: String,
    pub state: MeshState,
    /// What the cluster waits for, or what is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = field::LONGEST_MESSAGE))]
    pub why: Option<String>,
    /// Since when the cluster is in this state (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = field::LONGEST_TIME))]
    pub since: Option<String>,
    /// When all peers of the cluster were last in place (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = field::LONGEST_TIME))]
    pub last_success: Option<String>,
    /// The number of peers of its nodes that the other clusters should have.
    #[serde(default)]
    pub wanted_peers: u32,
    /// The number of those peers that are in place, exactly as they should be.
    #[serde(default)]
    pub registered_peers: u32,
    /// The clusters in which some of those peers are not in place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_CLUSTERS), inner(length(max = LONGEST_CLUSTER)))]
    pub missing_in: Vec<String>,
    /// The number of its nodes that have no peer.
    #[serde(default)]
    pub skipped: u32,
    /// The first of the nodes without a peer, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_SKIPPED))]
    pub skipped_nodes: Vec<SkippedNode>,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
pub enum MeshState {
    /// Its nodes have their peers in every other cluster, and it has the peers of all others.
    Converged,
    /// Something is missing that comes by itself or by a person: `why` says what.
    #[default]
    Waiting,
    Unreachable,
    /// Its networks overlap another cluster's: its peers are left as they are.
    Overlapping,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct SkippedNode {
    #[schemars(length(max = field::LONGEST_NAME))]
    pub name: String,
    /// One word for programs.
    #[schemars(length(max = field::LONGEST_REASON))]
    pub reason: String,
    /// A sentence for people.
    #[schemars(length(max = field::LONGEST_MESSAGE))]
    pub message: String,
}

/// A condition like Kubernetes' own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeshCondition {
    #[schemars(length(max = field::LONGEST_CONDITION_TYPE))]
    pub r#type: String,
    /// True, False or Unknown.
    #[schemars(length(max = field::LONGEST_CONDITION_STATUS))]
    pub status: String,
    #[schemars(length(max = field::LONGEST_REASON))]
    pub reason: String,
    #[schemars(length(max = field::LONGEST_MESSAGE))]
    pub message: String,
    /// When the status last changed (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = field::LONGEST_TIME))]
    pub last_transition_time: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(value: &u16) -> bool {
    *value == 0
}

fn wireguard_port() -> u16 {
    51820
}

fn kubeconfig_key() -> String {
    "kubeconfig".to_owned()
}

/// Which cluster an entry means, whatever a mesh calls it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MeshClusterRef {
    Local,
    /// A kubeconfig in a Secret: namespace, name and key.
    Secret(String, String, String),
    Fleet(String),
}

impl MeshClusterRef {
    /// The cluster that the fields name; none where they name none, or more than one.
    fn of(
        local: bool,
        secret: Option<&KubeconfigSecretRef>,
        cluster: Option<&String>,
        namespace: &str,
    ) -> Option<Self> {
        match (local, secret, cluster) {
            (true, None, None) => Some(Self::Local),
            (false, Some(KubeconfigSecretRef { name, key }), None) => {
                Some(Self::Secret(namespace.to_owned(), name.clone(), key.clone()))
            }
            (false, None, Some(name)) => Some(Self::Fleet(name.clone())),
            _ => None,
        }
    }
}

impl std::fmt::Display for MeshClusterRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local => f.write_str("the local cluster"),
            Self::Secret(namespace, name, key) => write!(f, "Secret {namespace}/{name}, key {key}"),
            Self::Fleet(name) => write!(f, "cluster {name} of the fleet"),
        }
    }
}

impl MeshCluster {
    /// The cluster that the entry names; none where it names none, or more than one: such a mesh does not
    /// pass `check`.
    pub fn reference(&self, namespace: &str) -> Option<MeshClusterRef> {
        let Self { local, kubeconfig_secret_ref, cluster_ref, .. } = self;
        let (secret, cluster) = (kubeconfig_secret_ref.as_ref(), cluster_ref.as_ref());
        MeshClusterRef::of(*local, secret, cluster, namespace)
    }
}

impl JoinedCluster {
    pub fn reference(&self, namespace: &str) -> Option<MeshClusterRef> {
        let Self { local, kubeconfig_secret_ref, cluster_ref, .. } = self;
        let (secret, cluster) = (kubeconfig_secret_ref.as_ref(), cluster_ref.as_ref());
        MeshClusterRef::of(*local, secret, cluster, namespace)
    }
}

impl From<&MeshCluster> for JoinedCluster {
    fn from(cluster: &MeshCluster) -> Self {
        Self {
            name: cluster.name.clone(),
            local: cluster.local,
            kubeconfig_secret_ref: cluster.kubeconfig_secret_ref.clone(),
            cluster_ref: cluster.cluster_ref.clone(),
            identity: None,
            services: false,
            leaving: None,
        }
    }
}

impl Kind for ClusterMesh {
    const NAME: &'static str = "ClusterMesh";
    const NAMESPACED: bool = true;

    fn check(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        if self.name_any().len() > LONGEST_NAME {
            problems.add("metadata.name", format!("has {LONGEST_NAME} characters at most"));
        }
        let clusters = &self.spec.clusters;
        if clusters.len() < 2 {
            problems.add("spec.clusters", "needs at least two clusters to join");
        }
        field::at_most(&mut problems, "spec.clusters", clusters.len(), MOST_CLUSTERS);
        let locals = clusters.iter().filter(|cluster| cluster.local).count();
        if locals > 1 {
            problems.add("spec.clusters", format!("{locals} clusters are local; one at most is"));
        }
        let mut names = BTreeMap::new();
        let mut references = BTreeMap::new();
        for (i, cluster) in clusters.iter().enumerate() {
            let at = format!("spec.clusters[{i}]");
            check_cluster(&mut problems, &at, cluster);
            let is_kilo = self.spec.data_plane_of(cluster) == DataPlane::Kilo;
            if cluster.gateways.is_some() && is_kilo {
                let problem = "needs dataPlane: wireguard; Kilo chooses its own gateways";
                problems.add(format!("{at}.gateways"), problem);
            }
            let is_mixed = self.spec.data_planes().len() > 1;
            if cluster.topology == Topology::Gateways && (is_kilo || is_mixed) {
                let problem = "gateways needs dataPlane: wireguard in every cluster of the mesh; move \
                               them all first";
                problems.add(format!("{at}.topology"), problem);
            }
            if let Some(first) = names.insert(&cluster.name, i) {
                let name = &cluster.name;
                problems.add(
                    format!("{at}.name"),
                    format!("{name:?} is the name of clusters[{first}] too"),
                );
            }
            // Two locals have their sentence already.
            let reference = cluster.reference("").filter(|r| *r != MeshClusterRef::Local);
            if let Some(reference) = reference
                && let Some(first) = references.insert(reference, i)
            {
                problems.add(&at, format!("is the same cluster as clusters[{first}]"));
            }
        }
        check_external(&mut problems, &self.spec);
        problems.into_result()
    }

    fn check_status(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        if let Some(status) = &self.status {
            check_status(&mut problems, status);
        }
        problems.into_result()
    }
}

/// Checks that no address of a machine outside belongs to somebody else.
fn check_external(problems: &mut Invalid, spec: &ClusterMeshSpec) {
    let at = "spec.externalNetworks";
    field::at_most(problems, at, spec.external_networks.len(), MOST_EXTERNAL_NETWORKS);
    field::at_most(problems, "spec.externalPeers", spec.external_peers.len(), MOST_EXTERNAL_PEERS);
    let clusters = spec.clusters.iter().flat_map(|cluster| {
        let networks = cluster.allowed_networks.iter().filter_map(|it| it.parse::<IpNet>().ok());
        networks.map(move |network| (network, cluster.name.clone()))
    });
    let mut taken: Vec<(IpNet, String)> = clusters.collect();
    let overlaps = |a: &IpNet, b: &IpNet| a.contains(b) || b.contains(a);
    let mut ranges = Vec::new();
    for (i, text) in spec.external_networks.iter().enumerate() {
        let Ok(range) = text.parse::<IpNet>() else {
            problems.add(
                format!("{at}[{i}]"),
                format!("{text:?} is not a network, such as 10.99.0.0/24"),
            );
            continue;
        };
        if let Some((network, owner)) = taken.iter().find(|(it, _)| overlaps(it, &range)) {
            problems.add(format!("{at}[{i}]"), format!("{range} overlaps {network} of {owner}"));
        }
        ranges.push(range);
    }
    let mut names = BTreeMap::new();
    let mut keys = BTreeMap::new();
    for (i, peer) in spec.external_peers.iter().enumerate() {
        let at = format!("spec.externalPeers[{i}]");
        let ExternalPeer { name, public_key, addresses, networks } = peer;
        if let Some(problem) = name::dns_label(name) {
            problems.add(format!("{at}.name"), format!("{name:?} {problem}"));
        }
        wireguard::check_key(problems, &format!("{at}.publicKey"), Some(public_key));
        if let Some(first) = names.insert(name, i) {
            problems.add(format!("{at}.name"), format!("is that of externalPeers[{first}] too"));
        }
        if let Some(first) = keys.insert(public_key, i) {
            problems
                .add(format!("{at}.publicKey"), format!("is that of externalPeers[{first}] too"));
        }
        if addresses.is_empty() {
            problems
                .add(format!("{at}.addresses"), "needs at least one address of externalNetworks");
        }
        for address in addresses {
            let parsed = address.parse::<std::net::IpAddr>().ok();
            if !parsed.is_some_and(|it| ranges.iter().any(|range| range.contains(&it))) {
                let problem = format!("{address:?} is not an address of spec.externalNetworks");
                problems.add(format!("{at}.addresses"), problem);
            }
        }
        for network in networks.iter().filter(|it| it.parse::<IpNet>().is_err()) {
            let problem = format!("{network:?} is not a network, such as 192.168.7.0/24");
            problems.add(format!("{at}.networks"), problem);
        }
        for route in peer.routes() {
            if let Some((other, owner)) = taken.iter().find(|(it, _)| overlaps(it, &route)) {
                problems.add(&at, format!("{route} overlaps {other} of {owner}"));
            }
            taken.push((route, name.clone()));
        }
    }
}

fn check_cluster(problems: &mut Invalid, at: &str, cluster: &MeshCluster) {
    let MeshCluster {
        name,
        local: _,
        kubeconfig_secret_ref,
        cluster_ref,
        allowed_networks,
        wireguard_port,
        persistent_keepalive: _,
        gateways,
        topology: _,
        data_plane: _,
    } = cluster;
    if let Some(problem) = name::dns_label(name) {
        problems.add(format!("{at}.name"), format!("{name:?} {problem}"));
    }
    if cluster.reference("").is_none() {
        let problem = "exactly one of local, kubeconfigSecretRef and clusterRef must say which \
                       cluster it is";
        problems.add(at, problem);
    }
    if let Some(secret) = kubeconfig_secret_ref {
        field::name(problems, &format!("{at}.kubeconfigSecretRef.name"), &secret.name);
        field::secret_key(problems, &format!("{at}.kubeconfigSecretRef.key"), &secret.key);
    }
    if let Some(reference) = cluster_ref {
        field::name_within(problems, &format!("{at}.clusterRef"), reference, LONGEST_CLUSTER);
    }
    if allowed_networks.is_empty() {
        let problem = "needs at least one network, such as 10.1.0.0/16";
        problems.add(format!("{at}.allowedNetworks"), problem);
    }
    let field = format!("{at}.allowedNetworks");
    field::at_most(problems, &field, allowed_networks.len(), MOST_NETWORKS);
    let mut networks: Vec<(usize, IpNet)> = Vec::new();
    for (i, text) in allowed_networks.iter().enumerate() {
        let parsed = text.parse::<IpNet>().ok().filter(|_| text.len() <= LONGEST_NETWORK);
        let Some(network) = parsed.map(|network| network.trunc()) else {
            let problem = format!("{text:?} is not a network, such as 10.1.0.0/16 or fd00:1::/48");
            problems.add(format!("{field}[{i}]"), problem);
            continue;
        };
        let overlaps =
            |(_, other): &&(usize, IpNet)| other.contains(&network) || network.contains(other);
        if let Some((first, other)) = networks.iter().find(overlaps) {
            let problem = format!(
                "{network} overlaps {other} of allowedNetworks[{first}]; remove one of the two, the \
                 wider one covers both"
            );
            problems.add(format!("{field}[{i}]"), problem);
        }
        networks.push((i, network));
    }
    if gateways.is_some_and(|it| !(FEWEST_GATEWAYS..=MOST_GATEWAYS).contains(&it)) {
        let problem = format!("must be {FEWEST_GATEWAYS} to {MOST_GATEWAYS}, or be left out");
        problems.add(format!("{at}.gateways"), problem);
    }
    if *wireguard_port == 0 {
        problems.add(format!("{at}.wireguardPort"), "must be 1 to 65535");
    }
}

/// Checks the lengths of a status's texts: they come from clusters, and only their length is ours to
/// bound.
fn check_status(problems: &mut Invalid, status: &ClusterMeshStatus) {
    let ClusterMeshStatus { observed_generation: _, clusters, joined, data_planes: _, conditions } =
        status;
    field::at_most(problems, "status.clusters", clusters.len(), MOST_CLUSTERS);
    for (i, cluster) in clusters.iter().enumerate() {
        let at = |field: &str| format!("status.clusters[{i}].{field}");
        let MeshClusterStatus { name, why, missing_in, skipped_nodes, .. } = cluster;
        field::no_longer(problems, &at("name"), name, LONGEST_CLUSTER);
        let why = why.as_deref().unwrap_or_default();
        field::no_longer(problems, &at("why"), why, field::LONGEST_MESSAGE);
        field::at_most(problems, &at("missingIn"), missing_in.len(), MOST_CLUSTERS);
        for name in missing_in {
            field::no_longer(problems, &at("missingIn"), name, LONGEST_CLUSTER);
        }
        field::at_most(problems, &at("skippedNodes"), skipped_nodes.len(), MOST_SKIPPED);
        for SkippedNode { name, reason, message } in skipped_nodes {
            field::no_longer(problems, &at("skippedNodes"), name, field::LONGEST_NAME);
            field::no_longer(problems, &at("skippedNodes"), reason, field::LONGEST_REASON);
            field::no_longer(problems, &at("skippedNodes"), message, field::LONGEST_MESSAGE);
        }
    }
    field::at_most(problems, "status.joined", joined.len(), MOST_JOINED);
    for (i, joined) in joined.iter().enumerate() {
        let at = |field: &str| format!("status.joined[{i}].{field}");
        let JoinedCluster { name, cluster_ref, identity, leaving, .. } = joined;
        let identity = identity.as_deref().unwrap_or_default();
        field::no_longer(problems, &at("identity"), identity, field::LONGEST_NAME);
        let cluster = cluster_ref.as_deref().unwrap_or_default();
        let leaving = leaving.as_deref().unwrap_or_default();
        field::no_longer(problems, &at("name"), name, LONGEST_CLUSTER);
        field::no_longer(problems, &at("clusterRef"), cluster, LONGEST_CLUSTER);
        field::no_longer(problems, &at("leaving"), leaving, field::LONGEST_MESSAGE);
    }
    field::conditions(problems, conditions);
}

#[cfg(test)]
mod tests;
