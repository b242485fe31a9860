//! Which blocks are believed: a block is what a node says, and a node may be in the wrong hands.
//!
//! ```text
//! blocks (of all nodes) ─┐
//! pools                  ├─► judge (pure) ─► believed: routes       doubts: log, metric, `net check`
//! Nodes                  ┘
//! ```
//!
//! Contract:
//! - A block is believed when its networks are what its pool has at its index. Pools are written by
//!   administrators, never by nodes.
//! - Of another node's block: there is a `Node` of that name, and the block is reached at an address of
//!   that `Node`, whatever the block says. A store without `Node`s has only the first check.
//! - What was believed stays so while the block is the same, although its pool or its `Node` is gone: its
//!   pods may still be there. A restart forgets that.
//! - Until pools and `Node`s have been told, nobody new is believed, and no route is taken away.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use imbl::OrdMap;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use objects::kinds::{AddressBlock, MOST_BLOCK_BITS, Networks};
use objects::{Event, Id, Objects, Within};
use stallproof::{Deadline, Snapshot, Stop};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::claims::{Blocks, name_of};
use crate::pool::Shapes;
use crate::routes::Block;

/// How long the list of all Nodes may take, and one Node.
const LIST: Duration = Duration::from_secs(60);
const CALL: Duration = Duration::from_secs(5);
/// How long a Node is taken for what it was, although a block says otherwise: at first, and at most.
const AGAIN: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// How many Nodes are asked for in a row, and the pause after that: blocks that name Nodes which nobody has
/// cost no more.
const AT_ONCE: usize = 16;
const PACE: Duration = Duration::from_millis(200);

/// The addresses of nodes, as their `Node`s have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Nodes {
    /// The store has no `Node`s at all.
    Absent,
    /// They have not been told yet.
    #[default]
    Unknown,
    /// By name; addresses inside the cluster come first.
    Told(OrdMap<String, Vec<IpAddr>>),
}

/// What was believed at the last look, by the block's name.
pub(crate) type Memory = BTreeMap<String, Remembered>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    uid: Option<String>,
    block: Block,
}

/// The outcome of a look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) believed: Memory,
    /// By the block's name: why it is not believed, or not wholly.
    pub(crate) doubts: BTreeMap<String, String>,
    /// Whether everything is known that a verdict needs: what is not believed may be taken away.
    pub(crate) all: bool,
}

impl Verdict {
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block> {
        self.believed.values().map(|remembered| remembered.block.clone())
    }
}

/// Everything that a verdict is made of. Clones are handles of the same.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    /// The name of this node.
    pub(crate) node: String,
    pub(crate) blocks: Snapshot<Blocks>,
    pub(crate) shapes: Snapshot<Option<Shapes>>,
    pub(crate) nodes: Snapshot<Nodes>,
    pub(crate) memory: Snapshot<Memory>,
}

impl Trust {
    /// As things are now. Changes nothing.
    pub(crate) fn look(&self) -> Verdict {
        let (blocks, shapes) = (self.blocks.load(), self.shapes.load());
        judge(&self.node, &blocks, shapes.as_ref(), &self.nodes.load(), &self.memory.load())
    }

    /// What a verdict waits for, in a sentence.
    pub(crate) fn waits_for(&self) -> Option<&'static str> {
        if !self.blocks.read(|blocks| blocks.synced) {
            Some("the blocks have not been told yet")
        } else if self.shapes.read(Option::is_none) {
            Some("the address pools have not been told yet")
        } else if self.nodes.read(|nodes| *nodes == Nodes::Unknown) {
            Some("the Nodes have not been told yet: see whether this agent may list and get nodes")
        } else {
            None
        }
    }
}

/// Judges every block as seen from the node `own`.
pub(crate) fn judge(
    own: &str,
    blocks: &Blocks,
    shapes: Option<&Shapes>,
    nodes: &Nodes,
    before: &Memory,
) -> Verdict {
    let mut verdict = Verdict {
        all: blocks.synced && shapes.is_some() && *nodes != Nodes::Unknown,
        ..Verdict::default()
    };
    for (name, block) in &blocks.by_name {
        let spec = &block.spec;
        let uid = block.metadata.uid.clone();
        let networks = networks(spec.networks());
        let before = before.get(name).filter(|before| {
            before.uid == uid && before.block.node == spec.node && before.block.networks == networks
        });
        let foreign = match shapes {
            Some(shapes) => foreign(shapes, block),
            None => Some("the address pools have not been told yet".to_owned()),
        };
        if let (Some(why), None) = (foreign, before) {
            if shapes.is_some() {
                verdict.doubts.insert(name.clone(), why);
            }
            continue;
        }
        let via = if spec.node == own {
            Vec::new()
        } else {
            match nodes {
                Nodes::Absent => spec.node_addresses.clone(),
                Nodes::Unknown => match before {
                    Some(before) => before.block.via.clone(),
                    None => continue,
                },
                Nodes::Told(nodes) => match (nodes.get(&spec.node), before) {
                    (Some(addresses), _) => {
                        let (via, doubt) = reached(&spec.node, &spec.node_addresses, addresses);
                        verdict.doubts.extend(doubt.map(|doubt| (name.clone(), doubt)));
                        via
                    }
                    (None, Some(before)) => before.block.via.clone(),
                    (None, None) => {
                        let why = format!("there is no Node {}, whose it says it is", spec.node);
                        verdict.doubts.insert(name.clone(), why);
                        continue;
                    }
                },
            }
        };
        let block = Block { node: spec.node.clone(), networks, via };
        verdict.believed.insert(name.clone(), Remembered { uid, block });
    }
    verdict
}

