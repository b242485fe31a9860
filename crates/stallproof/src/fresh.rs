//! `Fresh<K, V, E>`: answers from elsewhere, kept while they are fresh.
//!
//! Contract:
//! - A yes has a lifetime, a no a shorter one; none is served from here once it is older than that,
//!   counted from the start of its lookup. Lifetimes are cut by up to a tenth at random, so that a
//!   thousand keys learnt together do not expire together.
//! - Errors, timeouts and panics are not answers: those who waited are told, nothing is kept.
//! - Lookups for one key are single-flight, with a deadline of their own. A caller's deadline ends
//!   only its own wait. A caller that goes away does not end the lookup for the others, whichever of
//!   them began it; when all are gone the lookup is dropped, and the next caller begins a new one.
//! - `reset` and `reset_all` reach the next call: it begins a new lookup, and neither joins one that
//!   began before the reset nor ever sees its answer.
//! - Bounded: the answers kept (the soonest to expire makes room, so a flood of unknown keys, whose
//!   no is short-lived, displaces no yes), and the lookups under way (beyond, callers are refused).
//!   Keys have no fair share of those: give a tenant whose lookups may hang a `Fresh` of its own.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::deadline::{Deadline, Expired, LONGEST};
use crate::expiring::Expiring;
use crate::metrics::Histogram;
use crate::sync::Mutex;
use crate::tasks::panic_message;

#[derive(Clone, Copy, Debug)]
pub struct FreshConfig {
    /// Names the cache in metrics.
    pub name: &'static str,
    /// The lifetime of a yes.
    pub yes: Duration,
    /// The lifetime of a no.
    pub no: Duration,
    /// How long one lookup may take.
    pub lookup: Duration,
    /// Answers kept at most.
    pub answers: usize,
    /// Lookups under way at most.
    pub lookups: usize,
}

/// A yes with its value, or a no.
pub struct CachedAnswer<V> {
    pub value: Option<Arc<V>>,
    /// When the lookup began: the world may have changed since.
    pub asked: Instant,
}

impl<V> CachedAnswer<V> {
    pub fn age(&self) -> Duration {
        self.asked.elapsed()
    }
}

/// Why there is neither a yes nor a no.
#[derive(Debug, thiserror::Error)]
pub enum LookupError<E> {
    #[error("lookup failed")]
    Failed(#[source] Arc<E>),
    #[error("lookup took longer than {0:?}")]
    TooSlow(Duration),
    #[error("lookup panicked: {0}")]
    Panicked(Arc<str>),
    #[error("deadline passed before the lookup ended")]
    Expired,
    #[error("too many lookups under way, try again in {retry_after:?}")]
    Busy { retry_after: Duration },
}

/// A cache of answers; see the module for its contract.
pub struct Fresh<K: Clone + Eq + Hash, V, E>(Arc<Cache<K, V, E>>);

struct Cache<K, V, E> {
    config: FreshConfig,
    state: Mutex<State<K, V, E>>,
    counts: Counts,
}

struct State<K, V, E> {
    answers: Expiring<K, CachedAnswer<V>>,
    /// The lookups that a caller may join. A reset takes a lookup off this list; that is all it takes to
    /// disown it, for a lookup that ends keeps its answer only if it still finds itself here.
    flights: HashMap<K, Flight<V, E>>,
    /// Lookups begun so far, and how many of them are under way, disowned ones included.
    begun: u64,
    under_way: usize,
    /// How long lookups take, smoothed: when a refused caller may find room.
    typical: Duration,
}

struct Flight<V, E> {
    number: u64,
    /// Weak: only callers keep a lookup alive, since only they drive it.
    lookup: WeakShared<Lookup<V, E>>,
}

type LookupResult<V, E> = Result<CachedAnswer<V>, LookupError<E>>;
type Lookup<V, E> = BoxFuture<'static, LookupResult<V, E>>;

enum Found<V, E> {
    Kept(CachedAnswer<V>),
    Flight(Shared<Lookup<V, E>>),
}

impl<K, V, E> Fresh<K, V, E>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    /// No time in `config` is longer than a day.
    pub fn new(mut config: FreshConfig) -> Self {
        for time in [&mut config.yes, &mut config.no, &mut config.lookup] {
            *time = LONGEST.min(*time);
        }
        Self(Arc::new(Cache {
            config,
            state: Mutex::new(State {
                answers: Expiring::new(config.answers),
                flights: HashMap::new(),
                begun: 0,
                under_way: 0,
                typical: config.lookup,
            }),
            counts: Counts::default(),
        }))
    }

