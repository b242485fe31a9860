//! Routes to blocks: to those of other nodes, and for who tells the world about ours.
//!
//! ```text
//! blocks that are believed ([`trust`]) ─► wanted (pure) ─┐
//! kernel: main table, export table ──────────────────────┴─► plan (pure) ─► apply
//! ```
//!
//! - Another node's block: `BLOCK via NODE`, for each family that both have.
//! - A block of ours: `blackhole BLOCK` in the main table, so that what is sent to an address that no
//!   pod has ends here instead of going round; and the same in the export table, from which BIRD and
//!   its like take what they announce.
//! - Only routes with our own protocol number are ever touched, and of those only what this file makes.
//! - While the store has not told all blocks, pools and Nodes nothing is removed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use kernel::netlink::{Change, Route, RouteKind};
use prometheus_client::metrics::gauge::Gauge;
use stallproof::{Deadline, Tasks};
use tracing::{info, warn};

use crate::Addresses;
use crate::node::{Node, NodeError};
use crate::trust::{self, Said, Trust};
use crate::wiring::{MAIN_TABLE, ROUTE_PROTOCOL};

/// Where BIRD and its like look unless told otherwise; what Coil uses.
pub const EXPORT_TABLE: u32 = 119;

/// The pause when nothing changes.
const EVERY: Duration = Duration::from_secs(30);
/// How long after a change others may join it.
const TOGETHER: Duration = Duration::from_millis(200);
/// How long the kernel may take: a thousand routes are some tens of milliseconds.
const WITHIN: Duration = Duration::from_secs(30);

/// How many blocks are named at once that are not believed; the metric counts all.
const TOLD: usize = 10;

/// A block as routes see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub node: String,
    pub networks: Vec<IpNet>,
    /// Where its node is reached.
    pub via: Vec<IpAddr>,
}

/// Every route that should be, seen from `node`. Of two that claim the same network the first
/// counts.
pub fn wanted(node: &str, blocks: &[Block], export_table: Option<u32>) -> Vec<Route> {
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
                // Of a block that is one address, the pod's own route is the only one there can be.
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

/// The first address of the network's own family.
fn via(network: IpNet, addresses: &[IpAddr]) -> Option<IpAddr> {
    addresses.iter().copied().find(|address| address.is_ipv4() == network.addr().is_ipv4())
}

/// What to change. `all`: what is not wanted is not there; else it is left, since not everything is
/// known yet.
pub fn plan(wanted: &[Route], found: &[Route], all: bool) -> Vec<Change<'static>> {
    let place = |route: &Route| (route.table, route.destination);
    let wanted: BTreeMap<_, _> = wanted.iter().map(|route| (place(route), *route)).collect();
    let ours = |route: &&Route| {
        route.protocol == ROUTE_PROTOCOL
            && matches!(route.kind, RouteKind::Via(_) | RouteKind::Blackhole)
    };
    let found: Vec<Route> = found.iter().filter(ours).copied().collect();
    let stale = found.iter().filter(|route| all && !wanted.contains_key(&place(route)));
    let missing = wanted.values().filter(|route| !found.contains(route));
    // Removed first: a network may have come in other pieces.
    stale
        .map(|route| Change::DeleteRoute(*route))
        .chain(missing.map(|route| Change::Route(*route)))
        .collect()
}

/// Keeps the kernel's routes in line, until `tasks` stops: at once when blocks change, and from time
/// to time for what others took away.
pub(crate) async fn run(
    node: Node,
    trust: Trust,
    doubted: Gauge,
    addresses: Addresses,
    export_table: Option<u32>,
    tasks: Tasks,
) {
    let stop = tasks.stopping();
    let name = trust.node.clone();
    let mut changes = trust.blocks.subscribe();
    let mut pools = trust.shapes.subscribe();
    let mut nodes = trust.nodes.subscribe();
    let mut said = Said::default();
    let mut own = addresses.changes();
    let mut failing = Vec::new();
    loop {
        let verdict = trust.look();
        let all = verdict.all;
        doubted.set(i64::try_from(verdict.doubts.len()).unwrap_or(i64::MAX));
        for (block, why) in said.news(&verdict.doubts).iter().take(TOLD) {
            warn!(block, why, "a block is not believed");
        }
        let mut known: Vec<_> = verdict.blocks().collect();
        trust.memory.publish(verdict.believed);
        // The journal's, since the store may be away.
        let ours = own_blocks(&name, &addresses);
        known.extend(ours.iter().cloned());
        let wanted = wanted(&name, &known, export_table);
        let done = {
            let node = node.clone();
            let deadline = Deadline::after(WITHIN);
            let work = move || apply(&node, &wanted, export_table, all);
            match tasks.spawn_blocking("routes", deadline, work).await {
                Ok(running) => deadline.bound(running).await.ok().and_then(Result::ok),
                Err(_) => None,
            }
        };
        match done {
            Some(Ok(Report { changed, failed })) => {
                if changed > 0 {
                    info!(changed, "routes to blocks");
                }
                // Said once, and again when it is another.
                if failed != failing {
                    failed.iter().take(10).for_each(|why| warn!(why, "no route to a block"));
                    failing = failed;
                }
            }
            Some(Err(error)) => {
                let error = stallproof::sentence(&error);
                warn!(error, "routes to blocks cannot be kept");
            }
            None => warn!("the kernel takes too long over routes to blocks"),
        }
        let own_change = async {
            loop {
                own.changed().await;
                if own_blocks(&name, &addresses) != ours {
                    return;
                }
            }
        };
        let woken = async {
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                _ = changes.changed() => {}
                _ = pools.changed() => {}
                _ = nodes.changed() => {}
                () = own_change => {}
            }
            // A burst of claims is one change.
            tokio::time::sleep(TOGETHER).await;
        };
        if stop.bound(woken).await.is_none() {
            return;
        }
    }
}

fn own_blocks(name: &str, addresses: &Addresses) -> Vec<Block> {
    let view = addresses.view();
    let block = |(_, block): (&str, &crate::addresses::Block)| {
        let networks = trust::networks(block.networks());
        Block { node: name.to_owned(), networks, via: Vec::new() }
    };
    view.blocks().map(block).collect()
}

/// What was done, and what could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub changed: usize,
    /// One sentence each.
    pub failed: Vec<String>,
}

/// Brings the kernel's routes in line. Blocks.
pub fn apply(
    node: &Node,
    wanted: &[Route],
    export_table: Option<u32>,
    all: bool,
) -> Result<Report, NodeError> {
    node.netlink(|netlink| {
        let mut found = netlink.routes(MAIN_TABLE)?;
        if let Some(table) = export_table {
            found.append(&mut netlink.routes(table)?);
        }
        let mut report = Report::default();
        // One by one: a node that is not on our network must not hide what else fails.
        for change in plan(wanted, &found, all) {
            match netlink.apply(std::slice::from_ref(&change)) {
                Ok(()) => report.changed += 1,
                Err(error) if matches!(change, Change::DeleteRoute(_)) && error.is_absent() => {}
                Err(error) => report.failed.push(stallproof::sentence(&error)),
            }
        }
        Ok(report)
    })
}

#[cfg(test)]
mod tests;
