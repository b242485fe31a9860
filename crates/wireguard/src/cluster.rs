//! Pods of this cluster's own nodes through the interface: node-to-node encryption of the pod network.
//!
//! ```text
//! PodNetwork (net) ─┐
//! WireguardNodes ───┴─► peers ─► claims ─► Tunnel
//! who has connected ────────────► wanted (pure) ─► tables 115 and 117
//!
//! rule 11750  from anybody:  table 117   BLOCK ─► the interface     POOL: unreachable, OWN BLOCK: throw
//! rule 11500  from a pod:    table 115   NODE  ─► the interface     NODE: unreachable
//! ```
//!
//! The main table stays as it is without encryption: where nothing is in these tables, packets go as they
//! would. That is what `preferred` falls back to. With `required` the routes "unreachable" lie beneath, so
//! that what cannot be encrypted is refused: a block that nobody told of, a node without a key, an interface
//! that went with its process. They are the kernel's, and stay when the agent is gone.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use kernel::netlink::{Change, Error, Netlink, Route, RouteKind, Rule};
use objects::Watched;
use objects::kinds::WireguardNodeSpec;

use crate::claims::Claims;
use crate::device::Implementation;
use crate::key::PublicKey;
use crate::path::PathStatus;
use crate::peer::{Peer, Routing};
use crate::routes::{GUARD_METRIC, GUARD_PROTOCOL, ROUTE_PROTOCOL};
use crate::tunnel::TunnelStatus;

/// The routing table of blocks, for packets from anybody.
pub(crate) const BLOCK_TABLE: u32 = 117;
/// The routing table of nodes, for packets from pods: what WireGuard itself sends to nodes goes beside it.
/// (116 is that of Coil's pods.)
pub(crate) const NODE_TABLE: u32 = 115;
/// Before the main table's 32766 and the overlay's 11800, and after the egresses' 11700.
const BLOCK_PRIORITY: u32 = 11_750;
const NODE_PRIORITY: u32 = 11_500;
/// Keeps sessions where no probe does.
const KEEPALIVE: u16 = 25;

/// Whether packets may go unencrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Until a node has connected, and while it does not answer.
    Preferred,
    /// Never.
    Required,
}

impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preferred => "preferred",
            Self::Required => "required",
        })
    }
}

/// The pod network as one node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNetwork {
    /// Where other nodes reach this one.
    pub addresses: Vec<IpAddr>,
    /// This node's blocks.
    pub own: BTreeSet<IpNet>,
    /// The networks of all pools.
    pub pools: BTreeSet<IpNet>,
    /// The other nodes that have blocks.
    pub nodes: BTreeMap<String, NodeNetworks>,
    /// Whether everything is known, so that what is not named here is gone.
    pub complete: bool,
}

/// What is reached at another node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeNetworks {
    /// Its blocks.
    pub networks: Vec<IpNet>,
    /// Where it is reached itself.
    pub addresses: Vec<IpAddr>,
}

/// The ways to the cluster's other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterTunnels {
    /// None while there is no interface.
    pub implementation: Option<Implementation>,
    pub mtu: u32,
    pub nodes: BTreeMap<String, ClusterTunnel>,
}

/// The way to one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterTunnel {
    /// None while the node has not said one.
    pub key: Option<PublicKey>,
    /// Whether its pods' packets are sent into the tunnel.
    pub routed: bool,
    pub last_handshake: Option<Duration>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub path: PathStatus,
}

/// What nodes say of their keys, by their names.
pub(crate) type KeysSaid = Watched<String, WireguardNodeSpec>;

/// Adds the cluster's nodes to the peers. A key that is there already stays whose it is.
pub(crate) fn join(
    claims: &mut Claims,
    network: &PodNetwork,
    said: &KeysSaid,
    own: PublicKey,
    is_probed: bool,
) {
    let has_ipv4 = network.addresses.iter().any(IpAddr::is_ipv4);
    for (name, node) in &network.nodes {
        let Some(spec) = said.get(name).filter(|spec| spec.encrypts_pods) else { continue };
        let Ok(key) = spec.public_key.parse::<PublicKey>() else { continue };
        if key == own {
            continue;
        }
        let hosts = node.addresses.iter().map(|address| IpNet::from(*address));
        let reached = |is_ipv4: bool| {
            node.addresses.iter().copied().find(|address| address.is_ipv4() == is_ipv4)
        };
        let reached = reached(true).filter(|_| has_ipv4).or_else(|| reached(false));
        let allowed_ips = node.networks.iter().map(IpNet::trunc).chain(hosts).collect();
        if let Some(known) = claims.peers.get_mut(&key) {
            // A gateway of this cluster, which a mesh has as a peer without networks.
            if known.allowed_ips.is_empty() && known.successor_of.is_none() {
                (known.allowed_ips, known.routing) = (allowed_ips, Routing::Cluster);
                claims.cluster.insert(name.clone(), key);
            }
            continue;
        }
        let peer = Peer {
            allowed_ips,
            endpoint: reached.map(|address| (address, spec.port).into()),
            keepalive: (!is_probed).then_some(KEEPALIVE),
            routing: Routing::Cluster,
            ..Peer::default()
        };
        if let Some(Ok(next)) = spec.next_public_key.as_ref().map(|next| next.parse()) {
            let successor =
                Peer { allowed_ips: Vec::new(), successor_of: Some(key), ..peer.clone() };
            if next != own {
                claims.peers.entry(next).or_insert(successor);
            }
        }
        claims.peers.insert(key, peer);
        claims.names.insert(key, name.clone());
        claims.cluster.insert(name.clone(), key);
    }
}

