//! Truth tables: three namespaces, three pods in each, every protocol and port, for every feature of
//! every kind of policy. Each is decided by the evaluator and by the compiled programs.
//!
//! The cases of NetworkPolicy are those of Kubernetes' own end-to-end suite, the cases of
//! ClusterNetworkPolicy those of network-policy-api's conformance suite, written anew for this cluster.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster_policy;
mod guard;
mod network_policy;
mod table;
