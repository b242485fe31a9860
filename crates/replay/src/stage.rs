//! What both designs act on: the same nodes, pods, clusters and tenants.

pub(crate) mod agents;
pub(crate) mod fleet;
pub(crate) mod http;
pub(crate) mod node;
pub(crate) mod replica;
pub(crate) mod server;
pub(crate) mod stand_in;
pub(crate) mod tenants;
