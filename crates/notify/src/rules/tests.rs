use std::sync::Arc;
use std::time::{Duration, Instant};

use objects::kinds::{EventKind, EventLevel, ResponseRule};
use serde_json::json;

use super::{Frequencies, Response, ResponseRules, matches};
use crate::event::Event;

fn rules(specs: &[(&str, serde_json::Value)]) -> ResponseRules {
    ResponseRules::new(specs.iter().map(|(name, spec)| {
        let spec = serde_json::from_value(spec.clone()).expect("a spec");
        Arc::new(ResponseRule::new(name, spec))
    }))
}

fn violation() -> Event {
    let mut event = Event::new(EventKind::Violation, "denied", EventLevel::Error, "web reached db");
    event.workload = Some("shop/Deployment/web".to_owned());
    event.groups = vec!["shop/Deployment/web".to_owned(), "payment".to_owned()];
    event
}

fn decide(rules: &ResponseRules, event: &Event) -> Response {
    rules.decide(event, &mut Frequencies::default(), Instant::now())
}

#[test]
fn every_rule_that_matches_acts_and_each_receiver_is_told_once() {
    let rules = rules(&[
        (
            "a",
            json!({"event": "violation", "actions": ["notify"], "receivers": ["siem", "oncall"]}),
        ),
        (
            "b",
            json!({"event": "violation", "actions": ["notify", "quarantine"], "receivers": ["oncall", "chat"]}),
        ),
        ("c", json!({"event": "stall", "actions": ["notify"], "receivers": ["other"]})),
    ]);
    let response = decide(&rules, &violation());
    assert_eq!(response.notify, ["siem", "oncall", "chat"]);
    assert_eq!(response.quarantine.as_deref(), Some("b"));
    assert_eq!(response.matched, ["a", "b"]);
}

#[test]
fn a_rule_that_suppresses_is_the_last_and_order_is_by_priority_then_name() {
    let specs = [
        (
            "z-first",
            json!({"event": "violation", "priority": 1, "actions": ["notify"], "receivers": ["siem"]}),
        ),
        (
            "quiet",
            json!({"event": "violation", "priority": 5, "actions": ["suppress"], "conditions": {"groups": ["pay*"]}}),
        ),
        ("a-late", json!({"event": "violation", "actions": ["notify"], "receivers": ["oncall"]})),
    ];
    let response = decide(&rules(&specs), &violation());
    assert_eq!(
        (response.notify, response.suppressed.as_deref()),
        (vec!["siem".to_owned()], Some("quiet"))
    );
    let mut other = violation();
    other.groups = vec!["web".to_owned()];
    assert_eq!(decide(&rules(&specs), &other).notify, ["siem", "oncall"]);
}

#[test]
fn all_conditions_must_hold_and_what_has_no_workload_matches_no_workload() {
    let one = |conditions| {
        rules(&[(
            "rule",
            json!({"event": "violation", "actions": ["suppress"], "conditions": conditions}),
        )])
    };
    let matched = |conditions, event: &Event| !decide(&one(conditions), event).matched.is_empty();
    let event = violation();
    assert!(matched(
        json!({"level": "warning", "names": ["*.denied"], "workloads": ["shop/*"]}),
        &event
    ));
    assert!(!matched(json!({"level": "critical"}), &event));
    assert!(!matched(json!({"names": ["violation.unknown"]}), &event));
    assert!(!matched(json!({"level": "info", "clusters": ["eu"]}), &event));
    let nobody = Event { workload: None, groups: Vec::new(), ..event };
    assert!(!matched(json!({"workloads": ["*"]}), &nobody));
    assert!(!matched(json!({"groups": ["*"]}), &nobody));
}

#[test]
fn a_disabled_or_invalid_rule_does_nothing() {
    let rules = rules(&[
        ("off", json!({"event": "violation", "disabled": true, "actions": ["suppress"]})),
        ("wrong", json!({"event": "violation", "actions": ["notify"]})),
        ("right", json!({"event": "violation", "actions": ["notify"], "receivers": ["siem"]})),
    ]);
    assert_eq!(decide(&rules, &violation()).matched, ["right"]);
}

#[test]
fn a_frequency_counts_each_subject_by_itself_and_begins_anew() {
    let rules = rules(&[(
        "often",
        json!({"event": "violation", "actions": ["notify"], "receivers": ["oncall"],
               "conditions": {"frequency": {"count": 3, "seconds": 60}}}),
    )]);
    let (mut seen, start) = (Frequencies::default(), Instant::now());
    let mut at = |seconds: u64, event: &Event| {
        let now = start + Duration::from_secs(seconds);
        !rules.decide(event, &mut seen, now).matched.is_empty()
    };
    let (web, db) =
        (violation(), Event { workload: Some("shop/Deployment/db".into()), ..violation() });
    assert!(!at(0, &web) && !at(1, &web) && !at(2, &db) && at(3, &web));
    assert!(!at(4, &web), "it begins anew");
    assert!(!at(65, &web) && !at(66, &web), "the one of second 4 is too old");
    assert!(at(67, &web));
}

#[test]
fn subjects_that_somebody_makes_up_take_bounded_memory() {
    let rules = rules(&[(
        "often",
        json!({"event": "violation", "actions": ["suppress"], "conditions": {"frequency": {"count": 2, "seconds": 60}}}),
    )]);
    let (mut seen, now) = (Frequencies::default(), Instant::now());
    for number in 0..super::MOST_SUBJECTS + 100 {
        let event = Event { workload: Some(format!("made/up/{number}")), ..violation() };
        rules.decide(&event, &mut seen, now + Duration::from_millis(number as u64));
    }
    assert_eq!(seen.seen.len(), super::MOST_SUBJECTS);
}

#[test]
fn globs() {
    for (glob, text, is) in [
        ("*", "", true),
        ("a*c", "abbbc", true),
        ("a*c", "abbbcd", false),
        ("?b*", "ab", true),
        ("?b*", "b", false),
        ("*a*b*", "xaxbx", true),
        ("[a]", "a", false),
        ("naïv?", "naïve", true),
    ] {
        assert_eq!(matches(glob, text), is, "{glob} {text}");
    }
}
