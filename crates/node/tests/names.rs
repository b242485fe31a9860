//! Rules by domain name, with a real DNS server in a namespace of its own and real connections: what a name
//! resolves to may be reached from the moment that the pod has its answer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ground;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ground::{Ground, Host, NODE, PATIENCE, Servers};
use node::enforcement::{self, Enforcement, EnforcerSettings, PodNetwork, Settings as Enforced};
use policy::cluster::Key;
use policy::compile::{Change, Compiler};
use policy::program::{Delta, PolicyKind, TierKind};
use policy::spec::{
    Action, ActionRule, ClusterPolicy, Group, GuardGroup, GuardRule, NamespaceSelection, Peer,
    PodSelection, PortMatch, Settings,
};
use stallproof::watchdog::WatchdogLimits;
use stallproof::{Deadline, Tasks, Watchdog};
use testkit::requires;

const QUIET: Duration = Duration::from_millis(300);
/// After which a query without an answer is asked again, as every resolver does.
const ASKED_AGAIN: Duration = Duration::from_secs(5);
/// A name that this server never answers for.
const SLOW: &str = "slow.example.com";

/// A small DNS server, by UDP and TCP and by both families.
struct Dns {
    asked: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

fn name_of(query: &[u8]) -> String {
    let (mut at, mut name) = (12, String::new());
    while query[at] != 0 {
        let length = usize::from(query[at]);
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(std::str::from_utf8(&query[at + 1..=at + length]).unwrap());
        at += 1 + length;
    }
    name
}

fn query(id: u16, name: &str, v6: bool) -> Vec<u8> {
    let mut out = id.to_be_bytes().to_vec();
    out.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        out.push(label.len() as u8);
        out.extend(label.as_bytes());
    }
    out.extend([0, 0, if v6 { 28 } else { 1 }, 0, 1]);
    out
}

fn answer(query: &[u8], address: Option<IpAddr>) -> Vec<u8> {
    let mut out = query.to_vec();
    out[2] = 0x81;
    out[3] = 0x80;
    if let Some(address) = address {
        out[7] = 1;
        let (kind, data) = match address {
            IpAddr::V4(it) => (1, it.octets().to_vec()),
            IpAddr::V6(it) => (28, it.octets().to_vec()),
        };
        out.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 5, 0, data.len() as u8]);
        out.extend(data);
    }
    out
}

impl Dns {
    fn start(host: &Host, names: &[(&'static str, IpAddr)]) -> Self {
        let (asked, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let mut threads = Vec::new();
        for address in host.addresses() {
            let (udp, tcp) = host
                .namespace
                .run_in(|| {
                    let at = SocketAddr::new(address, 53);
                    (UdpSocket::bind(at).unwrap(), TcpListener::bind(at).unwrap())
                })
                .unwrap();
            let names = names.to_vec();
            let reply = move |query: &[u8]| {
                let name = name_of(query);
                let v6 = query[query.len() - 3] == 28;
                let known = names.iter().find(|(it, to)| *it == name && to.is_ipv6() == v6);
                (name != SLOW).then(|| answer(query, known.map(|(_, address)| *address)))
            };
            udp.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            tcp.set_nonblocking(true).unwrap();
            let (count, over, of_udp) = (Arc::clone(&asked), Arc::clone(&stop), reply.clone());
            threads.push(thread::spawn(move || {
                let mut buffer = [0; 1024];
                while !over.load(Ordering::Relaxed) {
                    let Ok((length, from)) = udp.recv_from(&mut buffer) else { continue };
                    count.fetch_add(1, Ordering::Relaxed);
                    if let Some(answer) = of_udp(&buffer[..length]) {
                        udp.send_to(&answer, from).unwrap();
                    }
                }
            }));
            let (count, over) = (Arc::clone(&asked), Arc::clone(&stop));
            threads.push(thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let Ok((mut stream, _)) = tcp.accept() else {
                        thread::sleep(Duration::from_millis(10));
                        continue;
                    };
                    stream.set_nonblocking(false).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    let mut length = [0; 2];
                    while stream.read_exact(&mut length).is_ok() {
                        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
                        stream.read_exact(&mut query).unwrap();
                        count.fetch_add(1, Ordering::Relaxed);
                        let Some(answer) = reply(&query) else { continue };
                        let length = (answer.len() as u16).to_be_bytes();
                        stream.write_all(&[&length[..], &answer].concat()).unwrap();
                    }
                }
            }));
        }
        Self { asked, stop, threads }
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|it| it.join().unwrap());
    }
}

