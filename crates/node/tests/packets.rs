//! What policies say and what packets do, compared: every pod and two hosts outside talk to every pod,
//! with TCP and UDP, by IPv4 and IPv6, under policies of every kind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ground;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ground::{Ground, NODE, NODE_V4, NODE_V6, Probe, Servers, try_all};
use ipnet::IpNet;
use node::enforcement::{Enforcer, EnforcerSettings, NftDatapath};
use objects::kinds::{GroupCriterion, GroupKey, GroupMode, GroupOp, GroupSpec, Protocol};
use policy::cluster::{Key, Node};
use policy::compile::{Change, Compiler};
use policy::evaluate::{Connection, End, decide};
use policy::program::{Delta, Denial, Packet, PolicyKind, Ports, TierKind};
use policy::spec::{
    AcceptRule, Action, ActionRule, ClusterPolicy, Group, GuardGroup, GuardRule,
    NamespaceSelection, NetworkPolicy, Peer, PodSelection, PortMatch, QUARANTINE, Settings,
};
use testkit::requires;

const TCP: [u16; 4] = [80, 81, 8080, 8090];
const UDP: [u16; 2] = [53, 80];
/// How long a packet that must not pass has to arrive nevertheless, after all that must have.
const QUIET: Duration = Duration::from_millis(150);

fn selector(text: &str) -> objects::Selector {
    text.parse().unwrap()
}

fn pods(namespaces: NamespaceSelection, labels: &str) -> Peer {
    Peer::Pods(PodSelection { namespaces, pods: selector(labels) })
}

fn of_namespace(name: &str, labels: &str) -> Peer {
    pods(NamespaceSelection::Named(name.into()), labels)
}

fn labelled(namespaces: &str, labels: &str) -> Peer {
    pods(NamespaceSelection::Labelled(selector(namespaces)), labels)
}

fn networks(networks: &[&str], except: &[&str]) -> Peer {
    let parse = |all: &[&str]| all.iter().map(|it| it.parse::<IpNet>().unwrap()).collect();
    Peer::Networks { networks: parse(networks), except: parse(except) }
}

fn ports(text: &str) -> PortMatch {
    PortMatch::Numbers(text.parse::<Ports>().unwrap())
}

fn named(name: &str) -> PortMatch {
    PortMatch::Named { protocol: Some(Protocol::TCP), name: name.into() }
}

fn accept(peers: Vec<Peer>, ports: Vec<PortMatch>) -> AcceptRule {
    AcceptRule { peers, ports }
}

type Rules = Option<Vec<AcceptRule>>;

fn network_policy(name: &str, selects: &str, ingress: Rules, egress: Rules) -> Change {
    let (namespace, name) = name.split_once('/').unwrap();
    let key = Key::new(namespace, name);
    let pods = selector(selects);
    Change::NetworkPolicy(key.clone(), Some(Arc::new(NetworkPolicy { key, pods, ingress, egress })))
}

fn cluster_policy(
    name: &str,
    tier: TierKind,
    ingress: Vec<ActionRule>,
    egress: Vec<ActionRule>,
) -> Change {
    let kind = PolicyKind::ClusterNetworkPolicy;
    let namespaces = NamespaceSelection::Labelled(selector("team=a"));
    let policy = ClusterPolicy {
        kind,
        name: name.into(),
        tier,
        priority: 10,
        subject: PodSelection { namespaces, pods: selector("") },
        ingress,
        egress,
    };
    Change::ClusterPolicy((kind, name.into()), Some(Arc::new(policy)))
}

fn action(action: Action, peers: Vec<Peer>, ports: Vec<PortMatch>) -> ActionRule {
    ActionRule { name: None, action, peers, ports }
}

fn guard_rule(name: &str, from: &str, to: &str, ports: &[&str], allows: bool) -> Change {
    let rule = GuardRule {
        name: name.into(),
        learned: false,
        priority: 5,
        from: GuardGroup::parse(from),
        to: GuardGroup::parse(to),
        ports: ports.iter().map(|it| it.parse().unwrap()).collect(),
        applications: Vec::new(),
        allows,
    };
    Change::Rule((false, name.into()), Some(Arc::new(rule)))
}

