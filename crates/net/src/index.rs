//! `Index`: every attachment and block of this node at one instant, as a value.
//!
//! It is made of [`Record`]s and of nothing else: what is journalled is applied, and a replay of the
//! journal is the same index. Clones share what they have in common, so a draft costs what it
//! changes.

use std::net::IpAddr;
use std::sync::Arc;

use imbl::OrdMap;
use ipnet::{Ipv4Net, Ipv6Net};
use objects::kinds::Networks;
use serde::{Deserialize, Serialize};
use stallproof::Map;
use tokio::time::Instant;

use crate::block::Block;
use crate::{Attachment, Key};

#[derive(Clone, Debug, Default)]
pub struct Index {
    attachments: Map<Key, Arc<Attachment>>,
    addresses: Map<IpAddr, Arc<Attachment>>,
    /// By name.
    blocks: OrdMap<Arc<str>, Block>,
    /// Which block of a pool was last assigned from.
    current: OrdMap<Arc<str>, Arc<str>>,
    /// How the pools are; `None` while nobody has said. Not of the journal.
    pub(crate) standings: Option<OrdMap<Arc<str>, Standing>>,
    /// Why nobody can say how the pools are, where that takes a person. Not of the journal.
    pub(crate) obstacle: Option<Arc<str>>,
    /// Who found no address, by pool. Not of the journal.
    pub(crate) demand: OrdMap<Arc<str>, Demand>,
}

/// Whether a pool can give this node another block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It can, or is about to.
    Open,
    /// Not before a person does something, or other nodes give blocks back.
    Exhausted(Arc<str>),
    /// Not now; it is tried again and again.
    Failing(Arc<str>),
}

/// Attachments that found no address in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Those who wait for one.
    pub waiting: u32,
    /// When the last one came.
    pub last: Instant,
}

