//! The nodes of a mesh's clusters, held against each other: which of them are peered elsewhere, with
//! which routes, and which networks of their cluster are left for one of them to carry.
//!
//! Where two nodes claim one thing, the first by name has it; across clusters there is no first, and
//! neither has it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use objects::kinds::MeshCluster;

use crate::endpoint::Endpoint;
use crate::frame::Frame;
use crate::member::{self, Member, Reason, Skipped};
use crate::name::Names;
use crate::overlap::overlap;

/// What a cluster brings into the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) peered: BTreeMap<Arc<str>, Peered>,
    /// By name.
    pub(crate) skipped: Vec<Skipped>,
    /// The cluster's networks that no node covers, in the order in which they are listed; as text.
    pub(crate) residual: Vec<String>,
    /// Sentences about addresses that are nobody's route.
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peered {
    pub(crate) node: Arc<str>,
    pub(crate) names: Arc<Names>,
    pub(crate) key: String,
    /// Pods, WireGuard, internal addresses; each once; as text.
    pub(crate) routes: Arc<[String]>,
    pub(crate) endpoint: Option<Endpoint>,
}

/// A node as it stands for itself.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    names: Arc<Names>,
    key: Option<String>,
    address: Option<IpAddr>,
    internal: Vec<IpAddr>,
    member: Result<Member, Skipped>,
}

/// Of one cluster, by name.
pub(crate) type Candidates = BTreeMap<Arc<str>, Candidate>;

impl Candidate {
    pub(crate) fn read(frame: &Frame, cluster: &MeshCluster, node: &Node) -> Self {
        let own = frame.networks(&cluster.name);
        Self {
            names: frame.names(&cluster.name, &node.name_any()),
            key: member::key(node).map(ToOwned::to_owned),
            address: member::wireguard(node).and_then(Result::ok),
            internal: member::internal(node),
            member: Member::read(node, own, cluster.wireguard_port),
        }
    }
}

/// A node by its cluster and its name.
pub(crate) type Place = (Arc<str>, Arc<str>);

/// What a look at all clusters is needed for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Everyone {
    /// With the number of nodes that have it.
    key_in: HashMap<String, BTreeMap<Arc<str>, usize>>,
    internal_of: HashMap<IpAddr, BTreeSet<Place>>,
}

impl Everyone {
    pub(crate) fn add(&mut self, cluster: &Arc<str>, node: &Arc<str>, candidate: &Candidate) {
        if let Some(key) = &candidate.key {
            let clusters = self.key_in.entry(key.clone()).or_default();
            *clusters.entry(Arc::clone(cluster)).or_default() += 1;
        }
        for ip in &candidate.internal {
            let nodes = self.internal_of.entry(*ip).or_default();
            nodes.insert((Arc::clone(cluster), Arc::clone(node)));
        }
    }

    pub(crate) fn remove(&mut self, cluster: &Arc<str>, node: &Arc<str>, candidate: &Candidate) {
        if let Some(key) = &candidate.key
            && let Some(clusters) = self.key_in.get_mut(key)
        {
            if let Some(count) = clusters.get_mut(cluster) {
                *count -= 1;
                if *count == 0 {
                    clusters.remove(cluster);
                }
            }
            if clusters.is_empty() {
                self.key_in.remove(key);
            }
        }
        for ip in &candidate.internal {
            if let Some(nodes) = self.internal_of.get_mut(ip) {
                nodes.remove(&(Arc::clone(cluster), Arc::clone(node)));
                if nodes.is_empty() {
                    self.internal_of.remove(ip);
                }
            }
        }
    }

    /// The clusters whose nodes have a key or an address in common with this one.
    pub(crate) fn sharing(&self, candidate: &Candidate) -> BTreeSet<Arc<str>> {
        let keys = candidate.key.iter().filter_map(|key| self.key_in.get(key));
        let nodes = candidate.internal.iter().filter_map(|ip| self.internal_of.get(ip));
        let of_keys = keys.flat_map(BTreeMap::keys).cloned();
        of_keys.chain(nodes.flatten().map(|(cluster, _)| Arc::clone(cluster))).collect()
    }
}

/// Holds a cluster's nodes against each other and against everyone's.
pub(crate) fn settle(
    frame: &Frame,
    cluster: &str,
    candidates: &Candidates,
    everyone: &Everyone,
) -> Source {
    let mut source = Source::default();
    let mut addresses = HashMap::new();
    let mut keys = HashMap::new();
    let mut claims = Claims::default();
    let mut members: Vec<(&Arc<str>, &Candidate, &Member)> = Vec::with_capacity(candidates.len());
    for (name, candidate) in candidates {
        // A node that is skipped keeps its claim: whoever has it does not depend on who is set up.
        let has_address = candidate.address.map(|ip| *addresses.entry(ip).or_insert(name));
        let has_key = candidate.key.as_deref().map(|key| *keys.entry(key).or_insert(name));
        let member = candidate.member.as_ref().map_err(Clone::clone).and_then(|member| {
            let skip = |reason, message| Err(Skipped { node: name.to_string(), reason, message });
            let elsewhere = &everyone.key_in[member.key.as_str()];
            if let Some(first) = has_address.filter(|first| *first != name) {
                let ip = member.wireguard;
                skip(Reason::WGIPDuplicate, format!("its WireGuard address {ip} is {first}'s"))
            } else if let Some(first) = has_key.filter(|first| *first != name) {
                skip(Reason::NodePublicKeyDuplicate, format!("its public key is {first}'s too"))
            } else if elsewhere.len() > 1 {
                let clusters: Vec<&str> = elsewhere.keys().map(|name| &**name).collect();
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
                members.push((name, candidate, member));
            }
            Err(skipped) => source.skipped.push(skipped),
        }
    }
    let mut carried = claims.clone();
    for (name, candidate, member) in members {
        let mut routes = member.pods.clone();
        routes.push(member.wireguard.into());
        for ip in &member.internal {
            if let Some(why) = left_out(frame, *ip, name, cluster, everyone, &claims) {
                source.notes.push(format!("{cluster}/{name}: InternalIP {ip} is left out: {why}"));
            } else {
                routes.push((*ip).into());
                carried.add((*ip).into(), &member.node);
            }
        }
        let mut seen = BTreeSet::new();
        routes.retain(|route| seen.insert(*route));
        let peered = Peered {
            node: Arc::clone(name),
            names: Arc::clone(&candidate.names),
            key: member.key.clone(),
            routes: routes.iter().map(ToString::to_string).collect(),
            endpoint: member.endpoint.clone(),
        };
        source.peered.insert(Arc::clone(name), peered);
    }
    let mut seen = BTreeSet::new();
    let residual = |network: &&IpNet| carried.of(network).is_none() && seen.insert(**network);
    let residual = frame.networks(cluster).iter().filter(residual);
    source.residual = residual.map(ToString::to_string).collect();
    source
}

/// Why an internal address cannot be a route. Clusters often stand on the same private networks: an
/// address that two have would be taken away from one of them.
fn left_out(
    frame: &Frame,
    ip: IpAddr,
    node: &str,
    cluster: &str,
    everyone: &Everyone,
    claims: &Claims,
) -> Option<String> {
    let route = IpNet::from(ip);
    let sharing = |(c, n): &&Place| (&**c, &**n) != (cluster, node);
    if let Some((cluster, node)) = everyone.internal_of[&ip].iter().find(sharing) {
        return Some(format!("it is that of {cluster}/{node} too"));
    }
    for (name, networks) in frame.others(cluster) {
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
