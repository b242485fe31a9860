use std::sync::Arc;

use super::{Side, counts};
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
    assert_eq!(counts("b", &client, &server, both), Some(Side::Server));
    assert_eq!(counts("a", &client, &server, both), None);
    let without_b = |node: &str| node != "b";
    assert_eq!(counts("a", &client, &server, without_b), Some(Side::Client));
    // Who reports is there, whatever is said of it.
    assert_eq!(counts("b", &client, &server, without_b), Some(Side::Server));
}

#[test]
fn the_clients_agent_counts_what_leaves_the_cluster() {
    let outside = Endpoint::External { name: None };
    assert_eq!(counts("a", &on("a"), &outside, |_| true), Some(Side::Client));
    assert_eq!(counts("b", &on("a"), &outside, |_| true), None);
    assert_eq!(counts("a", &outside, &on("a"), |_| true), Some(Side::Server));
    let host = Endpoint::Host { name: "a".into() };
    assert_eq!(counts("a", &outside, &host, |_| true), Some(Side::Server));
}

#[test]
fn between_ends_on_no_node_whoever_forwards_counts() {
    let outside = Endpoint::External { name: None };
    let entrance = Endpoint::Ingress { namespace: "shop".into(), name: "front".into() };
    for node in ["a", "b"] {
        assert_eq!(counts(node, &outside, &entrance, |_| true), Some(Side::Between));
    }
    // Its own agent will have counted this, and will again.
    assert_eq!(counts("a", &outside, &on("b"), |_| false), None);
}

#[test]
fn within_one_node_a_connection_is_counted_as_the_servers() {
    assert_eq!(counts("a", &on("a"), &on("a"), |_| true), Some(Side::Server));
}
