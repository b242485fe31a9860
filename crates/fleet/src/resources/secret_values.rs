//! The values of Secrets, which are shown only to who asks for them.
//!
//! Contract: a masked Secret has its keys, and says of each value how long it is. An edited one that
//! still has a mask keeps the value behind it, so that labels can be changed without values being seen.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::core::DynamicObject;
use serde_json::{Map, Value};

use crate::error::Error;

/// No base64 begins so: what is masked is never taken for a value.
const MASKED: &str = "<masked: ";
/// The annotation in which kubectl keeps a copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Hides the values if the object is a Secret.
pub fn mask(object: &mut DynamicObject) {
    if !is_secret(object) {
        return;
    }
    for place in ["data", "stringData"] {
        let values = object.data.get_mut(place).and_then(Value::as_object_mut);
        for value in values.into_iter().flat_map(Map::values_mut) {
            let text = value.as_str().unwrap_or_default();
            let bytes = match place {
                "data" => STANDARD.decode(text).map_or(text.len(), |bytes| bytes.len()),
                _ => text.len(),
            };
            *value = format!("{MASKED}{bytes} bytes>").into();
        }
    }
    if let Some(annotations) = &mut object.metadata.annotations
        && let Some(copy) = annotations.get_mut(LAST_APPLIED)
    {
        *copy = format!("{MASKED}{} bytes>", copy.len());
    }
}

pub(super) fn is_secret(object: &DynamicObject) -> bool {
    object.types.as_ref().is_some_and(|types| types.kind == "Secret" && types.api_version == "v1")
}

/// Puts the values back that `edited` has masked.
pub(super) fn restore(edited: &mut DynamicObject, live: &DynamicObject) -> Result<(), Error> {
    let is_masked = |value: &str| value.starts_with(MASKED);
    let values = edited.data.get_mut("data").and_then(Value::as_object_mut);
    for (key, value) in values.into_iter().flatten() {
        if value.as_str().is_some_and(is_masked) {
            let kept = live.data.get("data").and_then(|data| data.get(key));
            *value = kept.cloned().ok_or_else(|| {
                Error::Invalid(format!(
                    "the value of {key:?} is masked, and there is none to keep: write the value itself"
                ))
            })?;
        }
    }
    if let Some(annotations) = &mut edited.metadata.annotations
        && annotations.get(LAST_APPLIED).is_some_and(|copy| is_masked(copy))
    {
        let kept = live.metadata.annotations.as_ref().and_then(|all| all.get(LAST_APPLIED));
        match kept {
            Some(kept) => annotations.insert(LAST_APPLIED.to_owned(), kept.clone()),
            None => annotations.remove(LAST_APPLIED),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret() -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "login", "annotations": {
                LAST_APPLIED: "{\"data\":{\"password\":\"aHVudGVyMg==\"}}", "other": "kept" } },
            "data": { "password": "aHVudGVyMg==", "user": "YQ==" },
        }))
        .unwrap()
    }

    #[test]
    fn a_masked_secret_says_how_long_its_values_are_and_nothing_of_them() {
        let mut masked = secret();
        mask(&mut masked);
        assert_eq!(masked.data["data"]["password"], "<masked: 7 bytes>");
        let text = serde_json::to_string(&masked).unwrap();
        assert!(!text.contains("aHVudGVyMg") && text.contains("kept"), "{text}");
        let mut settings = secret();
        settings.types.as_mut().unwrap().kind = "ConfigMap".to_owned();
        mask(&mut settings);
        assert_eq!(settings.data, secret().data);
    }

    #[test]
    fn what_is_still_masked_keeps_its_value() {
        let mut edited = secret();
        mask(&mut edited);
        edited.data["data"]["user"] = json!("Yg==");
        restore(&mut edited, &secret()).unwrap();
        assert_eq!(edited.data["data"], json!({ "password": "aHVudGVyMg==", "user": "Yg==" }));
        assert_eq!(edited.metadata.annotations, secret().metadata.annotations);
        edited.data["data"]["new"] = json!("<masked: 3 bytes>");
        let error = restore(&mut edited, &secret()).unwrap_err();
        assert!(error.to_string().contains("\"new\""), "{error}");
    }
}
