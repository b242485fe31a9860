//! The pod network of one cluster, encrypted between its nodes: agents with the objects of their cluster in
//! a store, pods behind nodes, and a switch that looks at every byte between nodes. The routes that net makes
//! in the main table are made here by hand: what is not encrypted takes them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use kernel::netns::Namespace;
use objects::kinds::{WireguardNode, WireguardNodeSpec};
use objects::{Expected, Id, Objects};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType};
use stallproof::{Deadline, Ledger, Snapshot, Tasks};
use testkit::{Host, Sandbox};
use wireguard::agent::{self, AgentConfig, ClusterEncryption};
use wireguard::{
    ClusterTunnels, Encryption, Implementation, KeyFile, NodeNetworks, PodNetwork, PrivateKey,
    TunnelConfig,
};

const PATIENCE: Duration = Duration::from_secs(90);
const PORT: u16 = 51821;
/// What nobody between nodes may read.
const MARKER: &[u8] = b"the-marker-that-nobody-may-read";
/// Every protocol, in network order.
const ALL_PROTOCOLS: u32 = 0x0300;
/// Set for a process that is an agent: its directory, which is named as its node.
const AGENT: &str = "FAIRLEAD_TEST_POD_NETWORK_AGENT";

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn ip(host: &Host, args: &str) {
    run(host.command("ip").args(args.split_whitespace()));
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Looks at every frame that passes the switch.
#[derive(Default)]
struct Capture {
    /// Frames with the marker in them.
    clear: AtomicU64,
    /// WireGuard's.
    encrypted: AtomicU64,
}

impl Capture {
    fn start(switch: &Host) -> Arc<Self> {
        let namespace = Namespace::open(switch.netns()).unwrap();
        let protocol = Protocol::from_raw(ALL_PROTOCOLS.try_into().unwrap());
        let open = || {
            let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
            rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(protocol))
        };
        let socket = namespace.run_in(open).unwrap().unwrap();
        let capture = Arc::new(Self::default());
        let seen = Arc::clone(&capture);
        thread::spawn(move || {
            let mut frame = vec![0; 1 << 16];
            while let Ok((length, _)) =
                rustix::net::recv(&socket, &mut frame[..], RecvFlags::empty())
            {
                let frame = &frame[..length];
                if frame.windows(MARKER.len()).any(|bytes| bytes == MARKER) {
                    seen.clear.fetch_add(1, Ordering::Relaxed);
                }
                // Ethernet, IPv4 without options, UDP.
                let port = frame.get(36..38).map(|port| u16::from_be_bytes([port[0], port[1]]));
                if frame.get(23) == Some(&17) && port == Some(PORT) {
                    seen.encrypted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        capture
    }

    fn clear(&self) -> u64 {
        self.clear.load(Ordering::Relaxed)
    }
}

/// Three nodes at a switch, each with a pod: node `i` is 192.0.2.i+1, its block 10.64.i.0/24.
struct Cluster {
    nodes: Vec<(Host, Place)>,
    pods: Vec<Place>,
    capture: Arc<Capture>,
    _sandbox: Sandbox,
}

/// Somebody with an address: a pod, or a node itself.
#[derive(Clone)]
struct Place {
    namespace: Arc<Namespace>,
    address: IpAddr,
}

const NAMES: [&str; 3] = ["n0", "n1", "n2"];

fn node_address(i: usize) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, i as u8 + 1).into()
}

fn block(i: usize) -> IpNet {
    format!("10.64.{i}.0/24").parse().unwrap()
}

impl Cluster {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let switch = sandbox.host("sw");
        ip(&switch, "link add br0 type bridge");
        ip(&switch, "link set br0 up");
        let (mut nodes, mut pods) = (Vec::new(), Vec::new());
        for (i, name) in NAMES.iter().enumerate() {
            let (host, pod) = (sandbox.host(name), sandbox.host(&format!("p{i}")));
            let nobody = format!("198.51.100.{i}/32");
            sandbox.link((&host, &format!("{}/24", node_address(i))), (&switch, &nobody));
            ip(&switch, &format!("link set {name} master br0"));
            sandbox.link((&pod, &format!("10.64.{i}.2/24")), (&host, &format!("10.64.{i}.1/24")));
            ip(&pod, &format!("route add default via 10.64.{i}.1"));
            run(host.command("sysctl").args(["-q", "-w", "net.ipv4.ip_forward=1"]));
            // As net has it: blocks by their nodes. Whatever else there is leaves by the cable.
            for other in (0..3).filter(|other| *other != i) {
                ip(&host, &format!("route add {} via {}", block(other), node_address(other)));
            }
            ip(&host, "route add default dev sw");
            let open = |host: &Host| Arc::new(Namespace::open(host.netns()).unwrap());
            let address = format!("10.64.{i}.2").parse().unwrap();
            pods.push(Place { namespace: open(&pod), address });
            let place = Place { namespace: open(&host), address: node_address(i) };
            nodes.push((host, place));
        }
        let capture = Capture::start(&switch);
        Self { nodes, pods, capture, _sandbox: sandbox }
    }
}

impl Place {
    fn udp(&self) -> UdpSocket {
        let any = (Ipv4Addr::UNSPECIFIED, 0);
        let socket = self.namespace.run_in(|| UdpSocket::bind(any)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        socket
    }

    /// Answers datagrams with the marker and the address that they came from.
    fn answers(&self) -> SocketAddr {
        let any = (Ipv4Addr::UNSPECIFIED, 0);
        let socket = self.namespace.run_in(|| UdpSocket::bind(any)).unwrap().unwrap();
        let at = SocketAddr::new(self.address, socket.local_addr().unwrap().port());
        thread::spawn(move || {
            while let Ok((_, from)) = socket.recv_from(&mut [0; 100]) {
                let said = [MARKER, from.ip().to_string().as_bytes()].concat();
                let _ = socket.send_to(&said, from);
            }
        });
        at
    }

    /// Says the marker, and returns the address that it was heard from, if it was.
    fn asks(&self, to: SocketAddr) -> Option<IpAddr> {
        let socket = self.udp();
        let _ = socket.send_to(MARKER, to);
        let mut said = [0; 100];
        let (length, _) = socket.recv_from(&mut said).ok()?;
        let from = said[..length].strip_prefix(MARKER).unwrap();
        Some(std::str::from_utf8(from).unwrap().parse().unwrap())
    }

    fn until_heard(&self, to: SocketAddr) -> IpAddr {
        eventually(&format!("{} reaches {to}", self.address), || self.asks(to))
    }
}

/// The pod network as node `i` knows it.
fn network(i: usize) -> PodNetwork {
    let other = |j: usize| {
        let node = NodeNetworks { networks: vec![block(j)], addresses: vec![node_address(j)] };
        (NAMES[j].to_owned(), node)
    };
    PodNetwork {
        addresses: vec![node_address(i)],
        own: [block(i)].into(),
        pools: ["10.64.0.0/16".parse().unwrap()].into(),
        nodes: (0..3).filter(|j| *j != i).map(other).collect(),
        complete: true,
    }
}

fn config(name: &str, dir: &Path, mode: Encryption, interface: &str) -> AgentConfig {
    let i = NAMES.iter().position(|it| *it == name).unwrap();
    AgentConfig {
        node: name.to_owned(),
        keys: dir.join("keys"),
        tunnel: TunnelConfig {
            implementation: Some(Implementation::Userspace),
            socket_directory: dir.to_owned(),
            probes: true,
            ..TunnelConfig::new(interface, PORT)
        },
        key_lifetime: None,
        announce: PATIENCE,
        preshared_keys: None,
        mesh: false,
        cluster: Some(ClusterEncryption {
            mode,
            network: Snapshot::new(Some(network(i))),
            tunnels: Snapshot::default(),
            guarded: Snapshot::default(),
        }),
    }
}

/// In a process that was started to be an agent: is one, until it is killed.
fn be_an_agent_if_asked() {
    let Some(dir) = std::env::var_os(AGENT) else { return };
    let dir = Path::new(&dir);
    let name = dir.file_name().unwrap().to_str().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let tasks = Tasks::new("agent");
        let objects = Objects::embedded(&dir.join("store"), &tasks).unwrap();
        let config = config(name, dir, Encryption::Required, &format!("fl{name}"));
        let namespace = Arc::new(Namespace::current().unwrap());
        agent::start(config, namespace, objects, &Ledger::default(), &tasks);
        std::future::pending::<()>().await;
    });
}