/// The features, one after the other; each begins with what the compiler had before it.
fn features() -> Vec<(&'static str, Vec<Change>)> {
    let everyone = || vec![labelled("", "")];
    vec![
        ("no policy", vec![]),
        ("default deny of ingress", vec![network_policy("a/deny", "", Some(vec![]), None)]),
        (
            "pods of the same namespace, by a port",
            vec![network_policy(
                "a/web",
                "app=web",
                Some(vec![accept(
                    vec![of_namespace("a", "app in (db,job)")],
                    vec![ports("tcp/80")],
                )]),
                None,
            )],
        ),
        (
            "pods of namespaces by label, by ports of two protocols",
            vec![network_policy(
                "a/db",
                "app=db",
                Some(vec![accept(
                    vec![labelled("team in (b,c)", "app!=job")],
                    vec![ports("tcp/81"), ports("tcp/8080"), ports("udp/53")],
                )]),
                None,
            )],
        ),
        (
            "networks without a part of them",
            vec![network_policy(
                "b/outside",
                "",
                Some(vec![accept(
                    vec![networks(
                        &["192.0.2.0/24", "fd01::/32"],
                        &["192.0.2.128/25", "fd01::c8:0/112"],
                    )],
                    vec![],
                )]),
                None,
            )],
        ),
        (
            "ports by name",
            vec![network_policy(
                "c/named",
                "",
                Some(vec![accept(everyone(), vec![named("web")])]),
                None,
            )],
        ),
        (
            "a range of ports, and a whole protocol",
            vec![
                network_policy(
                    "c/range",
                    "app=db",
                    Some(vec![accept(everyone(), vec![ports("tcp/8000-8089"), ports("tcp/81")])]),
                    None,
                ),
                // A range by itself is compared, several are looked up; both end beside ports that are tried.
                network_policy(
                    "c/one-range",
                    "app=web",
                    Some(vec![accept(everyone(), vec![ports("tcp/81-8089")])]),
                    None,
                ),
                network_policy(
                    "c/whole",
                    "app=job",
                    Some(vec![accept(vec![of_namespace("a", "")], vec![ports("udp")])]),
                    None,
                ),
            ],
        ),
        (
            "egress to pods and to networks",
            vec![network_policy(
                "b/egress",
                "app in (web,db)",
                None,
                Some(vec![
                    accept(vec![labelled("team=c", "")], vec![ports("tcp/80"), named("web")]),
                    accept(
                        vec![networks(&["10.0.0.0/29", "fd00::/125"], &[])],
                        vec![ports("udp/53")],
                    ),
                ]),
            )],
        ),
        (
            "tiers: a denial before, an acceptance before, a pass, and a baseline",
            vec![
                cluster_policy(
                    "admin",
                    TierKind::Admin,
                    vec![
                        action(
                            Action::Accept,
                            vec![labelled("team=c", "app=job")],
                            vec![ports("tcp/8090")],
                        ),
                        action(Action::Pass, vec![labelled("team=c", "app=db")], vec![]),
                        action(
                            Action::Deny,
                            vec![labelled("team in (b,c)", "")],
                            vec![ports("tcp/81"), ports("udp/53")],
                        ),
                    ],
                    vec![action(
                        Action::Deny,
                        vec![labelled("team=c", "app=web")],
                        vec![ports("tcp/80")],
                    )],
                ),
                cluster_policy(
                    "base",
                    TierKind::Baseline,
                    vec![],
                    vec![
                        action(Action::Accept, vec![labelled("team=b", "")], vec![]),
                        action(Action::Deny, vec![labelled("", "app=job")], vec![]),
                    ],
                ),
            ],
        ),
        (
            "denied by a rejection",
            vec![Change::Settings(Settings {
                network_policy: Denial::Reject,
                cluster_policy: Denial::Reject,
                ..Settings::default()
            })],
        ),
        (
            "guard's rules in protect",
            vec![
                Change::Settings(Settings { mode: GroupMode::Protect, ..Settings::default() }),
                guard_rule("from-outside", "external", "workloads", &["tcp/80"], true),
                guard_rule("not-53", "workloads", "workloads", &["udp/53"], false),
                guard_rule("among", "workloads", "workloads", &[], true),
            ],
        ),
        (
            "guard's rules in monitor deny nothing",
            vec![Change::Settings(Settings { mode: GroupMode::Monitor, ..Settings::default() })],
        ),
        ("guard alone, where one end is laxer than the other", guard_alone()),
    ]
}

