//! Admission rules in files: as manifests, or in short.

use std::path::Path;

use objects::kinds::AdmissionRule;
use serde_json::{Value, json};

use crate::cli::files::documents;
use crate::output::Failure;

/// AdmissionRule manifests; or rules in short: a list, or `rules:` with one, each with its name.
pub(super) fn rules(file: &Path) -> Result<Vec<AdmissionRule>, Failure> {
    let mut rules = Vec::new();
    for document in documents(file)? {
        let short = match document {
            Value::Array(short) => short,
            Value::Object(mut object) if !object.contains_key("kind") => {
                match object.remove("rules") {
                    Some(Value::Array(short)) => short,
                    _ => vec![Value::Object(object)],
                }
            }
            manifest => {
                rules.push(manifest);
                continue;
            }
        };
        rules.extend(short.into_iter().map(manifest));
    }
    let parse = |(i, rule): (usize, Value)| {
        let name = rule.pointer("/metadata/name").and_then(Value::as_str);
        let called = name.map_or_else(|| (i + 1).to_string(), |name| format!("{name:?}"));
        let kind = rule.get("kind").and_then(Value::as_str).unwrap_or_default();
        let failed = |why: &str| Failure(format!("{}: rule {called}: {why}", file.display()));
        if kind == "NvAdmissionControlSecurityRule" {
            return Err(failed(
                "is NeuVector's; `fairlead admission import` makes AdmissionRules of it",
            ));
        }
        if kind != "AdmissionRule" {
            return Err(failed(&format!("kind {kind:?} is not AdmissionRule")));
        }
        serde_json::from_value(rule).map_err(|error| failed(&error.to_string()))
    };
    rules.into_iter().enumerate().map(parse).collect()
}

/// A rule in short as a manifest.
fn manifest(rule: Value) -> Value {
    let Value::Object(mut spec) = rule else {
        return json!({"kind": "AdmissionRule", "spec": rule});
    };
    if spec.contains_key("kind") {
        return Value::Object(spec);
    }
    let name = spec.remove("name").unwrap_or_default();
    json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
           "metadata": {"name": name}, "spec": spec})
}
