//! Masquerading: connections that leave the pod network carry their node's address, where a pool says so.
//!
//! ```text
//! pools ─► ruleset (pure) ─┐
//! kernel: `fairlead-nat` ──┴─► NatTable: one batch of what differs ─► counters ─► metrics
//! ```
//!
//! Contract:
//! - A connection from a pool's pod to an address of any pool, to a network that the pool names as
//!   `never`, or to a group of receivers keeps the pod's address.
//! - Until the store has listed the pools nothing is changed: what an earlier agent made holds.
//! - A pool that is gone is masqueraded as before for as long as this node has blocks of it.
//! - Where no pool asks for it there is no table.

mod ruleset;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use kernel::conntrack::{self, Statistics};
use objects::kinds::{MasqueradeRule, Networks};
use objects::{Attempt, Next, Pace, Reconciler};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stallproof::backoff::Curve;
use stallproof::snapshot::Changes;
use stallproof::{Snapshot, Tasks};
use tracing::info;

pub(crate) use ruleset::networks_of;
pub use ruleset::{Ruleset, TABLE};
pub use table::{NatError, NatTable};

use crate::Addresses;
use crate::node::{KernelCallError, Node, kernel_call};
use crate::pool::Pools;

/// Counters are read, and the kernel is compared, this often: some ten sets take it a millisecond.
pub(crate) const PACE: Pace = Pace {
    attempt: Duration::from_secs(10),
    resync: Duration::from_secs(10),
    settle: Duration::from_millis(100),
    retry: Curve { first: Duration::from_secs(1), most: Duration::from_secs(30) },
};
/// How often a table is compared that somebody else may change.
const UNOWNED: Duration = Duration::from_secs(2);

/// A pool as far as masquerading goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MasqueradedPool {
    pub networks: Vec<IpNet>,
    /// None if its pods keep their addresses wherever they go.
    pub rule: Option<MasqueradeRule>,
}

/// Every pool, by its name.
pub type MasqueradedPools = BTreeMap<Arc<str>, MasqueradedPool>;

type PoolLabel = [(&'static str, String); 1];

/// What is counted. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct MasqueradeMetrics {
    connections: Family<PoolLabel, Counter>,
    no_port: Counter,
    table_full: Counter,
    tracked: Gauge,
    limit: Gauge,
}

impl MasqueradeMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let Self { connections, no_port, table_full, tracked, limit } = self;
        let help = "Connections that left the pod network with the node's address";
        registry.register("net_masqueraded_connections", help, connections.clone());
        let help = "Connections that were dropped because others had their addresses and ports";
        registry.register("net_connections_without_port", help, no_port.clone());
        let help =
            "Packets that were dropped because the kernel tracks as many connections as it may";
        registry.register("net_connection_table_full", help, table_full.clone());
        let help = "Connections that the kernel tracks";
        registry.register("net_connections_tracked", help, tracked.clone());
        let help = "The most connections that the kernel tracks";
        registry.register("net_connections_tracked_limit", help, limit.clone());
    }
}

/// Keeps the kernel's table in line with the pools.
#[derive(Debug)]
pub(crate) struct MasqueradeReconciler {
    node: Node,
    pools: Snapshot<Pools>,
    changes: Changes<Pools>,
    addresses: Addresses,
    tasks: Tasks,
    metrics: MasqueradeMetrics,
    known: MasqueradedPools,
    /// The socket that owns the table. None before the first attempt, and while a thread has it.
    table: Option<NatTable>,
    /// The last reading of each counter: the kernel's begin at zero with the rule.
    counted: BTreeMap<Arc<str>, u64>,
    statistics: Option<Statistics>,
    /// The interface through which packets to pods of other nodes and of other clusters are encrypted.
    tunnel: Option<String>,
}

