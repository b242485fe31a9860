//! Pod networking: what the agent does on its node, and what one controller does for all pools.
//!
//! ```text
//! runtime ─► server ─► CniService ─► Addresses (journal) ◄─ BlockClaims ◄─ pools and blocks in the store
//!                          └───────► Datapath: Wiring ─► kernel
//! KernelReconciler: journal × kernel      routes: blocks that are trusted ─► kernel
//! masquerade: pools ─► kernel (nf_tables)
//! encryption: blocks that are trusted ─► the WireGuard interface
//! ```
//!
//! Invariants:
//! 1. No pod waits for another: requests wait for requests about the same attachment only.
//! 2. An address is in the journal before it is used, and is given to one attachment at a time.
//! 3. A request asks nobody but the journal and the kernel; blocks are claimed beside it.

mod address_table;
pub mod addresses;
mod attachment;
pub mod claims;
pub mod coil;
pub mod daemon;
pub mod datapath;
pub mod egress;
pub mod encryption;
#[cfg(feature = "faults")]
pub mod faults;
mod foreign;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod journal;
mod local_block;
pub mod masquerade;
mod metrics;
pub mod namespace_pools;
pub mod node;
pub mod overlay;
pub mod pool;
pub mod pool_controller;
pub mod purge;
pub mod reconcile;
pub mod routes;
pub mod server;
pub mod service;
#[cfg(test)]
mod tests;
mod trust;
pub mod wiring;

pub use addresses::Addresses;
pub use attachment::{Attachment, AttachmentKey, Fixed, NamespaceId, Pod};
