//! A node's policies over time: a pod's start, a revocation, a foreign flush, the agent's death, a boot.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ground;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ground::{Ground, NODE, PATIENCE, Probe, Servers, try_all, udp};
use node::enforcement::{Enforcer, EnforcerSettings, FailMode, NewPods, NftDatapath, ProgramFile};
use policy::cluster::Key;
use policy::compile::{Change, Compiler};
use policy::program::{Delta, Program, Protocol};
use policy::spec::{
    AcceptRule, NamespaceSelection, NetworkPolicy, Peer, PodSelection, PortMatch, Settings,
};
use testkit::requires;

const QUIET: Duration = Duration::from_millis(150);

/// Admits pods of namespace `a` with these labels to `a/db`, by these ports.
fn admits(labels: &str, ports: &[&str]) -> Change {
    let peers = vec![Peer::Pods(PodSelection {
        namespaces: NamespaceSelection::Named("a".into()),
        pods: labels.parse().unwrap(),
    })];
    let ports = ports.iter().map(|it| PortMatch::Numbers(it.parse().unwrap())).collect();
    let key = Key::new("a", "db");
    let policy = NetworkPolicy {
        key: key.clone(),
        pods: "app=db".parse().unwrap(),
        ingress: Some(vec![AcceptRule { peers, ports }]),
        egress: None,
    };
    Change::NetworkPolicy(key, Some(Arc::new(policy)))
}

/// `a/web` and `a/db`, and a compiler that knows them.
fn two() -> (Ground, Compiler) {
    let mut ground = Ground::new();
    ground.add(Key::new("a", "web"), 1, &[("app", "web")], true);
    ground.add(Key::new("a", "db"), 2, &[("app", "db")], true);
    let mut compiler = Compiler::new(Settings::default());
    compiler.apply(Change::Namespace("a".into(), Some(Default::default())));
    for host in ground.pods() {
        compiler.apply(Change::Pod(host.key.clone(), Some(host.pod(&[]))));
    }
    (ground, compiler)
}

fn start(
    ground: &Ground,
    settings: EnforcerSettings,
    saved: Option<Program>,
    pods: Vec<(IpAddr, Arc<str>)>,
) -> Enforcer<NftDatapath> {
    ground.in_node(|| {
        let datapath = NftDatapath::open().unwrap();
        Enforcer::start(datapath, settings, saved, pods).unwrap()
    })
}

fn enforce(enforcer: &mut Enforcer<NftDatapath>, compiler: &Compiler, ground: &Ground) {
    let program = compiler.program(NODE, enforcer.program().generation + 1);
    enforcer.apply(&Delta::between(enforcer.program(), &program)).unwrap();
    ground.in_node(|| enforcer.revoke()).unwrap();
}

/// Whether `from` reaches `to` by TCP port 80, with both families.
fn reaches(ground: &Ground, from: &str, to: &str, passes: bool) -> bool {
    let at = ground.hosts.iter().position(|host| host.key.to_string() == from).unwrap();
    let probes: Vec<_> = [false, true]
        .into_iter()
        .map(|v6| Probe {
            from: at,
            source: ground.hosts[at].address(v6),
            to: ground.host(to).address(v6),
            protocol: Protocol::TCP,
            port: 80,
            passes,
        })
        .collect();
    let passed = try_all(ground, &probes, QUIET);
    assert_eq!(passed[0], passed[1], "by one family only");
    passed[0]
}

fn nft(args: &[&str]) {
    let output = Command::new("nft").args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nft {args:?}: {said}");
}

