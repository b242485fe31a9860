//! `Connection`: a connected cluster, for one request or as long as somebody holds it.
//!
//! Contract:
//! - Holding it keeps its client and the client's credentials alive: a cluster that is removed or
//!   gets new credentials stops only after its last user.
//! - The calls to one cluster share its places and wait in its own queue, both bounded; a cluster that
//!   keeps failing is left alone for a while. No call waits for a call to another cluster.
//! - Every call is on the ledger as `cluster-call`, with the cluster as tenant.
//! - A call without an answer has the cluster probed now; a 401 has its credentials renewed.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use objects::kinds::Impersonation;
use prometheus_client::metrics::counter::Counter;
use stallproof::backoff::Curve;
use stallproof::breaker::{self, Breaker};
use stallproof::lanes::{LanesConfig, LanesLimits};
use stallproof::ledger::Outcome;
use stallproof::{Deadline, Lanes, Ledger, Refused, Work};
use tokio::time::Instant;

use crate::actor::{self, ActingAs, Actor};
use crate::client::ClusterClient;
use crate::connect::ProbeTrigger;
use crate::context::FleetContext;
use crate::discovery::Discovery;
use crate::error::Error;

/// Concurrent calls to one cluster: what a busy page and a few watchers open together. An API server
/// allows a client hundreds.
const AT_ONCE: usize = 32;
/// Calls that wait for a place: four rounds. A later caller is told to come back.
const WAITING: usize = 128;
/// A call that had less time than this does not count against the cluster when it is late.
const FAIR_TRIAL: Duration = Duration::from_secs(1);

/// A usable cluster. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    cluster: Arc<str>,
    client: kube::Client,
    discovery: Discovery,
    fleet: Option<InFleet>,
    /// Whom requests are made as; none for Fairlead itself.
    acting: Option<ActingAs>,
}

/// The parts of a connection that its fleet shares among all of the cluster's connections.
#[derive(Clone)]
struct InFleet {
    calls: Arc<ClusterCalls>,
    client: Arc<ClusterClient>,
}

impl Connection {
    /// A connection without a fleet: it has no queue, no breaker and no ledger.
    pub fn new(cluster: impl Into<Arc<str>>, client: kube::Client) -> Self {
        Self {
            cluster: cluster.into(),
            client,
            discovery: Discovery::new(),
            fleet: None,
            acting: None,
        }
    }

