//! A real kubectl, over TLS, with the kubeconfig of a session: two controllers behind a balancer that knows
//! nothing of sessions, on one API server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod controllers;
#[path = "../../fleet/tests/kubelet/mod.rs"]
#[allow(dead_code, reason = "the tests of the fleet use more of it")]
mod kubelet;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use controllers::{Controller, PATIENCE, create, eventually, http, prepared, replica_pod};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kubelet::Kubelet;
use serde_json::{Value, json};
use testkit::{KubeServer, requires};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const PASSWORD: &str = "correct horse battery";

/// Passes connections on to replicas, one after the other: as a Service does, which looks into none.
struct Balancer {
    /// `https://ADDRESS:PORT`
    url: String,
    /// How many connections each replica was given.
    given: Arc<[AtomicUsize; 2]>,
    _serving: JoinSet<()>,
}

impl Balancer {
    async fn start(address: &str, replicas: [String; 2]) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let given: Arc<[AtomicUsize; 2]> = Arc::default();
        let (mut serving, counted) = (JoinSet::new(), Arc::clone(&given));
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            for turn in 0.. {
                let (mut client, _) = listener.accept().await.unwrap();
                let replica = replicas[turn % 2].clone();
                counted[turn % 2].fetch_add(1, Relaxed);
                connections.spawn(async move {
                    let mut upstream = TcpStream::connect(replica).await.unwrap();
                    // Either end may go away in the middle.
                    let _ = copy_bidirectional(&mut client, &mut upstream).await;
                });
            }
        });
        Self { url, given, _serving: serving }
    }

    fn given(&self) -> [usize; 2] {
        [self.given[0].load(Relaxed), self.given[1].load(Relaxed)]
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> http::Answer {
        let headers = [&[("content-type", "application/json")][..], headers].concat();
        let url = format!("{}/api/v1{path}", self.url);
        http::send(method, &url, &headers, &body.to_string(), PATIENCE)
    }
}

/// kubectl with a kubeconfig.
struct Kubectl {
    program: PathBuf,
    home: PathBuf,
    file: PathBuf,
}

impl Kubectl {
    fn new(program: &Path, dir: &Path, name: &str, kubeconfig: &str) -> Self {
        let file = dir.join(name);
        std::fs::write(&file, kubeconfig).unwrap();
        Self { program: program.to_owned(), home: dir.to_owned(), file }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.file).args(["--context", "fairlead-home"]);
        command.args(line.split(' ')).env("HOME", &self.home);
        command
    }

    fn run(&self, line: &str) -> (bool, String) {
        let output = self.command(line).stdin(Stdio::null()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    fn yes(&self, line: &str, wanted: &str) {
        let (ok, said) = self.run(line);
        assert!(ok && said.contains(wanted), "{line}: {said}");
    }

    fn no(&self, line: &str, wanted: &str) {
        let (ok, said) = self.run(line);
        assert!(!ok && said.contains(wanted), "{line}: {said}");
    }

    /// A shell that writes in capitals what it reads.
    fn shell(&self) {
        let mut command = self.command("exec -i -n shop web -- tr a-z A-Z");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "HELLO\n", "{error}");
    }
}

