//! One WireGuard interface of this node: its key, its peers, its routes.
//!
//! ```text
//! WireguardPeer objects ──► agent ──► wanted peers ◄── who does not answer, how large packets may be
//! key file (0600) ──► PrivateKey ─┐
//! wanted peers ──► delta (pure) ──┴─► Tunnel ──► device: the kernel's, or one in this process
//!                                       └──────► routes of what peers are allowed, guards beneath them
//! prober ◄──echo through the tunnel──► peers
//! ```
//!
//! The kernel's WireGuard is used where the kernel has it. Elsewhere the packets go through this process:
//! a device of our own, over a TUN interface, around `gotatun`'s protocol. (Of the two implementations in Rust
//! it is the one that was audited, builds on ring, and can be had without its I/O. Its own device looks at the
//! networks of all peers for each change of one, and packets wait for that.)
//!
//! Invariants:
//! 1. A private key leaves neither this crate nor the node; it is readable by its owner alone.
//! 2. Peers are changed by what differs: a peer that stays keeps its session.
//! 3. An address that two peers want belongs to the one that was wanted last, never to both.
//! 4. Routes lead only to what a peer is allowed, and only routes of this crate are ever touched.
//! 5. Packets for a network that a peer has, or had when the process ended, are encrypted or refused.

pub mod agent;
mod claims;
mod clamp;
mod cluster;
mod device;
mod key;
mod moving;
mod names;
mod offload;
mod path;
mod peer;
mod preshared;
mod prober;
mod purge;
mod report;
mod rotation;
mod route_plan;
mod routes;
mod tunnel;
mod uapi;
mod udp;
mod userspace;

pub use cluster::{ClusterTunnel, ClusterTunnels, Encryption, NodeNetworks, PodNetwork};
pub use device::{DeviceError, Implementation};
pub use key::{KeyFile, KeyFileError, PresharedKey, PrivateKey, PublicKey};
pub use path::PathStatus;
pub use peer::{Delta, Peer, PeerStatus, Peers, Routing, delta};
pub use preshared::PresharedKeysError;
pub use purge::purge;
pub use route_plan::PeerChanges;
pub use tunnel::{Tunnel, TunnelConfig, TunnelError, TunnelStatus};
