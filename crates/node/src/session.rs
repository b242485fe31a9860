//! `ControllerSession`: the task that joins a controller, sends it reports, and brings back its answers.
//!
//! Contract: a report is sent until it is counted, to whichever controller there is. A controller
//! that refuses, hangs or is gone costs waiting, never longer than a minute at a time.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use objects::kinds::GroupMode;
use objects::{Id, Objects};
use pki::published::published;
use protocol::{Answer, NAMES};
use stallproof::backoff::Curve;
use stallproof::ledger::Outcome;
use stallproof::{Backoff, Deadline, Ledger, Map, Tasks};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};
use traffic::agents::JoinFacts;
use traffic::conversations::{LocalWorkload, Report, ResolvedName};
use traffic::ingest::AgentPolicy;

use crate::client::{Client, ClientError, Endpoint, Reporting};
use crate::identity::{Identity, IdentityError};
use crate::metrics::Metrics;
use crate::sensor::Rules;
use crate::{Connections, SessionEvent, Settings, conntrack_source};

const CURVE: Curve = Curve { first: Duration::from_millis(500), most: Duration::from_secs(60) };
/// For a join at all addresses together.
const JOIN: Duration = Duration::from_secs(30);
const ASK: Duration = Duration::from_secs(10);
/// A controller refuses what it cannot count in time; this is for one that hangs.
const ANSWER: Duration = Duration::from_secs(30);
/// How soon to look again for an authority that nobody has published.
const NOT_YET: Duration = Duration::from_secs(2);
/// How often a name is told that goes on resolving: a controller remembers it for longer than that.
const TELL_NAMES: Duration = Duration::from_secs(6 * 60 * 60);
/// How often to see whether the certificate is to be renewed.
const RENEW: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct ControllerSession {
    settings: Settings,
    metrics: Metrics,
    ledger: Ledger,
    tasks: Tasks,
    /// The controller that has taken this node in. Read by who follows the node's policy program.
    joined: watch::Sender<Option<Client>>,
}

/// How a pod enrols.
#[derive(Debug)]
pub struct PodIdentity {
    /// A token of its service account; the kubelet replaces it.
    pub token_file: PathBuf,
    pub authorities: Authorities,
}

/// Where it is told by which authority a controller is known.
#[derive(Debug)]
pub enum Authorities {
    File(PathBuf),
    /// A ConfigMap.
    Store(Objects, Id),
}

/// What outlives a connection.
struct SessionState {
    backoff: Backoff,
    policy: AgentPolicy,
    /// The identity was not taken: the token, where there is one, may give another.
    denied: bool,
}

/// What a controller was told over one connection.
#[derive(Default)]
struct Told {
    /// The pods of this node.
    workloads: Option<Vec<LocalWorkload>>,
    /// What names resolved to, and when that was told.
    names: HashMap<(Arc<str>, IpAddr), Instant>,
}

impl Told {
    /// What it was not told, or not for long; as much as fits into a report.
    fn new_names(
        &mut self,
        all: Map<(Arc<str>, IpAddr), Instant>,
        now: Instant,
    ) -> Vec<ResolvedName> {
        self.names.retain(|known, at| all.contains_key(known) && now - *at < TELL_NAMES);
        let new = all.into_iter().filter(|(known, _)| !self.names.contains_key(known));
        new.map(|((name, address), _)| ResolvedName { name, address }).take(NAMES).collect()
    }

    fn names<'a>(&mut self, told: impl Iterator<Item = &'a ResolvedName>, now: Instant) {
        self.names.extend(told.map(|it| ((Arc::clone(&it.name), it.address), now)));
    }
}

/// The watcher has ended: so does the agent.
fn gone() -> ClientError {
    ClientError::Over("nothing is observed any more".to_owned())
}

impl ControllerSession {
    pub(crate) fn new(settings: Settings, metrics: Metrics, ledger: Ledger, tasks: Tasks) -> Self {
        Self { settings, metrics, ledger, tasks, joined: watch::Sender::new(None) }
    }

    /// The controller that has taken this node in, from now on.
    pub(crate) fn joined(&self) -> watch::Receiver<Option<Client>> {
        self.joined.subscribe()
    }

