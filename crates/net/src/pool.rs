//! Pools as values: which blocks a pool has, and which pools may be claimed from.
//!
//! What one object cannot tell is told here: a pool that overlaps an older one is not claimed from. So
//! is one that is invalid, which a server that does not know our checks may hold, or being deleted.
//! Whoever judges sees the same pools and says the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::{Ipv4Net, Ipv6Net};
use objects::kinds::{AddressPool, Networks};
use objects::{Invalid, Kind};

/// The pool of namespaces that choose none.
pub const DEFAULT: &str = "default";
/// A namespace's annotation that chooses its pods' pool.
pub const ANNOTATION: &str = "fairlead.dev/pool";

/// A pool that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    name: Arc<str>,
    block_bits: u8,
    subnets: Vec<Networks>,
}

/// Every pool there is: itself, or why nothing is claimed from it.
pub type Pools = BTreeMap<Arc<str>, Result<Pool, Arc<str>>>;

/// How every valid pool is cut into blocks, also of those that are not claimed from.
pub type Shapes = BTreeMap<Arc<str>, Pool>;

impl Pool {
    /// None if it is invalid.
    pub fn of(object: &AddressPool) -> Option<Self> {
        Self::checked(object).ok()
    }

    fn checked(object: &AddressPool) -> Result<Self, Invalid> {
        object.check()?;
        let name = object.metadata.name.as_deref().unwrap_or_default().into();
        let block_bits = object.spec.block_size_bits;
        Ok(Self { name, block_bits, subnets: object.spec.networks()? })
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Addresses in a block.
    pub fn block_size(&self) -> u32 {
        1 << self.block_bits
    }

    /// How many blocks it has: 2^28 at most.
    pub fn blocks(&self) -> u32 {
        self.subnets.iter().map(|subnet| self.blocks_in(subnet)).sum()
    }

    fn blocks_in(&self, subnet: &Networks) -> u32 {
        1 << (subnet.host_bits().unwrap_or(self.block_bits) - self.block_bits)
    }

    /// The networks of a block; none if it has no such block.
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

    fn overlaps(&self, other: &Self) -> Option<(&Networks, Networks)> {
        self.subnets.iter().find_map(|mine| {
            let theirs = other.subnets.iter().find(|theirs| mine.overlaps(theirs))?;
            Some((mine, *theirs))
        })
    }
}

/// The shapes of `all`.
pub fn shapes<'a>(all: impl IntoIterator<Item = &'a AddressPool>) -> Shapes {
    let valid = all.into_iter().filter_map(Pool::of);
    valid.map(|pool| (Arc::clone(&pool.name), pool)).collect()
}

/// Which of `all` may be claimed from. Of two that overlap it is the older one, as the store dates
/// them; of two of one second that of the lower name.
pub fn judge<'a>(all: impl IntoIterator<Item = &'a AddressPool>) -> Pools {
    let mut all: Vec<_> = all.into_iter().collect();
    let age = |pool: &AddressPool| {
        let created = pool.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, pool.metadata.name.clone())
    };
    all.sort_by_cached_key(|pool| age(pool));
    let mut older = Vec::<Pool>::with_capacity(all.len());
    let mut pools = Pools::new();
    for object in all {
        let name = Arc::<str>::from(object.metadata.name.as_deref().unwrap_or_default());
        let pool = match Pool::checked(object) {
            Ok(pool) => pool,
            Err(problems) => {
                pools.insert(name, Err(format!("it is invalid: {problems}").into()));
                continue;
            }
        };
        let overlap = older.iter().find_map(|other| {
            let (mine, theirs) = pool.overlaps(other)?;
            Some(format!("its {mine} overlaps {theirs} of pool {}, which is older", other.name))
        });
        let refusal = if object.metadata.deletion_timestamp.is_some() {
            Some("it is being deleted".to_owned())
        } else {
            overlap
        };
        older.push(pool.clone());
        pools.insert(name, refusal.map_or(Ok(pool), |why| Err(why.into())));
    }
    pools
}

#[cfg(test)]
pub(crate) mod tests;
