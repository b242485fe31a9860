//! Finds fields of a document that its kind does not have.

use objects::Invalid;
use serde_json::Value;

/// Fields that are left out when they are written back empty.
const KNOWN_EMPTY: [&str; 6] =
    ["ingress", "egress", "matchLabels", "matchExpressions", "podSelector", "namespaceSelector"];

/// Compares the document's `spec` with what was understood of it. The items of a list that `open` names may
/// have fields of their own: who reads them decides what that means.
pub(super) fn fields(document: &Value, understood: &Value, open: &[&str]) -> Result<(), Invalid> {
    let mut problems = Invalid::default();
    let (given, known) = (document.get("spec"), understood.get("spec"));
    if let (Some(given), Some(known)) = (given, known) {
        compare(given, known, "spec", open, false, &mut problems);
    }
    problems.into_result()
}

fn compare(
    given: &Value,
    known: &Value,
    at: &str,
    open: &[&str],
    may_have_more: bool,
    problems: &mut Invalid,
) {
    match (given, known) {
        (Value::Object(given), known) => {
            for (key, value) in given.iter().filter(|(_, value)| !value.is_null()) {
                let at = format!("{at}.{key}");
                match known.get(key) {
                    Some(known) => {
                        let is_open = open.contains(&key.as_str());
                        compare(value, known, &at, open, is_open, problems);
                    }
                    // An empty one may be left out when it is written back.
                    None if is_empty(value) && KNOWN_EMPTY.contains(&key.as_str()) => {}
                    None if may_have_more => {}
                    None => problems.add(at, "there is no such field"),
                }
            }
        }
        (Value::Array(given), Value::Array(known)) => {
            for (i, (value, known)) in given.iter().zip(known).enumerate() {
                compare(value, known, &format!("{at}[{i}]"), open, may_have_more, problems);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
