//! `Attach`: what a runtime asks, done: an address from the journal, then the kernel.
//!
//! ```text
//! ADD ─► turn of its key ─► assign (durable) ─► connect, on a thread ─► answer
//!                                  │                 │ failed: it unwound itself
//!                                  └──── release ◄───┘
//! ```
//!
//! Contract:
//! - Requests about one attachment are served one at a time, in order; about others in parallel. Each
//!   is on the ledger with its container, its pod and its step.
//! - Nothing is asked of anybody but the journal and the kernel on the way: what a pod's namespace
//!   wants comes from [`Facts`].
//! - A request is answered at its deadline, or when one kernel step has taken [`Limits::step`],
//!   whatever the kernel does. Work that hangs is abandoned, not forgotten: it keeps its thread, its
//!   address and its key; requests about it are refused at once with the step it hangs in; when it
//!   comes back it undoes what it did and gives its address back.
//! - ADD twice gives the same answer twice. An ADD of a container whose record is of another
//!   namespace replaces that record: the runtime says where the container now is. DEL of what is not
//!   there is a success that costs a lookup. CHECK compares; it changes nothing.
//! - An address whose wiring could not be undone is not given to anybody else: its record stays until
//!   a DEL or reconciling has cleared it.
//! - Nothing but STATUS is served before the first reconcile is over; until then requests wait a
//!   little, and are then asked to come back.

mod kernel;
pub(crate) mod steps;
mod work;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cni::spec::{Code, Error, Success};
use cni::wire::{self, Ask, Name, Reply, Request};
use futures::StreamExt;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use stallproof::lanes::{Bounds, LanesConfig, Stage};
use stallproof::ledger::Outcome;
use stallproof::{Deadline, Lanes, Ledger, Op, Refused, Snapshot, Tasks, Work};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::addresses::{AssignError, Assigned, ReleaseError, Wanted};
use crate::facts::Facts;
use crate::metrics::Metrics;
use crate::wiring::host_interface;
use crate::{Addresses, Attachment, Key, Pod, pool};
use work::hangs;

pub use kernel::{Failed, Kernel};
pub use steps::Steps;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest that any request may take, whatever its caller would wait.
    pub request: Duration,
    /// The longest that one step in the kernel may take.
    pub step: Duration,
    /// How long a request waits for the first reconcile.
    pub reconcile: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(120),
            // Steps take milliseconds. Seconds are a busy node; this is none of those.
            step: Duration::from_secs(20),
            reconcile: Duration::from_secs(5),
        }
    }
}

/// How the node's network is, as STATUS tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The first reconcile is not over: what is being done.
    Reconciling(String),
    Well,
    /// Pods that are there may not be reached: why.
    Limited(String),
}

/// Serves requests; clones are the same.
pub struct Attach<K>(Arc<Inner<K>>);

struct Inner<K> {
    kernel: Arc<K>,
    addresses: Addresses,
    facts: Facts,
    limits: Limits,
    lanes: Lanes<Key>,
    ledger: Ledger,
    /// A tree of its own: kernel calls that hang take no thread from anything else.
    threads: Tasks,
    /// The kernel work there is, by key. Written where a thread begins and ends; a key that has its
    /// turn and finds itself here was abandoned by the turn before.
    working: Mutex<HashMap<Key, Arc<Steps>>>,
    health: Snapshot<Health>,
    metrics: Metrics,
}

/// How many requests run at once. Most of one is a wait for the kernel's lock or for a grace period,
/// which many can share; the rest of the threads is for work that hangs.
const WORKERS: usize = 48;
/// Requests that wait: a node's 500 pods, several times over.
const QUEUE: usize = 4096;
/// Work answers for itself at its deadline; its lane's is later by this, so that no answer is dropped
/// on its way, and sooner than the plugin's.
const ON_THE_WAY: Duration = Duration::from_millis(200);
/// How long giving an address back may take after its request is over.
const AFTERWARDS: Duration = Duration::from_secs(30);
/// How many attachments one GC takes down at once: it leaves room for ADDs of other networks.
const COLLECTED_AT_ONCE: usize = 16;