/// Asks by UDP; an answer has to come from whom was asked.
fn resolve(from: &Host, server: IpAddr, name: &str, wait: Duration) -> Option<Vec<u8>> {
    let socket = ground::udp(from, SocketAddr::new(server, 53)).unwrap();
    socket.set_read_timeout(Some(wait.min(ASKED_AGAIN))).unwrap();
    let asked = query(7, name, server.is_ipv6());
    let until = Instant::now() + wait;
    let mut buffer = [0; 1024];
    loop {
        socket.send(&asked).unwrap();
        if let Ok(length) = socket.recv(&mut buffer) {
            return Some(buffer[..length].to_vec());
        }
        if Instant::now() >= until {
            return None;
        }
    }
}

fn resolve_by_tcp(from: &Host, server: IpAddr, name: &str) -> Vec<u8> {
    let connect = || TcpStream::connect_timeout(&SocketAddr::new(server, 53), PATIENCE).unwrap();
    let mut stream = from.namespace.run_in(connect).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let asked = query(9, name, server.is_ipv6());
    let length = (asked.len() as u16).to_be_bytes();
    stream.write_all(&[&length[..], &asked].concat()).unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer).unwrap();
    answer
}

fn reaches(from: &Host, to: IpAddr, passes: bool) -> bool {
    let wait = if passes { PATIENCE } else { QUIET };
    let connect = || TcpStream::connect_timeout(&SocketAddr::new(to, 80), wait).is_ok();
    from.namespace.run_in(connect).unwrap()
}

