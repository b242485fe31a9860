//! `fairlead net import`: what Coil has, from files and from a cluster.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use objects::kinds::{AddressBlock, AddressPool, Egress};
use objects::{Id, Objects, Within};
use serde_json::{Value, json};
use stallproof::Deadline;
use testkit::{KubeServer, requires};

/// Objects in Coil's form: a pool, a block of each of two nodes, a block of a node that is gone, an egress.
const COIL: &str = r#"
apiVersion: coil.cybozu.com/v2
kind: AddressPool
metadata: { name: default }
spec:
  blockSizeBits: 5
  subnets: [{ ipv4: 10.64.0.0/16 }]
---
apiVersion: coil.cybozu.com/v2
kind: AddressBlock
metadata:
  name: default-0
  finalizers: [coil.cybozu.com]
  labels: { coil.cybozu.com/pool: default, coil.cybozu.com/node: n1 }
index: 0
ipv4: 10.64.0.0/27
---
apiVersion: coil.cybozu.com/v2
kind: AddressBlock
metadata:
  name: default-7
  labels: { coil.cybozu.com/pool: default, coil.cybozu.com/node: n2 }
index: 7
ipv4: 10.64.0.224/27
---
apiVersion: coil.cybozu.com/v2
kind: AddressBlock
metadata:
  name: default-9
  labels: { coil.cybozu.com/pool: default, coil.cybozu.com/node: gone }
index: 9
ipv4: 10.64.1.32/27
---
apiVersion: coil.cybozu.com/v2
kind: Egress
metadata: { name: nat, namespace: internet }
spec:
  replicas: 2
  destinations: [203.0.113.0/24]
  fouSourcePortAuto: true
  template: { spec: { containers: [{ name: egress, image: coil }] } }
"#;

fn import(args: &[&str], kubeconfig: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead"));
    command.env("FAIRLEAD_CONFIG", "/dev/null").args(["net", "import", "-o", "json"]).args(args);
    if let Some(kubeconfig) = kubeconfig {
        command.arg("--kubeconfig").arg(kubeconfig);
    }
    command.output().unwrap()
}

fn read(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"))
}

fn outcomes(answer: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let report = answer["report"].as_array().unwrap();
    report.iter().map(|it| (text(&it["name"]), text(&it["outcome"]))).collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, outcome)| ((*name).to_owned(), (*outcome).to_owned())).collect()
}

#[test]
fn what_coil_has_is_said_one_by_one_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("coil.yaml");
    fs::write(&file, COIL).unwrap();
    let output = import(&[file.to_str().unwrap()], None);
    // Files alone do not say which nodes there are.
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let answer = read(&output);
    let kept = ["default", "default-0", "default-7", "default-9"].map(|name| (name, "kept"));
    let expected = [&kept[..], &[("internet/nat", "changed")]].concat();
    assert_eq!(outcomes(&answer), pairs(&expected));
    assert_eq!((&answer["applied"], &answer["written"]), (&json!(false), &json!(0)));
    let objects = answer["objects"].as_array().unwrap();
    assert!(objects.iter().all(|it| it["apiVersion"] == "fairlead.dev/v1alpha1"), "{objects:?}");
    assert_eq!(objects[1]["spec"]["node"], "n1");
    // What is not Coil's is refused, and the exit code says so.
    fs::write(&file, "apiVersion: v1\nkind: Secret\nmetadata: { name: x }\n").unwrap();
    let output = import(&[file.to_str().unwrap()], None);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(outcomes(&read(&output)), pairs(&[("x", "refused")]));
    let output = import(&["/no/such/file"], None);
    assert_eq!(output.status.code(), Some(2));
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    let gvk = GroupVersionKind::gvk("coil.cybozu.com", "v2", kind);
    ApiResource::from_gvk_with_plural(&gvk, plural)
}

