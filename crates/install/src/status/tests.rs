use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn pod(node: &str, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({
        "metadata": {"name": format!("pod-{node}")},
        "spec": {"nodeName": node, "containers": [{"image": "registry.test:5000/fairlead:0.2.0"}]},
        "status": {"conditions": [{"type": "Ready", "status": status, "message": "probe failed"}]},
    })
}

fn healthy() -> ObservedInstallation {
    let definition = json!({
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "groups.fairlead.dev"},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    });
    let node = |name: &str| {
        json!({
            "metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    ObservedInstallation {
        record: Some(Record {
            version: "0.2.0".to_owned(),
            chosen: json!({}),
            values: json!({"components": {"admission": true}}),
            objects: Vec::new(),
        }),
        definitions: vec![definition],
        nodes: vec![node("node1"), node("node2")],
        controllers: vec![pod("node1", true)],
        agents: vec![pod("node1", true), pod("node2", true)],
        controller: Some(json!({"kind": "Deployment"})),
        daemon_set: Some(json!({"kind": "DaemonSet"})),
        lease: Some(json!({"spec": {
            "holderIdentity": "controller-0", "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T11:59:58.000000Z",
        }})),
        webhook: Some(json!({})),
        pools: vec![json!({
            "metadata": {"name": "default"},
            "status": {"used": 3, "free": 61, "conditions": [{"type": "Ready", "status": "True"}]},
        })],
    }
}

fn wrong(seen: &ObservedInstallation) -> Vec<String> {
    let status = assess(seen, now());
    assert_eq!(status.ok, status.lines.iter().all(|line| line.ok));
    let told = |line: &Line| {
        format!("{} {}: {}", line.component, line.node.as_deref().unwrap_or("-"), line.state)
    };
    status.lines.iter().filter(|line| !line.ok).map(told).collect()
}

#[test]
fn what_is_well_is_said_in_one_line_each() {
    let status = assess(&healthy(), now());
    assert!(status.ok, "{status:?}");
    let lines: Vec<_> =
        status.lines.iter().map(|line| (line.component, line.state.as_str())).collect();
    assert_eq!(
        lines,
        [
            ("definitions", "1 served"),
            ("controller", "ready, 0.2.0"),
            ("leader", "controller-0"),
            ("agent", "ready, 0.2.0"),
            ("agent", "ready, 0.2.0"),
            ("webhook", "registered"),
            ("pool", "default: 3 addresses used, 61 free"),
        ]
    );
}

#[test]
fn a_node_without_an_agent_is_named() {
    let mut seen = healthy();
    seen.agents.pop();
    assert_eq!(wrong(&seen).len(), 1);
    assert!(wrong(&seen)[0].starts_with("agent node2: no agent"));
    // One that is being replaced by one that is ready is no reason to worry.
    let mut seen = healthy();
    seen.agents.push(pod("node2", false));
    assert!(wrong(&seen).is_empty());
}

#[test]
fn what_is_not_well_says_why() {
    let mut seen = healthy();
    seen.controllers[0] = pod("node1", false);
    seen.lease = Some(json!({"spec": {
        "holderIdentity": "controller-0", "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T11:00:00.000000Z",
    }}));
    seen.webhook = None;
    seen.pools[0]["status"]["conditions"][0] =
        json!({"type": "Ready", "status": "False", "message": "\"hello\" is not a network"});
    let wrong = wrong(&seen);
    assert_eq!(wrong.len(), 4, "{wrong:?}");
    assert_eq!(wrong[0], "controller node1: probe failed");
    assert!(wrong[1].contains("has not renewed it"));
    assert!(wrong[2].starts_with("webhook -: not registered"));
    assert_eq!(wrong[3], "pool -: default: \"hello\" is not a network");
}

#[test]
fn nothing_installed_says_what_to_do() {
    let status = assess(&ObservedInstallation::default(), now());
    assert!(!status.ok);
    assert!(status.lines[0].state.contains("fairlead install"));
}