/// A pod on a node whose kubelet is a stand-in, and a ConfigMap.
async fn shop(client: &kube::Client, kubelet: &Kubelet) {
    create(&Api::<Namespace>::all(client.clone()), json!({ "metadata": { "name": "shop" } })).await;
    let nodes = Api::<Node>::all(client.clone());
    create(&nodes, json!({ "metadata": { "name": "node" } })).await;
    let (patch, address) = (PatchParams::default(), kubelet.address);
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": address.ip() }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": address.port() } } } });
    nodes.patch_status("node", &patch, &Patch::Merge(status)).await.unwrap();
    let pods = Api::<Pod>::namespaced(client.clone(), "shop");
    let pod = json!({ "metadata": { "name": "web" }, "spec": { "nodeName": "node",
        "containers": [{ "name": "main", "image": "none" }] } });
    create(&pods, pod).await;
    let ready = json!({ "status": {
        "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    pods.patch_status("web", &patch, &Patch::Merge(ready)).await.unwrap();
    map(client, "settings").await;
}

async fn map(client: &kube::Client, name: &str) {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "shop");
    create(&maps, json!({ "metadata": { "name": name } })).await;
}

fn kubectl_program() -> Option<PathBuf> {
    let found = std::env::var_os("KUBEBUILDER_ASSETS").map(|dir| Path::new(&dir).join("kubectl"));
    found.filter(|path| path.is_file())
}

/// Two replicas that are ready and know the cluster `home`.
async fn replicas(server: &KubeServer, dir: &Path) -> [Controller; 2] {
    let addresses = ["127.77.0.1", "127.77.0.2"];
    let home = Api::<Pod>::namespaced(server.client().await, "fairlead");
    for (number, address) in addresses.iter().enumerate() {
        replica_pod(&home, &format!("replica-{number}"), "Running", address).await;
    }
    let port = TcpListener::bind((addresses[0], 0)).await.unwrap().local_addr().unwrap().port();
    let kubeconfig = server.kubeconfig_path();
    let replicas = addresses.map(|at| Controller::start(&kubeconfig, dir, at, port));
    for replica in &replicas {
        eventually("every replica is ready", async || {
            (replica.readyz().0 == 200 && replica.ca().exists()).then_some(())
        })
        .await;
    }
    let add = ["clusters", "add", "home", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let (code, out, err) = replicas[0].fairlead(&add);
    assert_eq!(code, 0, "{out}{err}");
    for replica in &replicas {
        eventually("every replica has connected it", async || {
            (replica.ask("/clusters")["clusters"][0]["state"] == "ready").then_some(())
        })
        .await;
    }
    replicas
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_kube_kubectl_reaches_a_cluster_over_tls_whichever_replica_a_connection_comes_to() {
    requires!(kube);
    let Some(program) = kubectl_program() else {
        let why = "no kubectl in KUBEBUILDER_ASSETS; scripts/kube-assets makes it";
        return testkit::need::skip(concat!(module_path!(), "::kubectl"), why);
    };
    let server = prepared().await;
    let (client, kubelet) = (server.client().await, Kubelet::start().await);
    shop(&client, &kubelet).await;
    let dir = tempfile::tempdir().unwrap();
    let replicas = replicas(&server, dir.path()).await;
    let place = |it: &Controller| it.api.trim_start_matches("https://").to_owned();
    let balancer = Balancer::start("127.77.0.3", [place(&replicas[0]), place(&replicas[1])]).await;
    let owner = std::fs::read_to_string(replicas[0].data.join("token")).unwrap();
    let owner = format!("Bearer {}", owner.trim());
    let ann = json!({ "name": "ann", "password": PASSWORD, "roles": ["operator"] });
    let url = format!("{}/api/v1/users", replicas[0].api);
    let headers = [("authorization", &*owner), ("content-type", "application/json")];
    let made = http::send("POST", &url, &headers, &ann.to_string(), PATIENCE);
    assert!(made.status < 300, "{}", made.text);

    // As the console asks: with the session's cookies, without a word of authorities.
    let session = eventually("ann logs in", async || {
        let body = json!({ "user": "ann", "password": PASSWORD });
        let answer = balancer.send("POST", "/login", &[], &body);
        (answer.status == 200).then_some(answer)
    })
    .await;
    let cookies = session.headers.get_all("set-cookie").iter();
    let cookies = cookies.map(|cookie| cookie.to_str().unwrap().split(';').next().unwrap());
    let cookies = cookies.collect::<Vec<_>>().join("; ");
    let csrf = session.json()["csrf"].as_str().unwrap().to_owned();
    let of_session = [("cookie", &*cookies), ("x-csrf-token", &*csrf)];
    let body = json!({ "server": balancer.url });
    let made = balancer.send("POST", "/me/kubeconfig", &of_session, &body);
    assert_eq!(made.status, 201, "{}", made.text);
    let kubeconfig = made.json()["kubeconfig"].as_str().unwrap().to_owned();
    let ca = kubeconfig.lines().find(|line| line.contains("certificate-authority-data")).unwrap();
    let kubectl = Kubectl::new(&program, dir.path(), "ann.kubeconfig", &kubeconfig);

    // Without the authority kubectl trusts nobody here.
    let stranger = kubeconfig.replace(&format!("{ca}\n"), "");
    let stranger = Kubectl::new(&program, dir.path(), "stranger.kubeconfig", &stranger);
    stranger.no("get configmaps -n shop", "x509");

    // Each command makes connections of its own; after some, each kind has come to either replica.
    let before = balancer.given();
    for round in 0..3 {
        kubectl.yes("get configmaps -n shop", "settings");
        kubectl.shell();
        watched(&kubectl, &client, &format!("seen-{round}")).await;
    }
    kubectl.no("get secrets -n shop", "ann may not list secrets");
    let after = balancer.given();
    assert!(after[0] - before[0] >= 5 && after[1] - before[1] >= 5, "{before:?} {after:?}");

    the_command_line_makes_one(&balancer, &replicas[0], &program, dir.path());

    // The session's end is the kubeconfig's, at every replica.
    let out = balancer.send("POST", "/logout", &of_session, &Value::Null);
    assert_eq!(out.status, 204, "{}", out.text);
    for _ in 0..2 {
        let (ok, said) = kubectl.run("get configmaps -n shop");
        assert!(!ok, "{said}");
    }
    drop((server, kubelet));
}

/// A watch tells what is made after it has begun.
async fn watched(kubectl: &Kubectl, client: &kube::Client, name: &str) {
    let mut command = kubectl.command("get configmaps -n shop --watch -o name");
    let mut watch = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let wanted = format!("configmap/{name}");
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let reading = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ = told.send(line);
        }
    });
    // The list comes first: then the watch is open.
    let heard = async {
        let mut made = false;
        while let Some(line) = hears.recv().await {
            if line == wanted {
                return;
            }
            if line == "configmap/settings" && !std::mem::replace(&mut made, true) {
                map(client, name).await;
            }
        }
        panic!("the watch has ended");
    };
    tokio::time::timeout(PATIENCE, heard).await.expect("it is told");
    watch.kill().unwrap();
    watch.wait().unwrap();
    reading.join().unwrap();
}

/// `fairlead kubeconfig`, of a login of the command line, through the balancer.
fn the_command_line_makes_one(
    balancer: &Balancer,
    replica: &Controller,
    program: &Path,
    dir: &Path,
) {
    let body = json!({ "user": "ann", "password": PASSWORD });
    let login = balancer.send("POST", "/auth/cli/login", &[], &body);
    assert_eq!(login.status, 200, "{}", login.text);
    let token = dir.join("ann.token");
    std::fs::write(&token, login.json()["access"].as_str().unwrap()).unwrap();
    let file = dir.join("cli.kubeconfig");
    let made = Command::new(env!("CARGO_BIN_EXE_fairlead"))
        .args(["kubeconfig", "home", "--file", file.to_str().unwrap()])
        .env("FAIRLEAD_CONFIG", "/dev/null")
        .env("FAIRLEAD_SERVER", &balancer.url)
        .env("FAIRLEAD_CA_FILE", replica.ca())
        .env("FAIRLEAD_TOKEN_FILE", &token)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let kubectl = Kubectl { program: program.to_owned(), home: dir.to_owned(), file };
    for _ in 0..2 {
        kubectl.yes("get configmaps -n shop", "settings");
        kubectl.shell();
    }
}
