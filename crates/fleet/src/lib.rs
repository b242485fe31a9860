//! Clusters: where they come from, connecting, health, discovery, and work on their resources.

mod connection;
mod error;

pub mod resources;

pub use connection::Connection;
pub use error::Error;
