//! `AddressTable`: every attachment and block of this node at one instant, as a value.
//!
//! It is made of [`Record`]s and of nothing else: what is journalled is applied, and a replay of the
//! journal gives the same table. Clones share what they have in common, so a draft costs what it
//! changes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use imbl::{OrdMap, OrdSet};
use ipnet::{Ipv4Net, Ipv6Net};
use objects::kinds::Networks;
use serde::{Deserialize, Serialize};
use stallproof::Map;
use tokio::time::Instant;

use crate::local_block::{AddressPair, LocalBlock};
use crate::{Attachment, AttachmentKey};

#[derive(Clone, Debug, Default)]
pub struct AddressTable {
    attachments: Map<AttachmentKey, Arc<Attachment>>,
    addresses: Map<IpAddr, Arc<Attachment>>,
    /// Attachments that were deleted and whose interfaces may still be there: their addresses are
    /// nobody else's yet.
    leaving: Map<AttachmentKey, Arc<Attachment>>,
    /// When addresses that were released may be given again, by the first of a pair. Not in the journal.
    resting: OrdMap<IpAddr, Rest>,
    /// Addresses that pods of another plugin have on this node. Not in the journal.
    pub(crate) foreign: OrdSet<IpAddr>,
    /// The key is the block's name.
    blocks: OrdMap<Arc<str>, LocalBlock>,
    /// The block of each pool that was last assigned from.
    current: OrdMap<Arc<str>, Arc<str>>,
    /// The availability of every pool; none while the store has not answered. Not in the journal.
    pub(crate) availability: Option<OrdMap<Arc<str>, PoolAvailability>>,
    /// Why the pools cannot be known until a person acts. Not in the journal.
    pub(crate) pools_unavailable: Option<Arc<str>>,
    /// Addresses that were chosen and are of no block of this node, and the pool of each. Not in the journal.
    pub(crate) wanted: OrdMap<IpAddr, Arc<str>>,
    /// Why some of them cannot be had. Not in the journal.
    pub(crate) unobtainable: OrdMap<IpAddr, Arc<str>>,
    /// The demand that found no address, by pool. Not in the journal.
    pub(crate) demand: OrdMap<Arc<str>, Demand>,
}

/// Whether a pool can give this node another block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolAvailability {
    /// It can, or will as soon as the claim is answered.
    Open,
    /// It cannot before a person acts, or other nodes return blocks.
    Exhausted(Arc<str>),
    /// It cannot now; the claim is tried again and again.
    Failing(Arc<str>),
}

/// Attachments that found no address in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// How many wait for one.
    pub waiting: u32,
    /// When the last one asked.
    pub last: Instant,
}

/// What becomes of a request for certain addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FixedAddress {
    Free(AddressPair),
    /// Its block is being claimed, or the interface that had it is on its way out.
    Later,
    Refused(String),
}

/// An address that was just released.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rest {
    pool: Arc<str>,
    until: Instant,
}

/// How long an address rests after its release: peers of the pod that had it close their connections, and
/// forget its name, in less.
const REST: Duration = Duration::from_secs(30);

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Record {
    Assigned(#[serde(with = "shared")] Arc<Attachment>),
    Released(ReleasedKey),
    /// A block is this node's, and may be assigned from.
    Adopted(AdoptedBlock),
    /// Nothing more is assigned from a block.
    #[serde(rename = "barred")]
    Cordoned {
        block: String,
        why: String,
    },
    /// A block no longer belongs to this node.
    Dropped {
        block: String,
    },
}

/// The key that is given up. An agent that does not know `leaving` takes it for released, and removes the
/// interface as one that no attachment has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReleasedKey {
    #[serde(flatten)]
    pub(crate) key: AttachmentKey,
    /// The attachment is no more; its addresses are held until its interface is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) leaving: bool,
}

