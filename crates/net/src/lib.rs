//! Pools, blocks, addresses, pod wiring: what the node daemon does.

mod attachment;
pub mod node;
pub mod wiring;

pub use attachment::{Attachment, Key, NamespaceId, Pod};
