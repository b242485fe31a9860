//! `PoolStatusWriter`: writes the pools' statuses. A status is a pure function of the pool and of all
//! blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use objects::kinds::{AddressBlock, AddressPoolStatus, Condition, MOST_NODES, NodeBlocks};
use objects::{Attempt, Error, Expected, Next, Objects, Pace, Reconciler};
use stallproof::Snapshot;
use stallproof::backoff::Curve;
use stallproof::snapshot::Changes;
use tokio::time::{Instant, sleep_until};

use crate::claims::{Blocks, name_of};
use crate::pool::{JudgedPool, Pools};
use crate::trust::{self, NodeAddresses};

/// Between two attempts: on a busy cluster blocks change all the time.
const EVERY: Duration = Duration::from_secs(2);
pub(super) const PACE: Pace = Pace {
    attempt: Duration::from_secs(30),
    resync: Duration::from_secs(60),
    settle: Duration::ZERO,
    retry: Curve { first: Duration::from_secs(2), most: Duration::from_secs(15) },
};
/// How many problems a condition names; it counts all of them.
const NAMED: usize = 5;
/// The longest text that the schema takes.
const LONGEST_MESSAGE: usize = 4096;

pub(super) struct PoolStatusWriter {
    objects: Objects,
    pools: Snapshot<Pools>,
    blocks: Snapshot<Blocks>,
    /// None where the store has no `Node`s.
    nodes: Option<Snapshot<NodeAddresses>>,
    changes: (Changes<Pools>, Changes<Blocks>, Option<Changes<NodeAddresses>>),
    next: Instant,
}

impl PoolStatusWriter {
    pub(super) fn new(
        objects: Objects,
        pools: Snapshot<Pools>,
        blocks: Snapshot<Blocks>,
        nodes: Option<Snapshot<NodeAddresses>>,
    ) -> Self {
        let node_changes = nodes.as_ref().map(Snapshot::subscribe);
        let changes = (pools.subscribe(), blocks.subscribe(), node_changes);
        Self { objects, pools, blocks, nodes, changes, next: Instant::now() }
    }
}

