mod reference;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use objects::kinds::ClusterMesh;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Planner;
use crate::{Index, Observation, Observed, Peer, PeerIndex, TargetPlan, label};

const CLUSTERS: usize = 4;

/// Cluster `i` has 10.i.0.0/16 and, where no node covers it, 10.(100 + i).0.0/16.
fn mesh(clusters: usize, going: bool, overlapping: bool) -> ClusterMesh {
    let cluster = |i: usize| {
        let second = if overlapping && i == 1 { 100 } else { 100 + i };
        json!({"name": format!("c{i}"), "clusterRef": format!("c{i}"), "persistentKeepalive": i,
               "allowedNetworks": [format!("10.{i}.0.0/16"), format!("10.{second}.0.0/16")]})
    };
    let mut mesh: ClusterMesh = serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": "m", "namespace": "x"},
        "spec": {"clusters": (0..clusters).map(cluster).collect::<Vec<_>>()},
    }))
    .unwrap();
    if going {
        let now = k8s_openapi::jiff::Timestamp::UNIX_EPOCH;
        mesh.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
    }
    mesh
}

/// What may happen, as small numbers: the fewer there are, the more they clash.
#[derive(Clone, Debug)]
enum Event {
    Node { cluster: usize, node: usize, key: u8, pods: u8, address: u8, internal: u8, extra: u8 },
    NodeGone { cluster: usize, node: usize },
    NodesAway(usize),
    NodesBack(usize),
    Peer { cluster: usize, name: u8, ours: u8, key: u8, of: usize },
    PeerGone { cluster: usize, which: usize },
    PeersAway(usize),
    PeersBack(usize),
    Applied(usize),
    Mesh { clusters: usize, going: bool, overlapping: bool },
    Rival(bool),
}

fn event() -> impl Strategy<Value = Event> {
    let c = 0..CLUSTERS;
    prop_oneof![
        8 => (c.clone(), 0usize..5, 0u8..9, 0u8..6, 0u8..6, 0u8..6, 0u8..6).prop_map(
            |(cluster, node, key, pods, address, internal, extra)| Event::Node {
                cluster, node, key, pods, address, internal, extra
            }
        ),
        3 => (c.clone(), 0usize..5).prop_map(|(cluster, node)| Event::NodeGone { cluster, node }),
        1 => c.clone().prop_map(Event::NodesAway),
        2 => c.clone().prop_map(Event::NodesBack),
        2 => (c.clone(), 0u8..6, 0u8..4, 0u8..9, c.clone()).prop_map(
            |(cluster, name, ours, key, of)| Event::Peer { cluster, name, ours, key, of }
        ),
        2 => (c.clone(), 0usize..9).prop_map(|(cluster, which)| Event::PeerGone { cluster, which }),
        1 => c.clone().prop_map(Event::PeersAway),
        2 => c.clone().prop_map(Event::PeersBack),
        6 => c.prop_map(Event::Applied),
        1 => (2usize..=CLUSTERS, proptest::bool::weighted(0.2), proptest::bool::weighted(0.3))
            .prop_map(|(clusters, going, overlapping)| Event::Mesh { clusters, going, overlapping }),
        1 => any::<bool>().prop_map(Event::Rival),
    ]
}

struct Clusters {
    mesh: ClusterMesh,
    others: Vec<ClusterMesh>,
    nodes: Vec<Index<Node>>,
    peers: Vec<PeerIndex>,
    nodes_known: Vec<bool>,
    peers_known: Vec<bool>,
}

impl Clusters {
    fn observation(&self, i: usize) -> Observation {
        let away = || "away".to_owned();
        let nodes = self.nodes[i].clone();
        let peers = self.peers[i].clone();
        Observation {
            nodes: if self.nodes_known[i] {
                Observed::Known(nodes)
            } else {
                Observed::Away(away())
            },
            peers: if self.peers_known[i] {
                Observed::Known(peers)
            } else {
                Observed::Waiting(away())
            },
        }
    }

    fn observations(&self) -> BTreeMap<String, Observation> {
        (0..CLUSTERS).map(|i| (format!("c{i}"), self.observation(i))).collect()
    }

