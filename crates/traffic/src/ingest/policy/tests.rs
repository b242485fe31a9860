use objects::Index as _;
use objects::kinds::{GroupMode, NetworkRule};
use serde_json::json;

use super::WrittenRules;
use crate::groups::Groups;

fn rule(name: &str, from: &str, priority: i32) -> NetworkRule {
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "NetworkRule", "metadata": {"name": name},
        "spec": {"from": from, "to": "any", "action": "deny", "priority": priority}
    }))
    .unwrap()
}

#[test]
fn rules_stand_in_the_order_in_which_they_are_looked_at_and_one_that_is_wrong_decides_nothing() {
    let mut rules = WrittenRules::default();
    assert!(!rules.synced);
    let all = vec![rule("b", "office", 10), rule("a", "hosts", 10), rule("c", "any", 1)];
    rules.reset(all);
    rules.apply(rule("d", "Not A Group", 2));
    let names: Vec<_> =
        rules.list().iter().map(|it| it.rule.metadata.name.clone().unwrap()).collect();
    assert_eq!(names, ["c", "d", "a", "b"]);
    assert!(rules.get("d").unwrap().wrong.as_ref().unwrap().contains("no group"));
    assert_eq!(rules.valid().len(), 3);
    let groups = Groups::new(GroupMode::Discover);
    let missing = |name: &str| rules.get(name).unwrap().missing(&groups);
    assert_eq!(missing("b").as_deref(), Some("there is no group \"office\""));
    assert_eq!(missing("a"), None);
    assert!(rules.delete(rule("b", "office", 10)));
    assert!(rules.get("b").is_none());
    rules.reset(Vec::new());
    assert!(rules.synced && rules.list().is_empty());
}
