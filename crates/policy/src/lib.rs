//! Network policy: Kubernetes' NetworkPolicy, ClusterNetworkPolicy and guard's own rules in, a node's
//! [`Program`] out.
//!
//! Invariants: nothing here does I/O or waits.

pub mod program;

pub use program::{Delta, Program};
