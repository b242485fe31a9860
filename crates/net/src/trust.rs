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
//! - A block of another node is believed when there is a `Node` of that name, and is reached at an
//!   address of that `Node`, whatever the block says. A store without `Node`s has only the first check.
//! - A block that was believed stays so while it is the same, although its pool or its `Node` is gone: its
//!   pods may still be there. A restart forgets that.
//! - Until pools and `Node`s are listed, no new block is believed, and no route is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use objects::kinds::{AddressBlock, AddressBlockSpec, MOST_BLOCK_BITS, Networks};
use objects::{Attempt, Error, Id, Next, Objects, Pace, Reconciler, Watched, Within};
use stallproof::backoff::Curve;
use stallproof::snapshot::Changes;
use stallproof::{Deadline, Snapshot};
use tokio::time::Instant;
use tracing::debug;

use crate::claims::{Blocks, name_of};
use crate::pool::Pools;
use crate::routes::RoutedBlock;

/// How long the lookup of one Node may take.
const CALL: Duration = Duration::from_secs(5);
/// How long a Node counts as it was, although a block says otherwise: at first, and at most.
const AGAIN: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// How many Nodes are asked for in a row. With the pause after that, blocks that name Nodes which do not
/// exist cost no more.
const AT_ONCE: usize = 16;
/// The list of all Nodes of a large cluster takes a while.
pub(crate) const PACE: Pace = Pace {
    attempt: Duration::from_secs(120),
    resync: AGAIN,
    settle: Duration::from_millis(200),
    retry: Curve { first: AGAIN, most: Duration::from_secs(30) },
};

/// The addresses of each `Node`, by name; addresses inside the cluster come first.
pub(crate) type NodeAddresses = Watched<String, Vec<IpAddr>>;

/// The blocks that were believed at the last look, by name.
pub(crate) type Believed = OrdMap<String, BelievedBlock>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BelievedBlock {
    uid: Option<String>,
    block: Arc<RoutedBlock>,
}

/// The judgement of all blocks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) believed: Believed,
    /// Why a block is not believed, or not wholly, by its name.
    pub(crate) doubts: BTreeMap<String, String>,
    /// Whether everything is known that a verdict needs: routes to other blocks may be removed.
    pub(crate) complete: bool,
}

impl Verdict {
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Arc<RoutedBlock>> {
        self.believed.values().map(|believed| &believed.block)
    }

    /// Returns the block of that name, if it is believed.
    pub(crate) fn block(&self, name: &str) -> Option<&Arc<RoutedBlock>> {
        self.believed.get(name).map(|believed| &believed.block)
    }
}

/// Everything that a verdict follows from. A handle; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct BlockTrust {
    /// The name of this node.
    pub(crate) node: String,
    pub(crate) blocks: Snapshot<Blocks>,
    pub(crate) pools: Snapshot<Pools>,
    /// None where the store has no `Node`s.
    pub(crate) nodes: Option<Snapshot<NodeAddresses>>,
    pub(crate) believed: Snapshot<Believed>,
}

impl BlockTrust {
    /// Judges all blocks as they are now. Changes nothing.
    pub(crate) fn verdict(&self) -> Verdict {
        let nodes = self.nodes.as_ref().map(Snapshot::load);
        let (blocks, pools) = (self.blocks.load(), self.pools.load());
        judge(&self.node, &blocks, &pools, nodes.as_deref(), &self.believed.load())
    }

    /// Says what a complete verdict waits for.
    pub(crate) fn waits_for(&self) -> Option<&'static str> {
        let has_nodes = |nodes: &Snapshot<NodeAddresses>| nodes.read(|nodes| nodes.synced);
        if !self.blocks.read(|blocks| blocks.synced) {
            Some("the store has not listed the blocks yet")
        } else if !self.pools.read(Pools::synced) {
            Some("the store has not listed the address pools yet")
        } else if !self.nodes.as_ref().is_none_or(has_nodes) {
            Some(
                "the API server has not listed the Nodes yet: see whether this agent may list and get nodes",
            )
        } else {
            None
        }
    }
}

/// Judges every block as seen from the node `own`.
pub(crate) fn judge(
    own: &str,
    blocks: &Blocks,
    pools: &Pools,
    nodes: Option<&NodeAddresses>,
    before: &Believed,
) -> Verdict {
    let mut verdict = Verdict {
        complete: blocks.synced && pools.synced() && nodes.is_none_or(|nodes| nodes.synced),
        ..Verdict::default()
    };
    let context = Context { own, pools, nodes };
    for (name, block) in blocks.iter() {
        let (believed, doubt) = judge_block(&context, block, before.get(name));
        verdict.believed.extend(believed.map(|believed| (name.clone(), believed)));
        verdict.doubts.extend(doubt.map(|doubt| (name.clone(), doubt)));
    }
    verdict
}

