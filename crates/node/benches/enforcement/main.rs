//! What policies cost: CPU time of a forwarded packet and of a new connection, against no rules, against
//! a hundred plain rules and against a program that decides in user space (NFQUEUE); one pod's change
//! against making everything anew; wiring a pod with policies against without; how soon a revoked
//! connection ends.
//!
//! The kernel does all of a packet's way in the thread that sends it, so that thread's CPU time is what
//! is measured; of connections and of wiring it is that of all threads, and the clock's beside it. Rivals
//! are measured in turn. Needs root, nft and iptables.
//!
//! `cargo bench -p node --bench enforcement -- packet revoked` runs the rows whose part is named: `packet`,
//! `connections`, `change`, `scale`, `revoked`, `wiring`.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

#[path = "../../tests/ground/mod.rs"]
mod ground;
mod scale;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::{Table, in_turn};
use ground::{Ground, NODE, udp};
use node::enforcement::{Enforcer, EnforcerSettings, NftDatapath};
use policy::cluster::{Key, Pod};
use policy::compile::{Change, Compiler};
use policy::program::Delta;
use policy::spec::{
    AcceptRule, NamespaceSelection, NetworkPolicy, Peer, PodSelection, PortMatch, Settings,
};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::time::ClockId;

const PACKETS: usize = 40_000;
const CONNECTIONS: usize = 1_500;
const PAIRS: usize = 7;
/// The queue that the rival decides about.
const QUEUE: u16 = 77;

/// CPU time of the calling thread.
fn cpu() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

/// CPU time of all threads.
fn all_cpu() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

fn clock(id: ClockId) -> Duration {
    let now = rustix::time::clock_gettime(id);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Bytes of memory that this process has now.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

fn address(number: usize) -> IpAddr {
    IpAddr::from((0x0a10_0000 + number as u32).to_be_bytes())
}

fn pod(key: Key, node: &str, app: &str, addresses: Vec<IpAddr>) -> Arc<Pod> {
    Arc::new(Pod {
        key,
        node: node.into(),
        labels: [("app".to_owned(), app.to_owned())].into_iter().collect(),
        addresses,
        host_network: false,
        finished: false,
        ports: vec![],
        images: vec![],
        owner: "Pod/x".into(),
        created: 0,
    })
}

/// A policy of `rules` rules: `a/db` takes packets of all pods `app=client`, of which there are `pods`
/// and `a/web`, and each rule beside that names a port and pods of its own.
fn compiler(ground: &Ground, pods: usize, rules: usize) -> Compiler {
    let mut compiler = Compiler::new(Settings::default());
    compiler.apply(Change::Namespace("a".into(), Some(Default::default())));
    for host in ground.pods() {
        compiler.apply(Change::Pod(host.key.clone(), Some(host.pod(&[]))));
    }
    for number in 0..pods {
        let key = Key::new("a", &format!("client-{number}"));
        let app =
            if rules > 1 { format!("client-{}", number % rules) } else { "client".to_owned() };
        let made = pod(key.clone(), "elsewhere", &app, vec![address(number)]);
        compiler.apply(Change::Pod(key, Some(made)));
    }
    let named = |labels: &str, port: &str| {
        let namespaces = NamespaceSelection::Named("a".into());
        let pods = PodSelection { namespaces, pods: labels.parse().unwrap() };
        let ports = vec![PortMatch::Numbers(port.parse().unwrap())];
        AcceptRule { peers: vec![Peer::Pods(pods)], ports }
    };
    let mut ingress =
        vec![named("app in (client,web)", "udp/1000"), named("app in (client,web)", "tcp/80")];
    for number in 1..rules {
        ingress.push(named(&format!("app=client-{number}"), &format!("tcp/{}", 1000 + number)));
    }
    let key = Key::new("a", "db");
    let policy = NetworkPolicy {
        key: key.clone(),
        pods: "app=db".parse().unwrap(),
        ingress: Some(ingress),
        egress: None,
    };
    compiler.apply(Change::NetworkPolicy(key, Some(Arc::new(policy))));
    compiler
}

/// Puts rules into the node; dropped, they are gone.
enum Rules {
    Nothing,
    /// Connection tracking, as any node with kube-proxy has it.
    Tracking,
    Policies(usize),
    Plain,
    Queue,
}

struct Installed<'a> {
    ground: &'a Ground,
    queue: Option<(Arc<AtomicBool>, thread::JoinHandle<()>)>,
}

