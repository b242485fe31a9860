//! NeuVector's exports and resources become objects of ours, and everything that was read is in the report.

use std::time::Instant;

use kube::ResourceExt;
use objects::kinds::{EventKind, GroupMode, ResponseAction, RuleAction};
use serde_json::{Value, json};

use neuvector::{Finding, Imported, Outcome, Settings, import};

fn imported(documents: &[Value]) -> Imported {
    import(documents, &Settings::default()).expect("an export")
}

fn outcome<'a>(imported: &'a Imported, what: &str, name: &str) -> &'a Finding {
    let found = imported.report.iter().find(|it| it.what == what && it.name == name);
    found.unwrap_or_else(|| panic!("{what} {name}: {:?}", imported.report))
}

fn group(name: &str, criteria: &Value) -> Value {
    json!({"name": name, "criteria": criteria})
}

/// As `/v1/file/group` exports a group with its rules.
fn export() -> Value {
    let web = group(
        "nv.web.shop",
        &json!([
            {"key": "service", "op": "=", "value": "web.shop"},
            {"key": "domain", "op": "=", "value": "shop"},
        ]),
    );
    let db = group("db", &json!([{"key": "app", "op": "=", "value": "db"}]));
    json!({"apiVersion": "v1", "kind": "List", "items": [{
        "apiVersion": "neuvector.com/v1", "kind": "NvClusterSecurityRule",
        "metadata": {"name": "nv.web.shop"},
        "spec": {
            "target": {"policymode": "Monitor", "selector": web},
            "ingress": [{
                "selector": {"name": "external", "criteria": []}, "applications": ["SSL"],
                "ports": "any", "action": "allow", "name": "nv.web.shop-ingress-0", "priority": 0,
            }],
            "egress": [
                {"selector": db, "applications": ["any"], "ports": "tcp/5432,6432", "action": "allow",
                 "name": "nv.web.shop-egress-0", "priority": 0},
                {"selector": {"name": "containers"}, "applications": ["HTTP"], "ports": "udp/any",
                 "action": "deny", "name": "Deny_All", "priority": 7},
            ],
            "process": [{"name": "nginx", "path": "/usr/sbin/nginx", "action": "allow", "allow_update": false}],
            "process_profile": {"baseline": "zero-drift"},
            "file": [{"filter": "/etc/*", "recursive": true, "behavior": "block_access", "app": ["x"]}],
            "dlp": {"status": true, "settings": [{"name": "sensor.ssn", "action": "deny"}]},
            "waf": {"status": true, "settings": []},
            "response": [{
                "policy_name": "", "event": "security-event", "actions": ["webhook", "quarantine"],
                "webhooks": ["ops"], "conditions": [{"type": "level", "value": "Warning"}],
            }],
        },
    }]})
}

#[test]
fn groups_rules_and_responses_come_along_in_order() {
    let imported = imported(&[export()]);
    let names: Vec<_> = imported.groups.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["db", "nv.web.shop"]);
    assert_eq!(imported.groups[1].spec.mode, Some(GroupMode::Monitor));
    let rules: Vec<_> = imported
        .rules
        .iter()
        .map(|rule| {
            (
                rule.spec.from.as_str(),
                rule.spec.to.as_str(),
                rule.spec.action,
                rule.spec.ports.join(","),
            )
        })
        .collect();
    // The greatest priority first; what denies from a group that stands for less denies from any.
    assert_eq!(
        rules,
        [
            ("any", "workloads", RuleAction::Deny, "udp".to_owned()),
            ("external", "nv.web.shop", RuleAction::Allow, String::new()),
            ("nv.web.shop", "db", RuleAction::Allow, "tcp/5432,tcp/6432".to_owned()),
        ]
    );
    assert!(imported.rules[0].spec.applications.is_empty());
    assert_eq!(imported.rules[1].spec.applications, ["tls"], "by our own word for it");
    let response = &imported.responses[0].spec;
    assert_eq!(
        (response.event, response.receivers.as_slice()),
        (EventKind::Violation, &["ops".to_owned()][..])
    );
    assert_eq!(response.actions, [ResponseAction::Notify, ResponseAction::Quarantine]);
    assert_eq!(response.conditions.groups, ["nv.web.shop"]);
    assert_eq!(outcome(&imported, "network rule", "Deny_All").outcome, Outcome::Changed);
    assert_eq!(outcome(&imported, "group", "db").outcome, Outcome::Kept);
    for what in ["process rules", "file rules", "DLP sensors"] {
        assert_eq!(outcome(&imported, what, "nv.web.shop").outcome, Outcome::NotCarried);
    }
}

#[test]
fn a_second_import_makes_the_same() {
    assert_eq!(imported(&[export()]), imported(&[export()]));
}

#[test]
fn what_is_none_of_neuvectors_is_refused() {
    let error = import(&[json!({"kind": "Deployment"})], &Settings::default());
    assert!(error.is_err_and(|why| why.contains("Deployment")));
}

