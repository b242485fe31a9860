//! `Gate`: no more requests are let in than can be answered in time; the others are told at once.
//!
//! Contract:
//! - `admit` answers with a [`Permit`], or with [`Overloaded`] and when to come back. A request is
//!   refused the moment it can be foreseen that it would miss its deadline: on arrival, when the
//!   predicted wait and the usual service time exceed it; while it waits; and when its turn comes.
//! - How many are in flight adapts to latency (`gate/limit.rs` says how and why).
//! - The queue is bounded: strict between priorities, first come first served within one. A newcomer
//!   that finds it full takes the place of the youngest of the lowest priority below its own.
//! - Callers that are named (`admit_for`) share fairly: no caller holds more places than it leaves free,
//!   nor more of the queue; a place that comes free goes to the caller that holds fewest. One caller's
//!   requests, however many and slow, keep no other out (`gate/shares.rs`).
//! - Whoever drops the future, or the permit, gives the place back. A permit is a state under one
//!   lock until it is taken, not a message, so none is lost on the way to a caller that has gone.
//! - [`GateLayer`] puts this before a tower service. It takes its permit in `call`: connections that
//!   merely poll for readiness hold nothing.

mod layer;
mod limit;
mod queue;
mod shares;

use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::deadline::{Deadline, Expired};
use crate::metrics::Histogram;
use crate::sync::Mutex;
use queue::{Arrival, Queue, Slot, Started};

pub use layer::{GateLayer, Gated};

/// The order in which requests are let in. There are few on purpose: if it is not clear which one a request
/// has, it is `Normal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Without it the process loses its standing: lease renewals. Never shed.
    Critical,
    /// Others stand still meanwhile: admission reviews, a pod's network set-up.
    High,
    /// A person looks at a page.
    Normal,
    /// Can come back later: bulk reports, exports.
    Low,
}

impl Priority {
    pub const COUNT: usize = 4;
    pub const ALL: [Self; Self::COUNT] = [Self::Critical, Self::High, Self::Normal, Self::Low];

    fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

/// The priorities that are refused whatever the load, for instance because memory runs out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shedding {
    #[default]
    None,
    Low,
    /// And `Low`.
    Normal,
    /// All but `Critical`.
    High,
}

impl Shedding {
    fn sheds(self, priority: Priority) -> bool {
        match self {
            Self::None => false,
            Self::Low => priority >= Priority::Low,
            Self::Normal => priority >= Priority::Normal,
            Self::High => priority >= Priority::High,
        }
    }
}

#[derive(Clone, Debug)]
pub struct GateConfig {
    /// Shown in the metrics' label.
    pub name: Cow<'static, str>,
    pub limits: InFlightLimits,
    /// How many may wait. A waiter costs about 200 bytes and its caller's task; deadlines keep the
    /// queue shorter than this unless service is fast.
    pub queue: usize,
}

/// Between what bounds the number in flight adapts, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightLimits {
    pub min: usize,
    pub initial: usize,
    pub max: usize,
}

impl GateConfig {
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.into(),
            limits: InFlightLimits { min: 4, initial: 32, max: 1024 },
            queue: 4096,
        }
    }
}

/// A refusal, and when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("overloaded: {reason}; come back in {retry_after:?}")]
pub struct Overloaded {
    pub retry_after: Duration,
    pub reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Too many wait already.
    Full,
    /// It would not be, or was not, answered by its deadline.
    TooLate,
    /// It waited, and had to make room for one of higher priority.
    Evicted,
    /// Its priority is not served at present.
    Shed,
    /// The same caller has, or waits for, as much as it may have; there is room for others.
    Share,
}

impl Reason {
    const ALL: [Self; 5] = [Self::Full, Self::TooLate, Self::Evicted, Self::Shed, Self::Share];

    fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::TooLate => "too_late",
            Self::Evicted => "evicted",
            Self::Shed => "shed",
            Self::Share => "share",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the queue is full",
            Self::TooLate => "it would not be answered in time",
            Self::Evicted => "it made room for a higher priority",
            Self::Shed => "its priority is not served at present",
            Self::Share => "the same caller has as many as it may have",
        })
    }
}

/// What the time that a request took says about the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadSignal {
    /// It is a service time like any other.
    #[default]
    Done,
    /// The service behind the gate could not cope: lowers the limit, whatever the time.
    Failed,
    /// Nothing: an error that came back at once, a caller that went away.
    Ignored,
}

