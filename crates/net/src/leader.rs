//! What one of all controllers does for pools: it takes back the blocks of nodes that are gone, and
//! says how pools are.

use std::time::Duration;

use objects::Leader;

/// What becomes of the blocks of a node that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// Nothing: there is nobody who could say that it is gone.
    Never,
    /// They are taken back when there has been no `Node` of its name for this long.
    WithoutNode(Duration),
}

/// At the start of a term: spawns its work into the leader's tasks.
pub fn lead(leader: &Leader, reclaim: Reclaim) {
    let _ = (leader, reclaim);
}
