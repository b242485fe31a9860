//! What a node's agent does for meshes and for the encryption of the pod network: it keeps the interface,
//! says the public half of its key in a `WireguardNode`, has as peers what the mesh's controller wrote as
//! `WireguardPeer`s and the nodes of its own cluster that encrypt, and probes them.
//!
//! ```text
//! WireguardPeer ──watch──► claims (pure) ──► Tunnel ──► report ──► WireguardNode's status
//! WireguardNode ──watch──►   ▲                └──► targets ──► prober
//! PodNetwork (net) ──────►   └── who does not answer ────────────┘
//! key file ───► WireguardNode (publicKey; nextPublicKey while the key is about to change)
//! file of preshared keys ──► Tunnel
//! ```
//!
//! - While the store has not listed all peers, the interface keeps those that it has.
//! - Where encryption is required, guards are there before the interface is: an interface that cannot be
//!   made lets nothing through.
//! - Where it is preferred, an agent that ends says so first, and its interface outlives that by a moment:
//!   other nodes send beside it then.
//! - A key that is older than its lifetime is replaced: the next one is made and said first, and used
//!   when it has been known for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ipnet::IpNet;
use jiff::Timestamp;
use kernel::netns::Namespace;
use objects::kinds::{WireguardNode, WireguardNodeSpec, WireguardPeer};
use objects::{Attempt, Expected, Id, Next, Objects, Pace, Reconciler, Watched, Within, reconcile};
use stallproof::backoff::Curve;
use stallproof::snapshot::Changes;
use stallproof::{Deadline, Ledger, Snapshot, Tasks};
use tracing::{debug, info, warn};

use crate::claims::{Claims, claims};
use crate::cluster::{self, ClusterRoutes, ClusterTunnels, Encryption, KeysSaid, PodNetwork, Way};
use crate::key::{KeyFile, KeyFileError, PrivateKey, PublicKey};
use crate::names::{self, Name, Names};
use crate::path;
use crate::preshared::{PresharedKeys, PresharedKeysError};
use crate::prober::{Prober, Probes, Targets, Verdicts};
use crate::report::{Due, Written, report};
use crate::tunnel::{Tunnel, TunnelConfig, TunnelError, TunnelStatus};

const PACE: Pace = Pace {
    attempt: Duration::from_secs(60),
    resync: Duration::from_secs(30),
    settle: Duration::from_millis(50),
    retry: Curve { first: Duration::from_millis(500), most: Duration::from_secs(30) },
};
/// How soon it is looked again whether a peer's next key has connected.
const ROTATING: Duration = Duration::from_millis(500);
/// How soon it is looked again whether a node has connected to which nothing is sent before it has.
const CONNECTING: Duration = Duration::from_secs(1);
/// How long the store is waited for when the agent ends, and how long other nodes then take to hear of it.
const FAREWELL: Duration = Duration::from_secs(2);
const HEARD: Duration = Duration::from_millis(1_500);
/// How often routes are read.
const REPAIR: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub struct AgentConfig {
    pub node: String,
    /// The directory of the keys.
    pub keys: PathBuf,
    pub tunnel: TunnelConfig,
    /// How old a key may be; none for ever.
    pub key_lifetime: Option<Duration>,
    /// How long the next key is known before it is used.
    pub announce: Duration,
    /// A file of keys that nodes share beside their own; none for none.
    pub preshared_keys: Option<PathBuf>,
    /// Whether the interface carries packets of meshes: then `WireguardPeer`s are its peers.
    pub mesh: bool,
    /// Whether it carries packets between pods of this cluster.
    pub cluster: Option<ClusterEncryption>,
}

