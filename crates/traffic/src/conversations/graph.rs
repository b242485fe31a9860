//! `Graph`: who talks to whom, drawn at a level. It visits each end's name once, and of a pair's
//! conversations their verdicts alone: an edge has the gravest, with a rule that decided so.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::table::NONE;
use super::view::View;
use super::{Endpoint, Moment, Totals, Verdict};

/// Few nodes have a matrix of edges, many a map: this many nodes are 16 MiB of places.
const MATRIX: usize = 2048;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Each endpoint by itself; all of one external network are one.
    #[default]
    Workload,
    /// Workloads by namespace and owner, which is a learned group.
    Group,
    /// By namespace; what has none by its kind.
    Namespace,
}

#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    Endpoint(Arc<Endpoint>),
    Group { namespace: Arc<str>, owner: Arc<str> },
    Realm(Arc<str>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Places in `nodes`.
    pub client: u32,
    pub server: u32,
    pub totals: Totals,
    pub conversations: u32,
    pub last: Moment,
    /// The gravest verdict on a conversation of it.
    pub verdict: Verdict,
    /// A rule that decided so, if one did.
    pub rule: Option<Arc<str>>,
}

/// How much a verdict matters to who looks at an edge.
fn gravity(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Unjudged => 0,
        Verdict::Allowed => 1,
        Verdict::Discovered => 2,
        Verdict::Violates => 3,
        Verdict::ViolatesUnenforced => 4,
        Verdict::Stopped => 5,
    }
}

impl Node {
    fn of(endpoint: &Arc<Endpoint>, level: Level) -> Self {
        match (level, &**endpoint) {
            (Level::Group, Endpoint::Workload { namespace, owner, .. }) => {
                Self::Group { namespace: Arc::clone(namespace), owner: Arc::clone(owner) }
            }
            (Level::Workload | Level::Group, _) => Self::Endpoint(Arc::clone(endpoint)),
            (Level::Namespace, _) => {
                Self::Realm(endpoint.namespace().map_or_else(|| endpoint.kind().into(), Arc::clone))
            }
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(endpoint) => endpoint.fmt(f),
            Self::Group { namespace, owner } => write!(f, "{namespace}/{owner}"),
            Self::Realm(realm) => f.write_str(realm),
        }
    }
}

impl Graph {
    pub(super) fn of(view: &View, level: Level, since: Moment) -> Self {
        let since = since.seconds();
        let mut names = Names { level, ..Names::default() };
        let mut shards = Vec::new();
        for shard in view.0.iter() {
            let ends = shard.table.ends.iter().map(|place| place.end.as_ref());
            let numbers = ends.map(|end| end.map_or(NONE, |end| names.number(&end.endpoint)));
            shards.push((&shard.table, numbers.collect::<Vec<_>>()));
        }
        let nodes = names.nodes;
        let mut edges = Edges::new(nodes.len());
        for (table, number) in &shards {
            for pair in table.pairs.iter() {
                if pair.client == NONE || pair.last < since {
                    continue;
                }
                let (client, server) = (number[pair.client as usize], number[pair.server as usize]);
                let edge = edges.between(client, server);
                edge.totals += pair.totals;
                edge.conversations += u32::from(pair.rows);
                edge.last = edge.last.max(Moment::from_seconds(pair.last));
                for row in table.rows_of(pair).filter(|row| row.last >= since) {
                    if gravity(row.verdict) > gravity(edge.verdict) {
                        edge.verdict = row.verdict;
                        edge.rule = table.rule(row).cloned();
                    }
                }
            }
        }
        Self { nodes, edges: edges.edges }
    }
}

/// Numbers the nodes.
#[derive(Default)]
struct Names {
    level: Level,
    nodes: Vec<Node>,
    numbers: FxHashMap<Node, u32>,
    /// One endpoint is in every shard, mostly as one allocation: its name is hashed once.
    known: FxHashMap<*const Endpoint, u32>,
}

impl Names {
    fn number(&mut self, endpoint: &Arc<Endpoint>) -> u32 {
        *self.known.entry(Arc::as_ptr(endpoint)).or_insert_with(|| {
            let node = Node::of(endpoint, self.level);
            *self.numbers.entry(node).or_insert_with_key(|node| {
                self.nodes.push(node.clone());
                self.nodes.len() as u32 - 1
            })
        })
    }
}

/// Finds the edge between two nodes.
struct Edges {
    nodes: usize,
    matrix: Vec<u32>,
    map: FxHashMap<(u32, u32), u32>,
    edges: Vec<Edge>,
}

impl Edges {
    fn new(nodes: usize) -> Self {
        let matrix = if nodes <= MATRIX { vec![NONE; nodes * nodes] } else { Vec::new() };
        Self { nodes, matrix, map: FxHashMap::default(), edges: Vec::new() }
    }

    fn between(&mut self, client: u32, server: u32) -> &mut Edge {
        let place = if self.matrix.is_empty() {
            self.map.entry((client, server)).or_insert(NONE)
        } else {
            &mut self.matrix[client as usize * self.nodes + server as usize]
        };
        if *place == NONE {
            *place = self.edges.len() as u32;
            let (totals, last) = (Totals::ZERO, Moment::default());
            let (verdict, rule) = (Verdict::default(), None);
            self.edges.push(Edge { client, server, totals, conversations: 0, last, verdict, rule });
        }
        &mut self.edges[*place as usize]
    }
}

#[cfg(test)]
mod tests;
