//! What the kernel counts about connections that it could not track.

use std::fs;
use std::io;
use std::path::Path;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use rustix::net::netlink::NETFILTER;

use super::attributes::{self, number, read};
use super::{SUBSYSTEM, socket};
use crate::netlink::messages;
use crate::sysctl;

/// `IPCTNL_MSG_CT_GET_STATS_CPU`.
const GET_STATISTICS: u16 = SUBSYSTEM | 4;
/// `struct nfgenmsg`.
const NETFILTER_HEADER: usize = 4;

/// Counted since the network namespace was made, over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connections whose first packet was dropped because another connection had the same addresses and
    /// ports: where addresses are translated, no port was free, or two first packets raced.
    pub insert_failed: u64,
    /// Packets that were dropped because the table was full.
    pub dropped: u64,
    /// Connections that were forgotten early to make room for others.
    pub early_dropped: u64,
    /// The connections that there are now.
    pub connections: u64,
    /// The most connections that there may be.
    pub limit: u64,
}

/// Reads the statistics of the network namespace of the calling thread.
pub fn statistics() -> io::Result<Statistics> {
    let socket = socket::open(NETFILTER, 0)?;
    let mut request = Vec::new();
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    attributes::message(&mut request, GET_STATISTICS, flags, 1, [0; 4], |_| {});
    socket::send(&socket, &request)?;
    let mut received = socket::buffer();
    let mut statistics = Statistics {
        connections: counted("nf_conntrack_count"),
        limit: counted("nf_conntrack_max"),
        ..Statistics::default()
    };
    loop {
        socket::receive(&socket, &mut received)?;
        for raw in messages(&received) {
            match raw.message_type() {
                NLMSG_ERROR => return Err(socket::refusal(raw.payload())),
                NLMSG_DONE => return Ok(statistics),
                _ => statistics.add(raw.payload().get(NETFILTER_HEADER..).unwrap_or_default()),
            }
        }
    }
}

impl Statistics {
    /// Adds those of one processor.
    fn add(&mut self, bytes: &[u8]) {
        for (kind, value) in read(bytes) {
            let counted = number(value).map_or(0, |value| u64::from(u32::from_be_bytes(value)));
            match kind {
                9 => self.insert_failed += counted,
                10 => self.dropped += counted,
                11 => self.early_dropped += counted,
                _ => {}
            }
        }
    }
}

/// A number that the kernel does not show counts as zero.
fn counted(name: &str) -> u64 {
    let read = fs::read_to_string(sysctl::net(Path::new("netfilter").join(name)));
    read.ok().and_then(|text| text.trim_end().parse().ok()).unwrap_or(0)
}
