#![allow(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

use serde_json::{Value, json};

use super::{GroupName, NetworkRule, Ports, Protocol};
use crate::store::Kind;

fn problems(spec: Value) -> String {
    let value = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "NetworkRule",
                       "metadata": {"name": "r"}, "spec": spec});
    let rule: Result<NetworkRule, _> = serde_json::from_value(value);
    match rule {
        Ok(rule) => rule.check().err().map(|problems| problems.to_string()).unwrap_or_default(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_rule_names_groups_and_ports() {
    let spec = json!({"from": "external", "to": "shop/Deployment/web", "action": "allow",
                      "ports": ["tcp/80", "udp/8000-8010", "icmp", "ip-47"],
                      "applications": ["http"]});
    assert_eq!(problems(spec), "");
    assert_eq!(GroupName::parse("web"), Ok(GroupName::Made("web")));
    assert_eq!(GroupName::parse("any"), Ok(GroupName::Reserved("any")));
    let learned = GroupName::Learned { namespace: "shop", owner: "Deployment/web" };
    assert_eq!(GroupName::parse("shop/Deployment/web"), Ok(learned));
}

#[test]
fn what_could_not_be_meant_is_refused_with_a_sentence() {
    let rule = |from: &str, ports: &str| json!({"from": from, "to": "any", "action": "deny", "ports": [ports]});
    let cases = [
        (rule("Web", "tcp"), "is no group"),
        (rule("shop/web", "tcp"), "is no learned group"),
        (rule("shop//web", "tcp"), "is no learned group"),
        (rule("any", "80"), "are no ports"),
        (rule("any", "http/80"), "are no ports"),
        (rule("any", "tcp/0x50"), "are no ports"),
        (rule("any", "tcp/70000"), "are no ports"),
        (rule("any", "tcp/+80"), "are no ports"),
        (rule("any", "ip-+47"), "are no ports"),
        (rule("any", "tcp/90-80"), "ends before it begins"),
        (json!({"from": "any", "to": "any", "action": "deny", "priority": -1}), "must be from 0"),
        (json!({"from": "any", "to": "any", "action": "refuse"}), "unknown variant"),
        (json!({"from": "any", "to": "any", "action": "deny", "applications": [""]}), "is empty"),
    ];
    for (spec, expected) in cases {
        let problems = problems(spec.clone());
        assert!(problems.contains(expected), "{spec}: {problems}");
    }
}

#[test]
fn ports_are_read_as_they_are_written() {
    for text in ["tcp", "tcp/80", "udp/1-65535", "icmp6", "sctp/7", "ip-47"] {
        let ports: Ports = text.parse().unwrap();
        assert_eq!(ports.to_string(), text);
    }
    assert_eq!("ip-6/80".parse::<Ports>().unwrap().to_string(), "tcp/80");
    let ports: Ports = "tcp/80-90".parse().unwrap();
    assert!(ports.contains(Protocol::TCP, 90) && !ports.contains(Protocol::TCP, 91));
    assert!(!ports.contains(Protocol::UDP, 80));
}

#[test]
fn the_schema_takes_what_is_read_but_for_how_large_numbers_are() {
    let pattern = regex::Regex::new(super::PORTS).unwrap();
    let cases = ["tcp", "tcp/80", "udp/1-65535", "icmp6", "sctp/7", "ip-47", "ip-6/080"];
    for text in cases {
        assert!(pattern.is_match(text) && text.parse::<Ports>().is_ok(), "{text}");
    }
    for text in
        ["", "80", "tcp/", "tcp/+80", "tcp/80-", "ip-", "ip-+47", "ip-0047", "tcp/000080", "x"]
    {
        assert!(!pattern.is_match(text) && text.parse::<Ports>().is_err(), "{text}");
    }
}
