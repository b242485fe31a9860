//! Packet filter rules (nf_tables), by netlink: tables, chains, sets, maps, rules.
//!
//! Contract:
//! - An [`Nftables`] speaks for the namespace it was opened in. Calls block, each with a time limit.
//! - A [`Batch`] is made whole or not at all. [`Nftables::commit`] says which of its changes was refused.
//! - The kernel counts commits of a namespace, whoever makes them: its generation. A commit that names
//!   the generation it was made for is refused as [`CommitError::Stale`] if another came first.
//! - A listing that the kernel says was disturbed is taken again. Reading is total: bytes that are no
//!   answer give none.
//! - A table with [`TABLE_OWNER`] belongs to the [`Nftables`] that made it, until that is dropped.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use rustix::net::netlink::NETFILTER;
use rustix::net::sockopt::{
    set_socket_send_buffer_size, set_socket_send_buffer_size_force, socket_send_buffer_size,
};

use crate::conntrack::attributes::message;
use crate::conntrack::socket;
use crate::netlink::messages;

mod batch;
mod events;
pub mod expression;
mod listing;
mod nat;

pub use batch::{Batch, Chain, Element, Field, Hook, Rule, Set, TABLE_OWNER, TABLE_PERSIST};
pub use events::{ForeignChanges, Seen};
pub use expression::{Expression, Verdict};
pub use listing::{Counted, ListedChain, ListedRule, ListedSet, ListedTable};

use expression::string;

const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// `NFNL_SUBSYS_NFTABLES`, and its messages.
const SUBSYSTEM: u8 = 10;
const NEW_TABLE: u16 = (SUBSYSTEM as u16) << 8;
const GET_TABLE: u16 = NEW_TABLE | 1;
const DELETE_TABLE: u16 = NEW_TABLE | 2;
const NEW_CHAIN: u16 = NEW_TABLE | 3;
const GET_CHAIN: u16 = NEW_TABLE | 4;
const DELETE_CHAIN: u16 = NEW_TABLE | 5;
const NEW_RULE: u16 = NEW_TABLE | 6;
const GET_RULE: u16 = NEW_TABLE | 7;
const DELETE_RULE: u16 = NEW_TABLE | 8;
const NEW_SET: u16 = NEW_TABLE | 9;
const GET_SET: u16 = NEW_TABLE | 10;
const DELETE_SET: u16 = NEW_TABLE | 11;
const NEW_ELEMENT: u16 = NEW_TABLE | 12;
const GET_ELEMENT: u16 = NEW_TABLE | 13;
const DELETE_ELEMENT: u16 = NEW_TABLE | 14;
const NEW_GENERATION: u16 = NEW_TABLE | 15;
const GET_GENERATION: u16 = NEW_TABLE | 16;
/// A table for IPv4 and IPv6.
const INET: [u8; 4] = [1, 0, 0, 0];
/// A table of the packets that one link receives and sends, before and after all others.
const NETDEV: [u8; 4] = [5, 0, 0, 0];

/// The receive buffer: room for the refusals of a batch of some thousand changes.
const ANSWERS: usize = 4 << 20;
/// How often a disturbed listing is taken again.
const LISTINGS: usize = 10;
/// How long to wait before a set that was listed differently is listed again.
const SETTLING: Duration = Duration::from_millis(10);

/// A socket that changes and lists rules.
#[derive(Debug)]
pub struct Nftables {
    socket: OwnedFd,
    sequence: u32,
    received: Vec<u8>,
}

/// Why a batch was not made.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Another commit came first; read what is there, and try again.
    #[error("the kernel's rules were changed meanwhile")]
    Stale,
    /// None of the batch's changes was made.
    #[error("the kernel refused to {what}")]
    Refused {
        what: String,
        /// The position of the change in its batch.
        at: usize,
        #[source]
        source: io::Error,
    },
    /// What became of the batch is not known: read what is there.
    #[error("the kernel's answer was lost")]
    Lost(#[source] io::Error),
    #[error("the kernel cannot be asked")]
    Socket(#[source] io::Error),
}

impl CommitError {
    /// The kernel's number of the error.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Stale => None,
            Self::Refused { source, .. } | Self::Lost(source) | Self::Socket(source) => {
                source.raw_os_error()
            }
        }
    }
}

