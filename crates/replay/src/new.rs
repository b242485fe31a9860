//! Fairlead's real code over its real edges, with the fault at the same place.

pub(crate) mod cluster_sync;
pub(crate) mod cni_burst;
pub(crate) mod controller_stall;
pub(crate) mod mesh;