/// A process, killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(host: &Host, dir: &Path, test: &str) -> Process {
    let mut command = host.command(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(AGENT, dir);
    Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

#[test]
fn what_is_required_is_encrypted_or_refused_also_when_the_agent_is_killed() {
    be_an_agent_if_asked();
    testkit::requires!(netns, tun, nft);
    let test = "what_is_required_is_encrypted_or_refused_also_when_the_agent_is_killed";
    let cluster = Cluster::new();
    let Cluster { nodes, pods, capture, .. } = &cluster;
    let [p, q] = [&pods[0], &pods[1]];
    let (at_q, at_b) = (q.answers(), nodes[1].1.answers());
    // The capture sees what it should.
    assert_eq!(p.until_heard(at_q), p.address);
    eventually("the capture sees the marker", || (capture.clear() > 0).then_some(()));

    let dir = tempfile::tempdir().unwrap();
    let dirs = NAMES.map(|name| dir.path().join(name));
    let keys = NAMES.map(|_| PrivateKey::generate().unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (own, dir) in dirs.iter().enumerate() {
        KeyFile::new(dir.join("keys/key")).store(&keys[own]).unwrap();
        runtime.block_on(async {
            let tasks = Tasks::new("store");
            let objects = Objects::embedded(&dir.join("store"), &tasks).unwrap();
            // The last one has said no key yet.
            for (name, key) in NAMES.iter().zip(&keys).take(2) {
                let spec = WireguardNodeSpec {
                    node: (*name).to_owned(),
                    public_key: key.public().to_string(),
                    next_public_key: None,
                    port: PORT,
                    encrypts_pods: true,
                };
                let node = WireguardNode::new(name, spec);
                objects.apply(&node, Expected::Any, Deadline::after(PATIENCE)).await.unwrap();
            }
            drop(objects);
            tasks.shutdown(PATIENCE).await;
        });
    }
    let mut a = Some(start(&nodes[0].0, &dirs[0], test));
    let _b = start(&nodes[1].0, &dirs[1], test);
    let routes = |i: usize| {
        let shown = nodes[i].0.command("ip").args(["route", "show", "table", "117"]).output();
        String::from_utf8(shown.unwrap().stdout).unwrap()
    };
    for i in [0, 1] {
        let other = block(1 - i).to_string();
        eventually("the other's block is routed into the tunnel", || {
            routes(i).lines().any(|it| it.starts_with(&other)).then_some(())
        });
    }
    let before = capture.clear();
    // Everybody is seen with the address that is his.
    assert_eq!(p.until_heard(at_q), p.address);
    assert_eq!(p.until_heard(at_b), p.address);
    assert_eq!(nodes[0].1.until_heard(at_q), node_address(0));
    assert!(capture.encrypted.load(Ordering::Relaxed) > 0);

    // A node cannot send from what is another's.
    for stolen in ["10.64.2.2", "192.0.2.3"] {
        ip(&nodes[1].0, &format!("address add {stolen}/32 dev lo"));
        let bind = || UdpSocket::bind((stolen, 0));
        let thief = nodes[1].1.namespace.run_in(bind).unwrap().unwrap();
        let victim = p.udp();
        let to = SocketAddr::new(p.address, victim.local_addr().unwrap().port());
        for _ in 0..20 {
            let _ = thief.send_to(MARKER, to);
        }
        // What is its own comes through, so that the others had the time to.
        q.udp().send_to(b"honest", to).unwrap();
        let mut said = [0; 100];
        let (length, from) = eventually("it is heard", || victim.recv_from(&mut said).ok());
        assert_eq!((&said[..length], from.ip()), (&b"honest"[..], q.address));
        ip(&nodes[1].0, &format!("address del {stolen}/32 dev lo"));
    }

    // The agent is killed. Its interface is gone with it, and nothing leaves: not to a node that has a key, not
    // to one that has none, not to a block that nobody has, not to a node itself.
    drop(a.take());
    let refused = nodes[0].1.udp().send_to(MARKER, at_q).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::HostUnreachable, "{refused}");
    let nobody: [SocketAddr; 2] = ["10.64.2.2:9", "10.64.77.1:9"].map(|it| it.parse().unwrap());
    let stray = p.udp();
    let strays = || {
        for to in [at_q, at_b, nobody[0], nobody[1]] {
            let _ = stray.send_to(MARKER, to);
        }
        for to in [at_q, nobody[0], nobody[1]] {
            let _ = nodes[0].1.udp().send_to(MARKER, to);
        }
    };
    for _ in 0..30 {
        strays();
        thread::sleep(Duration::from_millis(10));
    }
    // The node's own pods go on.
    let beside = p.udp();
    let at_beside = SocketAddr::new(p.address, beside.local_addr().unwrap().port());
    nodes[0].1.udp().send_to(b"beside", at_beside).unwrap();
    let mut said = [0; 100];
    let (length, _) = eventually("the node reaches its pod", || beside.recv_from(&mut said).ok());
    assert_eq!(&said[..length], b"beside");
    // While it starts, too.
    let _a = start(&nodes[0].0, &dirs[0], test);
    eventually("the tunnel is back", || {
        strays();
        p.asks(at_q)
    });
    strays();
    assert_eq!(p.until_heard(at_b), p.address);
    assert_eq!(capture.clear(), before, "packets left in clear text");

    // Without the guards they would have.
    drop(_a);
    ip(&nodes[0].0, "route flush table 117");
    eventually("the guard kept it", || {
        let _ = p.udp().send_to(MARKER, at_q);
        (capture.clear() > before).then_some(())
    });
}

/// Agents in this process, with one store of their cluster's objects.
struct Agents<'c> {
    cluster: &'c Cluster,
    objects: Objects,
    dir: tempfile::TempDir,
}

