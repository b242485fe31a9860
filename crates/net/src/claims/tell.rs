//! Tells the store how this node's blocks are used, now and then: for people, and for the leader's
//! sums. A loop of its own, so that a slow store keeps no claim waiting for this.

use std::collections::BTreeMap;
use std::time::Duration;

use objects::kinds::AddressBlockStatus;
use objects::{Expected, Objects};
use stallproof::{Deadline, Stop};
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::Claims;
use crate::Addresses;

/// For one call of the store.
const CALL: Duration = Duration::from_secs(5);
/// How often a block's status is written, at most: a thousand nodes are then some tens of writes a
/// second at worst.
const TELL: Duration = Duration::from_secs(30);
/// Between two looks.
const PACE: Duration = Duration::from_secs(1);
/// As the schema has it.
const LONGEST_TROUBLE: usize = 4096;

pub(super) async fn run(
    objects: Objects,
    node: String,
    addresses: Addresses,
    claims: Claims,
    stop: Stop,
) {
    let mut told = BTreeMap::new();
    while stop.bound(sleep(PACE)).await.is_some() {
        let told = tell(&objects, &node, &addresses, &claims, &mut told);
        if stop.bound(told).await.is_none() {
            return;
        }
    }
}

/// `told`: when which block's status was last written.
async fn tell(
    objects: &Objects,
    node: &str,
    addresses: &Addresses,
    claims: &Claims,
    told: &mut BTreeMap<String, Instant>,
) {
    let (blocks, index) = (claims.blocks.load(), addresses.view());
    let troubles = claims.by_pool.load();
    told.retain(|name, _| index.block(name).is_some());
    for (name, here) in index.blocks() {
        let Some(there) = blocks.by_name.get(name).filter(|there| there.spec.node == node) else {
            continue;
        };
        let trouble = troubles.get(here.pool()).map(|troubles| troubles.join("; "));
        let trouble = trouble.map(|text| text.chars().take(LONGEST_TROUBLE).collect());
        let (used, free) = (here.used(), here.size() - here.used());
        let status = AddressBlockStatus { used, free, trouble };
        let said = there.status.as_ref();
        let grave = said.and_then(|said| said.trouble.as_ref()) != status.trouble.as_ref();
        let recent = told.get(name).is_some_and(|at| at.elapsed() < TELL);
        if said == Some(&status) || (recent && !grave) {
            continue;
        }
        told.insert(name.to_owned(), Instant::now());
        let mut block = (**there).clone();
        block.status = Some(status);
        let deadline = Deadline::after(CALL);
        if let Err(error) = objects.apply_status(&block, Expected::Any, deadline).await {
            // A store that is away is not asked for each of them.
            return debug!(block = name, %error, "cannot tell how a block is used");
        }
    }
}
