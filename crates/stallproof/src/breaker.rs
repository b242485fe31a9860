//! `Breaker`: keeps callers away from a peer that keeps failing, and lets one at a time try again.
//!
//! ```text
//! closed ──failures in a row──► open ──interval over──► half-open ──probe succeeded──► closed
//!                                ▲                          │
//!                                └──probe failed (longer)───┘
//! ```
//!
//! Contract:
//! - One tenant's breaker says nothing about another's. A tenant that does well costs nothing: only
//!   those in trouble are remembered, a bounded number of them, each until it has been quiet.
//! - Half-open, one probe at a time. A probe that is dropped gives its place back; one that hangs
//!   loses it after a while, so that a stuck call cannot keep a breaker open.
//! - Only attempts that began in the present state count: what was under way when the breaker
//!   tripped cannot trip it again once it has closed.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::backoff::Curve;
use crate::deadline::LONGEST;
use crate::expiring::Expiring;
use crate::sync::Mutex;

mod machine;

use machine::Machine;
pub use machine::State;

#[derive(Clone, Copy, Debug)]
pub struct BreakerConfig {
    /// Names the set in metrics.
    pub name: &'static str,
    /// Failures in a row that trip a breaker.
    pub failures: u32,
    /// How long it stays open: longer with every probe that fails.
    pub open: Curve,
    /// How long a probe may hang before another may try.
    pub probe: Duration,
    /// Tenants in trouble that are remembered; beyond that, the quietest is forgotten.
    pub tenants: usize,
    /// How long a tenant in trouble is remembered when nobody calls it any more.
    pub forget: Duration,
}

/// Refused: the peer is left alone for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("circuit open, try again in {retry_after:?}")]
pub struct Open {
    pub retry_after: Duration,
}

/// The state of one tenant's breaker, for a status page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerStatus<T> {
    pub tenant: T,
    pub state: State,
    /// When it last tripped, or last closed; probes in between do not count.
    pub since: Instant,
    /// Failures in a row, probes included.
    pub failures: u32,
    /// From when on a call is let through as a probe.
    pub next_probe: Option<Instant>,
}

/// A breaker for each tenant. Clones share their state.
pub struct Breakers<T: Clone + Eq + Hash>(Arc<Shared<T>>);

struct Shared<T> {
    config: BreakerConfig,
    tenants: Mutex<Tenants<T>>,
    trips: Counter,
    refusals: Counter,
}

struct Tenants<T> {
    troubled: Expiring<T, Machine>,
    /// Attempts are numbered, so that a report can be told from one of an earlier state.
    attempts: u64,
}

/// Leave to call the peer; say how it went. Dropped without a word it counts as neither.
#[must_use = "report how the attempt went"]
pub struct Attempt<T: Clone + Eq + Hash> {
    shared: Arc<Shared<T>>,
    tenant: T,
    number: u64,
    reported: bool,
}

impl<T: Clone + Eq + Hash> Breakers<T> {
    pub fn new(mut config: BreakerConfig) -> Self {
        config.probe = config.probe.min(LONGEST);
        config.forget = config.forget.min(LONGEST);
        let troubled = Expiring::new(config.tenants);
        Self(Arc::new(Shared {
            config,
            tenants: Mutex::new(Tenants { troubled, attempts: 0 }),
            trips: Counter::default(),
            refusals: Counter::default(),
        }))
    }

    pub fn try_pass(&self, tenant: &T) -> Result<Attempt<T>, Open> {
        let shared = &self.0;
        let passed = shared.with(tenant, |machine, number, now| match machine {
            Some(machine) => machine.pass(number, now, shared.config.probe).map(|()| number),
            None => Ok(number),
        });
        let number = passed.inspect_err(|_| {
            shared.refusals.inc();
        })?;
        Ok(Attempt { shared: Arc::clone(shared), tenant: tenant.clone(), number, reported: false })
    }

    /// The tenants in trouble or lately out of it, in no order.
    pub fn list(&self) -> Vec<BreakerStatus<T>> {
        let now = Instant::now();
        let tenants = self.0.tenants.lock();
        tenants.troubled.iter(now).map(|(tenant, machine)| machine.status(tenant.clone())).collect()
    }

    pub fn register(&self, registry: &mut Registry) {
        let label = ("breakers".into(), self.0.config.name.into());
        let registry = registry.sub_registry_with_label(label);
        registry.register("breaker_trips", "Breakers opened", self.0.trips.clone());
        registry.register("breaker_refusals", "Calls not made", self.0.refusals.clone());
    }
}

impl<T: Clone + Eq + Hash> Shared<T> {
    /// Lets `act` change the tenant's machine, or make one; remembers it if it differs from new.
    /// `act` is also given a number of its own, and the time.
    fn with<R>(&self, tenant: &T, act: impl FnOnce(&mut Option<Machine>, u64, Instant) -> R) -> R {
        let now = Instant::now();
        let mut tenants = self.tenants.lock();
        tenants.attempts += 1;
        let number = tenants.attempts;
        let alive = tenants.troubled.get(tenant, now).is_some();
        let mut machine = tenants.troubled.remove(tenant).filter(|_| alive);
        let answer = act(&mut machine, number, now);
        if let Some(machine) = machine.filter(|machine| !machine.is_as_new()) {
            let end = machine.matters_until() + self.config.forget;
            let _ = tenants.troubled.insert(tenant.clone(), machine, end, now);
        }
        answer
    }
}

impl<T: Clone + Eq + Hash> Attempt<T> {
    pub fn succeeded(self) {
        self.report(|machine, attempt, now| {
            if let Some(machine) = machine {
                machine.succeeded(attempt, now);
            }
        });
    }

    pub fn failed(self) {
        let shared = Arc::clone(&self.shared);
        self.report(|machine, attempt, now| {
            let machine = machine.get_or_insert_with(|| Machine::new(now));
            if machine.failed(attempt, now, &shared.config, fastrand::f64()) {
                shared.trips.inc();
            }
        });
    }

    fn report(mut self, act: impl FnOnce(&mut Option<Machine>, u64, Instant)) {
        self.reported = true;
        self.shared.with(&self.tenant, |machine, _, now| {
            act(machine, self.number, now);
        });
    }
}

impl<T: Clone + Eq + Hash> Drop for Attempt<T> {
    fn drop(&mut self) {
        if !self.reported {
            self.shared.with(&self.tenant, |machine, _, now| {
                if let Some(machine) = machine {
                    machine.abandoned(self.number, now);
                }
            });
        }
    }
}

/// The breaker of a single peer.
#[derive(Clone, Debug)]
pub struct Breaker(Breakers<()>);

impl Breaker {
    pub fn new(config: BreakerConfig) -> Self {
        Self(Breakers::new(config))
    }

    pub fn try_pass(&self) -> Result<Attempt<()>, Open> {
        self.0.try_pass(&())
    }

    /// Nothing, if the peer has not failed lately.
    pub fn status(&self) -> Option<BreakerStatus<()>> {
        self.0.list().pop()
    }

    pub fn register(&self, registry: &mut Registry) {
        self.0.register(registry);
    }
}

impl<T: Clone + Eq + Hash> Clone for Breakers<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone + Eq + Hash + fmt::Debug> fmt::Debug for Breakers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Breakers").field(&self.list()).finish()
    }
}

impl<T: Clone + Eq + Hash + fmt::Debug> fmt::Debug for Attempt<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
