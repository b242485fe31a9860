//! Policies beside other CNI plugins, whose own executables wire the pods: those of ptp and bridge are
//! judged, those of macvlan and of a bridge that netfilter does not see are named.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ground;

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ground::{Ground, Host, NODE, PATIENCE, Probe, Servers, try_all};
use kernel::netns::Namespace;
use node::enforcement::coverage::{self, Bypass};
use node::enforcement::{self, Enforcement, EnforcerSettings, PodNetwork, Settings as Enforced};
use policy::cluster::Key;
use policy::compile::{Change, Compiler};
use policy::program::{Delta, Protocol};
use policy::spec::{
    AcceptRule, NamespaceSelection, NetworkPolicy, Peer, PodSelection, PortMatch, Settings,
};
use serde_json::{Value, json};
use stallproof::watchdog::WatchdogLimits;
use stallproof::{Deadline, Tasks, Watchdog};
use testkit::need::CNI_PLUGINS;
use testkit::requires;

const QUIET: Duration = Duration::from_millis(300);

/// A node whose pods `a/web` and `a/db` a plugin has wired.
struct Beside {
    ground: Ground,
    compiler: Compiler,
    dir: tempfile::TempDir,
    generation: u64,
}

/// Has a plugin wire a pod, as a container runtime does; returns its addresses.
fn add(node: &Ground, pod: &Namespace, id: &str, config: &Value) -> Vec<IpAddr> {
    let plugin = Path::new(CNI_PLUGINS).join(config["type"].as_str().unwrap());
    let namespace = format!("/proc/{}/fd/{}", std::process::id(), pod.as_fd().as_raw_fd());
    let output = node.in_node(|| {
        let mut child = Command::new(plugin)
            .env("CNI_COMMAND", "ADD")
            .env("CNI_CONTAINERID", id)
            .env("CNI_NETNS", namespace)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", CNI_PLUGINS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{config}: {said}");
    let result: Value = serde_json::from_str(&said).unwrap();
    let addresses = result["ips"].as_array().unwrap().iter();
    let without_length = |ip: &Value| {
        let (address, _) = ip["address"].as_str().unwrap().split_once('/').unwrap();
        address.parse().unwrap()
    };
    addresses.map(without_length).collect()
}

impl Beside {
    /// Pods that the plugin of this configuration wires.
    fn new(config: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config.clone();
        config["cniVersion"] = json!("0.4.0");
        config["name"] = json!("beside");
        config["ipam"] = json!({
            "type": "host-local",
            "dataDir": dir.path(),
            "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        });
        let mut ground = Ground::new();
        let mut compiler = Compiler::new(Settings::default());
        compiler.apply(Change::Namespace("a".into(), Some(Default::default())));
        for app in ["web", "db"] {
            let namespace = Namespace::create().unwrap();
            let addresses = add(&ground, &namespace, app, &config);
            let [IpAddr::V4(v4), IpAddr::V6(v6)] = addresses[..] else { panic!("{addresses:?}") };
            let labels = [("app".to_owned(), app.to_owned())].into_iter().collect();
            let key = Key::new("a", app);
            ground.hosts.push(Host { namespace, v4, v6, key: key.clone(), labels, is_pod: true });
            compiler.apply(Change::Pod(key, Some(ground.hosts.last().unwrap().pod(&[]))));
        }
        Self { ground, compiler, dir, generation: 0 }
    }

    /// An agent beside another plugin.
    fn start(&self, tasks: &Tasks) -> Enforcement {
        let settings = Enforced {
            enforcer: EnforcerSettings::default(),
            network: PodNetwork::Foreign,
            file: self.dir.path().join("program"),
            pods: Vec::new(),
        };
        let watchdog = Watchdog::start(WatchdogLimits::default(), None);
        let runtime = tokio::runtime::Handle::current();
        self.ground.in_node(|| {
            let _inside = runtime.enter();
            enforcement::start(settings, &watchdog, tasks).unwrap()
        })
    }

    /// Admits pods with these labels to `a/db` by TCP port 80.
    async fn admit(
        &mut self,
        enforcement: &Enforcement,
        labels: &str,
    ) -> Result<u64, enforcement::CommandError> {
        let peers = vec![Peer::Pods(PodSelection {
            namespaces: NamespaceSelection::Named("a".into()),
            pods: labels.parse().unwrap(),
        })];
        let ports = vec![PortMatch::Numbers("tcp/80".parse().unwrap())];
        let key = Key::new("a", "db");
        let policy = NetworkPolicy {
            key: key.clone(),
            pods: "app=db".parse().unwrap(),
            ingress: Some(vec![AcceptRule { peers, ports }]),
            egress: None,
        };
        self.compiler.apply(Change::NetworkPolicy(key, Some(Arc::new(policy))));
        self.generation += 1;
        let program = self.compiler.program(NODE, self.generation);
        enforcement.apply(Delta::whole(&program), Deadline::after(PATIENCE)).await
    }

    /// Whether `a/web` reaches `a/db` by TCP port 80, with both families.
    fn reaches(&self, passes: bool) -> bool {
        let to = self.ground.host("a/db");
        let probes = [false, true].map(|v6| Probe {
            from: 0,
            source: self.ground.hosts[0].address(v6),
            to: to.address(v6),
            protocol: Protocol::TCP,
            port: 80,
            passes,
        });
        let passed = try_all(&self.ground, &probes, QUIET);
        assert_eq!(passed[0], passed[1], "by one family only");
        passed[0]
    }

    fn uncovered(&self) -> Vec<Bypass> {
        let found = self.ground.in_node(|| {
            let pods = self.ground.pods();
            coverage::of_pods(pods.flat_map(|pod| pod.addresses().map(|it| (it, "a/pod"))))
        });
        found.unwrap().into_iter().map(|it| it.bypass).collect()
    }

    fn bridges_are_seen(&self, seen: bool) {
        self.ground.in_node(|| {
            for sysctl in ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables"] {
                let file = Path::new("/proc/sys/net/bridge").join(sysctl);
                std::fs::write(file, if seen { "1" } else { "0" }).unwrap();
            }
        });
    }
}

/// Waits until the status says so.
fn wait_for(enforcement: &Enforcement, is_so: impl Fn(&enforcement::Status) -> bool) {
    let began = Instant::now();
    while !enforcement.status().read(&is_so) {
        assert!(began.elapsed() < PATIENCE, "{:?}", enforcement.status().load());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Denied, allowed, and a connection that was begun when it was allowed.
async fn is_judged(beside: &mut Beside, enforcement: &Enforcement) {
    beside.admit(enforcement, "app=nobody").await.unwrap();
    let servers = Servers::start(&beside.ground, &[80], &[]);
    assert!(!beside.reaches(false), "what is denied passed");
    assert!(servers.take().is_empty(), "what is denied arrived");
    beside.admit(enforcement, "app=web").await.unwrap();
    assert!(beside.reaches(true), "what is allowed did not pass");
    drop(servers);

    let (web, db) = (beside.ground.host("a/web"), beside.ground.host("a/db"));
    let to = SocketAddr::new(db.address(false), 80);
    let listener = db.namespace.run_in(|| TcpListener::bind(to)).unwrap().unwrap();
    let connect = || TcpStream::connect_timeout(&to, PATIENCE);
    let _client = web.namespace.run_in(connect).unwrap().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    beside.admit(enforcement, "app=nobody").await.unwrap();
    let began = Instant::now();
    while server.write_all(b"late").is_ok() {
        assert!(began.elapsed() < PATIENCE, "a revoked connection goes on");
        thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_the_ptp_plugin_are_judged() {
    requires!(netns, cni_plugins);
    let mut beside = Beside::new(&json!({"type": "ptp"}));
    let tasks = Tasks::new("test");
    let enforcement = beside.start(&tasks);
    is_judged(&mut beside, &enforcement).await;
    assert_eq!(beside.uncovered(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_on_a_bridge_are_judged_where_netfilter_sees_bridges_and_named_where_not() {
    requires!(netns, cni_plugins);
    let config = json!({"type": "bridge", "bridge": "cni0", "isGateway": true});
    let mut beside = Beside::new(&config);
    if !Path::new("/proc/sys/net/bridge").exists() {
        testkit::need::skip("beside", "this kernel has no br_netfilter");
        return;
    }
    let tasks = Tasks::new("test");
    let enforcement = beside.start(&tasks);
    beside.bridges_are_seen(true);
    assert_eq!(beside.uncovered(), []);
    is_judged(&mut beside, &enforcement).await;
    wait_for(&enforcement, |status| status.uncovered.is_empty());

    beside.bridges_are_seen(false);
    let by = |sysctl| Bypass::Bridge { link: "cni0".to_owned(), sysctl };
    let both = ["net.bridge.bridge-nf-call-ip6tables", "net.bridge.bridge-nf-call-iptables"];
    assert_eq!(beside.uncovered(), both.map(by));
    // What the status says is true: they talk, though nobody is admitted.
    let _servers = Servers::start(&beside.ground, &[80], &[]);
    assert!(beside.reaches(true), "the bridge was to forward this by itself");
    beside.admit(&enforcement, "app=no-one").await.unwrap();
    wait_for(&enforcement, |status| status.uncovered.len() == 2);
    let said = enforcement.status().read(|status| status.uncovered.clone());
    assert!(said[1].starts_with("a/db and another pod are not judged: "), "{said:?}");
    assert!(said[1].contains("set net.bridge.bridge-nf-call-iptables=1"), "{said:?}");

    // Mended, it is judged and no longer named.
    beside.bridges_are_seen(true);
    assert!(!beside.reaches(false));
    wait_for(&enforcement, |status| status.uncovered.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_on_macvlan_links_are_named() {
    requires!(netns, cni_plugins);
    let wire = || {
        let up = "ip link add card type veth peer other; ip link set card up; ip link set other up; \
                  ip route add default dev card; ip -6 route add default dev card";
        let done = Command::new("sh").args(["-c", up]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let ground = Ground::new();
    ground.in_node(wire);
    let dir = tempfile::tempdir().unwrap();
    let config = json!({
        "cniVersion": "0.4.0", "name": "beside", "type": "macvlan", "master": "card",
        "ipam": {"type": "host-local", "dataDir": dir.path(), "subnet": "10.1.0.0/24"},
    });
    let pod = Namespace::create().unwrap();
    let addresses = add(&ground, &pod, "web", &config);
    let found = ground.in_node(|| coverage::of_pods(addresses.iter().map(|it| (*it, "a/web"))));
    let [found] = &found.unwrap()[..] else { panic!("nothing is named") };
    assert_eq!(found.bypass, Bypass::Link { kind: None, link: "card".to_owned() });
    assert!(found.to_string().starts_with("a/web is not judged: the way to its pods is"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_a_datapath_by_ebpf_programs_are_refused_until_it_is_gone() {
    requires!(netns, cni_plugins);
    let mut beside = Beside::new(&json!({"type": "ptp"}));
    let ip = |words: &str| {
        beside.ground.in_node(|| {
            let done = Command::new("ip").args(words.split(' ')).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        });
    };
    ip("link add cilium_host type veth peer cilium_net");
    let tasks = Tasks::new("test");
    let enforcement = beside.start(&tasks);
    let refused = beside.admit(&enforcement, "app=nobody").await.unwrap_err().to_string();
    assert!(refused.contains("Cilium forwards packets by eBPF"), "{refused}");
    let _servers = Servers::start(&beside.ground, &[80], &[]);
    assert!(beside.reaches(true), "what is refused is not half enforced");
    let delete = || Command::new("ip").args(["link", "delete", "cilium_host"]).status().unwrap();
    assert!(beside.ground.in_node(delete).success());
    beside.admit(&enforcement, "app=nobody").await.unwrap();
    assert!(!beside.reaches(false));
}
