//! Pods of three nodes whose packets to each other are encrypted: a real API server, an agent on each node,
//! pods that it connects, and a switch that looks at every byte between nodes.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cni::wire::{self, AddRequest, AttachmentKey, Operation, Pod, Reply, Request};
use k8s_openapi::api::core::v1::Node;
use kernel::netns::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use objects::kinds::WireguardNode;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType};
use serde_json::{Value, json};
use stallproof::Deadline;
use testkit::{Host, KubeServer, Sandbox, requires};

const PATIENCE: Duration = Duration::from_secs(90);
const PORT: u16 = 51821;
/// What nobody between nodes may read.
const MARKER: &[u8] = b"the-marker-that-nobody-may-read";
/// Every protocol, in network order.
const ALL_PROTOCOLS: u32 = 0x0300;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
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

/// Carries connections to the API server of this machine's loopback, and nothing else.
fn relay(namespace: &Namespace, to: SocketAddr) {
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

/// A cluster's API server, and a switch between its nodes.
struct Stage {
    sandbox: Sandbox,
    server: KubeServer,
    client: Client,
    switch: Host,
    capture: Arc<Capture>,
}

impl Stage {
    async fn new() -> Self {
        let server = KubeServer::start().await;
        let client = server.client().await;
        objects::install(client.clone(), Deadline::after(PATIENCE)).await.unwrap();
        let sandbox = Sandbox::new();
        let switch = sandbox.host("sw");
        for args in [&["link", "add", "br0", "type", "bridge"][..], &["link", "set", "br0", "up"]] {
            run(switch.command("ip").args(args));
        }
        let capture = Capture::start(&switch);
        Self { sandbox, server, client, switch, capture }
    }

    async fn machine(&self, i: u8) -> Machine {
        let name = format!("n{i}");
        let host = self.sandbox.host(&name);
        let address = Ipv4Addr::new(192, 0, 2, i + 1);
        let nobody = format!("198.51.100.{i}/32");
        self.sandbox.link((&host, &format!("{address}/24")), (&self.switch, &nobody));
        run(self.switch.command("ip").args(["link", "set", &name, "master", "br0"]));
        // Whatever has no route of its own leaves by this one.
        run(host.command("ip").args(["route", "add", "default", "dev", "sw"]));
        let ipv6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(i) + 1);
        let own = format!("{ipv6}/64");
        run(host.command("ip").args(["address", "add", &own, "dev", "sw", "nodad"]));
        let nodes = Api::<Node>::all(self.client.clone());
        let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let reached = [address.to_string(), ipv6.to_string()]
            .map(|address| json!({"type": "InternalIP", "address": address}));
        let status = Patch::Merge(json!({"status": {"addresses": reached}}));
        nodes.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
        let namespace = Arc::new(Namespace::open(host.netns()).unwrap());
        relay(&namespace, self.server.address());
        let kubeconfig = self.server.kubeconfig_path();
        let dir = tempfile::tempdir().unwrap();
        let (address, agent) = (address.into(), None);
        Machine { name, host, namespace, address, ipv6: ipv6.into(), dir, kubeconfig, agent }
    }
}

/// A node and its agent.
struct Machine {
    name: String,
    host: Host,
    namespace: Arc<Namespace>,
    address: IpAddr,
    ipv6: IpAddr,
    dir: tempfile::TempDir,
    kubeconfig: PathBuf,
    agent: Option<Child>,
}

