//! Pools, blocks, addresses, pod wiring: what the node daemon does.

mod attachment;
pub mod node;
#[cfg(test)]
mod pods;
pub mod routes;
pub mod wiring;

pub use attachment::{Attachment, Key, NamespaceId, Pod};
