//! Small clusters and policies that speak of each other more often than chance would have it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use objects::Selector;
use objects::kinds::{GroupCriterion, GroupKey, GroupMode, GroupOp, GroupSpec, Ports, Protocol};
use proptest::prelude::*;
use proptest::sample::select;

use crate::cluster::{Key, Labels, NamedPort, Node, Pod, Service};
use crate::compile::Change;
use crate::program::{Denial, PolicyKind, TierKind};
use crate::spec::{
    AcceptRule, Action, ActionRule, ClusterPolicy, Group, GuardGroup, GuardRule,
    NamespaceSelection, NetworkPolicy, Peer, PodSelection, PortMatch, QUARANTINE, Settings,
};

pub(super) const NODES: [&str; 2] = ["n1", "n2"];
const NAMESPACES: [&str; 3] = ["a", "b", "c"];

fn labels(keys: &'static [&'static str]) -> impl Strategy<Value = Labels> {
    let value = select(vec!["x", "y", "z"]);
    prop::collection::btree_map(select(keys), value, 0..=2)
        .prop_map(|labels| labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
}

fn selector(keys: &'static [&'static str]) -> impl Strategy<Value = Selector> {
    let requirement =
        (select(keys), select(vec!["=x", "=y", "!=x", " in (x,z)", " notin (y)", "", "!"]))
            .prop_map(|(key, test)| match test {
                "!" => format!("!{key}"),
                test => format!("{key}{test}"),
            });
    prop::collection::vec(requirement, 0..=2).prop_map(|all| all.join(",").parse().unwrap())
}

const POD: &[&str] = &["app", "tier"];
const NAMESPACE: &[&str] = &["team", "stage"];

fn namespace() -> impl Strategy<Value = Arc<str>> {
    select(NAMESPACES.to_vec()).prop_map(Arc::from)
}

fn key() -> impl Strategy<Value = Key> {
    (namespace(), select(vec!["p", "q", "r"]))
        .prop_map(|(namespace, name)| Key { namespace, name: name.into() })
}

fn pod() -> impl Strategy<Value = Change> {
    let ports = prop::collection::vec(
        select(vec![
            ("http", Protocol::TCP, 80),
            ("http", Protocol::TCP, 8080),
            ("http", Protocol::SCTP, 80),
            ("dns", Protocol::UDP, 53),
        ]),
        0..=2,
    );
    let flags = (0_u8..12, 0_u8..12, 0_u8..15);
    let facts = (key(), select(NODES.to_vec()), labels(POD), 1_u8..=9, ports, flags, 0_i64..3);
    facts.prop_map(|(key, node, mut labels, address, ports, (host, gone, apart), created)| {
        let host_network = host == 0;
        if apart == 0 {
            labels.insert(QUARANTINE.to_owned(), "true".to_owned());
        }
        let text = if host_network {
            vec![format!("192.168.0.{}", if node == "n1" { 1 } else { 2 })]
        } else if host == 1 {
            Vec::new()
        } else {
            vec![format!("10.0.0.{address}"), format!("fd00::{address}")]
        };
        let port = |(name, protocol, port): (&str, Protocol, u16)| NamedPort {
            name: name.into(),
            protocol,
            port,
        };
        let pod = Pod {
            node: node.into(),
            labels,
            addresses: text.iter().map(|text| text.parse().unwrap()).collect(),
            host_network,
            finished: gone == 0,
            ports: ports.into_iter().map(port).collect(),
            images: Vec::new(),
            owner: format!("Deployment/{}", key.name).into(),
            created,
            key: key.clone(),
        };
        Change::Pod(key, (gone != 1).then(|| Arc::new(pod)))
    })
}

fn peer(egress: bool) -> impl Strategy<Value = Peer> {
    let selection = prop_oneof![
        namespace().prop_map(NamespaceSelection::Named),
        selector(NAMESPACE).prop_map(NamespaceSelection::Labelled),
    ];
    let pods = (selection, selector(POD))
        .prop_map(|(namespaces, pods)| Peer::Pods(PodSelection { namespaces, pods }));
    let network =
        select(vec!["10.0.0.0/29", "10.0.0.4/30", "0.0.0.0/0", "fd00::/125", "::/0", "8.8.8.8/32"]);
    let except = select(vec!["10.0.0.2/31", "10.0.0.0/24", "fd00::2/127"]);
    let networks = (network, prop::option::of(except)).prop_map(|(network, except)| {
        let parse = |text: &str| text.parse::<IpNet>().unwrap();
        Peer::Networks {
            networks: vec![parse(network)],
            except: except.into_iter().map(parse).collect(),
        }
    });
    let nodes = selector(POD).prop_map(
        move |selector| {
            if egress { Peer::Nodes(selector) } else { Peer::Everyone }
        },
    );
    prop_oneof![5 => pods, 2 => networks, 1 => nodes, 1 => Just(Peer::Everyone)]
}

