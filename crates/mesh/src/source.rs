//! The nodes of a mesh's clusters, held against each other: which of them are peered elsewhere, with
//! which routes, and which networks of their cluster are left for one of them to carry.
//!
//! Where two nodes claim one thing, the first by name has it; across clusters there is no first, and
//! neither has it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use objects::kinds::MeshCluster;

use crate::endpoint::Endpoint;
use crate::member::{self, Member, Reason, Skipped};
use crate::overlap::{networks, overlap};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// By name.
    pub(crate) peered: Vec<Peered>,
    /// By name.
    pub(crate) skipped: Vec<Skipped>,
    /// The cluster's networks that no node covers, in the order in which they are listed.
    pub(crate) residual: Vec<IpNet>,
    /// Sentences about addresses that are nobody's route.
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peered {
    pub(crate) node: String,
    pub(crate) key: String,
    /// Pods, WireGuard, internal addresses; each once.
    pub(crate) routes: Vec<IpNet>,
    pub(crate) endpoint: Option<Endpoint>,
}

/// What a look at all clusters is needed for.
#[derive(Debug, Default)]
struct Everyone<'a> {
    key_in: HashMap<&'a str, BTreeSet<&'a str>>,
    internal_of: HashMap<IpAddr, BTreeSet<(&'a str, &'a str)>>,
}

pub(crate) fn settle<'a>(
    clusters: &[(&'a MeshCluster, &'a [Node])],
    all: &[MeshCluster],
) -> BTreeMap<&'a str, Source> {
    let mut everyone = Everyone::default();
    for (cluster, nodes) in clusters {
        for node in *nodes {
            if let Some(key) = member::key(node) {
                everyone.key_in.entry(key).or_default().insert(&cluster.name);
            }
            let name = node.metadata.name.as_deref().unwrap_or_default();
            for ip in member::internal(node) {
                everyone.internal_of.entry(ip).or_default().insert((&cluster.name, name));
            }
        }
    }
    let allowed: Vec<(&str, Vec<IpNet>)> =
        all.iter().map(|cluster| (cluster.name.as_str(), networks(cluster))).collect();
    let settle = |(cluster, nodes): &(&'a MeshCluster, &'a [Node])| {
        (cluster.name.as_str(), one(cluster, nodes, &allowed, &everyone))
    };
    clusters.iter().map(settle).collect()
}

fn one(
    cluster: &MeshCluster,
    nodes: &[Node],
    allowed: &[(&str, Vec<IpNet>)],
    everyone: &Everyone<'_>,
) -> Source {
    let own = networks(cluster);
    let mut nodes: Vec<&Node> = nodes.iter().collect();
    nodes.sort_by_key(|node| node.metadata.name.as_deref());
    let mut source = Source::default();
    let mut addresses = HashMap::new();
    let mut keys = HashMap::new();
    let mut claims = Claims::default();
    let mut members: Vec<Member> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let name = node.name_any();
        // A node that is skipped keeps its claim: whoever has it does not depend on who is set up.
        let address = member::wireguard(node).and_then(Result::ok);
        let has_address = address.map(|ip| &*addresses.entry(ip).or_insert_with(|| name.clone()));
        let has_key =
            member::key(node).map(|key| &*keys.entry(key).or_insert_with(|| name.clone()));
        let member = Member::read(node, &own, cluster.wireguard_port).and_then(|member| {
            let skip = |reason, message| Err(Skipped { node: name.clone(), reason, message });
            let elsewhere = &everyone.key_in[member.key.as_str()];
            if let Some(first) = has_address.filter(|first| **first != name) {
                let ip = member.wireguard;
                skip(Reason::WGIPDuplicate, format!("its WireGuard address {ip} is {first}'s"))
            } else if let Some(first) = has_key.filter(|first| **first != name) {
                skip(Reason::NodePublicKeyDuplicate, format!("its public key is {first}'s too"))
            } else if elsewhere.len() > 1 {
                let clusters: Vec<&str> = elsewhere.iter().copied().collect();
                let clusters = clusters.join(", ");
                let message = format!("nodes of several clusters have its public key: {clusters}");
                skip(Reason::NodePublicKeyDuplicate, message)
            } else if let Some((pods, first)) = claims.first_of(&member.pods) {
                let message = format!("its pod CIDR {pods} overlaps what {first} has");
                skip(Reason::NodePodCIDRDuplicate, message)
            } else if let Some((ip, first)) = claims.first_of(&[member.wireguard.into()]) {
                let ip = ip.addr();
                skip(Reason::WGIPDuplicate, format!("its WireGuard address {ip} is {first}'s"))
            } else {
                Ok(member)
            }
        });
        match member {
            Ok(member) => {
                for network in &member.pods {
                    claims.add(*network, &member.node);
                }
                claims.add(member.wireguard.into(), &member.node);
                members.push(member);
            }
            Err(skipped) => source.skipped.push(skipped),
        }
    }
    let mut carried = claims.clone();
    for member in members {
        let mut routes = member.pods.clone();
        routes.push(member.wireguard.into());
        for ip in &member.internal {
            let why = left_out(*ip, &member.node, cluster, allowed, everyone, &claims);
            if let Some(why) = why {
                let node = &member.node;
                let name = &cluster.name;
                source.notes.push(format!("{name}/{node}: InternalIP {ip} is left out: {why}"));
            } else {
                routes.push((*ip).into());
                carried.add((*ip).into(), &member.node);
            }
        }
        let mut seen = BTreeSet::new();
        routes.retain(|route| seen.insert(*route));
        let Member { node, key, endpoint, .. } = member;
        source.peered.push(Peered { node, key, routes, endpoint });
    }
    let mut seen = BTreeSet::new();
    let residual = |network: &IpNet| carried.of(network).is_none() && seen.insert(*network);
    source.residual = own.into_iter().filter(residual).collect();
    source
}

