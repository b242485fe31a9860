//! One WireGuard interface of this node: its key, its peers, its routes.
//!
//! ```text
//! WireguardPeer objects ──► agent ──► wanted peers
//! key file (0600) ──► PrivateKey ─┐
//! wanted peers ──► delta (pure) ──┴─► Tunnel ──► device: the kernel's, or one in this process
//!                                       └──────► routes of what peers are allowed
//! ```
//!
//! The kernel's WireGuard is used where the kernel has it. Elsewhere the packets go through this process:
//! `gotatun` on threads of its own, over a TUN interface. (Of the two implementations in Rust it is the one
//! that sends and receives in batches, was audited, builds on ring, and leaves TUN, sockets and
//! configuration to its user; `boringtun` does none of that.)
//!
//! Invariants:
//! 1. A private key leaves neither this crate nor the node; it is readable by its owner alone.
//! 2. Peers are changed by what differs: a peer that stays keeps its session.
//! 3. An address that two peers want belongs to the one that was wanted last, never to both.
//! 4. Routes lead only to what a peer is allowed, and only routes of this crate are ever touched.

pub mod agent;
mod device;
mod key;
mod peer;
mod rotation;
mod routes;
mod tun_queue;
mod tunnel;
mod uapi;
mod userspace;

pub use device::{DeviceError, Implementation};
pub use key::{KeyFile, KeyFileError, PresharedKey, PrivateKey, PublicKey};
pub use peer::{Delta, Peer, PeerStatus, Peers, delta};
pub use tunnel::{Tunnel, TunnelConfig, TunnelError, TunnelStatus};