impl<K: Kernel> Attach<K> {
    pub fn new(
        kernel: K,
        addresses: Addresses,
        facts: Facts,
        ledger: Ledger,
        limits: Limits,
    ) -> Self {
        let bounds = Bounds {
            workers: WORKERS,
            // A namespace that floods leaves a quarter to the others.
            per_tenant: WORKERS * 3 / 4,
            queue: QUEUE,
            queue_per_tenant: QUEUE / 2,
            // A runtime serves a container one call at a time; more are retries of the same.
            queue_per_key: 8,
            max_cost: 1,
        };
        Self(Arc::new(Inner {
            kernel: Arc::new(kernel),
            addresses,
            facts,
            limits,
            lanes: Lanes::new(LanesConfig { name: "cni".into(), bounds }),
            ledger,
            threads: Tasks::new("cni-kernel"),
            working: Mutex::default(),
            health: Snapshot::new(Health::Reconciling("it has just started".to_owned())),
            metrics: Metrics::default(),
        }))
    }

    pub fn register(&self, registry: &mut Registry) {
        self.0.lanes.register(registry);
        self.0.metrics.register(registry);
    }

    /// Whoever reconciles says here how things are.
    pub fn health(&self) -> Snapshot<Health> {
        self.0.health.clone()
    }

    /// Runs `job` while no request about `key` is served: for reconciling. `None` if the kernel
    /// still works on it, or it is not its turn by `deadline`.
    pub async fn alone<T>(
        &self,
        key: &Key,
        deadline: Deadline,
        job: impl Future<Output = T>,
    ) -> Option<T> {
        let job = async {
            let busy = self.0.working.lock().contains_key(key);
            if busy { None } else { Some(job.await) }
        };
        self.0.lanes.run(Work::new(key.clone(), "reconcile", deadline), job).await.ok().flatten()
    }

    /// Whether kernel work on `key` is under way or hangs.
    pub fn is_busy(&self, key: &Key) -> bool {
        self.0.working.lock().contains_key(key)
    }

    /// Serves one request of a runtime. `Show` is not for us.
    pub async fn serve(&self, request: Request, descriptor: Option<OwnedFd>) -> Reply {
        let began = Instant::now();
        let deadline = Deadline::after(request.wait().min(self.0.limits.request));
        let (command, served) = match request.ask {
            Ask::Add { name, network, netns, pod, pool } => {
                let asked = Asked { key: key(name), network, netns, pod: pod.map(pod_of), pool };
                let flight = self.0.metrics.began("add");
                let served = self.add(asked, descriptor, deadline).await;
                drop(flight);
                ("add", served.map(Reply::Added))
            }
            Ask::Delete { name, .. } => {
                let flight = self.0.metrics.began("del");
                let served = self.delete(key(name), deadline).await;
                drop(flight);
                ("del", served.map(|()| Reply::Done))
            }
            Ask::Check { name, addresses, .. } => {
                let flight = self.0.metrics.began("check");
                let served = self.check(key(name), addresses, descriptor, deadline).await;
                drop(flight);
                ("check", served.map(|()| Reply::Done))
            }
            Ask::Collect { network, valid } => {
                let flight = self.0.metrics.began("gc");
                let served = self.collect(&network, valid, deadline).await;
                drop(flight);
                ("gc", served.map(|()| Reply::Done))
            }
            Ask::Status => ("status", self.status().map(|()| Reply::Done)),
            Ask::Show(_) => {
                return Reply::Failed(Error::new(Code::Io, "not a request of a runtime"));
            }
        };
        self.0.metrics.ended(command, served.as_ref().err(), began.elapsed());
        served.unwrap_or_else(Reply::Failed)
    }

    async fn add(
        &self,
        asked: Asked,
        descriptor: Option<OwnedFd>,
        deadline: Deadline,
    ) -> Result<Success, Error> {
        let key = asked.key.clone();
        let tenant = asked.pod.as_ref().map_or("", |pod| pod.namespace.as_str()).to_owned();
        let op = self.begin("cni_add", &key, asked.pod.as_ref(), &tenant);
        let job = async {
            let namespace = self.namespace(descriptor)?;
            let wanted = self.wanted(&asked, &namespace, deadline).await?;
            op.step("assign");
            let assigned = self.assign(wanted, &op, deadline).await?;
            let (attachment, is_new) = match assigned {
                Assigned::New(attachment) => (attachment, true),
                Assigned::Again(attachment) => (attachment, false),
            };
            let connected = self.connect(attachment, is_new, namespace, &op, deadline).await?;
            info!(container = %key.container, pod = asked.pod_name(), "attached");
            Ok(connected)
        };
        let result = self.turn(&key, &tenant, &op, deadline, job).await;
        finish(op, &result);
        result
    }

