use kube::core::ApiResource;
use serde_json::json;

use super::*;
use crate::ServedKind;

fn target(plural: &str, group: &str) -> Target {
    let resource = ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version: if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") },
        kind: "It".to_owned(),
        plural: plural.to_owned(),
    };
    let found = ServedKind {
        resource,
        singular: String::new(),
        namespaced: true,
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
    };
    Target::new(&found, Some("shop"), "web").unwrap()
}

fn pod(name: &str, status: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "initContainers": [
                { "name": "once", "ports": [{ "name": "setup", "containerPort": 1 }] },
                { "name": "proxy", "restartPolicy": "Always",
                  "ports": [{ "name": "admin", "containerPort": 15000 }] },
            ],
            "containers": [{ "name": "main", "ports": [
                { "name": "http", "containerPort": 8080 },
                { "name": "dns", "containerPort": 53, "protocol": "UDP" },
            ] }],
        },
        "status": status,
    }))
    .unwrap()
}

fn ready(name: &str, since: &str, restarts: u32) -> Pod {
    pod(
        name,
        &json!({
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": since }],
            "containerStatuses": [{ "name": "main", "restartCount": restarts, "ready": true,
                                    "image": "", "imageID": "" }],
        }),
    )
}

fn service(spec: &Value) -> PodSource {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" }, "spec": spec,
    }))
    .unwrap();
    PodSource::new(&target("services", ""), object).unwrap()
}

fn web() -> PodSource {
    service(&json!({ "selector": { "app": "web" }, "ports": [
        { "name": "http", "port": 80, "targetPort": "http" },
        { "name": "plain", "port": 81, "targetPort": 9000 },
        { "name": "same", "port": 82 },
        { "name": "dns", "port": 53, "protocol": "UDP" },
    ] }))
}

fn chosen(source: &PodSource, pods: &[Pod], port: &str) -> Result<(String, u16, u16), String> {
    choose(&target("services", ""), source, pods, port)
        .map(|it| (it.pod, it.port, it.asked))
        .map_err(|error| error.to_string())
}

#[test]
fn a_services_port_becomes_the_pods() {
    let pods = &[ready("a", "2026-01-01T00:00:00Z", 0)];
    for (port, pods_port, asked) in
        [("80", 8080, 80), ("http", 8080, 80), ("81", 9000, 81), ("same", 82, 82)]
    {
        assert_eq!(chosen(&web(), pods, port), Ok(("a".to_owned(), pods_port, asked)), "{port}");
    }
    let headless = json!({ "clusterIP": "None", "selector": { "app": "web" },
                           "ports": [{ "port": 80, "targetPort": 9000 }] });
    assert_eq!(chosen(&service(&headless), pods, "80"), Ok(("a".to_owned(), 80, 80)));
}

#[test]
fn a_port_that_is_not_there_is_answered_with_those_there_are() {
    let pods = &[ready("a", "2026-01-01T00:00:00Z", 0)];
    for wrong in ["8080", "https", "0", "70000"] {
        let why = chosen(&web(), pods, wrong).unwrap_err();
        assert!(why.contains("80 (http), 81 (plain), 82 (same), 53 (dns, UDP)"), "{why}");
    }
    assert!(chosen(&web(), pods, "dns").unwrap_err().contains("not TCP"));
    // Even where no pod is ready: it would never be right.
    assert!(chosen(&web(), &[], "8080").unwrap_err().contains("has no port"));
    let workload = PodSource::Workload("app=web".to_owned());
    let why = chosen(&workload, pods, "https").unwrap_err();
    assert!(why.contains("it has 8080 (http), 53 (dns, UDP), 15000 (admin)"), "{why}");
    assert_eq!(chosen(&workload, pods, "admin"), Ok(("a".to_owned(), 15000, 15000)));
    assert_eq!(chosen(&workload, pods, "9090"), Ok(("a".to_owned(), 9090, 9090)), "any number");
    assert!(chosen(&workload, pods, "70000").unwrap_err().contains("no port"));
}

#[test]
fn the_pod_that_is_ready_longest_is_chosen() {
    let mut stopping = ready("stopping", "2020-01-01T00:00:00Z", 0);
    stopping.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let pods = vec![
        pod("pending", &json!({ "phase": "Pending" })),
        stopping,
        ready("young", "2026-01-02T00:00:00Z", 0),
        ready("restarted", "2026-01-01T00:00:00Z", 3),
        ready("old", "2026-01-01T00:00:00Z", 0),
    ];
    assert_eq!(chosen(&web(), &pods, "80").unwrap().0, "old");
}

#[test]
fn where_no_pod_is_ready_those_there_are_are_named() {
    let why = chosen(&web(), &[], "80").unwrap_err();
    assert_eq!(why, "services/web in shop has no pods: its selector matches none");
    let mut pods = vec![
        pod("done", &json!({ "phase": "Succeeded" })),
        pod("starting", &json!({ "phase": "Running" })),
    ];
    let why = chosen(&web(), &pods, "80").unwrap_err();
    assert!(why.contains("no ready pod: starting is running and not ready, done is done"), "{why}");
    pods.extend((0..9).map(|n| pod(&format!("p{n}"), &json!({ "phase": "Pending" }))));
    assert!(chosen(&web(), &pods, "80").unwrap_err().contains(", and 6 more"));
}

#[test]
fn what_selects_no_pods_says_so() {
    let source = |plural: &str, group: &str, spec: Value| {
        let kind = if plural == "services" { "Service" } else { "It" };
        let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": {}, "spec": spec });
        let object = serde_json::from_value(object).unwrap();
        match PodSource::new(&target(plural, group), object) {
            Ok(PodSource::Service(_, labels) | PodSource::Workload(labels)) => Ok(labels),
            Ok(PodSource::Pod(_)) => Ok("pod".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    let labels = json!({ "selector": { "matchLabels": { "app": "web" } } });
    assert_eq!(source("deployments", "apps", labels), Ok("app=web".to_owned()));
    let expressions = json!({ "selector": { "matchExpressions":
        [{ "key": "tier", "operator": "In", "values": ["a", "b"] }] } });
    let said = source("jobs", "batch", expressions).unwrap();
    assert!(said.starts_with("tier in ("), "{said}");
    let plain = json!({ "selector": { "app": "web" } });
    assert_eq!(source("replicationcontrollers", "", plain), Ok("app=web".to_owned()));
    assert!(source("configmaps", "", json!(null)).unwrap_err().contains("selects no pods"));
    assert!(source("deployments", "apps", json!({ "selector": {} })).is_err(), "not every pod");
    let elsewhere = json!({ "type": "ExternalName", "externalName": "example.com" });
    assert!(source("services", "", elsewhere).unwrap_err().contains("no selector"));
}
