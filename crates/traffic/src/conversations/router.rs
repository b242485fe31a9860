//! `Router`: a report becomes one batch for each shard, with ends instead of addresses.
//!
//! Contract: all of a pair of addresses goes to one shard, whatever else changes. An address stands
//! for whoever had it at the record's last change, so that what is counted is credited to those who
//! talked then. What the agent of the other end counts is left out. Nothing here waits or is
//! written: any number of threads may route at once.

use std::sync::Arc;

use super::side::{self, Side};
use super::{Directory, End, Protocol, Report, Totals, marks};

/// Clones route alike.
#[derive(Clone, Copy)]
pub struct Router {
    seed: [u64; 2],
    shards: usize,
}

/// What a shard is to count of a report.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(super) agent: Arc<str>,
    pub(super) incarnation: u64,
    pub(super) records: Vec<Routed>,
}

#[derive(Clone, Debug)]
pub(super) struct Routed {
    pub(super) print: u64,
    pub(super) client: End,
    pub(super) server: End,
    pub(super) side: Side,
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    pub(super) application: Option<Arc<str>>,
    pub(super) totals: Totals,
    pub(super) first: u32,
    pub(super) last: u32,
}

/// A report for all shards.
#[derive(Clone, Debug)]
pub struct Batches {
    /// By shard. Send the empty ones too: a shard forgets totals by how long it heard their agent.
    pub batches: Vec<Batch>,
    /// Records left out because the other end's agent counts them.
    pub left_out: usize,
}

impl Router {
    /// `seed` is secret, and kept in the checkpoint: with another one nothing counted before is
    /// known.
    pub fn new(seed: [u64; 2], shards: usize) -> Self {
        Self { seed, shards: shards.max(1) }
    }

    pub fn shards(&self) -> usize {
        self.shards
    }

    pub(super) fn seed(&self) -> [u64; 2] {
        self.seed
    }

    /// `alive` says whether a node has an agent now.
    pub fn route(
        &self,
        report: &Report,
        directory: &Directory,
        alive: impl Fn(&str) -> bool,
    ) -> Batches {
        let room =
            report.records.len() / self.shards + report.records.len() / (self.shards * 4) + 1;
        let batch = || Batch {
            agent: Arc::clone(&report.agent),
            incarnation: report.incarnation,
            records: Vec::with_capacity(room),
        };
        let mut batches: Vec<_> = (0..self.shards).map(|_| batch()).collect();
        let mut left_out = 0;
        for record in &report.records {
            let end = |address: std::net::IpAddr| {
                let address = address.to_canonical();
                let endpoint = directory.resolve_seen_by(&report.agent, address, record.last);
                End { endpoint, address }
            };
            let (client, server) = (end(record.client), end(record.server));
            let side = side::counts(&report.agent, &client.endpoint, &server.endpoint, &alive);
            let Some(side) = side else {
                left_out += 1;
                continue;
            };
            let print = marks::print(self.seed, record);
            batches[self.shard(print)].records.push(Routed {
                print,
                client,
                server,
                side,
                port: record.port,
                protocol: record.protocol,
                application: record.application.clone(),
                totals: record.totals,
                first: record.first.seconds(),
                last: record.last.seconds(),
            });
        }
        Batches { batches, left_out }
    }

    /// By the upper 16 bits, which are those of the two addresses.
    pub(super) fn shard(&self, hash: u64) -> usize {
        ((hash >> 48) as usize * self.shards) >> 16
    }

    pub(super) fn shard_of(&self, client: &End, server: &End) -> usize {
        self.shard(marks::addresses_hash(self.seed, client.address, server.address))
    }
}

/// Without the seed.
impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("shards", &self.shards).finish_non_exhaustive()
    }
}
