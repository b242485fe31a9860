use std::collections::BTreeMap;

use kube::ResourceExt;
use objects::kinds::{ClusterMesh, MeshState};
use serde_json::{Value, json};

use super::{Input, Plan, Seen, View, plan};
use crate::{Peer, hashed, label};

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
fn view(i: usize, node: &str) -> View {
    let node = serde_json::from_value(json!({
        "metadata": {"name": node, "annotations": {
            "kilo.squat.ai/key": format!("key-{i}"),
            "kilo.squat.ai/wireguard-ip": format!("10.{i}.255.1/16"),
        }},
        "spec": {"podCIDRs": [format!("10.{i}.0.0/24")]},
    }));
    View { nodes: Seen::Known(vec![node.unwrap()]), peers: Seen::Known(vec![]) }
}

fn peer(name: &str, labels: &Value, key: &str, allowed: &[&str]) -> Peer {
    serde_json::from_value(json!({
        "apiVersion": "kilo.squat.ai/v1alpha1", "kind": "Peer",
        "metadata": {"name": name, "labels": labels},
        "spec": {"publicKey": key, "allowedIPs": allowed, "presharedKey": "a secret"},
    }))
    .unwrap()
}

fn ab() -> (ClusterMesh, BTreeMap<String, View>) {
    let views = [("a".to_owned(), view(0, "n")), ("b".to_owned(), view(1, "n"))];
    (mesh("x", "m", &["a", "b"]), views.into())
}

fn planned(mesh: &ClusterMesh, views: &BTreeMap<String, View>) -> Plan {
    plan(Input { mesh, others: &[], views, adopt: false })
}

fn created(plan: &Plan, target: &str) -> Vec<String> {
    plan.targets[target].creates.iter().map(ResourceExt::name_any).collect()
}

fn set_peers(views: &mut BTreeMap<String, View>, target: &str, peers: Vec<Peer>) {
    views.get_mut(target).unwrap().peers = Seen::Known(peers);
}

fn ours() -> Value {
    json!({label::MESH: "m", label::NAMESPACE: "x", label::CLUSTER: "a"})
}

#[test]
fn two_triples_of_one_name_are_told_apart() {
    let mesh = mesh("x", "m", &["a", "a--b", "z"]);
    let views: BTreeMap<_, _> = [
        ("a".to_owned(), view(0, "b--c")),
        ("a--b".to_owned(), view(1, "c")),
        ("z".to_owned(), view(2, "n")),
    ]
    .into();
    let mut expected = vec!["m--a--b--c".to_owned(), hashed("x", "m", "a--b", "c")];
    expected.sort();
    assert_eq!(created(&planned(&mesh, &views), "z"), expected);
}

#[test]
fn two_namespaces_with_one_name_are_told_apart() {
    let (_, mut views) = ab();
    let (x, y) = (mesh("x", "m", &["a", "b"]), mesh("y", "m", &["a", "b"]));
    let knowing = |mesh, other: &ClusterMesh, views: &BTreeMap<_, _>| {
        plan(Input { mesh, others: std::slice::from_ref(other), views, adopt: false })
    };
    assert_eq!(created(&knowing(&x, &y, &views), "b"), ["m--a--n"]);
    assert_eq!(created(&knowing(&y, &x, &views), "b"), [hashed("y", "m", "a", "n")]);
    // Also when all that is known of the other is a peer of another key.
    set_peers(&mut views, "b", vec![peer("m--a--n", &ours(), "other", &[])]);
    let plan = planned(&y, &views);
    assert_eq!(created(&plan, "b"), [hashed("y", "m", "a", "n")]);
    assert!(plan.targets["b"].deletes.is_empty());
}

#[test]
fn others_are_never_touched_and_a_key_is_never_written_twice() {
    let (mesh, mut views) = ab();
    let kilo = json!({label::KILO_MESH: "m", label::KILO_CLUSTER: "a"});
    let by_hand = peer("laptop", &json!({}), "other", &["10.0.0.0/24"]);
    let old = peer("m--a--n", &kilo, "key-0", &["10.0.0.0/24"]);
    let anchor = peer("m--a--anchor", &kilo, "key-9", &[]);
    set_peers(&mut views, "b", vec![by_hand, old, anchor]);
    let plan = planned(&mesh, &views);
    assert!(plan.targets["b"].is_empty());
    let conflict = &plan.targets["b"].conflicts[0];
    assert_eq!((conflict.holder.as_str(), conflict.adoptable), ("m--a--n", true));
    let b = &plan.status.clusters[1];
    assert_eq!(b.state, MeshState::Waiting);
    assert!(b.why.as_ref().unwrap().contains("can be adopted"), "{b:?}");

    let plan = super::plan(Input { mesh: &mesh, others: &[], views: &views, adopt: true });
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
    let (mesh, mut views) = ab();
    let labels = json!({label::MESH: "other", label::NAMESPACE: "x", label::CLUSTER: "a"});
    let routes = ["10.0.0.0/24", "10.0.255.1/32", "10.50.0.0/16"];
    set_peers(&mut views, "b", vec![peer("other--a--n", &labels, "key-0", &routes)]);
    let plan = planned(&mesh, &views);
    assert!(plan.targets["b"].is_empty() && plan.targets["b"].conflicts.is_empty());
    assert_eq!(plan.status.clusters[0].registered_peers, 1);
}

