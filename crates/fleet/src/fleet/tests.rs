use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use prometheus_client::encoding::text::encode;
use stallproof::tasks::TaskView;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::config::Timing;
use crate::credentials::exec::{Exec, Version};
use crate::credentials::{Auth, Bearer, Endpoint, Redacted};
use crate::local_address::AddressGuard;
use crate::view::SourceKind;

/// Answers like an API server as far as probes go, without TLS: what is tested here is not that.
pub(super) async fn api_server() -> SocketAddr {
    mutable_api_server(Arc::default()).await
}

/// The same, until it is told to be silent.
async fn mutable_api_server(silent: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let silent = Arc::clone(&silent);
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    if silent.load(Ordering::Relaxed) {
                        std::future::pending::<()>().await;
                    }
                    let body = if buffer[..read].starts_with(b"GET /version") {
                        r#"{"gitVersion":"v1.99.0"}"#
                    } else if buffer[..read].starts_with(b"GET /api/v1/nodes") {
                        r#"{"metadata":{"remainingItemCount":6},"items":[{}]}"#
                    } else {
                        "{}"
                    };
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
                    let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

pub(super) fn access(server: SocketAddr, token: &str) -> Arc<Access> {
    let endpoint = Endpoint {
        server: format!("http://{server}").parse().unwrap(),
        authorities: None,
        insecure: false,
        tls_server_name: None,
        proxy: None,
        guard: AddressGuard::default(),
    };
    let bearer = Bearer::Token(Redacted(token.to_owned()));
    let auth = Auth { bearer, ..Auth::default() };
    Arc::new(Access { endpoint, auth, namespace: "default".to_owned(), impersonation: None })
}

pub(super) fn offer(name: &str, label: &str, access: Result<Arc<Access>, String>) -> Arc<Offer> {
    Arc::new(Offer {
        name: name.into(),
        source: Source { kind: SourceKind::Kubeconfig, place: "/config".to_owned() },
        labels: [("generation".to_owned(), label.to_owned())].into(),
        enabled: true,
        access,
    })
}

pub(super) fn reconciler(tasks: &Tasks) -> FleetReconciler {
    reconciler_with(Timing { probe: Duration::from_secs(3600), ..Timing::default() }, tasks)
}

fn reconciler_with(timing: Timing, tasks: &Tasks) -> FleetReconciler {
    let context = Arc::new(FleetContext::new(timing, Ledger::default(), tasks.clone()));
    let disabled = Snapshot::new(None);
    FleetReconciler::new(Snapshot::default(), context, Sources::none(), disabled)
}

impl FleetReconciler {
    pub(super) fn want(&mut self, offers: impl IntoIterator<Item = Arc<Offer>>) {
        let offers = offers.into_iter().map(|offer| (Arc::clone(&offer.name), offer));
        self.reconcile(offers.collect(), Vec::new(), true);
    }

    pub(super) async fn until(&self, what: &str, is_so: impl Fn(&FleetView) -> bool) {
        let mut changes = self.published.subscribe();
        let wait = async {
            while !is_so(&self.published.load()) {
                changes.changed().await;
            }
        };
        let done = Deadline::after(Duration::from_secs(60)).bound(wait).await;
        assert!(done.is_ok(), "not {what}: {:?}", self.published.load());
    }

    fn credentials(&self) -> i64 {
        self.context.metrics.credentials.get()
    }

    pub(super) async fn until_credentials(&self, wanted: i64) {
        until(&format!("{wanted} sets of credentials"), || self.credentials() == wanted).await;
    }
}

pub(super) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let done = Deadline::after(Duration::from_secs(60)).bound(wait).await;
    assert!(done.is_ok(), "there never was {what}");
}

/// What the cluster answers to a request for its version.
async fn version(connection: &Connection) -> String {
    let call = |client: kube::Client| async move { client.request_text(get_version()).await };
    let deadline = Deadline::after(Duration::from_secs(30));
    connection.call("asking", deadline, call).await.unwrap()
}

fn get_version() -> http::Request<Vec<u8>> {
    http::Request::get("/version").body(Vec::new()).unwrap()
}

pub(super) fn is_ready(fleet: &FleetView, name: &str) -> bool {
    fleet.clusters.get(name).is_some_and(|view| view.state == State::Ready)
}

/// What must hold of every generation.
fn check(fleet: &FleetView, contexts: usize) -> Option<String> {
    let mut generations: Vec<_> =
        fleet.clusters.values().map(|view| view.labels["generation"].clone()).collect();
    generations.sort();
    generations.dedup();
    assert!(generations.len() <= 1, "torn: {generations:?}");
    assert!(fleet.clusters.is_empty() || fleet.clusters.len() == contexts, "half a sync");
    for (name, view) in &fleet.clusters {
        assert_eq!(*name, view.name);
        assert_eq!(view.is_usable(), fleet.connections.contains_key(name), "{view:?}");
        assert!(fleet.wanted.contains_key(name));
    }
    for (name, connection) in &fleet.connections {
        assert_eq!(connection.cluster(), &**name);
    }
    generations.pop()
}

