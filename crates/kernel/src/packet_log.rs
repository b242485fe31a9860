//! Packets that a rule sent to a log group (nflog).
//!
//! Contract: a [`PacketLog`] reads one group of the namespace it was opened in; the kernel waits for no
//! reader, and what is lost is said. Reading is total: bytes that are no packet give none.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::netlink::NETFILTER;

use crate::conntrack::attributes::{message, read, write};
use crate::conntrack::socket;
use crate::netlink::messages;

/// `NFNL_SUBSYS_ULOG`, and its messages.
const PACKET: u16 = 4 << 8;
const CONFIGURE: u16 = PACKET | 1;
const BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
/// What is copied of a packet: enough for IPv6 with an extension header, and the ports.
const LENGTH: u32 = 96;
/// The shortest headers. A packet may say that its own are shorter, and carry what is in them.
const IPV4_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
/// `struct nfgenmsg`.
const NETFILTER_HEADER: usize = 4;
/// Room for some ten thousand packets.
const WAITING: usize = 4 << 20;
/// The most datagrams that one call reads.
const TOGETHER: usize = 1024;

/// A logged packet, as far as its first bytes tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// What the rule says of itself.
    pub prefix: String,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    /// Both ports are zero where the protocol has none.
    pub source_port: u16,
    pub destination_port: u16,
    /// The first bytes of what TCP or UDP carries, as far as they were copied.
    pub carried: Vec<u8>,
}

/// A socket that receives the packets of one group.
#[derive(Debug)]
pub struct PacketLog {
    socket: OwnedFd,
    received: Vec<u8>,
}

impl PacketLog {
    /// Opens a socket in the network namespace of the calling thread, for the headers of packets. A group has
    /// one reader.
    pub fn open(group: u16) -> io::Result<Self> {
        Self::configured(group, LENGTH, |_, _| {})
    }

    /// Opens a socket for the first `length` bytes of packets, that waits for no second packet before it tells of
    /// the first.
    pub fn open_at_once(group: u16, length: u32) -> io::Result<Self> {
        Self::configured(group, length, |request, header| {
            message(request, CONFIGURE, NLM_F_REQUEST | NLM_F_ACK, 3, header, |out| {
                write(out, 5, &1u32.to_be_bytes());
            });
        })
    }

    fn configured(
        group: u16,
        length: u32,
        more: impl FnOnce(&mut Vec<u8>, [u8; 4]),
    ) -> io::Result<Self> {
        let socket = socket::open(NETFILTER, 0)?;
        socket::enlarge(&socket, WAITING)?;
        let [high, low] = group.to_be_bytes();
        let netfilter = [0, 0, high, low];
        let mut request = Vec::new();
        let flags = NLM_F_REQUEST | NLM_F_ACK;
        message(&mut request, CONFIGURE, flags, 1, netfilter, |out| write(out, 1, &[BIND]));
        message(&mut request, CONFIGURE, flags, 2, netfilter, |out| {
            let mut mode = length.to_be_bytes().to_vec();
            mode.extend([COPY_PACKET, 0]);
            write(out, 2, &mode);
        });
        more(&mut request, netfilter);
        let asked = messages(&request).count();
        socket::send(&socket, &request)?;
        let mut log = Self { socket, received: socket::buffer() };
        let mut answered = 0;
        while answered < asked {
            socket::receive(&log.socket, &mut log.received)?;
            for raw in messages(&log.received).filter(|raw| raw.message_type() == NLMSG_ERROR) {
                socket::acknowledged(raw.payload())?;
                answered += 1;
            }
        }
        Ok(log)
    }

    /// Waits for the first packet for at most `wait` and gives all that have come to `each`, up to a
    /// bound; says whether some were lost.
    pub fn read(&mut self, wait: Duration, mut each: impl FnMut(Logged)) -> io::Result<bool> {
        let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
        let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
        match rustix::event::poll(&mut ready, Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut lost = false;
        for _ in 0..TOGETHER {
            match socket::receive_now(&self.socket, &mut self.received) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    lost = true;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let packets = messages(&self.received).filter(|raw| raw.message_type() == PACKET);
            packets.filter_map(|raw| logged(raw.payload())).for_each(&mut each);
        }
        Ok(lost)
    }
}

fn logged(payload: &[u8]) -> Option<Logged> {
    let (mut prefix, mut packet) = (String::new(), None);
    for (kind, value) in read(payload.get(NETFILTER_HEADER..)?) {
        match kind {
            9 => packet = Some(value),
            10 => prefix = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned(),
            _ => {}
        }
    }
    let packet = packet?;
    let (source, destination, protocol, above) = match packet.first()? >> 4 {
        4 => {
            let length = Some(usize::from(packet[0] & 15) * 4).filter(|it| *it >= IPV4_HEADER)?;
            let address = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<4>()?));
            (address(12)?, address(16)?, *packet.get(9)?, packet.get(length..)?)
        }
        6 => {
            let address = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<16>()?));
            (address(8)?, address(24)?, *packet.get(6)?, packet.get(40..)?)
        }
        _ => return None,
    };
    let port = |at: usize| match protocol {
        6 | 17 | 132 => above.get(at..)?.first_chunk().map(|port| u16::from_be_bytes(*port)),
        _ => Some(0),
    };
    let (source_port, destination_port) = (port(0)?, port(2)?);
    let carried = match protocol {
        6 => above.get(12).and_then(|words| {
            let length = usize::from(words >> 4) * 4;
            above.get(length..).filter(|_| length >= TCP_HEADER)
        }),
        17 => above.get(8..),
        _ => None,
    };
    let carried = carried.unwrap_or_default().to_vec();
    Some(Logged { prefix, source, destination, protocol, source_port, destination_port, carried })
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
