//! Network policy: Kubernetes' NetworkPolicy, ClusterNetworkPolicy and guard's own rules in, a node's
//! [`Program`] out.
//!
//! Invariants: nothing here does I/O or waits.

pub mod cluster;
pub mod compile;
pub mod evaluate;
mod inputs;
pub mod list;
pub mod manifest;
pub mod probe;
pub mod program;
pub mod publish;
pub mod ranges;
pub mod spec;
pub mod words;

pub use compile::{Change, Compiler};
pub use inputs::Inputs;
pub use probe::{Answer, Probe, ProbePort};
pub use program::{Delta, Program};
pub use publish::Publisher;