fn run(command: &str) {
    let done = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
}

fn install<'a>(ground: &'a Ground, rules: &Rules) -> Installed<'a> {
    let mut queue = None;
    ground.in_node(|| match rules {
        Rules::Nothing => {}
        Rules::Tracking => run("nft 'add table inet tracking; add chain inet tracking forward \
            { type filter hook forward priority 0; }; \
            add rule inet tracking forward ct state invalid counter'"),
        Rules::Policies(pods) => {
            let program = compiler(ground, *pods, 1).program(NODE, 1);
            let datapath = NftDatapath::open().unwrap();
            Enforcer::start(datapath, EnforcerSettings::default(), Some(program), []).unwrap();
        }
        Rules::Plain => {
            let mut text = "add table inet plain\nadd chain inet plain forward \
                { type filter hook forward priority 0; }\n\
                add rule inet plain forward ct state established accept\n"
                .replace("ct state established accept", "ct direction reply accept");
            for number in 0..100 {
                let from = address(number);
                text += &format!(
                    "add rule inet plain forward ip saddr {from} ip daddr 10.0.0.2 accept\n"
                );
            }
            let mut nft = Command::new("nft")
                .args(["-f", "-"])
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            std::io::Write::write_all(nft.stdin.as_mut().unwrap(), text.as_bytes()).unwrap();
            assert!(nft.wait().unwrap().success());
        }
        Rules::Queue => {
            let stop = Arc::new(AtomicBool::new(false));
            let socket = open_queue();
            let told = Arc::clone(&stop);
            let thread = thread::spawn(move || decide(&socket, &told));
            run(&format!(
                "iptables -A FORWARD -m conntrack --ctstate NEW -j NFQUEUE --queue-num {QUEUE}"
            ));
            queue = Some((stop, thread));
        }
    });
    Installed { ground, queue }
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        self.ground.in_node(|| {
            run("iptables -F FORWARD 2>/dev/null; nft flush ruleset");
            NftDatapath::remove().unwrap();
        });
        if let Some((stop, thread)) = self.queue.take() {
            stop.store(true, Ordering::Relaxed);
            thread.join().unwrap();
        }
    }
}

/// A netlink message of `nfnetlink_queue`: kind, attribute and its value.
fn queue_message(kind: u16, flags: u16, attribute: u16, value: &[u8]) -> Vec<u8> {
    let length = 20 + (4 + value.len()).next_multiple_of(4);
    let mut out = Vec::with_capacity(length);
    out.extend((length as u32).to_ne_bytes());
    out.extend((3 << 8 | kind).to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend([0; 8]);
    out.extend([0, 0]);
    out.extend(QUEUE.to_be_bytes());
    out.extend((4 + value.len() as u16).to_ne_bytes());
    out.extend(attribute.to_ne_bytes());
    out.extend(value);
    out.resize(length, 0);
    out
}

fn open_queue() -> OwnedFd {
    let protocol = Some(rustix::net::netlink::NETFILTER);
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol,
    )
    .unwrap();
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0)).unwrap();
    let wait = Some(Duration::from_millis(50));
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, wait)
        .unwrap();
    // Bind the queue, and copy packets: what a policy looks at.
    let bind = queue_message(2, 1, 1, &[1, 0, 0, 0]);
    let copy = queue_message(2, 1, 2, &[0, 0, 0, 128, 2]);
    for message in [bind, copy] {
        rustix::net::send(&socket, &message, SendFlags::empty()).unwrap();
    }
    socket
}

