//! Finds fields of a document that its kind does not have.

use objects::Invalid;
use serde_json::Value;

/// Compares the document's `spec` with what was understood of it. Below a field of `open` everything is
/// let through.
pub(super) fn fields(document: &Value, understood: &Value, open: &[&str]) -> Result<(), Invalid> {
    let mut problems = Invalid::default();
    let empty = Value::Null;
    let spec = |value: &'_ Value| value.get("spec").unwrap_or(&empty).clone();
    compare(&spec(document), &spec(understood), "spec", open, &mut problems);
    problems.into_result()
}

fn compare(given: &Value, known: &Value, at: &str, open: &[&str], problems: &mut Invalid) {
    match (given, known) {
        (Value::Object(given), known) => {
            for (key, value) in given
                .iter()
                .filter(|(key, value)| !value.is_null() && !open.contains(&key.as_str()))
            {
                let at = format!("{at}.{key}");
                match known.get(key) {
                    Some(known) => compare(value, known, &at, open, problems),
                    // An empty one may be left out when it is written back.
                    None if is_empty(value) && KNOWN_EMPTY.contains(&key.as_str()) => {}
                    None => problems.add(at, "there is no such field"),
                }
            }
        }
        (Value::Array(given), Value::Array(known)) => {
            for (i, (value, known)) in given.iter().zip(known).enumerate() {
                compare(value, known, &format!("{at}[{i}]"), open, problems);
            }
        }
        _ => {}
    }
}

/// Fields that are left out when they are written back empty.
const KNOWN_EMPTY: [&str; 6] =
    ["ingress", "egress", "matchLabels", "matchExpressions", "podSelector", "namespaceSelector"];

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
