//! `Connector`: the task of one cluster. It connects, probes, and publishes the cluster's state.
//!
//! Contract:
//! - Clusters share nothing but the bounds in [`FleetContext`]: none waits for another.
//! - A cluster is probed every [`Timing::probe`](crate::Timing), and at once on its [`ProbeTrigger`]. A
//!   cluster that has not answered for [`Timing::slow`](crate::Timing) is no longer ready.
//! - After a failure the connector opens a new connection: an old one may be dead without a sign.
//! - New credentials make a new client, which replaces the old one once the cluster has answered it.
//!   Until then the old client is used.
//! - A connector whose cluster was removed, or has another server now, publishes nothing any more.

mod machine;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use jiff::Timestamp;
use stallproof::tasks::TaskHandle;
use stallproof::{Deadline, Snapshot};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use tracing::{debug, info};

use crate::client::{ClusterClient, FirstReply, VersionReply, connect};
use crate::connection::{ClusterCalls, Connection};
use crate::context::FleetContext;
use crate::credentials::{Access, Credentials, fetch};
use crate::discovery::watch_definitions;
use crate::failure::{Failure, Reason};
use crate::view::{FleetView, Heartbeat, State};
use machine::{Event, HealthMachine, Transition};

/// Nodes come and go slowly, and counting them costs the API server more than its version.
const COUNT_NODES: Duration = Duration::from_secs(60);

/// Has a cluster's connector probe now.
#[derive(Debug, Default)]
pub(crate) struct ProbeTrigger {
    requested: Notify,
    rebuild: AtomicBool,
}

impl ProbeTrigger {
    /// Asks for a probe: a call failed, or a user wants to know.
    pub(crate) fn probe(&self) {
        self.requested.notify_one();
    }

    /// Asks for a new client: the credentials of this one are about to expire.
    pub(crate) fn rebuild(&self) {
        self.rebuild.store(true, Relaxed);
        self.requested.notify_one();
    }
}

/// Requests within this time cause one probe: a burst of failing calls must not become one of probes.
const TRIGGER_GAP: Duration = Duration::from_millis(500);

pub(crate) struct Connector {
    pub(crate) cluster: Arc<str>,
    /// Tells this cluster from earlier ones of the same name.
    pub(crate) incarnation: u64,
    pub(crate) calls: Arc<ClusterCalls>,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) context: Arc<FleetContext>,
    pub(crate) published: Snapshot<FleetView>,
}

impl Connector {
    /// Runs until the sender of `wanted` is dropped.
    pub(crate) async fn run(self, mut wanted: watch::Receiver<Arc<Access>>) {
        let access = Arc::clone(&wanted.borrow_and_update());
        let mut cluster = Cluster::new(self, access);
        loop {
            let trigger = Arc::clone(&cluster.me.calls.trigger);
            // Boxed while it lasts: between turns, which is nearly always, a cluster's task is small.
            let turn = Box::pin(cluster.turn());
            let turn_and_wait = async {
                let next = turn.await;
                let triggered = async {
                    sleep(TRIGGER_GAP).await;
                    trigger.requested.notified().await;
                };
                let _ = Deadline::after(next).bound(triggered).await;
            };
            tokio::select! {
                biased;
                changed = wanted.changed() => match changed {
                    Ok(()) => {
                        let access = Arc::clone(&wanted.borrow_and_update());
                        cluster.change(access);
                    }
                    Err(_) => return,
                },
                () = turn_and_wait => {}
            }
        }
    }
}

struct Cluster {
    me: Connector,
    access: Arc<Access>,
    machine: HealthMachine,
    client: Option<Arc<ClusterClient>>,
    /// The credentials for the next client; those of `client` may be older.
    credentials: Option<Arc<Credentials>>,
    /// Whether the last attempt timed out.
    is_suspect: bool,
    facts: ClusterFacts,
    nodes_due: Instant,
    definitions: Option<Definitions>,
}

/// The task that watches the cluster's definitions. It ends when this is dropped.
struct Definitions(TaskHandle<()>);

impl Drop for Definitions {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Facts about a cluster that probes have brought.
#[derive(Clone, Debug, Default)]
struct ClusterFacts {
    version: Option<String>,
    nodes: Option<u64>,
}

impl Cluster {
    fn new(me: Connector, access: Arc<Access>) -> Self {
        Self {
            access,
            machine: HealthMachine::new(&me.context.timing),
            me,
            client: None,
            credentials: None,
            is_suspect: false,
            facts: ClusterFacts::default(),
            nodes_due: Instant::now(),
            definitions: None,
        }
    }

