//! `HistoryQuery`: who talked to whom between two moments, added up.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;

use super::files::HistoryFiles;
use super::frame::HistoryLine;
use crate::conversations::{End, Endpoint, Moment, Protocol, Totals, Verdict};
use crate::groups::Groups;
use crate::ingest::VerdictFilter;
use crate::rules::GroupMatcher;

/// The most conversations that one question adds up: some hundred megabytes.
const MOST: usize = 200_000;

/// Which lines are wanted.
#[derive(Clone, Debug)]
pub struct HistoryQuery {
    pub from: Moment,
    pub until: Moment,
    /// With an end in this group; one that somebody made is what it is now.
    pub group: Option<GroupMatcher>,
    /// With this end.
    pub end: Option<HistoryEnd>,
    /// With an end in this namespace.
    pub namespace: Option<Arc<str>>,
    /// With an end outside of the cluster.
    pub external: bool,
    /// With this port of the server.
    pub port: Option<u16>,
    pub verdict: Option<VerdictFilter>,
}

/// One end as people name it: an address, a network, or a name as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryEnd {
    Network(IpNet),
    Name(Box<str>),
}

impl FromStr for HistoryEnd {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        Ok(network.map_or_else(|_| Self::Name(text.into()), Self::Network))
    }
}

impl HistoryEnd {
    fn is(&self, end: &End) -> bool {
        match self {
            Self::Network(network) => network.contains(&end.address),
            Self::Name(name) => match &*end.endpoint {
                // A pod, and all pods of its owner.
                Endpoint::Workload { namespace, name: pod, owner, .. } => {
                    let rest = name.strip_prefix(&**namespace).and_then(|it| it.strip_prefix('/'));
                    rest.is_some_and(|rest| *rest == **pod || *rest == **owner)
                }
                endpoint => endpoint.to_string() == **name,
            },
        }
    }
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Added up, the latest first.
    pub lines: Vec<HistoryLine>,
    /// More conversations fit than are added up here: ask for less time, or for fewer.
    pub too_many: bool,
}

type Key = (End, End, Option<(Protocol, u16)>, Option<Arc<str>>, Option<Verdict>, Option<Arc<str>>);

#[derive(Clone, Copy)]
struct Sum {
    totals: Totals,
    first: Moment,
    last: Moment,
}

impl HistoryQuery {
    /// Whether a line is wanted.
    pub fn wants(&self, line: &HistoryLine, groups: &Groups) -> bool {
        let either = |test: &dyn Fn(&End) -> bool| test(&line.client) || test(&line.server);
        line.last >= self.from
            && line.first < self.until
            && self.port.is_none_or(|port| line.service.is_some_and(|(_, it)| it == port))
            && self
                .verdict
                .is_none_or(|wanted| line.verdict.is_some_and(|it| VerdictFilter::of(it) == wanted))
            && self
                .namespace
                .as_ref()
                .is_none_or(|wanted| either(&|end| end.endpoint.namespace() == Some(wanted)))
            && (!self.external || either(&|end| matches!(*end.endpoint, Endpoint::External { .. })))
            && self.group.as_ref().is_none_or(|group| either(&|end| group.has(groups, end)))
            && self.end.as_ref().is_none_or(|wanted| either(&|end| wanted.is(end)))
    }

    /// Reads and adds up, until `is_late`. Groups are those of now. Blocking.
    pub fn run(
        &self,
        files: &HistoryFiles,
        groups: &Groups,
        is_late: impl Fn() -> bool,
    ) -> io::Result<Found> {
        let mut sums: HashMap<Key, Sum> = HashMap::new();
        let mut too_many = false;
        files.read((self.from, self.until), None, |frame| {
            for line in frame.lines.into_iter().filter(|line| self.wants(line, groups)) {
                let HistoryLine {
                    client,
                    server,
                    service,
                    application,
                    verdict,
                    rule,
                    totals,
                    first,
                    last,
                } = line;
                let key = (client, server, service, application, verdict, rule);
                if sums.len() >= MOST && !sums.contains_key(&key) {
                    too_many = true;
                    continue;
                }
                let sum = sums.entry(key).or_insert(Sum { totals: Totals::ZERO, first, last });
                sum.totals += totals;
                sum.first = sum.first.min(first);
                sum.last = sum.last.max(last);
            }
            too_many |= is_late();
            !is_late()
        })?;
        let lines = sums.into_iter().map(|(key, Sum { totals, first, last })| {
            let (client, server, service, application, verdict, rule) = key;
            HistoryLine { client, server, service, application, verdict, rule, totals, first, last }
        });
        let mut lines: Vec<_> = lines.collect();
        lines.sort_by(|a, b| {
            let key = |line: &HistoryLine| {
                let service = line.service.map(|(protocol, port)| (protocol.0, port));
                (line.client.address, line.server.address, service)
            };
            b.last.cmp(&a.last).then_with(|| key(a).cmp(&key(b)))
        });
        Ok(Found { lines, too_many })
    }
}

#[cfg(test)]
mod tests;
