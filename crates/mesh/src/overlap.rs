//! Clusters whose networks are another's too. An address that two clusters have is routed to one of
//! them by accident, so both are left as they are, and nobody else.

use std::collections::BTreeSet;

use ipnet::IpNet;
use kube::ResourceExt;
use objects::kinds::{ClusterMesh, MeshCluster};

pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// A cluster of a mesh and what it overlaps with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlap {
    pub cluster: String,
    pub network: IpNet,
    /// None: a cluster of the same mesh.
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

pub(crate) fn networks(cluster: &MeshCluster) -> Vec<IpNet> {
    let parsed = cluster.allowed_networks.iter().filter_map(|text| text.parse::<IpNet>().ok());
    parsed.map(|network| network.trunc()).collect()
}

pub(crate) fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// Every overlap of a cluster of `mesh`: with others of the mesh, and with those of other meshes that
/// share a cluster with it. The same cluster in two meshes does not overlap itself.
pub fn overlaps(mesh: &ClusterMesh, others: &[ClusterMesh]) -> BTreeSet<Overlap> {
    let mut found = BTreeSet::new();
    let ours = &mesh.spec.clusters;
    for (i, a) in ours.iter().enumerate() {
        for (_, b) in ours.iter().enumerate().filter(|(j, _)| *j != i) {
            note(&mut found, a, b, None);
        }
    }
    let namespace = namespace(mesh);
    let references: BTreeSet<_> = ours.iter().filter_map(|c| c.reference(&namespace)).collect();
    for other in others.iter().filter(|other| !same(mesh, other)) {
        let theirs = self::namespace(other);
        let shared =
            |c: &MeshCluster| c.reference(&theirs).is_some_and(|r| references.contains(&r));
        if !other.spec.clusters.iter().any(shared) {
            continue;
        }
        let called = format!("{theirs}/{}", other.name_any());
        for a in ours {
            for b in &other.spec.clusters {
                if a.reference(&namespace) != b.reference(&theirs) {
                    note(&mut found, a, b, Some(&called));
                }
            }
        }
    }
    found
}

pub(crate) fn namespace(mesh: &ClusterMesh) -> String {
    mesh.namespace().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())
}

pub(crate) fn same(a: &ClusterMesh, b: &ClusterMesh) -> bool {
    a.name_any() == b.name_any() && namespace(a) == namespace(b)
}

fn note(found: &mut BTreeSet<Overlap>, a: &MeshCluster, b: &MeshCluster, mesh: Option<&String>) {
    let theirs = networks(b);
    for network in networks(a) {
        for other_network in theirs.iter().filter(|other| overlap(&network, other)) {
            found.insert(Overlap {
                cluster: a.name.clone(),
                network,
                other_mesh: mesh.cloned(),
                other_cluster: b.name.clone(),
                other_network: *other_network,
            });
        }
    }
}
