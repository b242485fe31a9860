//! A cluster without IPv4: two nodes on two networks with a router between that knows no pod, a real API
//! server, the agent's own process on each node, pods that the plugin's executable adds, an egress pod, and the
//! world behind the router. IPv4 is only on loopbacks, where agents reach the API server.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace as KubeNamespace, Node, Pod};
use kernel::netns::Namespace;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use objects::kinds::{AddressPool, AddressPoolSpec, Egress, EgressSpec};
use serde_json::{Value, json};
use stallproof::Deadline;
use testkit::{Host, KubeServer, Sandbox, requires};

const PATIENCE: Duration = Duration::from_secs(90);
const WORLD: &str = "2001:db8:f::9";
const ECHO: u16 = 7;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn ip(host: &Host, args: &[&str]) -> String {
    run(host.command("ip").args(args))
}

#[track_caller]
fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(why) => assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}: {why}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Carries connections to the API server of this machine's loopback, and nothing else.
fn relay(host: &Host, to: SocketAddr) {
    let namespace = Namespace::open(host.netns()).unwrap();
    let listener = namespace.run_in(|| TcpListener::bind(to)).unwrap().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let Ok(other) = TcpStream::connect(to) else { continue };
            for (mut from, mut to) in
                [(stream.try_clone().unwrap(), other.try_clone().unwrap()), (other, stream)]
            {
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
}

/// Says to everybody who connects from where, in a line, and then what they say.
fn serve(host: &Host) {
    let namespace = Namespace::open(host.netns()).unwrap();
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, ECHO));
    let listener = namespace.run_in(|| TcpListener::bind(any)).unwrap().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut line = [0; 40];
                let said = stream.peer_addr()?.ip().to_string();
                line[..said.len()].copy_from_slice(said.as_bytes());
                stream.write_all(&line)?;
                std::io::copy(&mut stream.try_clone()?, &mut stream)
            });
        }
    });
}

/// Connects, sends more than fits into one packet and reads it back; says by which address it was seen.
fn seen(from: &Host, to: IpAddr) -> Result<IpAddr, String> {
    let namespace = Namespace::open(from.netns()).unwrap();
    let dial = || TcpStream::connect_timeout(&SocketAddr::new(to, ECHO), Duration::from_secs(3));
    let mut stream = namespace.run_in(dial).unwrap().map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut line = [0; 40];
    stream.read_exact(&mut line).map_err(|error| error.to_string())?;
    let sent = vec![7; 1 << 20];
    let mut writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || writer.write_all(&sent));
    let mut back = vec![0; 1 << 20];
    stream.read_exact(&mut back).map_err(|error| format!("it stalls: {error}"))?;
    writing.join().unwrap().map_err(|error| error.to_string())?;
    assert!(back.iter().all(|byte| *byte == 7));
    Ok(String::from_utf8_lossy(&line).trim_end_matches('\0').parse().unwrap())
}

fn fairlead(host: &Host) -> Command {
    let mut command = host.command(env!("CARGO_BIN_EXE_fairlead"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
        command.env_remove(name);
    }
    command.env("FAIRLEAD_CONFIG", "/dev/null");
    command
}

fn plugin() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_fairlead")).with_file_name("fairlead-cni")
}

/// A process of ours; killed when dropped.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn start(mut command: Command, log: PathBuf) -> Self {
        let file = std::fs::File::create(&log).unwrap();
        let child = command.stdout(Stdio::null()).stderr(file).spawn().unwrap();
        Self { child, log }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!("--- {}: {said}", self.log.display());
        }
    }
}

struct Machine {
    name: &'static str,
    host: Host,
    address: IpAddr,
    dir: tempfile::TempDir,
    agent: Option<Running>,
}

impl Machine {
    /// A node on a network of its own behind the router.
    async fn new(stage: &Stage, name: &'static str, net: &str) -> Self {
        let host = stage.sandbox.host(name);
        let (own, router) = (format!("2001:db8:{net}::1"), format!("2001:db8:{net}::fe"));
        stage.sandbox.link((&host, &format!("{own}/64")), (&stage.router, &format!("{router}/64")));
        ip(&host, &["-6", "route", "add", "default", "via", &router]);
        let nodes = Api::<Node>::all(stage.client.clone());
        let node = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let reached = json!([{ "type": "InternalIP", "address": own }]);
        let status = Patch::Merge(json!({ "status": { "addresses": reached } }));
        nodes.patch_status(name, &PatchParams::default(), &status).await.unwrap();
        relay(&host, stage.server.address());
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Self { name, host, address: own.parse().unwrap(), dir, agent: None };
        let mut command = fairlead(&machine.host);
        command
            .env("KUBECONFIG", stage.server.kubeconfig_path())
            .args(["agent", "--store=kubernetes", "--net-egress=on", "--admin-listen=127.0.0.1:0"])
            .arg(format!("--net-node={name}"))
            .arg(format!("--net-socket={}", machine.socket().display()))
            .arg(format!("--data={}", machine.dir.path().join("data").display()));
        machine.agent = Some(Running::start(command, machine.dir.path().join("log")));
        machine
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("cni.sock")
    }

