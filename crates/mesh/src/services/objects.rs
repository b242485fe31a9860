//! The kinds of the multicluster API (`multicluster.x-k8s.io`), as far as Fairlead reads and writes them,
//! their definitions for clusters that have none, and `EndpointSlice` in whichever version a server has.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::SessionAffinityConfig;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) const SERVICE_EXPORTS: &str = "serviceexports.multicluster.x-k8s.io";
pub(crate) const SERVICE_IMPORTS: &str = "serviceimports.multicluster.x-k8s.io";
pub(crate) const ENDPOINT_SLICES: &str = "endpointslices.discovery.k8s.io";
const GROUP: &str = "multicluster.x-k8s.io";
const VERSION: &str = "v1alpha1";

/// Says that the Service of the same name and namespace is to be reached from other clusters.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ServiceExport {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ServiceExportStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ServiceExportStatus {
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// A Service that clusters of the mesh export, in a cluster that may use it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ServiceImport {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: ServiceImportSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ServiceImportStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceImportSpec {
    #[serde(default)]
    pub ports: Vec<ImportedPort>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,
    #[serde(default)]
    pub r#type: ImportType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum ImportType {
    /// Reached at an address of its own.
    #[default]
    ClusterSetIP,
    /// Reached at the addresses of its pods.
    Headless,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportedPort {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default = "tcp")]
    pub protocol: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
    pub port: i32,
}

fn tcp() -> String {
    "TCP".to_owned()
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ServiceImportStatus {
    /// The clusters whose endpoints are behind the import.
    #[serde(default)]
    pub clusters: Vec<SourceClusterName>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct SourceClusterName {
    pub cluster: String,
}

/// A part of a Service's endpoints. `discovery.k8s.io/v1` and `v1beta1` have these fields in common.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSlice {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub address_type: String,
    #[serde(default)]
    pub endpoints: Option<Vec<Endpoint>>,
    #[serde(default)]
    pub ports: Option<Vec<EndpointPort>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Endpoint {
    #[serde(default)]
    pub addresses: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<EndpointConditions>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct EndpointConditions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
}

impl Endpoint {
    /// Who does not say is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.conditions.as_ref().and_then(|it| it.ready) != Some(false)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct EndpointPort {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

macro_rules! resource {
    ($type:ident, $group:expr, $version:expr, $plural:literal) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($type).into()
            }

            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(ServiceExport, GROUP, VERSION, "serviceexports");
resource!(ServiceImport, GROUP, VERSION, "serviceimports");
resource!(EndpointSlice, "discovery.k8s.io", "v1", "endpointslices");

/// The definition of `ServiceExport`. A definition that somebody else installed is left alone.
pub fn service_export_crd() -> Value {
    let map = |what: &str| json!({"type": "object", "description": what, "additionalProperties": {"type": "string"}});
    let spec = json!({"type": "object", "properties": {
        "exportedLabels": map("Labels that the import gets."),
        "exportedAnnotations": map("Annotations that the import gets."),
    }});
    let status = json!({"type": "object", "properties": {"conditions": conditions()}});
    let about = "The Service of this name and namespace is reached from other clusters.";
    definition("ServiceExport", "svcex", about, &spec, &status, &json!([age()]))
}

/// The definition of `ServiceImport`.
pub fn service_import_crd() -> Value {
    let text = json!({"type": "string"});
    let port = json!({"type": "object", "required": ["port"], "properties": {
        "name": text, "protocol": text, "appProtocol": text,
        "port": {"type": "integer", "format": "int32"},
    }});
    let spec = json!({"type": "object", "required": ["ports", "type"], "properties": {
        "ports": {"type": "array", "x-kubernetes-list-type": "atomic", "items": port},
        "ips": {"type": "array", "maxItems": 2, "items": text},
        "ipFamilies": {"type": "array", "maxItems": 2, "items": text},
        "type": {"type": "string", "enum": ["ClusterSetIP", "Headless"]},
        "sessionAffinity": text,
        "sessionAffinityConfig": {"type": "object", "properties": {"clientIP": {
            "type": "object",
            "properties": {"timeoutSeconds": {"type": "integer", "format": "int32"}},
        }}},
        "internalTrafficPolicy": text,
        "trafficDistribution": text,
    }});
    let cluster =
        json!({"type": "object", "required": ["cluster"], "properties": {"cluster": text}});
    let status = json!({"type": "object", "properties": {
        "clusters": {"type": "array", "items": cluster, "x-kubernetes-list-type": "map",
                     "x-kubernetes-list-map-keys": ["cluster"]},
        "conditions": conditions(),
    }});
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    let columns = json!([column("Type", ".spec.type"), column("IP", ".spec.ips"), age()]);
    let about = "A Service that clusters export, in a cluster that may use it.";
    definition("ServiceImport", "svcim", about, &spec, &status, &columns)
}

fn age() -> Value {
    json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
}

fn conditions() -> Value {
    json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            },
        },
    })
}

fn definition(
    kind: &str,
    short: &str,
    about: &str,
    spec: &Value,
    status: &Value,
    columns: &Value,
) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural,
                      "singular": singular, "shortNames": [short]},
            "versions": [{
                "name": VERSION, "served": true, "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": about,
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": spec,
                        "status": status,
                    },
                }},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// What we write is what `discovery.k8s.io/v1` documents: every field is one of its own, of its type.
    #[test]
    fn an_endpoint_slice_is_one_of_v1() {
        let slice = EndpointSlice {
            metadata: ObjectMeta { name: Some("web-a".to_owned()), ..ObjectMeta::default() },
            address_type: "IPv4".to_owned(),
            endpoints: Some(vec![Endpoint {
                addresses: vec!["10.1.0.1".to_owned()],
                conditions: Some(EndpointConditions { ready: Some(true) }),
                hostname: Some("web-0".to_owned()),
            }]),
            ports: Some(vec![EndpointPort {
                name: Some("http".to_owned()),
                protocol: Some("TCP".to_owned()),
                port: Some(8080),
            }]),
        };
        let mut ours = serde_json::to_value(&slice).unwrap();
        ours["apiVersion"] = json!("discovery.k8s.io/v1");
        ours["kind"] = json!("EndpointSlice");
        let documented: k8s_openapi::api::discovery::v1::EndpointSlice =
            serde_json::from_value(ours.clone()).unwrap();
        assert_eq!(serde_json::to_value(&documented).unwrap(), ours);
    }
}
