//! The kernel's own WireGuard, through generic netlink: keys, port and peers of one interface are set
//! and read.
//!
//! Contract: a [`Socket`] speaks for the namespace it was opened in. [`Socket::open`] fails with
//! `NotFound` where the kernel has no WireGuard. A change of many peers is sent in several messages, each
//! of which the kernel makes whole: removals and routes given up come before routes taken, in the order
//! of the list.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};

use crate::conntrack::attributes::{message, nested, number, read, write};
use crate::conntrack::socket::{acknowledged, buffer, open, receive, refusal, send};
use crate::netlink::messages;

pub type Key = [u8; 32];

/// The number of the family that knows the numbers of all others, and what it is asked.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const NAME: &str = "wireguard";

const GET_DEVICE: u8 = 0;
const SET_DEVICE: u8 = 1;
const VERSION: u8 = 1;

/// `WGDEVICE_A_*`.
mod device {
    pub(super) const NAME: u16 = 2;
    pub(super) const PRIVATE_KEY: u16 = 3;
    pub(super) const PUBLIC_KEY: u16 = 4;
    pub(super) const LISTEN_PORT: u16 = 6;
    pub(super) const PEERS: u16 = 8;
}

/// `WGPEER_A_*` and `WGPEER_F_*`.
mod peer {
    pub(super) const PUBLIC_KEY: u16 = 1;
    pub(super) const PRESHARED_KEY: u16 = 2;
    pub(super) const FLAGS: u16 = 3;
    pub(super) const ENDPOINT: u16 = 4;
    pub(super) const KEEPALIVE: u16 = 5;
    pub(super) const LAST_HANDSHAKE: u16 = 6;
    pub(super) const RECEIVED: u16 = 7;
    pub(super) const SENT: u16 = 8;
    pub(super) const ALLOWED_IPS: u16 = 9;

    pub(super) const REMOVE: u32 = 1;
    pub(super) const REPLACE_ALLOWED_IPS: u32 = 2;
}

/// `WGALLOWEDIP_A_*`.
mod allowed_ip {
    pub(super) const FAMILY: u16 = 1;
    pub(super) const ADDRESS: u16 = 2;
    pub(super) const PREFIX: u16 = 3;
}

/// An attribute's length has sixteen bits: what is longer goes into several messages.
const MESSAGE: usize = 24 << 10;
/// How many allowed networks one mention of a peer has: each takes up to 36 bytes.
const NETWORKS: usize = 256;

/// What to set on an interface; what is none stays as it is.
#[derive(Clone, Debug, Default)]
pub struct SetDevice {
    pub private_key: Option<Key>,
    pub listen_port: Option<u16>,
    pub peers: Vec<SetPeer>,
}

/// What to set on a peer, which is made if it is not there; what is none stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetPeer {
    pub public_key: Key,
    pub remove: bool,
    /// Zeros take it away.
    pub preshared_key: Option<Key>,
    pub endpoint: Option<SocketAddr>,
    /// Zero turns it off.
    pub keepalive: Option<u16>,
    /// These instead of those that it has.
    pub allowed_ips: Option<Vec<IpNet>>,
}

/// An interface as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    pub public_key: Option<Key>,
    pub listen_port: u16,
    pub peers: Vec<Peer>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    pub public_key: Key,
    pub endpoint: Option<SocketAddr>,
    pub keepalive: u16,
    pub last_handshake: Option<SystemTime>,
    pub received: u64,
    pub sent: u64,
    pub allowed_ips: Vec<IpNet>,
}

/// A netlink socket, and the number that the kernel has for WireGuard.
#[derive(Debug)]
pub struct Socket {
    socket: OwnedFd,
    family: u16,
    sequence: u32,
    received: Vec<u8>,
}

