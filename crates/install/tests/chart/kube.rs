//! A real API server takes every object of the chart.

use std::collections::BTreeSet;

use install::chart::{Chart, Release};
use install::values::Values;
use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use testkit::{KubeServer, requires};

use crate::values::every_file;

/// Stands in for the Prometheus operator's definitions, which are not ours.
fn monitoring(kind: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.monitoring.coreos.com"),
                     "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object",
                    "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}],
        },
    })
}

fn api_of(client: &kube::Client, object: &Value) -> Api<DynamicObject> {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let resource = ApiResource::from_gvk(&kind);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

async fn apply(client: &kube::Client, object: &Value) -> Result<DynamicObject, kube::Error> {
    let api = api_of(client, object);
    // As Helm does it. Old servers refuse an apply with fields that they do not know.
    let new: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    match api.create(&PostParams::default(), &new).await {
        Err(kube::Error::Api(error)) if error.code == 409 => {
            let name = object["metadata"]["name"].as_str().unwrap();
            api.patch(name, &PatchParams::default(), &Patch::Merge(object)).await
        }
        other => other,
    }
}

/// Definitions are served a moment after they were taken.
async fn apply_soon(client: &kube::Client, object: &Value, of: &str) {
    let name = &object["metadata"]["name"];
    let mut last = None;
    for _ in 0..100 {
        match apply(client, object).await {
            Ok(_) => return,
            Err(kube::Error::Api(error)) if error.code == 404 => last = Some(error),
            Err(error) => panic!("{of}: {} {name}: {error}", object["kind"]),
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("{of}: {} {name}: {last:?}", object["kind"]);
}

async fn versions(client: &kube::Client) -> BTreeSet<String> {
    let groups = client.list_api_groups().await.unwrap().groups;
    groups
        .into_iter()
        .flat_map(|group| group.versions)
        .map(|version| version.group_version)
        .collect()
}

/// A server with budgets: where they are still beta, they are asked for.
async fn start() -> KubeServer {
    let server = KubeServer::start().await;
    if versions(&server.client().await).await.iter().any(|version| version.starts_with("policy/")) {
        return server;
    }
    KubeServer::start_with(&["--runtime-config=policy/v1beta1=true"]).await
}

#[tokio::test]
async fn a_server_takes_every_object_of_every_choice() {
    requires!(kube);
    let server = start().await;
    let client = server.client().await;
    for (kind, plural) in [("PodMonitor", "podmonitors"), ("PrometheusRule", "prometheusrules")] {
        apply(&client, &monitoring(kind, plural)).await.unwrap();
    }
    let api_versions = versions(&client).await;
    let mut chosen = every_file();
    chosen.push(("defaults".to_owned(), Values::default()));
    for (name, values) in chosen {
        // A namespace each: what one choice leaves out, the next must not find.
        let namespace = name.replace('.', "-");
        let release =
            Release { namespace, api_versions: api_versions.clone(), ..Release::default() };
        apply(&client, &install::chart::namespace(&release)).await.unwrap();
        let rendered = Chart::embedded().render(&release, &values).unwrap();
        assert!(rendered.objects.len() > 5, "{name}");
        for object in &rendered.objects {
            apply_soon(&client, object, &name).await;
        }
        // Pools keep the size of their blocks: the next choice has others.
        for pool in rendered.objects.iter().filter(|object| object["kind"] == "AddressPool") {
            let name = pool["metadata"]["name"].as_str().unwrap();
            api_of(&client, pool).delete(name, &DeleteParams::default()).await.unwrap();
        }
    }
}
