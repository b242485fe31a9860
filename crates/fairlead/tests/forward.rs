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
        a_pod_is_examined(&up, &cluster);
        drop(dir);
    };
    tokio::task::spawn_blocking(steps).await.unwrap();
    drop((server, kubelet));
}

/// A daemon that stands still, with profiles and metrics on a port that only the pod's annotation
/// names: the doctor finds it through the cluster, asks twice, and names the holder.
fn a_pod_is_examined(up: &Up, cluster: &str) {
    const DUMP: &str = include_str!("../../doctor/tests/stalls/held-across-io.debug2.txt");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = std::sync::Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let heard = std::sync::Arc::clone(&heard);
            std::thread::spawn(move || {
                let lines =
                    BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let path =
                    head.first().map_or("", |l| l.split(' ').nth(1).unwrap_or("")).to_owned();
                let (status, body) = match path.as_str() {
                    "/debug/pprof/" => ("200 OK", "profiles"),
                    "/debug/pprof/goroutine?debug=2" => ("200 OK", DUMP),
                    "/metrics" => ("200 OK", "go_goroutines 27\n"),
                    _ => ("404 Not Found", ""),
                };
                heard.lock().unwrap().push(path);
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(format!("{head}{body}").as_bytes());
            });
        }
    });
    let annotation = format!("fairlead.dev/debug-port={port}");
    let doctor = |object: &str, more: &[&str]| {
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_fairlead"));
        doctor
            .args(["doctor", object, "--cluster", cluster, "--server", &up.api, "--pause", "100ms"])
            .args(["-o", "json", "--server-token-file"])
            .arg(&up.token_file)
            .args(more)
            .env("FAIRLEAD_CONFIG", "/dev/null");
        doctor.output().unwrap()
    };
    // Without the annotation no port answers, and the sentence says what to do.
    let refused = doctor("pod/late", &[]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("net/http/pprof") && why.contains("fairlead.dev/debug-port"), "{why}");
    assert_eq!(doctor("pod/none", &[]).status.code(), Some(2));
    for (object, more) in
        [("pod/web", vec![]), ("pod/late", vec!["--port", annotation.rsplit('=').next().unwrap()])]
    {
        if more.is_empty() {
            annotate(up, cluster, &annotation);
        }
        asked.lock().unwrap().clear();
        let run = doctor(object, &more);
        assert_eq!(run.status.code(), Some(1), "{run:?}");
        let report: Value = serde_json::from_slice(&run.stdout).unwrap();
        let finding = &report["findings"][0];
        assert_eq!(finding["class"], "held_across_io", "{report}");
        assert_eq!(finding["resource"]["name"], "main.Store");
        let input = report["inputs"][0]["name"].as_str().unwrap();
        assert!(input.starts_with(&format!("http://{}:{port}/", &object[4..])), "{input}");
        let asked = asked.lock().unwrap();
        let dumps = asked.iter().filter(|p| p.ends_with("goroutine?debug=2")).count();
        assert_eq!(dumps, 2, "{asked:?}");
        drop(asked);
        // The console's way to it answers the same.
        let path = format!("/clusters/{cluster}/resources/pods/{}/doctor", &object[4..]);
        let how = json!({ "port": port, "pauseSeconds": 0 });
        let answer = up.ask("POST", &format!("{path}?namespace=default"), &how);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["findings"], report["findings"]);
    }
}

fn annotate(up: &Up, cluster: &str, annotation: &str) {
    let (name, value) = annotation.split_once('=').unwrap();
    let patch = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": "web", "namespace": "default", "annotations": { name: value } } });
    let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    std::fs::write(file.path(), patch.to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    let run = up.fairlead(&["apply", "-f", path, "--cluster", cluster]);
    assert_eq!(run.code, 0, "{run:?}");
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
