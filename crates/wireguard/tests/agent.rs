//! Agents of nodes, with the objects of their clusters in stores of their own, and real packets through
//! routers that misbehave.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kernel::netns::Namespace;
use objects::kinds::{
    WireguardEndpoint, WireguardHost, WireguardNode, WireguardNodeStatus, WireguardPathState,
    WireguardPeer, WireguardPeerSpec, WireguardTunnel,
};
use objects::{Expected, Id, Objects};
use stallproof::{Deadline, Ledger, Tasks};
use testkit::{Host, Sandbox};
use wireguard::agent::{self, AgentConfig};
use wireguard::{Implementation, PresharedKey, TunnelConfig};

const PATIENCE: Duration = Duration::from_secs(90);
const PORT: u16 = 51820;

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
}

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// A node with its agent, and a store of its cluster's objects.
struct Node {
    name: &'static str,
    host: Host,
    namespace: Arc<Namespace>,
    outside: IpAddr,
    objects: Objects,
    dir: tempfile::TempDir,
    tasks: Tasks,
}

impl Node {
    fn start(host: Host, name: &'static str, outside: &str) -> Self {
        Self::start_with(host, name, outside, None)
    }

    /// Starts a node that has these preshared keys.
    fn start_with(host: Host, name: &'static str, outside: &str, keys: Option<&str>) -> Self {
        let namespace = Arc::new(Namespace::open(host.netns()).unwrap());
        let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::new(name));
        let objects = Objects::embedded(&dir.path().join("store"), &tasks).unwrap();
        let preshared_keys = keys.map(|text| {
            let path = dir.path().join("preshared-keys");
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
            path
        });
        let config = AgentConfig {
            node: name.to_owned(),
            keys: dir.path().join("keys"),
            tunnel: TunnelConfig {
                implementation: Some(Implementation::Userspace),
                socket_directory: dir.path().to_owned(),
                probes: true,
                ..TunnelConfig::new(format!("f{name}{}", std::process::id()), PORT)
            },
            key_lifetime: None,
            announce: Duration::from_secs(5),
            preshared_keys,
            mesh: true,
            cluster: None,
        };
        let ledger = Ledger::default();
        agent::start(config, Arc::clone(&namespace), objects.clone(), &ledger, &tasks);
        let outside = outside.parse().unwrap();
        Self { name, host, namespace, outside, objects, dir, tasks }
    }

    async fn node(&self) -> Option<WireguardNode> {
        self.objects.get(&Id::cluster(self.name), soon()).await.unwrap()
    }

    async fn status(&self) -> Option<WireguardNodeStatus> {
        self.node().await?.status
    }

    async fn tunnel(&self, peer: &str) -> Option<WireguardTunnel> {
        self.status().await?.tunnels.into_iter().find(|tunnel| tunnel.peer == peer)
    }

    /// Makes another node a peer that is sent these networks.
    async fn knows(&self, other: &Self, networks: &[&str]) {
        let key = eventually("the node says its key", async || {
            other.node().await.map(|node| node.spec.public_key)
        })
        .await;
        let host = WireguardHost { ip: Some(other.outside.to_string()), dns: None };
        let spec = WireguardPeerSpec {
            allowed_ips: networks.iter().map(|it| (*it).to_owned()).collect(),
            endpoint: Some(WireguardEndpoint { dns_or_ip: host, port: PORT }),
            persistent_keepalive: 0,
            public_key: key,
            ..WireguardPeerSpec::default()
        };
        let peer = WireguardPeer::new(other.name, spec);
        self.objects.apply(&peer, Expected::Any, soon()).await.unwrap();
    }

    fn has_address(&self, address: &str) {
        run(self.host.command("ip").args(["address", "add", address, "dev", "lo"]));
    }

    /// Answers datagrams with its name.
    fn says_its_name(&self, at: SocketAddr) {
        let socket = self.namespace.run_in(|| UdpSocket::bind(at)).unwrap().unwrap();
        let name = self.name;
        thread::spawn(move || {
            while let Ok((_, from)) = socket.recv_from(&mut [0; 100]) {
                let _ = socket.send_to(name.as_bytes(), from);
            }
        });
    }
}

