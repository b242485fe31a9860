//! What policies stop is told with its policy and rule, counted, and refused as it is set; what is between
//! a pod and its own node; protocols without sockets here.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ground;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ground::{Ground, NODE, NODE_V4, NODE_V6, PATIENCE, Servers, raw, udp};
use node::enforcement::{
    self, Denial, DenySettings, Enforcement, EnforcerSettings, PodNetwork, Settings as Enforced,
};
use objects::kinds::GroupMode;
use policy::cluster::{Key, Node};
use policy::compile::{Change, Compiler};
use policy::program::{Delta, Denial as How, Direction, PolicyKind, Program, Protocol, TierKind};
use policy::spec::{
    Action, ActionRule, ClusterPolicy, GuardGroup, GuardRule, NamespaceSelection, NetworkPolicy,
    Peer, PodSelection, PortMatch, Settings,
};
use stallproof::watchdog::WatchdogLimits;
use stallproof::{Deadline, Tasks, Watchdog};
use testkit::requires;

const QUIET: Duration = Duration::from_millis(200);

/// An agent's enforcement in the node's namespace.
struct Agent {
    enforcement: Enforcement,
    program: Program,
    _dir: tempfile::TempDir,
}

impl Agent {
    fn start(ground: &Ground, tasks: &Tasks) -> Self {
        Self::start_with(ground, EnforcerSettings::default(), tasks)
    }

