//! `BlockClaims`: this node's blocks: claimed before they are needed, returned when they are not.
//!
//! ```text
//! pools, blocks (watches) ──► snapshots ─────────────┬──► plan (pure) ──► store: create, delete
//! AddressTable (what is used, how many wait) ────────┘                └─► Addresses: adopt, cordon, drop
//! ```
//!
//! Contract:
//! - A node claims a block by creating it; the store decides between two nodes. The node picks at random
//!   among all that are free, so that a thousand nodes that begin together seldom meet; the loser tries
//!   another.
//! - Claims go on beside the assignments, never within one. Half a block is kept free in every pool that
//!   is in use, and in the default one; waiting pods are counted on top, so a burst is one round of
//!   claims.
//! - A block that has been empty for [`IDLE`] and is not needed is returned: first it is dropped from
//!   the journal, on disk, then it is deleted from the store.
//! - While the store is away the node assigns from the blocks it has, and claims are tried again.
//! - A block of this node that the store gives to another node, or that overlaps an older one, is
//!   assigned from no more; the log, [`BlockClaims::troubles`] and the pool's status say so. A block
//!   that was deleted under its pods is claimed again.
//! - Nothing follows from the store's lists before both are complete.
//! - What changes elsewhere costs what changed, however many blocks there are.

mod block_status;
mod claimer;
mod definitions;
mod own_blocks;
mod plan;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use objects::kinds::AddressBlock;
use objects::{Kind, Objects, Watched, Within, reconcile};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use stallproof::readiness::Component;
use stallproof::{Ledger, Snapshot, Tasks};

use crate::Addresses;
use crate::pool::Pools;
use block_status::BlockStatusWriter;
use claimer::BlockClaimer;
use definitions::DefinitionsCheck;

/// How long a block is empty before it is returned.
pub const IDLE: Duration = Duration::from_secs(600);

/// This node's name and addresses.
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    pub name: String,
    /// Where other nodes reach this one; it may change.
    pub addresses: Snapshot<Vec<IpAddr>>,
}

/// The blocks of every node, by name; while the store is away these are the last known.
pub type Blocks = Watched<String, Arc<AddressBlock>>;

/// A handle; clones are the same.
#[derive(Clone, Debug)]
pub struct BlockClaims {
    blocks: Snapshot<Blocks>,
    pools: Snapshot<Pools>,
    troubles: Snapshot<BTreeMap<String, Vec<String>>>,
    metrics: ClaimMetrics,
}

#[derive(Clone, Debug, Default)]
struct ClaimMetrics {
    claimed: Counter,
    lost: Counter,
    failed: Counter,
    returned: Counter,
}

impl BlockClaims {
    /// Claims and returns blocks until `tasks` stops.
    pub fn start(
        objects: Objects,
        node: NodeIdentity,
        addresses: Addresses,
        ledger: &Ledger,
        tasks: &Tasks,
    ) -> Self {
        let claims = Self {
            blocks: objects.watched(Within::default(), tasks),
            pools: Pools::watch(&objects, tasks),
            troubles: Snapshot::default(),
            metrics: ClaimMetrics::default(),
        };
        let (name, stop) = (node.name.clone(), tasks.stopping());
        let status = BlockStatusWriter::new(
            objects.clone(),
            name.clone(),
            addresses.clone(),
            claims.clone(),
        );
        let pace = block_status::PACE;
        let write =
            reconcile("block-status", name.clone(), pace, status, ledger.clone(), stop.clone());
        tasks.spawn("net-block-status", write);
        let claimer = BlockClaimer::new(objects, node, addresses, claims.clone());
        let claim = reconcile("claim-blocks", name, claimer::PACE, claimer, ledger.clone(), stop);
        tasks.spawn("net-claims", claim);
        claims
    }

    /// Reports whether the store has the definitions of pools and blocks: to `ready`, and to whoever
    /// waits for an address.
    pub fn check_definitions(
        &self,
        objects: Objects,
        addresses: Addresses,
        ready: Component,
        ledger: &Ledger,
        tasks: &Tasks,
    ) {
        let check = DefinitionsCheck::new(objects, self, addresses, ready);
        let (pace, stop) = (definitions::PACE, tasks.stopping());
        let check =
            reconcile("check-definitions", String::new(), pace, check, ledger.clone(), stop);
        tasks.spawn("net-definitions", check);
    }

    pub fn blocks(&self) -> Snapshot<Blocks> {
        self.blocks.clone()
    }

    pub fn pools(&self) -> Snapshot<Pools> {
        self.pools.clone()
    }

    /// Returns what a person must act on, one sentence each.
    pub fn troubles(&self) -> Vec<String> {
        let sentence = |(pool, troubles): (&String, &Vec<String>)| {
            troubles.iter().map(|trouble| format!("pool {pool}: {trouble}")).collect::<Vec<_>>()
        };
        self.troubles.load().iter().flat_map(sentence).collect()
    }

    pub fn register(&self, registry: &mut Registry) {
        let ClaimMetrics { claimed, lost, failed, returned } = &self.metrics;
        for (name, help, counter) in [
            ("net_blocks_claimed", "Blocks that this node has claimed", claimed),
            ("net_blocks_lost", "Blocks that another node claimed at the same moment", lost),
            ("net_claims_failed", "Claims that the store did not take", failed),
            ("net_blocks_returned", "Blocks that were given back", returned),
        ] {
            registry.register(name, help, counter.clone());
        }
    }
}

pub(crate) fn name_of(object: &impl Kind) -> String {
    objects::Id::of(object).name
}
