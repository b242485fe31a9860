use fleet::resources::{Change, Page};
use k8s_openapi::api::core::v1::Node;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{essential, tell};
use crate::plan::Seen;
use crate::state::Index;

fn node(heartbeat: &str, key: &str) -> DynamicObject {
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
    let mut seen: Seen<Index<Node>> = Seen::Away("not yet".to_owned());
    let list = |items| Change::Listed(Page { items, continue_token: None, remaining: None });
    assert!(tell(&mut seen, list(vec![node("1", "K")]), essential));
    assert!(!tell(&mut seen, Change::Applied(node("2", "K")), essential));
    assert!(!tell(&mut seen, list(vec![node("3", "K")]), essential));
    assert!(tell(&mut seen, Change::Applied(node("4", "L")), essential));
    let kept = serde_json::to_value(&**seen.known().unwrap().values().next().unwrap()).unwrap();
    assert_eq!(kept["metadata"]["annotations"], json!({"kilo.squat.ai/key": "L"}));
    assert!(tell(&mut seen, Change::Deleted(node("5", "L")), essential));
    assert!(!tell(&mut seen, Change::Deleted(node("5", "L")), essential));
}

#[test]
fn an_interruption_leaves_what_is_known() {
    let mut seen: Seen<Index<Node>> = Seen::Known(Index::default());
    assert!(!tell(&mut seen, Change::Interrupted { why: "cut".to_owned() }, essential));
    assert!(seen.known().is_some());
    let mut unseen: Seen<Index<Node>> = Seen::Waiting("nodes".to_owned());
    assert!(!tell(&mut unseen, Change::Applied(node("1", "K")), essential));
    assert!(unseen.known().is_none());
}
