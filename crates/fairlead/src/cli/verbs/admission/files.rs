//! Rules and objects from files: YAML or JSON, several documents, lists.

use std::io::Read;
use std::path::Path;

use objects::kinds::AdmissionRule;
use serde_json::{Value, json};

use crate::output::Failure;

/// Hundreds of rules are some hundred kilobytes; what is larger is the wrong file.
const LARGEST: u64 = 16 << 20;

/// The documents of a file; the items of lists are documents.
pub(in crate::cli::verbs) fn documents(file: &Path) -> Result<Vec<Value>, Failure> {
    let text = text(file)?;
    let failed = |why: String| Failure(format!("{}: {why}", file.display()));
    let values = match serde_json::from_str::<Value>(&text) {
        Ok(value) => vec![value],
        Err(_) => {
            let options = serde_saphyr::options! {
                legacy_octal_numbers: true,
                strict_booleans: true,
                with_snippet: false,
            };
            serde_saphyr::from_multiple_with_options::<Value>(&text, options)
                .map_err(|error| failed(format!("not YAML: {error}")))?
        }
    };
    let mut documents = Vec::new();
    for value in values {
        flatten(value, &mut documents);
    }
    Ok(documents)
}

fn flatten(value: Value, documents: &mut Vec<Value>) {
    match value {
        Value::Null => {}
        Value::Object(mut object)
            if object.get("kind").and_then(Value::as_str).is_some_and(|k| k.ends_with("List"))
                && object.get("items").is_some_and(Value::is_array) =>
        {
            if let Some(Value::Array(items)) = object.remove("items") {
                for item in items {
                    flatten(item, documents);
                }
            }
        }
        value => documents.push(value),
    }
}

fn text(file: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure(format!("{}: {error}", file.display()));
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(LARGEST + 1).read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(file).map_err(failed)?;
        file.take(LARGEST + 1).read_to_string(&mut text)
    };
    read.map_err(failed)?;
    if text.len() as u64 > LARGEST {
        let most = LARGEST >> 20;
        return Err(Failure(format!("{} has more than {most} MiB", file.display())));
    }
    Ok(text)
}

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