impl From<CommitError> for io::Error {
    fn from(error: CommitError) -> Self {
        match error {
            // The kind says what a caller may want to know: there is none, or one may not.
            CommitError::Refused { what, source, .. } => {
                Self::new(source.kind(), format!("the kernel refused to {what}: {source}"))
            }
            CommitError::Socket(source) | CommitError::Lost(source) => source,
            CommitError::Stale => Self::other(error),
        }
    }
}

impl Nftables {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Self::socket().and_then(Self::of)
    }

    pub(crate) fn socket() -> io::Result<OwnedFd> {
        socket::open(NETFILTER, 0)
    }

    pub(crate) fn of(socket: OwnedFd) -> io::Result<Self> {
        socket::enlarge(&socket, ANSWERS)?;
        // The acknowledgement of a change carries no copy of it.
        crate::netlink::switch_on(&socket, libc::NETLINK_CAP_ACK)?;
        Ok(Self { socket, sequence: 0, received: socket::buffer() })
    }

    /// The number by which events name this socket.
    pub fn port(&self) -> io::Result<u32> {
        let mut address: libc::sockaddr_nl = {
            // SAFETY: an all-zero sockaddr_nl is a valid one.
            unsafe { std::mem::zeroed() }
        };
        let mut length = std::mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` has room for `length` bytes, and both outlive the call.
        let result = unsafe {
            libc::getsockname(self.socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(address.nl_pid) }
    }

    /// Returns the generation of the namespace's rules.
    pub fn generation(&mut self) -> io::Result<u32> {
        let sequence = self.next(1);
        let mut request = Vec::new();
        message(&mut request, GET_GENERATION, NLM_F_REQUEST, sequence, [0; 4], |_| {});
        socket::send(&self.socket, &request)?;
        loop {
            socket::receive(&self.socket, &mut self.received)?;
            for raw in messages(&self.received).filter(|raw| raw.sequence_number() == sequence) {
                match raw.message_type() {
                    NLMSG_ERROR => return Err(socket::refusal(raw.payload())),
                    NEW_GENERATION => {
                        let generation = listing::generation(raw.payload());
                        return generation
                            .ok_or_else(|| io::Error::other("an answer was cut short"));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Makes all changes of the batch or none. With a generation, only if that is still the kernel's;
    /// after a success it is the one that follows.
    pub fn commit(&mut self, batch: &Batch, generation: Option<u32>) -> Result<(), CommitError> {
        if batch.is_empty() {
            return Ok(());
        }
        let first = self.next(batch.count + 2);
        let bytes = batch.finish(first, generation);
        self.make_room(bytes.len()).map_err(CommitError::Socket)?;
        socket::send(&self.socket, &bytes).map_err(CommitError::Socket)?;
        loop {
            socket::receive(&self.socket, &mut self.received).map_err(CommitError::Lost)?;
            for raw in messages(&self.received).filter(|raw| raw.message_type() == NLMSG_ERROR) {
                let at = raw.sequence_number().wrapping_sub(first);
                if at > batch.count + 1 {
                    continue;
                }
                match socket::acknowledged(raw.payload()) {
                    Ok(()) if at == batch.count => return Ok(()),
                    Ok(()) => {}
                    Err(error) if error.raw_os_error() == Some(libc::ERESTART) => {
                        return Err(CommitError::Stale);
                    }
                    Err(source) => {
                        let at = (at as usize).saturating_sub(1);
                        let refused = messages(&batch.bytes).nth(at);
                        let what = refused.map_or_else(
                            || "begin a batch".to_owned(),
                            |raw| listing::describe(raw.message_type(), raw.payload()),
                        );
                        return Err(CommitError::Refused { what, at, source });
                    }
                }
            }
        }
    }

    /// Returns the table of that name, if there is one.
    pub fn table(&mut self, name: &str) -> io::Result<Option<ListedTable>> {
        let tables = self.list(GET_TABLE, NEW_TABLE, |_| {}, listing::table)?;
        Ok(tables.into_iter().find(|table| table.name == name))
    }

    pub fn chains(&mut self, table: &str) -> io::Result<Vec<ListedChain>> {
        let filter = |out: &mut Vec<u8>| string(out, 1, table);
        let mut chains = self.list(GET_CHAIN, NEW_CHAIN, filter, listing::chain)?;
        chains.retain(|chain| chain.table == table);
        Ok(chains)
    }

    /// Lists the rules of a table, chain by chain in their order.
    pub fn rules(&mut self, table: &str) -> io::Result<Vec<ListedRule>> {
        let filter = |out: &mut Vec<u8>| string(out, 1, table);
        let mut rules = self.list(GET_RULE, NEW_RULE, filter, listing::rule)?;
        rules.retain(|rule| rule.table == table);
        Ok(rules)
    }

    pub fn sets(&mut self, table: &str) -> io::Result<Vec<ListedSet>> {
        let filter = |out: &mut Vec<u8>| string(out, 1, table);
        let mut sets = self.list(GET_SET, NEW_SET, filter, listing::set)?;
        sets.retain(|set| set.table == table);
        Ok(sets)
    }

    /// Lists the elements of a set, in order; an error of the kind `NotFound` says that there is none.
    ///
    /// While the kernel moves a hash to a larger table it lists some elements twice and leaves others
    /// out, and does not say so. So the set is listed until two listings agree.
    pub fn elements(&mut self, table: &str, set: &Set) -> io::Result<Vec<Element>> {
        let mut before = self.list_elements(table, set)?;
        for _ in 0..LISTINGS {
            let found = self.list_elements(table, set)?;
            if found == before {
                return Ok(found);
            }
            before = found;
            std::thread::sleep(SETTLING);
        }
        Err(io::Error::other("the kernel lists the elements of a set differently every time"))
    }

    fn list_elements(&mut self, table: &str, set: &Set) -> io::Result<Vec<Element>> {
        let filter = |out: &mut Vec<u8>| {
            string(out, 1, table);
            string(out, 2, &set.name);
        };
        let parts = self
            .list(GET_ELEMENT, NEW_ELEMENT, filter, |payload| Some(listing::elements(payload)))?;
        Ok(listing::joined(parts.into_iter().flatten().collect(), set))
    }

    fn next(&mut self, count: u32) -> u32 {
        let first = self.sequence.wrapping_add(1);
        self.sequence = self.sequence.wrapping_add(count);
        first
    }

    /// The kernel takes a batch in one piece, however long: it must fit in the send buffer.
    fn make_room(&self, length: usize) -> io::Result<()> {
        let wanted = length + 4096;
        if socket_send_buffer_size(&self.socket)? >= wanted {
            return Ok(());
        }
        if set_socket_send_buffer_size_force(&self.socket, wanted).is_err() {
            set_socket_send_buffer_size(&self.socket, wanted)?;
        }
        Ok(())
    }

    fn list<T>(
        &mut self,
        ask: u16,
        answered_by: u16,
        filter: impl Fn(&mut Vec<u8>),
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        for _ in 0..LISTINGS {
            match self.try_list(ask, answered_by, &filter, &read) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                // What the kernel answers a listing that was disturbed between two datagrams.
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("the kernel's rules changed during every attempt to list them"))
    }

    /// Returns none if the rules changed meanwhile.
    fn try_list<T>(
        &mut self,
        ask: u16,
        answered_by: u16,
        filter: &impl Fn(&mut Vec<u8>),
        read: &impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Option<Vec<T>>> {
        let sequence = self.next(1);
        let mut request = Vec::new();
        message(&mut request, ask, NLM_F_REQUEST | NLM_F_DUMP, sequence, INET, filter);
        socket::send(&self.socket, &request)?;
        let (mut found, mut disturbed) = (Vec::new(), false);
        loop {
            socket::receive(&self.socket, &mut self.received)?;
            for raw in messages(&self.received).filter(|raw| raw.sequence_number() == sequence) {
                disturbed |= i32::from(raw.flags()) & libc::NLM_F_DUMP_INTR != 0;
                match raw.message_type() {
                    NLMSG_ERROR => return Err(socket::refusal(raw.payload())),
                    NLMSG_DONE => return Ok((!disturbed).then_some(found)),
                    kind if kind == answered_by => found.extend(read(raw.payload())),
                    _ => {}
                }
            }
        }
    }
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
