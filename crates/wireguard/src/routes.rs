//! Routes into the tunnel: one for each network that a peer is allowed, but for those in which a peer
//! itself is reached. What is encrypted for it would otherwise go into the tunnel again. On a node that
//! sends to a gateway of its cluster the routes lead there.
//!
//! Beneath each of them lies a guard, a route of a worse metric that says "unreachable". An interface of
//! this process goes with the process, and its routes with it; the guards stay, so that packets for other
//! clusters are refused and do not leave by the default route, in clear text. A guard goes when no peer
//! has its network any more, and by [`purge`](crate::purge). The ranges of machines outside of clusters have
//! guards whether a machine is there or not: what is said to one that was revoked is refused as well.
//!
//! Kilo has its routes in the main table, with the best metric there is, and puts back what somebody
//! replaces. Networks that are moved from it or back to it have their routes in [`BEFORE_TABLE`], which is
//! looked up before the main table, and no guard: when they leave it, Kilo's routes lie beneath.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use kernel::netlink::{Change, Error, Netlink, Route, RouteKind, Rule};

use crate::claims::Gateway;
use crate::key::PublicKey;
use crate::path;
use crate::peer::{Peers, Routing};

/// The number by which these routes are marked, beside net's 119.
pub(crate) const ROUTE_PROTOCOL: u8 = 118;
pub(crate) const GUARD_PROTOCOL: u8 = 117;
/// Worse than what people and daemons give; IPv6's own default is 1,024.
pub(crate) const GUARD_METRIC: u32 = 40_000;
pub(crate) const MAIN_TABLE: u32 = 254;
pub(crate) const BEFORE_TABLE: u32 = 114;
/// After net's rules, and before the main table's 32766.
const BEFORE_PRIORITY: u32 = 11_900;
/// How many changes are sent to the kernel in one call.
const TOGETHER: usize = 128;

/// Routes by their table and network.
pub(crate) type Routed = BTreeMap<(u32, IpNet), RouteKind>;

/// What is wanted of routes.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) routed: Routed,
    /// Networks that are refused while there is no route to them.
    pub(crate) guarded: BTreeSet<IpNet>,
    /// Networks that are left out because a peer is reached there.
    pub(crate) unrouted: BTreeSet<IpNet>,
    /// Networks of peers that yield, to which nobody else has a route.
    pub(crate) kept: BTreeSet<IpNet>,
    /// Gateways of this cluster to which no way is known.
    pub(crate) lost: BTreeSet<String>,
}

/// Says what is wanted. `narrow` has the peers on whose way smaller packets fit, `forwarded` what is sent to
/// a gateway of this cluster, `external` the ranges of machines outside of clusters, and `foreign` the main
/// table's routes of others.
pub(crate) fn wanted(
    link: u32,
    peers: &Peers,
    narrow: &BTreeMap<PublicKey, u32>,
    forwarded: &BTreeMap<IpNet, Gateway>,
    external: &BTreeSet<IpNet>,
    foreign: &[Route],
) -> Wanted {
    let endpoints: BTreeSet<IpAddr> =
        peers.values().filter_map(|peer| Some(peer.endpoint?.ip())).collect();
    let is_reached =
        |network: &IpNet| endpoints.range(network.network()..=network.broadcast()).next().is_some();
    let mut wanted = Wanted::default();
    for (key, peer) in peers {
        let mtu = narrow.get(key).copied();
        let into = mtu.map_or(RouteKind::Link(link), |mtu| RouteKind::Narrow { link, mtu });
        for network in peer.allowed_ips.iter().map(IpNet::trunc) {
            // Kilo has routes to a part of some networks: more of them it does not carry.
            let is_of = |it: &IpNet| it.contains(&network) || network.contains(it);
            let has_other = || foreign.iter().any(|route| is_of(&route.destination));
            if path::is_probed(&network) {
                // One route leads to all of them.
                let network = path::network();
                wanted.routed.insert((MAIN_TABLE, network), RouteKind::Link(link));
                wanted.guarded.insert(network);
            } else if peer.routing == Routing::Cluster {
                // The cluster's own tables lead there, also to where the peer is reached itself.
            } else if is_reached(&network) {
                wanted.unrouted.insert(network);
            } else {
                let table = match peer.routing {
                    Routing::Main => MAIN_TABLE,
                    Routing::Before => BEFORE_TABLE,
                    Routing::Cluster | Routing::Nowhere => continue,
                    Routing::Yielding if has_other() => continue,
                    Routing::Yielding => {
                        wanted.kept.insert(network);
                        BEFORE_TABLE
                    }
                };
                wanted.routed.insert((table, network), into);
                if table == MAIN_TABLE {
                    wanted.guarded.insert(network);
                }
            }
        }
    }
    for range in external {
        match is_reached(range) {
            true => wanted.unrouted.insert(*range),
            false => wanted.guarded.insert(*range),
        };
    }
    for (network, gateway) in forwarded {
        wanted.guarded.insert(*network);
        match way(gateway, network.addr().is_ipv4(), foreign) {
            Some(way) => drop(wanted.routed.insert((MAIN_TABLE, *network), way)),
            None => drop(wanted.lost.insert(gateway.name.clone())),
        }
    }
    wanted
}

