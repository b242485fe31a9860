//! One cluster, on a real API server.

use http::Method;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api as Kube, PostParams};
use serde_json::{Value, json};
use testkit::{KubeServer, requires};

use crate::api::tests::test_api::{TestApi, TestResponse, request};

const NOTHING: Value = Value::Null;

const APPLICATION: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: { name: settings, namespace: a, labels: { app: web } }
data: { port: "80" }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: settings-of-b, namespace: b, labels: { app: web } }
data: { port: "81" }
---
apiVersion: v1
kind: Secret
metadata: { name: login, namespace: a }
stringData: { password: hunter2 }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: web, namespace: a }
spec:
  replicas: 1
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec: { containers: [{ name: main, image: "web:1" }] }
"#;

async fn apply(world: &TestApi, token: &str, query: &str, yaml: &str) -> TestResponse {
    let path = format!("/api/v1/clusters/real/apply?{query}");
    let mut request = request(Method::POST, &path, NOTHING);
    *request.body_mut() = axum::body::Body::from(yaml.to_owned());
    let bearer = format!("Bearer {token}").parse().unwrap();
    request.headers_mut().insert("authorization", bearer);
    world.send(request).await
}

fn outcomes(answer: &TestResponse) -> Vec<String> {
    let answer = answer.json();
    let results = answer["results"].as_array().unwrap_or_else(|| panic!("{answer}"));
    results.iter().map(|one| one["outcome"].as_str().unwrap().to_owned()).collect()
}

fn names(answer: &TestResponse) -> Vec<String> {
    let answer = answer.json();
    let objects = answer["items"].as_array().into_iter().flatten();
    let objects = objects.map(|object| &object["metadata"]["name"]);
    let rows = answer["rows"].as_array().into_iter().flatten().map(|row| &row["name"]);
    objects.chain(rows).map(|name| name.as_str().unwrap().to_owned()).collect()
}

async fn get(world: &TestApi, token: &str, path: &str) -> TestResponse {
    world.ask_as(token, Method::GET, &format!("/clusters/real/{path}"), NOTHING).await
}

#[tokio::test]
async fn a_kube_server_is_worked_with_through_the_api() {
    requires!(kube);
    let (world, server) = tokio::join!(async { TestApi::new().ready().await }, KubeServer::start());
    world.import("real", server.access().kubeconfig()).await;
    let local = world.local.clone();
    let spaces = "apiVersion: v1\nkind: Namespace\nmetadata: { name: a }\n---\n\
                  apiVersion: v1\nkind: Namespace\nmetadata: { name: b }\n";
    assert_eq!(outcomes(&apply(&world, &local, "", spaces).await), ["created", "created"]);

    changes(&world, &local).await;
    warnings_of_the_api_server(&world, &local).await;
    around_a_node(&world, &server.client().await).await;
    paging(&world, &local).await;
    watching(&world, &local).await;
    who_sees_one_namespace(&world).await;
    a_watch_ends_with_its_reader_s_rights(&world).await;
}

