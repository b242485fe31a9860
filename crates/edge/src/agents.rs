//! The controller's end of the agents' gRPC connections; the agents' end is `node::client`.
//!
//! ```text
//! listener ──► TLS (which node?) ──► HTTP/2 ──► Enrol, Renew ──► pki::agents::Authority
//!                                          ├──► Join, Leave ──► traffic::agents::Agents
//!                                          ├──► Report ──► frames (budget) ──► Report ──► gate ──► ReportSink (ingest)
//!                                          ├──► Rules ◄── AgentPolicy
//!                                          └──► Programs, Applied ◄──► programs::Programs
//! ```
//!
//! Contract:
//! - A certificate says which node an agent is on; an agent without one may enrol, and nothing else.
//! - A join waits for joins alone, a report for reports alone, and a stranger for strangers alone:
//!   each has a gate and connections of its own.
//! - Nothing is read for which there is no room. A report has its bytes granted before they are read, and
//!   its fields are counted before it is decoded. A report that cannot be counted now is told when to come
//!   back.
//! - A node is sent its own policy program and no other's. An agent that takes it slowly, or never, holds
//!   one change in memory for a bounded time, and nobody up.
//! - A report is acknowledged when it is counted. Any answer may be lost: a report that is sent again is
//!   counted once (`traffic::conversations`).

mod codec;
mod frames;
#[cfg(feature = "fuzzing")]
pub(crate) use frames::fuzz;
mod listen;
mod paced;
mod programs;
mod report;
mod rules;
mod server;
mod tls;

pub use server::{Server, start};
use traffic::ingest::ReportSink;
