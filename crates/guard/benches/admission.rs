//! Reviews decided per second with 50 rules (globs and regexes, all kinds of criteria), from the bytes
//! that an API server sends to the bytes of the answer; and the decision alone. The rival does what a
//! design without a compiled program does: it reads the same rules for each review, under one lock.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bench::Table;
use flow::{Readiness, Tasks};
use guard::admission::{Admission, HERE, Program, Request, Settings, Unknown, decide, response};
use objects::kinds::AdmissionRule;
use objects::{Expected, Objects};
use serde_json::{Value, json};

const RULES: usize = 50;
const EACH: Duration = Duration::from_secs(2);

/// None of them matches, so that all are looked at.
fn rules() -> Vec<AdmissionRule> {
    let criteria = |i: usize| match i % 10 {
        0 => {
            json!([{"name": "image", "op": "containsAny", "value": format!("evil{i}/*, docker.io/bad{i}/*:v?")}])
        }
        1 => json!([{"name": "user", "op": "regex", "value": format!("^system:bot-[0-9]+-{i}$")}]),
        2 => {
            json!([{"name": "labels", "op": "containsAny", "value": format!("owner=team-{i}*, tier=t{i}?")}])
        }
        3 => {
            json!([{"name": "namespace", "op": "containsAny", "value": format!("prod-{i}-*,stage-{i}-*")},
                    {"name": "runAsPrivileged", "op": "=", "value": "true"}])
        }
        4 => {
            json!([{"name": "envVars", "op": "containsAny", "value": format!("DEBUG_{i}=*, TRACE_{i}")}])
        }
        5 => json!([{"name": "userGroups", "op": "regex", "value": format!("(admins|root)-{i}$")},
                    {"name": "imageRegistry", "op": "containsAny", "value": "*.corp.example"}]),
        6 => {
            json!([{"name": "annotations", "op": "containsAny", "value": format!("policy/{i}=off*")}])
        }
        7 => {
            json!([{"name": "mountVolumes", "op": "containsAny", "value": format!("/var/run/{i}/*, /etc/shadow{i}")}])
        }
        8 => json!([{"name": "shareNetWithHost", "op": "=", "value": "true"}]),
        _ => json!([{"name": "resourceLimit", "sub_criteria": [
            {"name": "cpuLimit", "op": ">", "value": format!("{}", 64 + i)}]}]),
    };
    let rule = |i: usize| {
        json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
               "metadata": {"name": format!("rule-{i:02}")},
               "spec": {"action": "deny", "mode": "protect", "criteria": criteria(i)}})
    };
    (0..RULES).map(|i| serde_json::from_value(rule(i)).unwrap()).collect()
}

/// A Deployment as people write them, with what a server adds: about 3 KiB.
fn review() -> Vec<u8> {
    let container = json!({
        "name": "cart", "image": "harbor.acme.io/web/cart:v2.14.1",
        "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log",
        "env": (0..8).map(|i| json!({"name": format!("SETTING_{i}"), "value": format!("value-{i}")})).collect::<Vec<_>>(),
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}, "periodSeconds": 10},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "securityContext": {"runAsNonRoot": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    });
    let labels = json!({"app": "cart", "tier": "web", "team": "checkout", "version": "v2.14.1"});
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "cart", "namespace": "shop", "uid": "0b9f2a7e-9f4b-4d6e-8a43-1f2a3b4c5d6e",
                     "labels": labels, "annotations": {"deployment.kubernetes.io/revision": "14"},
                     "managedFields": [{"manager": "kubectl", "operation": "Apply", "apiVersion": "apps/v1",
                         "fieldsV1": {"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
                             "k:{\"name\":\"cart\"}": {"f:env": {}, "f:image": {}, "f:ports": {}, "f:resources": {}}}}}}}}]},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "cart"}},
                 "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                 "template": {"metadata": {"labels": labels},
                              "spec": {"containers": [container.clone(), {"name": "sidecar", "image": "harbor.acme.io/ops/log:1"}],
                                       "serviceAccountName": "cart", "dnsPolicy": "ClusterFirst",
                                       "volumes": [{"name": "data", "emptyDir": {}}]}}},
    });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                    "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
                    "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
                    "name": "cart", "namespace": "shop", "operation": "UPDATE",
                    "userInfo": {"username": "alice@acme.io", "groups": ["devs", "system:authenticated"]},
                    "object": object, "oldObject": object, "dryRun": false},
    });
    review.to_string().into_bytes()
}

/// How often a second `work` is done by two threads.
fn rate(work: impl Fn() + Sync) -> f64 {
    let threads = 2;
    let began = Instant::now();
    let done: u64 = std::thread::scope(|scope| {
        let one = || {
            let mut done = 0;
            while began.elapsed() < EACH {
                for _ in 0..16 {
                    work();
                }
                done += 16;
            }
            done
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    done as f64 / began.elapsed().as_secs_f64()
}

fn main() -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.unwrap();
    let _entered = runtime.enter();
    let (rules, review) = (rules(), review());
    let settings = Settings::new(true);

    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("bench");
    let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
    let admission =
        Admission::start(&objects, settings.clone(), vec![], &Readiness::default(), &tasks);
    runtime.block_on(async {
        let soon = || flow::Deadline::after(Duration::from_secs(30));
        for rule in &rules {
            objects.apply(rule, Expected::Any, soon()).await.unwrap();
        }
        while admission.rules().list().len() < RULES {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let answer = admission.review(HERE, &review).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["response"]["allowed"], true, "{answer}");

    let program = Program::compile(&rules, &settings).unwrap();
    let request = Request::review(&review, &settings).unwrap();
    let decided = rate(|| {
        assert!(decide(&program, &request, &Unknown).allowed);
    });
    let read = rate(|| {
        Request::review(&review, &settings).unwrap();
    });
    let whole = rate(|| {
        admission.review(HERE, &review).unwrap();
    });
    // Rules as they were written, behind the one lock that everything else takes too.
    let rival = Arc::new(Mutex::new(rules));
    let rival = rate(|| {
        let request = Request::review(&review, &settings).unwrap();
        let rules = rival.lock().unwrap();
        let program = Program::compile(&rules, &settings).unwrap();
        let decision = decide(&program, &request, &Unknown);
        response(Ok((&request, &decision))).to_string();
    });
    tasks.stop("done");
    let mut table = Table::new("admission");
    let what = |what: &str| format!("{what}, {RULES} rules, {} bytes, 2 threads", review.len());
    table.row(&what("reviews decided"), "/s", decided, &[]);
    table.must("at least 250,000/s", decided >= 250_000.0);
    table.row(&what("reviews read"), "/s", read, &[]);
    table.row(&what("bytes to answer"), "/s", whole, &[("rules read each time, one lock", rival)]);
    table.must("at least 50 times", whole >= 50.0 * rival);
    let dropped = admission.dropped() as f64;
    table.row("decisions that the audit dropped", "", dropped, &[]);
    table.finish()
}
