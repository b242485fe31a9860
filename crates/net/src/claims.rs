//! `Claims`: this node's blocks: claimed before they are needed, given back when they are not.
//!
//! ```text
//! pools, blocks (watches) ──► snapshots ────────┬──► plan (pure) ──► store: create, delete
//! Index (what is used, who waits) ──────────────┘                └─► Addresses: adopt, bar, drop
//! ```
//!
//! Contract:
//! - A block is claimed by creating it; the store decides between two nodes. Which one is left to
//!   chance among all that are free, so that a thousand nodes that begin together seldom meet; who
//!   loses tries another.
//! - Claims go on beside the assignments, never within one. Half a block is kept free in every pool that
//!   is in use, and in the default one; who waits is counted on top, so a burst is one round of claims.
//! - A block that has been empty for [`IDLE`] and is not needed is given back: first it is dropped from
//!   the journal, on disk, then it is deleted from the store.
//! - While the store is away the blocks that are here are assigned from, and claims are tried again.
//! - A block that is here and that the store gives to another node, or that overlaps an older one, is
//!   assigned from no more; that is said in the log, by [`Claims::troubles`], and on the pool. A block
//!   that was deleted under its pods is claimed again.
//! - What the store says is believed only after it has told everything once.

mod claimer;
mod definitions;
mod plan;
mod tell;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use objects::kinds::{AddressBlock, AddressPool};
use objects::{Event, Id, Kind, Objects, Within};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use stallproof::readiness::Component;
use stallproof::{Snapshot, Stop, Tasks};

use crate::Addresses;
use crate::pool::{self, Pools, Shapes};
use claimer::Claimer;

/// How long a block is empty before it is given back.
pub const IDLE: Duration = Duration::from_secs(600);

/// Who this node is.
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    pub name: String,
    /// Where other nodes reach it; it may change.
    pub addresses: Snapshot<Vec<IpAddr>>,
}

/// All blocks there are, of every node.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    /// Whether the store has told them all, once; while it is away these are the last known.
    pub synced: bool,
    pub by_name: OrdMap<String, Arc<AddressBlock>>,
}

/// Clones are handles of the same.
#[derive(Clone, Debug)]
pub struct Claims {
    blocks: Snapshot<Blocks>,
    pools: Snapshot<Option<Pools>>,
    shapes: Snapshot<Option<Shapes>>,
    troubles: Snapshot<Vec<String>>,
    by_pool: Snapshot<BTreeMap<String, Vec<String>>>,
    meters: Meters,
}

#[derive(Clone, Debug, Default)]
struct Meters {
    claimed: Counter,
    lost: Counter,
    failed: Counter,
    returned: Counter,
}

impl Claims {
    /// Runs until `tasks` stops.
    pub fn start(
        objects: Objects,
        node: NodeIdentity,
        addresses: Addresses,
        tasks: &Tasks,
    ) -> Self {
        let claims = Self {
            blocks: Snapshot::default(),
            pools: Snapshot::default(),
            shapes: Snapshot::default(),
            troubles: Snapshot::default(),
            by_pool: Snapshot::default(),
            meters: Meters::default(),
        };
        let stop = tasks.stopping();
        let (pools, shapes) = (claims.pools.clone(), claims.shapes.clone());
        let watch = watch_pools(objects.clone(), pools, shapes, stop.clone());
        tasks.spawn("net-pools", watch);
        let watch = watch_blocks(objects.clone(), claims.blocks.clone(), stop.clone());
        tasks.spawn("net-blocks", watch);
        let (name, told) = (node.name.clone(), claims.clone());
        let tell = tell::run(objects.clone(), name, addresses.clone(), told, stop.clone());
        tasks.spawn("net-block-status", tell);
        let claimer = Claimer::new(objects, node, addresses, claims.clone());
        tasks.spawn("net-claims", claimer.run(stop));
        claims
    }

    /// Says whether the store has what pools and blocks are kept as: to `ready`, and to whoever waits
    /// for an address.
    pub fn watch_definitions(
        &self,
        objects: Objects,
        addresses: Addresses,
        ready: Component,
        tasks: &Tasks,
    ) {
        let watch = definitions::run(objects, self.clone(), addresses, ready, tasks.stopping());
        tasks.spawn("net-definitions", watch);
    }

    /// For routes, and for people.
    pub fn blocks(&self) -> Snapshot<Blocks> {
        self.blocks.clone()
    }

    /// What is claimed from, and what not, and why; none while the store has not told.
    pub fn pools(&self) -> Snapshot<Option<Pools>> {
        self.pools.clone()
    }

    /// How pools are cut into blocks; none while the store has not told.
    pub(crate) fn shapes(&self) -> Snapshot<Option<Shapes>> {
        self.shapes.clone()
    }

    /// What is wrong and takes a person, one sentence each.
    pub fn troubles(&self) -> Snapshot<Vec<String>> {
        self.troubles.clone()
    }

    pub fn register(&self, registry: &mut Registry) {
        let Meters { claimed, lost, failed, returned } = &self.meters;
        registry.register(
            "net_blocks_claimed",
            "Blocks that this node has claimed",
            claimed.clone(),
        );
        registry.register(
            "net_blocks_lost",
            "Blocks that another node claimed at the same moment",
            lost.clone(),
        );
        registry.register(
            "net_claims_failed",
            "Claims that the store did not take",
            failed.clone(),
        );
        registry.register("net_blocks_returned", "Blocks that were given back", returned.clone());
    }
}

/// Keeps `blocks` as the store tells.
pub(crate) async fn watch_blocks(objects: Objects, blocks: Snapshot<Blocks>, stop: Stop) {
    let mut events = objects.watch::<AddressBlock>(Within::default());
    while let Some(Some(event)) = stop.bound(events.next()).await {
        blocks.update(|blocks| {
            match event {
                Event::Restarted(all) => {
                    let named = |block: AddressBlock| (name_of(&block), Arc::new(block));
                    blocks.by_name = all.into_iter().map(named).collect();
                    blocks.synced = true;
                }
                Event::Applied(block) => {
                    blocks.by_name.insert(name_of(&block), Arc::new(block));
                }
                Event::Deleted(block) => {
                    blocks.by_name.remove(&name_of(&block));
                }
            }
            true
        });
    }
}

async fn watch_pools(
    objects: Objects,
    pools: Snapshot<Option<Pools>>,
    shapes: Snapshot<Option<Shapes>>,
    stop: Stop,
) {
    let mut there = BTreeMap::new();
    let mut events = objects.watch::<AddressPool>(Within::default());
    while let Some(Some(event)) = stop.bound(events.next()).await {
        keep(&mut there, event);
        shapes.publish(Some(pool::shapes(there.values())));
        pools.publish(Some(pool::judge(there.values())));
    }
}

/// Brings a map by name up to date.
pub(crate) fn keep<K: Kind>(there: &mut BTreeMap<String, K>, event: Event<K>) {
    match event {
        Event::Restarted(all) => {
            *there = all.into_iter().map(|object| (name_of(&object), object)).collect();
        }
        Event::Applied(object) => {
            there.insert(name_of(&object), object);
        }
        Event::Deleted(object) => {
            there.remove(&name_of(&object));
        }
    }
}

pub(crate) fn name_of(object: &impl Kind) -> String {
    Id::of(object).name
}
