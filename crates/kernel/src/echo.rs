//! Echo requests of IPv6, to which the kernel of the other machine replies by itself.
//!
//! Contract: a socket is of the network namespace of the calling thread, has the address it was opened
//! with, hears replies to that address alone, and does not block. Reading is total: bytes that are no
//! reply give none.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};

const REQUEST: u8 = 128;
const REPLY: u8 = 129;
/// Kind, code, checksum, identifier, sequence number.
const HEADER: usize = 8;
/// The bytes of a packet that are not an echo's content: IPv6's header and this one.
pub const OVERHEAD: u32 = 40 + HEADER as u32;

/// Opens a socket: one that everybody may have where `net.ipv4.ping_group_range` lets this process, else
/// one that needs `CAP_NET_RAW`.
pub fn socket(at: Ipv6Addr) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open =
        |kind| rustix::net::socket_with(AddressFamily::INET6, kind, flags, Some(ipproto::ICMPV6));
    let socket = open(SocketType::DGRAM).or_else(|_| open(SocketType::RAW))?;
    rustix::net::bind(&socket, &SocketAddr::from((at, 0)))?;
    Ok(socket.into())
}

/// A request with so many bytes of content, which begins with `content`. The kernel fills in the checksum.
pub fn request(sequence: u16, content: &[u8], length: usize) -> Vec<u8> {
    let mut packet = vec![0; HEADER + length.max(content.len())];
    packet[0] = REQUEST;
    packet[4..6].copy_from_slice(&(std::process::id() as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    packet[HEADER..HEADER + content.len()].copy_from_slice(content);
    packet
}

/// The sequence number and the content of a reply.
pub fn reply(packet: &[u8]) -> Option<(u16, &[u8])> {
    let (header, content) = packet.split_first_chunk::<HEADER>()?;
    let sequence = u16::from_be_bytes([header[6], header[7]]);
    (header[0] == REPLY && header[1] == 0).then_some((sequence, content))
}

#[cfg(test)]
mod tests;
