//! `Connection`: one cluster as one request uses it.
//!
//! Contract:
//! - Holding it keeps its client and the client's credentials alive: a cluster that is removed or
//!   gets new credentials stops only after its last user.
//! - Calls of one cluster share its places and wait in its own line, both bounded; a cluster that
//!   keeps failing is left alone for a while. No cluster's calls wait for another's.
//! - Every call is on the ledger as `cluster-call`, with the cluster as tenant.
//! - A call that finds the cluster silent has it looked at now; one that is answered with 401 has
//!   its credentials renewed.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use stallproof::backoff::Curve;
use stallproof::breaker::{self, Breaker};
use stallproof::lanes::{LanesConfig, LanesLimits};
use stallproof::ledger::Outcome;
use stallproof::{Deadline, Lanes, Ledger, Refused, Work};
use tokio::time::Instant;

use crate::connect::ProbeTrigger;
use crate::context::FleetContext;
use crate::discovery::Discovery;
use crate::error::Error;
use crate::link::ClusterClient;

/// Calls of one cluster at once: what a busy page and a few watchers open together. An API server
/// lets a client have hundreds.
const AT_ONCE: usize = 32;
/// Calls that wait for a place: four rounds. Whoever comes later is better told to come back.
const WAITING: usize = 128;
/// A call that had less time than this says nothing about the cluster when it is late.
const FAIR_TRIAL: Duration = Duration::from_secs(1);

/// A usable cluster. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    cluster: Arc<str>,
    client: kube::Client,
    discovery: Discovery,
    fleet: Option<InFleet>,
}

/// What a connection has that belongs to a fleet.
#[derive(Clone)]
struct InFleet {
    tenant: Arc<ClusterCalls>,
    link: Arc<ClusterClient>,
}

impl Connection {
    /// On its own, without a fleet's share, breaker and ledger.
    pub fn new(cluster: impl Into<Arc<str>>, client: kube::Client) -> Self {
        Self { cluster: cluster.into(), client, discovery: Discovery::new(), fleet: None }
    }

