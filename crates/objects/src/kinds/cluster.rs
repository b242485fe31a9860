//! `Cluster`: a cluster of the fleet that somebody imported.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field;
use crate::name;
use crate::store::{Invalid, Kind};

/// The most characters of a cluster's name, which is a label's value elsewhere.
const LONGEST_NAME: usize = 63;
/// The most characters of a context: tools name contexts after URLs and resource names of clouds.
const LONGEST_CONTEXT: usize = 1024;
const LONGEST_PREFIX: usize = 63;
/// The pattern of [`Impersonation::problem`], without `system:`.
const PREFIX: &str = r"^[-_.:/@A-Za-z0-9]*[:/@]$";
const LONGEST_STATE: usize = 64;
const LONGEST_VERSION: usize = 256;
const LONGEST_WHY: usize = 4096;

/// A cluster of the fleet, with its credentials in a Secret.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "Cluster",
    doc = "A cluster of the fleet, with its credentials in a Secret.",
    category = "fairlead",
    shortname = "fcl",
    status = "ClusterStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("a cluster's name has 63 characters at most"),
    printcolumn = r#"{"name":"Enabled","type":"boolean","jsonPath":".spec.enabled"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.version"}"#,
    printcolumn = r#"{"name":"Why","type":"string","jsonPath":".status.why","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// The Secret that holds the cluster's kubeconfig.
    pub kubeconfig_secret: KubeconfigSecret,
    /// The context of the kubeconfig; its current one if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = LONGEST_CONTEXT), regex(pattern = field::TEXT))]
    pub context: Option<String>,
    /// A disabled cluster stays listed and is not connected to.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Users act on the cluster under their own names, not as the kubeconfig's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impersonation: Option<Impersonation>,
}

/// How the names of Fairlead's users look to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
pub struct Impersonation {
    /// What stands before every user, role and group: `fairlead:` makes `fairlead:ann`,
    /// `fairlead:role:viewer` and `fairlead:group:…`.
    #[serde(default = "prefix")]
    #[schemars(length(min = 1, max = LONGEST_PREFIX), regex(pattern = PREFIX))]
    #[x_kube(validation = Rule::new("!self.startsWith('system:')").message("must not be Kubernetes' own"))]
    pub prefix: String,
}

impl Default for Impersonation {
    fn default() -> Self {
        Self { prefix: prefix() }
    }
}

impl Impersonation {
    /// Says what is wrong with a prefix. Without one, or with one of Kubernetes' own, a user could have
    /// the name of somebody else of the cluster.
    pub fn problem(prefix: &str) -> Option<&'static str> {
        let in_prefix = |b: u8| b.is_ascii_alphanumeric() || b"-_.:/@".contains(&b);
        if prefix.is_empty() || prefix.len() > LONGEST_PREFIX || !prefix.bytes().all(in_prefix) {
            return Some("must be 1 to 63 letters, digits and -_.:/@");
        }
        if !prefix.ends_with([':', '/', '@']) {
            return Some("must end with : or / or @, which no name of a user here begins with");
        }
        prefix.starts_with("system:").then_some("must not be Kubernetes' own")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct KubeconfigSecret {
    #[schemars(length(min = 1, max = 63), regex(pattern = field::LABEL))]
    pub namespace: String,
    #[schemars(length(min = 1, max = field::LONGEST_NAME), regex(pattern = field::NAME))]
    pub name: String,
    #[serde(default = "kubeconfig_key")]
    #[schemars(length(min = 1, max = field::LONGEST_NAME), regex(pattern = field::SECRET_KEY))]
    pub key: String,
}

/// The state of the cluster, as the fleet last saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    #[schemars(length(max = LONGEST_STATE))]
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_WHY))]
    pub why: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_VERSION))]
    pub version: Option<String>,
}

fn yes() -> bool {
    true
}

fn prefix() -> String {
    "fairlead:".to_owned()
}

fn kubeconfig_key() -> String {
    "kubeconfig".to_owned()
}

impl Kind for Cluster {
    const NAME: &'static str = "Cluster";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        if self.name_any().len() > LONGEST_NAME {
            problems.add("metadata.name", format!("has {LONGEST_NAME} characters at most"));
        }
        let ClusterSpec { kubeconfig_secret: secret, context, enabled: _, impersonation } =
            &self.spec;
        if let Some(problem) = name::dns_label(&secret.namespace) {
            problems.add("spec.kubeconfigSecret.namespace", problem);
        }
        field::name(&mut problems, "spec.kubeconfigSecret.name", &secret.name);
        field::secret_key(&mut problems, "spec.kubeconfigSecret.key", &secret.key);
        if let Some(context) = context {
            field::text(&mut problems, "spec.context", context, 1, LONGEST_CONTEXT);
        }
        let prefix = impersonation.as_ref().map(|impersonation| &impersonation.prefix);
        if let Some(problem) = prefix.and_then(|prefix| Impersonation::problem(prefix)) {
            problems.add("spec.impersonation.prefix", problem);
        }
        problems.into_result()
    }

    fn check_status(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        if let Some(ClusterStatus { state, why, version }) = &self.status {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let (why, version) = (text(why), text(version));
            field::no_longer(&mut problems, "status.state", state, LONGEST_STATE);
            field::no_longer(&mut problems, "status.why", &why, LONGEST_WHY);
            field::no_longer(&mut problems, "status.version", &version, LONGEST_VERSION);
        }
        problems.into_result()
    }
}

#[cfg(test)]
mod tests;
