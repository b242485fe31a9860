//! Who owns which fields, and how those of a `create` come under server-side apply.
//!
//! A server keeps, for every field, who set it and how: by an update (`create` is one) or by an
//! apply. The same manager under both is two owners to it, and a field goes away only when its last
//! owner stops sending it. So an object that was created with a finalizer would keep it through
//! every later apply; unless the entry of the update is added to that of the apply first.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::{Map, Value};

/// Moves the fields that `manager` owns by updates to those that it owns by apply; `None` when it
/// applies all of them anyway, so that nothing is kept alive.
pub(super) fn taken_over(
    entries: &[ManagedFieldsEntry],
    manager: &str,
) -> Option<Vec<ManagedFieldsEntry>> {
    let is_ours = |entry: &ManagedFieldsEntry, operation: &str| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some(operation)
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    };
    let (updates, mut rest): (Vec<_>, Vec<_>) =
        entries.iter().cloned().partition(|entry| is_ours(entry, "Update"));
    let applied = rest.iter_mut().find(|entry| is_ours(entry, "Apply"))?;
    let FieldsV1(owned) = applied.fields_v1.get_or_insert_with(|| FieldsV1(Map::new().into()));
    let before = owned.clone();
    for update in updates {
        if let Some(FieldsV1(fields)) = update.fields_v1 {
            add(owned, fields);
        }
    }
    (*owned != before).then_some(rest)
}

/// Field sets are trees of maps; a leaf is an empty one. The key `.` stands for the map itself,
/// which nobody removes as long as it has members.
fn add(to: &mut Value, from: Value) {
    let (Value::Object(to), Value::Object(from)) = (to, from) else { return };
    for (key, below) in from {
        if key != "." {
            add(to.entry(key).or_insert_with(|| Map::new().into()), below);
        }
    }
}

#[cfg(test)]
mod tests;
