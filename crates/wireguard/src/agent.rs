//! What a node's agent does for meshes: it keeps the interface, says the public half of its key in a
//! `WireguardNode`, has as peers what the mesh's controller wrote as `WireguardPeer`s, and probes them.
//!
//! ```text
//! WireguardPeer ──watch──► claims (pure) ──► Tunnel ──► report ──► WireguardNode's status
//!                            ▲                └──► targets ──► prober
//!                            └── who does not answer ────────────┘
//! key file ───► WireguardNode (publicKey; nextPublicKey while the key is about to change)
//! ```
//!
//! - While the store has not listed all peers, the interface keeps those that it has.
//! - A key that is older than its lifetime is replaced: the next one is made and said first, and used
//!   when it has been known for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use kernel::netns::Namespace;
use objects::kinds::{WireguardNode, WireguardNodeSpec, WireguardPeer};
use objects::{Attempt, Expected, Id, Next, Objects, Pace, Reconciler, Watched, Within, reconcile};
use stallproof::backoff::Curve;
use stallproof::snapshot::Changes;
use stallproof::{Deadline, Ledger, Snapshot, Tasks};
use tracing::{debug, info, warn};

use crate::claims::{Claims, claims};
use crate::key::{KeyFile, KeyFileError, PrivateKey, PublicKey};
use crate::names::{self, Name, Names};
use crate::path;
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
    let (status, probes, names) = (Snapshot::default(), Probes::default(), Names::default());
    tasks.spawn("wireguard names", names::run(names.clone(), tasks.stopping()));
    if config.tunnel.probes {
        match Prober::new(Arc::clone(&namespace), probes.clone()) {
            Ok(prober) => drop(tasks.spawn("wireguard probes", prober.run(tasks.stopping()))),
            Err(error) => warn!(%error, "peers are not probed"),
        }
    }
    let reconciler = TunnelReconciler {
        changes: peers.subscribe(),
        judged: probes.verdicts.subscribe(),
        found: names.found.subscribe(),
        peers,
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
    judged: Changes<Verdicts>,
    found: Changes<names::Found>,
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
            let own = interface.tunnel.public_key();
            let verdicts = self.probes.verdicts.load();
            self.names.wanted.publish(named(&objects, &verdicts.down));
            let names = self.names.found.load();
            let claims = claims(objects.iter().map(AsRef::as_ref), &names, own, &verdicts.down);
            self.tell_of_moves(&claims);
            let (mut wanted, narrow) = (claims.peers.clone(), verdicts.narrow.clone());
            if interface.tunnel.is_probed() {
                for (key, peer) in &mut wanted {
                    peer.allowed_ips.push(path::allowed(*key));
                }
            }
            self.claims = claims;
            let repairs = self.repaired.is_none_or(|last| last.elapsed() >= REPAIR);
            if repairs {
                self.repaired = Some(Instant::now());
            }
            let changed = move || {
                interface.tunnel.set_narrow(narrow);
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
        let (interface, status) = self
            .blocking(deadline, move || {
                let status = interface.tunnel.status();
                (interface, status)
            })
            .await?;
        let status = status?;
        let rotating = interface.tunnel.is_rotating() || interface.next.is_some();
        self.interface = Some(interface);
        attempt.step("report");
        let soon = self.write(&status, deadline).await;
        self.status.publish(Some(status));
        let next = rotating.then_some(ROTATING).into_iter().chain(soon).min();
        Ok(next.map_or(Next::OnChange, Next::Within))
    }

    async fn changed(&mut self) {
        tokio::select! {
            _ = self.changes.changed() => {}
            _ = self.judged.changed() => {}
            _ = self.found.changed() => {}
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

    /// Whom to probe: every peer but those whose key is not in use yet.
    fn targets(&self, tunnel: &Tunnel) -> Targets {
        let sharing = &self.claims.sharing;
        let peers = self.claims.names.keys().map(|key| (*key, sharing.contains_key(key)));
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
