//! A mesh of 100 clusters with 50 nodes each: planned whole when nothing is there, when everything
//! is, and after one node changed.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use mesh::{Input, Plan, Seen, View, plan};
use objects::kinds::ClusterMesh;
use serde_json::json;

const CLUSTERS: usize = 100;
const NODES: usize = 50;

fn mesh() -> ClusterMesh {
    let cluster = |i: usize| {
        json!({"name": format!("c{i}"), "clusterRef": format!("c{i}"),
               "allowedNetworks": [format!("10.{i}.0.0/16"), format!("172.16.{i}.0/24")]})
    };
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": "m", "namespace": "fairlead"},
        "spec": {"clusters": (0..CLUSTERS).map(cluster).collect::<Vec<_>>()},
    }))
    .unwrap()
}

fn node(cluster: usize, i: usize, port: u16) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": format!("n{i:02}"), "annotations": {
            "kilo.squat.ai/key": format!("key-{cluster}-{i}"),
            "kilo.squat.ai/wireguard-ip": format!("10.{cluster}.255.{i}/16"),
            "kilo.squat.ai/force-endpoint": format!("198.51.100.{i}:{port}"),
        }},
        "spec": {"podCIDRs": [format!("10.{cluster}.{i}.0/24")]},
    }))
    .unwrap()
}

fn timed(mesh: &ClusterMesh, views: &BTreeMap<String, View>) -> (Plan, Duration) {
    let began = Instant::now();
    let plan = plan(Input { mesh, others: &[], views, adopt: false });
    (plan, began.elapsed())
}

fn main() {
    let mesh = mesh();
    let view = |c: usize| {
        let nodes = (0..NODES).map(|i| node(c, i, 51820)).collect();
        (format!("c{c}"), View { nodes: Seen::Known(nodes), peers: Seen::Known(vec![]) })
    };
    let mut views: BTreeMap<String, View> = (0..CLUSTERS).map(view).collect();
    let (first, from_nothing) = timed(&mesh, &views);
    let peers: usize = first.targets.values().map(|target| target.creates.len()).sum();
    for (name, target) in first.targets {
        views.get_mut(&name).unwrap().peers = Seen::Known(target.creates);
    }
    let (settled, nothing_to_do) = timed(&mesh, &views);
    assert!(settled.is_empty());
    views.get_mut("c7").unwrap().nodes =
        Seen::Known((0..NODES).map(|i| node(7, i, if i == 3 { 4000 } else { 51820 })).collect());
    let (changed, one_change) = timed(&mesh, &views);
    let written: usize = changed.targets.values().map(|target| target.updates.len()).sum();
    assert_eq!(written, CLUSTERS - 1);
    println!("mesh plan, {CLUSTERS} clusters of {NODES} nodes, {peers} peers");
    println!("  from nothing      {from_nothing:>10.1?}");
    println!("  nothing to do     {nothing_to_do:>10.1?}");
    println!(
        "  one node changed  {one_change:>10.1?}   {written} writes; a rewrite of all is {peers} ({} times)",
        peers / written
    );
}