    fn start_with(ground: &Ground, enforcer: EnforcerSettings, tasks: &Tasks) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("program");
        let settings = Enforced { enforcer, network: PodNetwork::Own, file, pods: Vec::new() };
        let watchdog = Watchdog::start(WatchdogLimits::default(), None);
        let runtime = tokio::runtime::Handle::current();
        let enforcement = ground.in_node(|| {
            let _inside = runtime.enter();
            enforcement::start(settings, &watchdog, tasks).unwrap()
        });
        Self { enforcement, program: Program::default(), _dir: dir }
    }

    async fn enforce(&mut self, compiler: &Compiler) {
        let next = compiler.program(NODE, self.program.generation + 1);
        let delta = Delta::between(&self.program, &next);
        self.enforcement.apply(delta, Deadline::after(PATIENCE)).await.unwrap();
        self.program = next;
    }

    /// Waits until a denial fits.
    async fn denial(&self, fits: impl Fn(&Denial) -> bool) -> Denial {
        let (began, denials) = (Instant::now(), self.enforcement.denials());
        let mut seen = Vec::new();
        while began.elapsed() < PATIENCE {
            seen.extend(denials.take());
            if let Some(found) = seen.iter().find(|it| fits(it)) {
                return found.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nobody was told; seen: {seen:?}, {:?}", denials.counters());
    }
}

/// `a/web` and `a/db` on one node, whose address is known.
fn two(settings: Settings) -> (Ground, Compiler) {
    let mut ground = Ground::new();
    ground.add(Key::new("a", "web"), 1, &[("app", "web")], true);
    ground.add(Key::new("a", "db"), 2, &[("app", "db")], true);
    let mut compiler = Compiler::new(settings);
    let addresses = vec![NODE_V4.into(), NODE_V6.into()];
    let node = Node { addresses, ..Node::default() };
    compiler.apply(Change::Node(NODE.into(), Some(node)));
    compiler.apply(Change::Namespace("a".into(), Some(Default::default())));
    for host in ground.pods() {
        compiler.apply(Change::Pod(host.key.clone(), Some(host.pod(&[]))));
    }
    (ground, compiler)
}

/// Nothing may enter `app=db`, nothing may leave `app=web` but to port 81.
fn isolation(name: &str, ingress: bool) -> Change {
    use policy::spec::AcceptRule;
    let key = Key::new("a", name);
    let ports = vec![PortMatch::Numbers("tcp/81".parse().unwrap())];
    let to_81 = AcceptRule { peers: vec![Peer::Everyone], ports };
    let policy = NetworkPolicy {
        key: key.clone(),
        pods: format!("app={name}").parse().unwrap(),
        ingress: ingress.then(Vec::new),
        egress: (!ingress).then(|| vec![to_81]),
    };
    Change::NetworkPolicy(key, Some(Arc::new(policy)))
}

fn rule(name: &str, ports: &[&str], allows: bool) -> Change {
    let rule = GuardRule {
        name: name.into(),
        learned: false,
        priority: 1,
        from: GuardGroup::parse("workloads"),
        to: GuardGroup::parse("workloads"),
        ports: ports.iter().map(|it| it.parse().unwrap()).collect(),
        applications: vec![],
        allows,
    };
    Change::Rule((false, name.into()), Some(Arc::new(rule)))
}

/// Denies every node's address to pods of namespace `a`.
fn no_nodes() -> Change {
    let kind = PolicyKind::ClusterNetworkPolicy;
    let peers = vec![Peer::Nodes("".parse().unwrap())];
    let deny = ActionRule { name: None, action: Action::Deny, peers, ports: vec![] };
    let namespaces = NamespaceSelection::Named("a".into());
    let policy = ClusterPolicy {
        kind,
        name: "no-nodes".into(),
        tier: TierKind::Admin,
        priority: 1,
        subject: PodSelection { namespaces, pods: "".parse().unwrap() },
        ingress: vec![],
        egress: vec![deny],
    };
    Change::ClusterPolicy((kind, "no-nodes".into()), Some(Arc::new(policy)))
}

fn connect(ground: &Ground, from: &str, to: SocketAddr, wait: Duration) -> std::io::Result<()> {
    let connect = || TcpStream::connect_timeout(&to, wait).map(drop);
    ground.host(from).namespace.run_in(connect).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_policies_stop_is_told_with_its_policy_and_rule_and_counted() {
    requires!(netns);
    let (ground, mut compiler) = two(Settings::default());
    let tasks = Tasks::new("test");
    let mut agent = Agent::start(&ground, &tasks);
    compiler.apply(isolation("db", true));
    agent.enforce(&compiler).await;
    for v6 in [false, true] {
        let to = SocketAddr::new(ground.host("a/db").address(v6), 8080);
        connect(&ground, "a/web", to, QUIET).unwrap_err();
        let denial = agent.denial(|it| it.destination == to.ip()).await;
        assert_eq!(denial.source, ground.host("a/web").address(v6));
        assert_eq!((denial.protocol, denial.port), (Protocol::TCP, 8080));
        assert_eq!(denial.rule.direction, Direction::Ingress);
        assert_eq!(denial.rule.in_words().unwrap(), "NetworkPolicy a/db isolation");
    }
    // Counters: what was denied, by the rule that denied it; the accepting rule of egress as well.
    compiler.apply(isolation("web", false));
    agent.enforce(&compiler).await;
    let to = SocketAddr::new(ground.host("a/db").address(false), 81);
    connect(&ground, "a/web", to, QUIET).unwrap_err();
    connect(&ground, "a/web", SocketAddr::new(to.ip(), 82), QUIET).unwrap_err();
    let counts = agent.enforcement.rule_counts(Deadline::after(PATIENCE)).await.unwrap();
    let count = |rule: &str, direction| {
        let named = |it: &&enforcement::RuleCount| {
            it.direction == direction && it.sources.iter().any(|it| it.to_string() == rule)
        };
        let found = counts.iter().find(named).unwrap_or_else(|| panic!("{rule}: {counts:#?}"));
        (found.packets, found.bytes)
    };
    for (rule, direction) in [
        ("NetworkPolicy a/db isolation", Direction::Ingress),
        ("NetworkPolicy a/web isolation", Direction::Egress),
        ("NetworkPolicy a/web egress[0]", Direction::Egress),
    ] {
        let (packets, bytes) = count(rule, direction);
        assert!(packets > 0 && bytes >= 40 * packets, "{rule}: {packets} packets, {bytes} bytes");
    }
    assert_eq!(agent.enforcement.denials().counters().unknown, 0);
    tasks.shutdown(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn monitor_tells_and_lets_pass_and_protect_tells_and_stops() {
    requires!(netns);
    for (mode, passes) in [(GroupMode::Monitor, true), (GroupMode::Protect, false)] {
        let (ground, mut compiler) = two(Settings { mode, ..Settings::default() });
        let _servers = Servers::start(&ground, &[80, 81], &[]);
        let tasks = Tasks::new("test");
        let mut agent = Agent::start(&ground, &tasks);
        compiler.apply(rule("web-81", &["tcp/81"], true));
        compiler.apply(rule("not-80", &["tcp/80"], false));
        agent.enforce(&compiler).await;
        let to = |port| SocketAddr::new(ground.host("a/db").address(false), port);
        let wait = if passes { PATIENCE } else { QUIET };
        assert_eq!(connect(&ground, "a/web", to(80), wait).is_ok(), passes, "{mode:?}");
        let denial = agent.denial(|it| it.port == 80).await;
        assert_eq!(denial.rule.in_words().as_deref(), Some("not-80"));
        assert_eq!(denial.rule.verdict.is_deny(), !passes);
        connect(&ground, "a/web", to(81), PATIENCE).unwrap();
        // What no rule speaks of: nothing is named.
        let _ = connect(&ground, "a/web", to(83), QUIET);
        let denial = agent.denial(|it| it.port == 83).await;
        assert_eq!(denial.rule.in_words(), None);
        tasks.shutdown(PATIENCE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_is_a_drop_or_a_rejection_as_each_class_of_policies_is_set() {
    requires!(netns);
    let (ground, mut compiler) = two(Settings::default());
    let tasks = Tasks::new("test");
    let deny = DenySettings { network_policy: How::Reject, ..DenySettings::default() };
    let settings = EnforcerSettings { deny, ..EnforcerSettings::default() };
    let mut agent = Agent::start_with(&ground, settings, &tasks);
    compiler.apply(isolation("db", true));
    agent.enforce(&compiler).await;
    for v6 in [false, true] {
        let address = ground.host("a/db").address(v6);
        let began = Instant::now();
        let refused = connect(&ground, "a/web", SocketAddr::new(address, 80), PATIENCE);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused, "a TCP reset");
        assert!(began.elapsed() < PATIENCE, "it is told at once");
        // "Administratively prohibited" is what a datagram's sender hears.
        let socket = udp(ground.host("a/web"), SocketAddr::new(address, 53)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send(b"?").unwrap();
        let told = socket.recv(&mut [0; 8]).unwrap_err();
        let kinds = [ErrorKind::HostUnreachable, ErrorKind::PermissionDenied];
        assert!(kinds.contains(&told.kind()), "{told:?}");
    }
    // Another class denies as it is set: by a drop, of which nobody hears.
    compiler.apply(no_nodes());
    agent.enforce(&compiler).await;
    let to = SocketAddr::new(NODE_V4.into(), 80);
    let silent = connect(&ground, "a/web", to, QUIET).unwrap_err();
    assert_eq!(silent.kind(), ErrorKind::TimedOut);
    tasks.shutdown(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_and_its_node_reach_each_other_past_network_policies_and_not_past_cluster_policies() {
    requires!(netns);
    let (ground, mut compiler) = two(Settings::default());
    let tasks = Tasks::new("test");
    let mut agent = Agent::start(&ground, &tasks);
    compiler.apply(isolation("web", false));
    compiler.apply(isolation("db", true));
    agent.enforce(&compiler).await;
    let node: [IpAddr; 2] = [NODE_V4.into(), NODE_V6.into()];
    let listeners =
        ground.in_node(|| node.map(|address| TcpListener::bind((address, 80)).unwrap()));
    let servers = Servers::start(&ground, &[80], &[]);
    for (address, v6) in node.into_iter().zip([false, true]) {
        // Egress of `web` is isolated but for port 81.
        connect(&ground, "a/web", SocketAddr::new(address, 80), PATIENCE).unwrap();
        // Ingress of `db` is isolated.
        let db = SocketAddr::new(ground.host("a/db").address(v6), 80);
        ground.in_node(|| TcpStream::connect_timeout(&db, PATIENCE).unwrap());
        connect(&ground, "a/web", db, QUIET).unwrap_err();
    }
    compiler.apply(no_nodes());
    agent.enforce(&compiler).await;
    for address in node {
        connect(&ground, "a/web", SocketAddr::new(address, 80), QUIET).unwrap_err();
        let denial = agent.denial(|it| it.destination == address).await;
        let words = denial.rule.in_words().unwrap();
        assert_eq!(words, "ClusterNetworkPolicy no-nodes egress[0]");
    }
    // The node still reaches its pods, and their replies pass.
    let db = SocketAddr::new(ground.host("a/db").address(false), 80);
    ground.in_node(|| TcpStream::connect_timeout(&db, PATIENCE).unwrap());
    drop((listeners, servers));
    tasks.shutdown(PATIENCE).await;
}

/// ICMP and SCTP by raw sockets: the kernel here has no sockets for SCTP, and its packets are packets.
#[tokio::test(flavor = "multi_thread")]
async fn protocols_are_judged_also_where_there_are_no_sockets_for_them() {
    use policy::spec::AcceptRule;
    requires!(netns);
    let (ground, mut compiler) = two(Settings::default());
    let tasks = Tasks::new("test");
    let mut agent = Agent::start(&ground, &tasks);
    let arrives = |protocol: Protocol, packet: &[u8], v6: bool, passes: bool| {
        let (web, db) = (ground.host("a/web"), ground.host("a/db"));
        raw::arrives(web, db, protocol, packet, v6, if passes { PATIENCE } else { QUIET })
    };
    let icmp = |v6| if v6 { Protocol::ICMP6 } else { Protocol::ICMP };
    let admits = |ports: &[&str]| {
        let key = Key::new("a", "db");
        let ports = ports.iter().map(|it| PortMatch::Numbers(it.parse().unwrap())).collect();
        let rule = AcceptRule { peers: vec![Peer::Everyone], ports };
        let policy = NetworkPolicy {
            key: key.clone(),
            pods: "app=db".parse().unwrap(),
            ingress: Some(vec![rule]),
            egress: None,
        };
        Change::NetworkPolicy(key, Some(Arc::new(policy)))
    };
    for (rules, sctp_80, sctp_81, echo) in [
        (&["sctp/80"][..], true, false, false),
        (&["sctp"], true, true, false),
        (&["tcp/80"], false, false, false),
        (&[], true, true, true),
    ] {
        compiler.apply(admits(rules));
        agent.enforce(&compiler).await;
        for v6 in [false, true] {
            for (port, passes) in [(80, sctp_80), (81, sctp_81)] {
                let found = arrives(Protocol::SCTP, &raw::sctp_init(port), v6, passes);
                assert_eq!(found, passes, "{rules:?} SCTP {port}, IPv6 {v6}");
            }
            let found = arrives(icmp(v6), &raw::echo(v6), v6, echo);
            assert_eq!(found, echo, "{rules:?} echo, IPv6 {v6}");
        }
    }
    tasks.shutdown(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_waits_for_policies_ends_when_they_arrive_and_without_them_after_its_time() {
    requires!(netns);
    let (ground, mut compiler) = two(Settings::default());
    let tasks = Tasks::new("test");
    let mut agent = Agent::start(&ground, &tasks);
    compiler.apply(isolation("db", true));
    agent.enforce(&compiler).await;
    let addresses: [IpAddr; 2] = ["10.0.0.3".parse().unwrap(), "fd00::3".parse().unwrap()];
    let wait = || {
        let enforcement = agent.enforcement.clone();
        tokio::task::spawn_blocking(move || enforcement.wait_for_policies("a/new", &addresses))
    };
    let began = Instant::now();
    assert!(!wait().await.unwrap(), "nobody sent its policies");
    assert!(began.elapsed() >= enforcement::WAIT_FOR_POLICIES);
    // It is pending meanwhile, and waits no longer once a program knows it.
    assert_eq!(agent.enforcement.status().load().pending, 2);
    let waiting = wait();
    let mut pod = (*ground.host("a/web").pod(&[])).clone();
    (pod.key, pod.addresses) = (Key::new("a", "new"), addresses.to_vec());
    compiler.apply(Change::Pod(pod.key.clone(), Some(Arc::new(pod))));
    agent.enforce(&compiler).await;
    assert!(waiting.await.unwrap(), "its policies are there");
    tasks.shutdown(PATIENCE).await;
}

/// What is tracked before the agent begins: a reply to it is a reply.
#[tokio::test(flavor = "multi_thread")]
async fn connections_made_before_the_agent_keep_their_replies_and_are_judged_by_their_first_packet()
{
    requires!(netns, nft);
    let (ground, mut compiler) = two(Settings::default());
    // As kube-proxy does: something has the kernel track connections.
    ground.in_node(|| {
        let rules = "add table inet other; \
            add chain inet other forward { type filter hook forward priority -1; }; \
            add rule inet other forward ct state established accept";
        let done = std::process::Command::new("nft").arg(rules).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    });
    let (web, db) = (ground.host("a/web"), ground.host("a/db"));
    let at = |port| SocketAddr::new(db.address(false), port);
    let server = db.namespace.run_in(|| UdpSocket::bind(at(53)).unwrap()).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = udp(web, at(53)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.send(b"?").unwrap();
    let from = server.recv_from(&mut [0; 8]).unwrap().1;
    let tasks = Tasks::new("test");
    let mut agent = Agent::start(&ground, &tasks);
    // The client may receive nothing that it did not ask for, the server may be asked: both go on.
    compiler.apply(isolation("web", true));
    agent.enforce(&compiler).await;
    server.send_to(b"!", from).unwrap();
    assert_eq!(client.recv(&mut [0; 8]).unwrap(), 1);
    // Now the server may not be asked: the exchange that is under way ends.
    compiler.apply(isolation("db", true));
    agent.enforce(&compiler).await;
    tokio::time::sleep(QUIET).await;
    client.set_read_timeout(Some(QUIET)).unwrap();
    server.send_to(b"!", from).unwrap();
    assert!(client.recv(&mut [0; 8]).is_err(), "a reply of what is denied now arrived");
    tasks.shutdown(PATIENCE).await;
}
