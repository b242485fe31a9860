//! Agents over gRPC, both ends: [`start`] is the controller's, [`client`] the agent's.
//!
//! ```text
//! listener ──► TLS (which node?) ──► HTTP/2 ──► Enrol, Renew ──► guard::agents::Authority
//!                                          ├──► Join, Leave ──► guard::agents::Agents
//!                                          ├──► Report ──► frames (budget) ──► wire ──► gate ──► ingest
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
//!   (`guard::conversations`): any answer may be lost.

pub mod client;
mod codec;
mod counts;
mod frames;
mod identity;
mod listen;
mod report;
mod rules;
mod server;
mod tls;
mod wire;

pub use counts::Counts;
pub use identity::{Identity, IdentityError};
pub use rules::RuleChange;
pub use server::{Server, start};
pub use wire::{Batch, Malformed};

/// As the protobuf files have them.
mod proto {
    #![allow(missing_debug_implementations, unreachable_pub, reason = "generated")]
    #![allow(clippy::pedantic, clippy::unused_async, reason = "generated")]
    tonic::include_proto!("fairlead.agents.v1alpha1");
}

/// The header that says of which joining a stream of reports is.
const AGENT: &str = "fairlead-agent";
/// In a refusal: when to come back.
const RETRY: &str = "retry-after-ms";
/// In a refusal of an incarnation that is over: the one that is known.
const KNOWN: &str = "fairlead-incarnation";
