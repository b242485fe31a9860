//! `Router`: splits a report into one part for each shard, and names the ends of each connection.
//!
//! Contract: all records of a pair of addresses go to one shard, whatever else changes. An address
//! stands for its holder at the record's last change, so that traffic is credited to the pods that
//! talked then. An application that no first bytes tell is none. Records that the agent of the other end counts are left out. Routing neither waits nor
//! writes: any number of threads may route at once.

use std::sync::Arc;

use super::{
    DeniedRecord, Directory, End, Protocol, Record, Report, Reporter, Service, Totals,
    told_by_bytes, watermarks,
};

/// Routes reports. Clones route alike.
#[derive(Clone, Copy)]
pub struct Router {
    seed: [u64; 2],
    shards: usize,
}

/// The part of a report that one shard counts.
#[derive(Clone, Debug)]
pub struct ShardReport {
    pub(super) agent: Arc<str>,
    pub(super) incarnation: u64,
    pub(super) records: Vec<RoutedRecord>,
}

impl ShardReport {
    /// The number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

/// A [`Record`](super::Record) whose two ends are known.
#[derive(Clone, Debug)]
pub(super) struct RoutedRecord {
    /// The fingerprint of the running total.
    pub(super) print: u64,
    pub(super) client: End,
    pub(super) server: End,
    pub(super) reporter: Reporter,
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    pub(super) application: Option<Arc<str>>,
    pub(super) totals: Totals,
    /// In seconds, as is `last`.
    pub(super) first: u32,
    pub(super) last: u32,
    /// What stopped it: it is a violation, and no conversation.
    pub(super) stopped_by: Option<Arc<str>>,
}

impl RoutedRecord {
    pub(super) fn service(&self) -> Service<'_> {
        Service {
            protocol: self.protocol,
            port: self.port,
            application: self.application.as_deref(),
        }
    }
}

impl DeniedRecord {
    /// As a total of its own: no conversation has its fingerprint.
    fn as_total(&self) -> Record {
        Record {
            client: self.client,
            server: self.server,
            port: self.port,
            protocol: self.protocol,
            application: Some(format!("\0stopped {}", self.rule).into()),
            totals: Totals { packets: self.packets, ..Totals::ZERO },
            first: self.first,
            last: self.last,
        }
    }
}

/// A report, split for the shards.
#[derive(Clone, Debug)]
pub struct RoutedReport {
    /// By shard. Send the empty ones too: a shard forgets totals by how long it heard their agent.
    pub parts: Vec<ShardReport>,
    /// Records left out because the other end's agent counts them.
    pub left_out: usize,
}

impl Router {
    /// `seed` is secret, and kept in the checkpoint: under another seed every total would look new.
    pub fn new(seed: [u64; 2], shards: usize) -> Self {
        Self { seed, shards: shards.max(1) }
    }

    pub fn shards(&self) -> usize {
        self.shards
    }

    pub(super) fn seed(&self) -> [u64; 2] {
        self.seed
    }

    /// Splits `report`. `alive` says whether a node has an agent now.
    pub fn route(
        &self,
        report: &Report,
        directory: &Directory,
        alive: impl Fn(&str) -> bool,
    ) -> RoutedReport {
        let room =
            report.records.len() / self.shards + report.records.len() / (self.shards * 4) + 1;
        let part = || ShardReport {
            agent: Arc::clone(&report.agent),
            incarnation: report.incarnation,
            records: Vec::with_capacity(room),
        };
        let mut parts: Vec<_> = (0..self.shards).map(|_| part()).collect();
        let mut left_out = 0;
        for record in &report.records {
            let end = |address: std::net::IpAddr| {
                let address = address.to_canonical();
                let endpoint = directory.resolve_seen_by(&report.agent, address, record.last);
                End { endpoint, address }
            };
            let (client, server) = (end(record.client), end(record.server));
            let reporter = Reporter::of(&report.agent, &client.endpoint, &server.endpoint, &alive);
            let Some(reporter) = reporter else {
                left_out += 1;
                continue;
            };
            let print = watermarks::print(self.seed, record);
            parts[self.shard(print)].records.push(RoutedRecord {
                print,
                client,
                server,
                reporter,
                port: record.port,
                protocol: record.protocol,
                application: record.application.clone().filter(|it| told_by_bytes(it).is_some()),
                totals: record.totals,
                first: record.first.seconds(),
                last: record.last.seconds(),
                stopped_by: None,
            });
        }
        for denied in &report.denied {
            // What one node stopped no other node sees, so that nobody else tells of it.
            let end = |address: std::net::IpAddr| {
                let address = address.to_canonical();
                let endpoint = directory.resolve_seen_by(&report.agent, address, denied.last);
                End { endpoint, address }
            };
            let (client, server) = (end(denied.client), end(denied.server));
            let reporter = Reporter::of_stopped(&report.agent, &client.endpoint, &server.endpoint);
            let Some(reporter) = reporter else {
                left_out += 1;
                continue;
            };
            let record = denied.as_total();
            let print = watermarks::print(self.seed, &record);
            parts[self.shard(print)].records.push(RoutedRecord {
                print,
                client,
                server,
                reporter,
                port: denied.port,
                protocol: denied.protocol,
                application: None,
                totals: record.totals,
                first: denied.first.seconds(),
                last: denied.last.seconds(),
                stopped_by: Some(Arc::clone(&denied.rule)),
            });
        }
        RoutedReport { parts, left_out }
    }

    /// The shard is chosen by the upper 16 bits, which are those of the two addresses.
    pub(super) fn shard(&self, hash: u64) -> usize {
        ((hash >> 48) as usize * self.shards) >> 16
    }

    pub(super) fn shard_of(&self, client: &End, server: &End) -> usize {
        self.shard(watermarks::addresses_hash(self.seed, client.address, server.address))
    }
}

/// Leaves the seed out.
impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("shards", &self.shards).finish_non_exhaustive()
    }
}
