//! The `ValidatingWebhookConfiguration` that sends a cluster's reviews here.
//!
//! Contract: it is ours (server-side apply), kept as configured and with the bundle that is current;
//! what others change of it is put back. What we do not set is theirs.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    RuleWithOperations, ServiceReference, ValidatingWebhook, ValidatingWebhookConfiguration,
    WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::api::ObjectMeta;

use super::service::LOCAL_CLUSTER;

/// What it is called in the cluster.
pub const CONFIGURATION: &str = "fairlead-admission";
pub(super) const LABEL: (&str, &str) = ("fairlead.dev/admission", "webhook");
const WEBHOOK: &str = "admission.fairlead.dev";
/// Every namespace has it since Kubernetes 1.21; on older servers the exemption is made here.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// What an API server does with an object whose review fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Admits it.
    Ignore,
    /// Refuses it.
    Fail,
}

impl FailurePolicy {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Fail => "Fail",
        }
    }
}

/// How an API server reaches the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A Service of the cluster.
    Service { namespace: String, name: String, port: u16 },
    /// `https://host:port`, for API servers that are outside of where we run.
    Url { base: String, host: String },
}

impl Reach {
    /// What the certificate must be for.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Service { namespace, name, .. } => {
                vec![format!("{name}.{namespace}.svc"), format!("{name}.{namespace}")]
            }
            Self::Url { host, .. } => vec![host.clone()],
        }
    }
}

/// How reviews are asked for.
#[derive(Clone, Debug)]
pub struct Registration {
    pub reach: Reach,
    pub failure_policy: FailurePolicy,
    pub timeout: Duration,
    /// Namespaces whose objects are not sent.
    pub exempt: Vec<String>,
}

/// Where the reviews of a cluster are sent.
pub fn path(cluster: &str) -> String {
    if cluster == LOCAL_CLUSTER { "/admit".to_owned() } else { format!("/admit/{cluster}") }
}

impl Registration {
    pub(super) fn configuration(
        &self,
        cluster: &str,
        bundle: &str,
    ) -> ValidatingWebhookConfiguration {
        let client_config = match &self.reach {
            Reach::Service { namespace, name, port } => WebhookClientConfig {
                service: Some(ServiceReference {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    path: Some(path(cluster)),
                    port: Some(i32::from(*port)),
                }),
                ..WebhookClientConfig::default()
            },
            Reach::Url { base, .. } => WebhookClientConfig {
                url: Some(format!("{base}{}", path(cluster))),
                ..WebhookClientConfig::default()
            },
        };
        let exempt = (!self.exempt.is_empty()).then(|| LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: NAMESPACE_NAME.to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(self.exempt.clone()),
            }]),
            ..LabelSelector::default()
        });
        let seconds = i32::try_from(self.timeout.as_secs().clamp(1, 30)).unwrap_or(30);
        let webhook = ValidatingWebhook {
            name: WEBHOOK.to_owned(),
            admission_review_versions: vec!["v1".to_owned(), "v1beta1".to_owned()],
            client_config: WebhookClientConfig {
                ca_bundle: Some(ByteString(bundle.as_bytes().to_vec())),
                ..client_config
            },
            failure_policy: Some(self.failure_policy.name().to_owned()),
            // Also those that reach the server in another version of the same kind.
            match_policy: Some("Equivalent".to_owned()),
            namespace_selector: Some(exempt.unwrap_or_default()),
            rules: Some(rules()),
            // A dry run is decided, and recorded as one.
            side_effects: "None".to_owned(),
            timeout_seconds: Some(seconds),
            ..ValidatingWebhook::default()
        };
        let labels: BTreeMap<_, _> = [(LABEL.0.to_owned(), LABEL.1.to_owned())].into();
        ValidatingWebhookConfiguration {
            metadata: ObjectMeta {
                name: Some(CONFIGURATION.to_owned()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            webhooks: Some(vec![webhook]),
        }
    }
}

/// Every kind that rules look at, by every way in which its pods can change.
fn rules() -> Vec<RuleWithOperations> {
    let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    let rule = |group: &str, versions: &[&str], resources: &[&str], operations: &[&str]| {
        RuleWithOperations {
            api_groups: words(&[group]),
            api_versions: words(versions),
            resources: words(resources),
            operations: words(operations),
            scope: Some("Namespaced".to_owned()),
        }
    };
    let both = &["CREATE", "UPDATE"];
    vec![
        rule(
            "",
            &["v1"],
            &["pods", "pods/ephemeralcontainers", "pods/resize", "replicationcontrollers"],
            both,
        ),
        // A claim that names no class is not judged, and may be given one later.
        rule("", &["v1"], &["persistentvolumeclaims"], both),
        rule("apps", &["v1"], &["deployments", "daemonsets", "statefulsets", "replicasets"], both),
        // What makes its pods cannot change later.
        rule("batch", &["v1"], &["jobs"], &["CREATE"]),
        rule("batch", &["v1", "v1beta1"], &["cronjobs"], both),
        rule("apps.openshift.io", &["v1"], &["deploymentconfigs"], both),
    ]
}

#[cfg(test)]
mod tests;