/// How the pod network is encrypted.
#[derive(Clone, Debug)]
pub struct ClusterEncryption {
    pub mode: Encryption,
    /// None until this node's own blocks are known.
    pub network: Snapshot<Option<PodNetwork>>,
    /// Where the ways to other nodes are told.
    pub tunnels: Snapshot<ClusterTunnels>,
    /// Where it is told which networks' packets are refused if they cannot be encrypted.
    pub guarded: Snapshot<BTreeSet<IpNet>>,
}

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error(transparent)]
    PresharedKeys(#[from] PresharedKeysError),
    #[error(transparent)]
    Tunnel(#[from] TunnelError),
    #[error("the node's WireguardNode cannot be written")]
    Store(#[from] objects::Error),
    #[error("the pod network cannot be guarded")]
    Guards(#[source] std::io::Error),
    #[error("the interface was not changed in time")]
    TooLate,
    #[error("the thread that changes the interface failed")]
    Thread,
}

/// Starts to keep the interface, in the runtime that the caller has entered. Returns its state; none while
/// there is no interface.
pub fn start(
    config: AgentConfig,
    namespace: Arc<Namespace>,
    objects: Objects,
    ledger: &Ledger,
    tasks: &Tasks,
) -> Snapshot<Option<TunnelStatus>> {
    let peers: Snapshot<Watched<Id, Arc<WireguardPeer>>> = match config.mesh {
        true => objects.watched(Within::default(), tasks),
        false => Snapshot::new([].into_iter().collect()),
    };
    let said: Snapshot<KeysSaid> = match config.cluster {
        // Of their status nothing is kept: it changes often.
        Some(_) => objects.watched_as(Within::default(), tasks, |it: WireguardNode| Some(it.spec)),
        None => Snapshot::new([].into_iter().collect()),
    };
    let network = config.cluster.as_ref().map(|it| it.network.clone()).unwrap_or_default();
    let (status, probes, names) = (Snapshot::default(), Probes::default(), Names::default());
    tasks.spawn("wireguard names", names::run(names.clone(), tasks.stopping()));
    if config.tunnel.probes {
        match Prober::new(Arc::clone(&namespace), probes.clone()) {
            Ok(prober) => drop(tasks.spawn("wireguard probes", prober.run(tasks.stopping()))),
            Err(error) => warn!(%error, "peers are not probed"),
        }
    }
    let mut reconciler = TunnelReconciler {
        changes: peers.subscribe(),
        judged: probes.verdicts.subscribe(),
        found: names.found.subscribe(),
        said_changes: said.subscribe(),
        network_changes: network.subscribe(),
        peers,
        keys: said,
        network,
        guarded: None,
        leaving: Arc::default(),
        objects,
        namespace,
        status: status.clone(),
        tasks: tasks.clone(),
        interface: None,
        said: None,
        repaired: None,
        names,
        probes,
        claims: Claims::default(),
        written: Written::default(),
        config,
    };
    let key = reconciler.config.tunnel.name.clone();
    let is_preferred = |it: &ClusterEncryption| it.mode == Encryption::Preferred;
    if !reconciler.config.cluster.as_ref().is_some_and(is_preferred) {
        let work = reconcile("wireguard", key, PACE, reconciler, ledger.clone(), tasks.stopping());
        tasks.spawn("wireguard", work);
        return status;
    }
    // The interface ends after the others know of it.
    let (objects, node, said) =
        (reconciler.objects.clone(), reconciler.config.node.clone(), reconciler.keys.clone());
    let (namespace, leaving) = (Arc::clone(&reconciler.namespace), Arc::clone(&reconciler.leaving));
    let inner = Tasks::new("wireguard");
    reconciler.tasks = inner.clone();
    let work = reconcile("wireguard", key, PACE, reconciler, ledger.clone(), inner.stopping());
    inner.spawn("wireguard", work);
    let stop = tasks.stopping();
    tasks.spawn("wireguard", async move {
        stop.stopped().await;
        // Who hears of it first drops what this node still sends through the tunnel: it sends beside it first.
        leaving.store(true, Ordering::Relaxed);
        let beside = move || send_beside(&namespace);
        let done =
            inner.spawn_blocking("wireguard routes", Deadline::after(FAREWELL), beside).await;
        if let Ok(running) = done
            && let Ok(Err(error)) = running.await
        {
            warn!(%error, "the routes into the tunnel stay until it ends");
        }
        if let Some(own) = said.read(|said| said.get(&node).cloned()) {
            withdraw(&objects, own).await;
        }
        inner.shutdown(FAREWELL).await;
    });
    status
}

/// Removes the routes into the tunnel to nodes of this cluster. Blocks.
fn send_beside(namespace: &Namespace) -> Result<(), TunnelError> {
    let mut netlink = namespace.netlink().map_err(TunnelError::Namespace)?;
    let found = cluster::read(&mut netlink)?;
    let changes = cluster::plan(&found, &ClusterRoutes::default(), true);
    Ok(cluster::make(&mut netlink, &changes)?)
}

/// Says that this node takes no packets of pods through its tunnels from now on.
async fn withdraw(objects: &Objects, own: WireguardNodeSpec) {
    let own = WireguardNodeSpec { encrypts_pods: false, ..own };
    let node = WireguardNode::new(&own.node.clone(), own);
    match objects.apply(&node, Expected::Any, Deadline::after(FAREWELL)).await {
        Ok(_) => tokio::time::sleep(HEARD).await,
        // Other nodes find out by their probes.
        Err(error) => warn!(%error, "other nodes are not told that this one encrypts no more"),
    }
}

struct TunnelReconciler {
    config: AgentConfig,
    namespace: Arc<Namespace>,
    objects: Objects,
    peers: Snapshot<Watched<Id, Arc<WireguardPeer>>>,
    changes: Changes<Watched<Id, Arc<WireguardPeer>>>,
    judged: Changes<Verdicts>,
    found: Changes<names::Found>,
    /// What nodes of this cluster say, and the pod network; nothing unless it is encrypted.
    keys: Snapshot<KeysSaid>,
    said_changes: Changes<KeysSaid>,
    network: Snapshot<Option<PodNetwork>>,
    network_changes: Changes<Option<PodNetwork>>,
    /// The guards that were made last.
    guarded: Option<ClusterRoutes>,
    /// Whether the agent ends, and sends beside the tunnel already.
    leaving: Arc<AtomicBool>,
    status: Snapshot<Option<TunnelStatus>>,
    tasks: Tasks,
    /// Taken while a thread works with it.
    interface: Option<Interface>,
    /// What the store was last told.
    said: Option<WireguardNodeSpec>,
    /// When routes were last read.
    repaired: Option<Instant>,
    names: Names,
    probes: Probes,
    /// What the interface was told last.
    claims: Claims,
    written: Written,
}

/// The interface and its keys.
struct Interface {
    tunnel: Tunnel,
    next: Option<PrivateKey>,
}

impl Reconciler for TunnelReconciler {
    type Error = AgentError;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, AgentError> {
        let deadline = attempt.deadline;
        let network = self.network();
        if let Some((mode, network)) = &network {
            attempt.step("guard");
            self.guard(*mode, network, deadline).await?;
        }
        attempt.step("open");
        let (config, namespace) = (self.config.clone(), Arc::clone(&self.namespace));
        let interface = self.interface.take();
        let (mut interface, preshared) = self
            .blocking(deadline, move || {
                // What is wrong with the file leaves the interface as it is.
                let interface = keep(&config, &namespace, interface)?;
                let keys = config.preshared_keys.as_deref().map(PresharedKeys::load).transpose();
                Ok::<_, AgentError>((interface, keys))
            })
            .await??;
        let preshared = match preshared {
            Ok(keys) => keys.unwrap_or_default(),
            Err(error) => {
                self.interface = Some(interface);
                return Err(error.into());
            }
        };
        let now = Timestamp::now();
        let said = self.spec(&interface);
        if self.said.as_ref() != Some(&said) {
            attempt.step("say the key");
            let told = self.tell(&said, deadline).await;
            if let Err(error) = told {
                self.interface = Some(interface);
                return Err(error.into());
            }
            self.said = Some(said);
        }
        // What is not known yet must take nothing away.
        let is_known = match &network {
            Some((_, network)) => network.complete && self.keys.read(|keys| keys.synced),
            None => self.config.cluster.is_none(),
        };
        let is_known = is_known && self.peers.read(|peers| peers.synced);
        let mut repairs = false;
        if is_known {
            attempt.step("peers");
            let objects: Vec<_> = self.peers.read(|peers| peers.values().cloned().collect());
            let own = interface.tunnel.public_key();
            let mut verdicts = Verdicts::clone(&self.probes.verdicts.load());
            if !interface.tunnel.is_probed() {
                // What is not probed answers when it has connected.
                let status = self.status.load();
                let heard = status.iter().flat_map(|status| &status.peers);
                let heard = heard.filter(|(_, peer)| peer.last_handshake.is_some());
                verdicts.up = heard.map(|(key, _)| *key).collect();
            }
            self.names.wanted.publish(named(&objects, &verdicts.down));
            let names = self.names.found.load();
            let moving = std::mem::take(&mut self.claims.moving);
            let objects = objects.iter().map(AsRef::as_ref);
            let mut claims = claims(objects, &names, own, &verdicts, moving);
            if let Some((_, network)) = &network {
                let (keys, is_probed) = (self.keys.load(), interface.tunnel.is_probed());
                cluster::join(&mut claims, network, &keys, own, is_probed);
            }
            self.tell_of_moves(&claims);
            let (mut wanted, narrow) = (claims.peers.clone(), verdicts.narrow);
            let (forwarded, external) = (claims.forwarded.clone(), claims.external.clone());
            let nodes = wanted.iter_mut().filter(|(key, _)| !claims.machines.contains(key));
            for (key, peer) in nodes {
                peer.preshared_key = preshared.at(now).cloned();
                if interface.tunnel.is_probed() {
                    peer.allowed_ips.push(path::allowed(*key));
                }
            }
            self.claims = claims;
            repairs = self.repaired.is_none_or(|last| last.elapsed() >= REPAIR);
            if repairs {
                self.repaired = Some(Instant::now());
            }
            let changed = move || {
                interface.tunnel.set_narrow(narrow);
                interface.tunnel.set_forwarded(forwarded);
                interface.tunnel.set_external(external);
                let result = interface.tunnel.set_peers(wanted);
                // Routes are read anew now and then: somebody else may have removed one.
                let result = result.and_then(|()| match repairs {
                    true => interface.tunnel.converge(),
                    false => Ok(()),
                });
                (interface, result)
            };
            let (back, result) = self.blocking(deadline, changed).await?;
            interface = back;
            if let Err(error) = result {
                // An interface that does not do as it is told is made anew.
                return Err(error.into());
            }
            self.probes.targets.publish(self.targets(&interface.tunnel));
        }
        attempt.step("status");
        let (mut interface, status) = self
            .blocking(deadline, move || {
                let status = interface.tunnel.status();
                (interface, status)
            })
            .await?;
        let status = status?;
        let mut connecting = None;
        if is_known {
            attempt.step("pod network");
            let (routes, ways) = self.cluster_routes(network.as_ref(), &status);
            if let (Some(cluster), Some(ways)) = (&self.config.cluster, ways) {
                let waits = |way: &cluster::ClusterTunnel| way.key.is_some() && !way.routed;
                let waits = ways.nodes.values().any(|way| waits(way) && !way.path.down);
                connecting = waits.then_some(CONNECTING);
                cluster.tunnels.publish(ways);
            }
            let routed = move || {
                let result = interface.tunnel.set_cluster(routes, repairs);
                (interface, result)
            };
            let (back, result) = self.blocking(deadline, routed).await?;
            interface = back;
            if let Err(error) = result {
                self.interface = Some(interface);
                return Err(error.into());
            }
        }
        let rotating = interface.tunnel.is_rotating() || interface.next.is_some();
        self.interface = Some(interface);
        attempt.step("report");
        let soon = self.write(&status, deadline).await;
        self.status.publish(Some(status));
        let due = connecting.into_iter().chain(self.claims.moving.due());
        let due = due.chain(preshared.until_next(now));
        let next = rotating.then_some(ROTATING).into_iter().chain(soon).chain(due).min();
        Ok(next.map_or(Next::OnChange, Next::Within))
    }

    async fn changed(&mut self) {
        tokio::select! {
            _ = self.changes.changed() => {}
            _ = self.judged.changed() => {}
            _ = self.found.changed() => {}
            _ = self.said_changes.changed() => {}
            _ = self.network_changes.changed() => {}
        }
    }
}

impl TunnelReconciler {
    async fn blocking<T: Send + 'static>(
        &self,
        deadline: Deadline,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, AgentError> {
        let started = self.tasks.spawn_blocking("wireguard interface", deadline, work).await;
        let running = started.map_err(|_| AgentError::TooLate)?;
        let done = deadline.bound(running).await.map_err(|_| AgentError::TooLate)?;
        done.map_err(|_| AgentError::Thread)
    }

    /// The pod network if it is encrypted. What is not known of it after a start is as it was before.
    fn network(&self) -> Option<(Encryption, PodNetwork)> {
        let mode = self.config.cluster.as_ref()?.mode;
        let mut network = self.network.read(Clone::clone)?;
        let file = self.config.keys.join("pools");
        if network.complete {
            if let Err(error) = cluster::remember(&file, &network.pools) {
                warn!(%error, "the networks of pools are not written down");
            }
        } else {
            network.pools.extend(cluster::remembered(&file));
        }
        Some((mode, network))
    }

    /// Where encryption is required, makes what refuses packets that cannot be encrypted.
    async fn guard(
        &mut self,
        mode: Encryption,
        network: &PodNetwork,
        deadline: Deadline,
    ) -> Result<(), AgentError> {
        let guards = cluster::wanted(mode, network, &Way::default());
        if mode != Encryption::Required || self.guarded.as_ref() == Some(&guards) {
            return Ok(());
        }
        let (namespace, wanted) = (Arc::clone(&self.namespace), guards.clone());
        let made = self.blocking(deadline, move || {
            let mut netlink = namespace.netlink().map_err(AgentError::Guards)?;
            let found = cluster::read(&mut netlink).map_err(TunnelError::from)?;
            let changes = cluster::plan(&found, &wanted, false);
            cluster::make(&mut netlink, &changes).map_err(TunnelError::from)?;
            Ok::<_, AgentError>(())
        });
        made.await??;
        self.guarded = Some(guards);
        if let Some(cluster) = &self.config.cluster {
            cluster.guarded.publish(network.pools.clone());
        }
        Ok(())
    }

    /// The routes of the cluster's own tables, and the ways to its nodes; nothing where the pod network is
    /// not encrypted.
    fn cluster_routes(
        &self,
        network: Option<&(Encryption, PodNetwork)>,
        status: &TunnelStatus,
    ) -> (Option<cluster::Wanted>, Option<ClusterTunnels>) {
        let Some((mode, network)) = network else { return (None, None) };
        let (paths, verdicts) = (self.probes.paths.load(), self.probes.verdicts.load());
        let ways = cluster::ways(*mode, network, &self.claims, status, &paths, &verdicts.down);
        let is_leaving = self.leaving.load(Ordering::Relaxed);
        let routed = ways.nodes.iter().filter(|(_, way)| way.routed && !is_leaving);
        let narrow = |key: &PublicKey| verdicts.narrow.get(key).copied();
        let nodes =
            routed.map(|(name, way)| (name.clone(), way.key.as_ref().and_then(narrow))).collect();
        (Some(cluster::Wanted { mode: *mode, network: network.clone(), nodes }), Some(ways))
    }

    fn spec(&self, interface: &Interface) -> WireguardNodeSpec {
        WireguardNodeSpec {
            node: self.config.node.clone(),
            public_key: interface.tunnel.public_key().to_string(),
            next_public_key: interface.next.as_ref().map(|key| key.public().to_string()),
            port: self.config.tunnel.port,
            encrypts_pods: self.config.cluster.is_some(),
        }
    }

    async fn tell(
        &self,
        said: &WireguardNodeSpec,
        deadline: Deadline,
    ) -> Result<(), objects::Error> {
        let node = WireguardNode::new(&said.node, said.clone());
        self.objects.apply(&node, Expected::Any, deadline).await?;
        info!(key = said.public_key, next = said.next_public_key, "said the node's public key");
        Ok(())
    }

    /// Whom to probe: every peer but those whose key is not in use yet, and machines outside of clusters.
    fn targets(&self, tunnel: &Tunnel) -> Targets {
        let Claims { sharing, machines, names, .. } = &self.claims;
        let peers = names.keys().filter(|key| !machines.contains(key));
        let peers = peers.map(|key| (*key, sharing.contains_key(key)));
        let from = tunnel.is_probed().then(|| path::address(tunnel.public_key()));
        Targets { from, mtu: tunnel.mtu(), peers: peers.collect() }
    }

    /// Logs which of the peers that share networks has them now.
    fn tell_of_moves(&self, now: &Claims) {
        for (key, carries) in &now.sharing {
            let before = self.claims.sharing.get(key);
            if *carries && before.is_some_and(|before| !before) {
                let peer = now.names.get(key);
                info!(peer, "shared networks are sent to another peer, which answers");
            }
        }
    }

    /// Writes the node's status if it is time, and says when it should be looked at again.
    async fn write(&mut self, status: &TunnelStatus, deadline: Deadline) -> Option<Duration> {
        let said = self.said.clone()?;
        let paths = self.probes.paths.load();
        let report = report(status, &self.claims, &paths, SystemTime::now());
        let now = tokio::time::Instant::now();
        match self.written.due(&report, now) {
            Due::Later => None,
            Due::After(wait) => Some(wait),
            Due::Now => {
                let mut node = WireguardNode::new(&said.node, said.clone());
                node.status = Some(report.clone());
                // Tunnels do not depend on what is said of them; the next attempt says it.
                match self.objects.apply_status(&node, Expected::Any, deadline).await {
                    Ok(_) => self.written.wrote(report, now),
                    Err(error) => debug!(%error, "the node's status is not written"),
                }
                None
            }
        }
    }
}

/// The names of endpoints, each with whether nobody answers there.
fn named(peers: &[Arc<WireguardPeer>], down: &BTreeSet<PublicKey>) -> BTreeMap<Name, bool> {
    let named = peers.iter().filter_map(|peer| {
        let endpoint = peer.spec.endpoint.as_ref()?;
        let host = endpoint.dns_or_ip.dns.clone().filter(|_| endpoint.dns_or_ip.ip.is_none())?;
        let key = peer.spec.public_key.parse();
        Some(((host, endpoint.port), key.is_ok_and(|key| down.contains(&key))))
    });
    named.collect()
}

/// Opens the interface if there is none, and goes on with the change of its key.
fn keep(
    config: &AgentConfig,
    namespace: &Arc<Namespace>,
    interface: Option<Interface>,
) -> Result<Interface, AgentError> {
    let file = KeyFile::new(config.keys.join("key"));
    let next_file = KeyFile::new(config.keys.join("next-key"));
    let mut interface = match interface {
        Some(interface) => interface,
        None => {
            let key = file.load_or_create()?;
            let tunnel = Tunnel::open(namespace, config.tunnel.clone(), &key)?;
            let (name, implementation) = (&config.tunnel.name, tunnel.implementation());
            info!(name, %implementation, key = %key.public(), "the WireGuard interface is up");
            Interface { tunnel, next: next_file.load()? }
        }
    };
    let age = |name: &str| {
        let written = fs::metadata(config.keys.join(name)).and_then(|it| it.modified());
        written.ok().and_then(|then| SystemTime::now().duration_since(then).ok())
    };
    let outlived = |of: Option<Duration>, most: Duration| of.is_some_and(|age| age >= most);
    match &interface.next {
        None if config.key_lifetime.is_some_and(|most| outlived(age("key"), most)) => {
            interface.next = Some(next_file.load_or_create()?);
        }
        Some(next) if outlived(age("next-key"), config.announce) => {
            interface.tunnel.set_key(next)?;
            // A crash in between has both files hold the same key: it is used, and said, once more.
            file.store(next)?;
            next_file.remove()?;
            info!(key = %next.public(), "the node's key has changed");
            interface.next = None;
        }
        _ => {}
    }
    Ok(interface)
}
