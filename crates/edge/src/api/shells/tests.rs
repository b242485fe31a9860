//! Shells on nodes and debug containers, on a real API server; a stand-in for the kubelet runs them.

use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api as Kube, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::{KubeServer, requires};

use super::*;
use crate::api::exec::tests::{closed, connect_to, hear_bytes, register, say, soon, status};
use crate::api::tests::kubelet::Kubelet;
use crate::api::tests::test_api::TestApi;
use crate::tls::ListenerTls;

#[test]
fn a_query_is_read_word_by_word_and_what_is_not_known_is_refused() {
    let known = ["image", "command"];
    let asked = ShellQuery::read(Some("command=sh&command=-c&command=a+b&image=x"), &known);
    let asked = asked.unwrap();
    assert_eq!((&*asked.command, asked.image()), (&["sh", "-c", "a b"].map(String::from)[..], "x"));
    assert_eq!(ShellQuery::read(None, &known).unwrap().image(), shells::IMAGE);
    assert_eq!(ShellQuery::read(None, &known).unwrap().command(&["sh"]), ["sh"]);
    for wrong in ["target=a", "namespace=b", "comand=sh"] {
        assert!(ShellQuery::read(Some(wrong), &known).is_err(), "{wrong}");
    }
}

fn pods(client: &kube::Client) -> Kube<Pod> {
    Kube::namespaced(client.clone(), shells::NAMESPACE)
}

async fn shells_there(client: &kube::Client) -> Vec<Pod> {
    pods(client).list(&ListParams::default().labels(shells::LABEL)).await.unwrap().items
}

async fn set_status(client: &kube::Client, pod: &str, phase: &str, state: Value) {
    let status = json!({ "status": { "phase": phase, "containerStatuses": [{
        "name": shells::CONTAINER, "ready": true, "restartCount": 0, "image": "i", "imageID": "i",
        "containerID": "none://shell", "state": state }] } });
    let patch = Patch::Merge(status);
    pods(client).patch_status(pod, &PatchParams::default(), &patch).await.unwrap();
}

