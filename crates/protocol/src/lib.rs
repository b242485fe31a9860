//! The messages that agents and controllers exchange over gRPC, and their conversion to plain values.
//!
//! ```text
//! node ──► Report, JoinFacts  ──► proto ══ HTTP/2 ══► proto ──► Report, JoinFacts ──► edge
//!      ◄── Answer, RuleChange, Delta ◄── proto ◄═════ proto ◄── Answer, RuleChange, Delta ◄──
//! ```
//!
//! Invariants: any bytes are a value within bounds or [`Malformed`]; fields are counted before they are
//! decoded, so that bytes cannot make us allocate more than a few times their length.

mod answer;
mod join;
pub mod program;
mod report;
mod rules;

pub use answer::{Answer, millis};
pub use report::{NAMES, decode_report, encode_report};

use stallproof::Tasks;

/// The messages, generated from the protobuf files (a test compares).
pub mod proto {
    #![allow(missing_debug_implementations, unreachable_pub, reason = "generated")]
    #![allow(clippy::pedantic, clippy::unused_async, reason = "generated")]
    include!("generated.rs");
}

/// The header that names the join that a stream of reports belongs to.
pub const AGENT: &str = "fairlead-agent";
/// In a refusal: when to ask again.
pub const RETRY: &str = "retry-after-ms";
/// In a refusal of an incarnation that is over: the one that is known.
pub const KNOWN: &str = "fairlead-incarnation";

/// Why bytes or a message are none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is malformed: {0}")]
pub struct Malformed(pub &'static str);

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
