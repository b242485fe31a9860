//! What WireGuard in this process costs: bytes through it against Debian's wireguard-go and against a
//! bare cable, and how long one peer's change takes among 10 and among 1,000.
//!
//! `cargo bench -p wireguard -- [PAIRS] [MEGABYTES]`, as root.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bench::Table;
use ipnet::IpNet;
use kernel::netns::Namespace;
use testkit::{Host, Sandbox};
use wireguard::{Implementation, Peer, Peers, PrivateKey, PublicKey, Tunnel, TunnelConfig};

const PORT: u16 = 51820;
const CHANGES: usize = 200;
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let mut number = |or: usize| args.next().map_or(or, |text| text.parse().unwrap());
    let (pairs, bytes) = (number(5), number(256) << 20);
    for need in [testkit::need::netns, testkit::need::tun, testkit::need::wireguard] {
        if let Err(why) = need() {
            eprintln!("cannot measure: {why}");
            return ExitCode::from(2);
        }
    }
    let mut table = Table::new("wireguard");
    throughput(&mut table, pairs, bytes);
    changes(&mut table, pairs);
    table.finish()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn outside(i: usize) -> IpAddr {
    IpAddr::from([192, 0, 2, 1 + i as u8])
}

/// Where a host is reached through the tunnel.
fn inside(i: usize) -> IpAddr {
    IpAddr::from([10, 64, i as u8, 1])
}

/// Two hosts with a cable.
struct Two {
    _sandbox: Sandbox,
    hosts: [Host; 2],
    namespaces: [Arc<Namespace>; 2],
}

impl Two {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let hosts = ["a", "b"].map(|name| sandbox.host(name));
        sandbox.link((&hosts[0], "192.0.2.1/24"), (&hosts[1], "192.0.2.2/24"));
        let open = |i: usize| Arc::new(Namespace::open(hosts[i].netns()).unwrap());
        Self { namespaces: [open(0), open(1)], _sandbox: sandbox, hosts }
    }

    /// Sends from the first to the second, and returns bytes a second.
    fn send(&self, to: IpAddr, bytes: usize) -> f64 {
        let listener = self.namespaces[1].run_in(|| TcpListener::bind((to, 0))).unwrap().unwrap();
        let to: SocketAddr = listener.local_addr().unwrap();
        let sink = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = vec![0; 256 << 10];
            while stream.read(&mut buffer).unwrap() > 0 {}
        });
        let stream = self.namespaces[0].run_in(|| TcpStream::connect_timeout(&to, PATIENCE));
        let mut stream = stream.unwrap().unwrap();
        let buffer = vec![7; 256 << 10];
        let began = Instant::now();
        for _ in 0..bytes / buffer.len() {
            stream.write_all(&buffer).unwrap();
        }
        drop(stream);
        sink.join().unwrap();
        bytes as f64 / began.elapsed().as_secs_f64()
    }

    fn ours(&self) -> [Tunnel; 2] {
        let mut tunnels = [0, 1].map(|i: usize| {
            let config = TunnelConfig {
                addresses: vec![inside(i).into()],
                implementation: Some(Implementation::Userspace),
                ..TunnelConfig::new(format!("fb{i}{}", std::process::id()), PORT)
            };
            Tunnel::open(&self.namespaces[i], config, &PrivateKey::generate().unwrap()).unwrap()
        });
        let keys = [0, 1].map(|i: usize| tunnels[i].public_key());
        for (i, tunnel) in tunnels.iter_mut().enumerate() {
            let peer = Peer {
                allowed_ips: vec![inside(1 - i).into()],
                endpoint: Some((outside(1 - i), PORT).into()),
                ..Peer::default()
            };
            tunnel.set_peers([(keys[1 - i], peer)].into()).unwrap();
        }
        tunnels
    }

    fn theirs(&self) -> [WireguardGo; 2] {
        let keys = [0, 1].map(|_| PrivateKey::generate().unwrap());
        [0, 1].map(|i: usize| WireguardGo::start(&self.hosts[i], i, &keys))
    }
}

/// Killed when it is dropped.
struct WireguardGo {
    child: Child,
    socket: String,
}

