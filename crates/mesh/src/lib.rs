//! Clusters joined by WireGuard: a `ClusterMesh` and the nodes of its clusters in, peers out. The data
//! plane is Kilo, by its `Peer`s, or Fairlead's own agents, by `WireguardPeer`s.
//!
//! ```text
//! nodes ──► mesh_node (one node) ──► resolver (one cluster) ──┐
//! ClusterMesh ──► context, overlap ───────────────────────────┼──► decide ──► Planner ──► writes, status
//! peers ──► target_peers ─────────────────────────────────────┘
//! ```
//!
//! All of that is pure: no clock, no I/O, and the order of the input does not matter. [`plan`] makes a
//! plan from nothing, [`Planner`] keeps a plan up to date, and [`controller`] carries it out.
//!
//! Invariants:
//! 1. When a plan has been applied, the next plan is empty.
//! 2. In every cluster, no address belongs to peers of two public keys, but for networks that gateways
//!    share: WireGuard would give the address to the peer that was written last.
//! 3. What is unknown is not gone: the peers of a cluster whose nodes are unknown are left alone.
//! 4. Peers of others are never touched.

mod check;
mod context;
pub mod controller;
mod decide;
mod dot;
mod endpoint;
mod mesh_node;
mod meshes;
mod name;
mod network_claims;
mod observation;
mod overlap;
mod pairs;
mod peer;
mod peer_crd;
mod peer_index;
mod plan;
mod planner;
mod resolver;
pub mod services;
mod set_map;
mod source;
mod status;
mod target_peers;
mod tunnels;

pub use check::{Finding, Reachability, check, check_tunnels};
pub use dot::dot;
pub use mesh_node::{SkipReason, Skipped, with_wireguard};
pub use meshes::{ExternalPeerError, ForgetError, Meshes};
pub use name::{hashed_name, plain_name};
pub use observation::{Index, Observation, Observed, index};
pub use overlap::{Overlap, overlaps};
pub use peer::{DnsOrIp, Peer, PeerEndpoint, PeerSpec, label};
pub use peer_crd::peer_crd;
pub use peer_index::PeerIndex;
pub use plan::{Conflict, Plan, TargetPlan, Update, plan};
pub use planner::Planner;
pub use tunnels::{ClusterTunnels, NodeTunnels};
