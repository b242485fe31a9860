//! Network policy: Kubernetes' NetworkPolicy, ClusterNetworkPolicy and guard's own rules in, a node's
//! [`Program`] out.
//!
//! Invariants: nothing here does I/O or waits.

pub mod cluster;
pub mod compile;
pub mod evaluate;
pub mod program;
pub mod ranges;
pub mod spec;

pub use program::{Delta, Program};
