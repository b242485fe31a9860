//! Reads manifests: of a cluster's objects and of policies.
//!
//! Contract: what an API server would refuse is refused here, by field and with a sentence. A field that
//! no policy has is refused too: one that was misspelt would make the policy wider than it reads.

mod cluster_policy;
mod network_policy;
mod unknown;
mod write;

use std::sync::Arc;

pub use write::documents;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::networking::v1 as networking;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use objects::kinds::{self, AddressPool, NetworkRule};
use objects::{Invalid, Kind, Selector};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cluster::{Key, Labels, Node, Pod, Service};
use crate::compile::Change;
use crate::program::PolicyKind;
use crate::spec::{Group, GuardRule};

/// The API server gives every namespace this label.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// What a document is.
#[derive(Debug)]
pub enum Document {
    /// An object of a cluster.
    Cluster(Change),
    /// A policy, with what of it cannot be followed as it is written.
    Policy(Change, Vec<String>),
    /// Of another kind.
    Other(String),
}

/// Reads one document.
pub fn read(document: &Value) -> Result<Document, Invalid> {
    let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if kind.is_empty() {
        return Err(one("kind", "is missing"));
    }
    let cluster = |change| Ok(Document::Cluster(change));
    let policy = |(change, warnings)| Ok(Document::Policy(change, warnings));
    match (version, kind) {
        ("v1", "Namespace") => {
            let namespace: core::Namespace = parse(document)?;
            let name = name(&namespace.metadata)?;
            let mut labels = namespace.metadata.labels.unwrap_or_default();
            labels.insert(NAMESPACE_NAME.to_owned(), name.to_string());
            cluster(Change::Namespace(name, Some(labels)))
        }
        ("v1", "Pod") => {
            let pod: core::Pod = parse(document)?;
            name(&pod.metadata)?;
            check_addresses(&pod)?;
            let pod = Pod::from(&pod);
            cluster(Change::Pod(pod.key.clone(), Some(Arc::new(pod))))
        }
        ("v1", "Node") => {
            let node: core::Node = parse(document)?;
            cluster(Change::Node(name(&node.metadata)?, Some(Node::from(&node))))
        }
        ("v1", "Service") => {
            let service: core::Service = parse(document)?;
            let key = key(&service.metadata)?;
            cluster(Change::Service(key, Some(Service::from(&service))))
        }
        ("fairlead.dev/v1alpha1", "AddressPool") => {
            let pool: AddressPool = parse(document)?;
            pool.check()?;
            let subnets = pool.spec.subnets.iter();
            let texts = subnets.flat_map(|subnet| subnet.ipv4.iter().chain(&subnet.ipv6));
            let networks = texts.filter_map(|text| text.parse().ok()).collect();
            cluster(Change::Pool(name(&pool.metadata)?, Some(networks)))
        }
        ("networking.k8s.io/v1", "NetworkPolicy") => {
            let written: networking::NetworkPolicy = parse_whole(document, &[])?;
            let key = key(&written.metadata)?;
            let read = network_policy::read(&key, &written)?;
            policy((Change::NetworkPolicy(key, Some(Arc::new(read))), Vec::new()))
        }
        ("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy") => {
            let kind = PolicyKind::ClusterNetworkPolicy;
            policy(cluster_policy::read(kind, document)?)
        }
        ("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy") => {
            policy(cluster_policy::read(PolicyKind::AdminNetworkPolicy, document)?)
        }
        ("policy.networking.k8s.io/v1alpha1", "BaselineAdminNetworkPolicy") => {
            policy(cluster_policy::read(PolicyKind::BaselineAdminNetworkPolicy, document)?)
        }
        ("fairlead.dev/v1alpha1", "Group") => {
            let group: kinds::Group = parse(document)?;
            group.check()?;
            let name = name(&group.metadata)?;
            let read = Group::new(&name, &group.spec)?;
            policy((Change::Group(name, Some(Arc::new(read))), Vec::new()))
        }
        ("fairlead.dev/v1alpha1", "NetworkRule") => {
            let rule: NetworkRule = parse(document)?;
            rule.check()?;
            let key = (false, name(&rule.metadata)?);
            let warnings = if rule.spec.applications.is_empty() {
                Vec::new()
            } else {
                vec![
                    "names applications, which no packet tells: it decides about no packet"
                        .to_owned(),
                ]
            };
            let read = (!rule.spec.disabled).then(|| Arc::new(GuardRule::from(&rule)));
            policy((Change::Rule(key, read), warnings))
        }
        (_, "NetworkPolicy" | "ClusterNetworkPolicy" | "AdminNetworkPolicy")
        | (_, "BaselineAdminNetworkPolicy") => {
            Err(one("apiVersion", format!("{kind} of {version:?} is not known here")))
        }
        _ => Ok(Document::Other(kind.to_owned())),
    }
}