fn port() -> impl Strategy<Value = PortMatch> {
    let numbers = |protocol, first, last| PortMatch::Numbers(Ports { protocol, first, last });
    let named = |protocol, name: &str| PortMatch::Named { protocol, name: name.into() };
    select(vec![
        numbers(Protocol::TCP, 80, 80),
        numbers(Protocol::TCP, 443, 443),
        numbers(Protocol::TCP, 80, 100),
        numbers(Protocol::TCP, 0, u16::MAX),
        numbers(Protocol::UDP, 53, 53),
        numbers(Protocol::SCTP, 80, 80),
        named(Some(Protocol::TCP), "http"),
        named(Some(Protocol::UDP), "dns"),
        named(None, "http"),
    ])
}

fn accept_rules(egress: bool) -> impl Strategy<Value = Option<Vec<AcceptRule>>> {
    let peers = prop::collection::vec(peer(egress), 1..=2);
    let ports = prop::collection::vec(port(), 0..=2);
    let rule = (peers, ports).prop_map(|(peers, ports)| AcceptRule { peers, ports });
    prop::option::of(prop::collection::vec(rule, 0..=3))
}

fn network_policy() -> impl Strategy<Value = Change> {
    let facts = (key(), selector(POD), accept_rules(false), accept_rules(true), 0_u8..6);
    facts.prop_map(|(key, pods, ingress, egress, gone)| {
        let policy = NetworkPolicy { key: key.clone(), pods, ingress, egress };
        Change::NetworkPolicy(key, (gone != 0).then(|| Arc::new(policy)))
    })
}

fn action_rules(egress: bool) -> impl Strategy<Value = Vec<ActionRule>> {
    let peers = prop::collection::vec(peer(egress), 1..=2);
    let ports = prop::collection::vec(port(), 0..=2);
    let action = select(vec![Action::Accept, Action::Deny, Action::Pass]);
    let rule = (action, peers, ports).prop_map(|(action, peers, ports)| ActionRule {
        name: None,
        action,
        peers,
        ports,
    });
    prop::collection::vec(rule, 0..=4)
}

fn cluster_policy() -> impl Strategy<Value = Change> {
    let subject = (selector(NAMESPACE), selector(POD)).prop_map(|(namespaces, pods)| {
        PodSelection { namespaces: NamespaceSelection::Labelled(namespaces), pods }
    });
    let tier = select(vec![TierKind::Admin, TierKind::Baseline]);
    let name = select(vec!["first", "second"]);
    let facts = (name, tier, 0_i32..3, subject, action_rules(false), action_rules(true), 0_u8..6);
    facts.prop_map(|(name, tier, priority, subject, ingress, egress, gone)| {
        let (kind, name): (_, Arc<str>) = (PolicyKind::ClusterNetworkPolicy, name.into());
        let policy = ClusterPolicy {
            kind,
            name: Arc::clone(&name),
            tier,
            priority,
            subject,
            ingress,
            egress,
        };
        Change::ClusterPolicy((kind, name), (gone != 0).then(|| Arc::new(policy)))
    })
}

fn mode() -> impl Strategy<Value = GroupMode> {
    select(vec![GroupMode::Discover, GroupMode::Monitor, GroupMode::Protect, GroupMode::Protect])
}

fn group() -> impl Strategy<Value = Change> {
    let criterion = |key, label: Option<&str>, op, value: &str| GroupCriterion {
        key,
        label: label.map(str::to_owned),
        op,
        value: value.to_owned(),
    };
    let criteria = select(vec![
        vec![criterion(GroupKey::Label, Some("app"), GroupOp::Equals, "x")],
        vec![criterion(GroupKey::Namespace, None, GroupOp::Equals, "a")],
        vec![criterion(GroupKey::NamespaceLabel, Some("team"), GroupOp::Equals, "y")],
        vec![criterion(GroupKey::Address, None, GroupOp::Equals, "8.0.0.0/8")],
        vec![
            criterion(GroupKey::Address, None, GroupOp::Equals, "10.0.0.0/24"),
            criterion(GroupKey::Address, None, GroupOp::Differs, "10.0.0.4/30"),
        ],
        vec![criterion(GroupKey::Service, None, GroupOp::Equals, "s")],
        vec![criterion(GroupKey::Workload, None, GroupOp::Equals, "Deployment/p")],
    ]);
    let facts = (select(vec!["g", "h"]), criteria, prop::option::of(mode()), 0_u8..6);
    facts.prop_map(|(name, criteria, mode, gone)| {
        let quarantine = gone == 5;
        let spec = GroupSpec { comment: String::new(), mode, quarantine, criteria };
        let group = Group::new(name, &spec).unwrap();
        Change::Group(name.into(), (gone != 0).then(|| Arc::new(group)))
    })
}