/// Why a block is not one of its pool, in words that follow the block's name.
pub(crate) fn foreign(shapes: &Shapes, block: &AddressBlock) -> Option<String> {
    let spec = &block.spec;
    let networks = spec.networks();
    let Some(pool) = shapes.get(spec.pool.as_str()) else {
        return Some(format!("there is no pool {} that {networks} could be of", spec.pool));
    };
    match pool.block(spec.index) {
        Some(own) if own == networks => None,
        Some(own) => Some(format!(
            "it says {networks}, and block {} of pool {} is {own}",
            spec.index, spec.pool
        )),
        None => Some(format!("pool {} has no block {}", spec.pool, spec.index)),
    }
}

/// Whether a block is larger than any pool's blocks can be: nobody ever claimed it, and it stands in
/// nobody's way.
pub(crate) fn is_impossible(block: &AddressBlock) -> bool {
    let Networks { ipv4, ipv6 } = block.spec.networks();
    ipv4.is_some_and(|net| 32 - net.prefix_len() > MOST_BLOCK_BITS)
        || ipv6.is_some_and(|net| 128 - net.prefix_len() > MOST_BLOCK_BITS)
}

/// Where routes to a node go, by what its block `says` and what its `Node` `has`: of each family the
/// first address that both name, else the `Node`'s.
fn reached(node: &str, says: &[IpAddr], has: &[IpAddr]) -> (Vec<IpAddr>, Option<String>) {
    let mut via = Vec::new();
    let mut doubts = Vec::new();
    for is_ipv4 in [true, false] {
        let mut said = says.iter().filter(|address| address.is_ipv4() == is_ipv4).peekable();
        let Some(first) = said.peek().copied() else { continue };
        if let Some(both) = said.find(|address| has.contains(address)) {
            via.push(*both);
            continue;
        }
        let mut own = has.iter().filter(|address| address.is_ipv4() == is_ipv4);
        doubts.push(match own.next() {
            Some(own) => {
                via.push(*own);
                format!(
                    "it says that node {node} is reached at {first}, which its Node does not have; \
                     the route goes to {own}, which it has"
                )
            }
            None => format!(
                "it says that node {node} is reached at {first}, and its Node has no address of that \
                 family: nothing is routed there; give the kubelet that --node-ip"
            ),
        });
    }
    (via, (!doubts.is_empty()).then(|| doubts.join("; ")))
}

pub(crate) fn networks(Networks { ipv4, ipv6 }: Networks) -> Vec<IpNet> {
    ipv4.map(IpNet::V4).into_iter().chain(ipv6.map(IpNet::V6)).collect()
}

/// What the leader tells of an address that a block says and its `Node` does not have.
pub(crate) fn misplaced(nodes: &Nodes, block: &AddressBlock) -> Option<String> {
    let Nodes::Told(nodes) = nodes else { return None };
    let has = nodes.get(&block.spec.node)?;
    reached(&block.spec.node, &block.spec.node_addresses, has).1
}

