use std::collections::BTreeMap;

use kube::ResourceExt;
use objects::kinds::{ClusterMesh, MeshState};
use serde_json::{Value, json};

use super::{Plan, plan};
use crate::{Observation, Observed, Peer, PeerIndex, hashed_name, index, label};

fn mesh(namespace: &str, name: &str, clusters: &[&str]) -> ClusterMesh {
    let cluster = |(i, name): (usize, &&str)| json!({"name": name, "clusterRef": name, "allowedNetworks": [format!("10.{i}.0.0/16")]});
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusters": clusters.iter().enumerate().map(cluster).collect::<Vec<_>>()},
    }))
    .unwrap()
}

/// A node of the `i`th cluster.
fn observation(i: usize, node: &str) -> Observation {
    let node = serde_json::from_value(json!({
        "metadata": {"name": node, "annotations": {
            "kilo.squat.ai/key": format!("key-{i}"),
            "kilo.squat.ai/wireguard-ip": format!("10.{i}.255.1/16"),
        }},
        "spec": {"podCIDRs": [format!("10.{i}.0.0/24")]},
    }));
    let nodes = Observed::Known(index([node.unwrap()]));
    Observation { nodes, peers: Observed::Known(PeerIndex::default()) }
}

fn peer(name: &str, labels: &Value, key: &str, allowed: &[&str]) -> Peer {
    serde_json::from_value(json!({
        "apiVersion": "kilo.squat.ai/v1alpha1", "kind": "Peer",
        "metadata": {"name": name, "labels": labels},
        "spec": {"publicKey": key, "allowedIPs": allowed, "presharedKey": "a secret"},
    }))
    .unwrap()
}

fn ab() -> (ClusterMesh, BTreeMap<String, Observation>) {
    let observations =
        [("a".to_owned(), observation(0, "n")), ("b".to_owned(), observation(1, "n"))];
    (mesh("x", "m", &["a", "b"]), observations.into())
}

fn planned(mesh: &ClusterMesh, observations: &BTreeMap<String, Observation>) -> Plan {
    plan(mesh, &[], observations)
}

fn created(plan: &Plan, target: &str) -> Vec<String> {
    plan.targets[target].creates.iter().map(ResourceExt::name_any).collect()
}

fn set_peers(observations: &mut BTreeMap<String, Observation>, target: &str, peers: Vec<Peer>) {
    observations.get_mut(target).unwrap().peers = Observed::Known(peers.into_iter().collect());
}

fn ours() -> Value {
    json!({label::MESH: "m", label::NAMESPACE: "x", label::CLUSTER: "a"})
}

#[test]
fn two_triples_of_one_name_are_told_apart() {
    let mesh = mesh("x", "m", &["a", "a--b", "z"]);
    let observations: BTreeMap<_, _> = [
        ("a".to_owned(), observation(0, "b--c")),
        ("a--b".to_owned(), observation(1, "c")),
        ("z".to_owned(), observation(2, "n")),
    ]
    .into();
    let mut expected = vec!["m--a--b--c".to_owned(), hashed_name("x", "m", "a--b", "c")];
    expected.sort();
    assert_eq!(created(&planned(&mesh, &observations), "z"), expected);
}

#[test]
fn two_namespaces_with_one_name_are_told_apart() {
    let (_, mut observations) = ab();
    let (x, y) = (mesh("x", "m", &["a", "b"]), mesh("y", "m", &["a", "b"]));
    let knowing = |mesh, other: &ClusterMesh, observations: &BTreeMap<_, _>| {
        plan(mesh, std::slice::from_ref(other), observations)
    };
    assert_eq!(created(&knowing(&x, &y, &observations), "b"), ["m--a--n"]);
    assert_eq!(created(&knowing(&y, &x, &observations), "b"), [hashed_name("y", "m", "a", "n")]);
    // Also when all that is known of the other is a peer of another key.
    set_peers(&mut observations, "b", vec![peer("m--a--n", &ours(), "other", &[])]);
    let plan = planned(&y, &observations);
    assert_eq!(created(&plan, "b"), [hashed_name("y", "m", "a", "n")]);
    assert!(plan.targets["b"].deletes.is_empty());
}

