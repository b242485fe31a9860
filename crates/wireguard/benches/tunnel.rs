//! What WireGuard in this process costs: bytes through it, by the clock and in CPU time, against Debian's
//! wireguard-go and against a bare cable; how long one peer's change takes among 10 and among 1,000; how long
//! packets take while peers change.
//!
//! `cargo bench -p wireguard -- [PAIRS] [MEGABYTES]`, as root.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::Table;
use ipnet::IpNet;
use kernel::netns::Namespace;
use testkit::{Host, Sandbox};
use wireguard::{Implementation, Peer, Peers, PrivateKey, PublicKey, Tunnel, TunnelConfig};

const PORT: u16 = 51820;
/// So many changes are timed, and at least so many are made while packets pass.
const CHANGES: usize = 1_000;
const ROUND_TRIPS: usize = 2_000;
/// The kernel counts CPU time in hundredths of a second.
const TICK: f64 = 1e7;
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
    delay(&mut table, pairs);
    table.finish()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The CPU time that a process has used, in nanoseconds.
fn cpu_time(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // Behind the name, which may have anything in it.
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap() * TICK).sum()
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

    /// Sends from the first to the second, and returns bytes a second, and nanoseconds of CPU time for a
    /// kilobyte: of this process and of others.
    fn send(&self, to: IpAddr, bytes: usize, others: &[u32]) -> (f64, f64) {
        let processes: Vec<_> = others.iter().copied().chain([std::process::id()]).collect();
        let worked = || processes.iter().map(|it| cpu_time(*it)).sum::<f64>();
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
        let (began, before) = (Instant::now(), worked());
        for _ in 0..bytes / buffer.len() {
            stream.write_all(&buffer).unwrap();
        }
        drop(stream);
        sink.join().unwrap();
        let kilobytes = bytes as f64 / 1e3;
        (bytes as f64 / began.elapsed().as_secs_f64(), (worked() - before) / kilobytes)
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
        while UnixStream::connect(&started.socket).is_err() {
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
        bare.push(two.send(outside(1), bytes, &[]));
        let tunnels = two.ours();
        ours.push(two.send(inside(1), bytes, &[]));
        drop(tunnels);
        let two = Two::new();
        let processes = two.theirs();
        let others = processes.each_ref().map(|it| it.child.id());
        theirs.push(two.send(inside(1), bytes, &others));
        drop(processes);
    }
    let by = |figures: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| {
        median(figures.iter().map(of).collect())
    };
    let of_all = |of| [&ours, &theirs, &bare].map(|figures| by(figures, of));
    let [us, them, cable] = of_all(|it| it.0);
    let rivals = [("Debian's wireguard-go", them), ("a bare veth", cable)];
    table.row("TCP through WireGuard in the process, one stream", "B/s", us, &rivals);
    table.must("at least 2 times wireguard-go", us >= 2.0 * them);
    let [us, them, cable] = of_all(|it| it.1);
    let rivals = [("Debian's wireguard-go", them), ("a bare veth", cable)];
    table.row("its CPU time for a kilobyte, both ends and TCP", "ns", us, &rivals);
    table.must("at most half of wireguard-go's", us <= 0.5 * them);
}

fn key(at: usize) -> PublicKey {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&(at as u64 + 1).to_ne_bytes());
    PublicKey(key)
}

/// One of eight networks that only this peer has.
fn network(at: usize, block: usize) -> IpNet {
    format!("10.{}.{}.{}/27", 96 + at / 256, at % 256, 32 * block).parse().unwrap()
}

fn many(peers: usize) -> Peers {
    let peer = |at: usize| {
        let allowed_ips = (0..3).map(|block| network(at, block)).collect();
        (key(at), Peer { allowed_ips, ..Peer::default() })
    };
    (0..peers).map(peer).collect()
}

/// A peer whose third network is another one each time.
fn changed(peers: &Peers, at: usize, round: usize) -> (PublicKey, Peer) {
    let mut one = peers[&key(at)].clone();
    one.allowed_ips[2] = network(at, 3 + round % 4);
    (key(at), one)
}

