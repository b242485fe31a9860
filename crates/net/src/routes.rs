//! Routes to blocks: to the blocks of other nodes, and to this node's own for routers to announce.
//!
//! ```text
//! blocks that are believed ([`trust`]) ─► wanted (pure) ─┐
//! kernel: main table, export table ──────────────────────┴─► plan (pure) ─► apply
//! ```
//!
//! - Another node's block gets `BLOCK via NODE`, for each family that both have.
//! - This node's block gets `blackhole BLOCK` in the main table, so that packets to an address that no
//!   pod has end here instead of going round; and the same in the export table, from which BIRD and
//!   its like take what they announce.
//! - Only routes with Fairlead's protocol number are ever touched, and of those only what this file makes.
//! - While the store has not listed all blocks, pools and Nodes nothing is removed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use kernel::netlink::{self, Change, Netlink, Route, RouteKind};
use objects::{Attempt, Next, Pace, Reconciler};
use prometheus_client::metrics::gauge::Gauge;
use stallproof::backoff::Curve;
use stallproof::snapshot::Changes;
use stallproof::{Snapshot, Tasks};
use tracing::{info, warn};

use crate::Addresses;
use crate::addresses::{AddressTable, LocalBlock};
use crate::claims::Blocks;
use crate::node::{KernelCallError, Node, NodeError, kernel_call};
use crate::pool::Pools;
use crate::trust::{self, BlockTrust, NodeAddresses, ReportedDoubts};
use crate::wiring::{MAIN_TABLE, ROUTE_PROTOCOL};

/// Where BIRD and its like look unless told otherwise; what Coil uses.
pub const EXPORT_TABLE: u32 = 119;

/// A burst of claims is one change. A thousand routes take the kernel some tens of milliseconds.
pub(crate) const PACE: Pace = Pace {
    attempt: Duration::from_secs(30),
    resync: Duration::from_secs(30),
    settle: Duration::from_millis(200),
    retry: Curve { first: Duration::from_secs(1), most: Duration::from_secs(30) },
};

/// How many doubted blocks and failed routes are logged at once; the metric counts all.
const LOGGED: usize = 10;

/// A block that is to be routed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedBlock {
    pub node: String,
    pub networks: Vec<IpNet>,
    /// The addresses at which its node is reached.
    pub via: Vec<IpAddr>,
}

/// Returns every route that there should be, seen from `node`. Of two blocks that claim the same network
/// the first counts.
pub fn wanted(node: &str, blocks: &[RoutedBlock], export_table: Option<u32>) -> Vec<Route> {
    let mut routes = BTreeMap::new();
    for block in blocks {
        let own = block.node == node;
        for network in &block.networks {
            let network = network.trunc();
            let mut want = |table, kind| {
                let route = Route { destination: network, table, protocol: ROUTE_PROTOCOL, kind };
                routes.entry((table, network)).or_insert(route);
            };
            if own {
                // A block that is one address can only have the pod's own route.
                if network.prefix_len() < network.max_prefix_len() {
                    want(MAIN_TABLE, RouteKind::Blackhole);
                }
                if let Some(table) = export_table {
                    want(table, RouteKind::Blackhole);
                }
            } else if let Some(via) = via(network, &block.via) {
                want(MAIN_TABLE, RouteKind::Via(via));
            }
        }
    }
    routes.into_values().collect()
}

/// Returns the first address of the network's own family.
fn via(network: IpNet, addresses: &[IpAddr]) -> Option<IpAddr> {
    addresses.iter().copied().find(|address| address.is_ipv4() == network.addr().is_ipv4())
}

/// Plans the changes. Unless everything is known (`complete`), no route is removed.
pub fn plan(wanted: &[Route], found: &[Route], complete: bool) -> Vec<Change<'static>> {
    let place = |route: &Route| (route.table, route.destination);
    let wanted: BTreeMap<_, _> = wanted.iter().map(|route| (place(route), *route)).collect();
    let ours = |route: &&Route| {
        route.protocol == ROUTE_PROTOCOL
            && matches!(route.kind, RouteKind::Via(_) | RouteKind::Blackhole)
    };
    let found: Vec<Route> = found.iter().filter(ours).copied().collect();
    let stale = found.iter().filter(|route| complete && !wanted.contains_key(&place(route)));
    let missing = wanted.values().filter(|route| !found.contains(route));
    // Routes are removed first: a network may have come in other pieces.
    stale
        .map(|route| Change::DeleteRoute(*route))
        .chain(missing.map(|route| Change::Route(*route)))
        .collect()
}