/// Accepts everything, as fast as it can.
fn decide(socket: &OwnedFd, stop: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, _)) = rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) else {
            continue;
        };
        let mut rest = &buffer[..length];
        while rest.len() >= 20 {
            let size = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            if rest.len() >= 28 && rest[4..6] == (3u16 << 8).to_ne_bytes() {
                // The packet's number is the first attribute's first four bytes.
                let mut verdict = 1u32.to_be_bytes().to_vec();
                verdict.extend(&rest[24..28]);
                let message = queue_message(1, 1, 2, &verdict);
                let _ = rustix::net::send(socket, &message, SendFlags::empty());
            }
            rest = rest.get(size.next_multiple_of(4).max(20)..).unwrap_or_default();
        }
    }
}

/// CPU nanoseconds of a forwarded packet of 64 bytes.
fn packet(ground: &Ground, rules: &Rules) -> f64 {
    let _installed = install(ground, rules);
    let (web, db) = (ground.host("a/web"), ground.host("a/db"));
    let to = SocketAddr::new(db.address(false), 1000);
    let _sink = db.namespace.run_in(|| UdpSocket::bind(to)).unwrap().unwrap();
    let socket = udp(web, to).unwrap();
    for _ in 0..2_000 {
        socket.send(&[0; 36]).unwrap();
    }
    let began = cpu();
    for _ in 0..PACKETS {
        socket.send(&[0; 36]).unwrap();
    }
    (cpu() - began).as_nanos() as f64 / PACKETS as f64
}

/// New TCP connections, one after the other: so many a second, and the CPU nanoseconds of one, both of its
/// ends and whoever decides about it included.
#[derive(Clone, Copy)]
struct Connections {
    per_second: f64,
    cpu: f64,
}

fn connections(ground: &Ground, rules: &Rules) -> Connections {
    let _installed = install(ground, rules);
    let (web, db) = (ground.host("a/web"), ground.host("a/db"));
    let to = SocketAddr::new(db.address(false), 80);
    let listener = db.namespace.run_in(|| TcpListener::bind(to)).unwrap().unwrap();
    let served = thread::spawn(move || {
        for stream in listener.incoming().take(CONNECTIONS) {
            let mut stream = stream.unwrap();
            stream.write_all(b"!").unwrap();
            let _ = stream.read(&mut [0]);
        }
    });
    let (took, cpu) = web
        .namespace
        .run_in(|| {
            let (began, cpu) = (Instant::now(), all_cpu());
            for _ in 0..CONNECTIONS {
                let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(10)).unwrap();
                // Until it was accepted: a queue that is full loses connections, which nobody then accepts.
                stream.read_exact(&mut [0]).unwrap();
                // It ends by a reset: else every port would soon be waiting.
                set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
            (began.elapsed(), all_cpu() - cpu)
        })
        .unwrap();
    served.join().unwrap();
    Connections {
        per_second: CONNECTIONS as f64 / took.as_secs_f64(),
        cpu: cpu.as_nanos() as f64 / CONNECTIONS as f64,
    }
}

/// Seconds for one pod more and one less in a set of `pods`, and for making everything anew.
fn change(ground: &Ground, pods: usize) -> (f64, f64) {
    let mut compiler = compiler(ground, pods, 1);
    ground.in_node(|| {
        let program = compiler.program(NODE, 1);
        let fresh = || {
            NftDatapath::remove().unwrap();
            let datapath = NftDatapath::open().unwrap();
            let began = Instant::now();
            let settings = EnforcerSettings::default();
            let enforcer = Enforcer::start(datapath, settings, Some(program.clone()), []).unwrap();
            (enforcer, began.elapsed().as_secs_f64())
        };
        let (mut enforcer, reload) = fresh();
        let mut took: Vec<f64> = (0..200)
            .map(|number| {
                let key = Key::new("a", "one-more");
                let comes = number % 2 == 0;
                let made = pod(key.clone(), "elsewhere", "client", vec![address(0xfff0)]);
                compiler.apply(Change::Pod(key, comes.then_some(made)));
                let next = compiler.program(NODE, enforcer.program().generation + 1);
                let delta = Delta::between(enforcer.program(), &next);
                let began = Instant::now();
                enforcer.apply(&delta).unwrap();
                began.elapsed().as_secs_f64()
            })
            .collect();
        took.sort_by(f64::total_cmp);
        drop(enforcer);
        NftDatapath::remove().unwrap();
        (took[took.len() / 2], reload)
    })
}