    pub(crate) async fn run(
        self,
        mut outbox: mpsc::Receiver<Arc<Report>>,
        events: mpsc::Sender<SessionEvent>,
    ) {
        let stop = self.tasks.stopping();
        let policy = AgentPolicy {
            version: 0,
            rules: Map::new(),
            groups: Map::new(),
            mode: GroupMode::Discover,
        };
        let mut state = SessionState { backoff: Backoff::new(CURVE), policy, denied: false };
        let mut said = String::new();
        loop {
            let session = self.session(&mut state, &mut outbox, &events);
            let Some(Err(error)) = stop.bound(session).await else { return };
            self.metrics.connected.set(0);
            self.joined.send_replace(None);
            if events.send(SessionEvent::Disconnected).await.is_err() {
                return;
            }
            if matches!(error, ClientError::Outdated { .. })
                && self.settings.connections == Connections::OwnSockets
            {
                info!("an agent observes this machine now, which sees more than its sockets");
                return;
            }
            state.denied = matches!(error, ClientError::Denied(_));
            if let ClientError::Outdated { known, .. } = &error
                && events.send(SessionEvent::Outdated { known: *known }).await.is_err()
            {
                return;
            }
            let (wait, is_first) = match &error {
                // A controller that says when to come back is not one that fails.
                ClientError::ComeBack { after, .. } => (*after, false),
                _ => {
                    let failed = state.backoff.failed();
                    (failed.wait, failed.attempt == 1)
                }
            };
            let why = error.to_string();
            // Each reason is logged once in a row; the rest is in the metrics.
            if why != said || is_first {
                warn!(
                    error = why,
                    "no controller has what this node sees; it is kept, and tried again"
                );
                said = why;
            }
            if stop.bound(tokio::time::sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    /// Joins a controller and serves it until something ends the session.
    async fn session(
        &self,
        state: &mut SessionState,
        outbox: &mut mpsc::Receiver<Arc<Report>>,
        events: &mpsc::Sender<SessionEvent>,
    ) -> Result<Infallible, ClientError> {
        let identity = self.identity(state.denied).await?;
        let (answer, incarnation) = oneshot::channel();
        events.send(SessionEvent::Joining { answer }).await.map_err(|_| gone())?;
        let incarnation = incarnation.await.map_err(|_| gone())?;
        let endpoint =
            Endpoint { addresses: self.settings.controllers.clone(), identity: identity.clone() };
        let local = local_addresses().await;
        let facts = self.facts(incarnation, local.clone());
        // Boxed, as enrolling is: a handshake is large, and is over soon.
        let joining = Client::join(&endpoint, &facts, &self.tasks, Deadline::after(JOIN));
        let (client, joined) = Box::pin(joining).await?;
        let mut reporting = client.report(Deadline::after(ASK)).await?;
        let mut rules = client.rules(state.policy.version, Deadline::after(ASK)).await?;
        state.backoff.succeeded();
        self.metrics.connected.set(1);
        info!(controller = %client.address, "a controller takes what this node sees");
        self.joined.send_replace(Some(client.clone()));
        let (epoch, interval) = (joined.epoch, joined.interval);
        events.send(SessionEvent::Joined { epoch, interval }).await.map_err(|_| gone())?;
        let mut told = Told::default();
        let mut renewal = tokio::time::interval(RENEW);
        loop {
            tokio::select! {
                report = outbox.recv() => {
                    let report = report.ok_or_else(gone)?;
                    // A report of an earlier join is of no use to this one.
                    if report.incarnation != incarnation {
                        continue;
                    }
                    // A bridge, or the wire of a first pod, is told by joining again, before
                    // anything is told of it; then this report is sent again.
                    if local_addresses().await.iter().any(|address| !local.contains(address)) {
                        return Err(ClientError::Over("the node has more addresses".to_owned()));
                    }
                    let counted = self.deliver(&mut reporting, &report, &mut told).await?;
                    events.send(counted).await.map_err(|_| gone())?;
                }
                change = rules.next() => {
                    change?.apply(&mut state.policy);
                    let rules = Arc::new(Rules::new(&state.policy));
                    events.send(SessionEvent::Rules(rules)).await.map_err(|_| gone())?;
                }
                _ = renewal.tick() => {
                    let aged = identity.as_ref().filter(|it| it.is_aged(Timestamp::now()));
                    if let Some(identity) = aged {
                        client.renew(identity, Deadline::after(ASK)).await?;
                        return Err(ClientError::Over("its certificate was renewed".to_owned()));
                    }
                }
            }
        }
    }

    /// Sends a report until it is counted.
    async fn deliver(
        &self,
        reporting: &mut Reporting,
        report: &Report,
        told: &mut Told,
    ) -> Result<SessionEvent, ClientError> {
        let sequence = report.sequence;
        let pods = self.settings.pods.as_ref().filter(|_| self.settings.tell_pods);
        let workloads = pods.map(|pods| pods.workloads());
        let news = workloads.clone().filter(|_| workloads != told.workloads);
        let names = self.settings.enforcement.as_ref();
        let names = names.map(|it| told.new_names(it.resolved().all(), Instant::now()));
        let report = Report { workloads: news, names, ..report.clone() };
        let op =
            self.ledger.begin("sense-report", sequence.to_string(), self.settings.node.clone());
        loop {
            reporting.send(&report).await?;
            let answer = Deadline::after(ANSWER).bound(reporting.next()).await;
            let late = |_| ClientError::Over("a report was not answered in time".to_owned());
            match answer.map_err(late)?? {
                Answer::Counted { durable, interval, .. } => {
                    op.finish(Outcome::Done);
                    self.metrics.counted.inc();
                    told.workloads = workloads;
                    told.names(report.names.iter().flatten(), Instant::now());
                    return Ok(SessionEvent::Counted { sequence, durable, interval });
                }
                Answer::ComeBack { after } => {
                    self.metrics.refused.inc();
                    tokio::time::sleep(after).await;
                }
            }
        }
    }

    /// Who this node is: what it was certified as, or is with its token now; none for a controller on
    /// loopback.
    async fn identity(&self, denied: bool) -> Result<Option<Identity>, ClientError> {
        let unusable = |error: IdentityError| match error {
            IdentityError::Controller(error) => error,
            other => ClientError::Denied(stallproof::sentence(&other)),
        };
        let known = match Identity::open(&self.identity_dir()) {
            // Another is to be had.
            Err(IdentityError::Unreadable { .. }) if self.settings.pod.is_some() => None,
            opened => opened.map_err(unusable)?,
        };
        let usable = known.as_ref().is_some_and(|it| !denied && !it.has_expired(Timestamp::now()));
        if let Some(pod) = self.settings.pod.as_ref().filter(|_| !usable) {
            let identity = Box::pin(self.enrol_pod(pod)).await?.map_err(unusable)?;
            info!(node = self.settings.node, until = %identity.until(), "this node is enrolled");
            return Ok(Some(identity));
        }
        let Some(file) = self.settings.token_file.as_ref().filter(|_| !usable) else {
            return Ok(known);
        };
        let token = match std::fs::read_to_string(file) {
            Ok(token) => token,
            // It was for the first time, and may be gone.
            Err(_) if known.is_some() => return Ok(known),
            Err(error) => {
                let file = file.display();
                return Err(ClientError::Denied(format!("the token in {file}: {error}")));
            }
        };
        let Settings { controllers, node, .. } = &self.settings;
        let (dir, deadline) = (self.identity_dir(), Deadline::after(JOIN));
        let enrolled =
            Identity::enrol(controllers, token.trim(), node, &dir, &self.tasks, deadline);
        let identity = Box::pin(enrolled).await.map_err(unusable)?;
        info!(node, until = %identity.until(), "this node is enrolled");
        Ok(Some(identity))
    }

    async fn enrol_pod(
        &self,
        pod: &PodIdentity,
    ) -> Result<Result<Identity, IdentityError>, ClientError> {
        let authorities = pod.authorities.read().await?;
        let file = pod.token_file.display();
        let token = std::fs::read_to_string(&pod.token_file)
            .map_err(|error| ClientError::Denied(format!("the token in {file}: {error}")))?;
        let Settings { controllers, node, .. } = &self.settings;
        let (token, dir, deadline) = (token.trim(), self.identity_dir(), Deadline::after(JOIN));
        Ok(Identity::enrol_pod(controllers, token, &authorities, node, &dir, &self.tasks, deadline)
            .await)
    }

    fn identity_dir(&self) -> PathBuf {
        self.settings.dir.join("agent")
    }

    fn facts(&self, incarnation: u64, local_addresses: Vec<IpAddr>) -> JoinFacts {
        let addresses = match self.settings.configured_addresses.as_slice() {
            [] => (self.settings.addresses)(),
            given => given.to_vec(),
        };
        let machine = rustix::system::sysinfo();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        JoinFacts {
            node: self.settings.node.clone(),
            incarnation,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            memory: machine.totalram.saturating_mul(machine.mem_unit.into()),
            addresses,
            local_addresses,
        }
    }
}

/// The addresses of all interfaces of this node; none where they cannot be read.
async fn local_addresses() -> Vec<IpAddr> {
    // A node may have hundreds of interfaces.
    match tokio::task::spawn_blocking(conntrack_source::local).await {
        Ok(Ok(local)) => local,
        Ok(Err(error)) => {
            warn!(%error, "the addresses of the node's interfaces cannot be read");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

impl Authorities {
    /// PEM. It is there once a controller leads.
    async fn read(&self) -> Result<String, ClientError> {
        let (found, place) = match self {
            Self::File(file) => match std::fs::read_to_string(file) {
                Ok(text) => (Some(text), file.display().to_string()),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    (None, file.display().to_string())
                }
                Err(error) => {
                    let file = file.display();
                    return Err(ClientError::Denied(format!("the authority in {file}: {error}")));
                }
            },
            Self::Store(objects, id) => {
                let found = objects.get::<ConfigMap>(id, Deadline::after(ASK)).await;
                let found = found
                    .map_err(|error| ClientError::Unreachable(stallproof::sentence(&error)))?;
                let text = found.as_ref().and_then(published).map(str::to_owned);
                (text, format!("the ConfigMap {id}"))
            }
        };
        found.filter(|text| !text.is_empty()).ok_or_else(|| {
            let why = format!("the agents' authority is not in {place} yet: no controller leads");
            ClientError::ComeBack { after: NOT_YET, why }
        })
    }
}

#[cfg(test)]
mod tests;
