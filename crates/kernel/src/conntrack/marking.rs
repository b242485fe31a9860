//! Changes bits of connections' marks.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR};

use super::attributes::{message, nested, write};
use super::{Entry, NEW, Table, Tuple, socket};
use crate::netlink::messages;

/// How many changes are sent before their answers are read: these are some kilobytes.
const TOGETHER: usize = 128;

impl Table {
    /// Sets the mark's bits of `mask` to those of `value`, for each connection that still is; says for
    /// how many it was done.
    pub fn mark<'a>(
        &mut self,
        connections: impl IntoIterator<Item = &'a Entry>,
        value: u32,
        mask: u32,
    ) -> io::Result<usize> {
        let mut connections = connections.into_iter().peekable();
        let mut marked = 0;
        while connections.peek().is_some() {
            let (first, mut sent) = (self.sequence.wrapping_add(1), 0);
            let mut requests = Vec::new();
            for entry in connections.by_ref().take(TOGETHER) {
                self.sequence = self.sequence.wrapping_add(1);
                sent += 1;
                request(&mut requests, self.sequence, entry, value, mask);
            }
            socket::send(&self.socket, &requests)?;
            let mut answered = 0;
            while answered < sent {
                socket::receive(&self.socket, &mut self.received)?;
                for raw in messages(&self.received) {
                    let ours = raw.sequence_number().wrapping_sub(first) < sent;
                    if !ours || raw.message_type() != NLMSG_ERROR {
                        continue;
                    }
                    answered += 1;
                    match socket::acknowledged(raw.payload()) {
                        Ok(()) => marked += 1,
                        // It has ended.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(marked)
    }
}

fn request(out: &mut Vec<u8>, sequence: u32, entry: &Entry, value: u32, mask: u32) {
    let family = match entry.original.source {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    let netfilter = [family as u8, 0, 0, 0];
    message(out, NEW, NLM_F_REQUEST | NLM_F_ACK, sequence, netfilter, |out| {
        nested(out, 1, |out| tuple(out, &entry.original));
        if entry.zone != 0 {
            write(out, 18, &entry.zone.to_be_bytes());
        }
        write(out, 8, &value.to_be_bytes());
        write(out, 21, &mask.to_be_bytes());
    });
}

fn tuple(out: &mut Vec<u8>, tuple: &Tuple) {
    nested(out, 1, |out| match (tuple.source, tuple.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            write(out, 1, &source.octets());
            write(out, 2, &destination.octets());
        }
        (source, destination) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            write(out, 3, &octets(source));
            write(out, 4, &octets(destination));
        }
    });
    nested(out, 2, |out| {
        write(out, 1, &[tuple.protocol]);
        write(out, 2, &tuple.source_port.to_be_bytes());
        write(out, 3, &tuple.destination_port.to_be_bytes());
    });
}
