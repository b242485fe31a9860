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
use objects::kinds::{
    WireguardEndpoint, WireguardHost, WireguardPeer, WireguardPeerSpec, WireguardWithin,
};
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
            preshared_keys: None,
            mesh: true,
            cluster: None,
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
        let spec = |(other, network): &(&Self, &str)| {
            let at = other.outside.to_string();
            (other.name, other.peer(&at, &network.split(',').collect::<Vec<_>>(), None))
        };
        self.has(others.iter().map(spec).collect());
    }

    /// This node as a peer that is reached at an address.
    fn peer(
        &self,
        at: &str,
        networks: &[&str],
        within: Option<WireguardWithin>,
    ) -> WireguardPeerSpec {
        let host = WireguardHost { ip: Some(at.to_owned()), dns: None };
        WireguardPeerSpec {
            allowed_ips: networks.iter().map(|it| (*it).to_owned()).collect(),
            endpoint: Some(WireguardEndpoint { dns_or_ip: host, port: PORT }),
            persistent_keepalive: 0,
            public_key: self.key.public().to_string(),
            within,
            ..WireguardPeerSpec::default()
        }
    }

    /// Gives it objects. Its agent must not run.
    fn has(&self, peers: Vec<(&str, WireguardPeerSpec)>) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let tasks = Tasks::new("store");
            let store = self.dir.path().join(self.name).join("store");
            let objects = Objects::embedded(&store, &tasks).unwrap();
            for (name, spec) in peers {
                let (peer, soon) = (WireguardPeer::new(name, spec), Deadline::after(PATIENCE));
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

/// Three clusters: one of three nodes, of which two are gateways, and two of one node each.
struct Clusters {
    gateways: [Node; 2],
    node: Node,
    others: [Node; 2],
}

/// The nodes of the first cluster share a network, and have routes to each other's pods as a pod network
/// makes them. The third one has no tunnel to another cluster. Reverse path filtering is strict.
fn with_gateways(sandbox: &Sandbox, router: &Host) -> Clusters {
    let node = |(i, name)| Node::new(sandbox, router, i, name);
    let gateways = [(0, "g1"), (1, "g2")].map(node);
    let [b, c] = [(3, "b"), (4, "c")].map(node);
    let n = node((2, "n"));
    let [g1, g2] = &gateways;
    let switch = sandbox.host("s");
    run(switch.command("ip").args(["link", "add", "lan", "up", "type", "bridge"]));
    for (node, at) in [(g1, 1), (g2, 2), (&n, 3)] {
        let (here, there) = (format!("192.168.1.{at}/24"), format!("198.18.0.{at}/32"));
        sandbox.link((&node.host, &here), (&switch, &there));
        run(switch.command("ip").args(["link", "set", "dev", node.name, "master", "lan"]));
    }
    let pods = [
        (g1, "10.1.1.1", &[("10.1.3.0/24", "192.168.1.3"), ("10.1.2.0/24", "192.168.1.2")][..]),
        (g2, "10.1.2.1", &[("10.1.3.0/24", "192.168.1.3"), ("10.1.1.0/24", "192.168.1.1")]),
        (&n, "10.1.3.1", &[("10.1.1.0/24", "192.168.1.1"), ("10.1.2.0/24", "192.168.1.2")]),
        (&b, "10.2.1.1", &[]),
        (&c, "10.3.1.1", &[]),
    ];
    for (node, pod, routes) in pods {
        node.has_address(&format!("{pod}/32"));
        let strict = ["net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=1"];
        run(node.host.command("sysctl").args(["-q", "-w"]).args(strict));
        for (to, via) in routes {
            run(node.host.command("ip").args(["route", "add", to, "via", via]));
        }
    }
    let within = |gateway, networks: &[&str]| {
        let networks = networks.iter().map(|it| (*it).to_owned()).collect();
        Some(WireguardWithin { gateway, networks })
    };
    let out = |node: &Node, networks: &[&str]| node.peer(&node.outside.to_string(), networks, None);
    let own = || {
        vec![
            ("m--a--g1", g1.peer("192.168.1.1", &[], within(true, &["10.1.1.0/24"]))),
            ("m--a--g2", g2.peer("192.168.1.2", &[], within(true, &["10.1.2.0/24"]))),
            ("m--a--n", n.peer("192.168.1.3", &[], within(false, &["10.1.3.0/24"]))),
        ]
    };
    let as_b = || ("m--b--b", out(&b, &["10.2.1.0/24", "10.2.0.0/16"]));
    let as_c = || ("m--c--c", out(&c, &["10.3.1.0/24", "10.3.0.0/16"]));
    for node in [g1, g2, &n] {
        node.has(own().into_iter().chain([as_b(), as_c()]).collect());
    }
    let of_a = || {
        let one = out(g1, &["10.1.1.0/24", "10.1.0.0/16"]);
        vec![("m--a--g1", one), ("m--a--g2", out(g2, &["10.1.2.0/24", "10.1.0.0/16"]))]
    };
    b.has(of_a().into_iter().chain([as_c()]).collect());
    c.has(of_a().into_iter().chain([as_b()]).collect());
    Clusters { gateways, node: n, others: [b, c] }
}

/// Says back datagrams at the address of a node's pod.
fn echoes(node: &Node, at: &str) {
    let socket = node.udp(at);
    socket.set_read_timeout(None).unwrap();
    thread::spawn(move || {
        let mut said = [0; 100];
        while let Ok((length, from)) = socket.recv_from(&mut said) {
            let _ = socket.send_to(&said[..length], from);
        }
    });
}

/// How long it takes until a datagram comes back five times in a row, all sent after this was called.
fn until_answered(socket: &UdpSocket, to: &str) -> Duration {
    let (began, mut number, mut in_a_row, mut first) = (Instant::now(), 0u64, 0, Duration::ZERO);
    eventually(to, || {
        number += 1;
        let _ = socket.send_to(&number.to_ne_bytes(), to);
        // Late answers to what was sent before are passed over.
        let (mut said, mut is_answer) = ([0; 8], false);
        while !is_answer && socket.recv_from(&mut said).is_ok() {
            is_answer = said == number.to_ne_bytes();
        }
        if is_answer && in_a_row == 0 {
            first = began.elapsed();
        }
        in_a_row = if is_answer { in_a_row + 1 } else { 0 };
        (in_a_row == 5).then_some(())
    });
    first
}

#[test]
fn nodes_send_through_their_clusters_gateways_and_pass_over_one_that_is_cut_off_or_frozen() {
    be_an_agent_if_asked();
    testkit::requires!(netns, tun, nft);
    let test =
        "nodes_send_through_their_clusters_gateways_and_pass_over_one_that_is_cut_off_or_frozen";
    let sandbox = Sandbox::new();
    let router = watching_router(&sandbox);
    let Clusters { mut gateways, mut node, mut others } = with_gateways(&sandbox, &router);
    for one in gateways.iter_mut().chain([&mut node]).chain(&mut others) {
        one.start(test);
    }
    for (node, at) in [
        (&node, "10.1.3.1:7"),
        (&gateways[1], "10.1.2.1:7"),
        (&others[0], "10.2.1.1:7"),
        (&others[1], "10.3.1.1:7"),
    ] {
        echoes(node, at);
    }
    let way = |of: &Node, to: &str| run(of.host.command("ip").args(["route", "show", to]));
    let leads = |of: &Node, to: &str, how: &str| {
        eventually(&format!("{to} of {} leads {how}", of.name), || {
            way(of, to).lines().next()?.contains(how).then_some(())
        });
    };
    let (from_n, from_c) = (node.udp("10.1.3.1:0"), others[1].udp("10.3.1.1:0"));
    for socket in [&from_n, &from_c] {
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    }
    for to in ["10.2.1.1:7", "10.3.1.1:7"] {
        until_answered(&from_n, to);
    }
    // To a node without a tunnel, to a gateway's own pod, and between the two others.
    for to in ["10.1.3.1:7", "10.1.2.1:7", "10.2.1.1:7"] {
        until_answered(&from_c, to);
    }
    leads(&node, "10.2.0.0/16", "via 192.168.1.1");
    let clear = clear_packets(&router);

    // The first gateway is cut off from other clusters, not from its own nodes: it sends on.
    let outside = gateways[0].outside;
    let cut = format!(
        "add table ip cut; add chain ip cut drops {{ type filter hook forward priority 0; }}; \
         add rule ip cut drops ip daddr {outside} drop; add rule ip cut drops ip saddr {outside} drop"
    );
    run(router.command("nft").arg(cut));
    let cut_off = until_answered(&from_n, "10.2.1.1:7");
    leads(&gateways[0], "10.2.0.0/16", "via 192.168.1.2");
    assert!(way(&node, "10.2.0.0/16").contains("via 192.168.1.1"), "the node knows nothing of it");
    until_answered(&from_c, "10.1.3.1:7");
    run(router.command("nft").args(["delete", "table", "ip", "cut"]));
    leads(&gateways[0], "10.2.0.0/16", "dev fl");
    leads(&others[0], "10.1.0.0/16", "dev fl");
    until_answered(&from_n, "10.2.1.1:7");

    // It is frozen: its node is as ready as before.
    gateways[0].signal("-STOP");
    let frozen = until_answered(&from_n, "10.2.1.1:7");
    leads(&node, "10.2.0.0/16", "via 192.168.1.2");
    let other_way = until_answered(&from_c, "10.1.3.1:7");
    println!(
        "cut off {:.1} s, frozen {:.1} s, then from elsewhere {:.1} s",
        cut_off.as_secs_f64(),
        frozen.as_secs_f64(),
        other_way.as_secs_f64()
    );
    for took in [cut_off, frozen] {
        assert!(took > Duration::from_millis(500), "nothing was in its way: {took:?}");
        assert!(took < Duration::from_secs(30), "{took:?}");
    }
    gateways[0].signal("-CONT");
    leads(&node, "10.2.0.0/16", "via 192.168.1.1");
    until_answered(&from_n, "10.2.1.1:7");
    assert_eq!(clear_packets(&router), clear, "packets left in clear text");
    // Both gateways are gone: packets are refused.
    for gateway in &mut gateways {
        gateway.kill();
    }
    node.kill();
    for to in ["192.168.1.1", "192.168.1.2"] {
        run(node.host.command("ip").args(["route", "flush", "proto", "118", "via", to]));
    }
    let refused = from_n.send_to(b"secret", "10.2.1.1:7").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::HostUnreachable, "{refused}");
}