/// The way that packets for a gateway's pods take, else the link that its address is on.
fn way(gateway: &Gateway, is_ipv4: bool, foreign: &[Route]) -> Option<RouteKind> {
    let own = gateway.networks.iter().filter(|network| network.addr().is_ipv4() == is_ipv4);
    let best = |network: &IpNet| {
        let leading = foreign.iter().filter(|route| route.destination.contains(network));
        leading.max_by_key(|route| route.destination.prefix_len())
    };
    let is_host = |network: &IpNet| network.prefix_len() == network.max_prefix_len();
    let to_pods = own.clone().filter(|network| !is_host(network)).find_map(|network| {
        let kind = best(network)?.kind;
        matches!(kind, RouteKind::Via(_) | RouteKind::On(..) | RouteKind::Tunnel(_)).then_some(kind)
    });
    to_pods.or_else(|| {
        own.filter(|network| is_host(network)).find_map(|network| match best(network)?.kind {
            RouteKind::Link(link) => Some(RouteKind::On(link, network.addr())),
            _ => None,
        })
    })
}

/// Reads the routes of a link, those to gateways of this cluster, and the main table's routes of others but
/// for default routes.
pub(crate) fn read(netlink: &mut Netlink, link: u32) -> Result<(Routed, Vec<Route>), Error> {
    let mut ours = netlink.routes(BEFORE_TABLE)?;
    let (main, foreign): (Vec<_>, Vec<_>) = netlink
        .routes(MAIN_TABLE)?
        .into_iter()
        .partition(|route| [ROUTE_PROTOCOL, GUARD_PROTOCOL].contains(&route.protocol));
    ours.extend(main);
    let ours = ours.into_iter().filter(|route| route.protocol == ROUTE_PROTOCOL);
    let ours = ours.filter(|route| match route.kind {
        // Those of an interface before this one went with it.
        RouteKind::Link(of) | RouteKind::Narrow { link: of, .. } => of == link,
        _ => true,
    });
    let ours = ours.map(|route| ((route.table, route.destination), route.kind)).collect();
    let foreign = foreign.into_iter().filter(|route| {
        let leads = !matches!(route.kind, RouteKind::Unreachable { .. } | RouteKind::Blackhole);
        route.destination.prefix_len() > 0 && leads
    });
    Ok((ours, foreign.collect()))
}

/// Makes the routes those that are wanted.
pub(crate) fn apply(netlink: &mut Netlink, is: &Routed, wanted: &Routed) -> Result<(), Error> {
    let own = |(at, kind): (&(u32, IpNet), &RouteKind)| (*at, *kind);
    let new = wanted.iter().filter(|(at, kind)| is.get(at) != Some(kind)).map(own);
    let gone = is.iter().filter(|(at, _)| !wanted.contains_key(at)).map(own);
    change(netlink, new, gone, (has_before(is), has_before(wanted)))
}

/// Returns whether there are routes in the table before the main one, whose number is the lower.
pub(crate) fn has_before(routed: &Routed) -> bool {
    routed.keys().next().is_some_and(|(table, _)| *table == BEFORE_TABLE)
}

