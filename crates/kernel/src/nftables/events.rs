//! Hears of changes to a table that others made.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::netlink::NETFILTER;

use super::listing;
use super::{NEW_GENERATION, SUBSYSTEM};
use crate::conntrack::socket;
use crate::netlink::messages;

/// `NFNLGRP_NFTABLES`, as a bit of the groups that a socket listens to.
const CHANGES: u32 = 1 << 6;
/// The receive buffer: our own large batches are heard as well.
const WAITING: usize = 4 << 20;
/// The most datagrams that one call reads.
const TOGETHER: usize = 4096;

/// A socket that hears of changes to one table.
#[derive(Debug)]
pub struct ForeignChanges {
    socket: OwnedFd,
    received: Vec<u8>,
    table: String,
}

/// What one [`ForeignChanges::read`] heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Somebody else changed the table.
    pub changed: bool,
    /// The kernel dropped some events: look at the table.
    pub lost: bool,
}

impl ForeignChanges {
    /// Opens a socket in the network namespace of the calling thread. It hears of changes from here on.
    pub fn open(table: impl Into<String>) -> io::Result<Self> {
        let socket = socket::open(NETFILTER, CHANGES)?;
        socket::enlarge(&socket, WAITING)?;
        Ok(Self { socket, received: socket::buffer(), table: table.into() })
    }

    /// Waits for the first event for at most `wait` and reads all that have come. Changes that the
    /// socket with the number `own` made do not count ([`Nftables::port`](super::Nftables::port)).
    pub fn read(&mut self, wait: Duration, own: u32) -> io::Result<Seen> {
        let mut seen = Seen::default();
        let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
        let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
        match rustix::event::poll(&mut ready, Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(seen),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        for _ in 0..TOGETHER {
            match socket::receive_now(&self.socket, &mut self.received) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    seen.lost = true;
                    continue;
                }
                Err(error) => return Err(error),
            }
            for raw in messages(&self.received) {
                let kind = raw.message_type();
                seen.changed |= kind >> 8 == u16::from(SUBSYSTEM)
                    && kind != NEW_GENERATION
                    && raw.port_number() != own
                    && listing::table_of(raw.payload()).is_some_and(|name| name == self.table);
            }
        }
        Ok(seen)
    }
}
