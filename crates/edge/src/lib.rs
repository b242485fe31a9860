//! The edges: what the outside speaks to. Thin translations, no decisions.
//!
//! ```text
//! listener ──► stallproof::accept (bounded connections) ──► serve (TLS and header deadlines)
//!          ──► router ──► the API of the crate that decides
//! ```
//!
//! - [`api`]: REST, events and WebSockets for programs and browsers; every request passes one pipeline.
//! - [`webhook`]: admission reviews of API servers, with a listener and a gate of their own.
//! - [`agents`]: nodes' agents over gRPC, both ends of it.
//! - [`admin`]: health, metrics, and what is in flight.
//! - [`outbound`]: the other way round, requests to identity providers.
//!
//! The admin edge has a thread and a runtime of its own, so that it answers while every worker of
//! the main runtime is blocked. Nothing here waits on a lock that a blocked worker could hold.

pub mod admin;
pub mod agents;
pub mod api;
pub mod error_code;
pub mod exposition;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
pub mod outbound;
mod reply;
mod same_site;
pub mod serve;
pub mod tls;
pub mod webhook;

pub use error_code::ErrorCode;