#[test]
fn a_revoked_connection_ends_at_both_ends_and_a_stream_of_replies_as_well() {
    requires!(netns);
    let (ground, mut compiler) = two();
    let mut enforcer = start(&ground, EnforcerSettings::default(), None, vec![]);
    compiler.apply(admits("app=web", &["tcp/80", "udp/53"]));
    enforce(&mut enforcer, &compiler, &ground);
    let (web, db) = (ground.host("a/web"), ground.host("a/db"));
    for v6 in [false, true] {
        let to = SocketAddr::new(db.address(v6), 80);
        let listener = db.namespace.run_in(|| TcpListener::bind(to)).unwrap().unwrap();
        let mut client =
            web.namespace.run_in(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().unwrap();
        let (mut server, _) = listener.accept().unwrap();
        for socket in [&client, &server] {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        client.write_all(b"before").unwrap();
        server.read_exact(&mut [0; 6]).unwrap();
        // A server that goes on answering one request.
        let server_udp =
            db.namespace.run_in(|| UdpSocket::bind((db.address(v6), 53))).unwrap().unwrap();
        let client_udp = udp(web, SocketAddr::new(db.address(v6), 53)).unwrap();
        client_udp.set_read_timeout(Some(PATIENCE)).unwrap();
        client_udp.send(b"?").unwrap();
        let from = server_udp.recv_from(&mut [0; 8]).unwrap().1;
        server_udp.send_to(b"!", from).unwrap();
        client_udp.recv(&mut [0; 8]).unwrap();

        compiler.apply(admits("app=nobody", &["tcp/80"]));
        let began = Instant::now();
        enforce(&mut enforcer, &compiler, &ground);
        let enforced = began.elapsed();
        // Only the server sends: it is reset, and nothing comes to the client.
        server_udp.send_to(b"late", from).unwrap();
        let reset = loop {
            if let Err(error) = server.write_all(b"late") {
                break error;
            }
            assert!(began.elapsed() < PATIENCE, "the server still sends");
            thread::sleep(Duration::from_millis(1));
        };
        println!("enforced after {enforced:?}, reset after {:?}: {reset}", began.elapsed());
        // And the client learns of it with its next packet.
        let ended = loop {
            match client.write_all(b"late") {
                Err(error) => break error,
                Ok(()) => assert!(began.elapsed() < PATIENCE, "the client still sends"),
            }
            thread::sleep(Duration::from_millis(1));
        };
        println!("the client: {ended} after {:?}", began.elapsed());
        let mut rest = Vec::new();
        let _ = server.read_to_end(&mut rest);
        assert_eq!(rest, b"", "what the client sent later arrived");
        client_udp.set_read_timeout(Some(QUIET)).unwrap();
        assert!(client_udp.recv(&mut [0; 8]).is_err(), "a reply of a revoked exchange arrived");
        // Far above what it takes, far below what a timeout would.
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());

        // Allowed again, it goes on where nobody gave up.
        compiler.apply(admits("app=web", &["tcp/80", "udp/53"]));
        enforce(&mut enforcer, &compiler, &ground);
        client_udp.set_read_timeout(Some(PATIENCE)).unwrap();
        server_udp.send_to(b"again", from).unwrap();
        assert_eq!(client_udp.recv(&mut [0; 8]).unwrap(), 5);
    }
}

#[test]
fn a_new_pod_is_denied_from_its_first_packet_until_its_policies_arrive() {
    requires!(netns);
    let (mut ground, mut compiler) = two();
    compiler.apply(admits("app=web", &["tcp/80"]));
    let mut enforcer = start(&ground, EnforcerSettings::default(), None, vec![]);
    enforce(&mut enforcer, &compiler, &ground);
    // As ADD does: first its addresses are decided about, then it is wired.
    let (v4, v6): (IpAddr, IpAddr) = ("10.0.0.3".parse().unwrap(), "fd00::3".parse().unwrap());
    assert!(enforcer.admit("a/new", &[v4, v6]).unwrap(), "its policies have not arrived");
    // Nothing can isolate a pod of that namespace.
    let elsewhere: IpAddr = "10.0.0.9".parse().unwrap();
    enforcer.admit("elsewhere/new", &[elsewhere]).unwrap();
    assert_eq!(enforcer.entries().get(&elsewhere), None);
    ground.add(Key::new("a", "new"), 3, &[("app", "web")], true);
    let servers = Servers::start(&ground, &[80], &[]);
    assert!(!reaches(&ground, "a/new", "a/web", false), "a pending pod reached another");
    assert!(!reaches(&ground, "a/web", "a/new", false), "a pending pod was reached");
    assert!(servers.take().is_empty());
    // Its node reaches it: probes do.
    ground.in_node(|| {
        for to in [v4, v6] {
            TcpStream::connect_timeout(&SocketAddr::new(to, 80), PATIENCE).unwrap();
        }
    });
    let pod = ground.host("a/new").pod(&[]);
    compiler.apply(Change::Pod(pod.key.clone(), Some(pod)));
    enforce(&mut enforcer, &compiler, &ground);
    assert!(reaches(&ground, "a/new", "a/db", true));
    assert!(reaches(&ground, "a/web", "a/new", true));

    // Another pod with its addresses begins anew, though the program still means the one before.
    enforcer.release(&[v4, v6]).unwrap();
    assert!(enforcer.admit("a/another", &[v4, v6]).unwrap());
    assert!(!reaches(&ground, "a/web", "a/new", false), "it has the policies of another pod");
}

#[test]
fn a_pod_that_sends_from_its_first_instant_gets_nothing_through_before_its_policies() {
    requires!(netns);
    let (mut ground, mut compiler) = two();
    compiler.apply(admits("app=new", &["udp/1000"]));
    let mut enforcer = start(&ground, EnforcerSettings::default(), None, vec![]);
    enforce(&mut enforcer, &compiler, &ground);
    let to = SocketAddr::new(ground.host("a/web").address(false), 1000);
    let server = ground.host("a/web").namespace.run_in(|| UdpSocket::bind(to)).unwrap().unwrap();
    server.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let namespace = kernel::netns::Namespace::create().unwrap();
    let socket = namespace.run_in(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        // It sends before there is a link, a route or an address, and goes on without a pause.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if socket.send_to(b"early", to).is_ok() {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        // As ADD does.
        let addresses: [IpAddr; 2] = ["10.0.0.3".parse().unwrap(), "fd00::3".parse().unwrap()];
        assert!(enforcer.admit("a/new", &addresses).unwrap());
        ground.add_in(namespace, Key::new("a", "new"), 3, &[("app", "new")], true);
        let began = Instant::now();
        while sent.load(Ordering::Relaxed) < 100 && began.elapsed() < PATIENCE {
            assert!(server.recv(&mut [0; 8]).is_err(), "a packet of a pending pod arrived");
        }
        let early = sent.load(Ordering::Relaxed);
        assert!(early >= 100, "it sent {early} packets");
        assert!(server.recv(&mut [0; 8]).is_err(), "a packet of a pending pod arrived");
        let pod = ground.host("a/new").pod(&[]);
        compiler.apply(Change::Pod(pod.key.clone(), Some(pod)));
        enforce(&mut enforcer, &compiler, &ground);
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(server.recv(&mut [0; 8]).is_ok(), "with its policies it may");
        over.store(true, Ordering::Relaxed);
        println!("{early} packets before its policies");
    });
}