/// Takes away every other policy, so that guard decides about everything: in protect, but for pods of
/// namespace `c`, which are in monitor.
fn guard_alone() -> Vec<Change> {
    let network =
        ["a/deny", "a/web", "a/db", "b/outside", "b/egress", "c/named", "c/range", "c/whole"];
    let network = network.map(|name| {
        let (namespace, name) = name.split_once('/').unwrap();
        Change::NetworkPolicy(Key::new(namespace, name), None)
    });
    let kind = PolicyKind::ClusterNetworkPolicy;
    let cluster = ["admin", "base"].map(|name| Change::ClusterPolicy((kind, name.into()), None));
    let spec = GroupSpec {
        comment: String::new(),
        mode: Some(GroupMode::Monitor),
        quarantine: false,
        criteria: vec![GroupCriterion {
            key: GroupKey::Namespace,
            label: None,
            op: GroupOp::Equals,
            value: "c".to_owned(),
        }],
    };
    let lax = Group::new("lax", &spec).unwrap();
    let mut changes: Vec<_> = network.into_iter().chain(cluster).collect();
    changes.extend([
        Change::Settings(Settings { mode: GroupMode::Protect, ..Settings::default() }),
        Change::Group("lax".into(), Some(Arc::new(lax))),
        Change::Rule((false, "among".into()), None),
    ]);
    changes
}

/// What must pass: what the documents say, and the program as well.
fn expected(compiler: &Compiler, probe: &Probe) -> bool {
    let cluster = compiler.cluster();
    let (from, to) = (End::of_address(cluster, probe.source), End::of_address(cluster, probe.to));
    let Probe { protocol, port, .. } = *probe;
    let connection = Connection { from, to, protocol, port };
    let allowed = decide(cluster, compiler.policies(), &connection).allowed();
    let packet = Packet {
        source: probe.source,
        destination: probe.to,
        protocol,
        port,
        from_own_node: false,
        to_own_node: false,
    };
    let judged = compiler.program(NODE, 1).judge(&packet).passes();
    assert_eq!(allowed, judged, "the program is not what the policies say: {probe:?}");
    allowed
}

fn probes(ground: &Ground, compiler: &Compiler) -> Vec<Probe> {
    let mut probes = Vec::new();
    let ports = TCP.map(|port| (Protocol::TCP, port)).into_iter();
    let ports: Vec<_> = ports.chain(UDP.map(|port| (Protocol::UDP, port))).collect();
    for (from, host) in ground.hosts.iter().enumerate() {
        // The hosts outside are asked as well, but not by each other.
        let others = ground
            .hosts
            .iter()
            .enumerate()
            .filter(|(at, other)| *at != from && (host.is_pod || other.is_pod));
        for (_, other) in others {
            for v6 in [false, true] {
                for (protocol, port) in &ports {
                    let (source, to) = (host.address(v6), other.address(v6));
                    let (protocol, port) = (*protocol, *port);
                    let mut probe = Probe { from, source, to, protocol, port, passes: false };
                    probe.passes = expected(compiler, &probe);
                    probes.push(probe);
                }
            }
        }
    }
    probes
}

