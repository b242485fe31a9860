//! Revisions, CronJobs, taints, sums and edits, on a real API server. No controller runs there: what one
//! would make, the test makes.

use http::Method;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::{Api as Kube, Patch, PatchParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::{KubeServer, requires};

use crate::api::tests::test_api::{TestApi, TestResponse, request};

const NOTHING: Value = Value::Null;

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

async fn put(world: &TestApi, token: &str, path: &str, body: String) -> TestResponse {
    let mut asked = request(Method::PUT, &format!("/api/v1/clusters/real/{path}"), NOTHING);
    *asked.body_mut() = axum::body::Body::from(body);
    asked.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    world.send(asked).await
}

#[tokio::test]
async fn a_kube_server_s_workloads_are_edited_and_taken_back() {
    requires!(kube);
    let (world, server) = tokio::join!(
        async { TestApi::with(&["nowhere"], |_| {}).ready().await },
        KubeServer::start()
    );
    world.import("real", server.access().kubeconfig()).await;
    let client = server.client().await;
    edits(&world, &client).await;
    revisions(&world, &client).await;
    cron_jobs(&world, &client).await;
    sums_taints_and_namespaces(&world, &client).await;
    fleet_sums(&world).await;
}

async fn edits(world: &TestApi, client: &kube::Client) {
    let post = PostParams::default();
    let secrets = Kube::<Secret>::namespaced(client.clone(), "default");
    let secret = object(json!({ "metadata": { "name": "login", "labels": { "a": "b" } },
        "stringData": { "password": "hunter2" } }));
    secrets.create(&post, &secret).await.unwrap();
    let path = "resources/secrets/login?namespace=default";
    let shown = world.ask(Method::GET, &format!("/clusters/real/{path}"), NOTHING).await;
    assert_eq!(shown.json()["data"]["password"], "<masked: 7 bytes>", "{}", shown.text);
    let all = world.ask(Method::GET, "/clusters/real/resources/secrets?namespace=default", NOTHING);
    let all = all.await;
    assert!(all.text.contains("masked") && !all.text.contains("aHVudGVyMg"), "{}", all.text);
    let shown_plain = format!("/clusters/real/{path}&reveal=true");
    let shown_plain = world.ask(Method::GET, &shown_plain, NOTHING).await.json();
    assert_eq!(shown_plain["data"]["password"], "aHVudGVyMg==");

    // Labels go although another manager owns them, and the masked value stays.
    let mut edited = shown.json();
    edited["metadata"]["labels"] = Value::Null;
    let dry = put(world, &world.local, &format!("{path}&dryRun=true"), edited.to_string()).await;
    assert_eq!((dry.status, &dry.json()["dryRun"]), (200, &json!(true)), "{}", dry.text);
    assert!(dry.json()["diff"].as_str().unwrap().contains("-    a: b"), "{}", dry.text);
    assert!(secrets.get("login").await.unwrap().metadata.labels.is_some());
    let done = put(world, &world.local, path, edited.to_string()).await;
    assert_eq!(
        (done.status, &done.json()["outcome"]),
        (200, &json!("configured")),
        "{}",
        done.text
    );
    assert!(!done.text.contains("aHVudGVyMg"), "{}", done.text);
    let now = secrets.get("login").await.unwrap();
    assert!(now.metadata.labels.is_none());
    assert_eq!(now.data.unwrap()["password"].0, b"hunter2");

    // Who was faster is named, and nothing is overwritten.
    let other =
        PatchParams { field_manager: Some("somebody-else".into()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "theirs": "1" } } }));
    secrets.patch("login", &other, &patch).await.unwrap();
    let stale = put(world, &world.local, path, edited.to_string()).await;
    assert_eq!((stale.status, &*stale.code()), (409, "conflict"), "{}", stale.text);
    let detail = stale.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("somebody-else"), "{detail}");
    assert_eq!(secrets.get("login").await.unwrap().metadata.labels.unwrap()["theirs"], "1");

    let fresh = world.ask(Method::GET, &format!("/clusters/real/{path}"), NOTHING).await.json();
    for (field, value) in [("/metadata/name", json!("other")), ("/kind", json!("ConfigMap"))] {
        let mut wrong = fresh.clone();
        *wrong.pointer_mut(field).unwrap() = value;
        let wrong = put(world, &world.local, path, wrong.to_string()).await;
        assert_eq!((wrong.status, &*wrong.code()), (400, "invalid"), "{field}: {}", wrong.text);
    }
    let mut versionless = fresh.clone();
    versionless["metadata"]["resourceVersion"] = Value::Null;
    let versionless = put(world, &world.local, path, versionless.to_string()).await;
    assert!(versionless.text.contains("resourceVersion"), "{}", versionless.text);
    // Who may read may not write.
    let ann = world.somebody("ann", &[["real", "*", "*", "get"]]).await;
    let refused = put(world, &ann, path, fresh.to_string()).await;
    assert_eq!((refused.status, &*refused.code()), (403, "forbidden"), "{}", refused.text);
}

