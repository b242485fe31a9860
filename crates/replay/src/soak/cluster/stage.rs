//! The stage: three nodes, Fairlead on them, pods that probe each other, and who asks what from outside.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use testkit::cluster::{Cluster, Network, Options, POD_NETWORK};
use tokio::sync::mpsc::{Receiver, Sender};

use super::client::{Clients, Target};
use super::packets::{CLOSED, GATE, OPEN};
use super::second::SecondCluster;
use super::{Cannot, NODES, Plan, Tell, Told};

pub(super) const NAMESPACE: &str = "soak";
const IMAGE: &str = "local/fairlead:soak";
/// A user's password, of a cluster that is gone afterwards.
const PASSWORD: &[u8] = b"correct horse battery staple\n";
/// Several times what anything takes on two busy cores.
const SOON: Duration = Duration::from_secs(240);
/// The disk of each agent, in MiB: small enough to be filled at once.
const DISK: u32 = 96;

/// A controller, as it is reached from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Controller {
    pub(super) pod: String,
    pub(super) address: IpAddr,
}

pub(super) struct Stage {
    pub(super) cluster: Cluster,
    home: PathBuf,
    program: PathBuf,
    /// Beside the nodes, at the wire.
    pub(super) outside: Clients,
    /// On this machine, for the API server.
    pub(super) here: Clients,
    api: Target,
    authority: String,
    metrics_token: String,
    /// The user's token, which is changed now and then.
    pub(super) token: Mutex<String>,
    /// The fleet's name for this cluster.
    pub(super) name: String,
    pub(super) second: SecondCluster,
    /// Reports of a lying agent that were taken.
    pub(super) lies: Arc<AtomicU64>,
    /// By node; as it was last known.
    controllers: Mutex<BTreeMap<u32, Controller>>,
}

/// What is missing here, and what to do about it.
pub(super) fn missing(plan: &Plan) -> Vec<String> {
    let mut missing = Vec::new();
    if let Err(why) = testkit::need::cluster() {
        missing.push(format!(
            "no cluster can run here ({why}): run it as root, with KUBEBUILDER_ASSETS naming a directory of \
             kube-apiserver, etcd, kubelet and the others (docs/endurance.md)"
        ));
    }
    if !plan.plugin.is_file() {
        missing.push(format!("{} is not there: build the workspace", plan.plugin.display()));
    }
    if !script().is_file() {
        missing
            .push(format!("{} is not there: run it from Fairlead's sources", script().display()));
    }
    missing
}

/// The image as `make image` makes it.
fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/image")
}

fn run(command: &mut Command, what: &str) -> Result<String, Cannot> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!(
            "{what}: {}\n{}\n{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        )
        .into()),
    }
}

/// Calls until there is an answer.
fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> Result<T, Cannot> {
    let deadline = Instant::now() + SOON;
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(why) if Instant::now() > deadline => {
                return Err(format!("waited in vain for {what}: {why}").into());
            }
            Err(_) => std::thread::sleep(Duration::from_millis(500)),
        }
    }
}

impl Stage {
    pub(super) fn set(plan: &Plan, tell: &mut Tell<'_>) -> Result<Self, Cannot> {
        let home = plan.dir.clone();
        tell(Told::Event("the image is being made"));
        let archive = home.join("fairlead.tar");
        let binaries = plan.program.parent().unwrap_or_else(|| Path::new("."));
        let mut image = Command::new(script());
        image.args(["--allow-dynamic", "--level", "1", "--tag", IMAGE, "--binaries"]);
        run(image.arg(binaries).arg(&archive), "the image cannot be made")?;
        tell(Told::Event("three nodes are being started"));
        let options = Options { nodes: NODES, network: Network::None, agent_disk: Some(DISK) };
        let cluster = Cluster::start_with(&options);
        cluster.load_archive(&archive);
        let _ = fs::remove_file(&archive);
        let outside = Clients::start(Some(cluster.outside_netns()))?;
        let here = Clients::start(None)?;
        let api = api(cluster.access().kubeconfig())?;
        tell(Told::Event("a second cluster is being started"));
        let second = SecondCluster::start(&cluster)?;
        let metrics_token = format!("soak-{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let mut stage = Self {
            cluster,
            home,
            program: plan.program.clone(),
            outside,
            here,
            api,
            authority: String::new(),
            metrics_token,
            token: Mutex::default(),
            name: String::new(),
            second,
            lies: Arc::default(),
            controllers: Mutex::default(),
        };
        tell(Told::Event("Fairlead is being installed"));
        stage.install()?;
        stage.user()?;
        stage.second.join(&stage.cluster)?;
        tell(Told::Event("pods that probe each other are being started"));
        stage.probes()?;
        Ok(stage)
    }

