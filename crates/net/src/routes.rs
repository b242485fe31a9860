//! Routes to blocks: to the blocks of other nodes, and to this node's own for routers to announce.
//!
//! ```text
//! blocks that are believed ([`trust`]) ─► RoutePlanner (pure, by what changed) ─┐
//! kernel: main table, export table ─────────────────────────────────────────────┴─► changes ─► kernel
//! ```
//!
//! - Another node's block gets `BLOCK via NODE`, for each family that both have; or, where its pool says
//!   so, a route through the tunnel ([`overlay`]).
//! - This node's block gets `blackhole BLOCK` in the main table, so that packets to an address that no
//!   pod has end here instead of going round; and the same in the export table, from which BIRD and
//!   its like take what they announce.
//! - Only routes with Fairlead's protocol number are ever touched, and of those only what this file makes.
//! - While the store has not listed all blocks, pools and Nodes nothing is removed.
//! - A block or a node that changes costs what it touches, however large the cluster. Twice a minute the
//!   kernel is read and compared as a whole, since others may remove routes.

mod planner;

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use kernel::netlink::{self, Change, LinkRef, Neighbour, Netlink, Route, RouteKind, Rule};
use objects::kinds::Overlay;
use objects::{Attempt, Next, Pace, Reconciler};
use prometheus_client::metrics::gauge::Gauge;
use stallproof::backoff::Curve;
use stallproof::snapshot::Changes;
use stallproof::{Snapshot, Tasks};
use tracing::{info, warn};
use wireguard::PodNetwork;

use crate::Addresses;
use crate::addresses::{AddressTable, LocalBlock};
use crate::claims::Blocks;
use crate::encryption::pod_network;
use crate::node::{KernelCallError, Node, NodeError, kernel_call};
use crate::overlay::{self, DeviceSettings, NODE_TABLE, Underlay};
use crate::pool::Pools;
use crate::trust::{self, BlockTrust, Judge, NodeAddresses, ReportedDoubts, Verdict};
use crate::wiring::{MAIN_TABLE, ROUTE_PROTOCOL};

pub use planner::{BlockRef, KernelRoutes, RoutePlanner};

/// Where BIRD and its like look unless told otherwise; what Coil uses.
pub const EXPORT_TABLE: u32 = 119;

/// A burst of claims is one change. A thousand routes take the kernel some tens of milliseconds.
pub(crate) const PACE: Pace = Pace {
    attempt: Duration::from_secs(30),
    resync: Duration::from_secs(30),
    settle: Duration::from_millis(200),
    retry: Curve { first: Duration::from_secs(1), most: Duration::from_secs(30) },
};

/// How long the kernel counts as it was read: others may remove routes, and the next attempt that nothing
/// but time calls for reads them.
const LATELY: Duration = Duration::from_secs(25);
/// How many changes are sent to the kernel in one call: some 25 KiB, far less than a socket takes.
const TOGETHER: usize = 128;
/// How many doubted blocks and failed routes are logged at once; the metric counts all.
const LOGGED: usize = 10;

/// A block that is to be routed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedBlock {
    pub node: String,
    pub networks: Vec<IpNet>,
    /// The addresses at which its node is reached.
    pub via: Vec<IpAddr>,
    /// How packets come there.
    pub overlay: Overlay,
}

/// Routes, and what belongs to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteState {
    pub routes: Vec<Route>,
    /// The nodes behind the tunnel.
    pub neighbours: Vec<Neighbour>,
    /// The rules of pods whose packets may take the tunnel.
    pub rules: Vec<Rule>,
}

/// Everything that routes follow from.
#[derive(Clone, Debug)]
pub struct RouteInputs {
    /// The name of this node.
    pub node: String,
    pub blocks: Vec<RoutedBlock>,
    pub export_table: Option<u32>,
    /// The networks of the pools that may take the tunnel.
    pub overlaid: Vec<IpNet>,
    /// How the tunnel's device is to be.
    pub device: DeviceSettings,
    /// Whether everything is known, so that what is not wanted can be removed.
    pub complete: bool,
}

/// Returns every route that there should be. Of two blocks that claim the same network the first counts.
pub fn wanted(inputs: &RouteInputs, underlay: &Underlay) -> RouteState {
    let RouteInputs { node, blocks, export_table, overlaid, .. } = inputs;
    let mut routes = BTreeMap::new();
    for block in blocks {
        let own = block.node == *node;
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
                if let Some(table) = *export_table {
                    want(table, RouteKind::Blackhole);
                }
            } else if let Some(kind) = underlay.way(block, network) {
                want(MAIN_TABLE, kind);
            }
        }
    }
    let mut neighbours = Vec::new();
    for (node, (tunnel, via)) in underlay.nodes(node, blocks) {
        let (to_node, neighbour) = overlay::to_node(node, tunnel, via);
        for route in to_node {
            routes.entry((route.table, route.destination)).or_insert(route);
        }
        neighbours.push(neighbour);
    }
    let rules = match neighbours.is_empty() {
        true => Vec::new(),
        false => overlaid.iter().map(|network| overlay::rule(*network)).collect(),
    };
    RouteState { routes: routes.into_values().collect(), neighbours, rules }
}

