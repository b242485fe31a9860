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
//! 1. A reader never waits: finding a cluster is a load and a map lookup.
//! 2. No cluster waits for another, neither to be connected nor to be called.
//! 3. A cluster that does not answer is never shown as ready; a sentence says what is wrong.
//! 4. A cluster that cannot be loaded is shown with its error and does not affect the others.
//! 5. Where users act under their own names, nothing of theirs is done by Fairlead's own account.
//! 6. A client lives until its last user drops it.

mod actor;
mod bounded;
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
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod local_address;
pub mod merge;
pub mod resources;
mod source;
mod view;
pub mod warnings;

pub use actor::Actor;
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
