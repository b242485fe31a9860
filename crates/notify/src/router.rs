//! The router: decides on each event what is done, and has it done. It waits for the disk alone, and only so long.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use stallproof::{Deadline, Rates, Snapshot, Stop, Tasks};
use tokio::sync::{Semaphore, mpsc};
use tracing::{info, warn};

use crate::cluster_events::ClusterEvents;
use crate::event::Event;
use crate::metrics::Metrics;
use crate::outbox::Outbox;
use crate::rules::{Frequencies, ResponseRules};

/// Events that share one sync of the disk.
const BATCH: usize = 256;
/// How long the disk may take to accept them; what it does not take is dropped and counted.
const ACCEPT: Duration = Duration::from_secs(10);
/// Quarantines under way: each is one call of an API server. One more is dropped, and comes with the next event.
const QUARANTINES: usize = 8;
const QUARANTINE: Duration = Duration::from_secs(30);

/// Whom to put apart, and by which rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineOrder {
    pub cluster: String,
    pub namespace: String,
    pub pod: String,
    pub rule: String,
    pub event_id: String,
}

pub type QuarantineFuture = Pin<Box<dyn Future<Output = Result<bool, String>> + Send>>;

/// Puts a pod apart: the daemon knows how, and has it audited. The answer says whether it was not so before.
pub trait Quarantine: Send + Sync {
    fn quarantine(&self, order: QuarantineOrder, deadline: Deadline) -> QuarantineFuture;
}

pub(crate) struct Router {
    pub(crate) rules: Snapshot<ResponseRules>,
    /// The queues of receivers that are sent to, by the receiver's name.
    pub(crate) receivers: Snapshot<BTreeMap<Arc<str>, Arc<str>>>,
    pub(crate) outbox: Outbox,
    pub(crate) quarantine: Option<Arc<dyn Quarantine>>,
    /// None where there is no cluster to write Events in.
    pub(crate) cluster_events: Option<ClusterEvents>,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: Tasks,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Router")
    }
}

impl Router {
    /// Routes until the process stops, and then what the bus still has.
    pub(crate) async fn run(self, mut events: mpsc::Receiver<Event>, stop: Stop) {
        let mut frequencies = Frequencies::default();
        let quarantines = Arc::new(Semaphore::new(QUARANTINES));
        let said = Rates::new(1, Duration::from_secs(60), 64);
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                biased;
                () = stop.stopped() => {
                    events.close();
                    while let Ok(event) = events.try_recv() {
                        batch.push(event);
                    }
                    self.route(std::mem::take(&mut batch), &mut frequencies, &quarantines, &said).await;
                    return;
                }
                _ = events.recv_many(&mut batch, BATCH) => {
                    self.route(std::mem::take(&mut batch), &mut frequencies, &quarantines, &said).await;
                }
            }
        }
    }

    async fn route(
        &self,
        batch: Vec<Event>,
        frequencies: &mut Frequencies,
        quarantines: &Arc<Semaphore>,
        said: &Rates<String>,
    ) {
        let (rules, receivers) = (self.rules.load(), self.receivers.load());
        let mut told = Vec::new();
        for event in batch {
            let response = rules.decide(&event, frequencies, Instant::now());
            if response.suppressed.is_some() {
                self.metrics.acted("suppress");
            } else if let Some(cluster_events) = &self.cluster_events {
                cluster_events.offer(&event);
            }
            if let Some(rule) = response.quarantine {
                self.put_apart(&event, rule, quarantines);
            }
            let mut names: Vec<Arc<str>> = Vec::new();
            for name in response.notify {
                match receivers.get(name.as_str()) {
                    Some(queue) => names.push(Arc::clone(queue)),
                    None if said.take(&name, Instant::now()).is_ok() => {
                        let rules = response.matched.join(", ");
                        warn!(
                            receiver = name,
                            rules, "a response rule names a receiver that is not there"
                        );
                    }
                    None => {}
                }
            }
            if !names.is_empty() {
                self.metrics.acted("notify");
                told.push((names, event));
            }
        }
        // All wait for the same sync. They are queued in this order, which is that of the events.
        let deadline = Deadline::after(ACCEPT);
        let puts =
            told.iter().map(|(names, event)| self.outbox.put(names.clone(), event, deadline));
        let failed = join_all(puts).await.into_iter().filter_map(Result::err).collect::<Vec<_>>();
        if let Some(error) = failed.first() {
            warn!(%error, count = failed.len(), "events could not be kept for their receivers");
        }
    }

    fn put_apart(&self, event: &Event, rule: String, quarantines: &Arc<Semaphore>) {
        let (Some(quarantine), Some(namespace), Some(pod)) =
            (&self.quarantine, &event.namespace, &event.pod)
        else {
            self.metrics.acted("quarantine_impossible");
            return;
        };
        let Ok(place) = Arc::clone(quarantines).try_acquire_owned() else {
            self.metrics.acted("quarantine_busy");
            return;
        };
        let order = QuarantineOrder {
            cluster: event.cluster.clone(),
            namespace: namespace.clone(),
            pod: pod.clone(),
            rule,
            event_id: event.id.clone(),
        };
        let (deadline, metrics) = (Deadline::after(QUARANTINE), self.metrics.clone());
        let work = quarantine.quarantine(order.clone(), deadline);
        self.tasks.spawn("quarantine", async move {
            let _place = place;
            let QuarantineOrder { cluster, namespace, pod, rule, .. } = order;
            match deadline.bound(work).await {
                Ok(Ok(true)) => {
                    metrics.acted("quarantine");
                    info!(
                        cluster,
                        namespace, pod, rule, "a pod was quarantined by a response rule"
                    );
                }
                Ok(Ok(false)) => {}
                Ok(Err(why)) => {
                    metrics.acted("quarantine_failed");
                    warn!(cluster, namespace, pod, rule, why, "a pod could not be quarantined");
                }
                Err(_) => {
                    metrics.acted("quarantine_failed");
                    warn!(cluster, namespace, pod, rule, "a pod could not be quarantined in time");
                }
            }
        });
    }
}
