//! `BlockClaimer`: carries out what is planned about this node's blocks.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use jiff::Timestamp;
use objects::kinds::{AddressBlock, AddressBlockSpec, Networks};
use objects::{Attempt, Error, Expected, Id, Next, Objects, Pace, Reconciler, Version};
use stallproof::backoff::Curve;
use stallproof::snapshot::Changes;
use stallproof::{Backoff, Deadline, sentence};
use tokio::time::{Instant, sleep};
use tracing::{debug, error, info, warn};

use super::own_blocks::OwnBlocks;
use super::plan::{ClaimInputs, ClaimPlan, plan};
use super::{BlockClaims, Blocks, IDLE, NodeIdentity, name_of};
use crate::Addresses;
use crate::addresses::{AddressTable, BlockError, PoolAvailability};
use crate::pool::{JudgedPool, Pool, Pools};
use crate::trust;

/// A block's annotation: when a process of its node found it in the store and took it.
const ADOPTED: &str = "fairlead.dev/adopted";
/// How long one call of the store may take, and one change of the journal.
const CALL: Duration = Duration::from_secs(5);
/// How long a pool is left alone after a claim that failed.
const AGAIN: Curve = Curve { first: Duration::from_millis(200), most: Duration::from_secs(10) };
/// How many races one claim may lose before it has failed: by chance, among free blocks, it loses one
/// or two.
const RACES: u32 = 32;
/// How many free numbers are tried: where so many overlap blocks of others, all do.
const PICKS: u32 = 1_000;
/// How long a lost block is left alone: until the watch has surely told of it.
const LOST: Duration = Duration::from_secs(30);
/// How long changes are gathered into one attempt: nothing to a pod that needs a block soon.
const GATHER: Duration = Duration::from_millis(20);
/// How long after an attempt with something to do the next one is made: what failed is tried again.
const UNDONE: Duration = Duration::from_secs(15);
/// Some things only time changes: hence an attempt now and then. An attempt's own calls have deadlines.
pub(super) const PACE: Pace = Pace {
    attempt: Duration::from_secs(600),
    resync: Duration::from_secs(60),
    settle: Duration::ZERO,
    retry: AGAIN,
};

pub(super) struct BlockClaimer {
    objects: Objects,
    node: NodeIdentity,
    addresses: Addresses,
    claims: BlockClaims,
    own: OwnBlocks,
    /// The uids of blocks that were returned, until the watch has told that they are gone.
    returned: HashSet<String>,
    /// Since when each block is empty.
    empty: BTreeMap<String, Instant>,
    /// Blocks that other nodes claimed a moment before this one.
    lost: BTreeMap<String, Instant>,
    /// The claim of each pool that the store has not answered.
    unsure: BTreeMap<Arc<str>, AddressBlock>,
    failing: BTreeMap<Arc<str>, FailingPool>,
    exhausted: BTreeSet<Arc<str>>,
    pools: Changes<Pools>,
    blocks: Changes<Blocks>,
    table: Changes<AddressTable>,
    own_addresses: Changes<Vec<IpAddr>>,
}

/// A pool whose claims fail.
struct FailingPool {
    backoff: Backoff,
    until: Instant,
    why: Arc<str>,
}

/// The outcome of one claim.
enum ClaimOutcome {
    Claimed,
    Exhausted,
    Failed(String),
}

impl BlockClaimer {
    pub(super) fn new(
        objects: Objects,
        node: NodeIdentity,
        addresses: Addresses,
        claims: BlockClaims,
    ) -> Self {
        Self {
            pools: claims.pools.subscribe(),
            blocks: claims.blocks.subscribe(),
            table: addresses.changes(),
            own_addresses: node.addresses.subscribe(),
            own: OwnBlocks::new(&node.name),
            objects,
            node,
            addresses,
            claims,
            returned: HashSet::new(),
            empty: BTreeMap::new(),
            lost: BTreeMap::new(),
            unsure: BTreeMap::new(),
            failing: BTreeMap::new(),
            exhausted: BTreeSet::new(),
        }
    }

