//! What the server counts with.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use flow::{Deadline, Map, Snapshot};
use guard::conversations::{Moment, Report};
use ipnet::IpNet;
use objects::kinds::{GroupMode, Ports};

/// Of this agent's incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub through: u64,
    pub durable: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCounted {
    Busy { retry: Duration },
    Outdated,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Shipped {
    pub version: u64,
    pub rules: Map<Arc<str>, Arc<ShippedRule>>,
    pub groups: Map<Arc<str>, Arc<ShippedGroup>>,
    pub mode: GroupMode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShippedRule {
    pub name: Arc<str>,
    pub learned: bool,
    pub priority: i32,
    pub from: Arc<str>,
    pub to: Arc<str>,
    pub ports: Vec<Ports>,
    pub applications: Vec<String>,
    pub allows: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShippedGroup {
    pub networks: Vec<IpNet>,
    pub except: Vec<IpNet>,
    pub mode: Option<GroupMode>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalWorkload {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub addresses: Vec<IpAddr>,
    pub from: Moment,
}

/// Who counts reports, while this replica is the one that does.
pub trait Counts: Clone + fmt::Debug + Send + Sync + 'static {
    fn offer(
        &self,
        report: &Report,
        alive: impl Fn(&str) -> bool + Send,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Counted, NotCounted>> + Send;
    fn epoch(&self) -> u64;
    fn forget_agent(&self, node: &str);
    fn pods_of(&self, node: &str, workloads: Vec<LocalWorkload>);
    fn addresses_of(&self, node: &str, addresses: &[IpAddr]);
    fn shipped(&self) -> &Snapshot<Shipped>;
}
