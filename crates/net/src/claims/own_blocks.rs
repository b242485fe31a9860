//! `OwnBlocks`: which blocks the store gives to this node, and which others overlap them, kept up to date by
//! what changes.
//!
//! Contract:
//! - [`OwnBlocks::follow`] costs what differs between two published maps, times this node's blocks. A block that
//!   becomes this node's is compared with all, once.
//! - A block's status makes no difference.

use std::collections::{BTreeMap, BTreeSet};

use imbl::ordmap::DiffItem;
use objects::kinds::AddressBlock;

use super::Blocks;
use crate::trust;

#[derive(Debug)]
pub(super) struct OwnBlocks {
    node: String,
    /// What was followed last.
    blocks: Blocks,
    /// For each of this node's blocks the names of the others, of any node, that overlap it.
    overlapping: BTreeMap<String, BTreeSet<String>>,
}

impl OwnBlocks {
    pub(super) fn new(node: &str) -> Self {
        let (node, blocks) = (node.to_owned(), Blocks::default());
        Self { node, blocks, overlapping: BTreeMap::new() }
    }

    pub(super) fn follow(&mut self, blocks: &Blocks) {
        let before = std::mem::replace(&mut self.blocks, blocks.clone());
        let mut new_here = Vec::new();
        for difference in before.diff(blocks) {
            let (name, block) = match difference {
                DiffItem::Update { old, new } if old.1.spec == new.1.spec => continue,
                DiffItem::Add(name, block) | DiffItem::Update { new: (name, block), .. } => {
                    (name, Some(block))
                }
                DiffItem::Remove(name, _) => (name, None),
            };
            self.overlapping.remove(name);
            for (own, others) in &mut self.overlapping {
                let overlaps =
                    |it: &AddressBlock| blocks.get(own).is_some_and(|own| overlap(own, it));
                match block.is_some_and(|it| overlaps(it)) {
                    true => others.insert(name.clone()),
                    false => others.remove(name),
                };
            }
            if block.is_some_and(|block| block.spec.node == self.node) {
                new_here.push(name.clone());
            }
        }
        for name in new_here {
            let Some(own) = blocks.get(&name) else { continue };
            let others =
                blocks.iter().filter(|(other, block)| **other != name && overlap(own, block));
            let others = others.map(|(other, _)| other.clone()).collect();
            self.overlapping.insert(name, others);
        }
    }

    /// Returns the names of this node's blocks, each with the names of those that overlap it, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &BTreeSet<String>)> {
        self.overlapping.iter()
    }
}

fn overlap(own: &AddressBlock, other: &AddressBlock) -> bool {
    own.spec.networks().overlaps(&other.spec.networks()) && !trust::is_oversized(other)
}

#[cfg(test)]
mod tests;
