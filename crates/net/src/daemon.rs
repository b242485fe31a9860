//! The node's network daemon: everything of this crate, put together.
//!
//! ```text
//! server ─► CniService ─► Addresses ◄─ BlockClaims ◄─ pools and blocks in the store
//!              └────────► Wiring     NamespacePools ◄─ namespaces in the store
//! KernelReconciler: journal × kernel, before the first request is served and then for ever
//! ```
//!
//! The start waits for nothing: `/readyz` and STATUS say what is not there yet. A node whose store is
//! away serves from the blocks it has.

mod beside;
mod node_addresses;
mod ready_mark;
mod show;

pub use beside::{BesideConfig, start as start_beside};
pub use node_addresses::sent_from;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cni::wire::{Operation, Request};
use kernel::netns::{self, Namespace};
use objects::kinds::{AddressPool, AddressPoolSpec, Masquerade, Subnet};
use objects::{
    Attempt, Election, Error, Id, Invalid, Kind, Next, Objects, Pace, Reconciler, Timing, reconcile,
};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stallproof::{Deadline, Ledger, Readiness, Snapshot, Tasks};
use tracing::info;

use crate::addresses::OpenError;
use crate::claims::{BlockClaims, NodeIdentity};
use crate::datapath::PodPolicies;
use crate::egress::{self, EgressHold, EgressMetrics, EgressReconciler, NodePods, ServedPods};
use crate::encryption::PodEncryption;
use crate::masquerade::{self, MasqueradeMetrics, MasqueradeReconciler};
use crate::namespace_pools::NamespacePools;
use crate::node::{Node, NodeError};
use crate::overlay::{self, DeviceSettings};
use crate::pool_controller::{self, Reclaim};
use crate::reconcile::{self as kernel_reconcile, KernelReconciler};
use crate::routes::{self, RouteReconciler};
use crate::server::{self, ListenError, ServerLimits};
use crate::service::{CniService, RequestLimits};
use crate::trust::{self, BlockTrust, NodeLister};
use crate::wiring::{InterfaceNaming, PodMtu, Wiring};
use crate::{Addresses, Attachment, pool};
use show::Listings;

/// The block size of the first pool: that of a pool that names none.
const BLOCK_SIZE_BITS: u8 = 5;
/// How long the start waits for the pool that it makes: a store that is away holds up no pod for
/// which there is an address.
const FIRST_POOL: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct NetConfig {
    pub socket: PathBuf,
    /// The directory of the journal.
    pub data: PathBuf,
    pub node: String,
    /// Where other nodes reach this one; by default the addresses that it sends from.
    pub addresses: Vec<IpAddr>,
    /// The subnets of the pool `default`, which is made where there is none.
    pub subnets: Vec<Subnet>,
    /// Whether that pool is masqueraded.
    pub masquerade: bool,
    /// By what name pods' interfaces go at the node's side.
    pub interface_names: InterfaceNaming,
    /// The MTU of pods; by default the uplink's.
    pub mtu: Option<u32>,
    /// The UDP port of the overlay, the same on all nodes.
    pub vxlan_port: u16,
    /// Whether pods may use egresses: then the node's own pods are watched.
    pub egress: bool,
    /// The UDP port of the tunnels to egress pods, the same on all nodes.
    pub egress_port: u16,
    /// The routing table in which this node's blocks are exported.
    pub export_table: Option<u32>,
    /// How long the node still counts as ready after this agent was last healthy ([`cni::ready`]).
    pub grace: Duration,
    /// How packets between nodes are encrypted; none if they are not.
    pub encryption: Option<PodEncryption>,
    /// The node's WireGuard interface, if it has one: what goes into it keeps its source.
    pub tunnel: Option<String>,
    /// Whether the store is an API server: then there are namespaces, and a controller leads.
    pub kubernetes: bool,
}