/// Coil's kinds, as far as a server must know them to keep their objects.
async fn define(client: &kube::Client) {
    let definitions =
        ApiResource::erase::<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &definitions);
    for (kind, plural, scope) in [
        ("AddressPool", "addresspools", "Cluster"),
        ("AddressBlock", "addressblocks", "Cluster"),
        ("Egress", "egresses", "Namespaced"),
    ] {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.coil.cybozu.com") },
            "spec": {
                "group": "coil.cybozu.com",
                "scope": scope,
                "names": { "kind": kind, "plural": plural, "listKind": format!("{kind}List") },
                "versions": [{ "name": "v2", "served": true, "storage": true, "schema": {
                    "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                } }],
            },
        });
        let object: DynamicObject = serde_json::from_value(definition).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

async fn put(client: &kube::Client, mut object: Value, resource: &ApiResource) {
    (object["apiVersion"], object["kind"]) = (json!(resource.api_version), json!(resource.kind));
    let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    // A definition is served a moment after it is made.
    for _ in 0..600 {
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("{:?} is never served", resource.kind);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kube_cluster_with_coil_is_taken_over_under_the_same_addresses() {
    requires!(kube);
    let server = KubeServer::start().await;
    let client = server.client().await;
    let soon = || Deadline::after(Duration::from_secs(30));
    objects::install(client.clone(), Deadline::after(Duration::from_secs(60))).await.unwrap();
    define(&client).await;
    let core = |kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    put(&client, json!({ "metadata": { "name": "internet" } }), &core("Namespace")).await;
    for (name, address) in [("n1", "192.0.2.1"), ("n2", "192.0.2.2")] {
        put(&client, json!({ "metadata": { "name": name } }), &core("Node")).await;
        let nodes: Api<DynamicObject> = Api::all_with(client.clone(), &core("Node"));
        let addresses = json!([{ "type": "InternalIP", "address": address }]);
        let status = Patch::Merge(json!({ "status": { "addresses": addresses } }));
        nodes.patch_status(name, &PatchParams::default(), &status).await.unwrap();
    }
    for document in COIL.split("---\n") {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        let resource = match object["kind"].as_str().unwrap() {
            "AddressPool" => resource("AddressPool", "addresspools"),
            "AddressBlock" => resource("AddressBlock", "addressblocks"),
            _ => resource("Egress", "egresses"),
        };
        put(&client, object, &resource).await;
    }

    // A look writes nothing.
    let kubeconfig = server.kubeconfig_path();
    let store = Objects::kubernetes(client.clone(), "test");
    let looked = read(&import(&["--cluster"], Some(&kubeconfig)));
    assert_eq!(looked["refused"], 1, "{looked}");
    assert!(store.list::<AddressPool>(&Within::default(), soon()).await.unwrap().items.is_empty());
    // Nor is anything written while Coil hands out blocks.
    let deployment = json!({
        "metadata": { "name": "coil-ipam-controller", "namespace": "kube-system" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "a": "b" } },
            "template": {
                "metadata": { "labels": { "a": "b" } },
                "spec": { "containers": [{ "name": "c", "image": "coil" }] },
            },
        },
    });
    let apps = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
    put(&client, deployment, &apps).await;
    let deployments: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), "kube-system", &apps);
    let say = async |replicas: i32| {
        let status = Patch::Merge(json!({ "status": { "replicas": replicas } }));
        let name = "coil-ipam-controller";
        deployments.patch_status(name, &PatchParams::default(), &status).await.unwrap();
    };
    say(1).await;
    let refused = import(&["--cluster", "--apply"], Some(&kubeconfig));
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--replicas=0"));
    say(0).await;

    let applied = import(&["--cluster", "--apply"], Some(&kubeconfig));
    assert_eq!(applied.status.code(), Some(1), "one block is of a node that is gone");
    let applied = read(&applied);
    assert_eq!((&applied["written"], &applied["refused"]), (&json!(4), &json!(1)), "{applied}");
    let block =
        store.get::<AddressBlock>(&Id::cluster("default-7"), soon()).await.unwrap().unwrap();
    assert_eq!((block.spec.node.as_str(), block.spec.ipv4), ("n2", "10.64.0.224/27".parse().ok()));
    assert_eq!(block.spec.node_addresses, ["192.0.2.2".parse::<std::net::IpAddr>().unwrap()]);
    let egress = store.get::<Egress>(&Id::namespaced("internet", "nat"), soon()).await.unwrap();
    assert_eq!(egress.unwrap().spec.replicas, 2);
    // Again is the same; what somebody else made meanwhile is refused and left.
    let again = read(&import(&["--cluster", "--apply"], Some(&kubeconfig)));
    assert_eq!((&again["written"], &again["refused"]), (&json!(0), &json!(1)), "{again}");
    store
        .delete::<AddressBlock>(&Id::cluster("default-0"), objects::Expected::Any, soon())
        .await
        .unwrap();
    let mut other = block;
    other.metadata =
        kube::api::ObjectMeta { name: Some("default-0".to_owned()), ..Default::default() };
    (other.spec.index, other.spec.ipv4) = (0, "10.64.0.0/27".parse().ok());
    store.create(&other, soon()).await.unwrap();
    let taken = read(&import(&["--cluster", "--apply"], Some(&kubeconfig)));
    assert_eq!(taken["refused"], 2, "{taken}");
}