    fn happen(&mut self, event: &Event, planned: &dyn Fn(usize) -> Option<TargetPlan>) {
        match *event {
            Event::Node { cluster, node, key, pods, address, internal, extra } => {
                let made = made(cluster, node, [key, pods, address, internal, extra]);
                self.nodes[cluster].insert(made.name_any().into(), Arc::new(made));
            }
            Event::NodeGone { cluster, node } => {
                self.nodes[cluster].remove(format!("n{node}").as_str());
            }
            Event::NodesAway(cluster) => self.nodes_known[cluster] = false,
            Event::NodesBack(cluster) => self.nodes_known[cluster] = true,
            Event::Peer { cluster, name, ours, key, of } => {
                let peer = peer(name, ours, key, of);
                self.peers[cluster].insert(&peer);
            }
            Event::PeerGone { cluster, which } => {
                let name = self.peers[cluster].names().nth(which).cloned();
                name.map(|name| self.peers[cluster].remove(&name));
            }
            Event::PeersAway(cluster) => self.peers_known[cluster] = false,
            Event::PeersBack(cluster) => self.peers_known[cluster] = true,
            Event::Applied(cluster) => {
                if let Some(plan) = planned(cluster) {
                    apply(&plan, &mut self.peers[cluster]);
                }
            }
            Event::Mesh { clusters, going, overlapping } => {
                self.mesh = mesh(clusters, going, overlapping);
            }
            Event::Rival(there) => {
                let mut rival = mesh(2, false, false);
                rival.metadata.namespace = Some("a".to_owned());
                for cluster in &mut rival.spec.clusters {
                    cluster.cluster_ref = Some(format!("other-{}", cluster.name));
                }
                self.others = if there { vec![rival] } else { Vec::new() };
            }
        }
    }
}

fn made(cluster: usize, node: usize, [key, pods, address, internal, extra]: [u8; 5]) -> Node {
    let mut annotations = json!({
        "kilo.squat.ai/wireguard-ip": format!("10.{cluster}.255.{address}/16"),
    });
    if key > 0 {
        annotations["kilo.squat.ai/key"] = format!("key-{key}").into();
    }
    match extra {
        1 => annotations["kilo.squat.ai/force-endpoint"] = "nonsense".into(),
        2 | 3 => {
            annotations["kilo.squat.ai/force-endpoint"] =
                format!("198.51.100.{node}:{}", 1000 + u16::from(pods)).into();
        }
        4 => {
            annotations["kilo.squat.ai/discovered-endpoints"] =
                format!(r#"{{"key-{address}": {{"IP": "203.0.113.{pods}", "Port": 4500}}}}"#)
                    .into();
        }
        _ => {}
    }
    let internal = match internal {
        0 => "10.1.0.7".to_owned(),
        n => format!("192.168.0.{n}"),
    };
    serde_json::from_value(json!({
        "metadata": {"name": format!("n{node}"), "annotations": annotations},
        "spec": {"podCIDRs": [format!("10.{cluster}.{pods}.0/24")]},
        "status": {"addresses": [{"type": "InternalIP", "address": internal}]},
    }))
    .unwrap()
}

fn peer(name: u8, ours: u8, key: u8, of: usize) -> Peer {
    let labels = match ours {
        0 => json!({}),
        1 => json!({label::MESH: "m", label::NAMESPACE: "x", label::CLUSTER: format!("c{of}")}),
        2 => json!({label::MESH: "other", label::NAMESPACE: "x", label::CLUSTER: "z"}),
        _ => json!({label::KILO_MESH: "m", label::KILO_CLUSTER: format!("c{of}")}),
    };
    let name = match name {
        0..4 => format!("m--c{of}--n{name}"),
        _ => format!("stranger-{name}"),
    };
    serde_json::from_value(json!({
        "apiVersion": "kilo.squat.ai/v1alpha1", "kind": "Peer",
        "metadata": {"name": name, "labels": labels},
        "spec": {"publicKey": format!("key-{key}"), "allowedIPs": [format!("10.{}.0.0/16", 100 + of)]},
    }))
    .unwrap()
}

fn merge(into: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else { return into.clone_from(patch) };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => drop(into.as_object_mut().unwrap().remove(key)),
            value => merge(&mut into[key], value),
        }
    }
}

fn apply(plan: &TargetPlan, peers: &mut PeerIndex) {
    for name in &plan.deletes {
        peers.remove(name.as_str());
    }
    for update in &plan.updates {
        let mut value = serde_json::to_value(peers.get(&update.name).unwrap()).unwrap();
        merge(&mut value, &update.patch);
        let peer: Peer = serde_json::from_value(value).unwrap();
        peers.insert(&peer);
    }
    for peer in &plan.creates {
        peers.insert(peer);
    }
}

