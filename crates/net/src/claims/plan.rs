//! Plans what to do about this node's blocks: a pure function of what is known.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use objects::kinds::AddressBlock;
use tokio::time::Instant;

use super::own_blocks::OwnBlocks;
use super::{Blocks, name_of};
use crate::addresses::{AddressTable, LocalBlock};
use crate::pool::{DEFAULT, Pool, Pools};
use crate::trust;

/// How long a pool counts as in use after a pod found no address in it.
const DEMAND_LASTS: Duration = Duration::from_secs(300);
/// The most blocks of a pool that are claimed at once: a burst of any node's pods, and a bound on a
/// mistake.
const MOST_CLAIMS: u32 = 64;

/// Everything that a plan follows from.
#[derive(Debug)]
pub(super) struct ClaimInputs<'a> {
    pub(super) node: &'a str,
    pub(super) node_addresses: &'a [IpAddr],
    pub(super) pools: &'a Pools,
    pub(super) blocks: &'a Blocks,
    /// Those of `blocks` that are this node's.
    pub(super) own: &'a OwnBlocks,
    pub(super) table: &'a AddressTable,
    /// The uids of blocks that this node has returned, whatever a late watch still says.
    pub(super) returned: &'a HashSet<String>,
    /// The names of blocks that have been empty for long.
    pub(super) idle: &'a BTreeSet<String>,
    pub(super) now: Instant,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct ClaimPlan {
    /// Blocks that the store says are this node's, to be assigned from.
    pub(super) adopt: Vec<Arc<AddressBlock>>,
    /// Blocks to be assigned from no more, and why.
    pub(super) cordon: BTreeMap<String, String>,
    /// Empty blocks that are not this node's: to be dropped from the journal.
    pub(super) forget: Vec<String>,
    /// Blocks that the journal has and the store does not.
    pub(super) missing: Vec<String>,
    /// Blocks of this node whose node addresses are no longer true.
    pub(super) correct: Vec<Arc<AddressBlock>>,
    /// How many more blocks to claim, by pool.
    pub(super) claim: Vec<(Arc<str>, u32)>,
    /// Certain blocks to claim, for pods that chose their addresses.
    pub(super) claim_these: BTreeSet<(Arc<str>, u32)>,
    /// Why addresses that pods chose cannot be had here.
    pub(super) unobtainable: BTreeMap<IpAddr, String>,
    /// Blocks that have been empty for long and are not needed.
    pub(super) give_back: Vec<String>,
    /// Blocks that were returned and are still in the store.
    pub(super) delete: Vec<Arc<AddressBlock>>,
    /// What a person must act on, by pool.
    pub(super) troubles: BTreeMap<String, Vec<String>>,
}

impl ClaimPlan {
    /// Says whether the plan asks for anything that may fail.
    pub(super) fn is_to_do(&self) -> bool {
        let Self { adopt, cordon, forget, missing, correct, claim, claim_these, .. } = self;
        let Self { give_back, delete, .. } = self;
        !(adopt.is_empty() && cordon.is_empty() && forget.is_empty() && missing.is_empty())
            || !(correct.is_empty() && claim.is_empty() && claim_these.is_empty())
            || !(give_back.is_empty() && delete.is_empty())
    }
}

pub(super) fn plan(inputs: &ClaimInputs<'_>) -> ClaimPlan {
    let mut plan = ClaimPlan::default();
    let ClaimInputs { node, node_addresses, pools, blocks, own, table, returned, .. } = inputs;
    for (name, others) in own.iter() {
        let Some(block) = blocks.get(name) else { continue };
        if block.metadata.uid.as_ref().is_some_and(|uid| returned.contains(uid)) {
            plan.delete.push(Arc::clone(block));
            continue;
        }
        // A block that others wrote in this node's name is not this node's; one that the journal has is.
        let recorded = table.block(name).is_some_and(|h| h.networks() == block.spec.networks());
        if let Some(why) = trust::mismatch(pools, block).filter(|_| !recorded) {
            let why = format!("block {name} is not taken for this node's: {why}");
            plan.troubles.entry(block.spec.pool.clone()).or_default().push(why);
            continue;
        }
        match older_overlap(others.iter().filter_map(|other| blocks.get(other)), block) {
            Some(other) => contest(&mut plan, table, name, &block.spec.pool, &other),
            None if needs_adoption(table.block(name), block) => plan.adopt.push(Arc::clone(block)),
            None => {}
        }
        if block.spec.node_addresses != *node_addresses {
            plan.correct.push(Arc::clone(block));
        }
    }
    for (name, block) in table.blocks() {
        match blocks.get(name) {
            Some(there) if there.spec.node == *node => {}
            Some(there) => {
                let why = format!("the store says that block {name} is node {}'s", there.spec.node);
                contest(&mut plan, table, name, block.pool(), &why);
            }
            None => plan.missing.push(name.to_owned()),
        }
    }
    for (name, pool) in pools.iter() {
        balance(&mut plan, inputs, name, pool.claimable().ok());
    }
    for (address, pool) in &table.wanted {
        fixed(&mut plan, inputs, *address, pool);
    }
    // Pools that are gone keep nothing.
    let gone: BTreeSet<_> = table.blocks().map(|(_, block)| Arc::clone(&block.pool)).collect();
    for name in gone.iter().filter(|name| !pools.contains_key(*name)) {
        balance(&mut plan, inputs, name, None);
    }
    plan
}

