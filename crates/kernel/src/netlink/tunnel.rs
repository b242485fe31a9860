//! Encodes and decodes what tunnels need: the vxlan device, routes that say to which machine a packet
//! goes, and rules by which packets of some addresses take them.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_core::{DefaultNla, Nla};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteIp6Tunnel, RouteLwEnCapType, RouteLwTunnelEncap, RouteVia,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};

use super::change::{family, named};
use super::{InputRule, LinkRef, MarkBits, Rule, Tunnel, Vxlan, VxlanPeers};

/// `LWTUNNEL_IP_ID`, `_DST`, `_TTL` and `_FLAGS`.
const ID: u16 = 1;
const DESTINATION: u16 = 2;
const HOPS: u16 = 4;
const FLAGS: u16 = 6;
/// The outer packet has a checksum: without one a receiver drops it where it is IPv6. The network's
/// number is written on it.
const CHECKSUM_AND_KEY: u16 = 1 | 4;
const MOST_HOPS: u8 = 64;
/// How long the origin of a hardware address is remembered without a packet from it: longer than an idle
/// connection lives, in seconds.
const AGEING: u32 = 432_000;
/// The most origins: one for each machine of a network of any size that there is.
const MOST_LEARNED: u32 = 65_536;

pub(super) fn vxlan(wanted: &Vxlan<'_>) -> LinkMessage {
    let mut message = named(LinkRef::Name(wanted.name));
    let mut data = vec![InfoVxlan::Port(wanted.port)];
    match wanted.peers {
        VxlanPeers::ByRoute => {
            data.extend([InfoVxlan::CollectMetadata(true), InfoVxlan::Learning(false)]);
        }
        VxlanPeers::Learned { network, over_ipv4 } => {
            data.extend([InfoVxlan::Id(network), InfoVxlan::Learning(true)]);
            data.extend([InfoVxlan::Ageing(AGEING), InfoVxlan::Limit(MOST_LEARNED)]);
            if !over_ipv4 {
                // Any address: what counts is its family, without which the kernel listens on IPv4 alone.
                data.push(InfoVxlan::Local6(Ipv6Addr::UNSPECIFIED));
            }
        }
    }
    message.attributes.extend([
        LinkAttribute::Address(wanted.mac.0.to_vec()),
        LinkAttribute::Mtu(wanted.mtu),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vxlan),
            LinkInfo::Data(InfoData::Vxlan(data)),
        ]),
    ]);
    message
}

pub(super) fn wireguard(name: &str, mtu: u32) -> LinkMessage {
    let mut message = named(LinkRef::Name(name));
    message.attributes.extend([
        LinkAttribute::Mtu(mtu),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Wireguard)]),
    ]);
    message
}

/// The attributes of a route through a tunnel.
pub(super) fn attributes(tunnel: &Tunnel, to_ipv4: bool) -> Vec<RouteAttribute> {
    let plain =
        |kind, value: &[u8]| RouteLwTunnelEncap::Other(DefaultNla::new(kind, value.to_vec()));
    let (kind, remote) = match tunnel.remote {
        IpAddr::V4(remote) => (RouteLwEnCapType::Ip, remote.octets().to_vec()),
        IpAddr::V6(remote) => (RouteLwEnCapType::Ip6, remote.octets().to_vec()),
    };
    // Both families number them alike.
    let parts = vec![
        plain(ID, &u64::from(tunnel.network).to_be_bytes()),
        plain(DESTINATION, &remote),
        plain(HOPS, &[MOST_HOPS]),
        plain(FLAGS, &CHECKSUM_AND_KEY.to_be_bytes()),
    ];
    let mut attributes = vec![
        RouteAttribute::Oif(tunnel.link),
        RouteAttribute::EncapType(kind),
        RouteAttribute::Encap(parts),
    ];
    attributes.extend(tunnel.gateway.map(|gateway| match to_ipv4 {
        true => RouteAttribute::Via(RouteVia::Inet6(gateway)),
        false => RouteAttribute::Gateway(RouteAddress::Inet6(gateway)),
    }));
    attributes
}

