#![allow(clippy::needless_pass_by_value, reason = "`json!` is written where it is passed")]

use objects::kinds::AdmissionRule;
use objects::{Deletion, Expected, Id};
use serde_json::{Value, json};

use super::*;

struct Court {
    admission: Admission,
    objects: Objects,
    readiness: Readiness,
    tasks: Tasks,
    _data: tempfile::TempDir,
}

impl Court {
    fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let tasks = Tasks::new("court");
        let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
        let readiness = Readiness::default();
        let exempt = vec!["kube-system".to_owned()];
        let admission = Admission::start(&objects, Settings::new(true), exempt, &readiness, &tasks);
        Self { admission, objects, readiness, tasks, _data: data }
    }

    async fn with(rules: &[Value]) -> Self {
        let court = Self::new();
        for (i, spec) in rules.iter().enumerate() {
            court.rule(&format!("r{i}"), spec).await;
        }
        court.until(|admission| admission.rules().list().len() == rules.len()).await;
        court
    }

    async fn rule(&self, name: &str, spec: &Value) {
        let rule: AdmissionRule = serde_json::from_value(json!({
            "apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
            "metadata": {"name": name}, "spec": spec,
        }))
        .unwrap();
        self.objects.apply(&rule, Expected::Any, soon()).await.unwrap();
    }

    /// Keeps a document as an import does.
    async fn import(&self, document: &Value) {
        let now = Timestamp::now().as_second();
        match crate::document(document, now, "alice").unwrap() {
            crate::Document::Report(report) => {
                self.objects.apply(&*report, Expected::Any, soon()).await.unwrap();
            }
            crate::Document::Root(root) => {
                self.objects.apply(&*root, Expected::Any, soon()).await.unwrap();
            }
            crate::Document::Exception(exception) => {
                self.objects.apply(&*exception, Expected::Any, soon()).await.unwrap();
            }
        }
    }

    /// Waits until what was written is seen.
    async fn until(&self, seen: impl Fn(&Admission) -> bool) {
        let patience = soon();
        while !(self.admission.rules().is_told() && seen(&self.admission)) {
            assert!(!patience.has_passed(), "it never comes");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn ask(&self, review: &Value) -> Value {
        let answer = self.admission.review(LOCAL_CLUSTER, review.to_string().as_bytes()).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
        answer["response"].clone()
    }

    /// The lines, once so many records are in them.
    async fn lines(&self, records: u64) -> Vec<Arc<super::super::Line>> {
        let counted = |admission: &Admission| {
            admission.audit().lines.values().map(|line| line.count).sum::<u64>()
        };
        self.until(|admission| counted(admission) >= records).await;
        assert_eq!(counted(&self.admission), records);
        self.admission.audit().lines.values().cloned().collect()
    }
}

impl Drop for Court {
    fn drop(&mut self) {
        self.tasks.stop("the test is over");
    }
}

fn soon() -> stallproof::Deadline {
    stallproof::Deadline::after(Duration::from_secs(30))
}

fn review(object: Value, user: &str) -> Value {
    let (group, kind) = match object["kind"].as_str().unwrap() {
        kind @ "Pod" => ("", kind),
        kind => ("apps", kind),
    };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "ask-1", "kind": {"group": group, "version": "v1", "kind": kind},
            "operation": "CREATE", "namespace": "shop", "name": object["metadata"]["name"],
            "userInfo": {"username": user, "groups": ["system:authenticated"]},
            "object": object,
        },
    })
}

fn owned(kind: &str, name: &str, owner: Option<&str>, image: &str) -> Value {
    let spec = json!({"containers": [{"name": "web", "image": image}]});
    let mut metadata = json!({"name": name, "namespace": "shop", "uid": format!("uid-{name}")});
    if let Some(owner) = owner {
        metadata["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "name": owner, "controller": true,
            "kind": if kind == "Pod" { "ReplicaSet" } else { "Deployment" },
            "uid": format!("uid-{owner}"),
        }]);
    }
    let spec = if kind == "Pod" { spec } else { json!({"template": {"spec": spec}}) };
    json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec})
}

const DEPLOYMENT_CONTROLLER: &str = "system:serviceaccount:kube-system:deployment-controller";
const REPLICASET_CONTROLLER: &str = "system:serviceaccount:kube-system:replicaset-controller";

fn deny(criteria: Value) -> Value {
    json!({"action": "deny", "criteria": criteria})
}

#[tokio::test]
async fn nothing_is_decided_before_the_rules_are_known() {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("court");
    let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
    let readiness = Readiness::default();
    let admission = Admission::start(&objects, Settings::new(true), vec![], &readiness, &tasks);
    // No task has run yet.
    let asked = review(owned("Pod", "p", None, "x"), "alice").to_string();
    assert_eq!(admission.review(LOCAL_CLUSTER, asked.as_bytes()), Err(Undecided::NotReady));
    assert!(!readiness.report().ready);
    tasks.stop("the test is over");
}

