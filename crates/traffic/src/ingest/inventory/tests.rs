use std::net::IpAddr;

use objects::kinds::{Group, GroupMode};
use serde_json::json;

use super::{Inventory, NamespaceFacts, NodeWithNetworks};
use crate::conversations::{Labels, LocalWorkload, Moment, NodeFacts, PodFacts, ServiceFacts};

const NOW: Moment = Moment(10_000_000);
const LATER: Moment = Moment(20_000_000);

fn address(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

fn pod(name: &str, number: u8) -> PodFacts {
    PodFacts {
        uid: format!("uid-{name}").into(),
        namespace: "shop".into(),
        name: name.into(),
        owner: None,
        node: "n".into(),
        addresses: vec![address(number)],
        images: Vec::new(),
        labels: Labels::new(),
        from: Moment(0),
        until: None,
    }
}

fn at(inventory: &Inventory, address: IpAddr) -> String {
    inventory.directory.resolve(address, LATER).to_string()
}

#[test]
fn what_a_whole_list_no_longer_has_is_gone() {
    let mut inventory = Inventory::new(GroupMode::Discover);
    inventory.reset(&[pod("a", 1), pod("b", 2)], NOW);
    assert_eq!(at(&inventory, address(1)), "shop/a");
    inventory.reset(&[pod("b", 2), pod("c", 3)], NOW);
    let found = [1, 2, 3].map(|number| at(&inventory, address(number)));
    assert_eq!(found, ["external", "shop/b", "shop/c"]);
    assert_eq!(inventory.groups.all().count(), 2);

    let service = |name: &str, number| ServiceFacts {
        namespace: "shop".into(),
        name: name.into(),
        cluster_addresses: vec![address(number)],
        ingress_addresses: Vec::new(),
        selector: Labels::new(),
        from: Moment(0),
    };
    inventory.reset(&[service("web", 10), service("db", 11)], NOW);
    inventory.reset(&[service("db", 11)], NOW);
    assert_eq!([10, 11].map(|n| at(&inventory, address(n))), ["external", "service shop/db"]);

    let node = |name: &str, number| NodeWithNetworks {
        facts: NodeFacts { name: name.into(), addresses: vec![address(number)], from: Moment(0) },
        networks: vec!["10.0.0.0/24".parse().unwrap()],
    };
    inventory.reset(&[node("n", 20), node("m", 21)], NOW);
    inventory.reset(&[node("n", 20)], NOW);
    assert_eq!([20, 21].map(|n| at(&inventory, address(n))), ["host n", "unmanaged"]);
    inventory.delete::<NodeWithNetworks>(&"n".into(), NOW);
    assert_eq!(at(&inventory, address(20)), "external", "its pods' network went with it");

    let named = |name: &str| NamespaceFacts { name: name.into(), labels: Labels::new() };
    inventory.reset(&[named("shop"), named("old")], NOW);
    inventory.reset(&[named("shop")], NOW);
    assert_eq!(inventory.namespaces.len(), 1);
}

#[test]
fn what_agents_tell_stands_in_until_kubernetes_tells() {
    let mut inventory = Inventory::new(GroupMode::Discover);
    let local = |name: &str, number| LocalWorkload {
        namespace: "local".into(),
        name: name.into(),
        addresses: vec![address(number)],
        from: Moment(0),
    };
    assert!(inventory.set_local("n", &[local("a", 1), local("b", 2)], NOW));
    assert!(!inventory.set_local("n", &[local("a", 1), local("b", 2)], NOW), "nothing new");
    assert!(inventory.set_host("n", &[address(9)], NOW));
    assert!(inventory.set_local("n", &[local("b", 2)], NOW));
    assert_eq!([1, 2, 9].map(|n| at(&inventory, address(n))), ["external", "local/b", "host n"]);
    inventory.reset(&[pod("c", 2)], NOW);
    inventory.reset::<NodeWithNetworks>(&[], NOW);
    assert_eq!([2, 9].map(|n| at(&inventory, address(n))), ["shop/c", "external"]);
    assert!(!inventory.set_local("n", &[local("a", 1)], NOW));
    assert!(!inventory.set_host("n", &[address(9)], NOW));
}

#[test]
fn a_group_of_networks_names_what_is_outside_and_one_that_is_wrong_says_why() {
    let mut inventory = Inventory::new(GroupMode::Discover);
    let group = |name: &str, value: &str| -> Group {
        serde_json::from_value(json!({
            "apiVersion": "fairlead.dev/v1alpha1", "kind": "Group", "metadata": {"name": name},
            "spec": {"criteria": [{"key": "address", "op": "=", "value": value}]}
        }))
        .unwrap()
    };
    inventory.reset(&[group("office", "192.0.2.0/24"), group("broken", "nowhere")], NOW);
    assert_eq!(at(&inventory, [192, 0, 2, 7].into()), "external office");
    assert!(inventory.wrong_group("broken").unwrap().contains("nowhere"));
    inventory.apply(&group("office", "no longer one"), NOW);
    assert_eq!(at(&inventory, [192, 0, 2, 7].into()), "external", "it is not what it was");
    inventory.reset::<Group>(&[], NOW);
    assert_eq!(inventory.wrong_groups().count(), 0);
}
