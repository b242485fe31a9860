//! `ReportSink`: where the agents' server hands reports over. [`Ingest`](super::Ingest) is the one; tests
//! and benchmarks have others.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use stallproof::{Deadline, Op, Snapshot};

use super::AgentPolicy;
use crate::conversations::Report;

pub trait ReportSink: Clone + fmt::Debug + Send + Sync + 'static {
    /// Counts a report, and takes in the workloads it tells of. Returns when everything is counted; or at
    /// once if there is no room for it, or at the deadline. `alive` says whether a node has an agent now;
    /// `op` is the report on the ledger.
    fn offer(
        &self,
        report: &Report,
        alive: impl Fn(&str) -> bool + Send,
        deadline: Deadline,
        op: &Op,
    ) -> impl Future<Output = Result<Counted, NotCounted>> + Send;

    /// Takes in all addresses of a node, as its agent told them: its own, which count where Kubernetes
    /// tells of no nodes, and those of all its interfaces. In reports of that agent, an address of an
    /// interface that is nobody else's is the node's.
    fn set_node_addresses(&self, node: &str, addresses: &[IpAddr], local: &[IpAddr]);

    /// Forgets a node that is gone, and its agent. If it ever comes back, it begins a new incarnation.
    fn forget_agent(&self, node: &str);

    /// Identifies what was counted so far. Under another epoch agents send everything again.
    fn epoch(&self) -> u64;

    /// The rules and groups for agents.
    fn agent_policy(&self) -> &Snapshot<AgentPolicy>;
}

/// How far the reports of an agent's incarnation were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// This report was counted, and none before it is still being counted.
    pub through: u64,
    /// This report is in a checkpoint on disk.
    pub durable: u64,
}

/// Why a report was not counted. Nothing is lost by it: what was counted of the report is not counted
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCounted {
    #[error("there is no room for the report; send it again in {retry:?}")]
    Busy { retry: Duration },
    #[error("a newer incarnation of this agent is known")]
    Outdated { known: u64 },
}