#[test]
fn what_cannot_be_seen_is_not_gone() {
    let (mesh, mut views) = ab();
    let there = peer("m--a--n", &ours(), "key-0", &["10.0.0.0/24"]);
    set_peers(&mut views, "b", vec![there]);
    views.get_mut("a").unwrap().nodes = Seen::Away("no answer".to_owned());
    let plan = planned(&mesh, &views);
    assert!(plan.targets["b"].is_empty());
    assert_eq!(plan.status.clusters[0].state, MeshState::Unreachable);
    // No nodes is a fact, and not the end.
    views.get_mut("a").unwrap().nodes = Seen::Known(vec![]);
    let plan = planned(&mesh, &views);
    assert_eq!(plan.targets["b"].deletes, ["m--a--n"]);
    let a = &plan.status.clusters[0];
    assert_eq!((a.state, a.why.as_deref()), (MeshState::Waiting, Some("waiting for nodes")));
    // A target without the kind is not written to, and says what it waits for.
    views.get_mut("b").unwrap().peers = Seen::Waiting("the Peer CRD".to_owned());
    let plan = planned(&mesh, &views);
    assert!(!plan.targets.contains_key("b"));
    assert_eq!(plan.status.clusters[1].why.as_deref(), Some("waiting for the Peer CRD"));
}

#[test]
fn clusters_that_leave_and_meshes_that_end_take_their_peers_along() {
    let (mut mesh, mut views) = ab();
    let own = json!({label::MESH: "m", label::NAMESPACE: "x", label::CLUSTER: "b"});
    let left = json!({label::MESH: "m", label::NAMESPACE: "x", label::CLUSTER: "c"});
    let peers = vec![peer("own", &own, "k1", &[]), peer("left", &left, "k2", &[])];
    set_peers(&mut views, "b", peers);
    views.insert("c".to_owned(), view(2, "n"));
    set_peers(&mut views, "c", vec![peer("m--a--n", &ours(), "key-0", &[])]);
    let plan = planned(&mesh, &views);
    assert_eq!(plan.targets["b"].deletes, ["left", "own"]);
    assert_eq!(plan.targets["c"].deletes, ["m--a--n"]);
    assert_eq!(created(&plan, "c"), Vec::<String>::new());

    let now = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    mesh.metadata.deletion_timestamp = Some(now);
    views.get_mut("a").unwrap().nodes = Seen::Away("no answer".to_owned());
    set_peers(&mut views, "b", vec![peer("m--a--n", &ours(), "key-0", &[])]);
    let plan = planned(&mesh, &views);
    assert_eq!(plan.targets["b"].deletes, ["m--a--n"]);
    assert!(plan.targets.values().all(|target| target.creates.is_empty()));
}

#[test]
fn an_overlap_stops_the_two_and_nobody_else() {
    let mut mesh = mesh("x", "m", &["a", "b", "c", "d"]);
    mesh.spec.clusters[1].allowed_networks.push("10.0.7.0/24".to_owned());
    let names = ["a", "b", "c", "d"];
    let mut views: BTreeMap<String, View> =
        names.iter().enumerate().map(|(i, name)| ((*name).to_owned(), view(i, "n"))).collect();
    set_peers(&mut views, "c", vec![peer("m--a--n", &ours(), "key-0", &["10.0.0.0/24"])]);
    let plan = planned(&mesh, &views);
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
    let (mesh, mut views) = ab();
    let there = peer("m--a--n", &ours(), "rotated", &["10.0.0.0/24"]);
    assert!(!format!("{there:?}").contains("secret"));
    set_peers(&mut views, "b", vec![there]);
    let plan = planned(&mesh, &views);
    let patch = plan.targets["b"].updates[0].patch.to_string();
    assert!(patch.contains("key-0") && !patch.contains("preshared"), "{patch}");
}
