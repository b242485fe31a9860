//! Clusters of a mesh with our own data plane, of real processes: a controller, an agent on each node, and a
//! router between them that counts what is not encrypted.

#![allow(dead_code, clippy::unwrap_used, reason = "tests, each of which uses a part")]

#[path = "../controllers/mod.rs"]
pub(crate) mod controllers;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use controllers::{Controller, create};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace as KubeNamespace, Node, Secret};
use kernel::netns::Namespace;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use objects::kinds::{ClusterMesh, WireguardNode, WireguardNodeStatus};
use serde_json::{Value, json};
use stallproof::Deadline;
use testkit::{Host, KubeServer, Sandbox};

pub(crate) const NAMESPACE: &str = "fairlead";
pub(crate) const PORT: u16 = 51821;
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Carries connections to a port of a host's loopback to the same port of this machine's: the API server
/// of the host's cluster, and nothing else.
pub(crate) fn relay(namespace: &Namespace, to: SocketAddr) {
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

/// A cluster: its API server.
pub(crate) struct Cluster {
    pub(crate) name: &'static str,
    pub(crate) number: usize,
    pub(crate) server: KubeServer,
    pub(crate) client: Client,
}

impl Cluster {
    pub(crate) async fn start(name: &'static str, number: usize) -> Self {
        let server = KubeServer::start().await;
        let client = server.client().await;
        objects::install(client.clone(), Deadline::after(PATIENCE)).await.unwrap();
        Self { name, number, server, client }
    }

    /// The networks of its pods and of its services.
    pub(crate) fn networks(&self) -> [String; 2] {
        [format!("10.{}.0.0/16", 10 + self.number), format!("10.{}.0.0/16", 100 + self.number)]
    }
}

/// A node: a host behind a router, with a pod's address.
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) host: Host,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) pod: IpAddr,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) kubeconfig: std::path::PathBuf,
    pub(crate) agent: Option<Agent>,
}

/// A running `fairlead agent`, killed when dropped.
pub(crate) struct Agent(pub(crate) Child);

impl Agent {
    pub(crate) fn signal(&self, signal: &str) {
        run(Command::new("kill").args([signal, &self.0.id().to_string()]));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // One that is frozen is killed all the same.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine {
    /// The `i`th node of a cluster.
    pub(crate) async fn new(sandbox: &Sandbox, router: &Host, cluster: &Cluster, i: usize) -> Self {
        let name = format!("{}{i}", cluster.name);
        let host = sandbox.host(&name);
        let at = 16 * cluster.number + 4 * i;
        let (here, there) = (format!("192.0.2.{}", at + 1), format!("192.0.2.{}", at + 2));
        sandbox.link((&host, &format!("{here}/30")), (router, &format!("{there}/30")));
        // Whatever has no route of its own leaves by this one.
        run(host.command("ip").args(["route", "add", "default", "via", &there]));
        let (number, i) = (u8::try_from(10 + cluster.number).unwrap(), u8::try_from(i).unwrap());
        let pod = Ipv4Addr::new(10, number, i, 1);
        run(host.command("ip").args(["address", "add", &format!("{pod}/32"), "dev", "lo"]));
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {
                "fairlead.dev/wireguard-endpoint": format!("{here}:{PORT}"),
            }},
            "spec": {"podCIDR": format!("10.{number}.{i}.0/24"), "podCIDRs": [format!("10.{number}.{i}.0/24")]},
        }))
        .unwrap();
        Api::all(cluster.client.clone()).create(&PostParams::default(), &node).await.unwrap();
        let namespace = Arc::new(Namespace::open(host.netns()).unwrap());
        relay(&namespace, cluster.server.address());
        let kubeconfig = cluster.server.kubeconfig_path();
        let dir = tempfile::tempdir().unwrap();
        let pod = pod.into();
        Self { name, host, namespace, pod, dir, kubeconfig, agent: None }
    }

    pub(crate) fn start(&mut self) {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_fairlead"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
            command.env_remove(name);
        }
        let log = std::fs::File::options().append(true).create(true).open(self.log()).unwrap();
        command
            .env("FAIRLEAD_CONFIG", "/dev/null")
            .env("KUBECONFIG", &self.kubeconfig)
            .args(["agent", "--store=kubernetes", "--net-serve=off", "--mesh-wireguard=on"])
            .args(["--admin-listen=127.0.0.1:0", &format!("--mesh-interface={}", self.interface())])
            .arg(format!("--net-node={}", self.name))
            .arg(format!("--data={}", self.dir.path().join("data").display()))
            .stdout(Stdio::null())
            .stderr(log);
        self.agent = Some(Agent(command.spawn().unwrap()));
    }

    pub(crate) fn log(&self) -> std::path::PathBuf {
        self.dir.path().join("log")
    }

    /// Names of interfaces are also names of sockets, which all namespaces share.
    pub(crate) fn interface(&self) -> String {
        format!("w{}{}", self.name, std::process::id() % 100_000)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.agent.as_ref().unwrap().0.id()
    }

    /// Says back what is said to the pod, by TCP.
    pub(crate) fn echo(&self) -> SocketAddr {
        let pod = self.pod;
        let listener = self.namespace.run_in(|| TcpListener::bind((pod, 0))).unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    let _ = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream);
                });
            }
        });
        at
    }

    pub(crate) fn connect(&self, to: SocketAddr) -> Option<TcpStream> {
        let wait = Duration::from_secs(3);
        let stream =
            self.namespace.run_in(|| TcpStream::connect_timeout(&to, wait)).unwrap().ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Some(stream)
    }

    pub(crate) fn until_connected(&self, to: SocketAddr) -> TcpStream {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(stream) = self.connect(to) {
                return stream;
            }
            let log = || std::fs::read_to_string(self.log()).unwrap_or_default();
            assert!(Instant::now() < end, "{} does not reach {to}: {}", self.name, log());
            thread::sleep(Duration::from_millis(200));
        }
    }
}