    pub(crate) fn of(
        cluster: &Arc<str>,
        link: &Arc<ClusterClient>,
        tenant: &Arc<ClusterCalls>,
    ) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            client: link.client.clone(),
            discovery: tenant.discovery.clone(),
            fleet: Some(InFleet { tenant: Arc::clone(tenant), link: Arc::clone(link) }),
        }
    }

    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The client itself, for watches: they pace themselves and need no place among the calls.
    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// What is known of the kinds it serves.
    pub fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    /// Runs one call of this cluster, within the deadline. `doing` completes "while …".
    pub async fn call<T, F>(
        &self,
        doing: &'static str,
        deadline: Deadline,
        work: impl FnOnce(kube::Client) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let Some(InFleet { tenant, link }) = &self.fleet else {
            return self.answered(doing, deadline.bound(work(self.client.clone())).await.ok());
        };
        let op = tenant.ledger.begin("cluster-call", doing, self.cluster.to_string());
        let turn = tenant.calls.fetch_add(1, Relaxed);
        // On the heap: what is called is part of every future that calls, and those nest deeply.
        let job = Box::pin(async {
            // Asked in its turn: a place in the line says nothing about the cluster.
            let attempt = tenant.breaker.try_pass()?;
            let began = Instant::now();
            let result = deadline.bound(work(self.client.clone())).await.ok();
            match &result {
                // An answer is an answer, also one that says no.
                Some(Ok(_) | Err(kube::Error::Api(_))) => attempt.succeeded(),
                Some(Err(error)) if !is_of_the_network(error) => attempt.succeeded(),
                None if began.elapsed() < FAIR_TRIAL => drop(attempt),
                None | Some(Err(_)) => {
                    attempt.failed();
                    tenant.trigger.probe();
                }
            }
            if let Some(Err(kube::Error::Api(status))) = &result
                && status.code == 401
            {
                link.credentials.were_refused();
                tenant.trigger.probe();
            }
            Ok(result)
        });
        let work = Work { op: Some(&op), ..Work::new(turn, "", deadline) };
        let result = match tenant.lanes.run(work, job).await {
            Ok(Ok(result)) => self.answered(doing, result),
            Ok(Err(breaker::Open { retry_after })) => Err(Error::Busy {
                cluster: self.cluster.to_string(),
                why: "it failed several calls in a row and is left alone for a moment".to_owned(),
                retry_after,
            }),
            Err(Refused::Full { retry_after }) => Err(Error::Busy {
                cluster: self.cluster.to_string(),
                why: format!("{AT_ONCE} calls are under way and {WAITING} wait already"),
                retry_after,
            }),
            Err(Refused::Expired(_) | Refused::Closed) => self.answered(doing, None),
        };
        op.finish(match &result {
            Ok(_) => Outcome::Done,
            Err(Error::Busy { .. }) => {
                tenant.refused.inc();
                Outcome::Refused
            }
            Err(Error::TooLate { .. }) => Outcome::Expired,
            Err(_) => Outcome::Failed,
        });
        result
    }

    /// `None`: not in time.
    fn answered<T>(
        &self,
        doing: &'static str,
        result: Option<Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        let cluster = self.cluster.to_string();
        match result {
            Some(Ok(value)) => Ok(value),
            Some(Err(kube::Error::Api(status))) => Err(Error::Refused { cluster, status }),
            Some(Err(error)) => Err(Error::Unreachable {
                cluster,
                doing: doing.to_owned(),
                source: Arc::new(error),
            }),
            None => Err(Error::TooLate { cluster, doing: doing.to_owned() }),
        }
    }

    /// Whether a call on either goes through the same client. A watch that was opened on another one
    /// goes on with what that one had: another server, credentials of before.
    pub fn is_same_client(&self, other: &Self) -> bool {
        self.is_on(other.fleet.as_ref().map(|fleet| &fleet.link))
    }

    /// Whether this is what its fleet makes of `link`.
    pub(crate) fn is_on(&self, link: Option<&Arc<ClusterClient>>) -> bool {
        self.fleet.as_ref().zip(link).is_some_and(|(fleet, link)| Arc::ptr_eq(&fleet.link, link))
    }
}

/// Others are about the request or its answer, and say that the cluster is there.
fn is_of_the_network(error: &kube::Error) -> bool {
    use kube::Error as E;
    matches!(error, E::HyperError(_) | E::Service(_) | E::ReadEvents(_))
}

/// One cluster's standing with its callers. Outlives its clients.
pub(crate) struct ClusterCalls {
    /// A key for each call: they need no order, only places.
    lanes: Lanes<u64>,
    calls: AtomicU64,
    breaker: Breaker,
    ledger: Ledger,
    refused: Counter,
    discovery: Discovery,
    pub(crate) trigger: Arc<ProbeTrigger>,
}

impl ClusterCalls {
    pub(crate) fn new(context: &FleetContext) -> Self {
        let limits = LanesLimits {
            workers: AT_ONCE,
            per_tenant: AT_ONCE,
            queue: WAITING,
            queue_per_tenant: WAITING,
            queue_per_key: 1,
            max_cost: 1,
        };
        Self {
            lanes: Lanes::new(LanesConfig { name: Cow::Borrowed("cluster-calls"), limits }),
            calls: AtomicU64::new(0),
            breaker: Breaker::new(breaker::BreakerConfig {
                name: "cluster-calls",
                failures: 5,
                // Its prober finds out when it is back; this is for the time until then.
                open: Curve { first: Duration::from_secs(1), most: Duration::from_secs(10) },
                probe: Duration::from_secs(10),
                tenants: 1,
                forget: Duration::from_secs(60),
            }),
            ledger: context.ledger.clone(),
            refused: context.metrics.refused_calls.clone(),
            discovery: Discovery::new(),
            trigger: Arc::default(),
        }
    }

    /// The cluster answered its prober: calls may try again.
    pub(crate) fn is_back(&self) {
        if let Ok(attempt) = self.breaker.try_pass() {
            attempt.succeeded();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
