//! Applies manifests to a server, as users do.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::Value;

/// The kinds that give a service account its permissions.
const PERMISSIONS: [&str; 5] =
    ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];

/// Applies a namespace and, of the objects that the chart renders to, the service accounts and their
/// permissions: a test then runs with what an installation gives it, and no more.
pub async fn deploy_permissions(client: &kube::Client, namespace: &Value, objects: &[Value]) {
    let is_permission =
        |object: &&Value| object["kind"].as_str().is_some_and(|kind| PERMISSIONS.contains(&kind));
    deploy(client, std::iter::once(namespace).chain(objects.iter().filter(is_permission))).await;
}

/// Applies objects in their order.
async fn deploy(client: &kube::Client, objects: impl IntoIterator<Item = &Value>) {
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let version = text(&object["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let params = PatchParams::apply("test").force();
        let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
        applied.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
    }
}
