//! `Resolver`: the nodes of one cluster compared with each other and with the nodes of all clusters, kept
//! up to date: which nodes get a peer in the other clusters, with which routes, and which networks of
//! their cluster are left for one node to carry.
//!
//! Where two nodes of a cluster claim the same thing, the first by name gets it. Where nodes of two
//! clusters do, neither gets it.
//!
//! ```text
//! insert, remove ──► nodes that claim the same ──► accept (in the order of names) ──► route ──► build
//! ```
//!
//! Contract:
//! - A node that changes costs what it shares with others: itself, the nodes that claim the same key,
//!   address or network, and the gateways if what they carry together is another.
//! - When nothing is left to compare, everything is as if all nodes had been compared at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use objects::kinds::WireguardWithin;

use crate::context::MeshContext;
use crate::mesh_node::{MeshNode, SkipReason, Skipped};
use crate::network_claims::NetworkClaims;
use crate::overlap::overlap;
use crate::source::{Candidate, Candidates, CrossClusterIndex, PeeredNode, SourceCluster};

/// How many internal addresses of nodes the gateways of a cluster carry that are in none of its networks: a
/// peer has at most 1,024 networks.
const MOST_INTERNAL: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct Resolver {
    candidates: Candidates,
    /// The networks that nodes claim, whether they get them or not.
    claims: NetworkClaims,
    internal_ips: BTreeSet<(IpAddr, Arc<str>)>,
    /// The nodes whose claims are to be compared with the others' again, and those whose addresses are.
    unaccepted: BTreeSet<Arc<str>>,
    unrouted: BTreeSet<Arc<str>>,
    /// The nodes that get what they claim, with their internal addresses that are routes.
    accepted: HashMap<Arc<str>, Box<[IpAddr]>>,
    /// Those addresses: within the cluster's networks; and outside of them, if gateways carry them.
    within: BTreeSet<(IpAddr, Arc<str>)>,
    outside: BTreeSet<(IpAddr, Arc<str>)>,
    /// The accepted nodes with an endpoint, if there are to be gateways; the preferred ones come first.
    reached: BTreeSet<(bool, Arc<str>)>,
    gateways: BTreeSet<Arc<str>>,
    /// What the gateways carry together.
    shared: Vec<String>,
}

/// The peers of a node before it changed: in the other clusters, and in its own.
pub(crate) type PeersBefore = [Option<PeeredNode>; 2];

/// What nodes are compared with.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) context: &'a MeshContext,
    pub(crate) cluster: &'a str,
    pub(crate) all_clusters: &'a CrossClusterIndex,
}

impl Resolver {
    pub(crate) fn get(&self, node: &str) -> Option<&Candidate> {
        self.candidates.get(node)
    }

    pub(crate) fn insert(&mut self, node: &Arc<str>, candidate: Candidate) {
        self.remove(node);
        for network in claims(&candidate) {
            self.claims.insert(network, node);
        }
        self.internal_ips.extend(candidate.internal_ips.iter().map(|ip| (*ip, Arc::clone(node))));
        self.compare_again_with(node, &candidate);
        self.candidates.insert(Arc::clone(node), candidate);
    }

    pub(crate) fn remove(&mut self, node: &Arc<str>) {
        let Some(candidate) = self.candidates.remove(node) else { return };
        for network in claims(&candidate) {
            self.claims.remove(network, node);
        }
        for ip in &candidate.internal_ips {
            self.internal_ips.remove(&(*ip, Arc::clone(node)));
        }
        self.compare_again_with(node, &candidate);
    }

    /// Notes that a node is to be compared with the others again.
    pub(crate) fn compare_again(&mut self, node: &Arc<str>) {
        self.unaccepted.insert(Arc::clone(node));
        self.unrouted.insert(Arc::clone(node));
    }

    /// Notes the node, and those of the cluster that claim the same.
    fn compare_again_with(&mut self, node: &Arc<str>, candidate: &Candidate) {
        self.compare_again(node);
        for network in claims(candidate) {
            self.networks_changed(&network, |_| true);
        }
    }

    /// Notes those of the nodes with a claim on a network for which `concerns` holds, and all with an
    /// internal address in it.
    fn networks_changed(&mut self, network: &IpNet, concerns: impl Fn(&Arc<str>) -> bool) {
        let claiming = self.claims.overlapping(network).map(|(_, node)| node);
        self.unaccepted.extend(claiming.filter(|node| concerns(node)).cloned());
        self.unrouted
            .extend(inside(&self.internal_ips, *network).map(|(_, node)| Arc::clone(node)));
    }

