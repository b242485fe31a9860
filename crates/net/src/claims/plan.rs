//! What to do about this node's blocks, as a pure function of what is known.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use objects::kinds::AddressBlock;
use tokio::time::Instant;

use super::{Blocks, name_of};
use crate::addresses::{Block, Index};
use crate::pool::{DEFAULT, Pool, Pools, Shapes};
use crate::trust;

/// How long a pool counts as in use after somebody found no address in it.
const DEMAND_LASTS: Duration = Duration::from_secs(300);
/// The most blocks claimed in one round: a burst of any node's pods, and a bound on a mistake.
const MOST_CLAIMS: u32 = 64;

/// Everything that is known.
#[derive(Debug)]
pub(super) struct Situation<'a> {
    pub(super) node: &'a str,
    pub(super) node_addresses: &'a [IpAddr],
    pub(super) pools: &'a Pools,
    pub(super) shapes: &'a Shapes,
    pub(super) blocks: &'a Blocks,
    pub(super) index: &'a Index,
    /// By uid: blocks that this node has given back, whatever a late watch still says.
    pub(super) returned: &'a HashSet<String>,
    /// By name: blocks that have been empty for long.
    pub(super) idle: &'a BTreeSet<String>,
    pub(super) now: Instant,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Ours in the store, and to be assigned from.
    pub(super) adopt: Vec<Arc<AddressBlock>>,
    /// To be assigned from no more, and why.
    pub(super) bar: BTreeMap<String, String>,
    /// Of no use any more, and empty: to be dropped here.
    pub(super) forget: Vec<String>,
    /// Ours by the journal; the store does not have them.
    pub(super) missing: Vec<String>,
    /// Ours, with addresses of this node that are no longer true.
    pub(super) correct: Vec<Arc<AddressBlock>>,
    /// Pools, and how many more blocks of each.
    pub(super) claim: Vec<(Arc<str>, u32)>,
    /// Empty for long, and not needed.
    pub(super) give_back: Vec<String>,
    /// Given back, and still in the store.
    pub(super) delete: Vec<Arc<AddressBlock>>,
    /// What a person must hear of, by pool.
    pub(super) troubles: BTreeMap<String, Vec<String>>,
}

pub(super) fn plan(situation: &Situation<'_>) -> Plan {
    let mut plan = Plan::default();
    let Situation { node, node_addresses, shapes, blocks, index, returned, .. } = situation;
    for block in blocks.by_name.values().filter(|block| block.spec.node == *node) {
        let name = name_of(&**block);
        if block.metadata.uid.as_ref().is_some_and(|uid| returned.contains(uid)) {
            plan.delete.push(Arc::clone(block));
            continue;
        }
        // What others wrote in this node's name is not ours; what the journal has is.
        let recorded = index.block(&name).is_some_and(|h| h.networks() == block.spec.networks());
        if let Some(why) = trust::foreign(shapes, block).filter(|_| !recorded) {
            let why = format!("block {name} is not taken for this node's: {why}");
            plan.troubles.entry(block.spec.pool.clone()).or_default().push(why);
            continue;
        }
        match older_overlap(blocks, block) {
            Some(other) => contest(&mut plan, index, &name, &block.spec.pool, &other),
            None if needs_adoption(index.block(&name), block) => plan.adopt.push(Arc::clone(block)),
            None => {}
        }
        if block.spec.node_addresses != *node_addresses {
            plan.correct.push(Arc::clone(block));
        }
    }
    for (name, block) in index.blocks() {
        match blocks.by_name.get(name) {
            Some(there) if there.spec.node == *node => {}
            Some(there) => {
                let why = format!("the store says that block {name} is node {}'s", there.spec.node);
                contest(&mut plan, index, name, block.pool(), &why);
            }
            None => plan.missing.push(name.to_owned()),
        }
    }
    for (name, pool) in situation.pools {
        balance(&mut plan, situation, name, pool.as_ref().ok());
    }
    // Pools that are gone keep nothing.
    let gone: BTreeSet<_> = index.blocks().map(|(_, block)| Arc::clone(&block.pool)).collect();
    for name in gone.iter().filter(|name| !situation.pools.contains_key(*name)) {
        balance(&mut plan, situation, name, None);
    }
    plan
}