impl Socket {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let protocol = rustix::net::netlink::GENERIC;
        let socket = open(protocol, 0)?;
        let mut opened = Self { socket, family: CONTROL, sequence: 0, received: buffer() };
        opened.family = opened.family(NAME)?;
        Ok(opened)
    }

    /// Asks for the number of a family by its name.
    fn family(&mut self, name: &str) -> io::Result<u16> {
        let mut found = None;
        let request = |out: &mut Vec<u8>, sequence| get_family(out, sequence, name);
        self.exchange(request, |attributes| {
            found = read(attributes)
                .find(|(kind, _)| *kind == FAMILY_ID)
                .and_then(|(_, value)| number(value).map(u16::from_ne_bytes));
        })?;
        found.ok_or_else(|| io::Error::other(format!("family {name} has no number")))
    }

    /// Changes an interface.
    pub fn set(&mut self, name: &str, wanted: &SetDevice) -> io::Result<()> {
        let family = self.family;
        for bytes in set_messages(family, name, wanted) {
            self.exchange(
                |out, sequence| {
                    out.extend_from_slice(&bytes);
                    out[8..12].copy_from_slice(&sequence.to_ne_bytes());
                },
                |_| {},
            )?;
        }
        Ok(())
    }

    /// Reads an interface.
    pub fn get(&mut self, name: &str) -> io::Result<Device> {
        let mut found = Device::default();
        let family = self.family;
        let request = |out: &mut Vec<u8>, sequence| get_device(out, family, sequence, name);
        self.exchange(request, |attributes| read_device(attributes, &mut found))?;
        Ok(found)
    }

    /// Sends one request, and gives the attributes of each answer to `each` until the last.
    fn exchange(
        &mut self,
        request: impl FnOnce(&mut Vec<u8>, u32),
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let mut bytes = Vec::new();
        request(&mut bytes, sequence);
        send(&self.socket, &bytes)?;
        loop {
            receive(&self.socket, &mut self.received)?;
            for raw in messages(&self.received).filter(|raw| raw.sequence_number() == sequence) {
                match raw.message_type() {
                    NLMSG_ERROR => return acknowledged(raw.payload()),
                    NLMSG_DONE => return Ok(()),
                    // Four bytes are the generic header.
                    _ => each(raw.payload().get(4..).ok_or_else(|| refusal(&[]))?),
                }
            }
        }
    }
}

fn get_family(out: &mut Vec<u8>, sequence: u32, name: &str) {
    message(out, CONTROL, NLM_F_REQUEST | NLM_F_ACK, sequence, [GET_FAMILY, 1, 0, 0], |out| {
        text(out, FAMILY_NAME, name);
    });
}

fn get_device(out: &mut Vec<u8>, family: u16, sequence: u32, name: &str) {
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    message(out, family, flags, sequence, [GET_DEVICE, VERSION, 0, 0], |out| {
        text(out, device::NAME, name);
    });
}

/// Writes a text with the zero that ends it.
fn text(out: &mut Vec<u8>, kind: u16, text: &str) {
    write(out, kind, &[text.as_bytes(), &[0]].concat());
}

/// The messages that make a change, without their sequence numbers.
fn set_messages(family: u16, name: &str, wanted: &SetDevice) -> Vec<Vec<u8>> {
    let mut peers: Vec<Vec<u8>> = vec![Vec::new()];
    for peer in &wanted.peers {
        for bytes in peer_mentions(peer) {
            let last = peers.len() - 1;
            if !peers[last].is_empty() && peers[last].len() + bytes.len() > MESSAGE {
                peers.push(bytes);
            } else {
                peers[last].extend(bytes);
            }
        }
    }
    let whole = |(at, peers): (usize, &Vec<u8>)| {
        let mut out = Vec::new();
        let flags = NLM_F_REQUEST | NLM_F_ACK;
        message(&mut out, family, flags, 0, [SET_DEVICE, VERSION, 0, 0], |out| {
            text(out, device::NAME, name);
            if at == 0 {
                if let Some(key) = &wanted.private_key {
                    write(out, device::PRIVATE_KEY, key);
                }
                if let Some(port) = wanted.listen_port {
                    write(out, device::LISTEN_PORT, &port.to_ne_bytes());
                }
            }
            if !peers.is_empty() {
                nested(out, device::PEERS, |out| out.extend(peers));
            }
        });
        out
    };
    peers.iter().enumerate().map(whole).collect()
}

/// A peer is mentioned again for each further part of its networks.
fn peer_mentions(wanted: &SetPeer) -> Vec<Vec<u8>> {
    let networks = wanted.allowed_ips.as_deref().unwrap_or_default();
    let parts: Vec<&[IpNet]> =
        if networks.is_empty() { vec![&[]] } else { networks.chunks(NETWORKS).collect() };
    let mention = |(at, networks): (usize, &&[IpNet])| {
        let mut flags = 0;
        if wanted.remove {
            flags |= peer::REMOVE;
        }
        if at == 0 && wanted.allowed_ips.is_some() {
            flags |= peer::REPLACE_ALLOWED_IPS;
        }
        let mut out = Vec::new();
        nested(&mut out, 0, |out| {
            write(out, peer::PUBLIC_KEY, &wanted.public_key);
            if flags != 0 {
                write(out, peer::FLAGS, &flags.to_ne_bytes());
            }
            if at == 0 && !wanted.remove {
                if let Some(key) = &wanted.preshared_key {
                    write(out, peer::PRESHARED_KEY, key);
                }
                if let Some(endpoint) = wanted.endpoint {
                    write(out, peer::ENDPOINT, &socket_address(endpoint));
                }
                if let Some(keepalive) = wanted.keepalive {
                    write(out, peer::KEEPALIVE, &keepalive.to_ne_bytes());
                }
            }
            if !networks.is_empty() && !wanted.remove {
                nested(out, peer::ALLOWED_IPS, |out| {
                    for network in *networks {
                        nested(out, 0, |out| write_network(out, network));
                    }
                });
            }
        });
        out
    };
    parts.iter().enumerate().map(mention).collect()
}

