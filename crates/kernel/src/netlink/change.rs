//! Encodes a change as a netlink message.

use std::net::IpAddr;
use std::os::fd::AsRawFd;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};

use super::{Address, Change, LinkRef, Neighbour, Route, RouteKind, SetLink, Veth, tunnel};

/// Returns the message, and its flags beyond "request".
pub(super) fn request(change: &Change<'_>) -> (Message, u16) {
    const ENSURE: u16 = NLM_F_CREATE | NLM_F_REPLACE;
    match change {
        Change::Veth(wanted) => (Message::NewLink(veth(wanted)), NLM_F_CREATE | NLM_F_EXCL),
        Change::Vxlan(wanted) => {
            (Message::NewLink(tunnel::vxlan(wanted)), NLM_F_CREATE | NLM_F_EXCL)
        }
        Change::Wireguard { name, mtu } => {
            (Message::NewLink(tunnel::wireguard(name, *mtu)), NLM_F_CREATE | NLM_F_EXCL)
        }
        Change::Set(link, wanted) => (Message::SetLink(set(*link, wanted)), 0),
        Change::Delete(link) => (Message::DelLink(named(*link)), 0),
        Change::DeleteGroup(group) => {
            let mut message = LinkMessage::default();
            message.attributes.push(LinkAttribute::Group(*group));
            (Message::DelLink(message), 0)
        }
        Change::Address(wanted) => (Message::NewAddress(address(wanted)), ENSURE),
        Change::DeleteAddress(gone) => (Message::DelAddress(address(gone)), 0),
        Change::Neighbour(wanted) => (Message::NewNeighbour(neighbour(wanted)), ENSURE),
        Change::DeleteNeighbour(gone) => (Message::DelNeighbour(neighbour(gone)), 0),
        Change::Route(wanted) => (Message::NewRoute(route(wanted)), ENSURE),
        Change::DeleteRoute(gone) => (Message::DelRoute(route(gone)), 0),
        Change::Rule(wanted) => (Message::NewRule(tunnel::rule(wanted)), NLM_F_CREATE | NLM_F_EXCL),
        Change::DeleteRule(gone) => (Message::DelRule(tunnel::rule(gone)), 0),
        Change::InputRule(wanted) => {
            (Message::NewRule(tunnel::input_rule(wanted)), NLM_F_CREATE | NLM_F_EXCL)
        }
    }
}

pub(super) fn named(link: LinkRef<'_>) -> LinkMessage {
    let mut message = LinkMessage::default();
    match link {
        LinkRef::Index(index) => message.header.index = index,
        LinkRef::Name(name) => message.attributes.push(LinkAttribute::IfName(name.to_owned())),
    }
    message
}

fn veth(veth: &Veth<'_>) -> LinkMessage {
    let end = |name: &str, mac: super::Mac| {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            // Chosen by us: whoever assigns "better" ones to new links leaves this one alone.
            LinkAttribute::Address(mac.0.to_vec()),
            LinkAttribute::Mtu(veth.mtu),
            // As many queues as CPUs, the default, would cost half again as much to make.
            LinkAttribute::NumTxQueues(1),
            LinkAttribute::NumRxQueues(1),
        ];
        message
    };
    let mut peer = end(veth.peer.name, veth.peer.mac);
    peer.attributes.push(LinkAttribute::NetNsFd(veth.peer.namespace.as_raw_fd()));
    let mut message = end(veth.name, veth.mac);
    message.attributes.extend(veth.group.map(LinkAttribute::Group));
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    message
}

fn set(link: LinkRef<'_>, wanted: &SetLink<'_>) -> LinkMessage {
    let mut message = named(link);
    if wanted.up {
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
    }
    let attributes = &mut message.attributes;
    attributes.extend(wanted.alias.map(|alias| LinkAttribute::IfAlias(alias.to_owned())));
    attributes.extend(wanted.mtu.map(LinkAttribute::Mtu));
    attributes.extend(wanted.group.map(LinkAttribute::Group));
    if wanted.no_own_addresses {
        let none = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![none])]));
    }
    message
}

fn address(wanted: &Address) -> AddressMessage {
    let address = wanted.address.addr();
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = wanted.address.prefix_len();
    message.header.index = wanted.link;
    if matches!(address, IpAddr::V4(address) if address.is_link_local()) {
        message.header.scope = AddressScope::Link;
    }
    // Nobody sends from it to another machine.
    if address.is_loopback() {
        message.header.scope = AddressScope::Host;
    }
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    if address.is_ipv6() {
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    message
}

fn neighbour(wanted: &Neighbour) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(wanted.address);
    message.header.ifindex = wanted.link;
    message.header.state = NeighbourState::Permanent;
    message.header.kind = RouteType::Unspec;
    message.attributes = vec![
        NeighbourAttribute::Destination(wanted.address.into()),
        NeighbourAttribute::LinkLayerAddress(wanted.mac.0.to_vec()),
    ];
    message
}

fn route(wanted: &Route) -> RouteMessage {
    let Route { destination, table, protocol, kind } = *wanted;
    let mut message = RouteMessage::default();
    message.header.address_family = family(destination.addr());
    message.header.destination_prefix_length = destination.prefix_len();
    message.header.protocol = protocol.into();
    message.header.kind = RouteType::Unicast;
    let attributes = &mut message.attributes;
    match u8::try_from(table) {
        Ok(table) => message.header.table = table,
        Err(_) => attributes.push(RouteAttribute::Table(table)),
    }
    if destination.prefix_len() > 0 {
        attributes.push(RouteAttribute::Destination(destination.network().into()));
    }
    match kind {
        RouteKind::Link(link)
        | RouteKind::Narrow { link, .. }
        | RouteKind::Sourced { link, .. } => {
            attributes.push(RouteAttribute::Oif(link));
            let (mtu, source) = match kind {
                RouteKind::Narrow { mtu, .. } => (Some(mtu), None),
                RouteKind::Sourced { mtu, source, .. } => (mtu, Some(source)),
                _ => (None, None),
            };
            let metrics = |mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]);
            attributes.extend(mtu.map(metrics));
            attributes.extend(source.map(|source| RouteAttribute::PrefSource(source.into())));
            // To IPv6, a scope means nothing.
            if matches!(destination, IpNet::V4(_)) {
                message.header.scope = RouteScope::Link;
            }
        }
        RouteKind::Via(gateway) => attributes.push(RouteAttribute::Gateway(gateway.into())),
        RouteKind::On(link, gateway) => {
            attributes.push(match (destination, gateway) {
                (IpNet::V4(_), IpAddr::V6(gateway)) => {
                    RouteAttribute::Via(RouteVia::Inet6(gateway))
                }
                _ => RouteAttribute::Gateway(gateway.into()),
            });
            attributes.push(RouteAttribute::Oif(link));
            message.header.flags = RouteFlags::Onlink;
        }
        RouteKind::Tunnel(wanted) => {
            attributes.extend(tunnel::attributes(&wanted, destination.addr().is_ipv4()));
        }
        RouteKind::Blackhole => message.header.kind = RouteType::BlackHole,
        RouteKind::Unreachable { metric } => {
            message.header.kind = RouteType::Unreachable;
            attributes.push(RouteAttribute::Priority(metric));
        }
        RouteKind::Throw => message.header.kind = RouteType::Throw,
    }
    message
}

pub(super) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