/// Makes new routes, and then removes those that are gone. What leads elsewhere from now on is replaced, so
/// that no packet finds no route in between. `before` says whether there were and will be routes in the table
/// before the main one.
pub(crate) fn change(
    netlink: &mut Netlink,
    new: impl Iterator<Item = ((u32, IpNet), RouteKind)>,
    gone: impl Iterator<Item = ((u32, IpNet), RouteKind)>,
    before: (bool, bool),
) -> Result<(), Error> {
    let route = |((table, destination), kind): ((u32, IpNet), RouteKind)| Route {
        destination,
        table,
        protocol: ROUTE_PROTOCOL,
        kind,
    };
    send(netlink, new.map(|it| Change::Route(route(it))))?;
    let (had_before, has_before) = before;
    if has_before {
        for rule in before_rules() {
            match netlink.apply(&[Change::Rule(rule)]) {
                Err(error) if error.already_exists() => {}
                result => result?,
            }
        }
    }
    for change in gone.map(|it| Change::DeleteRoute(route(it))) {
        match netlink.apply(&[change]) {
            // Somebody else removed it.
            Err(error) if error.not_found() => {}
            result => result?,
        }
    }
    if had_before && !has_before { remove_rules(netlink) } else { Ok(()) }
}

fn before_rules() -> [Rule; 2] {
    let all = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
    all.map(|from| Rule {
        from,
        mark: None,
        table: BEFORE_TABLE,
        priority: BEFORE_PRIORITY,
        protocol: ROUTE_PROTOCOL,
    })
}

/// Removes the rules by which the table before the main one is looked up.
pub(crate) fn remove_rules(netlink: &mut Netlink) -> Result<(), Error> {
    for rule in before_rules() {
        match netlink.apply(&[Change::DeleteRule(rule)]) {
            Err(error) if error.not_found() => {}
            result => result?,
        }
    }
    Ok(())
}

/// Reads which networks are guarded.
pub(crate) fn guarded(netlink: &mut Netlink) -> Result<BTreeSet<IpNet>, Error> {
    let is = netlink.routes(MAIN_TABLE)?.into_iter();
    Ok(is.filter(|it| it.protocol == GUARD_PROTOCOL).map(|route| route.destination).collect())
}

pub(crate) fn guard<'n>(
    netlink: &mut Netlink,
    networks: impl Iterator<Item = &'n IpNet>,
) -> Result<(), Error> {
    send(netlink, networks.map(|network| Change::Route(guard_of(*network))))
}

pub(crate) fn unguard<'n>(
    netlink: &mut Netlink,
    networks: impl Iterator<Item = &'n IpNet>,
) -> Result<(), Error> {
    match send(netlink, networks.map(|network| Change::DeleteRoute(guard_of(*network)))) {
        // Somebody else removed it.
        Err(error) if error.not_found() => Ok(()),
        result => result,
    }
}

fn guard_of(destination: IpNet) -> Route {
    let kind = RouteKind::Unreachable { metric: GUARD_METRIC };
    Route { destination, table: MAIN_TABLE, protocol: GUARD_PROTOCOL, kind }
}

/// What interfaces left behind: guards and routes.
pub(crate) fn left(netlink: &mut Netlink) -> Result<Vec<Route>, Error> {
    let mut all = netlink.routes(MAIN_TABLE)?;
    all.append(&mut netlink.routes(BEFORE_TABLE)?);
    all.retain(|route| [ROUTE_PROTOCOL, GUARD_PROTOCOL].contains(&route.protocol));
    Ok(all)
}

