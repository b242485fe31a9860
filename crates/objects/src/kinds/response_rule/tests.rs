use serde_json::json;

use super::{ResponseRule, ResponseRuleSpec};
use crate::store::Kind;

fn problems(spec: serde_json::Value) -> Vec<String> {
    let spec: ResponseRuleSpec = serde_json::from_value(spec).expect("a spec");
    let checked = ResponseRule::new("rule", spec).check();
    checked
        .err()
        .map(|invalid| invalid.0.into_iter().map(|(at, _)| at).collect())
        .unwrap_or_default()
}

#[test]
fn a_rule_that_notifies_names_whom() {
    let rule = json!({"event": "violation", "actions": ["notify"], "receivers": ["oncall"]});
    assert!(problems(rule).is_empty());
    assert_eq!(problems(json!({"event": "stall", "actions": ["notify"]})), ["spec.receivers"]);
    let quiet = json!({"event": "stall", "actions": ["suppress"], "receivers": ["oncall"]});
    assert_eq!(problems(quiet), ["spec.receivers"]);
    assert_eq!(problems(json!({"event": "stall", "actions": []})), ["spec.actions"]);
}

#[test]
fn only_workloads_are_quarantined() {
    assert!(problems(json!({"event": "violation", "actions": ["quarantine"]})).is_empty());
    assert_eq!(problems(json!({"event": "stall", "actions": ["quarantine"]})), ["spec.actions"]);
}

#[test]
fn conditions_are_bounded() {
    let rule = |conditions| {
        problems(json!({"event": "agent", "actions": ["suppress"], "conditions": conditions}))
    };
    assert!(rule(json!({"level": "error", "frequency": {"count": 3, "seconds": 60}})).is_empty());
    let wrong = rule(json!({"frequency": {"count": 1, "seconds": 0}}));
    assert_eq!(wrong, ["spec.conditions.frequency.count", "spec.conditions.frequency.seconds"]);
    assert_eq!(rule(json!({"groups": [""]})), ["spec.conditions.groups[0]"]);
}
