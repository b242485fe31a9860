//! What benchmarks of admission have in common: fifty mixed rules, a review, and threads that decide.

#![allow(dead_code, reason = "each benchmark takes its part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use admission::{Program, Request, Settings};
use objects::kinds::AdmissionRule;
use serde_json::json;

pub(crate) const RULES: usize = 50;

/// None of them matches, so that all are looked at.
pub(crate) fn rules() -> Vec<AdmissionRule> {
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
pub(crate) fn review() -> Vec<u8> {
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
    // Another image: what is not changed is not judged.
    let mut before = object.clone();
    before["spec"]["template"]["spec"]["containers"][0]["image"] =
        json!("harbor.acme.io/web/cart:v2.14.0");
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                    "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
                    "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
                    "name": "cart", "namespace": "shop", "operation": "UPDATE",
                    "userInfo": {"username": "alice@acme.io", "groups": ["devs", "system:authenticated"]},
                    "object": object, "oldObject": before, "dryRun": false},
    });
    review.to_string().into_bytes()
}

/// Threads that do nothing but decide.
pub(crate) const ADMITTING: usize = 8;
/// Reviews a second of a pace that no API server comes near.
pub(crate) const PACE: f64 = 10_000.0;

pub(crate) struct Admitting {
    stop: Arc<AtomicBool>,
    /// CPU time of each, in nanoseconds.
    spent: Arc<[AtomicU64]>,
    threads: Vec<thread::JoinHandle<u64>>,
    began: Instant,
}

impl Admitting {
    /// `pace`: reviews a second, of all together; none: without pause.
    pub(crate) fn start(
        pace: Option<f64>,
        decide: impl Fn(&Program, &Request) + Clone + Send + 'static,
    ) -> Self {
        let began = Instant::now();
        let settings = Settings::new(true);
        let program = Arc::new(Program::compile(&rules(), &settings).unwrap());
        let body: Arc<[u8]> = review().into();
        let stop = Arc::new(AtomicBool::new(false));
        let spent: Arc<[AtomicU64]> = (0..ADMITTING).map(|_| AtomicU64::new(0)).collect();
        let started = (0..ADMITTING).map(|number| {
            let (decide, program, spent) = (decide.clone(), program.clone(), spent.clone());
            let (body, stop) = (body.clone(), stop.clone());
            thread::spawn(move || {
                let request = Request::review(&body, &Settings::new(true)).unwrap();
                let mut reviews: u64 = 0;
                while !stop.load(Relaxed) {
                    for _ in 0..16 {
                        decide(&program, &request);
                    }
                    reviews += 16;
                    spent[number].store(cpu(CPU_OF_THREAD).as_nanos() as u64, Relaxed);
                    if let Some(pace) = pace {
                        let due = reviews as f64 * ADMITTING as f64 / pace;
                        let due = began + Duration::from_secs_f64(due);
                        thread::sleep(due.saturating_duration_since(Instant::now()));
                    }
                }
                reviews
            })
        });
        let threads = started.collect();
        Self { stop, spent, threads, began }
    }

    /// What all of them have spent, to a few dozen microseconds.
    pub(crate) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.spent.iter().map(|spent| spent.load(Relaxed)).sum())
    }

    /// Reviews a second.
    pub(crate) fn stop(self) -> f64 {
        self.stop.store(true, Relaxed);
        let reviews: u64 = self.threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        reviews as f64 / self.began.elapsed().as_secs_f64()
    }
}

pub(crate) use rustix::time::ClockId;
pub(crate) const CPU_OF_THREAD: ClockId = ClockId::ThreadCPUTime;
pub(crate) const CPU_OF_PROCESS: ClockId = ClockId::ProcessCPUTime;

pub(crate) fn cpu(whose: ClockId) -> Duration {
    let spent = rustix::time::clock_gettime(whose);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}