async fn revisions(world: &TestApi, client: &kube::Client) {
    let post = PostParams::default();
    let template = |image: &str, hash: Option<&str>| {
        let mut labels = json!({ "app": "web" });
        if let Some(hash) = hash {
            labels["pod-template-hash"] = hash.into();
        }
        json!({ "metadata": { "labels": labels },
            "spec": { "containers": [{ "name": "main", "image": image }] } })
    };
    let selector = json!({ "matchLabels": { "app": "web" } });
    let deployments = Kube::<Deployment>::namespaced(client.clone(), "default");
    let deployment = object(json!({ "metadata": { "name": "web",
            "annotations": { "deployment.kubernetes.io/revision": "2" } },
        "spec": { "selector": selector, "template": template("web:2", None) } }));
    let deployment = deployments.create(&post, &deployment).await.unwrap();
    let sets = Kube::<ReplicaSet>::namespaced(client.clone(), "default");
    for (number, image) in [("1", "web:1"), ("2", "web:2")] {
        let mut selector = selector.clone();
        selector["matchLabels"]["pod-template-hash"] = number.into();
        let set = object(json!({ "metadata": { "name": format!("web-{number}"),
                "labels": { "app": "web", "pod-template-hash": number },
                "annotations": { "deployment.kubernetes.io/revision": number,
                    "kubernetes.io/change-cause": format!("to {image}") },
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
                    "uid": deployment.metadata.uid.clone().unwrap() }] },
            "spec": { "selector": selector, "template": template(image, Some(number)) } }));
        sets.create(&post, &set).await.unwrap();
    }
    let path = |verb: &str| format!("/clusters/real/resources/deploy/web/{verb}?namespace=default");
    let told = world.ask(Method::GET, &path("revisions"), NOTHING).await.json();
    let told = told["revisions"].as_array().unwrap();
    assert_eq!(
        (told.len(), &told[0]["revision"], &told[0]["current"]),
        (2, &json!(2), &json!(true))
    );
    assert_eq!((&told[1]["images"], &told[1]["cause"]), (&json!(["web:1"]), &json!("to web:1")));
    let back = world.ask(Method::POST, &path("rollback"), json!({})).await;
    assert_eq!((back.status, &back.json()["revision"]), (200, &json!(1)), "{}", back.text);
    let now = deployments.get("web").await.unwrap().spec.template;
    assert_eq!(now.spec.unwrap().containers[0].image.as_deref(), Some("web:1"));
    assert!(!now.metadata.unwrap().labels.unwrap().contains_key("pod-template-hash"));
    let none = world.ask(Method::POST, &path("rollback"), json!({"revision": 9})).await;
    assert_eq!((none.status, &*none.code()), (400, "invalid"), "{}", none.text);
    let pods = "/clusters/real/resources/cm/x/revisions?namespace=default";
    let pods = world.ask(Method::GET, pods, NOTHING).await;
    assert!(pods.status == 404 || pods.status == 400, "{}", pods.text);
}