#[test]
fn an_allow_rule_of_a_group_that_would_stand_for_more_is_refused() {
    let rule = |name: &str, criteria: Value| {
        json!({"kind": "NvClusterSecurityRule", "metadata": {"name": name}, "spec": {
            "target": {"selector": group(name, &criteria)},
            "ingress": [], "egress": [{"selector": {"name": "external"}, "applications": ["any"],
                "ports": "any", "action": "allow", "name": format!("{name}-out"), "priority": 0}],
        }})
    };
    let private = rule("private", json!([{"key": "address", "op": "=", "value": "10.1.0.0/16"}]));
    let public =
        rule("public", json!([{"key": "address", "op": "=", "value": "203.0.113.1-203.0.113.6"}]));
    let named =
        rule("named", json!([{"key": "address", "op": "=", "value": "vh:www.example.com"}]));
    let container = rule("container", json!([{"key": "container", "op": "=", "value": "x"}]));
    let imported = imported(&[private, public, named, container]);
    assert_eq!(imported.rules.len(), 1);
    assert_eq!(imported.rules[0].spec.from, "public");
    for name in ["private-out", "named-out", "container-out"] {
        assert_eq!(outcome(&imported, "network rule", name).outcome, Outcome::Refused);
    }
    let public =
        imported.groups.iter().find(|group| group.name_any() == "public").expect("a group");
    let values: Vec<_> = public.spec.criteria.iter().map(|it| it.value.as_str()).collect();
    assert_eq!(values, ["203.0.113.1/32", "203.0.113.2/31", "203.0.113.4/31", "203.0.113.6/32"]);
}

#[test]
fn admission_rules_profiles_and_sensors_are_in_the_report() {
    let imported = imported(&[
        json!({"kind": "NvAdmissionControlSecurityRule", "metadata": {"name": "local"}, "spec": {"rules": [
            {"id": 1001, "action": "deny", "rule_mode": "protect", "containers": ["containers"],
             "criteria": [{"name": "runAsPrivileged", "op": "=", "value": "true"}]},
        ]}}),
        json!({"kind": "NvVulnerabilityProfile", "metadata": {"name": "default"}, "spec": {"profile": {
            "entries": [{"name": "CVE-2024-3094", "comment": "", "domains": [], "images": []}]}}}),
        json!({"kind": "NvDlpSecurityRule", "metadata": {"name": "sensor.ssn"}, "spec": {}}),
        json!({"kind": "NvWafSecurityRule", "metadata": {"name": "sensor.log4sh"}, "spec": {}}),
        json!({"kind": "NvComplianceProfile", "metadata": {"name": "default"}, "spec": {}}),
        json!({"kind": "NvConfigSecurityRule", "metadata": {"name": "fed"}, "spec": {"fed_config": {"webhooks": [
            {"name": "siem", "url": "https://siem.example.com/hook", "enable": true, "type": ""},
            {"name": "chat", "url": "https://hooks.slack.com/services/hush", "enable": true, "type": "Slack"},
        ]}}}),
        json!({"kind": "NvResponseRuleSecurityRule", "metadata": {"name": "cve"}, "spec": {"rule": {
            "event": "cve-report", "actions": ["webhook"], "webhooks": ["siem"]}}}),
    ]);
    assert_eq!((imported.admission.len(), imported.receivers.len()), (1, 1));
    assert_eq!(outcome(&imported, "admission rule", "nv-1001").outcome, Outcome::Kept);
    assert_eq!(outcome(&imported, "response rule", "cve").outcome, Outcome::Refused);
    assert_eq!(outcome(&imported, "receiver", "chat").outcome, Outcome::NotCarried);
    assert!(!format!("{:?}", imported.report).contains("hush"));
    let not_carried = imported.report.iter().filter(|it| it.outcome == Outcome::NotCarried).count();
    assert_eq!((not_carried, imported.exceptions.len()), (4, 1));
}

#[test]
fn more_ports_than_a_rule_may_have_are_several_rules() {
    let mut document = export();
    let ports: Vec<_> = (0..130).map(|port| format!("tcp/{}", 1000 + port * 2)).collect();
    document["items"][0]["spec"]["egress"][0]["ports"] = ports.join(",").into();
    let imported = imported(&[document]);
    let rules: Vec<_> = imported.rules.iter().filter(|rule| rule.spec.to == "db").collect();
    assert_eq!(rules.iter().map(|rule| rule.spec.ports.len()).collect::<Vec<_>>(), [64, 64, 2]);
}

#[test]
fn five_thousand_rules_are_read_at_once() {
    let items: Vec<_> = (0..500)
        .map(|n| {
            let mut item = export()["items"][0].clone();
            item["metadata"]["name"] = format!("nv.web{n}.shop").into();
            let rule = item["spec"]["egress"][0].clone();
            let rules: Vec<_> = (0..10)
                .map(|i| {
                    let mut rule = rule.clone();
                    rule["name"] = format!("nv.web{n}.shop-egress-{i}").into();
                    rule
                })
                .collect();
            item["spec"]["egress"] = rules.into();
            item["spec"]["ingress"] = json!([]);
            item
        })
        .collect();
    let began = Instant::now();
    let imported = imported(&[json!({"kind": "List", "items": items})]);
    assert_eq!(imported.rules.len(), 5000);
    // Far from any machine's speed: what is quadratic takes minutes.
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}
