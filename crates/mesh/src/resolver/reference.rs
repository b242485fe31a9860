//! All nodes of a cluster compared at once, in the order of their names: the truth that the resolver is
//! compared with.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use objects::kinds::WireguardWithin;

use super::MOST_INTERNAL;
use crate::context::MeshContext;
use crate::mesh_node::{MeshNode, SkipReason, Skipped};
use crate::overlap::overlap;
use crate::source::{Candidate, Candidates, CrossClusterIndex, PeeredNode, SourceCluster};

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
            Err(skipped) => _ = source.skipped.insert(Arc::clone(name), skipped),
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
                let note = format!("{cluster}/{name}: InternalIP {ip} is left out: {why}");
                source.notes.entry(Arc::clone(name)).or_default().push(note);
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
            let note = format!("{cluster}: {more} InternalIPs are left out: they are many");
            source.uncarried = Some(note);
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
    if let Some((cluster, node)) = all_clusters.other_with_internal_ip(ip, cluster, node) {
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
