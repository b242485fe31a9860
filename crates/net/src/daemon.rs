//! The node's daemon: everything of this crate, put together.
//!
//! ```text
//! server ─► Attach ─► Addresses ◄─ Claims ◄─ pools and blocks in the store
//!              └────► Wiring        Facts ◄─ namespaces in the store
//! reconcile: journal × kernel × store, before the first request is served and then for ever
//! ```
//!
//! Everything is begun and nothing is waited for: what is not there yet is said by `/readyz` and by
//! STATUS. A node whose store is away serves from the blocks it has.

mod node_addresses;
mod ready;
mod show;

pub use node_addresses::sent_from;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use cni::wire::Ask;
use kernel::netns::{self, Namespace};
use objects::kinds::{AddressPool, AddressPoolSpec, Subnet};
use objects::{Election, Error, Id, Invalid, Kind, Objects, Timing};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stallproof::{Deadline, Ledger, Readiness, Snapshot, Tasks};
use tracing::{info, warn};

use crate::addresses::OpenError;
use crate::attach::{Attach, Limits};
use crate::claims::{Claims, NodeIdentity};
use crate::facts::Facts;
use crate::leader::{self, Reclaim};
use crate::node::{Node, NodeError};
use crate::reconcile::Reconcile;
use crate::routes;
use crate::server::{self, ListenError};
use crate::trust::{self, Nodes, Trust};
use crate::wiring::Wiring;
use crate::{Addresses, pool};
use show::Shown;

/// Of the first pool's blocks: what a pool has that does not say.
const BLOCK_SIZE_BITS: u8 = 5;
/// How long the store may take for one question, and the pause before it is asked again.
const ASK: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_secs(5);
/// How long the start waits for the pool that it makes: a store that is away holds up no pod for
/// which there is an address.
const FIRST_POOL: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct NetConfig {
    pub socket: PathBuf,
    /// Where the journal is kept.
    pub data: PathBuf,
    pub node: String,
    /// Where other nodes reach this one; none: the addresses that it would itself send from.
    pub addresses: Vec<IpAddr>,
    /// What the pool `default` is made of where there is none.
    pub subnets: Vec<Subnet>,
    /// None: the uplink's.
    pub mtu: Option<u32>,
    /// The routing table in which this node's blocks are exported.
    pub export_table: Option<u32>,
    /// How long after this agent was last well its node is still taken for ready ([`cni::ready`]).
    pub grace: Duration,
    /// The store is an API server: there are namespaces, and others lead.
    pub kubernetes: bool,
}

/// What the daemon stands on.
#[derive(Clone, Debug)]
pub struct On {
    pub ledger: Ledger,
    pub readiness: Readiness,
    pub tasks: Tasks,
}

