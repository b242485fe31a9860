//! `CniService`: serves a container runtime's requests: an address from the journal, then the kernel.
//!
//! ```text
//! ADD ─► turn of its key ─┬► assign: chosen ─┬► durable ─┐
//!                         └► pair ────────────┴► pod's end ─┴► node's end, routes ─► reply   pair and ends on a thread
//!                                  release ◄─────────┘ failed: it unwound itself
//! DEL ─► turn of its key ─► detach (journal) ─► reply        then: links by group ─► release
//! ```
//!
//! Contract:
//! - Requests about one attachment are served one at a time, in order; about others in parallel. Each
//!   is on the ledger with its container, its pod and its step.
//! - A request asks nobody but the journal and the kernel: the pool that a pod's namespace chose comes
//!   from [`NamespacePools`].
//! - A request is answered at its deadline, or when one kernel step has taken [`RequestLimits::step`],
//!   whatever the kernel does. Work that hangs is abandoned, not forgotten: it keeps its thread, its
//!   address and its key; requests about it are refused at once with the step it hangs in; when it
//!   comes back it undoes what it did and gives its address back.
//! - ADD twice gives the same result twice. An ADD of a container whose record names another
//!   namespace replaces that record: the runtime says where the container now is. DEL of an attachment
//!   that does not exist is a success that costs a lookup. CHECK compares and changes nothing.
//! - An address whose wiring could not be undone is not given to anybody else: its record stays until
//!   a DEL or reconciling has cleared it.
//! - Only STATUS is served before the first reconcile is over; until then requests wait a little, and
//!   are then asked to come back.

mod add;
mod check;
mod cni_reply;
mod del;
mod error;
mod gc;
mod kernel_work;
mod regain;
pub(crate) mod steps;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cni::wire::{Operation, Reply, Request};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use stallproof::lanes::{LanesConfig, LanesLimits, Stage};
use stallproof::ledger::Outcome;
use stallproof::{Deadline, Lanes, Ledger, Op, Refused, Snapshot, Tasks, Work};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use crate::datapath::Datapath;
use crate::metrics::Metrics;
use crate::namespace_pools::NamespacePools;
use crate::{Addresses, AttachmentKey, Pod};

pub use error::RequestError;
pub(crate) use regain::Regained;
pub use steps::StepTracker;

#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// The longest that any request may take, whatever its caller would wait.
    pub request: Duration,
    /// The longest that one step in the kernel may take.
    pub step: Duration,
    /// How long a request waits for the first reconcile.
    pub reconcile: Duration,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(120),
            // Steps take milliseconds, and seconds on a busy node. A step of this length hangs.
            step: Duration::from_secs(20),
            reconcile: Duration::from_secs(5),
        }
    }
}

/// The health of the node's network, as STATUS reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The first reconcile is not over; says what it is doing.
    Reconciling(String),
    Well,
    /// Existing pods may not be reachable; says why.
    Limited(String),
}

/// A handle; clones serve the same node.
pub struct CniService<D>(Arc<Inner<D>>);

struct Inner<D> {
    datapath: Arc<D>,
    addresses: Addresses,
    pools: NamespacePools,
    limits: RequestLimits,
    lanes: Lanes<AttachmentKey>,
    ledger: Ledger,
    /// A tree of its own: kernel calls that hang take no thread from anything else.
    threads: Tasks,
    /// The kernel work under way, by key. A thread writes it where it begins and ends; a request that
    /// has its turn and finds its key here was preceded by one that gave up on its work.
    working: Mutex<HashMap<AttachmentKey, UnderWay>>,
    health: Snapshot<Health>,
    metrics: Metrics,
    /// An ADD waits for a link to be gone, and tells those who remove links.
    hurry: Notify,
}

/// Kernel work on one attachment.
struct UnderWay {
    steps: Arc<StepTracker>,
    /// The name of the attachment's interface at the node's side.
    host_interface: String,
}