impl WireguardGo {
    fn start(host: &Host, i: usize, keys: &[PrivateKey; 2]) -> Self {
        let name = format!("gb{i}{}", std::process::id());
        let mut command = host.command("wireguard-go");
        command.args(["-f", &name]).env("LOG_LEVEL", "error");
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let started = Self { child, socket: format!("/var/run/wireguard/{name}.sock") };
        let end = Instant::now() + PATIENCE;
        while !std::fs::exists(&started.socket).unwrap() {
            assert!(Instant::now() < end, "wireguard-go does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), keys[i].to_base64()).unwrap();
        let (key, to) = (keys[1 - i].public().to_string(), format!("{}/32", inside(1 - i)));
        let (port, endpoint) = (PORT.to_string(), format!("{}:{PORT}", outside(1 - i)));
        let own = ["listen-port", &port];
        let peer = ["peer", &key, "allowed-ips", &to, "endpoint", &endpoint];
        let mut wg = Command::new("wg");
        run(wg.args(["set", &name, "private-key"]).arg(file.path()).args(own).args(peer));
        let own = format!("{}/32", inside(i));
        for args in [
            &["address", "add", &own, "dev", &name][..],
            &["link", "set", "up", "dev", &name, "mtu", "1420"],
            &["route", "add", &to, "dev", &name],
        ] {
            run(host.command("ip").args(args));
        }
        started
    }
}

impl Drop for WireguardGo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn throughput(table: &mut Table, pairs: usize, bytes: usize) {
    let (mut ours, mut theirs, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..pairs {
        let two = Two::new();
        bare.push(two.send(outside(1), bytes));
        let tunnels = two.ours();
        ours.push(two.send(inside(1), bytes));
        drop(tunnels);
        let two = Two::new();
        let processes = two.theirs();
        theirs.push(two.send(inside(1), bytes));
        drop(processes);
    }
    let (ours, theirs, bare) = (median(ours), median(theirs), median(bare));
    let rivals = [("Debian's wireguard-go", theirs), ("a bare veth", bare)];
    table.row("TCP through WireGuard in the process, one stream", "B/s", ours, &rivals);
}

/// How long one peer's change of networks takes among so many, in nanoseconds.
fn change_among(peers: usize, namespace: &Arc<Namespace>) -> f64 {
    let config = TunnelConfig {
        implementation: Some(Implementation::Userspace),
        ..TunnelConfig::new(format!("fb{}", std::process::id()), 0)
    };
    let mut tunnel = Tunnel::open(namespace, config, &PrivateKey::generate().unwrap()).unwrap();
    let key = |at: usize| {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&(at as u64 + 1).to_ne_bytes());
        PublicKey(key)
    };
    let network = |at: usize, block: u16| -> IpNet {
        format!("10.{}.{}.{}/27", 64 + at / 256, at % 256, 32 * block).parse().unwrap()
    };
    let peer = |at: usize| {
        let allowed_ips = (0..3).map(|block| network(at, block)).collect();
        (key(at), Peer { allowed_ips, ..Peer::default() })
    };
    let mut wanted: Peers = (0..peers).map(peer).collect();
    tunnel.set_peers(wanted.clone()).unwrap();
    let mut times = Vec::with_capacity(CHANGES);
    for round in 0..CHANGES {
        let one = wanted.get_mut(&key(peers / 2)).unwrap();
        one.allowed_ips[2] = network(peers / 2, if round % 2 == 0 { 3 } else { 2 });
        let now = wanted.clone();
        let began = Instant::now();
        tunnel.set_peers(now).unwrap();
        times.push(began.elapsed().as_nanos() as f64);
    }
    tunnel.close().unwrap();
    median(times)
}

fn changes(table: &mut Table, pairs: usize) {
    let namespace = Arc::new(Namespace::create().unwrap());
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        few.push(change_among(10, &namespace));
        many.push(change_among(1_000, &namespace));
    }
    let (few, many) = (median(few), median(many));
    table.row("one peer's change among 1,000 peers", "ns", many, &[("among 10", few)]);
}
