//! Nodes of clusters on one switch that looks at every byte between them: real API servers, an agent on
//! each node, and pods that it connects.

#![allow(dead_code, clippy::unwrap_used, reason = "tests, each of which uses a part")]

use std::io::{Read, Write};
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
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType};
use serde_json::{Value, json};
use stallproof::Deadline;
use testkit::{Host, KubeServer, Sandbox};

pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
pub(crate) const PORT: u16 = 51821;
/// What nobody between nodes may read.
pub(crate) const MARKER: &[u8] = b"the-marker-that-nobody-may-read";
/// Every protocol, in network order.
pub(crate) const ALL_PROTOCOLS: u32 = 0x0300;

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
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

/// Looks at every frame that passes the switch.
#[derive(Default)]
pub(crate) struct Capture {
    /// Frames with the marker in them.
    pub(crate) clear: AtomicU64,
    /// WireGuard's.
    pub(crate) encrypted: AtomicU64,
}

impl Capture {
    pub(crate) fn start(switch: &Host) -> Arc<Self> {
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

    pub(crate) fn clear(&self) -> u64 {
        self.clear.load(Ordering::Relaxed)
    }
}

/// A cluster's API server, and a switch between its nodes.
pub(crate) struct Stage {
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) server: KubeServer,
    pub(crate) client: Client,
    pub(crate) switch: Arc<Host>,
    pub(crate) capture: Arc<Capture>,
    /// The networks of its pods.
    pub(crate) pods: &'static str,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let sandbox = Arc::new(Sandbox::new());
        let switch = sandbox.host("sw");
        for args in [&["link", "add", "br0", "type", "bridge"][..], &["link", "set", "br0", "up"]] {
            run(switch.command("ip").args(args));
        }
        let capture = Capture::start(&switch);
        Self::on(sandbox, Arc::new(switch), capture, "10.64.0.0/24+fd00:64::/120").await
    }

    async fn on(
        sandbox: Arc<Sandbox>,
        switch: Arc<Host>,
        capture: Arc<Capture>,
        pods: &'static str,
    ) -> Self {
        let server = KubeServer::start().await;
        let client = server.client().await;
        objects::install(client.clone(), Deadline::after(PATIENCE)).await.unwrap();
        Self { sandbox, server, client, switch, capture, pods }
    }

    /// Another cluster on the same switch. Its nodes need other numbers.
    pub(crate) async fn beside(&self, pods: &'static str) -> Self {
        let (sandbox, switch) = (Arc::clone(&self.sandbox), Arc::clone(&self.switch));
        Self::on(sandbox, switch, Arc::clone(&self.capture), pods).await
    }

    pub(crate) async fn machine(&self, i: u8) -> Machine {
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
        let node = serde_json::from_value(json!({"metadata": {"name": name, "annotations": {
            "fairlead.dev/wireguard-endpoint": format!("{address}:{PORT}"),
        }}}))
        .unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let reached = [address.to_string(), ipv6.to_string()]
            .map(|address| json!({"type": "InternalIP", "address": address}));
        let status = Patch::Merge(json!({"status": {"addresses": reached}}));
        nodes.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
        let namespace = Arc::new(Namespace::open(host.netns()).unwrap());
        relay(&namespace, self.server.address());
        let kubeconfig = self.server.kubeconfig_path();
        let dir = tempfile::tempdir().unwrap();
        Machine {
            name,
            host,
            namespace,
            address: address.into(),
            ipv6: ipv6.into(),
            dir,
            kubeconfig,
            agent: None,
            pods: self.pods,
            mesh: "off",
        }
    }
}

/// A node and its agent.
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) host: Host,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) address: IpAddr,
    pub(crate) ipv6: IpAddr,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) agent: Option<Child>,
    pub(crate) pods: &'static str,
    /// Whether its interface carries packets of meshes: `on` or `off`.
    pub(crate) mesh: &'static str,
}

