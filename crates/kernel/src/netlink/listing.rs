//! Encodes requests for links, addresses, neighbours and routes, and decodes the answers.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NlasIterator, parse_string};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};

use super::{Address, Link, LinkRef, Mac, Neighbour, Route, RouteKind, tunnel};

/// `NLMSGERR_ATTR_MSG`: the kernel's explanation.
const WORDS: u16 = 1;
/// The answer to a failed request repeats this much of it: the header.
const HEADER: usize = 16;

pub(super) fn link(link: LinkRef<'_>) -> (Message, u16) {
    (Message::GetLink(without_statistics(super::change::named(link))), 0)
}

pub(super) fn links() -> Message {
    Message::GetLink(without_statistics(LinkMessage::default()))
}

/// Asks the kernel to leave out statistics: most of what there would be to copy and to read.
fn without_statistics(mut message: LinkMessage) -> LinkMessage {
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    message
}

pub(super) fn addresses(link: u32) -> Message {
    let mut message = AddressMessage::default();
    message.header.index = link;
    Message::GetAddress(message)
}

pub(super) fn neighbours(link: Option<u32>) -> Message {
    let mut message = NeighbourMessage::default();
    message.header.kind = RouteType::Unspec;
    message.attributes.extend(link.map(NeighbourAttribute::IfIndex));
    Message::GetNeighbour(message)
}

pub(super) fn routes(table: u32) -> [Message; 2] {
    [AddressFamily::Inet, AddressFamily::Inet6].map(|family| {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        message.header.kind = RouteType::Unspec;
        message.attributes.push(RouteAttribute::Table(table));
        Message::GetRoute(message)
    })
}

/// Asks by which way a packet to the address goes.
pub(super) fn route_to(address: IpAddr) -> Message {
    let mut message = RouteMessage::default();
    let (family, length, address) = match address {
        IpAddr::V4(address) => (AddressFamily::Inet, 32, RouteAddress::Inet(address)),
        IpAddr::V6(address) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(address)),
    };
    message.header.address_family = family;
    message.header.destination_prefix_length = length;
    message.header.kind = RouteType::Unspec;
    message.attributes.push(RouteAttribute::Destination(address));
    Message::GetRoute(message)
}

pub(super) fn read_link_of_route(message: Message) -> Option<u32> {
    let Message::NewRoute(message) = message else {
        return None;
    };
    message.attributes.into_iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(link) => Some(link),
        _ => None,
    })
}

pub(super) fn read_link(message: Message) -> Option<Link> {
    let Message::NewLink(message) = message else {
        return None;
    };
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mac: None,
        mtu: 0,
        up: message.header.flags.contains(LinkFlags::Up),
        alias: None,
        kind: None,
        peer: None,
        bridge: None,
        group: 0,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Address(mac) => link.mac = mac.try_into().ok().map(Mac),
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
            LinkAttribute::Link(peer) => link.peer = Some(peer),
            LinkAttribute::Group(group) => link.group = group,
            LinkAttribute::Controller(bridge) => link.bridge = Some(bridge),
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.into_iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some(link)
}

pub(super) fn read_address(message: Message) -> Option<Address> {
    let Message::NewAddress(message) = message else {
        return None;
    };
    let (mut local, mut other) = (None, None);
    for attribute in message.attributes {
        match attribute {
            AddressAttribute::Local(address) => local = Some(address),
            AddressAttribute::Address(address) => other = Some(address),
            _ => {}
        }
    }
    // IPv6 has only the one; with IPv4 it may be that of the other end.
    let address = IpNet::new(local.or(other)?, message.header.prefix_len).ok()?;
    Some(Address { link: message.header.index, address })
}

pub(super) fn read_neighbour(message: Message) -> Option<Neighbour> {
    let Message::NewNeighbour(message) = message else {
        return None;
    };
    if message.header.state != NeighbourState::Permanent {
        return None;
    }
    let (mut address, mut mac) = (None, None);
    for attribute in message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                address = Some(v4.into());
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                address = Some(v6.into());
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.try_into().ok().map(Mac),
            _ => {}
        }
    }
    Some(Neighbour { link: message.header.ifindex, address: address?, mac: mac? })
}

pub(super) fn read_route(message: Message) -> Option<Route> {
    let Message::NewRoute(message) = message else {
        return None;
    };
    let header = message.header;
    let mut destination: IpAddr = match header.address_family {
        AddressFamily::Inet => [0; 4].into(),
        AddressFamily::Inet6 => [0; 16].into(),
        _ => return None,
    };
    let (mut table, mut gateway, mut link) = (u32::from(header.table), None, None);
    let (mut metric, mut narrowed, mut source) = (0, None, None);
    let tunnel = tunnel::read(&message.attributes);
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = ip(&address)?,
            RouteAttribute::Gateway(address) => gateway = Some(ip(&address)?),
            RouteAttribute::Oif(index) => link = Some(index),
            RouteAttribute::Table(number) => table = number,
            RouteAttribute::Priority(priority) => metric = priority,
            RouteAttribute::PrefSource(address) => source = ip(&address),
            RouteAttribute::Metrics(metrics) => {
                narrowed = metrics.into_iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(mtu),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    let kind = match (header.kind, gateway, link) {
        (RouteType::BlackHole, ..) => RouteKind::Blackhole,
        (RouteType::Unreachable, ..) => RouteKind::Unreachable { metric },
        (RouteType::Throw, ..) => RouteKind::Throw,
        (RouteType::Unicast, ..) if tunnel.is_some() => RouteKind::Tunnel(tunnel?),
        (RouteType::Unicast, Some(gateway), Some(link))
            if header.flags.contains(RouteFlags::Onlink) =>
        {
            RouteKind::On(link, gateway)
        }
        (RouteType::Unicast, Some(gateway), _) => RouteKind::Via(gateway),
        (RouteType::Unicast, None, Some(link)) => match (source, narrowed) {
            (Some(source), mtu) => RouteKind::Sourced { link, mtu, source },
            (None, Some(mtu)) => RouteKind::Narrow { link, mtu },
            (None, None) => RouteKind::Link(link),
        },
        _ => return None,
    };
    let destination = IpNet::new(destination, header.destination_prefix_length).ok()?;
    Some(Route { destination, table, protocol: header.protocol.into(), kind })
}

/// Reads a default route: its metric and the link it leaves by.
pub(super) fn read_default(message: Message) -> Option<(u32, u32)> {
    let Message::NewRoute(message) = message else {
        return None;
    };
    if message.header.destination_prefix_length > 0 || message.header.kind != RouteType::Unicast {
        return None;
    }
    let (mut metric, mut link) = (0, None);
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Priority(priority) => metric = priority,
            RouteAttribute::Oif(index) => link = Some(index),
            // All of several ways are as good; the first stands for them.
            RouteAttribute::MultiPath(hops) => link = hops.first().map(|hop| hop.interface_index),
            _ => {}
        }
    }
    Some((metric, link?))
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

/// Reads the kernel's explanation in an answer, which follows the number.
pub(super) fn note(rest: &[u8]) -> Option<String> {
    let attributes = NlasIterator::new(rest.get(HEADER..)?);
    let words = attributes.filter_map(Result::ok).find(|attribute| attribute.kind() == WORDS)?;
    parse_string(words.value()).ok()
}
