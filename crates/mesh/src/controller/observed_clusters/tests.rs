use std::sync::Arc;

use fleet::resources::Change;
use k8s_openapi::api::core::v1::Node;
use objects::kinds::{DataPlane, MeshClusterRef};
use serde_json::{Value, json};

use super::super::observer::strip_node;
use super::ObservedClusters;
use crate::observation::{Index, Observed};
use crate::peer::{Peer, PeerSpec};
use crate::peer_index::PeerIndex;

fn peer(version: &str, key: &str) -> Peer {
    let spec = PeerSpec { public_key: key.to_owned(), ..PeerSpec::default() };
    let mut peer = Peer::new(DataPlane::Kilo, "p", spec);
    peer.metadata.resource_version = Some(version.to_owned());
    peer
}

fn no_peers() -> Observed<PeerIndex> {
    Observed::Known(PeerIndex::default())
}

fn key(peers: &Observed<PeerIndex>) -> Option<String> {
    Some(peers.known()?.get("p")?.spec.public_key)
}

#[test]
fn an_older_version_of_a_peer_does_not_replace_a_newer_one() {
    let mut peers = no_peers();
    assert!(peers.put(peer("9", "a")));
    assert!(peers.put(peer("10", "b")));
    assert!(!peers.put(peer("10", "b")));
    assert!(!peers.put(peer("9", "a")));
    assert_eq!(key(&peers).as_deref(), Some("b"));
}

#[test]
fn a_delete_of_another_version_removes_nothing() {
    let mut peers = no_peers();
    peers.put(peer("10", "b"));
    assert!(!peers.remove("p", Some("9")));
    assert_eq!(key(&peers).as_deref(), Some("b"));
    assert!(peers.remove("p", Some("10")));
    assert_eq!(key(&peers), None);
}

#[test]
fn what_is_not_known_is_not_made_known_by_one_peer() {
    let mut peers: Observed<PeerIndex> = Observed::Away("not yet".to_owned());
    assert!(!peers.put(peer("1", "a")));
    assert!(peers.known().is_none());
}

#[test]
fn an_edit_that_changes_nothing_leaves_the_cluster_as_it_is() {
    let mut clusters = ObservedClusters::default();
    let cluster = MeshClusterRef::Local;
    assert!(!clusters.edit(&cluster, |_| false));
    assert!(clusters.get(&cluster).is_none());
    assert!(clusters.edit(&cluster, |_| true));
    let before = Arc::clone(&clusters.0[&cluster]);
    clusters.edit(&cluster, |_| false);
    assert!(Arc::ptr_eq(&before, &clusters.0[&cluster]));
}

fn node(heartbeat: &str, key: &str) -> Node {
    let value: Value = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "resourceVersion": heartbeat, "annotations": {
            "kilo.squat.ai/key": key, "node.alpha.kubernetes.io/ttl": heartbeat,
        }},
        "spec": {"podCIDRs": ["10.0.0.0/24"], "taints": []},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "192.168.0.1"}],
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": null}],
        },
    });
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_nodes_heartbeat_is_no_change() {
    let mut nodes: Observed<Index<Node>> = Observed::Away("not yet".to_owned());
    assert!(nodes.apply(Change::Listed(vec![node("1", "K")]), strip_node));
    assert!(!nodes.apply(Change::Applied(node("2", "K")), strip_node));
    assert!(!nodes.apply(Change::Listed(vec![node("3", "K")]), strip_node));
    assert!(nodes.apply(Change::Applied(node("4", "L")), strip_node));
    let kept = serde_json::to_value(&**nodes.known().unwrap().values().next().unwrap()).unwrap();
    assert_eq!(kept["metadata"]["annotations"], json!({"kilo.squat.ai/key": "L"}));
    assert!(nodes.apply(Change::Deleted(node("5", "L")), strip_node));
    assert!(!nodes.apply(Change::Deleted(node("5", "L")), strip_node));
}

#[test]
fn an_interruption_leaves_what_is_known() {
    let mut nodes: Observed<Index<Node>> = Observed::Known(Index::default());
    assert!(!nodes.apply(Change::Interrupted { why: "cut".to_owned() }, strip_node));
    assert!(nodes.known().is_some());
    let mut unknown: Observed<Index<Node>> = Observed::Waiting("nodes".to_owned());
    assert!(!unknown.apply(Change::Applied(node("1", "K")), strip_node));
    assert!(unknown.known().is_none());
}
