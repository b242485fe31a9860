//! Pools, blocks, addresses, pod wiring: what the node daemon does.

pub mod addresses;
mod attachment;
pub mod claims;
pub mod facts;
pub mod leader;
pub mod pool;

pub use addresses::Addresses;
pub use attachment::{Attachment, Key, NamespaceId, Pod};
