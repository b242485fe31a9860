//! A mesh of 100 clusters with 50 nodes each, in one process: planned whole, as a reconcile of the whole
//! mesh does for each change, against a planner that is kept up to date.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::Table;
use k8s_openapi::api::core::v1::Node;
use mesh::{Index, Observation, Observed, PeerIndex, Plan, Planner, index, plan};
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

type Observations = BTreeMap<String, Observation>;

fn timed(mesh: &ClusterMesh, observations: &Observations) -> (Plan, Duration) {
    let began = Instant::now();
    let plan = plan(mesh, &[], observations);
    (plan, began.elapsed())
}

fn nodes(c: usize) -> Vec<Node> {
    (0..NODES).map(|i| node(c, i, 51820)).collect()
}

fn known<T>(observed: &mut Observed<Index<T>>) -> &mut Index<T> {
    let Observed::Known(index) = observed else { panic!() };
    index
}

fn show(planner: &mut Planner, clusters: &[Observation]) -> Duration {
    let began = Instant::now();
    for (c, observation) in clusters.iter().enumerate() {
        planner.observe(&format!("c{c}"), observation);
    }
    while planner.advance(256) {}
    began.elapsed()
}

/// Resident memory, in MiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn main() -> ExitCode {
    let mesh = mesh();
    let before = resident();

    // From nothing. The longest slice is what anybody else may have to wait for.
    let observation = |c| Observation {
        nodes: Observed::Known(index(nodes(c))),
        peers: Observed::Known(PeerIndex::default()),
    };
    let mut clusters: Vec<Observation> = (0..CLUSTERS).map(observation).collect();
    let mut planner = Planner::new(&mesh, &[]);
    let began = Instant::now();
    for (c, observation) in clusters.iter().enumerate() {
        planner.observe(&format!("c{c}"), observation);
    }
    let mut longest = Duration::ZERO;
    loop {
        let slice = Instant::now();
        let more = planner.advance(256);
        longest = longest.max(slice.elapsed());
        if !more {
            break;
        }
    }
    let from_nothing = began.elapsed();
    for (c, observation) in clusters.iter_mut().enumerate() {
        let creates = planner.target_plan(&format!("c{c}")).unwrap().creates;
        observation.peers = Observed::Known(creates.into_iter().collect());
    }
    let peers: usize = clusters.iter().map(|cluster| cluster.peers.known().unwrap().len()).sum();
    let written = show(&mut planner, &clusters);
    assert_eq!(planner.targets_to_write().count(), 0);
    let held = resident() - before;

    // One node's change, and the echo of what is written because of it.
    known(&mut clusters[7].nodes).insert("n03".into(), Arc::new(node(7, 3, 4000)));
    let one_change = show(&mut planner, &clusters);
    let due: Vec<String> = planner.targets_to_write().map(ToOwned::to_owned).collect();
    let writes: usize =
        due.iter().map(|target| planner.target_plan(target).unwrap().updates.len()).sum();
    assert_eq!(writes, CLUSTERS - 1);
    for (_, cluster) in clusters.iter_mut().enumerate().filter(|(c, _)| *c != 7) {
        let Observed::Known(peers) = &mut cluster.peers else { panic!() };
        let mut peer = peers.get("m--c7--n03").unwrap();
        peer.spec.endpoint.as_mut().unwrap().port = 4000;
        peers.insert(&peer);
    }
    let echo = show(&mut planner, &clusters);
    assert_eq!(planner.targets_to_write().count(), 0);
    drop(planner);

    // The rival: the whole mesh, for each change.
    for (c, cluster) in clusters.iter_mut().enumerate() {
        cluster.nodes = Observed::Known(index(nodes(c)));
    }
    let named = |(c, cluster)| (format!("c{c}"), cluster);
    let observations: Observations = clusters.into_iter().enumerate().map(named).collect();
    let (changed, whole) = timed(&mesh, &observations);
    let rival: usize = changed.targets.values().map(|target| target.updates.len()).sum();
    assert_eq!(rival, CLUSTERS - 1);

    let mut table = Table::new("mesh");
    let nanos = |time: Duration| time.as_nanos() as f64;
    let what = |what: &str| format!("{what}, {CLUSTERS} clusters of {NODES} nodes, {peers} peers");
    let rivals = [("the whole mesh for each change", nanos(whole))];
    table.row(&what("one node's change"), "ns", nanos(one_change), &rivals);
    table.must("at least 50 times", whole >= one_change * 50);
    table.row("its writes", "", writes as f64, &[]);
    table.row("their echo", "ns", nanos(echo), &[]);
    table.row("state from nothing", "ns", nanos(from_nothing), &[]);
    table.row("its longest slice", "ns", nanos(longest), &[]);
    table.row("all of it written", "ns", nanos(written), &[]);
    let held = (held << 20) as f64 / peers as f64;
    table.row("held for a peer", "B", held, &[]);
    table.must("at most 600 bytes", held <= 600.0);
    table.finish()
}