    /// Takes new credentials for the same server. Another server would be another connector.
    fn change(&mut self, access: Arc<Access>) {
        self.credentials = None;
        self.access = access;
    }

    /// Connects or probes, publishes the result, and returns the time until the next turn.
    async fn turn(&mut self) -> Duration {
        if self.me.calls.trigger.rebuild.swap(false, Relaxed) {
            self.credentials = None;
        }
        let client = self.client.clone().filter(|client| {
            let newest = self.credentials.as_ref();
            self.machine.failures() == 0
                && newest.is_some_and(|newest| Arc::ptr_eq(newest, &client.credentials))
        });
        match client {
            Some(client) => self.probe(&client).await,
            None => self.reconnect().await,
        }
    }

    async fn reconnect(&mut self) -> Duration {
        let ConnectAttempt { credentials, result } = self.new_client().await;
        self.is_suspect = matches!(&result, Err(failure) if failure.reason == Reason::Timeout);
        self.credentials = credentials;
        match result {
            Ok((client, FirstReply { answer, nodes })) => {
                info!(cluster = %self.me.cluster, version = answer.version, "connected");
                self.me.context.metrics.connects.inc();
                self.facts.nodes = nodes;
                self.nodes_due = Instant::now() + COUNT_NODES;
                let client = Arc::new(client);
                self.client = Some(Arc::clone(&client));
                self.answered(&client, answer).await
            }
            Err(failure) => match self.older_reply().await {
                Some(answer) => {
                    self.me.heartbeat.record(Timestamp::now(), answer.latency);
                    self.me.context.metrics.failed(failure.reason);
                    self.publish(&Event::Kept(&failure))
                }
                None => self.failed(&failure),
            },
        }
    }

    /// Makes a new client. Meanwhile the client in use, if there is one, is probed as ever: a plugin
    /// may take long to give new credentials, and a cluster that is shown as ready must be ready.
    async fn new_client(&mut self) -> ConnectAttempt {
        let Connector { cluster, context, calls, .. } = &self.me;
        let timing = context.timing;
        let mut reaching = std::pin::pin!(reach(
            Arc::clone(cluster),
            Arc::clone(&self.access),
            self.credentials.take(),
            self.is_suspect,
            Arc::clone(context),
            Arc::clone(&calls.trigger),
        ));
        loop {
            if let Ok(reached) = Deadline::after(timing.probe).bound(&mut reaching).await {
                return reached;
            }
            let Some(client) = self.client.clone() else { continue };
            let answer = tokio::select! {
                reached = &mut reaching => return reached,
                answer = client.ask(Deadline::after(timing.answer)) => answer,
            };
            match answer {
                Ok(answer) => self.me.heartbeat.record(Timestamp::now(), answer.latency),
                Err(failure) => {
                    self.failed(&failure);
                }
            }
        }
    }

    /// Probes the client in use, if there is one and it has older credentials.
    async fn older_reply(&self) -> Option<VersionReply> {
        let newest = self.credentials.as_ref();
        let older = self
            .client
            .as_ref()
            .filter(|client| newest.is_none_or(|newest| !Arc::ptr_eq(newest, &client.credentials)));
        older?.ask(Deadline::after(self.me.context.timing.answer)).await.ok()
    }

    async fn probe(&mut self, client: &Arc<ClusterClient>) -> Duration {
        let timing = self.me.context.timing;
        let mut asking = std::pin::pin!(client.ask(Deadline::after(timing.answer)));
        let answer = match Deadline::after(timing.slow).bound(&mut asking).await {
            Ok(answer) => answer,
            Err(_) => {
                self.publish(&Event::Slow(timing.slow));
                asking.await
            }
        };
        match answer {
            Ok(answer) => self.answered(client, answer).await,
            Err(failure) => {
                if failure.reason == Reason::Unauthorised {
                    client.credentials.were_refused();
                }
                self.failed(&failure)
            }
        }
    }

    /// Publishes that the cluster can be used, then asks for its health and its nodes.
    async fn answered(&mut self, client: &Arc<ClusterClient>, answer: VersionReply) -> Duration {
        self.me.heartbeat.record(Timestamp::now(), answer.latency);
        self.me.calls.is_back();
        self.facts.version = answer.version;
        // A cluster that reports a problem stays degraded; one that is new or back is shown at once.
        if self.machine.failures() > 0 || !self.is_published() {
            self.publish(&Event::Answered);
        }
        let deadline = Deadline::after(self.me.context.timing.answer);
        let counting = async {
            if Instant::now() < self.nodes_due { None } else { Some(client.nodes(deadline).await) }
        };
        let (complaint, nodes) = tokio::join!(client.complaint(deadline), counting);
        match nodes {
            Some(Ok(nodes)) => {
                self.facts.nodes = nodes;
                self.nodes_due = Instant::now() + COUNT_NODES;
            }
            Some(Err(failure)) => return self.failed(&failure),
            None => {}
        }
        let event = complaint.as_deref().map_or(Event::Answered, Event::Unwell);
        let next = self.publish(&event);
        self.watch_definitions();
        next
    }