/// The state of a gate, for a status page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateStatus {
    pub limit: usize,
    pub in_flight: usize,
    /// In the order of [`Priority::ALL`].
    pub queued: [usize; Priority::COUNT],
    pub shedding: Shedding,
    /// The mean of late.
    pub service: Duration,
}

/// Admission control; clones share one gate. See the module for the contract.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: Cow<'static, str>,
    /// Written by whoever arrives, leaves or sheds, a few lines at a time; read by `status`.
    queue: Mutex<Queue>,
    metrics: Metrics,
}

impl Gate {
    pub fn new(config: GateConfig) -> Self {
        Self(Arc::new(Shared {
            name: config.name,
            queue: Mutex::new(Queue::new(config.limits, config.queue, Instant::now())),
            metrics: Metrics::default(),
        }))
    }

    /// Waits to be let in, for as long as that can still be worth it.
    pub async fn admit(
        &self,
        priority: Priority,
        deadline: Deadline,
    ) -> Result<Permit, Overloaded> {
        self.admit_as(None, priority, deadline).await
    }

    /// As `admit`, within the share of `caller`: a user, a node, an address.
    pub async fn admit_for(
        &self,
        caller: &str,
        priority: Priority,
        deadline: Deadline,
    ) -> Result<Permit, Overloaded> {
        self.admit_as(Some(caller), priority, deadline).await
    }

    /// As `admit_for`, without waiting: for what lasts, such as a stream, at a gate with a fixed limit.
    /// How long it is held says nothing of the load.
    pub fn try_admit_for(&self, caller: &str, priority: Priority) -> Result<Permit, Overloaded> {
        let now = Instant::now();
        let admitted = self.with(|queue, _| queue.try_arrive(caller, priority, now));
        match admitted {
            Ok(started) => {
                self.0.metrics.admitted[priority as usize].inc();
                Ok(Permit { gate: self.clone(), started, signal: LoadSignal::Ignored })
            }
            Err(overloaded) => {
                self.0.metrics.refused[overloaded.reason as usize].inc();
                Err(overloaded)
            }
        }
    }

    async fn admit_as(
        &self,
        caller: Option<&str>,
        priority: Priority,
        deadline: Deadline,
    ) -> Result<Permit, Overloaded> {
        let came = Instant::now();
        let admitted = self.ask(caller, priority, deadline.instant(), came).await;
        match admitted {
            Ok(started) => {
                self.0.metrics.wait.observe(came.elapsed());
                self.0.metrics.admitted[priority as usize].inc();
                Ok(Permit { gate: self.clone(), started, signal: LoadSignal::Done })
            }
            Err(overloaded) => {
                self.0.metrics.refused[overloaded.reason as usize].inc();
                Err(overloaded)
            }
        }
    }

    /// From now on refuses these priorities, also those that wait; `Shedding::None` ends it.
    pub fn shed(&self, shedding: Shedding) {
        let now = Instant::now();
        self.with(|queue, woken| queue.shed(shedding, now, woken));
    }

    pub fn status(&self) -> GateStatus {
        self.0.queue.lock().status()
    }

    pub fn register(&self, registry: &mut Registry) {
        self.0.metrics.register(&self.0.name, registry);
    }

    /// The answer for a request that was let in and is not done at its deadline.
    fn overran(&self) -> Overloaded {
        self.0.metrics.overran.inc();
        self.with(|queue, _| queue.refuse(Reason::TooLate, Instant::now()))
    }

    async fn ask(
        &self,
        caller: Option<&str>,
        priority: Priority,
        deadline: Instant,
        now: Instant,
    ) -> Result<Started, Overloaded> {
        let arrival =
            self.with(|queue, woken| queue.arrive(caller, priority, deadline, now, woken));
        let (slot, until) = match arrival? {
            Arrival::Admitted(started) => return Ok(started),
            Arrival::Waits(slot, until) => (slot, until),
        };
        let mut place = Place { gate: self, slot: Some(slot) };
        let answer = poll_fn(|cx| self.0.queue.lock().poll(slot, cx.waker()));
        let answer = match Deadline::at(until).bound(answer).await {
            Ok(answer) => answer,
            Err(Expired) => self.with(|queue, _| queue.expire(slot, Instant::now())),
        };
        place.slot = None;
        answer
    }

