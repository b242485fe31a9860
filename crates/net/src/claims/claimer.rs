//! Carries out what is planned, round after round.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use objects::kinds::{AddressBlock, AddressBlockSpec};
use objects::{Error, Expected, Id, Objects, Version};
use stallproof::backoff::Curve;
use stallproof::{Backoff, Deadline, Stop, sentence};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, error, info, warn};

use super::plan::{Plan, Situation, plan};
use super::{Claims, IDLE, NodeIdentity, name_of};
use crate::Addresses;
use crate::addresses::{BlockError, Standing};
use crate::pool::{Pool, Pools};
use crate::trust;

/// For one call of the store, and for one change of the journal.
const CALL: Duration = Duration::from_secs(5);
/// How long a claim that failed is left alone.
const AGAIN: Curve = Curve { first: Duration::from_millis(200), most: Duration::from_secs(10) };
/// How often one claim may lose a race before the round ends: by chance, among free blocks, it is
/// once or twice.
const RACES: u32 = 32;
/// How many free numbers are looked at: where so many overlap what others have, all do.
const PICKS: u32 = 1_000;
/// How long a lost block is left alone: until the watch has surely told of it.
const LOST: Duration = Duration::from_secs(30);
/// How long is waited for what comes together: nothing to whoever needs a block soon.
const GATHER: Duration = Duration::from_millis(20);
/// A round without any sign, to look at what only time changes.
const LOOK: Duration = Duration::from_secs(15);

pub(super) struct Claimer {
    objects: Objects,
    node: NodeIdentity,
    addresses: Addresses,
    claims: Claims,
    /// By uid: what is given back, until the watch has told that it is gone.
    returned: HashSet<String>,
    /// Since when blocks are empty.
    empty: BTreeMap<String, Instant>,
    /// Blocks that others claimed a moment before us.
    lost: BTreeMap<String, Instant>,
    /// By pool: a claim that was not answered.
    unsure: BTreeMap<Arc<str>, AddressBlock>,
    failing: BTreeMap<Arc<str>, Failing>,
    exhausted: BTreeSet<Arc<str>>,
}

/// A pool whose claims fail.
struct Failing {
    backoff: Backoff,
    until: Instant,
    why: Arc<str>,
}

/// What became of a claim.
enum Outcome {
    Claimed,
    Exhausted,
    Failed(String),
}