async fn cron_jobs(world: &TestApi, client: &kube::Client) {
    // Before 1.21 a server has CronJobs in a beta version alone, which the discovery finds by itself.
    let apply = "apiVersion: VERSION\nkind: CronJob\nmetadata: {name: nightly, namespace: default}\nspec:\n  schedule: '0 0 * * *'\n  jobTemplate:\n    spec:\n      template:\n        spec: {restartPolicy: Never, containers: [{name: main, image: job}]}\n";
    let kind = world.ask(Method::GET, "/clusters/real/resources/cronjobs?limit=1", NOTHING).await;
    assert_eq!(kind.status, 200, "{}", kind.text);
    let mut made = false;
    for version in ["batch/v1", "batch/v1beta1"] {
        let mut asked = request(Method::POST, "/api/v1/clusters/real/apply", NOTHING);
        *asked.body_mut() = axum::body::Body::from(apply.replace("VERSION", version));
        let bearer = format!("Bearer {}", world.local).parse().unwrap();
        asked.headers_mut().insert("authorization", bearer);
        let applied = world.send(asked).await.json();
        made |= applied["results"][0]["outcome"] == "created";
    }
    assert!(made);
    let path =
        |verb: &str| format!("/clusters/real/resources/cronjobs/nightly{verb}?namespace=default");
    let run = world.ask(Method::POST, &path("/trigger"), NOTHING).await;
    assert_eq!(run.status, 201, "{}", run.text);
    let job = run.json()["job"].as_str().unwrap().to_owned();
    let jobs = Kube::<k8s_openapi::api::batch::v1::Job>::namespaced(client.clone(), "default");
    let job = jobs.get(&job).await.unwrap();
    assert_eq!(job.metadata.owner_references.unwrap()[0].name, "nightly");
    for (verb, expected) in [("/suspend", true), ("/resume", false)] {
        let set = world.ask(Method::POST, &path(verb), NOTHING).await;
        assert_eq!(set.json(), json!({"suspended": expected}), "{}", set.text);
        let now = world.ask(Method::GET, &path(""), NOTHING).await.json();
        assert_eq!(now["spec"]["suspend"], expected, "{now}");
    }
    let ann = world.somebody("bea", &[["real", "*", "cronjobs.batch", "*"]]).await;
    let refused = world.ask_as(&ann, Method::POST, &path("/trigger"), NOTHING).await;
    assert_eq!((refused.status, &*refused.code()), (403, "forbidden"), "{}", refused.text);
}

