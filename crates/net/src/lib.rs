//! Pools, blocks, addresses, pod wiring: what the node daemon does.

mod attachment;

pub use attachment::{Attachment, Key, NamespaceId, Pod};
