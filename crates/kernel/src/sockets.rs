//! The TCP connections that this network namespace's own sockets have (`sock_diag`): listing them changes
//! nothing, and needs neither conntrack nor a firewall rule.
//!
//! Contract: [`Sockets::list`] gives every connection that lasts through the listing, with what it has
//! carried so far. One that begins and ends between two listings is never seen. The socket speaks for the
//! namespace that it was opened in; a call blocks for seconds at most.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use rustix::net::netlink;

use crate::conntrack::{attributes, socket};
use crate::netlink::messages;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
const TCP: u8 = 6;
/// The extension that brings `struct tcp_info`, and its bit in a request.
const INFO: u16 = 2;
const WITH_INFO: u8 = 1 << (INFO - 1);
/// `TCP_ESTABLISHED` and `TCP_LISTEN`.
const ESTABLISHED: u8 = 1;
const LISTENING: u8 = 10;
const WANTED: u32 = 1 << ESTABLISHED | 1 << LISTENING;
/// The length of `struct inet_diag_msg`, behind which attributes stand.
const MESSAGE: usize = 72;

/// Has the kernel end a TCP connection whose peer takes nothing of what was sent for `time`: neither by
/// an acknowledgement nor, once its buffer is full, by making room (`TCP_USER_TIMEOUT`). However slow a
/// peer is, it is not cut off as long as it takes something.
pub fn end_when_nothing_is_taken(socket: impl AsFd, time: Duration) -> io::Result<()> {
    let milliseconds = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(socket, milliseconds)?)
}

/// One socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// The kernel's number of the socket; no other has it until the next boot.
    pub cookie: u64,
    pub local: SocketAddr,
    pub state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for connections.
    Listening,
    /// It is connected.
    Established {
        remote: SocketAddr,
        /// Payload that the other end has acknowledged, and that came from it.
        bytes: u64,
        /// Segments, both ways.
        packets: u64,
    },
}

/// A socket that lists others.
#[derive(Debug)]
pub struct Sockets {
    socket: OwnedFd,
    sequence: u32,
    received: Vec<u8>,
}

impl Sockets {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let socket = socket::open(netlink::SOCK_DIAG, 0)?;
        Ok(Self { socket, sequence: 0, received: socket::buffer() })
    }

    /// Gives every TCP socket that listens or is connected to `each`.
    pub fn list(&mut self, mut each: impl FnMut(Socket)) -> io::Result<()> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            self.list_family(family as u8, &mut each)?;
        }
        Ok(())
    }

    fn list_family(&mut self, family: u8, each: &mut impl FnMut(Socket)) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = Vec::new();
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        // `struct inet_diag_req_v2`: no socket in particular.
        let head = [family, TCP, WITH_INFO, 0];
        attributes::message(&mut request, BY_FAMILY, flags, self.sequence, head, |out| {
            out.extend(WANTED.to_ne_bytes());
            out.extend([0; 48]);
        });
        socket::send(&self.socket, &request)?;
        loop {
            socket::receive(&self.socket, &mut self.received)?;
            let ours = |sequence: u32| sequence == self.sequence;
            for raw in messages(&self.received).filter(|raw| ours(raw.sequence_number())) {
                match raw.message_type() {
                    NLMSG_ERROR => return Err(socket::refusal(raw.payload())),
                    NLMSG_DONE => return Ok(()),
                    BY_FAMILY => decode(raw.payload()).into_iter().for_each(&mut *each),
                    _ => {}
                }
            }
        }
    }
}

/// Of what stands behind netlink's header. Total: bytes that make no socket make none.
fn decode(payload: &[u8]) -> Option<Socket> {
    let head = payload.get(..MESSAGE)?;
    let port = |at: usize| Some(u16::from_be_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let address = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 16] = head.get(at..at + 16)?.try_into().ok()?;
        match i32::from(head[0]) {
            libc::AF_INET => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
            libc::AF_INET6 => Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()),
            _ => None,
        }
    };
    let local = SocketAddr::new(address(8)?, port(4)?);
    let cookie = u64::from_ne_bytes(head[44..52].try_into().ok()?);
    let state = match head[1] {
        LISTENING => State::Listening,
        ESTABLISHED => {
            let remote = SocketAddr::new(address(24)?, port(6)?);
            let info = attributes::read(&payload[MESSAGE..]).find(|(kind, _)| *kind == INFO);
            let (bytes, packets) = info.map_or((0, 0), |(_, info)| carried(info));
            State::Established { remote, bytes, packets }
        }
        _ => return None,
    };
    Some(Socket { cookie, local, state })
}

/// Bytes and segments, both ways, of a `struct tcp_info`; an older kernel's is shorter.
fn carried(info: &[u8]) -> (u64, u64) {
    let long = |at: usize| {
        let bytes = info.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    };
    let short = |at: usize| {
        let bytes = info.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u64::from(bytes.map_or(0, u32::from_ne_bytes))
    };
    (long(120).saturating_add(long(128)), short(136) + short(140))
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