#[tokio::test]
async fn rules_hold_as_soon_as_the_store_tells_them_and_no_longer() {
    let court = Court::with(&[]).await;
    assert!(court.readiness.report().ready);
    let asked = review(owned("Pod", "p", None, "evil/miner"), "alice");
    assert_eq!(court.ask(&asked)["allowed"], true);
    let criteria = json!([{"name": "image", "op": "containsAny", "value": "evil/*"}]);
    court.rule("no-miners", &deny(criteria)).await;
    court.until(|admission| !admission.rules().list().is_empty()).await;
    let answer = court.ask(&asked);
    assert_eq!(answer["allowed"], false);
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("denied by rule \"no-miners\": container \"web\""), "{message}");
    let id = Id::cluster("no-miners");
    let gone = court.objects.delete::<AdmissionRule>(&id, Expected::Any, soon());
    assert_eq!(gone.await.unwrap(), Deletion::Gone);
    court.until(|admission| admission.rules().list().is_empty()).await;
    assert_eq!(court.ask(&asked)["allowed"], true);
}

#[tokio::test]
async fn a_pod_is_judged_by_who_made_its_owner() {
    let only_alice = json!([{"name": "user", "op": "notContainsAny", "value": "alice"},
                            {"name": "namespace", "op": "containsAny", "value": "shop"}]);
    let court = Court::with(&[deny(only_alice)]).await;
    assert_eq!(court.ask(&review(owned("Deployment", "d", None, "x"), "alice"))["allowed"], true);
    assert_eq!(court.ask(&review(owned("Deployment", "e", None, "x"), "bob"))["allowed"], false);
    court.until(|admission| admission.0.seen.load().owner("uid-d").is_some()).await;
    let set = review(owned("ReplicaSet", "rs", Some("d"), "x"), DEPLOYMENT_CONTROLLER);
    assert_eq!(court.ask(&set)["allowed"], true, "alice made what is above it");
    court.until(|admission| admission.0.seen.load().owner("uid-rs").is_some()).await;
    let pod = review(owned("Pod", "p", Some("rs"), "x"), REPLICASET_CONTROLLER);
    assert_eq!(court.ask(&pod)["allowed"], true);
    // What was refused made nothing.
    assert!(court.admission.0.seen.load().owner("uid-e").is_none());
    // The one line of the three says whose it is.
    let lines = court.lines(4).await;
    assert_eq!(lines.len(), 2);
    let line = lines.iter().find(|line| line.subject.outcome == Outcome::Allowed).unwrap();
    assert_eq!((line.subject.owner.as_str(), line.count), ("Deployment/d", 3));
    assert_eq!(line.latest.object, "Pod/p");
}

/// The attack: a reference to what somebody else made a moment ago, to be judged as them, and to be
/// found under their name in the audit.
#[tokio::test]
async fn pointing_at_what_another_made_borrows_nothing_of_theirs() {
    let only_alice = json!([{"name": "user", "op": "notContainsAny", "value": "alice"}]);
    let not_bob = json!([{"name": "user", "op": "containsAny", "value": "bob"}]);
    let court = Court::with(&[deny(only_alice), deny(not_bob)]).await;
    assert_eq!(court.ask(&review(owned("Deployment", "d", None, "x"), "alice"))["allowed"], true);
    court.until(|admission| admission.0.seen.load().owner("uid-d").is_some()).await;
    for kind in ["ReplicaSet", "Pod"] {
        let borrowed = review(owned(kind, "mine", Some("d"), "x"), "bob");
        assert_eq!(court.ask(&borrowed)["allowed"], false, "{kind}");
    }
    let lines = court.lines(3).await;
    let denied = lines.iter().filter(|line| line.subject.outcome == Outcome::Denied);
    let mut owners: Vec<_> = denied.map(|line| line.subject.owner.as_str()).collect();
    owners.sort_unstable();
    assert_eq!(owners, ["Pod/mine", "ReplicaSet/mine"]);
}

/// The attack: something that rules do not look at is changed on another's Deployment, so that what
/// it makes is judged as if the attacker, whom a rule lets in, had made it.
#[tokio::test]
async fn who_changes_nothing_that_rules_look_at_has_made_nothing() {
    let court = Court::with(&[]).await;
    let made = owned("Deployment", "d", None, "x");
    court.ask(&review(made.clone(), "alice"));
    let by = |admission: &Admission| {
        admission.0.seen.load().owner("uid-d").and_then(|owner| owner.by.clone())
    };
    court.until(|admission| by(admission).is_some()).await;
    let update = |object: &Value, user: &str| {
        let mut asked = review(object.clone(), user);
        asked["request"]["operation"] = json!("UPDATE");
        asked["request"]["oldObject"] = made.clone();
        asked
    };
    let mut touched = made.clone();
    touched["metadata"]["finalizers"] = json!(["example.com/mine"]);
    touched["spec"]["replicas"] = json!(3);
    court.ask(&update(&touched, "bob"));
    let mut changed = made.clone();
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = json!("y");
    court.ask(&update(&changed, "carol"));
    court.until(|admission| by(admission).unwrap().0 != "alice").await;
    assert_eq!(by(&court.admission).unwrap().0, "carol");
    assert_eq!(court.lines(2).await.len(), 2, "what changes nothing is not recorded");
}

