//! The Kubernetes API of a cluster through a real `fairlead up`, by a real kubectl with the kubeconfig of a
//! session.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../fleet/tests/kubelet/mod.rs"]
#[allow(dead_code, reason = "the tests of the fleet use more of it")]
mod kubelet;
mod running;

use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kubelet::Kubelet;
use running::{Answer, PATIENCE, Up};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::{KubeServer, requires};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::stream::MaybeTlsStream;
use tokio_tungstenite::tungstenite::{Message, WebSocket, connect};

const PASSWORD: &str = "a few words will do";

fn done(answer: &Answer) {
    assert!(answer.status < 300, "{}: {}", answer.status, answer.text);
}

fn parse<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Two teams, each with a namespace, a ConfigMap and a Secret; and a pod on a node.
async fn two_teams(client: &kube::Client, kubelet: &Kubelet) {
    let (create, patch) = (PostParams::default(), PatchParams::default());
    for team in ["team-a", "team-b"] {
        let spaces = Api::<Namespace>::all(client.clone());
        spaces.create(&create, &parse(json!({ "metadata": { "name": team } }))).await.unwrap();
        let maps = Api::<ConfigMap>::namespaced(client.clone(), team);
        let map = json!({ "metadata": { "name": "settings" }, "data": { "of": team } });
        maps.create(&create, &parse(map)).await.unwrap();
        let secrets = Api::<Secret>::namespaced(client.clone(), team);
        let secret = json!({ "metadata": { "name": "key" }, "stringData": { "key": "xyzzy" } });
        secrets.create(&create, &parse(secret)).await.unwrap();
    }
    let nodes = Api::<Node>::all(client.clone());
    nodes.create(&create, &parse(json!({ "metadata": { "name": "node" } }))).await.unwrap();
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": kubelet.address.ip() }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": kubelet.address.port() } },
    } });
    nodes.patch_status("node", &patch, &Patch::Merge(status)).await.unwrap();
    let pods = Api::<Pod>::namespaced(client.clone(), "team-a");
    let pod = json!({ "metadata": { "name": "web" }, "spec": { "nodeName": "node",
        "containers": [{ "name": "main", "image": "none" }] } });
    pods.create(&create, &parse(pod)).await.unwrap();
    let ready = json!({ "status": {
        "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    pods.patch_status("web", &patch, &Patch::Merge(ready)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_kubectl_through_the_kubeconfig_of_a_session() {
    requires!(kube);
    let server = KubeServer::start().await;
    let kubelet = Kubelet::start().await;
    two_teams(&server.client().await, &kubelet).await;
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    limited(&server.client().await).await;
    std::fs::write(&kubeconfig, with_a_limited_account(server.access().kubeconfig())).unwrap();
    let steps = move || {
        let up = Up::start(&dir.path().join("data"), kubeconfig.to_str().unwrap());
        let cluster = "certificate".to_owned();
        up.wait_for("/clusters", |list| is_ready(list, &cluster));
        people(&up);
        let vera = Session::open(&up, "vera");
        let tom = Session::open(&up, "tom");
        what_no_token_may(&up, &cluster, &tom);
        paths_that_trick(&up, &cluster, &tom);
        port_forwards_are_listed_and_ended(&up, &cluster, &tom);
        a_shell_of_a_newer_kubectl(&up, &cluster, &tom);
        match kubectl_program() {
            Some(program) => {
                let kubectl = |session: &Session| Kubectl::new(&program, dir.path(), session);
                a_viewer_reads_and_writes_nothing(&kubectl(&vera));
                a_team_has_its_namespace(&kubectl(&tom));
                what_one_may_do(&up, &kubectl(&vera), &kubectl(&tom));
                a_shell_of_kubectls(&kubectl(&tom));
                the_command_line_makes_one(&up, &program, dir.path());
                a_session_that_ends_takes_its_kubeconfig_along(&up, &tom, &kubectl(&tom));
            }
            None => testkit::need::skip(
                concat!(module_path!(), "::kubectl"),
                "no kubectl in KUBEBUILDER_ASSETS; scripts/kube-assets makes it",
            ),
        }
        the_audit_has_it(&up);
        drop(dir);
    };
    tokio::task::spawn_blocking(steps).await.unwrap();
    drop((server, kubelet));
}

/// What Fairlead's account may do in the cluster `limited`: read the ConfigMaps of one team.
async fn limited(client: &kube::Client) {
    let create = PostParams::default();
    let role = json!({ "metadata": { "name": "limited" }, "rules": [
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"] }] });
    let roles = Api::<Role>::namespaced(client.clone(), "team-a");
    roles.create(&create, &parse(role)).await.unwrap();
    let binding = json!({ "metadata": { "name": "limited" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "limited" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "limited" }] });
    let bindings = Api::<RoleBinding>::namespaced(client.clone(), "team-a");
    bindings.create(&create, &parse(binding)).await.unwrap();
}

/// The same server once more, by an account that may do little.
fn with_a_limited_account(kubeconfig: &str) -> String {
    let mut file = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let (mut user, mut context) = (file.auth_infos[0].clone(), file.contexts[0].clone());
    "limited".clone_into(&mut user.name);
    user.auth_info.as_mut().unwrap().impersonate = Some("limited".to_owned());
    "limited".clone_into(&mut context.name);
    context.context.as_mut().unwrap().user = Some("limited".to_owned());
    file.auth_infos.push(user);
    file.contexts.push(context);
    serde_json::to_string(&file).unwrap()
}

fn is_ready(list: &Value, cluster: &str) -> bool {
    let mut all = list["clusters"].as_array().unwrap().iter();
    all.any(|it| it["name"] == cluster && it["state"] == "ready")
}

/// vera looks; tom has all of his team's namespace.
fn people(up: &Up) {
    let role = json!({ "allow": [{
        "clusters": ["*"], "namespaces": ["team-a"], "resources": ["*"], "verbs": ["*"] }] });
    done(&up.ask("PUT", "/roles/team-a", &role));
    for (name, role) in [("vera", "viewer"), ("tom", "team-a")] {
        let user = json!({ "name": name, "password": PASSWORD, "roles": [role] });
        done(&up.ask("POST", "/users", &user));
    }
}

/// A browser's session, and its kubeconfig.
struct Session {
    user: String,
    cookie: String,
    csrf: String,
    kubeconfig: String,
}

impl Session {
    fn open(up: &Up, user: &str) -> Self {
        let body = json!({ "user": user, "password": PASSWORD });
        let opened = up.send("POST", &format!("{}/api/v1/login", up.api), &[], &body);
        done(&opened);
        let cookie = opened.headers["set-cookie"].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let csrf = opened.json()["csrf"].as_str().unwrap().to_owned();
        let mut session = Self { user: user.to_owned(), cookie, csrf, kubeconfig: String::new() };
        let made = session.ask(up, "POST", "/me/kubeconfig", &json!({ "server": up.api }));
        assert_eq!(made.status, 201, "{}", made.text);
        made.json()["kubeconfig"].as_str().unwrap().clone_into(&mut session.kubeconfig);
        session
    }

    fn ask(&self, up: &Up, method: &str, path: &str, body: &Value) -> Answer {
        let headers = [("cookie", &*self.cookie), ("x-csrf-token", &*self.csrf)];
        up.send(method, &format!("{}/api/v1{path}", up.api), &headers, body)
    }

    /// The token in it.
    fn token(&self) -> &str {
        let (_, after) = self.kubeconfig.split_once("flk_").unwrap();
        let end = after.find(['@', '"']).unwrap();
        let start = self.kubeconfig.len() - after.len() - "flk_".len();
        &self.kubeconfig[start..start + "flk_".len() + end]
    }

    fn kube(&self, up: &Up, method: &str, cluster: &str, path: &str) -> Answer {
        let path = format!("/clusters/{cluster}/proxy/{path}");
        up.ask_as(self.token(), method, &path, &Value::Null)
    }
}

fn what_no_token_may(up: &Up, cluster: &str, tom: &Session) {
    // It is for the Kubernetes API alone.
    for path in ["/me", "/clusters", &format!("/clusters/{cluster}/resources/pods")] {
        assert_eq!(up.ask_as(tom.token(), "GET", path, &Value::Null).status, 401, "{path}");
    }
    let more = json!({ "server": up.api });
    assert_eq!(up.ask_as(tom.token(), "POST", "/me/kubeconfig", &more).status, 401);
    // And that takes no cookie: a browser's page gets nothing by it.
    let path = format!("/clusters/{cluster}/proxy/api/v1/namespaces/team-a/configmaps");
    assert_eq!(tom.ask(up, "GET", &path, &Value::Null).status, 401);
    let changed = format!("{}x", tom.token());
    assert_eq!(up.ask_as(&changed, "GET", &path, &Value::Null).status, 401);
    assert_eq!(up.ask_as(tom.token(), "GET", &path, &Value::Null).status, 200);
    let unseen = tom.kube(up, "GET", "nowhere", "api/v1/pods");
    assert_eq!((unseen.status, &unseen.json()["kind"]), (404, &json!("Status")));
}

fn paths_that_trick(up: &Up, cluster: &str, tom: &Session) {
    for path in [
        "api/v1/namespaces/team-a/configmaps/../../team-b/configmaps/settings",
        "api/v1/namespaces/team-a/configmaps/..%2f..%2fteam-b%2fconfigmaps/settings",
        "api/v1/namespaces/team-a/configmaps/%2e%2e/%2e%2e/team-b/configmaps/settings",
        "api/v1/namespaces/team-a%2f..%2fteam-b/configmaps",
        "api/v1//namespaces/team-b/configmaps",
        "api/v1/namespaces/team-a/../team-b/configmaps",
    ] {
        let refused = tom.kube(up, "GET", cluster, path);
        assert_eq!(refused.status, 400, "{path}: {}", refused.text);
        assert!(refused.json()["message"].as_str().unwrap().contains("path"), "{path}");
    }
    for path in [
        "api/v1/watch/namespaces/team-b/configmaps",
        "api/v1/nodes/node/proxy/pods",
        "api/v1/namespaces/team-a/pods/web/proxy/",
        "metrics",
        "logs/kube-apiserver.log",
    ] {
        let refused = tom.kube(up, "GET", cluster, path);
        assert!(matches!(refused.status, 400 | 403), "{path}: {}", refused.text);
        assert!(!refused.text.contains("team-b"), "{path}: {}", refused.text);
    }
    // What he has no right to is refused, whether it is there or not.
    for name in ["settings", "no-such"] {
        let path = format!("api/v1/namespaces/team-b/configmaps/{name}");
        let refused = tom.kube(up, "GET", cluster, &path);
        assert_eq!(refused.status, 404, "{}", refused.text);
    }
}

type Socket = WebSocket<MaybeTlsStream<TcpStream>>;

/// A connection to the pod's port, as client-go opens it over a WebSocket.
fn forward(up: &Up, cluster: &str, token: &str) -> Socket {
    let path = format!("clusters/{cluster}/proxy/api/v1/namespaces/team-a/pods/web/portforward");
    let url = format!("{}/api/v1/{path}?ports={}", up.api, kubelet::PORT);
    let mut request = url.replacen("http", "ws", 1).into_client_request().unwrap();
    let headers = request.headers_mut();
    headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
    headers.insert("sec-websocket-protocol", "v4.channel.k8s.io".parse().unwrap());
    let (socket, answer) = connect(request).unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], "v4.channel.k8s.io");
    socket
}

/// A shell as kubectl opens it since 1.29: a WebSocket of v5, in which stdin can end.
fn a_shell_of_a_newer_kubectl(up: &Up, cluster: &str, tom: &Session) {
    let path = format!("clusters/{cluster}/proxy/api/v1/namespaces/team-a/pods/web/exec");
    let url = format!("{}/api/v1/{path}?command=cat&stdin=true&stdout=true", up.api);
    let mut request = url.replacen("http", "ws", 1).into_client_request().unwrap();
    let headers = request.headers_mut();
    headers.insert("authorization", format!("Bearer {}", tom.token()).parse().unwrap());
    headers.insert("sec-websocket-protocol", "v5.channel.k8s.io".parse().unwrap());
    let (mut socket, answer) = connect(request).unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], "v5.channel.k8s.io");
    let mut heard = |sent: &[u8], wanted: &[u8]| {
        socket.send(Message::Binary(sent.to_vec().into())).unwrap();
        while socket.read().unwrap().into_data() != *wanted {}
    };
    heard(b"\0hello", b"\x01hello");
    heard(&[255, 0], b"\x03{\"metadata\":{},\"status\":\"Success\"}");
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn port_forwards_are_listed_and_ended(up: &Up, cluster: &str, tom: &Session) {
    let mut socket = forward(up, cluster, tom.token());
    // Each of the two channels begins with the port.
    for _ in 0..2 {
        assert!(matches!(socket.read().unwrap(), Message::Binary(_)));
    }
    socket.send(Message::Binary(b"\0hello".to_vec().into())).unwrap();
    let seen = || up.get("/forwards").json()["forwards"].clone();
    until("bytes are counted", || seen()[0]["bytesToPod"].as_u64().is_some_and(|n| n > 0));
    let open = seen();
    let fields = ["user", "namespace", "pod", "cluster"].map(|field| open[0][field].clone());
    assert_eq!(fields, [json!("tom"), json!("team-a"), json!("web"), json!(cluster)]);
    // Who may not see what is in flight sees one's own.
    let own = |session: &Session| session.ask(up, "GET", "/forwards", &Value::Null).json();
    assert_eq!(own(tom)["forwards"].as_array().unwrap().len(), 1);
    let id = open[0]["id"].as_u64().unwrap();
    done(&tom.ask(up, "DELETE", &format!("/forwards/{id}"), &Value::Null));
    while socket.read().is_ok() {}
    until("it has left the list", || seen() == json!([]));
    assert_eq!(up.ask("DELETE", &format!("/forwards/{id}"), &Value::Null).status, 404);
}

fn kubectl_program() -> Option<PathBuf> {
    let found = std::env::var_os("KUBEBUILDER_ASSETS").map(|dir| Path::new(&dir).join("kubectl"));
    found.filter(|path| path.is_file())
}

/// kubectl with the kubeconfig of a session.
struct Kubectl {
    program: PathBuf,
    home: PathBuf,
    file: PathBuf,
}

impl Kubectl {
    fn new(program: &Path, dir: &Path, session: &Session) -> Self {
        let file = dir.join(format!("{}.kubeconfig", session.user));
        std::fs::write(&file, &session.kubeconfig).unwrap();
        Self { program: program.to_owned(), home: dir.to_owned(), file }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        let context =
            if line.starts_with("--context") { "" } else { "--context fairlead-certificate " };
        let line = format!("{context}{line}");
        command.arg("--kubeconfig").arg(&self.file).args(line.split(' ')).env("HOME", &self.home);
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
}

fn a_viewer_reads_and_writes_nothing(vera: &Kubectl) {
    vera.yes("version", "Server Version");
    vera.yes("get configmaps -A", "team-b");
    vera.yes("get namespaces", "team-a");
    vera.yes("get pods -n team-a web -o jsonpath={.spec.nodeName}", "node");
    vera.yes("get nodes", "node");
    vera.yes("logs -n team-a web --tail=1", "");
    let not = "vera may not create configmaps in namespace team-a";
    vera.no("create configmap new -n team-a --from-literal=a=b", not);
    vera.no("delete pod web -n team-a", "vera may not delete pods");
    vera.no("annotate configmap settings -n team-a a=b", "vera may not update configmaps");
    vera.no("get secrets -n team-a", "vera may not list secrets");
    vera.no("get secrets -A", "vera may not list secrets");
    vera.no("exec -n team-a web -- true", "vera may not exec pods");
}

fn a_team_has_its_namespace(tom: &Kubectl) {
    tom.yes("get configmaps -n team-a", "settings");
    tom.yes("get secret key -n team-a -o jsonpath={.data.key}", "eHl6enk=");
    let everywhere = "tom may not list configmaps in all namespaces";
    tom.no("get configmaps -A", everywhere);
    tom.no("get configmaps -A", "such as team-a");
    tom.no("get configmaps -n team-b", "tom may not list configmaps in namespace team-b");
    tom.no("get configmap settings -n team-b", "not found");
    tom.no("get nodes", "tom may not list nodes");
    tom.no("get namespaces", "tom may not list namespaces");
    tom.no("create configmap new -n team-b --from-literal=a=b", "tom may not create configmaps");
    tom.yes("create configmap new -n team-a --from-literal=a=b", "created");
    tom.yes("label configmap new -n team-a c=d", "labeled");
    tom.yes("create deployment web -n team-a --image=none", "created");
    tom.yes("scale deployment web -n team-a --replicas=3", "scaled");
    tom.yes("get deployment web -n team-a -o jsonpath={.spec.replicas}", "3");
    tom.yes("delete configmap new -n team-a", "deleted");
    tom.no("delete configmap new -n team-a", "NotFound");
}

/// `kubectl auth can-i`: the roles and the cluster both have to allow it.
fn what_one_may_do(up: &Up, vera: &Kubectl, tom: &Kubectl) {
    for question in [
        "list pods -A",
        "get pods -n team-b",
        "get pods --subresource=log -n team-a",
        "list nodes",
        "get /healthz",
    ] {
        vera.yes(&format!("auth can-i {question}"), "yes");
    }
    for question in [
        "delete pods -n team-a",
        "create pods --subresource=exec -n team-a",
        "get secrets -n team-a",
        "get /metrics",
        "* * -n team-a",
        "* pods -n team-a",
        "impersonate users",
    ] {
        vera.no(&format!("auth can-i {question}"), "no");
    }
    for question in [
        "create pods --subresource=exec -n team-a",
        "create pods --subresource=portforward -n team-a",
        "patch deployments.apps --subresource=scale -n team-a",
        "get secrets/key -n team-a",
        "* * -n team-a",
        "* pods -n team-a",
    ] {
        tom.yes(&format!("auth can-i {question}"), "yes");
    }
    for question in [
        "list configmaps -A",
        "get configmaps/settings -n team-b",
        "create pods -n team-b",
        "list nodes",
        "list namespaces",
        "* * -A",
        "get nothings.example.com -n team-a",
    ] {
        tom.no(&format!("auth can-i {question}"), "no");
    }
    tom.yes("auth can-i --list -n team-a", "pods/exec");
    let (_, elsewhere) = tom.run("auth can-i --list -n team-b");
    assert!(elsewhere.contains("/healthz") && !elsewhere.contains("configmaps"), "{elsewhere}");

    // The roles allow everything there; the account by which the cluster is asked does not.
    up.wait_for("/clusters", |list| is_ready(list, "limited"));
    let there = "--context fairlead-limited auth can-i";
    tom.yes(&format!("{there} get configmaps -n team-a"), "yes");
    tom.no(&format!("{there} create configmaps -n team-a"), "no");
    tom.no(&format!("{there} get secrets -n team-a"), "no");
    let (_, list) = tom.run(&format!("{there} --list -n team-a"));
    let line = list.lines().find(|line| line.starts_with("configmaps"));
    assert!(line.is_some_and(|line| line.contains("[get list]")), "{list}");
    assert!(!list.contains("secrets"), "{list}");
}

/// kubectl's own stream, which is SPDY up to 1.28.
fn a_shell_of_kubectls(tom: &Kubectl) {
    let mut command = tom.command("exec -i -n team-a web -- tr a-z A-Z");
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "HELLO\n", "{error}");
}

/// The machine's owner, by the command line.
fn the_command_line_makes_one(up: &Up, program: &Path, dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let file = dir.join("local.kubeconfig");
    let made = up.fairlead(&["kubeconfig", "--file", file.to_str().unwrap()]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.err.contains("good until"), "{made:?}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let local = Kubectl { program: program.to_owned(), home: dir.to_owned(), file };
    local.yes("get secrets -A", "team-b");
    let none = up.fairlead(&["kubeconfig", "nowhere"]);
    assert_eq!(none.code, 1, "{none:?}");
    assert!(none.err.contains("there is no cluster nowhere"), "{none:?}");
    let said = up.fairlead(&["kubeconfig", "-o", "json"]).json();
    assert!(said["expires"].is_string() && said["contexts"][0].is_string(), "{said}");
}

fn a_session_that_ends_takes_its_kubeconfig_along(up: &Up, tom: &Session, kubectl: &Kubectl) {
    let mut watch = kubectl.command("get configmaps -n team-a --watch");
    let mut watch = watch.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let open = || {
        let found = up.get("/inflight?kind=watch").json();
        found["operations"].as_array().unwrap().iter().any(|op| op["key"] == "configmaps")
    };
    until("the watch is open", open);
    done(&tom.ask(up, "POST", "/logout", &Value::Null));
    until("the watch has ended", || !open());
    ends(&mut watch);
    kubectl.no("get configmaps -n team-a", "logged in");
}

fn ends(child: &mut Child) {
    until("kubectl has ended", || child.try_wait().unwrap().is_some());
}

fn the_audit_has_it(up: &Up) {
    let audit = up.get("/audit?limit=1000").json();
    let has = |wanted: &[(&str, &str)]| {
        let is = |entry: &Value| wanted.iter().all(|(key, value)| entry[*key] == *value);
        assert!(audit["entries"].as_array().unwrap().iter().any(is), "{wanted:?} in {audit}");
    };
    has(&[("user", "tom"), ("verb", "forward"), ("resource", "pods/portforward"), ("name", "web")]);
    has(&[("user", "tom"), ("verb", "create"), ("resource", "kubeconfigs"), ("outcome", "ok")]);
    has(&[("user", "tom"), ("verb", "delete"), ("resource", "portforwards")]);
    if kubectl_program().is_none() {
        return;
    }
    has(&[
        ("user", "vera"),
        ("verb", "create"),
        ("resource", "configmaps"),
        ("outcome", "forbidden"),
    ]);
    has(&[("user", "vera"), ("verb", "exec"), ("resource", "pods/exec"), ("outcome", "forbidden")]);
    has(&[("user", "tom"), ("verb", "create"), ("name", "new"), ("outcome", "ok")]);
    has(&[("user", "tom"), ("verb", "get"), ("resource", "secrets"), ("name", "key")]);
    has(&[("user", "tom"), ("verb", "scale"), ("resource", "deployments.apps/scale")]);
    has(&[("user", "tom"), ("verb", "delete"), ("name", "new"), ("outcome", "not-found")]);
    assert!(!audit.to_string().contains("flk_"));
}
