//! The old designs: small models, each written from its report, with the report's nesting and nothing
//! that the report does not say. Where they act on something, a kernel, an API server, a TLS peer, it
//! is the same real thing that the new design acts on.

pub(crate) mod cluster_sync;
pub(crate) mod cni_burst;
pub(crate) mod controller_stall;
pub(crate) mod late_crd;