fn send<'c>(netlink: &mut Netlink, changes: impl Iterator<Item = Change<'c>>) -> Result<(), Error> {
    let changes: Vec<Change<'_>> = changes.collect();
    for some in changes.chunks(TOGETHER) {
        netlink.apply(some)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::peer::Peer;

    #[test]
    fn what_a_peer_is_reached_at_is_not_routed_into_the_tunnel() {
        let peer = |networks: &[&str], endpoint: &str| Peer {
            allowed_ips: networks.iter().map(|it| it.parse().unwrap()).collect(),
            endpoint: endpoint.parse().ok(),
            ..Peer::default()
        };
        let one = PublicKey([1; 32]);
        let peers: Peers = [
            (one, peer(&["10.1.0.0/24", "192.0.2.1/32"], "192.0.2.1:51820")),
            (PublicKey([2; 32]), peer(&["198.51.100.0/24", "fd00::/64"], "[2001:db8::1]:1")),
            (PublicKey([3; 32]), peer(&["2001:db8::/32", "0.0.0.0/1"], "198.51.100.9:51820")),
        ]
        .into();
        let network = |it: &str| it.parse::<IpNet>().unwrap();
        // Of machines outside, of which none is there; a peer is reached in the second range.
        let external = ["10.99.0.0/24", "192.0.2.0/24"].map(network).into();
        let narrow = [(one, 1300)].into();
        let wanted = wanted(7, &peers, &narrow, &BTreeMap::new(), &external, &[]);
        let main = |it: &str| (MAIN_TABLE, network(it));
        let expected = [
            (main("0.0.0.0/1"), RouteKind::Link(7)),
            (main("10.1.0.0/24"), RouteKind::Narrow { link: 7, mtu: 1300 }),
            (main("fd00::/64"), RouteKind::Link(7)),
        ];
        assert_eq!(wanted.routed, expected.into());
        let guarded = expected.map(|((_, it), _)| it).into_iter().chain([network("10.99.0.0/24")]);
        assert_eq!(wanted.guarded, guarded.collect());
        let expected =
            ["192.0.2.0/24", "192.0.2.1/32", "198.51.100.0/24", "2001:db8::/32"].map(network);
        assert_eq!(wanted.unrouted, expected.into());
    }

    fn foreign(destination: &str, kind: RouteKind) -> Route {
        let destination = destination.parse().unwrap();
        Route { destination, table: MAIN_TABLE, protocol: 4, kind }
    }

    #[test]
    fn packets_for_other_clusters_take_the_way_to_the_gateways_pods() {
        let gateway = |networks: &[&str]| Gateway {
            name: "g".to_owned(),
            networks: networks.iter().map(|it| it.parse().unwrap()).collect(),
        };
        let next: IpAddr = "192.168.0.1".parse().unwrap();
        let table = [
            foreign("10.0.0.0/8", RouteKind::Via("192.168.0.254".parse().unwrap())),
            foreign("10.1.2.0/24", RouteKind::Via(next)),
            foreign("192.168.0.0/24", RouteKind::Link(3)),
            foreign("fd00:1::/64", RouteKind::On(9, "fe80::1".parse().unwrap())),
        ];
        let networks = ["10.1.2.0/26", "fd00:1::/80", "192.168.0.1/32"];
        let both = gateway(&networks);
        assert_eq!(way(&both, true, &table), Some(RouteKind::Via(next)), "the longest prefix");
        let on = RouteKind::On(9, "fe80::1".parse().unwrap());
        assert_eq!(way(&both, false, &table), Some(on), "of its own family");
        // The network between nodes routes pods: its router does not know other clusters.
        let direct = Some(RouteKind::On(3, next));
        assert_eq!(way(&gateway(&networks[2..]), true, &table), direct, "on the same link");
        assert_eq!(way(&gateway(&["192.168.9.1/32"]), true, &table), None);
        let forwarded: BTreeMap<IpNet, Gateway> =
            [("10.2.0.0/16".parse().unwrap(), gateway(&["192.168.9.1/32"]))].into();
        let wanted =
            wanted(7, &Peers::new(), &BTreeMap::new(), &forwarded, &BTreeSet::new(), &table);
        assert!(wanted.routed.is_empty() && wanted.lost.contains("g"));
        assert_eq!(wanted.guarded.len(), 1, "and it leaves by no other way");
    }

    #[test]
    fn networks_that_move_are_looked_up_before_those_of_others_and_left_to_them() {
        let network: IpNet = "10.2.0.0/24".parse().unwrap();
        let kilo = [foreign("10.2.0.0/24", RouteKind::Link(5))];
        let with = |routing, foreign: &[Route]| {
            let peer = Peer { allowed_ips: vec![network], routing, ..Peer::default() };
            let peers = [(PublicKey([1; 32]), peer)].into();
            wanted(7, &peers, &BTreeMap::new(), &BTreeMap::new(), &BTreeSet::new(), foreign)
        };
        let before: Routed = [((BEFORE_TABLE, network), RouteKind::Link(7))].into();
        let taken = with(Routing::Before, &kilo);
        assert!(taken.routed == before && taken.guarded.is_empty());
        assert!(with(Routing::Nowhere, &kilo).routed.is_empty());
        assert!(with(Routing::Yielding, &kilo).routed.is_empty());
        let part = [foreign("10.2.0.1/32", RouteKind::Link(5))];
        assert!(with(Routing::Yielding, &part).routed.is_empty());
        let kept = with(Routing::Yielding, &[]);
        assert!(kept.routed == before && kept.kept.contains(&network), "nobody else has a route");
    }
}
