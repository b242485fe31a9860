//! Logs, exec and forward, end to end: a listener, a real API server, a stand-in for the kubelet.

use std::net::SocketAddr;
use std::time::Duration;

use access::audit::recording::{RecordingLimits, Recordings};
use futures::SinkExt;
use http::Method;
use k8s_openapi::api::core::v1::{Node, Pod as KubePod, Secret};
use kube::api::{Api as Kube, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use stallproof::{Deadline, Tasks};
use testkit::{KubeServer, requires};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::*;
use crate::api::tests::kubelet::{Kubelet, PORT};
use crate::api::tests::test_api::TestApi;

const NOTHING: Value = Value::Null;

pub(crate) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

#[test]
fn a_command_is_read_word_by_word() {
    let asked =
        ExecParams::read(Some("namespace=a&command=sh&command=-c&command=a+b%26c&tty=true"));
    let asked = asked.unwrap();
    assert_eq!(asked.command, ["sh", "-c", "a b&c"]);
    assert_eq!((asked.tty, asked.stdin, &*asked.namespace), (Some(true), None, "a"));
    for wrong in ["", "namespace=", "namespace=a&tty=1", "namespace=a&comand=sh"] {
        assert_eq!(ExecParams::read(Some(wrong)).unwrap_err().code.text(), "invalid", "{wrong}");
    }
}

/// The audit records the first namespace of a query; a command must not be run in the last one.
#[test]
fn nothing_but_a_word_of_the_command_is_given_twice() {
    for twice in ["namespace=a&namespace=b", "namespace=a&container=c&%63ontainer=d"] {
        assert_eq!(ExecParams::read(Some(twice)).unwrap_err().code.text(), "invalid", "{twice}");
    }
}

pub(crate) type Socket = WebSocketStream<TcpStream>;

async fn connect(
    address: SocketAddr,
    token: &str,
    path: &str,
) -> Result<Socket, Box<tungstenite::Error>> {
    connect_to(address, token, &format!("pods/{path}")).await
}

pub(crate) async fn connect_to(
    address: SocketAddr,
    token: &str,
    path: &str,
) -> Result<Socket, Box<tungstenite::Error>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let url = format!("ws://{address}/api/v1/clusters/real/resources/{path}");
    let mut request = url.into_client_request().unwrap();
    let bearer = format!("Bearer {token}").parse().unwrap();
    request.headers_mut().insert("authorization", bearer);
    let opened = soon().bound(client_async(request, stream)).await.expect("an answer in time");
    Ok(opened.map_err(Box::new)?.0)
}

async fn hear(socket: &mut Socket) -> Option<Message> {
    use futures::StreamExt;
    let next = soon().bound(socket.next()).await.expect("something in time");
    next.map(|message| message.unwrap())
}