async fn changes(world: &TestApi, local: &str) {
    let dry = apply(world, local, "dryRun=true", APPLICATION).await;
    assert_eq!(outcomes(&dry), ["created"; 4], "{}", dry.text);
    assert!(
        dry.json()["results"][0]["diff"].as_str().unwrap().contains("+  port: "),
        "{}",
        dry.text
    );
    let absent = get(world, local, "resources/cm/settings?namespace=a").await;
    assert_eq!((absent.status, &*absent.code()), (404, "not-found"), "{}", absent.text);

    let applied = apply(world, local, "", APPLICATION).await;
    assert_eq!(outcomes(&applied), ["created"; 4], "{}", applied.text);
    assert!(!applied.text.contains("hunter2"));
    let id = applied.headers["x-request-id"].to_str().unwrap();
    let entry = loop {
        let audit = world.ask(Method::GET, "/audit?limit=50", NOTHING).await.json();
        let entries = audit["entries"].as_array().unwrap();
        let entry = entries.iter().find(|entry| entry["requestId"] == *id).unwrap();
        // Its outcome is written after the answer.
        if entry["outcome"] != "begun" {
            break entry.to_string();
        }
    };
    assert!(entry.contains("deployment/web in a created"), "{entry}");
    assert_eq!(outcomes(&apply(world, local, "", APPLICATION).await), ["unchanged"; 4]);
    let changed = APPLICATION.replace("\"80\"", "\"8080\"");
    assert_eq!(outcomes(&apply(world, local, "", &changed).await)[0], "configured");
    let nonsense = apply(world, local, "", "kind: [").await;
    assert_eq!((nonsense.status, &*nonsense.code()), (400, "invalid"));

    let object = get(world, local, "resources/cm/settings?namespace=a").await;
    assert_eq!(object.json()["data"]["port"], "8080");
    assert!(object.json()["metadata"].get("managedFields").is_none());
    let path = "/api/v1/clusters/real/resources/configmaps/settings?namespace=a";
    let mut yaml = request(Method::GET, path, NOTHING);
    yaml.headers_mut().insert("accept", "application/yaml".parse().unwrap());
    yaml.headers_mut().insert("authorization", format!("Bearer {local}").parse().unwrap());
    let yaml = world.send(yaml).await;
    assert_eq!(yaml.headers["content-type"], "application/yaml");
    assert!(yaml.text.contains("\nkind: ConfigMap\n"), "{}", yaml.text);

    let one = |verb: &str| format!("/clusters/real/resources/deploy/web{verb}?namespace=a");
    let scaled = world.ask(Method::POST, &one("/scale"), json!({"replicas": 3})).await;
    assert_eq!(scaled.json(), json!({"replicas": 3, "was": 1}));
    let restarted = world.ask(Method::POST, &one("/restart"), NOTHING).await;
    assert!(restarted.json()["restartedAt"].is_string(), "{}", restarted.text);
    let described = world.ask(Method::GET, &one("/describe"), NOTHING).await.json();
    assert_eq!(described["object"]["metadata"]["name"], "web");
    let dry = format!("{}&dryRun=true&propagation=Background", one(""));
    let dry = world.ask(Method::DELETE, &dry, NOTHING).await.json();
    assert_eq!(dry, json!({"outcome": "gone", "dryRun": true}));
    let gone = world.ask(Method::DELETE, &one(""), NOTHING).await.json();
    assert_eq!(gone, json!({"outcome": "gone"}));
    let held = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: held, namespace: a, finalizers: [fairlead.dev/test] }\n";
    assert_eq!(outcomes(&apply(world, local, "", held).await), ["created"]);
    let path = "/clusters/real/resources/cm/held?namespace=a";
    let held = world.ask(Method::DELETE, path, NOTHING).await.json();
    assert_eq!(
        (&held["outcome"], &held["finalizers"][0]),
        (&"waiting".into(), &"fairlead.dev/test".into())
    );
    let no_kind = get(world, local, "resources/deploymints").await;
    assert_eq!((no_kind.status, &*no_kind.code()), (404, "no-such-kind"));
    let nowhere = get(world, local, "resources/cm/settings").await;
    assert_eq!((nowhere.status, &*nowhere.code()), (400, "invalid"), "{}", nowhere.text);
}

/// A kind whose only version is deprecated: every server since 1.19 warns of it.
const DEPRECATED: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: splices.test.fairlead.dev }
spec:
  group: test.fairlead.dev
  scope: Namespaced
  names: { plural: splices, singular: splice, kind: Splice }
  versions:
    - name: v1
      served: true
      storage: true
      deprecated: true
      deprecationWarning: "a \"splice\" is a knot now"
      schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } }
---
apiVersion: test.fairlead.dev/v1
kind: Splice
metadata: { name: old, namespace: a }
"#;