/// The parts of the process that the daemon uses.
#[derive(Clone, Debug)]
pub struct DaemonContext {
    pub ledger: Ledger,
    pub readiness: Readiness,
    pub tasks: Tasks,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the subnets make no pool: {0}")]
    Subnets(Invalid),
    #[error("the node's network namespace cannot be held")]
    Namespace(#[source] netns::Error),
    #[error("the node's network cannot be set up")]
    Node(#[source] NodeError),
    #[error("the record of addresses cannot be used")]
    Open(#[source] OpenError),
    #[error("the directory {path} cannot be made")]
    Directory {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("policies cannot be enforced: {0}; set policy.enforce to off to do without")]
    Policies(String),
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Begins to enforce policies, told of the attachments that there are. When it returns, policies decide.
pub type BeginPolicies<'a> =
    &'a mut dyn FnMut(&[Arc<Attachment>]) -> Result<Arc<dyn PodPolicies>, String>;

/// Starts the daemon in the context's tasks, in the runtime that the caller has entered. Returns which
/// pod has which address.
pub fn start(
    config: NetConfig,
    objects: Objects,
    context: DaemonContext,
    registry: &mut Registry,
) -> Result<Addresses, StartError> {
    start_with(config, objects, context, None, registry)
}

/// Starts the daemon with policies that decide about its pods. They do before the first request is
/// served and before STATUS succeeds.
pub fn start_with(
    config: NetConfig,
    objects: Objects,
    context: DaemonContext,
    policies: Option<BeginPolicies<'_>>,
    registry: &mut Registry,
) -> Result<Addresses, StartError> {
    let pool = first_pool(&config.subnets, config.masquerade).map_err(StartError::Subnets)?;
    let DaemonContext { ledger, readiness, tasks } = context;
    let stop = tasks.stopping();
    let node = Node::new(Namespace::current().map_err(StartError::Namespace)?);
    node.forward().map_err(StartError::Node)?;
    let uplink = node.uplink_mtu().map_err(StartError::Node)?;
    // Packets of pods must fit the tunnel that they go through.
    let carried = config.encryption.as_ref().map_or(uplink, |it| it.mtu.min(uplink));
    let mtu = config.mtu.unwrap_or(uplink).min(carried);
    let listener = server::listen(&config.socket)?;
    let addresses = Addresses::open(&config.data, &ledger, &tasks).map_err(StartError::Open)?;
    let policies = match policies {
        Some(begin) => {
            let attachments: Vec<_> = addresses.view().attachments().cloned().collect();
            Some(begin(&attachments).map_err(StartError::Policies)?)
        }
        None => None,
    };
    let pools = match config.kubernetes {
        true => NamespacePools::watch(objects.clone(), &config.data, &tasks),
        false => NamespacePools::none(),
    };
    let reached = node_addresses::follow(config.addresses, &tasks);
    let over_ipv4 = reached.read(|own| own.iter().all(IpAddr::is_ipv4));
    let device = DeviceSettings { port: config.vxlan_port, mtu: overlay::mtu(uplink, over_ipv4) };
    let identity = NodeIdentity { name: config.node.clone(), addresses: reached };
    let known_as = identity.clone();
    let reached = identity.addresses.clone();
    let claims = BlockClaims::start(objects.clone(), identity, addresses.clone(), &ledger, &tasks);
    claims.register(registry);
    let pools_ready = readiness.announce("address-pools");
    claims.check_definitions(objects.clone(), addresses.clone(), pools_ready, &ledger, &tasks);
    let nodes = config.kubernetes.then(Snapshot::default);
    if let Some(nodes) = &nodes {
        let lister = NodeLister::new(objects.clone(), claims.blocks(), nodes.clone());
        let (key, pace, stop) = (config.node.clone(), trust::PACE, stop.clone());
        tasks.spawn("net-nodes", reconcile("list-nodes", key, pace, lister, ledger.clone(), stop));
    }
    let trust = BlockTrust {
        node: config.node.clone(),
        blocks: claims.blocks(),
        pools: claims.pools(),
        nodes,
        believed: Snapshot::default(),
    };
    let doubted = Gauge::default();
    let help = "Blocks that are not believed, or not wholly; `fairlead net check` says why";
    registry.register("net_blocks_doubted", help, doubted.clone());
    let mtus = PodMtu::of_pools(mtu, mtu.min(device.mtu), trust.pools.clone());
    let hold = (config.kubernetes && config.egress)
        .then(|| EgressHold::watch(node.clone(), &config.node, &objects, &tasks));
    let held = hold.clone().map(|hold| Arc::new(hold) as Arc<dyn PodPolicies>);
    let wiring = Wiring::new(node.clone(), mtus).named(config.interface_names);
    let guarded = config.encryption.as_ref().and_then(PodEncryption::hold);
    let guarded = guarded.map(|hold| Arc::new(hold) as Arc<dyn PodPolicies>);
    let wiring = wiring.with_policies(guarded).with_policies(policies).with_policies(held);
    let (datapath, limits) = (wiring.clone(), RequestLimits::default());
    let service = CniService::new(datapath, addresses.clone(), pools, ledger.clone(), limits);
    service.register(registry);

    let egress = hold.map(|hold| {
        let metrics = EgressMetrics::default();
        metrics.register(registry);
        let (addresses, pools) = (addresses.clone(), trust.pools.clone());
        EgressReconciler::new(
            node.clone(),
            known_as,
            DeviceSettings { port: config.egress_port, mtu: overlay::mtu(carried, over_ipv4) },
            &objects,
            NodePods::Served(ServedPods { hold, addresses, pools }),
            &config.data,
            metrics,
            tasks.clone(),
        )
    });
    let listings = Listings {
        egress: egress.as_ref().map(EgressReconciler::seen),
        encryption: config.encryption.clone(),
        mtu,
        node: config.node.clone(),
        objects: objects.clone(),
        addresses: addresses.clone(),
        claims,
        trust: trust.clone(),
        service: service.clone(),
        wiring: wiring.clone(),
        export_table: config.export_table,
        device,
        tasks: tasks.clone(),
    };
    tasks.spawn_essential("cni-remove-links", service.clone().remove_links(tasks.stopping()));
    let serving = service.clone();
    let handle = move |request: Request, descriptor| {
        let (service, listings) = (serving.clone(), listings.clone());
        async move {
            let deadline = Deadline::after(request.wait());
            match request.operation {
                Operation::Show(what) => listings.show(what, deadline).await,
                _ => service.serve(request, descriptor).await,
            }
        }
    };
    let serve = server::serve(listener, handle, ServerLimits::default(), tasks.clone());
    tasks.spawn_essential("cni-server", serve);
    if let Some(egress) = egress {
        let (key, pace, stop) = (config.node.clone(), egress::PACE, stop.clone());
        let keeping = reconcile("egress", key, pace, egress, ledger.clone(), stop);
        tasks.spawn("net-egress", keeping);
    }
    let key = config.node.clone();
    let makes_pool = pool.is_some();
    if let Some(pool) = pool {
        let make = PoolMaker { objects: objects.clone(), pool };
        let (pace, stop) = (Pace::default(), stop.clone());
        let make =
            reconcile("make-pool", pool::DEFAULT.to_owned(), pace, make, ledger.clone(), stop);
        tasks.spawn("first-pool", make);
    }
    if !config.kubernetes {
        // On Kubernetes a controller leads.
        let election = lead(objects, config.node, ledger.clone(), tasks.clone());
        tasks.spawn("pool-leader", election);
    }
    let masqueraded = MasqueradeMetrics::default();
    masqueraded.register(registry);
    let (pools, tasks_of_kernel) = (trust.pools.clone(), tasks.clone());
    let masquerading = MasqueradeReconciler::new(
        node.clone(),
        pools,
        addresses.clone(),
        masqueraded,
        tasks_of_kernel,
    )
    .with_tunnel(config.tunnel);
    let pace = masquerade::PACE;
    let masquerading =
        reconcile("masquerade", key.clone(), pace, masquerading, ledger.clone(), stop.clone());
    tasks.spawn("net-masquerade", masquerading);
    let table = config.export_table;
    let routes =
        RouteReconciler::new(node, trust, doubted, addresses.clone(), table, device, tasks.clone());
    let routes = routes.with_encryption(config.encryption.map(|it| it.network), reached);
    let pace = routes::PACE;
    let routes = reconcile("routes", key.clone(), pace, routes, ledger.clone(), stop.clone());
    tasks.spawn("net-routes", routes);
    let ready = readiness.announce("net");
    ready.not_ready("reconciling");
    let mark = ready_mark::keep(config.socket, config.grace, service.health(), tasks.clone());
    tasks.spawn("cni-ready", mark);
    let reconciler =
        KernelReconciler::new(wiring, service, addresses.clone(), tasks.clone(), ready);
    let assigned = addresses.clone();
    tasks.spawn_essential("reconcile", async move {
        if makes_pool {
            // A pod that comes at once should not be told that there is no pool.
            let known = stop.bound(knows_default_pool(&addresses));
            let _ = Deadline::after(FIRST_POOL).bound(known).await;
        }
        reconcile("reconcile-kernel", key, kernel_reconcile::PACE, reconciler, ledger, stop).await;
    });
    info!(mtu, "the node's network starts");
    Ok(assigned)
}

fn first_pool(subnets: &[Subnet], masquerade: bool) -> Result<Option<AddressPool>, Invalid> {
    if subnets.is_empty() {
        return Ok(None);
    }
    let mut spec = AddressPoolSpec::new(BLOCK_SIZE_BITS, subnets.to_vec());
    spec.masquerade = masquerade.then(Masquerade::default);
    let pool = AddressPool::new(pool::DEFAULT, spec);
    pool.check()?;
    Ok(Some(pool))
}

/// Returns when the node knows the default pool.
async fn knows_default_pool(addresses: &Addresses) {
    let mut changes = addresses.changes();
    while addresses.view().availability_of(pool::DEFAULT).is_none() {
        changes.changed().await;
    }
}

/// Makes the pool, unless there is one of its name, whatever that is.
struct PoolMaker {
    objects: Objects,
    pool: AddressPool,
}

impl Reconciler for PoolMaker {
    type Error = Error;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Error> {
        match self.objects.create(&self.pool, attempt.deadline).await {
            Ok(_) => info!(pool = pool::DEFAULT, "made the first address pool"),
            Err(Error::Exists { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(Next::Finished)
    }
}

async fn lead(objects: Objects, node: String, ledger: Ledger, tasks: Tasks) {
    let lease = Id::namespaced("fairlead", "fairlead-net");
    let election = Election::new(objects, lease, &node, Timing::default()).on_ledger(&ledger);
    election.run(&tasks, |leader| pool_controller::start(&leader, Reclaim::Never)).await;
}