    /// The kept answer for `key` if there is one, or that of a lookup. `lookup` is run only if none
    /// for this key is under way; it is given the deadline by which it will be dropped.
    pub async fn get<F>(
        &self,
        key: &K,
        deadline: Deadline,
        lookup: impl FnOnce(Deadline) -> F + Send + 'static,
    ) -> Result<CachedAnswer<V>, LookupError<E>>
    where
        F: Future<Output = Result<Option<V>, E>> + Send + 'static,
    {
        match self.find(key, deadline, lookup)? {
            Found::Kept(answer) => Ok(answer),
            Found::Flight(flight) => {
                deadline.bound(flight).await.unwrap_or_else(|Expired| Err(LookupError::Expired))
            }
        }
    }

    /// The next call for `key` begins a new lookup.
    pub fn reset(&self, key: &K) {
        let mut state = self.0.state.lock();
        let removed = (state.answers.remove(key), state.flights.remove(key));
        drop(state);
        drop(removed);
        self.0.counts.resets.inc();
    }

    /// The next call for any key begins a new lookup.
    pub fn reset_all(&self) {
        let mut state = self.0.state.lock();
        let removed = (state.answers.take(), std::mem::take(&mut state.flights));
        drop(state);
        drop(removed);
        self.0.counts.resets.inc();
    }

    pub fn register(&self, registry: &mut Registry) {
        let label = ("fresh".into(), self.0.config.name.into());
        self.0.counts.register(registry.sub_registry_with_label(label));
    }

    fn find<F>(
        &self,
        key: &K,
        deadline: Deadline,
        lookup: impl FnOnce(Deadline) -> F + Send + 'static,
    ) -> Result<Found<V, E>, LookupError<E>>
    where
        F: Future<Output = Result<Option<V>, E>> + Send + 'static,
    {
        let Cache { config, counts, .. } = &*self.0;
        let now = Instant::now();
        let mut state = self.0.state.lock();
        if let Some(answer) = state.answers.get(key, now) {
            counts.hits.inc();
            return Ok(Found::Kept(answer.clone()));
        }
        if let Some(flight) = state.flights.get(key).and_then(|flight| flight.lookup.upgrade()) {
            counts.joined.inc();
            return Ok(Found::Flight(flight));
        }
        if now >= deadline.instant() {
            return Err(LookupError::Expired);
        }
        if state.under_way >= config.lookups {
            counts.refused.inc();
            return Err(LookupError::Busy { retry_after: state.typical });
        }
        state.begun += 1;
        state.under_way += 1;
        let number = state.begun;
        let landing = Landing {
            cache: Arc::clone(&self.0),
            key: key.clone(),
            number,
            asked: now,
            landed: false,
        };
        let flight = landing.fly(lookup).boxed().shared();
        let lookup = flight.downgrade().expect("a lookup that was not polled has not ended");
        state.flights.insert(key.clone(), Flight { number, lookup });
        Ok(Found::Flight(flight))
    }
}

/// A lookup's way back into the cache, taken also if it is dropped half way.
struct Landing<K: Clone + Eq + Hash, V, E> {
    cache: Arc<Cache<K, V, E>>,
    key: K,
    number: u64,
    asked: Instant,
    landed: bool,
}

