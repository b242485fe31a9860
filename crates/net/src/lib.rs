//! Pools, blocks, addresses, pod wiring: what the node daemon does.

pub mod addresses;
mod attachment;
mod block;
pub mod claims;
pub mod facts;
mod index;
mod journal;
pub mod leader;
pub mod pool;

pub use addresses::Addresses;
pub use attachment::{Attachment, Key, NamespaceId, Pod};