#[test]
fn others_are_never_touched_and_a_key_is_never_written_twice() {
    let (mut mesh, mut observations) = ab();
    let kilo = json!({label::KILO_MESH: "m", label::KILO_CLUSTER: "a"});
    let by_hand = peer("laptop", &json!({}), "other", &["10.0.0.0/24"]);
    let old = peer("m--a--n", &kilo, "key-0", &["10.0.0.0/24"]);
    let anchor = peer("m--a--anchor", &kilo, "key-9", &[]);
    set_peers(&mut observations, "b", vec![by_hand, old, anchor]);
    let plan = planned(&mesh, &observations);
    assert!(plan.targets["b"].is_empty());
    let conflict = &plan.targets["b"].conflicts[0];
    assert_eq!((conflict.holder.as_str(), conflict.adoptable), ("m--a--n", true));
    let b = &plan.status.clusters[1];
    assert_eq!(b.state, MeshState::Waiting);
    assert!(b.why.as_ref().unwrap().contains("can be adopted"), "{b:?}");

    mesh.spec.adopt = true;
    let plan = planned(&mesh, &observations);
    let b = &plan.targets["b"];
    assert_eq!((b.deletes.as_slice(), b.creates.len()), (&["m--a--anchor".to_owned()][..], 0));
    // In place, so that no packet is lost; without the labels by which its old mesh removes it.
    assert_eq!(
        b.updates[0].patch,
        json!({
            "metadata": {"labels": {
                label::MESH: "m", label::NAMESPACE: "x", label::CLUSTER: "a",
                label::KILO_MESH: null, label::KILO_CLUSTER: null,
            }},
            "spec": {"allowedIPs": ["10.0.0.0/24", "10.0.255.1/32"]},
        })
    );
}

#[test]
fn another_mesh_that_brings_the_same_node_is_enough() {
    let (mesh, mut observations) = ab();
    let labels = json!({label::MESH: "other", label::NAMESPACE: "x", label::CLUSTER: "a"});
    let routes = ["10.0.0.0/24", "10.0.255.1/32", "10.50.0.0/16"];
    set_peers(&mut observations, "b", vec![peer("other--a--n", &labels, "key-0", &routes)]);
    let plan = planned(&mesh, &observations);
    assert!(plan.targets["b"].is_empty() && plan.targets["b"].conflicts.is_empty());
    assert_eq!(plan.status.clusters[0].registered_peers, 1);
}

#[test]
fn what_cannot_be_seen_is_not_gone() {
    let (mesh, mut observations) = ab();
    let there = peer("m--a--n", &ours(), "key-0", &["10.0.0.0/24"]);
    set_peers(&mut observations, "b", vec![there]);
    observations.get_mut("a").unwrap().nodes = Observed::Away("no answer".to_owned());
    let plan = planned(&mesh, &observations);
    assert!(plan.targets["b"].is_empty());
    assert_eq!(plan.status.clusters[0].state, MeshState::Unreachable);
    // No nodes is a fact, and not the end.
    observations.get_mut("a").unwrap().nodes = Observed::Known(index([]));
    let plan = planned(&mesh, &observations);
    assert_eq!(plan.targets["b"].deletes, ["m--a--n"]);
    let a = &plan.status.clusters[0];
    assert_eq!((a.state, a.why.as_deref()), (MeshState::Waiting, Some("waiting for nodes")));
    // A target without the kind is not written to, and says what it waits for.
    observations.get_mut("b").unwrap().peers = Observed::Waiting("the Peer CRD".to_owned());
    let plan = planned(&mesh, &observations);
    assert!(!plan.targets.contains_key("b"));
    assert_eq!(plan.status.clusters[1].why.as_deref(), Some("waiting for the Peer CRD"));
}

#[test]
fn clusters_that_leave_and_meshes_that_end_take_their_peers_along() {
    let (mut mesh, mut observations) = ab();
    let own = json!({label::MESH: "m", label::NAMESPACE: "x", label::CLUSTER: "b"});
    let left = json!({label::MESH: "m", label::NAMESPACE: "x", label::CLUSTER: "c"});
    let peers = vec![peer("own", &own, "k1", &[]), peer("left", &left, "k2", &[])];
    set_peers(&mut observations, "b", peers);
    observations.insert("c".to_owned(), observation(2, "n"));
    set_peers(&mut observations, "c", vec![peer("m--a--n", &ours(), "key-0", &[])]);
    let plan = planned(&mesh, &observations);
    assert_eq!(plan.targets["b"].deletes, ["left", "own"]);
    assert_eq!(plan.targets["c"].deletes, ["m--a--n"]);
    assert_eq!(created(&plan, "c"), Vec::<String>::new());

    let now = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    mesh.metadata.deletion_timestamp = Some(now);
    observations.get_mut("a").unwrap().nodes = Observed::Away("no answer".to_owned());
    set_peers(&mut observations, "b", vec![peer("m--a--n", &ours(), "key-0", &[])]);
    let plan = planned(&mesh, &observations);
    assert_eq!(plan.targets["b"].deletes, ["m--a--n"]);
    assert!(plan.targets.values().all(|target| target.creates.is_empty()));
}