/// Says back what is said by TCP.
fn echo(namespace: &Namespace, at: &str) -> SocketAddr {
    let listener = namespace.run_in(|| TcpListener::bind((at, 0))).unwrap().unwrap();
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

async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A router with a cable of its own to each host: the `i`th host is 192.0.2.4i+1.
fn around(sandbox: &Sandbox, names: &[&str]) -> (Host, Vec<Host>) {
    let router = sandbox.host("r");
    run(router.command("sysctl").args(["-q", "-w", "net.ipv4.ip_forward=1"]));
    let cable = |(i, name): (usize, &&str)| {
        let host = sandbox.host(name);
        let (here, there) = (format!("192.0.2.{}/30", 4 * i + 1), format!("192.0.2.{}", 4 * i + 2));
        sandbox.link((&host, &here), (&router, &format!("{there}/30")));
        run(host.command("ip").args(["route", "add", "default", "via", &there]));
        host
    };
    let hosts = names.iter().enumerate().map(cable).collect();
    (router, hosts)
}

/// Who answers at an address, if anybody does soon.
fn who(socket: &UdpSocket, to: SocketAddr) -> Option<String> {
    // Refused while no way is known.
    let _ = socket.send_to(b"who", to);
    let mut said = [0; 100];
    loop {
        let (length, from) = socket.recv_from(&mut said).ok()?;
        // What another one answers to an earlier question may come late.
        if from == to {
            return Some(String::from_utf8_lossy(&said[..length]).into_owned());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_falls_silent_is_passed_over_within_seconds_and_taken_back() {
    testkit::requires!(netns, tun, nft);
    let sandbox = Sandbox::new();
    let (router, hosts) = around(&sandbox, &["a", "g1", "g2"]);
    let [a, g1, g2] = <[Host; 3]>::try_from(hosts).unwrap();
    let a = Node::start(a, "a", "192.0.2.1");
    let g1 = Node::start(g1, "g1", "192.0.2.5");
    let g2 = Node::start(g2, "g2", "192.0.2.9");
    a.has_address("10.1.0.1/32");
    let service: SocketAddr = "10.2.0.1:7".parse().unwrap();
    for gateway in [&g1, &g2] {
        // Both carry the same networks.
        gateway.has_address("10.2.0.1/32");
        gateway.says_its_name(service);
        gateway.knows(&a, &["10.1.0.0/16"]).await;
        a.knows(gateway, &["10.2.0.0/16"]).await;
    }
    let socket = a.namespace.run_in(|| UdpSocket::bind("10.1.0.1:0")).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let until = async |name: &str| {
        let began = Instant::now();
        eventually(name, async || (who(&socket, service)? == name).then_some(())).await;
        began.elapsed()
    };
    until("g1").await;
    eventually("both are probed, and the first carries", async || {
        let (one, two) = (a.tunnel("g1").await?, a.tunnel("g2").await?);
        let up = [&one, &two].map(|it| it.state) == [WireguardPathState::Up; 2];
        (up && one.carries == Some(true) && two.carries == Some(false)).then_some(())
    })
    .await;

    let silence = "add table ip silence; add chain ip silence drops { type filter hook forward priority 0; }; \
                   add rule ip silence drops ip daddr 192.0.2.5 drop; add rule ip silence drops ip saddr 192.0.2.5 drop";
    run(router.command("nft").arg(silence));
    let failover = until("g2").await;
    println!("failover: {:.1} s", failover.as_secs_f64());
    assert!(failover < Duration::from_secs(30), "{failover:?}");
    eventually("which way packets take is said", async || {
        let (one, two) = (a.tunnel("g1").await?, a.tunnel("g2").await?);
        let moved = one.carries == Some(false) && two.carries == Some(true);
        (moved && one.state == WireguardPathState::Down).then_some(())
    })
    .await;
    assert_eq!(a.status().await.unwrap().unreachable, 1);

    run(router.command("nft").args(["delete", "table", "ip", "silence"]));
    let back = until("g1").await;
    println!("back: {:.1} s", back.as_secs_f64());
    assert!(
        back > Duration::from_secs(5),
        "it is taken back before it has proved itself: {back:?}"
    );
    for node in [a, g1, g2] {
        node.tasks.shutdown(Duration::from_secs(5)).await;
        drop(node.dir);
    }
}

/// Sends much, and hears it all back within a time.
fn transfer(mut stream: TcpStream, within: Duration) -> bool {
    let much = vec![7u8; 1 << 20];
    stream.set_read_timeout(Some(within)).unwrap();
    stream.set_write_timeout(Some(within)).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let sent = much.clone();
    let writing = thread::spawn(move || stream.write_all(&sent).is_ok());
    let mut heard = vec![0; much.len()];
    let all = reader.read_exact(&mut heard).is_ok();
    let _ = reader.shutdown(std::net::Shutdown::Both);
    writing.join().unwrap() && all && heard == much
}

#[tokio::test(flavor = "multi_thread")]
async fn an_mtu_black_hole_is_found_and_what_is_large_goes_through() {
    testkit::requires!(netns, tun, nft);
    let sandbox = Sandbox::new();
    let (router, hosts) = around(&sandbox, &["a", "b"]);
    let [a, b] = <[Host; 2]>::try_from(hosts).unwrap();
    // A pod of each, whose network has more room than the tunnel.
    let pods = [(&a, "p", 1), (&b, "q", 2)].map(|(node, name, number)| {
        let pod = sandbox.host(name);
        let (here, there) = (format!("10.{number}.0.2/24"), format!("10.{number}.0.1"));
        sandbox.link((&pod, &here), (node, &format!("{there}/24")));
        run(pod.command("ip").args(["route", "add", "default", "via", &there]));
        run(node.command("sysctl").args(["-q", "-w", "net.ipv4.ip_forward=1"]));
        Namespace::open(pod.netns()).unwrap()
    });
    // 1,400 bytes fit to b, and nobody says so.
    run(router.command("ip").args(["link", "set", "dev", "b", "mtu", "1400"]));
    run(b.command("ip").args(["link", "set", "dev", "r", "mtu", "1400"]));
    let quiet = "add table inet quiet; add chain inet quiet out { type filter hook output priority 0; }; \
                 add rule inet quiet out icmp type destination-unreachable drop; \
                 add rule inet quiet out icmpv6 type packet-too-big drop";
    for host in [&router, &a, &b] {
        run(host.command("nft").arg(quiet));
    }
    let a = Node::start(a, "a", "192.0.2.1");
    let b = Node::start(b, "b", "192.0.2.5");
    a.knows(&b, &["10.2.0.0/16"]).await;
    b.knows(&a, &["10.1.0.0/16"]).await;
    eventually("the size that fits is found on both sides", async || {
        let (one, two) = (a.tunnel("b").await?, b.tunnel("a").await?);
        let fits = |it: &WireguardTunnel| it.mtu.is_some_and(|mtu| (1280..=1312).contains(&mtu));
        (fits(&one) && fits(&two)).then_some(())
    })
    .await;
    let to = echo(&pods[1], "10.2.0.2");
    let connect = || pods[0].run_in(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().unwrap();
    assert!(transfer(connect(), PATIENCE), "what is large does not go through");
    // Without the clamp the pod never hears that its packets are too large.
    run(a.host.command("nft").args(["delete", "table", "inet", "fairlead-mesh"]));
    run(b.host.command("nft").args(["delete", "table", "inet", "fairlead-mesh"]));
    assert!(!transfer(connect(), Duration::from_secs(3)), "nothing had to be clamped");
    for node in [a, b] {
        node.tasks.shutdown(Duration::from_secs(5)).await;
        drop(node.dir);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_not_the_preshared_key_of_the_time_does_not_connect() {
    testkit::requires!(netns, tun, nft);
    let sandbox = Sandbox::new();
    let (_router, hosts) = around(&sandbox, &["a", "b", "c"]);
    let [a, b, c] = <[Host; 3]>::try_from(hosts).unwrap();
    let [first, second] = [1, 2].map(|_| PresharedKey::generate().unwrap().to_base64());
    let changes = jiff::Timestamp::now() + Duration::from_secs(20);
    let both = format!("{first}\n{second} {changes}\n");
    let a = Node::start_with(a, "a", "192.0.2.1", Some(&both));
    let b = Node::start_with(b, "b", "192.0.2.5", Some(&both));
    let c = Node::start_with(c, "c", "192.0.2.9", Some(&second));
    a.has_address("10.1.0.1/32");
    for (other, address, network) in
        [(&b, "10.2.0.1", "10.2.0.0/16"), (&c, "10.3.0.1", "10.3.0.0/16")]
    {
        other.has_address(&format!("{address}/32"));
        other.says_its_name(SocketAddr::new(address.parse().unwrap(), 7));
        other.knows(&a, &["10.1.0.0/16"]).await;
        a.knows(other, &[network]).await;
    }
    let socket = a.namespace.run_in(|| UdpSocket::bind("10.1.0.1:0")).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (at_b, at_c) = ("10.2.0.1:7".parse().unwrap(), "10.3.0.1:7".parse().unwrap());
    eventually("b has the key of now", async || who(&socket, at_b)).await;
    let to = echo(&b.namespace, "10.2.0.1");
    let connected = || TcpStream::connect_timeout(&to, PATIENCE);
    let stream = a.namespace.run_in(connected).unwrap().unwrap();
    let before = who(&socket, at_c);
    if jiff::Timestamp::now() < changes {
        assert_eq!(before, None, "c has the key of later alone");
    }
    eventually("c has the key of later", async || who(&socket, at_c)).await;
    assert!(jiff::Timestamp::now() >= changes, "c was let in before its key's time");
    assert!(transfer(stream, PATIENCE), "a connection of before goes on");
    for node in [a, b, c] {
        node.tasks.shutdown(Duration::from_secs(5)).await;
        drop(node.dir);
    }
}
