//! The nodes of a mesh's clusters compared with each other: which nodes get a peer in the other
//! clusters, with which routes, and which networks of their cluster are left for one node to carry.
//!
//! Where two nodes of a cluster claim the same thing, the first by name gets it. Where nodes of two
//! clusters do, neither gets it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use objects::kinds::{MeshCluster, WireguardWithin};

use crate::context::MeshContext;
use crate::mesh_node::{self, MeshNode, SkipReason, Skipped};
use crate::name::PeerNames;
use crate::overlap::overlap;
use crate::peer::PeerEndpoint;
use crate::set_map::SetMap;

/// How many internal addresses of nodes the gateways of a cluster carry that are in none of its networks: a
/// peer has at most 1,024 networks.
const MOST_INTERNAL: usize = 512;

/// What a cluster contributes to the other clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceCluster {
    pub(crate) peered: BTreeMap<Arc<str>, PeeredNode>,
    /// Of a cluster with gateways alone: all its nodes, as peers in the cluster itself.
    pub(crate) inside: BTreeMap<Arc<str>, PeeredNode>,
    /// The nodes without a peer, by name.
    pub(crate) skipped: Vec<Skipped>,
    /// The cluster's networks that no node covers, as text, in the order of the spec; none if it has
    /// gateways, which have them among their routes.
    pub(crate) residual: Vec<String>,
    /// Sentences about addresses that became no route.
    pub(crate) notes: Vec<String>,
    /// How many gateways it is short of.
    pub(crate) missing_gateways: u32,
}