/// What the API server warns of reaches whoever has asked.
async fn warnings_of_the_api_server(world: &TestApi, local: &str) {
    let applied = apply(world, local, "", DEPRECATED).await;
    assert_eq!(outcomes(&applied), ["created", "created"], "{}", applied.text);
    let results = &applied.json()["results"];
    assert_eq!(results[0].get("warnings"), None, "{results}");
    assert_eq!(results[1]["warnings"], json!(["a \"splice\" is a knot now"]), "{results}");
    let path = "/clusters/real/resources/splices/old?namespace=a";
    let deleted = world.ask(Method::DELETE, path, NOTHING).await.json();
    assert_eq!(deleted["outcome"], "gone");
    assert_eq!(deleted["warnings"], results[1]["warnings"], "{deleted}");
}

/// A node that owns a pod in each namespace, and of which something is told.
async fn around_a_node(world: &TestApi, client: &kube::Client) {
    let post = PostParams::default();
    let parse = |value: Value| serde_json::from_value(value).unwrap();
    let node = Kube::<Node>::all(client.clone())
        .create(&post, &parse(json!({ "metadata": { "name": "node" } })))
        .await
        .unwrap();
    let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": "node",
        "uid": node.metadata.uid.unwrap() }]);
    for namespace in ["a", "b"] {
        let pod = json!({
            "metadata": { "name": format!("pod-of-{namespace}"), "ownerReferences": owner },
            "spec": { "nodeName": "node", "containers": [{ "name": "main", "image": "none" }] },
        });
        let pods = Kube::<Pod>::namespaced(client.clone(), namespace);
        pods.create(&post, &serde_json::from_value(pod).unwrap()).await.unwrap();
        let event = json!({
            "metadata": { "name": format!("event-of-{namespace}") },
            "involvedObject": { "kind": "Pod", "name": format!("pod-of-{namespace}"),
                "namespace": namespace },
            "reason": "Told", "message": format!("in {namespace}"), "type": "Normal",
        });
        let events = Kube::<Event>::namespaced(client.clone(), namespace);
        events.create(&post, &serde_json::from_value(event).unwrap()).await.unwrap();
    }
    let cordoned =
        world.ask(Method::POST, "/clusters/real/resources/nodes/node/cordon", NOTHING).await;
    assert_eq!(cordoned.json(), json!({"name": "node", "unschedulable": true}));
    let path = "/clusters/real/resources/nodes/absent/drain";
    let absent = world.ask(Method::POST, path, json!({})).await;
    assert_eq!((absent.status, &*absent.code()), (404, "not-found"), "{}", absent.text);
}

async fn paging(world: &TestApi, local: &str) {
    let all = get(world, local, "resources/cm?labels=app%3Dweb").await;
    assert_eq!(names(&all), ["settings", "settings-of-b"]);
    let first = get(world, local, "resources/cm?labels=app%3Dweb&limit=1").await;
    let token = first.json()["continue"].as_str().unwrap().to_owned();
    let next =
        get(world, local, &format!("resources/cm?limit=1&labels=app%3Dweb&continue={token}")).await;
    assert_eq!(
        (names(&first), names(&next)),
        (vec!["settings".into()], vec!["settings-of-b".into()])
    );
    let table = get(world, local, "resources/pods?as=table").await.json();
    let wide = get(world, local, "resources/pods?as=wide").await.json();
    let width = |table: &Value| {
        let columns = table["columns"].as_array().unwrap().len();
        assert_eq!(table["rows"][0]["cells"].as_array().unwrap().len(), columns);
        columns
    };
    assert!(width(&table) < width(&wide));
    assert_eq!(table["columns"][0]["name"], "Name");
    let mistaken = get(world, local, "resources/pods?form=table").await;
    assert_eq!((mistaken.status, &*mistaken.code()), (400, "invalid"));
}