/// Says whether a route is one of those that this file makes.
fn is_ours(route: &Route) -> bool {
    route.protocol == ROUTE_PROTOCOL
        && matches!(route.kind, RouteKind::Via(_) | RouteKind::Blackhole | RouteKind::Tunnel(_))
}

/// Plans the changes. Unless everything is known (`complete`), nothing is removed.
pub fn plan(wanted: &RouteState, found: &RouteState, complete: bool) -> Vec<Change<'static>> {
    let place = |route: &Route| (route.table, route.destination);
    let routes: BTreeMap<_, _> = wanted.routes.iter().map(|route| (place(route), *route)).collect();
    let ours = || found.routes.iter().filter(|route| is_ours(route));
    let found_routes: HashSet<Route> = ours().copied().collect();
    let stale = ours();
    let stale = stale.filter(|route| complete && !routes.contains_key(&place(route)));
    let missing = routes.values().filter(|route| !found_routes.contains(*route));
    let (neighbours, rules) = (&wanted.neighbours, &wanted.rules);
    let known: HashSet<_> = found.neighbours.iter().collect();
    let wanted_neighbours: HashSet<_> = neighbours.iter().collect();
    // Neighbours come before the routes that need them. Routes are removed before others are made: a
    // network may have come in other pieces.
    let mut changes: Vec<_> = neighbours
        .iter()
        .filter(|neighbour| !known.contains(neighbour))
        .map(|neighbour| Change::Neighbour(*neighbour))
        .collect();
    changes.extend(stale.map(|route| Change::DeleteRoute(*route)));
    changes.extend(missing.map(|route| Change::Route(*route)));
    let new = rules.iter().filter(|rule| !found.rules.contains(rule));
    changes.extend(new.map(|rule| Change::Rule(*rule)));
    if complete {
        let gone = found.rules.iter().filter(|rule| !rules.contains(rule));
        changes.extend(gone.map(|rule| Change::DeleteRule(*rule)));
        let gone = found.neighbours.iter().filter(|it| !wanted_neighbours.contains(it));
        changes.extend(gone.map(|neighbour| Change::DeleteNeighbour(*neighbour)));
    }
    changes
}

/// The pod network as it is told, and the addresses at which this node is reached.
type EncryptedNetwork = (Snapshot<Option<PodNetwork>>, Snapshot<Vec<IpAddr>>);

/// Keeps the kernel's routes in line: when blocks change, and from time to time, since others may
/// remove routes.
#[derive(Debug)]
pub(crate) struct RouteReconciler {
    node: Node,
    trust: BlockTrust,
    doubted: Gauge,
    addresses: Addresses,
    export_table: Option<u32>,
    device: DeviceSettings,
    tasks: Tasks,
    reported: ReportedDoubts,
    /// The routes that failed at the last attempt: they are logged when they are others.
    failing: Vec<String>,
    judge: Judge,
    /// None before the first attempt, and after one that did not come back.
    routes: Option<BlockRoutes>,
    /// If it is encrypted.
    encryption: Option<EncryptedNetwork>,
    /// This node's blocks at the last attempt.
    own: BTreeMap<Arc<str>, Arc<RoutedBlock>>,
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
        device: DeviceSettings,
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
            device,
            tasks,
            reported: ReportedDoubts::default(),
            failing: Vec::new(),
            judge: Judge::default(),
            routes: None,
            encryption: None,
            own: BTreeMap::new(),
        }
    }

    /// Tells the pod network to what encrypts it. This node is reached at these `addresses`.
    pub(crate) fn with_encryption(
        mut self,
        network: Option<Snapshot<Option<PodNetwork>>>,
        addresses: Snapshot<Vec<IpAddr>>,
    ) -> Self {
        self.encryption = network.map(|network| (network, addresses));
        self
    }
}