/// What a block is judged by beside itself.
struct Context<'a> {
    /// The name of the node that judges.
    own: &'a str,
    pools: &'a Pools,
    nodes: Option<&'a NodeAddresses>,
}

/// Judges one block, which was believed `before` or was not.
fn judge_block(
    context: &Context<'_>,
    block: &AddressBlock,
    before: Option<&BelievedBlock>,
) -> (Option<BelievedBlock>, Option<String>) {
    let Context { own, pools, nodes } = *context;
    let spec = &block.spec;
    let networks = networks(spec.networks());
    let uid = &block.metadata.uid;
    let before = before.filter(|before| {
        let was = &before.block;
        before.uid == *uid && was.node == spec.node && was.networks == networks
    });
    let before = before.map(|before| &before.block);
    if before.is_none() {
        if !pools.synced() {
            return (None, None);
        }
        if let Some(why) = mismatch(pools, block) {
            return (None, Some(why));
        }
    }
    let (via, doubt) = match nodes {
        _ if spec.node == own => (Vec::new(), None),
        None => (spec.node_addresses.clone(), None),
        Some(nodes) => match (nodes.get(&spec.node), before) {
            (Some(addresses), _) => reached(&spec.node, &spec.node_addresses, addresses),
            (None, Some(before)) => (before.via.clone(), None),
            (None, None) => {
                let why = || format!("there is no Node {}, whose it says it is", spec.node);
                return (None, nodes.synced.then(why));
            }
        },
    };
    let judged = pools.get(spec.pool.as_str());
    let overlay = judged.map(|judged| judged.object.spec.overlay);
    let overlay = overlay.or_else(|| before.map(|before| before.overlay)).unwrap_or_default();
    let routed = RoutedBlock { node: spec.node.clone(), networks, via, overlay };
    // What is as it was is shared.
    let same = before.filter(|before| ***before == routed).cloned();
    let block = same.unwrap_or_else(|| Arc::new(routed));
    (Some(BelievedBlock { uid: uid.clone(), block }), doubt)
}

/// Keeps a verdict up to date by what changed: at any time it is the verdict that [`judge`] would come to
/// about all blocks. A change of a block or of a Node costs what it touches; one of the pools touches all.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// What was judged last.
    blocks: Blocks,
    nodes: Option<NodeAddresses>,
    /// The generation of the pools.
    pools: Option<u64>,
    /// The names of each node's blocks.
    by_node: BTreeMap<String, BTreeSet<String>>,
    verdict: Verdict,
}

impl Judge {
    pub(crate) fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Judges what has changed since the last time; returns the names of the blocks that are believed, or are
    /// believed otherwise, or are no longer.
    pub(crate) fn update(&mut self, trust: &BlockTrust) -> Vec<String> {
        let nodes = trust.nodes.as_ref().map(Snapshot::load);
        let (blocks, pools) = (trust.blocks.load(), trust.pools.load());
        let generation = pools.generation();
        self.take(&trust.node, &blocks, (&pools, generation), nodes.as_deref())
    }

    fn take(
        &mut self,
        own: &str,
        blocks: &Blocks,
        (pools, generation): (&Pools, u64),
        nodes: Option<&NodeAddresses>,
    ) -> Vec<String> {
        let has_nodes = |nodes: Option<&NodeAddresses>| nodes.is_none_or(|nodes| nodes.synced);
        let all = self.pools != Some(generation)
            || self.blocks.synced != blocks.synced
            || has_nodes(self.nodes.as_ref()) != has_nodes(nodes);
        let mut touched = self.follow(blocks);
        if let Some(nodes) = nodes {
            let before = self.nodes.take().unwrap_or_default();
            for difference in before.diff(nodes) {
                let (DiffItem::Add(node, _)
                | DiffItem::Update { new: (node, _), .. }
                | DiffItem::Remove(node, _)) = difference;
                touched.extend(self.by_node.get(node).into_iter().flatten().cloned());
            }
        }
        if all {
            touched.extend(blocks.keys().cloned());
        }
        (self.blocks, self.nodes) = (blocks.clone(), nodes.cloned());
        self.pools = Some(generation);
        self.verdict.complete = blocks.synced && pools.synced() && has_nodes(nodes);
        let context = Context { own, pools, nodes };
        touched.retain(|name| self.judge(&context, name));
        touched.into_iter().collect()
    }

