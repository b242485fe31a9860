//! What runs is judged again: 20,000 pods of 200 images in 100 namespaces of a real API server, from the moment at
//! which reports with a new finding are written until everything that runs against a rule is known and reported
//! there. Then again with a report that changes nothing, during which no report is written.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{
    Admission, Document, LOCAL_CLUSTER, RunningAudit, Settings, document, lead_running,
};
use bench::Table;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use objects::kinds::AdmissionRule;
use objects::{Election, Expected, Id, Objects, Timing};
use serde_json::json;
use stallproof::{Deadline, Map, Readiness, Snapshot, Tasks};
use testkit::KubeServer;
use tokio::sync::Semaphore;

const PODS: usize = 20_000;
const IMAGES: usize = 200;
const NAMESPACES: usize = 100;
const PATIENCE: Duration = Duration::from_secs(300);

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

fn pod(i: usize) -> Pod {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true,
                        "name": format!("service-{}", i / 10), "uid": format!("uid-{}", i / 10)}]);
    let pod = json!({
        "metadata": {"name": format!("pod-{i}"), "namespace": format!("ns-{}", i % NAMESPACES),
                     "labels": {"app": format!("service-{}", i / 10)}, "ownerReferences": owner},
        "spec": {"containers": [{"name": "main", "image": format!("acme.io/image-{}:1", i % IMAGES),
            "env": (0..8).map(|n| json!({"name": format!("E{n}"), "value": "v"})).collect::<Vec<_>>(),
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]},
        "status": {"phase": "Running"},
    });
    serde_json::from_value(pod).unwrap()
}

async fn import(objects: &Objects, severity: &str) {
    // The same finding in every image.
    for i in 0..IMAGES {
        let report = json!({"SchemaVersion": 2, "ArtifactName": format!("acme.io/image-{i}:1"),
            "CreatedAt": jiff::Timestamp::now().to_string(),
            "Results": [{"Vulnerabilities": [
                {"VulnerabilityID": "CVE-1", "PkgName": "a", "Severity": severity}]}]});
        let now = jiff::Timestamp::now().as_second();
        let Ok(Document::Report(report)) = document(&report, now, "bench") else { panic!() };
        objects.apply(&*report, Expected::Any, soon()).await.unwrap();
    }
}

async fn until(admission: &Admission, wanted: impl Fn(&RunningAudit) -> bool) -> RunningAudit {
    let patience = soon();
    loop {
        let now = admission.running().read(|all| all.get(LOCAL_CLUSTER).cloned());
        if let Some(now) = now.filter(&wanted) {
            return now;
        }
        assert!(!patience.has_passed(), "it never comes");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The namespaces, the pods, and the kind that reports are written as.
async fn populate(client: &kube::Client) {
    let reports: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "reports.openreports.io"},
        "spec": {"group": "openreports.io", "scope": "Namespaced",
            "names": {"kind": "Report", "plural": "reports", "singular": "report"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}}}]}}))
    .unwrap();
    let kinds = kube::Api::all(client.clone());
    kinds.create(&Default::default(), &reports).await.unwrap();
    let spaces = kube::Api::<Namespace>::all(client.clone());
    for n in 0..NAMESPACES {
        let space = serde_json::from_value(json!({"metadata": {"name": format!("ns-{n}")}}));
        spaces.create(&Default::default(), &space.unwrap()).await.unwrap();
    }
    let places = Arc::new(Semaphore::new(32));
    let mut writing = Vec::new();
    for i in 0..PODS {
        let place = places.clone().acquire_owned().await.unwrap();
        let pods = kube::Api::<Pod>::namespaced(client.clone(), &format!("ns-{}", i % NAMESPACES));
        writing.push(tokio::spawn(async move {
            pods.create(&Default::default(), &pod(i)).await.unwrap();
            drop(place);
        }));
    }
    for one in writing {
        one.await.unwrap();
    }
}

/// The versions of all reports in the cluster.
async fn reports(client: &kube::Client) -> Vec<(String, String)> {
    let kind =
        ApiResource::from_gvk(&GroupVersionKind::gvk("openreports.io", "v1alpha1", "Report"));
    let all = kube::Api::<DynamicObject>::all_with(client.clone(), &kind);
    let all = all.list(&ListParams::default()).await.unwrap();
    let version = |report: DynamicObject| {
        let meta = report.metadata;
        (meta.namespace.unwrap_or_default(), meta.resource_version.unwrap_or_default())
    };
    let mut all: Vec<_> = all.into_iter().map(version).collect();
    all.sort();
    all
}

async fn measure(objects: &Objects, client: &kube::Client, tasks: &Tasks) -> (f64, f64, usize) {
    let cluster = Objects::kubernetes(client.clone(), "fairlead");
    let rule: AdmissionRule = serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
        "metadata": {"name": "no-critical"}, "spec": {"action": "deny", "mode": "protect",
            "criteria": [{"name": "cveCriticalCount", "op": ">=", "value": "1"}]}}))
    .unwrap();
    objects.apply(&rule, Expected::Any, soon()).await.unwrap();
    let settings = Settings::new(true);
    let admission = Admission::start(objects, settings, vec![], &Readiness::default(), tasks);
    let lease = Id::namespaced("fairlead", "lease");
    let election = Election::new(objects.clone(), lease, "bench", Timing::default());
    let clusters = Snapshot::new(Map::unit(LOCAL_CLUSTER.to_owned(), cluster));
    let (all, judge) = (tasks.clone(), admission.clone());
    tasks.spawn("election", async move {
        election.run(&all, |leader| lead_running(&leader, &judge, &clusters)).await;
    });
    until(&admission, |audit| audit.pods == PODS).await;
    import(objects, "LOW").await;
    let quiet = Duration::from_secs(3);
    tokio::time::sleep(quiet).await;

    let began = Instant::now();
    import(objects, "CRITICAL").await;
    let found = until(&admission, |audit| {
        let found = audit.findings.values().map(|finding| finding.pods).sum::<usize>();
        found == PODS && audit.reported
    })
    .await;
    let judged = began.elapsed().as_secs_f64();

    tokio::time::sleep(quiet).await;
    let before = until(&admission, |_| true).await;
    let reported = reports(client).await;
    assert_eq!(reported.len(), NAMESPACES);
    let began = Instant::now();
    // Facts change that no finding depends on.
    let vex =
        json!({"@context": "https://openvex.dev/ns/v0.2.0", "@id": "bench", "statements": []});
    let Ok(Document::Report(vex)) = document(&vex, 0, "bench") else { panic!() };
    objects.apply(&*vex, Expected::Any, soon()).await.unwrap();
    let same = until(&admission, |audit| audit.judged > before.judged).await;
    assert_eq!(same.findings, found.findings);
    let again = began.elapsed().as_secs_f64();
    let after = reports(client).await;
    let written = after.iter().filter(|report| !reported.contains(report)).count();
    (judged, again, written)
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("bench");
    let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
    let (judged, again, writes) = runtime.block_on(async {
        let server = KubeServer::start().await;
        let client = server.client().await;
        populate(&client).await;
        measure(&objects, &client, &tasks).await
    });
    tasks.stop("done");
    let mut table = Table::new("running");
    let what = format!("from a new finding of {IMAGES} images to the verdict on {PODS} pods");
    table.row(&what, "s", judged, &[]);
    table.must("at most 60 s", judged <= 60.0);
    table.row("the same when nothing changes", "s", again, &[]);
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    table.row("reports written meanwhile", "", writes as f64, &[]);
    table.must("none", writes == 0);
    table.finish()
}
