use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use objects::Index as _;
use objects::kinds::{Group, GroupMode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Inventory;
use crate::conversations::{LocalWorkload, Moment};
use crate::ingest::observed::Observed as _;

const NOW: Moment = Moment(10_000_000);
const LATER: Moment = Moment(20_000_000);

fn address(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, number: u8) -> Pod {
    object(json!({
        "metadata": {"uid": format!("uid-{name}"), "namespace": "shop", "name": name},
        "spec": {"nodeName": "n", "containers": []}, "status": {"podIP": address(number)}
    }))
}

fn at(inventory: &Inventory, address: IpAddr) -> String {
    inventory.directory.resolve(address, LATER).to_string()
}

#[test]
fn what_a_whole_list_no_longer_has_is_gone() {
    let mut inventory = Inventory::new(GroupMode::Discover);
    inventory.reset_at(&[pod("a", 1), pod("b", 2)], NOW);
    assert_eq!(at(&inventory, address(1)), "shop/a");
    inventory.reset_at(&[pod("b", 2), pod("c", 3)], NOW);
    let found = [1, 2, 3].map(|number| at(&inventory, address(number)));
    assert_eq!(found, ["external", "shop/b", "shop/c"]);
    assert_eq!(inventory.groups.all().count(), 2);

    let service = |name: &str, number| -> Service {
        let metadata = json!({"namespace": "shop", "name": name});
        object(json!({"metadata": metadata, "spec": {"clusterIP": address(number)}}))
    };
    inventory.reset_at(&[service("web", 10), service("db", 11)], NOW);
    inventory.reset_at(&[service("db", 11)], NOW);
    assert_eq!([10, 11].map(|n| at(&inventory, address(n))), ["external", "service shop/db"]);

    let node = |name: &str, number| -> Node {
        let addresses = json!([{"type": "InternalIP", "address": address(number)}]);
        object(json!({
            "metadata": {"name": name}, "spec": {"podCIDR": "10.0.0.0/24"},
            "status": {"addresses": addresses}
        }))
    };
    inventory.reset_at(&[node("n", 20), node("m", 21)], NOW);
    inventory.reset_at(&[node("n", 20)], NOW);
    assert_eq!([20, 21].map(|n| at(&inventory, address(n))), ["host n", "unmanaged"]);
    Node::delete("n", &mut inventory, NOW);
    Node::after_changes(&mut inventory);
    assert_eq!(at(&inventory, address(20)), "external", "its pods' network went with it");

    let named = |name: &str| -> Namespace { object(json!({"metadata": {"name": name}})) };
    inventory.reset_at(&[named("shop"), named("old")], NOW);
    inventory.reset_at(&[named("shop")], NOW);
    assert_eq!(inventory.groups.namespaces().count(), 1);
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
    inventory.reset_at(&[pod("c", 2)], NOW);
    inventory.reset_at::<Node>(&[], NOW);
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
    inventory.reset_at(&[group("office", "192.0.2.0/24"), group("broken", "nowhere")], NOW);
    assert_eq!(at(&inventory, [192, 0, 2, 7].into()), "external office");
    assert!(inventory.wrong_group("broken").unwrap().contains("nowhere"));
    inventory.apply(group("office", "no longer one"));
    assert_eq!(at(&inventory, [192, 0, 2, 7].into()), "external", "it is not what it was");
    inventory.reset_at::<Group>(&[], NOW);
    assert_eq!(inventory.wrong_groups().count(), 0);
}
