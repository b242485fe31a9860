#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says sizes"
)]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use objects::Selector;
use objects::kinds::{Ports, Protocol};
use policy::cluster::{Key, Labels, Pod};
use policy::program::{Delta, PolicyKind, Program, TierKind};
use policy::spec::{
    AcceptRule, Action, ActionRule, ClusterPolicy, NamespaceSelection, NetworkPolicy, Peer,
    PodSelection, PortMatch,
};
use policy::{Change, Compiler, Publisher};
use prost::Message as _;

use crate::{Malformed, proto};

/// Over the wire and back.
fn sent(delta: &Delta) -> (usize, Delta) {
    let bytes = proto::ProgramChange::from(delta).encode_to_vec();
    let message = proto::ProgramChange::decode(bytes.as_slice()).unwrap();
    (bytes.len(), message.try_into().unwrap())
}

fn pod(place: u32, namespaces: u32, nodes: u32) -> Change {
    let key = Key::new(&format!("ns-{}", place % namespaces), &format!("pod-{place}"));
    let pod = Pod {
        node: format!("node-{}", place % nodes).into(),
        labels: Labels::from([("app".to_owned(), format!("app-{}", place / namespaces % 5))]),
        addresses: vec![
            Ipv4Addr::from(0x0a00_0001 + place).into(),
            std::net::Ipv6Addr::from((0xfd00_u128 << 112) + u128::from(place) + 1).into(),
        ],
        host_network: false,
        finished: false,
        ports: Vec::new(),
        images: Vec::new(),
        owner: "Deployment/x".into(),
        created: 0,
        key: key.clone(),
    };
    Change::Pod(key, Some(Arc::new(pod)))
}

fn port(port: u16) -> PortMatch {
    PortMatch::Numbers(Ports { protocol: Protocol::TCP, first: port, last: port })
}

/// Ten rules a namespace, as teams write them: own pods by port, the ingress controller, a database;
/// egress to the own namespace, to DNS and out; and a policy of the whole cluster.
fn policies(namespaces: u32) -> Vec<Change> {
    let mut all = Vec::new();
    for n in 0..namespaces {
        let namespace: Arc<str> = format!("ns-{n}").into();
        let labels = Labels::from([("team".to_owned(), format!("team-{}", n % 10))]);
        all.push(Change::Namespace(Arc::clone(&namespace), Some(labels)));
        let pods = |app: Option<u32>| {
            let selector = app.map(|app| format!("app=app-{app}")).unwrap_or_default();
            PodSelection {
                namespaces: NamespaceSelection::Named(Arc::clone(&namespace)),
                pods: selector.parse().unwrap(),
            }
        };
        for app in 0..5 {
            let key = Key { namespace: Arc::clone(&namespace), name: format!("app-{app}").into() };
            let from = |app| Peer::Pods(pods(Some(app)));
            let rule = |peers, ports| AcceptRule { peers, ports };
            let policy = NetworkPolicy {
                key: key.clone(),
                pods: pods(Some(app)).pods,
                ingress: Some(vec![rule(vec![from((app + 1) % 5)], vec![port(8080)])]),
                egress: Some(vec![rule(vec![Peer::Pods(pods(None))], Vec::new())]),
            };
            all.push(Change::NetworkPolicy(key, Some(Arc::new(policy))));
        }
    }
    let (kind, name): (_, Arc<str>) = (PolicyKind::ClusterNetworkPolicy, "monitoring".into());
    let everywhere = PodSelection {
        namespaces: NamespaceSelection::Labelled(Selector::default()),
        pods: Selector::default(),
    };
    let monitoring = PodSelection {
        namespaces: NamespaceSelection::Named("ns-0".into()),
        pods: "app=app-0".parse().unwrap(),
    };
    let rule = ActionRule {
        name: Some("scrape".into()),
        action: Action::Accept,
        peers: vec![Peer::Pods(monitoring)],
        ports: vec![port(9090)],
    };
    let policy = ClusterPolicy {
        kind,
        name: Arc::clone(&name),
        tier: TierKind::Admin,
        priority: 10,
        subject: everywhere,
        ingress: vec![rule],
        egress: Vec::new(),
    };
    all.push(Change::ClusterPolicy((kind, name), Some(Arc::new(policy))));
    all
}

#[test]
fn programs_and_their_changes_arrive_as_they_were_sent() {
    let mut publisher = Publisher::new(Compiler::default(), 1);
    policies(3).into_iter().for_each(|change| publisher.apply(change));
    (0..60).for_each(|place| publisher.apply(pod(place, 3, 4)));
    let nodes = ["node-0", "node-1", "node-2", "node-3"];
    let mut agents = nodes.map(|node| {
        let mut agent = Program::default();
        agent.apply(&sent(&Delta::whole(&publisher.follow(node))).1).unwrap();
        (node, agent)
    });
    for change in [
        pod(61, 3, 4),
        Change::Pod(Key::new("ns-1", "pod-1"), None),
        Change::NetworkPolicy(Key::new("ns-2", "app-1"), None),
        Change::ClusterPolicy((PolicyKind::ClusterNetworkPolicy, "monitoring".into()), None),
    ] {
        publisher.apply(change);
        for (node, newest) in publisher.publish() {
            let (_, agent) = agents.iter_mut().find(|(name, _)| **name == *node).unwrap();
            let delta = Delta::between(agent, &newest);
            let (_, arrived) = sent(&delta);
            assert_eq!(arrived, delta);
            agent.apply(&arrived).unwrap();
        }
        for (node, agent) in &agents {
            assert_eq!(Some(agent), publisher.newest(node).map(|it| &**it));
        }
    }
}