#[test]
fn without_a_program_a_node_is_open_or_closed_as_it_is_set() {
    requires!(netns);
    let (ground, _) = two();
    let _servers = Servers::start(&ground, &[80], &[]);
    let pods = || -> Vec<(IpAddr, Arc<str>)> {
        let addresses = |host: &ground::Host| {
            let pod: Arc<str> = host.key.to_string().into();
            host.addresses().map(move |address| (address, Arc::clone(&pod)))
        };
        ground.pods().flat_map(addresses).collect()
    };
    let closed = EnforcerSettings { fail_mode: FailMode::Closed, ..EnforcerSettings::default() };
    let enforcer = start(&ground, closed, None, pods());
    assert!(!reaches(&ground, "a/web", "a/db", false));
    drop(enforcer);
    let enforcer = start(&ground, EnforcerSettings::default(), None, pods());
    assert!(reaches(&ground, "a/web", "a/db", true));
    drop(enforcer);
    let open = EnforcerSettings { new_pods: NewPods::Open, ..closed };
    start(&ground, open, None, pods());
    assert!(reaches(&ground, "a/web", "a/db", true));
}

#[test]
fn a_foreign_flush_is_survived_or_put_right() {
    requires!(netns, nft);
    let (ground, mut compiler) = two();
    let _servers = Servers::start(&ground, &[80], &[]);
    compiler.apply(admits("app=nobody", &["tcp/80"]));
    let mut enforcer = start(&ground, EnforcerSettings::default(), None, vec![]);
    enforce(&mut enforcer, &compiler, &ground);
    ground.in_node(|| nft(&["flush", "ruleset"]));
    let restored = enforcer.look_after().unwrap();
    println!("restored after a flush: {restored}; an owned table needs no restoring");
    assert!(!reaches(&ground, "a/web", "a/db", false));
    drop(enforcer);

    // As on a kernel that knows no owners.
    let mut enforcer = ground.in_node(|| {
        let datapath = NftDatapath::open().unwrap().unowned();
        let program = compiler.program(NODE, 7);
        Enforcer::start(datapath, EnforcerSettings::default(), Some(program), []).unwrap()
    });
    assert!(!enforcer.look_after().unwrap(), "nobody changed anything");
    ground.in_node(|| nft(&["flush", "ruleset"]));
    assert!(reaches(&ground, "a/web", "a/db", true), "the flush took it");
    assert!(enforcer.look_after().unwrap());
    assert!(!reaches(&ground, "a/web", "a/db", false));
    ground.in_node(|| nft(&["flush", "chain", "inet", "fairlead-guard", "forward"]));
    assert!(enforcer.look_after().unwrap());
    assert!(!reaches(&ground, "a/web", "a/db", false));
    // Others' rules are none of its business.
    ground.in_node(|| nft(&["add", "table", "ip", "somebody"]));
    assert!(!enforcer.look_after().unwrap());
}