    async fn delete(&self, key: Key, deadline: Deadline) -> Result<(), Error> {
        let record = self.0.addresses.view().attachment(&key).cloned();
        let pod = record.as_ref().and_then(|record| record.pod.as_ref());
        let tenant = pod.map_or("", |pod| pod.namespace.as_str());
        let op = self.begin("cni_del", &key, pod, tenant);
        let job = async {
            // Read in its turn: an ADD before it may have made the record.
            let record = self.0.addresses.view().attachment(&key).cloned();
            let Some(record) = record else { return Ok(()) };
            self.disconnect(&record, &op, deadline).await?;
            info!(container = %key.container, "detached");
            Ok(())
        };
        let result = self.turn(&key, tenant, &op, deadline, job).await;
        finish(op, &result);
        result
    }

    async fn check(
        &self,
        key: Key,
        addresses: Vec<IpAddr>,
        descriptor: Option<OwnedFd>,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let op = self.begin("cni_check", &key, None, "");
        let job = async {
            let record = self.0.addresses.view().attachment(&key).cloned().ok_or_else(|| {
                let msg = format!("no attachment {} of container {}", key.ifname, key.container);
                Error::new(Code::UnknownContainer, msg)
                    .details("it was never added here, or was deleted; restart the container")
            })?;
            let namespace = self.namespace(descriptor)?;
            let mut differs = Vec::new();
            let recorded = [record.ipv4.map(IpAddr::V4), record.ipv6.map(IpAddr::V6)];
            for address in recorded.into_iter().flatten() {
                if !addresses.contains(&address) {
                    differs.push(format!("prevResult does not name {address}, which it has"));
                }
            }
            if self.0.kernel.id(&namespace) != record.namespace {
                differs.push("the container is in another network namespace".to_owned());
            } else {
                let verify =
                    move |kernel: &K, steps: &Steps| Ok(kernel.verify(&record, &namespace, steps));
                let undo = |_: &K, _: &Steps| ();
                let found = self.work("check", &key, &op, deadline, verify, undo).await?;
                differs.extend(found.unwrap_or_default());
            }
            if differs.is_empty() {
                return Ok(());
            }
            let msg = format!("the network of container {} is not as it was made", key.container);
            Err(Error::new(Code::Differs, msg).details(differs.join("; ")))
        };
        let result = self.turn(&key, "", &op, deadline, job).await;
        finish(op, &result);
        result
    }