fn guard_group() -> impl Strategy<Value = GuardGroup> {
    let learned = GuardGroup::Learned { namespace: "a".into(), owner: "Deployment/p".into() };
    select(vec![
        GuardGroup::Any,
        GuardGroup::Workloads,
        GuardGroup::Hosts,
        GuardGroup::Services,
        GuardGroup::Ingress,
        GuardGroup::External,
        GuardGroup::Unmanaged,
        learned,
        GuardGroup::Made("g".into()),
        GuardGroup::Made("h".into()),
        GuardGroup::Made("none".into()),
    ])
}

fn rule() -> impl Strategy<Value = Change> {
    let tcp = |first, last| Ports { protocol: Protocol::TCP, first, last };
    let ports = select(vec![vec![], vec![tcp(80, 80)], vec![tcp(0, u16::MAX)], vec![tcp(79, 90)]]);
    let name = select(vec!["r1", "r2", "r3"]);
    let facts = (
        name,
        any::<bool>(),
        0_i32..2,
        guard_group(),
        guard_group(),
        ports,
        any::<bool>(),
        0_u8..6,
    );
    facts.prop_map(|(name, learned, priority, from, to, ports, allows, gone)| {
        let name: Arc<str> = name.into();
        let applications = if gone == 1 { vec!["http".to_owned()] } else { Vec::new() };
        let rule = GuardRule {
            name: Arc::clone(&name),
            learned,
            priority,
            from,
            to,
            ports,
            applications,
            allows,
        };
        Change::Rule((learned, name), (gone != 0).then(|| Arc::new(rule)))
    })
}

fn service() -> impl Strategy<Value = Change> {
    let outer = select(vec!["203.0.113.7", "192.168.0.2"]);
    (labels(POD), outer, 0_u8..5).prop_map(|(selector, outer, gone)| {
        let service = Service {
            cluster_addresses: vec!["10.96.0.1".parse().unwrap()],
            ingress_addresses: vec![outer.parse().unwrap()],
            selector,
        };
        Change::Service(Key::new("a", "s"), (gone != 0).then_some(service))
    })
}

fn node() -> impl Strategy<Value = Change> {
    (select(NODES.to_vec()), labels(POD), any::<bool>(), 0_u8..6).prop_map(
        |(name, labels, ranges, gone)| {
            let address =
                if name == "n1" { ["192.168.0.1", "fd01::1"] } else { ["192.168.0.2", "fd01::2"] };
            let networks = if ranges { vec!["10.0.0.0/24".parse().unwrap()] } else { Vec::new() };
            let addresses: Vec<IpAddr> = address.iter().map(|it| it.parse().unwrap()).collect();
            let node = Node { labels, addresses, networks };
            Change::Node(name.into(), (gone != 0).then_some(node))
        },
    )
}

fn settings() -> impl Strategy<Value = Change> {
    (mode(), any::<bool>()).prop_map(|(mode, reject)| {
        let network_policy = if reject { Denial::Reject } else { Denial::Drop };
        Change::Settings(Settings { mode, network_policy, ..Settings::default() })
    })
}

fn change() -> impl Strategy<Value = Change> {
    let namespace = (namespace(), labels(NAMESPACE), 0_u8..8)
        .prop_map(|(name, labels, gone)| Change::Namespace(name, (gone != 0).then_some(labels)));
    prop_oneof![
        10 => pod(),
        4 => namespace,
        5 => network_policy(),
        4 => cluster_policy(),
        3 => group(),
        4 => rule(),
        1 => service(),
        2 => node(),
        1 => settings(),
    ]
}

/// Changes of a cluster that begins with its namespaces.
pub(super) fn changes(most: usize) -> impl Strategy<Value = Vec<Change>> {
    let first = NAMESPACES.map(|name| {
        let labels = BTreeMap::from([("team".to_owned(), "x".to_owned())]);
        Change::Namespace(name.into(), Some(labels))
    });
    prop::collection::vec(change(), 5..=most)
        .prop_map(move |changes| first.iter().cloned().chain(changes).collect())
}
