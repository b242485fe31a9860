//! The task that has a controller: joins one, sends it reports, and brings back what it says.
//!
//! Contract: a report is sent until it is counted, to whichever controller there is. A controller
//! that refuses, hangs or is gone costs waiting, never longer than a minute at a time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use edge::agents::client::{Answer, Client, ClientError, Endpoint, Reporting};
use edge::agents::{Batch, Identity, IdentityError};
use guard::agents::{Dropped, JoinFacts};
use guard::conversations::Moment;
use guard::ingest::{LocalWorkload, Shipped};
use guard::published::published;
use guard::sensor::Rules;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use objects::kinds::GroupMode;
use objects::{Id, Objects};
use stallproof::backoff::Curve;
use stallproof::ledger::Outcome;
use stallproof::{Backoff, Deadline, Ledger, Map, Tasks};
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use super::Word;
use super::metrics::Metrics;
use super::place;
use super::watcher::Outgoing;

const CURVE: Curve = Curve { first: Duration::from_millis(500), most: Duration::from_secs(60) };
/// For all addresses together.
const JOIN: Duration = Duration::from_secs(30);
const ASK: Duration = Duration::from_secs(10);
/// A controller refuses what it cannot count in time; this is for one that hangs.
const ANSWER: Duration = Duration::from_secs(30);
/// How soon to look again for an authority that nobody has published.
const NOT_YET: Duration = Duration::from_secs(2);
/// How often to see whether the certificate is to be renewed.
const RENEW: Duration = Duration::from_secs(60);
/// More pods than a node has; a batch can hold these.
const WORKLOADS: usize = 4096;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) node: String,
    /// Empty: those that this node would send from.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) controllers: Vec<String>,
    pub(super) token_file: Option<PathBuf>,
    /// With what a pod enrols, in place of a token that was made for it.
    pub(super) pod: Option<PodIdentity>,
    /// Of the identity.
    pub(super) dir: PathBuf,
    /// Where no Kubernetes knows them.
    pub(super) pods: Option<net::Addresses>,
    pub(super) metrics: Metrics,
    pub(super) ledger: Ledger,
    pub(super) tasks: Tasks,
}

/// How a pod enrols.
#[derive(Debug)]
pub(super) struct PodIdentity {
    /// A token of its service account; the kubelet replaces it.
    pub(super) token_file: PathBuf,
    pub(super) authorities: Authorities,
}

/// Where it is told by which authority a controller is known.
#[derive(Debug)]
pub(super) enum Authorities {
    File(PathBuf),
    /// A ConfigMap.
    Store(Objects, Id),
}

/// What outlives a connection.
struct Kept {
    backoff: Backoff,
    shipped: Shipped,
    /// The identity was not taken: the token, where there is one, may give another.
    denied: bool,
}

/// The watcher has ended: so does the agent.
fn gone() -> ClientError {
    ClientError::Over("nothing is observed any more".to_owned())
}

