//! The kernel's table of connections: what is in it, what leaves it, and that it is kept at all.
//!
//! Contract:
//! - Sockets speak for the namespace they were opened in. Calls block, each with a time limit.
//! - [`Table::list`] gives every connection at least once, with what it has carried so far. The kernel
//!   goes through its table while others change it; only a listing that says it is whole has missed
//!   nothing.
//! - [`Ends`] tells of every connection that ends, with all that it carried, unless it says that some
//!   were lost: the kernel waits for no reader. Beginnings and changes are not listened for: they
//!   carry nothing that a listing or the end does not, and cost the kernel several times as much.
//! - A connection that is listed while it ends is left out of the listing: who reads ends after a
//!   listing has heard of it, or will.
//! - Bytes and times are those of connections that began after [`keep_accounts`]; [`hook`] has the
//!   kernel track connections where nothing else needs it to.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::netlink::messages;

mod accounts;
mod attributes;
mod decode;
mod hook;
mod socket;

pub use accounts::{AccountsError, keep_accounts};
pub use hook::{hook, probe, unhook};

/// `NFNL_SUBSYS_CTNETLINK`, and its messages.
const SUBSYSTEM: u16 = 1 << 8;
const NEW: u16 = SUBSYSTEM;
const GET: u16 = SUBSYSTEM | 1;
const DELETE: u16 = SUBSYSTEM | 2;
/// Ends, as a bit of the groups that a socket listens to.
const DESTROYED: u32 = 1 << 2;
/// Of the status: it ends, and has been told of or is about to be.
const DYING: u32 = 1 << 9;
/// Ends that wait to be read: some 40,000 of them, which is what a busy node has in the time that a
/// listing takes.
const WAITING: usize = 16 << 20;
/// Read in one call at most, so that a flood does not keep the caller from its other work.
const TOGETHER: usize = 4096;
/// How often a disturbed listing is taken again.
const LISTINGS: usize = 3;

/// One connection, as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The kernel's number for it; another may have it later.
    pub id: u32,
    pub zone: u16,
    /// As the first packet said it.
    pub original: Tuple,
    /// As answers come: after address translation, the source is who really serves.
    pub reply: Tuple,
    /// Both ways together; none if nobody counted when it began.
    pub carried: Option<Carried>,
    /// Nanoseconds since 1970; none if nobody kept time when it began.
    pub begun: Option<u64>,
    /// Where it has ended.
    pub ended: Option<u64>,
    status: u32,
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The number that IP has for it.
    pub protocol: u8,
    /// Zero where the protocol has none, as is the other.
    pub source_port: u16,
    pub destination_port: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    pub bytes: u64,
    pub packets: u64,
}

/// Lists connections.
#[derive(Debug)]
pub struct Table {
    socket: OwnedFd,
    sequence: u32,
    received: Vec<u8>,
}

/// Hears of connections that end.
#[derive(Debug)]
pub struct Ends {
    socket: OwnedFd,
    received: Vec<u8>,
}

/// What [`Ends::read`] came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    pub count: usize,
    /// Some were lost before these.
    pub lost: bool,
}

impl Table {
    /// In the namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: socket::open(0)?, sequence: 0, received: socket::buffer() })
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

impl Ends {
    /// In the namespace of the calling thread. Hears of what ends from here on.
    pub fn open() -> io::Result<Self> {
        let socket = socket::open(DESTROYED)?;
        socket::enlarge(&socket, WAITING)?;
        Ok(Self { socket, received: socket::buffer() })
    }

    /// Waits for the first for at most `wait`, and gives what there is to `each`, up to a bound.
    pub fn read(&mut self, wait: Duration, mut each: impl FnMut(Entry)) -> io::Result<Heard> {
        let mut heard = Heard::default();
        let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
        let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
        match rustix::event::poll(&mut ready, Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(heard),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        while heard.count < TOGETHER {
            match socket::receive_now(&self.socket, &mut self.received) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    heard.lost = true;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let ends = messages(&self.received).filter(|raw| raw.message_type() == DELETE);
            for entry in ends.filter_map(|raw| decode::entry(raw.payload())) {
                heard.count += 1;
                each(entry);
            }
        }
        Ok(heard)
    }
}

#[cfg(test)]
mod tests;
