//! `Notifier`: follows receivers, their Secrets and response rules, and runs everything of this crate.
//!
//! Every replica has one, with an outbox of its own: it tells of what arose in it. Nothing is coordinated.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Resource;
use kube::core::ObjectMeta;
use objects::kinds::{EventKind, EventLevel, Receiver, ReceiverSpec, ResponseRule};
use objects::{Expected, Kind, Objects, Watched, Within};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use stallproof::{Deadline, Ledger, Snapshot, Tasks};
use tracing::{info, warn};

use crate::bus::EventBus;
use crate::cluster_events::ClusterEvents;
use crate::delivery::{Condition, Delivery, Prepared};
use crate::event::Event;
use crate::metrics::Metrics;
use crate::outbox::{Outbox, OutboxLimits};
use crate::router::{Quarantine, Router};
use crate::rules::ResponseRules;
use crate::send::{DeliveryError, EventSender};
use crate::target::{Credentials, SECRET_LABEL, Target};

/// For one reading of the Secrets.
const READ: Duration = Duration::from_secs(10);
/// The wait before Secrets that could not be read are read again.
const AGAIN: Duration = Duration::from_secs(5);
/// For the task of a receiver that was changed or removed: it leaves at its next wait.
const GRACE: Duration = Duration::from_secs(2);
/// The receivers that are sent to; one more waits for its turn and says so.
pub const MOST_RECEIVERS: usize = 64;

#[derive(Clone)]
pub struct NotifierSettings {
    /// Where the outbox is kept.
    pub dir: PathBuf,
    /// Fairlead's own namespace, in which the Secrets of receivers are.
    pub namespace: String,
    pub limits: OutboxLimits,
    /// Where violations and denials are Kubernetes Events; none where nowhere.
    pub cluster: Option<kube::Client>,
}

/// A handle; clones are the same.
#[derive(Clone)]
pub struct Notifier(Arc<Inner>);

struct Inner {
    settings: NotifierSettings,
    objects: Objects,
    outbox: Outbox,
    bus: EventBus,
    receivers: Snapshot<Watched<Arc<str>, Arc<Receiver>>>,
    rules: Snapshot<Watched<Arc<str>, Arc<ResponseRule>>>,
    compiled: Snapshot<ResponseRules>,
    /// Those that are sent to.
    active: Snapshot<BTreeMap<Arc<str>, Arc<str>>>,
    /// Written by the task that follows receivers, read by whoever lists them.
    running: Mutex<BTreeMap<Arc<str>, Running>>,
    ledger: Ledger,
    metrics: Metrics,
}

#[derive(Clone)]
struct Running {
    queue: Arc<str>,
    target: Snapshot<Prepared>,
    condition: Arc<Mutex<Condition>>,
    tasks: Tasks,
}

/// A receiver, and how it fares in this replica.
#[derive(Clone, Debug)]
pub struct ReceiverView {
    pub name: String,
    pub spec: ReceiverSpec,
    /// What is wrong with it or with its Secret.
    pub wrong: Option<String>,
    /// Notifications that wait.
    pub queued: u64,
    /// Notifications that it took since this process began.
    pub delivered: u64,
    /// Notifications that were not kept since this process began.
    pub dropped: u64,
    pub last_delivery: Option<Timestamp>,
    /// Why it does not take notifications, and since when.
    pub failing: Option<(String, Timestamp, u32)>,
}

/// Why a test notification was not taken.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    #[error("no receiver has the name {0:?}; `fairlead receivers list` shows those there are")]
    Unknown(String),
    #[error("the receiver cannot be sent to: {0}")]
    Wrong(String),
    #[error("the receiver did not take it: {0}")]
    NotTaken(#[source] DeliveryError),
}

