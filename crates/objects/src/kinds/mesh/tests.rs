use serde_json::json;

use super::{ClusterMesh, ClusterMeshStatus, MeshClusterRef, MeshClusterStatus};
use crate::Kind;

fn mesh(clusters: &serde_json::Value) -> ClusterMesh {
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "ClusterMesh",
        "metadata": {"name": "prod", "namespace": "fairlead"},
        "spec": {"clusters": clusters},
    }))
    .unwrap()
}

fn problems(mesh: &ClusterMesh) -> Vec<String> {
    let problems = mesh.check().unwrap_err();
    problems.0.iter().map(|(field, problem)| format!("{field}: {problem}")).collect()
}

#[test]
fn a_mesh_of_each_kind_of_cluster_is_taken_and_has_its_defaults() {
    let mesh = mesh(&json!([
        {"name": "a", "local": true, "allowedNetworks": ["10.1.0.0/16", "fd00:1::/48"]},
        {"name": "b", "kubeconfigSecretRef": {"name": "b", "key": "value"},
         "allowedNetworks": ["10.2.0.0/16"], "wireguardPort": 51821, "persistentKeepalive": 25},
        {"name": "c", "clusterRef": "prod-eu", "allowedNetworks": ["10.3.0.0/16"]},
    ]));
    assert_eq!(mesh.check(), Ok(()));
    let [a, b, c] = &mesh.spec.clusters[..] else { panic!() };
    assert_eq!((a.wireguard_port, a.persistent_keepalive), (51820, 0));
    assert_eq!((b.wireguard_port, b.persistent_keepalive), (51821, 25));
    assert_eq!(a.reference("x"), Some(MeshClusterRef::Local));
    let secret = MeshClusterRef::Secret("x".into(), "b".into(), "value".into());
    assert_eq!(b.reference("x"), Some(secret));
    assert_eq!(c.reference("x"), Some(MeshClusterRef::Fleet("prod-eu".into())));
}

#[test]
fn every_problem_is_told_at_once() {
    let mut bad = mesh(&json!([
        {"name": "A_", "allowedNetworks": []},
        {"name": "b", "local": true, "clusterRef": "b", "allowedNetworks": ["10.2.0.0"]},
        {"name": "b", "local": true, "allowedNetworks": ["10.3.0.0/33"], "wireguardPort": 0},
        {"name": "c", "clusterRef": "x", "allowedNetworks": ["10.4.0.0/16"]},
        {"name": "d", "clusterRef": "x", "allowedNetworks": ["10.5.0.0/16"]},
    ]));
    bad.metadata.name = Some("m".repeat(64));
    let status = MeshClusterStatus { why: Some("x".repeat(4097)), ..Default::default() };
    bad.status = Some(ClusterMeshStatus { clusters: vec![status], ..Default::default() });
    let status = bad.check_status().unwrap_err();
    assert_eq!(status.to_string(), "status.clusters[0].why: has more than 4096 characters");
    let problems = problems(&bad);
    let fields: Vec<_> = problems.iter().map(|p| p.split(": ").next().unwrap()).collect();
    assert_eq!(
        fields,
        [
            "metadata.name",
            "spec.clusters",
            "spec.clusters[0].name",
            "spec.clusters[0]",
            "spec.clusters[0].allowedNetworks",
            "spec.clusters[1]",
            "spec.clusters[1].allowedNetworks[0]",
            "spec.clusters[2].allowedNetworks[0]",
            "spec.clusters[2].wireguardPort",
            "spec.clusters[2].name",
            "spec.clusters[4]",
        ],
        "{problems:#?}"
    );
}

#[test]
fn one_cluster_is_no_mesh() {
    let one = mesh(&json!([{"name": "a", "local": true, "allowedNetworks": ["10.1.0.0/16"]}]));
    assert_eq!(problems(&one), ["spec.clusters: needs at least two clusters to join"]);
}

#[test]
fn networks_of_one_cluster_do_not_overlap() {
    let with = |networks: &[&str]| {
        mesh(&json!([
            {"name": "a", "local": true, "allowedNetworks": networks},
            {"name": "b", "clusterRef": "b", "allowedNetworks": ["192.168.0.0/16"]},
        ]))
    };
    assert_eq!(with(&["10.0.0.0/9", "10.128.0.0/9", "fd00::/8"]).check(), Ok(()));
    let sentence = "spec.clusters[0].allowedNetworks[2]: 10.96.0.0/12 overlaps 10.0.0.0/8 of \
                    allowedNetworks[0]; remove one of the two, the wider one covers both";
    assert_eq!(problems(&with(&["10.0.0.0/8", "fd00::/8", "10.96.0.0/12"])), [sentence]);
    // In either order, twice the same, and with bits after the prefix.
    for nested in
        [["10.96.0.0/12", "10.0.0.0/8"], ["fd00::/48", "fd00::/48"], ["10.1.9.9/16", "10.1.7.0/24"]]
    {
        assert_eq!(problems(&with(&nested)).len(), 1, "{nested:?}");
    }
}

/// Which of two that overlap is wrong is not for a check to say: the mesh is stored, and tells.
#[test]
fn networks_that_overlap_are_a_condition_and_not_a_refusal() {
    let mesh = mesh(&json!([
        {"name": "a", "local": true, "allowedNetworks": ["10.0.0.0/8"]},
        {"name": "b", "clusterRef": "b", "allowedNetworks": ["10.2.0.0/16"]},
    ]));
    assert_eq!(mesh.check(), Ok(()));
}