    /// The runtime holds ADD and DEL back meanwhile, so all there is was there when it made its list.
    async fn collect(
        &self,
        network: &str,
        valid: Vec<Name>,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let valid: std::collections::HashSet<Key> = valid.into_iter().map(key).collect();
        let view = self.0.addresses.view();
        let stale: Vec<Key> = view
            .attachments()
            .filter(|a| a.network == network && !valid.contains(&a.key))
            .map(|a| a.key.clone())
            .collect();
        let delete = |key: Key| async move {
            let gone = self.delete(key.clone(), deadline).await;
            gone.err().map(|error| format!("{key}: {error}"))
        };
        let left: Vec<String> = futures::stream::iter(stale)
            .map(delete)
            .buffer_unordered(COLLECTED_AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await;
        if left.is_empty() {
            return Ok(());
        }
        let msg = format!("{} stale attachments could not be removed", left.len());
        Err(Error::new(Code::Wiring, msg).details(left.join("; ")))
    }

    fn status(&self) -> Result<(), Error> {
        match &*self.0.health.load() {
            Health::Well => Ok(()),
            Health::Reconciling(doing) => {
                Err(Error::new(Code::NotAvailable, format!("reconciling: {doing}"))
                    .details("it serves as soon as that is over; see /readyz of the agent"))
            }
            Health::Limited(why) => Err(Error::new(Code::LimitedConnectivity, why)
                .details("`fairlead net check` on this node says what is wrong")),
        }
    }

    async fn wanted(
        &self,
        asked: &Asked,
        namespace: &K::Namespace,
        deadline: Deadline,
    ) -> Result<Wanted, Error> {
        let pool = match (&asked.pool, &asked.pod) {
            (Some(pool), _) => pool.clone(),
            (None, Some(pod)) => {
                let pool = self.0.facts.pool_of(&pod.namespace, deadline).await;
                pool.map_err(|unknown| Error::new(Code::TryAgainLater, unknown.to_string()))?
            }
            (None, None) => pool::DEFAULT.to_owned(),
        };
        Ok(Wanted {
            key: asked.key.clone(),
            network: asked.network.clone(),
            pod: asked.pod.clone(),
            pool,
            namespace: self.0.kernel.id(namespace),
            netns: asked.netns.clone(),
            host_interface: host_interface(&asked.key),
        })
    }

    async fn assign(
        &self,
        wanted: Wanted,
        op: &Arc<Op>,
        deadline: Deadline,
    ) -> Result<Assigned, Error> {
        let assigned = self
            .0
            .addresses
            .assign(wanted.clone(), deadline)
            .await
            .map_err(|error| refusal(&error))?;
        match assigned {
            Assigned::Again(old) if old.namespace != wanted.namespace => {
                warn!(container = %old.key.container, "added again in another namespace");
                self.disconnect(&old, op, deadline).await?;
                op.step("assign");
                self.0.addresses.assign(wanted, deadline).await.map_err(|error| refusal(&error))
            }
            assigned => Ok(assigned),
        }
    }

    async fn connect(
        &self,
        attachment: Arc<Attachment>,
        is_new: bool,
        namespace: K::Namespace,
        op: &Arc<Op>,
        deadline: Deadline,
    ) -> Result<Success, Error> {
        let key = attachment.key.clone();
        let connect = {
            let attachment = Arc::clone(&attachment);
            move |kernel: &K, steps: &Steps| kernel.connect(&attachment, &namespace, steps)
        };
        let undo = {
            let inner = Arc::clone(&self.0);
            let runtime = tokio::runtime::Handle::current();
            move |kernel: &K, steps: &Steps| {
                // Another namespace's wiring, or an earlier success, is not ours to undo.
                if !is_new {
                    return;
                }
                let key = &attachment.key;
                match kernel.disconnect(&attachment, steps) {
                    Ok(()) => runtime.block_on(inner.give_back(key)),
                    Err(failed) => warn!(container = %key.container, why = %failed, "not undone"),
                }
            }
        };
        match self.work("connect", &key, op, deadline, connect, undo).await? {
            Ok(success) => Ok(success),
            Err(failed) => {
                if is_new && failed.left.is_empty() {
                    self.0.give_back(&key).await;
                }
                Err(Error::new(Code::Wiring, failed.why.clone()).details(failed.told()))
            }
        }
    }

    /// The kernel first: an address is free when nothing carries it any more.
    async fn disconnect(
        &self,
        record: &Arc<Attachment>,
        op: &Arc<Op>,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let key = &record.key;
        let disconnect = {
            let record = Arc::clone(record);
            move |kernel: &K, steps: &Steps| kernel.disconnect(&record, steps)
        };
        // The record stays, so the next DEL finds what is left.
        let undo = |_: &K, _: &Steps| ();
        let done = self.work("disconnect", key, op, deadline, disconnect, undo).await?;
        done.map_err(|failed| Error::new(Code::Wiring, failed.why.clone()).details(failed.told()))?;
        op.step("release");
        let released = self.0.addresses.release(key, deadline).await;
        released.map(|_| ()).map_err(|error| match error {
            ReleaseError::TooLate | ReleaseError::Busy { .. } | ReleaseError::Closed => {
                Error::new(Code::TryAgainLater, error.to_string())
            }
        })
    }

    /// Runs `job` when it is the key's turn and requests are served at all.
    async fn turn<T>(
        &self,
        key: &Key,
        tenant: &str,
        op: &Arc<Op>,
        deadline: Deadline,
        job: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.serving(op, deadline).await?;
        let came = Instant::now();
        let job = async {
            self.0.metrics.wait.observe(came.elapsed());
            self.refuse_hanging(key)?;
            job.await
        };
        self.refuse_hanging(key)?;
        let lane = Deadline::at(deadline.instant() + ON_THE_WAY);
        let work = Work { op: Some(op), ..Work::new(key.clone(), tenant, lane) };
        match self.0.lanes.run(work, job).await {
            Ok(result) => result,
            Err(Refused::Expired(Stage::Running)) => {
                Err(Error::new(Code::TryAgainLater, "it was not done in time").details(LOOK))
            }
            Err(refused) => {
                let msg = format!("not begun: {refused}");
                Err(Error::new(Code::TryAgainLater, msg).details(LOOK))
            }
        }
    }

    async fn serving(&self, op: &Op, deadline: Deadline) -> Result<(), Error> {
        let is_reconciling = || matches!(&*self.0.health.load(), Health::Reconciling(_));
        let mut changes = self.0.health.subscribe();
        if !is_reconciling() {
            return Ok(());
        }
        op.step("reconcile");
        let served = async {
            while is_reconciling() {
                changes.changed().await;
            }
        };
        let in_time = deadline.within(self.0.limits.reconcile).bound(served).await;
        in_time.map_err(|_| {
            Error::new(
                Code::TryAgainLater,
                "the fairlead agent has just started and is reconciling",
            )
            .details("it serves as soon as that is over; see /readyz of the agent")
        })
    }

    fn refuse_hanging(&self, key: &Key) -> Result<(), Error> {
        let working = self.0.working.lock().get(key).cloned();
        match working.filter(|steps| steps.is_abandoned()) {
            Some(steps) => Err(hangs(key, steps.now().0)),
            None => Ok(()),
        }
    }

    fn namespace(&self, descriptor: Option<OwnedFd>) -> Result<K::Namespace, Error> {
        let Some(descriptor) = descriptor else {
            return Err(Error::new(
                Code::Io,
                "the network namespace did not come with the request",
            ));
        };
        self.0.kernel.namespace(descriptor).map_err(|error| {
            let msg = format!("CNI_NETNS is not a network namespace: {error}");
            Error::new(Code::InvalidEnvironment, msg)
        })
    }

    fn begin(&self, kind: &'static str, key: &Key, pod: Option<&Pod>, tenant: &str) -> Arc<Op> {
        let shown = match pod {
            Some(pod) => format!("{key} pod {}/{}", pod.namespace, pod.name),
            None => key.to_string(),
        };
        Arc::new(self.0.ledger.begin(kind, shown, tenant.to_owned()))
    }
}

const LOOK: &str = "`fairlead inflight` on this node shows what it does; the runtime tries again";

impl<K> Inner<K> {
    async fn give_back(&self, key: &Key) {
        let released = self.addresses.release(key, Deadline::after(AFTERWARDS)).await;
        if let Err(error) = released {
            warn!(container = %key.container, %error, "address not given back; reconciling will");
        }
    }
}

/// What an ADD asks for.
#[derive(Debug)]
struct Asked {
    key: Key,
    network: String,
    netns: String,
    pod: Option<Pod>,
    pool: Option<String>,
}

impl Asked {
    fn pod_name(&self) -> Option<String> {
        self.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name))
    }
}

fn refusal(error: &AssignError) -> Error {
    let code = match error {
        AssignError::NoPool { .. } | AssignError::Exhausted { .. } => Code::NoAddress,
        AssignError::Journal { .. } => Code::Record,
        AssignError::NoBlockYet { .. }
        | AssignError::TooLate
        | AssignError::Busy { .. }
        | AssignError::Closed => Code::TryAgainLater,
    };
    Error::new(code, error.to_string())
}

/// Takes it off the ledger, unless a thread that was given up on keeps it there.
fn finish<T>(op: Arc<Op>, result: &Result<T, Error>) {
    let Some(op) = Arc::into_inner(op) else { return };
    op.finish(match result {
        Ok(_) => Outcome::Done,
        Err(error) if error.code == Code::TryAgainLater => Outcome::Refused,
        Err(_) => Outcome::Failed,
    });
}

fn key(Name { container, ifname }: Name) -> Key {
    Key { container, ifname }
}

fn pod_of(wire::Pod { namespace, name, uid }: wire::Pod) -> Pod {
    Pod { namespace, name, uid }
}

impl<K> Clone for Attach<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> fmt::Debug for Attach<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attach({} at work)", self.0.working.lock().len())
    }
}

#[cfg(test)]
mod tests;