#[test]
fn an_overlap_stops_the_two_and_nobody_else() {
    let mut mesh = mesh("x", "m", &["a", "b", "c", "d"]);
    mesh.spec.clusters[1].allowed_networks.push("10.0.7.0/24".to_owned());
    let names = ["a", "b", "c", "d"];
    let mut observations: BTreeMap<String, Observation> = names
        .iter()
        .enumerate()
        .map(|(i, name)| ((*name).to_owned(), observation(i, "n")))
        .collect();
    set_peers(&mut observations, "c", vec![peer("m--a--n", &ours(), "key-0", &["10.0.0.0/24"])]);
    let plan = planned(&mesh, &observations);
    assert!(plan.targets["a"].is_empty() && plan.targets["b"].is_empty());
    // What was there before stays as it is.
    assert_eq!(created(&plan, "c"), ["m--d--n"]);
    assert!(plan.targets["c"].deletes.is_empty());
    assert_eq!(created(&plan, "d"), ["m--c--n"]);
    let states: Vec<_> = plan.status.clusters.iter().map(|cluster| cluster.state).collect();
    assert_eq!(states[..2], [MeshState::Overlapping; 2]);
    let overlap = &plan.status.conditions[2];
    assert_eq!((overlap.r#type.as_str(), overlap.status.as_str()), ("NetworksOverlap", "True"));
    assert!(overlap.message.contains("10.0.0.0/16 of a overlaps 10.0.7.0/24 of b"), "{overlap:?}");
}

#[test]
fn a_preshared_key_is_neither_read_nor_written() {
    let (mesh, mut observations) = ab();
    let there = peer("m--a--n", &ours(), "rotated", &["10.0.0.0/24"]);
    assert!(!format!("{there:?}").contains("secret"));
    set_peers(&mut observations, "b", vec![there]);
    let plan = planned(&mesh, &observations);
    let patch = plan.targets["b"].updates[0].patch.to_string();
    assert!(patch.contains("key-0") && !patch.contains("preshared"), "{patch}");
}

#[test]
fn gateways_all_list_the_networks_that_no_node_has_and_the_first_with_an_endpoint_are_chosen() {
    let mut mesh = mesh("x", "m", &["a", "b"]);
    mesh.spec.data_plane = objects::kinds::DataPlane::Wireguard;
    mesh.spec.clusters[0].allowed_networks.push("10.96.0.0/16".to_owned());
    mesh.spec.clusters[0].gateways = Some(2);
    let node = |i: usize| {
        let endpoint = format!("192.0.2.{i}:51821");
        serde_json::from_value::<k8s_openapi::api::core::v1::Node>(json!({
            "metadata": {"name": format!("n{i}"), "annotations": {
                "wireguard.fairlead.dev/key": format!("key-{i}"),
                // The first cannot be reached, and may connect by itself.
                "fairlead.dev/wireguard-endpoint": if i == 0 { "" } else { &endpoint },
            }},
            "spec": {"podCIDRs": [format!("10.0.{i}.0/24")]},
        }))
        .unwrap()
    };
    let nodes = Observed::Known(index((0..4).map(node)));
    let a = Observation { nodes, peers: Observed::Known(PeerIndex::default()) };
    let mut b = observation(1, "n");
    b.peers = Observed::Known(PeerIndex::default());
    let mut observations: BTreeMap<_, _> = [("a".to_owned(), a), ("b".to_owned(), b)].into();
    let carriers = |observations: &BTreeMap<String, Observation>| -> Vec<String> {
        let plan = plan(&mesh, &[], observations);
        let carries = |peer: &&Peer| peer.spec.allowed_ips.contains(&"10.96.0.0/16".to_owned());
        plan.targets["b"].creates.iter().filter(carries).map(ResourceExt::name_any).collect()
    };
    assert_eq!(carriers(&observations), ["m--a--n1", "m--a--n2"]);
    let left = Observed::Known(index([0, 2, 3].map(node)));
    observations.get_mut("a").unwrap().nodes = left;
    assert_eq!(carriers(&observations), ["m--a--n2", "m--a--n3"]);
}
