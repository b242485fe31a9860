//! The controller.

use fleet::Fleet;
use flow::Ledger;
use objects::Leader;

/// Begins what the leader does for meshes; ends with the leader's tasks.
pub fn start(_leader: &Leader, _fleet: &Fleet, _ledger: &Ledger) {}