    fn install(&mut self) -> Result<(), Cannot> {
        let secret = format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: fairlead}}\n---\n\
             apiVersion: v1\nkind: Secret\nmetadata: {{name: soak-metrics, namespace: fairlead}}\n\
             stringData: {{token: {}}}\n",
            self.metrics_token
        );
        self.cluster.apply(&secret);
        let values = self.home.join("values.yaml");
        let (repository, tag) = IMAGE.rsplit_once(':').unwrap_or((IMAGE, "latest"));
        let text = format!(
            "image: {{repository: {repository}, tag: {tag}, pullPolicy: Never}}\n\
             net: {{pools: [{{name: default, blockSizeBits: 5, subnets: [{{ipv4: {POD_NETWORK}}}]}}]}}\n\
             admission: {{mode: protect, failurePolicy: fail}}\n\
             fleet: {{localCluster: admin}}\n\
             metrics: {{tokenSecret: soak-metrics}}\n"
        );
        fs::write(&values, text)?;
        let mut install = self.command();
        install.args([
            "install",
            "--components=net,guard,mesh,console,admission",
            "-o",
            "json",
            "--values",
        ]);
        run(install.arg(&values), "the installation failed")?;
        until("fairlead status to find nothing wrong", || {
            run(self.command().arg("status"), "status").map_err(|why| why.to_string())
        })?;
        Ok(())
    }

    /// The command line as an administrator of the cluster has it.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("KUBECONFIG", self.cluster.kubeconfig()).env("HOME", &self.home);
        command
    }

    /// Somebody who may do everything, and the way to the API.
    fn user(&mut self) -> Result<(), Cannot> {
        let inside = [
            "--namespace=fairlead",
            "exec",
            "-i",
            "deployment/fairlead-controller",
            "--",
            "/usr/local/bin/fairlead",
        ];
        let mut add = self.cluster.kubectl_command();
        add.args(inside).args(["users", "add", "soak", "--role", "admin"]);
        let mut add =
            add.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = add.stdin.take() {
            stdin.write_all(PASSWORD)?;
        }
        let added = add.wait_with_output()?;
        if !added.status.success() {
            return Err(format!("no user: {}", String::from_utf8_lossy(&added.stderr)).into());
        }
        let token = until("a token of the user", || {
            let create = [&inside[..], &["tokens", "create", "--user", "soak"]].concat();
            self.cluster.try_kubectl(&create)
        })?;
        *self.token.lock() = token.trim().to_owned();
        let bundle = self.cluster.try_kubectl(&[
            "--namespace=fairlead",
            "get",
            "configmap",
            "fairlead-ca",
            "--output=jsonpath={.data.ca\\.crt}",
        ])?;
        use base64::Engine as _;
        self.authority = base64::prelude::BASE64_STANDARD.encode(bundle);
        self.name = until("the API to tell of this cluster", || {
            self.look_for_controllers();
            let nodes = self.controllers();
            if nodes.len() < NODES as usize {
                return Err(format!("{} controllers are there", nodes.len()));
            }
            let mut name = Err("nobody was asked".to_owned());
            for node in nodes.keys() {
                let answer =
                    self.ask(*node, ("GET", "/api/v1/clusters"), None, Duration::from_secs(5));
                let first = answer.ok().and_then(|it| {
                    let list = it.get("clusters").or(it.get("items")).unwrap_or(&it).clone();
                    Some(list.as_array()?.first()?.get("name")?.as_str()?.to_owned())
                });
                name = Ok(first.ok_or_else(|| answer.told())?);
            }
            name
        })?;
        Ok(())
    }

    /// The command line in a controller's container, as an administrator of the cluster runs it.
    fn inside(&self, args: &[&str]) -> Result<String, String> {
        let kubectl = self.cluster.kubectl_command();
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "30"]).arg(kubectl.get_program()).args(kubectl.get_args());
        command.args(["--namespace=fairlead", "exec", "deployment/fairlead-controller", "--"]);
        command.arg("/usr/local/bin/fairlead").args(args).env("HOME", &self.home);
        run(&mut command, "in a controller").map_err(|why| why.to_string())
    }

    /// A new token of the user: its name and its secret. A token cannot make tokens.
    pub(super) fn make_token(&self) -> Result<(String, String), String> {
        let said = self.inside(&["tokens", "create", "--user", "soak", "-o", "json"])?;
        let made: Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
        let text = |field: &str| made[field].as_str().map(str::to_owned);
        text("name").zip(text("token")).ok_or_else(|| "no token was told".to_owned())
    }

    pub(super) fn revoke_token(&self, name: &str) -> Result<(), String> {
        self.inside(&["tokens", "revoke", name]).map(drop)
    }

    /// One pod on each node, which serves at three ports and tries those of the others.
    fn probes(&self) -> Result<(), Cannot> {
        let mut objects =
            format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n");
        for node in 1..=NODES {
            let dir = self.cluster.disk(node).join("var/soak");
            fs::create_dir_all(&dir)?;
            fs::write(dir.join("targets"), "")?;
            objects += &probe(node);
        }
        // Everybody may use the open port, nobody the closed one; the gate has a policy of its own.
        objects += &format!(
            "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: open, namespace: {NAMESPACE}}}\n\
             spec: {{podSelector: {{matchLabels: {{app: probe}}}}, ingress: [{{ports: [{{port: {OPEN}}}]}}]}}\n"
        );
        objects += "---\napiVersion: fairlead.dev/v1alpha1\nkind: AdmissionRule\nmetadata: {name: no-privileged}\n\
                    spec: {action: deny, mode: protect, criteria: [{name: runAsPrivileged, op: \"=\", value: \"true\"}]}\n";
        self.cluster.apply(&objects);
        until("pods that probe", || {
            let pods = self.cluster.pods(NAMESPACE, "app=probe")?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            if ready == NODES as usize { Ok(()) } else { Err(format!("{ready} are ready")) }
        })?;
        // What is forbidden is judged from the moment at which it must hold.
        until("policies to be in force", || {
            let answer =
                self.ask(1, ("GET", "/api/v1/policies/status"), None, Duration::from_secs(5));
            let status = answer.ok().ok_or_else(|| answer.told())?;
            let nodes = status["nodes"].as_array().ok_or("no nodes")?;
            let applied = nodes.iter().filter(|node| node["state"] == "applied").count();
            let known = status["policies"].as_array().is_some_and(|all| !all.is_empty());
            if applied == NODES as usize && known { Ok(()) } else { Err(status.to_string()) }
        })
    }

    /// The addresses of the probing pods, by node.
    pub(super) fn probing(&self) -> Result<Vec<(u32, IpAddr)>, String> {
        let pods = self.cluster.pods(NAMESPACE, "app=probe")?;
        let ready = pods.iter().filter(|pod| is_ready(pod));
        let at =
            |pod: &Value| Some((node_of(pod)?, pod["status"]["podIP"].as_str()?.parse().ok()?));
        Ok(ready.filter_map(at).collect())
    }

    /// The addresses of the probing pods, for the probing pods.
    pub(super) fn tell_targets(&self) -> Result<(), String> {
        let lines: String =
            self.probing()?.iter().map(|(node, address)| format!("{node} {address}\n")).collect();
        self.write_targets(&lines).map_err(|error| error.to_string())
    }

    /// Leaves the probing pods with nobody to try.
    pub(super) fn stop_probing(&self) {
        let _ = self.write_targets("");
    }

    fn write_targets(&self, lines: &str) -> std::io::Result<()> {
        for node in 1..=NODES {
            let file = self.cluster.disk(node).join("var/soak/targets");
            if fs::read_to_string(&file).is_ok_and(|now| now == lines) {
                continue;
            }
            let new = file.with_extension("new");
            fs::write(&new, lines).and_then(|()| fs::rename(&new, &file))?;
        }
        Ok(())
    }

    /// Where a node's pod writes down what it tried.
    pub(super) fn probe_log(&self, node: u32) -> PathBuf {
        self.cluster.disk(node).join("var/soak/log")
    }

    /// Copies the logs of everything of Fairlead's, of containers that are gone as well, as far as nodes have
    /// them.
    pub(super) fn keep_logs(&self, dir: &Path) -> Result<(), Cannot> {
        for node in 1..=NODES {
            let to = dir.join(self.cluster.node_name(node));
            fs::create_dir_all(&to)?;
            let logs = self.cluster.disk(node).join("var/log/pods");
            for pod in fs::read_dir(logs)?.filter_map(Result::ok) {
                if pod.file_name().to_string_lossy().starts_with("fairlead_") {
                    let mut copy = Command::new("cp");
                    copy.args(["--recursive", "--dereference"]).arg(pod.path()).arg(&to);
                    run(&mut copy, "logs cannot be kept")?;
                }
            }
        }
        Ok(())
    }

    /// Where controllers are, and routes to pods for who is outside.
    pub(super) fn look_for_controllers(&self) {
        if let Ok(blocks) = self.cluster.get("/apis/fairlead.dev/v1alpha1/addressblocks") {
            for block in blocks["items"].as_array().into_iter().flatten() {
                let text =
                    |path: &str| block.pointer(path).and_then(Value::as_str).unwrap_or_default();
                let (net, via) = (text("/spec/ipv4"), text("/spec/nodeAddresses/0"));
                let mut route = self.cluster.outside("ip");
                let _ = route
                    .args(["route", "replace", net, "via", via])
                    .stderr(Stdio::null())
                    .status();
            }
        }
        let Ok(pods) = self.cluster.pods("fairlead", "app.kubernetes.io/name=fairlead-controller")
        else {
            return;
        };
        let found = pods
            .iter()
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .filter_map(|pod| {
                let address = pod["status"]["podIP"].as_str()?.parse().ok()?;
                let pod_name = pod["metadata"]["name"].as_str()?.to_owned();
                Some((node_of(pod)?, Controller { pod: pod_name, address }))
            });
        let found: BTreeMap<_, _> = found.collect();
        if !found.is_empty() {
            *self.controllers.lock() = found;
        }
    }

    pub(super) fn controllers(&self) -> BTreeMap<u32, Controller> {
        self.controllers.lock().clone()
    }

    /// A controller's API, as the user.
    pub(super) fn ask(
        &self,
        node: u32,
        what: (&str, &str),
        content: Option<(&str, String)>,
        within: Duration,
    ) -> super::client::Answer {
        let token = self.token.lock().clone();
        self.ask_with(&token, node, what, content, within)
    }

    pub(super) fn ask_with(
        &self,
        token: &str,
        node: u32,
        what: (&str, &str),
        content: Option<(&str, String)>,
        within: Duration,
    ) -> super::client::Answer {
        match self.target(node, token, "") {
            Ok(target) => self.outside.ask(&target, what, content, within),
            Err(why) => super::client::Answer::Failed(why),
        }
    }

    /// The API of a node's controller, below `path`.
    fn target(&self, node: u32, token: &str, path: &str) -> Result<Target, String> {
        let controller = self.controllers.lock().get(&node).cloned();
        let controller = controller.ok_or("no controller is known on that node")?;
        Ok(Target {
            url: format!("https://{}:7680{path}", controller.address),
            authority: Some(self.authority.clone()),
            server_name: Some("fairlead.fairlead.svc"),
            token: token.to_owned(),
        })
    }

    /// The lines of a stream of events, of a node's controller.
    pub(super) fn lines(&self, node: u32, path: &str) -> Result<Receiver<String>, String> {
        let token = self.token.lock().clone();
        self.outside.lines(&self.target(node, &token, "")?, path)
    }

    /// A shell in a pod, through a node's controller as kubectl goes: what is typed, and what it says.
    pub(super) fn shell(
        &self,
        node: u32,
        pod: &str,
    ) -> Result<(Sender<String>, Receiver<String>), String> {
        let token = self.token.lock().clone();
        let path = format!("/api/v1/clusters/{}/proxy", self.name);
        self.outside.shell(&self.target(node, &token, &path)?, NAMESPACE, pod)
    }

    /// The admin port of a controller or, at a node's own address, of an agent.
    pub(super) fn admin(&self, address: &str, path: &str) -> super::client::Answer {
        let target = Target {
            url: format!("https://{address}:7682"),
            authority: None,
            server_name: None,
            token: self.metrics_token.clone(),
        };
        self.outside.ask(&target, ("GET", path), None, Duration::from_secs(4))
    }

    /// The API server itself, as its administrator.
    pub(super) fn kube(
        &self,
        what: (&str, &str),
        content: Option<(&str, String)>,
        within: Duration,
    ) -> super::client::Answer {
        self.here.ask(&self.api, what, content, within)
    }
}

