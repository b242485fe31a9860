//! `Lanes`: work waits only for work on the same key.
//!
//! Contract:
//! - Work comes with a key, a tenant and a deadline. Within a key it runs one at a time, in the
//!   order it came; keys run in parallel, at most `workers` at once and `per_tenant` of one tenant.
//!   A stuck key costs one worker, a stuck tenant its share, and nobody else notices.
//! - Tenants that have something to run are served by deficit round robin, in units of `cost`.
//! - Every queue is bounded: in all, per tenant, and per key, so that the line behind a stuck key
//!   cannot crowd out its tenant's other keys.
//! - The answer is a value: what the work returned, or why it was [`Refused`]. Whoever drops the
//!   future cancels the work, queued or running, and the place goes to the next.
//! - Work that is still queued at its deadline is answered at that moment; work that is running is
//!   dropped at that moment. Work is always gone before its key's next turn is given.
//!
//! `Lanes` gives turns and owns no task: the caller's own task polls the work once it has the turn.
//! So nothing is spawned or boxed, work may borrow, and a panic unwinds through the caller, giving
//! the turn back on its way. A turn is a state under one lock, not a message: there is no moment in
//! which it has been sent and not received, and hence none in which it could be lost.

mod schedule;

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Waker;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::deadline::{Deadline, Expired};
use crate::ledger::{Op, OpId};
use crate::metrics::Histogram;
use crate::sync::Mutex;
use schedule::{Schedule, Ticket, WaitsOn};

/// Gives turns to work by key, fairly between tenants. See the module for the contract.
#[derive(Debug)]
pub struct Lanes<K> {
    name: Cow<'static, str>,
    /// Written by whoever submits, leaves or closes, a few lines at a time; read by `status`.
    schedule: Mutex<Schedule<K>>,
    drained: CancellationToken,
    /// Copied from the schedule under its lock, so that a watchdog never needs that lock.
    owes: AtomicBool,
    metrics: Metrics,
}

#[derive(Clone, Debug)]
pub struct LanesConfig {
    /// Shown on the ledger and in the metrics' label.
    pub name: Cow<'static, str>,
    pub limits: LanesLimits,
}

/// How much may run and wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanesLimits {
    /// How many run at once. A worker is a place, not a thread: it costs a few hundred bytes.
    pub workers: usize,
    /// How many of one tenant run at once: its share.
    pub per_tenant: usize,
    /// How many wait in all.
    pub queue: usize,
    /// How many of one tenant wait.
    pub queue_per_tenant: usize,
    /// How many wait behind one key.
    pub queue_per_key: usize,
    /// The cost of the dearest work, which is also the quantum: how far one tenant may get ahead of
    /// another before it is the other's turn. 1 is plain round robin; dearer work counts as this.
    pub max_cost: u32,
}

impl LanesConfig {
    /// LanesLimits that follow from the number of workers.
    pub fn new(name: impl Into<Cow<'static, str>>, workers: usize) -> Self {
        let workers = workers.max(1);
        let limits = LanesLimits {
            workers,
            // It takes four stuck tenants, not one, to stop the rest.
            per_tenant: workers.div_ceil(4),
            // At ten turns a second and worker, what waits longer than ten seconds is refused.
            queue: workers * 100,
            queue_per_tenant: workers * 25,
            // A line on one key is served one at a time: long ones only grow old.
            queue_per_key: 32,
            max_cost: 1,
        };
        Self { name: name.into(), limits }
    }
}

/// A piece of work as `Lanes` sees it.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a, K> {
    pub key: K,
    pub tenant: &'a str,
    pub deadline: Deadline,
    /// In the units of [`LanesLimits::max_cost`].
    pub cost: u32,
    /// Where to note what it waits on and that it runs. The work runs in its span.
    pub op: Option<&'a Op>,
}

impl<'a, K> Work<'a, K> {
    pub fn new(key: K, tenant: &'a str, deadline: Deadline) -> Self {
        Self { key, tenant, deadline, cost: 1, op: None }
    }
}

/// Why work was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("too much is waiting already; come back in {retry_after:?}")]
    Full { retry_after: Duration },
    #[error("deadline passed while {0}")]
    Expired(Stage),
    #[error("closed")]
    Closed,
}

/// How far work had come when its deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It had not begun: nothing has happened.
    Queued,
    /// It was dropped in the middle.
    Running,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queued => "queued",
            Self::Running => "running",
        })
    }
}

/// The state of a set of lanes, for a status page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanesStatus<K> {
    pub queued: usize,
    pub running: usize,
    pub closed: bool,
    /// By name.
    pub tenants: Vec<TenantStatus<K>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantStatus<K> {
    pub tenant: Arc<str>,
    pub queued: usize,
    pub running: usize,
    pub longest_queued: Option<Turn<K>>,
    pub longest_running: Option<Turn<K>>,
}

/// Work that waits for its turn, or has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn<K> {
    pub key: K,
    pub op: Option<OpId>,
    pub age: Duration,
}

impl<K: Clone + Eq + Hash + fmt::Debug> Lanes<K> {
    pub fn new(config: LanesConfig) -> Self {
        Self {
            name: config.name,
            schedule: Mutex::new(Schedule::new(config.limits)),
            drained: CancellationToken::new(),
            owes: AtomicBool::new(false),
            metrics: Metrics::default(),
        }
    }

