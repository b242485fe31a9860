//! What one of all controllers does for pools: it takes back the blocks of nodes that are gone, and
//! says how pools are. Nobody waits for it: nodes claim and give back by themselves.
//!
//! Contract:
//! - A node is gone when the API server has had no `Node` of its name for the grace, without a break,
//!   and says so once more when asked; leaders that follow each other count on. Its blocks are deleted
//!   as they were then; a node that comes back claims those again that its pods use. A cluster without
//!   any `Node` has lost none.
//! - A pool's status is what its blocks say. It is written when it changes, every few seconds at most.
//! - What takes a person is a condition: `Ready` (whether it is claimed from, and why not), `Exhausted`,
//!   `Consistent` (blocks that the pool does not have, blocks that say an address which their `Node` does
//!   not have, and what nodes are in trouble about).

mod reclaim;
pub(crate) mod shown;
mod status;

use std::time::Duration;

use objects::Leader;
use stallproof::Snapshot;

use crate::claims::{Blocks, watch_blocks};
use crate::trust::{Nodes, watch_nodes};

/// How long a node may be without a `Node` before its blocks are taken back: longer than a node takes
/// to be made anew under its old name.
pub const GRACE: Duration = Duration::from_secs(600);

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
    let Leader { tasks, objects, .. } = leader;
    let stop = tasks.stopping();
    let blocks = Snapshot::<Blocks>::default();
    tasks.spawn("net-blocks", watch_blocks(objects.clone(), blocks.clone(), stop.clone()));
    let nodes = Snapshot::new(Nodes::Absent);
    if reclaim != Reclaim::Never {
        tasks.spawn("net-nodes", watch_nodes(objects.clone(), nodes.clone(), stop.clone()));
    }
    let say = status::run(objects.clone(), blocks.clone(), nodes, stop.clone());
    tasks.spawn("net-pool-status", say);
    if let Reclaim::WithoutNode(grace) = reclaim {
        tasks.spawn("net-reclaim", reclaim::run(objects.clone(), blocks, grace, stop));
    }
}
