#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;

fn problems(schema: Value, value: &Value) -> Vec<String> {
    let schema: Schema = serde_json::from_value(schema).unwrap();
    schema.check(value).iter().map(ToString::to_string).collect()
}

#[test]
fn every_problem_is_told_with_its_place() {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["mode"],
        "properties": {
            "mode": {"type": "string", "enum": ["monitor", "protect"]},
            "replicas": {"type": "integer", "minimum": 1, "maximum": 15},
            "tag": {"type": "string", "pattern": "^[a-z0-9.]*$", "maxLength": 5},
            "pools": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "object"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"},
                       "propertyNames": {"pattern": "^[a-z]+$"}}
        }
    });
    assert_eq!(problems(schema.clone(), &json!({"mode": "protect"})), Vec::<String>::new());
    assert_eq!(
        problems(
            schema.clone(),
            &json!({
                "mode": "protected", "replicas": 0, "tag": 1, "pools": [{}, 1, {}],
                "labels": {"A": true}, "replica": 1
            })
        ),
        [
            "labels.A: expected what matches ^[a-z]+$, found \"A\"",
            "labels.A: expected a string, found true; put it in quotes, or use --set-string",
            "mode: expected one of monitor, protect; found \"protected\"; did you mean protect?",
            "pools: expected at most 2 items, found 3",
            "pools[1]: expected a map, found 1",
            "replica: there is no such value; did you mean replicas?",
            "replicas: expected a number from 1 to 15, found 0",
            "tag: expected a string, found 1; put it in quotes, or use --set-string",
        ]
    );
    assert_eq!(
        problems(schema, &json!({"replicas": 1.5, "tag": "latest", "pools": []})),
        [
            "mode: is missing",
            "pools: expected at least 1 items, found 0",
            "replicas: expected a whole number, found 1.5",
            "tag: expected at most 5 characters, found 6",
        ]
    );
}

#[test]
fn a_keyword_that_is_not_checked_is_refused() {
    for schema in [json!({"oneOf": []}), json!({"properties": {"a": {"format": "date"}}})] {
        assert!(serde_json::from_value::<Schema>(schema.clone()).is_err(), "{schema}");
    }
}
