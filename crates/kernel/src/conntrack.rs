//! The kernel's connection table (conntrack): listing it, hearing of connections that end, and having
//! the kernel keep it.
//!
//! Contract:
//! - Sockets speak for the namespace they were opened in. Calls block, each with a time limit.
//! - [`Table::list`] gives every connection at least once, with what it has carried so far. The kernel
//!   goes through its table while others change it; only a listing that says it is whole has missed
//!   nothing.
//! - [`EndEvents`] gives every connection that ends, with all that it carried, unless it says that some
//!   were lost: the kernel waits for no reader. It does not listen for new and changed connections: those
//!   events carry nothing that a listing or the end does not, and cost the kernel several times as much.
//! - A connection that is listed while it ends is left out of the listing: who reads ends after a
//!   listing has heard of it, or will.
//! - [`Table::mark`] changes bits of connections' marks, which rules can look at.
//! - Bytes and times are known of connections that began after [`enable_accounting`];
//!   [`enable_tracking`] has the kernel track connections where nothing else needs it to.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::netlink::NETFILTER;

use crate::netlink::messages;

mod accounting;
pub(crate) mod attributes;
mod decode;
mod marking;
pub(crate) mod socket;
mod statistics;
mod tracking;

pub use accounting::{AccountingError, enable_accounting};
pub use statistics::{Statistics, statistics};
pub use tracking::{disable_tracking, enable_tracking, probe_nftables};

/// `NFNL_SUBSYS_CTNETLINK`, and its messages.
const SUBSYSTEM: u16 = 1 << 8;
const NEW: u16 = SUBSYSTEM;
const GET: u16 = SUBSYSTEM | 1;
const DELETE: u16 = SUBSYSTEM | 2;
/// EndEvents, as a bit of the groups that a socket listens to.
const DESTROYED: u32 = 1 << 2;
/// The status bit of a connection that is ending: its event was sent or is about to be.
const DYING: u32 = 1 << 9;
/// The receive buffer for ended connections: room for some 40,000, which is what a busy node has in the
/// time that a listing takes.
const WAITING: usize = 16 << 20;
/// The most events that one call reads, so that a flood does not keep the caller from its other work.
const TOGETHER: usize = 4096;
/// How often a disturbed listing is taken again.
const LISTINGS: usize = 3;

/// One connection, as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The kernel's number of the connection; another connection may have it later.
    pub id: u32,
    pub zone: u16,
    /// The direction of the first packet.
    pub original: Tuple,
    /// The direction of the replies: after address translation, the source is the real server.
    pub reply: Tuple,
    /// Both directions together; none if the kernel did not count when the connection began.
    pub carried: Option<Carried>,
    /// Nanoseconds since 1970; none if the kernel kept no times when the connection began.
    pub begun: Option<u64>,
    /// Nanoseconds since 1970; only ended connections have it.
    pub ended: Option<u64>,
    /// Whether it is a TCP connection that both ends have closed: the kernel remembers it for a while.
    pub is_over: bool,
    /// Bits that rules and programs have put on it.
    pub mark: u32,
    status: u32,
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The IP protocol number.
    pub protocol: u8,
    /// Both ports are zero where the protocol has none.
    pub source_port: u16,
    pub destination_port: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    pub bytes: u64,
    pub packets: u64,
}

/// A socket that lists connections.
#[derive(Debug)]
pub struct Table {
    socket: OwnedFd,
    sequence: u32,
    received: Vec<u8>,
}

/// A socket that receives an event for every connection that ends.
#[derive(Debug)]
pub struct EndEvents {
    socket: OwnedFd,
    received: Vec<u8>,
}

/// What one [`EndEvents::read`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndsRead {
    pub count: usize,
    /// The kernel dropped some events before these.
    pub lost: bool,
}

impl Table {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: socket::open(NETFILTER, 0)?, sequence: 0, received: socket::buffer() })
    }

    /// Gives every connection to `each`, perhaps twice; says whether the listing was whole.
    pub fn list(&mut self, mut each: impl FnMut(Entry)) -> io::Result<bool> {
        for _ in 0..LISTINGS {
            if self.try_list(&mut each)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn try_list(&mut self, each: &mut impl FnMut(Entry)) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = Vec::new();
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        attributes::message(&mut request, GET, flags, self.sequence, [0; 4], |_| {});
        socket::send(&self.socket, &request)?;
        let mut disturbed = false;
        loop {
            socket::receive(&self.socket, &mut self.received)?;
            let ours = |sequence: u32| sequence == self.sequence;
            for raw in messages(&self.received).filter(|raw| ours(raw.sequence_number())) {
                disturbed |= i32::from(raw.flags()) & libc::NLM_F_DUMP_INTR != 0;
                match raw.message_type() {
                    NLMSG_ERROR => return Err(socket::refusal(raw.payload())),
                    NLMSG_DONE => return Ok(!disturbed),
                    NEW => {
                        let entry = decode::entry(raw.payload());
                        if let Some(entry) = entry.filter(|entry| entry.status & DYING == 0) {
                            each(entry);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

impl EndEvents {
    /// Opens a socket in the network namespace of the calling thread. It receives what ends from here on.
    pub fn open() -> io::Result<Self> {
        let socket = socket::open(NETFILTER, DESTROYED)?;
        socket::enlarge(&socket, WAITING)?;
        Ok(Self { socket, received: socket::buffer() })
    }

    /// Waits for the first event for at most `wait`, and gives all that have come to `each`, up to a
    /// bound.
    pub fn read(&mut self, wait: Duration, mut each: impl FnMut(Entry)) -> io::Result<EndsRead> {
        let mut read = EndsRead::default();
        let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
        let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
        match rustix::event::poll(&mut ready, Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(read),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        while read.count < TOGETHER {
            match socket::receive_now(&self.socket, &mut self.received) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    read.lost = true;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let ends = messages(&self.received).filter(|raw| raw.message_type() == DELETE);
            for entry in ends.filter_map(|raw| decode::entry(raw.payload())) {
                read.count += 1;
                each(entry);
            }
        }
        Ok(read)
    }
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
