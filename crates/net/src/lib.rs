//! Pools, blocks, addresses, pod wiring: what the node daemon does.

pub mod addresses;
pub mod attach;
mod attachment;
pub mod claims;
pub mod facts;
pub mod leader;
mod metrics;
pub mod pool;
pub mod server;

pub use addresses::Addresses;
pub use attachment::{Attachment, Key, NamespaceId, Pod};
