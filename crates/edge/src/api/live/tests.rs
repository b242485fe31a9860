//! The socket, end to end: a listener, a WebSocket, a real API server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use flate2::read::GzDecoder;
use futures::SinkExt;
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api as Kube, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use stallproof::{Deadline, Tasks};
use testkit::{KubeServer, requires};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::*;
use crate::api::tests::test_api::TestApi;

const NOTHING: Value = Value::Null;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

struct Client {
    socket: WebSocketStream<TcpStream>,
    /// How many frames came compressed.
    compressed: usize,
}

impl Client {
    async fn connect(address: SocketAddr, token: &str) -> Self {
        Self::connect_with(address, token, "").await
    }

    async fn connect_with(address: SocketAddr, token: &str, query: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let url = format!("ws://{address}/api/v1/socket{query}");
        let mut request = url.into_client_request().unwrap();
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        let opened = soon().bound(client_async(request, stream)).await.expect("in time");
        Self { socket: opened.unwrap().0, compressed: 0 }
    }

    #[allow(clippy::needless_pass_by_value, reason = "tests write their frames in place")]
    async fn say(&mut self, frame: Value) {
        self.socket.send(Message::text(frame.to_string())).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        loop {
            let next = soon().bound(self.socket.next()).await.expect("something in time");
            match next.expect("more to hear").unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Binary(gzip) => {
                    self.compressed += 1;
                    return serde_json::from_reader(GzDecoder::new(&gzip[..])).unwrap();
                }
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The next frame of this type; others are passed over.
    async fn hear_of(&mut self, id: u64, kind: &str) -> Value {
        loop {
            let frame = self.hear().await;
            if frame["id"] == id && frame["type"] == kind {
                return frame;
            }
            assert!(frame["type"] != "end", "{frame}");
        }
    }
}

/// What a page makes of the frames of one cluster.
#[derive(Default)]
struct Mirror {
    rows: BTreeMap<String, Value>,
    columns: usize,
    resets: usize,
    resume: String,
    count: Option<u64>,
}

impl Mirror {
    fn take(&mut self, frame: &Value) {
        match frame["type"].as_str().unwrap() {
            "reset" => {
                self.rows.clear();
                self.resets += 1;
            }
            "columns" => self.columns = frame["columns"].as_array().unwrap().len(),
            "rows" => self.put(&frame["rows"]),
            "changes" => {
                self.put(&frame["applied"]);
                for uid in frame["deleted"].as_array().unwrap() {
                    self.rows.remove(uid.as_str().unwrap());
                }
            }
            "synced" => self.count = frame["count"].as_u64(),
            "state" => {}
            other => panic!("{other}: {frame}"),
        }
        if let Some(resume) = frame["resume"].as_str() {
            self.resume = resume.to_owned();
        }
    }

    fn put(&mut self, rows: &Value) {
        for row in rows.as_array().unwrap() {
            assert_eq!(row["cells"].as_array().unwrap().len(), self.columns, "{row}");
            assert!(row["created"].is_string() && row["resourceVersion"].is_string(), "{row}");
            self.rows.insert(row["uid"].as_str().unwrap().to_owned(), row.clone());
        }
    }

    fn names(&self) -> BTreeSet<&str> {
        self.rows.values().map(|row| row["name"].as_str().unwrap()).collect()
    }

    /// Hears frames until `done`.
    async fn until(&mut self, client: &mut Client, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            let frame = client.hear().await;
            self.take(&frame);
        }
    }
}

fn in_flight(world: &TestApi, kind: &str) -> usize {
    let all = world.api.ledger.in_flight(&Default::default());
    all.iter().filter(|op| op.kind == kind).count()
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon().bound(wait).await.unwrap_or_else(|_| panic!("{what}"));
}

async fn config_map(client: &kube::Client, namespace: &str, name: &str, labels: Value) {
    let object = json!({ "metadata": { "name": name, "labels": labels } });
    let maps = Kube::<ConfigMap>::namespaced(client.clone(), namespace);
    maps.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

fn serve(world: &TestApi, tasks: &Tasks) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    crate::api::start(world.api.clone(), listener, crate::tls::ListenerTls::Plain, tasks).unwrap();
    address
}

#[tokio::test]
async fn a_kube_server_s_tables_are_watched_over_the_socket() {
    requires!(kube);
    let (world, mut server) = tokio::join!(
        async { TestApi::with(&["nowhere"], |_| {}).ready().await },
        KubeServer::start()
    );
    world.import("real", server.access().kubeconfig()).await;
    let (client, tasks) = (server.client().await, Tasks::new("edge"));
    let address = serve(&world, &tasks);
    let namespaces = Kube::<Namespace>::all(client.clone());
    for name in ["a", "b"] {
        let object = json!({ "metadata": { "name": name } });
        let object = serde_json::from_value(object).unwrap();
        namespaces.create(&PostParams::default(), &object).await.unwrap();
    }
    // More than one page of the API server.
    for number in 0..520 {
        let namespace = if number % 2 == 0 { "a" } else { "b" };
        config_map(&client, namespace, &format!("map-{number}"), json!({"n": "0"})).await;
    }

    rows_are_shared_changed_and_resumed(&world, address, &client).await;
    who_sees_some_gets_all_of_those(&world, address, &client).await;
    a_dead_cluster_is_a_state(&world, address).await;
    what_is_refused(&world, address).await;
    whoever_loses_their_rights_is_told(&world, address).await;
    a_server_that_is_killed_leaves_its_rows(&world, address, &mut server).await;
    tasks.stop("the test is over");
}

async fn rows_are_shared_changed_and_resumed(
    world: &TestApi,
    address: SocketAddr,
    client: &kube::Client,
) {
    let subscribe = |id: u64, resume: Value| {
        json!({"op": "subscribe", "id": id, "topic": "rows", "clusters": ["real"], "kind": "cm",
            "namespaces": ["a", "b"], "labels": "n", "resume": resume})
    };
    let mut one = Client::connect(address, &world.local).await;
    one.say(subscribe(1, NOTHING)).await;
    let mut seen = Mirror::default();
    seen.until(&mut one, |seen| seen.count.is_some()).await;
    assert_eq!((seen.rows.len(), seen.count, seen.resets), (520, Some(520), 1));

    // A second one who looks costs the API server nothing.
    let mut other = Client::connect_with(address, &world.local, "?compress=gzip").await;
    other.say(subscribe(9, NOTHING)).await;
    let mut others = Mirror::default();
    others.until(&mut other, |seen| seen.count.is_some()).await;
    assert_eq!(others.rows, seen.rows);
    assert!(other.compressed > 0 && one.compressed == 0, "{} {}", other.compressed, one.compressed);
    assert_eq!((in_flight(world, "shared-watch"), in_flight(world, "subscription")), (1, 2));

    config_map(client, "a", "new", json!({"n": "1"})).await;
    seen.until(&mut one, |seen| seen.names().contains("new")).await;
    let maps = Kube::<ConfigMap>::namespaced(client.clone(), "a");
    maps.delete("map-0", &DeleteParams::default()).await.unwrap();
    seen.until(&mut one, |seen| !seen.names().contains("map-0")).await;
    // Who no longer has the label is gone for who asked for it.
    let unlabelled = Patch::Merge(json!({"metadata": {"labels": null}}));
    maps.patch("map-2", &PatchParams::default(), &unlabelled).await.unwrap();
    seen.until(&mut one, |seen| !seen.names().contains("map-2")).await;

    // A hidden tab: its subscription is gone at once, what it missed comes when it is back.
    one.say(json!({"op": "unsubscribe", "id": 1})).await;
    until("one subscription is left", || in_flight(world, "subscription") == 1).await;
    maps.delete("new", &DeleteParams::default()).await.unwrap();
    config_map(client, "b", "while-away", json!({"n": "1"})).await;
    others.until(&mut other, |seen| seen.names().contains("while-away")).await;
    others.until(&mut other, |seen| !seen.names().contains("new")).await;
    one.say(subscribe(2, json!({"real": seen.resume}))).await;
    seen.count = None;
    let before = seen.resets;
    seen.until(&mut one, |seen| seen.count.is_some()).await;
    assert_eq!((seen.resets, &seen.rows), (before, &others.rows));
    assert_eq!(seen.count, Some(519));

    // A token for other parameters, or of nobody, begins anew.
    one.say(json!({"op": "unsubscribe", "id": 2})).await;
    one.say(json!({"op": "subscribe", "id": 3, "topic": "rows", "clusters": ["real"],
        "kind": "configmaps", "namespaces": ["a"], "resume": {"real": seen.resume}}))
        .await;
    let mut anew = Mirror::default();
    anew.until(&mut one, |seen| seen.count.is_some()).await;
    assert_eq!(anew.resets, 1);
    assert!(anew.rows.values().all(|row| row["namespace"] == "a"));
}

async fn who_sees_some_gets_all_of_those(
    world: &TestApi,
    address: SocketAddr,
    client: &kube::Client,
) {
    let ann = world.somebody("ann", &[["real", "a", "configmaps", "*"]]).await;
    let mut socket = Client::connect(address, &ann).await;
    let all =
        json!({"op": "subscribe", "id": 1, "topic": "rows", "clusters": ["real"], "kind": "cm"});
    socket.say(all).await;
    let mut seen = Mirror::default();
    seen.until(&mut socket, |seen| seen.count.is_some()).await;
    assert_eq!(seen.count, Some(seen.rows.len() as u64));
    assert!(seen.rows.len() > 250 && seen.rows.values().all(|row| row["namespace"] == "a"));
    // What happens where she may not look is in no frame, not even a uid.
    config_map(client, "b", "hidden", json!({})).await;
    let hidden = Kube::<ConfigMap>::namespaced(client.clone(), "b");
    hidden.delete("hidden", &DeleteParams::default()).await.unwrap();
    config_map(client, "a", "shown", json!({})).await;
    let changes = socket.hear_of(1, "changes").await;
    let applied = changes["applied"].as_array().unwrap();
    assert_eq!((applied.len(), &applied[0]["name"]), (1, &json!("shown")), "{changes}");
    assert_eq!(changes["deleted"], json!([]));
    // A namespace that she may not see is as good as not there; a kind that she may not is refused.
    socket
        .say(json!({"op": "subscribe", "id": 2, "topic": "rows", "clusters": ["real"],
            "kind": "cm", "namespaces": ["b"]}))
        .await;
    assert_eq!(socket.hear_of(2, "synced").await["count"], 0);
    socket
        .say(json!({"op": "subscribe", "id": 3, "topic": "rows", "clusters": ["real"], "kind": "po"}))
        .await;
    let refused = loop {
        let frame = socket.hear().await;
        if frame["type"] == "end" {
            break frame;
        }
    };
    assert_eq!((&refused["id"], &refused["problem"]["code"]), (&json!(3), &json!("forbidden")));
}

async fn a_dead_cluster_is_a_state(world: &TestApi, address: SocketAddr) {
    let mut socket = Client::connect(address, &world.local).await;
    socket
        .say(json!({"op": "subscribe", "id": 1, "topic": "rows",
            "clusters": ["nowhere", "real", "absent"], "kind": "namespaces"}))
        .await;
    let (mut states, mut ended, mut synced) = (BTreeMap::new(), None, false);
    while !(synced && ended.is_some() && states.get("nowhere").is_some_and(|s| s == "unreachable"))
    {
        let frame = socket.hear().await;
        let cluster = frame["cluster"].as_str().unwrap().to_owned();
        match frame["type"].as_str().unwrap() {
            "state" => {
                if frame["state"] == "unreachable" {
                    assert!(frame["why"].as_str().is_some_and(|why| !why.is_empty()), "{frame}");
                }
                states.insert(cluster, frame["state"].as_str().unwrap().to_owned());
            }
            "synced" => synced = cluster == "real",
            "end" => ended = Some((cluster, frame["problem"]["code"].clone())),
            _ => {}
        }
    }
    assert_eq!(ended.unwrap(), ("absent".to_owned(), json!("no-such-cluster")));
    assert_eq!(states["real"], "live");
}

async fn what_is_refused(world: &TestApi, address: SocketAddr) {
    let mut socket = Client::connect(address, &world.local).await;
    for (frame, words) in [
        (
            json!({"op": "subscribe", "id": 1, "topic": "rows", "clusters": [], "kind": "cm"}),
            "clusters",
        ),
        (json!({"op": "subscribe", "id": 1, "topic": "rows", "kind": "cm"}), "clusters"),
        (json!({"op": "subscribe", "id": 1, "topic": "tides"}), "no topic"),
        (json!({"op": "subscribe", "id": 1, "topic": "clusters", "odd": 1}), "odd"),
        (json!({"op": "sing", "id": 1}), "no op"),
        (
            json!({"op": "subscribe", "id": 1, "topic": "rows", "clusters": ["real"], "kind": "cm",
            "labels": "a in"}),
            "label selector",
        ),
        (json!([]), "op"),
    ] {
        socket.say(frame.clone()).await;
        let end = socket.hear().await;
        let detail = end["problem"]["detail"].as_str().unwrap();
        assert!(end["problem"]["code"] == "invalid" && detail.contains(words), "{frame}: {end}");
    }
    socket
        .say(json!({"op": "subscribe", "id": 1, "topic": "rows", "clusters": ["real"], "kind": "tides"}))
        .await;
    let end = loop {
        let frame = socket.hear().await;
        if frame["type"] == "end" {
            break frame;
        }
    };
    assert_eq!(
        (&end["cluster"], &end["problem"]["code"]),
        (&json!("real"), &json!("no-such-kind"))
    );
    // As many as there may be, and one more.
    for id in 100..100 + PER_SOCKET as u64 {
        socket.say(json!({"op": "subscribe", "id": id, "topic": "clusters"})).await;
        socket.hear_of(id, "data").await;
    }
    socket.say(json!({"op": "subscribe", "id": 999, "topic": "clusters"})).await;
    let end = socket.hear().await;
    assert_eq!((&end["id"], &end["problem"]["code"]), (&json!(999), &json!("overloaded")), "{end}");
    socket.say(json!({"op": "unsubscribe", "id": 100})).await;
    socket.say(json!({"op": "subscribe", "id": 999, "topic": "clusters"})).await;
    assert_eq!(socket.hear().await["data"]["clusters"].as_array().unwrap().len(), 2);
}

async fn whoever_loses_their_rights_is_told(world: &TestApi, address: SocketAddr) {
    let bob = world.somebody("bob", &[["real", "*", "*", "*"]]).await;
    let mut socket = Client::connect(address, &bob).await;
    socket
        .say(json!({"op": "subscribe", "id": 1, "topic": "rows", "clusters": ["real"], "kind": "cm"}))
        .await;
    socket.hear_of(1, "synced").await;
    let none = json!({"allow": [], "deny": []});
    assert_eq!(world.ask(Method::PUT, "/roles/of-bob", none).await.status, 200);
    let end = loop {
        let frame = socket.hear().await;
        if frame["type"] == "end" {
            break frame;
        }
    };
    assert_eq!(end["problem"]["code"], "forbidden", "{end}");
    assert!(end["problem"]["detail"].as_str().unwrap().contains("permissions"), "{end}");
    assert_eq!(world.ask(Method::DELETE, "/users/bob", NOTHING).await.status, 204);
    let closed = soon().bound(socket.socket.next()).await.expect("it is closed in time");
    let Some(Ok(Message::Close(Some(frame)))) = closed else { panic!("{closed:?}") };
    assert!(frame.reason.contains("permissions"), "{frame:?}");
}

async fn a_server_that_is_killed_leaves_its_rows(
    world: &TestApi,
    address: SocketAddr,
    server: &mut KubeServer,
) {
    let mut socket = Client::connect(address, &world.local).await;
    socket
        .say(json!({"op": "subscribe", "id": 1, "topic": "rows", "clusters": ["real"], "kind": "cm"}))
        .await;
    let mut seen = Mirror::default();
    seen.until(&mut socket, |seen| seen.count.is_some()).await;
    let (rows, resets) = (seen.rows.len(), seen.resets);
    let state = async |socket: &mut Client, seen: &mut Mirror, wanted: &str| loop {
        let frame = socket.hear().await;
        if frame["type"] == "state" && frame["state"] == wanted {
            break frame;
        }
        seen.take(&frame);
    };
    server.stop();
    let stale = state(&mut socket, &mut seen, "stale").await;
    assert!(stale["why"].as_str().is_some_and(|why| !why.is_empty()), "{stale}");
    assert_eq!(seen.rows.len(), rows);
    server.restart().await;
    state(&mut socket, &mut seen, "live").await;
    config_map(&server.client().await, "a", "after", json!({})).await;
    seen.until(&mut socket, |seen| seen.names().contains("after")).await;
    assert_eq!((seen.rows.len(), seen.resets), (rows + 1, resets));
}

#[tokio::test]
async fn documents_are_told_as_they_change() {
    let world = TestApi::with(&["nowhere"], |_| {}).ready().await;
    let tasks = Tasks::new("edge");
    let address = serve(&world, &tasks);
    let mut socket = Client::connect(address, &world.local).await;
    for (id, topic) in [(1, "clusters"), (2, "inflight"), (3, "meshes"), (4, "violations")] {
        socket.say(json!({"op": "subscribe", "id": id, "topic": topic})).await;
        let frame = socket.hear_of(id, "data").await;
        let field = ["clusters", "operations", "meshes", "violations"][id as usize - 1];
        assert!(frame["data"][field].is_array(), "{frame}");
    }
    let frame = socket.hear_of(2, "data").await;
    let operations = frame["data"]["operations"].as_array().unwrap();
    assert!(operations.iter().any(|op| op["kind"] == "socket"), "{frame}");
    assert!(operations.iter().any(|op| op["kind"] == "subscription"), "{frame}");
    assert!(frame["data"]["locks"].is_array() && frame["data"]["stalls"].is_array());
    let mesh = json!({"spec": {"clusters": []}});
    let put = world.ask(Method::PUT, "/meshes/default/one", mesh).await;
    let told = if put.status == 200 { socket.hear_of(3, "data").await } else { NOTHING };
    assert!(told == NOTHING || told["data"]["meshes"][0]["name"] == "one", "{told}");
    let import = json!({"name": "also", "kubeconfig": "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"});
    assert_eq!(world.ask(Method::POST, "/clusters", import).await.status, 201);
    loop {
        let frame = socket.hear_of(1, "data").await;
        if frame["data"]["clusters"].as_array().unwrap().len() == 2 {
            break;
        }
    }
    // Somebody who may not know what is going on is refused that, and no more.
    let ann = world.somebody("ann", &[["nowhere", "*", "*", "*"]]).await;
    let mut socket = Client::connect(address, &ann).await;
    socket.say(json!({"op": "subscribe", "id": 1, "topic": "inflight"})).await;
    assert_eq!(socket.hear().await["problem"]["code"], "forbidden");
    socket.say(json!({"op": "subscribe", "id": 2, "topic": "clusters"})).await;
    let seen = socket.hear_of(2, "data").await;
    assert_eq!(seen["data"]["clusters"].as_array().unwrap().len(), 1);
    tasks.stop("the test is over");
}

#[test]
fn a_user_has_so_many_sockets_and_gives_them_back() {
    let shares = UserShares::default();
    let user: Arc<str> = "ann".into();
    let mut held: Vec<_> = (0..shares::SOCKETS).map(|_| shares.socket(&user).unwrap()).collect();
    assert_eq!(shares.socket(&user).unwrap_err().code.text(), "overloaded");
    assert!(shares.socket(&"bob".into()).is_ok() && shares.subscription(&user).is_ok());
    held.pop();
    assert!(shares.socket(&user).is_ok());
}