impl Reconciler for RouteReconciler {
    type Error = KernelCallError;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, KernelCallError> {
        let changed = self.judge.update(&self.trust);
        let verdict = self.judge.verdict();
        self.doubted.set(i64::try_from(verdict.doubts.len()).unwrap_or(i64::MAX));
        for (block, why) in self.reported.news(&verdict.doubts).iter().take(LOGGED) {
            warn!(block, why, "a block is not believed");
        }
        // The journal knows this node's own blocks, also while the store is away.
        self.own = own_blocks(&self.trust, &self.addresses);
        let complete = verdict.complete;
        let pools = self.trust.pools.load();
        if let Some((network, addresses)) = &self.encryption {
            let others = verdict.blocks().filter(|block| block.node != self.trust.node);
            let (reached, own) = (addresses.load().to_vec(), self.own.values());
            network.publish(Some(pod_network(reached, own, others, &pools, complete)));
        }
        if !changed.is_empty() {
            self.trust.believed.update(|believed| {
                believed.clone_from(&verdict.believed);
                true
            });
        }
        let mut routes = match self.routes.take() {
            Some(mut routes) => {
                changed.iter().for_each(|name| routes.planner.set_listed(name, verdict));
                routes
            }
            None => {
                let (node, table) = (&self.trust.node, self.export_table);
                let mut routes = BlockRoutes::new(node, table, self.device);
                verdict.believed.keys().for_each(|name| routes.planner.set_listed(name, verdict));
                routes
            }
        };
        routes.planner.set_own(&self.own);
        routes.planner.set_overlaid(overlaid(&pools));
        let node = self.node.clone();
        let work = move || routes.apply(&node, complete).map(|report| (report, routes));
        let done = kernel_call(&self.tasks, "routes", attempt.deadline, work).await?;
        let (RouteReport { changed, failed }, routes) = done.map_err(KernelCallError::Node)?;
        self.routes = Some(routes);
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
                if own_blocks(&self.trust, &self.addresses) != self.own {
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

fn own_blocks(trust: &BlockTrust, addresses: &Addresses) -> BTreeMap<Arc<str>, Arc<RoutedBlock>> {
    let (view, pools) = (addresses.view(), trust.pools.load());
    let block = |(name, block): (&str, &LocalBlock)| {
        let networks = trust::networks(block.networks());
        let judged = pools.get(block.pool());
        let overlay = judged.map(|judged| judged.object.spec.overlay).unwrap_or_default();
        let node = trust.node.clone();
        let block = RoutedBlock { node, networks, via: Vec::new(), overlay };
        (Arc::from(name), Arc::new(block))
    };
    view.blocks().map(block).collect()
}

impl RouteInputs {
    pub(crate) fn new(
        trust: &BlockTrust,
        verdict: &Verdict,
        export_table: Option<u32>,
        device: DeviceSettings,
    ) -> Self {
        Self {
            node: trust.node.clone(),
            blocks: verdict.blocks().map(|block| RoutedBlock::clone(block)).collect(),
            export_table,
            overlaid: overlaid(&trust.pools.load()),
            device,
            complete: verdict.complete,
        }
    }
}

/// Returns the networks of the pools that may take the tunnel.
fn overlaid(pools: &Pools) -> Vec<IpNet> {
    let overlaid = pools.values().filter(|judged| !judged.object.spec.overlay.is_direct());
    let overlaid = overlaid.filter_map(|judged| judged.object.spec.networks().ok()).flatten();
    overlaid.flat_map(trust::networks).collect()
}

/// The outcome of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteReport {
    pub changed: usize,
    /// The changes that the kernel refused, one sentence each.
    pub failed: Vec<String>,
}

/// Reads what the kernel has of routes to blocks. Blocks.
pub(crate) fn found(
    netlink: &mut Netlink,
    export_table: Option<u32>,
    device: Option<u32>,
) -> Result<RouteState, netlink::Error> {
    let mut found = RouteState { routes: netlink.routes(MAIN_TABLE)?, ..RouteState::default() };
    if let Some(table) = export_table {
        found.routes.append(&mut netlink.routes(table)?);
    }
    found.rules = netlink.rules()?;
    found.rules.retain(overlay::is_our_rule);
    if let Some(device) = device {
        found.routes.append(&mut netlink.routes(NODE_TABLE)?);
        found.neighbours = netlink.neighbours(Some(device))?;
    }
    Ok(found)
}

/// Routes to blocks: what is wanted, and what the kernel has.
#[derive(Debug)]
pub struct BlockRoutes {
    pub planner: RoutePlanner,
    /// The name of this node.
    node: String,
    export_table: Option<u32>,
    device: DeviceSettings,
    known: Option<KnownRoutes>,
}

/// What the kernel has, as far as it is known.
#[derive(Debug)]
struct KnownRoutes {
    device: Option<u32>,
    /// Whether the device was needed when it was looked at.
    needed: bool,
    state: KernelRoutes,
    read: Instant,
    /// Whether what is not wanted was removed at the last attempt.
    complete: bool,
}

impl BlockRoutes {
    pub fn new(node: &str, export_table: Option<u32>, device: DeviceSettings) -> Self {
        let planner = RoutePlanner::new(node, export_table);
        Self { planner, node: node.to_owned(), export_table, device, known: None }
    }

    /// Brings the kernel's routes in line. Unless everything is known (`complete`), nothing is removed. What is
    /// there is looked at only if that was not done lately; this node's device and addresses also if the kernel
    /// refuses something. Blocks.
    pub fn apply(&mut self, node: &Node, complete: bool) -> Result<RouteReport, NodeError> {
        let needed = self.planner.needs_device();
        let mut changed = 0;
        let mut lately = self.known.take().filter(|known| known.read.elapsed() < LATELY);
        if let Some(known) = &mut lately
            && (known.complete, known.needed) == (complete, needed)
            && (known.device.is_some() || !needed)
        {
            let report = self.make_changes(node, known)?;
            // Else the device may be gone.
            if report.failed.is_empty() {
                self.known = lately;
                return Ok(report);
            }
            changed = report.changed;
        }
        let mut no_device = None;
        let device = match needed {
            true => {
                let made = overlay::ensure(node, &self.node, self.device);
                made.inspect_err(|error| no_device = Some(stallproof::sentence(error))).ok()
            }
            false => device(node)?,
        };
        let lately = lately.filter(|known| known.device == device);
        let (underlay, mut known) = node.netlink(|netlink| {
            let underlay = Underlay::read(netlink, device)?;
            let is_new = lately.as_ref().is_none_or(|known| known.complete != complete);
            let (state, read) = match lately {
                Some(known) => (known.state, known.read),
                None => (found(netlink, self.export_table, device)?.into(), Instant::now()),
            };
            if is_new {
                self.planner.touch_all(&state);
            }
            Ok((underlay, KnownRoutes { device, needed, state, read, complete }))
        })?;
        self.planner.set_underlay(underlay);
        let mut report = self.make_changes(node, &mut known)?;
        report.changed += changed;
        report.failed.extend(no_device.map(|why| format!("no overlay: {why}")));
        if device.is_some() && !needed && complete {
            report.changed += usize::from(overlay::remove(node)?);
            return Ok(report);
        }
        self.known = Some(known);
        Ok(report)
    }

    fn make_changes(
        &mut self,
        node: &Node,
        known: &mut KnownRoutes,
    ) -> Result<RouteReport, NodeError> {
        let changes = self.planner.changes(&known.state, known.complete);
        let state = &mut known.state;
        let report =
            node.netlink(|netlink| Ok(make(netlink, &changes, |change| state.made(change))))?;
        self.planner.settle(&known.state);
        Ok(report)
    }
}

/// Brings the kernel's routes in line with inputs that are told whole. Blocks.
pub fn apply(node: &Node, inputs: &RouteInputs) -> Result<RouteReport, NodeError> {
    let mut routes = BlockRoutes::new(&inputs.node, inputs.export_table, inputs.device);
    routes.planner.set_overlaid(inputs.overlaid.clone());
    for (number, block) in inputs.blocks.iter().enumerate() {
        let name = BlockRef::Listed(format!("{number:09}").into());
        routes.planner.set_block(&name, Some(Arc::new(block.clone())));
    }
    routes.apply(node, inputs.complete)
}

/// The number of the tunnel's device, if there is one. Blocks.
pub(crate) fn device(node: &Node) -> Result<Option<u32>, NodeError> {
    let link = node.netlink(|netlink| netlink.link(LinkRef::Name(overlay::DEVICE)))?;
    Ok(link.map(|link| link.index))
}

/// Makes changes together, as far as the kernel takes them. A node that is not on our network must not
/// hide what else fails: where one fails, those sent with it are made one by one.
fn make(
    netlink: &mut Netlink,
    changes: &[Change<'_>],
    mut made: impl FnMut(&Change<'_>),
) -> RouteReport {
    let mut report = RouteReport::default();
    for together in changes.chunks(TOGETHER) {
        if netlink.apply(together).is_ok() {
            report.changed += together.len();
            together.iter().for_each(&mut made);
            continue;
        }
        for change in together {
            match netlink.apply(std::slice::from_ref(change)) {
                Err(error) if !is_done(change, &error) => {
                    report.failed.push(stallproof::sentence(&error));
                }
                _ => {
                    report.changed += 1;
                    made(change);
                }
            }
        }
    }
    report
}

/// Says whether the change is refused because things are as it wants them.
fn is_done(change: &Change<'_>, error: &netlink::Error) -> bool {
    match change {
        Change::DeleteRoute(_) | Change::DeleteRule(_) | Change::DeleteNeighbour(_) => {
            error.not_found()
        }
        Change::Rule(_) => error.already_exists(),
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests;
