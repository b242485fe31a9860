//! The fleet as its users see it: real files, a real store, real API servers.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fleet::{
    ClusterView, Connection, Error, Fleet, FleetConfig, FleetView, Secrets, SourceKind, State,
    Timing,
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use objects::{Expected, Id, Objects};
use serde_json::{Value, json};
use stallproof::snapshot::View;
use stallproof::{Deadline, Ledger, Tasks};
use tempfile::TempDir;
use testkit::{Fault, KubeServer, Proxy};
use tokio::task::JoinHandle;

/// Quick enough to test, generous enough for a busy machine.
fn timing() -> Timing {
    Timing {
        connect: Duration::from_secs(4),
        tls: Duration::from_secs(4),
        answer: Duration::from_secs(4),
        plugin: Duration::from_secs(4),
        probe: Duration::from_millis(500),
        slow: Duration::from_secs(1),
        retry: Duration::from_secs(1),
    }
}

/// For clusters on which nobody acts under their own name.
fn nobody() -> fleet::Actor {
    fleet::Actor::default()
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

struct TestFleet {
    dir: TempDir,
    tasks: Tasks,
    objects: Objects,
    fleet: Fleet,
}

impl TestFleet {
    fn file(dir: &TempDir) -> PathBuf {
        dir.path().join("kubeconfig")
    }

    /// A fleet on an embedded store and one kubeconfig file.
    fn new(kubeconfig: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        write(&Self::file(&dir), kubeconfig);
        Self::begin(dir)
    }

    fn begin(dir: TempDir) -> Self {
        let tasks = Tasks::new("test");
        let objects = Objects::embedded(&dir.path().join("store"), &tasks).unwrap();
        let config = FleetConfig {
            kubeconfigs: vec![Self::file(&dir)],
            secrets: Some(Secrets::default()),
            timing: timing(),
            ..FleetConfig::default()
        };
        let fleet = Fleet::start(config, objects.clone(), Ledger::default(), &tasks);
        Self { dir, tasks, objects, fleet }
    }

    async fn restart(self) -> Self {
        let Self { dir, tasks, objects, fleet } = self;
        assert!(tasks.shutdown(Duration::from_secs(30)).await.is_empty());
        drop((objects, fleet, tasks));
        Self::begin(dir)
    }

    fn rewrite(&self, kubeconfig: &Value) {
        write(&Self::file(&self.dir), kubeconfig);
    }

    async fn until(&self, what: &str, is_so: impl Fn(&FleetView) -> bool) -> View<FleetView> {
        let mut changes = self.fleet.changes();
        let wait = async {
            loop {
                let view = self.fleet.view();
                if is_so(&view) {
                    return view;
                }
                changes.changed().await;
            }
        };
        match soon().bound(wait).await {
            Ok(view) => view,
            Err(_) => panic!("not {what}: {:#?}", self.fleet.view().clusters),
        }
    }

    async fn until_state(&self, name: &str, state: State) -> Arc<ClusterView> {
        let is_so = |view: &FleetView| view.clusters.get(name).is_some_and(|c| c.state == state);
        let view = self.until(&format!("{name} {state}"), is_so).await;
        Arc::clone(&view.clusters[name])
    }

    /// Waits for the state with a reason, because on the way there may be others.
    async fn until_why(&self, name: &str, state: State, words: &str) {
        let is_so = |view: &FleetView| {
            view.clusters.get(name).is_some_and(|cluster| {
                cluster.state == state
                    && cluster.why.as_ref().is_some_and(|why| why.contains(words))
            })
        };
        self.until(&format!("{name} {state} because {words:?}"), is_so).await;
    }

    fn metric(&self, name: &str) -> f64 {
        let mut registry = prometheus_client::registry::Registry::default();
        self.fleet.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    }

    async fn until_metric(&self, name: &str, wanted: f64) {
        let wait = async {
            while self.metric(name) != wanted {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(soon().bound(wait).await.is_ok(), "{name} is {}", self.metric(name));
    }
}

/// In one step, as careful programs do it.
fn write(path: &Path, kubeconfig: &Value) {
    let new = path.with_extension("new");
    fs::write(&new, format!("{kubeconfig:#}")).unwrap();
    fs::rename(new, path).unwrap();
}

/// A kubeconfig in which every context has its own cluster and user.
#[derive(Clone, Default)]
struct Contexts(Vec<(String, Value, Value)>);

impl Contexts {
    fn with(mut self, name: &str, cluster: Value, user: Value) -> Self {
        self.0.push((name.to_owned(), cluster, user));
        self
    }

    fn json(&self) -> Value {
        let all = |make: &dyn Fn(&(String, Value, Value)) -> Value| -> Vec<Value> {
            self.0.iter().map(make).collect()
        };
        json!({
            "apiVersion": "v1", "kind": "Config",
            "clusters": all(&|(name, cluster, _)| json!({ "name": name, "cluster": cluster })),
            "users": all(&|(name, _, user)| json!({ "name": name, "user": user })),
            "contexts": all(&|(name, ..)| json!({
                "name": name, "context": { "cluster": name, "user": name },
            })),
        })
    }
}

/// What the server's own kubeconfig says of the server and of each of its users.
struct Parts {
    cluster: Value,
    certificate: Value,
    token: Value,
}

fn parts(server: &KubeServer) -> Parts {
    let config: Value = serde_json::from_str(server.access().kubeconfig()).unwrap();
    Parts {
        cluster: config["clusters"][0]["cluster"].clone(),
        certificate: config["users"][0]["user"].clone(),
        token: config["users"][1]["user"].clone(),
    }
}

fn with(value: &Value, key: &str, new: impl Into<Value>) -> Value {
    let mut value = value.clone();
    value[key] = new.into();
    value
}

fn at(address: SocketAddr) -> String {
    format!("https://{address}")
}

async fn namespaces(connection: &Connection) -> Result<usize, Error> {
    let list = |client| async move {
        Ok(Api::<Namespace>::all(client).list(&Default::default()).await?.items.len())
    };
    connection.call("listing namespaces", soon(), list).await
}

/// Says something that is not Kubernetes to whoever asks.
async fn web_server() -> SocketAddr {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            let page = "<html>Welcome to nginx</html>";
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n";
            let answer = format!("{head}content-length: {}\r\n\r\n{page}", page.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_the_view_tells_the_truth_about_each_cluster() {
    testkit::requires!(kube);
    let server = KubeServer::start().await;
    let Parts { cluster, certificate, token } = parts(&server);
    let hole = Proxy::start(server.address());
    let closed = Proxy::start(server.address());
    closed.inject(Fault::Refuse);
    let stuck = Proxy::start(server.address());
    stuck.inject(Fault::HangHandshake);
    let other = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem();
    let other = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, other);
    let web = web_server().await;
    let contexts = Contexts::default()
        .with("good", cluster.clone(), certificate.clone())
        .with("hole", with(&cluster, "server", at(hole.address())), token.clone())
        .with("bad-ca", with(&cluster, "certificate-authority-data", other), token.clone())
        .with("bad-name", with(&cluster, "tls-server-name", "elsewhere.test"), token.clone())
        .with(
            "insecure",
            json!({
                "server": cluster["server"], "insecure-skip-tls-verify": true,
            }),
            token.clone(),
        )
        .with("refused", with(&cluster, "server", at(closed.address())), token.clone())
        .with("stuck", with(&cluster, "server", at(stuck.address())), token.clone())
        .with("no-name", with(&cluster, "server", "https://no-such-host.invalid"), token.clone())
        .with("bad-token", cluster.clone(), json!({ "token": "wrong" }))
        .with("nobody", cluster.clone(), json!({}))
        .with("html", json!({ "server": format!("http://{web}") }), token.clone())
        .with("no-tls", json!({ "server": format!("https://{web}") }), token.clone());
    let mut json = contexts.json();
    let stray = json!({ "name": "stray", "context": { "cluster": "good", "user": "absent" } });
    json["contexts"].as_array_mut().unwrap().push(stray);
    let test = TestFleet::new(&json);

    let good = test.until_state("good", State::Ready).await;
    assert_eq!(good.source.kind, SourceKind::Kubeconfig);
    assert!(good.version.as_ref().unwrap().starts_with("v1."));
    assert_eq!(good.server.as_deref(), Some(&*at(server.address())));
    assert!(good.heartbeat.last_seen().is_some() && good.heartbeat.latency().is_some());
    test.until("counted", |view| view.clusters["good"].nodes == Some(0)).await;
    assert!(namespaces(&test.fleet.connection("good").unwrap()).await.unwrap() > 0);
    test.until_state("hole", State::Ready).await;
    test.until_state("insecure", State::Ready).await;

    use State::{Misconfigured, Unauthorised, Unreachable};
    for (name, state, words) in [
        ("bad-ca", Misconfigured, "from an authority that we do not know"),
        ("bad-name", Misconfigured, "set tls-server-name"),
        ("refused", Unreachable, "refuses connections"),
        ("stuck", Unreachable, "does not finish the TLS handshake within 4 s"),
        ("no-name", Unreachable, "cannot be found"),
        ("bad-token", Unauthorised, "does not accept the token of the context's user"),
        ("nobody", Unauthorised, "system:anonymous"),
        ("html", Misconfigured, "not as a Kubernetes API server"),
        ("no-tls", Misconfigured, "does not speak TLS"),
        ("stray", Misconfigured, "names the user \"absent\""),
    ] {
        test.until_why(name, state, words).await;
        let refused = test.fleet.connection(name).unwrap_err();
        assert!(matches!(refused, Error::NotReady { .. }), "{refused}");
    }
    assert!(test.fleet.view().synced);

    // Black-holed in mid-run: no longer ready, then unreachable; nobody else notices.
    hole.inject(Fault::BlackHole);
    test.until("hole no longer ready", |view| view.clusters["hole"].state != State::Ready).await;
    test.until_why("hole", Unreachable, "does not finish the TLS handshake").await;
    let report = test.fleet.test("hole", &nobody(), soon()).await.unwrap();
    assert_eq!(report.verdict, Unreachable);
    let steps: Vec<_> = report.steps.iter().map(|step| (step.name, step.ok)).collect();
    let reached = [("credentials", true), ("resolve", true), ("tcp", true), ("tls", false)];
    assert_eq!(steps, reached);
    test.until_state("good", State::Ready).await;
    let report = test.fleet.test("good", &nobody(), soon()).await.unwrap();
    assert_eq!((report.verdict, report.why), (State::Ready, None));
    let last: Vec<_> = report.steps.iter().map(|step| step.name).skip(3).collect();
    assert_eq!(last, ["tls", "authenticate", "version"]);
    let report = test.fleet.test("bad-token", &nobody(), soon()).await.unwrap();
    let last = report.steps.last().unwrap();
    assert_eq!((last.name, last.ok, report.verdict), ("authenticate", false, Unauthorised));
    assert!(matches!(
        test.fleet.test("x", &nobody(), soon()).await,
        Err(Error::NoSuchCluster { .. })
    ));

    hole.heal();
    test.until_state("hole", State::Ready).await;
    assert!(test.tasks.shutdown(Duration::from_secs(30)).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_credentials_rotate_under_load_without_a_failed_request() {
    testkit::requires!(kube);
    let server = KubeServer::start().await;
    let Parts { cluster, certificate, token } = parts(&server);
    let context =
        |user: &Value| Contexts::default().with("c", cluster.clone(), user.clone()).json();
    let test = TestFleet::new(&context(&token));
    test.until_state("c", State::Ready).await;
    let first = test.fleet.connection("c").unwrap();

    let (done, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (fleet, done, calls) = (test.fleet.clone(), Arc::clone(&done), Arc::clone(&calls));
            tokio::spawn(async move {
                while !done.load(Ordering::Relaxed) {
                    let connection = fleet.connection("c").expect("usable throughout");
                    namespaces(&connection).await.expect("no request fails");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let some_calls = async || {
        let wanted = calls.load(Ordering::Relaxed) + 20;
        while calls.load(Ordering::Relaxed) < wanted && !load.iter().all(JoinHandle::is_finished) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    some_calls().await;

    // There and back; the first client is still in a user's hands.
    test.rewrite(&context(&certificate));
    test.until_metric("fleet_connects_total", 2.0).await;
    some_calls().await;
    test.rewrite(&context(&token));
    test.until_metric("fleet_connects_total", 3.0).await;
    some_calls().await;
    test.until_metric("fleet_credentials", 2.0).await;
    assert!(namespaces(&first).await.is_ok());
    drop(first);
    test.until_metric("fleet_credentials", 1.0).await;

    // New ones that do not work are said, and do no harm.
    test.rewrite(&context(&json!({ "token": "wrong" })));
    test.until_why("c", State::Degraded, "its new credentials do not work").await;
    some_calls().await;
    test.rewrite(&context(&certificate));
    test.until_state("c", State::Ready).await;
    some_calls().await;

    done.store(true, Ordering::Relaxed);
    for load in load {
        load.await.unwrap();
    }
    test.until_metric("fleet_credentials", 1.0).await;

    // Removed under a user.
    let last = test.fleet.connection("c").unwrap();
    test.rewrite(&Contexts::default().json());
    test.until("gone", |view| view.clusters.is_empty()).await;
    assert!(matches!(test.fleet.connection("c"), Err(Error::NoSuchCluster { .. })));
    assert!(namespaces(&last).await.is_ok());
    drop(last);
    test.until_metric("fleet_credentials", 0.0).await;
}

/// A plugin that is this shell script.
fn plugin(dir: &Path, name: &str, script: &str) -> Value {
    let path = dir.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": path, "interactiveMode": "Never",
    } })
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_plugins_and_token_files_are_kept_fresh_and_hold_up_only_their_own_cluster() {
    testkit::requires!(kube);
    let server = KubeServer::start().await;
    let Parts { cluster, certificate, .. } = parts(&server);
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    let head =
        r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":"#;
    let expires = "$(date -u -d '+5 seconds' +%Y-%m-%dT%H:%M:%SZ)";
    let fresh = format!(
        "echo >> {}\necho '{head}{{\"token\":\"{}\",\"expirationTimestamp\":\"'{expires}'\"}}}}'",
        runs.display(),
        server.token(),
    );
    let decoded = |key: &str| {
        let data = certificate[key].as_str().unwrap();
        let pem = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, data).unwrap();
        String::from_utf8(pem).unwrap()
    };
    let identity = json!({
        "clientCertificateData": decoded("client-certificate-data"),
        "clientKeyData": decoded("client-key-data"),
    });
    fs::write(dir.path().join("identity"), format!("{head}{identity}}}")).unwrap();
    let cat = format!("cat {}", dir.path().join("identity").display());
    let token_file = dir.path().join("token");
    fs::write(&token_file, "wrong").unwrap();

    let contexts = Contexts::default()
        .with("hangs", cluster.clone(), plugin(dir.path(), "hangs", "sleep 1000"))
        .with("fails", cluster.clone(), plugin(dir.path(), "fails", "echo log in >&2; exit 1"))
        .with("garbage", cluster.clone(), plugin(dir.path(), "garbage", "echo hello"))
        .with("huge", cluster.clone(), plugin(dir.path(), "huge", "yes"))
        .with(
            "absent",
            cluster.clone(),
            json!({ "exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin",
            "installHint": "ask your platform team",
        } }),
        )
        .with("fresh", cluster.clone(), plugin(dir.path(), "fresh", &fresh))
        .with("identity", cluster.clone(), plugin(dir.path(), "identity-plugin", &cat))
        .with("file", cluster.clone(), json!({ "tokenFile": token_file }))
        .with("plain", cluster.clone(), certificate.clone());
    let test = TestFleet::new(&contexts.json());

    let hangs = |view: &FleetView| view.clusters["hangs"].state;
    for name in ["plain", "fresh", "identity"] {
        test.until_state(name, State::Ready).await;
        assert!(namespaces(&test.fleet.connection(name).unwrap()).await.is_ok());
    }
    assert_ne!(hangs(&test.fleet.view()), State::Ready);
    for (name, words) in [
        ("fails", "the plugin fails failed with exit code 1: log in"),
        ("garbage", "not an ExecCredential"),
        ("huge", "printed more than 1024 KiB"),
        ("absent", "ask your platform team"),
        ("hangs", "did not end within 4 s and was killed"),
        ("file", "does not accept the token in"),
    ] {
        test.until_why(name, State::Unauthorised, words).await;
    }
    fs::write(&token_file, server.token()).unwrap();
    test.until_state("file", State::Ready).await;

    // Renewed before it expires, and never without an answer.
    let count = || fs::read_to_string(&runs).unwrap().lines().count();
    let wait = async {
        while count() < 4 {
            assert!(test.fleet.connection("fresh").is_ok());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    assert!(soon().bound(wait).await.is_ok(), "{} runs", count());
}

/// Nothing listens there; clusters of these tests need not answer.
const NOWHERE: &str = "https://127.0.0.1:1";

fn nowhere(contexts: &[&str]) -> Value {
    contexts
        .iter()
        .fold(Contexts::default(), |all, name| {
            all.with(name, json!({ "server": NOWHERE }), json!({ "token": "t" }))
        })
        .json()
}

#[tokio::test]
async fn a_broken_cluster_is_imported_disabled_and_removed_like_any_other() {
    let test = TestFleet::new(&nowhere(&["arn:aws:eks:eu:1:cluster/x"]));
    let fleet = &test.fleet;
    let kubeconfig = nowhere(&["there"]).to_string();
    fleet.import("broken", &kubeconfig, None, soon()).await.unwrap();
    let broken = test.until_state("broken", State::Unreachable).await;
    assert_eq!(broken.source.kind, SourceKind::Imported);
    assert!(broken.next_try.is_some() && broken.why.as_ref().unwrap().contains("refuses"));
    let secret = Id::namespaced("fairlead", "fairlead-cluster-broken");
    assert!(test.objects.get::<Secret>(&secret, soon()).await.unwrap().is_some());

    fleet.disable("broken", soon()).await.unwrap();
    test.until_state("broken", State::Disabled).await;
    fleet.enable("broken", soon()).await.unwrap();
    test.until_state("broken", State::Unreachable).await;

    // Its Secret goes: still there to be removed.
    test.objects.delete::<Secret>(&secret, Expected::Any, soon()).await.unwrap();
    test.until_why("broken", State::Misconfigured, "its Secret fairlead/").await;
    fleet.remove("broken", soon()).await.unwrap();
    test.until("gone", |view| !view.clusters.contains_key("broken")).await;
    fleet.import("broken", &kubeconfig, None, soon()).await.unwrap();
    test.until_state("broken", State::Unreachable).await;
    fleet.remove("broken", soon()).await.unwrap();
    test.until("gone", |view| !view.clusters.contains_key("broken")).await;
    assert!(test.objects.get::<Secret>(&secret, soon()).await.unwrap().is_none());

    // Of another source: disabled here, whatever its name, also after a restart.
    let arn = "arn:aws:eks:eu:1:cluster/x";
    let why = fleet.remove(arn, soon()).await.unwrap_err().to_string();
    assert!(why.contains("remove its context there, or disable it here"), "{why}");
    fleet.disable(arn, soon()).await.unwrap();
    test.until_state(arn, State::Disabled).await;
    let test = test.restart().await;
    test.until_state(arn, State::Disabled).await;
    test.fleet.enable(arn, soon()).await.unwrap();
    test.until_state(arn, State::Unreachable).await;
    for change in [test.fleet.remove("x", soon()).await, test.fleet.disable("x", soon()).await] {
        assert!(matches!(change, Err(Error::NoSuchCluster { .. })));
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_not_imported_and_the_sentence_says_why() {
    let test = TestFleet::new(&nowhere(&[]));
    let two = nowhere(&["one", "two"]).to_string();
    let exec = Contexts::default()
        .with("e", json!({ "server": NOWHERE }), json!({ "exec": { "command": "rm" } }))
        .json()
        .to_string();
    for (name, kubeconfig, context, words) in [
        ("Bad_Name", &two, Some("one"), "lowercase"),
        ("a", &"{".to_owned(), None, "not YAML"),
        ("a", &two, None, "no current context"),
        ("a", &two, Some("three"), "no context \"three\""),
        ("a", &exec, None, "exec"),
    ] {
        let refused = test.fleet.import(name, kubeconfig, context, soon()).await.unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
    test.fleet.import("a", &two, Some("two"), soon()).await.unwrap();
    let again = test.fleet.import("a", &two, Some("one"), soon()).await.unwrap_err().to_string();
    assert!(again.contains("there is a cluster a already, from an import"), "{again}");
}

fn secret(name: &str, labels: &Value, kind: &str, key: &str, value: &Value) -> Secret {
    let data = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, value.to_string());
    serde_json::from_value(json!({
        "metadata": { "namespace": "capi", "name": name, "labels": labels },
        "type": kind, "data": { key: data },
    }))
    .unwrap()
}

#[tokio::test]
async fn secrets_are_clusters_and_of_two_with_one_name_both_are_shown() {
    let test = TestFleet::new(&nowhere(&["both", "file"]));
    test.until_state("both", State::Unreachable).await;
    let there = nowhere(&["there"]);
    let capi = "cluster.x-k8s.io/secret";
    for secret in [
        secret("any", &json!({ "fairlead.dev/cluster": "labelled" }), "Opaque", "config", &there),
        secret("own-name", &json!({ "fairlead.dev/cluster": "" }), "Opaque", "kubeconfig", &there),
        secret(
            "both-kubeconfig",
            &json!({ "cluster.x-k8s.io/cluster-name": "both" }),
            capi,
            "value",
            &there,
        ),
        secret(
            "both-ca",
            &json!({ "cluster.x-k8s.io/cluster-name": "both" }),
            capi,
            "value",
            &json!("no"),
        ),
        secret("mess", &json!({ "fairlead.dev/cluster": "mess" }), "Opaque", "other", &there),
    ] {
        test.objects.create(&secret, soon()).await.unwrap();
    }
    for name in ["labelled", "own-name"] {
        let view = test.until_state(name, State::Unreachable).await;
        assert_eq!(view.source.kind, SourceKind::Secret);
    }
    test.until_why("mess", State::Misconfigured, "has no key kubeconfig or value or config").await;
    let view = test.until("shadowed", |view| !view.shadowed.is_empty()).await;
    // Who had it first has it.
    assert_eq!(view.clusters["both"].source.kind, SourceKind::Kubeconfig);
    let [loser] = &view.shadowed[..] else { panic!("{:?}", view.shadowed) };
    assert_eq!((&*loser.name, &*loser.source.place), ("both", "capi/both-kubeconfig"));
    assert_eq!(loser.shadowed_by.as_ref().unwrap().kind, SourceKind::Kubeconfig);
    assert!(loser.why.as_ref().unwrap().contains("another cluster has its name"), "{loser:?}");
    let names = ["both", "file", "labelled", "mess", "own-name"];
    assert_eq!(view.clusters.len(), names.len());

    // Nobody imports over a name that somebody has, nor makes a second Secret of it.
    for (name, by) in [("both", SourceKind::Kubeconfig), ("labelled", SourceKind::Secret)] {
        let taken = test.fleet.import(name, &there.to_string(), None, soon()).await.unwrap_err();
        assert!(
            matches!(&taken, fleet::Error::NameTaken { cluster, .. } if cluster == name),
            "{taken}"
        );
        assert_eq!(test.fleet.view().clusters[name].source.kind, by);
    }
    let other = secret(
        "a-second",
        &json!({ "fairlead.dev/cluster": "labelled" }),
        "Opaque",
        "config",
        &there,
    );
    test.objects.create(&other, soon()).await.unwrap();
    let view = test.until("two shadowed", |view| view.shadowed.len() == 2).await;
    assert_eq!(view.clusters["labelled"].source.place, "capi/any", "the first in order was taken");

    // When it goes, the next one has its name.
    write(&TestFleet::file(&test.dir), &nowhere(&["file"]));
    let view = test.until("only one shadowed", |view| view.shadowed.len() == 1).await;
    assert_eq!(view.clusters["both"].source.place, "capi/both-kubeconfig");
    // And keeps it from whoever comes back.
    write(&TestFleet::file(&test.dir), &nowhere(&["both", "file"]));
    let view = test.until("two shadowed", |view| view.shadowed.len() == 2).await;
    assert_eq!(view.clusters["both"].source.place, "capi/both-kubeconfig");
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_a_fifth_of_the_fleet_in_a_black_hole_delays_nobody_else() {
    testkit::requires!(kube);
    const ALL: usize = 120;
    let server = KubeServer::start().await;
    let Parts { cluster, token, .. } = parts(&server);
    let hole = Proxy::start(server.address());
    hole.inject(Fault::BlackHole);
    let swallowed = with(&cluster, "server", at(hole.address()));
    let contexts = (0..ALL).fold(Contexts::default(), |all, index| {
        let cluster = if index % 5 == 0 { &swallowed } else { &cluster };
        all.with(&format!("c{index}"), cluster.clone(), token.clone())
    });
    let dir = tempfile::tempdir().unwrap();
    write(&TestFleet::file(&dir), &contexts.json());
    let tasks = Tasks::new("test");
    let objects = Objects::embedded(&dir.path().join("store"), &tasks).unwrap();
    let config = FleetConfig {
        kubeconfigs: vec![TestFleet::file(&dir)],
        // Whoever waits for a black hole waits for this, and the healthy do not.
        timing: Timing { tls: Duration::from_secs(45), ..Timing::default() },
        ..FleetConfig::default()
    };
    let fleet = Fleet::start(config, objects.clone(), Ledger::default(), &tasks);
    let test = TestFleet { dir, tasks, objects, fleet };
    let healthy = ALL - ALL / 5;
    let up = |view: &FleetView| {
        view.clusters.values().filter(|cluster| cluster.is_usable()).count() == healthy
    };
    let view = test.until("the healthy usable", up).await;
    let states = view.counts();
    assert_eq!(states[State::Connecting as usize].1, ALL / 5, "{states:?}");
}