    /// Judges one block anew; says whether it is believed otherwise than before.
    fn judge(&mut self, context: &Context<'_>, name: &String) -> bool {
        let Verdict { believed, doubts, .. } = &mut self.verdict;
        let block = self.blocks.get(name);
        let judged = block.map(|block| judge_block(context, block, believed.get(name)));
        let (now, doubt) = judged.unwrap_or_default();
        match doubt {
            Some(doubt) => drop(doubts.insert(name.clone(), doubt)),
            None => drop(doubts.remove(name)),
        }
        if believed.get(name) == now.as_ref() {
            return false;
        }
        match now {
            Some(now) => drop(believed.insert(name.clone(), now)),
            None => drop(believed.remove(name)),
        }
        true
    }

    /// Notes whose blocks are whose; returns the names of those that came, went or changed.
    fn follow(&mut self, blocks: &Blocks) -> BTreeSet<String> {
        let mut touched = BTreeSet::new();
        for difference in self.blocks.diff(blocks) {
            let (name, old, new) = match difference {
                DiffItem::Add(name, new) => (name, None, Some(new)),
                DiffItem::Update { old: (_, old), new: (name, new) } => {
                    (name, Some(old), Some(new))
                }
                DiffItem::Remove(name, old) => (name, Some(old), None),
            };
            if let Some(old) = old.map(|old| old.spec.node.as_str())
                && let Some(names) = self.by_node.get_mut(old)
            {
                names.remove(name);
                if names.is_empty() {
                    self.by_node.remove(old);
                }
            }
            if let Some(new) = new {
                self.by_node.entry(new.spec.node.clone()).or_default().insert(name.clone());
            }
            touched.insert(name.clone());
        }
        touched
    }
}

