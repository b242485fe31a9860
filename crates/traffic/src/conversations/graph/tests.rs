use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Graph, Level};
use crate::conversations::{
    Directory, Labels, Limits, Moment, PodFacts, Protocol, Readers, Record, Report, Router, Shard,
    Totals, shards,
};

fn address(n: u16) -> IpAddr {
    let [high, low] = n.to_be_bytes();
    IpAddr::from([10, 0, high, low])
}

/// `pods` pods, ten to a deployment, a hundred to a namespace, all on one node.
fn talking(pods: u16, pairs: &[(u16, u16)]) -> (Vec<Shard>, Readers) {
    let mut directory = Directory::new();
    for n in 0..pods {
        let pod = PodFacts {
            uid: n.to_string().into(),
            namespace: format!("ns-{}", n / 100).into(),
            name: format!("pod-{n}").into(),
            owner: Some(format!("Deployment/app-{}", n / 10).into()),
            node: "node".into(),
            addresses: vec![address(n)],
            images: Vec::new(),
            labels: Labels::new(),
            from: Moment(0),
            until: None,
        };
        directory.apply_pod(&pod, Moment(0));
    }
    let records = pairs.iter().enumerate().map(|(i, (client, server))| Record {
        client: address(*client),
        server: address(*server),
        port: 80,
        protocol: Protocol::TCP,
        application: None,
        totals: Totals { bytes: 1 << (i % 40), packets: 1, sessions: 1 },
        first: Moment(1000),
        last: Moment(2000 + 1000 * i as u64),
    });
    let report = Report {
        agent: "node".into(),
        incarnation: 1,
        sequence: 1,
        records: records.collect(),
        ..Report::default()
    };
    let router = Router::new([1, 2], 3);
    let (mut shards, readers) = shards(router, Limits::default());
    let batches = router.route(&report, &directory, |_| true).parts;
    for (shard, batch) in shards.iter_mut().zip(&batches) {
        shard.apply(batch, Moment(10_000));
        shard.publish();
    }
    (shards, readers)
}

fn drawn(graph: &Graph) -> BTreeMap<(String, String), (u64, u32)> {
    let name = |node: u32| graph.nodes[node as usize].to_string();
    graph
        .edges
        .iter()
        .map(|edge| {
            ((name(edge.client), name(edge.server)), (edge.totals.bytes, edge.conversations))
        })
        .collect()
}

#[test]
fn each_level_sums_what_is_below() {
    let (_shards, readers) = talking(200, &[(0, 10), (1, 10), (2, 11), (0, 150), (0, 999)]);
    let view = readers.view();
    let edge = |client: &str, server: &str, bytes, conversations| {
        ((client.to_owned(), server.to_owned()), (bytes, conversations))
    };
    let graph = view.graph(Level::Group, Moment(0));
    let expected = BTreeMap::from([
        edge("ns-0/Deployment/app-0", "ns-0/Deployment/app-1", 7, 3),
        edge("ns-0/Deployment/app-0", "ns-1/Deployment/app-15", 8, 1),
        edge("ns-0/Deployment/app-0", "external", 16, 1),
    ]);
    assert_eq!(drawn(&graph), expected);
    let graph = view.graph(Level::Namespace, Moment(0));
    let expected = BTreeMap::from([
        edge("ns-0", "ns-0", 7, 3),
        edge("ns-0", "ns-1", 8, 1),
        edge("ns-0", "external", 16, 1),
    ]);
    assert_eq!(drawn(&graph), expected);
    assert_eq!(view.graph(Level::Workload, Moment(0)).edges.len(), 5);
    assert_eq!(view.graph(Level::Workload, Moment(5000)).edges.len(), 2);
}

#[test]
fn many_nodes_are_drawn_as_few_are() {
    let pairs: Vec<_> = (0..2500).map(|n| (n, (n * 7 + 1) % 2500)).collect();
    let (_shards, readers) = talking(2500, &pairs);
    let graph = readers.view().graph(Level::Workload, Moment(0));
    assert_eq!((graph.nodes.len(), graph.edges.len()), (2500, 2500));
    let sum: u64 = graph.edges.iter().map(|edge| edge.totals.bytes).sum();
    assert_eq!(sum, (0..2500).map(|i| 1_u64 << (i % 40)).sum::<u64>());
    let names: Arc<[_]> = graph.nodes.iter().map(ToString::to_string).collect();
    assert!(names.iter().all(|name| name.starts_with("ns-")));
}
