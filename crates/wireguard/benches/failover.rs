//! How soon a gateway that falls silent is passed over, as a node that sends through it sees it. Its agent runs
//! on and its Node stays `Ready`: a firewall on the way drops whatever is for it.
//!
//! `cargo bench -p wireguard --bench failover -- [ROUNDS]`, as root.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bench::Table;
use kernel::netns::Namespace;
use objects::kinds::{
    WireguardEndpoint, WireguardHost, WireguardNode, WireguardPathState, WireguardPeer,
    WireguardPeerSpec,
};
use objects::{Expected, Id, Objects};
use stallproof::{Deadline, Ledger, Tasks};
use testkit::{Host, Sandbox};
use wireguard::agent::{self, AgentConfig};
use wireguard::{Implementation, TunnelConfig};

const PORT: u16 = 51820;
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two questions of who is there: as finely as a failover is timed.
const ASKED_EVERY: Duration = Duration::from_millis(20);
const SERVICE: &str = "10.2.0.1:7";
const NODES: [&str; 3] = ["a", "g1", "g2"];

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let rounds = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let rounds = rounds.map_or(3, |text| text.parse().unwrap());
    for need in [testkit::need::netns, testkit::need::tun, testkit::need::nft] {
        if let Err(why) = need() {
            eprintln!("cannot measure: {why}");
            return ExitCode::from(2);
        }
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut times = runtime.block_on(failovers(rounds));
    times.sort_by(f64::total_cmp);
    let mut table = Table::new("failover");
    let (middle, last) = (times[times.len() / 2], times[times.len() - 1]);
    table.row("a gateway falls silent: another carries after", "ns", middle, &[]);
    table.row("the slowest of these", "ns", last, &[]);
    table.must("5 s at most", last <= 5e9);
    table.finish()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// A node behind the router with its agent, and a store of its cluster's objects.
struct Node {
    name: &'static str,
    host: Host,
    outside: String,
    namespace: Arc<Namespace>,
    objects: Objects,
    _dir: tempfile::TempDir,
}

impl Node {
    fn start(sandbox: &Sandbox, router: &Host, i: usize, tasks: &Tasks) -> Self {
        let name = NODES[i];
        let host = sandbox.host(name);
        let [outside, gate] = [1, 2].map(|last| format!("192.0.2.{}", 4 * i + last));
        sandbox.link((&host, &format!("{outside}/30")), (router, &format!("{gate}/30")));
        run(host.command("ip").args(["route", "add", "default", "via", &gate]));
        let namespace = Arc::new(Namespace::open(host.netns()).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let objects = Objects::embedded(&dir.path().join("store"), tasks).unwrap();
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
            preshared_keys: None,
            mesh: true,
            cluster: None,
        };
        agent::start(config, Arc::clone(&namespace), objects.clone(), &Ledger::default(), tasks);
        Self { name, host, outside, namespace, objects, _dir: dir }
    }

    fn has_address(&self, address: &str) {
        run(self.host.command("ip").args(["address", "add", address, "dev", "lo"]));
    }

    async fn node(&self) -> Option<WireguardNode> {
        self.objects.get(&Id::cluster(self.name), soon()).await.unwrap()
    }

    /// Makes another node a peer that is sent this network.
    async fn knows(&self, other: &Self, network: &str) {
        let said = async || Some(other.node().await?.spec.public_key);
        let host = WireguardHost { ip: Some(other.outside.clone()), dns: None };
        let spec = WireguardPeerSpec {
            allowed_ips: vec![network.to_owned()],
            endpoint: Some(WireguardEndpoint { dns_or_ip: host, port: PORT }),
            public_key: eventually("the node says its key", said).await,
            ..WireguardPeerSpec::default()
        };
        let peer = WireguardPeer::new(other.name, spec);
        self.objects.apply(&peer, Expected::Any, soon()).await.unwrap();
    }

    /// Whether both gateways answer it, and the first carries.
    async fn is_settled(&self) -> Option<()> {
        let tunnels = self.node().await?.status?.tunnels;
        let is_well = |name: &str, carries| {
            let tunnel = tunnels.iter().find(|tunnel| tunnel.peer == name);
            tunnel
                .is_some_and(|it| it.state == WireguardPathState::Up && it.carries == Some(carries))
        };
        (is_well("g1", true) && is_well("g2", false)).then_some(())
    }
}

async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(ASKED_EVERY).await;
    }
}

/// How long each failover takes, in nanoseconds.
async fn failovers(rounds: usize) -> Vec<f64> {
    let (sandbox, tasks) = (Sandbox::new(), Tasks::new("bench"));
    let router = sandbox.host("r");
    run(router.command("sysctl").args(["-q", "-w", "net.ipv4.ip_forward=1"]));
    let nodes = [0, 1, 2].map(|i| Node::start(&sandbox, &router, i, &tasks));
    let [a, gateways @ ..] = &nodes;
    let service: SocketAddr = SERVICE.parse().unwrap();
    a.has_address("10.1.0.1/32");
    for gateway in gateways {
        // Both carry the same networks.
        gateway.has_address("10.2.0.1/32");
        gateway.knows(a, "10.1.0.0/16").await;
        a.knows(gateway, "10.2.0.0/16").await;
        let name = gateway.name;
        let socket = gateway.namespace.run_in(|| UdpSocket::bind(service)).unwrap().unwrap();
        thread::spawn(move || {
            while let Ok((_, from)) = socket.recv_from(&mut [0; 100]) {
                let _ = socket.send_to(name.as_bytes(), from);
            }
        });
    }
    let socket = a.namespace.run_in(|| UdpSocket::bind("10.1.0.1:0")).unwrap().unwrap();
    socket.set_nonblocking(true).unwrap();
    let answers = async |name: &str| {
        // Refused while no way is known.
        let _ = socket.send_to(b"who", service);
        let mut said = [0; 100];
        let mut is_it = false;
        while let Ok((length, _)) = socket.recv_from(&mut said) {
            is_it |= said[..length] == *name.as_bytes();
        }
        is_it.then_some(())
    };
    let silence = format!(
        "add table ip silence; add chain ip silence drops {{ type filter hook forward priority 0; }}; \
         add rule ip silence drops ip daddr {0} drop; add rule ip silence drops ip saddr {0} drop",
        gateways[0].outside
    );
    let mut times = Vec::new();
    for _ in 0..rounds {
        eventually("both gateways answer, and the first carries", async || a.is_settled().await)
            .await;
        eventually("g1", async || answers("g1").await).await;
        run(router.command("nft").arg(&silence));
        let began = Instant::now();
        eventually("g2", async || answers("g2").await).await;
        times.push(began.elapsed().as_nanos() as f64);
        run(router.command("nft").args(["delete", "table", "ip", "silence"]));
    }
    tasks.shutdown(PATIENCE).await;
    drop(nodes);
    times
}
