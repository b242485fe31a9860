//! The Deployment and the disruption budget of an egress: pure.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use objects::kinds::Egress;
use serde_json::{Map, Value, json};

use super::EgressControllerConfig;
use crate::egress::{LABEL, READY_PORT};

/// The name of the container that translates addresses.
const CONTAINER: &str = "egress";
/// How long a replica that ends keeps its connections, in seconds: the kubelet's own default.
const GRACE: i64 = 30;

/// The Deployment of an egress, or why its template makes none.
pub(super) fn deployment(
    egress: &Egress,
    config: &EgressControllerConfig,
) -> Result<Deployment, serde_json::Error> {
    let name = egress.metadata.name.clone().unwrap_or_default();
    let template = egress.spec.template.clone().unwrap_or_default();
    let mut labels = template.metadata.labels;
    labels.insert("app.kubernetes.io/name".to_owned(), "fairlead-egress".to_owned());
    labels.insert(LABEL.to_owned(), name.clone());
    let mut spec = json!({
        "replicas": egress.spec.replicas,
        "selector": { "matchLabels": { LABEL: name } },
        "template": {
            "metadata": { "labels": labels, "annotations": template.metadata.annotations },
            "spec": pod_spec(template.spec, config),
        },
    });
    if let Some(strategy) = &egress.spec.strategy {
        spec["strategy"] = Value::Object(strategy.clone());
    }
    serde_json::from_value(json!({
        "metadata": metadata(egress, &name),
        "spec": spec,
    }))
}

/// The disruption budget of an egress, if it asks for one.
pub(super) fn budget(egress: &Egress) -> Option<PodDisruptionBudget> {
    let budget = egress.spec.pod_disruption_budget.as_ref()?;
    let name = egress.metadata.name.clone().unwrap_or_default();
    let mut spec = json!({ "selector": { "matchLabels": { LABEL: name } } });
    for (field, value) in
        [("minAvailable", &budget.min_available), ("maxUnavailable", &budget.max_unavailable)]
    {
        if let Some(value) = value {
            spec[field] = value.clone();
        }
    }
    serde_json::from_value(json!({ "metadata": metadata(egress, &name), "spec": spec })).ok()
}

fn metadata(egress: &Egress, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": egress.metadata.namespace,
        "labels": { LABEL: name, "app.kubernetes.io/managed-by": "fairlead" },
        "ownerReferences": [{
            "apiVersion": "fairlead.dev/v1alpha1",
            "kind": "Egress",
            "name": name,
            "uid": egress.metadata.uid.clone().unwrap_or_default(),
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    })
}

/// The pod that the template says, with what a replica needs where the template does not say it.
fn pod_spec(mut spec: Map<String, Value>, config: &EgressControllerConfig) -> Value {
    // With its node's network it would translate the node's connections.
    spec.insert("hostNetwork".to_owned(), false.into());
    let mut or = |field: &str, value: Value| {
        spec.entry(field.to_owned()).or_insert(value);
    };
    or("terminationGracePeriodSeconds", GRACE.into());
    or("automountServiceAccountToken", false.into());
    or("enableServiceLinks", false.into());
    push(
        &mut spec,
        "volumes",
        json!({ "name": "fairlead-sysctls", "hostPath": { "path": "/proc/sys/net" } }),
    );
    push(&mut spec, "volumes", json!({ "name": "fairlead-data", "emptyDir": {} }));
    let containers = spec.entry("containers").or_insert_with(|| json!([]));
    if let Some(containers) = containers.as_array_mut() {
        if !containers.iter().any(|it| it["name"] == CONTAINER) {
            containers.push(json!({ "name": CONTAINER }));
        }
        for it in containers.iter_mut().filter(|it| it["name"] == CONTAINER) {
            if let Some(it) = it.as_object_mut() {
                container(it, config);
            }
        }
    }
    Value::Object(spec)
}

fn container(it: &mut Map<String, Value>, config: &EgressControllerConfig) {
    let mut or = |field: &str, value: Value| {
        it.entry(field.to_owned()).or_insert(value);
    };
    or("image", config.image.clone().into());
    or(
        "args",
        json!([
            "egress",
            "--grace",
            "25s",
            "--data",
            "/var/lib/fairlead",
            "--net-egress-port",
            config.port.to_string()
        ]),
    );
    or("readinessProbe", json!({ "tcpSocket": { "port": READY_PORT }, "periodSeconds": 1 }));
    or("resources", json!({ "requests": { "cpu": "100m", "memory": "32Mi" } }));
    or(
        "securityContext",
        json!({
            "runAsUser": 0,
            "privileged": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"], "add": ["NET_ADMIN"] },
        }),
    );
    push(
        it,
        "volumeMounts",
        json!({ "name": "fairlead-sysctls", "mountPath": kernel::sysctl::MOUNTED }),
    );
    push(it, "volumeMounts", json!({ "name": "fairlead-data", "mountPath": "/var/lib/fairlead" }));
}

fn push(to: &mut Map<String, Value>, field: &str, item: Value) {
    let list = to.entry(field.to_owned()).or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut() {
        list.push(item);
    }
}

#[cfg(test)]
mod tests;