/// The shell's pod, once it is there.
async fn made(client: &kube::Client) -> Pod {
    let made = async {
        loop {
            if let Some(pod) = shells_there(client).await.pop() {
                return pod;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon().bound(made).await.expect("a pod in time")
}

async fn gone(client: &kube::Client) {
    let gone = async {
        while !shells_there(client).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon().bound(gone).await.expect("the pod goes");
}

const SHELL: &str = "nodes/node/shell";

#[tokio::test]
async fn a_kube_server_s_node_has_a_shell_that_leaves_nothing() {
    requires!(kube);
    let (world, server) = tokio::join!(async { TestApi::new().ready().await }, KubeServer::start());
    world.import("real", server.access().kubeconfig()).await;
    let kubelet = Kubelet::start().await;
    let client = server.client().await;
    register(&kubelet, &client).await;
    let tasks = Tasks::new("edge");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    super::super::start(world.api.clone(), listener, ListenerTls::Plain, &tasks).unwrap();

    // From the first word to the last, and the pod is gone.
    let mut shell = connect_to(address, &world.local, SHELL).await.unwrap();
    let pod = made(&client).await;
    let name = pod.metadata.name.clone().unwrap();
    let spec = pod.spec.unwrap();
    assert_eq!((spec.node_name.as_deref(), spec.host_pid), (Some("node"), Some(true)));
    let waiting = hear_bytes(&mut shell).await;
    assert!(waiting[0] == STDERR && String::from_utf8_lossy(&waiting).contains("Pending"));
    set_status(&client, &name, "Running", json!({ "running": {} })).await;
    assert_eq!(hear_bytes(&mut shell).await, b"\x01$ ");
    say(&mut shell, b"\0ls\n").await;
    assert_eq!(hear_bytes(&mut shell).await, b"\x01ls\n");
    say(&mut shell, b"\0exit\n").await;
    assert_eq!(hear_bytes(&mut shell).await, b"\x03{\"exitCode\":7}");
    gone(&client).await;
    closed(&world, "node-shell").await;

    // A client that goes before it runs, and a container that cannot run.
    let shell = connect_to(address, &world.local, SHELL).await.unwrap();
    made(&client).await;
    drop(shell);
    gone(&client).await;
    let mut shell = connect_to(address, &world.local, SHELL).await.unwrap();
    let name = made(&client).await.metadata.name.unwrap();
    let why = json!({ "terminated": { "exitCode": 1, "reason": "StartError" } });
    set_status(&client, &name, "Failed", why).await;
    let last = loop {
        let heard = hear_bytes(&mut shell).await;
        if heard[0] == 3 {
            break String::from_utf8(heard).unwrap();
        }
    };
    assert!(last.contains("StartError"), "{last}");
    gone(&client).await;

    rights(&world, address).await;
    leftovers(&world, &client).await;
    debug_containers(&world, address).await;
    let audit = world.ask(Method::GET, "/audit?resource=nodes/shell", Value::Null).await.json();
    let ended = audit["entries"].as_array().unwrap().iter();
    let ended =
        ended.filter(|entry| entry["name"] == "node" && entry["details"]["pod"].is_string());
    assert!(ended.clone().any(|entry| entry["details"]["exitCode"] == 7), "{audit}");
    assert!(ended.clone().any(|entry| entry["outcome"] == "failed"), "{audit}");
    tasks.stop("the test is over");
}

async fn rights(world: &TestApi, address: std::net::SocketAddr) {
    // All of pods and nodes is not enough, and neither is being an operator.
    let ann =
        [["real", "*", "pods", "*"], ["real", "*", "nodes", "*"], ["real", "*", "secrets", "*"]];
    let ann = world.somebody("ann", &ann).await;
    let (code, problem) = status(connect_to(address, &ann, SHELL).await);
    assert_eq!((code, &problem["code"]), (403, &json!("forbidden")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("exec nodes/shell"), "{problem}");
    let operator = access::built_in().iter().find(|role| &**role.name() == "operator").unwrap();
    let permissions = access::Permissions::new(vec![std::sync::Arc::clone(operator)]);
    let (resource, verb) = (NODE_SHELLS, Verb::Exec);
    let ask = access::AccessRequest { cluster: "real", namespace: None, resource, verb };
    assert!(!access::decide(&permissions, &ask).is_allowed());
    let (code, _) = status(connect_to(address, &world.local, "nodes/none/shell").await);
    assert_eq!(code, 404);
}

/// What a server that died has left: its own, and whatever has ended.
async fn leftovers(world: &TestApi, client: &kube::Client) {
    let connection = world.api.fleet.connection("real").unwrap();
    let here = server_name();
    let mut names = Vec::new();
    for server in [&*here, "another", "another"] {
        let opener = Opener { user: "ann", server };
        let what = ("i", &["sh".to_owned()][..]);
        names.push(shells::open_on_node(&connection, "node", what, opener, soon()).await.unwrap());
    }
    set_status(client, &names[2], "Succeeded", json!({ "terminated": { "exitCode": 0 } })).await;
    // Those of this server's own time are open.
    let before = Timestamp::now() - jiff::SignedDuration::from_secs(3600);
    let left = shells::leftovers(&connection, &here, before, soon()).await.unwrap();
    assert_eq!(left, [names[2].clone()]);
    let restarted = Timestamp::now() + jiff::SignedDuration::from_secs(5);
    remove_from(&connection, &here, restarted).await;
    let there = shells_there(client).await;
    let there: Vec<_> = there.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
    assert_eq!(there, [names[1].clone()], "another server's shell is its own");
    shells::remove(&connection, &names[1], soon()).await.unwrap();
    shells::remove(&connection, &names[1], soon()).await.unwrap();
}

async fn debug_containers(world: &TestApi, address: std::net::SocketAddr) {
    let path = "pods/one/debug?namespace=default&target=main";
    let connection = world.api.fleet.connection("real").unwrap();
    let served = connection.find("pods.v1.", soon()).await.unwrap();
    let opened = connect_to(address, &world.local, path).await;
    if served.subresources.iter().any(|has| has == "ephemeralcontainers") {
        drop(opened.expect("a server that has them adds one"));
    } else {
        let (code, problem) = status(opened);
        assert_eq!((code, &problem["code"]), (404, &json!("not-served")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("no debug containers"), "{problem}");
    }
    let eve = world.somebody("eva", &[["real", "default", "pods", "exec"]]).await;
    let (code, problem) = status(connect_to(address, &eve, path).await);
    assert_eq!((code, &problem["code"]), (403, &json!("forbidden")), "{problem}");
}
