use serde_json::json;

use super::*;

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

#[allow(clippy::needless_pass_by_value, reason = "tests write their objects in place")]
fn named(kind: &str, name: &str, more: Value) -> DynamicObject {
    let mut whole = json!({ "apiVersion": "v1", "kind": kind,
        "metadata": { "name": name, "namespace": "shop" } });
    whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object(whole)
}

fn pod(labels: Value) -> DynamicObject {
    let mut pod = named(
        "Pod",
        "web-0",
        json!({ "spec": {
        "serviceAccountName": "web",
        "imagePullSecrets": [{ "name": "registry" }],
        "volumes": [
            { "name": "data", "persistentVolumeClaim": { "claimName": "data-0" } },
            { "name": "all", "projected": { "sources": [{ "secret": { "name": "projected" } }] } },
        ],
        "containers": [{ "name": "main",
            "envFrom": [{ "configMapRef": { "name": "settings" } }],
            "env": [{ "name": "P", "valueFrom": { "secretKeyRef": { "name": "login", "key": "p" } } }] }],
    } }),
    );
    pod.metadata.labels = serde_json::from_value(labels).unwrap();
    pod
}

fn told(object: &DynamicObject, lists: &Lists) -> Vec<String> {
    let one = |it: &Relation| format!("{} {}/{} {}", it.how.text(), it.kind, it.name, it.via);
    relations(object, lists).iter().map(|it| one(it).trim_end().to_owned()).collect()
}

#[test]
fn a_pod_uses_what_it_names_and_is_selected_by_what_takes_its_labels() {
    let service = |name: &str, selector: Value| {
        named("Service", name, json!({ "spec": { "selector": selector } }))
    };
    let ingress = named(
        "Ingress",
        "front",
        json!({ "spec": {
        "rules": [{ "http": { "paths": [{ "backend": { "service": { "name": "web" } } }] } }],
        "defaultBackend": { "service": { "name": "other" } } } }),
    );
    let policy = |name: &str, selector: Value| {
        named("NetworkPolicy", name, json!({ "spec": { "podSelector": selector } }))
    };
    let lists = Lists::from([
        (
            SERVICES,
            vec![
                service("web", json!({ "app": "web" })),
                service("none", json!({})),
                service("other", json!({ "app": "other" })),
            ],
        ),
        (INGRESSES, vec![ingress]),
        (
            POLICIES,
            vec![
                policy("all", json!({})),
                policy(
                    "not",
                    json!({ "matchExpressions": [
                { "key": "app", "operator": "NotIn", "values": ["web"] }] }),
                ),
                policy(
                    "odd",
                    json!({ "matchExpressions": [{ "key": "app", "operator": "Like" }] }),
                ),
            ],
        ),
    ]);
    let told = told(&pod(json!({ "app": "web" })), &lists);
    assert_eq!(
        told,
        [
            "selected-by NetworkPolicy/all",
            "selected-by Service/web",
            "uses ConfigMap/settings env of main",
            "uses PersistentVolumeClaim/data-0 volume data",
            "uses Secret/login env of main",
            "uses Secret/projected volume all",
            "uses Secret/registry imagePullSecrets",
            "uses ServiceAccount/web",
            "routed-by Ingress/front Service web",
        ]
    );
}

#[test]
fn a_workload_is_related_by_its_template_and_scaled_by_who_names_it() {
    let scaler = |kind: &str| {
        let target = json!({ "kind": kind, "name": "web", "apiVersion": "apps/v1" });
        named("HorizontalPodAutoscaler", kind, json!({ "spec": { "scaleTargetRef": target } }))
    };
    let deployment = named(
        "Deployment",
        "web",
        json!({ "spec": { "template": {
        "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [] } } } }),
    );
    let scalers = vec![scaler("Deployment"), scaler("StatefulSet")];
    let service = named("Service", "web", json!({ "spec": { "selector": { "app": "web" } } }));
    let lists = Lists::from([(AUTOSCALERS, scalers), (SERVICES, vec![service])]);
    assert_eq!(
        told(&deployment, &lists),
        [
            "selected-by Service/web",
            "uses ServiceAccount/default",
            "scaled-by HorizontalPodAutoscaler/Deployment"
        ]
    );
    assert_eq!(told(&scaler("Deployment"), &Lists::new()), ["scales Deployment/web"]);
}

#[test]
fn what_is_used_names_its_users() {
    let pods = || Lists::from([(PODS, vec![pod(json!({ "app": "web" }))])]);
    for (kind, name, expected) in [
        ("ConfigMap", "settings", "used-by Pod/web-0 env of main"),
        ("Secret", "login", "used-by Pod/web-0 env of main"),
        ("PersistentVolumeClaim", "data-0", "used-by Pod/web-0 volume data"),
        ("ServiceAccount", "web", "used-by Pod/web-0"),
    ] {
        let object = named(kind, name, json!({}));
        assert_eq!(needed(&object)[0], PODS);
        assert_eq!(told(&object, &pods()), [expected]);
    }
    assert_eq!(told(&named("ConfigMap", "login", json!({})), &pods()), [""; 0]);
    let service = named("Service", "web", json!({ "spec": { "selector": { "app": "web" } } }));
    assert_eq!(told(&service, &pods()), ["selects Pod/web-0"]);
}