    /// Plans and carries out; says when to do so again, if not when something changes.
    pub(super) async fn round(&mut self) -> Option<Duration> {
        let (pools, blocks) = (self.claims.pools.load(), self.claims.blocks.load());
        if !pools.synced() || !blocks.synced {
            return None;
        }
        let now = Instant::now();
        let idle = self.look_for_idle(now);
        self.lost.retain(|_, at| now.duration_since(*at) < LOST);
        self.own.follow(&blocks);
        let own = || self.own.iter().filter_map(|(name, _)| blocks.get(name));
        self.returned.retain(|uid| own().any(|block| block.metadata.uid.as_ref() == Some(uid)));

        let table = self.addresses.view();
        let node_addresses = self.node.addresses.load();
        let plan = plan(&ClaimInputs {
            node: &self.node.name,
            node_addresses: &node_addresses,
            pools: &pools,
            blocks: &blocks,
            own: &self.own,
            table: &table,
            returned: &self.returned,
            idle: &idle,
            now,
        });
        drop((table, blocks));
        let undone = plan.is_to_do().then_some(UNDONE);
        self.carry_out(plan, &pools).await;
        let now = Instant::now();
        let idle = self.empty.values().map(|since| (*since + IDLE).saturating_duration_since(now));
        idle.filter(|wait| !wait.is_zero()).chain(undone).min()
    }

    fn look_for_idle(&mut self, now: Instant) -> BTreeSet<String> {
        let table = self.addresses.view();
        let empty = |name: &String| table.block(name).is_some_and(|block| block.used() == 0);
        self.empty.retain(|name, _| empty(name));
        for (name, _) in table.blocks().filter(|(_, block)| block.used() == 0) {
            self.empty.entry(name.to_owned()).or_insert(now);
        }
        let long = self.empty.iter().filter(|(_, since)| now.duration_since(**since) >= IDLE);
        long.map(|(name, _)| name.clone()).collect()
    }

    async fn carry_out(&mut self, plan: ClaimPlan, pools: &Pools) {
        // The journal's part comes first: it waits for no store.
        for (block, why) in &plan.cordon {
            error!(block, why, "nothing more is assigned from a block");
            self.noted(block, self.addresses.cordon(block, why, call()).await);
        }
        for block in &plan.forget {
            warn!(block, "an empty block is another node's, and is dropped");
            self.noted(block, self.addresses.drop_if_empty(block, call()).await);
        }
        for block in &plan.adopt {
            self.adopt_found(block).await;
        }
        self.claims.troubles.publish(plan.troubles.clone());

        for (name, blocks) in &plan.claim {
            if let Some(Ok(pool)) = pools.get(name).map(JudgedPool::claimable) {
                self.claim(pool, *blocks).await;
            }
        }
        for (name, index) in &plan.claim_these {
            if let Some(Ok(pool)) = pools.get(name).map(JudgedPool::claimable) {
                self.claim_this(pool, *index).await;
            }
        }
        let unobtainable = plan.unobtainable.iter();
        let unobtainable =
            unobtainable.map(|(address, why)| (*address, Arc::<str>::from(why.as_str())));
        self.addresses.set_unobtainable(unobtainable.collect()).await;
        self.publish_availability(&plan, pools).await;
        for block in &plan.missing {
            self.restore(block).await;
        }
        for block in &plan.correct {
            self.correct(block).await;
        }
        for block in &plan.delete {
            self.delete(block).await;
        }
        for block in &plan.give_back {
            self.give_back(block).await;
        }
    }

    /// Publishes the availability of the pools, for requests that wait for a block.
    async fn publish_availability(&mut self, plan: &ClaimPlan, pools: &Pools) {
        let lacking: BTreeSet<_> = plan.claim.iter().map(|(name, _)| name).collect();
        self.failing.retain(|name, _| lacking.contains(name));
        self.exhausted.retain(|name| lacking.contains(name));
        self.unsure.retain(|name, _| lacking.contains(name));
        let availability = |name: &Arc<str>, pool: &JudgedPool| match pool.claimable() {
            Err(why) => {
                PoolAvailability::Exhausted(format!("nothing is claimed from it: {why}").into())
            }
            Ok(pool) if self.exhausted.contains(name) => {
                let blocks = pool.blocks();
                let why = format!(
                    "all its {blocks} blocks are claimed; append a subnet to AddressPool/{name}"
                );
                PoolAvailability::Exhausted(why.into())
            }
            Ok(_) => match self.failing.get(name) {
                Some(failing) => PoolAvailability::Failing(Arc::clone(&failing.why)),
                None => PoolAvailability::Open,
            },
        };
        let all: OrdMap<_, _> =
            pools.iter().map(|(name, pool)| (Arc::clone(name), availability(name, pool))).collect();
        if self.addresses.view().availability.as_ref() != Some(&all) {
            self.addresses.set_availability(all).await;
        }
    }

