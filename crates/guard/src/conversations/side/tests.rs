use std::sync::Arc;

use super::{Side, counts, takes_over};
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
fn without_an_agent_at_either_end_whoever_forwards_counts() {
    let (outside, lost) = (Endpoint::External { name: None }, on("no-agent"));
    for node in ["a", "b"] {
        assert_eq!(counts(node, &outside, &lost, |_| false), Some(Side::Between));
    }
}

#[test]
fn within_one_node_a_connection_is_counted_as_the_servers() {
    assert_eq!(counts("a", &on("a"), &on("a"), |_| true), Some(Side::Server));
}

#[test]
fn only_the_two_ends_take_over_from_each_other() {
    let sides = [Side::Server, Side::Client, Side::Between];
    for counted in sides {
        for side in sides {
            let between = counted == Side::Between || side == Side::Between;
            assert_eq!(takes_over(counted, side), counted != side && !between);
        }
    }
}
