//! Which peers objects stand for, and who of several peers that name a network is sent it.
//!
//! A network that several peers name is shared: gateways of one cluster name its networks all. It belongs
//! to the first of them by name that answers probes, or to the first of all while none does. That is
//! decided on each node by what it finds itself, so nobody has to be asked when a gateway dies.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use kube::ResourceExt;
use objects::kinds::{WireguardEndpoint, WireguardPeer};

use crate::key::PublicKey;
use crate::names::Found;
use crate::peer::{Peer, Peers};

/// The peers that objects stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) peers: Peers,
    /// The names of the objects.
    pub(crate) names: BTreeMap<PublicKey, String>,
    /// The peers that share networks with others, and whether one of these is sent to it.
    pub(crate) sharing: BTreeMap<PublicKey, bool>,
}

/// Reads objects. A key that two of them name is the first's, by name. A next key is of use only if it is
/// nobody's key. `down` are the peers that do not answer.
pub(crate) fn claims<'p>(
    objects: impl IntoIterator<Item = &'p WireguardPeer>,
    names: &Found,
    own: PublicKey,
    down: &BTreeSet<PublicKey>,
) -> Claims {
    let sorted: BTreeMap<String, &WireguardPeer> =
        objects.into_iter().map(|object| (object.name_any(), object)).collect();
    let mut claims = Claims::default();
    let mut claimants: BTreeMap<IpNet, Vec<PublicKey>> = BTreeMap::new();
    let mut successors = Vec::new();
    for (name, object) in sorted {
        let spec = &object.spec;
        let Ok(key) = spec.public_key.parse::<PublicKey>() else { continue };
        if key == own || claims.peers.contains_key(&key) {
            continue;
        }
        let networks = spec.allowed_ips.iter().filter_map(|it| it.parse::<IpNet>().ok());
        let mut unique = BTreeSet::new();
        let networks = networks.map(|network| network.trunc()).filter(|it| unique.insert(*it));
        let allowed_ips: Vec<IpNet> = networks.collect();
        for network in &allowed_ips {
            claimants.entry(*network).or_default().push(key);
        }
        let endpoint = spec.endpoint.as_ref().and_then(|endpoint| address(endpoint, names));
        let keepalive = Some(spec.persistent_keepalive).filter(|seconds| *seconds > 0);
        let peer = Peer { allowed_ips, endpoint, keepalive, ..Peer::default() };
        if let Some(Ok(next)) = spec.next_public_key.as_ref().map(|next| next.parse()) {
            let successor =
                Peer { allowed_ips: Vec::new(), successor_of: Some(key), ..peer.clone() };
            successors.push((next, successor));
        }
        claims.peers.insert(key, peer);
        claims.names.insert(key, name);
    }
    claims.share(claimants, down);
    for (next, successor) in successors {
        if next != own {
            claims.peers.entry(next).or_insert(successor);
        }
    }
    claims
}

impl Claims {
    /// Leaves each network with one of those that claim it.
    fn share(&mut self, claimants: BTreeMap<IpNet, Vec<PublicKey>>, down: &BTreeSet<PublicKey>) {
        for (network, keys) in claimants {
            if keys.len() < 2 {
                continue;
            }
            let owner = keys.iter().find(|key| !down.contains(key)).or(keys.first()).copied();
            for key in keys {
                let is_owner = Some(key) == owner;
                *self.sharing.entry(key).or_default() |= is_owner;
                if let Some(peer) = self.peers.get_mut(&key).filter(|_| !is_owner) {
                    peer.allowed_ips.retain(|ip| *ip != network);
                }
            }
        }
    }
}

fn address(endpoint: &WireguardEndpoint, names: &Found) -> Option<SocketAddr> {
    match (&endpoint.dns_or_ip.ip, &endpoint.dns_or_ip.dns) {
        (Some(ip), _) => Some(SocketAddr::new(ip.parse::<IpAddr>().ok()?, endpoint.port)),
        (None, Some(name)) => names.get(&(name.clone(), endpoint.port)).copied(),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests;
