use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use objects::kinds::{AdmissionRule, OpenReport};
use objects::{Deletion, Election, Expected, Id, Timing, Within};
use serde_json::json;
use stallproof::{Deadline, Readiness, Tasks};

use super::*;
use crate::LOCAL_CLUSTER;

struct World {
    admission: Admission,
    /// Where rules and reports are.
    store: Objects,
    /// The cluster that is looked through.
    cluster: Objects,
    tasks: Tasks,
    _data: tempfile::TempDir,
}

impl World {
    /// A leader that looks through `cluster`, or through its own store.
    fn new(cluster: Option<Objects>) -> Self {
        let data = tempfile::tempdir().unwrap();
        let tasks = Tasks::new("world");
        let store = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
        let cluster = cluster.unwrap_or_else(|| store.clone());
        let exempt = vec!["kube-system".to_owned()];
        let (settings, readiness) = (Settings::new(true), Readiness::default());
        let admission = Admission::start(&store, settings, exempt, &readiness, &tasks);
        let lease = Id::namespaced("fairlead", "lease");
        let election = Election::new(store.clone(), lease, "test", Timing::default());
        let clusters = Snapshot::new(Map::unit(LOCAL_CLUSTER.to_owned(), cluster.clone()));
        let (all, judge) = (tasks.clone(), admission.clone());
        tasks.spawn("election", async move {
            election.run(&all, |leader| lead_running(&leader, &judge, &clusters)).await;
        });
        Self { admission, store, cluster, tasks, _data: data }
    }

    async fn pod(&self, namespace: &str, name: &str, image: &str) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"containers": [{"name": "web", "image": image}]},
        }))
        .unwrap();
        self.cluster.create(&pod, soon()).await.unwrap();
    }

    async fn rule(&self, name: &str, criterion: Value) {
        let rule: AdmissionRule = serde_json::from_value(json!({
            "apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
            "metadata": {"name": name}, "spec": {"action": "deny", "criteria": [criterion]},
        }))
        .unwrap();
        self.store.apply(&rule, Expected::Any, soon()).await.unwrap();
    }

    async fn import(&self, image: &str, ids: &[&str]) {
        let found: Vec<_> = ids
            .iter()
            .map(|id| json!({"VulnerabilityID": id, "PkgName": "a", "Severity": "CRITICAL"}))
            .collect();
        let report = json!({"SchemaVersion": 2, "ArtifactName": image,
            "CreatedAt": Timestamp::now().to_string(), "Results": [{"Vulnerabilities": found}]});
        let now = Timestamp::now().as_second();
        let crate::Document::Report(report) = crate::document(&report, now, "ci").unwrap() else {
            panic!("a report is a report");
        };
        self.store.apply(&*report, Expected::Any, soon()).await.unwrap();
    }

    /// Waits until what was found is as it should be.
    async fn until(&self, wanted: impl Fn(&RunningAudit) -> bool) -> RunningAudit {
        let patience = Deadline::after(Duration::from_secs(60));
        loop {
            let now = self.admission.running().read(|all| all.get(LOCAL_CLUSTER).cloned());
            if let Some(now) = now.filter(&wanted) {
                return now;
            }
            assert!(!patience.has_passed(), "{:?}", self.admission.running().load().get("local"));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.stop("the test is over");
    }
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

fn owners(audit: &RunningAudit) -> Vec<(&str, &str)> {
    audit.findings.keys().map(|key| (key.owner.as_str(), key.rule.as_str())).collect()
}

#[tokio::test]
async fn what_runs_is_judged_again_when_rules_or_facts_change() {
    let world = World::new(None);
    world.pod("shop", "cart", "acme.io/cart:1").await;
    world.pod("shop", "web", "acme.io/web:1").await;
    world.pod("kube-system", "dns", "acme.io/cart:1").await;
    let first = world.until(|audit| audit.pods == 2).await;
    assert!(first.findings.is_empty(), "{first:?}");
    let critical = json!({"name": "cveCriticalCount", "op": ">=", "value": "1"});
    world.rule("no-critical", critical).await;
    world.import("acme.io/cart:1", &["CVE-1"]).await;
    let found = world.until(|audit| !audit.findings.is_empty()).await;
    assert_eq!(owners(&found), [("Pod/cart", "no-critical")]);
    let (key, finding) = found.findings.first_key_value().unwrap();
    assert_eq!((key.outcome, finding.pods, key.container.as_str()), (Outcome::Denied, 1, "web"));
    // A rule on who asked says nothing about what runs: that is not known any more.
    world.rule("not-ann", json!({"name": "user", "op": "notContainsAny", "value": "ann"})).await;
    world.rule("no-web", json!({"name": "image", "op": "containsAny", "value": "web"})).await;
    let found = world.until(|audit| audit.findings.len() == 2).await;
    assert_eq!(owners(&found), [("Pod/cart", "no-critical"), ("Pod/web", "no-web")]);
    // A newer scan finds nothing: the finding goes, and the other one stays since when it was.
    let since = found.findings.last_key_value().unwrap().1.since;
    world.import("acme.io/cart:1", &[]).await;
    let left = world.until(|audit| audit.findings.len() == 1).await;
    assert_eq!(left.findings.first_key_value().unwrap().1.since, since);
}

/// The definition of `openreports.io`, as far as a server needs it.
fn definition()
-> k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": {"name": "reports.openreports.io"},
        "spec": {"group": "openreports.io", "scope": "Namespaced",
            "names": {"kind": "Report", "plural": "reports", "singular": "report"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}}}]}}))
    .unwrap()
}

#[tokio::test]
async fn reports_are_written_where_they_are_served_and_only_when_they_change() {
    testkit::requires!(kube);
    let server = testkit::KubeServer::start().await;
    let client = server.client().await;
    let crds = kube::Api::all(client.clone());
    crds.create(&Default::default(), &definition()).await.unwrap();
    let world = World::new(Some(Objects::kubernetes(client, "fairlead")));
    world.pod("default", "cart", "acme.io/cart:1").await;
    world.rule("no-cart", json!({"name": "image", "op": "containsAny", "value": "cart"})).await;
    world.until(|audit| audit.findings.len() == 1 && audit.reported).await;
    let id = Id::namespaced("default", "fairlead-admission");
    let read = || async { world.cluster.get::<OpenReport>(&id, soon()).await.unwrap() };
    let report = read().await.unwrap();
    assert_eq!((report.summary.fail, report.results[0].policy.as_str()), (1, "no-cart"));
    assert_eq!(report.results[0].resources[0].name.as_deref(), Some("cart"));
    // Rules change, and what they find does not: the report is judged again, and not written.
    let judged = world.until(|_| true).await.judged;
    world.rule("other", json!({"name": "image", "op": "containsAny", "value": "nothing"})).await;
    world.until(|audit| audit.judged > judged).await;
    assert_eq!(read().await.unwrap().resource_version(), report.resource_version());
    // Nothing is found any more: no report is left.
    let rule = Id::cluster("no-cart");
    let gone = world.store.delete::<AdmissionRule>(&rule, Expected::Any, soon()).await.unwrap();
    assert_eq!(gone, Deletion::Gone);
    world.until(|audit| audit.findings.is_empty()).await;
    assert!(read().await.is_none());
    let all = world.cluster.list::<OpenReport>(&Within::default(), soon()).await.unwrap();
    assert!(all.items.is_empty());
}