pub(super) fn api(kubeconfig: &str) -> Result<Target, Cannot> {
    let config: Value = serde_json::from_str(kubeconfig)?;
    let text = |path: &str| config.pointer(path).and_then(Value::as_str).map(str::to_owned);
    Ok(Target {
        url: text("/clusters/0/cluster/server").ok_or("a kubeconfig without a server")?,
        authority: text("/clusters/0/cluster/certificate-authority-data"),
        server_name: None,
        token: text("/users/1/user/token").ok_or("a kubeconfig without a token")?,
    })
}

pub(super) fn node_of(pod: &Value) -> Option<u32> {
    pod["spec"]["nodeName"].as_str()?.strip_prefix("node-")?.parse().ok()
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|one| one["type"] == "Ready" && one["status"] == "True");
    ready.next().is_some() && pod["metadata"]["deletionTimestamp"].is_null()
}

/// It writes a line for each try, to a file of its node: neither the API server nor the runtime is in the way.
fn probe(node: u32) -> String {
    format!(
        r#"---
apiVersion: v1
kind: Pod
metadata: {{ name: probe-{node}, namespace: {NAMESPACE}, labels: {{ app: probe, node: "{node}" }} }}
spec:
  nodeName: node-{node}
  terminationGracePeriodSeconds: 0
  restartPolicy: Always
  tolerations: [{{ operator: Exists }}]
  volumes: [{{ name: soak, hostPath: {{ path: /var/soak }} }}]
  containers:
  - name: probe
    image: local/busybox:1
    imagePullPolicy: Never
    volumeMounts: [{{ name: soak, mountPath: /soak }}]
    command:
    - sh
    - -c
    - |
      mkdir -p /www; echo {node} >/www/name
      for port in {OPEN} {CLOSED} {GATE}; do httpd -p $port -h /www; done
      try() {{
        read began _ </proc/uptime
        if timeout 3 wget -qO /dev/null http://$2:$3/name 2>/dev/null; then is=ok; else is=no; fi
        read ended _ </proc/uptime
        echo "$began $ended {node} $1 $3 $is" >>/soak/log
      }}
      while :; do
        while read to address; do
          [ "$to" != {node} ] || continue
          for port in {OPEN} {CLOSED} {GATE}; do try $to $address $port & done
        done </soak/targets
        wait
        sleep 1
      done
    # Without a share of its own it would be the first to wait for a processor.
    resources: {{ requests: {{ cpu: 100m }} }}
    readinessProbe: {{ tcpSocket: {{ port: {OPEN} }}, periodSeconds: 5, timeoutSeconds: 5 }}
"#
    )
}
