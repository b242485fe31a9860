//! Says how pools are: a pool's status as a pure function of the pool and of all blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use objects::kinds::{
    AddressBlock, AddressPool, AddressPoolStatus, Condition, MOST_NODES, NodeBlocks,
};
use objects::{Error, Expected, Objects, Within};
use stallproof::{Deadline, Snapshot, Stop, sentence};
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::claims::{Blocks, keep, name_of};
use crate::pool::{self, Pool};
use crate::trust::{self, Nodes};

/// For one call of the store.
const CALL: Duration = Duration::from_secs(5);
/// Between two looks: what blocks say changes all the time on a busy cluster.
const PACE: Duration = Duration::from_secs(2);
/// When to try again what could not be written, if nothing changes before.
const AGAIN: Duration = Duration::from_secs(15);
/// How many problems a condition tells; it counts all of them.
const TOLD: usize = 5;
/// As the schema has it.
const LONGEST_MESSAGE: usize = 4096;

pub(super) async fn run(
    objects: Objects,
    blocks: Snapshot<Blocks>,
    nodes: Snapshot<Nodes>,
    stop: Stop,
) {
    let mut events = objects.watch::<AddressPool>(Within::default());
    let mut changes = blocks.subscribe();
    let mut moves = nodes.subscribe();
    let mut pools = BTreeMap::new();
    let mut unsaid = BTreeSet::new();
    loop {
        tokio::select! {
            () = stop.stopped() => return,
            event = events.next() => match event {
                Some(event) => keep(&mut pools, event),
                None => return,
            },
            _ = changes.changed() => {}
            _ = moves.changed() => {}
            () = sleep(AGAIN) => {}
        }
        if blocks.read(|blocks| blocks.synced) {
            let said =
                stop.bound(say(&objects, &pools, &blocks.load(), &nodes.load(), &mut unsaid)).await;
            if said.is_none() {
                return;
            }
            if stop.bound(sleep(PACE)).await.is_none() {
                return;
            }
        }
    }
}

/// `unsaid`: pools whose status could not be written; that is logged once.
async fn say(
    objects: &Objects,
    pools: &BTreeMap<String, AddressPool>,
    blocks: &Blocks,
    nodes: &Nodes,
    unsaid: &mut BTreeSet<String>,
) {
    let judged = pool::judge(pools.values());
    for (name, object) in pools {
        let Some(verdict) = judged.get(name.as_str()) else { continue };
        // In whole seconds, as Kubernetes has its own.
        let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
        let status = status(object, verdict, blocks, nodes, now);
        if object.status.as_ref() == Some(&status) {
            continue;
        }
        let mut object = object.clone();
        object.status = Some(status);
        match objects.apply_status(&object, Expected::Any, Deadline::after(CALL)).await {
            Ok(_) | Err(Error::NotFound { .. }) => {
                unsaid.remove(name);
            }
            Err(error) if unsaid.insert(name.clone()) => {
                let error = sentence(&error);
                warn!(pool = name, error, "cannot say how a pool is; it is tried again");
            }
            Err(error) => debug!(pool = name, %error, "still cannot say how a pool is"),
        }
    }
}

/// Of one pool, at `now`.
pub(super) fn status(
    object: &AddressPool,
    verdict: &Result<Pool, Arc<str>>,
    blocks: &Blocks,
    nodes: &Nodes,
    now: Timestamp,
) -> AddressPoolStatus {
    let name = name_of(object);
    let mine: Vec<_> = blocks.by_name.values().filter(|block| block.spec.pool == name).collect();
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
    let whole = verdict.as_ref().ok().cloned().or_else(|| Pool::of(object));
    let total = whole.as_ref().map_or(0, |pool| u64::from(pool.blocks()));
    let addresses = whole.as_ref().map_or(0, |pool| total * u64::from(pool.block_size()));
    let outside = |block: &&&Arc<AddressBlock>| {
        let networks = whole.as_ref().and_then(|pool| pool.block(block.spec.index));
        networks != Some(block.spec.networks())
    };
    let strangers = mine.iter().filter(outside).count() as u64;

    let exhausted = total > 0 && claimed - strangers >= total;
    // None without a message: an apply to a server of 1.20 turns an empty one into a null, and is
    // refused for it.
    let conditions = vec![
        match verdict {
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

/// What takes a person, in a sentence.
fn problems(
    outside: &[&Arc<AddressBlock>],
    mine: &[&Arc<AddressBlock>],
    nodes: &Nodes,
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
        Some(format!("block {}: {}", name_of(&***block), trust::misplaced(nodes, block)?))
    });
    // A node says its troubles on each of its blocks: once is enough.
    let troubles: BTreeSet<_> = troubles.collect();
    let mut all: Vec<_> = outside.chain(misplaced).chain(troubles).collect();
    let more = all.len().saturating_sub(TOLD);
    all.truncate(TOLD);
    let told = all.join("; ");
    match (told.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(told),
        (false, more) => Some(format!("{told}; and {more} more")),
    }
}

#[cfg(test)]
mod tests;