/// Says what is known of the way to each node.
pub(crate) fn ways(
    mode: Encryption,
    network: &PodNetwork,
    claims: &Claims,
    tunnel: &TunnelStatus,
    paths: &BTreeMap<PublicKey, PathStatus>,
    down: &BTreeSet<PublicKey>,
) -> ClusterTunnels {
    let way = |name: &String| {
        let Some(key) = claims.cluster.get(name).copied() else { return ClusterTunnel::default() };
        let heard = tunnel.peers.get(&key).cloned().unwrap_or_default();
        let next = claims.peers.iter().find(|(_, peer)| peer.successor_of == Some(key));
        let next = next.and_then(|(next, _)| tunnel.peers.get(next)?.last_handshake);
        let last_handshake = heard.last_handshake.into_iter().chain(next).min();
        let path = paths.get(&key).cloned().unwrap_or_default();
        ClusterTunnel {
            key: Some(key),
            routed: match mode {
                Encryption::Required => true,
                Encryption::Preferred => last_handshake.is_some() && !down.contains(&key),
            },
            last_handshake,
            received_bytes: heard.received_bytes,
            sent_bytes: heard.sent_bytes,
            path,
        }
    };
    ClusterTunnels {
        implementation: Some(tunnel.implementation),
        mtu: tunnel.mtu,
        nodes: network.nodes.keys().map(|name| (name.clone(), way(name))).collect(),
    }
}

/// Routes and rules of the two tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterRoutes {
    pub(crate) routes: Vec<Route>,
    pub(crate) rules: BTreeSet<Rule>,
}

/// What routes follow from, but for the interface.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) mode: Encryption,
    pub(crate) network: PodNetwork,
    /// The nodes that are sent packets, each with the largest packet that fits if that is smaller than the
    /// interface's.
    pub(crate) nodes: BTreeMap<String, Option<u32>>,
}

/// Where packets into the tunnel go, and what they come from if this node sends them itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way<'w> {
    /// None while there is no interface.
    pub(crate) link: Option<u32>,
    /// Those of this node's addresses that it has.
    pub(crate) sources: &'w [IpAddr],
    pub(crate) nodes: Option<&'w BTreeMap<String, Option<u32>>>,
}

/// Returns the routes that there should be.
pub(crate) fn wanted(mode: Encryption, network: &PodNetwork, way: &Way<'_>) -> ClusterRoutes {
    let mut wanted = ClusterRoutes::default();
    let kind = |link: u32, mtu: Option<u32>, to: &IpNet| {
        let is_ipv4 = to.addr().is_ipv4();
        match (way.sources.iter().find(|it| it.is_ipv4() == is_ipv4), mtu) {
            (Some(source), mtu) => RouteKind::Sourced { link, mtu, source: *source },
            (None, Some(mtu)) => RouteKind::Narrow { link, mtu },
            (None, None) => RouteKind::Link(link),
        }
    };
    let tunnelled = network
        .nodes
        .iter()
        .filter_map(|(name, node)| Some((node, way.link?, *way.nodes?.get(name)?)));
    for (node, link, mtu) in tunnelled {
        let mut lead = |destination: IpNet, table| {
            let kind = kind(link, mtu, &destination);
            wanted.routes.push(Route { destination, table, protocol: ROUTE_PROTOCOL, kind });
        };
        node.networks.iter().for_each(|network| lead(network.trunc(), BLOCK_TABLE));
        node.addresses.iter().for_each(|address| lead((*address).into(), NODE_TABLE));
    }
    if mode == Encryption::Required {
        let mut guard = |destination, table, kind| {
            wanted.routes.push(Route { destination, table, protocol: GUARD_PROTOCOL, kind });
        };
        // Own blocks first: their pods must not be cut off for a moment.
        network.own.iter().for_each(|own| guard(own.trunc(), BLOCK_TABLE, RouteKind::Throw));
        let refuse = RouteKind::Unreachable { metric: GUARD_METRIC };
        network.pools.iter().for_each(|pool| guard(pool.trunc(), BLOCK_TABLE, refuse));
        let others = network.nodes.values().flat_map(|node| &node.addresses);
        let others = others.filter(|address| !network.addresses.contains(address));
        others.for_each(|address| guard((*address).into(), NODE_TABLE, refuse));
    }
    let rule = |from: IpNet, table, priority| Rule {
        from,
        mark: None,
        table,
        priority,
        protocol: ROUTE_PROTOCOL,
    };
    let of = |table| wanted.routes.iter().filter(move |route| route.table == table);
    for is_ipv4 in [true, false] {
        let anybody: IpAddr = if is_ipv4 { [0; 4].into() } else { [0; 16].into() };
        if of(BLOCK_TABLE).any(|route| route.destination.addr().is_ipv4() == is_ipv4) {
            let anybody = IpNet::new_assert(anybody, 0);
            wanted.rules.insert(rule(anybody, BLOCK_TABLE, BLOCK_PRIORITY));
        }
    }
    let families: BTreeSet<bool> =
        of(NODE_TABLE).map(|route| route.destination.addr().is_ipv4()).collect();
    for pool in network.pools.iter().filter(|pool| families.contains(&pool.addr().is_ipv4())) {
        wanted.rules.insert(rule(pool.trunc(), NODE_TABLE, NODE_PRIORITY));
    }
    wanted
}

