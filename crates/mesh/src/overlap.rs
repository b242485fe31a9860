//! Clusters whose networks overlap. Packets to an address that two clusters have would be routed to
//! either of them by accident, so the peers of both clusters are left as they are; no other cluster is
//! affected.

use std::collections::BTreeSet;

use ipnet::IpNet;
use kube::ResourceExt;
use objects::kinds::{ClusterMesh, MeshCluster};

pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// A network of a cluster, and the network of another cluster that it overlaps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlap {
    pub cluster: String,
    pub network: IpNet,
    /// None when the other cluster is in the same mesh.
    pub other_mesh: Option<String>,
    pub other_cluster: String,
    pub other_network: IpNet,
}

impl std::fmt::Display for Overlap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cluster, network, other_cluster, other_network, other_mesh } = self;
        write!(f, "{network} of {cluster} overlaps {other_network} of {other_cluster}")?;
        match other_mesh {
            Some(mesh) => write!(f, " in mesh {mesh}"),
            None => Ok(()),
        }
    }
}

/// Parses a cluster's networks. A network that does not parse is left out: `ClusterMesh::check` names it.
pub(crate) fn networks(cluster: &MeshCluster) -> Vec<IpNet> {
    let parsed = cluster.allowed_networks.iter().filter_map(|text| text.parse::<IpNet>().ok());
    parsed.map(|network| network.trunc()).collect()
}

pub(crate) fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// Every overlap of a cluster of `mesh` with another cluster of the mesh, or with a cluster of another
/// mesh that shares a cluster with it. A cluster that is in two meshes does not overlap itself.
pub fn overlaps(mesh: &ClusterMesh, others: &[ClusterMesh]) -> BTreeSet<Overlap> {
    let mut found = BTreeSet::new();
    let clusters = &mesh.spec.clusters;
    for (i, a) in clusters.iter().enumerate() {
        for (_, b) in clusters.iter().enumerate().filter(|(j, _)| *j != i) {
            collect(&mut found, a, b, None);
        }
    }
    let namespace = namespace(mesh);
    let references: BTreeSet<_> = clusters.iter().filter_map(|c| c.reference(&namespace)).collect();
    for other in others {
        let other_namespace = self::namespace(other);
        if other.name_any() == mesh.name_any() && other_namespace == namespace {
            continue;
        }
        let reference = |c: &MeshCluster| c.reference(&other_namespace);
        let is_shared = |c: &MeshCluster| reference(c).is_some_and(|r| references.contains(&r));
        if !other.spec.clusters.iter().any(is_shared) {
            continue;
        }
        let other_mesh = format!("{other_namespace}/{}", other.name_any());
        for a in clusters {
            for b in &other.spec.clusters {
                if a.reference(&namespace) != reference(b) {
                    collect(&mut found, a, b, Some(&other_mesh));
                }
            }
        }
    }
    found
}

pub(crate) fn namespace(mesh: &ClusterMesh) -> String {
    mesh.namespace().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())
}

fn collect(
    found: &mut BTreeSet<Overlap>,
    a: &MeshCluster,
    b: &MeshCluster,
    other_mesh: Option<&String>,
) {
    let other_networks = networks(b);
    for network in networks(a) {
        for other_network in other_networks.iter().filter(|other| overlap(&network, other)) {
            found.insert(Overlap {
                cluster: a.name.clone(),
                network,
                other_mesh: other_mesh.cloned(),
                other_cluster: b.name.clone(),
                other_network: *other_network,
            });
        }
    }
}
