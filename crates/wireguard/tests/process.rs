//! Agents as processes, which are killed and frozen under traffic.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kernel::netns::Namespace;
use objects::kinds::{WireguardEndpoint, WireguardHost, WireguardPeer, WireguardPeerSpec};
use objects::{Expected, Objects};
use stallproof::{Deadline, Ledger, Tasks};
use testkit::{Host, Sandbox};
use wireguard::agent::{self, AgentConfig};
use wireguard::{Implementation, KeyFile, PrivateKey, TunnelConfig};

const PATIENCE: Duration = Duration::from_secs(90);
const PORT: u16 = 51820;
/// Set for a process that is an agent: its directory, which is named as its node.
const AGENT: &str = "FAIRLEAD_TEST_AGENT";

/// In a process that was started to be an agent: is one, until it is killed.
fn be_an_agent_if_asked() {
    let Some(dir) = std::env::var_os(AGENT) else { return };
    let dir = Path::new(&dir);
    let name = dir.file_name().unwrap().to_str().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let tasks = Tasks::new("agent");
        let objects = Objects::embedded(&dir.join("store"), &tasks).unwrap();
        let config = AgentConfig {
            node: name.to_owned(),
            keys: dir.join("keys"),
            tunnel: TunnelConfig {
                implementation: Some(Implementation::Userspace),
                socket_directory: dir.to_owned(),
                probes: true,
                ..TunnelConfig::new(format!("fl{name}"), PORT)
            },
            key_lifetime: None,
            announce: PATIENCE,
        };
        let namespace = Arc::new(Namespace::current().unwrap());
        agent::start(config, namespace, objects, &Ledger::default(), &tasks);
        std::future::pending::<()>().await;
    });
}

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

/// A node: a host behind a router, with its key, and a directory of its agent's.
struct Node {
    name: &'static str,
    host: Host,
    namespace: Namespace,
    outside: IpAddr,
    key: PrivateKey,
    dir: tempfile::TempDir,
    agent: Option<Child>,
}

impl Node {
    fn new(sandbox: &Sandbox, router: &Host, i: usize, name: &'static str) -> Self {
        let host = sandbox.host(name);
        let (here, there) = (format!("192.0.2.{}", 4 * i + 1), format!("192.0.2.{}", 4 * i + 2));
        sandbox.link((&host, &format!("{here}/30")), (router, &format!("{there}/30")));
        // Whatever has no route of its own leaves by this one.
        run(host.command("ip").args(["route", "add", "default", "via", &there]));
        let key = PrivateKey::generate().unwrap();
        let dir = tempfile::tempdir().unwrap();
        KeyFile::new(dir.path().join(name).join("keys/key")).store(&key).unwrap();
        let namespace = Namespace::open(host.netns()).unwrap();
        let outside = here.parse().unwrap();
        Self { name, host, namespace, outside, key, dir, agent: None }
    }

    fn has_address(&self, address: &str) {
        run(self.host.command("ip").args(["address", "add", address, "dev", "lo"]));
    }