fn follow(events: &[Event], adopt: bool, step: usize) {
    let mut clusters = Clusters {
        mesh: mesh(CLUSTERS, false, false),
        others: Vec::new(),
        nodes: vec![Index::default(); CLUSTERS],
        peers: vec![PeerIndex::default(); CLUSTERS],
        nodes_known: vec![true; CLUSTERS],
        peers_known: vec![true; CLUSTERS],
    };
    let mut planner = Planner::new(&clusters.mesh, &clusters.others);
    for (turn, event) in events.iter().enumerate() {
        let planned = |cluster: usize| planner.target_plan(&format!("c{cluster}"));
        clusters.happen(event, &planned);
        clusters.mesh.spec.adopt = adopt;
        // Several events may be seen as one.
        if turn % step != 0 && !matches!(events.get(turn + 1), Some(Event::Applied(_)) | None) {
            continue;
        }
        planner.set_mesh(&clusters.mesh, &clusters.others);
        for i in 0..CLUSTERS {
            planner.observe(&format!("c{i}"), &clusters.observation(i));
        }
        while planner.advance(3) {}
        let observations = clusters.observations();
        let truth = reference::plan(&clusters.mesh, &clusters.others, &observations);
        for i in 0..CLUSTERS {
            let name = format!("c{i}");
            assert_eq!(
                planner.target_plan(&name).as_ref(),
                truth.targets.get(&name),
                "{name} after {:#?}",
                &events[..=turn]
            );
        }
        assert_eq!(planner.plan(None, None), truth, "after {:#?}", &events[..=turn]);
        let due: Vec<_> = planner.targets_to_write().collect();
        let truth = truth.targets.iter().filter(|(_, target)| !target.is_empty());
        assert_eq!(due, truth.map(|(name, _)| name.as_str()).collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn a_planner_that_followed_every_change_says_what_a_plan_from_nothing_says(
        events in proptest::collection::vec(event(), 1..60),
        adopt in any::<bool>(),
        step in 1usize..4,
    ) {
        follow(&events, adopt, step);
    }
}

/// A planner of clusters with five nodes each that do not clash, and their nodes.
fn five_nodes_each() -> (Planner, Vec<Index<Node>>) {
    let mut planner = Planner::new(&mesh(CLUSTERS, false, false), &[]);
    let mut nodes = vec![Index::default(); CLUSTERS];
    for (cluster, nodes) in nodes.iter_mut().enumerate() {
        for i in 0..5 {
            let key = (cluster * 5 + i + 1) as u8;
            let node = made(cluster, i, [key, i as u8, i as u8, key, 2]);
            nodes.insert(node.name_any().into(), Arc::new(node));
        }
        planner.observe(&format!("c{cluster}"), &known(nodes));
    }
    while planner.advance(usize::MAX) {}
    (planner, nodes)
}

fn known(nodes: &Index<Node>) -> Observation {
    Observation {
        nodes: Observed::Known(nodes.clone()),
        peers: Observed::Known(PeerIndex::default()),
    }
}

#[test]
fn one_nodes_change_is_decided_for_its_own_peers_alone() {
    let (mut planner, mut nodes) = five_nodes_each();
    let moved = made(2, 3, [14, 3, 3, 14, 5]);
    nodes[2].insert(moved.name_any().into(), Arc::new(moved));
    planner.observe("c2", &known(&nodes[2]));
    // It is compared with the others, by what it claims and by its routes. Then there is one decision in
    // each of the other clusters.
    assert!(planner.advance(2));
    let due: usize = planner.undecided.values().map(std::collections::BTreeSet::len).sum();
    assert_eq!(due, CLUSTERS - 1, "{:?}", planner.undecided);
    assert!(!planner.advance(CLUSTERS));
}

/// The plan of the same mesh in which these clusters were observed and the others never were.
fn plan_of(nodes: &[Index<Node>], observed: &[usize]) -> crate::Plan {
    let observation = |i: &usize| (format!("c{i}"), known(&nodes[*i]));
    let observations = observed.iter().map(observation).collect();
    reference::plan(&mesh(CLUSTERS, false, false), &[], &observations)
}

#[test]
fn removing_a_cluster_is_done_in_slices_too() {
    let (mut planner, nodes) = five_nodes_each();
    planner.remove_cluster("c2");
    // One step resolves the cluster; then there are its five nodes in each of the others.
    let mut steps = 1;
    while planner.advance(1) {
        steps += 1;
    }
    assert!(steps > 5 * (CLUSTERS - 1), "all of it was done in {steps} steps");
    assert!(!planner.clusters.contains_key("c2"));
    assert!(planner.clusters.values().all(|cluster| !cluster.sources.contains_key("c2")));
    assert_eq!(planner.plan(None, None), plan_of(&nodes, &[0, 1, 3]));
}

#[test]
fn a_cluster_that_comes_back_while_it_is_removed_stays() {
    for steps in 0..12 {
        let (mut planner, nodes) = five_nodes_each();
        planner.remove_cluster("c2");
        for _ in 0..steps {
            planner.advance(1);
        }
        planner.observe("c2", &known(&nodes[2]));
        while planner.advance(3) {}
        assert_eq!(planner.plan(None, None), plan_of(&nodes, &[0, 1, 2, 3]), "after {steps}");
    }
}

#[test]
fn a_removed_cluster_is_forgotten_also_when_the_mesh_changes_meanwhile() {
    let (mut planner, nodes) = five_nodes_each();
    planner.remove_cluster("c3");
    planner.set_mesh(&mesh(3, false, false), &[]);
    while planner.advance(3) {}
    assert!(!planner.clusters.contains_key("c3"));
    let observations = (0..3).map(|i| (format!("c{i}"), known(&nodes[i]))).collect();
    let truth = reference::plan(&mesh(3, false, false), &[], &observations);
    assert_eq!(planner.plan(None, None), truth);
}
