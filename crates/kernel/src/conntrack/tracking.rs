//! Has the kernel track connections in a namespace where no rule needs it to.
//!
//! The kernel tracks connections where some nftables rule looks at them. Fairlead's rule does, and no
//! packet ever comes to it: it costs a packet nothing beyond the tracking, and a table of its own keeps
//! it out of everybody's way. It stays until it is removed, so connections stay tracked while an agent
//! is restarted.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST, NLMSG_ERROR};
use rustix::net::netlink::NETFILTER;

use super::attributes::{message, nested, write};
use super::socket;
use crate::netlink::messages;

const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// `NFNL_SUBSYS_NFTABLES`, and its messages.
const SUBSYSTEM: u8 = 10;
const NEW_TABLE: u16 = (SUBSYSTEM as u16) << 8;
const DELETE_TABLE: u16 = NEW_TABLE | 2;
const NEW_CHAIN: u16 = NEW_TABLE | 3;
const NEW_RULE: u16 = NEW_TABLE | 6;
const GET_GENERATION: u16 = NEW_TABLE | 16;
/// A table for IPv4 and IPv6.
const INET: [u8; 4] = [1, 0, 0, 0];

const TABLE: &[u8] = b"fairlead\0";
const CHAIN: &[u8] = b"track\0";

/// Adds the rule in the network namespace of the calling thread; a second call changes nothing.
pub fn enable_tracking() -> io::Result<()> {
    let create = NLM_F_REQUEST | NLM_F_CREATE;
    transact(|batch| {
        // One that is there is replaced, in the same instant.
        batch.add(NEW_TABLE, create, |out| write(out, 1, TABLE));
        batch.add(DELETE_TABLE, NLM_F_REQUEST, |out| write(out, 1, TABLE));
        batch.add(NEW_TABLE, create, |out| write(out, 1, TABLE));
        batch.add(NEW_CHAIN, create, |out| {
            write(out, 1, TABLE);
            write(out, 3, CHAIN);
        });
        batch.add(NEW_RULE, create | NLM_F_ACK, |out| {
            write(out, 1, TABLE);
            write(out, 2, CHAIN);
            // Its expressions: `ct state`, into a register.
            nested(out, 4, |out| {
                nested(out, 1, |out| {
                    write(out, 1, b"ct\0");
                    nested(out, 2, |out| {
                        write(out, 1, &1u32.to_be_bytes());
                        write(out, 2, &0u32.to_be_bytes());
                    });
                });
            });
        });
    })
}

/// Removes the table; says whether there was one.
pub fn disable_tracking() -> io::Result<bool> {
    let flags = NLM_F_REQUEST | NLM_F_ACK;
    let gone = transact(|batch| batch.add(DELETE_TABLE, flags, |out| write(out, 1, TABLE)));
    match gone {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        gone => gone.map(|()| true),
    }
}

/// Asks nftables for the generation of its rules, which changes nothing: an error says that the kernel
/// has no nftables, or that we may not ask.
pub fn probe_nftables() -> io::Result<()> {
    let socket = socket::open(NETFILTER, 0)?;
    let mut question = Vec::new();
    message(&mut question, GET_GENERATION, NLM_F_REQUEST, 1, [0; 4], |_| {});
    socket::send(&socket, &question)?;
    let mut received = socket::buffer();
    socket::receive(&socket, &mut received)?;
    let refused = messages(&received).find(|raw| raw.message_type() == NLMSG_ERROR);
    refused.map_or(Ok(()), |raw| socket::acknowledged(raw.payload()))
}

#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    last: u32,
}

impl Batch {
    fn add(&mut self, kind: u16, flags: u16, inside: impl FnOnce(&mut Vec<u8>)) {
        self.last += 1;
        message(&mut self.bytes, kind, flags, self.last, INET, inside);
    }

    fn edge(&mut self, kind: u16, sequence: u32) {
        let whose = [0, 0, 0, SUBSYSTEM];
        message(&mut self.bytes, kind, NLM_F_REQUEST, sequence, whose, |_| {});
    }
}

/// All of what `fill` adds, or nothing of it. Its last message asks for an acknowledgement; those
/// before it are heard of only if they are refused.
fn transact(fill: impl FnOnce(&mut Batch)) -> io::Result<()> {
    let socket = socket::open(NETFILTER, 0)?;
    let mut batch = Batch::default();
    batch.edge(BATCH_BEGIN, 0);
    fill(&mut batch);
    batch.edge(BATCH_END, batch.last + 1);
    socket::send(&socket, &batch.bytes)?;
    let mut received = socket::buffer();
    loop {
        socket::receive(&socket, &mut received)?;
        for raw in messages(&received).filter(|raw| raw.message_type() == NLMSG_ERROR) {
            socket::acknowledged(raw.payload())?;
            if raw.sequence_number() == batch.last {
                return Ok(());
            }
        }
    }
}