    /// Drops what came of comparing nodes that nobody asks for any more. Their claims stay.
    pub(crate) fn forget_results(&mut self) {
        let Self { candidates, claims, internal_ips, .. } = std::mem::take(self);
        let all: BTreeSet<_> = candidates.keys().cloned().collect();
        let (unaccepted, unrouted) = (all.clone(), all);
        *self = Self { candidates, claims, internal_ips, unaccepted, unrouted, ..Self::default() };
    }

    /// Whether there is nothing to compare.
    pub(crate) fn is_settled(&self) -> bool {
        self.unaccepted.is_empty() && self.unrouted.is_empty()
    }

    /// Compares about `most` nodes, puts what came of it into `source`, and returns how many it were and
    /// the nodes whose peers are others now.
    pub(crate) fn settle(
        &mut self,
        around: Surroundings<'_>,
        source: &mut SourceCluster,
        most: usize,
    ) -> (usize, BTreeMap<Arc<str>, PeersBefore>) {
        let mut compared = 0;
        let mut changed = BTreeMap::new();
        // A node may only take what no node before it has, so that each is looked at once.
        while compared < most
            && let Some(node) = self.unaccepted.pop_first()
        {
            self.accept(around, &node, source);
            compared += 1;
        }
        while compared < most
            && let Some(node) = self.unrouted.pop_first()
        {
            self.route(around, &node, source);
            self.build(around, &node, source, &mut changed);
            compared += 1;
        }
        if self.is_settled() {
            for gateway in self.choose_gateways(around, source) {
                self.build(around, &gateway, source, &mut changed);
            }
        }
        (compared, changed)
    }

    /// Decides whether a node gets what it claims.
    fn accept(&mut self, around: Surroundings<'_>, name: &Arc<str>, source: &mut SourceCluster) {
        let verdict = self.candidates.get(name).map(|it| self.check(around, name, it));
        let accepted = matches!(verdict, Some(Ok(_)));
        let rank = match verdict {
            Some(Ok(node)) => node.endpoint.is_some().then_some(!node.is_preferred),
            _ => None,
        };
        match verdict {
            Some(Err(skipped)) => _ = source.skipped.insert(Arc::clone(name), skipped),
            _ => _ = source.skipped.remove(name),
        }
        for is_last in [false, true] {
            self.reached.remove(&(is_last, Arc::clone(name)));
        }
        let rank = rank.filter(|_| around.context.gateways(around.cluster) > 0);
        self.reached.extend(rank.map(|is_last| (is_last, Arc::clone(name))));
        if accepted == self.accepted.contains_key(name) {
            return;
        }
        self.unrouted.insert(Arc::clone(name));
        if accepted {
            self.accepted.insert(Arc::clone(name), Box::default());
        } else {
            self.unroute(name);
            self.accepted.remove(name);
        }
        // What the node claims is taken now, or free. A claim that changed was noted when it did.
        let networks: Vec<_> = self.candidates.get(name).into_iter().flat_map(claims).collect();
        for network in networks {
            self.networks_changed(&network, |other| other > name);
        }
    }