    pub(crate) fn of(
        cluster: &Arc<str>,
        client: &Arc<ClusterClient>,
        calls: &Arc<ClusterCalls>,
    ) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            client: client.kube_client.clone(),
            discovery: calls.discovery.clone(),
            fleet: Some(InFleet { calls: Arc::clone(calls), client: Arc::clone(client) }),
            acting: None,
        }
    }

    /// How users act on the cluster under their own names, if they do.
    pub(crate) fn impersonation(&self) -> Option<&Impersonation> {
        let fleet = self.fleet.as_ref()?;
        fleet.client.credentials.access.impersonation.as_ref()
    }

    /// The connection on which everything is done as `actor`; the same one where users do not act under
    /// their own names.
    pub(crate) fn acting_as(&self, actor: &Actor) -> Result<Self, Error> {
        let Some(impersonation) = self.impersonation() else { return Ok(self.clone()) };
        let own = self.as_itself();
        let acting = ActingAs::new(&self.cluster, impersonation, actor)?;
        Ok(Self { client: acting.client(&own.client), acting: Some(acting), ..own })
    }

    /// The connection on which everything is done as Fairlead itself.
    pub(crate) fn as_itself(&self) -> Self {
        match (&self.acting, &self.fleet) {
            (Some(_), Some(fleet)) => {
                Self { client: fleet.client.kube_client.clone(), acting: None, ..self.clone() }
            }
            _ => self.clone(),
        }
    }

    /// Whether requests are made as somebody.
    pub(crate) fn is_acting(&self) -> bool {
        self.acting.is_some()
    }

    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The client itself, for watches: they pace themselves and need no place among the calls.
    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The kinds that the cluster serves, as far as they were discovered.
    pub fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    /// Makes one call to the cluster within the deadline. `doing` completes "while …" in errors.
    pub async fn call<T, F>(
        &self,
        doing: &'static str,
        deadline: Deadline,
        work: impl FnOnce(kube::Client) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let Some(InFleet { calls, client }) = &self.fleet else {
            return self.answered(doing, deadline.bound(work(self.client.clone())).await.ok());
        };
        let op = calls.ledger.begin("cluster-call", doing, self.cluster.to_string());
        let turn = calls.next_call.fetch_add(1, Relaxed);
        // Boxed, because the call is part of every future that makes it, and those nest deeply.
        let job = Box::pin(async {
            // The breaker is asked once the call has a place: waiting says nothing about the cluster.
            let attempt = calls.breaker.try_pass()?;
            let began = Instant::now();
            let result = deadline.bound(work(self.client.clone())).await.ok();
            match &result {
                // A refusal is an answer, too.
                Some(Ok(_) | Err(kube::Error::Api(_))) => attempt.succeeded(),
                Some(Err(error)) if !is_network_error(error) => attempt.succeeded(),
                None if began.elapsed() < FAIR_TRIAL => drop(attempt),
                None | Some(Err(_)) => {
                    attempt.failed();
                    calls.trigger.probe();
                }
            }
            if let Some(Err(kube::Error::Api(status))) = &result
                && status.code == 401
            {
                client.credentials.were_refused();
                calls.trigger.probe();
            }
            Ok(result)
        });
        let work = Work { op: Some(&op), ..Work::new(turn, "", deadline) };
        let result = match calls.lanes.run(work, job).await {
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
                calls.refused.inc();
                Outcome::Refused
            }
            Err(Error::TooLate { .. }) => Outcome::Expired,
            Err(_) => Outcome::Failed,
        });
        result
    }

    /// `None` means that the deadline passed.
    fn answered<T>(
        &self,
        doing: &'static str,
        result: Option<Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        let cluster = self.cluster.to_string();
        match result {
            Some(Ok(value)) => Ok(value),
            Some(Err(kube::Error::Api(status)))
                if self.acting.is_some() && actor::is_refusal(&status) =>
            {
                let why =
                    format!("the cluster does not let Fairlead's account ({})", status.message);
                Err(Error::Impersonation { cluster, why })
            }
            Some(Err(kube::Error::Api(status))) => Err(Error::Refused { cluster, status }),
            Some(Err(error)) => Err(Error::Unreachable {
                cluster,
                doing: doing.to_owned(),
                source: Arc::new(error),
            }),
            None => Err(Error::TooLate { cluster, doing: doing.to_owned() }),
        }
    }

    /// Whether both use the same client, as the same user. A watch that was opened on another client keeps that client's
    /// server and credentials.
    pub fn is_same_client(&self, other: &Self) -> bool {
        self.is_on(other.fleet.as_ref().map(|fleet| &fleet.client)) && self.acting == other.acting
    }

    /// Whether this connection uses `client`.
    pub(crate) fn is_on(&self, client: Option<&Arc<ClusterClient>>) -> bool {
        self.fleet
            .as_ref()
            .zip(client)
            .is_some_and(|(fleet, client)| Arc::ptr_eq(&fleet.client, client))
    }
}

/// Whether the error is the network's. Other errors are about the request or its answer, and show that
/// the cluster is there.
fn is_network_error(error: &kube::Error) -> bool {
    use kube::Error as E;
    matches!(error, E::HyperError(_) | E::Service(_) | E::ReadEvents(_))
}

/// The queue, the breaker and the discovered kinds of one cluster. They outlive its clients.
pub(crate) struct ClusterCalls {
    /// Each call has a key of its own: calls need no order, only places.
    lanes: Lanes<u64>,
    next_call: AtomicU64,
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
            next_call: AtomicU64::new(0),
            breaker: Breaker::new(breaker::BreakerConfig {
                name: "cluster-calls",
                failures: 5,
                // The connector closes it when the cluster is back; this is for the time until then.
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

    /// Closes the breaker: the cluster has answered a probe.
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
