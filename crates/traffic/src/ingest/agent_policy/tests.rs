use std::net::IpAddr;
use std::sync::Arc;

use objects::kinds::{Group, GroupMode, NetworkRule, Ports, Protocol};
use serde_json::{Value, json};

use super::AgentPolicy;
use crate::conversations::{Labels, Moment, PodFacts};
use crate::ingest::inventory::Inventory;
use crate::rules::LearnedRule;

const NOW: Moment = Moment(10_000);

fn rule(name: &str, spec: &Value) -> NetworkRule {
    let (version, kind) = ("fairlead.dev/v1alpha1", "NetworkRule");
    let rule = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name},
                      "spec": spec});
    serde_json::from_value(rule).unwrap()
}

fn inventory() -> Inventory {
    let mut inventory = Inventory::new(GroupMode::Discover);
    for (number, name) in [(1, "web"), (2, "db")] {
        let pod = PodFacts {
            uid: name.into(),
            namespace: "shop".into(),
            name: name.into(),
            owner: Some(format!("Deployment/{name}").into()),
            node: "n".into(),
            addresses: vec![[10, 0, 0, number].into()],
            images: Vec::new(),
            labels: Labels::new(),
            from: Moment(0),
            until: None,
        };
        inventory.apply_pod(&pod, NOW);
    }
    let office: Group = serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "Group", "metadata": {"name": "office"},
        "spec": {"criteria": [{"key": "address", "op": "=", "value": "192.0.2.0/24"},
                              {"key": "address", "op": "!=", "value": "192.0.2.9"}]}
    }))
    .unwrap();
    let strict: Group = serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "Group", "metadata": {"name": "strict"},
        "spec": {"mode": "protect",
                 "criteria": [{"key": "name", "op": "=", "value": "db"}]}
    }))
    .unwrap();
    inventory.reset_at(&[office, strict], NOW);
    inventory
}

#[test]
fn groups_are_addresses() {
    let (mut policy, inventory) = (AgentPolicy::new(GroupMode::Discover), inventory());
    let rules = [
        rule("a", &json!({"from": "office", "to": "shop/Deployment/web", "action": "allow"})),
        rule("b", &json!({"from": "external", "to": "any", "action": "deny"})),
        rule("c", &json!({"from": "hosts", "to": "any", "action": "deny", "disabled": true})),
    ];
    assert!(policy.become_current(&rules, &[], &inventory, NOW));
    assert!(policy.rules.len() == 2 && !policy.rules.contains_key("c"));
    let has = |group: &str, address: [u8; 4]| policy.groups[group].has(IpAddr::from(address));
    assert!(has("office", [192, 0, 2, 1]) && !has("office", [192, 0, 2, 9]));
    assert!(has("shop/Deployment/web", [10, 0, 0, 1]));
    assert!(!has("shop/Deployment/web", [10, 0, 0, 2]));
    assert!(has("external", [192, 0, 2, 1]) && !has("external", [10, 0, 0, 1]));
    assert!(has("any", [10, 0, 0, 1]));
    assert!(policy.groups["any"].has("2001:db8::1".parse().unwrap()));
    // No rule speaks of it, but it has a mode.
    assert!(has("strict", [10, 0, 0, 2]));
    assert_eq!(policy.groups["strict"].mode, Some(GroupMode::Protect));
}

#[test]
fn a_version_tells_of_every_change_and_what_did_not_change_is_the_same() {
    let (mut policy, mut inventory) = (AgentPolicy::new(GroupMode::Discover), inventory());
    let web = rule("a", &json!({"from": "any", "to": "shop/Deployment/web", "action": "allow"}));
    let learned = LearnedRule {
        from: "external".into(),
        to: "shop/Deployment/db".into(),
        ports: vec![Ports { protocol: Protocol::TCP, first: 80, last: 80 }],
    };
    let rules = std::slice::from_ref(&web);
    assert!(policy.become_current(rules, std::slice::from_ref(&learned), &inventory, NOW));
    let first = policy.clone();
    assert!(first.version >= NOW.0, "later than any before a restart");
    assert!(!policy.become_current(rules, std::slice::from_ref(&learned), &inventory, NOW));
    // Promoted, it has the same name and is written.
    let promoted = [web.clone(), learned.promote()];
    assert!(policy.become_current(&promoted, std::slice::from_ref(&learned), &inventory, NOW));
    assert!(policy.version > first.version);
    assert!(!policy.rules[learned.name().as_str()].learned);
    assert!(!policy.become_current(&promoted, &[learned], &inventory, NOW), "and stays so");
    assert!(Arc::ptr_eq(&first.rules["a"], &policy.rules["a"]));
    inventory.delete_pod("web", NOW);
    assert!(policy.become_current(&promoted, &[], &inventory, NOW));
    assert!(policy.groups["shop/Deployment/web"].networks.is_empty());
    assert!(policy.become_current(&[], &[], &inventory, NOW));
    assert!(policy.rules.is_empty() && policy.groups.len() == 1, "one group has a mode");
}