/// Finds the first of the blocks that overlap this one and are older; returns a sentence that says so.
fn older_overlap<'a>(
    mut overlapping: impl Iterator<Item = &'a Arc<AddressBlock>>,
    block: &AddressBlock,
) -> Option<String> {
    let age = |block: &AddressBlock| -> (Option<Timestamp>, String) {
        (block.metadata.creation_timestamp.as_ref().map(|time| time.0), name_of(block))
    };
    let this = age(block);
    let other = overlapping.find(|other| age(other) < this)?;
    Some(format!(
        "block {} ({}) overlaps block {} of node {}, which is older",
        name_of(block),
        block.spec.networks(),
        name_of(&**other),
        other.spec.node
    ))
}

fn needs_adoption(here: Option<&LocalBlock>, block: &AddressBlock) -> bool {
    here.is_none_or(|here| here.cordoned().is_some() || here.networks() != block.spec.networks())
}

/// Plans for a block that must not be assigned from.
fn contest(plan: &mut ClaimPlan, table: &AddressTable, name: &str, pool: &str, why: &str) {
    let Some(here) = table.block(name) else {
        // It was not adopted, so nothing of it was assigned.
        plan.troubles.entry(pool.to_owned()).or_default().push(why.to_owned());
        return;
    };
    if here.used() == 0 {
        plan.forget.push(name.to_owned());
        return;
    }
    if here.cordoned() != Some(why) {
        plan.cordon.insert(name.to_owned(), why.to_owned());
    }
    let used = here.used();
    let trouble = format!(
        "{why}, and {used} pods of this node have addresses of it: delete those pods, and they get \
         others"
    );
    plan.troubles.entry(pool.to_owned()).or_default().push(trouble);
}

/// Plans to claim the block of an address that a pod chose, or says why that cannot be.
fn fixed(plan: &mut ClaimPlan, inputs: &ClaimInputs<'_>, address: IpAddr, name: &Arc<str>) {
    let Some(pool) = inputs.pools.get(name).and_then(|judged| judged.claimable().ok()) else {
        return;
    };
    let Some(index) = pool.index_of(address) else {
        plan.unobtainable.insert(address, format!("pool {name} has no address {address}"));
        return;
    };
    let block = AddressBlock::name_of(name, index);
    match inputs.blocks.get(&block) {
        Some(there) if there.spec.node != inputs.node => {
            let node = &there.spec.node;
            let why = format!(
                "{address} is of block {block}, which is node {node}'s: run the pod there, or keep such \
                 addresses in a pool of their own with blockSizeBits: 0"
            );
            plan.unobtainable.insert(address, why);
        }
        // It is about to be adopted, or is cordoned.
        Some(_) => {}
        None if inputs.table.block(&block).is_none() => {
            plan.claim_these.insert((Arc::clone(name), index));
        }
        None => {}
    }
}

/// Plans to claim the blocks that a pool lacks, or to return those it has too many of.
fn balance(plan: &mut ClaimPlan, inputs: &ClaimInputs<'_>, name: &Arc<str>, pool: Option<&Pool>) {
    let ClaimInputs { table, idle, now, .. } = inputs;
    let mine: Vec<_> = table.blocks().filter(|(_, block)| block.pool == *name).collect();
    let settled = |block: &str| {
        plan.cordon.contains_key(block) || plan.forget.iter().any(|other| other == block)
    };
    let usable = || mine.iter().filter(|(block, _)| !settled(block));
    let adopted = plan.adopt.iter().filter(|block| *block.spec.pool == **name);
    let coming: u32 =
        adopted.map(|block| 1 << block.spec.networks().host_bits().unwrap_or(0)).sum();
    let mut free = coming + usable().map(|(_, block)| block.free()).sum::<u32>();

    let demand = table.demand.get(name);
    let waiting = demand.map_or(0, |demand| demand.waiting);
    let used: u32 = mine.iter().map(|(_, block)| block.used()).sum();
    let demanded = demand.is_some_and(|demand| *now < demand.last + DEMAND_LASTS);
    let wanted = match pool {
        Some(pool) if &**name == DEFAULT || used > 0 || waiting > 0 || demanded => {
            // A pool of single addresses is for those who choose theirs: a spare one would be somebody's.
            let spare = match &**name == DEFAULT {
                true => pool.block_size().div_ceil(2),
                false => pool.block_size() / 2,
            };
            waiting + spare
        }
        _ => 0,
    };
    // What rests is given where there is nothing else: better another block.
    let foreign: u32 = usable().map(|(_, block)| table.foreign_in(block)).sum();
    let rested = free.saturating_sub(table.resting(name, *now)).saturating_sub(foreign);
    if let Some(pool) = pool
        && rested < wanted
    {
        let blocks = (wanted - rested).div_ceil(pool.block_size()).min(MOST_CLAIMS);
        plan.claim.push((Arc::clone(name), blocks));
        return;
    }
    let mut surplus = Vec::new();
    let empty = |here: &LocalBlock| here.used() == 0 && table.foreign_in(here) == 0;
    for (block, here) in usable().filter(|(block, here)| empty(here) && idle.contains(*block)) {
        if free - here.free() >= wanted {
            free -= here.free();
            surplus.push((*block).to_owned());
        }
    }
    plan.give_back.extend(surplus);
}

#[cfg(test)]
mod tests;