/// How long one peer's change of networks takes among so many, in nanoseconds: said as a change, and by saying
/// all peers anew.
fn change_among(peers: usize, namespace: &Arc<Namespace>) -> (f64, f64) {
    let config = TunnelConfig {
        implementation: Some(Implementation::Userspace),
        ..TunnelConfig::new(format!("fb{}", std::process::id()), 0)
    };
    let mut tunnel = Tunnel::open(namespace, config, &PrivateKey::generate().unwrap()).unwrap();
    let mut wanted = many(peers);
    tunnel.set_peers(wanted.clone()).unwrap();
    let (mut singly, mut wholly) = (Vec::new(), Vec::new());
    for round in 0..CHANGES {
        // Each in its turn, as nodes change.
        let (key, one) = changed(&wanted, round % peers, 2 * round);
        wanted.insert(key, one.clone());
        let began = Instant::now();
        tunnel.change_peers([(key, Some(one))].into()).unwrap();
        singly.push(began.elapsed().as_nanos() as f64);
        let (key, one) = changed(&wanted, round % peers, 2 * round + 1);
        wanted.insert(key, one);
        let all = wanted.clone();
        let began = Instant::now();
        tunnel.set_peers(all).unwrap();
        wholly.push(began.elapsed().as_nanos() as f64);
    }
    tunnel.close().unwrap();
    (median(singly), median(wholly))
}

fn changes(table: &mut Table, pairs: usize) {
    let namespace = Arc::new(Namespace::create().unwrap());
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        few.push(change_among(10, &namespace));
        many.push(change_among(1_000, &namespace));
    }
    let by = |figures: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| {
        median(figures.iter().map(of).collect())
    };
    let (ten, thousand) = (by(&few, |it| it.0), by(&many, |it| it.0));
    table.row("one peer's change among 1,000 peers", "ns", thousand, &[("among 10", ten)]);
    table.must("at most 1.5 times that among 10", thousand <= 1.5 * ten);
    let (ten, thousand) = (by(&few, |it| it.1), by(&many, |it| it.1));
    let rivals = [("among 10", ten)];
    table.row("one peer's change among 1,000, all peers said anew", "ns", thousand, &rivals);
}

/// How long packets take to the other end and back, in nanoseconds: in the middle, and 99 of 100.
fn round_trips(two: &Two) -> (f64, f64) {
    let [here, there] = [0, 1].map(|i: usize| {
        let bound = two.namespaces[i].run_in(|| UdpSocket::bind((inside(i), 0))).unwrap();
        let socket = bound.unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    });
    let to = there.local_addr().unwrap();
    let echo = thread::spawn(move || {
        let mut packet = [0; 64];
        for _ in 0..ROUND_TRIPS {
            let (length, from) = there.recv_from(&mut packet).unwrap();
            there.send_to(&packet[..length], from).unwrap();
        }
    });
    let mut times: Vec<_> = (0..ROUND_TRIPS)
        .map(|_| {
            let began = Instant::now();
            here.send_to(&[7; 64], to).unwrap();
            here.recv(&mut [0; 64]).unwrap();
            began.elapsed().as_nanos() as f64
        })
        .collect();
    echo.join().unwrap();
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

/// Packets while one of 1,000 peers after the other changes without a pause, against packets while none does but
/// a thread works as much.
fn delay(table: &mut Table, pairs: usize) {
    let (mut quiet, mut busy) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        let two = Two::new();
        let [mut first, second] = two.ours();
        let others = many(1_000);
        first
            .change_peers(others.clone().into_iter().map(|(key, it)| (key, Some(it))).collect())
            .unwrap();
        // The first packets open the session.
        round_trips(&two);
        let stop = AtomicBool::new(false);
        let elsewhere = Arc::new(Namespace::create().unwrap());
        let config = TunnelConfig {
            implementation: Some(Implementation::Userspace),
            ..TunnelConfig::new(format!("fc{}", std::process::id()), 0)
        };
        let key = PrivateKey::generate().unwrap();
        let mut third = Tunnel::open(&elsewhere, config, &key).unwrap();
        third.set_peers(others.clone()).unwrap();
        for (tunnel, figures) in [(&mut third, &mut quiet), (&mut first, &mut busy)] {
            stop.store(false, Ordering::Relaxed);
            thread::scope(|scope| {
                let changing = scope.spawn(|| {
                    let mut round = 0;
                    while round < CHANGES || !stop.load(Ordering::Relaxed) {
                        let (key, one) = changed(&others, round % 1_000, round);
                        tunnel.change_peers([(key, Some(one))].into()).unwrap();
                        round += 1;
                    }
                });
                figures.push(round_trips(&two));
                stop.store(true, Ordering::Relaxed);
                changing.join().unwrap();
            });
        }
        drop((first, second));
    }
    let of = |figures: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| {
        median(figures.iter().map(of).collect())
    };
    let (own, other) = (of(&busy, |it| it.0), of(&quiet, |it| it.0));
    let what = "a packet's way and back while peers of its interface change";
    table.row(what, "ns", own, &[("while those of another interface change", other)]);
    table.must("at most 1.5 times that of another interface's", own <= 1.5 * other);
    let (own, other) = (of(&busy, |it| it.1), of(&quiet, |it| it.1));
    let what = "the slowest of 100 packets, likewise";
    table.row(what, "ns", own, &[("while those of another interface change", other)]);
}