/// Reads the tunnel of a route, if it has one.
pub(super) fn read(attributes: &[RouteAttribute]) -> Option<Tunnel> {
    let (mut link, mut remote, mut network, mut gateway) = (None, None, None, None);
    for attribute in attributes {
        match attribute {
            RouteAttribute::Oif(index) => link = Some(*index),
            RouteAttribute::Via(RouteVia::Inet6(address))
            | RouteAttribute::Gateway(RouteAddress::Inet6(address)) => gateway = Some(*address),
            RouteAttribute::Encap(parts) => {
                for part in parts {
                    match part {
                        RouteLwTunnelEncap::Ip6(RouteIp6Tunnel::Id(id)) => network = Some(*id),
                        RouteLwTunnelEncap::Ip6(RouteIp6Tunnel::Destination(address)) => {
                            remote = Some(IpAddr::V6(*address));
                        }
                        RouteLwTunnelEncap::Other(part) if part.kind() == ID => {
                            network = bytes(part).map(u64::from_be_bytes);
                        }
                        RouteLwTunnelEncap::Other(part) if part.kind() == DESTINATION => {
                            remote = bytes::<4>(part).map(IpAddr::from);
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let network = u32::try_from(network?).ok()?;
    Some(Tunnel { link: link?, remote: remote?, network, gateway })
}

fn bytes<const N: usize>(part: &DefaultNla) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (part.value_len() == N).then(|| part.emit_value(&mut bytes))?;
    Some(bytes)
}

pub(super) fn rule(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(rule.from.addr());
    message.header.src_len = rule.from.prefix_len();
    message.header.action = RuleAction::ToTable;
    let attributes = &mut message.attributes;
    match u8::try_from(rule.table) {
        Ok(table) => message.header.table = table,
        Err(_) => attributes.push(RuleAttribute::Table(rule.table)),
    }
    attributes.extend([
        RuleAttribute::Source(rule.from.network()),
        RuleAttribute::Priority(rule.priority),
        RuleAttribute::Protocol(rule.protocol.into()),
    ]);
    if rule.from.prefix_len() == 0 {
        attributes.retain(|attribute| !matches!(attribute, RuleAttribute::Source(_)));
    }
    if let Some(MarkBits { value, mask }) = rule.mark {
        attributes.extend([RuleAttribute::FwMark(value), RuleAttribute::FwMask(mask)]);
    }
    message
}

pub(super) fn input_rule(rule: &InputRule<'_>) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if rule.is_ipv4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Table(rule.table),
        RuleAttribute::Iifname(rule.link.to_owned()),
        RuleAttribute::Priority(rule.priority),
        RuleAttribute::Protocol(rule.protocol.into()),
    ];
    message
}

pub(super) fn rules() -> [Message; 2] {
    [AddressFamily::Inet, AddressFamily::Inet6].map(|family| {
        let mut message = RuleMessage::default();
        message.header.family = family;
        Message::GetRule(message)
    })
}

pub(super) fn read_rule(message: Message) -> Option<Rule> {
    let Message::NewRule(message) = message else {
        return None;
    };
    let (mut from, mut priority, mut protocol) = (None, 0, 0);
    let (mut mark, mut mask, mut chooses) = (None, u32::MAX, false);
    let mut table = u32::from(message.header.table);
    let anywhere: IpAddr = match message.header.family {
        AddressFamily::Inet => [0; 4].into(),
        _ => [0; 16].into(),
    };
    for attribute in message.attributes {
        match attribute {
            RuleAttribute::Source(address) => {
                from = IpNet::new(address, message.header.src_len).ok();
            }
            RuleAttribute::Priority(number) => priority = number,
            RuleAttribute::Protocol(number) => protocol = number.into(),
            RuleAttribute::Table(number) => table = number,
            RuleAttribute::FwMark(value) => mark = Some(value),
            RuleAttribute::FwMask(bits) => mask = bits,
            RuleAttribute::Iifname(_)
            | RuleAttribute::Oifname(_)
            | RuleAttribute::Destination(_) => {
                chooses = true;
            }
            _ => {}
        }
    }
    let mark = mark.map(|value| MarkBits { value, mask });
    // A rule that chooses by something that a `Rule` does not have is not one.
    let from = from.or_else(|| IpNet::new(anywhere, 0).ok().filter(|_| !chooses))?;
    Some(Rule { from, mark, table, priority, protocol })
}