    /// Changes the queue, publishes what it now says, and wakes after the lock is given back.
    fn with<T>(&self, change: impl FnOnce(&mut Queue, &mut Vec<Waker>) -> T) -> T {
        let mut woken = Vec::new();
        let mut queue = self.0.queue.lock();
        let result = change(&mut queue, &mut woken);
        let status = queue.status();
        self.0.metrics.publish(&status);
        drop(queue);
        woken.into_iter().for_each(Waker::wake);
        result
    }
}

/// A place in the queue; dropping it before the answer was taken gives up both.
#[derive(Debug)]
struct Place<'g> {
    gate: &'g Gate,
    slot: Option<Slot>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.gate.with(|queue, woken| queue.abandon(slot, Instant::now(), woken));
        }
    }
}

/// One request in flight. Dropping it ends that, and takes the time it was held as service time
/// unless told otherwise by `fail` or `ignore`.
#[derive(Debug)]
#[must_use = "a permit that is dropped at once lets nothing in"]
pub struct Permit {
    gate: Gate,
    started: Started,
    signal: LoadSignal,
}

impl Permit {
    /// Ends it as told.
    pub fn end(mut self, signal: LoadSignal) {
        self.signal = signal;
    }

    /// Ends it as [`LoadSignal::Failed`].
    pub fn fail(self) {
        self.end(LoadSignal::Failed);
    }

    /// Ends it as [`LoadSignal::Ignored`].
    pub fn ignore(self) {
        self.end(LoadSignal::Ignored);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = Instant::now();
        if self.signal == LoadSignal::Done {
            let took = now.saturating_duration_since(self.started.at);
            self.gate.0.metrics.service.observe(took);
        }
        self.gate.with(|queue, woken| queue.leave(self.started, self.signal, now, woken));
    }
}

type ByLabel<M> = Family<[(&'static str, &'static str); 1], M>;

#[derive(Debug)]
struct Metrics {
    limit: Gauge,
    in_flight: Gauge,
    queued_family: ByLabel<Gauge>,
    queued: [Gauge; Priority::COUNT],
    admitted_family: ByLabel<Counter>,
    admitted: [Counter; Priority::COUNT],
    refused_family: ByLabel<Counter>,
    refused: [Counter; Reason::ALL.len()],
    overran: Counter,
    wait: Histogram,
    service: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        // Looked up once, here: a family is a locked map.
        let queued_family = ByLabel::<Gauge>::default();
        let admitted_family = ByLabel::<Counter>::default();
        let refused_family = ByLabel::<Counter>::default();
        Self {
            limit: Gauge::default(),
            in_flight: Gauge::default(),
            queued: Priority::ALL.map(|priority| {
                queued_family.get_or_create(&[("priority", priority.name())]).clone()
            }),
            queued_family,
            admitted: Priority::ALL.map(|priority| {
                admitted_family.get_or_create(&[("priority", priority.name())]).clone()
            }),
            admitted_family,
            refused: Reason::ALL
                .map(|reason| refused_family.get_or_create(&[("reason", reason.name())]).clone()),
            refused_family,
            overran: Counter::default(),
            wait: Histogram::default(),
            service: Histogram::default(),
        }
    }
}

impl Metrics {
    fn publish(&self, status: &GateStatus) {
        self.limit.set(status.limit as i64);
        self.in_flight.set(status.in_flight as i64);
        for (gauge, queued) in self.queued.iter().zip(status.queued) {
            gauge.set(queued as i64);
        }
    }

    fn register(&self, name: &str, registry: &mut Registry) {
        let registry = registry.sub_registry_with_label(("gate".into(), name.to_owned().into()));
        registry.register("gate_limit", "How many may be in flight now", self.limit.clone());
        registry.register(
            "gate_in_flight",
            "Requests let in and not ended",
            self.in_flight.clone(),
        );
        registry.register("gate_queued", "Requests that wait", self.queued_family.clone());
        registry.register("gate_admitted", "Requests let in", self.admitted_family.clone());
        registry.register("gate_refused", "Requests refused", self.refused_family.clone());
        registry.register("gate_overran", "Let in, dropped at the deadline", self.overran.clone());
        registry.register("gate_wait_seconds", "From arrival to permit", self.wait.clone());
        registry.register("gate_service_seconds", "From permit to end", self.service.clone());
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod explore;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