/// The cluster of the ground, without policies.
fn compiler(ground: &Ground) -> Compiler {
    let mut compiler = Compiler::new(Settings::default());
    let node = Node {
        addresses: vec![NODE_V4.into(), NODE_V6.into()],
        networks: vec!["10.0.0.0/24".parse().unwrap(), "fd00::/64".parse().unwrap()],
        ..Node::default()
    };
    compiler.apply(Change::Node(NODE.into(), Some(node)));
    for name in ["a", "b", "c"] {
        let labels = [("team".to_owned(), name.to_owned())].into_iter().collect();
        compiler.apply(Change::Namespace(name.into(), Some(labels)));
    }
    for host in ground.pods() {
        let web = if *host.key.name == *"db" { 8080 } else { 80 };
        let pod = host.pod(&[("web", Protocol::TCP, web)]);
        compiler.apply(Change::Pod(host.key.clone(), Some(pod)));
    }
    compiler
}

struct Checked {
    allowed: usize,
    denied: usize,
}

/// Compares packets with policies; what differs is told all together.
fn check(name: &str, ground: &Ground, servers: &Servers, compiler: &Compiler) -> Checked {
    let probes = probes(ground, compiler);
    servers.take();
    let passed = try_all(ground, &probes, QUIET);
    let arrived = servers.take();
    let mut wrong = Vec::new();
    for (probe, passed) in probes.iter().zip(passed) {
        let there = arrived.contains(&(probe.source, probe.to, probe.protocol, probe.port));
        if passed != probe.passes || there != probe.passes {
            wrong.push(format!("{probe:?}: passed {passed}, arrived {there}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{name}: {} of {}: {:#?}",
        wrong.len(),
        probes.len(),
        &wrong[..wrong.len().min(12)]
    );
    let strange: HashSet<_> = arrived
        .iter()
        .filter(|(source, to, protocol, port)| {
            let asked = |it: &&Probe| {
                (it.source, it.to, it.protocol, it.port) == (*source, *to, *protocol, *port)
            };
            !probes.iter().any(|it| asked(&it))
        })
        .collect();
    assert!(strange.is_empty(), "{strange:?}");
    let allowed = probes.iter().filter(|it| it.passes).count();
    Checked { allowed, denied: probes.len() - allowed }
}

#[test]
fn packets_do_what_policies_say() {
    requires!(netns);
    kernel::descriptors::raise_limit();
    let ground = Ground::of_nine();
    let servers = Servers::start(&ground, &TCP, &UDP);
    let mut compiler = compiler(&ground);
    let datapath = ground.in_node(|| NftDatapath::open().unwrap());
    let settings = EnforcerSettings::default();
    let mut enforcer = ground.in_node(|| Enforcer::start(datapath, settings, None, []).unwrap());
    let mut generation = 0;
    let mut enforce = |compiler: &Compiler, enforcer: &mut Enforcer<NftDatapath>| {
        generation += 1;
        let program = compiler.program(NODE, generation);
        let delta = Delta::between(enforcer.program(), &program);
        enforcer.apply(&delta).unwrap();
        assert_eq!(enforcer.program(), &program);
        ground.in_node(|| enforcer.revoke()).unwrap();
    };
    let features = features();
    let (mut allowed, mut denied) = (0, 0);
    for (name, changes) in &features {
        changes.iter().cloned().for_each(|change| compiler.apply(change));
        enforce(&compiler, &mut enforcer);
        let checked = check(name, &ground, &servers, &compiler);
        println!("{name}: {} allowed, {} denied", checked.allowed, checked.denied);
        allowed += checked.allowed;
        denied += checked.denied;
    }
    // A label on a pod puts it apart.
    let mut pod = (*compiler.cluster().pods[&Key::new("a", "web")]).clone();
    pod.labels.insert(QUARANTINE.to_owned(), "true".to_owned());
    compiler.apply(Change::Pod(pod.key.clone(), Some(Arc::new(pod))));
    enforce(&compiler, &mut enforcer);
    check("quarantine", &ground, &servers, &compiler);
    assert!(allowed > 2_000 && denied > 2_000, "{allowed} allowed, {denied} denied");

    // What is there is exactly the program, and nft can read all of it.
    drop(enforcer);
    ground.in_node(|| {
        let listed = std::process::Command::new("nft").args(["list", "ruleset"]).output().unwrap();
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        assert!(String::from_utf8_lossy(&listed.stdout).contains("table inet fairlead-guard"));
    });
}