/// Seconds from a change that denies a connection to the reset that its server sees, with so many pods in
/// the set that admitted it: the median, with the parts that it consists of.
fn revocation(ground: &Ground, pods: usize) -> f64 {
    let (web, db) = (ground.host("a/web"), ground.host("a/db"));
    let mut took: Vec<f64> = (0..PAIRS as u16)
        .map(|number| {
            let mut compiler = compiler(ground, pods, 1);
            let program = compiler.program(NODE, 1);
            let mut enforcer = ground.in_node(|| {
                let datapath = NftDatapath::open().unwrap();
                let settings = EnforcerSettings::default();
                Enforcer::start(datapath, settings, Some(program), []).unwrap()
            });
            // Begun when the kernel tracks connections: what it does not track cannot be revoked.
            let to = SocketAddr::new(db.address(false), 80);
            let listener = db.namespace.run_in(|| TcpListener::bind(to)).unwrap().unwrap();
            let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(10)).unwrap();
            let client = web.namespace.run_in(connect).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            server.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
            let key = Key::new("a", "db");
            let nobody = NetworkPolicy {
                key: key.clone(),
                pods: "app=db".parse().unwrap(),
                ingress: Some(vec![]),
                egress: None,
            };
            compiler.apply(Change::NetworkPolicy(key, Some(Arc::new(nobody))));
            let next = compiler.program(NODE, u64::from(number) + 2);
            let delta = Delta::between(enforcer.program(), &next);
            let began = Instant::now();
            let (changed, marked) = ground.in_node(|| {
                enforcer.apply(&delta).unwrap();
                let changed = began.elapsed();
                enforcer.revoke().unwrap();
                (changed, began.elapsed())
            });
            while std::io::Write::write_all(&mut server, b"late").is_ok() {
                assert!(began.elapsed() < Duration::from_secs(10), "it goes on");
            }
            let took = began.elapsed().as_secs_f64();
            eprintln!("rules changed after {changed:?}, connections marked after {marked:?}, reset after {took:.4} s");
            drop((enforcer, client));
            ground.in_node(|| NftDatapath::remove().unwrap());
            took
        })
        .collect();
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}

/// Nanoseconds for wiring a pod as ADD does, with and without policies that decide about it: by the clock,
/// and of CPU time.
fn wiring(with_policies: bool) -> (f64, f64) {
    let mut ground = Ground::new();
    let compiler = compiler(&ground, 1_000, 1);
    let program = compiler.program(NODE, 1);
    let mut enforcer = ground.in_node(|| {
        let datapath = NftDatapath::open().unwrap();
        Enforcer::start(datapath, EnforcerSettings::default(), Some(program), []).unwrap()
    });
    let pods = 20;
    let (began, cpu) = (Instant::now(), all_cpu());
    for number in 1..=pods {
        if with_policies {
            let v4 = IpAddr::from([10, 0, 0, number]);
            let v6 = format!("fd00::{number}").parse().unwrap();
            enforcer.admit("a/new", &[v4, v6]).unwrap();
        }
        ground.add(Key::new("a", &format!("new-{number}")), number, &[], true);
    }
    let each = |took: Duration| took.as_nanos() as f64 / f64::from(pods);
    (each(began.elapsed()), each(all_cpu() - cpu))
}