impl Claimer {
    pub(super) fn new(
        objects: Objects,
        node: NodeIdentity,
        addresses: Addresses,
        claims: Claims,
    ) -> Self {
        Self {
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

    pub(super) async fn run(mut self, stop: Stop) {
        let mut pools = self.claims.pools.subscribe();
        let mut blocks = self.claims.blocks.subscribe();
        let mut index = self.addresses.changes();
        let mut here = self.node.addresses.subscribe();
        loop {
            if stop.bound(self.round()).await.is_none() {
                return;
            }
            // Who waits is served at once; what else happens in a moment is one round.
            let waits = self.addresses.view().demand.values().any(|demand| demand.waiting > 0);
            if !waits && stop.bound(sleep(GATHER)).await.is_none() {
                return;
            }
            let retries = self.failing.values().map(|failing| failing.until);
            let next = retries.chain([Instant::now() + LOOK]).min().unwrap_or_else(Instant::now);
            tokio::select! {
                () = stop.stopped() => return,
                _ = pools.changed() => {}
                _ = blocks.changed() => {}
                _ = index.changed() => {}
                _ = here.changed() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    pub(super) async fn round(&mut self) {
        let pools = self.claims.pools.load();
        let blocks = self.claims.blocks.load();
        let Some(pools) = (*pools).as_ref().filter(|_| blocks.synced) else { return };
        let shapes = self.claims.shapes.load();
        let Some(shapes) = shapes.as_ref() else { return };
        let now = Instant::now();
        let idle = self.look_for_idle(now);
        self.lost.retain(|_, at| now.duration_since(*at) < LOST);
        let there =
            |uid: &String| blocks.by_name.values().any(|b| b.metadata.uid.as_ref() == Some(uid));
        self.returned.retain(there);

        let index = self.addresses.view();
        let node_addresses = self.node.addresses.load();
        let plan = plan(&Situation {
            node: &self.node.name,
            node_addresses: &node_addresses,
            pools,
            shapes,
            blocks: &blocks,
            index: &index,
            returned: &self.returned,
            idle: &idle,
            now,
        });
        drop((index, blocks));
        self.carry_out(plan, pools).await;
    }

    fn look_for_idle(&mut self, now: Instant) -> BTreeSet<String> {
        let index = self.addresses.view();
        let empty = |name: &String| index.block(name).is_some_and(|block| block.used() == 0);
        self.empty.retain(|name, _| empty(name));
        for (name, _) in index.blocks().filter(|(_, block)| block.used() == 0) {
            self.empty.entry(name.to_owned()).or_insert(now);
        }
        let long = self.empty.iter().filter(|(_, since)| now.duration_since(**since) >= IDLE);
        long.map(|(name, _)| name.clone()).collect()
    }

    async fn carry_out(&mut self, plan: Plan, pools: &Pools) {
        // What is here first: it waits for no store.
        for (block, why) in &plan.bar {
            error!(block, why, "nothing more is assigned from a block");
            self.noted(block, self.addresses.bar(block, why, call()).await);
        }
        for block in &plan.forget {
            warn!(block, "an empty block is another node's, and is dropped");
            self.noted(block, self.addresses.surrender(block, call()).await);
        }
        for block in &plan.adopt {
            self.adopt(block).await;
        }
        let sentences = plan.troubles.iter().flat_map(|(pool, troubles)| {
            troubles.iter().map(move |trouble| format!("pool {pool}: {trouble}"))
        });
        self.claims.troubles.publish(sentences.collect());
        self.claims.by_pool.publish(plan.troubles.clone());

        for (name, blocks) in &plan.claim {
            if let Some(Ok(pool)) = pools.get(name) {
                self.claim(pool, *blocks).await;
            }
        }
        self.stand(&plan, pools).await;
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

    /// Says how the pools stand, to whoever waits for a block.
    async fn stand(&mut self, plan: &Plan, pools: &Pools) {
        let lacking: BTreeSet<_> = plan.claim.iter().map(|(name, _)| name).collect();
        self.failing.retain(|name, _| lacking.contains(name));
        self.exhausted.retain(|name| lacking.contains(name));
        self.unsure.retain(|name, _| lacking.contains(name));
        let standing = |name: &Arc<str>, pool: &Result<Pool, Arc<str>>| match pool {
            Err(why) => Standing::Exhausted(format!("nothing is claimed from it: {why}").into()),
            Ok(pool) if self.exhausted.contains(name) => {
                let blocks = pool.blocks();
                let why = format!(
                    "all its {blocks} blocks are claimed; append a subnet to AddressPool/{name}"
                );
                Standing::Exhausted(why.into())
            }
            Ok(_) => match self.failing.get(name) {
                Some(failing) => Standing::Failing(Arc::clone(&failing.why)),
                None => Standing::Open,
            },
        };
        let standings: OrdMap<_, _> =
            pools.iter().map(|(name, pool)| (Arc::clone(name), standing(name, pool))).collect();
        if self.addresses.view().standings.as_ref() != Some(&standings) {
            self.addresses.tell(standings).await;
        }
    }

    async fn claim(&mut self, pool: &Pool, blocks: u32) {
        let name = pool.name();
        if self.failing.get(name).is_some_and(|failing| Instant::now() < failing.until) {
            return;
        }
        for _ in 0..blocks {
            match self.claim_one(pool).await {
                Outcome::Claimed => {
                    self.exhausted.remove(name);
                    if self.failing.remove(name).is_some() {
                        info!(pool = &**name, "blocks can be claimed again");
                    }
                }
                Outcome::Exhausted => {
                    if self.exhausted.insert(Arc::clone(name)) {
                        warn!(pool = &**name, "no block is left to claim");
                    }
                    return;
                }
                Outcome::Failed(why) => return self.failed(name, &why),
            }
        }
    }

    fn failed(&mut self, pool: &Arc<str>, why: &str) {
        self.claims.meters.failed.inc();
        let failing = self.failing.entry(Arc::clone(pool)).or_insert_with(|| Failing {
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

    async fn claim_one(&mut self, pool: &Pool) -> Outcome {
        for _ in 0..RACES {
            let unsure = self.unsure.remove(pool.name());
            let asked = unsure.is_some();
            let Some(block) = unsure.or_else(|| self.pick(pool)) else { return Outcome::Exhausted };
            let made = match self.objects.create(&block, call()).await {
                // Of an earlier try that was not answered.
                Err(Error::Exists { .. }) if asked => {
                    let found = self.objects.get::<AddressBlock>(&Id::of(&block), call()).await;
                    found.map(|found| found.filter(|found| found.spec.node == self.node.name))
                }
                Err(Error::Exists { .. }) => Ok(None),
                made => made.map(Some),
            };
            match made {
                Ok(Some(block)) => {
                    self.claims.meters.claimed.inc();
                    info!(block = name_of(&block), "claimed a block");
                    let block = Arc::new(block);
                    self.claims.blocks.update(|blocks| {
                        blocks.by_name.insert(name_of(&*block), Arc::clone(&block));
                        true
                    });
                    self.adopt(&block).await;
                    return Outcome::Claimed;
                }
                Ok(None) => {
                    self.claims.meters.lost.inc();
                    debug!(block = name_of(&block), "another node was faster");
                    self.lost.insert(name_of(&block), Instant::now());
                }
                Err(error) => {
                    // It may have been made all the same: the same one is asked for again.
                    self.unsure.insert(Arc::clone(pool.name()), block);
                    return Outcome::Failed(sentence(&error));
                }
            }
        }
        Outcome::Failed(format!("other nodes were faster {RACES} times"))
    }

    /// One of the blocks that are free, by chance.
    fn pick(&self, pool: &Pool) -> Option<AddressBlock> {
        let blocks = self.claims.blocks.load();
        let name = &**pool.name();
        let mut taken: BTreeSet<u32> = blocks
            .by_name
            .values()
            .filter(|block| block.spec.pool == name)
            .map(|block| block.spec.index)
            .collect();
        let lost = self.lost.keys().filter_map(|lost| lost.strip_prefix(name)?.strip_prefix('-'));
        taken.extend(lost.filter_map(|index| index.parse::<u32>().ok()));
        // Numbers that a pool no longer has are of blocks that outlived a subnet.
        taken.retain(|index| *index < pool.blocks());
        for _ in 0..PICKS {
            let free = pool.blocks() - u32::try_from(taken.len()).unwrap_or(u32::MAX);
            if free == 0 {
                return None;
            }
            let index = nth_free(&taken, fastrand::u32(..free));
            let networks = pool.block(index)?;
            // Those of other pools as well, also of pools that are gone.
            let overlaps = |block: &Arc<AddressBlock>| {
                block.spec.networks().overlaps(&networks) && !trust::is_impossible(block)
            };
            if blocks.by_name.values().any(overlaps) {
                taken.insert(index);
                continue;
            }
            let spec = AddressBlockSpec {
                pool: name.to_owned(),
                index,
                node: self.node.name.clone(),
                ipv4: networks.ipv4,
                ipv6: networks.ipv6,
                node_addresses: self.node.addresses.load().to_vec(),
            };
            return Some(AddressBlock::new(&AddressBlock::name_of(name, index), spec));
        }
        None
    }

    async fn adopt(&self, block: &AddressBlock) {
        let (name, spec) = (name_of(block), &block.spec);
        let adopted = self.addresses.adopt(&name, &spec.pool, spec.networks(), call()).await;
        self.noted(&name, adopted);
    }

    /// A block that is ours by the journal and that the store may not have.
    async fn restore(&mut self, name: &str) {
        let id = Id::cluster(name);
        match self.objects.get::<AddressBlock>(&id, call()).await {
            // The watch is late, or tells in a moment whose it is.
            Ok(Some(_)) => return,
            Ok(None) => {}
            Err(error) => return debug!(block = name, %error, "cannot look for a block"),
        }
        let view = self.addresses.view();
        let Some(here) = view.block(name) else { return };
        if here.used() == 0 {
            info!(block = name, "an empty block was deleted, and is dropped");
            self.noted(name, self.addresses.surrender(name, call()).await);
            return;
        }
        let index = name.rsplit_once('-').and_then(|(_, index)| index.parse().ok());
        let spec = AddressBlockSpec {
            pool: here.pool().to_owned(),
            index: index.unwrap_or_default(),
            node: self.node.name.clone(),
            ipv4: here.networks().ipv4,
            ipv6: here.networks().ipv6,
            node_addresses: self.node.addresses.load().to_vec(),
        };
        match self.objects.create(&AddressBlock::new(name, spec), call()).await {
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
            Ok(right) => self.claims.blocks.update(|blocks| {
                blocks.by_name.insert(name_of(&right), Arc::new(right));
                true
            }),
            Err(error) => {
                debug!(block = name_of(block), %error, "cannot correct a block's addresses");
                false
            }
        };
    }

    async fn give_back(&mut self, name: &str) {
        let blocks = self.claims.blocks.load();
        let Some(block) = blocks.by_name.get(name) else { return };
        match self.addresses.surrender(name, call()).await {
            Ok(true) => {}
            // Assigned from in the meantime.
            Ok(false) => return,
            Err(error) => return self.noted(name, Err::<(), _>(error)),
        }
        // Not ours from here on, whatever becomes of the delete: one that was not answered may still
        // be made, and then another has it.
        self.returned.extend(block.metadata.uid.clone());
        self.delete(block).await;
    }

    /// Deletes what is ours in the store and dropped here; again in another round if need be.
    async fn delete(&self, block: &AddressBlock) {
        let (id, expected) = (Id::of(block), Expected::Version(version_of(block)));
        match self.objects.delete::<AddressBlock>(&id, expected, call()).await {
            Ok(_) => {
                self.claims.meters.returned.inc();
                info!(block = %id, "gave an empty block back");
            }
            Err(Error::NotFound { .. }) => {}
            Err(error) => debug!(block = %id, %error, "cannot give a block back yet"),
        }
    }

    fn noted<T>(&self, block: &str, done: Result<T, BlockError>) {
        if let Err(error) = done {
            warn!(node = self.node.name, block, %error, "a block cannot be changed here yet");
        }
    }
}

fn version_of(block: &AddressBlock) -> Version {
    Version(block.metadata.resource_version.clone().unwrap_or_default())
}

fn call() -> Deadline {
    Deadline::after(CALL)
}

/// The `n`th number from 0 on that is not `taken`.
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