impl Reconciler for PoolStatusWriter {
    type Error = Error;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Error> {
        let (pools, blocks) = (self.pools.load(), self.blocks.load());
        let nodes = self.nodes.as_ref().map(Snapshot::load);
        if !blocks.synced {
            return Ok(Next::OnChange);
        }
        self.next = Instant::now() + EVERY;
        let mut failed = None;
        for judged in pools.values() {
            // In whole seconds, as Kubernetes has its own times.
            let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
            let status = status(judged, &blocks, nodes.as_deref(), now);
            if judged.object.status.as_ref() == Some(&status) {
                continue;
            }
            let mut object = (*judged.object).clone();
            object.status = Some(status);
            match self.objects.apply_status(&object, Expected::Any, attempt.deadline).await {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(Next::OnChange), Err)
    }

    async fn changed(&mut self) {
        let (pools, blocks, nodes) = &mut self.changes;
        let node_change = async {
            match nodes {
                Some(nodes) => drop(nodes.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = pools.changed() => {}
            _ = blocks.changed() => {}
            () = node_change => {}
        }
        sleep_until(self.next).await;
    }
}

/// Computes the status of one pool, at `now`.
pub(super) fn status(
    judged: &JudgedPool,
    blocks: &Blocks,
    nodes: Option<&NodeAddresses>,
    now: Timestamp,
) -> AddressPoolStatus {
    let JudgedPool { object, pool, .. } = judged;
    let name = name_of(&**object);
    let mine: Vec<_> = blocks.values().filter(|block| block.spec.pool == name).collect();
    let used_of =
        |block: &AddressBlock| u64::from(block.status.as_ref().map_or(0, |status| status.used));
    let mut per_node = BTreeMap::<&str, NodeBlocks>::new();
    for block in &mine {
        let node = per_node.entry(&block.spec.node).or_default();
        node.node.clone_from(&block.spec.node);
        node.blocks += 1;
        node.used += used_of(block);
    }
    let having = per_node.len() as u64;
    let mut per_node: Vec<_> = per_node.into_values().collect();
    per_node.sort_by(|a, b| b.blocks.cmp(&a.blocks).then_with(|| a.node.cmp(&b.node)));
    per_node.truncate(MOST_NODES);

    let used = mine.iter().map(|block| used_of(block)).sum();
    let claimed = mine.len() as u64;
    // A pool that is not claimed from may still have blocks, and is as large as it says.
    let total = pool.as_ref().map_or(0, |pool| u64::from(pool.blocks()));
    let addresses = pool.as_ref().map_or(0, |pool| total * u64::from(pool.block_size()));
    let outside = |block: &&&Arc<AddressBlock>| {
        let networks = pool.as_ref().and_then(|pool| pool.block(block.spec.index));
        networks != Some(block.spec.networks())
    };
    let strangers = mine.iter().filter(outside).count() as u64;

    let exhausted = total > 0 && claimed - strangers >= total;
    // Every condition has a message: an apply to a server of 1.20 turns an empty one into a null, and is
    // refused for it.
    let conditions = vec![
        match judged.claimable() {
            Err(why) => {
                ("Ready", false, "NotClaimedFrom", format!("nothing is claimed from it: {why}"))
            }
            Ok(_) if exhausted => {
                ("Ready", false, "Exhausted", "every block is claimed".to_owned())
            }
            Ok(_) => ("Ready", true, "Open", "blocks can be claimed".to_owned()),
        },
        if exhausted {
            let more = format!("all {total} blocks are claimed: append a subnet");
            ("Exhausted", true, "AllClaimed", more)
        } else {
            ("Exhausted", false, "BlocksFree", "there are blocks to claim".to_owned())
        },
        match problems(&mine.iter().filter(outside).copied().collect::<Vec<_>>(), &mine, nodes) {
            Some(problems) => ("Consistent", false, "BlocksContested", problems),
            None => ("Consistent", true, "AsItShouldBe", "every block is of this pool".to_owned()),
        },
    ];
    let before = object.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let conditions = conditions.into_iter().map(|(r#type, holds, reason, message)| {
        let status = if holds { "True" } else { "False" };
        let same = before.iter().find(|old| old.r#type == r#type && old.status == status);
        let since = same.and_then(|old| old.last_transition_time.clone());
        Condition {
            r#type: r#type.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.chars().take(LONGEST_MESSAGE).collect(),
            last_transition_time: since.or_else(|| Some(now.to_string())),
        }
    });
    AddressPoolStatus {
        observed_generation: object.metadata.generation,
        blocks: total,
        claimed,
        used,
        free: addresses.saturating_sub(used),
        nodes: having,
        per_node,
        conditions: conditions.collect(),
    }
}

/// Names what a person must act on, in a sentence.
fn problems(
    outside: &[&Arc<AddressBlock>],
    mine: &[&Arc<AddressBlock>],
    nodes: Option<&NodeAddresses>,
) -> Option<String> {
    let outside = outside.iter().map(|block| {
        let (name, node, networks) = (name_of(&***block), &block.spec.node, block.spec.networks());
        format!(
            "block {name} of node {node} ({networks}) is not what this pool has at its index: nodes \
             that have not routed to it before do not; put the subnets back as they were, or delete \
             its pods and then the block"
        )
    });
    let troubles = mine.iter().filter_map(|block| {
        let trouble = block.status.as_ref()?.trouble.as_ref()?;
        Some(format!("node {}: {trouble}", block.spec.node))
    });
    let misplaced = mine.iter().filter_map(|block| {
        Some(format!("block {}: {}", name_of(&***block), trust::misplaced(nodes?, block)?))
    });
    // A node writes its troubles on each of its blocks: once is enough.
    let troubles: BTreeSet<_> = troubles.collect();
    let mut all: Vec<_> = outside.chain(misplaced).chain(troubles).collect();
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    let told = all.join("; ");
    match (told.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(told),
        (false, more) => Some(format!("{told}; and {more} more")),
    }
}

#[cfg(test)]
mod tests;