struct Agent {
    tasks: Tasks,
    tunnels: Snapshot<ClusterTunnels>,
}

impl Agents<'_> {
    fn start(&self, i: usize, mode: Encryption) -> Agent {
        let (dir, tasks) = (self.dir.path().join(NAMES[i]), Tasks::new(NAMES[i]));
        std::fs::create_dir_all(&dir).unwrap();
        let interface = format!("fi{i}{}", std::process::id());
        let config = config(NAMES[i], &dir, mode, &interface);
        let tunnels = config.cluster.as_ref().unwrap().tunnels.clone();
        let namespace = Arc::clone(&self.cluster.nodes[i].1.namespace);
        agent::start(config, namespace, self.objects.clone(), &Ledger::default(), &tasks);
        Agent { tasks, tunnels }
    }
}

impl Agent {
    /// The nodes that packets are encrypted to.
    fn routed(&self) -> BTreeSet<String> {
        let tunnels = self.tunnels.load();
        let routed = tunnels.nodes.iter().filter(|(_, way)| way.routed);
        routed.map(|(name, _)| name.clone()).collect()
    }

    async fn until_routed(&self, to: &[&str]) {
        let to: BTreeSet<String> = to.iter().map(|it| (*it).to_owned()).collect();
        let until = Instant::now() + PATIENCE;
        while self.routed() != to {
            assert!(Instant::now() < until, "{to:?}: {:?}", self.tunnels.load());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn stop(self) {
        self.tasks.shutdown(Duration::from_secs(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_preferred_is_encrypted_from_the_first_handshake_on_and_taken_back() {
    testkit::requires!(netns, tun, nft);
    let cluster = Cluster::new();
    let dir = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("store");
    let objects = Objects::embedded(&dir.path().join("store"), &tasks).unwrap();
    let agents = Agents { cluster: &cluster, objects: objects.clone(), dir };
    let Cluster { pods, capture, nodes, .. } = &cluster;
    let [p, q, r] = [&pods[0], &pods[1], &pods[2]];
    let (at_q, at_r) = (q.answers(), r.answers());
    let in_clear = |from: &Place, to| {
        let before = capture.clear();
        assert_eq!(from.until_heard(to), from.address);
        eventually("it was in clear", || (capture.clear() > before).then_some(()));
    };
    let encrypted = |from: &Place, to| {
        eventually("both ways are encrypted", || {
            let before = capture.clear();
            assert_eq!(from.until_heard(to), from.address);
            thread::sleep(Duration::from_millis(50));
            (capture.clear() == before).then_some(())
        });
    };
    let a = agents.start(0, Encryption::Preferred);
    in_clear(p, at_q);
    let b = agents.start(1, Encryption::Preferred);
    a.until_routed(&["n1"]).await;
    b.until_routed(&["n0"]).await;
    encrypted(p, at_q);
    in_clear(p, at_r);
    // A node joins, and changes its key.
    let c = agents.start(2, Encryption::Preferred);
    a.until_routed(&["n1", "n2"]).await;
    encrypted(p, at_r);
    let said = async || {
        let id = Id::cluster("n2");
        let node = objects.get::<WireguardNode>(&id, Deadline::after(PATIENCE)).await.unwrap();
        node.unwrap().spec
    };
    let old = said().await.public_key;
    c.stop().await;
    // It has said that it encrypts no more, and is reached beside the tunnel at once.
    assert!(!said().await.encrypts_pods);
    assert_eq!(a.routed(), ["n1".to_owned()].into());
    in_clear(p, at_r);
    std::fs::remove_file(agents.dir.path().join("n2/keys/key")).unwrap();
    let c = agents.start(2, Encryption::Required);
    a.until_routed(&["n1", "n2"]).await;
    assert_ne!(said().await.public_key, old);
    encrypted(p, at_r);
    // It is turned on for good, and off again. Nobody else is concerned.
    b.stop().await;
    in_clear(p, at_q);
    let b = agents.start(1, Encryption::Required);
    a.until_routed(&["n1", "n2"]).await;
    encrypted(p, at_q);
    let before = capture.clear();
    assert_eq!(q.until_heard(at_r), q.address);
    assert_eq!(capture.clear(), before, "packets left in clear text");
    for agent in [a, b, c] {
        agent.stop().await;
    }
    // What requires it goes on refusing until it is purged; what prefers it leaves nothing.
    assert_eq!(q.asks(at_r), None);
    for (i, (_, place)) in nodes.iter().enumerate() {
        wireguard::purge(&place.namespace, &format!("fi{i}{}", std::process::id())).unwrap();
    }
    in_clear(q, at_r);
    in_clear(p, at_q);
}
