//! Violations and denials are Events in a real API server, on their objects, folded and limited.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::events::v1::Event as ClusterEvent;
use kube::Api;
use kube::api::ListParams;
use notify::{Event, Notifier, NotifierSettings, OutboxLimits};
use objects::Objects;
use objects::kinds::{EventKind, EventLevel};
use prometheus_client::registry::Registry;
use stallproof::{Deadline, Ledger, Tasks};
use testkit::{KubeServer, requires};

#[tokio::test(flavor = "multi_thread")]
async fn kube_events_are_written_on_the_object_once() {
    requires!(kube);
    let server = KubeServer::start().await;
    let client = server.client().await;
    let namespace = server.namespace().await;
    let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::new("test"));
    let objects = Objects::embedded(&dir.path().join("objects"), &tasks).unwrap();
    let settings = NotifierSettings {
        dir: dir.path().join("notify"),
        namespace: "fairlead".to_owned(),
        limits: OutboxLimits::default(),
        cluster: Some(client.clone()),
    };
    let (ledger, mut registry) = (Ledger::default(), Registry::default());
    let notifier =
        Notifier::start(settings, &objects, None, &ledger, &tasks, &mut registry).unwrap();
    let violation = |pod: &str, message: &str| {
        let mut event = Event::new(EventKind::Violation, "denied", EventLevel::Warning, message);
        event.namespace = Some(namespace.clone());
        event.pod = Some(pod.to_owned());
        event.workload = Some(format!("{namespace}/Deployment/web"));
        event.with("podUid", "8c2e1c1e-0000-0000-0000-000000000001")
    };
    for _ in 0..5 {
        notifier.bus().emit(violation("web-0", "web-0 connects to db"));
    }
    for number in 0..40 {
        notifier.bus().emit(violation("noisy-0", &format!("connection {number}")));
    }
    let mut denied = Event::new(EventKind::Admission, "denied", EventLevel::Error, "runs as root");
    denied.namespace = Some(namespace.clone());
    denied.workload = Some(format!("{namespace}/Deployment/web"));
    notifier.bus().emit(denied);
    let elsewhere = Event { cluster: "eu".to_owned(), ..violation("web-0", "of another cluster") };
    notifier.bus().emit(elsewhere);
    let api = Api::<ClusterEvent>::namespaced(client, &namespace);
    let until = Deadline::after(Duration::from_secs(60));
    let events = loop {
        let events = api.list(&ListParams::default()).await.unwrap().items;
        // They are written in order, so that the denial is the last.
        if events.iter().any(|event| event.reason.as_deref() == Some("AdmissionDenied")) {
            break events;
        }
        assert!(!until.has_passed(), "{events:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let about = |name: &str| {
        let is = |event: &&ClusterEvent| {
            event.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some(name))
        };
        events.iter().filter(is).cloned().collect::<Vec<_>>()
    };
    let [web] = about("web-0").try_into().unwrap();
    let regarding = web.regarding.unwrap();
    assert_eq!((regarding.kind.as_deref(), web.type_.as_deref()), (Some("Pod"), Some("Warning")));
    assert_eq!(regarding.uid.as_deref(), Some("8c2e1c1e-0000-0000-0000-000000000001"));
    assert_eq!(web.note.as_deref(), Some("web-0 connects to db"));
    assert_eq!(about("noisy-0").len(), 25, "the rest of a noisy object is limited");
    let [deployment] = about("web").try_into().unwrap();
    let regarding = deployment.regarding.unwrap();
    assert_eq!(regarding.api_version.as_deref(), Some("apps/v1"));
    tasks.shutdown(Duration::from_secs(5)).await;
}
