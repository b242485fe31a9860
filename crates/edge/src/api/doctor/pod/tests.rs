//! The doctor of a pod, on a real API server; a stand-in for the kubelet forwards its port to a server of
//! the test's own.

use std::sync::{Arc, Mutex};

use http::Method;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api as Kube, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::{KubeServer, requires};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::api::tests::kubelet::Kubelet;
use crate::api::tests::test_api::TestApi;

const NOTHING: Value = Value::Null;
const DUMP: &str = include_str!("../../../../../doctor/tests/stalls/held-across-io.debug2.txt");

/// A daemon that stands still, with profiles; what it was asked.
struct Daemon {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl Daemon {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&asked);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut lines = BufReader::new(&mut stream).lines();
                let mut path = String::new();
                while let Ok(Some(line)) = lines.next_line().await {
                    if let Some(rest) = line.strip_prefix("GET ") {
                        path = rest.split(' ').next().unwrap_or_default().to_owned();
                    }
                    if line.is_empty() {
                        break;
                    }
                }
                let (status, body) = match path.as_str() {
                    "/debug/pprof/" => ("200 OK", "profiles"),
                    "/debug/pprof/goroutine?debug=2" => ("200 OK", DUMP),
                    "/metrics" => ("200 OK", "go_goroutines 27\n"),
                    _ => ("404 Not Found", ""),
                };
                heard.lock().unwrap().push(path);
                let length = body.len();
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n");
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
            }
        });
        Self { port, asked, _serving: serving }
    }
}

async fn register(kubelet: &Kubelet, client: &kube::Client, port: u16) {
    let post = PostParams::default();
    let nodes = Kube::<Node>::all(client.clone());
    let node = serde_json::from_value(json!({ "metadata": { "name": "node" } })).unwrap();
    nodes.create(&post, &node).await.unwrap();
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": kubelet.address.ip() }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": kubelet.address.port() } },
    } });
    nodes.patch_status("node", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let pods = Kube::<Pod>::namespaced(client.clone(), "default");
    let annotations = json!({ "fairlead.dev/debug-port": port.to_string() });
    for (name, annotations) in [("sick", annotations), ("mute", json!({}))] {
        let pod = json!({
            "metadata": { "name": name, "annotations": annotations },
            "spec": { "nodeName": "node", "containers": [{ "name": "main", "image": "none" }] },
        });
        pods.create(&post, &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
}

fn path(pod: &str) -> String {
    format!("/clusters/real/resources/pods/{pod}/doctor?namespace=default")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kube_server_s_pod_is_examined_through_the_api() {
    requires!(kube);
    let (world, server) = tokio::join!(async { TestApi::new().ready().await }, KubeServer::start());
    world.import("real", server.access().kubeconfig()).await;
    let (kubelet, daemon) = tokio::join!(Kubelet::start(), Daemon::start());
    register(&kubelet, &server.client().await, daemon.port).await;

    // The port is found by the pod's annotation, asked twice, and the holder is named.
    let quick = json!({"pauseSeconds": 0});
    let report = world.ask(Method::POST, &path("sick"), quick).await;
    assert_eq!(report.status, 200, "{}", report.text);
    let report = report.json();
    assert_eq!(report["findings"][0]["class"], "held_across_io", "{report}");
    let input = report["inputs"][0]["name"].as_str().unwrap();
    assert!(input.starts_with(&format!("http://sick:{}/", daemon.port)), "{input}");
    let dumps = |asked: &[String]| asked.iter().filter(|it| it.ends_with("debug=2")).count();
    assert_eq!(dumps(&daemon.asked.lock().unwrap()), 2);
    // The same by the port's number, of a pod that does not tell it.
    let named = json!({"port": daemon.port, "pauseSeconds": 0});
    let report = world.ask(Method::POST, &path("mute"), named).await;
    assert_eq!(report.json()["findings"][0]["class"], "held_across_io", "{}", report.text);

    // No port: the sentence says what was asked, and what to do.
    let closed = json!({"port": 10_001});
    let none = world.ask(Method::POST, &path("mute"), closed).await;
    assert_eq!((none.status, &*none.code()), (404, "not-found"), "{}", none.text);
    assert!(none.text.contains("asked: 10001") && none.text.contains("net/http/pprof"));
    for (pod, body, expected) in [
        ("none", json!({"port": daemon.port}), 404),
        ("sick", json!({"port": 0}), 400),
        ("sick", json!({"pauseSeconds": 31}), 400),
        ("sick", json!({"prot": 1}), 400),
    ] {
        let refused = world.ask(Method::POST, &path(pod), body).await;
        assert_eq!(refused.status, expected, "{}", refused.text);
    }

    // Both rights are needed, and nothing is asked without them.
    daemon.asked.lock().unwrap().clear();
    for (user, verb) in [("gus", "get"), ("fay", "forward")] {
        let token = world.somebody(user, &[["real", "default", "pods", verb]]).await;
        let refused = world.ask_as(&token, Method::POST, &path("sick"), NOTHING).await;
        assert_eq!((refused.status, &*refused.code()), (403, "forbidden"), "{user}");
    }
    let elsewhere = world.somebody("eli", &[["real", "other", "*", "*"]]).await;
    let hidden = world.ask_as(&elsewhere, Method::POST, &path("sick"), NOTHING).await;
    assert_eq!(hidden.status, 404, "{}", hidden.text);
    assert_eq!(*daemon.asked.lock().unwrap(), [""; 0]);

    let audit = world.ask(Method::GET, "/audit?verb=forward&limit=100", NOTHING).await.json();
    let entries = audit["entries"].as_array().unwrap();
    let told = |name: &str, outcome: &str| {
        entries.iter().any(|entry| entry["name"] == name && entry["outcome"] == outcome)
    };
    assert!(
        told("sick", "ok") && told("sick", "forbidden") && told("mute", "not-found"),
        "{audit}"
    );
    assert!(entries.iter().any(|entry| entry["details"]["port"] == daemon.port), "{audit}");
    // Nothing is left on the ledger.
    let open = world.api.ledger.in_flight(&Default::default());
    assert!(open.iter().all(|op| op.kind != "doctor"), "{open:?}");
}
