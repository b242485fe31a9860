//! What the leading controller does for address pools: it takes back the blocks of nodes that are gone,
//! and writes the pools' statuses. Nobody waits for it: nodes claim and return blocks by themselves.
//!
//! Contract:
//! - A node is gone when the API server has had no `Node` of its name for the grace, without a break,
//!   and says so once more when asked; leaders that follow each other go on counting. The node's blocks
//!   are deleted if they have not changed since; a node that comes back claims those again that its pods
//!   use. A cluster without any `Node` has lost none.
//! - A pool's status is the sum of its blocks. It is written when it changes, every few seconds at most.
//! - What a person must act on is a condition: `Ready` (whether it is claimed from, and why not), `Exhausted`,
//!   `Consistent` (blocks that the pool does not have, blocks that say an address which their `Node` does
//!   not have, and what nodes are in trouble about).

pub(crate) mod pool_rows;
mod reclaim;
mod status;

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use objects::{Leader, Within};

use crate::pool::Pools;
use crate::trust;
use reclaim::BlockReclaimer;
use status::PoolStatusWriter;

/// How long a node may be without a `Node` before its blocks are taken back: longer than a node takes
/// to be made anew under its old name.
pub const GRACE: Duration = Duration::from_secs(600);

/// Whether the blocks of a node that is gone are taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// They are not: the store has no `Node`s that could say that a node is gone.
    Never,
    /// They are taken back when there has been no `Node` of its name for this long.
    WithoutNode(Duration),
}

/// Begins the work of a leader's term.
pub fn start(leader: &Leader, reclaim: Reclaim) {
    let Leader { tasks, objects, .. } = leader;
    let blocks = objects.watched(Within::default(), tasks);
    let nodes = (reclaim != Reclaim::Never).then(|| {
        objects.watched_as(Within::default(), tasks, |node: Node| Some(trust::addresses(&node)))
    });
    if let (Reclaim::WithoutNode(grace), Some(nodes)) = (reclaim, nodes.clone()) {
        let reclaimer = BlockReclaimer::new(objects.clone(), blocks.clone(), nodes, grace);
        leader.reconcile("reclaim-blocks", "", reclaim::pace(grace), reclaimer);
    }
    let pools = Pools::watch(objects, tasks);
    let writer = PoolStatusWriter::new(objects.clone(), pools, blocks, nodes);
    leader.reconcile("pool-status", "", status::PACE, writer);
}