/// Hundreds of contexts come, go and rotate while readers read as fast as they can.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_see_one_generation_while_sources_churn() {
    const CONTEXTS: usize = 30;
    let tasks = Tasks::new("test");
    let server = api_server().await;
    let mut reconciler = reconciler(&tasks);
    let (done, reads, calls) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (done, reads, calls) = (Arc::new(done), Arc::new(reads), Arc::new(calls));

    let mut readers = Vec::new();
    for reader in 0..2 {
        let (published, done) = (reconciler.published.clone(), Arc::clone(&done));
        let (reads, calls) = (Arc::clone(&reads), Arc::clone(&calls));
        readers.push(tokio::spawn(async move {
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                let view = published.load();
                assert!(view.generation() >= last, "back in time");
                last = view.generation();
                check(&view, CONTEXTS);
                // Whoever has a connection can use it, also when its cluster goes meanwhile.
                let some = view.connections.values().next().cloned();
                drop(view);
                if let Some(connection) = some.filter(|_| reader == 0) {
                    let version = version(&connection).await;
                    assert!(version.contains("v1.99.0"), "{version}");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
                reads.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }));
    }

    for generation in 0..100 {
        let name = |index: usize| match index % 3 {
            // A third stays, a third rotates its credentials, a third is new every time.
            0 => format!("stays-{index}"),
            1 => format!("rotates-{index}"),
            _ => format!("new-{generation}-{index}"),
        };
        let offers = (0..CONTEXTS).map(|index| {
            let token = if index % 3 == 1 { generation } else { 0 };
            let access = Ok(access(server, &token.to_string()));
            offer(&name(index), &generation.to_string(), access)
        });
        reconciler.want(offers);
        assert_eq!(check(&reconciler.published.load(), CONTEXTS), Some(generation.to_string()));
        if generation % 10 == 0 {
            reconciler.until("ready", |fleet| is_ready(fleet, "stays-0")).await;
        }
        // A call or more in every generation.
        let wanted = calls.load(Ordering::Relaxed) + 1;
        until("a call", || calls.load(Ordering::Relaxed) >= wanted).await;
    }
    reconciler
        .until("all ready", |fleet| fleet.counts()[State::Ready as usize].1 == CONTEXTS)
        .await;
    done.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
    let (reads, calls) = (reads.load(Ordering::Relaxed), calls.load(Ordering::Relaxed));
    assert!(reads > calls && calls >= 100, "{reads} reads, {calls} calls");

    // What was replaced or removed has stopped: one set of credentials and one task a cluster.
    reconciler.until_credentials(CONTEXTS as i64).await;
    let of_clusters = |tasks: Vec<TaskView>| {
        tasks.iter().filter(|task| task.name.starts_with("cluster ")).count()
    };
    until("one task a cluster", || of_clusters(tasks.list()) == CONTEXTS).await;
    reconciler.want([]);
    reconciler.until_credentials(0).await;
    assert!(reconciler.published.load().connections.is_empty());
}

#[tokio::test]
async fn a_client_stops_after_its_last_user_and_never_under_it() {
    let tasks = Tasks::new("test");
    let server = api_server().await;
    let mut reconciler = reconciler(&tasks);
    reconciler.want([offer("a", "0", Ok(access(server, "one")))]);
    reconciler.until("ready", |fleet| is_ready(fleet, "a")).await;
    let user = reconciler.published.load().connection("a").unwrap();
    assert_eq!(reconciler.credentials(), 1);

    reconciler.want([offer("a", "0", Ok(access(server, "two")))]);
    reconciler.until_credentials(2).await;
    reconciler.until("swapped", |fleet| !same_client(&fleet.connection("a").unwrap(), &user)).await;
    // The old one still works, and a clone of its client keeps it as well as the connection did.
    assert!(version(&user).await.contains("v1.99.0"));
    let mut kept = None;
    let deadline = Deadline::after(Duration::from_secs(30));
    let take = user.call("asking", deadline, |client| {
        kept = Some(client);
        async { Ok(()) }
    });
    take.await.unwrap();
    drop(user);
    let kept = kept.unwrap();
    assert!(kept.request_text(get_version()).await.unwrap().contains("v1.99.0"));
    assert_eq!(reconciler.credentials(), 2, "stopped under its user");
    drop(kept);
    reconciler.until_credentials(1).await;

    let last = reconciler.published.load().connection("a").unwrap();
    reconciler.want([]);
    let gone = reconciler.published.load().connection("a");
    assert!(matches!(gone, Err(Error::NoSuchCluster { .. })));
    assert!(version(&last).await.contains("v1.99.0"));
    drop(last);
    reconciler.until_credentials(0).await;
}

