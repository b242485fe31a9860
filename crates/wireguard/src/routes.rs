//! Routes into the tunnel: one for each network that a peer is allowed, but for those in which a peer
//! itself is reached. What is encrypted for it would otherwise go into the tunnel again.
//!
//! Beneath each of them lies a guard, a route of a worse metric that says "unreachable". An interface of
//! this process goes with the process, and its routes with it; the guards stay, so that packets for other
//! clusters are refused and do not leave by the default route, in clear text. A guard goes when no peer
//! has its network any more, and by [`purge`](crate::purge).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use kernel::netlink::{Change, Error, Netlink, Route, RouteKind};

use crate::key::PublicKey;
use crate::path;
use crate::peer::Peers;

/// The number by which these routes are marked, beside net's 119.
const ROUTE_PROTOCOL: u8 = 118;
const GUARD_PROTOCOL: u8 = 117;
/// Worse than what people and daemons give; IPv6's own default is 1,024.
const GUARD_METRIC: u32 = 40_000;
const MAIN_TABLE: u32 = 254;
/// How many changes are sent to the kernel in one call.
const TOGETHER: usize = 128;

/// The networks that are routed into a tunnel, each with the largest packet that fits if that is smaller
/// than the interface's.
pub(crate) type Routed = BTreeMap<IpNet, Option<u32>>;

/// The networks to be routed into the tunnel, and those that are left out because a peer is reached there.
/// `narrow` has the peers on whose way smaller packets fit.
pub(crate) fn wanted(
    peers: &Peers,
    narrow: &BTreeMap<PublicKey, u32>,
) -> (Routed, BTreeSet<IpNet>) {
    let endpoints: BTreeSet<IpAddr> =
        peers.values().filter_map(|peer| Some(peer.endpoint?.ip())).collect();
    let (mut routed, mut unrouted) = (Routed::new(), BTreeSet::new());
    for (key, peer) in peers {
        let mtu = narrow.get(key).copied();
        for network in peer.allowed_ips.iter().map(IpNet::trunc) {
            let (from, to) = (network.network(), network.broadcast());
            if path::is_probed(&network) {
                // One route leads to all of them.
                routed.insert(path::network(), None);
            } else if endpoints.range(from..=to).next().is_none() {
                routed.insert(network, mtu);
            } else {
                unrouted.insert(network);
            }
        }
    }
    (routed, unrouted)
}

/// Reads which networks are routed into a link.
pub(crate) fn read(netlink: &mut Netlink, link: u32) -> Result<Routed, Error> {
    let is = netlink.routes(MAIN_TABLE)?.into_iter();
    let is = is.filter(|route| route.protocol == ROUTE_PROTOCOL);
    let is = is.filter_map(|route| match route.kind {
        RouteKind::Link(of) => (of == link).then_some((route.destination, None)),
        RouteKind::Narrow { link: of, mtu } => {
            (of == link).then_some((route.destination, Some(mtu)))
        }
        _ => None,
    });
    Ok(is.collect())
}

/// Makes the routes of a link those that are wanted.
pub(crate) fn apply(
    netlink: &mut Netlink,
    link: u32,
    is: &Routed,
    wanted: &Routed,
) -> Result<(), Error> {
    let route = |(destination, mtu): (&IpNet, &Option<u32>)| Route {
        destination: *destination,
        table: MAIN_TABLE,
        protocol: ROUTE_PROTOCOL,
        kind: mtu.map_or(RouteKind::Link(link), |mtu| RouteKind::Narrow { link, mtu }),
    };
    let gone = is.iter().filter(|(network, _)| !wanted.contains_key(network));
    let gone = gone.map(|it| Change::DeleteRoute(route(it)));
    let new = wanted.iter().filter(|(network, mtu)| is.get(network) != Some(mtu));
    let new = new.map(|it| Change::Route(route(it)));
    send(netlink, gone.chain(new))
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
        let (routed, left) = wanted(&peers, &[(one, 1300)].into());
        let network = |it: &str| it.parse::<IpNet>().unwrap();
        let expected = [
            (network("0.0.0.0/1"), None),
            (network("10.1.0.0/24"), Some(1300)),
            (network("fd00::/64"), None),
        ];
        assert_eq!(routed, expected.into());
        let expected = ["192.0.2.1/32", "198.51.100.0/24", "2001:db8::/32"].map(network);
        assert_eq!(left, expected.into());
    }
}