impl MasqueradeReconciler {
    pub(crate) fn new(
        node: Node,
        pools: Snapshot<Pools>,
        addresses: Addresses,
        metrics: MasqueradeMetrics,
        tasks: Tasks,
    ) -> Self {
        Self {
            changes: pools.subscribe(),
            node,
            pools,
            addresses,
            tasks,
            metrics,
            known: MasqueradedPools::new(),
            table: None,
            counted: BTreeMap::new(),
            statistics: None,
            tunnel: None,
        }
    }

    /// Leaves alone what goes into that interface.
    pub(crate) fn with_tunnel(mut self, tunnel: Option<String>) -> Self {
        self.tunnel = tunnel;
        self
    }

    /// Takes the pools as they are. One that is gone stays while this node has blocks of it.
    fn look(&mut self) {
        let view = self.addresses.view();
        self.known.retain(|name, _| view.blocks().any(|(_, block)| *block.pool() == **name));
        self.known.extend(masqueraded(&self.pools.load()));
    }

    fn count(&mut self, connections: BTreeMap<Arc<str>, u64>, statistics: Statistics) {
        for (pool, now) in &connections {
            let before = self.counted.get(pool).copied().unwrap_or(0);
            // A rule that was made anew began at zero.
            let more = now.checked_sub(before).unwrap_or(*now);
            let label = [("pool", pool.to_string())];
            self.metrics.connections.get_or_create(&label).inc_by(more);
        }
        self.counted = connections;
        let before = self.statistics.replace(statistics).unwrap_or(statistics);
        let more = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        self.metrics.no_port.inc_by(more(statistics.insert_failed, before.insert_failed));
        self.metrics.table_full.inc_by(more(statistics.dropped, before.dropped));
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.metrics.tracked.set(gauge(statistics.connections));
        self.metrics.limit.set(gauge(statistics.limit));
    }
}

/// The pools as far as masquerading goes; a pool that is invalid is left out.
fn masqueraded(pools: &Pools) -> impl Iterator<Item = (Arc<str>, MasqueradedPool)> {
    let read = pools.iter().filter_map(|(name, judged)| {
        let spec = &judged.object.spec;
        let networks = spec.networks().ok()?.into_iter().flat_map(|Networks { ipv4, ipv6 }| {
            ipv4.map(IpNet::V4).into_iter().chain(ipv6.map(IpNet::V6))
        });
        let pool = MasqueradedPool { networks: networks.collect(), rule: spec.masquerade().ok()? };
        Some((Arc::clone(name), pool))
    });
    read.collect::<Vec<_>>().into_iter()
}

impl Reconciler for MasqueradeReconciler {
    type Error = NatError;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, NatError> {
        if !self.pools.read(Pools::synced) {
            return Ok(Next::OnChange);
        }
        self.look();
        let wanted = Ruleset::beside(&self.known, self.tunnel.as_deref());
        let (node, table) = (self.node.clone(), self.table.take());
        let work = move || {
            let inside = || -> Result<_, NatError> {
                let mut table = table.map_or_else(NatTable::open, Ok).map_err(NatError::Socket)?;
                let changed = table.adopt(wanted.as_ref())?;
                let counted = table.counted()?;
                let statistics = conntrack::statistics().map_err(NatError::Read)?;
                Ok((table, changed, counted, statistics))
            };
            node.namespace().run_in(inside).map_err(NatError::Socket)?
        };
        let done = kernel_call(&self.tasks, "masquerade", attempt.deadline, work).await;
        let (table, changed, counted, statistics) = done.map_err(NatError::Thread)??;
        if changed {
            info!(pools = counted.len(), "rules of masquerading changed");
        }
        let owned = table.is_owned();
        self.table = Some(table);
        self.count(counted, statistics);
        Ok(if owned { Next::OnChange } else { Next::Within(UNOWNED) })
    }

    async fn changed(&mut self) {
        self.changes.changed().await;
    }
}

impl From<KernelCallError> for NatError {
    fn from(error: KernelCallError) -> Self {
        Self::Thread(error)
    }
}

#[cfg(test)]
mod tests;
