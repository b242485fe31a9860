use super::*;

/// A revision as Helm keeps it, gzipped, and the same as plain JSON: what was read and written again is read as
/// the same, and no Secret of its manifest is shown.
pub fn helm_release(bytes: &[u8]) {
    let object = |text: String| {
        let mut object = DynamicObject::new(
            "release",
            &kube::core::ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&()),
        );
        object.data = json!({ "data": { "release": text } });
        object
    };
    let sent = object(STANDARD.encode(STANDARD.encode(bytes)));
    let _ = stored(&sent);
    let _ = decode(&sent);
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    let Ok(text) = encode(&value) else { return };
    let again = decode(&object(text)).expect("what was written is read");
    let mut values = contents::coalesce(&again["chart"]["values"], &again["config"]);
    contents::mask_values(&mut values);
    let _ = hooks(&again);
    if let Some(manifest) = again["manifest"].as_str() {
        let (shown, _) = contents::mask_manifest(manifest);
        for object in super::super::apply::read(&shown).unwrap_or_default() {
            if object.kind == "Secret" {
                let hidden = |value: &Value| matches!(value.as_str(), None | Some("" | "<masked>"));
                let data = ["data", "stringData"].map(|place| object.object[place].as_object());
                assert!(data.into_iter().flatten().flat_map(|map| map.values()).all(hidden));
            }
        }
    }
}
