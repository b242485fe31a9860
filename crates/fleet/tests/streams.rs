//! Logs, exec and port-forward through a real API server, with a stand-in where it calls a kubelet.
#![allow(clippy::unwrap_used, reason = "tests")]

mod kubelet;

use std::time::Duration;

use fleet::resources::exec::{Command, Event, Exit, Over, Size, exec};
use fleet::resources::forward::forward;
use fleet::resources::logs::{End, Entry, What, Whose, logs};
use fleet::{Connection, Error};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kubelet::{Kubelet, PORT};
use serde_json::json;
use stallproof::Deadline;
use testkit::{KubeServer, requires};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

#[tokio::test]
async fn a_kube_server_carries_streams_to_and_from_pods() {
    requires!(kube);
    let server = KubeServer::start().await;
    let kubelet = Kubelet::start().await;
    let client = server.client().await;
    register(&kubelet, &client).await;
    let namespace = server.namespace().await;
    for name in ["one", "two", "broken"] {
        run(&client, &namespace, name).await;
    }
    let connection = Connection::new("test", client);

    logs_of_one_and_of_many(&connection, &namespace).await;
    a_followed_log_ends_when_it_is_dropped(&connection, &namespace, &kubelet).await;
    a_shell(&connection, &namespace).await;
    a_port(&connection, &namespace).await;
    what_is_not_there(&connection, &namespace).await;
}

/// As a kubelet makes itself known.
async fn register(kubelet: &Kubelet, client: &kube::Client) {
    let nodes = Api::<Node>::all(client.clone());
    let node = serde_json::from_value(json!({ "metadata": { "name": "node" } })).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": kubelet.address.ip() }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": kubelet.address.port() } },
    } });
    nodes.patch_status("node", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn run(client: &kube::Client, namespace: &str, name: &str) {
    let pod = json!({
        "metadata": { "name": name, "labels": { "app": "web" } },
        "spec": { "nodeName": "node", "containers": [{ "name": "main", "image": "none" }] },
    });
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

async fn next(stream: &mut (impl Stream<Item = Entry> + Unpin)) -> Option<Entry> {
    soon().bound(stream.next()).await.expect("it says something in time")
}

fn line(pod: &str, line: &str) -> Entry {
    Entry::Line { pod: pod.to_owned(), line: line.to_owned(), cut: false }
}

async fn logs_of_one_and_of_many(connection: &Connection, namespace: &str) {
    let whose = Whose::Pod("one".to_owned());
    let log = logs(connection, namespace, whose, &What::default(), soon()).await.unwrap();
    let end = |pod: &str, why| Entry::End { pod: pod.to_owned(), why };
    let log: Vec<_> = soon().bound(log.collect()).await.unwrap();
    let one = [line("one", "one of main"), line("one", "second"), end("one", End::Complete)];
    assert_eq!(log, one);

    let whose = Whose::Selected("app=web".to_owned());
    let log = logs(connection, namespace, whose, &What::default(), soon()).await.unwrap();
    let log: Vec<_> = soon().bound(log.collect()).await.unwrap();
    let of = |name: &str| {
        let mut of = log.clone();
        of.retain(|entry| matches!(entry, Entry::Line { pod, .. } | Entry::End { pod, .. } if pod == name));
        of
    };
    assert_eq!(of("one"), one);
    assert_eq!(of("two").len(), 3);
    let [Entry::End { why: End::Refused(why), .. }] = &of("broken")[..] else { panic!("{log:?}") };
    assert!(why.contains("the disk is on fire"), "{why}");
}

async fn a_followed_log_ends_when_it_is_dropped(
    connection: &Connection,
    namespace: &str,
    kubelet: &Kubelet,
) {
    let what = What { follow: true, ..What::default() };
    let whose = Whose::Pod("one".to_owned());
    let mut log = Box::pin(logs(connection, namespace, whose, &what, soon()).await.unwrap());
    assert_eq!(next(&mut log).await, Some(line("one", "one of main")));
    assert_eq!(next(&mut log).await, Some(line("one", "second")));
    drop(log);
    soon().bound(kubelet.hung_up.notified()).await.expect("the kubelet hears of it");
}

async fn a_shell(connection: &Connection, namespace: &str) {
    let command = Command {
        command: vec!["sh".to_owned(), "-c".to_owned(), "a b&c".to_owned()],
        stdin: true,
        ..Command::default()
    };
    let (input, mut output) = exec(connection, namespace, "one", &command, soon()).await.unwrap();
    let mut heard = async || soon().bound(output.next()).await.expect("it answers in time");
    assert_eq!(heard().await, Some(Event::Stdout((&b"$ "[..]).into())));
    input.stdin(b"ls\n").await.unwrap();
    assert_eq!(heard().await, Some(Event::Stdout((&b"ls\n"[..]).into())));
    input.resize(Size { width: 80, height: 24 }).await.unwrap();
    let size = br#"{"Width":80,"Height":24}"#;
    assert_eq!(heard().await, Some(Event::Stderr((&size[..]).into())));
    assert!(input.can_close(), "v5 of the protocol has a word for it");
    input.stdin(b"exit\n").await.unwrap();
    assert_eq!(heard().await, Some(Event::Exit(Exit::Code(7))));
    assert_eq!(heard().await, None);
    assert_eq!(input.stdin(b"hello?").await, Err(Over));
}

async fn a_port(connection: &Connection, namespace: &str) {
    let mut port = forward(connection, namespace, "one", PORT, soon()).await.unwrap();
    let sent = vec![b'x'; 200_000];
    let (mut reading, mut writing) = tokio::io::split(&mut port);
    let mut answer = vec![0; sent.len()];
    let (read, written) = tokio::join!(
        soon().bound(reading.read_exact(&mut answer)),
        soon().bound(async {
            writing.write_all(&sent).await?;
            writing.flush().await
        }),
    );
    read.unwrap().unwrap();
    written.unwrap().unwrap();
    assert!(answer.iter().all(|&byte| byte == b'X'));
    port.shutdown().await.unwrap();
    assert_eq!(soon().bound(port.read(&mut answer)).await.unwrap().unwrap(), 0);
}

async fn what_is_not_there(connection: &Connection, namespace: &str) {
    let whose = Whose::Pod("nobody".to_owned());
    let log = logs(connection, namespace, whose, &What::default(), soon()).await;
    assert!(matches!(log.err(), Some(Error::Refused { status, .. }) if status.is_not_found()));
    let none = Whose::Selected("app=nobody".to_owned());
    let log = logs(connection, namespace, none, &What::default(), soon()).await;
    assert!(matches!(log.err(), Some(Error::Invalid(_))));
    let command = Command { command: vec!["sh".to_owned()], ..Command::default() };
    let refused = exec(connection, namespace, "nobody", &command, soon()).await;
    assert!(matches!(refused, Err(Error::Refused { status, .. }) if status.is_not_found()));
    let refused = forward(connection, namespace, "nobody", PORT, soon()).await;
    assert!(matches!(refused, Err(Error::Refused { status, .. }) if status.is_not_found()));
    let elsewhere = exec(connection, namespace, "../../../secrets", &command, soon()).await;
    assert!(matches!(elsewhere, Err(Error::Invalid(_))));
}