/// Keeps the kernel's routes in line: when blocks change, and from time to time, since others may
/// remove routes.
#[derive(Debug)]
pub(crate) struct RouteReconciler {
    node: Node,
    trust: BlockTrust,
    doubted: Gauge,
    addresses: Addresses,
    export_table: Option<u32>,
    tasks: Tasks,
    reported: ReportedDoubts,
    /// The routes that failed at the last attempt: they are logged when they are others.
    failing: Vec<String>,
    /// This node's blocks at the last attempt.
    own: Vec<RoutedBlock>,
    blocks: Changes<Blocks>,
    pools: Changes<Pools>,
    nodes: Option<Changes<NodeAddresses>>,
    table: Changes<AddressTable>,
}

impl RouteReconciler {
    pub(crate) fn new(
        node: Node,
        trust: BlockTrust,
        doubted: Gauge,
        addresses: Addresses,
        export_table: Option<u32>,
        tasks: Tasks,
    ) -> Self {
        Self {
            blocks: trust.blocks.subscribe(),
            pools: trust.pools.subscribe(),
            nodes: trust.nodes.as_ref().map(Snapshot::subscribe),
            table: addresses.changes(),
            node,
            trust,
            doubted,
            addresses,
            export_table,
            tasks,
            reported: ReportedDoubts::default(),
            failing: Vec::new(),
            own: Vec::new(),
        }
    }
}

impl Reconciler for RouteReconciler {
    type Error = KernelCallError;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, KernelCallError> {
        let verdict = self.trust.verdict();
        self.doubted.set(i64::try_from(verdict.doubts.len()).unwrap_or(i64::MAX));
        for (block, why) in self.reported.news(&verdict.doubts).iter().take(LOGGED) {
            warn!(block, why, "a block is not believed");
        }
        let mut blocks: Vec<_> = verdict.blocks().collect();
        self.trust.believed.publish(verdict.believed);
        // The journal knows this node's own blocks, also while the store is away.
        self.own = own_blocks(&self.trust.node, &self.addresses);
        blocks.extend(self.own.iter().cloned());
        let wanted = wanted(&self.trust.node, &blocks, self.export_table);
        let (node, table, complete) = (self.node.clone(), self.export_table, verdict.complete);
        let work = move || apply(&node, &wanted, table, complete);
        let report = kernel_call(&self.tasks, "routes", attempt.deadline, work).await?;
        let RouteReport { changed, failed } = report.map_err(KernelCallError::Node)?;
        if changed > 0 {
            info!(changed, "routes to blocks changed");
        }
        if failed != self.failing {
            failed.iter().take(LOGGED).for_each(|why| warn!(why, "no route to a block"));
            self.failing = failed;
        }
        Ok(Next::OnChange)
    }

    async fn changed(&mut self) {
        let own_change = async {
            loop {
                self.table.changed().await;
                if own_blocks(&self.trust.node, &self.addresses) != self.own {
                    return;
                }
            }
        };
        let node_change = async {
            match &mut self.nodes {
                Some(nodes) => drop(nodes.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.blocks.changed() => {}
            _ = self.pools.changed() => {}
            () = node_change => {}
            () = own_change => {}
        }
    }
}

fn own_blocks(name: &str, addresses: &Addresses) -> Vec<RoutedBlock> {
    let view = addresses.view();
    let block = |(_, block): (&str, &LocalBlock)| {
        let networks = trust::networks(block.networks());
        RoutedBlock { node: name.to_owned(), networks, via: Vec::new() }
    };
    view.blocks().map(block).collect()
}

/// The outcome of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteReport {
    pub changed: usize,
    /// The changes that the kernel refused, one sentence each.
    pub failed: Vec<String>,
}

/// Reads the routes of the main table and of the export table. Blocks.
pub(crate) fn found(
    netlink: &mut Netlink,
    export_table: Option<u32>,
) -> Result<Vec<Route>, netlink::Error> {
    let mut found = netlink.routes(MAIN_TABLE)?;
    if let Some(table) = export_table {
        found.append(&mut netlink.routes(table)?);
    }
    Ok(found)
}

/// Brings the kernel's routes in line. Blocks.
pub fn apply(
    node: &Node,
    wanted: &[Route],
    export_table: Option<u32>,
    complete: bool,
) -> Result<RouteReport, NodeError> {
    node.netlink(|netlink| {
        let found = found(netlink, export_table)?;
        let mut report = RouteReport::default();
        // One by one: a node that is not on our network must not hide what else fails.
        for change in plan(wanted, &found, complete) {
            match netlink.apply(std::slice::from_ref(&change)) {
                Ok(()) => report.changed += 1,
                Err(error) if matches!(change, Change::DeleteRoute(_)) && error.not_found() => {}
                Err(error) => report.failed.push(stallproof::sentence(&error)),
            }
        }
        Ok(report)
    })
}

#[cfg(test)]
mod tests;