impl Link {
    pub(super) async fn run(self, mut outbox: mpsc::Receiver<Outgoing>, words: mpsc::Sender<Word>) {
        let stop = self.tasks.stopping();
        let shipped = Shipped {
            version: 0,
            rules: Map::new(),
            groups: Map::new(),
            mode: GroupMode::Discover,
        };
        let mut kept = Kept { backoff: Backoff::new(CURVE), shipped, denied: false };
        let mut said = String::new();
        loop {
            let session = self.session(&mut kept, &mut outbox, &words);
            let Some(Err(error)) = stop.bound(session).await else { return };
            self.metrics.connected.set(0);
            if words.send(Word::Parted).await.is_err() {
                return;
            }
            kept.denied = matches!(error, ClientError::Denied(_));
            if let ClientError::Outdated { known, .. } = &error
                && words.send(Word::Outdated { known: *known }).await.is_err()
            {
                return;
            }
            let (wait, is_first) = match &error {
                // Who says when is not one that fails.
                ClientError::ComeBack { after, .. } => (*after, false),
                _ => {
                    let failed = kept.backoff.failed();
                    (failed.wait, failed.attempt == 1)
                }
            };
            let why = error.to_string();
            // Once for each reason in a row; the rest is in the metrics.
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

    /// One joining, until something ends it.
    async fn session(
        &self,
        kept: &mut Kept,
        outbox: &mut mpsc::Receiver<Outgoing>,
        words: &mpsc::Sender<Word>,
    ) -> Result<Infallible, ClientError> {
        let identity = self.identity(kept.denied).await?;
        let (answer, incarnation) = oneshot::channel();
        words.send(Word::Joining { answer }).await.map_err(|_| gone())?;
        let incarnation = incarnation.await.map_err(|_| gone())?;
        let endpoint = Endpoint { addresses: self.controllers.clone(), identity: identity.clone() };
        let local = local_addresses().await;
        let facts = self.facts(incarnation, local.clone());
        // Boxed, as enrolling is: a handshake is large, and is over soon.
        let joining = Client::join(&endpoint, &facts, &self.tasks, Deadline::after(JOIN));
        let (client, joined) = Box::pin(joining).await?;
        let mut reporting = client.report(Deadline::after(ASK)).await?;
        let mut rules = client.rules(kept.shipped.version, Deadline::after(ASK)).await?;
        kept.backoff.succeeded();
        self.metrics.connected.set(1);
        info!(controller = %client.address, "a controller takes what this node sees");
        let (epoch, interval) = (joined.epoch, joined.interval);
        words.send(Word::Joined { epoch, interval }).await.map_err(|_| gone())?;
        // None is none that this controller knows of.
        let mut told = None;
        let mut renewal = tokio::time::interval(RENEW);
        loop {
            tokio::select! {
                outgoing = outbox.recv() => {
                    let outgoing = outgoing.ok_or_else(gone)?;
                    // Of a joining before.
                    if outgoing.report.incarnation != incarnation {
                        continue;
                    }
                    // A bridge, or the wire of a first pod, is told by joining again, before
                    // anything is told of it; then this report is sent again.
                    if local_addresses().await.iter().any(|address| !local.contains(address)) {
                        return Err(ClientError::Over("the node has more addresses".to_owned()));
                    }
                    let word = self.deliver(&mut reporting, &outgoing, &mut told).await?;
                    words.send(word).await.map_err(|_| gone())?;
                }
                change = rules.next() => {
                    change?.apply(&mut kept.shipped);
                    let rules = Arc::new(Rules::new(&kept.shipped));
                    words.send(Word::Rules(rules)).await.map_err(|_| gone())?;
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
        outgoing: &Outgoing,
        told: &mut Option<Vec<LocalWorkload>>,
    ) -> Result<Word, ClientError> {
        let Outgoing { report, dropped, overruns } = outgoing;
        let sequence = report.sequence;
        let workloads = self.pods.as_ref().map(workloads);
        let batch = Batch {
            incarnation: report.incarnation,
            sequence,
            records: report.records.clone(),
            dropped: Dropped {
                totals: dropped.times,
                violations: dropped.alarming,
                overruns: *overruns,
            },
            workloads: workloads.clone().filter(|_| workloads != *told),
        };
        let op = self.ledger.begin("sense-report", sequence.to_string(), self.node.clone());
        loop {
            reporting.send(&batch).await?;
            let answer = Deadline::after(ANSWER).bound(reporting.next()).await;
            let late = |_| ClientError::Over("a report was not answered in time".to_owned());
            match answer.map_err(late)?? {
                Answer::Counted { durable, interval, .. } => {
                    op.finish(Outcome::Done);
                    self.metrics.counted.inc();
                    *told = workloads;
                    return Ok(Word::Counted { sequence, durable, interval });
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
        let known = match Identity::open(&self.dir) {
            // Another is to be had.
            Err(IdentityError::Unreadable { .. }) if self.pod.is_some() => None,
            opened => opened.map_err(unusable)?,
        };
        let usable = known.as_ref().is_some_and(|it| !denied && !it.has_expired(Timestamp::now()));
        if let Some(pod) = self.pod.as_ref().filter(|_| !usable) {
            let identity = Box::pin(self.enrol_pod(pod)).await?.map_err(unusable)?;
            info!(node = self.node, until = %identity.until(), "this node is enrolled");
            return Ok(Some(identity));
        }
        let Some(file) = self.token_file.as_ref().filter(|_| !usable) else { return Ok(known) };
        let token = match std::fs::read_to_string(file) {
            Ok(token) => token,
            // It was for the first time, and may be gone.
            Err(_) if known.is_some() => return Ok(known),
            Err(error) => {
                let file = file.display();
                return Err(ClientError::Denied(format!("the token in {file}: {error}")));
            }
        };
        let Self { controllers, node, dir, tasks, .. } = self;
        let enrolled =
            Identity::enrol(controllers, token.trim(), node, dir, tasks, Deadline::after(JOIN));
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
        let Self { controllers, node, dir, tasks, .. } = self;
        let (token, deadline) = (token.trim(), Deadline::after(JOIN));
        Ok(Identity::enrol_pod(controllers, token, &authorities, node, dir, tasks, deadline).await)
    }

    fn facts(&self, incarnation: u64, local_addresses: Vec<IpAddr>) -> JoinFacts {
        let addresses = match self.addresses.as_slice() {
            [] => net::daemon::sent_from(),
            given => given.to_vec(),
        };
        let machine = rustix::system::sysinfo();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        JoinFacts {
            node: self.node.clone(),
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
    match tokio::task::spawn_blocking(place::local).await {
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

/// The pods of this node, in an order that does not depend on how they came.
fn workloads(pods: &net::Addresses) -> Vec<LocalWorkload> {
    let mut found: BTreeMap<(&str, &str), LocalWorkload> = BTreeMap::new();
    let index = pods.view();
    for attachment in index.attachments() {
        let Some(pod) = &attachment.pod else { continue };
        let since = u64::try_from(attachment.since.as_millisecond()).unwrap_or(0);
        let workload = found.entry((&pod.namespace, &pod.name)).or_insert_with(|| LocalWorkload {
            namespace: pod.namespace.as_str().into(),
            name: pod.name.as_str().into(),
            addresses: Vec::new(),
            from: Moment(since),
        });
        let ipv4 = attachment.ipv4.map(IpAddr::from);
        workload.addresses.extend(ipv4.into_iter().chain(attachment.ipv6.map(IpAddr::from)));
        workload.addresses.sort();
        workload.from = workload.from.min(Moment(since));
    }
    found.into_values().take(WORKLOADS).collect()
}

#[cfg(test)]
mod tests;
