//! Which peers objects stand for, who of several peers that name a network is sent it, and what is sent to
//! a gateway of this node's own cluster instead.
//!
//! A network that several peers name is shared: gateways of one cluster name its networks all. It belongs
//! to the first of them by name that answers probes, or to the first of all while none does. That is
//! decided on each node by what it finds itself, so nobody has to be asked when a gateway dies.
//!
//! In a cluster with gateways alone, a node that is none has tunnels to its own gateways, for probes and
//! nothing else. What other clusters have it sends to the first gateway that answers, by the way that
//! packets for that gateway's pods take. So:
//! - replies come back by the same device, from whichever gateway they come: strict reverse path filtering
//!   passes them, and two nodes that think differently of a gateway lose nothing here. WireGuard between
//!   the two would take packets from one gateway alone.
//! - it is whatever network the cluster has for its pods: direct routes, vxlan, ipip.
//!
//! A gateway that no longer reaches a cluster sends on to the gateways after it by name, never to those
//! before: nothing goes in a circle. The nodes of that cluster do not reach it either, and send to these.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use kube::ResourceExt;
use objects::kinds::{WireguardEndpoint, WireguardPeer};

use crate::key::PublicKey;
use crate::moving::Moving;
use crate::names::Found;
use crate::peer::{Peer, Peers};
use crate::prober::Verdicts;

const MESH: &str = "fairlead.dev/mesh";
const NAMESPACE: &str = "fairlead.dev/mesh-namespace";
const CLUSTER: &str = "fairlead.dev/source-cluster";
/// Stands for a cluster where a peer is a machine outside of clusters.
const EXTERNAL: &str = "External";

/// The peers that objects stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) peers: Peers,
    /// The names of the objects.
    pub(crate) names: BTreeMap<PublicKey, String>,
    /// The peers that share networks with others, and whether one of these is sent to it.
    pub(crate) sharing: BTreeMap<PublicKey, bool>,
    /// What is sent to a gateway of this cluster.
    pub(crate) forwarded: BTreeMap<IpNet, Gateway>,
    /// The gateway that a node which is none sends to.
    pub(crate) gateway: Option<Gateway>,
    /// The peers that are machines outside of clusters. They answer no probes.
    pub(crate) machines: BTreeSet<PublicKey>,
    /// Ranges of machines outside of clusters. What is sent to an address there that no peer has is refused:
    /// a machine that was revoked is still answered.
    pub(crate) external: BTreeSet<IpNet>,
    /// The peers that another data plane gives up or takes back.
    pub(crate) moving: Moving,
    /// The nodes of this cluster among the peers, by name.
    pub(crate) cluster: BTreeMap<String, PublicKey>,
}

/// A gateway of this cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gateway {
    /// The name of the object.
    pub(crate) name: String,
    /// Its pod networks and addresses: the way to these is the way to it.
    pub(crate) networks: Vec<IpNet>,
}

/// A mesh by its namespace and name.
pub(crate) type MeshName = (String, String);

/// The gateways of this cluster in one mesh, by the names of their objects.
#[derive(Default)]
struct OwnGateways<'p> {
    all: BTreeMap<String, (PublicKey, &'p WireguardPeer)>,
    /// The name of this node's own object, if it is a gateway.
    this: Option<String>,
}

impl OwnGateways<'_> {
    /// The first gateway that answers, of those after `after` by name.
    fn first(
        &self,
        after: Option<&String>,
        down: &BTreeSet<PublicKey>,
    ) -> Option<(PublicKey, Gateway)> {
        let mut others =
            self.all.iter().filter(|(name, _)| after.is_none_or(|after| *name > after));
        let (name, (key, object)) = others.find(|(_, (key, _))| !down.contains(key))?;
        let within = object.spec.within.iter().flat_map(|within| &within.networks);
        let networks = within.filter_map(|it| it.parse().ok()).collect();
        Some((*key, Gateway { name: name.clone(), networks }))
    }
}

pub(crate) fn mesh_of(object: &WireguardPeer) -> MeshName {
    let label = |key: &str| object.labels().get(key).cloned().unwrap_or_default();
    (label(NAMESPACE), label(MESH))
}

/// The cluster of the peer's node.
pub(crate) fn cluster_of(object: &WireguardPeer) -> String {
    object.labels().get(CLUSTER).cloned().unwrap_or_default()
}

