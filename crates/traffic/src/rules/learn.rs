//! `Learned`: rules from what is seen, few and readable.
//!
//! Contract:
//! - What was learned is allowed by the rules that `rules` gives: a port that was seen is in them.
//! - One rule for two groups. Of each protocol it has up to eight single ports or ranges: past that
//!   the nearest grow together, and where they are far apart it is every port.
//! - Bounded: past the bound nothing new is learned, and it is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use kube::ResourceExt as _;
use objects::kinds::{NetworkRule, NetworkRuleSpec, Ports, Protocol, RuleAction};
use sha2::{Digest, Sha256};

use crate::conversations::codec::{Reader, Writer};
use crate::conversations::{Conversation, Endpoint, Torn};

/// More than anybody reads, and a few megabytes.
const MOST_RULES: usize = 16_384;
/// Seen of one protocol between two groups; whoever uses more ports uses any.
const MOST_PORTS: usize = 64;
const MOST_RANGES: usize = 8;
/// Ports further apart than this have nothing to do with each other.
const WIDEST_GAP: u16 = 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    seen: BTreeMap<(Arc<str>, Arc<str>), BTreeMap<Protocol, SeenPorts>>,
    /// Conversations from which nothing was learned for want of room.
    let_go: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SeenPorts {
    Ports(BTreeSet<u16>),
    Any,
}

/// What is allowed because it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedRule {
    /// In the words of a [`NetworkRule`].
    pub from: Arc<str>,
    pub to: Arc<str>,
    pub ports: Vec<Ports>,
}

impl Learned {
    /// Learns from a conversation; says whether a rule became another.
    pub fn learn(&mut self, seen: &Conversation) -> bool {
        let groups = (group(&seen.client.endpoint), group(&seen.server.endpoint));
        if self.seen.len() >= MOST_RULES && !self.seen.contains_key(&groups) {
            self.let_go += 1;
            return false;
        }
        let protocols = self.seen.entry(groups).or_default();
        let has_ports = matches!(seen.protocol, Protocol::TCP | Protocol::UDP | Protocol::SCTP);
        if !has_ports {
            return protocols.insert(seen.protocol, SeenPorts::Any).is_none();
        }
        let known = protocols.entry(seen.protocol).or_insert(SeenPorts::Ports(BTreeSet::new()));
        let SeenPorts::Ports(ports) = known else { return false };
        let before = readable(ports);
        ports.insert(seen.port);
        if ports.len() > MOST_PORTS {
            *known = SeenPorts::Any;
            return true;
        }
        readable(ports) != before
    }

    /// In the order of their groups.
    pub fn rules(&self) -> Vec<LearnedRule> {
        let rules = self.seen.iter().map(|((from, to), protocols)| {
            let ports = protocols.iter().flat_map(|(protocol, seen)| {
                let ranges = match seen {
                    SeenPorts::Ports(ports) => readable(ports),
                    SeenPorts::Any => vec![(0, u16::MAX)],
                };
                let protocol = *protocol;
                ranges.into_iter().map(move |(first, last)| Ports { protocol, first, last })
            });
            LearnedRule { from: Arc::clone(from), to: Arc::clone(to), ports: ports.collect() }
        });
        rules.collect()
    }

    /// It is written now, or was not wanted; if it is seen again it is learned again.
    pub fn forget(&mut self, from: &str, to: &str) {
        self.seen.remove(&(Arc::from(from), Arc::from(to)));
    }

    pub fn let_go(&self) -> u64 {
        self.let_go
    }

    /// Its part of a checkpoint.
    pub fn save(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.number(self.let_go);
        out.count(self.seen.len());
        for ((from, to), protocols) in &self.seen {
            out.text(from);
            out.text(to);
            out.count(protocols.len());
            for (protocol, seen) in protocols {
                out.byte(protocol.0);
                match seen {
                    SeenPorts::Any => out.byte(0),
                    SeenPorts::Ports(ports) => {
                        out.byte(1);
                        out.count(ports.len());
                        ports.iter().for_each(|port| out.number((*port).into()));
                    }
                }
            }
        }
        out.0
    }

