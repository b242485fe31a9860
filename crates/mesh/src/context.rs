//! `MeshContext`: what a plan takes from the mesh itself and from the other meshes.

use std::collections::BTreeSet;

use ipnet::IpNet;
use kube::ResourceExt;
use objects::kinds::{ClusterMesh, DataPlane, ExternalPeer, MeshCluster};

use crate::name::PeerNames;
use crate::overlap::{self, Overlap};
use crate::peer::label;

/// Two equal contexts lead to the same plan for the same nodes and peers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MeshContext {
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// The clusters in the order of the spec.
    pub(crate) clusters: Vec<MeshCluster>,
    /// The parsed networks of `clusters`, in the same order.
    networks: Vec<Vec<IpNet>>,
    pub(crate) data_plane: DataPlane,
    pub(crate) deleting: bool,
    /// Whether peers that kilo-clustermesh made for a mesh of this name become this mesh's own.
    pub(crate) adopt: bool,
    pub(crate) overlaps: BTreeSet<Overlap>,
    /// The clusters that `overlaps` names.
    pub(crate) overlapping: BTreeSet<String>,
    /// Whether a mesh of the same name in another namespace owns the plain peer names.
    pub(crate) plain_names_taken: bool,
    /// The mesh's largest keepalive, which every peer gets.
    pub(crate) keepalive: u32,
    /// Machines outside of clusters, which are peers in all of them.
    pub(crate) external: Vec<ExternalPeer>,
}

/// Stands for the machines outside of clusters where a peer's cluster is named. No cluster has this name:
/// names of clusters are in lower case.
pub(crate) const EXTERNAL: &str = "External";

impl MeshContext {
    pub(crate) fn new(mesh: &ClusterMesh, others: &[ClusterMesh]) -> Self {
        let (name, namespace) = (mesh.name_any(), overlap::namespace(mesh));
        let overlaps = overlap::overlaps(mesh, others);
        let comes_first =
            |other: &ClusterMesh| other.name_any() == name && overlap::namespace(other) < namespace;
        let clusters = mesh.spec.clusters.clone();
        let keepalive = clusters.iter().map(|c| c.persistent_keepalive).max().unwrap_or(0);
        Self {
            deleting: mesh.metadata.deletion_timestamp.is_some(),
            data_plane: mesh.spec.data_plane,
            // kilo-clustermesh made Kilo's peers alone.
            adopt: mesh.spec.adopt && mesh.spec.data_plane == DataPlane::Kilo,
            overlapping: overlaps.iter().map(|o| o.cluster.clone()).collect(),
            overlaps,
            plain_names_taken: others.iter().any(comes_first),
            keepalive: keepalive.into(),
            external: mesh.spec.external_peers.clone(),
            networks: clusters.iter().map(overlap::networks).collect(),
            clusters,
            name,
            namespace,
        }
    }

    pub(crate) fn cluster(&self, name: &str) -> Option<&MeshCluster> {
        self.clusters.iter().find(|cluster| cluster.name == name)
    }

    /// Returns whether a cluster is to have peers. Every other cluster is cleared of them.
    pub(crate) fn is_target(&self, cluster: &str) -> bool {
        !self.deleting && self.cluster(cluster).is_some()
    }

    /// Returns whether peers are created and updated in a cluster: one that overlaps is left as it is.
    pub(crate) fn is_written(&self, cluster: &str) -> bool {
        self.is_target(cluster) && !self.overlapping.contains(cluster)
    }

    pub(crate) fn networks(&self, cluster: &str) -> &[IpNet] {
        let place = self.clusters.iter().position(|c| c.name == cluster);
        place.map_or(&[], |place| &self.networks[place])
    }

    /// The networks of every other cluster.
    pub(crate) fn other_networks(&self, cluster: &str) -> impl Iterator<Item = (&str, &[IpNet])> {
        let all = self.clusters.iter().zip(&self.networks);
        let others = all.filter(move |(other, _)| other.name != cluster);
        others.map(|(other, networks)| (other.name.as_str(), networks.as_slice()))
    }

    pub(crate) fn peer_names(&self, cluster: &str, node: &str) -> PeerNames {
        PeerNames::new(&self.namespace, &self.name, cluster, node)
    }

    /// The labels by which a peer of a node of `source` says whose it is.
    pub(crate) fn labels<'a>(&'a self, source: &'a str) -> [(&'static str, &'a str); 3] {
        [(label::MESH, &self.name), (label::NAMESPACE, &self.namespace), (label::CLUSTER, source)]
    }
}