impl From<AttachmentKey> for ReleasedKey {
    fn from(key: AttachmentKey) -> Self {
        Self { key, leaving: false }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AdoptedBlock {
    pub(crate) block: String,
    pub(crate) pool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ipv4: Option<Ipv4Net>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ipv6: Option<Ipv6Net>,
    /// The offset to assign next.
    #[serde(default)]
    pub(crate) next: u32,
}

impl AdoptedBlock {
    pub(crate) fn networks(&self) -> Networks {
        Networks { ipv4: self.ipv4, ipv6: self.ipv6 }
    }
}

/// A record that contradicts those before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidRecord {
    #[error("{address} is given to {new} while {old} has it")]
    Twice { address: IpAddr, old: AttachmentKey, new: AttachmentKey },
    #[error("{0} is given addresses twice")]
    Again(AttachmentKey),
    #[error("{0} is given no address")]
    Nothing(AttachmentKey),
    #[error("block {0} has no networks that can be assigned from")]
    Unusable(String),
    #[error("block {new} overlaps block {old}")]
    Overlap { old: Arc<str>, new: String },
}

impl AddressTable {
    pub fn attachment(&self, key: &AttachmentKey) -> Option<&Arc<Attachment>> {
        self.attachments.get(key)
    }

    /// Returns the attachments in no order.
    pub fn attachments(&self) -> impl Iterator<Item = &Arc<Attachment>> {
        self.attachments.values()
    }

    /// Returns the attachments that were deleted and whose interfaces may still be there, in no order.
    pub fn leaving(&self) -> impl Iterator<Item = &Arc<Attachment>> {
        self.leaving.values()
    }

    /// Says whether the interface of a deleted attachment of this key may still be there.
    pub fn is_leaving(&self, key: &AttachmentKey) -> bool {
        self.leaving.contains_key(key)
    }

    /// Returns how many free addresses of a pool rest.
    pub(crate) fn resting(&self, pool: &str, now: Instant) -> u32 {
        let resting = self.resting.values().filter(|rest| *rest.pool == *pool && now < rest.until);
        u32::try_from(resting.count()).unwrap_or(u32::MAX)
    }

    /// Returns how many addresses of a block pods of another plugin have.
    pub fn foreign_in(&self, block: &LocalBlock) -> u32 {
        let Networks { ipv4, ipv6 } = block.networks();
        // A dual-stack pod has one of each at the same offset: it counts once.
        let inside = |address: &&IpAddr| match address {
            IpAddr::V4(address) => ipv4.is_some_and(|net| net.contains(address)),
            IpAddr::V6(address) => ipv4.is_none() && ipv6.is_some_and(|net| net.contains(address)),
        };
        u32::try_from(self.foreign.iter().filter(inside).count()).unwrap_or(u32::MAX)
    }

    /// Returns the attachment that has an address.
    pub fn holder(&self, address: IpAddr) -> Option<&Arc<Attachment>> {
        self.addresses.get(&address)
    }

    /// Returns the blocks with their names, in the order of those.
    pub fn blocks(&self) -> impl Iterator<Item = (&str, &LocalBlock)> {
        self.blocks.iter().map(|(name, block)| (&**name, block))
    }

    pub fn block(&self, name: &str) -> Option<&LocalBlock> {
        self.blocks.get(name)
    }

    /// Returns a pool's availability, as far as it is known.
    pub fn availability_of(&self, pool: &str) -> Option<&PoolAvailability> {
        self.availability.as_ref()?.get(pool)
    }

    /// Returns the addresses to give next in a pool: of the block last assigned from; when that is full,
    /// of the next one that is in use; only then of an empty one, which can be returned if it stays empty.
    /// An address that rests is given where there is no other, the one that has rested longest first.
    pub(crate) fn vacant(&self, pool: &str, now: Instant) -> Option<AddressPair> {
        let current = self.current.get(pool);
        let candidates =
            self.blocks.iter().filter(|(_, block)| &*block.pool == pool && block.free() > 0);
        let rank = |name: &Arc<str>, block: &LocalBlock| {
            let is_current = current == Some(name);
            let after = current.is_some_and(|current| name > current);
            (!is_current, block.used() == 0, !after)
        };
        let mut candidates: Vec<_> = candidates.collect();
        candidates.sort_by_key(|(name, block)| rank(name, block));
        let is_foreign = |(ipv4, ipv6): AddressPair| {
            let is = |address: Option<IpAddr>| address.is_some_and(|it| self.foreign.contains(&it));
            is(ipv4.map(IpAddr::V4)) || is(ipv6.map(IpAddr::V6))
        };
        let is_rested = |pair: AddressPair| {
            let rest = first(pair).and_then(|address| self.resting.get(&address));
            rest.is_none_or(|rest| rest.until <= now)
        };
        let rested = candidates.iter().find_map(|(_, block)| {
            let fits = |pair: AddressPair| !is_foreign(pair) && is_rested(pair);
            let offset = block.vacant(|offset| fits(block.addresses(offset)))?;
            Some(block.addresses(offset))
        });
        rested.or_else(|| {
            let until = |pair: AddressPair| self.resting.get(&first(pair)?).map(|it| it.until);
            let free = candidates.iter().flat_map(|(_, block)| block.all_vacant());
            free.filter(|pair| !is_foreign(*pair)).min_by_key(|pair| until(*pair))
        })
    }