impl Notifier {
    /// Opens the outbox and follows the store. Blocks for the opening alone.
    pub fn start(
        settings: NotifierSettings,
        objects: &Objects,
        quarantine: Option<Arc<dyn Quarantine>>,
        ledger: &Ledger,
        tasks: &Tasks,
        registry: &mut Registry,
    ) -> io::Result<Self> {
        let metrics = Metrics::default();
        metrics.register(registry);
        ledger.expect("notify", crate::send::ATTEMPT + Duration::from_secs(5));
        let outbox = Outbox::with_metrics(&settings.dir, settings.limits, metrics.clone(), tasks)?;
        let (bus, events) = EventBus::new(metrics.clone());
        let receivers = objects.watched::<Receiver, Arc<str>>(Within::default(), tasks);
        let rules = objects.watched::<ResponseRule, Arc<str>>(Within::default(), tasks);
        let notifier = Self(Arc::new(Inner {
            settings,
            objects: objects.clone(),
            outbox,
            bus,
            receivers,
            rules,
            compiled: Snapshot::new(ResponseRules::default()),
            active: Snapshot::new(BTreeMap::new()),
            running: Mutex::default(),
            ledger: ledger.clone(),
            metrics: metrics.clone(),
        }));
        let cluster = notifier.0.settings.cluster.clone();
        let cluster_events = cluster.map(|client| {
            let (events, writer) = ClusterEvents::new(client, metrics.clone());
            tasks.spawn("cluster events", writer.run(tasks.stopping()));
            events
        });
        let router = Router {
            cluster_events,
            rules: notifier.0.compiled.clone(),
            receivers: notifier.0.active.clone(),
            outbox: notifier.0.outbox.clone(),
            quarantine,
            metrics,
            tasks: tasks.clone(),
        };
        tasks.spawn("event router", router.run(events, tasks.stopping()));
        tasks.spawn("response rules", notifier.clone().follow_rules(tasks.clone()));
        tasks.spawn("receivers", notifier.clone().follow_receivers(tasks.clone()));
        Ok(notifier)
    }

    /// Where producers hand events in.
    pub fn bus(&self) -> EventBus {
        self.0.bus.clone()
    }

    /// Every receiver, by name. Whether the store has told all of them is the second value.
    pub fn receivers(&self) -> (Vec<ReceiverView>, bool) {
        let receivers = self.0.receivers.load();
        let running = self.0.running.lock().clone();
        let views = receivers.iter().map(|(name, receiver)| {
            let called = queue_of(receiver);
            let queue = self.0.outbox.queue(&called);
            let run = running.get(name).filter(|run| run.queue == called);
            let condition = run.map(|run| run.condition.lock().clone()).unwrap_or_default();
            let prepared = run.and_then(|run| run.target.load().as_ref().err().cloned());
            let invalid = receiver.check().err().map(|invalid| stallproof::sentence(&invalid));
            let many = (run.is_none() && !receiver.spec.disabled && receivers.synced).then(|| {
                format!("it is not followed yet, or there are more than {MOST_RECEIVERS} receivers")
            });
            ReceiverView {
                name: name.to_string(),
                spec: receiver.spec.clone(),
                wrong: invalid.or(prepared).or(many),
                queued: queue.events(),
                delivered: condition.delivered,
                dropped: queue.dropped(),
                last_delivery: condition.last_delivery,
                failing: condition.failing.map(|f| (f.why, f.since, f.attempts)),
            }
        });
        (views.collect(), receivers.synced)
    }

    /// Every response rule with what is wrong with it, in the order in which they are looked at.
    pub fn rules(&self) -> Vec<(Arc<ResponseRule>, Option<String>)> {
        let (rules, receivers) = (self.0.rules.load(), self.0.receivers.load());
        let mut listed: Vec<_> = rules
            .values()
            .map(|rule| {
                let invalid = rule.check().err().map(|invalid| stallproof::sentence(&invalid));
                let missing =
                    rule.spec.receivers.iter().find(|name| !receivers.contains_key(name.as_str()));
                let missing = missing.map(|name| format!("the receiver {name:?} is not there"));
                (Arc::clone(rule), invalid.or(missing))
            })
            .collect();
        listed.sort_by(|(a, _), (b, _)| {
            (a.spec.priority, &a.metadata.name).cmp(&(b.spec.priority, &b.metadata.name))
        });
        listed
    }

    /// The name of the Secret that [`Self::keep_secret`] makes for a receiver.
    pub fn secret_name(receiver: &str) -> String {
        format!("fairlead-receiver-{receiver}")
    }

    /// Keeps what is secret of a receiver in a Secret of Fairlead's own namespace. It goes with the receiver.
    pub async fn keep_secret(
        &self,
        receiver: &Receiver,
        values: BTreeMap<String, String>,
        deadline: Deadline,
    ) -> Result<(), objects::Error> {
        let name = Self::secret_name(receiver.metadata.name.as_deref().unwrap_or_default());
        let data = values.into_iter().map(|(key, value)| (key, ByteString(value.into_bytes())));
        let metadata = ObjectMeta {
            name: Some(name),
            namespace: Some(self.0.settings.namespace.clone()),
            labels: Some([(SECRET_LABEL.to_owned(), "true".to_owned())].into()),
            owner_references: receiver.owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        };
        let secret = Secret { metadata, data: Some(data.collect()), ..Secret::default() };
        // Created, which Fairlead's account may, where that is enough.
        match self.0.objects.create(&secret, deadline).await {
            Err(objects::Error::Exists { .. }) => {
                self.0.objects.apply(&secret, Expected::Any, deadline).await.map(|_| ())
            }
            created => created.map(|_| ()),
        }
    }