    /// Returns the node if it gets what it claims, or why not.
    fn check<'c>(
        &self,
        around: Surroundings<'_>,
        name: &Arc<str>,
        candidate: &'c Candidate,
    ) -> Result<&'c MeshNode, Skipped> {
        let Surroundings { cluster, all_clusters, .. } = around;
        let node = candidate.node.as_ref().map_err(Clone::clone)?;
        let skip = |reason, message| Err(Skipped { node: name.to_string(), reason, message });
        let is_other = |first: &&Arc<str>| *first != name;
        // A skipped node keeps its claim, so that the owner does not depend on which nodes are set up.
        if let Some(ip) = node.wireguard_ip
            && let Some(first) = self.first_with_wireguard_ip(ip).filter(is_other)
        {
            let message = format!("its WireGuard address {ip} is {first}'s");
            return skip(SkipReason::WGIPDuplicate, message);
        }
        if let Some(first) = all_clusters.first_with_key(&node.key, cluster).filter(is_other) {
            let message = format!("its public key is {first}'s too");
            return skip(SkipReason::NodePublicKeyDuplicate, message);
        }
        let clusters = all_clusters.clusters_with_key(&node.key);
        if clusters.len() > 1 {
            let clusters = clusters.into_iter().collect::<Vec<_>>().join(", ");
            let message = format!("nodes of several clusters have its public key: {clusters}");
            return skip(SkipReason::NodePublicKeyDuplicate, message);
        }
        let taken = |network: &IpNet| self.owner(network, |other| other < name);
        for pods in &node.pod_networks {
            if let Some((_, first)) = taken(pods) {
                let message = format!("its pod CIDR {pods} overlaps what {first} has");
                return skip(SkipReason::NodePodCIDRDuplicate, message);
            }
        }
        if let Some(ip) = node.wireguard_ip
            && let Some((_, first)) = taken(&ip.into())
        {
            let message = format!("its WireGuard address {ip} is {first}'s");
            return skip(SkipReason::WGIPDuplicate, message);
        }
        Ok(node)
    }

    /// The first node that says to have this address, whether it gets it or not.
    fn first_with_wireguard_ip(&self, ip: IpAddr) -> Option<&Arc<str>> {
        let has = |node: &&Arc<str>| {
            self.candidates.get(*node).is_some_and(|it| it.wireguard_ip == Some(ip))
        };
        self.claims.overlapping(&ip.into()).map(|(_, node)| node).filter(has).min()
    }

    /// An accepted claim on a network by a node for which `counts` holds.
    fn owner(
        &self,
        network: &IpNet,
        counts: impl Fn(&Arc<str>) -> bool,
    ) -> Option<(IpNet, &Arc<str>)> {
        let owns = |node: &Arc<str>| counts(node) && self.accepted.contains_key(node);
        self.claims.overlapping(network).find(|(_, node)| owns(node))
    }

    /// Decides which internal addresses of a node are routes.
    fn route(&mut self, around: Surroundings<'_>, name: &Arc<str>, source: &mut SourceCluster) {
        self.unroute(name);
        source.notes.remove(name);
        let Some(candidate) =
            self.candidates.get(name).filter(|_| self.accepted.contains_key(name))
        else {
            return;
        };
        let (mut routes, mut notes) = (Vec::new(), Vec::new());
        for ip in &candidate.internal_ips {
            match self.unroutable(around, *ip, name) {
                None => routes.push(*ip),
                Some(why) => {
                    let cluster = around.cluster;
                    notes.push(format!("{cluster}/{name}: InternalIP {ip} is left out: {why}"));
                }
            }
        }
        if !notes.is_empty() {
            source.notes.insert(Arc::clone(name), notes);
        }
        let networks = around.context.networks(around.cluster);
        let only_gateways = around.context.only_gateways(around.cluster);
        for ip in &routes {
            if networks.iter().any(|network| network.contains(ip)) {
                self.within.insert((*ip, Arc::clone(name)));
            } else if only_gateways {
                self.outside.insert((*ip, Arc::clone(name)));
            }
        }
        self.accepted.insert(Arc::clone(name), routes.into());
    }

    fn unroute(&mut self, name: &Arc<str>) {
        for ip in self.accepted.get_mut(name).map(std::mem::take).unwrap_or_default() {
            self.within.remove(&(ip, Arc::clone(name)));
            self.outside.remove(&(ip, Arc::clone(name)));
        }
    }

    /// Returns why an internal address cannot be a route. Clusters often use the same private networks, and
    /// WireGuard would take an address that two peers have away from one of them.
    fn unroutable(&self, around: Surroundings<'_>, ip: IpAddr, node: &Arc<str>) -> Option<String> {
        let Surroundings { context, cluster, all_clusters } = around;
        let route = IpNet::from(ip);
        if let Some((cluster, node)) = all_clusters.other_with_internal_ip(ip, cluster, node) {
            return Some(format!("it is that of {cluster}/{node} too"));
        }
        for (name, networks) in context.other_networks(cluster) {
            if let Some(network) = networks.iter().find(|network| overlap(network, &route)) {
                return Some(format!("it is in {network} of {name}"));
            }
        }
        let (network, owner) = self.owner(&route, |_| true).filter(|(_, owner)| *owner != node)?;
        Some(format!("it is in {network} of {owner}"))
    }

    /// Makes a node's peers, and notes those that it had if they differ.
    fn build(
        &self,
        around: Surroundings<'_>,
        name: &Arc<str>,
        source: &mut SourceCluster,
        changed: &mut BTreeMap<Arc<str>, PeersBefore>,
    ) {
        let now = match (self.candidates.get(name), self.accepted.get(name)) {
            (Some(candidate), Some(routes)) => self.peers(around, name, candidate, routes),
            _ => [None, None],
        };
        let [peered, inside] = &now;
        if source.peered.get(name) == peered.as_ref() && source.inside.get(name) == inside.as_ref()
        {
            return;
        }
        let [peered, inside] = now;
        let before =
            [replace(&mut source.peered, name, peered), replace(&mut source.inside, name, inside)];
        changed.entry(Arc::clone(name)).or_insert(before);
    }

    /// The peers of a node in the other clusters, and in its own.
    fn peers(
        &self,
        around: Surroundings<'_>,
        name: &Arc<str>,
        candidate: &Candidate,
        internal_ips: &[IpAddr],
    ) -> [Option<PeeredNode>; 2] {
        let Ok(node) = &candidate.node else { return [None, None] };
        let networks = claims(candidate).chain(internal_ips.iter().copied().map(IpNet::from));
        let mut unique = BTreeSet::new();
        let routes = networks.filter(|route| unique.insert(*route));
        let mut peered = PeeredNode {
            within: None,
            name: Arc::clone(name),
            peer_names: candidate.peer_names.clone(),
            key: node.key.clone(),
            next_key: node.next_key.clone(),
            routes: routes.map(|route| route.to_string()).collect(),
            endpoint: node.endpoint.clone(),
        };
        let is_gateway = self.gateways.contains(name);
        let only_gateways = around.context.only_gateways(around.cluster);
        let inside = only_gateways.then(|| {
            let within = WireguardWithin { gateway: is_gateway, networks: peered.routes.to_vec() };
            let (routes, endpoint) = (Arc::default(), node.inner_endpoint.clone());
            PeeredNode { routes, endpoint, within: Some(within), ..peered.clone() }
        });
        if is_gateway && !self.shared.is_empty() {
            // Each lists them, and whoever sends takes the first that answers: no carrier is chosen here.
            let own: BTreeSet<&String> = peered.routes.iter().collect();
            let shared = self.shared.iter().filter(|network| !own.contains(network));
            peered.routes = peered.routes.iter().chain(shared).cloned().collect();
        }
        [Some(peered).filter(|_| is_gateway || !only_gateways), inside]
    }

    /// Chooses the nodes that carry the cluster's residual networks together, if it has gateways: of those
    /// that can be reached the preferred ones, then the first by name. Returns the nodes whose peers that
    /// may change.
    fn choose_gateways(
        &mut self,
        around: Surroundings<'_>,
        source: &mut SourceCluster,
    ) -> BTreeSet<Arc<str>> {
        let Surroundings { context, cluster, .. } = around;
        let count = context.gateways(cluster);
        let gateways: BTreeSet<Arc<str>> =
            self.reached.iter().take(count as usize).map(|(_, node)| Arc::clone(node)).collect();
        let networks = context.networks(cluster);
        source.uncarried = None;
        source.missing_gateways = 0;
        if context.only_gateways(cluster) {
            let is_carried = |(_, node): &&(IpAddr, Arc<str>)| !gateways.contains(node);
            let internal = self.outside.iter().filter(is_carried).take(MOST_INTERNAL);
            let internal = internal.map(|(ip, _)| IpNet::from(*ip));
            source.residual =
                networks.iter().copied().chain(internal).map(|it| it.to_string()).collect();
            let own: usize = gateways.iter().map(|node| self.outside_of(node)).sum();
            if let Some(more @ 1..) = self.outside.len().checked_sub(own + MOST_INTERNAL) {
                let note = format!("{cluster}: {more} InternalIPs are left out: they are many");
                source.uncarried = Some(note);
            }
            source.missing_gateways = count.saturating_sub(gateways.len() as u32);
        } else {
            let mut unique = BTreeSet::new();
            let is_residual = |network: &&IpNet| {
                let is_free = self.owner(network, |_| true).is_none()
                    && inside(&self.within, **network).next().is_none();
                is_free && unique.insert(**network)
            };
            let residual = networks.iter().filter(is_residual);
            source.residual = residual.map(ToString::to_string).collect();
        }
        let shared = match gateways.is_empty() {
            true => Vec::new(),
            false => std::mem::take(&mut source.residual),
        };
        let mut concerned: BTreeSet<Arc<str>> =
            self.gateways.symmetric_difference(&gateways).cloned().collect();
        if shared != self.shared {
            concerned.extend(gateways.iter().cloned());
        }
        (self.gateways, self.shared) = (gateways, shared);
        concerned
    }

    /// How many of a node's routes are addresses outside of the cluster's networks.
    fn outside_of(&self, node: &Arc<str>) -> usize {
        let ips: BTreeSet<_> = self.accepted.get(node).into_iter().flatten().collect();
        ips.into_iter().filter(|ip| self.outside.contains(&(**ip, Arc::clone(node)))).count()
    }
}

/// The networks that a node claims for itself alone. Of one that is not set up that is its address.
fn claims(candidate: &Candidate) -> impl Iterator<Item = IpNet> {
    let networks = candidate.node.iter().flat_map(|node| &node.pod_networks);
    networks.copied().chain(candidate.wireguard_ip.map(IpNet::from))
}

/// The addresses that are in a network.
fn inside(
    ips: &BTreeSet<(IpAddr, Arc<str>)>,
    network: IpNet,
) -> impl Iterator<Item = &(IpAddr, Arc<str>)> {
    let (first, last) = (network.network(), network.broadcast());
    ips.range((first, Arc::default())..).take_while(move |(ip, _)| *ip <= last)
}

fn replace<V>(map: &mut BTreeMap<Arc<str>, V>, name: &Arc<str>, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => map.insert(Arc::clone(name), value),
        None => map.remove(name),
    }
}

#[cfg(test)]
pub(crate) mod reference;
#[cfg(test)]
mod tests;