impl SourceCluster {
    /// The cluster's nodes that are peers in another cluster, or in itself.
    pub(crate) fn nodes(&self, is_inside: bool) -> &BTreeMap<Arc<str>, PeeredNode> {
        if is_inside { &self.inside } else { &self.peered }
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
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    peer_names: PeerNames,
    key: Option<String>,
    wireguard_ip: Option<IpAddr>,
    internal_ips: Vec<IpAddr>,
    node: Result<MeshNode, Skipped>,
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

    /// The clusters with a node that has a key or an internal address in common with this one.
    pub(crate) fn clusters_sharing(&self, candidate: &Candidate) -> BTreeSet<Arc<str>> {
        let by_key = candidate.key.iter().flat_map(|key| self.nodes_by_key.get(key));
        let by_ip = candidate.internal_ips.iter().flat_map(|ip| self.nodes_by_internal_ip.get(ip));
        by_key.chain(by_ip).map(|(cluster, _)| Arc::clone(cluster)).collect()
    }

    /// The clusters with a node that has this key.
    fn clusters_with_key(&self, key: &str) -> BTreeSet<&str> {
        self.nodes_by_key.get(key).map(|(cluster, _)| &**cluster).collect()
    }
}

/// Compares a cluster's nodes with each other and with the nodes of all clusters.
pub(crate) fn resolve(
    context: &MeshContext,
    cluster: &str,
    candidates: &Candidates,
    all_clusters: &CrossClusterIndex,
) -> SourceCluster {
    let mut source = SourceCluster::default();
    let mut first_by_ip = HashMap::new();
    let mut first_by_key = HashMap::new();
    let mut owners = NetworkOwners::default();
    let mut accepted: Vec<(&Arc<str>, &Candidate, &MeshNode)> =
        Vec::with_capacity(candidates.len());
    for (name, candidate) in candidates {
        // A skipped node keeps its claim, so that the owner does not depend on which nodes are set up.
        let ip_owner = candidate.wireguard_ip.map(|ip| *first_by_ip.entry(ip).or_insert(name));
        let key_owner =
            candidate.key.as_deref().map(|key| *first_by_key.entry(key).or_insert(name));
        let node = candidate.node.as_ref().map_err(Clone::clone).and_then(|node| {
            let skip = |reason, message| Err(Skipped { node: name.to_string(), reason, message });
            let key_clusters = all_clusters.clusters_with_key(&node.key);
            let wireguard_ip = node.wireguard_ip.map(IpNet::from);
            if let Some(first) = ip_owner.filter(|first| *first != name) {
                let ip = node.wireguard_ip.map(|ip| ip.to_string()).unwrap_or_default();
                skip(SkipReason::WGIPDuplicate, format!("its WireGuard address {ip} is {first}'s"))
            } else if let Some(first) = key_owner.filter(|first| *first != name) {
                let message = format!("its public key is {first}'s too");
                skip(SkipReason::NodePublicKeyDuplicate, message)
            } else if key_clusters.len() > 1 {
                let clusters = key_clusters.into_iter().collect::<Vec<_>>().join(", ");
                let message = format!("nodes of several clusters have its public key: {clusters}");
                skip(SkipReason::NodePublicKeyDuplicate, message)
            } else if let Some((pods, first)) = owners.first_owned(&node.pod_networks) {
                let message = format!("its pod CIDR {pods} overlaps what {first} has");
                skip(SkipReason::NodePodCIDRDuplicate, message)
            } else if let Some((ip, first)) = owners.first_owned(wireguard_ip.as_slice()) {
                let ip = ip.addr();
                skip(SkipReason::WGIPDuplicate, format!("its WireGuard address {ip} is {first}'s"))
            } else {
                Ok(node)
            }
        });
        match node {
            Ok(node) => {
                for network in &node.pod_networks {
                    owners.insert(*network, &node.name);
                }
                if let Some(ip) = node.wireguard_ip {
                    owners.insert(ip.into(), &node.name);
                }
                accepted.push((name, candidate, node));
            }
            Err(skipped) => source.skipped.push(skipped),
        }
    }
    let mut covered = owners.clone();
    let mut internal: BTreeSet<IpAddr> = BTreeSet::new();
    let gateways = gateways(context, cluster, &accepted);
    for (name, candidate, node) in accepted {
        let mut routes = node.pod_networks.clone();
        routes.extend(node.wireguard_ip.map(IpNet::from));
        for ip in &candidate.internal_ips {
            if let Some(why) = unroutable(context, *ip, name, cluster, all_clusters, &owners) {
                source.notes.push(format!("{cluster}/{name}: InternalIP {ip} is left out: {why}"));
            } else {
                routes.push((*ip).into());
                covered.insert((*ip).into(), &node.name);
            }
        }
        let mut unique = BTreeSet::new();
        routes.retain(|route| unique.insert(*route));
        let only_gateways = context.only_gateways(cluster);
        let peered = PeeredNode {
            within: None,
            name: Arc::clone(name),
            peer_names: candidate.peer_names.clone(),
            key: node.key.clone(),
            next_key: node.next_key.clone(),
            routes: routes.iter().map(ToString::to_string).collect(),
            endpoint: node.endpoint.clone(),
        };
        if only_gateways {
            let within = WireguardWithin {
                gateway: gateways.contains(name),
                networks: peered.routes.to_vec(),
            };
            let (routes, endpoint) = (Arc::default(), node.inner_endpoint.clone());
            let inside = PeeredNode { routes, endpoint, within: Some(within), ..peered.clone() };
            source.inside.insert(Arc::clone(name), inside);
        }
        if !only_gateways || gateways.contains(name) {
            source.peered.insert(Arc::clone(name), peered);
        } else {
            internal.extend(candidate.internal_ips.iter().filter(|ip| {
                let route = IpNet::from(**ip);
                covered.of(&route).is_some_and(|(_, owner)| owner == node.name)
            }));
        }
    }
    let mut unique = BTreeSet::new();
    let residual = |network: &&IpNet| covered.of(network).is_none() && unique.insert(**network);
    let residual = context.networks(cluster).iter().filter(residual);
    source.residual = residual.map(ToString::to_string).collect();
    if context.only_gateways(cluster) {
        let networks = context.networks(cluster);
        source.residual = networks.iter().map(ToString::to_string).collect();
        internal.retain(|ip| !networks.iter().any(|network| network.contains(ip)));
        if let Some(more @ 1..) = internal.len().checked_sub(MOST_INTERNAL) {
            source.notes.push(format!("{cluster}: {more} InternalIPs are left out: they are many"));
        }
        let internal = internal.into_iter().take(MOST_INTERNAL).map(IpNet::from);
        source.residual.extend(internal.map(|ip| ip.to_string()));
        source.missing_gateways = context.gateways(cluster).saturating_sub(gateways.len() as u32);
    }
    if !gateways.is_empty() {
        // Each lists them, and whoever sends takes the first that answers: no carrier is chosen here.
        let shared = std::mem::take(&mut source.residual);
        for (_, gateway) in source.peered.iter_mut().filter(|(name, _)| gateways.contains(*name)) {
            let own: BTreeSet<&String> = gateway.routes.iter().collect();
            let shared = shared.iter().filter(|network| !own.contains(network));
            gateway.routes = gateway.routes.iter().chain(shared).cloned().collect();
        }
    }
    source
}

/// The nodes that carry a cluster's residual networks together, if it has gateways: of those that can be
/// reached the preferred ones, then the first by name.
fn gateways(
    context: &MeshContext,
    cluster: &str,
    accepted: &[(&Arc<str>, &Candidate, &MeshNode)],
) -> BTreeSet<Arc<str>> {
    let reached = accepted.iter().filter(|(_, _, node)| node.endpoint.is_some());
    let mut reached: Vec<_> = reached.map(|(name, _, node)| (!node.is_preferred, *name)).collect();
    reached.sort_unstable();
    let count = context.gateways(cluster) as usize;
    reached.into_iter().take(count).map(|(_, name)| Arc::clone(name)).collect()
}

/// Returns why an internal address cannot be a route. Clusters often use the same private networks, and
/// WireGuard would take an address that two peers have away from one of them.
fn unroutable(
    context: &MeshContext,
    ip: IpAddr,
    node: &str,
    cluster: &str,
    all_clusters: &CrossClusterIndex,
    owners: &NetworkOwners,
) -> Option<String> {
    let route = IpNet::from(ip);
    let is_other = |(c, n): &&NodeRef| (&**c, &**n) != (cluster, node);
    if let Some((cluster, node)) = all_clusters.nodes_by_internal_ip.get(&ip).find(is_other) {
        return Some(format!("it is that of {cluster}/{node} too"));
    }
    for (name, networks) in context.other_networks(cluster) {
        if let Some(network) = networks.iter().find(|network| overlap(network, &route)) {
            return Some(format!("it is in {network} of {name}"));
        }
    }
    let (network, owner) = owners.of(&route).filter(|(_, owner)| *owner != node)?;
    Some(format!("it is in {network} of {owner}"))
}

/// Networks that do not overlap, each with the node that owns it. A lookup visits two entries of a tree.
#[derive(Clone, Debug, Default)]
struct NetworkOwners(BTreeMap<IpAddr, (IpNet, String)>);

impl NetworkOwners {
    /// An owned network that overlaps this one, and its owner.
    fn of(&self, network: &IpNet) -> Option<(IpNet, &str)> {
        let before = self.0.range(..=network.network()).next_back();
        let after = self.0.range(network.network()..).next();
        let near = before.into_iter().chain(after).map(|(_, (owned, owner))| (owned, owner));
        let mut hits = near.filter(|(owned, _)| overlap(owned, network));
        hits.next().map(|(owned, owner)| (*owned, owner.as_str()))
    }

    /// The first of `networks` that is owned, and its owner.
    fn first_owned(&self, networks: &[IpNet]) -> Option<(IpNet, &str)> {
        networks.iter().find_map(|network| self.of(network).map(|(_, owner)| (*network, owner)))
    }

    /// Adds a network. Only networks of the same owner may overlap it; the wider network stays.
    fn insert(&mut self, network: IpNet, owner: &str) {
        while let Some((owned, _)) = self.of(&network) {
            if owned.contains(&network) {
                return;
            }
            self.0.remove(&owned.network());
        }
        self.0.insert(network.network(), (network, owner.to_owned()));
    }
}
