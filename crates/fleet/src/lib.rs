//! Clusters: where they come from, connecting, health, discovery, and work on their resources.

mod config;
mod connection;
mod credentials;
pub mod discovery;
mod error;
pub mod fan;
mod fleet;
pub mod merge;
pub mod resources;
mod source;
mod view;

pub use config::{FleetConfig, InCluster, Secrets, Timing};
pub use connection::Connection;
pub use discovery::{Discovery, Found};
pub use error::Error;
pub use fleet::{Fleet, Step, TestReport};
pub use view::{ClusterView, FleetView, Pulse, Source, SourceKind, State};
