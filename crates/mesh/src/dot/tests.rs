use serde_json::json;

#[test]
fn an_edge_is_solid_where_both_ends_are_in_place() {
    let cluster =
        |name: &str| json!({"name": name, "clusterRef": name, "allowedNetworks": ["10.0.0.0/8"]});
    let mesh = serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": "m", "namespace": "x"},
        "spec": {"clusters": [cluster("a"), cluster("b"), cluster("c")]},
        "status": {"clusters": [
            {"name": "a", "state": "Converged", "wantedPeers": 4, "registeredPeers": 4},
            {"name": "b", "state": "Converged"},
            {"name": "c", "state": "Unreachable", "missingIn": ["b"]},
        ], "conditions": []},
    }))
    .unwrap();
    let text = super::dot(&[mesh]);
    assert!(text.contains(r#""0/a" [label="a\n4/4 peers", color=green]"#), "{text}");
    assert!(text.contains(r#""0/a" -- "0/b" [style=solid]"#), "{text}");
    assert!(text.contains(r#""0/b" -- "0/c" [style=dashed]"#), "{text}");
}
