//! A large cluster: 10,000 pods of both families on 1,000 nodes under 1,000 rules, in a layout that does
//! not flatter: each rule admits pods of all namespaces, so that every node has every set, and a pod that
//! comes is told to all of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use bench::Table;
use node::enforcement::{Enforcer, EnforcerSettings, NftDatapath};
use policy::cluster::{Key, Pod};
use policy::program::Delta;
use policy::spec::{
    AcceptRule, NamespaceSelection, NetworkPolicy, Peer, PodSelection, PortMatch, Settings,
};
use policy::{Change, Compiler, Publisher};
use protocol::program::encode_change;

use crate::ground::{Ground, NODE};
use crate::resident;

const PODS: usize = 10_000;
const NODES: usize = 1_000;
const NAMESPACES: usize = 100;
/// The rules of one namespace, each for pods of another label and port.
const RULES: usize = 10;

/// The pods of a namespace are on as many nodes as there are of them.
fn pod(place: usize) -> Change {
    let key = Key::new(&format!("ns-{}", place % NAMESPACES), &format!("pod-{place}"));
    let node = match place * 7919 % NODES {
        0 => NODE.to_owned(),
        node => format!("node-{}", node + 1),
    };
    let app = place / NAMESPACES % RULES;
    let v4 = Ipv4Addr::from(0x0a20_0000 + place as u32);
    let v6 = Ipv6Addr::from((0xfd20_u128 << 112) + place as u128);
    let pod = Pod {
        key: key.clone(),
        node: node.into(),
        labels: [("app".to_owned(), format!("app-{app}"))].into_iter().collect(),
        addresses: vec![IpAddr::from(v4), IpAddr::from(v6)],
        host_network: false,
        finished: false,
        ports: vec![],
        images: vec![],
        owner: "Deployment/x".into(),
        created: 0,
    };
    Change::Pod(key, Some(Arc::new(pod)))
}

/// One policy a namespace: pods `app-N` of all namespaces reach its pods by port 8000 + N.
fn policy(namespace: usize) -> Change {
    let rule = |number: usize| {
        let pods = PodSelection {
            namespaces: NamespaceSelection::Labelled(Default::default()),
            pods: format!("app=app-{number}").parse().unwrap(),
        };
        let port = format!("tcp/{}", 8000 + number);
        AcceptRule {
            peers: vec![Peer::Pods(pods)],
            ports: vec![PortMatch::Numbers(port.parse().unwrap())],
        }
    };
    let key = Key::new(&format!("ns-{namespace}"), "policy");
    let policy = NetworkPolicy {
        key: key.clone(),
        pods: "".parse().unwrap(),
        ingress: Some((0..RULES).map(rule).collect()),
        egress: None,
    };
    Change::NetworkPolicy(key, Some(Arc::new(policy)))
}

pub(crate) fn rows(ground: &Ground, table: &mut Table) {
    let before = resident();
    let began = Instant::now();
    let mut publisher = Publisher::new(Compiler::new(Settings::default()), 1);
    for namespace in 0..NAMESPACES {
        let name = format!("ns-{namespace}").into();
        publisher.apply(Change::Namespace(name, Some(Default::default())));
        publisher.apply(policy(namespace));
    }
    (0..PODS).for_each(|place| publisher.apply(pod(place)));
    let own = publisher.follow(NODE);
    for node in 2..=NODES {
        publisher.follow(&format!("node-{node}"));
    }
    publisher.publish();
    let compiled = began.elapsed().as_secs_f64();
    let memory = resident().saturating_sub(before);
    let second = [("a second", 1e9)];
    let what = "10,000 pods, 1,000 rules, 1,000 nodes: programs are made";
    table.row(what, "ns", compiled * 1e9, &second);
    let megabytes = [("100 MB", 100e6)];
    table.row("the same: memory of the controller", "B", memory as f64, &megabytes);

    // One pod that comes.
    let newest: Vec<_> = (2..=NODES).map(|node| format!("node-{node}")).collect();
    let before: Vec<_> = newest.iter().map(|it| publisher.newest(it).cloned().unwrap()).collect();
    let began = Instant::now();
    publisher.apply(pod(PODS));
    let published = publisher.publish();
    let changed = began.elapsed().as_secs_f64();
    let sizes: Vec<usize> = published
        .iter()
        .filter_map(|(node, program)| {
            let at = newest.iter().position(|it| **it == **node)?;
            Some(encode_change(&Delta::between(&before[at], program)).len())
        })
        .collect();
    let (all, most) = (sizes.iter().sum::<usize>(), sizes.iter().max().copied().unwrap_or(0));
    eprintln!(
        "a pod that comes: {} nodes are told, {all} bytes in all, {most} at most",
        sizes.len()
    );
    let anew = [("all made anew", compiled * 1e9)];
    table.row("the same: a pod that comes, programs changed", "ns", changed * 1e9, &anew);
    let each = all as f64 / sizes.len().max(1) as f64;
    let whole = encode_change(&Delta::whole(&own)).len() as f64;
    let what = "the same: bytes told to each node";
    table.row(what, "B", each, &[("its whole program", whole)]);

    // On one node of them.
    let elements: usize = own.sets.values().map(|set| set.elements.len()).sum();
    let before = resident();
    let took = ground.in_node(|| {
        let began = Instant::now();
        let datapath = NftDatapath::open().unwrap();
        let settings = EnforcerSettings::default();
        let program = policy::program::Program::clone(&own);
        let enforcer = Enforcer::start(datapath, settings, Some(program), []).unwrap();
        let took = began.elapsed().as_secs_f64();
        eprintln!(
            "{elements} elements; the agent has {} bytes more",
            resident().saturating_sub(before)
        );
        drop(enforcer);
        NftDatapath::remove().unwrap();
        took
    });
    table.row("the same: one node's program is enforced", "ns", took * 1e9, &second);
}
