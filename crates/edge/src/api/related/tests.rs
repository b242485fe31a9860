//! What is around an object, on a real API server.

use http::Method;
use serde_json::{Value, json};
use testkit::{KubeServer, requires};

use crate::api::tests::test_api::{TestApi, request};

const NOTHING: Value = Value::Null;

const OBJECTS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: default, labels: {app: web}}
spec:
  serviceAccountName: web
  containers:
  - {name: main, image: web, envFrom: [{secretRef: {name: login}}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {selector: {app: web}, ports: [{port: 80, protocol: TCP}]}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: default}
spec: {selector: {app: other}, ports: [{port: 80, protocol: TCP}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: front, namespace: default}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: default}
spec: {podSelector: {}}
---
apiVersion: v1
kind: Secret
metadata: {name: login, namespace: default}
stringData: {password: hunter2}
";

fn told(answer: &Value) -> Vec<String> {
    let related = answer["related"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let word = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
    let one =
        |it: &Value| format!("{} {}/{}", word(it, "relation"), word(it, "kind"), word(it, "name"));
    related.iter().map(one).collect()
}

#[tokio::test]
async fn a_kube_server_s_object_names_what_is_around_it_as_far_as_it_may_be_seen() {
    requires!(kube);
    let (world, server) = tokio::join!(async { TestApi::new().ready().await }, KubeServer::start());
    world.import("real", server.access().kubeconfig()).await;
    let mut asked = request(Method::POST, "/api/v1/clusters/real/apply", NOTHING);
    *asked.body_mut() = axum::body::Body::from(OBJECTS);
    let bearer = format!("Bearer {}", world.local).parse().unwrap();
    asked.headers_mut().insert("authorization", bearer);
    let applied = world.send(asked).await;
    assert!(applied.status == 200 && !applied.text.contains("failed"), "{}", applied.text);

    let path =
        |object: &str| format!("/clusters/real/resources/{object}/related?namespace=default");
    let pod = world.ask(Method::GET, &path("pods/web-0"), NOTHING).await;
    assert_eq!(pod.status, 200, "{}", pod.text);
    let pod = pod.json();
    assert_eq!(
        told(&pod),
        [
            "selected-by NetworkPolicy/closed",
            "selected-by Service/web",
            "uses Secret/login",
            "uses ServiceAccount/web",
            "routed-by Ingress/front",
        ],
        "{pod}"
    );
    assert_eq!(pod["leftOut"], json!([]));
    let secret = world.ask(Method::GET, &path("secrets/login"), NOTHING).await;
    assert!(!secret.text.contains("hunter2"), "{}", secret.text);
    assert_eq!(told(&secret.json()), ["used-by Pod/web-0"]);
    let service = world.ask(Method::GET, &path("services/web"), NOTHING).await.json();
    assert_eq!(told(&service), ["selects Pod/web-0", "routed-by Ingress/front"], "{service}");
    let ingress = world.ask(Method::GET, &path("ingresses/front"), NOTHING).await.json();
    assert_eq!(told(&ingress), ["routes-to Service/web"], "{ingress}");

    // What one may not list is not told, and named.
    let pods = [["real", "default", "pods", "get"], ["real", "default", "services", "list"]];
    let eve = world.somebody("eve", &pods).await;
    let some = world.ask_as(&eve, Method::GET, &path("pods/web-0"), NOTHING).await.json();
    let expected = ["selected-by Service/web", "uses Secret/login", "uses ServiceAccount/web"];
    assert_eq!(told(&some), expected, "{some}");
    let left_out = some["leftOut"].as_array().unwrap();
    assert!(left_out.contains(&json!("ingresses.networking.k8s.io")), "{some}");
    assert!(left_out.contains(&json!("networkpolicies.networking.k8s.io")), "{some}");
    let refused = world.ask_as(&eve, Method::GET, &path("services/web"), NOTHING).await;
    assert_eq!((refused.status, &*refused.code()), (403, "forbidden"), "{}", refused.text);
}