    /// Runs `job` when it is its turn, in the caller's task.
    pub async fn run<T>(
        &self,
        work: Work<'_, K>,
        job: impl Future<Output = T>,
    ) -> Result<T, Refused> {
        // Declared before `job` is polled: `bound` drops the job before `turn` gives the key on.
        let turn = self.turn(&work).await.inspect_err(|refused| self.metrics.refused(*refused))?;
        let span = work.op.map_or_else(Span::none, Op::span);
        let done = work.deadline.bound(job.instrument(span)).await;
        drop(turn);
        done.map_err(|Expired| {
            let refused = Refused::Expired(Stage::Running);
            self.metrics.refused(refused);
            refused
        })
    }

    /// Refuses what is queued and what comes; what runs may finish.
    pub fn close(&self) {
        let woken = self.with(Schedule::close);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Waits until `close` was called and nothing runs any more.
    pub async fn closed(&self) {
        self.drained.cancelled().await;
    }

    /// Looks at every job under the lock: for people, not for loops.
    pub fn status(&self) -> LanesStatus<K> {
        self.schedule.lock().status(Instant::now())
    }

    /// How many turns were ever given: whoever watches for progress compares two readings.
    pub fn turns_given(&self) -> u64 {
        self.metrics.given.get()
    }

    /// Work is kept waiting by nothing but a lack of workers. If that stays true while
    /// `turns_given` stands still, every worker is stuck. Neither a stuck key nor a tenant that has
    /// used up its share makes this true: those hold up only themselves.
    pub fn owes(&self) -> bool {
        self.owes.load(Relaxed)
    }

    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(&self.name, registry);
    }

    async fn turn<'l>(&'l self, work: &Work<'_, K>) -> Result<Place<'l, K>, Refused> {
        if work.deadline.has_passed() {
            return Err(Refused::Expired(Stage::Queued));
        }
        let came = Instant::now();
        let op = work.op.map(Op::id);
        let (ticket, waits_on) =
            self.with(|s| s.submit(&work.key, work.tenant, work.cost, op, came))?;
        let place = Place { lanes: self, ticket };
        if let Some(waits_on) = waits_on {
            if let Some(op) = work.op {
                self.note(op, work, waits_on);
            }
            let turn = poll_fn(|cx| self.schedule.lock().poll(ticket, cx.waker()));
            match work.deadline.bound(turn).await {
                Ok(answer) => answer?,
                Err(Expired) => return Err(Refused::Expired(Stage::Queued)),
            }
        }
        self.metrics.wait.observe(came.elapsed());
        if let Some(op) = work.op {
            op.step("running");
        }
        Ok(place)
    }

    fn note(&self, op: &Op, work: &Work<'_, K>, waits_on: WaitsOn) {
        let name = &self.name;
        match waits_on {
            WaitsOn::Key(ahead) => op.waits_on(format!("lanes {name} key {:?}", work.key), ahead),
            WaitsOn::Share => {
                op.waits_on(format!("lanes {name} share of tenant {}", work.tenant), None);
            }
            WaitsOn::Worker => op.waits_on(format!("lanes {name} worker"), None),
        }
    }
}

impl<K: Clone + Eq + Hash> Lanes<K> {
    /// Changes the schedule, and publishes what it now says before anyone else can change it.
    fn with<T>(&self, change: impl FnOnce(&mut Schedule<K>) -> T) -> T {
        let mut schedule = self.schedule.lock();
        let result = change(&mut schedule);
        self.metrics.queued.set(schedule.queued() as i64);
        self.metrics.running.set(schedule.running() as i64);
        self.metrics.given.inner().store(schedule.turns_given(), Relaxed);
        self.owes.store(schedule.owes(), Relaxed);
        let drained = schedule.drained();
        drop(schedule);
        if drained {
            self.drained.cancel();
        }
        result
    }
}

/// A place in the queue or at work; dropping it gives it to the next.
#[derive(Debug)]
struct Place<'l, K: Clone + Eq + Hash> {
    lanes: &'l Lanes<K>,
    ticket: Ticket,
}

impl<K: Clone + Eq + Hash> Drop for Place<'_, K> {
    fn drop(&mut self) {
        let now = Instant::now();
        let woken = self.lanes.with(|s| s.leave(self.ticket, now));
        woken.into_iter().for_each(Waker::wake);
    }
}

#[derive(Debug)]
struct Metrics {
    queued: Gauge,
    running: Gauge,
    given: Counter,
    wait: Histogram,
    refused: Family<[(&'static str, &'static str); 1], Counter>,
    full: Counter,
    expired_queued: Counter,
    expired_running: Counter,
    closed: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let refused = Family::<_, Counter>::default();
        let reason = |reason| refused.get_or_create(&[("reason", reason)]).clone();
        Self {
            queued: Gauge::default(),
            running: Gauge::default(),
            given: Counter::default(),
            wait: Histogram::default(),
            full: reason("full"),
            expired_queued: reason("expired_queued"),
            expired_running: reason("expired_running"),
            closed: reason("closed"),
            refused,
        }
    }
}

impl Metrics {
    fn refused(&self, refused: Refused) {
        match refused {
            Refused::Full { .. } => self.full.inc(),
            Refused::Expired(Stage::Queued) => self.expired_queued.inc(),
            Refused::Expired(Stage::Running) => self.expired_running.inc(),
            Refused::Closed => self.closed.inc(),
        };
    }

    fn register(&self, name: &str, registry: &mut Registry) {
        let registry = registry.sub_registry_with_label(("lanes".into(), name.to_owned().into()));
        registry.register("lanes_queued", "Work that waits for its turn", self.queued.clone());
        registry.register("lanes_running", "Work that has its turn", self.running.clone());
        registry.register("lanes_turns", "Turns given", self.given.clone());
        registry.register("lanes_refused", "Work refused, by reason", self.refused.clone());
        registry.register("lanes_wait_seconds", "From submit to turn", self.wait.clone());
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod explore;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
