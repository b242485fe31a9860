//! `Cluster`: a cluster of the fleet that somebody imported.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::store::{Invalid, Kind};

/// A cluster of the fleet, with its credentials in a Secret.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "Cluster",
    shortname = "fcl",
    status = "ClusterStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Enabled","type":"boolean","jsonPath":".spec.enabled"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.version"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// The Secret that holds a kubeconfig.
    pub kubeconfig_secret: KubeconfigSecret,
    /// Which context of it; its current one if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// A disabled cluster stays listed and is not connected to.
    #[serde(default = "yes")]
    pub enabled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct KubeconfigSecret {
    pub namespace: String,
    pub name: String,
    #[serde(default = "kubeconfig_key")]
    pub key: String,
}

/// What the fleet last saw of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

fn yes() -> bool {
    true
}

fn kubeconfig_key() -> String {
    "kubeconfig".to_owned()
}

impl Kind for Cluster {
    const NAME: &'static str = "Cluster";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        Invalid::default().into_result()
    }
}