    async fn claim(&mut self, pool: &Pool, blocks: u32) {
        let name = pool.name();
        if self.failing.get(name).is_some_and(|failing| Instant::now() < failing.until) {
            return;
        }
        for _ in 0..blocks {
            match self.claim_one(pool).await {
                ClaimOutcome::Claimed => {
                    self.exhausted.remove(name);
                    if self.failing.remove(name).is_some() {
                        info!(pool = &**name, "blocks can be claimed again");
                    }
                }
                ClaimOutcome::Exhausted => {
                    // Else the time of the next try would be in the past for as long as none is left.
                    self.failing.remove(name);
                    if self.exhausted.insert(Arc::clone(name)) {
                        warn!(pool = &**name, "no block is left to claim");
                    }
                    return;
                }
                ClaimOutcome::Failed(why) => return self.failed(name, &why),
            }
        }
    }

    fn failed(&mut self, pool: &Arc<str>, why: &str) {
        self.claims.metrics.failed.inc();
        let failing = self.failing.entry(Arc::clone(pool)).or_insert_with(|| FailingPool {
            backoff: Backoff::new(AGAIN),
            until: Instant::now(),
            why: "".into(),
        });
        if failing.why.is_empty() {
            warn!(pool = &**pool, why, "no block can be claimed; it is tried again");
        }
        failing.why = format!("no block can be claimed: {why}").into();
        failing.until = Instant::now() + failing.backoff.failed().wait;
    }

    async fn claim_one(&mut self, pool: &Pool) -> ClaimOutcome {
        for _ in 0..RACES {
            let unsure = self.unsure.remove(pool.name());
            let asked = unsure.is_some();
            let Some(block) = unsure.or_else(|| self.pick(pool)) else {
                return ClaimOutcome::Exhausted;
            };
            let made = match self.objects.create(&block, call()).await {
                // Of an earlier try that was not answered.
                Err(Error::Exists { .. }) if asked => {
                    let found = self.objects.get::<AddressBlock>(&Id::of(&block), call()).await;
                    found.map(|found| found.filter(|found| found.spec.node == self.node.name))
                }
                Err(Error::Exists { .. }) => Ok(None),
                Ok(made) => {
                    let made = Arc::new(made);
                    self.claims.metrics.claimed.inc();
                    info!(block = name_of(&*made), "claimed a block");
                    self.publish(&made);
                    self.adopt(&made).await;
                    return ClaimOutcome::Claimed;
                }
                Err(error) => Err(error),
            };
            match made {
                Ok(Some(block)) => {
                    self.claims.metrics.claimed.inc();
                    info!(block = name_of(&block), "claimed a block, some time ago");
                    self.adopt_found(&Arc::new(block)).await;
                    return ClaimOutcome::Claimed;
                }
                Ok(None) => {
                    self.claims.metrics.lost.inc();
                    debug!(block = name_of(&block), "another node was faster");
                    self.lost.insert(name_of(&block), Instant::now());
                }
                Err(error) => {
                    // It may have been made all the same: the same one is asked for again.
                    self.unsure.insert(Arc::clone(pool.name()), block);
                    return ClaimOutcome::Failed(sentence(&error));
                }
            }
        }
        ClaimOutcome::Failed(format!("other nodes were faster {RACES} times"))
    }