impl Machine {
    fn fairlead(&self) -> Command {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_fairlead"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
            command.env_remove(name);
        }
        command.env("FAIRLEAD_CONFIG", "/dev/null");
        command
    }

    fn start(&mut self, encryption: &str) {
        let log = std::fs::File::options().append(true).create(true).open(self.log()).unwrap();
        // Names of interfaces are also names of sockets, which all namespaces share.
        let interface = format!("w{}{}", self.name, std::process::id() % 100_000);
        let mut command = self.fairlead();
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .args(["agent", "--store=kubernetes", "--net-subnets=10.64.0.0/24+fd00:64::/120"])
            .args(["--net-masquerade=on", "--admin-listen=127.0.0.1:0"])
            .arg(format!("--net-encryption={encryption}"))
            .arg(format!("--mesh-interface={interface}"))
            .arg(format!("--net-node={}", self.name))
            .arg(format!("--net-addresses={},{}", self.address, self.ipv6))
            .arg(format!("--net-socket={}", self.socket().display()))
            .arg(format!("--data={}", self.dir.path().join("data").display()))
            .stdout(Stdio::null())
            .stderr(log);
        self.agent = Some(command.spawn().unwrap());
    }

    /// Ends the agent by a signal.
    fn end(&mut self, signal: &str) {
        let mut agent = self.agent.take().unwrap();
        run(Command::new("kill").args([signal, &agent.id().to_string()]));
        agent.wait().unwrap();
    }

    fn restart(&mut self, encryption: &str) {
        self.end("-TERM");
        self.start(encryption);
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn logged(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("cni.sock")
    }

    /// Has the agent connect a pod.
    fn pod(&self, sandbox: &Sandbox, name: &str) -> Place {
        let host = sandbox.host(name);
        let namespace = Arc::new(Namespace::open(host.netns()).unwrap());
        let add = Operation::Add(AddRequest {
            key: AttachmentKey { container: name.to_owned(), ifname: "eth0".to_owned() },
            network: "pods".to_owned(),
            netns: host.netns().display().to_string(),
            pod: Some(Pod { namespace: "default".to_owned(), name: name.to_owned(), uid: None }),
            pool: None,
            fixed: Default::default(),
        });
        let until = Instant::now() + PATIENCE;
        let success = loop {
            let deadline = Instant::now() + PATIENCE;
            let request = Request::within(deadline, add.clone());
            match wire::call(&self.socket(), &request, Some((*namespace).as_fd()), deadline) {
                Ok(Reply::Added(success)) => break success,
                other => assert!(Instant::now() < until, "{other:?}: {}", self.logged()),
            }
            thread::sleep(Duration::from_millis(100));
        };
        let addresses = success.ips.iter().map(|ip| {
            let text = ip.address.to_string();
            text.split('/').next().unwrap().parse::<IpAddr>().unwrap()
        });
        let (ipv4, ipv6): (Vec<_>, Vec<_>) = addresses.partition(IpAddr::is_ipv4);
        Place { host: Some(host), namespace, address: ipv4[0], ipv6: ipv6[0] }
    }

    fn here(&self) -> Place {
        let (address, ipv6) = (self.address, self.ipv6);
        Place { host: None, namespace: Arc::clone(&self.namespace), address, ipv6 }
    }

    /// What a verb of `fairlead net` says, with its exit code.
    fn says(&self, verb: &str) -> (i32, Vec<Value>) {
        let mut command = self.fairlead();
        let output: Output = command
            .args(["net", verb, "-o", "json"])
            .arg(format!("--net-socket={}", self.socket().display()))
            .output()
            .unwrap();
        (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    /// Nothing is wrong. A probe may go unanswered on a machine that has no time for it.
    fn until_well(&self) {
        let until = Instant::now() + PATIENCE;
        while self.says("check").0 != 0 {
            assert!(Instant::now() < until, "{:?} {}", self.says("check"), self.logged());
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn until_encrypted(&self, to: usize) {
        let looks = || {
            let (code, nodes) = self.says("status");
            let all = nodes
                .iter()
                .all(|node| node["way"] == "encrypted" && node["lastHandshakeSeconds"].is_u64());
            (code == 0 && nodes.len() == to && all).then_some(())
        };
        let until = Instant::now() + PATIENCE;
        while looks().is_none() {
            assert!(Instant::now() < until, "{:?} {}", self.says("status"), self.logged());
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(agent) = &mut self.agent {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        if thread::panicking() {
            eprintln!("--- {}: {}", self.name, self.logged());
        }
    }
}

/// Somebody with an address: a pod, or a node itself.
struct Place {
    host: Option<Host>,
    namespace: Arc<Namespace>,
    /// The address that it speaks with.
    address: IpAddr,
    ipv6: IpAddr,
}

impl Place {
    /// The same, speaking IPv6.
    fn by_ipv6(self) -> Self {
        Self { address: self.ipv6, ..self }
    }

    fn any(&self) -> SocketAddr {
        match self.address {
            IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        }
    }

    fn udp(&self) -> UdpSocket {
        let any = self.any();
        let socket = self.namespace.run_in(|| UdpSocket::bind(any)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        socket
    }

    /// Answers datagrams with the marker and the address that they came from.
    fn answers(&self) -> SocketAddr {
        let any = self.any();
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

    /// Says back what is said by TCP.
    fn echo(&self) -> SocketAddr {
        let any = self.any();
        let listener = self.namespace.run_in(|| TcpListener::bind(any)).unwrap().unwrap();
        let at = SocketAddr::new(self.address, listener.local_addr().unwrap().port());
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    let _ = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream);
                });
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

    fn connect(&self, to: SocketAddr) -> TcpStream {
        let wait = Duration::from_secs(3);
        let connect = || self.namespace.run_in(|| TcpStream::connect_timeout(&to, wait)).unwrap();
        let stream = eventually("a connection comes about", || connect().ok());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }
}

/// A connection that says the marker again and again until this is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    /// The longest that one answer took, in milliseconds.
    longest: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Load {
    fn start(mut stream: TcpStream) -> Self {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let longest = Arc::new(AtomicU64::new(0));
        let (ends, counts, longests) =
            (Arc::clone(&stop), Arc::clone(&count), Arc::clone(&longest));
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let began = Instant::now();
                stream.write_all(MARKER).unwrap();
                let mut back = [0; MARKER.len()];
                stream.read_exact(&mut back).unwrap();
                assert_eq!(back, MARKER);
                let took = u64::try_from(began.elapsed().as_millis()).unwrap();
                longests.fetch_max(took, Ordering::Relaxed);
                counts.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(5));
            }
        });
        Self { stop, count, longest, thread }
    }

    fn goes_on(&self, what: &str) {
        let from = self.count.load(Ordering::Relaxed);
        eventually(what, || {
            assert!(!self.thread.is_finished(), "the connection was lost: {what}");
            (self.count.load(Ordering::Relaxed) > from + 20).then_some(())
        });
        let longest = self.longest.swap(0, Ordering::Relaxed);
        eprintln!("{what}: the longest answer took {longest} ms");
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the connection was lost");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_what_is_required_is_encrypted_or_refused() {
    requires!(kube, netns, tun, nft);
    let stage = Stage::new().await;
    let (sandbox, capture) = (&stage.sandbox, &stage.capture);
    let (mut a, mut b) = (stage.machine(0).await, stage.machine(1).await);
    let mut c = stage.machine(2).await;
    // The capture sees what it should: nodes' own packets are not encrypted.
    let between_nodes = b.here().answers();
    assert_eq!(a.here().until_heard(between_nodes), a.address);
    eventually("the capture sees the marker", || (capture.clear() > 0).then_some(()));

    a.start("required");
    b.start("required");
    let (p, beside, q) = (a.pod(sandbox, "p"), a.pod(sandbox, "p2"), b.pod(sandbox, "q"));
    let before = capture.clear();
    let (at_q, at_b, at_beside, echo) =
        (q.answers(), b.here().answers(), beside.answers(), q.echo());
    // Everybody is seen with the address that is his, although the pool is masqueraded.
    assert_eq!(p.until_heard(at_q), p.address);
    assert_eq!(p.until_heard(at_b), p.address);
    assert_eq!(a.here().until_heard(at_q), a.address);
    assert_eq!(p.until_heard(at_beside), p.address);
    eventually("the capture sees WireGuard's packets", || {
        (capture.encrypted.load(Ordering::Relaxed) > 0).then_some(())
    });
    // The pod's interface has room for what goes around its packets.
    let link = run(p.host.as_ref().unwrap().command("ip").args(["link", "show", "dev", "eth0"]));
    assert!(link.contains("mtu 1420"), "{link}");
    a.until_encrypted(1);
    let (_, nodes) = a.says("status");
    assert_eq!(
        (&nodes[0]["implementation"], &nodes[0]["mode"]),
        (&json!("userspace"), &json!("required"))
    );
    a.until_well();

    // A node cannot send from what is another's, nor from an address that nobody has.
    let stolen = SocketAddr::new("10.64.0.200".parse().unwrap(), 0);
    for address in [beside.address, stolen.ip()] {
        let host = b
            .host
            .command("ip")
            .args(["address", "add", &format!("{address}/32"), "dev", "lo"])
            .output();
        assert!(host.unwrap().status.success());
        let thief = b.namespace.run_in(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
        let victim = p.udp();
        let to = SocketAddr::new(p.address, victim.local_addr().unwrap().port());
        for _ in 0..20 {
            let _ = thief.send_to(MARKER, to);
        }
        // What is its own comes through, so that the others had the time to. A datagram may be lost on a
        // machine that has no time for it.
        let honest = q.udp();
        let mut said = [0; 100];
        let (length, from) = eventually("the honest one is heard", || {
            honest.send_to(b"honest", to).unwrap();
            victim.recv_from(&mut said).ok()
        });
        assert_eq!((&said[..length], from.ip()), (&b"honest"[..], q.address));
        run(b.host.command("ip").args(["address", "del", &format!("{address}/32"), "dev", "lo"]));
    }

    // An agent is killed. Its interface is gone with it, and nothing leaves.
    let load = Load::start(p.connect(echo));
    load.goes_on("a connection");
    a.end("-KILL");
    let stray = p.udp();
    let unknown: SocketAddr = "10.64.0.250:9".parse().unwrap();
    for _ in 0..50 {
        for to in [at_q, at_b, unknown] {
            let _ = stray.send_to(MARKER, to);
            let _ = a.here().udp().send_to(MARKER, if to == at_b { at_q } else { to });
        }
        thread::sleep(Duration::from_millis(10));
    }
    let refused = a.here().udp().send_to(MARKER, at_q).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::HostUnreachable, "{refused}");
    // Pods of the same node go on.
    assert_eq!(p.until_heard(at_beside), p.address);
    a.start("required");
    load.goes_on("the connection after the agent was killed");

    // A node joins: its block is refused before its key is known, and reached after.
    c.start("required");
    let r = c.pod(sandbox, "r");
    // From its first moment on a pod says nothing in clear text.
    let first = r.udp();
    for _ in 0..20 {
        let _ = first.send_to(MARKER, at_q);
        thread::sleep(Duration::from_millis(5));
    }
    let at_r = r.answers();
    assert_eq!(p.until_heard(at_r), p.address);
    assert_eq!(r.until_heard(at_q), r.address);
    // It gets another key.
    c.end("-KILL");
    std::fs::remove_file(c.dir.path().join("data/wireguard/key")).unwrap();
    c.start("required");
    assert_eq!(r.until_heard(at_q), r.address);
    assert_eq!(p.until_heard(at_r), p.address);
    // It leaves, and is named.
    c.end("-KILL");
    let keys = Api::<WireguardNode>::all(stage.client.clone());
    keys.delete("n2", &DeleteParams::default()).await.unwrap();
    eventually("a node without a key is named", || {
        let (code, faults) = a.says("check");
        let named = faults.iter().find(|fault| fault["what"] == "node n2")?;
        let why = named["fault"].as_str().unwrap();
        (code == 1 && why.starts_with("its pods are not reached: it has said no key")).then_some(())
    });
    assert_eq!(a.says("status").0, 1);
    let _ = p.asks(at_r);
    load.goes_on("the connection while others come and go");
    load.stop();
    assert_eq!(capture.clear(), before, "packets left in clear text");

    // Without the guards they would have.
    a.end("-KILL");
    run(a.host.command("ip").args(["route", "flush", "table", "117"]));
    eventually("the guard kept it", || {
        let _ = p.udp().send_to(MARKER, at_q);
        (capture.clear() > before).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_encryption_is_rolled_out_and_taken_back_under_load() {
    requires!(kube, netns, tun, nft);
    let stage = Stage::new().await;
    let (sandbox, capture) = (&stage.sandbox, &stage.capture);
    let mut machines = vec![stage.machine(0).await, stage.machine(1).await];
    machines.iter_mut().for_each(|machine| machine.start("none"));
    let [p, q] = [0, 1].map(|i: usize| machines[i].pod(sandbox, &format!("p{i}")));
    let load = Load::start(p.connect(q.echo()));
    load.goes_on("in clear");
    assert!(capture.clear() > 0);

    machines[0].restart("preferred");
    load.goes_on("one node prefers it");
    eventually("the node that does not encrypt is named", || {
        let (code, faults) = machines[0].says("check");
        let named = faults.iter().find(|fault| fault["what"] == "node n1")?;
        let why = named["fault"].as_str().unwrap();
        (code == 1 && why.starts_with("packets to its pods are not encrypted")).then_some(())
    });
    machines[1].restart("preferred");
    load.goes_on("both prefer it");
    machines.iter().for_each(|machine| machine.until_encrypted(1));
    let until_silent = || {
        eventually("nothing more is sent in clear", || {
            let before = capture.clear();
            load.goes_on("encrypted");
            (capture.clear() == before).then_some(())
        });
    };
    until_silent();
    for i in [0, 1] {
        // While it is replaced, packets go beside it again.
        machines[i].restart("required");
        load.goes_on("one more requires it");
        machines[i].until_encrypted(1);
    }
    let before = capture.clear();
    load.goes_on("both require it");
    assert_eq!(capture.clear(), before, "packets left in clear text");
    for mode in ["preferred", "none"] {
        for i in [0, 1] {
            machines[i].restart(mode);
            load.goes_on(&format!("one more has it {mode}"));
        }
    }
    eventually("packets go in clear again", || {
        load.goes_on("off");
        (capture.clear() > before).then_some(())
    });
    load.stop();
    // Nothing of it is left.
    for machine in &machines {
        for table in ["115", "117"] {
            let left = machine.host.command("ip").args(["route", "show", "table", table]).output();
            assert_eq!(left.unwrap().stdout, b"", "table {table} of {}", machine.name);
        }
        let rules = run(machine.host.command("ip").args(["rule", "show"]));
        assert!(!rules.contains("lookup 11"), "{rules}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_what_is_required_is_encrypted_or_refused_by_ipv6() {
    requires!(kube, netns, tun, nft);
    let stage = Stage::new().await;
    let (sandbox, capture) = (&stage.sandbox, &stage.capture);
    let (mut a, mut b) = (stage.machine(0).await, stage.machine(1).await);
    a.start("required");
    b.start("required");
    let (p, q) = (a.pod(sandbox, "p").by_ipv6(), b.pod(sandbox, "q").by_ipv6());
    let before = capture.clear();
    let (at_q, at_b) = (q.answers(), b.here().by_ipv6().answers());
    let here = a.here().by_ipv6();
    assert_eq!(p.until_heard(at_q), p.address);
    assert_eq!(p.until_heard(at_b), p.address);
    assert_eq!(here.until_heard(at_q), here.address);
    let load = Load::start(p.connect(q.echo()));
    load.goes_on("a connection");
    a.end("-KILL");
    let stray = p.udp();
    for _ in 0..20 {
        let _ = stray.send_to(MARKER, at_q);
        let _ = stray.send_to(MARKER, at_b);
        let _ = here.udp().send_to(MARKER, at_q);
        thread::sleep(Duration::from_millis(10));
    }
    let refused = here.udp().send_to(MARKER, at_q).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::HostUnreachable, "{refused}");
    a.start("required");
    load.goes_on("the connection after the agent was killed");
    load.stop();
    assert_eq!(capture.clear(), before, "packets left in clear text");

    // Without the guards they would have.
    a.end("-KILL");
    run(a.host.command("ip").args(["-6", "route", "flush", "table", "117"]));
    eventually("the guard kept it", || {
        let _ = p.udp().send_to(MARKER, at_q);
        (capture.clear() > before).then_some(())
    });
}
