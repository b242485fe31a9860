//! Every definition is one that every API server takes: bounded, in formats that it knows, with rules
//! whose estimated cost is far below its limits.

use objects::kinds;
use regex::Regex;
use serde_json::{Value, json};

use crate::cost::{self, MOST_OF_A_RULE, MOST_OF_ALL};

/// Of what an API server knows, those that we use.
const FORMATS: [&str; 3] = ["date-time", "int32", "int64"];
/// A tenth of what a server allows: its estimate may be another in another version.
const FAR_BELOW: u64 = 10;

/// What is found in one definition.
#[derive(Debug, Default)]
struct Found {
    problems: Vec<String>,
    cost: u64,
}

impl Found {
    fn problem(&mut self, at: &str, problem: &str) {
        self.problems.push(format!("{at}: {problem}"));
    }

    /// `places`: how many of it there may be in one object.
    fn look(&mut self, at: &str, schema: &Value, places: u64, is_root: bool) {
        if let Some(format) = schema["format"].as_str()
            && !FORMATS.contains(&format)
        {
            self.problem(at, &format!("the format {format} is not known to Kubernetes"));
        }
        if let Some(pattern) = schema["pattern"].as_str()
            && let Err(error) = Regex::new(pattern)
        {
            self.problem(at, &error.to_string());
        }
        for field in ["oneOf", "anyOf", "allOf", "not", "$ref"] {
            if schema.get(field).is_some() {
                self.problem(at, &format!("{field} is not looked into here"));
            }
        }
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            self.rule(at, rule["rule"].as_str().unwrap_or_default(), schema, places, is_root);
            if rule["message"].as_str().is_none_or(str::is_empty) {
                self.problem(at, "a rule has no message");
            }
        }
        // A part of one of Kubernetes' own objects, which its server checks when it is made.
        let theirs = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"];
        if theirs.iter().any(|it| schema[*it] == true) && schema["properties"].is_null() {
            return;
        }
        match schema["type"].as_str() {
            Some("string") => {
                let bounded = ["maxLength", "enum"].iter().any(|it| schema.get(it).is_some());
                if !bounded && schema["format"] != "date-time" {
                    self.problem(at, "a string without maxLength");
                }
            }
            Some("array") => {
                let most = schema["maxItems"].as_u64();
                if most.is_none() {
                    self.problem(at, "a list without maxItems");
                }
                let places = places.saturating_mul(most.unwrap_or(u64::MAX));
                self.look(&format!("{at}[]"), &schema["items"], places, false);
            }
            Some("object") => {
                let properties = schema["properties"].as_object();
                for (name, property) in properties.into_iter().flatten() {
                    self.look(&format!("{at}.{name}"), property, places, false);
                }
                if let Some(values) = schema.get("additionalProperties") {
                    let most = schema["maxProperties"].as_u64();
                    if most.is_none() {
                        self.problem(at, "a map without maxProperties");
                    }
                    let places = places.saturating_mul(most.unwrap_or(u64::MAX));
                    self.look(&format!("{at}{{}}"), values, places, false);
                } else if properties.is_none() {
                    self.problem(at, "an object of anything");
                }
            }
            Some("integer" | "boolean" | "number") => {}
            other => self.problem(at, &format!("the type {other:?} is not looked into here")),
        }
    }

    fn rule(&mut self, at: &str, rule: &str, schema: &Value, places: u64, is_root: bool) {
        match cost::of_rule(rule, schema, is_root) {
            Ok(once) => {
                let cost = once.saturating_mul(places);
                self.cost = self.cost.saturating_add(cost);
                if cost > MOST_OF_A_RULE / FAR_BELOW {
                    self.problem(at, &format!("the rule {rule:?} costs {cost}"));
                }
            }
            Err(why) => self.problem(at, &format!("the rule {rule:?}: {why}")),
        }
    }
}

