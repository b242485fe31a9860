//! `MeshContext`: what a plan takes from the mesh itself and from the other meshes.

use std::collections::BTreeSet;

use ipnet::IpNet;
use kube::ResourceExt;
use objects::kinds::{
    ClusterMesh, DataPlane, ExternalPeer, FEWEST_GATEWAYS, MeshCluster, Topology, WireguardRouting,
};

use crate::name::PeerNames;
use crate::overlap::{self, Overlap};
use crate::pairs::{PairState, Pairs, pair};
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
    /// The ranges of their addresses, which every peer of our own data plane says.
    pub(crate) external_networks: Vec<String>,
    /// Who carries packets between two clusters.
    pairs: Pairs,
    /// The data planes that the clusters are to have, in the order of `clusters`.
    planes: Vec<DataPlane>,
}

/// Stands for the machines outside of clusters where a peer's cluster is named. No cluster has this name:
/// names of clusters are in lower case.
pub(crate) const EXTERNAL: &str = "External";

impl MeshContext {
    /// What a plan of the peers of one data plane takes from a mesh. Pairs of clusters that `pairs` does not
    /// name are as the spec says.
    pub(crate) fn new(
        mesh: &ClusterMesh,
        others: &[ClusterMesh],
        plane: DataPlane,
        pairs: &Pairs,
    ) -> Self {
        let (name, namespace) = (mesh.name_any(), overlap::namespace(mesh));
        let overlaps = overlap::overlaps(mesh, others);
        let comes_first =
            |other: &ClusterMesh| other.name_any() == name && overlap::namespace(other) < namespace;
        let clusters = mesh.spec.clusters.clone();
        let keepalive = clusters.iter().map(|c| c.persistent_keepalive).max().unwrap_or(0);
        Self {
            deleting: mesh.metadata.deletion_timestamp.is_some(),
            data_plane: plane,
            // kilo-clustermesh made Kilo's peers alone.
            adopt: mesh.spec.adopt && plane == DataPlane::Kilo,
            pairs: pairs.clone(),
            planes: clusters.iter().map(|cluster| mesh.spec.data_plane_of(cluster)).collect(),
            overlapping: overlaps.iter().map(|o| o.cluster.clone()).collect(),
            overlaps,
            plain_names_taken: others.iter().any(comes_first),
            keepalive: keepalive.into(),
            external: mesh.spec.external_peers.clone(),
            external_networks: match plane {
                DataPlane::Kilo => Vec::new(),
                DataPlane::Wireguard => mesh.spec.external_networks.clone(),
            },
            networks: clusters.iter().map(overlap::networks).collect(),
            clusters,
            name,
            namespace,
        }
    }

    pub(crate) fn cluster(&self, name: &str) -> Option<&MeshCluster> {
        self.clusters.iter().find(|cluster| cluster.name == name)
    }

    /// Returns whether only gateways of a cluster have tunnels to others.
    pub(crate) fn only_gateways(&self, cluster: &str) -> bool {
        // While a pair moves, every node is a peer, as with Kilo.
        let mut own = self.pairs.iter().filter(|((a, b), _)| a == cluster || b == cluster);
        self.data_plane == DataPlane::Wireguard
            && self.cluster(cluster).is_some_and(|it| it.topology == Topology::Gateways)
            && own.all(|(_, state)| *state == PairState::Wireguard)
    }

    /// The data plane that a cluster is to have.
    fn plane_of(&self, cluster: &str) -> DataPlane {
        let place = self.clusters.iter().position(|it| it.name == cluster);
        place.map_or(self.data_plane, |place| self.planes[place])
    }

    /// How many gateways a cluster is to have.
    pub(crate) fn gateways(&self, cluster: &str) -> u32 {
        let least = if self.only_gateways(cluster) { FEWEST_GATEWAYS } else { 0 };
        self.cluster(cluster).and_then(|cluster| cluster.gateways).unwrap_or(least)
    }

    /// When packets are sent to the peers of a cluster's nodes in another cluster, or in itself; none if
    /// they are no peers there.
    pub(crate) fn routing(&self, source: &str, target: &str) -> Option<WireguardRouting> {
        let always = |is_peer: bool| is_peer.then_some(WireguardRouting::Always);
        if source == target {
            return always(self.only_gateways(source));
        }
        if source == EXTERNAL {
            return always(self.plane_of(target) == self.data_plane);
        }
        let state = self.pairs.get(&pair(source, target)).copied().unwrap_or_else(|| {
            let both = [source, target].map(|cluster| self.plane_of(cluster));
            let ours = both == [DataPlane::Wireguard; 2];
            PairState::settled(if ours { DataPlane::Wireguard } else { DataPlane::Kilo })
        });
        state.routing(self.data_plane)
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
