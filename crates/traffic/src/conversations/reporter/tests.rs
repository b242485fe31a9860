use std::sync::Arc;

use super::Reporter;
use crate::conversations::Endpoint;

fn on(node: &str) -> Endpoint {
    Endpoint::Workload {
        namespace: "shop".into(),
        name: Arc::from(format!("pod-on-{node}")),
        owner: "Deployment/web".into(),
        node: node.into(),
    }
}

#[test]
fn the_servers_agent_counts_while_it_is_there() {
    let (client, server) = (on("a"), on("b"));
    let both = |_: &str| true;
    assert_eq!(Reporter::of("b", &client, &server, both), Some(Reporter::Server));
    assert_eq!(Reporter::of("a", &client, &server, both), None);
    let without_b = |node: &str| node != "b";
    assert_eq!(Reporter::of("a", &client, &server, without_b), Some(Reporter::Client));
    // Who reports is there, whatever is said of it.
    assert_eq!(Reporter::of("b", &client, &server, without_b), Some(Reporter::Server));
}

#[test]
fn the_clients_agent_counts_what_leaves_the_cluster() {
    let outside = Endpoint::External { name: None };
    assert_eq!(Reporter::of("a", &on("a"), &outside, |_| true), Some(Reporter::Client));
    assert_eq!(Reporter::of("b", &on("a"), &outside, |_| true), None);
    assert_eq!(Reporter::of("a", &outside, &on("a"), |_| true), Some(Reporter::Server));
    let host = Endpoint::Host { name: "a".into() };
    assert_eq!(Reporter::of("a", &outside, &host, |_| true), Some(Reporter::Server));
}

#[test]
fn between_ends_on_no_node_whoever_forwards_counts() {
    let outside = Endpoint::External { name: None };
    let entrance = Endpoint::Ingress { namespace: "shop".into(), name: "front".into() };
    for node in ["a", "b"] {
        assert_eq!(Reporter::of(node, &outside, &entrance, |_| true), Some(Reporter::Transit));
    }
    // Its own agent will have counted this, and will again.
    assert_eq!(Reporter::of("a", &outside, &on("b"), |_| false), None);
}

#[test]
fn within_one_node_a_connection_is_counted_as_the_servers() {
    assert_eq!(Reporter::of("a", &on("a"), &on("a"), |_| true), Some(Reporter::Server));
}