async fn watching(world: &TestApi, local: &str) {
    let path = "/clusters/real/resources/cm?namespace=a&labels=told%3Dyes";
    let mut objects = world.hear(local, Method::GET, path, NOTHING).await;
    let table = format!("{path}&as=table");
    let mut rows = world.hear(local, Method::GET, &table, NOTHING).await;
    let restarted = objects.next().await.unwrap();
    assert_eq!(restarted, ("restarted".into(), json!({"items": []})));
    let (event, table) = rows.next().await.unwrap();
    assert_eq!((&*event, &table["rows"]), ("restarted", &json!([])));
    let watches = |world: &TestApi| {
        let all = world.api.ledger.in_flight(&Default::default());
        all.iter().filter(|op| op.kind == "watch" && op.tenant == "real").count()
    };
    assert_eq!(watches(world), 2);

    let told = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: told, namespace: a, labels: { told: 'yes' } }\n";
    assert_eq!(outcomes(&apply(world, local, "", told).await), ["created"]);
    let gone = "/clusters/real/resources/cm/told?namespace=a";
    assert_eq!(world.ask(Method::DELETE, gone, NOTHING).await.status, 200);
    for expected in ["applied", "deleted"] {
        let (event, object) = objects.next().await.unwrap();
        assert_eq!((&*event, &object["metadata"]["name"]), (expected, &json!("told")));
        let (event, table) = rows.next().await.unwrap();
        assert_eq!((&*event, &table["rows"][0]["name"]), (expected, &json!("told")));
    }
    drop((objects, rows));
    assert_eq!(watches(world), 0);
}

