use serde_json::json;

use super::*;

fn node(name: &str, kernel: &str, architecture: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.97.0.2"}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kernelVersion": kernel, "architecture": architecture, "operatingSystem": "linux"},
        },
    })
}

#[test]
fn an_old_server_is_said_to_be_one() {
    let of = |minor| of_version(&Version { minor, text: format!("v1.{minor}.0") }).verdict;
    assert_eq!(of(19), Verdict::Failure);
    assert_eq!(of(20), Verdict::Warning);
    assert_eq!(of(36), Verdict::Ok);
}

#[test]
fn a_node_that_cannot_run_an_agent_is_named() {
    let fits = of_nodes(&[node("a", "6.1.0-18-amd64", "amd64")]);
    assert_eq!(fits[0].verdict, Verdict::Ok, "{fits:?}");
    let found = of_nodes(&[node("a", "4.19.0", "amd64"), node("b", "6.12.0", "arm64")]);
    assert_eq!(found.len(), 2);
    assert!(found[0].verdict == Verdict::Failure && found[0].message.contains("a (4.19.0)"));
    assert!(found[1].verdict == Verdict::Warning && found[1].message.contains("b (arm64)"));
    assert_eq!(kernel("5.15.0-1052-azure"), Some((5, 15)));
    assert_eq!(kernel("unknown"), None);
}

#[test]
fn another_pod_network_is_known_by_its_daemons() {
    let daemon = |name: &str| json!({"metadata": {"name": name}});
    assert_eq!(of_networks(&[daemon("node-exporter")], &[], false).verdict, Verdict::Ok);
    let ready = [node("a", "6.1.0", "amd64")];
    assert_eq!(of_networks(&[], &ready, false).verdict, Verdict::Warning, "who made it Ready?");
    assert_eq!(of_networks(&[], &ready, true).verdict, Verdict::Ok, "we did");
    let found = of_networks(&[daemon("calico-node")], &[], false);
    assert_eq!(found.verdict, Verdict::Warning);
    assert!(found.message.starts_with("Calico makes the pod network"), "{}", found.message);
}

#[test]
fn a_pool_over_the_nodes_or_the_services_is_refused() {
    let pool = |network: &str| json!({"kind": "AddressPool", "metadata": {"name": "default"}, "spec": {"subnets": [{"ipv4": network}]}});
    let nodes = [node("a", "6.1.0", "amd64")];
    let service = json!({"spec": {"clusterIP": "10.96.0.1"}});
    let judged = |network: &str| of_addresses(&[pool(network)], &nodes, Some(&service));
    assert_eq!(judged("10.64.0.0/16").verdict, Verdict::Ok);
    let over_nodes = judged("10.97.0.0/16");
    assert!(over_nodes.verdict == Verdict::Failure && over_nodes.message.contains("of node a"));
    let over_services = judged("10.96.0.0/16");
    assert!(over_services.verdict == Verdict::Failure, "{over_services:?}");
    assert!(over_services.message.contains("10.96.0.1 of a Service"));
}

#[test]
fn a_clock_that_is_off_is_told_from_a_kubelet_that_is_away() {
    let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    let lease = |time: &str| json!({"metadata": {"name": "a"}, "spec": {"renewTime": time}});
    let ready = [node("a", "6.1.0", "amd64")];
    let judged = |time, nodes: &[Value]| of_clocks(&[lease(time)], nodes, now).verdict;
    assert_eq!(judged("2026-01-01T11:59:55.000000Z", &ready), Verdict::Ok);
    assert_eq!(judged("2026-01-01T12:05:00.000000Z", &ready), Verdict::Warning);
    assert_eq!(judged("2026-01-01T11:50:00.000000Z", &ready), Verdict::Warning);
    // Its lease is old because nobody renews it.
    assert_eq!(judged("2026-01-01T11:50:00.000000Z", &[]), Verdict::Ok);
}

#[test]
fn many_names_are_counted() {
    let names: Vec<_> = (0..7).map(|i| i.to_string()).collect();
    assert_eq!(listed(&names), "0, 1, 2, 3, 4 and 2 more");
    assert_eq!(listed(&names[..1]), "0");
}

#[test]
fn what_a_node_says_of_itself_is_said_with_its_name() {
    let said = serde_json::to_string(&[Finding::new("nftables", Verdict::Ok, "there")]).unwrap();
    let ended = Ended::from([
        ("a".to_owned(), Ok(said)),
        ("b".to_owned(), Err("ErrImageNeverPull".to_owned())),
        ("c".to_owned(), Ok("Segmentation fault".to_owned())),
    ]);
    let found = of_tasks(ended);
    assert_eq!(found[0].node.as_deref(), Some("a"));
    assert_eq!(found[0].verdict, Verdict::Ok);
    assert!(found[1].verdict == Verdict::Failure && found[1].message.contains("ErrImageNeverPull"));
    assert!(found[2].verdict == Verdict::Failure && found[2].message.contains("Segmentation"));
}