#[test]
fn a_long_change_arrives_in_parts_of_bounded_size() {
    let mut publisher = Publisher::new(Compiler::default(), 1);
    policies(1).into_iter().for_each(|change| publisher.apply(change));
    (0..20_000).for_each(|place| publisher.apply(pod(place, 1, 200)));
    let whole = Delta::whole(&publisher.follow("node-0"));
    let encoded = super::encode_change(&whole);
    let parts: Vec<_> = super::parts(encoded.clone()).collect();
    assert!(parts.len() > 4, "{}", parts.len());
    assert!(parts.iter().all(|part| part.piece.len() <= super::PIECE));
    let mut arriving = super::ChangeParts::default();
    let (last, rest) = parts.split_last().unwrap();
    assert!(rest.iter().all(|part| arriving.take(part).unwrap().is_none()));
    assert_eq!(arriving.take(last).unwrap(), Some(whole.clone()));
    // The next one begins afresh, and an empty change is one part.
    let empty = Delta { from: whole.to, to: whole.to + 1, ..Delta::default() };
    let parts: Vec<_> = super::parts(super::encode_change(&empty)).collect();
    assert_eq!(parts.len(), 1);
    assert_eq!(arriving.take(&parts[0]).unwrap(), Some(empty));
    let long = proto::ProgramPart { piece: vec![0; super::PIECE + 1], last: true };
    assert!(arriving.take(&long).is_err());
    let piece = proto::ProgramPart { piece: vec![0; super::PIECE], last: false };
    let most = super::LONGEST / super::PIECE;
    assert!((0..most).all(|_| arriving.take(&piece).is_ok()));
    assert!(arriving.take(&piece).is_err(), "it would be longer than a change may be");
}

#[test]
fn what_is_cut_or_unknown_is_refused() {
    let set = |message: proto::SetChange| {
        Delta::try_from(proto::ProgramChange { sets: vec![message], ..Default::default() })
    };
    let id = vec![7; 16];
    assert!(set(proto::SetChange { id: id.clone(), ..Default::default() }).is_ok());
    for wrong in [
        proto::SetChange { id: vec![7; 15], ..Default::default() },
        proto::SetChange { id: id.clone(), added4: vec![1; 5], ..Default::default() },
        proto::SetChange { id: id.clone(), kind: 9, ..Default::default() },
        proto::SetChange { id: id.clone(), state: 9, ..Default::default() },
        proto::SetChange { id: id.clone(), kind: 2, removed6: vec![1; 16], ..Default::default() },
    ] {
        assert!(set(wrong.clone()).is_err(), "{wrong:?}");
    }
    let rule = proto::PolicyRule::default();
    let tier = proto::PolicyTier { rules: vec![rule], ..Default::default() };
    let chain = proto::PolicyChain { id, tiers: vec![tier], ..Default::default() };
    let change = proto::ProgramChange { chains: vec![chain], ..Default::default() };
    assert_eq!(Delta::try_from(change), Err(Malformed("a rule without a verdict")));
}

/// A thousand rules, 10,000 pods of both families on 1,000 nodes: one pod that comes.
#[test]
fn a_pods_change_costs_few_bytes_in_a_large_cluster() {
    let (namespaces, nodes, pods) = (100, 1_000, 10_000);
    let mut publisher = Publisher::new(Compiler::default(), 1);
    policies(namespaces).into_iter().for_each(|change| publisher.apply(change));
    (0..pods).for_each(|place| publisher.apply(pod(place, namespaces, nodes)));
    let before: BTreeMap<Arc<str>, Arc<Program>> = (0..nodes)
        .map(|node| format!("node-{node}"))
        .map(|node| (node.as_str().into(), publisher.follow(&node)))
        .collect();
    let whole: usize = before.values().map(|program| sent(&Delta::whole(program)).0).sum();
    let sizes = publisher.compiler().sizes();
    publisher.apply(pod(pods + 1, namespaces, nodes));
    let deltas = publisher.publish();
    let delta = |(node, newest): &(Arc<str>, Arc<Program>)| Delta::between(&before[node], newest);
    let bytes: Vec<_> = deltas.iter().map(|one| sent(&delta(one)).0).collect();
    let (told, total) = (deltas.len(), bytes.iter().sum::<usize>());
    let most = bytes.iter().max().copied().unwrap_or_default();
    println!(
        "{pods} pods, {nodes} nodes, {} rules: {sizes:?}; a whole program has {} bytes on average; one \
         pod's change is told to {told} nodes, {} bytes each on average, {most} at most, {total} in all",
        namespaces * 10 + 1,
        whole / nodes as usize,
        total / told.max(1),
    );
    // Its namespace is on ten nodes: nobody else hears of it.
    assert!(told <= 100, "{told}");
    assert!(most <= 256, "{most}");
    assert!(total <= 16 << 10, "{total}");
}
