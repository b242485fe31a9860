//! `ClusterEvents`: violations and denials as Kubernetes Events on the object that they are about.
//!
//! Contract, as the events API and client-go have it:
//! - The same object, reason and note is one Event for [`SERIES`]; what comes meanwhile counts in its series, which
//!   is written once every [`REFRESH`] at most.
//! - One object has [`AT_ONCE`] new Events at once, then one every [`EVERY`].
//! - Nobody waits: at most [`BOUND`] wait for the API server; one more is dropped and counted.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event as ClusterEvent, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use objects::kinds::EventKind;
use serde_json::json;
use stallproof::{Deadline, Rates, Stop};
use tokio::sync::mpsc;
use tracing::warn;

use crate::event::{Event, cut};
use crate::metrics::Metrics;

/// What waits for the API server, which takes some hundred a second.
const BOUND: usize = 256;
const CALL: Duration = Duration::from_secs(10);
const SERIES: Duration = Duration::from_secs(6 * 60);
const REFRESH: Duration = Duration::from_secs(30);
const AT_ONCE: u32 = 25;
const EVERY: Duration = Duration::from_secs(5 * 60);
/// Objects and series that are told apart.
const MOST: usize = 4096;
/// The most characters of a note, by the API.
const LONGEST_NOTE: usize = 1000;
const CONTROLLER: &str = "fairlead.dev/guard";

/// Where the router hands events in.
#[derive(Clone, Debug)]
pub(crate) struct ClusterEvents {
    events: mpsc::Sender<Event>,
    metrics: Metrics,
}

/// The same object, reason and note.
type Subject = (String, &'static str, String);

struct Series {
    namespace: String,
    name: String,
    began: Instant,
    written: Instant,
    count: i32,
}

/// Writes Events.
pub(crate) struct ClusterEventWriter {
    client: kube::Client,
    events: mpsc::Receiver<Event>,
    metrics: Metrics,
    rates: Rates<String>,
    series: HashMap<Subject, Series>,
    instance: String,
}

impl ClusterEvents {
    pub(crate) fn new(client: kube::Client, metrics: Metrics) -> (Self, ClusterEventWriter) {
        let (sender, events) = mpsc::channel(BOUND);
        let instance = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let writer = ClusterEventWriter {
            client,
            events,
            metrics: metrics.clone(),
            rates: Rates::new(AT_ONCE, EVERY, MOST),
            series: HashMap::new(),
            instance,
        };
        (Self { events: sender, metrics }, writer)
    }

    /// Hands an event over if it is one for its object.
    pub(crate) fn offer(&self, event: &Event) {
        let is_own = event.cluster == "-" && event.namespace.is_some();
        if is_own && reason(event).is_some() && self.events.try_send(event.clone()).is_err() {
            self.metrics.cluster_event("dropped");
        }
    }
}

fn reason(event: &Event) -> Option<&'static str> {
    match (event.kind, event.name.as_str()) {
        (EventKind::Violation, "violation.denied") => Some("NetworkRuleDenies"),
        (EventKind::Violation, _) => Some("NoNetworkRuleAllows"),
        (EventKind::Admission, "admission.denied") => Some("AdmissionDenied"),
        (EventKind::Admission, _) => Some("AdmissionMonitored"),
        _ => None,
    }
}

/// The object: a violation's pod, or the workload that was to be admitted.
fn regarding(event: &Event) -> Option<ObjectReference> {
    let namespace = event.namespace.clone()?;
    let uid = event.details.get("podUid").cloned();
    let (kind, name) = match (event.kind, &event.pod) {
        (EventKind::Violation, Some(pod)) => ("Pod".to_owned(), pod.clone()),
        _ => {
            let workload = event.workload.as_ref()?;
            let (kind, name) = workload.strip_prefix(&format!("{namespace}/"))?.split_once('/')?;
            (kind.to_owned(), name.to_owned())
        }
    };
    let api_version = match kind.as_str() {
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" => "apps/v1",
        "Job" | "CronJob" => "batch/v1",
        _ => "v1",
    };
    Some(ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind),
        name: Some(name),
        namespace: Some(namespace),
        uid,
        ..ObjectReference::default()
    })
}

impl ClusterEventWriter {
    pub(crate) async fn run(mut self, stop: Stop) {
        while let Some(Some(event)) = stop.bound(self.events.recv()).await {
            let Some(outcome) = stop.bound(self.write(&event)).await else { return };
            self.metrics.cluster_event(outcome);
        }
    }

    /// Says what became of it.
    async fn write(&mut self, event: &Event) -> &'static str {
        let (Some(reason), Some(regarding)) = (reason(event), regarding(event)) else {
            return "no_object";
        };
        let mut note = event.message.clone();
        cut(&mut note, LONGEST_NOTE);
        let object = format!(
            "{}/{}/{}",
            regarding.namespace.as_deref().unwrap_or_default(),
            regarding.kind.as_deref().unwrap_or_default(),
            regarding.name.as_deref().unwrap_or_default()
        );
        let (subject, now) = ((object.clone(), reason, note.clone()), Instant::now());
        self.series.retain(|_, series| now.duration_since(series.began) < SERIES);
        if let Some(series) = self.series.get_mut(&subject) {
            series.count = series.count.saturating_add(1);
            if now.duration_since(series.written) < REFRESH {
                return "folded";
            }
            series.written = now;
            let (namespace, name, count) =
                (series.namespace.clone(), series.name.clone(), series.count);
            return self.add_to_series(&namespace, &name, count).await;
        }
        if self.series.len() >= MOST || self.rates.take(&object, now).is_err() {
            return "rate_limited";
        }
        self.create(subject, regarding, note, reason).await
    }

    async fn create(
        &mut self,
        subject: Subject,
        regarding: ObjectReference,
        note: String,
        reason: &'static str,
    ) -> &'static str {
        let namespace = regarding.namespace.clone().unwrap_or_default();
        let base: String = regarding.name.clone().unwrap_or_default().chars().take(200).collect();
        let name = format!("{base}.{:x}", Timestamp::now().as_nanosecond());
        let event = ClusterEvent {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            action: Some("Report".to_owned()),
            event_time: Some(MicroTime(Timestamp::now())),
            note: Some(note),
            reason: Some(reason.to_owned()),
            regarding: Some(regarding),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some("Warning".to_owned()),
            ..ClusterEvent::default()
        };
        let api = Api::<ClusterEvent>::namespaced(self.client.clone(), &namespace);
        let made = Deadline::after(CALL).bound(api.create(&PostParams::default(), &event)).await;
        match made {
            Ok(Ok(_)) => {
                let now = Instant::now();
                let series = Series { namespace, name, began: now, written: now, count: 1 };
                self.series.insert(subject, series);
                "created"
            }
            Ok(Err(error)) => {
                warn!(%error, "an event of Kubernetes cannot be written");
                "failed"
            }
            Err(_) => "failed",
        }
    }

    async fn add_to_series(&self, namespace: &str, name: &str, count: i32) -> &'static str {
        let series = EventSeries { count, last_observed_time: MicroTime(Timestamp::now()) };
        let patch = Patch::Merge(json!({ "series": series }));
        let api = Api::<ClusterEvent>::namespaced(self.client.clone(), namespace);
        let params = PatchParams::default();
        match Deadline::after(CALL).bound(api.patch(name, &params, &patch)).await {
            Ok(Ok(_)) => "counted",
            _ => "failed",
        }
    }
}
