//! Clusters: where they come from, connecting, health, discovery, and work on their resources.

mod connection;
pub mod discovery;
mod error;
pub mod fan;
pub mod merge;
pub mod resources;
#[cfg(test)]
mod scripted;

pub use connection::Connection;
pub use discovery::{Discovery, Found};
pub use error::Error;