fn main() -> ExitCode {
    kernel::descriptors::raise_limit();
    let named: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let runs =
        |part: &str| named.is_empty() || named.iter().any(|name| part.contains(name.as_str()));
    let mut ground = Ground::new();
    ground.add(Key::new("a", "web"), 1, &[("app", "web")], true);
    ground.add(Key::new("a", "db"), 2, &[("app", "db")], true);
    let mut table = Table::new("Policies on a node");
    let many = Rules::Policies(10_000);

    if runs("packet") {
        let measured = |rules: &Rules| {
            in_turn(PAIRS, |other| packet(&ground, if other { rules } else { &many }), |it| *it)
        };
        let [ours, none] = measured(&Rules::Nothing);
        table.row("forwarded packet, policies over 10,000 pods", "ns", ours, &[("no rules", none)]);
        table.must("at most 1.25 × no rules", ours <= 1.25 * none);
        let [ours, tracking] = measured(&Rules::Tracking);
        let rivals = [("connection tracking alone", tracking)];
        table.row("forwarded packet, where connections are tracked anyway", "ns", ours, &rivals);
        let [ours, few] = measured(&Rules::Policies(100));
        table.row("forwarded packet, 10,000 pods", "ns", ours, &[("100 pods", few)]);
        table.must("at most 1.1 × 100 pods", ours <= 1.1 * few);
        let [ours, plain] = measured(&Rules::Plain);
        table.row("forwarded packet", "ns", ours, &[("100 plain rules", plain)]);
        table.must("cheaper than 100 plain rules", ours < plain);
    }

    if runs("connections") {
        let measured = |rules: &Rules| {
            let measure = |other| connections(&ground, if other { rules } else { &many });
            in_turn(PAIRS, measure, |it| it.per_second)
        };
        let [ours, none] = measured(&Rules::Nothing);
        let rate = [("no rules", none.per_second)];
        table.row("new connections, policies", "/s", ours.per_second, &rate);
        table.must("at least 0.9 × no rules", ours.per_second >= 0.9 * none.per_second);
        table.row("CPU of a new connection, policies", "ns", ours.cpu, &[("no rules", none.cpu)]);
        let added = (1.0 / ours.per_second - 1.0 / none.per_second).max(0.0);
        let [ours, queue] = measured(&Rules::Queue);
        let rate = [("NFQUEUE", queue.per_second)];
        table.row("new connections, decided in the kernel", "/s", ours.per_second, &rate);
        // The rival decides nothing: it lets all pass, and most of the time is the connection itself. What can be
        // compared is what deciding adds to it.
        let queueing = 1.0 / queue.per_second - 1.0 / ours.per_second;
        table.must("adds at most a fifth of NFQUEUE", 5.0 * added <= queueing);
        table.row("CPU of a new connection", "ns", ours.cpu, &[("NFQUEUE", queue.cpu)]);
    }

    if runs("change") {
        let (one, reload) = change(&ground, 10_000);
        table.row("one pod's change, 10,000 pods", "ns", one * 1e9, &[("all anew", reload * 1e9)]);
        table.must("at most 1 ms, 100 × faster", one <= 1e-3 && reload >= 100.0 * one);
    }

    if runs("scale") {
        scale::rows(&ground, &mut table);
    }

    if runs("revoked") {
        let few = revocation(&ground, 2);
        let ended = revocation(&ground, 10_000);
        let rivals = [("2 pods", few * 1e9), ("the goal", 1e8)];
        table.row("a revoked connection ends, 10,000 pods", "ns", ended * 1e9, &rivals);
        table.must("at most 100 ms", ended <= 0.1);
    }

    if runs("wiring") {
        let [with, without] = in_turn(PAIRS, |other| wiring(!other), |it| it.0);
        let what = "wiring a pod that policies decide about";
        table.row(what, "ns", with.0, &[("no policies", without.0)]);
        table.must("at most 1.2 × without", with.0 <= 1.2 * without.0);
        table.row(&format!("CPU of {what}"), "ns", with.1, &[("no policies", without.1)]);
    }
    table.finish()
}
