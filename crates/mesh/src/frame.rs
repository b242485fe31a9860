//! What a plan takes from the mesh itself, and from the meshes beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use kube::ResourceExt;
use objects::kinds::{ClusterMesh, MeshCluster};

use crate::name::Names;
use crate::overlap::{self, Overlap};
use crate::peer::label;

/// Two that are equal lead to the same plan of the same nodes and peers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// In the order of the spec.
    pub(crate) clusters: Vec<MeshCluster>,
    /// Of `clusters`, parsed.
    networks: Vec<Vec<IpNet>>,
    pub(crate) going: bool,
    pub(crate) adopt: bool,
    pub(crate) overlaps: BTreeSet<Overlap>,
    pub(crate) overlapping: BTreeSet<String>,
    /// Whether the plain names belong to a mesh of the same name in another namespace.
    pub(crate) rival: bool,
    pub(crate) keepalive: u32,
}

impl Frame {
    pub(crate) fn new(mesh: &ClusterMesh, others: &[ClusterMesh], adopt: bool) -> Self {
        let (name, namespace) = (mesh.name_any(), overlap::namespace(mesh));
        let overlaps = overlap::overlaps(mesh, others);
        let before =
            |other: &ClusterMesh| other.name_any() == name && overlap::namespace(other) < namespace;
        let clusters = mesh.spec.clusters.clone();
        // The larger of the cluster's own and the mesh's largest is the mesh's largest.
        let keepalive = clusters.iter().map(|c| c.persistent_keepalive).max().unwrap_or(0);
        Self {
            going: mesh.metadata.deletion_timestamp.is_some(),
            adopt,
            overlapping: overlaps.iter().map(|o| o.cluster.clone()).collect(),
            overlaps,
            rival: others.iter().any(before),
            keepalive: keepalive.into(),
            networks: clusters.iter().map(overlap::networks).collect(),
            clusters,
            name,
            namespace,
        }
    }

    pub(crate) fn cluster(&self, name: &str) -> Option<&MeshCluster> {
        self.clusters.iter().find(|cluster| cluster.name == name)
    }

    /// Whether a cluster is to have peers.
    pub(crate) fn wants(&self, target: &str) -> bool {
        !self.going && self.cluster(target).is_some()
    }

    pub(crate) fn networks(&self, cluster: &str) -> &[IpNet] {
        let place = self.clusters.iter().position(|c| c.name == cluster);
        place.map_or(&[], |place| &self.networks[place])
    }

    /// The networks of the other clusters.
    pub(crate) fn others(&self, cluster: &str) -> impl Iterator<Item = (&str, &[IpNet])> {
        let all = self.clusters.iter().zip(&self.networks);
        let others = all.filter(move |(other, _)| other.name != cluster);
        others.map(|(other, networks)| (other.name.as_str(), networks.as_slice()))
    }

    pub(crate) fn names(&self, cluster: &str, node: &str) -> Arc<Names> {
        Arc::new(Names::of(&self.namespace, &self.name, cluster, node))
    }

    pub(crate) fn labels(&self, source: &str) -> BTreeMap<String, String> {
        [
            (label::MESH, self.name.as_str()),
            (label::NAMESPACE, &self.namespace),
            (label::CLUSTER, source),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }
}