/// What the journal keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Record {
    Assigned(#[serde(with = "shared")] Arc<Attachment>),
    Released(Key),
    /// A block is this node's, and may be assigned from.
    Adopted(Adopted),
    /// Nothing more is assigned from a block.
    Barred {
        block: String,
        why: String,
    },
    /// A block is no longer this node's.
    Dropped {
        block: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Adopted {
    pub(crate) block: String,
    pub(crate) pool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ipv4: Option<Ipv4Net>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ipv6: Option<Ipv6Net>,
    /// The offset to begin with.
    #[serde(default)]
    pub(crate) next: u32,
}

impl Adopted {
    pub(crate) fn networks(&self) -> Networks {
        Networks { ipv4: self.ipv4, ipv6: self.ipv6 }
    }
}

/// What cannot be, whatever was journalled before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Contradiction {
    #[error("{address} is given to {new} while {old} has it")]
    Twice { address: IpAddr, old: Key, new: Key },
    #[error("{0} is given addresses twice")]
    Again(Key),
    #[error("{0} is given no address")]
    Nothing(Key),
    #[error("block {0} has no networks that can be assigned from")]
    Unusable(String),
    #[error("block {new} overlaps block {old}")]
    Overlap { old: Arc<str>, new: String },
}

impl Index {
    pub fn attachment(&self, key: &Key) -> Option<&Arc<Attachment>> {
        self.attachments.get(key)
    }

    /// In no order.
    pub fn attachments(&self) -> impl Iterator<Item = &Arc<Attachment>> {
        self.attachments.values()
    }

    /// Who has an address.
    pub fn holder(&self, address: IpAddr) -> Option<&Arc<Attachment>> {
        self.addresses.get(&address)
    }

    /// With their names, in their order.
    pub fn blocks(&self) -> impl Iterator<Item = (&str, &Block)> {
        self.blocks.iter().map(|(name, block)| (&**name, block))
    }

    pub fn block(&self, name: &str) -> Option<&Block> {
        self.blocks.get(name)
    }

    /// How a pool stands, as far as is known.
    pub fn standing(&self, pool: &str) -> Option<&Standing> {
        self.standings.as_ref()?.get(pool)
    }

    /// The addresses to give next in a pool: of the block last given from; when that is full, of the
    /// next one that is in use; only then of one that is empty, which may be given back if it stays so.
    pub(crate) fn vacant(
        &self,
        pool: &str,
    ) -> Option<(Option<std::net::Ipv4Addr>, Option<std::net::Ipv6Addr>)> {
        let current = self.current.get(pool);
        let candidates =
            self.blocks.iter().filter(|(_, block)| &*block.pool == pool && block.free() > 0);
        let rank = |name: &Arc<str>, block: &Block| {
            let is_current = current == Some(name);
            let after = current.is_some_and(|current| name > current);
            (!is_current, block.used() == 0, !after)
        };
        let (_, block) = candidates.min_by_key(|(name, block)| rank(name, block))?;
        block.vacant().map(|offset| block.addresses(offset))
    }

    /// The same for what is journalled and for what is replayed. After an error it is as it was.
    pub(crate) fn apply(&mut self, record: &Record) -> Result<(), Contradiction> {
        match record {
            Record::Assigned(attachment) => self.assigned(attachment)?,
            Record::Released(key) => {
                self.released(key);
            }
            Record::Adopted(adopted) => self.adopted(adopted)?,
            Record::Barred { block, why } => {
                if let Some(block) = self.blocks.get_mut(&**block) {
                    block.barred = Some(why.as_str().into());
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

    fn assigned(&mut self, attachment: &Arc<Attachment>) -> Result<(), Contradiction> {
        let key = &attachment.key;
        if self.attachments.contains_key(key) {
            return Err(Contradiction::Again(key.clone()));
        }
        if addresses(attachment).next().is_none() {
            return Err(Contradiction::Nothing(key.clone()));
        }
        for address in addresses(attachment) {
            if let Some(other) = self.addresses.get(&address) {
                let (old, new) = (other.key.clone(), key.clone());
                return Err(Contradiction::Twice { address, old, new });
            }
        }
        self.attachments.insert(key.clone(), Arc::clone(attachment));
        for address in addresses(attachment) {
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

    pub(crate) fn released(&mut self, key: &Key) -> Option<Arc<Attachment>> {
        let attachment = self.attachments.remove(key)?;
        for address in addresses(&attachment) {
            self.addresses.remove(&address);
        }
        if let Some((name, offset)) = self.home(&attachment)
            && let Some(block) = self.blocks.get_mut(&name)
        {
            block.give_back(offset);
        }
        Some(attachment)
    }

    /// Adopted again, a block may be assigned from again, if it was barred.
    fn adopted(&mut self, adopted: &Adopted) -> Result<(), Contradiction> {
        let networks = adopted.networks();
        let name = Arc::<str>::from(adopted.block.as_str());
        let new = || adopted.block.clone();
        let mut block = Block::new(adopted.pool.as_str().into(), networks, adopted.next)
            .ok_or_else(|| Contradiction::Unusable(new()))?;
        let mut others = self.blocks.iter().filter(|(other, _)| **other != name);
        if let Some((old, _)) = others.find(|(_, other)| other.networks.overlaps(&networks)) {
            return Err(Contradiction::Overlap { old: Arc::clone(old), new: new() });
        }
        for attachment in self.attachments.values() {
            if let Some(offset) = block.offset(attachment.ipv4, attachment.ipv6) {
                block.take(offset);
            }
        }
        block.next = adopted.next % block.size();
        self.blocks.insert(name, block);
        Ok(())
    }

    /// The block of an attachment, and where in it.
    fn home(&self, attachment: &Attachment) -> Option<(Arc<str>, u32)> {
        self.blocks.iter().find_map(|(name, block)| {
            let offset = block.offset(attachment.ipv4, attachment.ipv6)?;
            Some((Arc::clone(name), offset))
        })
    }

    /// Records that make the same index from nothing.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> {
        let blocks = self.blocks.iter().flat_map(|(name, block)| {
            let Networks { ipv4, ipv6 } = block.networks;
            let adopted = Adopted {
                block: name.to_string(),
                pool: block.pool.to_string(),
                ipv4,
                ipv6,
                next: block.next,
            };
            let barred = block.barred.as_ref();
            let barred =
                barred.map(|why| Record::Barred { block: name.to_string(), why: why.to_string() });
            std::iter::once(Record::Adopted(adopted)).chain(barred)
        });
        // Blocks last: taking an address moves what is next.
        let attachments = self.attachments.values().map(|one| Record::Assigned(Arc::clone(one)));
        attachments.chain(blocks)
    }
}

fn addresses(attachment: &Attachment) -> impl Iterator<Item = IpAddr> {
    let ipv4 = attachment.ipv4.map(IpAddr::from);
    ipv4.into_iter().chain(attachment.ipv6.map(IpAddr::from))
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