    /// Claims a certain block. Where another node is faster, the watch tells of it.
    async fn claim_this(&mut self, pool: &Pool, index: u32) {
        let name = &**pool.name();
        let Some(networks) = pool.block(index) else { return };
        let block = self.block(&AddressBlock::name_of(name, index), name, index, networks);
        match self.objects.create(&block, call()).await {
            Ok(block) => {
                self.claims.metrics.claimed.inc();
                info!(block = name_of(&block), "claimed a block, for a pod that chose its address");
                let block = Arc::new(block);
                self.publish(&block);
                self.adopt(&block).await;
            }
            Err(Error::Exists { .. }) => {
                self.claims.metrics.lost.inc();
            }
            Err(error) => {
                let why = sentence(&error);
                warn!(
                    block = name_of(&block),
                    why, "a block that a pod needs cannot be claimed yet"
                );
                self.claims.metrics.failed.inc();
            }
        }
    }

    /// Picks one of the free blocks at random.
    fn pick(&self, pool: &Pool) -> Option<AddressBlock> {
        let blocks = self.claims.blocks.load();
        let name = &**pool.name();
        let mut taken: BTreeSet<u32> = blocks
            .values()
            .filter(|block| block.spec.pool == name)
            .map(|block| block.spec.index)
            .collect();
        let lost = self.lost.keys().filter_map(|lost| lost.strip_prefix(name)?.strip_prefix('-'));
        taken.extend(lost.filter_map(|index| index.parse::<u32>().ok()));
        // A block that outlived its subnet has a number that the pool no longer has.
        taken.retain(|index| *index < pool.blocks());
        for _ in 0..PICKS {
            let free = pool.blocks() - u32::try_from(taken.len()).unwrap_or(u32::MAX);
            if free == 0 {
                return None;
            }
            let index = nth_free(&taken, fastrand::u32(..free));
            let networks = pool.block(index)?;
            // The blocks of other pools count as well, also of pools that are gone.
            let overlaps = |block: &Arc<AddressBlock>| {
                block.spec.networks().overlaps(&networks) && !trust::is_oversized(block)
            };
            if blocks.values().any(overlaps) {
                taken.insert(index);
                continue;
            }
            return Some(self.block(&AddressBlock::name_of(name, index), name, index, networks));
        }
        None
    }

    /// Makes a block of this node.
    fn block(&self, name: &str, pool: &str, index: u32, networks: Networks) -> AddressBlock {
        let Networks { ipv4, ipv6 } = networks;
        let (pool, node) = (pool.to_owned(), self.node.name.clone());
        let node_addresses = self.node.addresses.load().to_vec();
        let spec = AddressBlockSpec { pool, index, node, ipv4, ipv6, node_addresses };
        AddressBlock::new(name, spec)
    }

    async fn adopt(&self, block: &AddressBlock) {
        let (name, spec) = (name_of(block), &block.spec);
        let adopted = self.addresses.adopt(&name, &spec.pool, spec.networks(), call()).await;
        self.noted(&name, adopted);
    }

    /// Adopts a block that was found in the store in this node's name. An earlier process of this node may have
    /// given it back, and its delete may still be on its way to the store: so the block gets another version
    /// first, over which no such delete is made.
    async fn adopt_found(&self, block: &Arc<AddressBlock>) {
        // The journal's own blocks were never given back.
        if self.addresses.view().block(&name_of(&**block)).is_some() {
            return self.adopt(block).await;
        }
        let now = Some(Timestamp::now().to_string());
        match self.objects.annotate(&**block, ADOPTED, now, call()).await {
            Ok(block) => {
                let block = Arc::new(block);
                self.publish(&block);
                self.adopt(&block).await;
            }
            Err(error) => {
                debug!(block = name_of(&**block), %error, "cannot take a block of this node yet");
            }
        }
    }