    /// Runs the plugin as a runtime does.
    fn plugin(
        &self,
        verb: &str,
        pod: &Host,
        (namespace, name): (&str, &str),
    ) -> Result<Value, String> {
        let configuration = json!({
            "cniVersion": "1.0.0", "name": "pods", "type": "fairlead-cni", "socket": self.socket(),
        });
        let mut command = Command::new(plugin());
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_INFRA_CONTAINER_ID={name}"
        );
        command.env("CNI_COMMAND", verb).env("CNI_CONTAINERID", name).env("CNI_IFNAME", "eth0");
        command.env("CNI_NETNS", pod.netns()).env("CNI_PATH", "/").env("CNI_ARGS", args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(configuration.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(serde_json::from_str(&said).unwrap_or_default()),
            false => Err(said),
        }
    }

    /// Has a pod connected; returns it and its one address.
    fn pod(&self, stage: &Stage, namespace: &str, name: &str) -> (Host, IpAddr) {
        let host = stage.sandbox.host(name);
        let result = eventually("an ADD", || self.plugin("ADD", &host, (namespace, name)));
        let ips = result["ips"].as_array().unwrap();
        assert_eq!(ips.len(), 1, "{result}");
        let address = ips[0]["address"].as_str().unwrap().strip_suffix("/128").unwrap();
        serve(&host);
        (host, address.parse().unwrap())
    }

    fn says(&self, verb: &[&str]) -> (i32, Value) {
        let mut command = fairlead(&self.host);
        command.arg("net").args(verb).args(["-o", "json"]);
        let output =
            command.arg(format!("--net-socket={}", self.socket().display())).output().unwrap();
        let said = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code().unwrap(), said)
    }
}

struct Stage {
    sandbox: Sandbox,
    router: Host,
    server: KubeServer,
    client: Client,
}

impl Stage {
    async fn new() -> Self {
        let server = KubeServer::start().await;
        let client = server.client().await;
        objects::install(client.clone(), Deadline::after(PATIENCE)).await.unwrap();
        let sandbox = Sandbox::new();
        let router = sandbox.host("router");
        run(router.command("sysctl").args(["-qw", "net.ipv6.conf.all.forwarding=1"]));
        let stage = Self { sandbox, router, server, client };
        stage.pool("default", json!({ "ipv6": "fd00:64::/112" }), Some(json!({}))).await;
        // The world knows its addresses.
        stage.pool("routed", json!({ "ipv6": "fd00:66::/120" }), None).await;
        let internet = json!({ "metadata": { "name": "internet", "annotations": { "fairlead.dev/pool": "routed" } } });
        let internet: KubeNamespace = serde_json::from_value(internet).unwrap();
        Api::all(stage.client.clone()).create(&PostParams::default(), &internet).await.unwrap();
        stage
    }

    async fn pool(&self, name: &str, subnet: Value, masquerade: Option<Value>) {
        let mut spec = json!({ "blockSizeBits": 4, "subnets": [subnet], "overlay": "auto" });
        spec["masquerade"] = masquerade.into();
        let spec: AddressPoolSpec = serde_json::from_value(spec).unwrap();
        let pool = AddressPool::new(name, spec);
        Api::all(self.client.clone()).create(&PostParams::default(), &pool).await.unwrap();
    }

    /// The world behind the router, which knows nodes and no pods.
    fn world(&self) -> Host {
        let world = self.sandbox.host("world");
        self.sandbox.link((&world, &format!("{WORLD}/64")), (&self.router, "2001:db8:f::fe/64"));
        ip(&world, &["-6", "route", "add", "default", "via", "2001:db8:f::fe"]);
        serve(&world);
        world
    }

    async fn create_pod(&self, namespace: &str, name: &str, node: &str) -> Api<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = json!({
            "metadata": { "name": name },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "none" }] },
        });
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        pods
    }
}

