//! `fairlead forward` through a real `fairlead up` and a real API server, to a stand-in for a kubelet.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../fleet/tests/kubelet/mod.rs"]
#[allow(dead_code, reason = "the tests of the fleet use more of it")]
mod kubelet;
mod running;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kubelet::Kubelet;
use running::{PATIENCE, Up};
use serde_json::{Value, json};
use testkit::{KubeServer, requires};

#[tokio::test(flavor = "multi_thread")]
async fn kube_two_hundred_connections_to_a_service_one_after_the_other() {
    requires!(kube);
    let server = KubeServer::start().await;
    let kubelet = Kubelet::start().await;
    web(&server.client().await, &kubelet).await;
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.access().kubeconfig()).unwrap();
    let steps = move || {
        let up = Up::start(&dir.path().join("data"), kubeconfig.to_str().unwrap());
        let clusters = up.wait_for("/clusters", |list| list["clusters"][0]["state"] == "ready");
        let cluster = clusters["clusters"][0]["name"].as_str().unwrap().to_owned();
        connections(&up, &cluster);
        what_is_not_there(&up, &cluster);
        drop(dir);
    };
    tokio::task::spawn_blocking(steps).await.unwrap();
    drop((server, kubelet));
}

/// A node, a pod of it that is ready, one that is not, and a Service in front of both.
async fn web(client: &kube::Client, kubelet: &Kubelet) {
    let (create, patch) = (PostParams::default(), PatchParams::default());
    let nodes = Api::<Node>::all(client.clone());
    nodes.create(&create, &parse(json!({ "metadata": { "name": "node" } }))).await.unwrap();
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": kubelet.address.ip() }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": kubelet.address.port() } },
    } });
    nodes.patch_status("node", &patch, &Patch::Merge(status)).await.unwrap();
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    for name in ["late", "web"] {
        let pod = json!({
            "metadata": { "name": name, "labels": { "app": "web" } },
            "spec": { "nodeName": "node", "containers": [{ "name": "main", "image": "none",
                "ports": [{ "name": "http", "containerPort": kubelet::PORT }] }] },
        });
        pods.create(&create, &parse(pod)).await.unwrap();
    }
    let ready = json!({ "status": {
        "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    pods.patch_status("web", &patch, &Patch::Merge(ready)).await.unwrap();
    let services = Api::<Service>::namespaced(client.clone(), "default");
    let service = json!({
        "metadata": { "name": "web" },
        "spec": { "selector": { "app": "web" },
                  "ports": [{ "name": "web", "port": 80, "targetPort": "http" }] },
    });
    services.create(&create, &parse(service)).await.unwrap();
}

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

struct Forwarding(Child);

impl Drop for Forwarding {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn connections(up: &Up, cluster: &str) {
    let mut forward = Command::new(env!("CARGO_BIN_EXE_fairlead"));
    let forward = forward
        .args(["forward", "svc/web", ":web", "--cluster", cluster, "--server", &up.api])
        .arg("--token-file")
        .arg(&up.token_file)
        .env("FAIRLEAD_CONFIG", "/dev/null")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut forward = Forwarding(forward.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(forward.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("is port web of svc/web (port 8080 of the pod web)"), "{line}");
    let address = line.split_whitespace().next().unwrap();
    for turn in 0..200 {
        let mut tcp = TcpStream::connect(address).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp.write_all(b"hello").unwrap();
        let mut heard = [0; 5];
        tcp.read_exact(&mut heard).unwrap_or_else(|error| panic!("connection {turn}: {error}"));
        assert_eq!(&heard, b"HELLO");
    }
    // Their places in the server are given back, too, long before any wait would be over.
    let last = Instant::now();
    let open = || {
        let answer = up.get("/inflight?kind=forward").json();
        answer["operations"].as_array().unwrap().len()
    };
    while open() > 0 {
        assert!(last.elapsed() < Duration::from_secs(5), "{} are open", open());
        std::thread::sleep(Duration::from_millis(20));
    }
    forward.0.kill().unwrap();
    let mut complaints = String::new();
    forward.0.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert_eq!(complaints, "");
}

fn what_is_not_there(up: &Up, cluster: &str) {
    for (object, port, expected) in [
        ("svc/web", ":81", "services/web in default has no port 81; it has 80 (web)"),
        ("svc/kubernetes", ":443", "selects no pods"),
        ("pod/web", ":admin", "has no port admin; it has 8080 (http)"),
        ("deploy/none", ":80", "not found"),
        ("cm/none", ":80", "not found"),
    ] {
        let run = up.fairlead(&["forward", object, port, "--cluster", cluster]);
        assert_ne!(run.code, 0, "{run:?}");
        assert!(run.err.contains(expected), "{object} {port}: {run:?}");
    }
}
