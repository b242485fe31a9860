//! Pools as `fairlead net pools` lists them. The JSON is a contract.
//!
//! The blocks are counted here, not read from a pool's status: that is as old as the last leader's look,
//! and there may be no leader.

use objects::kinds::AddressPoolStatus;
use serde_json::{Value, json};

use super::status;
use crate::claims::Blocks;
use crate::pool::{JudgedPool, Pools};

/// Says that no leader has looked at a pool since it was made or changed.
const NOBODY_LOOKED: &str = "no controller has looked at it yet";

/// Returns a row for each pool. While not all blocks are listed, a row is what the last leader saw.
pub(crate) fn rows(pools: &Pools, blocks: &Blocks) -> Vec<Value> {
    let row = |judged: &JudgedPool| {
        let object = &judged.object;
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let written = object.status.clone();
        let counted = blocks
            .synced
            .then(|| status::status(judged, blocks, None, jiff::Timestamp::UNIX_EPOCH));
        let is_current = |status: &AddressPoolStatus| {
            status.observed_generation.is_some()
                && status.observed_generation == object.metadata.generation
        };
        let observed = written.as_ref().is_some_and(is_current);
        let status = counted.or(written).unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.r#type == "Ready");
        let trouble = ready.filter(|c| c.status == "False").map(|c| c.message.as_str());
        let unseen = (!observed).then_some(NOBODY_LOOKED);
        let troubles: Vec<_> = trouble.into_iter().chain(unseen).collect();
        let trouble = (!troubles.is_empty()).then(|| troubles.join("; "));
        let subnets = object.spec.subnets.iter().flat_map(|s| s.ipv4.iter().chain(&s.ipv6));
        json!({
            "name": name, "subnets": subnets.collect::<Vec<_>>(),
            "blockSizeBits": object.spec.block_size_bits,
            "blocks": status.blocks, "claimed": status.claimed, "used": status.used,
            "free": status.free, "nodes": status.nodes, "observed": observed, "trouble": trouble,
        })
    };
    pools.values().map(row).collect()
}

#[cfg(test)]
mod tests;