    /// Returns whether certain addresses of a pool can be given: one of a family, or one of each that are a pair.
    pub(crate) fn fixed(&self, pool: &str, wanted: &[IpAddr]) -> FixedAddress {
        let Some(first) = wanted.first() else { return FixedAddress::Later };
        let (ipv4, ipv6) = match first {
            IpAddr::V4(address) => (Some(*address), None),
            IpAddr::V6(address) => (None, Some(*address)),
        };
        let mut of_pool = self.blocks.iter().filter(|(_, block)| &*block.pool == pool);
        let found =
            of_pool.find_map(|(name, block)| Some((name, block, block.offset(ipv4, ipv6)?)));
        let Some((name, block, offset)) = found else {
            let why = wanted.iter().find_map(|it| self.unobtainable.get(it));
            return match why {
                Some(why) => FixedAddress::Refused(why.to_string()),
                None => FixedAddress::Later,
            };
        };
        let pair = block.addresses(offset);
        let own = [pair.0.map(IpAddr::V4), pair.1.map(IpAddr::V6)];
        if let Some(other) = wanted.iter().find(|it| !own.contains(&Some(**it))) {
            let beside = own.iter().flatten().find(|it| it.is_ipv4() == other.is_ipv4());
            let beside = beside.map_or("none".to_owned(), ToString::to_string);
            return FixedAddress::Refused(format!(
                "{first} and {other} are no pair: beside {first} pool {pool} has {beside}"
            ));
        }
        if let Some(why) = block.cordoned() {
            return FixedAddress::Refused(format!("nothing is given from block {name}: {why}"));
        }
        for address in own.iter().flatten() {
            if self.foreign.contains(address) {
                return FixedAddress::Refused(format!("{address} is of a pod of another plugin"));
            }
            match self.addresses.get(address) {
                None => {}
                Some(holder) if self.leaving.contains_key(&holder.key) => {
                    return FixedAddress::Later;
                }
                Some(holder) => {
                    let pod = holder.pod.as_ref().map(ToString::to_string);
                    let holder = pod.unwrap_or_else(|| holder.key.to_string());
                    return FixedAddress::Refused(format!("{address} is given to {holder}"));
                }
            }
        }
        FixedAddress::Free(pair)
    }

    /// Has the addresses of an attachment that was released rest.
    pub(crate) fn rest(&mut self, attachment: &Attachment, now: Instant) {
        let over: Vec<_> = self.resting.iter().filter(|(_, rest)| rest.until <= now).collect();
        let over: Vec<IpAddr> = over.into_iter().map(|(address, _)| *address).collect();
        for address in over {
            self.resting.remove(&address);
        }
        let pool = attachment.pool.as_str().into();
        if let Some(address) = attachment.addresses().next() {
            self.resting.insert(address, Rest { pool, until: now + REST });
        }
    }

    /// Applies a record, whether it is being journalled or replayed. After an error nothing has changed.
    pub(crate) fn apply(&mut self, record: &Record) -> Result<(), InvalidRecord> {
        match record {
            Record::Assigned(attachment) => self.assigned(attachment)?,
            Record::Released(ReleasedKey { key, leaving: true }) => {
                self.leave(key);
            }
            Record::Released(ReleasedKey { key, leaving: false }) => {
                self.released(key);
            }
            Record::Adopted(adopted) => self.adopted(adopted)?,
            Record::Cordoned { block, why } => {
                if let Some(block) = self.blocks.get_mut(&**block) {
                    block.cordoned = Some(why.as_str().into());
                }
            }
            Record::Dropped { block } => {
                if let Some(dropped) = self.blocks.remove(&**block)
                    && self.current.get(&dropped.pool).is_some_and(|current| **current == **block)
                {
                    self.current.remove(&dropped.pool);
                }
            }
        }
        Ok(())
    }

