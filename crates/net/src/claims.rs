//! `Claims`: this node's blocks: claimed before they are needed, given back when they are not.

use std::net::IpAddr;
use std::sync::Arc;

use flow::{Snapshot, Tasks};
use imbl::OrdMap;
use objects::Objects;
use objects::kinds::AddressBlock;

use crate::Addresses;

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
    /// Whether the store has told them all; before, and while it is away, these are the last known.
    pub synced: bool,
    pub by_name: OrdMap<String, Arc<AddressBlock>>,
}

/// Clones are handles of the same.
#[derive(Clone, Debug)]
pub struct Claims {
    blocks: Snapshot<Blocks>,
}

impl Claims {
    /// Runs until `tasks` stops.
    pub fn start(
        objects: Objects,
        node: NodeIdentity,
        addresses: Addresses,
        tasks: &Tasks,
    ) -> Self {
        let _ = (objects, node, addresses, tasks);
        todo!()
    }

    /// For routes, and for people.
    pub fn blocks(&self) -> Snapshot<Blocks> {
        self.blocks.clone()
    }

    /// What is wrong and takes a person, one sentence each.
    pub fn troubles(&self) -> Vec<String> {
        Vec::new()
    }
}
