//! Clusters: where they come from, connecting, health, discovery, and work on their resources.

mod config;
mod connection;
mod credentials;
mod error;
mod fleet;
mod source;
mod view;

pub use config::{FleetConfig, InCluster, Secrets, Timing};
pub use connection::Connection;
pub use error::Error;
pub use fleet::{Fleet, Step, TestReport};
pub use view::{ClusterView, FleetView, Pulse, Source, SourceKind, State};