    fn assigned(&mut self, attachment: &Arc<Attachment>) -> Result<(), InvalidRecord> {
        let key = &attachment.key;
        if self.attachments.contains_key(key) || self.leaving.contains_key(key) {
            return Err(InvalidRecord::Again(key.clone()));
        }
        if attachment.addresses().next().is_none() {
            return Err(InvalidRecord::Nothing(key.clone()));
        }
        for address in attachment.addresses() {
            if let Some(other) = self.addresses.get(&address) {
                let (old, new) = (other.key.clone(), key.clone());
                return Err(InvalidRecord::Twice { address, old, new });
            }
        }
        self.attachments.insert(key.clone(), Arc::clone(attachment));
        for address in attachment.addresses() {
            self.addresses.insert(address, Arc::clone(attachment));
        }
        if let Some((name, offset)) = self.home(attachment)
            && let Some(block) = self.blocks.get_mut(&name)
        {
            block.take(offset);
            self.current.insert(Arc::clone(&block.pool), name);
        }
        Ok(())
    }

    /// Deletes an attachment whose interface may still be there.
    pub(crate) fn leave(&mut self, key: &AttachmentKey) -> Option<Arc<Attachment>> {
        let attachment = self.attachments.remove(key)?;
        self.leaving.insert(key.clone(), Arc::clone(&attachment));
        Some(attachment)
    }

    pub(crate) fn released(&mut self, key: &AttachmentKey) -> Option<Arc<Attachment>> {
        let attachment = self.leaving.remove(key).or_else(|| self.attachments.remove(key))?;
        for address in attachment.addresses() {
            self.addresses.remove(&address);
        }
        if let Some((name, offset)) = self.home(&attachment)
            && let Some(block) = self.blocks.get_mut(&name)
        {
            block.give_back(offset);
        }
        Some(attachment)
    }

    /// A cordoned block that is adopted again may be assigned from again.
    fn adopted(&mut self, adopted: &AdoptedBlock) -> Result<(), InvalidRecord> {
        let networks = adopted.networks();
        let name = Arc::<str>::from(adopted.block.as_str());
        let new = || adopted.block.clone();
        let mut block = LocalBlock::new(adopted.pool.as_str().into(), networks, adopted.next)
            .ok_or_else(|| InvalidRecord::Unusable(new()))?;
        let mut others = self.blocks.iter().filter(|(other, _)| **other != name);
        if let Some((old, _)) = others.find(|(_, other)| other.networks.overlaps(&networks)) {
            return Err(InvalidRecord::Overlap { old: Arc::clone(old), new: new() });
        }
        for attachment in self.attachments.values().chain(self.leaving.values()) {
            if let Some(offset) = block.offset(attachment.ipv4, attachment.ipv6) {
                block.take(offset);
            }
        }
        block.next = adopted.next % block.size();
        self.blocks.insert(name, block);
        Ok(())
    }

    /// Returns the block of an attachment, and the offset in it.
    fn home(&self, attachment: &Attachment) -> Option<(Arc<str>, u32)> {
        self.blocks.iter().find_map(|(name, block)| {
            let offset = block.offset(attachment.ipv4, attachment.ipv6)?;
            Some((Arc::clone(name), offset))
        })
    }

    /// Returns records that make the same table from nothing.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> {
        let blocks = self.blocks.iter().flat_map(|(name, block)| {
            let Networks { ipv4, ipv6 } = block.networks;
            let adopted = AdoptedBlock {
                block: name.to_string(),
                pool: block.pool.to_string(),
                ipv4,
                ipv6,
                next: block.next,
            };
            let cordoned = block.cordoned.as_ref();
            let cordoned = cordoned
                .map(|why| Record::Cordoned { block: name.to_string(), why: why.to_string() });
            std::iter::once(Record::Adopted(adopted)).chain(cordoned)
        });
        // Blocks come last: taking an address moves the next offset.
        let all = self.attachments.values().chain(self.leaving.values());
        let attachments = all.map(|one| Record::Assigned(Arc::clone(one)));
        let leaving = self
            .leaving
            .keys()
            .map(|key| Record::Released(ReleasedKey { key: key.clone(), leaving: true }));
        attachments.chain(leaving).chain(blocks)
    }
}

/// The address by which a pair is known.
fn first((ipv4, ipv6): AddressPair) -> Option<IpAddr> {
    ipv4.map(IpAddr::V4).or(ipv6.map(IpAddr::V6))
}

mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &Arc<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        T::serialize(value, to)
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(from).map(Arc::new)
    }
}

#[cfg(test)]
pub(crate) mod tests;
