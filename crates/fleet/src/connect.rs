//! One cluster's own task: connects, probes, and publishes what it sees.
//!
//! Contract:
//! - Clusters have nothing in common but the bounds in [`FleetContext`]: none waits for another.
//! - A cluster is asked every [`Timing::probe`](crate::Timing), and at once when somebody rings its
//!   [`ProbeTrigger`]. What has not answered for [`Timing::slow`](crate::Timing) is no longer called ready.
//! - After a failure it is reached on a new connection: an old one may be dead without knowing.
//! - New credentials become a new client, which replaces the old one once it has been answered;
//!   until then the old one is used.
//! - A task whose cluster was removed, or has another server now, publishes nothing any more.

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

use crate::connection::{ClusterCalls, Connection};
use crate::context::FleetContext;
use crate::credentials::{Access, Credentials, fetch};
use crate::discovery::watch_definitions;
use crate::failure::{Failure, Reason};
use crate::link::{ClusterClient, FirstReply, VersionReply, connect};
use crate::view::{FleetView, Heartbeat, State};
use machine::{Event, HealthMachine, Transition};

/// Nodes come and go slowly, and counting them costs the API server more than its version.
const COUNT_NODES: Duration = Duration::from_secs(60);

/// Wakes a cluster's task before its time.
#[derive(Debug, Default)]
pub(crate) struct ProbeTrigger {
    rung: Notify,
    rebuild: AtomicBool,
}

impl ProbeTrigger {
    /// Something is fishy, or somebody wants to know.
    pub(crate) fn probe(&self) {
        self.rung.notify_one();
    }

    /// The client cannot be used much longer.
    pub(crate) fn rebuild(&self) {
        self.rebuild.store(true, Relaxed);
        self.rung.notify_one();
    }
}

/// Rings too often are one ring: a burst of failing calls is not to become a burst of probes.
const RING_GAP: Duration = Duration::from_millis(500);

pub(crate) struct Connector {
    pub(crate) cluster: Arc<str>,
    /// Which life of a cluster by this name.
    pub(crate) incarnation: u64,
    pub(crate) tenant: Arc<ClusterCalls>,
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
            let next = tokio::select! {
                biased;
                changed = wanted.changed() => match changed {
                    Ok(()) => {
                        let access = Arc::clone(&wanted.borrow_and_update());
                        cluster.change(access);
                        continue;
                    }
                    Err(_) => return,
                },
                // On the heap while it lasts: between turns, which is nearly always, a cluster's task
                // is small.
                next = Box::pin(cluster.turn()) => next,
            };
            let trigger = Arc::clone(&cluster.me.tenant.trigger);
            tokio::select! {
                biased;
                changed = wanted.changed() => match changed {
                    Ok(()) => {
                        let access = Arc::clone(&wanted.borrow_and_update());
                        cluster.change(access);
                    }
                    Err(_) => return,
                },
                () = async {
                    sleep(RING_GAP).await;
                    trigger.rung.notified().await;
                } => {}
                () = sleep(next) => {}
            }
        }
    }
}

struct Cluster {
    me: Connector,
    access: Arc<Access>,
    machine: HealthMachine,
    link: Option<Arc<ClusterClient>>,
    /// Those to connect with; those of `link` may be older.
    credentials: Option<Arc<Credentials>>,
    /// The last attempt timed out.
    is_suspect: bool,
    facts: ClusterFacts,
    nodes_due: Instant,
    definitions: Option<Definitions>,
}

/// The watch of its definitions, which ends with this.
struct Definitions(TaskHandle<()>);

