#![allow(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

use serde_json::{Value, json};

use super::{Group, network};
use crate::store::Kind;

fn problems(name: &str, spec: Value) -> String {
    let value = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "Group",
                       "metadata": {"name": name}, "spec": spec});
    let group: Result<Group, _> = serde_json::from_value(value);
    match group {
        Ok(group) => group.check().err().map(|problems| problems.to_string()).unwrap_or_default(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_key_and_operator_is_accepted() {
    let criteria = json!([
        {"key": "image", "op": "contains", "value": "nginx"},
        {"key": "node", "op": "!contains", "value": "edge"},
        {"key": "name", "op": "prefix", "value": "web-"},
        {"key": "service", "op": "!prefix", "value": "int"},
        {"key": "namespace", "op": "regex", "value": "^shop-[0-9]+$"},
        {"key": "label", "label": "app.kubernetes.io/name", "op": "=", "value": "web"},
        {"key": "label", "label": "tier", "op": "=", "value": ""},
        {"key": "namespaceLabel", "label": "team", "op": "!regex", "value": "x"},
        {"key": "address", "op": "!=", "value": "fd00::/8"},
    ]);
    assert_eq!(problems("web", json!({"mode": "monitor", "criteria": criteria})), "");
}

#[test]
fn what_could_not_be_meant_is_refused_with_a_sentence() {
    let one = |criterion: Value| json!({"criteria": [criterion]});
    let name = || json!({"key": "name", "op": "=", "value": "a"});
    let cases = [
        ("external", one(name()), "is there already"),
        ("web", json!({"criteria": []}), "is empty"),
        ("web", json!({"criteria": [name()], "modus": "x"}), "unknown field"),
        ("web", one(json!({"key": "colour", "op": "=", "value": "a"})), "unknown variant"),
        ("web", one(json!({"key": "name", "op": "~", "value": "a"})), "unknown variant"),
        ("web", one(json!({"key": "name", "op": "=", "value": ""})), "is empty"),
        ("web", one(json!({"key": "name", "op": "regex", "value": "("})), "regular expression"),
        ("web", one(json!({"key": "label", "op": "=", "value": "a"})), "which label?"),
        ("web", one(json!({"key": "label", "label": "a b", "op": "=", "value": "a"})), "must be"),
        ("web", one(json!({"key": "name", "label": "a", "op": "=", "value": "a"})), "is for the"),
        ("web", one(json!({"key": "address", "op": "=", "value": "10.0.0.0/40"})), "no network"),
        ("web", one(json!({"key": "address", "op": "prefix", "value": "10."})), "= and != only"),
        (
            "web",
            one(json!({"key": "label", "label": "a", "op": "contains", "value": ""})),
            "everything contains",
        ),
    ];
    for (name, spec, expected) in cases {
        let problems = problems(name, spec.clone());
        assert!(problems.contains(expected), "{spec}: {problems}");
    }
}

#[test]
fn an_address_is_a_network_of_one() {
    assert_eq!(network("10.0.0.1"), network("10.0.0.1/32"));
    assert_eq!(network("fd00::/8").map(|net| net.prefix_len()), Some(8));
    assert_eq!(network("web"), None);
}
