//! `ReportSink`: counts what agents report. It is [`traffic::ingest::Ingest`], or whatever a test or a
//! benchmark puts in its place.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;

use stallproof::{Deadline, Snapshot};
use traffic::conversations::Report;
use traffic::ingest::{Counted, Ingest, LocalWorkload, NotCounted, AgentPolicy};

/// See [`Ingest`] for what each does.
pub trait ReportSink: Clone + fmt::Debug + Send + Sync + 'static {
    fn offer(
        &self,
        report: &Report,
        alive: impl Fn(&str) -> bool + Send,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Counted, NotCounted>> + Send;
    fn epoch(&self) -> u64;
    fn forget_agent(&self, node: &str);
    fn pods_of(&self, node: &str, workloads: &[LocalWorkload]);
    fn addresses_of(&self, node: &str, addresses: &[IpAddr]);
    fn local_addresses_of(&self, _node: &str, _addresses: &[IpAddr]) {}
    fn agent_policy(&self) -> &Snapshot<AgentPolicy>;
}

impl ReportSink for Ingest {
    fn offer(
        &self,
        report: &Report,
        alive: impl Fn(&str) -> bool + Send,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Counted, NotCounted>> + Send {
        Self::offer(self, report, alive, deadline)
    }

    fn epoch(&self) -> u64 {
        Self::epoch(self)
    }

    fn forget_agent(&self, node: &str) {
        Self::forget_agent(self, node);
    }

    fn pods_of(&self, node: &str, workloads: &[LocalWorkload]) {
        Self::pods_of(self, node, workloads);
    }

    fn addresses_of(&self, node: &str, addresses: &[IpAddr]) {
        Self::addresses_of(self, node, addresses);
    }

    fn local_addresses_of(&self, node: &str, addresses: &[IpAddr]) {
        Self::local_addresses_of(self, node, addresses);
    }

    fn agent_policy(&self) -> &Snapshot<AgentPolicy> {
        Self::shipped(self)
    }
}