    /// Sends a test notification at once, past the queue. `by` is who asked.
    pub async fn test(&self, name: &str, by: &str, deadline: Deadline) -> Result<(), TestError> {
        let receivers = self.0.receivers.load();
        let receiver = receivers.get(name).ok_or_else(|| TestError::Unknown(name.to_owned()))?;
        receiver.check().map_err(|invalid| TestError::Wrong(stallproof::sentence(&invalid)))?;
        let secrets = self.secrets(deadline).await.map_err(TestError::Wrong)?;
        let target = prepare(&receiver.spec, &secrets).map_err(TestError::Wrong)?;
        let message = format!("This is a test of the receiver {name}, asked for by {by}.");
        let event = Event::new(EventKind::Receiver, "test", EventLevel::Info, message)
            .with("subject", name);
        let op = self.0.ledger.begin("notify", name.to_owned(), "");
        let mut sender = EventSender::new(target);
        let sent = op.in_span(sender.send(&event, deadline)).await;
        op.finish(match &sent {
            Ok(()) => stallproof::ledger::Outcome::Done,
            Err(_) => stallproof::ledger::Outcome::Failed,
        });
        sent.map_err(TestError::NotTaken)
    }

    async fn follow_rules(self, tasks: Tasks) {
        let stop = tasks.stopping();
        let mut changes = self.0.rules.subscribe();
        loop {
            let rules = self.0.rules.load();
            self.0.compiled.publish(ResponseRules::new(rules.values().cloned()));
            if stop.bound(changes.changed()).await.is_none() {
                return;
            }
        }
    }

