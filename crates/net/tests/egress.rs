//! Egresses on a real API server, with the permissions that the chart gives for `net.egress` and no others.

#![allow(clippy::unwrap_used, reason = "tests")]

mod stage;

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use net::egress::{self, EgressControllerConfig, LABEL};
use objects::kinds::{BetaPodDisruptionBudget, Egress, EgressSpec, EgressStatus};
use objects::{Election, Error, Expected, Id, Objects, Timing, Within};
use serde_json::{Value, json};
use stage::{soon, store_of, until};
use stallproof::Tasks;
use testkit::KubeServer;

fn egress(name: &str, spec: Value) -> Egress {
    let spec: EgressSpec = serde_json::from_value(spec).unwrap();
    let mut egress = Egress::new(name, spec);
    egress.metadata.namespace = Some("internet".to_owned());
    egress
}

fn pod(name: &str, node: &str, labels: &Value, annotations: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": annotations,
            // Holds the pod while it ends, as its kubelet would.
            "finalizers": ["example.com/kubelet"],
        },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "none" }] },
    }))
    .unwrap()
}

async fn say(pods: &Api<Pod>, name: &str, address: &str, ready: &str) {
    let status = json!({ "status": {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{ "ip": address }],
        "conditions": [{ "type": "Ready", "status": ready }],
    } });
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn status(objects: &Objects, name: &str) -> EgressStatus {
    let found = objects.get::<Egress>(&Id::namespaced("internet", name), soon()).await.unwrap();
    found.unwrap().status.unwrap_or_default()
}

