//! What a node's agent does for meshes: it keeps the interface, says the public half of its key in a
//! `WireguardNode`, and has as peers what the mesh's controller wrote as `WireguardPeer`s.
//!
//! ```text
//! WireguardPeer ──watch──► wanted (pure) ──► Tunnel ──► status
//! key file ───► WireguardNode (publicKey; nextPublicKey while the key is about to change)
//! ```
//!
//! - While the store has not listed all peers, the interface keeps those that it has.
//! - A key that is older than its lifetime is replaced: the next one is made and said first, and used
//!   when it has been known for a while.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ipnet::IpNet;
use kernel::netns::Namespace;
use kube::ResourceExt;
use objects::kinds::{WireguardEndpoint, WireguardNode, WireguardNodeSpec, WireguardPeer};
use objects::{Attempt, Expected, Id, Next, Objects, Pace, Reconciler, Watched, Within, reconcile};
use stallproof::backoff::Curve;
use stallproof::snapshot::Changes;
use stallproof::{Deadline, Ledger, Snapshot, Tasks};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::key::{KeyFile, KeyFileError, PrivateKey, PublicKey};
use crate::peer::{Peer, Peers};
use crate::tunnel::{Tunnel, TunnelConfig, TunnelError, TunnelStatus};

const PACE: Pace = Pace {
    attempt: Duration::from_secs(60),
    resync: Duration::from_secs(30),
    settle: Duration::from_millis(50),
    retry: Curve { first: Duration::from_millis(500), most: Duration::from_secs(30) },
};
/// How soon it is looked again whether a peer's next key has connected.
const ROTATING: Duration = Duration::from_millis(500);
/// How often routes are read.
const REPAIR: Duration = Duration::from_secs(20);
const LOOKUP: Duration = Duration::from_secs(3);
/// How many names are looked up at once; the others have their turn afterwards.
const LOOKUPS: usize = 16;

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
}

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error(transparent)]
    Tunnel(#[from] TunnelError),
    #[error("the node's WireguardNode cannot be written")]
    Store(#[from] objects::Error),
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
    let peers: Snapshot<Watched<Id, Arc<WireguardPeer>>> =
        objects.watched(Within::default(), tasks);
    let status = Snapshot::default();
    let reconciler = TunnelReconciler {
        changes: peers.subscribe(),
        peers,
        objects,
        namespace,
        status: status.clone(),
        tasks: tasks.clone(),
        interface: None,
        said: None,
        repaired: None,
        names: HashMap::new(),
        config,
    };
    let key = reconciler.config.tunnel.name.clone();
    let work = reconcile("wireguard", key, PACE, reconciler, ledger.clone(), tasks.stopping());
    tasks.spawn("wireguard", work);
    status
}

struct TunnelReconciler {
    config: AgentConfig,
    namespace: Arc<Namespace>,
    objects: Objects,
    peers: Snapshot<Watched<Id, Arc<WireguardPeer>>>,
    changes: Changes<Watched<Id, Arc<WireguardPeer>>>,
    status: Snapshot<Option<TunnelStatus>>,
    tasks: Tasks,
    /// Taken while a thread works with it.
    interface: Option<Interface>,
    /// What the store was last told.
    said: Option<WireguardNodeSpec>,
    /// When routes were last read.
    repaired: Option<Instant>,
    /// Where names led when they were last looked up.
    names: HashMap<(String, u16), SocketAddr>,
}

/// The interface and its keys.
struct Interface {
    tunnel: Tunnel,
    next: Option<PrivateKey>,
}

impl Reconciler for TunnelReconciler {
    type Error = AgentError;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, AgentError> {
        attempt.step("open");
        let deadline = attempt.deadline;
        let (config, namespace) = (self.config.clone(), Arc::clone(&self.namespace));
        let interface = self.interface.take();
        let mut interface =
            self.blocking(deadline, move || keep(&config, &namespace, interface)).await??;
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
        let peers = self.peers.load();
        if peers.synced {
            attempt.step("peers");
            let objects: Vec<_> = peers.values().cloned().collect();
            drop(peers);
            self.look_up(&objects).await;
            let own = interface.tunnel.public_key();
            let wanted = wanted(objects.iter().map(AsRef::as_ref), &self.names, own);
            let repairs = self.repaired.is_none_or(|last| last.elapsed() >= REPAIR);
            if repairs {
                self.repaired = Some(Instant::now());
            }
            let changed = move || {
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
        }
        attempt.step("status");
        let (interface, status) = self
            .blocking(deadline, move || {
                let status = interface.tunnel.status();
                (interface, status)
            })
            .await?;
        let status = status?;
        let rotating = interface.tunnel.is_rotating() || interface.next.is_some();
        self.interface = Some(interface);
        self.status.publish(Some(status));
        Ok(if rotating { Next::Within(ROTATING) } else { Next::OnChange })
    }

    async fn changed(&mut self) {
        self.changes.changed().await;
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

    fn spec(&self, interface: &Interface) -> WireguardNodeSpec {
        WireguardNodeSpec {
            node: self.config.node.clone(),
            public_key: interface.tunnel.public_key().to_string(),
            next_public_key: interface.next.as_ref().map(|key| key.public().to_string()),
            port: self.config.tunnel.port,
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

    /// Looks up the names of endpoints that are not known yet, a few at a time.
    async fn look_up(&mut self, peers: &[Arc<WireguardPeer>]) {
        let endpoints = peers.iter().filter_map(|peer| peer.spec.endpoint.as_ref());
        let names = endpoints.filter_map(|endpoint| {
            let name =
                endpoint.dns_or_ip.dns.clone().filter(|_| endpoint.dns_or_ip.ip.is_none())?;
            Some((name, endpoint.port))
        });
        let unknown = names.filter(|name| !self.names.contains_key(name)).take(LOOKUPS);
        let mut lookups = JoinSet::new();
        for name in unknown {
            lookups.spawn(async move {
                let looking = tokio::net::lookup_host((name.0.as_str(), name.1));
                let found = Deadline::after(LOOKUP).bound(looking).await;
                let found = found.ok().and_then(Result::ok).and_then(|mut all| all.next());
                (name, found)
            });
        }
        while let Some(Ok((name, found))) = lookups.join_next().await {
            match found {
                Some(address) => drop(self.names.insert(name, address)),
                None => warn!(name = name.0, "the name of a peer's endpoint leads nowhere yet"),
            }
        }
    }
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

/// The peers that objects stand for. A key that two of them name is the first's, by name; so is a network.
/// A next key is of use only if it is nobody's key.
pub(crate) fn wanted<'p>(
    objects: impl IntoIterator<Item = &'p WireguardPeer>,
    names: &HashMap<(String, u16), SocketAddr>,
    own: PublicKey,
) -> Peers {
    let sorted: BTreeMap<String, &WireguardPeer> =
        objects.into_iter().map(|object| (object.name_any(), object)).collect();
    let mut peers = Peers::new();
    let mut taken: BTreeMap<IpNet, ()> = BTreeMap::new();
    let mut successors = Vec::new();
    for object in sorted.into_values() {
        let spec = &object.spec;
        let Ok(key) = spec.public_key.parse::<PublicKey>() else { continue };
        if key == own || peers.contains_key(&key) {
            continue;
        }
        let networks = spec.allowed_ips.iter().filter_map(|it| it.parse::<IpNet>().ok());
        let allowed_ips: Vec<IpNet> = networks
            .map(|network| network.trunc())
            .filter(|network| taken.insert(*network, ()).is_none())
            .collect();
        let endpoint = spec.endpoint.as_ref().and_then(|endpoint| address(endpoint, names));
        let keepalive = Some(spec.persistent_keepalive).filter(|seconds| *seconds > 0);
        let peer = Peer { allowed_ips, endpoint, keepalive, ..Peer::default() };
        if let Some(Ok(next)) = spec.next_public_key.as_ref().map(|next| next.parse()) {
            let successor =
                Peer { allowed_ips: Vec::new(), successor_of: Some(key), ..peer.clone() };
            successors.push((next, successor));
        }
        peers.insert(key, peer);
    }
    for (next, successor) in successors {
        if next != own {
            peers.entry(next).or_insert(successor);
        }
    }
    peers
}

fn address(
    endpoint: &WireguardEndpoint,
    names: &HashMap<(String, u16), SocketAddr>,
) -> Option<SocketAddr> {
    match (&endpoint.dns_or_ip.ip, &endpoint.dns_or_ip.dns) {
        (Some(ip), _) => Some(SocketAddr::new(ip.parse::<IpAddr>().ok()?, endpoint.port)),
        (None, Some(name)) => names.get(&(name.clone(), endpoint.port)).copied(),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests;