pub(crate) async fn hear_bytes(socket: &mut Socket) -> Vec<u8> {
    loop {
        match hear(socket).await.expect("more to hear") {
            Message::Binary(bytes) => return bytes.to_vec(),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) async fn say(socket: &mut Socket, bytes: &[u8]) {
    socket.send(Message::binary(bytes.to_vec())).await.unwrap();
}

fn open_streams(world: &TestApi, kind: &str) -> usize {
    let all = world.api.ledger.in_flight(&Default::default());
    all.iter().filter(|op| op.kind == kind).inspect(|op| assert_eq!(op.tenant, "real")).count()
}

pub(crate) async fn closed(world: &TestApi, kind: &str) {
    let closed = async {
        while open_streams(world, kind) > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon().bound(closed).await.expect("it ends");
}

#[tokio::test]
async fn a_kube_server_s_pods_are_talked_to_through_the_api() {
    requires!(kube);
    let (mut world, server) =
        tokio::join!(async { TestApi::new().ready().await }, KubeServer::start());
    world.import("real", server.access().kubeconfig()).await;
    let recorder = Tasks::new("recordings");
    let limits = RecordingLimits::default();
    let recordings = Recordings::start(world.api.audit.dir(), limits, &recorder).unwrap();
    world.api.recordings = Some(recordings);
    let kubelet = Kubelet::start().await;
    let client = server.client().await;
    register(&kubelet, &client).await;
    let tasks = Tasks::new("edge");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    super::super::start(world.api.clone(), listener, crate::tls::ListenerTls::Plain, &tasks)
        .unwrap();

    logs(&world, &kubelet).await;
    logs_by_selector(&world, address, &client).await;
    a_shell(&world, address).await;
    a_client_that_goes_ends_the_session(&world, address).await;
    a_port(&world, address).await;
    what_may_not_be(&world, address).await;
    revoked(&world, address).await;
    secrets(&world, &client).await;
    tasks.stop("the test is over");
    recorder.shutdown(Duration::from_secs(30)).await;
    what_the_audit_says(&world).await;
}

async fn secrets(world: &TestApi, client: &kube::Client) {
    let secrets = Kube::<Secret>::namespaced(client.clone(), "default");
    let secret = json!({ "metadata": { "name": "keys" }, "stringData": { "key": "s3cret" } });
    let secret = serde_json::from_value(secret).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    for path in [
        "/clusters/real/resources/secret/keys?namespace=default",
        "/clusters/real/resources/secrets?namespace=default",
        "/clusters/real/resources/Secret/keys/describe?namespace=default",
        "/resources/secrets",
        // A read of something else is none of its business.
        "/clusters/real/resources/configmaps?namespace=default",
    ] {
        let answer = world.ask(Method::GET, path, NOTHING).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }
}

/// Who ran what where, how it ended and how much passed; which log and which Secret was read.
async fn what_the_audit_says(world: &TestApi) {
    // What is noted is on disk before what is begun after it.
    world.ask(Method::POST, "/logout", NOTHING).await;
    let audit = async |query: &str| {
        let path = format!("/audit?limit=1000&{query}");
        let page = world.ask(Method::GET, &path, NOTHING).await.json();
        page["entries"].as_array().unwrap().clone()
    };
    let shells = audit("verb=exec&outcome=ok").await;
    let ended = shells.iter().find(|shell| shell["details"]["exitCode"] == 7).unwrap();
    assert_eq!((&ended["user"], &ended["name"]), (&json!("local"), &json!("one")));
    assert_eq!((&ended["cluster"], &ended["namespace"]), (&json!("real"), &json!("default")));
    let details = &ended["details"];
    assert_eq!((&details["command"], &details["stdin"]), (&json!(["sh"]), &json!("true")));
    assert_eq!((&details["bytesToPod"], &details["bytesFromPod"]), (&json!(8), &json!(29)));
    assert!(ended["tookMs"].is_u64());
    let refused = audit("verb=exec&outcome=forbidden").await;
    assert!(refused.iter().any(|shell| shell["user"] == "ann"), "{refused:?}");

    let ports = audit("verb=forward&outcome=ok").await;
    let port = ports.iter().find(|port| port["details"]["bytesToPod"] == 100_004);
    let port = &port.unwrap_or_else(|| panic!("{ports:?}"))["details"];
    assert_eq!((&port["port"], &port["bytesFromPod"]), (&json!(PORT.to_string()), &json!(100_004)));

    let logs = audit("verb=log").await;
    assert!(logs.iter().any(|log| log["name"] == "one" && log["details"]["container"] == "main"));
    let secrets = audit("resource=secrets").await;
    let reads: Vec<_> =
        secrets.iter().map(|read| (read["verb"].as_str().unwrap(), &read["name"])).collect();
    let keys = json!("keys");
    assert_eq!(reads, [("list", &NOTHING), ("get", &keys), ("list", &NOTHING), ("get", &keys)]);
    assert!(secrets.iter().all(|read| !read.to_string().contains("s3cret")));
    assert!(audit("resource=configmaps").await.is_empty());

    // The shell was recorded, and is fetched by its id in the audit.
    let listed = world.ask(Method::GET, "/audit/recordings", NOTHING).await.json();
    let recorded = listed["recordings"].as_array().unwrap();
    let shell = recorded.iter().find(|one| one["id"] == ended["id"]).unwrap();
    assert_eq!((&shell["user"], &shell["pod"]), (&json!("local"), &json!("one")));
    let path = format!("/audit/recordings/{}", ended["id"].as_str().unwrap());
    let cast = world.ask(Method::GET, &path, NOTHING).await;
    assert_eq!(cast.headers["content-type"], "application/x-asciicast");
    let lines: Vec<Value> =
        cast.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["version"], 2);
    let shown: String =
        lines[1..].iter().filter(|it| it[1] == "o").filter_map(|it| it[2].as_str()).collect();
    assert!(shown.starts_with("$ ls\n"), "{shown:?}");
    assert!(lines.iter().any(|event| event[1] == "r" && event[2] == "80x24"));
    assert_eq!(world.ask(Method::GET, "/audit/recordings/none", NOTHING).await.status, 404);
}

pub(crate) async fn register(kubelet: &Kubelet, client: &kube::Client) {
    let nodes = Kube::<Node>::all(client.clone());
    let post = PostParams::default();
    let node = serde_json::from_value(json!({ "metadata": { "name": "node" } })).unwrap();
    nodes.create(&post, &node).await.unwrap();
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": kubelet.address.ip() }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": kubelet.address.port() } },
    } });
    nodes.patch_status("node", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let pod = json!({
        "metadata": { "name": "one" },
        "spec": { "nodeName": "node", "containers": [{ "name": "main", "image": "none" }] },
    });
    let pods = Kube::<KubePod>::namespaced(client.clone(), "default");
    pods.create(&post, &serde_json::from_value(pod).unwrap()).await.unwrap();
}