/// Reads objects. A key that two of them name is the first's, by name. A next key is of use only if it is
/// nobody's key. `verdicts` say who answers; `moving` is what was decided of moving peers before.
pub(crate) fn claims<'p>(
    objects: impl IntoIterator<Item = &'p WireguardPeer>,
    names: &Found,
    own: PublicKey,
    verdicts: &Verdicts,
    mut moving: Moving,
) -> Claims {
    let sorted: BTreeMap<String, &WireguardPeer> =
        objects.into_iter().map(|object| (object.name_any(), object)).collect();
    let gateways = own_gateways(&sorted, own);
    moving.follow(sorted.values().copied());
    let mut claims = Claims { moving, ..Claims::default() };
    let mut claimants: BTreeMap<IpNet, Vec<PublicKey>> = BTreeMap::new();
    let mut meshes: BTreeMap<IpNet, MeshName> = BTreeMap::new();
    let mut successors = Vec::new();
    for (name, object) in sorted {
        let spec = &object.spec;
        let external = spec.external_networks.iter().filter_map(|it| it.parse::<IpNet>().ok());
        claims.external.extend(external.map(|it| it.trunc()));
        let Ok(key) = spec.public_key.parse::<PublicKey>() else { continue };
        if key == own || claims.peers.contains_key(&key) {
            continue;
        }
        let networks = spec.allowed_ips.iter().filter_map(|it| it.parse::<IpNet>().ok());
        let mut unique = BTreeSet::new();
        let networks = networks.map(|network| network.trunc()).filter(|it| unique.insert(*it));
        let mut allowed_ips: Vec<IpNet> = networks.collect();
        let mesh = mesh_of(object);
        let own_gateways = gateways.get(&mesh);
        let is_outside = own_gateways.is_some_and(|own| own.this.is_none());
        match &spec.within {
            // A node that is no gateway needs its gateways alone.
            Some(within) if is_outside && !within.gateway => continue,
            Some(_) => allowed_ips.clear(),
            None if is_outside => {
                let gateway = own_gateways.and_then(|own| own.first(None, &verdicts.down));
                let first = || own_gateways.and_then(|own| own.first(None, &BTreeSet::new()));
                if let Some((key, gateway)) = gateway.or_else(first) {
                    let to = |network: IpNet| (network, gateway.clone());
                    claims.forwarded.extend(allowed_ips.into_iter().map(to));
                    claims.sharing.insert(key, true);
                    claims.gateway = Some(gateway);
                }
                continue;
            }
            None => meshes.extend(allowed_ips.iter().map(|network| (*network, mesh.clone()))),
        }
        for network in &allowed_ips {
            claimants.entry(*network).or_default().push(key);
        }
        let endpoint = spec.endpoint.as_ref().and_then(|endpoint| address(endpoint, names));
        let keepalive = Some(spec.persistent_keepalive).filter(|seconds| *seconds > 0);
        let routing = claims.moving.routing(key, spec.routing, verdicts);
        let peer = Peer { allowed_ips, endpoint, keepalive, routing, ..Peer::default() };
        if let Some(Ok(next)) = spec.next_public_key.as_ref().map(|next| next.parse()) {
            let successor =
                Peer { allowed_ips: Vec::new(), successor_of: Some(key), ..peer.clone() };
            successors.push((next, successor));
        }
        if spec.within.as_ref().is_some_and(|within| within.gateway) {
            claims.sharing.entry(key).or_default();
        }
        if cluster_of(object) == EXTERNAL {
            claims.machines.insert(key);
        }
        claims.peers.insert(key, peer);
        claims.names.insert(key, name);
    }
    claims.send_on(&claimants, &meshes, &gateways, verdicts);
    claims.share(claimants, &verdicts.down);
    for (next, successor) in successors {
        if next != own {
            claims.peers.entry(next).or_insert(successor);
        }
    }
    claims
}

fn own_gateways<'p>(
    objects: &BTreeMap<String, &'p WireguardPeer>,
    own: PublicKey,
) -> BTreeMap<MeshName, OwnGateways<'p>> {
    let mut all: BTreeMap<MeshName, OwnGateways<'p>> = BTreeMap::new();
    for (name, object) in objects {
        let spec = &object.spec;
        if !spec.within.as_ref().is_some_and(|within| within.gateway) {
            continue;
        }
        let Ok(key) = spec.public_key.parse::<PublicKey>() else { continue };
        let own_gateways = all.entry(mesh_of(object)).or_default();
        let next = spec.next_public_key.as_ref().and_then(|next| next.parse::<PublicKey>().ok());
        if key == own || next == Some(own) {
            own_gateways.this = Some(name.clone());
        } else {
            own_gateways.all.insert(name.clone(), (key, object));
        }
    }
    all
}

impl Claims {
    /// Sends networks of which nobody answers to the gateways of this cluster that come after this one.
    fn send_on(
        &mut self,
        claimants: &BTreeMap<IpNet, Vec<PublicKey>>,
        meshes: &BTreeMap<IpNet, MeshName>,
        gateways: &BTreeMap<MeshName, OwnGateways<'_>>,
        verdicts: &Verdicts,
    ) {
        for (network, keys) in claimants {
            let own = meshes.get(network).and_then(|mesh| gateways.get(mesh));
            let Some(OwnGateways { this: Some(this), .. }) = own else { continue };
            if keys.iter().all(|key| verdicts.down.contains(key))
                && let Some((key, gateway)) =
                    own.and_then(|own| own.first(Some(this), &verdicts.down))
            {
                self.sharing.insert(key, true);
                self.forwarded.insert(*network, gateway);
            }
        }
    }

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