async fn sums_taints_and_namespaces(world: &TestApi, client: &kube::Client) {
    let post = PostParams::default();
    let nodes = Kube::<Node>::all(client.clone());
    nodes.create(&post, &object(json!({ "metadata": { "name": "node" } }))).await.unwrap();
    let taints = json!({"taints": [{"key": "only", "value": "us", "effect": "NoSchedule"}]});
    let path = "/clusters/real/resources/nodes/node/taints";
    let set = world.ask(Method::PUT, path, taints).await;
    assert_eq!(set.status, 200, "{}", set.text);
    let now = nodes.get("node").await.unwrap().spec.unwrap().taints.unwrap();
    assert!(now.iter().any(|taint| taint.key == "only"), "{now:?}");
    let wrong = json!({"taints": [{"key": "only", "effect": "Never"}]});
    let wrong = world.ask(Method::PUT, path, wrong).await;
    assert!((400..500).contains(&wrong.status), "{}", wrong.text);

    let pods = Kube::<Pod>::namespaced(client.clone(), "default");
    let pod = object(json!({ "metadata": { "name": "one" }, "spec": { "containers": [
        { "name": "main", "image": "i", "resources": { "requests": { "cpu": "250m" } } }] } }));
    pods.create(&post, &pod).await.unwrap();
    let sums = world.ask(Method::GET, "/clusters/real/overview", NOTHING).await;
    assert_eq!(sums.status, 200, "{}", sums.text);
    let sums = sums.json();
    assert_eq!((&sums["nodes"]["total"], &sums["pods"]["total"]), (&json!(1), &json!(1)), "{sums}");
    assert_eq!(sums["pods"]["requests"]["cpuMillis"], 250, "{sums}");
    assert_eq!(sums["workloads"][0]["total"], 1, "{sums}");
    let usage = world.ask(Method::GET, "/clusters/real/usage?kind=pods", NOTHING).await;
    assert_eq!((usage.status, &*usage.code()), (404, "no-such-kind"), "{}", usage.text);

    // Helm keeps a release in Secrets; what is told of it is no secret.
    let labels = json!({ "owner": "helm", "name": "shop", "version": "3", "status": "deployed" });
    let secrets = Kube::<Secret>::namespaced(client.clone(), "default");
    let release = object(json!({ "metadata": { "name": "sh.helm.release.v1.shop.v3",
        "labels": labels }, "type": "helm.sh/release.v1", "stringData": { "release": "odd" } }));
    secrets.create(&post, &release).await.unwrap();
    let helm = world.ask(Method::GET, "/clusters/real/helm", NOTHING).await.json();
    assert_eq!(
        (&helm["releases"][0]["name"], &helm["releases"][0]["revision"]),
        (&json!("shop"), &json!(3)),
        "{helm}"
    );
    let history = "/clusters/real/helm/default/shop/history";
    let history = world.ask(Method::GET, history, NOTHING).await.json();
    assert_eq!(history["revisions"][0]["status"], "deployed", "{history}");

    // Who may not list namespaces is told those that a role of theirs speaks of.
    let eve = world.somebody("eve", &[["real", "default", "pods", "*"]]).await;
    let seen = world.ask_as(&eve, Method::GET, "/clusters/real/namespaces", NOTHING).await.json();
    assert_eq!(seen, json!({"namespaces": ["default"]}));
    let some = world.ask_as(&eve, Method::GET, "/clusters/real/overview", NOTHING).await.json();
    assert_eq!((&some["pods"]["total"], some.get("nodes")), (&json!(1), None), "{some}");
    let asks = json!({"asks": [
        {"cluster": "real", "namespace": "default", "resource": "pods", "verb": "delete"},
        {"cluster": "real", "namespace": "kube-system", "resource": "pods", "verb": "delete"},
        {"cluster": "real", "namespace": "*", "resource": "pods", "verb": "list"},
        {"cluster": "real", "resource": "nodes", "verb": "get"},
    ]});
    let can = world.ask_as(&eve, Method::POST, "/me/can", asks).await;
    assert_eq!(can.json(), json!({"answers": [true, false, true, false]}), "{}", can.text);
    let me = world.ask_as(&eve, Method::GET, "/me", NOTHING).await.json();
    assert_eq!(me["permissions"][0]["allow"][0]["namespaces"], json!(["default"]), "{me}");
    let several = "/clusters/real/resources/pods?namespace=default,kube-system&as=table";
    let several = world.ask(Method::GET, several, NOTHING).await.json();
    assert_eq!(several["rows"][0]["name"], "one", "{several}");
    assert!(several["rows"][0]["uid"].is_string() && several["rows"][0]["created"].is_string());
}

/// The fleet's sums are those of its clusters; a dead one is a row.
async fn fleet_sums(world: &TestApi) {
    let one = world.ask(Method::GET, "/clusters/real/overview", NOTHING).await.json();
    let all = world.ask(Method::GET, "/overview", NOTHING).await;
    assert_eq!(all.status, 200, "{}", all.text);
    let all = all.json();
    assert_eq!((&all["overviews"]["real"], &all["total"]), (&one, &one), "{all}");
    let rows = all["clusters"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    assert_eq!((&row("real")["ok"], &row("nowhere")["ok"]), (&json!(true), &json!(false)), "{all}");
    assert!(row("nowhere")["problem"]["detail"].is_string(), "{all}");
    let dan = world.somebody("dan", &[["real", "default", "pods", "list"]]).await;
    let some = world.ask_as(&dan, Method::GET, "/overview", NOTHING).await.json();
    assert_eq!(some["total"]["pods"]["total"], one["pods"]["total"], "{some}");
    assert!(
        some["total"].get("nodes").is_none() && some["clusters"].as_array().unwrap().len() == 1
    );
}