impl<K: Clone + Eq + Hash, V, E> Landing<K, V, E> {
    async fn fly<F>(mut self, lookup: impl FnOnce(Deadline) -> F) -> LookupResult<V, E>
    where
        F: Future<Output = Result<Option<V>, E>>,
    {
        let allowed = self.cache.config.lookup;
        let deadline = Deadline::at(self.asked + allowed);
        // `lookup` is called inside, so that its own panic is caught as well.
        let bounded = deadline.bound(async move { lookup(deadline).await });
        let outcome = match AssertUnwindSafe(bounded).catch_unwind().await {
            Ok(Ok(Ok(value))) => Ok(CachedAnswer { value: value.map(Arc::new), asked: self.asked }),
            Ok(Ok(Err(error))) => Err(LookupError::Failed(Arc::new(error))),
            Ok(Err(Expired)) => Err(LookupError::TooSlow(allowed)),
            Err(panic) => Err(LookupError::Panicked(panic_message(&*panic).into())),
        };
        self.cache.counts.ended(&outcome, self.asked.elapsed());
        self.land(outcome.as_ref().ok());
        outcome
    }

    fn land(&mut self, answer: Option<&CachedAnswer<V>>) {
        self.landed = true;
        let now = Instant::now();
        let mut state = self.cache.state.lock();
        state.under_way -= 1;
        state.typical = (state.typical * 7 + (now - self.asked)) / 8;
        let own = state.flights.get(&self.key).is_some_and(|flight| flight.number == self.number);
        if !own {
            return;
        }
        state.flights.remove(&self.key);
        if let Some(answer) = answer {
            let end = self.asked + self.cache.config.lifetime(answer, fastrand::f64());
            let displaced = state.answers.insert(self.key.clone(), answer.clone(), end, now);
            drop(state);
            drop(displaced);
        }
    }
}

impl<K: Clone + Eq + Hash, V, E> Drop for Landing<K, V, E> {
    fn drop(&mut self) {
        if !self.landed {
            self.cache.counts.outcome("abandoned");
            self.land(None);
        }
    }
}

impl FreshConfig {
    fn lifetime<V>(&self, answer: &CachedAnswer<V>, chance: f64) -> Duration {
        let most = if answer.value.is_some() { self.yes } else { self.no };
        most - most.mul_f64(chance / 10.0)
    }
}

#[derive(Default)]
struct Counts {
    hits: Counter,
    joined: Counter,
    refused: Counter,
    resets: Counter,
    lookups: Family<[(&'static str, &'static str); 1], Counter>,
    took: Histogram,
}

impl Counts {
    fn ended<V, E>(&self, outcome: &LookupResult<V, E>, took: Duration) {
        self.took.observe(took);
        self.outcome(match outcome {
            Ok(CachedAnswer { value: Some(_), .. }) => "yes",
            Ok(CachedAnswer { value: None, .. }) => "no",
            Err(LookupError::TooSlow(_)) => "too_slow",
            Err(LookupError::Panicked(_)) => "panicked",
            Err(_) => "failed",
        });
    }

    fn outcome(&self, outcome: &'static str) {
        self.lookups.get_or_create(&[("outcome", outcome)]).inc();
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("fresh_hits", "Calls answered from the cache", self.hits.clone());
        registry.register("fresh_joined", "Calls that joined a lookup", self.joined.clone());
        registry.register("fresh_refused", "Calls refused for want of room", self.refused.clone());
        registry.register("fresh_resets", "Resets", self.resets.clone());
        registry.register("fresh_lookups", "Lookups by outcome", self.lookups.clone());
        registry.register("fresh_lookup_seconds", "Time lookups took", self.took.clone());
    }
}

impl<K: Clone + Eq + Hash, V, E> Clone for Fresh<K, V, E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V> Clone for CachedAnswer<V> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), asked: self.asked }
    }
}

impl<E> Clone for LookupError<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(Arc::clone(error)),
            Self::TooSlow(allowed) => Self::TooSlow(*allowed),
            Self::Panicked(said) => Self::Panicked(Arc::clone(said)),
            Self::Expired => Self::Expired,
            Self::Busy { retry_after } => Self::Busy { retry_after: *retry_after },
        }
    }
}

impl<V: fmt::Debug> fmt::Debug for CachedAnswer<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedAnswer")
            .field("value", &self.value)
            .field("asked", &self.asked)
            .finish()
    }
}

impl<K: Clone + Eq + Hash, V, E> fmt::Debug for Fresh<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fresh").field("config", &self.0.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(feature = "shuttle")]
mod explore;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
