//! Rules against objects: what each criterion and operator means, and how they combine.

#![allow(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

mod combining;
mod criteria;
mod evasions;
mod input;
mod pss;
mod scans;

use objects::kinds::AdmissionRule;
use serde_json::{Value, json};

use super::{Facts, Operation, Program, Request, Settings, Unknown, decide};

fn rule(name: &str, spec: Value) -> AdmissionRule {
    let value = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
                       "metadata": {"name": name}, "spec": spec});
    serde_json::from_value(value).unwrap()
}

fn program(rules: &[AdmissionRule]) -> Program {
    Program::compile(rules, &Settings::new(true)).unwrap_or_else(|problems| panic!("{problems}"))
}

fn object(object: &Value) -> Request {
    let groups = ["devs".to_owned(), "system:authenticated".to_owned()];
    let operation = Operation::Create;
    Request::object(object, operation, "alice", &groups, &Settings::new(true)).unwrap()
}

fn pod(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "spec": spec,
           "metadata": {"name": "p", "namespace": "shop"}})
}

/// A pod of one container.
fn with(container: Value) -> Value {
    let mut container = container;
    container["name"] = json!("web");
    if container.get("image").is_none() {
        container["image"] = json!("harbor.acme.io/web/cart:v2");
    }
    pod(json!({"containers": [container]}))
}

/// Whether a deny rule of these criteria matches.
fn matches_with(criteria: &Value, what: &Value, facts: &dyn Facts) -> bool {
    let rule = rule("r", json!({"action": "deny", "criteria": criteria}));
    !decide(&program(&[rule]), &object(what), facts).allowed
}

fn matches(criteria: &Value, what: &Value) -> bool {
    matches_with(criteria, what, &Unknown)
}

fn one(name: &str, op: &str, value: &str) -> Value {
    json!([{"name": name, "op": op, "value": value}])
}
