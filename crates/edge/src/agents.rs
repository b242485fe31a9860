//! The controller's end of what agents say over gRPC; theirs is `node::client`.
//!
//! ```text
//! listener ──► TLS (which node?) ──► HTTP/2 ──► Enrol, Renew ──► pki::agents::Authority
//!                                          ├──► Join, Leave ──► traffic::agents::Agents
//!                                          ├──► Report ──► frames (budget) ──► Batch ──► gate ──► ingest
//!                                          └──► Rules ◄── what is shipped
//! ```
//!
//! Contract:
//! - A certificate says which node it is; who has none may enrol, and nothing else.
//! - A join waits for joins alone, a report for reports alone, and a stranger for strangers alone:
//!   each has a gate and connections of its own.
//! - Nothing is read for which there is no room. A batch has its bytes granted before they are read,
//!   and is looked through before it is decoded. What cannot be counted now is told when to come back.
//! - A batch is acknowledged when it is counted. Whether it was, sent again, is the totals' own matter
//!   (`traffic::conversations`): any answer may be lost.

mod codec;
mod frames;
mod listen;
mod report;
mod rules;
mod server;
mod sink;
mod tls;

pub use server::{Server, start};
pub use sink::ReportSink;