    /// Watches definitions from the first answer on, so that a kind that is installed later is found.
    fn watch_definitions(&mut self) {
        let Connector { cluster, published, context, .. } = &self.me;
        self.definitions.get_or_insert_with(|| {
            let (cluster, published) = (Arc::clone(cluster), published.clone());
            let connect = move || published.read(|fleet| fleet.own_connection(&cluster));
            Definitions(watch_definitions(connect, &context.tasks))
        });
    }

    fn failed(&mut self, failure: &Failure) -> Duration {
        self.me.context.metrics.failed(failure.reason);
        debug!(cluster = %self.me.cluster, why = failure.why, "not reached");
        self.publish(&Event::Failed(failure))
    }

    /// Whether callers are given the current client.
    fn is_published(&self) -> bool {
        self.me.published.read(|fleet| {
            let published = fleet.connections.get(&self.me.cluster);
            published.is_some_and(|published| published.is_on(self.client.as_ref()))
        })
    }

    /// Publishes the state that follows from the event, with the connection that belongs to it.
    fn publish(&mut self, event: &Event<'_>) -> Duration {
        let Transition { state, why, next } = self.machine.on(event, fastrand::f64());
        let usable = matches!(state, State::Ready | State::Degraded);
        if !usable {
            self.client = None;
        }
        let now = Timestamp::now();
        let next_try = next.filter(|_| state != State::Ready);
        let next_try = next_try.and_then(|wait| now.checked_add(wait).ok());
        let Self { me, client, facts, .. } = &*self;
        me.published.update(|fleet| {
            let wanted = fleet.wanted.get(&me.cluster);
            let ours = wanted.is_some_and(|wanted| wanted.incarnation == me.incarnation);
            let Some(current) = fleet.clusters.get(&me.cluster).filter(|_| ours) else {
                return false;
            };
            let mut view = (**current).clone();
            if view.state != state {
                view.since = now;
            }
            view.state = state;
            view.why = why;
            view.version.clone_from(&facts.version);
            view.nodes = facts.nodes;
            // A slow probe does not change the time of the next one.
            if next.is_some() {
                view.next_try = next_try;
            }
            let published = fleet.connections.get(&me.cluster);
            let connection = client.as_ref().filter(|_| usable);
            let same_client = match (published, connection) {
                (Some(published), Some(client)) => published.is_on(Some(client)),
                (None, None) => true,
                _ => false,
            };
            if view == **current && same_client {
                return false;
            }
            fleet.clusters.insert(Arc::clone(&me.cluster), Arc::new(view));
            if !same_client {
                match connection {
                    Some(client) => {
                        let connection = Connection::of(&me.cluster, client, &me.calls);
                        fleet.connections.insert(Arc::clone(&me.cluster), connection);
                    }
                    None => {
                        fleet.connections.remove(&me.cluster);
                    }
                }
            }
            true
        });
        next.unwrap_or_default()
    }
}

/// The result of making a new client.
struct ConnectAttempt {
    /// The credentials to use again, unless the cluster refused them.
    credentials: Option<Arc<Credentials>>,
    result: Result<(ClusterClient, FirstReply), Failure>,
}

/// Makes a new client, and returns it once the cluster has answered it.
async fn reach(
    cluster: Arc<str>,
    access: Arc<Access>,
    credentials: Option<Arc<Credentials>>,
    is_suspect: bool,
    context: Arc<FleetContext>,
    trigger: Arc<ProbeTrigger>,
) -> ConnectAttempt {
    let credentials = match credentials {
        Some(credentials) => credentials,
        None => match fetch(&cluster, &access, &context, context.credentials_deadline()).await {
            Ok(fetched) => {
                let renew_in = fetched.renew_in;
                let made = Credentials::new(access, fetched, &context);
                made.keep_fresh(&cluster, renew_in, &context, &trigger);
                made
            }
            Err(failure) => return ConnectAttempt { credentials: None, result: Err(failure) },
        },
    };
    let deadline = Deadline::after(context.attempt_within());
    let result = connect(&credentials, &context, is_suspect, deadline, &mut Vec::new()).await;
    let refused = matches!(&result, Err(failure) if failure.reason == Reason::Unauthorised);
    ConnectAttempt { credentials: (!refused).then_some(credentials), result }
}
