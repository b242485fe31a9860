use jiff::Timestamp;
use objects::kinds::ClusterMesh;
use serde_json::{Value, json};

use super::{check, check_tunnels};
use crate::tunnels::{ClusterTunnels, NodeTunnels};

fn mesh(clusters: &Value) -> ClusterMesh {
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": "m", "namespace": "x", "generation": 3},
        "spec": {"clusters": [
            {"name": "a", "clusterRef": "a", "allowedNetworks": ["10.1.0.0/16"]},
            {"name": "b", "clusterRef": "b", "allowedNetworks": ["10.2.0.0/16"]},
        ]},
        "status": {"observedGeneration": 3, "clusters": clusters, "conditions": []},
    }))
    .unwrap()
}

fn reasons(mesh: &ClusterMesh) -> Vec<&'static str> {
    check(mesh, "a", "b").unwrap().reasons.iter().map(|finding| finding.reason).collect()
}

#[test]
fn two_clusters_that_are_well_reach_each_other() {
    let well =
        mesh(&json!([{"name": "a", "state": "Converged"}, {"name": "b", "state": "Converged"}]));
    assert!(check(&well, "a", "b").unwrap().reaches());
    assert!(check(&well, "a", "a").unwrap().reaches());
}

#[test]
fn what_stops_a_cluster_comes_before_its_nodes_and_before_its_peers() {
    let mesh = mesh(&json!([
        {"name": "a", "state": "Unreachable", "why": "no answer", "since": "2026-01-01T00:00:00Z"},
        {"name": "b", "state": "Waiting", "why": "waiting for node n", "skipped": 2, "missingIn": ["a"],
         "skippedNodes": [{"name": "n", "reason": "NodeNoPodCIDR", "message": "it has no pod CIDR yet"}]},
    ]));
    assert_eq!(
        reasons(&mesh),
        ["ClusterUnreachable", "NodeSkipped", "NodeSkipped", "PeersMissing"]
    );
    let check = check(&mesh, "a", "b").unwrap();
    assert!(check.reasons[0].message.contains("since 2026-01-01"), "{check:?}");
}

#[test]
fn peers_that_are_missing_at_the_other_end_are_a_reason_too() {
    let mesh = mesh(&json!([
        {"name": "a", "state": "Waiting", "why": "waiting for its peers to be written", "missingIn": ["b"]},
        {"name": "b", "state": "Converged"},
    ]));
    assert_eq!(reasons(&mesh), ["PeersMissing"]);
}

#[test]
fn a_status_that_is_not_of_this_mesh_says_so() {
    let mut mesh = mesh(&json!([]));
    mesh.metadata.generation = Some(4);
    assert_eq!(reasons(&mesh), ["Outdated"]);
    mesh.status = None;
    assert_eq!(reasons(&mesh), ["NotObserved"]);
}

#[test]
fn a_cluster_that_is_not_in_the_mesh_is_named_with_those_that_are() {
    let wrong = check(&mesh(&json!([])), "a", "z").unwrap_err();
    assert_eq!(wrong, "the mesh has no cluster z; it has a, b");
}

#[test]
fn what_an_agent_said_long_ago_is_no_answer() {
    let cluster = |name: &str, peer: &str, silent_since: Option<Timestamp>| ClusterTunnels {
        cluster: name.to_owned(),
        why: None,
        nodes: vec![NodeTunnels {
            node: "n".to_owned(),
            status: Some(json!({"mtu": 1420, "tunnels": [{"peer": peer, "state": "Up"}]})),
            silent_since,
            ..NodeTunnels::default()
        }],
    };
    let checked = |silent_since| {
        let clusters = [cluster("a", "m--b--n", None), cluster("b", "m--a--n", silent_since)];
        check_tunnels(&mesh(&json!([])), "a", "b", &clusters)
    };
    assert_eq!(checked(None), (Vec::new(), 2));
    let (reasons, answering) = checked(Some(Timestamp::UNIX_EPOCH));
    assert_eq!((reasons.len(), answering), (1, 1));
    assert_eq!(reasons[0].reason, "AgentSilent");
    let said = "b/n: its agent has said nothing of its tunnels since 1970-01-01T00:00:00Z";
    assert!(reasons[0].message.starts_with(said), "{}", reasons[0].message);
}