    /// Starts, changes and ends the deliveries of receivers as they change.
    async fn follow_receivers(self, tasks: Tasks) {
        let stop = tasks.stopping();
        // Watched once a receiver names one: who needs no Secret may do without the right to read them.
        let mut secrets = None;
        let mut receivers = self.0.receivers.subscribe();
        loop {
            let again = self.apply(&tasks).await;
            if secrets.is_none() && self.asks_secrets() {
                secrets = Some(self.secret_versions(&tasks).subscribe());
            }
            let wait = async {
                match again {
                    true => tokio::time::sleep(AGAIN).await,
                    false => std::future::pending().await,
                }
            };
            let secrets_changed = async {
                match &mut secrets {
                    Some(secrets) => drop(secrets.changed().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.stopped() => return,
                _ = receivers.changed() => {}
                () = secrets_changed => {}
                () = wait => {}
            }
        }
    }

    fn asks_secrets(&self) -> bool {
        self.0.receivers.load().values().any(|receiver| receiver.spec.secret.is_some())
    }

    /// Follows the Secrets that receivers may name. Nothing secret is kept of them: what changed is read again.
    fn secret_versions(&self, tasks: &Tasks) -> Snapshot<Watched<String, String>> {
        let namespace = Some(self.0.settings.namespace.clone());
        let within = Within { namespace, ..Within::default() };
        self.0.objects.watched_as::<Secret, String, String>(within, tasks, |secret| {
            let marked = secret.metadata.labels.as_ref()?.contains_key(SECRET_LABEL);
            marked.then_some(secret.metadata.resource_version.unwrap_or_default())
        })
    }

    /// Says whether it must be done again although nothing changed.
    async fn apply(&self, tasks: &Tasks) -> bool {
        let receivers = self.0.receivers.load();
        if !receivers.synced {
            return false;
        }
        let right = |receiver: &Receiver| !receiver.spec.disabled && receiver.check().is_ok();
        let wanted: BTreeMap<Arc<str>, Arc<Receiver>> = receivers
            .iter()
            .filter(|(_, receiver)| right(receiver))
            .take(MOST_RECEIVERS)
            .map(|(name, receiver)| (Arc::clone(name), Arc::clone(receiver)))
            .collect();
        let asks = wanted.values().any(|receiver| receiver.spec.secret.is_some());
        let secrets = match asks {
            true => self.secrets(Deadline::after(READ)).await,
            false => Ok(BTreeMap::new()),
        };
        let mut ended = Vec::new();
        for (name, receiver) in &wanted {
            let prepared = secrets.as_ref().map_err(Clone::clone);
            let prepared = prepared.and_then(|all| prepare(&receiver.spec, all)).map(Arc::new);
            ended.extend(
                self.run(name, queue_of(receiver), prepared, tasks)
                    .map(|it| (Arc::clone(name), it)),
            );
        }
        let queues = wanted.iter().map(|(name, receiver)| (Arc::clone(name), queue_of(receiver)));
        self.0.active.publish(queues.collect());
        {
            let mut running = self.0.running.lock();
            let gone: Vec<_> =
                running.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
            ended.extend(gone.into_iter().filter_map(|name| running.remove_entry(&name)));
        }
        for (name, running) in ended {
            running.tasks.shutdown(GRACE).await;
            info!(receiver = %name, "nothing more is sent to the receiver");
        }
        // What is kept of receivers that are gone, or that were gone when this process began. One that is invalid
        // keeps its queue: it is mended, most likely.
        let enabled = receivers.values().filter(|receiver| !receiver.spec.disabled);
        let kept: BTreeSet<_> = enabled.map(|receiver| queue_of(receiver)).collect();
        for queue in self.0.outbox.known() {
            if !kept.contains(&queue) {
                self.0.outbox.purge(&queue).await;
                let name = queue.split('/').next().unwrap_or_default();
                if !receivers.contains_key(name) {
                    self.0.metrics.forget(name);
                }
            }
        }
        if let Err(why) = &secrets {
            warn!(why, "the Secrets of receivers cannot be read");
        }
        secrets.is_err()
    }

    /// Answers the delivery to another receiver of that name, which is to end.
    fn run(
        &self,
        name: &Arc<str>,
        queue: Arc<str>,
        prepared: Prepared,
        tasks: &Tasks,
    ) -> Option<Running> {
        let mut running = self.0.running.lock();
        if let Some(running) = running.get(name).filter(|running| running.queue == queue) {
            // Targets have no order; who sends compares them by pointer, so that a new one is a new connection.
            running.target.update(|target| {
                *target = prepared;
                true
            });
            return None;
        }
        let group = tasks.child(format!("receiver {name}"));
        let run = Running {
            queue: Arc::clone(&queue),
            target: Snapshot::new(prepared),
            condition: Arc::default(),
            tasks: group.clone(),
        };
        let delivery = Delivery {
            name: Arc::clone(name),
            queue,
            outbox: self.0.outbox.clone(),
            target: run.target.clone(),
            condition: Arc::clone(&run.condition),
            ledger: self.0.ledger.clone(),
            metrics: self.0.metrics.clone(),
        };
        group.spawn(format!("deliver to {name}"), delivery.run(group.stopping()));
        running.insert(Arc::clone(name), run)
    }

    /// The Secrets of Fairlead's own namespace that receivers may name.
    async fn secrets(&self, deadline: Deadline) -> Result<BTreeMap<String, Credentials>, String> {
        // Listed and not got: what Fairlead's account may do with the Secrets of its namespace.
        let namespace = Some(self.0.settings.namespace.clone());
        let within = Within { namespace, ..Within::default() };
        let all = self.0.objects.list::<Secret>(&within, deadline).await;
        let all = all.map_err(|error| stallproof::sentence(&error))?;
        let marked = all.items.into_iter().filter(|secret| {
            secret.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(SECRET_LABEL))
        });
        let named = marked.filter_map(|secret| {
            let data = secret.data.unwrap_or_default().into_iter();
            Some((secret.metadata.name?, Credentials::new(data.map(|(key, value)| (key, value.0)))))
        });
        Ok(named.collect())
    }
}

/// A receiver that is deleted and made again is another: it is not sent what waited for the one before.
fn queue_of(receiver: &Receiver) -> Arc<str> {
    let name = receiver.metadata.name.as_deref().unwrap_or_default();
    format!("{name}/{}", receiver.metadata.uid.as_deref().unwrap_or_default()).into()
}

fn prepare(spec: &ReceiverSpec, secrets: &BTreeMap<String, Credentials>) -> Result<Target, String> {
    let credentials = match &spec.secret {
        None => &Credentials::default(),
        Some(name) => secrets.get(name).ok_or_else(|| {
            format!(
                "the Secret {name} is not in Fairlead's namespace, or has no label {SECRET_LABEL}; \
                 create it with that label"
            )
        })?,
    };
    Target::prepare(spec, credentials)
}

impl fmt::Debug for NotifierSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dir, namespace, limits, cluster } = self;
        f.debug_struct("NotifierSettings")
            .field("dir", dir)
            .field("namespace", namespace)
            .field("limits", limits)
            .field("cluster", &cluster.is_some())
            .finish()
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").field("outbox", &self.0.outbox).finish_non_exhaustive()
    }
}