/// `policy/v1` where there is one, and `policy/v1beta1` on older servers, as is the one of these tests.
async fn the_budget_is_of_a_version_that_the_server_has(admin: &Objects, owner: &str) {
    let id = Id::namespaced("internet", "nat");
    let made = async || match admin.get::<PodDisruptionBudget>(&id, soon()).await {
        Ok(found) => found.map(|it| (it.metadata, it.spec.unwrap_or_default())),
        Err(error) => {
            assert!(error.is_not_served(), "{error}");
            let found = admin.get::<BetaPodDisruptionBudget>(&id, soon()).await.unwrap();
            found.map(|it| (it.metadata, it.spec))
        }
    };
    until("the disruption budget is made", async || made().await.is_some()).await;
    let (metadata, spec) = made().await.unwrap();
    assert_eq!(metadata.owner_references.unwrap()[0].uid, owner);
    assert_eq!(spec.min_available, Some(IntOrString::Int(1)));
    let selected = spec.selector.unwrap().match_labels.unwrap();
    assert_eq!(selected, [(LABEL.to_owned(), "nat".to_owned())].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kube_leader_makes_and_keeps_what_an_egress_consists_of_and_says_who_carries_it() {
    testkit::requires!(kube);
    let server = KubeServer::start().await;
    let client = server.client().await;
    let admin = Objects::kubernetes(client.clone(), "admin");
    // As beside another plugin: nothing of the pod network's own permissions is there.
    let beside = "components.net=false,net.egress=true,net.podNetworks[0]=10.244.0.0/16";
    stage::deploy(&client, beside).await;
    for name in ["internet", "shop"] {
        let new = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &new).await.unwrap();
    }
    let controller = store_of(server.access(), "fairlead-controller").await;
    let agent = store_of(server.access(), "fairlead-agent").await;
    let tasks = Tasks::new("leader");
    let lease = Id::namespaced("fairlead", "fairlead-controller");
    let election = Election::new(controller, lease, "test", Timing::of(Duration::from_secs(6)));
    let led = tasks.clone();
    let config = EgressControllerConfig { image: "fairlead:test".to_owned(), port: 4788 };
    tasks.spawn("election", async move {
        election.run(&led, |leader| egress::start_controller(&leader, config.clone())).await;
    });

    // A Deployment, of the egress' own, is made, and made again when somebody edits it.
    let spec = json!({
        "destinations": ["0.0.0.0/0", "::/0"],
        "replicas": 2,
        "podDisruptionBudget": { "minAvailable": 1 },
    });
    admin.create(&egress("nat", spec), soon()).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "internet");
    let replicas = async || {
        let found = deployments.get_opt("nat").await.unwrap();
        found.and_then(|it| it.spec.replicas)
    };
    until("the Deployment is made", async || replicas().await == Some(2)).await;
    let owner = deployments.get("nat").await.unwrap().metadata.owner_references.unwrap();
    assert_eq!((owner[0].kind.as_str(), owner[0].name.as_str()), ("Egress", "nat"));
    the_budget_is_of_a_version_that_the_server_has(&admin, &owner[0].uid).await;
    let edit = Patch::Merge(json!({ "spec": { "replicas": 7 } }));
    deployments.patch("nat", &PatchParams::default(), &edit).await.unwrap();
    until("an edit is undone", async || replicas().await == Some(2)).await;

    // Scaled as an autoscaler does it, by the subresource.
    let scale = Patch::Merge(json!({ "spec": { "replicas": 3 } }));
    let egresses: Api<Egress> = Api::namespaced(client.clone(), "internet");
    egresses.patch_scale("nat", &PatchParams::default(), &scale).await.unwrap();
    until("it scales", async || replicas().await == Some(3)).await;

    // Pods that are ready carry connections; one that ends drains.
    let pods: Api<Pod> = Api::namespaced(client.clone(), "internet");
    for (name, address, ready) in [
        ("nat-a", "10.2.0.1", "True"),
        ("nat-b", "10.2.0.2", "True"),
        ("nat-c", "10.2.0.3", "False"),
    ] {
        let new = pod(name, "n2", &json!({ LABEL: "nat" }), &json!({}));
        pods.create(&PostParams::default(), &new).await.unwrap();
        say(&pods, name, address, ready).await;
    }
    let shop: Api<Pod> = Api::namespaced(client.clone(), "shop");
    for (name, node, key) in [
        ("web-1", "n1", "egress.fairlead.dev/internet"),
        ("web-2", "n2", "egress.coil.cybozu.com/internet"),
        ("db", "n1", "example.com/other"),
    ] {
        let new = pod(name, node, &json!({}), &json!({ key: "nat" }));
        shop.create(&PostParams::default(), &new).await.unwrap();
    }
    let carried = async || -> Vec<(String, bool)> {
        let endpoints = status(&admin, "nat").await.endpoints;
        endpoints.into_iter().map(|it| (it.pod, it.draining)).collect()
    };
    let both = || vec![("nat-a".to_owned(), false), ("nat-b".to_owned(), false)];
    until("ready pods carry", async || carried().await == both()).await;
    until("clients are counted", async || status(&admin, "nat").await.clients == 2).await;
    let now = status(&admin, "nat").await;
    assert_eq!(now.selector, format!("{LABEL}=nat"));
    assert_eq!(now.conditions[0].status, "True", "{now:?}");
    pods.delete("nat-b", &DeleteParams::default()).await.unwrap();
    let draining = || vec![("nat-a".to_owned(), false), ("nat-b".to_owned(), true)];
    until("a pod that ends drains", async || carried().await == draining()).await;

    // What every agent is sent when one replica changes: the whole object, as the server has it.
    let whole = serde_json::to_vec(&egresses.get("nat").await.unwrap()).unwrap().len();
    println!("an Egress with 2 replicas: {whole} bytes");
    assert!(whole < 8 << 10, "{whole}");

    // An agent is told of the pods of its node, and cannot write an egress.
    let here = Within { node: Some("n1".to_owned()), ..Within::default() };
    let listed = agent.list::<Pod>(&here, soon()).await.unwrap();
    let mut names: Vec<_> =
        listed.items.iter().map(|it| it.metadata.name.clone().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["db", "web-1"]);
    assert_eq!(agent.list::<Egress>(&Within::default(), soon()).await.unwrap().items.len(), 1);
    let mut stolen = egress("nat", json!({ "destinations": ["10.0.0.0/8"] }));
    let refused = agent.apply(&stolen, Expected::Any, soon()).await.unwrap_err();
    assert!(matches!(refused, Error::Forbidden { .. }), "{refused}");
    stolen.status = Some(EgressStatus::default());
    let refused = agent.apply_status(&stolen, Expected::Any, soon()).await.unwrap_err();
    assert!(matches!(refused, Error::Forbidden { .. }), "{refused}");

    // A Deployment of somebody else is left alone, and the egress says so.
    let foreign: Deployment = serde_json::from_value(json!({
        "metadata": { "name": "taken" },
        "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": {
                "metadata": { "labels": { "a": "b" } },
                "spec": { "containers": [{ "name": "c", "image": "theirs" }] },
            },
        },
    }))
    .unwrap();
    deployments.create(&PostParams::default(), &foreign).await.unwrap();
    let taken = egress("taken", json!({ "destinations": ["0.0.0.0/0"] }));
    admin.create(&taken, soon()).await.unwrap();
    until("it says whose name it has", async || {
        let status = status(&admin, "taken").await;
        status.conditions.first().is_some_and(|it| it.message.contains("not the egress' own"))
    })
    .await;
    let left = deployments.get("taken").await.unwrap().spec.template.spec.unwrap();
    assert_eq!(left.containers[0].image.as_deref(), Some("theirs"));
    assert!(tasks.shutdown(Duration::from_secs(30)).await.is_empty());
}
