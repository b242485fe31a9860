//! What a mesh costs in memory. Each test is a process of its own, so that it sees its own memory alone.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stdout, reason = "the number is worth reading")]

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::Node;
use mesh::{Observation, Observed, Peer, PeerIndex, Planner, index, label};
use objects::kinds::ClusterMesh;
use serde_json::json;

const CLUSTERS: usize = 60;
const NODES: usize = 15;

fn key(cluster: usize, i: usize) -> String {
    let mut key = [7; 32];
    (key[0], key[1]) = (cluster as u8, i as u8);
    BASE64_STANDARD.encode(key)
}

fn node(cluster: usize, i: usize) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": format!("n{i:02}"), "annotations": {
            "kilo.squat.ai/key": key(cluster, i),
            "kilo.squat.ai/wireguard-ip": format!("10.{cluster}.255.{i}/16"),
            "kilo.squat.ai/force-endpoint": format!("198.51.100.{i}:51820"),
        }},
        "spec": {"podCIDRs": [format!("10.{cluster}.{i}.0/24")]},
        "status": {"addresses": [{"type": "InternalIP", "address": format!("192.168.{cluster}.{i}")}]},
    }))
    .unwrap()
}

/// The node's peer in every other cluster.
fn peer(cluster: usize, i: usize) -> Peer {
    serde_json::from_value(json!({
        "apiVersion": "kilo.squat.ai/v1alpha1", "kind": "Peer",
        "metadata": {
            "name": format!("prod--c{cluster}--n{i:02}"),
            "resourceVersion": format!("{}", 1_000_000 + i),
            "labels": {label::MESH: "prod", label::NAMESPACE: "fairlead",
                       label::CLUSTER: format!("c{cluster}")},
        },
        "spec": {
            "allowedIPs": [format!("10.{cluster}.{i}.0/24"), format!("10.{cluster}.255.{i}/32"),
                           format!("192.168.{cluster}.{i}/32")],
            "endpoint": {"dnsOrIP": {"ip": format!("198.51.100.{i}")}, "port": 51820},
            "publicKey": key(cluster, i),
        },
    }))
    .unwrap()
}

/// Resident memory in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_peer_is_kept_in_600_bytes() {
    let cluster = |i: usize| {
        json!({"name": format!("c{i}"), "clusterRef": format!("c{i}"),
               "allowedNetworks": [format!("10.{i}.0.0/16")]})
    };
    let mesh: ClusterMesh = serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": "prod", "namespace": "fairlead"},
        "spec": {"clusters": (0..CLUSTERS).map(cluster).collect::<Vec<_>>()},
    }))
    .unwrap();
    // As a controller that starts finds the clusters: every peer is there already.
    let nodes = |c: usize| Observed::Known(index((0..NODES).map(|i| node(c, i))));
    let nodes: Vec<_> = (0..CLUSTERS).map(nodes).collect();
    let before = resident();
    let others = |c: usize| (0..CLUSTERS).filter(move |other| *other != c);
    let peers = |c: usize| -> PeerIndex {
        others(c).flat_map(|other| (0..NODES).map(move |i| peer(other, i))).collect()
    };
    let observation = |(c, nodes)| Observation { nodes, peers: Observed::Known(peers(c)) };
    let clusters: Vec<Observation> = nodes.into_iter().enumerate().map(observation).collect();
    let mut planner = Planner::new(&mesh, &[]);
    for (c, observation) in clusters.iter().enumerate() {
        planner.observe(&format!("c{c}"), observation);
    }
    while planner.advance(256) {}
    assert_eq!(planner.targets_to_write().count(), 0, "they are exactly as planned");
    let peers: usize = clusters.iter().map(|it| it.peers.known().unwrap().len()).sum();
    assert_eq!(peers, CLUSTERS * (CLUSTERS - 1) * NODES);
    let each = (resident() - before) / peers as u64;
    println!("{each} bytes for each of {peers} peers");
    assert!(each <= 600, "{each} bytes for a peer");
}
