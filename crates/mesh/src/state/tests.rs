use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use objects::kinds::ClusterMesh;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Index, Sight, State};
use crate::{Input, Peer, Seen, TargetPlan, View, label, plan};

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

struct World {
    mesh: ClusterMesh,
    others: Vec<ClusterMesh>,
    nodes: Vec<Index<Node>>,
    peers: Vec<Index<Peer>>,
    nodes_known: Vec<bool>,
    peers_known: Vec<bool>,
}

impl World {
    fn sight(&self, i: usize) -> Sight {
        let away = || "away".to_owned();
        let nodes = self.nodes[i].clone();
        let peers = self.peers[i].clone();
        Sight {
            nodes: if self.nodes_known[i] { Seen::Known(nodes) } else { Seen::Away(away()) },
            peers: if self.peers_known[i] { Seen::Known(peers) } else { Seen::Waiting(away()) },
        }
    }

    fn views(&self) -> BTreeMap<String, View> {
        fn listed<T: Clone>(seen: &Seen<Index<T>>) -> Seen<Vec<T>> {
            match seen {
                Seen::Known(all) => Seen::Known(all.values().map(|one| (**one).clone()).collect()),
                Seen::Waiting(what) => Seen::Waiting(what.clone()),
                Seen::Away(why) => Seen::Away(why.clone()),
            }
        }
        let view = |i: usize| {
            let Sight { nodes, peers } = self.sight(i);
            (format!("c{i}"), View { nodes: listed(&nodes), peers: listed(&peers) })
        };
        (0..CLUSTERS).map(view).collect()
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
                self.peers[cluster].insert(peer.name_any().into(), Arc::new(peer));
            }
            Event::PeerGone { cluster, which } => {
                let name = self.peers[cluster].keys().nth(which).cloned();
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

fn apply(plan: &TargetPlan, peers: &mut Index<Peer>) {
    for name in &plan.deletes {
        peers.remove(name.as_str());
    }
    for update in &plan.updates {
        let mut value = serde_json::to_value(&*peers[update.name.as_str()]).unwrap();
        merge(&mut value, &update.patch);
        let peer: Peer = serde_json::from_value(value).unwrap();
        peers.insert(update.name.as_str().into(), Arc::new(peer));
    }
    for peer in &plan.creates {
        peers.insert(peer.name_any().into(), Arc::new(peer.clone()));
    }
}

fn follow(events: &[Event], adopt: bool, step: usize) {
    let mut world = World {
        mesh: mesh(CLUSTERS, false, false),
        others: Vec::new(),
        nodes: vec![Index::default(); CLUSTERS],
        peers: vec![Index::default(); CLUSTERS],
        nodes_known: vec![true; CLUSTERS],
        peers_known: vec![true; CLUSTERS],
    };
    let mut state = State::new(&world.mesh, &world.others);
    for (turn, event) in events.iter().enumerate() {
        let planned = |cluster: usize| state.target(&format!("c{cluster}"));
        world.happen(event, &planned);
        world.mesh.spec.adopt = adopt;
        // Several events may be seen as one.
        if turn % step != 0 && !matches!(events.get(turn + 1), Some(Event::Applied(_)) | None) {
            continue;
        }
        state.reframe(&world.mesh, &world.others);
        for i in 0..CLUSTERS {
            state.see(&format!("c{i}"), &world.sight(i));
        }
        while state.work(3) {}
        let (mesh, views) = (&world.mesh, world.views());
        let truth = plan(Input { mesh, others: &world.others, views: &views, adopt });
        for i in 0..CLUSTERS {
            let name = format!("c{i}");
            assert_eq!(
                state.target(&name).as_ref(),
                truth.targets.get(&name),
                "{name} after {:#?}",
                &events[..=turn]
            );
        }
        assert_eq!(state.status(None, None), truth.status, "after {:#?}", &events[..=turn]);
        let due: Vec<_> = state.due().collect();
        let truth = truth.targets.iter().filter(|(_, target)| !target.is_empty());
        assert_eq!(due, truth.map(|(name, _)| name.as_str()).collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn a_state_that_followed_every_change_says_what_a_plan_of_the_end_says(
        events in proptest::collection::vec(event(), 1..60),
        adopt in any::<bool>(),
        step in 1usize..4,
    ) {
        follow(&events, adopt, step);
    }
}

#[test]
fn one_nodes_change_is_decided_for_its_own_peers_alone() {
    let mut state = State::new(&mesh(CLUSTERS, false, false), &[]);
    let mut nodes = vec![Index::default(); CLUSTERS];
    for (cluster, nodes) in nodes.iter_mut().enumerate() {
        for i in 0..5 {
            let key = (cluster * 5 + i + 1) as u8;
            let node = made(cluster, i, [key, i as u8, i as u8, key, 2]);
            nodes.insert(node.name_any().into(), Arc::new(node));
        }
        let sight =
            Sight { nodes: Seen::Known(nodes.clone()), peers: Seen::Known(Index::default()) };
        state.see(&format!("c{cluster}"), &sight);
    }
    while state.work(usize::MAX) {}
    let moved = made(2, 3, [14, 3, 3, 14, 5]);
    nodes[2].insert(moved.name_any().into(), Arc::new(moved));
    let sight =
        Sight { nodes: Seen::Known(nodes[2].clone()), peers: Seen::Known(Index::default()) };
    state.see("c2", &sight);
    // Its cluster is settled: as much as it has nodes. Then one decision in each of the others.
    assert!(state.work(1));
    let due: usize = state.dirty.values().map(std::collections::BTreeSet::len).sum();
    assert_eq!(due, CLUSTERS - 1, "{:?}", state.dirty);
    assert!(!state.work(CLUSTERS));
}
