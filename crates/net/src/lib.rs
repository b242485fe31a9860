//! Pools, blocks, addresses, pod wiring: what the node daemon does.

pub mod addresses;
pub mod attach;
mod attachment;
mod block;
pub mod claims;
pub mod daemon;
pub mod facts;
#[cfg(feature = "faults")]
pub mod faults;
mod index;
mod journal;
pub mod leader;
mod metrics;
pub mod node;
#[cfg(test)]
mod pods;
pub mod pool;
pub mod purge;
pub mod reconcile;
pub mod routes;
pub mod server;
mod trust;
pub mod wiring;

pub use addresses::Addresses;
pub use attachment::{Attachment, Key, NamespaceId, Pod};
