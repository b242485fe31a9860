//! What users apply: the files in `deploy`.

use std::path::Path;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};

/// Applies every object of a file in `deploy`, such as `net/agent.yaml`.
pub async fn deploy(client: &kube::Client, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"));
    for document in text.split("\n---\n") {
        let object: DynamicObject =
            serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{file}: {error}"));
        let (Some(types), Some(name)) = (&object.types, &object.metadata.name) else {
            panic!("{file}: an object without a kind or a name")
        };
        let kind = GroupVersionKind::try_from(types)
            .unwrap_or_else(|error| panic!("{file}, {name}: {error}"));
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let params = PatchParams::apply("test").force();
        let applied = api.patch(name, &params, &Patch::Apply(&object)).await;
        applied.unwrap_or_else(|error| panic!("{file}, {} {name}: {error}", kind.kind));
    }
}
