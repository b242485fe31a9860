//! What is counted of events and of deliveries.

use objects::kinds::EventKind;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The name of the receiver that a queue is of.
fn name(queue: &str) -> String {
    queue.split('/').next().unwrap_or_default().to_owned()
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfReceiver {
    pub(crate) receiver: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Dropped {
    receiver: String,
    why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Acted {
    action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    events: Family<OfKind, Counter>,
    bus_dropped: Family<OfKind, Counter>,
    responses: Family<Acted, Counter>,
    delivered: Family<OfReceiver, Counter>,
    failed: Family<OfReceiver, Counter>,
    dropped: Family<Dropped, Counter>,
    queued: Family<OfReceiver, Gauge>,
    cluster_events: Family<Outcome, Counter>,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let Self {
            events,
            bus_dropped,
            responses,
            delivered,
            failed,
            dropped,
            queued,
            cluster_events,
        } = self;
        registry.register("events", "Events, by kind", events.clone());
        registry.register(
            "events_dropped",
            "Events that came faster than response rules were decided",
            bus_dropped.clone(),
        );
        registry.register("responses", "Actions of response rules", responses.clone());
        registry.register(
            "receiver_delivered",
            "Notifications that a receiver took",
            delivered.clone(),
        );
        registry.register(
            "receiver_failures",
            "Attempts that a receiver did not take",
            failed.clone(),
        );
        registry.register(
            "receiver_dropped",
            "Notifications that were not kept for a receiver, by why",
            dropped.clone(),
        );
        registry.register(
            "receiver_queue",
            "Notifications that wait for a receiver",
            queued.clone(),
        );
        registry.register(
            "cluster_events",
            "Kubernetes Events of violations and denials, by what became of them",
            cluster_events.clone(),
        );
    }

    pub(crate) fn cluster_event(&self, outcome: &'static str) {
        self.cluster_events.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn event(&self, kind: EventKind) {
        self.events.get_or_create(&OfKind { kind: kind.to_string() }).inc();
    }

    pub(crate) fn dropped_on_bus(&self, kind: EventKind) {
        self.bus_dropped.get_or_create(&OfKind { kind: kind.to_string() }).inc();
    }

    pub(crate) fn acted(&self, action: &'static str) {
        self.responses.get_or_create(&Acted { action }).inc();
    }

    pub(crate) fn delivered(&self, receiver: &str, count: u64) {
        self.delivered.get_or_create(&OfReceiver { receiver: name(receiver) }).inc_by(count);
    }

    pub(crate) fn failed(&self, receiver: &str) {
        self.failed.get_or_create(&OfReceiver { receiver: name(receiver) }).inc();
    }

    pub(crate) fn dropped(&self, receiver: &str, why: &'static str, count: u64) {
        let label = Dropped { receiver: name(receiver), why };
        self.dropped.get_or_create(&label).inc_by(count);
    }

    pub(crate) fn queued(&self, receiver: &str, count: u64) {
        let label = OfReceiver { receiver: name(receiver) };
        self.queued.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Forgets a receiver that is gone.
    pub(crate) fn forget(&self, receiver: &str) {
        let label = OfReceiver { receiver: name(receiver) };
        self.delivered.remove(&label);
        self.failed.remove(&label);
        self.queued.remove(&label);
        for why in crate::outbox::WHYS {
            self.dropped.remove(&Dropped { receiver: name(receiver), why });
        }
    }
}
