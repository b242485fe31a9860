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
//! All of that is pure: no clock, no I/O, and the order of what goes in does not matter. [`plan`] says
//! it from nothing, [`State`] keeps up with changes, and [`controller`] does what they say.
//!
//! Invariants:
//! 1. A plan applied is a plan that has nothing left to do.
//! 2. In every cluster, no address belongs to the peers of two public keys: WireGuard would give it
//!    to the one that was written last.
//! 3. What cannot be seen is not gone: the peers of a cluster whose nodes are unknown are left alone.
//! 4. Peers of others are never touched.

mod check;
pub mod controller;
mod decide;
mod definition;
mod dot;
mod endpoint;
mod frame;
mod member;
mod meshes;
mod name;
mod overlap;
mod peer;
mod plan;
mod source;
mod state;
mod status;
mod there;

pub use check::{Check, Finding, check};
pub use definition::definition;
pub use dot::dot;
pub use endpoint::{Endpoint, Host, MalformedEndpoint};
pub use member::{Reason, Skipped};
pub use meshes::{ForgetError, Meshes};
pub use name::{hashed, plain};
pub use overlap::{Overlap, overlaps};
pub use peer::{DnsOrIp, Peer, PeerEndpoint, PeerSpec, label};
pub use plan::{Conflict, Input, Plan, Seen, TargetPlan, Update, View, plan};
pub use state::{Index, Sight, State};