pub(crate) fn round_trip(stream: &mut TcpStream, number: u64) {
    stream.write_all(&number.to_ne_bytes()).unwrap();
    let mut back = [0; 8];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(u64::from_ne_bytes(back), number);
}

/// A connection that is busy until this is stopped.
pub(crate) struct Load {
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) count: Arc<AtomicU64>,
    pub(crate) thread: JoinHandle<()>,
}

impl Load {
    pub(crate) fn start(mut stream: TcpStream) -> Self {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, counts) = (Arc::clone(&stop), Arc::clone(&count));
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                round_trip(&mut stream, counts.fetch_add(1, Ordering::Relaxed));
                thread::sleep(Duration::from_millis(5));
            }
        });
        Self { stop, count, thread }
    }

    pub(crate) fn goes_on(&self, what: &str) {
        let (from, end) = (self.count.load(Ordering::Relaxed), Instant::now() + PATIENCE);
        while self.count.load(Ordering::Relaxed) < from + 20 {
            assert!(Instant::now() < end && !self.thread.is_finished(), "{what}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the connection was lost");
    }
}

/// A router that counts what of pods comes to it: that is not encrypted.
pub(crate) fn watching_router(sandbox: &Sandbox) -> Host {
    let router = sandbox.host("r");
    run(router.command("sysctl").args(["-q", "-w", "net.ipv4.ip_forward=1"]));
    let rules = "add table ip clear; add chain ip clear seen { type filter hook prerouting priority -300; }; \
                 add rule ip clear seen ip saddr 10.0.0.0/8 counter; add rule ip clear seen ip daddr 10.0.0.0/8 counter";
    run(router.command("nft").arg(rules));
    router
}

pub(crate) fn clear_packets(router: &Host) -> u64 {
    let shown = run(router.command("nft").args(["-j", "list", "table", "ip", "clear"]));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let rules = shown["nftables"].as_array().unwrap().iter();
    let counters = rules.flat_map(|it| it["rule"]["expr"].as_array().cloned().unwrap_or_default());
    counters.filter_map(|it| it["counter"]["packets"].as_u64()).sum()
}

/// Has a controller plan a mesh of these clusters, from the first one's API server.
pub(crate) async fn planned(
    clusters: &[&Cluster],
    dir: &Path,
    address: &str,
    gateways: &[(&str, u32)],
) -> Controller {
    let client = clusters[0].client.clone();
    let home: KubeNamespace =
        serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &home).await.unwrap();
    for cluster in clusters {
        let kubeconfig = ByteString(cluster.server.access().kubeconfig().as_bytes().to_vec());
        let secret = Secret {
            metadata: ObjectMeta { name: Some(cluster.name.to_owned()), ..ObjectMeta::default() },
            data: Some(BTreeMap::from([("kubeconfig".to_owned(), kubeconfig)])),
            ..Secret::default()
        };
        let secrets = Api::namespaced(client.clone(), NAMESPACE);
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }
    let entry = |cluster: &&Cluster| {
        let mut entry = json!({"name": cluster.name, "kubeconfigSecretRef": {"name": cluster.name},
                               "allowedNetworks": cluster.networks(), "persistentKeepalive": 5});
        if let Some((_, count)) = gateways.iter().find(|(name, _)| *name == cluster.name) {
            entry["gateways"] = json!(count);
        }
        entry
    };
    let mesh = json!({
        "metadata": {"name": "m", "namespace": NAMESPACE},
        "spec": {"dataPlane": "wireguard", "externalNetworks": ["10.99.0.0/24"],
                 "clusters": clusters.iter().map(entry).collect::<Vec<_>>()},
    });
    create(&Api::<ClusterMesh>::namespaced(client, NAMESPACE), mesh).await;
    Controller::start(&clusters[0].server.kubeconfig_path(), dir, address, 0)
}

pub(crate) async fn status_of(client: &Client, node: &str) -> Option<WireguardNodeStatus> {
    Api::<WireguardNode>::all(client.clone()).get_opt(node).await.unwrap()?.status
}