#[test]
fn a_start_finds_exactly_the_program_whatever_was_there() {
    requires!(netns, nft);
    let (ground, mut compiler) = two();
    let _servers = Servers::start(&ground, &[80], &[]);
    compiler.apply(admits("app=web", &["tcp/80", "tcp/90-95", "udp"]));
    let program = compiler.program(NODE, 3);
    let dir = tempfile::tempdir().unwrap();
    let file = ProgramFile::new(dir.path().join("policy").join("program"));
    assert_eq!(file.load().unwrap(), None);
    file.save(&program).unwrap();
    assert_eq!(file.load().unwrap().as_ref(), Some(&program));
    let listed = || {
        ground.in_node(|| {
            let output = Command::new("nft").args(["list", "ruleset"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        })
    };
    drop(start(&ground, EnforcerSettings::default(), file.load().unwrap(), vec![]));
    let right = listed();
    assert!(right.contains("NetworkPolicy a/db"), "{right}");
    // Nothing differs: a start changes nothing, not even counters.
    reaches(&ground, "a/web", "a/db", true);
    // The connections' last packets are counted as well.
    let counted = loop {
        let before = listed();
        thread::sleep(QUIET);
        if before == listed() {
            break before;
        }
    };
    assert_ne!(right, counted, "the rule counts");
    drop(start(&ground, EnforcerSettings::default(), file.load().unwrap(), vec![]));
    let now = listed();
    let differing: Vec<_> = now.lines().zip(counted.lines()).filter(|(a, b)| a != b).collect();
    assert!(now == counted, "{differing:#?}");
    let strip = |text: &str| -> Vec<String> {
        let words = text.split_whitespace().map(str::to_owned);
        words.filter(|word| word.parse::<u64>().is_err()).collect()
    };
    for wrong in [
        "add element inet fairlead-guard out4 { 10.0.0.1 : goto deny-drop }",
        "flush map inet fairlead-guard in4",
        "flush chain inet fairlead-guard input",
        "add chain inet fairlead-guard strange",
        "add set inet fairlead-guard strange { type ipv4_addr; }",
        "insert rule inet fairlead-guard forward accept",
        "delete table inet fairlead-guard",
    ] {
        ground.in_node(|| nft(&[wrong]));
        drop(start(&ground, EnforcerSettings::default(), file.load().unwrap(), vec![]));
        assert_eq!(strip(&listed()), strip(&right), "after {wrong}");
    }
    std::fs::write(dir.path().join("policy").join("program"), "{").unwrap();
    assert!(file.load().is_err());
}

#[test]
fn a_pod_reaches_itself_through_a_service_though_everything_is_denied() {
    requires!(netns, nft);
    let (ground, mut compiler) = two();
    let servers = Servers::start(&ground, &[80], &[]);
    compiler.apply(admits("app=nobody", &["tcp/80"]));
    let mut enforcer = start(&ground, EnforcerSettings::default(), None, vec![]);
    enforce(&mut enforcer, &compiler, &ground);
    ground.in_node(|| {
        nft(&["add table ip service; \
            add chain ip service pre { type nat hook prerouting priority -100; }; \
            add rule ip service pre ip daddr 10.96.0.1 tcp dport 80 dnat to 10.0.0.2; \
            add chain ip service post { type nat hook postrouting priority 100; }; \
            add rule ip service post ip saddr 10.0.0.2 ip daddr 10.0.0.2 masquerade"]);
    });
    let to: SocketAddr = "10.96.0.1:80".parse().unwrap();
    let db = ground.host("a/db");
    let reached = db.namespace.run_in(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap();
    reached.unwrap();
    // The server tells of it a moment later.
    let until = Instant::now() + PATIENCE;
    while servers.take().is_empty() {
        assert!(Instant::now() < until, "the server heard nothing");
        thread::sleep(Duration::from_millis(5));
    }
    // Another pod does not, by the same Service.
    let web = ground.host("a/web");
    let reached = web.namespace.run_in(|| TcpStream::connect_timeout(&to, QUIET)).unwrap();
    assert!(reached.is_err());
    assert!(servers.take().is_empty());
}

/// How often the agent is killed: `FAIRLEAD_KILLS`, and with which seed: `FAIRLEAD_SEED`.
fn kills() -> (usize, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    (number("FAIRLEAD_KILLS").unwrap_or(25) as usize, number("FAIRLEAD_SEED").unwrap_or(7))
}

/// The programs that the agent goes through: in each `a/web` reaches `a/db` by UDP 1000, in none by UDP
/// 2000; all else changes.
fn churn(compiler: &mut Compiler, random: &mut fastrand::Rng) {
    let port = random.u16(3000..4000);
    let more: Vec<String> = (0..random.usize(0..4))
        .map(|at| format!("tcp/{}-{}", 100 * at + 1, 100 * at + 50))
        .collect();
    let mut ports = vec!["udp/1000".to_owned(), format!("udp/{port}")];
    ports.extend(more);
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    let labels = ["app=web", "app in (web,other)", "app!=nobody", ""];
    compiler.apply(admits(labels[random.usize(..labels.len())], &ports));
    // Pods elsewhere come and go in the sets.
    for _ in 0..random.usize(1..20) {
        let number = random.u8(10..250);
        let key = Key::new("a", &format!("other-{number}"));
        let labels = [("app".to_owned(), "other".to_owned())].into_iter().collect();
        let pod = policy::cluster::Pod {
            key: key.clone(),
            node: "another".into(),
            labels,
            addresses: vec![IpAddr::from([10, 0, 7, number])],
            host_network: false,
            finished: false,
            ports: vec![],
            images: vec![],
            owner: "Pod/other".into(),
            created: 0,
        };
        compiler.apply(Change::Pod(key, random.bool().then(|| Arc::new(pod))));
    }
}

/// The agent of the test below: a process of its own, in the node's namespace, that enforces one
/// program after the other until it is killed.
#[test]
fn agent_process() {
    let Some(dir) = std::env::var_os("FAIRLEAD_TEST_AGENT") else { return };
    let seed = std::env::var("FAIRLEAD_TEST_SEED").unwrap().parse().unwrap();
    let file = ProgramFile::new(std::path::PathBuf::from(dir).join("program"));
    let datapath = NftDatapath::open().unwrap();
    let saved = file.load().unwrap();
    let mut enforcer = Enforcer::start(datapath, EnforcerSettings::default(), saved, []).unwrap();
    let mut compiler = Compiler::new(Settings::default());
    compiler.apply(Change::Namespace("a".into(), Some(Default::default())));
    for (name, number) in [("web", 1), ("db", 2)] {
        let pod = policy::cluster::Pod {
            key: Key::new("a", name),
            node: NODE.into(),
            labels: [("app".to_owned(), name.to_owned())].into_iter().collect(),
            addresses: vec![
                IpAddr::from([10, 0, 0, number]),
                format!("fd00::{number}").parse().unwrap(),
            ],
            host_network: false,
            finished: false,
            ports: vec![],
            images: vec![],
            owner: "Pod/x".into(),
            created: 0,
        };
        compiler.apply(Change::Pod(pod.key.clone(), Some(Arc::new(pod))));
    }
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        churn(&mut compiler, &mut random);
        let generation = enforcer.program().generation + 1;
        let program = compiler.program(NODE, generation);
        // Now and then everything is sent anew, as by a controller that does not know the agent.
        let delta = match random.u8(..8) {
            0 => Delta { from: 0, ..Delta::whole(&program) },
            _ => Delta::between(enforcer.program(), &program),
        };
        enforcer.apply(&delta).unwrap();
        enforcer.revoke().unwrap();
        file.save(enforcer.program()).unwrap();
    }
}

fn spawn_agent(ground: &Ground, dir: &std::path::Path, seed: u64) -> Child {
    ground.in_node(|| {
        Command::new(std::env::current_exe().unwrap())
            .args(["agent_process", "--exact", "--nocapture"])
            .env("FAIRLEAD_TEST_AGENT", dir)
            .env("FAIRLEAD_TEST_SEED", seed.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    })
}

#[test]
fn an_agent_killed_at_any_point_lets_nothing_through_and_stops_nothing() {
    requires!(netns);
    let (ground, mut compiler) = two();
    let (kills, seed) = kills();
    let dir = tempfile::tempdir().unwrap();
    // The first program is there before packets are.
    let mut random = fastrand::Rng::with_seed(seed);
    churn(&mut compiler, &mut random);
    let program = compiler.program(NODE, 1);
    ProgramFile::new(dir.path().join("program")).save(&program).unwrap();
    drop(start(&ground, EnforcerSettings::default(), Some(program), vec![]));

    let (web, db) = (ground.host("a/web"), ground.host("a/db"));
    let server = |v6: bool, port: u16| {
        let to = SocketAddr::new(db.address(v6), port);
        let socket = db.namespace.run_in(|| UdpSocket::bind(to)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        (socket, to)
    };
    // Each save is another file in the place of the one before.
    let saved = || std::fs::metadata(dir.path().join("program")).map(|file| file.ino()).ok();
    let (over, all_sent) = (AtomicBool::new(false), AtomicBool::new(false));
    let (sent, forbidden) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let (mut senders, mut received) = (Vec::new(), Vec::new());
        for v6 in [false, true] {
            let (allowed, to) = server(v6, 1000);
            let (denied, never) = server(v6, 2000);
            let (over, all_sent) = (&over, &all_sent);
            let (sent, forbidden) = (&sent, &forbidden);
            senders.push(scope.spawn(move || {
                let mut number = 0u64;
                let stays = udp(web, to).unwrap();
                while !over.load(Ordering::Relaxed) {
                    // A connection that lasts, and new ones.
                    stays.send(&number.to_be_bytes()).unwrap();
                    let new = number.is_multiple_of(16);
                    if new {
                        udp(web, to).unwrap().send(&(number | 1 << 63).to_be_bytes()).unwrap();
                        let _ = udp(web, never).unwrap().send(b"never");
                    }
                    number += 1;
                    sent.fetch_add(1 + u64::from(new), Ordering::Relaxed);
                    thread::sleep(Duration::from_micros(500));
                }
            }));
            scope.spawn(move || {
                while !all_sent.load(Ordering::Relaxed) {
                    if denied.recv(&mut [0; 16]).is_ok() {
                        forbidden.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            received.push(scope.spawn(move || {
                let mut numbers = BTreeSet::new();
                let mut buffer = [0; 8];
                loop {
                    match allowed.recv(&mut buffer) {
                        Ok(8) => _ = numbers.insert(u64::from_be_bytes(buffer)),
                        Ok(_) => {}
                        Err(_) if all_sent.load(Ordering::Relaxed) => return numbers,
                        Err(_) => {}
                    }
                }
            }));
        }
        for kill in 0..kills {
            let before = saved();
            let mut agent = spawn_agent(&ground, dir.path(), seed + kill as u64);
            // Sometimes in the midst of its start, sometimes after it has made changes.
            let began = Instant::now();
            while kill % 2 == 1 && saved() == before && began.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_micros(random.u64(1_000..30_000)));
            assert!(agent.try_wait().unwrap().is_none(), "the agent ended by itself");
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
        over.store(true, Ordering::Relaxed);
        senders.into_iter().for_each(|it| it.join().unwrap());
        all_sent.store(true, Ordering::Relaxed);
        let received: Vec<_> = received.into_iter().map(|it| it.join().unwrap()).collect();
        for numbers in &received {
            let last = numbers.iter().rfind(|it| **it >> 63 == 0).copied().unwrap_or(0);
            let missing: Vec<_> = (0..last).filter(|it| !numbers.contains(it)).collect();
            let new = (0..last).step_by(16).filter(|it| !numbers.contains(&(it | 1 << 63)));
            println!("missing {missing:?} and of new ones {:?}", new.collect::<Vec<_>>());
        }
        let arrived: u64 = received.iter().map(|it| it.len() as u64).sum();
        println!("{kills} kills: {arrived} of {} packets arrived", sent.load(Ordering::Relaxed));
        assert_eq!(arrived, sent.load(Ordering::Relaxed), "packets were stopped");
    });
    assert_eq!(forbidden.load(Ordering::Relaxed), 0, "packets passed");
    // The next start reads the file whole, and finds what it wants or makes it.
    let last = ProgramFile::new(dir.path().join("program")).load().unwrap().unwrap();
    println!("the last program has generation {}", last.generation);
    assert!(last.generation > 1, "no agent came as far as to change anything");
    drop(start(&ground, EnforcerSettings::default(), Some(last), vec![]));
}