/// No IPv4 beyond loopbacks, but for the one that nobody uses on a tunnel's device.
fn has_no_ipv4(host: &Host) {
    let all = ip(host, &["-4", "-o", "address"]);
    let other = all.lines().find(|line| !line.contains(" 127.0.0.1/8") && !line.contains(": fl-"));
    assert_eq!(other, None, "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_pods_of_a_cluster_without_ipv4_reach_each_other_the_world_and_leave_by_an_egress() {
    requires!(kube, netns, nft);
    if !plugin().is_file() {
        let why = "target has no fairlead-cni: build the workspace first";
        return testkit::need::skip(
            concat!(module_path!(), "::kube_pods_of_a_cluster_without_ipv4"),
            why,
        );
    }
    let stage = Stage::new().await;
    let world = stage.world();
    let there: IpAddr = WORLD.parse().unwrap();
    let a = Machine::new(&stage, "n1", "a").await;
    let b = Machine::new(&stage, "n2", "b").await;
    stage.create_pod("default", "p", a.name).await;
    let (p, at_p) = a.pod(&stage, "default", "p");
    let (beside, at_beside) = a.pod(&stage, "default", "p2");
    let (q, at_q) = b.pod(&stage, "default", "q");

    // On one node, and through the tunnel: pods see each other's own addresses.
    assert_eq!(eventually("pods of one node", || seen(&p, at_beside)), at_p);
    assert_eq!(eventually("pods of two nodes", || seen(&p, at_q)), at_p);
    assert_eq!(eventually("pods of two nodes", || seen(&q, at_beside)), at_q);
    assert_eq!(eventually("a node and its own pod", || seen(&a.host, at_p).map(|_| ())), ());
    eventually("a node and another's pod", || seen(&a.host, at_q));
    let devices = ip(&a.host, &["-d", "link", "show", "fl-vxlan"]);
    assert!(devices.contains("mtu 1430"), "{devices}");
    assert!(ip(&p, &["link", "show", "eth0"]).contains("mtu 1430"));
    for host in [&a.host, &b.host, &p, &q, &beside] {
        has_no_ipv4(host);
    }
    let ways =
        eventually("the way to be found well", || match a.says(&["check", "--towards", "n2"]) {
            (0, ways) => Ok(ways),
            (_, ways) => Err(ways.to_string()),
        });
    let way = (&ways[0]["path"], &ways[0]["at"], &ways[0]["carries"]);
    assert_eq!(way, (&json!("vxlan"), &json!("2001:db8:b::1"), &json!(1430)), "{ways}");
    eventually("nothing to be wrong", || match a.says(&["check"]) {
        (0, _) => Ok(()),
        (_, faults) => Err(faults.to_string()),
    });

    // The world knows no pod: it sees the node.
    assert_eq!(eventually("the world", || seen(&p, there)), a.address);
    assert_eq!(eventually("the world", || seen(&q, there)), b.address);

    // An egress pod on the other node, whose address the world knows.
    stage.create_pod("internet", "nat-1", b.name).await;
    let (nat, at_nat) = b.pod(&stage, "internet", "nat-1");
    assert!(at_nat.to_string().starts_with("fd00:66::"), "{at_nat}");
    let to_nat = format!("{at_nat}/128");
    ip(&stage.router, &["-6", "route", "add", &to_nat, "via", &b.address.to_string()]);
    let mut command = fairlead(&nat);
    command
        .args(["egress", "--admin-listen", "127.0.0.1:0", "--data"])
        .arg(b.dir.path().join("nat"));
    let _gateway = Running::start(command, b.dir.path().join("nat.log"));
    let egresses: Api<Egress> = Api::namespaced(stage.client.clone(), "internet");
    let spec: EgressSpec = serde_json::from_value(json!({ "destinations": ["::/0"] })).unwrap();
    egresses.create(&PostParams::default(), &Egress::new("nat", spec)).await.unwrap();
    // As the leading controller says it; docs and another test have that.
    let replica =
        json!({ "pod": "nat-1", "node": b.name, "addresses": [at_nat], "draining": false });
    let status = json!({ "status": {
        "replicas": 1, "readyReplicas": 1, "selector": "fairlead.dev/egress=nat", "clients": 0, "endpoints": [replica],
        "conditions": [],
    } });
    egresses.patch_status("nat", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), "default");
    let choose =
        json!({ "metadata": { "annotations": { "egress.fairlead.dev/internet": "nat" } } });
    pods.patch("p", &PatchParams::default(), &Patch::Merge(choose)).await.unwrap();
    eventually("the client to leave by the egress", || match seen(&p, there)? {
        from if from == at_nat => Ok(()),
        other => Err(other.to_string()),
    });
    // Who chose nothing goes as ever, and so do pods among each other.
    assert_eq!(eventually("the world", || seen(&q, there)), b.address);
    assert_eq!(eventually("pods of two nodes", || seen(&p, at_q)), at_p);

    a.plugin("DEL", &p, ("default", "p")).unwrap();
    let (_, addresses) = a.says(&["addresses"]);
    assert!(!addresses.to_string().contains(&format!("\"{at_p}\"")), "{addresses}");
    drop(world);
}