    /// Creates a block anew that the journal has and the store may not have.
    async fn restore(&mut self, name: &str) {
        let id = Id::cluster(name);
        match self.objects.get::<AddressBlock>(&id, call()).await {
            // The watch is late, or tells in a moment whose it is.
            Ok(Some(_)) => return,
            Ok(None) => {}
            Err(error) => {
                return debug!(block = name, %error, "cannot look for a block in the store");
            }
        }
        let view = self.addresses.view();
        let Some(here) = view.block(name) else { return };
        if here.used() == 0 {
            info!(block = name, "an empty block was deleted, and is dropped");
            self.noted(name, self.addresses.drop_if_empty(name, call()).await);
            return;
        }
        let index = name.rsplit_once('-').and_then(|(_, index)| index.parse().ok());
        let block = self.block(name, here.pool(), index.unwrap_or_default(), here.networks());
        match self.objects.create(&block, call()).await {
            Ok(_) => {
                warn!(block = name, "a block was deleted under its pods, and is claimed again");
            }
            Err(error) => debug!(block = name, %error, "cannot claim a block again"),
        }
    }

    async fn correct(&self, block: &AddressBlock) {
        let mut right = block.clone();
        right.spec.node_addresses.clone_from(&self.node.addresses.load());
        right.metadata.managed_fields = None;
        let version = version_of(block);
        match self.objects.apply(&right, Expected::Version(version), call()).await {
            Ok(right) => self.publish(&Arc::new(right)),
            Err(error) => {
                debug!(block = name_of(block), %error, "cannot correct a block's addresses");
            }
        }
    }

    /// Drops an empty block from the journal, then deletes it from the store.
    async fn give_back(&mut self, name: &str) {
        let blocks = self.claims.blocks.load();
        let Some(block) = blocks.get(name) else { return };
        match self.addresses.drop_if_empty(name, call()).await {
            Ok(true) => {}
            // It was assigned from in the meantime.
            Ok(false) => return,
            Err(error) => return self.noted(name, Err::<(), _>(error)),
        }
        // The block is not this node's from here on, whatever becomes of the delete: one that was not
        // answered may still be made, and then another node has the block.
        self.returned.extend(block.metadata.uid.clone());
        self.delete(block).await;
    }

    /// Deletes a block that the journal has dropped; the next attempt tries again if need be.
    async fn delete(&self, block: &AddressBlock) {
        let (id, expected) = (Id::of(block), Expected::Version(version_of(block)));
        match self.objects.delete::<AddressBlock>(&id, expected, call()).await {
            Ok(_) => {
                self.claims.metrics.returned.inc();
                info!(block = %id, "gave an empty block back");
            }
            Err(Error::NotFound { .. }) => {}
            Err(error) => debug!(block = %id, %error, "cannot give a block back yet"),
        }
    }

    /// Makes a block of this node known before the watch brings it.
    fn publish(&self, block: &Arc<AddressBlock>) {
        let block = Arc::clone(block);
        self.claims.blocks.update(|blocks| blocks.set(name_of(&*block), Some(block)));
    }

    fn noted<T>(&self, block: &str, done: Result<T, BlockError>) {
        if let Err(error) = done {
            warn!(node = self.node.name, block, %error, "a block cannot be changed here yet");
        }
    }
}

impl Reconciler for BlockClaimer {
    type Error = Infallible;

    async fn reconcile(&mut self, _: &Attempt) -> Result<Next, Infallible> {
        let again = self.round().await;
        let now = Instant::now();
        let retry = self.failing.values().map(|it| it.until.saturating_duration_since(now));
        Ok(retry.chain(again).min().map_or(Next::OnChange, Next::Within))
    }

    async fn changed(&mut self) {
        tokio::select! {
            biased;
            _ = self.pools.changed() => {}
            _ = self.blocks.changed() => {}
            _ = self.table.changed() => {}
            _ = self.own_addresses.changed() => {}
        }
        // A pod that waits is served at once; what else happens in a moment is one attempt.
        if self.addresses.view().demand.values().all(|demand| demand.waiting == 0) {
            sleep(GATHER).await;
        }
    }
}

fn version_of(block: &AddressBlock) -> Version {
    Version(block.metadata.resource_version.clone().unwrap_or_default())
}

fn call() -> Deadline {
    Deadline::after(CALL)
}

/// Returns the `n`th number from 0 on that is not `taken`.
fn nth_free(taken: &BTreeSet<u32>, n: u32) -> u32 {
    let mut index = n;
    for taken in taken {
        if *taken > index {
            break;
        }
        index += 1;
    }
    index
}

#[cfg(test)]
mod tests;
