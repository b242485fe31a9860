//! Routes into the tunnel: one for each network that a peer is allowed, but for those in which a peer
//! itself is reached. What is encrypted for it would otherwise go into the tunnel again.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use kernel::netlink::{Change, Error, Netlink, Route, RouteKind};

use crate::peer::Peers;

/// The number by which these routes are marked, beside net's 119.
pub(crate) const ROUTE_PROTOCOL: u8 = 118;
const MAIN_TABLE: u32 = 254;
/// How many changes are sent to the kernel in one call.
const TOGETHER: usize = 128;

/// The networks to be routed into the tunnel, and those that are left out because a peer is reached there.
pub(crate) fn wanted(peers: &Peers) -> (BTreeSet<IpNet>, BTreeSet<IpNet>) {
    let endpoints: BTreeSet<IpAddr> =
        peers.values().filter_map(|peer| Some(peer.endpoint?.ip())).collect();
    let networks = peers.values().flat_map(|peer| &peer.allowed_ips).map(IpNet::trunc);
    networks.partition(|network| {
        let (from, to) = (network.network(), network.broadcast());
        endpoints.range(from..=to).next().is_none()
    })
}

/// Reads which networks are routed into a link.
pub(crate) fn read(netlink: &mut Netlink, link: u32) -> Result<BTreeSet<IpNet>, Error> {
    let kind = RouteKind::Link(link);
    let is = netlink.routes(MAIN_TABLE)?.into_iter();
    let is = is.filter(|route| route.protocol == ROUTE_PROTOCOL && route.kind == kind);
    Ok(is.map(|route| route.destination).collect())
}

/// Makes the routes of a link those that are wanted.
pub(crate) fn apply(
    netlink: &mut Netlink,
    link: u32,
    is: &BTreeSet<IpNet>,
    wanted: &BTreeSet<IpNet>,
) -> Result<(), Error> {
    let kind = RouteKind::Link(link);
    let route = |destination: &IpNet| Route {
        destination: *destination,
        table: MAIN_TABLE,
        protocol: ROUTE_PROTOCOL,
        kind,
    };
    let gone = is.difference(wanted).map(|it| Change::DeleteRoute(route(it)));
    let new = wanted.difference(is).map(|it| Change::Route(route(it)));
    let changes: Vec<Change<'_>> = gone.chain(new).collect();
    for some in changes.chunks(TOGETHER) {
        netlink.apply(some)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::key::PublicKey;
    use crate::peer::Peer;

    #[test]
    fn what_a_peer_is_reached_at_is_not_routed_into_the_tunnel() {
        let peer = |networks: &[&str], endpoint: &str| Peer {
            allowed_ips: networks.iter().map(|it| it.parse().unwrap()).collect(),
            endpoint: endpoint.parse().ok(),
            ..Peer::default()
        };
        let peers: Peers = [
            (PublicKey([1; 32]), peer(&["10.1.0.0/24", "192.0.2.1/32"], "192.0.2.1:51820")),
            (PublicKey([2; 32]), peer(&["198.51.100.0/24", "fd00::/64"], "[2001:db8::1]:1")),
            (PublicKey([3; 32]), peer(&["2001:db8::/32", "0.0.0.0/1"], "198.51.100.9:51820")),
        ]
        .into();
        let (routed, left) = wanted(&peers);
        let networks = |of: &[&str]| of.iter().map(|it| it.parse().unwrap()).collect();
        assert_eq!(routed, networks(&["0.0.0.0/1", "10.1.0.0/24", "fd00::/64"]));
        assert_eq!(left, networks(&["192.0.2.1/32", "198.51.100.0/24", "2001:db8::/32"]));
    }
}