#[tokio::test]
async fn what_was_not_read_is_refused_where_rules_refuse() {
    let begun = br#"{"apiVersion":"admission.k8s.io/v1","request":{"uid":"u-9","object":{"#;
    let court = Court::with(&[]).await;
    let answer = court.admission.refuse_unread(LOCAL_CLUSTER, begun, "it is too large").unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["response"]["uid"], "u-9");
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(answer["response"]["status"]["message"], "it is too large");
    let nameless = court.admission.refuse_unread(LOCAL_CLUSTER, b"{", "it is too large");
    assert!(matches!(nameless, Err(Undecided::Malformed(_))), "nobody can be answered");
    let elsewhere = court.admission.refuse_unread("elsewhere", begun, "it is too large");
    assert!(matches!(elsewhere, Err(Undecided::NoSuchCluster(_))));
}

#[tokio::test]
async fn records_are_those_of_the_decision() {
    let mut monitor = deny(json!([{"name": "image", "op": "containsAny", "value": "*:latest"}]));
    monitor["mode"] = json!("monitor");
    let criteria = json!([{"name": "image", "op": "containsAny", "value": "evil/*"}]);
    let court = Court::with(&[monitor, deny(criteria)]).await;
    // Monitored and nothing else: no second record says that it was allowed.
    court.ask(&review(owned("Pod", "a", None, "web/cart:latest"), "u"));
    // Monitored, and then denied.
    court.ask(&review(owned("Pod", "b", None, "evil/miner:latest"), "u"));
    let mut dry = review(owned("Pod", "c", None, "evil/miner:1"), "u");
    dry["request"]["dryRun"] = json!(true);
    court.ask(&dry);
    // Exempt: not looked at, and not recorded.
    let mut exempt = owned("Pod", "d", None, "evil/miner:1");
    exempt["metadata"]["namespace"] = json!("kube-system");
    assert_eq!(court.ask(&review(exempt, "u"))["allowed"], true);
    let mut lines: Vec<_> = court
        .lines(4)
        .await
        .iter()
        .map(|line| {
            let subject = &line.subject;
            (subject.owner.clone(), subject.outcome.name(), subject.rule.clone(), subject.dry_run)
        })
        .collect();
    lines.sort();
    let line = |owner: &str, outcome, rule: &str, dry_run| {
        (owner.to_owned(), outcome, Some(rule.to_owned()), dry_run)
    };
    assert_eq!(
        lines,
        [
            line("Pod/a", "monitored", "r0", false),
            line("Pod/b", "denied", "r1", false),
            line("Pod/b", "monitored", "r0", false),
            line("Pod/c", "denied", "r1", true),
        ]
    );
}

#[tokio::test]
async fn what_cannot_be_answered_is_said_to_be_so() {
    let court = Court::with(&[]).await;
    let review_of = |text: &str| court.admission.review(LOCAL_CLUSTER, text.as_bytes());
    assert!(matches!(review_of("no json"), Err(Undecided::Malformed(_))));
    // It can be named, so it is refused by name.
    let odd = json!({"apiVersion": "admission.k8s.io/v1beta1", "request": {
        "uid": "u", "operation": "CREATE", "kind": {"group": "", "kind": "Pod"}, "object": 1}});
    let answer: Value = serde_json::from_slice(&review_of(&odd.to_string()).unwrap()).unwrap();
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1beta1");
    assert_eq!(answer["response"]["allowed"], false);
    let elsewhere = court.admission.review("elsewhere", b"{}");
    assert_eq!(elsewhere, Err(Undecided::NoSuchCluster("elsewhere".to_owned())));
}

/// The writer of the audit does not run here; deciding goes on, and what has no room is counted.
#[test]
fn a_stuck_audit_costs_no_decision() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let entered = runtime.enter();
    let court = Court::new();
    drop(entered);
    court.admission.0.rules.update(|rules| {
        rules.reset(vec![], &court.admission.0.settings);
        true
    });
    let asked = review(owned("Pod", "p", None, "x"), "alice").to_string();
    for _ in 0..NOTES + 100 {
        assert!(court.admission.review(LOCAL_CLUSTER, asked.as_bytes()).is_ok());
    }
    assert_eq!(court.admission.dropped(), 100);
}

mod images;