    /// Makes other nodes its peers, each with these networks. Its agent must not run.
    fn knows(&self, others: &[(&Self, &str)]) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let tasks = Tasks::new("store");
            let store = self.dir.path().join(self.name).join("store");
            let objects = Objects::embedded(&store, &tasks).unwrap();
            for (other, network) in others {
                let host = WireguardHost { ip: Some(other.outside.to_string()), dns: None };
                let spec = WireguardPeerSpec {
                    allowed_ips: vec![(*network).to_owned()],
                    endpoint: Some(WireguardEndpoint { dns_or_ip: host, port: PORT }),
                    persistent_keepalive: 0,
                    public_key: other.key.public().to_string(),
                    next_public_key: None,
                };
                let (peer, soon) =
                    (WireguardPeer::new(other.name, spec), Deadline::after(PATIENCE));
                objects.apply(&peer, Expected::Any, soon).await.unwrap();
            }
            drop(objects);
            tasks.shutdown(PATIENCE).await;
        });
    }

    /// Starts the agent: this program again, as the test of that name.
    fn start(&mut self, test: &str) {
        let mut command = self.host.command(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]);
        command.env(AGENT, self.dir.path().join(self.name));
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        self.agent = Some(quiet.spawn().unwrap());
    }

    fn kill(&mut self) {
        let mut agent = self.agent.take().unwrap();
        agent.kill().unwrap();
        agent.wait().unwrap();
    }

    fn signal(&self, signal: &str) {
        let pid = self.agent.as_ref().unwrap().id().to_string();
        run(Command::new("kill").args([signal, &pid]));
    }

    fn udp(&self, at: &str) -> UdpSocket {
        let socket = self.namespace.run_in(|| UdpSocket::bind(at)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        socket
    }

    fn connect(&self, to: SocketAddr) -> TcpStream {
        let wait = Duration::from_secs(2);
        let connect = || self.namespace.run_in(|| TcpStream::connect_timeout(&to, wait)).unwrap();
        let stream = eventually("a connection comes about", || connect().ok());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(agent) = &mut self.agent {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

/// A router that counts what of pods comes to it: that is not encrypted.
fn watching_router(sandbox: &Sandbox) -> Host {
    let router = sandbox.host("r");
    run(router.command("sysctl").args(["-q", "-w", "net.ipv4.ip_forward=1"]));
    let rules = "add table ip clear; add chain ip clear seen { type filter hook prerouting priority -300; }; \
                 add rule ip clear seen ip daddr 10.0.0.0/8 counter";
    run(router.command("nft").arg(rules));
    router
}

fn clear_packets(router: &Host) -> u64 {
    let shown = run(router.command("nft").args(["list", "table", "ip", "clear"]));
    let after = shown.split("packets ").nth(1).unwrap();
    after.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn an_agent_that_is_killed_comes_back_and_nothing_leaves_in_clear_text() {
    be_an_agent_if_asked();
    testkit::requires!(netns, tun, nft);
    let test = "an_agent_that_is_killed_comes_back_and_nothing_leaves_in_clear_text";
    let sandbox = Sandbox::new();
    let router = watching_router(&sandbox);
    let mut a = Node::new(&sandbox, &router, 0, "a");
    let mut b = Node::new(&sandbox, &router, 1, "b");
    a.has_address("10.1.0.1/32");
    b.has_address("10.2.0.1/32");
    a.knows(&[(&b, "10.2.0.0/16")]);
    b.knows(&[(&a, "10.1.0.0/16")]);
    let stray = a.udp("10.1.0.1:0");
    let to: SocketAddr = "10.2.0.1:9".parse().unwrap();
    // The capture sees what it should.
    stray.send_to(b"clear", to).unwrap();
    eventually("the router counts", || (clear_packets(&router) > 0).then_some(()));
    a.start(test);
    b.start(test);
    let listener = b.namespace.run_in(|| TcpListener::bind("10.2.0.1:0")).unwrap().unwrap();
    let echo = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let _ = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream);
            });
        }
    });
    let mut stream = a.connect(echo);
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (ends, counts) = (Arc::clone(&stop), Arc::clone(&count));
    let load = thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            let number = counts.load(Ordering::Relaxed).to_ne_bytes();
            stream.write_all(&number).unwrap();
            let mut back = [0; 8];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(back, number);
            counts.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(5));
        }
    });
    let goes_on = |what: &str| {
        let from = count.load(Ordering::Relaxed);
        eventually(what, || (count.load(Ordering::Relaxed) > from + 20).then_some(()));
    };
    goes_on("the connection begins");
    let before = clear_packets(&router);
    a.kill();
    for _ in 0..50 {
        let refused = stray.send_to(b"secret", to).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::HostUnreachable, "{refused}");
        thread::sleep(Duration::from_millis(10));
    }
    a.start(test);
    // While it starts, too.
    eventually("the interface is back", || stray.send_to(b"secret", to).ok());
    goes_on("the connection goes on after the agent was killed");
    stop.store(true, Ordering::Relaxed);
    load.join().expect("the connection was lost");
    assert_eq!(clear_packets(&router), before, "packets left in clear text");

    // Without the guard they would have.
    a.kill();
    run(a.host.command("ip").args(["route", "flush", "proto", "117"]));
    stray.send_to(b"clear", to).unwrap();
    eventually("the guard kept it", || (clear_packets(&router) > before).then_some(()));
}

#[test]
fn a_gateway_that_is_frozen_is_passed_over_within_seconds() {
    be_an_agent_if_asked();
    testkit::requires!(netns, tun, nft);
    let test = "a_gateway_that_is_frozen_is_passed_over_within_seconds";
    let sandbox = Sandbox::new();
    let router = watching_router(&sandbox);
    let mut a = Node::new(&sandbox, &router, 0, "a");
    let mut gateways =
        [(1, "g1"), (2, "g2")].map(|(i, name)| Node::new(&sandbox, &router, i, name));
    a.has_address("10.1.0.1/32");
    a.knows(&gateways.each_ref().map(|gateway| (gateway, "10.2.0.0/16")));
    a.start(test);
    let service: SocketAddr = "10.2.0.1:7".parse().unwrap();
    for gateway in &mut gateways {
        gateway.has_address("10.2.0.1/32");
        gateway.knows(&[(&a, "10.1.0.0/16")]);
        gateway.start(test);
        let (socket, name) = (gateway.udp("10.2.0.1:7"), gateway.name);
        socket.set_read_timeout(None).unwrap();
        thread::spawn(move || {
            while let Ok((_, from)) = socket.recv_from(&mut [0; 100]) {
                let _ = socket.send_to(name.as_bytes(), from);
            }
        });
    }
    let socket = a.udp("10.1.0.1:0");
    let until = |name: &str| {
        let began = Instant::now();
        eventually(name, || {
            let _ = socket.send_to(b"who", service);
            let mut said = [0; 100];
            let (length, _) = socket.recv_from(&mut said).ok()?;
            (said[..length] == *name.as_bytes()).then_some(())
        });
        began.elapsed()
    };
    until("g1");
    // Both have answered probes: one that never has is believed at its first answer.
    eventually("both are probed", || {
        let probed = |gateway: &Node| {
            let counters = run(gateway.host.command("cat").arg("/proc/net/snmp6"));
            let mut lines = counters.lines().map(str::split_whitespace);
            let echos = lines.find_map(|mut line| (line.next()? == "Icmp6InEchos").then_some(line));
            echos.and_then(|mut line| line.next()?.parse::<u64>().ok()).unwrap_or(0) >= 3
        };
        gateways.iter().all(probed).then_some(())
    });
    gateways[0].signal("-STOP");
    let failover = until("g2");
    println!("failover from a frozen gateway: {:.1} s", failover.as_secs_f64());
    assert!(failover < Duration::from_secs(30), "{failover:?}");
    gateways[0].signal("-CONT");
    let back = until("g1");
    println!("back to it: {:.1} s", back.as_secs_f64());
    assert!(
        back > Duration::from_secs(5),
        "it is taken back before it has proved itself: {back:?}"
    );
}
