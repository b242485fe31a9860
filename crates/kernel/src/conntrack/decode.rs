//! Decodes a message's bytes to an [`Entry`]. Decoding is total: bytes that are no connection give none.

use std::net::IpAddr;

use super::attributes::{number, read};
use super::{Carried, Entry, Tuple};

/// The part of `enum ctattr_type` that is read here; nested attributes have numbers of their own.
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
const PROTOCOL: u16 = 4;
const MARK: u16 = 8;
const COUNTERS_ORIGINAL: u16 = 9;
const COUNTERS_REPLY: u16 = 10;
const ID: u16 = 12;
const ZONE: u16 = 18;
const TIMESTAMP: u16 = 20;

/// TCP connections in these states carry nothing more: `TIME_WAIT` and `CLOSE`.
const OVER: [u8; 2] = [7, 8];

/// `struct nfgenmsg`.
const NETFILTER_HEADER: usize = 4;

/// Decodes what follows netlink's header.
pub(super) fn entry(payload: &[u8]) -> Option<Entry> {
    let (mut original, mut reply, mut id) = (None, None, None);
    let (mut zone, mut status, mut mark, mut carried) = (0, 0, 0, None);
    let (mut begun, mut ended, mut is_over) = (None, None, false);
    for (kind, value) in read(payload.get(NETFILTER_HEADER..)?) {
        match kind {
            TUPLE_ORIGINAL => original = tuple(value),
            TUPLE_REPLY => reply = tuple(value),
            STATUS => status = u32::from_be_bytes(number(value)?),
            PROTOCOL => is_over = tcp_state(value).is_some_and(|state| OVER.contains(&state)),
            MARK => mark = u32::from_be_bytes(number(value)?),
            COUNTERS_ORIGINAL | COUNTERS_REPLY => {
                let so_far: &mut Carried = carried.get_or_insert_default();
                let more = counters(value);
                so_far.bytes = so_far.bytes.saturating_add(more.bytes);
                so_far.packets = so_far.packets.saturating_add(more.packets);
            }
            ID => id = Some(u32::from_be_bytes(number(value)?)),
            ZONE => zone = u16::from_be_bytes(number(value)?),
            TIMESTAMP => {
                for (kind, value) in read(value) {
                    let at = Some(u64::from_be_bytes(number(value)?));
                    match kind {
                        1 => begun = at,
                        2 => ended = at,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let (original, reply, id) = (original?, reply?, id?);
    Some(Entry { id, zone, original, reply, carried, begun, ended, is_over, mark, status })
}

/// The state of a TCP connection, if it is one.
fn tcp_state(bytes: &[u8]) -> Option<u8> {
    let (_, tcp) = read(bytes).find(|(kind, _)| *kind == 1)?;
    let (_, state) = read(tcp).find(|(kind, _)| *kind == 1)?;
    state.first().copied()
}

fn tuple(bytes: &[u8]) -> Option<Tuple> {
    let (mut source, mut destination, mut protocol) = (None, None, None);
    let (mut source_port, mut destination_port) = (0, 0);
    for (kind, value) in read(bytes) {
        match kind {
            // The addresses.
            1 => {
                for (kind, value) in read(value) {
                    match kind {
                        1 => source = number::<4>(value).map(IpAddr::from),
                        2 => destination = number::<4>(value).map(IpAddr::from),
                        3 => source = number::<16>(value).map(IpAddr::from),
                        4 => destination = number::<16>(value).map(IpAddr::from),
                        _ => {}
                    }
                }
            }
            // What stands above them.
            2 => {
                for (kind, value) in read(value) {
                    match kind {
                        1 => protocol = value.first().copied(),
                        2 => source_port = u16::from_be_bytes(number(value)?),
                        3 => destination_port = u16::from_be_bytes(number(value)?),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let (source, destination, protocol) = (source?, destination?, protocol?);
    if source.is_ipv4() != destination.is_ipv4() {
        return None;
    }
    Some(Tuple { source, destination, protocol, source_port, destination_port })
}

fn counters(bytes: &[u8]) -> Carried {
    let mut carried = Carried::default();
    for (kind, value) in read(bytes) {
        let value = number(value).map_or(0, u64::from_be_bytes);
        match kind {
            1 => carried.packets = value,
            2 => carried.bytes = value,
            _ => {}
        }
    }
    carried
}

#[cfg(test)]
mod tests;