async fn logs(world: &TestApi, kubelet: &Kubelet) {
    let path = "/clusters/real/resources/pods/one/log?namespace=default&tail=10&since=5m";
    let text = world.ask(Method::GET, path, NOTHING).await;
    assert_eq!((text.status, &*text.text), (200, "one of main\nsecond\n"));
    assert!(text.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    let mut heard = world.hear(&world.local, Method::GET, path, NOTHING).await;
    for line in ["one of main", "second"] {
        assert_eq!(
            heard.next().await.unwrap(),
            ("line".into(), json!({"pod": "one", "line": line}))
        );
    }
    assert_eq!(heard.next().await.unwrap(), ("end".into(), json!({"reason": ""})));
    assert!(heard.next().await.is_none());
    drop(heard);
    let path = "/clusters/real/resources/pods/one/log?namespace=default&follow=true&container=main";
    let mut heard = world.hear(&world.local, Method::GET, path, NOTHING).await;
    assert_eq!(heard.next().await.unwrap().1["container"], "main");
    assert_eq!(open_streams(world, "log"), 1);
    drop(heard);
    assert_eq!(open_streams(world, "log"), 0);
    soon().bound(kubelet.hung_up.notified()).await.expect("the kubelet hears of it");
}

/// Says that the pod's container runs, as a kubelet would.
async fn runs(client: &kube::Client, pod: &str) {
    let status = json!({ "status": { "phase": "Running", "containerStatuses": [{
        "name": "main", "ready": true, "restartCount": 0, "image": "none", "imageID": "none",
        "containerID": format!("none://{pod}"),
        "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } } }] } });
    let pods = Kube::<KubePod>::namespaced(client.clone(), "default");
    pods.patch_status(pod, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn logs_by_selector(world: &TestApi, address: SocketAddr, client: &kube::Client) {
    let pods = Kube::<KubePod>::namespaced(client.clone(), "default");
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "app": "logged" } } }));
    pods.patch("one", &PatchParams::default(), &labels).await.unwrap();
    let path = "/clusters/real/log?namespace=default&selector=app%3Dlogged&download=1";
    let none = world.ask(Method::GET, path, NOTHING).await;
    assert!(none.text.starts_with("# no container"), "{}", none.text);
    runs(client, "one").await;
    let text = world.ask(Method::GET, path, NOTHING).await;
    assert_eq!((text.status, &*text.text), (200, "one/main one of main\none/main second\n"));
    assert!(text.headers["content-disposition"].to_str().unwrap().starts_with("attachment"));
    let short = world.ask(Method::GET, &format!("{path}&limitBytes=15"), NOTHING).await;
    assert!(
        short.text.contains("one of main") && !short.text.contains("main second"),
        "{}",
        short.text
    );

    // Over the socket, followed: a pod that appears later is read too.
    let stream = TcpStream::connect(address).await.unwrap();
    let mut request = format!("ws://{address}/api/v1/socket").into_client_request().unwrap();
    let bearer = format!("Bearer {}", world.local).parse().unwrap();
    request.headers_mut().insert("authorization", bearer);
    let mut socket = client_async(request, stream).await.unwrap().0;
    let frame = json!({"op": "subscribe", "id": 1, "topic": "log", "cluster": "real",
        "namespace": "default", "selector": "app=logged", "follow": true});
    socket.send(Message::text(frame.to_string())).await.unwrap();
    let mut told = Vec::new();
    hear_line(&mut socket, &mut told, "one/main: one of main").await;
    let two = json!({
        "metadata": { "name": "two", "labels": { "app": "logged" } },
        "spec": { "nodeName": "node", "containers": [{ "name": "main", "image": "none" }] },
    });
    let two = serde_json::from_value(two).unwrap();
    pods.create(&PostParams::default(), &two).await.unwrap();
    runs(client, "two").await;
    hear_line(&mut socket, &mut told, "two/main: ").await;
    assert_eq!(open_streams(world, "subscription"), 1);
    drop(socket);
    closed(world, "subscription").await;
    let gone = world.ask(
        Method::DELETE,
        "/clusters/real/resources/pods/two?namespace=default&gracePeriod=0",
        NOTHING,
    );
    assert_eq!(gone.await.status, 200);
}

/// Hears lines until one begins so.
async fn hear_line(socket: &mut Socket, told: &mut Vec<String>, wanted: &str) {
    while !told.iter().any(|line| line.starts_with(wanted)) {
        let Some(Message::Text(text)) = hear(socket).await else { continue };
        let frame: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(frame["type"], "lines", "{frame}");
        for line in frame["lines"].as_array().unwrap() {
            let word = |name: &str| line[name].as_str().unwrap().to_owned();
            told.push(format!("{}/{}: {}", word("pod"), word("container"), word("text")));
        }
    }
}

const SHELL: &str = "one/exec?namespace=default&command=sh&stdin=true";

async fn a_shell(world: &TestApi, address: SocketAddr) {
    let mut shell = connect(address, &world.local, SHELL).await.unwrap();
    assert_eq!(hear_bytes(&mut shell).await, b"\x01$ ");
    assert_eq!(open_streams(world, "exec"), 1);
    say(&mut shell, b"\0ls\n").await;
    assert_eq!(hear_bytes(&mut shell).await, b"\x01ls\n");
    say(&mut shell, &[b"\x04".as_slice(), br#"{"width":80,"height":24}"#].concat()).await;
    assert_eq!(hear_bytes(&mut shell).await, b"\x02{\"Width\":80,\"Height\":24}");
    say(&mut shell, b"\0exit\n").await;
    assert_eq!(hear_bytes(&mut shell).await, b"\x03{\"exitCode\":7}");
    assert!(matches!(hear(&mut shell).await, Some(Message::Close(_))));
    closed(world, "exec").await;
}

async fn a_client_that_goes_ends_the_session(world: &TestApi, address: SocketAddr) {
    let mut shell = connect(address, &world.local, SHELL).await.unwrap();
    assert_eq!(hear_bytes(&mut shell).await, b"\x01$ ");
    drop(shell);
    closed(world, "exec").await;
}

async fn a_port(world: &TestApi, address: SocketAddr) {
    let path = format!("one/forward?namespace=default&port={PORT}");
    let mut port = connect(address, &world.local, &path).await.unwrap();
    let sent = vec![b'x'; 100_000];
    say(&mut port, &sent).await;
    let mut heard = Vec::new();
    while heard.len() < sent.len() {
        heard.extend(hear_bytes(&mut port).await);
    }
    assert!(heard.len() == sent.len() && heard.iter().all(|byte| *byte == b'X'));
    assert_eq!(open_streams(world, "forward"), 1);
    // What was asked before the end of the input is still answered.
    say(&mut port, b"last").await;
    say(&mut port, b"").await;
    assert_eq!(hear_bytes(&mut port).await, b"LAST");
    let began = std::time::Instant::now();
    // A client that closes gives its place back at once, also while it might still be answered.
    port.close(None).await.unwrap();
    closed(world, "forward").await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let mut port = connect(address, &world.local, &path).await.unwrap();
    say(&mut port, b"hello").await;
    assert_eq!(hear_bytes(&mut port).await, b"HELLO");
    drop(port);
    closed(world, "forward").await;
}

pub(crate) fn status(refused: Result<Socket, Box<tungstenite::Error>>) -> (u16, Value) {
    match *refused.expect_err("no session") {
        tungstenite::Error::Http(response) => {
            let body = response.body().clone().unwrap_or_default();
            (response.status().as_u16(), serde_json::from_slice(&body).unwrap_or_default())
        }
        other => panic!("{other}"),
    }
}

async fn what_may_not_be(world: &TestApi, address: SocketAddr) {
    let ann = &world
        .somebody("ann", &[["real", "a", "*", "*"], ["real", "default", "pods", "get"]])
        .await;
    for (token, path, expected) in [
        (&world.local, "nobody/exec?namespace=default&command=sh", 404),
        (&world.local, "nobody/forward?namespace=default&port=80", 404),
        (&world.local, "one/exec?namespace=default", 400),
        (&world.local, "one/forward?namespace=default&port=0", 400),
        (ann, SHELL, 403),
        (ann, "one/exec?namespace=kube-system&command=sh", 404),
        (ann, "one/forward?namespace=kube-system&port=80", 404),
    ] {
        let (code, _) = status(connect(address, token, path).await);
        assert_eq!(code, expected, "{path}");
    }
    let plain = format!("/clusters/real/resources/pods/{SHELL}");
    let plain = world.ask(Method::GET, &plain, NOTHING).await;
    assert_eq!((plain.status, &*plain.code()), (400, "invalid"), "{}", plain.text);
    let log = |token: String, namespace: &'static str| async move {
        let path = format!("/clusters/real/resources/pods/nobody/log?namespace={namespace}");
        let answer = world.ask_as(&token, Method::GET, &path, NOTHING).await;
        let id = answer.headers["x-request-id"].to_str().unwrap().to_owned();
        answer.text.replace(&id, "ID")
    };
    let hidden = log(ann.clone(), "kube-system").await;
    assert_eq!(hidden, log(world.local.clone(), "default").await);
}

async fn revoked(world: &TestApi, address: SocketAddr) {
    let bob = world.somebody("bob", &[["real", "default", "pods", "*"]]).await;
    let mut shell = connect(address, &bob, SHELL).await.unwrap();
    assert_eq!(hear_bytes(&mut shell).await, b"\x01$ ");
    let path = format!("one/forward?namespace=default&port={PORT}");
    let mut port = connect(address, &bob, &path).await.unwrap();
    say(&mut port, b"here").await;
    assert_eq!(hear_bytes(&mut port).await, b"HERE");
    assert_eq!(world.ask(Method::DELETE, "/users/bob", NOTHING).await.status, 204);
    let last = hear_bytes(&mut shell).await;
    assert_eq!(last[0], STATUS);
    assert!(String::from_utf8_lossy(&last).contains("permissions"), "{last:?}");
    loop {
        match hear(&mut port).await {
            Some(Message::Close(frame)) => {
                assert!(frame.unwrap().reason.contains("permissions"));
                break;
            }
            Some(Message::Ping(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    closed(world, "exec").await;
    closed(world, "forward").await;
}
