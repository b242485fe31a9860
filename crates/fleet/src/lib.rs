//! Clusters: where they come from, connecting, health, discovery, and work on their resources.
//!
//! ```text
//! kubeconfig files ─┐                                 ┌─ connect, probe ─┐ a task a cluster
//! Secrets ──────────┼─► merge ─► Snapshot<FleetView> ◄┴──────────────────┘
//! this pod ─────────┤                  │
//! imports ──────────┘                  └─► Connection ─► call: lane, breaker, ledger, deadline
//! ```
//!
//! Invariants:
//! 1. A reader never waits: looking a cluster up is a load and a map lookup.
//! 2. No cluster waits for another, to be connected or to be called.
//! 3. A cluster that does not answer is never called ready; what is wrong is said in a sentence.
//! 4. What cannot be loaded is a cluster with an error, never an error of the others.
//! 5. A client stops after its last user, never under it.

mod client;
mod config;
mod connect;
mod connection;
mod context;
mod credentials;
mod dial;
pub mod discovery;
mod error;
mod failure;
pub mod fan;
mod fleet;
pub mod merge;
pub mod resources;
mod source;
mod view;
pub mod warnings;

pub use config::{FleetConfig, InCluster, Secrets, Timing};
pub use connection::Connection;
pub use dial::Step;
pub use discovery::{Discovery, ServedKind};
pub use error::Error;
pub use fleet::{Fleet, TestReport};
pub use source::{Offers, SecretCluster};
pub use view::{ClusterView, FleetView, Heartbeat, Source, SourceKind, State};

#[cfg(test)]
mod tests {
    pub(crate) mod scripted;
}