impl Machine {
    pub(crate) fn fairlead(&self) -> Command {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_fairlead"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
            command.env_remove(name);
        }
        command.env("FAIRLEAD_CONFIG", "/dev/null");
        command
    }

    pub(crate) fn start(&mut self, encryption: &str) {
        let log = std::fs::File::options().append(true).create(true).open(self.log()).unwrap();
        // Names of interfaces are also names of sockets, which all namespaces share.
        let interface = format!("w{}{}", self.name, std::process::id() % 100_000);
        let mut command = self.fairlead();
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .args(["agent", "--store=kubernetes", "--net-masquerade=on"])
            .args(["--admin-listen=127.0.0.1:0", &format!("--net-subnets={}", self.pods)])
            .arg(format!("--mesh-wireguard={}", self.mesh))
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
    pub(crate) fn end(&mut self, signal: &str) {
        let mut agent = self.agent.take().unwrap();
        run(Command::new("kill").args([signal, &agent.id().to_string()]));
        agent.wait().unwrap();
    }

    pub(crate) fn restart(&mut self, encryption: &str) {
        self.end("-TERM");
        self.start(encryption);
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("cni.sock")
    }

    /// Has the agent connect a pod.
    pub(crate) fn pod(&self, sandbox: &Sandbox, name: &str) -> Place {
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

    pub(crate) fn here(&self) -> Place {
        let (address, ipv6) = (self.address, self.ipv6);
        Place { host: None, namespace: Arc::clone(&self.namespace), address, ipv6 }
    }

    /// What a verb of `fairlead net` says, with its exit code.
    pub(crate) fn says(&self, verb: &str) -> (i32, Vec<Value>) {
        let mut command = self.fairlead();
        let output: Output = command
            .args(["net", verb, "-o", "json"])
            .arg(format!("--net-socket={}", self.socket().display()))
            .output()
            .unwrap();
        (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    /// Nothing is wrong. A probe may go unanswered on a machine that has no time for it.
    pub(crate) fn until_well(&self) {
        let until = Instant::now() + PATIENCE;
        while self.says("check").0 != 0 {
            assert!(Instant::now() < until, "{:?} {}", self.says("check"), self.logged());
            thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn until_encrypted(&self, to: usize) {
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
pub(crate) struct Place {
    pub(crate) host: Option<Host>,
    pub(crate) namespace: Arc<Namespace>,
    /// The address that it speaks with.
    pub(crate) address: IpAddr,
    pub(crate) ipv6: IpAddr,
}

impl Place {
    /// The same, speaking IPv6.
    pub(crate) fn by_ipv6(self) -> Self {
        Self { address: self.ipv6, ..self }
    }

    pub(crate) fn any(&self) -> SocketAddr {
        match self.address {
            IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        }
    }

    pub(crate) fn udp(&self) -> UdpSocket {
        let any = self.any();
        let socket = self.namespace.run_in(|| UdpSocket::bind(any)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        socket
    }

    /// Answers datagrams with the marker and the address that they came from.
    pub(crate) fn answers(&self) -> SocketAddr {
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
    pub(crate) fn echo(&self) -> SocketAddr {
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
    pub(crate) fn asks(&self, to: SocketAddr) -> Option<IpAddr> {
        let socket = self.udp();
        let _ = socket.send_to(MARKER, to);
        let mut said = [0; 100];
        let (length, _) = socket.recv_from(&mut said).ok()?;
        let from = said[..length].strip_prefix(MARKER).unwrap();
        Some(std::str::from_utf8(from).unwrap().parse().unwrap())
    }

    pub(crate) fn until_heard(&self, to: SocketAddr) -> IpAddr {
        eventually(&format!("{} reaches {to}", self.address), || self.asks(to))
    }

    pub(crate) fn connect(&self, to: SocketAddr) -> TcpStream {
        let wait = Duration::from_secs(3);
        let connect = || self.namespace.run_in(|| TcpStream::connect_timeout(&to, wait)).unwrap();
        let stream = eventually("a connection comes about", || connect().ok());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }
}

/// A connection that says the marker again and again until this is stopped.
pub(crate) struct Load {
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) count: Arc<AtomicU64>,
    /// The longest that one answer took, in milliseconds.
    pub(crate) longest: Arc<AtomicU64>,
    pub(crate) thread: JoinHandle<()>,
}

impl Load {
    pub(crate) fn start(mut stream: TcpStream) -> Self {
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

    pub(crate) fn goes_on(&self, what: &str) {
        let from = self.count.load(Ordering::Relaxed);
        eventually(what, || {
            assert!(!self.thread.is_finished(), "the connection was lost: {what}");
            (self.count.load(Ordering::Relaxed) > from + 20).then_some(())
        });
        let longest = self.longest.swap(0, Ordering::Relaxed);
        eprintln!("{what}: the longest answer took {longest} ms");
    }

    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the connection was lost");
    }
}