/// Sends one datagram, which nobody sends again, and waits for its echo.
fn first_packet_passes(from: &Host, to: IpAddr) -> bool {
    let socket = ground::udp(from, SocketAddr::new(to, 80)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket.send(b"first").unwrap();
    socket.recv(&mut [0; 8]).is_ok()
}

/// Pods of namespace `a` may ask DNS, and reach `*.example.com` by TCP and UDP port 80, and nothing else.
fn by_name() -> Change {
    let kind = PolicyKind::ClusterNetworkPolicy;
    let rule = |action, peers, ports: &[&str]| {
        let ports = ports.iter().map(|it| PortMatch::Numbers(it.parse().unwrap())).collect();
        ActionRule { name: None, action, peers, ports }
    };
    let names = Peer::Domains(vec!["*.example.com".into()]);
    let namespaces = NamespaceSelection::Named("a".into());
    let policy = ClusterPolicy {
        kind,
        name: "by-name".into(),
        tier: TierKind::Admin,
        priority: 1,
        subject: PodSelection { namespaces, pods: "".parse().unwrap() },
        ingress: vec![],
        egress: vec![
            rule(Action::Accept, vec![names], &["tcp/80", "udp/80"]),
            rule(Action::Accept, vec![Peer::Everyone], &["udp/53", "tcp/53"]),
            rule(Action::Deny, vec![Peer::Everyone], &[]),
        ],
    };
    Change::ClusterPolicy((kind, "by-name".into()), Some(Arc::new(policy)))
}

/// The same by guard's own groups and rules: pods of namespace `a` are in protect.
fn by_group() -> Vec<Change> {
    let group = |name: &str, mode: Option<&str>, key: &str, value: &str| {
        let criteria = [serde_json::json!({"key": key, "op": "=", "value": value})];
        let spec = serde_json::json!({"mode": mode, "criteria": criteria});
        let group = Group::new(name, &serde_json::from_value(spec).unwrap()).unwrap();
        Change::Group(name.into(), Some(Arc::new(group)))
    };
    let rule = |to: &str, ports: &[&str]| {
        let rule = GuardRule {
            name: to.into(),
            learned: false,
            priority: 5,
            from: GuardGroup::parse("shop"),
            to: GuardGroup::parse(to),
            ports: ports.iter().map(|it| it.parse().unwrap()).collect(),
            applications: Vec::new(),
            allows: true,
        };
        Change::Rule((false, to.into()), Some(Arc::new(rule)))
    };
    vec![
        group("shop", Some("protect"), "namespace", "a"),
        group("names", None, "domain", "*.example.com"),
        rule("names", &["tcp/80", "udp/80"]),
        rule("any", &["udp/53", "tcp/53"]),
    ]
}

/// Whether who reports connections knows the address by this name.
fn has_told(enforcement: &Enforcement, name: &str, address: IpAddr) -> bool {
    let all = enforcement.resolved().all();
    all.keys().any(|(known, at)| **known == *name && *at == address)
}

fn start(ground: &Ground, dir: &std::path::Path, tasks: &Tasks) -> Enforcement {
    let settings = Enforced {
        enforcer: EnforcerSettings::default(),
        network: PodNetwork::Own,
        file: dir.join("program"),
        pods: Vec::new(),
    };
    let watchdog = Watchdog::start(WatchdogLimits::default(), None);
    let runtime = tokio::runtime::Handle::current();
    ground.in_node(|| {
        let _inside = runtime.enter();
        enforcement::start(settings, &watchdog, tasks).unwrap()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_names_have_what_the_names_resolve_to() {
    requires!(netns, nft);
    let mut ground = Ground::new();
    ground.add(Key::new("a", "web"), 1, &[], true);
    for (name, number) in [("dns", 53), ("one", 1), ("two", 200)] {
        ground.add(Key::new("outside", name), number, &[], false);
    }
    let _servers = Servers::start(&ground, &[80], &[80]);
    let [server, one, two] =
        ["dns", "one", "two"].map(|it| ground.host(&format!("outside/{it}")).address(false));
    let names = [("api.example.com", one), ("other.org", two)];
    let _dns = Dns::start(ground.host("outside/dns"), &names);
    let web = ground.host("a/web");
    let mut compiler = Compiler::new(Settings::default());
    compiler.apply(Change::Namespace("a".into(), Some(Default::default())));
    compiler.apply(Change::Pod(web.key.clone(), Some(web.pod(&[]))));
    by_group().into_iter().for_each(|change| compiler.apply(change));
    let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::new("test"));
    let enforcement = start(&ground, dir.path(), &tasks);
    let whole = Delta::whole(&compiler.program(NODE, 1));
    enforcement.apply(whole, Deadline::after(PATIENCE)).await.unwrap();
    let began = Instant::now();
    while enforcement.dns_counters().answered == 0 {
        assert!(began.elapsed() < PATIENCE, "{:?}", enforcement.dns_counters());
        assert!(resolve(web, server, "other.org", PATIENCE).is_some());
    }
    assert!(!reaches(web, one, false), "its name has not been resolved");
    assert_eq!(resolve(web, server, "api.example.com", PATIENCE).expect("an answer")[7], 1);
    assert!(first_packet_passes(web, one));
    assert!(reaches(web, one, true));
    assert!(!reaches(web, two, false), "other.org is not in *.example.com");
    drop(enforcement);
    tasks.shutdown(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_name_resolves_to_is_reached_from_the_answer_on_and_nothing_else_is() {
    requires!(netns, nft);
    let mut ground = Ground::new();
    ground.add(Key::new("a", "web"), 1, &[], true);
    for (name, number) in [("dns", 53), ("one", 1), ("two", 200), ("three", 150)] {
        ground.add(Key::new("outside", name), number, &[], false);
    }
    let _servers = Servers::start(&ground, &[80], &[80]);
    let address = |name: &str, v6| ground.host(name).address(v6);
    let names: Vec<(&'static str, IpAddr)> = [false, true]
        .into_iter()
        .flat_map(|v6| {
            [
                ("api.example.com", address("outside/one", v6)),
                ("tcp.example.com", address("outside/three", v6)),
                ("other.org", address("outside/two", v6)),
                ("example.com", address("outside/two", v6)),
            ]
        })
        .collect();
    let dns = Dns::start(ground.host("outside/dns"), &names);
    let web = ground.host("a/web");
    let mut compiler = Compiler::new(Settings::default());
    compiler.apply(Change::Namespace("a".into(), Some(Default::default())));
    compiler.apply(Change::Pod(web.key.clone(), Some(web.pod(&[]))));
    compiler.apply(by_name());
    let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::new("test"));
    let enforcement = start(&ground, dir.path(), &tasks);
    let program = compiler.program(NODE, 1);
    let whole = Delta::whole(&program);
    enforcement.apply(whole, Deadline::after(PATIENCE)).await.unwrap();
    // The agent listens a moment after the first pod needs it; until then DNS passes untouched.
    let server = address("outside/dns", false);
    let began = Instant::now();
    while enforcement.dns_counters().answered == 0 {
        assert!(began.elapsed() < PATIENCE, "{:?}", enforcement.dns_counters());
        assert!(resolve(web, server, "other.org", PATIENCE).is_some());
    }
    for v6 in [false, true] {
        let server = address("outside/dns", v6);
        let [one, two, three] =
            ["one", "two", "three"].map(|it| address(&format!("outside/{it}"), v6));
        assert!(!reaches(web, one, false), "its name has not been resolved");
        let answer = resolve(web, server, "api.example.com", PATIENCE).expect("an answer");
        assert_eq!(answer[7], 1, "{answer:?}");
        // At once: the address is known before the answer is there. So it is to who reports connections.
        assert!(first_packet_passes(web, one), "IPv6 {v6}");
        assert!(has_told(&enforcement, "api.example.com", one));
        assert!(reaches(web, one, true), "IPv6 {v6}");
        // Names that the rule does not have: below it, but not itself.
        for name in ["other.org", "example.com"] {
            assert_eq!(resolve(web, server, name, PATIENCE).expect("an answer")[7], 1);
            assert!(!reaches(web, two, false), "{name} is not in *.example.com");
            assert!(!has_told(&enforcement, name, two));
        }
        assert!(!reaches(web, three, false));
        assert_eq!(resolve_by_tcp(web, server, "tcp.example.com")[7], 1);
        assert!(reaches(web, three, true), "by TCP, IPv6 {v6}");
        // A query whose server says nothing holds up nobody.
        thread::scope(|scope| {
            let slow = scope.spawn(|| resolve(web, server, SLOW, Duration::from_secs(1)));
            let (began, mut answered) = (Instant::now(), 0);
            while !slow.is_finished() && began.elapsed() < PATIENCE {
                assert!(resolve(web, server, "api.example.com", PATIENCE).is_some());
                answered += 1;
            }
            assert_eq!(slow.join().unwrap(), None);
            assert!(answered > 1, "{answered} while one waited");
        });
    }
    // By a Service's address: the answer comes from whom the pod asked.
    let to = format!("dnat to {}", address("outside/dns", false));
    ground.in_node(|| {
        let rules = format!(
            "add table ip service; \
             add chain ip service pre {{ type nat hook prerouting priority -100; }}; \
             add rule ip service pre ip daddr 10.96.0.10 udp dport 53 {to}"
        );
        let done = std::process::Command::new("nft").arg(rules).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    });
    let before = enforcement.dns_counters().answered;
    let service = "10.96.0.10".parse().unwrap();
    assert_eq!(resolve(web, service, "api.example.com", PATIENCE).expect("an answer")[7], 1);
    let began = Instant::now();
    while enforcement.dns_counters().answered == before {
        assert!(began.elapsed() < PATIENCE, "it did not go through the agent");
        thread::sleep(Duration::from_millis(5));
    }
    let counters = enforcement.dns_counters();
    assert_eq!((counters.refused, counters.asked > 10), (0, true), "{counters:?}");

    // The agent is gone: DNS goes on without it, what was learned stays, and nothing is learned.
    drop(enforcement);
    tasks.shutdown(PATIENCE).await;
    let asked = dns.asked.load(Ordering::Relaxed);
    for v6 in [false, true] {
        let server = address("outside/dns", v6);
        assert_eq!(resolve(web, server, "api.example.com", PATIENCE).expect("an answer")[7], 1);
        assert!(reaches(web, address("outside/one", v6), true));
        assert!(!reaches(web, address("outside/two", v6), false));
    }
    assert_eq!(dns.asked.load(Ordering::Relaxed), asked + 2);
    // The next agent finds what its predecessor learned, and goes on.
    let tasks = Tasks::new("again");
    let enforcement = start(&ground, dir.path(), &tasks);
    let began = Instant::now();
    while enforcement.dns_counters().answered == 0 {
        assert!(began.elapsed() < PATIENCE, "{:?}", enforcement.dns_counters());
        assert!(resolve(web, server, "api.example.com", PATIENCE).is_some());
    }
    assert!(reaches(web, address("outside/one", false), true));
    tasks.shutdown(PATIENCE).await;
}