/// The labels of a namespace that no document describes: those that an API server gives it.
pub fn bare_namespace(name: &str) -> Labels {
    Labels::from([(NAMESPACE_NAME.to_owned(), name.to_owned())])
}

fn one(field: impl Into<String>, problem: impl Into<String>) -> Invalid {
    Invalid(vec![(field.into(), problem.into())])
}

fn parse<T: DeserializeOwned>(document: &Value) -> Result<T, Invalid> {
    serde_path_to_error::deserialize(document).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "document".to_owned() } else { path };
        one(field, error.into_inner().to_string())
    })
}

/// Refuses fields that the kind does not have; below `open` they are the kind's own matter.
fn parse_whole<T: DeserializeOwned + Serialize>(
    document: &Value,
    open: &[&str],
) -> Result<T, Invalid> {
    let read: T = parse(document)?;
    let known = serde_json::to_value(&read).map_err(|error| one("document", error.to_string()))?;
    unknown::fields(document, &known, open)?;
    Ok(read)
}

fn name(meta: &ObjectMeta) -> Result<Arc<str>, Invalid> {
    let name = meta.name.as_deref().filter(|name| !name.is_empty());
    name.map(Arc::from).ok_or_else(|| one("metadata.name", "is missing"))
}

fn key(meta: &ObjectMeta) -> Result<Key, Invalid> {
    let namespace = meta.namespace.as_deref().unwrap_or("default");
    Ok(Key { namespace: namespace.into(), name: name(meta)? })
}

fn check_addresses(pod: &core::Pod) -> Result<(), Invalid> {
    let mut problems = Invalid::default();
    let status = pod.status.as_ref();
    let several = status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten();
    for (i, ip) in several.enumerate() {
        if ip.ip.parse::<std::net::IpAddr>().is_err() {
            problems.add(format!("status.podIPs[{i}].ip"), format!("{:?} is no address", ip.ip));
        }
    }
    if let Some(ip) = status.and_then(|status| status.pod_ip.as_ref())
        && !ip.is_empty()
        && ip.parse::<std::net::IpAddr>().is_err()
    {
        problems.add("status.podIP", format!("{ip:?} is no address"));
    }
    problems.into_result()
}

/// A label selector; problems are added with their fields.
fn selector(problems: &mut Invalid, at: &str, labels: &LabelSelector) -> Selector {
    let mut parts = Vec::new();
    for (key, value) in labels.match_labels.iter().flatten() {
        parts.push((format!("{at}.matchLabels"), Ok(format!("{key}={value}"))));
    }
    for (i, requirement) in labels.match_expressions.iter().flatten().enumerate() {
        let at = format!("{at}.matchExpressions[{i}]");
        let (key, values) = (&requirement.key, requirement.values.as_deref().unwrap_or_default());
        let text = match (requirement.operator.as_str(), values) {
            ("In" | "NotIn", []) => Err("has no values; which ones?".to_owned()),
            ("In", values) => Ok(format!("{key} in ({})", values.join(","))),
            ("NotIn", values) => Ok(format!("{key} notin ({})", values.join(","))),
            ("Exists", []) => Ok(key.clone()),
            ("DoesNotExist", []) => Ok(format!("!{key}")),
            (operator @ ("Exists" | "DoesNotExist"), _) => {
                Err(format!("has values, which {operator} does not look at"))
            }
            (other, _) => {
                Err(format!("has the operator {other:?}; it is In, NotIn, Exists or DoesNotExist"))
            }
        };
        parts.push((at, text));
    }
    let mut texts = Vec::new();
    for (at, text) in parts {
        let right = text.and_then(|text| match text.parse::<Selector>() {
            Ok(_) => Ok(text),
            Err(error) => Err(error.to_string()),
        });
        match right {
            Ok(text) => texts.push(text),
            Err(problem) => problems.add(at, problem),
        }
    }
    texts.join(",").parse().unwrap_or_default()
}

#[cfg(test)]
mod tests;
