//! Which peer has an address: networks of both families in a tree of prefixes, the longest of which counts.
//!
//! Contract:
//! - A clone costs two pointers. It shares all that neither side changes afterwards, so one is edited and
//!   published while packets are looked up in the one that was published before.
//! - A change copies the nodes on its way from the root, and no others. A node has a value or two children,
//!   so there are at most as many on a way as a prefix has bits, and about the logarithm of the number of
//!   networks where these are spread evenly.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// Values by networks.
#[derive(Clone)]
pub(crate) struct AllowedIps<T> {
    v4: Link<T>,
    v6: Link<T>,
}

type Link<T> = Option<Arc<Node<T>>>;

#[derive(Clone)]
struct Node<T> {
    prefix: Prefix,
    value: Option<T>,
    children: [Link<T>; 2],
}

/// The first bits of an address; those behind them are zero.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Prefix {
    bits: u128,
    length: u8,
}

impl<T> Default for AllowedIps<T> {
    fn default() -> Self {
        Self { v4: None, v6: None }
    }
}

impl<T> fmt::Debug for AllowedIps<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllowedIps").finish_non_exhaustive()
    }
}

impl Prefix {
    fn of(network: &IpNet) -> Self {
        Self { bits: bits(network.network()), length: network.prefix_len() }
    }

    /// How many bits two have in common.
    fn common(self, other: Self) -> u8 {
        let same = (self.bits ^ other.bits).leading_zeros() as u8;
        same.min(self.length).min(other.length)
    }

    fn shortened(self, length: u8) -> Self {
        let mask = !u128::MAX.checked_shr(length.into()).unwrap_or(0);
        Self { bits: self.bits & mask, length }
    }

    /// Which child of a node with a prefix of this length leads to it.
    fn child(self, length: u8) -> usize {
        (self.bits >> (127 - length) & 1) as usize
    }
}

/// An address in the highest bits.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(it) => u128::from(it.to_bits()) << 96,
        IpAddr::V6(it) => it.to_bits(),
    }
}

impl<T> Node<T> {
    fn leaf(prefix: Prefix, value: T) -> Link<T> {
        Some(Arc::new(Self { prefix, value: Some(value), children: [None, None] }))
    }
}

impl<T: Clone> AllowedIps<T> {
    /// Returns the value of the longest network that has an address.
    pub(crate) fn find(&self, address: IpAddr) -> Option<&T> {
        let (root, length) = match address {
            IpAddr::V4(_) => (&self.v4, 32),
            IpAddr::V6(_) => (&self.v6, 128),
        };
        let whole = Prefix { bits: bits(address), length };
        let (mut next, mut found) = (root, None);
        while let Some(node) = next {
            let length = node.prefix.length;
            if node.prefix.common(whole) < length {
                break;
            }
            found = node.value.as_ref().or(found);
            if length == whole.length {
                break;
            }
            next = &node.children[whole.child(length)];
        }
        found
    }

    /// Returns the value of a network itself.
    pub(crate) fn get(&self, network: &IpNet) -> Option<&T> {
        let prefix = Prefix::of(network);
        let mut next = self.root(network);
        while let Some(node) = next {
            if node.prefix == prefix {
                return node.value.as_ref();
            }
            let length = node.prefix.length;
            if node.prefix.common(prefix) < length || length == prefix.length {
                return None;
            }
            next = &node.children[prefix.child(length)];
        }
        None
    }

    /// Gives a network a value, and returns the one that it had.
    pub(crate) fn insert(&mut self, network: &IpNet, value: T) -> Option<T> {
        insert(self.root_mut(network), Prefix::of(network), value)
    }

    /// Takes a network away.
    pub(crate) fn remove(&mut self, network: &IpNet) {
        // What is not there must copy nothing.
        if self.get(network).is_some() {
            remove(self.root_mut(network), Prefix::of(network));
        }
    }

    fn root(&self, network: &IpNet) -> &Link<T> {
        match network {
            IpNet::V4(_) => &self.v4,
            IpNet::V6(_) => &self.v6,
        }
    }

    fn root_mut(&mut self, network: &IpNet) -> &mut Link<T> {
        match network {
            IpNet::V4(_) => &mut self.v4,
            IpNet::V6(_) => &mut self.v6,
        }
    }
}

fn insert<T: Clone>(link: &mut Link<T>, prefix: Prefix, value: T) -> Option<T> {
    let Some(node) = link else {
        *link = Node::leaf(prefix, value);
        return None;
    };
    let (at, common) = (node.prefix, node.prefix.common(prefix));
    if common == at.length {
        let node = Arc::make_mut(node);
        if common == prefix.length {
            return node.value.replace(value);
        }
        return insert(&mut node.children[prefix.child(common)], prefix, value);
    }
    // They part above the node.
    let mut above = Node { prefix: at.shortened(common), value: None, children: [None, None] };
    above.children[at.child(common)] = link.take();
    if common == prefix.length {
        above.value = Some(value);
    } else {
        above.children[prefix.child(common)] = Node::leaf(prefix, value);
    }
    *link = Some(Arc::new(above));
    None
}

/// Removes the value of a prefix that is there.
fn remove<T: Clone>(link: &mut Link<T>, prefix: Prefix) {
    let Some(node) = link else { return };
    let node = Arc::make_mut(node);
    if node.prefix == prefix {
        node.value = None;
    } else {
        remove(&mut node.children[prefix.child(node.prefix.length)], prefix);
    }
    if node.value.is_some() || node.children.iter().all(Option::is_some) {
        return;
    }
    // It has neither a value nor two children: what is left takes its place.
    let [zero, one] = std::mem::take(&mut node.children);
    *link = zero.or(one);
}

#[cfg(test)]
mod tests;
