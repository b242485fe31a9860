//! What is looked at of the packets inside of the tunnel: from where, to where, how long. Pure.

use std::net::IpAddr;
use std::sync::Arc;

use gotatun::packet::Packet;

use super::peers::{DevicePeer, Table};

const IPV4: usize = 20;
const IPV6: usize = 40;

fn v4(packet: &[u8], at: usize) -> Option<IpAddr> {
    Some(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?.into())
}

fn v6(packet: &[u8], at: usize) -> Option<IpAddr> {
    Some(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?.into())
}

/// Returns where a packet goes; none if it is none of IP.
pub(super) fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 if packet.len() >= IPV4 => v4(packet, 16),
        6 if packet.len() >= IPV6 => v6(packet, 24),
        _ => None,
    }
}

/// Returns from where a packet comes and how long it says that it is; none if it is none of IP, or says that
/// it is longer than it is. Behind it may be padding.
fn source(packet: &[u8]) -> Option<(IpAddr, usize)> {
    let number = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let (source, length) = match packet.first()? >> 4 {
        4 if packet.len() >= IPV4 => {
            let header = usize::from(packet[0] & 0xf) * 4;
            let length = number(2);
            (v4(packet, 12)?, (IPV4..=length).contains(&header).then_some(length)?)
        }
        6 if packet.len() >= IPV6 => (v6(packet, 8)?, IPV6 + number(4)),
        _ => return None,
    };
    (length <= packet.len()).then_some((source, length))
}

/// Returns whether a packet may come from a peer, and cuts off what lies behind it.
pub(super) fn is_from(table: &Table, packet: &mut Packet, peer: &Arc<DevicePeer>) -> bool {
    let Some((source, length)) = source(packet) else { return false };
    packet.truncate(length);
    table.having(source).is_some_and(|owner| Arc::ptr_eq(owner, peer))
}
