//! `Egress`: pods that give connections of other pods to some destinations their own addresses. Pods choose
//! one by an annotation, `egress.fairlead.dev/NAMESPACE: NAME[,NAME]`, or by Coil's. The fields are Coil's,
//! but for `failure` and `clientNamespaces`.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Condition, field};
use crate::name;
use crate::store::{Invalid, Kind};

/// The annotations by which a pod chooses: one of these, and the namespace of the egresses behind it.
pub const EGRESS_ANNOTATIONS: [&str; 2] = ["egress.fairlead.dev/", "egress.coil.cybozu.com/"];

const MOST_DESTINATIONS: usize = 256;
const LONGEST_NETWORK: usize = 49;
const NETWORK: &str = "^[0-9a-fA-F:.]+/[0-9]{1,3}$";
const MOST_NAMESPACES: usize = 256;
const MOST_LABELS: usize = 64;
const LONGEST_LABEL: usize = 63;
const LONGEST_ANNOTATION: usize = 4096;
/// The most replicas that a status names.
pub const MOST_REPLICAS: usize = 128;
const MOST_ADDRESSES: usize = 4;
const LONGEST_ADDRESS: usize = 45;
const LONGEST_SELECTOR: usize = 1024;

/// Pods that translate addresses of other pods' connections.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "Egress",
    plural = "egresses",
    namespaced,
    doc = "Pods that give connections of other pods to some destinations their own addresses.",
    category = "fairlead",
    shortname = "feg",
    status = "EgressStatus",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn = r#"{"name":"Replicas","type":"integer","jsonPath":".spec.replicas"}"#,
    printcolumn = r#"{"name":"Ready","type":"integer","jsonPath":".status.readyReplicas"}"#,
    printcolumn = r#"{"name":"Clients","type":"integer","jsonPath":".status.clients"}"#,
    printcolumn = r#"{"name":"Destinations","type":"string","jsonPath":".spec.destinations"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct EgressSpec {
    /// Networks to which clients' connections go by this egress. The longest network that has an address
    /// decides; private networks and those of pods are meant only where they are named.
    #[schemars(
        with = "Vec<String>",
        length(min = 1, max = MOST_DESTINATIONS),
        inner(length(min = 3, max = LONGEST_NETWORK), regex(pattern = NETWORK))
    )]
    pub destinations: Vec<IpNet>,
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// As a Deployment's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub strategy: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<EgressPodTemplate>,
    #[serde(default)]
    pub session_affinity: SessionAffinity,
    /// As a Service's. It is taken and not used: a client stays with its replica for as long as that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub session_affinity_config: Option<Map<String, Value>>,
    /// It is taken and not used: the source port of the tunnel always follows from the connection.
    #[serde(default)]
    pub fou_source_port_auto: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<EgressDisruptionBudget>,
    /// What becomes of connections while no replica is ready.
    #[serde(default)]
    pub failure: EgressFailure,
    /// The namespaces whose pods may use this egress; without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = MOST_NAMESPACES),
        inner(length(min = 1, max = LONGEST_LABEL), regex(pattern = field::LABEL))
    )]
    pub client_namespaces: Option<Vec<String>>,
}

fn one() -> i32 {
    1
}

/// An object of Kubernetes' own, which its own server checks.
fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn integer_or_percentage(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 16,
    })
}

/// How a client's connections are spread over replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum SessionAffinity {
    /// All by one replica, for as long as it is there.
    #[default]
    #[serde(rename = "ClientIP")]
    ClientIp,
    /// Each by any.
    None,
}

/// What becomes of clients' packets while an egress has no replica that is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum EgressFailure {
    /// They are dropped.
    #[default]
    Drop,
    /// They leave as packets of pods without an egress do.
    Direct,
}

/// The pods of an egress. A container named `egress` is the one that translates addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct EgressPodTemplate {
    #[serde(default)]
    pub metadata: EgressPodMetadata,
    /// As a pod's.
    #[serde(default)]
    #[schemars(schema_with = "anything")]
    pub spec: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct EgressPodMetadata {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MOST_LABELS), schema_with = "labels")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MOST_LABELS), schema_with = "annotations")]
    pub annotations: BTreeMap<String, String>,
}

fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": { "type": "string", "maxLength": LONGEST_LABEL },
        "maxProperties": MOST_LABELS,
    })
}

fn annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": { "type": "string", "maxLength": LONGEST_ANNOTATION },
        "maxProperties": MOST_LABELS,
    })
}

/// As in a PodDisruptionBudget: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressDisruptionBudget {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "integer_or_percentage")]
    pub min_available: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "integer_or_percentage")]
    pub max_unavailable: Option<Value>,
}

/// What the leading controller sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressStatus {
    #[serde(default)]
    pub replicas: i32,
    #[serde(default)]
    pub ready_replicas: i32,
    /// The pods of the egress, as a label selector.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_SELECTOR))]
    pub selector: String,
    /// How many pods chose this egress.
    #[serde(default)]
    pub clients: u32,
    /// The replicas that carry connections, in the order of their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_REPLICAS))]
    pub endpoints: Vec<EgressReplica>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = field::MOST_CONDITIONS))]
    pub conditions: Vec<Condition>,
}

/// A pod that translates addresses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct EgressReplica {
    #[schemars(length(min = 1, max = field::LONGEST_NAME))]
    pub pod: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = field::LONGEST_NAME))]
    pub node: String,
    #[schemars(
        with = "Vec<String>",
        length(max = MOST_ADDRESSES),
        inner(length(max = LONGEST_ADDRESS))
    )]
    pub addresses: Vec<IpAddr>,
    /// It is about to end: it keeps the connections that it has.
    #[serde(default)]
    pub draining: bool,
}

impl Egress {
    /// The egresses that a pod's annotations choose, as `NAMESPACE/NAME`, each once and in order. What cannot
    /// be a name is left out.
    pub fn chosen(annotations: &BTreeMap<String, String>) -> Vec<String> {
        let mut chosen: Vec<String> = Vec::new();
        for (key, names) in annotations {
            let namespace = EGRESS_ANNOTATIONS.iter().find_map(|prefix| key.strip_prefix(prefix));
            let Some(namespace) = namespace.filter(|it| name::dns_label(it).is_none()) else {
                continue;
            };
            let names = names.split(',').map(str::trim);
            for name in names.filter(|it| name::subdomain(it).is_none()) {
                chosen.push(format!("{namespace}/{name}"));
            }
        }
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }
}

impl Kind for Egress {
    const NAME: &'static str = "Egress";
    const NAMESPACED: bool = true;

    fn check(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        let EgressSpec { destinations, replicas, strategy, pod_disruption_budget, .. } = &self.spec;
        if destinations.is_empty() {
            problems.add("spec.destinations", "has none; name at least one network");
        }
        field::at_most(&mut problems, "spec.destinations", destinations.len(), MOST_DESTINATIONS);
        if *replicas < 0 {
            problems.add("spec.replicas", "must not be negative");
        }
        let kind = strategy.as_ref().and_then(|it| it.get("type")).and_then(Value::as_str);
        if let Some(kind) = kind.filter(|kind| !["Recreate", "RollingUpdate"].contains(kind)) {
            problems.add(
                "spec.strategy.type",
                format!("{kind:?} is neither Recreate nor RollingUpdate"),
            );
        }
        if let Some(EgressDisruptionBudget { min_available: Some(_), max_unavailable: Some(_) }) =
            pod_disruption_budget
        {
            let problem = "has minAvailable and maxUnavailable: leave one of them out";
            problems.add("spec.podDisruptionBudget", problem);
        }
        for namespace in self.spec.client_namespaces.iter().flatten() {
            if let Some(problem) = name::dns_label(namespace) {
                problems.add("spec.clientNamespaces", format!("{namespace:?} {problem}"));
            }
        }
        problems.into_result()
    }

    fn check_status(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        let endpoints = self.status.as_ref().map_or(0, |status| status.endpoints.len());
        field::at_most(&mut problems, "status.endpoints", endpoints, MOST_REPLICAS);
        problems.into_result()
    }
}

#[cfg(test)]
mod tests;