#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    #[error("the subnets make no pool: {0}")]
    Subnets(Invalid),
    #[error("the node's network namespace cannot be held")]
    Namespace(#[source] netns::Error),
    #[error("the node's network cannot be set up")]
    Node(#[source] NodeError),
    #[error("the record of addresses cannot be used")]
    Open(#[source] OpenError),
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Begins all of it on `on.tasks`, in the runtime that the caller has entered. Answers where it can be
/// seen which pod has which address.
pub fn begin(
    config: NetConfig,
    objects: Objects,
    on: On,
    registry: &mut Registry,
) -> Result<Addresses, BeginError> {
    let pool = first_pool(&config.subnets).map_err(BeginError::Subnets)?;
    let On { ledger, readiness, tasks } = on;
    let node = Node::new(Namespace::current().map_err(BeginError::Namespace)?);
    node.forward().map_err(BeginError::Node)?;
    let mtu = config.mtu.map_or_else(|| node.uplink_mtu(), Ok).map_err(BeginError::Node)?;
    let listener = server::listen(&config.socket)?;
    let addresses = Addresses::open(&config.data, &tasks).map_err(BeginError::Open)?;
    let facts = match config.kubernetes {
        true => Facts::watch(objects.clone(), &config.data, &tasks),
        false => Facts::none(),
    };
    let reached = node_addresses::keep(config.addresses, &tasks);
    let identity = NodeIdentity { name: config.node.clone(), addresses: reached };
    let claims = Claims::start(objects.clone(), identity, addresses.clone(), &tasks);
    claims.register(registry);
    let pools_ready = readiness.announce("address-pools");
    claims.watch_definitions(objects.clone(), addresses.clone(), pools_ready, &tasks);
    let nodes = Snapshot::new(if config.kubernetes { Nodes::Unknown } else { Nodes::Absent });
    if config.kubernetes {
        let (blocks, stop) = (claims.blocks(), tasks.stopping());
        let keep = trust::keep_nodes(objects.clone(), blocks, nodes.clone(), stop);
        tasks.spawn("net-nodes", keep);
    }
    let trust = Trust {
        node: config.node.clone(),
        blocks: claims.blocks(),
        shapes: claims.shapes(),
        nodes,
        memory: Snapshot::default(),
    };
    let doubted = Gauge::default();
    let help = "Blocks that are not believed, or not wholly; `fairlead net check` says why";
    registry.register("net_blocks_doubted", help, doubted.clone());
    let wiring = Wiring::new(node, mtu);
    let attach = Attach::new(wiring.clone(), addresses.clone(), facts, ledger, Limits::default());
    attach.register(registry);

    let shown = Shown {
        node: config.node.clone(),
        objects: objects.clone(),
        addresses: addresses.clone(),
        claims: claims.clone(),
        trust: trust.clone(),
        attach: attach.clone(),
        wiring: wiring.clone(),
        export_table: config.export_table,
        tasks: tasks.clone(),
    };
    let serving = attach.clone();
    let handle = move |request: cni::wire::Request, descriptor| {
        let (attach, shown) = (serving.clone(), shown.clone());
        async move {
            match request.ask {
                Ask::Show(what) => shown.show(what, Deadline::after(request.wait())).await,
                _ => attach.serve(request, descriptor).await,
            }
        }
    };
    let serve = server::serve(listener, handle, server::Bounds::default(), tasks.clone());
    tasks.spawn_essential("cni-server", serve);
    let wants_pool = pool.is_some();
    if let Some(pool) = pool {
        tasks.spawn("first-pool", make_pool(objects.clone(), pool, tasks.clone()));
    }
    if !config.kubernetes {
        // On Kubernetes a controller leads.
        tasks.spawn("pool-leader", lead(objects, config.node.clone(), tasks.clone()));
    }
    let (node, table) = (wiring.node().clone(), config.export_table);
    let keep = routes::run(node, trust, doubted, addresses.clone(), table, tasks.clone());
    tasks.spawn("net-routes", keep);
    let ready = readiness.announce("net");
    ready.not_ready("reconciling");
    let health = attach.health();
    let mark = ready::keep(config.socket, config.grace, health.clone(), tasks.clone());
    tasks.spawn("cni-ready", mark);
    let reconcile = Reconcile::new(wiring, attach, addresses.clone(), tasks.clone());
    let stop = tasks.stopping();
    let assigned = addresses.clone();
    tasks.spawn_essential("reconcile", async move {
        if wants_pool {
            // A pod that comes at once should not be told that there is no pool.
            let _ = Deadline::after(FIRST_POOL).bound(stop.bound(known(&addresses))).await;
        }
        reconcile.run(health, ready, stop).await;
    });
    info!(mtu, "the node's network begins");
    Ok(assigned)
}

fn first_pool(subnets: &[Subnet]) -> Result<Option<AddressPool>, Invalid> {
    if subnets.is_empty() {
        return Ok(None);
    }
    let spec = AddressPoolSpec { block_size_bits: BLOCK_SIZE_BITS, subnets: subnets.to_vec() };
    let pool = AddressPool::new(pool::DEFAULT, spec);
    pool.check()?;
    Ok(Some(pool))
}

/// Returns when the node knows the default pool.
async fn known(addresses: &Addresses) {
    let mut changes = addresses.changes();
    while addresses.view().standing(pool::DEFAULT).is_none() {
        changes.changed().await;
    }
}

/// Makes the pool unless there is one of its name, whatever that is.
async fn make_pool(objects: Objects, pool: AddressPool, tasks: Tasks) {
    let stop = tasks.stopping();
    loop {
        match objects.create(&pool, Deadline::after(ASK)).await {
            Ok(_) => return info!(pool = pool::DEFAULT, "made the first address pool"),
            Err(Error::Exists { .. }) => return,
            Err(error) => {
                let error = stallproof::sentence(&error);
                warn!(pool = pool::DEFAULT, error, "the first address pool cannot be made yet");
            }
        }
        if stop.bound(tokio::time::sleep(AGAIN)).await.is_none() {
            return;
        }
    }
}

async fn lead(objects: Objects, node: String, tasks: Tasks) {
    let lease = Id::namespaced("fairlead", "fairlead-net");
    let election = Election::new(objects, lease, &node, Timing::default());
    election.run(&tasks, |leader| leader::lead(&leader, Reclaim::Never)).await;
}
