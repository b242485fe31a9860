//! Reads one object, and prints it as `kubectl get -o yaml` does.

use kube::core::DynamicObject;
use stallproof::Deadline;

use super::check_segment;
use crate::connection::Connection;
use crate::error::Error;

pub async fn get(
    connection: &Connection,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
    deadline: Deadline,
) -> Result<DynamicObject, Error> {
    check_segment(kind, name)?;
    let found = connection.find(kind, deadline).await?;
    if found.namespaced && namespace.is_none() {
        let plural = found.resource.plural;
        return Err(Error::Invalid(format!("{plural} are in namespaces: say in which")));
    }
    connection
        .on(
            kind,
            namespace,
            "reading an object",
            deadline,
            |api, _| async move { api.get(name).await },
        )
        .await
}

/// Prints an object as YAML with its keys in alphabetical order, as kubectl does, and with
/// `managedFields` only on request.
pub fn yaml(object: &DynamicObject, managed_fields: bool) -> Result<String, Error> {
    let shown = |error: &dyn std::fmt::Display| {
        Error::Invalid(format!("this object cannot be shown as YAML: {error}"))
    };
    let mut value = serde_json::to_value(object).map_err(|error| shown(&error))?;
    if !managed_fields && let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    value.sort_all_objects();
    // Long lines are not folded, so that they can be pasted.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(&value, options).map_err(|error| shown(&error))
}
