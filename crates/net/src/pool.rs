//! Address pools as values: how a pool is cut into blocks, and which pools may be claimed from.
//!
//! One object cannot show whether it may be claimed from: a pool that overlaps an older one may not,
//! nor may one that is being deleted, or an invalid one, which a server that does not know our checks may
//! hold. Every reader of the same pools comes to the same verdict.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use ipnet::{Ipv4Net, Ipv6Net};
use objects::kinds::{AddressPool, Networks};
use objects::{Event, Invalid, Kind, Objects, Watched, Within};
use stallproof::{Snapshot, Tasks};

/// The pool of namespaces that choose none.
pub const DEFAULT: &str = "default";
/// A namespace's annotation that chooses its pods' pool.
pub const ANNOTATION: &str = "fairlead.dev/pool";
/// Coil's, which does the same where ours is not there.
pub const COIL_ANNOTATION: &str = "coil.cybozu.com/pool";

/// How a valid pool is cut into blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    name: Arc<str>,
    block_bits: u8,
    subnets: Vec<Networks>,
}

/// A pool's object, with the verdict on it.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedPool {
    pub object: Arc<AddressPool>,
    /// None if the object is invalid.
    pub pool: Option<Pool>,
    /// Why nothing is claimed from the pool, if so.
    pub refusal: Option<Arc<str>>,
}

impl JudgedPool {
    /// Returns the pool if it may be claimed from, else the reason why not.
    pub fn claimable(&self) -> Result<&Pool, &str> {
        match (&self.pool, &self.refusal) {
            (Some(pool), None) => Ok(pool),
            (_, why) => Err(why.as_deref().unwrap_or("it is invalid")),
        }
    }
}

/// Every pool there is, judged.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    objects: Watched<String, Arc<AddressPool>>,
    by_name: BTreeMap<Arc<str>, JudgedPool>,
}

impl Pools {
    /// Publishes the pools of the store, from now on.
    pub fn watch(objects: &Objects, tasks: &Tasks) -> Snapshot<Self> {
        let snapshot = Snapshot::<Self>::default();
        let (published, stop) = (snapshot.clone(), tasks.stopping());
        let mut watch = objects.watch::<AddressPool>(Within::default());
        tasks.spawn("watch AddressPool", async move {
            while let Some(Some(event)) = stop.bound(watch.next()).await {
                published.update(|pools| pools.take(event));
            }
        });
        snapshot
    }

    fn take(&mut self, event: Event<AddressPool>) -> bool {
        let changed = self.objects.take(event, |pool| Some(Arc::new(pool)));
        if changed {
            self.by_name = judge(self.objects.values());
        }
        changed
    }

    /// Says whether the store has listed all pools once.
    pub fn synced(&self) -> bool {
        self.objects.synced
    }
}

impl Deref for Pools {
    type Target = BTreeMap<Arc<str>, JudgedPool>;

    fn deref(&self) -> &Self::Target {
        &self.by_name
    }
}

/// Pools of a complete list.
impl FromIterator<AddressPool> for Pools {
    fn from_iter<T: IntoIterator<Item = AddressPool>>(all: T) -> Self {
        let mut pools = Self::default();
        pools.take(Event::Restarted(all.into_iter().collect()));
        pools
    }
}

impl Pool {
    /// Reads a pool's object, unless it is invalid.
    pub fn of(object: &AddressPool) -> Result<Self, Invalid> {
        object.check()?;
        let name = object.metadata.name.as_deref().unwrap_or_default().into();
        let block_bits = object.spec.block_size_bits;
        Ok(Self { name, block_bits, subnets: object.spec.networks()? })
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the number of addresses in a block.
    pub fn block_size(&self) -> u32 {
        1 << self.block_bits
    }

    /// Returns the number of blocks: 2^28 at most.
    pub fn blocks(&self) -> u32 {
        self.subnets.iter().map(|subnet| self.blocks_in(subnet)).sum()
    }

    fn blocks_in(&self, subnet: &Networks) -> u32 {
        1 << (subnet.host_bits().unwrap_or(self.block_bits) - self.block_bits)
    }

    /// Returns the networks of a block; none if the pool has no such block.
    pub fn block(&self, index: u32) -> Option<Networks> {
        let mut within = index;
        for subnet in &self.subnets {
            let blocks = self.blocks_in(subnet);
            if within < blocks {
                let offset = within << self.block_bits;
                let ipv4 = subnet.ipv4.and_then(|net| {
                    let first = (net.network().to_bits() + offset).into();
                    Ipv4Net::new(first, 32 - self.block_bits).ok()
                });
                let ipv6 = subnet.ipv6.and_then(|net| {
                    let first = (net.network().to_bits() + u128::from(offset)).into();
                    Ipv6Net::new(first, 128 - self.block_bits).ok()
                });
                return Some(Networks { ipv4, ipv6 });
            }
            within -= blocks;
        }
        None
    }

    /// Returns the number of the block that has an address; none if no block of the pool has it.
    pub fn index_of(&self, address: IpAddr) -> Option<u32> {
        let mut before = 0;
        for subnet in &self.subnets {
            let offset = match address {
                IpAddr::V4(address) => subnet
                    .ipv4
                    .filter(|net| net.contains(&address))
                    .map(|net| address.to_bits() - net.network().to_bits()),
                IpAddr::V6(address) => {
                    subnet.ipv6.filter(|net| net.contains(&address)).and_then(|net| {
                        u32::try_from(address.to_bits() - net.network().to_bits()).ok()
                    })
                }
            };
            if let Some(offset) = offset {
                return Some(before + (offset >> self.block_bits));
            }
            before += self.blocks_in(subnet);
        }
        None
    }

    fn overlaps(&self, other: &Self) -> Option<(&Networks, Networks)> {
        self.subnets.iter().find_map(|mine| {
            let theirs = other.subnets.iter().find(|theirs| mine.overlaps(theirs))?;
            Some((mine, *theirs))
        })
    }
}

/// Judges which pools may be claimed from. Of two that overlap it is the older one, as the store dates
/// them; of two of one second that of the lower name.
fn judge<'a>(
    all: impl IntoIterator<Item = &'a Arc<AddressPool>>,
) -> BTreeMap<Arc<str>, JudgedPool> {
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_cached_key(|pool| {
        let created = pool.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, pool.metadata.name.clone())
    });
    let mut older = Vec::<Pool>::with_capacity(all.len());
    let mut judged = BTreeMap::new();
    for object in all {
        let name = Arc::<str>::from(object.metadata.name.as_deref().unwrap_or_default());
        let (pool, refusal) = match Pool::of(object) {
            Err(problems) => (None, Some(format!("it is invalid: {problems}"))),
            Ok(pool) if object.metadata.deletion_timestamp.is_some() => {
                (Some(pool), Some("it is being deleted".to_owned()))
            }
            Ok(pool) => {
                let overlap = older.iter().find_map(|other| {
                    let (mine, theirs) = pool.overlaps(other)?;
                    let other = &other.name;
                    Some(format!("its {mine} overlaps {theirs} of pool {other}, which is older"))
                });
                (Some(pool), overlap)
            }
        };
        older.extend(pool.clone());
        let refusal = refusal.map(Arc::from);
        judged.insert(name, JudgedPool { object: Arc::clone(object), pool, refusal });
    }
    judged
}

#[cfg(test)]
pub(crate) mod tests;
