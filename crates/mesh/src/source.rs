//! What a cluster contributes to the other clusters of a mesh, and what its nodes claim. [`resolver`]
//! leads from the one to the other.
//!
//! [`resolver`]: crate::resolver

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use objects::kinds::{MeshCluster, WireguardWithin};

use crate::context::MeshContext;
use crate::mesh_node::{self, MeshNode, Skipped};
use crate::name::PeerNames;
use crate::peer::PeerEndpoint;
use crate::resolver::PeersBefore;
use crate::set_map::SetMap;

/// What a cluster contributes to the other clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceCluster {
    pub(crate) peered: BTreeMap<Arc<str>, PeeredNode>,
    /// Of a cluster with gateways alone: all its nodes, as peers in the cluster itself.
    pub(crate) inside: BTreeMap<Arc<str>, PeeredNode>,
    /// The nodes without a peer.
    pub(crate) skipped: BTreeMap<Arc<str>, Skipped>,
    /// The cluster's networks that no node covers, as text, in the order of the spec; none if it has
    /// gateways, which have them among their routes.
    pub(crate) residual: Vec<String>,
    /// Sentences about addresses that became no route, by node.
    pub(crate) notes: BTreeMap<Arc<str>, Vec<String>>,
    /// A sentence about addresses that its gateways do not carry.
    pub(crate) uncarried: Option<String>,
    /// How many gateways it is short of.
    pub(crate) missing_gateways: u32,
}

impl SourceCluster {
    /// The cluster's nodes that are peers in another cluster, or in itself.
    pub(crate) fn nodes(&self, is_inside: bool) -> &BTreeMap<Arc<str>, PeeredNode> {
        if is_inside { &self.inside } else { &self.peered }
    }

    /// The peers of all its nodes.
    pub(crate) fn into_peers(self) -> BTreeMap<Arc<str>, PeersBefore> {
        let Self { peered, inside, .. } = self;
        let outside = peered.into_iter().map(|(name, peered)| (name, [Some(peered), None]));
        let mut all: BTreeMap<_, PeersBefore> = outside.collect();
        for (name, peered) in inside {
            all.entry(name).or_insert([None, None])[1] = Some(peered);
        }
        all
    }

    /// Sentences about addresses that became no route.
    pub(crate) fn notes(&self) -> impl Iterator<Item = &String> {
        self.notes.values().flatten().chain(&self.uncarried)
    }
}

/// A node that gets a peer in the other clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeeredNode {
    pub(crate) name: Arc<str>,
    pub(crate) peer_names: PeerNames,
    pub(crate) key: String,
    /// The key that the node is about to use.
    pub(crate) next_key: Option<String>,
    /// The node's pod networks, its WireGuard address and its internal addresses, each once, as text; then
    /// what it carries together with other gateways.
    pub(crate) routes: Arc<[String]>,
    pub(crate) endpoint: Option<PeerEndpoint>,
    /// What it is in its own cluster, as a peer there.
    pub(crate) within: Option<WireguardWithin>,
}

/// A node before it is compared with the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) peer_names: PeerNames,
    pub(crate) key: Option<String>,
    pub(crate) wireguard_ip: Option<IpAddr>,
    pub(crate) internal_ips: Vec<IpAddr>,
    pub(crate) node: Result<MeshNode, Skipped>,
}

/// The nodes of one cluster by name.
pub(crate) type Candidates = BTreeMap<Arc<str>, Candidate>;

impl Candidate {
    pub(crate) fn read(context: &MeshContext, cluster: &MeshCluster, node: &Node) -> Self {
        let (allowed, plane) = (context.networks(&cluster.name), context.data_plane);
        Self {
            peer_names: context.peer_names(&cluster.name, &node.name_any()),
            key: mesh_node::public_key(node, plane).map(ToOwned::to_owned),
            wireguard_ip: mesh_node::wireguard_ip(node, plane).and_then(Result::ok),
            internal_ips: mesh_node::internal_ips(node),
            node: MeshNode::read(node, plane, allowed, cluster.wireguard_port),
        }
    }
}

/// A node by its cluster's name and its own.
pub(crate) type NodeRef = (Arc<str>, Arc<str>);

/// The keys and internal addresses of the nodes of all clusters: two clusters may claim the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct CrossClusterIndex {
    nodes_by_key: SetMap<String, NodeRef>,
    nodes_by_internal_ip: SetMap<IpAddr, NodeRef>,
}

impl CrossClusterIndex {
    pub(crate) fn insert(&mut self, node: &NodeRef, candidate: &Candidate) {
        if let Some(key) = &candidate.key {
            self.nodes_by_key.insert(key.clone(), node.clone());
        }
        for ip in &candidate.internal_ips {
            self.nodes_by_internal_ip.insert(*ip, node.clone());
        }
    }

    pub(crate) fn remove(&mut self, node: &NodeRef, candidate: &Candidate) {
        if let Some(key) = &candidate.key {
            self.nodes_by_key.remove(key, node);
        }
        for ip in &candidate.internal_ips {
            self.nodes_by_internal_ip.remove(ip, node);
        }
    }

    /// The nodes of all clusters that have a key or an internal address in common with this one.
    pub(crate) fn sharing(&self, candidate: &Candidate) -> impl Iterator<Item = &NodeRef> {
        let by_key = candidate.key.iter().flat_map(|key| self.nodes_by_key.get(key));
        let by_ip = candidate.internal_ips.iter().flat_map(|ip| self.nodes_by_internal_ip.get(ip));
        by_key.chain(by_ip)
    }

    /// The first node of a cluster that has this key.
    pub(crate) fn first_with_key(&self, key: &str, cluster: &str) -> Option<&Arc<str>> {
        let mut nodes = self.nodes_by_key.get(key).filter(|(of, _)| **of == *cluster);
        nodes.next().map(|(_, node)| node)
    }

    /// The clusters with a node that has this key.
    pub(crate) fn clusters_with_key(&self, key: &str) -> BTreeSet<&str> {
        self.nodes_by_key.get(key).map(|(cluster, _)| &**cluster).collect()
    }

    /// Another node that has this internal address.
    pub(crate) fn other_with_internal_ip(
        &self,
        ip: IpAddr,
        cluster: &str,
        node: &str,
    ) -> Option<&NodeRef> {
        let is_other = |(c, n): &&NodeRef| (&**c, &**n) != (cluster, node);
        self.nodes_by_internal_ip.get(&ip).find(is_other)
    }
}
