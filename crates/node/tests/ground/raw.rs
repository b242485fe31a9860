//! Packets of protocols that have no sockets here, by raw sockets.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use policy::program::Protocol;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::Host;

/// An SCTP packet that begins an association; nobody looks at its checksum on the way.
pub(crate) fn sctp_init(port: u16) -> Vec<u8> {
    let mut packet = 40_000u16.to_be_bytes().to_vec();
    packet.extend(port.to_be_bytes());
    packet.extend([0; 8]);
    // INIT, of 20 bytes: tag, window, streams, sequence number.
    packet.extend([1, 0, 0, 20]);
    packet.extend([0, 0, 0, 9, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
    let sum = crc32c(&packet);
    packet[8..12].copy_from_slice(&sum.to_le_bytes());
    packet
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
        }
    }
    !sum
}

/// An echo request. The kernel makes the checksum of ICMPv6 itself.
pub(crate) fn echo(v6: bool) -> Vec<u8> {
    let mut packet = vec![if v6 { 128 } else { 8 }, 0, 0, 0, 0x12, 0x34, 0, 1];
    if !v6 {
        let sum: u32 =
            packet.chunks(2).map(|it| u32::from(u16::from_be_bytes([it[0], it[1]]))).sum();
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// Sends a packet and says whether it arrived.
pub(crate) fn arrives(
    from: &Host,
    to: &Host,
    protocol: Protocol,
    packet: &[u8],
    v6: bool,
    wait: Duration,
) -> bool {
    let socket = |host: &Host| {
        host.namespace
            .run_in(|| {
                let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
                let number = std::num::NonZeroU32::new(protocol.0.into()).unwrap();
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let protocol = rustix::net::Protocol::from_raw(number);
                rustix::net::socket_with(family, SocketType::RAW, flags, Some(protocol)).unwrap()
            })
            .unwrap()
    };
    let (sender, receiver) = (socket(from), socket(to));
    let address = |host: &Host| -> IpAddr { host.address(v6) };
    let to = SocketAddr::new(address(to), 0);
    rustix::net::sendto(&sender, packet, SendFlags::empty(), &to).unwrap();
    let (began, mut buffer) = (Instant::now(), [0u8; 256]);
    while began.elapsed() < wait {
        if let Ok((length, _)) = rustix::net::recv(&receiver, &mut buffer[..], RecvFlags::empty()) {
            // With the header of IPv4.
            let skip = if v6 { 0 } else { usize::from(buffer[0] & 15) * 4 };
            let arrived = buffer.get(skip..length).unwrap_or_default();
            // What was sent, not what answers to it.
            if arrived.first() == packet.first() && arrived.len() >= packet.len() {
                return true;
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}
