use serde_json::json;

use super::*;

fn entry(manager: &str, operation: &str, fields: Value) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        operation: Some(operation.to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        ..ManagedFieldsEntry::default()
    }
}

fn labels(names: &[&str]) -> Value {
    let names = names.iter().map(|name| (format!("f:{name}"), json!({})));
    let names: Map<_, _> = names.chain([(".".to_owned(), json!({}))]).collect();
    json!({ "f:metadata": { "f:labels": names } })
}

fn applied(names: &[&str]) -> Value {
    let names: Map<_, _> = names.iter().map(|name| (format!("f:{name}"), json!({}))).collect();
    json!({ "f:metadata": { "f:labels": names } })
}

#[test]
fn what_was_created_and_is_no_longer_applied_comes_under_apply() {
    let entries = [
        entry("us", "Update", labels(&["a", "b"])),
        entry("them", "Update", labels(&["c"])),
        entry("us", "Apply", applied(&["a"])),
    ];
    let taken = taken_over(&entries, "us").unwrap();
    assert_eq!(taken, [entries[1].clone(), entry("us", "Apply", applied(&["a", "b"]))]);
    assert_eq!(taken_over(&taken, "us"), None, "once");
}

#[test]
fn what_is_still_applied_is_left_alone() {
    let entries =
        [entry("us", "Update", labels(&["a"])), entry("us", "Apply", applied(&["a", "b"]))];
    assert_eq!(taken_over(&entries, "us"), None);
}

#[test]
fn a_subresource_is_another_set() {
    let mut status = entry("us", "Update", json!({ "f:status": { "f:state": {} } }));
    status.subresource = Some("status".to_owned());
    assert_eq!(taken_over(&[status, entry("us", "Apply", applied(&["a"]))], "us"), None);
}