/// Why an internal address cannot be a route. Clusters often stand on the same private networks: an
/// address that two have would be taken away from one of them.
fn left_out(
    ip: IpAddr,
    node: &str,
    cluster: &MeshCluster,
    allowed: &[(&str, Vec<IpNet>)],
    everyone: &Everyone<'_>,
    claims: &Claims,
) -> Option<String> {
    let route = IpNet::from(ip);
    let sharing = |other: &&(&str, &str)| **other != (cluster.name.as_str(), node);
    if let Some((cluster, node)) = everyone.internal_of[&ip].iter().find(sharing) {
        return Some(format!("it is that of {cluster}/{node} too"));
    }
    let others = allowed.iter().filter(|(name, _)| *name != cluster.name);
    for (name, networks) in others {
        if let Some(network) = networks.iter().find(|network| overlap(network, &route)) {
            return Some(format!("it is in {network} of {name}"));
        }
    }
    let (network, owner) = claims.of(&route).filter(|(_, owner)| *owner != node)?;
    Some(format!("it is in {network} of {owner}"))
}

/// Networks that do not overlap, and whose they are; a lookup is two steps in a tree.
#[derive(Clone, Debug, Default)]
struct Claims(BTreeMap<IpAddr, (IpNet, String)>);

impl Claims {
    fn of(&self, network: &IpNet) -> Option<(IpNet, &str)> {
        let before = self.0.range(..=network.network()).next_back();
        let after = self.0.range(network.network()..).next();
        let near = before.into_iter().chain(after).map(|(_, (claimed, owner))| (claimed, owner));
        let mut hits = near.filter(|(claimed, _)| overlap(claimed, network));
        hits.next().map(|(claimed, owner)| (*claimed, owner.as_str()))
    }

    /// The first of `networks` that is claimed, and who claims it.
    fn first_of(&self, networks: &[IpNet]) -> Option<(IpNet, &str)> {
        networks.iter().find_map(|network| self.of(network).map(|(_, owner)| (*network, owner)))
    }

    /// What overlaps it must be the owner's own: the wider of the two stays.
    fn add(&mut self, network: IpNet, owner: &str) {
        while let Some((claimed, _)) = self.of(&network) {
            if claimed.contains(&network) {
                return;
            }
            self.0.remove(&claimed.network());
        }
        self.0.insert(network.network(), (network, owner.to_owned()));
    }
}