/// Reads what there is of an earlier agent, or of this one.
pub(crate) fn read(netlink: &mut Netlink) -> Result<ClusterRoutes, Error> {
    let mut found = ClusterRoutes::default();
    for table in [BLOCK_TABLE, NODE_TABLE] {
        match netlink.routes(table) {
            Ok(routes) => found.routes.extend(routes),
            // There is no such table before its first route.
            Err(error) if error.not_found() => {}
            Err(error) => return Err(error),
        }
    }
    found.routes.retain(|route| [ROUTE_PROTOCOL, GUARD_PROTOCOL].contains(&route.protocol));
    let rules = netlink.rules()?.into_iter();
    let ours = |rule: &Rule| {
        rule.protocol == ROUTE_PROTOCOL && [BLOCK_TABLE, NODE_TABLE].contains(&rule.table)
    };
    found.rules = rules.filter(ours).collect();
    Ok(found)
}

/// Says what leads from one to the other. Nothing is removed unless everything is known (`complete`). Routes
/// come before the rules by which they are found, and go after them.
pub(crate) fn plan(
    found: &ClusterRoutes,
    wanted: &ClusterRoutes,
    complete: bool,
) -> Vec<Change<'static>> {
    // A guard and the route above it have the same destination.
    let place = |route: &Route| (route.table, route.destination, route.protocol);
    let places: BTreeSet<_> = wanted.routes.iter().map(place).collect();
    let there: HashSet<&Route> = found.routes.iter().collect();
    let missing = wanted.routes.iter().filter(|route| !there.contains(route));
    let mut changes: Vec<_> = missing.map(|route| Change::Route(*route)).collect();
    changes.extend(wanted.rules.difference(&found.rules).map(|rule| Change::Rule(*rule)));
    if complete {
        changes.extend(found.rules.difference(&wanted.rules).map(|it| Change::DeleteRule(*it)));
        let gone = found.routes.iter().filter(|route| !places.contains(&place(route)));
        changes.extend(gone.map(|route| Change::DeleteRoute(*route)));
    }
    changes
}

/// Makes the changes one by one: what is as it should be already is no reason to leave the rest.
pub(crate) fn make(netlink: &mut Netlink, changes: &[Change<'static>]) -> Result<(), Error> {
    for change in changes {
        match netlink.apply(std::slice::from_ref(change)) {
            Ok(()) => {}
            Err(error) => match change {
                Change::DeleteRoute(_) | Change::DeleteRule(_) if error.not_found() => {}
                Change::Rule(_) if error.already_exists() => {}
                _ => return Err(error),
            },
        }
    }
    Ok(())
}

/// The networks of pools as they were last known, kept on the node: after its restart pods may come before
/// the API server has said what is guarded.
pub(crate) fn remembered(file: &Path) -> BTreeSet<IpNet> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

pub(crate) fn remember(file: &Path, pools: &BTreeSet<IpNet>) -> io::Result<()> {
    // The directory is made with the key.
    if !file.parent().is_some_and(Path::is_dir) || remembered(file) == *pools {
        return Ok(());
    }
    let lines: String = pools.iter().map(|pool| format!("{pool}\n")).collect();
    let next = file.with_extension("new");
    std::fs::write(&next, lines)?;
    std::fs::rename(next, file)
}

#[cfg(test)]
mod tests;
