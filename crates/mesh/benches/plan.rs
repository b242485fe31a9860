//! A mesh of 100 clusters with 50 nodes each, in one process: planned whole, as a reconcile of the whole
//! mesh does for each change, against a state that is kept up to date.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use mesh::{Index, Input, Peer, Plan, Seen, Sight, State, View, plan};
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

type Views = BTreeMap<String, View>;

fn timed(mesh: &ClusterMesh, views: &Views) -> (Plan, Duration) {
    let began = Instant::now();
    let plan = plan(Input { mesh, others: &[], views, adopt: false });
    (plan, began.elapsed())
}

/// As controllers hold it: the metadata that matters, by name.
fn index(peers: Vec<Peer>) -> Index<Peer> {
    peers.into_iter().map(|peer| (peer.name_any().into(), Arc::new(peer))).collect()
}

fn nodes(c: usize, changed: Option<usize>) -> Vec<Node> {
    let port = |i: usize| if changed == Some(i) { 4000 } else { 51820 };
    (0..NODES).map(|i| node(c, i, port(i))).collect()
}

fn sight(c: usize, peers: &Index<Peer>, changed: Option<usize>) -> Sight {
    let nodes = nodes(c, changed).into_iter();
    let nodes = nodes.map(|node| (node.name_any().into(), Arc::new(node))).collect();
    Sight { nodes: Seen::Known(nodes), peers: Seen::Known(peers.clone()) }
}

/// Resident memory, in MiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn main() {
    let mesh = mesh();

    // A state, from nothing to settled. The longest slice is what anybody else may have to wait for.
    let before = resident();
    let none = Index::default();
    let mut state = State::new(&mesh, &[]);
    let began = Instant::now();
    for c in 0..CLUSTERS {
        state.see(&format!("c{c}"), &sight(c, &none, None));
    }
    let mut longest = Duration::ZERO;
    loop {
        let slice = Instant::now();
        let more = state.work(256);
        longest = longest.max(slice.elapsed());
        if !more {
            break;
        }
    }
    let from_nothing = began.elapsed();
    let mut there: Vec<Index<Peer>> =
        (0..CLUSTERS).map(|c| index(state.target(&format!("c{c}")).unwrap().creates)).collect();
    let peers: usize = there.iter().map(Index::len).sum();
    let began = Instant::now();
    for (c, peers) in there.iter().enumerate() {
        state.see(&format!("c{c}"), &sight(c, peers, None));
    }
    while state.work(256) {}
    let written = began.elapsed();
    assert_eq!(state.due().count(), 0);
    let held = resident() - before;

    // One node's change, and what is written because of it.
    let began = Instant::now();
    state.see("c7", &sight(7, &there[7], Some(3)));
    while state.work(256) {}
    let one_change = began.elapsed();
    let due: Vec<String> = state.due().map(ToOwned::to_owned).collect();
    let writes: usize = due.iter().map(|target| state.target(target).unwrap().updates.len()).sum();
    assert_eq!(writes, CLUSTERS - 1);
    for (target, peers) in there.iter_mut().enumerate().filter(|(target, _)| *target != 7) {
        let name = "m--c7--n03";
        let mut peer = (*peers[name]).clone();
        peer.spec.endpoint.as_mut().unwrap().port = 4000;
        peers.insert(name.into(), Arc::new(peer));
        assert!(due.contains(&format!("c{target}")));
    }
    let began = Instant::now();
    for (c, peers) in there.iter().enumerate() {
        state.see(&format!("c{c}"), &sight(c, peers, (c == 7).then_some(3)));
    }
    while state.work(256) {}
    let echo = began.elapsed();
    assert_eq!(state.due().count(), 0);
    drop(state);

    // The rival: the whole mesh, for each change.
    let view = |c: usize, peers: &Index<Peer>| {
        let peers = peers.values().map(|peer| (**peer).clone()).collect();
        (format!("c{c}"), View { nodes: Seen::Known(nodes(c, None)), peers: Seen::Known(peers) })
    };
    let views: Views = there.iter().enumerate().map(|(c, peers)| view(c, peers)).collect();
    let (changed, whole) = timed(&mesh, &views);
    let rival: usize = changed.targets.values().map(|target| target.updates.len()).sum();
    assert_eq!(rival, CLUSTERS - 1);

    println!("mesh, {CLUSTERS} clusters of {NODES} nodes, {peers} peers");
    println!("  state from nothing   {from_nothing:>10.1?}   longest slice {longest:.1?}");
    println!("  all of it written    {written:>10.1?}   {held} MiB held, peers included");
    println!("  one node's change    {one_change:>10.1?}   {writes} writes; their echo {echo:.1?}");
    println!(
        "  whole-mesh reconcile {whole:>10.1?}   {:.0} times one node's change",
        whole.as_secs_f64() / one_change.as_secs_f64()
    );
}