fn look(schema: &Value) -> Found {
    let mut found = Found::default();
    found.look("", schema, 1, true);
    if found.cost > MOST_OF_ALL / FAR_BELOW {
        let all = format!("all rules together cost {}", found.cost);
        found.problem("", &all);
    }
    found
}

#[test]
fn every_schema_is_bounded_and_every_rule_is_cheap() {
    for definition in kinds::definitions() {
        let kind = definition.spec.names.kind.clone();
        let manifest = kinds::manifest(&definition).unwrap();
        for version in manifest["spec"]["versions"].as_array().unwrap() {
            let found = look(&version["schema"]["openAPIV3Schema"]);
            assert!(found.problems.is_empty(), "{kind}: {:#?}", found.problems);
            eprintln!("{kind}: its rules cost {}", found.cost);
        }
    }
}

#[test]
fn what_a_server_would_refuse_or_warn_of_is_found() {
    let within = |property: Value| json!({"type": "object", "properties": {"it": property}});
    let rule = |rule: &str| json!([{"rule": rule, "message": "no"}]);
    let mut named = within(json!({"type": "string", "maxLength": 63}));
    named["x-kubernetes-validations"] = rule("self.metadata.name == 'a-' + string(1)");
    for (schema, expected) in [
        (within(json!({"type": "string"})), ".it: a string without maxLength"),
        (
            within(json!({"type": "array", "items": {"type": "boolean"}})),
            ".it: a list without maxItems",
        ),
        (
            within(json!({"type": "object", "additionalProperties": {"type": "boolean"}})),
            ".it: a map without maxProperties",
        ),
        (within(json!({"type": "object"})), ".it: an object of anything"),
        (
            within(json!({"type": "integer", "format": "uint8"})),
            ".it: the format uint8 is not known to Kubernetes",
        ),
        (named, "costs 18446744073709551615"),
        (
            within(json!({"type": "array", "maxItems": 1_000_000, "items": {
                "type": "integer", "x-kubernetes-validations": rule("self > 3")}})),
            "the rule \"self > 3\" costs",
        ),
    ] {
        let found = look(&schema).problems;
        assert!(found.iter().any(|it| it.contains(expected)), "{expected}: {found:?}");
    }
}

/// Short names that kubectl knows of Kubernetes' own resources, and the names of those. A definition
/// that takes one of them makes kubectl warn, or show something else.
const OF_KUBERNETES: [&str; 65] = [
    "all",
    "cj",
    "cm",
    "cr",
    "crd",
    "crds",
    "cs",
    "csr",
    "cronjobs",
    "deploy",
    "ds",
    "ep",
    "ev",
    "hpa",
    "ing",
    "limits",
    "netpol",
    "no",
    "ns",
    "pc",
    "pdb",
    "po",
    "psp",
    "pv",
    "pvc",
    "quota",
    "rc",
    "rs",
    "sa",
    "sc",
    "sts",
    "svc",
    "vac",
    "configmap",
    "configmaps",
    "deployment",
    "deployments",
    "daemonset",
    "daemonsets",
    "endpoints",
    "event",
    "events",
    "ingress",
    "ingresses",
    "job",
    "jobs",
    "lease",
    "leases",
    "namespace",
    "namespaces",
    "node",
    "nodes",
    "pod",
    "pods",
    "role",
    "roles",
    "rolebinding",
    "secret",
    "secrets",
    "service",
    "services",
    "statefulset",
    "statefulsets",
    "ipaddress",
    "ip",
];

#[test]
fn no_name_of_ours_is_one_of_kubernetes() {
    let mut all = Vec::new();
    for definition in kinds::definitions() {
        let names = definition.spec.names;
        let short = names.short_names.unwrap_or_default();
        all.extend(short.into_iter().chain([names.plural]).chain(names.singular));
    }
    for name in &all {
        assert!(!OF_KUBERNETES.contains(&name.as_str()), "{name} is one of Kubernetes' own");
    }
    let mut once = all.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), all.len(), "a name is there twice: {all:?}");
}