/// Keeps what is needed of `nodes` for as many agents as there are nodes: all of them once, then each one
/// when a block names a node that is not known, or an address that it is not known to have. A watch would
/// bring every node's heartbeat to every agent: some 15 KB every five minutes of each.
pub(crate) async fn keep_nodes(
    objects: Objects,
    blocks: Snapshot<Blocks>,
    nodes: Snapshot<Nodes>,
    stop: Stop,
) {
    let mut failing = false;
    loop {
        let all = Within::default();
        let listed = objects.list::<Node>(&all, Deadline::after(LIST));
        match stop.bound(listed).await {
            None => return,
            Some(Ok(all)) => {
                let told = all.items.iter().map(|node| (name_of(node), addresses(node)));
                nodes.publish(Nodes::Told(told.collect()));
                break;
            }
            Some(Err(error)) if !failing => {
                let error = stallproof::sentence(&error);
                warn!(error, "the Nodes cannot be listed: no new route to a block is made");
                failing = true;
            }
            Some(Err(_)) => {}
        }
        if stop.bound(sleep(AGAIN)).await.is_none() {
            return;
        }
    }
    let mut changes = blocks.subscribe();
    let mut asked = BTreeMap::<String, Asked>::new();
    loop {
        let now = Instant::now();
        let unsure = unsure(&blocks.load(), &nodes.load());
        asked.retain(|name, _| unsure.contains_key(name));
        let is_due = |(name, said): &(String, BTreeSet<IpAddr>)| {
            asked.get(name).is_none_or(|asked| asked.said != *said || asked.again <= now)
        };
        let due: Vec<_> = unsure.into_iter().filter(is_due).take(AT_ONCE).collect();
        let more = due.len() == AT_ONCE;
        for (name, said) in due {
            let id = Id::cluster(&name);
            let got = objects.get::<Node>(&id, Deadline::after(CALL));
            match stop.bound(got).await {
                None => return,
                Some(Ok(found)) => {
                    let found = found.map(|node| addresses(&node));
                    nodes.update(|nodes| learn(nodes, &name, found));
                }
                Some(Err(error)) => debug!(node = name, %error, "a Node cannot be read"),
            }
            let before = asked.get(&name).filter(|asked| asked.said == said);
            let wait = before.map_or(AGAIN, |asked| (asked.wait * 2).min(LONGEST));
            asked.insert(name, Asked { said, wait, again: Instant::now() + wait });
        }
        let woken = async {
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep(if more { Duration::ZERO } else { AGAIN }) => {}
            }
            sleep(PACE).await;
        };
        if stop.bound(woken).await.is_none() {
            return;
        }
    }
}

/// A Node that was asked for and did not settle it.
#[derive(Debug)]
struct Asked {
    /// The addresses that blocks said it has: when they say others, it is asked for at once.
    said: BTreeSet<IpAddr>,
    /// Twice as long each time: a node that is never as its block says costs next to nothing.
    wait: Duration,
    again: Instant,
}

/// Nodes of blocks that are not known, or not at the addresses that their blocks say; with all that those
/// say.
fn unsure(blocks: &Blocks, nodes: &Nodes) -> BTreeMap<String, BTreeSet<IpAddr>> {
    let mut unsure = BTreeMap::<String, BTreeSet<IpAddr>>::new();
    let Nodes::Told(told) = nodes else { return unsure };
    for block in blocks.by_name.values() {
        let (node, says) = (&block.spec.node, &block.spec.node_addresses);
        if told.get(node).is_none_or(|has| says.iter().any(|says| !has.contains(says))) {
            unsure.entry(node.clone()).or_default().extend(says);
        }
    }
    unsure
}

/// Says whether that is news.
fn learn(nodes: &mut Nodes, name: &str, found: Option<Vec<IpAddr>>) -> bool {
    let Nodes::Told(told) = nodes else { return false };
    match found {
        Some(found) if told.get(name) == Some(&found) => false,
        Some(found) => {
            told.insert(name.to_owned(), found);
            true
        }
        None => told.remove(name).is_some(),
    }
}

/// Keeps `nodes` as the store tells. A heartbeat changes nothing here, and wakes nobody.
pub(crate) async fn watch_nodes(objects: Objects, nodes: Snapshot<Nodes>, stop: Stop) {
    let mut events = objects.watch::<Node>(Within::default());
    while let Some(Some(event)) = stop.bound(events.next()).await {
        nodes.update(|nodes| match event {
            Event::Restarted(all) => {
                let told = all.iter().map(|node| (name_of(node), addresses(node))).collect();
                let told = Nodes::Told(told);
                let changed = *nodes != told;
                *nodes = told;
                changed
            }
            Event::Applied(node) => {
                let Nodes::Told(told) = nodes else { return false };
                let (name, found) = (name_of(&node), addresses(&node));
                let changed = told.get(&name) != Some(&found);
                if changed {
                    told.insert(name, found);
                }
                changed
            }
            Event::Deleted(node) => {
                let Nodes::Told(told) = nodes else { return false };
                told.remove(&name_of(&node)).is_some()
            }
        });
    }
}

fn addresses(node: &Node) -> Vec<IpAddr> {
    let all = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let of = |kind: &'static str| {
        let all = all.into_iter().flatten().filter(move |address| address.type_ == kind);
        all.filter_map(|address| address.address.parse().ok())
    };
    of("InternalIP").chain(of("ExternalIP")).collect()
}

/// Says each doubt once.
#[derive(Debug, Default)]
pub(crate) struct Said(BTreeMap<String, String>);

impl Said {
    /// Those that were not said before.
    pub(crate) fn news(&mut self, doubts: &BTreeMap<String, String>) -> Vec<(String, String)> {
        let new = doubts.iter().filter(|(name, why)| self.0.get(*name) != Some(*why));
        let new = new.map(|(name, why)| (name.clone(), why.clone())).collect();
        self.0.clone_from(doubts);
        new
    }
}

#[cfg(test)]
mod tests;