/// A viewer of namespace `a`, who may also look at nodes.
async fn who_sees_one_namespace(world: &TestApi) {
    let rules =
        [["real", "a", "*", "*"], ["real", "-", "nodes", "get"], ["real", "-", "nodes", "drain"]];
    let ann = &world.somebody("ann", &rules).await;
    for form in ["object", "table", "wide"] {
        let all = get(world, ann, &format!("resources/cm?labels=app%3Dweb&as={form}")).await;
        assert_eq!(names(&all), ["settings"], "{}", all.text);
        assert!(all.json().get("remaining").is_none());
    }
    // One at a time, nothing of the other namespace shows through, not even in where to go on.
    let mut shown = Vec::new();
    let mut more = String::new();
    loop {
        let page = get(world, ann, &format!("resources/cm?limit=1{more}")).await;
        assert!(!page.text.contains("of-b"), "{}", page.text);
        shown.extend(names(&page));
        let page = page.json();
        let Some(token) = page["continue"].as_str() else { break };
        assert!(token.starts_with("a/"), "{token}");
        more = format!("&continue={}", token.replace('/', "%2F"));
    }
    assert!(shown.contains(&"settings".to_owned()) && shown.contains(&"held".to_owned()));

    for (path, nothing) in [
        ("resources/cm?namespace=NS", true),
        ("resources/cm?namespace=NS&as=table", true),
        ("resources/cm/settings-of-b?namespace=NS", false),
        ("resources/cm/settings-of-b/describe?namespace=NS", false),
        ("resources/cm/settings-of-b/events?namespace=NS", false),
        ("resources/pods/pod-of-b/log?namespace=NS", false),
        ("events?namespace=NS", true),
    ] {
        let mut answers = Vec::new();
        for namespace in ["b", "absent"] {
            let answer = get(world, ann, &path.replace("NS", namespace)).await;
            assert_eq!(answer.status, if nothing { 200 } else { 404 }, "{path}");
            let id = answer.headers["x-request-id"].to_str().unwrap().to_owned();
            answers.push(answer.text.replace(&id, "ID"));
        }
        assert_eq!(answers[0], answers[1], "{path}");
        // Nor can it be told from what really is not there.
        if path.starts_with("resources/cm/") {
            let path = path.replace("NS", "a");
            let answer = get(world, ann, &path).await;
            let id = answer.headers["x-request-id"].to_str().unwrap().to_owned();
            assert_eq!(answer.text.replace(&id, "ID"), answers[0], "{path}");
        }
    }
    for namespace in ["b", "absent"] {
        let yaml = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: x, namespace: {namespace} }}\n"
        );
        let refused = apply(world, ann, "", &yaml).await;
        assert_eq!(outcomes(&refused), ["failed"]);
        let said = &refused.json()["results"][0]["problem"];
        let words = format!("real: namespaces {namespace:?} not found");
        assert_eq!((&said["code"], &said["detail"]), (&json!("not-found"), &json!(words)));
    }
    // As the API server says it to those who may see all.
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: x, namespace: absent }\n";
    let really = apply(world, &world.local, "", yaml).await;
    let said = &really.json()["results"][0]["problem"];
    let words = "real: namespaces \"absent\" not found";
    assert_eq!((&said["code"], &said["detail"]), (&json!("not-found"), &json!(words)));

    let all = get(world, ann, "events").await;
    assert!(all.text.contains("in a") && !all.text.contains("in b"), "{}", all.text);
    let node = get(world, ann, "resources/nodes/node/describe").await;
    assert_eq!(node.status, 200, "{}", node.text);
    let owned = node.json()["owned"].clone();
    assert_eq!(owned.as_array().unwrap().len(), 1, "{owned}");
    assert_eq!(owned[0]["name"], "pod-of-a");
    // Nobody makes these pods anew, so the node is not drained unless forced.
    let drain = "/clusters/real/resources/nodes/node/drain";
    let mut heard = world.hear(ann, Method::POST, drain, json!({})).await;
    let (event, pod) = heard.next().await.unwrap();
    assert_eq!(
        (&*event, &pod["name"], &pod["outcome"]),
        ("pod", &json!("pod-of-a"), &json!("failed"))
    );
    let (event, done) = heard.next().await.unwrap();
    assert_eq!(
        (&*event, &done["drained"], &done["left"][0]["name"]),
        ("done", &json!(false), &json!("pod-of-a"))
    );
    assert!(!done.to_string().contains("of-b"), "{done}");
    let plain = world.ask_as(ann, Method::POST, drain, json!({})).await.json();
    assert_eq!(plain, done);
    let found = world.ask_as(ann, Method::GET, "/search?q=of-b", NOTHING).await.json();
    assert_eq!((&found["hits"], &found["truncated"]), (&json!([]), &json!(false)), "{found}");
    let found = world.ask_as(ann, Method::GET, "/search?q=settings", NOTHING).await.json();
    assert_eq!(found["hits"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found["hits"][0]["why"], "name settings");
    let refused = get(world, ann, "resources/nodes").await;
    assert_eq!((refused.status, &*refused.code()), (403, "forbidden"), "{}", refused.text);

    let mut heard = world.hear(ann, Method::GET, "/clusters/real/resources/cm", NOTHING).await;
    let (event, all) = heard.next().await.unwrap();
    assert_eq!(event, "restarted");
    assert!(!all.to_string().contains("of-b"), "{all}");
    let both = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: new-of-b, namespace: b }\n---\n\
                apiVersion: v1\nkind: ConfigMap\nmetadata: { name: new, namespace: a }\n";
    assert_eq!(outcomes(&apply(world, &world.local, "", both).await), ["created", "created"]);
    let (event, object) = heard.next().await.unwrap();
    assert_eq!((&*event, &object["metadata"]["name"]), ("applied", &json!("new")));
}

async fn a_watch_ends_with_its_reader_s_rights(world: &TestApi) {
    let bob = &world.somebody("bob", &[["real", "a", "*", "*"]]).await;
    let path = "/clusters/real/resources/cm?namespace=a";
    let mut heard = world.hear(bob, Method::GET, path, NOTHING).await;
    assert_eq!(heard.next().await.unwrap().0, "restarted");
    assert_eq!(world.ask(Method::DELETE, "/users/bob", NOTHING).await.status, 204);
    let (event, why) = heard.next().await.unwrap();
    assert_eq!(event, "end");
    assert!(why["reason"].as_str().unwrap().contains("permissions"), "{why}");
    assert!(heard.next().await.is_none());
}