    pub fn load(bytes: &[u8]) -> Result<Self, Torn> {
        let mut from = Reader(bytes);
        let let_go = from.number()?;
        let mut seen = BTreeMap::new();
        for _ in 0..from.count()? {
            let groups = (from.text()?.into(), from.text()?.into());
            let mut protocols = BTreeMap::new();
            for _ in 0..from.count()? {
                let protocol = Protocol(from.byte()?);
                let ports = match from.byte()? {
                    0 => SeenPorts::Any,
                    _ => {
                        let count = from.count()?;
                        SeenPorts::Ports(
                            (0..count).map(|_| from.small()).collect::<Result<_, _>>()?,
                        )
                    }
                };
                protocols.insert(protocol, ports);
            }
            seen.insert(groups, protocols);
        }
        Ok(Self { seen, let_go })
    }
}

impl LearnedRule {
    /// The same two groups have the same name, always.
    pub fn name(&self) -> String {
        let mut slug = String::from("learned-");
        for c in format!("{}-{}", self.from, self.to).chars().take(200) {
            let plain = c.is_ascii_alphanumeric();
            if plain || !slug.ends_with('-') {
                slug.push(if plain { c.to_ascii_lowercase() } else { '-' });
            }
        }
        // Slugs of different groups may be the same; the sums of both names are not.
        let mut sum = Sha256::new();
        for name in [&self.from, &self.to] {
            sum.update((name.len() as u64).to_le_bytes());
            sum.update(name.as_bytes());
        }
        let mut slug = slug.trim_end_matches('-').to_owned();
        slug.push('-');
        for byte in &sum.finalize()[..4] {
            let _ = write!(slug, "{byte:02x}");
        }
        slug
    }

    /// The same, to be written: it may be edited, and outlives what was seen.
    pub fn promote(&self) -> NetworkRule {
        let all = |protocols: &[Ports]| protocols.iter().map(ToString::to_string).collect();
        let spec = NetworkRuleSpec {
            comment: "learned from what was seen".to_owned(),
            from: self.from.to_string(),
            to: self.to.to_string(),
            action: RuleAction::Allow,
            ports: all(&self.ports),
            applications: Vec::new(),
            priority: 1000,
            disabled: false,
        };
        let mut rule = NetworkRule::new(&self.name(), spec);
        rule.labels_mut().insert("fairlead.dev/learned".to_owned(), "true".to_owned());
        rule
    }
}

/// The word by which a rule speaks of an endpoint.
fn group(endpoint: &Endpoint) -> Arc<str> {
    match endpoint {
        Endpoint::Workload { namespace, owner, .. } => format!("{namespace}/{owner}").into(),
        Endpoint::Host { .. } => "hosts".into(),
        Endpoint::Service { .. } => "services".into(),
        Endpoint::Ingress { .. } => "ingress".into(),
        Endpoint::External { .. } => "external".into(),
        Endpoint::Unmanaged => "unmanaged".into(),
    }
}

/// Ranges that hold all of `ports`, in order, and not many.
fn readable(ports: &BTreeSet<u16>) -> Vec<(u16, u16)> {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for port in ports {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*port) => *last = *port,
            _ => ranges.push((*port, *port)),
        }
    }
    while ranges.len() > MOST_RANGES {
        let gap = |i: &usize| ranges[i + 1].0 - ranges[*i].1;
        let Some(nearest) = (0..ranges.len() - 1).min_by_key(gap) else { break };
        if gap(&nearest) > WIDEST_GAP {
            return vec![(0, u16::MAX)];
        }
        let (_, last) = ranges.remove(nearest + 1);
        ranges[nearest].1 = last;
    }
    ranges
}