fn write_network(out: &mut Vec<u8>, network: &IpNet) {
    let (family, address) = match network.network() {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    write(out, allowed_ip::FAMILY, &(family as u16).to_ne_bytes());
    write(out, allowed_ip::ADDRESS, &address);
    write(out, allowed_ip::PREFIX, &[network.prefix_len()]);
}

/// `struct sockaddr_in` or `sockaddr_in6`.
fn socket_address(address: SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(28);
    match address {
        SocketAddr::V4(address) => {
            out.extend((libc::AF_INET as u16).to_ne_bytes());
            out.extend(address.port().to_be_bytes());
            out.extend(address.ip().octets());
            out.extend([0; 8]);
        }
        SocketAddr::V6(address) => {
            out.extend((libc::AF_INET6 as u16).to_ne_bytes());
            out.extend(address.port().to_be_bytes());
            out.extend(address.flowinfo().to_ne_bytes());
            out.extend(address.ip().octets());
            out.extend(address.scope_id().to_ne_bytes());
        }
    }
    out
}

/// Adds one answer to what is known: the kernel sends many peers in several answers, and goes on with a
/// peer's networks under its key in the next.
fn read_device(attributes: &[u8], into: &mut Device) {
    for (kind, value) in read(attributes) {
        match kind {
            device::PUBLIC_KEY => into.public_key = number(value),
            device::LISTEN_PORT => {
                into.listen_port = number(value).map_or(0, u16::from_ne_bytes);
            }
            device::PEERS => {
                for peer in read(value).filter_map(|(_, peer)| read_peer(peer)) {
                    match into.peers.last_mut().filter(|last| last.public_key == peer.public_key) {
                        Some(last) => last.allowed_ips.extend(peer.allowed_ips),
                        None => into.peers.push(peer),
                    }
                }
            }
            _ => {}
        }
    }
}

fn read_peer(attributes: &[u8]) -> Option<Peer> {
    let (mut found, mut key) = (Peer::default(), None);
    for (kind, value) in read(attributes) {
        match kind {
            peer::PUBLIC_KEY => key = number(value),
            peer::ENDPOINT => found.endpoint = read_socket_address(value),
            peer::KEEPALIVE => found.keepalive = number(value).map_or(0, u16::from_ne_bytes),
            peer::LAST_HANDSHAKE => found.last_handshake = read_time(value),
            peer::RECEIVED => found.received = number(value).map_or(0, u64::from_ne_bytes),
            peer::SENT => found.sent = number(value).map_or(0, u64::from_ne_bytes),
            peer::ALLOWED_IPS => {
                found.allowed_ips.extend(read(value).filter_map(|(_, ip)| read_network(ip)));
            }
            _ => {}
        }
    }
    found.public_key = key?;
    Some(found)
}

/// Reads a `timespec`; a peer that has had no handshake has a zero.
fn read_time(value: &[u8]) -> Option<SystemTime> {
    let (seconds, rest) = value.split_first_chunk::<8>()?;
    let nanoseconds = i64::from_ne_bytes(number(rest)?);
    let seconds = u64::try_from(i64::from_ne_bytes(*seconds)).ok()?;
    let nanoseconds = u32::try_from(nanoseconds).ok().filter(|part| *part < 1_000_000_000)?;
    let since = Duration::new(seconds, nanoseconds);
    (!since.is_zero()).then(|| SystemTime::UNIX_EPOCH.checked_add(since))?
}

fn read_socket_address(value: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*value.first_chunk()?));
    let port = u16::from_be_bytes(number(value.get(2..4)?)?);
    match family {
        libc::AF_INET => {
            let address: [u8; 4] = number(value.get(4..8)?)?;
            Some((Ipv4Addr::from(address), port).into())
        }
        libc::AF_INET6 => {
            let address: [u8; 16] = number(value.get(8..24)?)?;
            Some((Ipv6Addr::from(address), port).into())
        }
        _ => None,
    }
}

fn read_network(attributes: &[u8]) -> Option<IpNet> {
    let (mut address, mut prefix) = (None, None);
    for (kind, value) in read(attributes) {
        match kind {
            allowed_ip::ADDRESS => {
                let short = number::<4>(value).map(IpAddr::from);
                address = short.or_else(|| number::<16>(value).map(IpAddr::from));
            }
            allowed_ip::PREFIX => prefix = value.first().copied(),
            _ => {}
        }
    }
    IpNet::new(address?, prefix?).ok()
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
