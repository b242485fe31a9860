//! `LocalBlock`: which addresses of one of this node's blocks are taken.
//!
//! The next address is the one after the last that was given, round and round: an address that was
//! just released is the last to be given again, so that clients of the old pod do not reach the new
//! one.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use objects::kinds::{MOST_BLOCK_BITS, Networks};

/// The two addresses at one offset of a block; one is missing where the block has one family.
pub(crate) type AddressPair = (Option<Ipv4Addr>, Option<Ipv6Addr>);

/// A block of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalBlock {
    pub(crate) pool: Arc<str>,
    pub(crate) networks: Networks,
    /// Why nothing more is assigned from it.
    pub(crate) cordoned: Option<Arc<str>>,
    /// The offset after the last that was given.
    pub(crate) next: u32,
    /// One bit for each address.
    taken: Vec<u64>,
    used: u32,
}

impl LocalBlock {
    /// Returns none if `networks` are empty, or larger than any pool's blocks.
    pub(crate) fn new(pool: Arc<str>, networks: Networks, next: u32) -> Option<Self> {
        let bits = networks.host_bits().filter(|bits| *bits <= MOST_BLOCK_BITS)?;
        let size = 1_u32 << bits;
        let words = size.div_ceil(64) as usize;
        let next = next % size;
        Some(Self { pool, networks, cordoned: None, next, taken: vec![0; words], used: 0 })
    }

    pub fn pool(&self) -> &str {
        &self.pool
    }

    pub fn networks(&self) -> Networks {
        self.networks
    }

    pub fn cordoned(&self) -> Option<&str> {
        self.cordoned.as_deref()
    }

    pub fn size(&self) -> u32 {
        1 << self.networks.host_bits().unwrap_or_default()
    }

    pub fn used(&self) -> u32 {
        self.used
    }

    /// Returns how many more addresses can be assigned.
    pub fn free(&self) -> u32 {
        if self.cordoned.is_some() { 0 } else { self.size() - self.used }
    }

    /// Returns the offset to give next, of those that fit.
    pub(crate) fn vacant(&self, fits: impl Fn(u32) -> bool) -> Option<u32> {
        if self.free() == 0 {
            return None;
        }
        let fitting = |from: u32, to: u32| {
            let mut at = from;
            while let Some(found) = self.vacant_in(at, to) {
                if fits(found) {
                    return Some(found);
                }
                at = found + 1;
            }
            None
        };
        fitting(self.next, self.size()).or_else(|| fitting(0, self.next))
    }

    /// Returns the addresses that can be given, the next one first.
    pub(crate) fn all_vacant(&self) -> impl Iterator<Item = AddressPair> {
        let all = (self.next..self.size()).chain(0..self.next);
        let free = all.filter(|offset| {
            self.cordoned.is_none()
                && self.taken[(offset / 64) as usize] & (1 << (offset % 64)) == 0
        });
        free.map(|offset| self.addresses(offset))
    }

    fn vacant_in(&self, from: u32, to: u32) -> Option<u32> {
        let mut at = from;
        while at < to {
            // Bits below `at` count as taken.
            let word = self.taken[(at / 64) as usize] | ((1 << (at % 64)) - 1);
            let found = (at & !63) + word.trailing_ones();
            if word != u64::MAX {
                return (found < to).then_some(found);
            }
            at = (at & !63) + 64;
        }
        None
    }

    pub(crate) fn addresses(&self, offset: u32) -> AddressPair {
        let Networks { ipv4, ipv6 } = self.networks;
        let ipv4 = ipv4.map(|net| Ipv4Addr::from_bits(net.network().to_bits() + offset));
        let ipv6 =
            ipv6.map(|net| Ipv6Addr::from_bits(net.network().to_bits() + u128::from(offset)));
        (ipv4, ipv6)
    }

    /// Returns the offset of the addresses; none if they are not of this block.
    pub(crate) fn offset(&self, ipv4: Option<Ipv4Addr>, ipv6: Option<Ipv6Addr>) -> Option<u32> {
        let Networks { ipv4: net4, ipv6: net6 } = self.networks;
        if let Some((net, address)) = net4.zip(ipv4) {
            let inside = net.contains(&address);
            return inside.then(|| address.to_bits() - net.network().to_bits());
        }
        let (net, address) = net6.zip(ipv6).filter(|(net, address)| net.contains(address))?;
        u32::try_from(address.to_bits() - net.network().to_bits()).ok()
    }

    /// Marks an offset as given, and as the last one given.
    pub(crate) fn take(&mut self, offset: u32) {
        let (word, bit) = ((offset / 64) as usize, 1 << (offset % 64));
        if self.taken[word] & bit == 0 {
            self.taken[word] |= bit;
            self.used += 1;
        }
        self.next = (offset + 1) % self.size();
    }

    pub(crate) fn give_back(&mut self, offset: u32) {
        let (word, bit) = ((offset / 64) as usize, 1 << (offset % 64));
        if self.taken[word] & bit != 0 {
            self.taken[word] &= !bit;
            self.used -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