/// One request about one attachment, from its arrival to its reply.
struct Call {
    key: AttachmentKey,
    /// The pod's namespace: namespaces share the workers fairly.
    tenant: String,
    op: Arc<Op>,
    deadline: Deadline,
}

/// How many requests run at once. Most of one is a wait for the kernel's lock or for a grace period,
/// which many can share; the rest of the threads is for work that hangs.
const WORKERS: usize = 48;
/// Requests that wait: a node's 500 pods, several times over.
const QUEUE: usize = 4096;
/// A request replies for itself at its deadline; its lane's deadline is later by this, so that no reply
/// is dropped on its way, and sooner than the plugin's.
const ON_THE_WAY: Duration = Duration::from_millis(200);
/// How long releasing an address may take after its request is over.
const AFTERWARDS: Duration = Duration::from_secs(30);

impl<D: Datapath> CniService<D> {
    pub fn new(
        datapath: D,
        addresses: Addresses,
        pools: NamespacePools,
        ledger: Ledger,
        limits: RequestLimits,
    ) -> Self {
        let lanes = LanesLimits {
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
            datapath: Arc::new(datapath),
            addresses,
            pools,
            limits,
            lanes: Lanes::new(LanesConfig { name: "cni".into(), limits: lanes }),
            ledger,
            threads: Tasks::new("cni-kernel"),
            working: Mutex::default(),
            health: Snapshot::new(Health::Reconciling("the agent has just started".to_owned())),
            metrics: Metrics::default(),
            hurry: Notify::new(),
        }))
    }

    pub fn register(&self, registry: &mut Registry) {
        self.0.lanes.register(registry);
        self.0.metrics.register(registry);
    }

    /// The reconciler publishes the health here.
    pub fn health(&self) -> Snapshot<Health> {
        self.0.health.clone()
    }

    /// How many requests wait for their turn.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.0.lanes.status().queued
    }

    /// Says whether kernel work on `key` is under way or hangs.
    pub fn is_busy(&self, key: &AttachmentKey) -> bool {
        self.0.working.lock().contains_key(key)
    }

    /// The interfaces of requests that have kernel work under way.
    pub(crate) fn interfaces_under_way(&self) -> HashSet<String> {
        let working = self.0.working.lock();
        working.values().map(|work| work.host_interface.clone()).collect()
    }

    /// Serves one request of a runtime. [`Operation::Show`] is served elsewhere.
    pub async fn serve(&self, request: Request, descriptor: Option<OwnedFd>) -> Reply {
        let began = Instant::now();
        let deadline = Deadline::after(request.wait().min(self.0.limits.request));
        let command = match &request.operation {
            Operation::Add(_) => "add",
            Operation::Del { .. } => "del",
            Operation::Check { .. } => "check",
            Operation::Gc { .. } => "gc",
            Operation::Status => "status",
            Operation::Show(_) => return cni_reply::failed(&RequestError::NotForARuntime),
        };
        let in_flight = self.0.metrics.began(command);
        let served = match request.operation {
            Operation::Add(add) => self
                .add(add, descriptor, deadline)
                .await
                .map(|(made, pair)| Reply::Added(cni_reply::success(&made, pair))),
            Operation::Del { key, .. } => self.del(key, deadline).await.map(|()| Reply::Done),
            Operation::Check { key, addresses, .. } => {
                self.check(key, &addresses, descriptor, deadline).await.map(|()| Reply::Done)
            }
            Operation::Gc { network, valid } => {
                self.gc(&network, valid, deadline).await.map(|()| Reply::Done)
            }
            Operation::Status | Operation::Show(_) => self.status().map(|()| Reply::Done),
        };
        drop(in_flight);
        // The code as the runtime sees it; 0 is a success.
        let code = served.as_ref().err().map_or(0, |error| error.code().number());
        self.0.metrics.ended(command, code, began.elapsed());
        served.unwrap_or_else(|error| cni_reply::failed(&error))
    }

    fn status(&self) -> Result<(), RequestError> {
        match &*self.0.health.load() {
            Health::Well => Ok(()),
            Health::Reconciling(doing) => Err(RequestError::NotAvailable(doing.clone())),
            Health::Limited(why) => Err(RequestError::LimitedConnectivity(why.clone())),
        }
    }

    fn begin(
        &self,
        kind: &'static str,
        key: AttachmentKey,
        pod: Option<&Pod>,
        deadline: Deadline,
    ) -> Call {
        let tenant = pod.map_or("", |pod| pod.namespace.as_str()).to_owned();
        let shown = match pod {
            Some(pod) => format!("{key} pod {pod}"),
            None => key.to_string(),
        };
        let op = Arc::new(self.0.ledger.begin(kind, shown, tenant.clone()));
        Call { key, tenant, op, deadline }
    }

    /// Runs `job` when it is the key's turn and requests are served at all.
    async fn turn<T>(
        &self,
        call: &Call,
        job: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        self.wait_for_reconcile(call).await?;
        let came = Instant::now();
        let job = async {
            self.0.metrics.wait.observe(came.elapsed());
            self.refuse_stuck(&call.key)?;
            job.await
        };
        self.refuse_stuck(&call.key)?;
        let lane = Deadline::at(call.deadline.instant() + ON_THE_WAY);
        let work = Work { op: Some(&call.op), ..Work::new(call.key.clone(), &call.tenant, lane) };
        match self.0.lanes.run(work, job).await {
            Ok(result) => result,
            Err(Refused::Expired(Stage::Running)) => Err(RequestError::TooLate),
            Err(refused) => Err(RequestError::NotBegun(refused)),
        }
    }

    async fn wait_for_reconcile(&self, call: &Call) -> Result<(), RequestError> {
        let is_reconciling = || matches!(&*self.0.health.load(), Health::Reconciling(_));
        let mut changes = self.0.health.subscribe();
        if !is_reconciling() {
            return Ok(());
        }
        call.op.step("reconcile");
        let over = async {
            while is_reconciling() {
                changes.changed().await;
            }
        };
        let in_time = call.deadline.within(self.0.limits.reconcile).bound(over).await;
        in_time.map_err(|_| RequestError::Reconciling)
    }

    fn refuse_stuck(&self, key: &AttachmentKey) -> Result<(), RequestError> {
        let working = self.0.working.lock().get(key).map(|work| Arc::clone(&work.steps));
        match working.filter(|steps| steps.is_abandoned()) {
            Some(steps) => Err(RequestError::Stuck { key: key.clone(), step: steps.now().0 }),
            None => Ok(()),
        }
    }

    fn hold(&self, descriptor: Option<OwnedFd>) -> Result<D::Namespace, RequestError> {
        let descriptor = descriptor.ok_or(RequestError::NamespaceMissing)?;
        self.0.datapath.hold(descriptor).map_err(RequestError::NotANamespace)
    }
}

impl<D> Inner<D> {
    /// Releases an address whose request is over.
    async fn give_back(&self, key: &AttachmentKey) {
        let released = self.addresses.release(key, Deadline::after(AFTERWARDS)).await;
        if let Err(error) = released {
            warn!(container = %key.container, %error, "an address is not released; reconciling will");
        }
    }
}

impl Call {
    /// Takes the request off the ledger, unless a thread that was given up on keeps it there.
    fn finish<T>(self, result: &Result<T, RequestError>) {
        let Some(op) = Arc::into_inner(self.op) else { return };
        op.finish(match result {
            Ok(_) => Outcome::Done,
            Err(error) if error.is_retryable() => Outcome::Refused,
            Err(_) => Outcome::Failed,
        });
    }
}

impl<D> Clone for CniService<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D> fmt::Debug for CniService<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CniService({} at work)", self.0.working.lock().len())
    }
}

#[cfg(test)]
mod tests;