/// Says why a block is not one of its pool, in words that follow the block's name.
pub(crate) fn mismatch(pools: &Pools, block: &AddressBlock) -> Option<String> {
    let spec = &block.spec;
    let networks = spec.networks();
    let Some(pool) = pools.get(spec.pool.as_str()).and_then(|judged| judged.pool.as_ref()) else {
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

/// Says whether a block is larger than any pool's blocks can be: nobody ever claimed it, and it stands
/// in nobody's way.
pub(crate) fn is_oversized(block: &AddressBlock) -> bool {
    let Networks { ipv4, ipv6 } = block.spec.networks();
    ipv4.is_some_and(|net| 32 - net.prefix_len() > MOST_BLOCK_BITS)
        || ipv6.is_some_and(|net| 128 - net.prefix_len() > MOST_BLOCK_BITS)
}

/// Returns where routes to a node go, by what its block `says` and what its `Node` `has`: of each family
/// the first address that both name, else the `Node`'s. Also says what is doubtful about the block.
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

/// Says that a block names an address which its `Node` does not have.
pub(crate) fn misplaced(nodes: &NodeAddresses, block: &AddressBlock) -> Option<String> {
    let has = nodes.get(&block.spec.node)?;
    reached(&block.spec.node, &block.spec.node_addresses, has).1
}

/// Keeps the addresses of `Node`s up to date in a way that many agents can afford: it lists all `Node`s
/// once, then asks for one when a block names a node that is not known, or an address that the node is
/// not known to have. A watch would bring every node's heartbeat to every agent: some 15 KB every five
/// minutes of each.
#[derive(Debug)]
pub(crate) struct NodeLister {
    objects: Objects,
    nodes: Snapshot<NodeAddresses>,
    blocks: Snapshot<Blocks>,
    changes: Changes<Blocks>,
    unsure: UnsureBlocks,
    lookups: BTreeMap<String, NodeLookup>,
}

impl NodeLister {
    pub(crate) fn new(
        objects: Objects,
        blocks: Snapshot<Blocks>,
        nodes: Snapshot<NodeAddresses>,
    ) -> Self {
        let changes = blocks.subscribe();
        let (unsure, lookups) = (UnsureBlocks::default(), BTreeMap::new());
        Self { objects, nodes, blocks, changes, unsure, lookups }
    }
}

impl Reconciler for NodeLister {
    type Error = Error;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Error> {
        if !self.nodes.read(|nodes| nodes.synced) {
            let all = self.objects.list::<Node>(&Within::default(), attempt.deadline).await?;
            let all = all.items.iter().map(|node| (name_of(node), addresses(node)));
            self.nodes.publish(all.collect());
        }
        let now = Instant::now();
        self.unsure.follow(&self.blocks.load(), &self.nodes.load());
        let unsure = self.unsure.nodes();
        self.lookups.retain(|name, _| unsure.contains_key(name));
        let is_due = |(name, said): &(String, BTreeSet<IpAddr>)| {
            let lookup = self.lookups.get(name);
            lookup.is_none_or(|lookup| lookup.said != *said || lookup.again <= now)
        };
        let due: Vec<_> = unsure.into_iter().filter(is_due).take(AT_ONCE).collect();
        let more = due.len() == AT_ONCE;
        for (name, said) in due {
            match self.objects.get::<Node>(&Id::cluster(&name), Deadline::after(CALL)).await {
                Ok(found) => {
                    let found = found.map(|node| addresses(&node));
                    self.nodes.update(|nodes| nodes.set(name.clone(), found));
                }
                Err(error) => debug!(node = name, %error, "a Node cannot be read"),
            }
            let before = self.lookups.get(&name).filter(|lookup| lookup.said == said);
            let wait = before.map_or(AGAIN, |lookup| (lookup.wait * 2).min(LONGEST));
            self.lookups.insert(name, NodeLookup { said, wait, again: Instant::now() + wait });
        }
        Ok(if more { Next::Within(PACE.settle) } else { Next::OnChange })
    }

    async fn changed(&mut self) {
        self.changes.changed().await;
    }
}

/// A Node that was looked up and is still not as its blocks say.
#[derive(Debug)]
struct NodeLookup {
    /// The addresses that blocks said it has: when they say others, it is looked up at once.
    said: BTreeSet<IpAddr>,
    /// The wait doubles each time: a node that is never as its block says costs next to nothing.
    wait: Duration,
    again: Instant,
}

/// The blocks whose nodes are not known, or not at the addresses that the blocks say. A block's change costs
/// that block; a node's, which is seldom, a look at all.
#[derive(Debug, Default)]
struct UnsureBlocks {
    /// What was followed last.
    blocks: Blocks,
    nodes: NodeAddresses,
    names: BTreeSet<String>,
}

impl UnsureBlocks {
    fn follow(&mut self, blocks: &Blocks, nodes: &NodeAddresses) {
        let is_unsure = |block: &AddressBlock| {
            let AddressBlockSpec { node, node_addresses: says, .. } = &block.spec;
            nodes.get(node).is_none_or(|has| says.iter().any(|says| !has.contains(says)))
        };
        let before = std::mem::replace(&mut self.blocks, blocks.clone());
        if self.nodes.diff(nodes).next().is_some() {
            self.nodes = nodes.clone();
            let unsure = blocks.iter().filter(|(_, block)| is_unsure(block));
            self.names = unsure.map(|(name, _)| name.clone()).collect();
            return;
        }
        for difference in before.diff(blocks) {
            let (name, block) = match difference {
                DiffItem::Add(name, block) | DiffItem::Update { new: (name, block), .. } => {
                    (name, Some(block))
                }
                DiffItem::Remove(name, _) => (name, None),
            };
            match block.is_some_and(|block| is_unsure(block)) {
                true => drop(self.names.insert(name.clone())),
                false => drop(self.names.remove(name)),
            }
        }
    }

    /// Returns the nodes of these blocks, with all addresses that the blocks say.
    fn nodes(&self) -> BTreeMap<String, BTreeSet<IpAddr>> {
        let mut nodes = BTreeMap::<String, BTreeSet<IpAddr>>::new();
        for block in self.names.iter().filter_map(|name| self.blocks.get(name)) {
            nodes.entry(block.spec.node.clone()).or_default().extend(&block.spec.node_addresses);
        }
        nodes
    }
}

/// Returns the addresses of a `Node`, those inside the cluster first.
pub(crate) fn addresses(node: &Node) -> Vec<IpAddr> {
    let all = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let of = |kind: &'static str| {
        let all = all.into_iter().flatten().filter(move |address| address.type_ == kind);
        all.filter_map(|address| address.address.parse().ok())
    };
    of("InternalIP").chain(of("ExternalIP")).collect()
}

/// The doubts that were logged: each is logged once.
#[derive(Debug, Default)]
pub(crate) struct ReportedDoubts(BTreeMap<String, String>);

impl ReportedDoubts {
    /// Returns the doubts that are new.
    pub(crate) fn news(&mut self, doubts: &BTreeMap<String, String>) -> Vec<(String, String)> {
        let new = doubts.iter().filter(|(name, why)| self.0.get(*name) != Some(*why));
        let new = new.map(|(name, why)| (name.clone(), why.clone())).collect();
        self.0.clone_from(doubts);
        new
    }
}

#[cfg(test)]
mod tests;
