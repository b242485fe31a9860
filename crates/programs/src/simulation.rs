//! The followers of nodes without the compiler's thread: whoever simulates publishes programs.

use std::sync::Arc;

use policy::program::Program;
use tokio::sync::watch;

use crate::follower::Nodes;
use crate::{Applied, Follower, Position};

/// What one controller knows of nodes' agents.
#[derive(Debug, Default)]
pub struct SimulatedNodes(Nodes);

impl SimulatedNodes {
    /// An agent that has what `has` says begins to follow.
    pub fn follow(
        &self,
        node: &str,
        newest: watch::Receiver<Option<Arc<Program>>>,
        has: Position,
    ) -> Follower {
        Follower::new(self.0.slot(node), newest, has)
    }

    /// Takes in what became of a change.
    pub fn applied(&self, node: &str, applied: Applied) {
        if let Some(slot) = self.0.find(node) {
            slot.applied(applied);
        }
    }
}