/// Another block of the store that overlaps this one and was there before it, as a sentence.
fn older_overlap(blocks: &Blocks, block: &AddressBlock) -> Option<String> {
    let age = |block: &AddressBlock| -> (Option<Timestamp>, String) {
        (block.metadata.creation_timestamp.as_ref().map(|time| time.0), name_of(block))
    };
    let (networks, this) = (block.spec.networks(), age(block));
    let older = |other: &&Arc<AddressBlock>| {
        other.spec.networks().overlaps(&networks)
            && age(other) < this
            && !trust::is_impossible(other)
    };
    let other = blocks.by_name.values().find(older)?;
    Some(format!(
        "block {} ({networks}) overlaps block {} of node {}, which is older",
        name_of(block),
        name_of(&**other),
        other.spec.node
    ))
}

fn needs_adoption(here: Option<&Block>, block: &AddressBlock) -> bool {
    here.is_none_or(|here| here.barred().is_some() || here.networks() != block.spec.networks())
}

/// A block that must not be assigned from.
fn contest(plan: &mut Plan, index: &Index, name: &str, pool: &str, why: &str) {
    let Some(here) = index.block(name) else {
        // Not adopted, so nothing of it was assigned; it is the store's to settle.
        plan.troubles.entry(pool.to_owned()).or_default().push(why.to_owned());
        return;
    };
    if here.used() == 0 {
        plan.forget.push(name.to_owned());
        return;
    }
    if here.barred() != Some(why) {
        plan.bar.insert(name.to_owned(), why.to_owned());
    }
    let used = here.used();
    let trouble = format!(
        "{why}, and {used} pods of this node have addresses of it: delete those pods, and they get \
         others"
    );
    plan.troubles.entry(pool.to_owned()).or_default().push(trouble);
}

/// Claims what a pool lacks, or gives back what it has too much of.
fn balance(plan: &mut Plan, situation: &Situation<'_>, name: &Arc<str>, pool: Option<&Pool>) {
    let Situation { index, idle, now, .. } = situation;
    let mine: Vec<_> = index.blocks().filter(|(_, block)| block.pool == *name).collect();
    let settled = |block: &str| {
        plan.bar.contains_key(block) || plan.forget.iter().any(|other| other == block)
    };
    let usable = || mine.iter().filter(|(block, _)| !settled(block));
    let adopted = plan.adopt.iter().filter(|block| *block.spec.pool == **name);
    let coming: u32 =
        adopted.map(|block| 1 << block.spec.networks().host_bits().unwrap_or(0)).sum();
    let mut free = coming + usable().map(|(_, block)| block.free()).sum::<u32>();

    let demand = index.demand.get(name);
    let waiting = demand.map_or(0, |demand| demand.waiting);
    let used: u32 = mine.iter().map(|(_, block)| block.used()).sum();
    let demanded = demand.is_some_and(|demand| *now < demand.last + DEMAND_LASTS);
    let wanted = match pool {
        Some(pool) if &**name == DEFAULT || used > 0 || waiting > 0 || demanded => {
            waiting + pool.block_size().div_ceil(2)
        }
        _ => 0,
    };
    if let Some(pool) = pool
        && free < wanted
    {
        let blocks = (wanted - free).div_ceil(pool.block_size()).min(MOST_CLAIMS);
        plan.claim.push((Arc::clone(name), blocks));
        return;
    }
    let mut surplus = Vec::new();
    for (block, here) in usable().filter(|(block, here)| here.used() == 0 && idle.contains(*block))
    {
        if free - here.free() >= wanted {
            free -= here.free();
            surplus.push((*block).to_owned());
        }
    }
    plan.give_back.extend(surplus);
}

#[cfg(test)]
mod tests;