impl Drop for Definitions {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What is known of it beside its state.
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
            link: None,
            credentials: None,
            is_suspect: false,
            facts: ClusterFacts::default(),
            nodes_due: Instant::now(),
            definitions: None,
        }
    }

    /// New credentials for the same server: another server is another life, hence another task.
    fn change(&mut self, access: Arc<Access>) {
        self.credentials = None;
        self.access = access;
    }

    /// Connects or probes, publishes, and says when to do so again.
    async fn turn(&mut self) -> Duration {
        if self.me.tenant.trigger.rebuild.swap(false, Relaxed) {
            self.credentials = None;
        }
        let link = self.link.clone().filter(|link| {
            let newest = self.credentials.as_ref();
            self.machine.failures() == 0
                && newest.is_some_and(|newest| Arc::ptr_eq(newest, &link.credentials))
        });
        match link {
            Some(link) => self.probe(&link).await,
            None => self.reconnect().await,
        }
    }

    async fn reconnect(&mut self) -> Duration {
        let ConnectAttempt { credentials, result } = self.reached().await;
        self.is_suspect = matches!(&result, Err(failure) if failure.reason == Reason::Timeout);
        self.credentials = credentials;
        match result {
            Ok((link, FirstReply { answer, nodes })) => {
                info!(cluster = %self.me.cluster, version = answer.version, "connected");
                self.me.context.metrics.connects.inc();
                self.facts.nodes = nodes;
                self.nodes_due = Instant::now() + COUNT_NODES;
                let link = Arc::new(link);
                self.link = Some(Arc::clone(&link));
                self.answered(&link, answer).await
            }
            Err(failure) => match self.older_answer().await {
                Some(answer) => {
                    self.me.heartbeat.beat(Timestamp::now(), answer.latency);
                    self.me.context.metrics.failed(failure.reason);
                    self.publish(&Event::Kept(&failure))
                }
                None => self.failed(&failure),
            },
        }
    }

    /// Reaches it anew. Meanwhile the client that is in use, if there is one, is asked as ever: new
    /// credentials may take a plugin's time to get, and what is called ready must be.
    async fn reached(&mut self) -> ConnectAttempt {
        let Connector { cluster, context, tenant, .. } = &self.me;
        let timing = context.timing;
        let mut reaching = std::pin::pin!(reach(
            Arc::clone(cluster),
            Arc::clone(&self.access),
            self.credentials.take(),
            self.is_suspect,
            Arc::clone(context),
            Arc::clone(&tenant.trigger),
        ));
        loop {
            if let Ok(reached) = Deadline::after(timing.probe).bound(&mut reaching).await {
                return reached;
            }
            let Some(link) = self.link.clone() else { continue };
            let answer = tokio::select! {
                reached = &mut reaching => return reached,
                answer = link.ask(Deadline::after(timing.answer)) => answer,
            };
            match answer {
                Ok(answer) => self.me.heartbeat.beat(Timestamp::now(), answer.latency),
                Err(failure) => {
                    self.failed(&failure);
                }
            }
        }
    }

    /// What the client in use answers, if it is there and has credentials of before.
    async fn older_answer(&self) -> Option<VersionReply> {
        let newest = self.credentials.as_ref();
        let older = self
            .link
            .as_ref()
            .filter(|link| newest.is_none_or(|newest| !Arc::ptr_eq(newest, &link.credentials)));
        older?.ask(Deadline::after(self.me.context.timing.answer)).await.ok()
    }

    async fn probe(&mut self, link: &Arc<ClusterClient>) -> Duration {
        let timing = self.me.context.timing;
        let mut asking = std::pin::pin!(link.ask(Deadline::after(timing.answer)));
        let answer = match Deadline::after(timing.slow).bound(&mut asking).await {
            Ok(answer) => answer,
            Err(_) => {
                self.publish(&Event::Slow(timing.slow));
                asking.await
            }
        };
        match answer {
            Ok(answer) => self.answered(link, answer).await,
            Err(failure) => {
                if failure.reason == Reason::Unauthorised {
                    link.credentials.were_refused();
                }
                self.failed(&failure)
            }
        }
    }

    /// It is usable from this moment; what else there is to know comes after.
    async fn answered(&mut self, link: &Arc<ClusterClient>, answer: VersionReply) -> Duration {
        self.me.heartbeat.beat(Timestamp::now(), answer.latency);
        self.me.tenant.is_back();
        self.facts.version = answer.version;
        // A cluster that complains stays degraded; one that is new or back is shown at once.
        if self.machine.failures() > 0 || !self.is_published() {
            self.publish(&Event::Answered);
        }
        let deadline = Deadline::after(self.me.context.timing.answer);
        let counting = async {
            if Instant::now() < self.nodes_due { None } else { Some(link.nodes(deadline).await) }
        };
        let (complaint, nodes) = tokio::join!(link.complaint(deadline), counting);
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

    /// From its first answer on: a kind that is installed late is then found at once.
    fn watch_definitions(&mut self) {
        let Connector { cluster, published, context, .. } = &self.me;
        self.definitions.get_or_insert_with(|| {
            let (cluster, published) = (Arc::clone(cluster), published.clone());
            let connect = move || published.read(|fleet| fleet.connection(&cluster));
            Definitions(watch_definitions(connect, &context.tasks))
        });
    }

    fn failed(&mut self, failure: &Failure) -> Duration {
        self.me.context.metrics.failed(failure.reason);
        debug!(cluster = %self.me.cluster, why = failure.why, "not reached");
        self.publish(&Event::Failed(failure))
    }

    /// Whether callers are given the present client.
    fn is_published(&self) -> bool {
        self.me.published.read(|fleet| {
            let published = fleet.connections.get(&self.me.cluster);
            published.is_some_and(|published| published.is_on(self.link.as_ref()))
        })
    }

    /// Lets the machine judge, and publishes its verdict with the connection that goes with it.
    fn publish(&mut self, event: &Event<'_>) -> Duration {
        let Transition { state, why, next } = self.machine.on(event, fastrand::f64());
        let usable = matches!(state, State::Ready | State::Degraded);
        if !usable {
            self.link = None;
        }
        let now = Timestamp::now();
        let next_try = next.filter(|_| state != State::Ready);
        let next_try = next_try.and_then(|wait| now.checked_add(wait).ok());
        let Self { me, link, facts, .. } = &*self;
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
            // A probe that is slow leaves the plan as it was.
            if next.is_some() {
                view.next_try = next_try;
            }
            let published = fleet.connections.get(&me.cluster);
            let connection = link.as_ref().filter(|_| usable);
            let same_link = match (published, connection) {
                (Some(published), Some(link)) => published.is_on(Some(link)),
                (None, None) => true,
                _ => false,
            };
            if view == **current && same_link {
                return false;
            }
            fleet.clusters.insert(Arc::clone(&me.cluster), Arc::new(view));
            if !same_link {
                match connection {
                    Some(link) => {
                        let connection = Connection::of(&me.cluster, link, &me.tenant);
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

/// How reaching a cluster went.
struct ConnectAttempt {
    /// To be used again, unless they were refused.
    credentials: Option<Arc<Credentials>>,
    result: Result<(ClusterClient, FirstReply), Failure>,
}

/// A new client that has been answered.
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
