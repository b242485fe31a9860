//! Clusters joined by WireGuard: a `ClusterMesh` and the nodes of its clusters in, Kilo's `Peer`s out.
//! Kilo stays the data plane.
//!
//! ```text
//! nodes ──► member (one node) ──► source (one cluster) ──┐
//!                                                        ├──► plan, per target ──► creates, updates,
//! ClusterMesh ──► overlap ───────────────────────────────┤                         deletes, status
//! peers ─────────────────────────────────────────────────┘
//! ```
//!
//! Everything here is a pure function: no clock, no I/O, and the order of what goes in does not
//! matter.
//!
//! Invariants:
//! 1. A plan applied is a plan that has nothing left to do.
//! 2. In every cluster, no address belongs to the peers of two public keys: WireGuard would give it
//!    to the one that was written last.
//! 3. What cannot be seen is not gone: the peers of a cluster whose nodes are unknown are left alone.
//! 4. Peers of others are never touched.

pub mod controller;
mod endpoint;
mod member;
mod name;
mod overlap;
mod peer;
mod plan;
mod source;
mod status;

pub use endpoint::{Endpoint, Host, MalformedEndpoint};
pub use member::{Reason, Skipped};
pub use name::{hashed, plain};
pub use overlap::{Overlap, overlaps};
pub use peer::{DnsOrIp, Peer, PeerEndpoint, PeerSpec, label};
pub use plan::{Conflict, Input, Plan, Seen, TargetPlan, Update, View, plan};