fn same_client(a: &Connection, b: &Connection) -> bool {
    a.is_same_client(b)
}

#[tokio::test]
async fn another_server_or_a_disabled_cluster_has_no_connection_from_that_generation_on() {
    let tasks = Tasks::new("test");
    let (server, other) = (api_server().await, api_server().await);
    let mut reconciler = reconciler(&tasks);
    reconciler.want([offer("a", "0", Ok(access(server, "t")))]);
    reconciler.until("ready", |fleet| is_ready(fleet, "a")).await;
    reconciler.until("counted", |fleet| fleet.clusters["a"].nodes == Some(7)).await;
    assert_eq!(reconciler.published.load().clusters["a"].version.as_deref(), Some("v1.99.0"));

    // Only labels: nothing else moves.
    let before = reconciler.published.load().connection("a").unwrap();
    reconciler.want([offer("a", "1", Ok(access(server, "t")))]);
    let view = reconciler.published.load();
    assert_eq!(
        (view.clusters["a"].state, &*view.clusters["a"].labels["generation"]),
        (State::Ready, "1")
    );
    assert!(same_client(&before, &view.connection("a").unwrap()));
    // Whoever holds a connection, or a view that has it, keeps its client.
    drop((before, view));

    reconciler.want([offer("a", "1", Ok(access(other, "t")))]);
    let view = reconciler.published.load();
    assert_eq!(view.clusters["a"].state, State::Connecting);
    assert!(matches!(view.connection("a"), Err(Error::NotReady { state: "connecting", .. })));
    reconciler.until("ready", |fleet| is_ready(fleet, "a")).await;

    let mut disabled = Offer::clone(&offer("a", "1", Ok(access(other, "t"))));
    disabled.enabled = false;
    reconciler.want([Arc::new(disabled)]);
    let view = reconciler.published.load();
    assert!(matches!(view.connection("a"), Err(Error::NotReady { state: "disabled", .. })));

    reconciler.want([offer("a", "1", Err("no such user".to_owned()))]);
    let view = reconciler.published.load();
    assert_eq!(view.clusters["a"].why.as_deref(), Some("no such user"));
    drop(view);
    reconciler.until_credentials(0).await;
}

#[tokio::test]
async fn a_cluster_that_falls_silent_while_its_new_credentials_are_fetched_is_not_called_ready() {
    let tasks = Tasks::new("test");
    let silent = Arc::new(AtomicBool::new(false));
    let server = mutable_api_server(Arc::clone(&silent)).await;
    let timing = Timing {
        probe: Duration::from_millis(200),
        answer: Duration::from_secs(1),
        plugin: Duration::from_secs(600),
        ..Timing::default()
    };
    let mut reconciler = reconciler_with(timing, &tasks);
    reconciler.want([offer("a", "0", Ok(access(server, "t")))]);
    reconciler.until("ready", |fleet| is_ready(fleet, "a")).await;

    let mut hanging = Access::clone(&access(server, "t"));
    hanging.auth.bearer = Bearer::Exec(Exec {
        version: Version::V1,
        command: "sleep".to_owned(),
        args: vec!["600".to_owned()],
        env: Vec::new(),
        install_hint: None,
        provide_cluster_info: false,
        cluster_config: None,
    });
    reconciler.want([offer("a", "0", Ok(Arc::new(hanging)))]);
    let seen = || reconciler.published.load().clusters["a"].heartbeat.last_seen();
    let before = seen();
    until("a probe of the client in use", || seen() != before).await;
    assert!(reconciler.published.load().connection("a").is_ok());
    silent.store(true, Ordering::Relaxed);
    reconciler.until("unreachable", |fleet| fleet.clusters["a"].state == State::Unreachable).await;
    assert!(reconciler.published.load().connection("a").is_err());
}

#[tokio::test]
async fn metrics_count_clusters_by_state_when_they_are_read() {
    let tasks = Tasks::new("test");
    let server = api_server().await;
    let mut reconciler = reconciler(&tasks);
    let mut registry = Registry::default();
    reconciler.context.metrics.register(&reconciler.published, &mut registry);
    reconciler.want([
        offer("a", "0", Ok(access(server, "t"))),
        offer("b", "0", Err("broken".to_owned())),
    ]);
    reconciler.until("ready", |fleet| is_ready(fleet, "a")).await;
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        r#"fleet_clusters{state="ready"} 1"#,
        r#"fleet_clusters{state="misconfigured"} 1"#,
        r#"fleet_clusters{state="unreachable"} 0"#,
        "fleet_connects_total 1",
        "fleet_credentials 1",
        r#"fleet_failures_total{reason="timeout"} 0"#,
    ] {
        assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
    }
}
