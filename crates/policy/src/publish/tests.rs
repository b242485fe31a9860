use std::sync::Arc;

use ipnet::IpNet;

use super::Publisher;
use crate::cluster::{Key, Labels, Pod};
use crate::compile::{Change, Compiler};
use crate::program::{Delta, Program};
use crate::spec::{AcceptRule, NamespaceSelection, NetworkPolicy, Peer, PodSelection};

/// A pod of a namespace on a node; `place` gives it its address.
fn pod(namespace: &str, place: u32, node: &str) -> Change {
    let name = format!("p{place}");
    let key = Key::new(namespace, &name);
    let address = std::net::Ipv4Addr::from(0x0a00_0000 + place);
    let pod = Pod {
        key: key.clone(),
        node: node.into(),
        labels: Labels::from([("app".to_owned(), format!("a{}", place % 10))]),
        addresses: vec![address.into()],
        host_network: false,
        finished: false,
        ports: Vec::new(),
        images: Vec::new(),
        owner: format!("Pod/{name}").into(),
        created: 0,
    };
    Change::Pod(key, Some(Arc::new(pod)))
}

/// Pods of the namespace, and a network outside, may enter.
fn policy(namespace: &str) -> Change {
    let key = Key::new(namespace, "own");
    let own = Peer::Pods(PodSelection {
        namespaces: NamespaceSelection::Named(namespace.into()),
        pods: objects::Selector::default(),
    });
    let networks = vec![IpNet::new_assert([192, 0, 2, 0].into(), 24)];
    let outside = Peer::Networks { networks, except: Vec::new() };
    let policy = NetworkPolicy {
        key: key.clone(),
        pods: objects::Selector::default(),
        ingress: Some(vec![AcceptRule { peers: vec![own, outside], ports: Vec::new() }]),
        egress: None,
    };
    Change::NetworkPolicy(key, Some(Arc::new(policy)))
}

#[test]
fn a_pods_change_is_told_to_nodes_that_need_it_and_to_no_others() {
    let mut publisher = Publisher::new(Compiler::default(), 7);
    for namespace in ["a", "b"] {
        publisher.apply(Change::Namespace(namespace.into(), Some(Labels::new())));
        publisher.apply(policy(namespace));
    }
    publisher.apply(pod("a", 1, "n1"));
    publisher.apply(pod("b", 2, "n2"));
    publisher.apply(pod("b", 3, "n3"));
    let mut agents: Vec<(&str, Program)> = Vec::new();
    for node in ["n1", "n2", "n3"] {
        let mut program = Program::default();
        assert_eq!(program.apply(&Delta::whole(&publisher.follow(node))), Ok(()));
        agents.push((node, program));
    }
    assert!(publisher.publish().is_empty());
    publisher.apply(pod("b", 12, "n2"));
    let told: Vec<_> = publisher
        .publish()
        .into_iter()
        .map(|(node, newest)| {
            let agent = agents.iter().find(|(name, _)| **name == *node).map(|(_, has)| has);
            let delta = Delta::between(agent.unwrap_or(&Program::default()), &newest);
            (node, delta)
        })
        .collect();
    let nodes: Vec<_> = told.iter().map(|(node, _)| &**node).collect();
    assert_eq!(nodes, ["n2", "n3"]);
    // One element, and for its own node the pod.
    assert_eq!(told.iter().map(|(_, delta)| delta.size()).collect::<Vec<_>>(), [2, 1]);
    for (node, delta) in told {
        let (_, agent) =
            agents.iter_mut().find(|(name, _)| **name == *node).unwrap_or_else(|| panic!());
        assert_eq!(agent.apply(&delta), Ok(()));
        assert_eq!(Some(&*agent), publisher.newest(&node).map(|it| &**it));
    }
    assert!(publisher.publish().is_empty());
}

#[test]
fn a_delta_that_does_not_fit_is_refused_and_changes_nothing() {
    let mut publisher = Publisher::new(Compiler::default(), 0);
    publisher.apply(Change::Namespace("a".into(), Some(Labels::new())));
    publisher.apply(policy("a"));
    publisher.apply(pod("a", 1, "n1"));
    let first = publisher.follow("n1");
    let whole = Delta::whole(&first);
    publisher.apply(pod("a", 2, "n2"));
    let published = publisher.publish();
    let next = &Delta::between(&first, &published[0].1);
    let mut late = Program::default();
    assert!(late.apply(next).is_err());
    assert_eq!(late, Program::default());
    let mut agent = Program::default();
    assert_eq!(agent.apply(&whole), Ok(()));
    assert_eq!(agent.apply(next), Ok(()));
    assert!(agent.apply(next).is_err(), "it was made from another generation");
    // One that names what is not there is refused as well.
    let wrong = Delta {
        pods: vec![([9, 9, 9, 9].into(), None)],
        from: agent.generation,
        ..Delta::default()
    };
    let before = agent.clone();
    assert!(agent.apply(&wrong).is_err());
    assert_eq!(agent, before);
}

#[test]
fn a_fingerprint_is_of_what_is_decided_and_not_of_who_decided_it_when() {
    let program = |first, pods: &[u32]| {
        let mut publisher = Publisher::new(Compiler::default(), first);
        publisher.apply(Change::Namespace("a".into(), Some(Labels::new())));
        publisher.apply(policy("a"));
        pods.iter().for_each(|place| publisher.apply(pod("a", *place, "n1")));
        publisher.follow("n1")
    };
    let one = program(7, &[1, 2]);
    let same = program(9000, &[2, 1]);
    assert_ne!(one.generation, same.generation);
    assert_eq!(one.fingerprint(), same.fingerprint());
    // Another element of a set, and another pod, each is another program.
    assert_ne!(one.fingerprint(), program(7, &[1, 2, 3]).fingerprint());
    assert_ne!(one.fingerprint(), Program::default().fingerprint());
}

#[test]
fn who_is_forgotten_is_looked_at_no_more() {
    let mut publisher = Publisher::new(Compiler::default(), 0);
    publisher.apply(Change::Namespace("a".into(), Some(Labels::new())));
    publisher.apply(policy("a"));
    publisher.apply(pod("a", 1, "n1"));
    publisher.apply(pod("a", 2, "n2"));
    publisher.follow("n1");
    publisher.follow("n2");
    assert!(publisher.with_set.values().all(|nodes| nodes.len() == 2), "{:?}", publisher.with_set);
    publisher.forget("n1");
    publisher.apply(pod("a", 3, "n2"));
    let nodes: Vec<_> = publisher.publish().into_iter().map(|(node, _)| node).collect();
    assert_eq!(nodes, ["n2".into()]);
    publisher.forget("n2");
    assert!(publisher.with_set.is_empty());
    // What comes back is told as it is by then.
    assert_eq!(publisher.follow("n1").pods.len(), 1);
    assert!(publisher.publish().is_empty());
}
