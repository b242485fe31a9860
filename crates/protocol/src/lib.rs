//! The words that agents and controllers exchange over gRPC, and how they become plain values.
//!
//! ```text
//! node ──► Batch, JoinFacts ──► proto ══ HTTP/2 ══► proto ──► Batch, JoinFacts ──► edge
//!      ◄── RuleChange       ◄── proto ◄═══════════╝
//! ```
//!
//! Invariants: any bytes are a value within bounds or [`Malformed`]; bytes are counted before they are
//! decoded, so that they cannot make us allocate more than a few times their length.

mod batch;
mod rules;

pub use batch::{Batch, Malformed, address, octets};

use stallproof::Tasks;

/// The messages, generated from the protobuf files (a test compares).
pub mod proto {
    #![allow(missing_debug_implementations, unreachable_pub, reason = "generated")]
    #![allow(clippy::pedantic, clippy::unused_async, reason = "generated")]
    include!("generated.rs");
}

/// The header that says of which joining a stream of reports is.
pub const AGENT: &str = "fairlead-agent";
/// In a refusal: when to come back.
pub const RETRY: &str = "retry-after-ms";
/// In a refusal of an incarnation that is over: the one that is known.
pub const KNOWN: &str = "fairlead-incarnation";

/// Runs the calls of an HTTP/2 connection as tasks that somebody owns.
#[derive(Clone, Debug)]
pub struct Executor(pub Tasks);

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn("agent-call", future);
    }
}
