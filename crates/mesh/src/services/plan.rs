//! What one Service of the mesh needs in each cluster, by the rules of KEP-1645.
//!
//! The Services of one name and namespace that clusters export are one Service of the mesh. In each
//! cluster with that namespace it is a `ServiceImport`, a derived Service that kube-proxy knows how to
//! route, and the EndpointSlices of all clusters that export it, attached to the derived Service.
//!
//! - Where exports differ, the oldest decides, and the condition `Conflict` of all of them says so. Ports
//!   are the union; an endpoint gets only what is sent to ports that its own cluster's Service has.
//! - Endpoints that the mesh does not carry (outside the `allowedNetworks` of their cluster) are left out.
//! - The endpoints of a cluster that is away leave while any other cluster has endpoints. The last ones
//!   stay: a cluster that does not answer us may still answer its users, and nobody else would.

mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec, SessionAffinityConfig};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::objects::{ImportedPort, ServiceExport};
use super::planner::ClusterIndex;
use crate::peer::label;
use target::Target;
pub(crate) use target::derived_from;

pub(crate) const SERVICE_NAME: &str = "multicluster.kubernetes.io/service-name";
pub(crate) const SOURCE_CLUSTER: &str = "multicluster.kubernetes.io/source-cluster";
pub(crate) const SLICE_SERVICE: &str = "kubernetes.io/service-name";

/// What plans of Services take from the mesh.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceContext {
    pub mesh: String,
    pub namespace: String,
    /// The clusters whose Services are joined, with their networks. Every other cluster is cleared.
    pub members: BTreeMap<String, Vec<IpNet>>,
    /// The members that are left as they are, because their networks overlap.
    pub frozen: BTreeSet<String>,
}

impl ServiceContext {
    fn labels(&self) -> [(&'static str, &str); 2] {
        [(label::MESH, &self.mesh), (label::NAMESPACE, &self.namespace)]
    }

    /// Returns whether an object is one that this mesh made.
    pub(crate) fn owns(&self, object: &impl ResourceExt) -> bool {
        let labels = object.labels();
        self.labels().iter().all(|(key, value)| labels.get(*key).is_some_and(|has| has == value))
    }

    fn id(&self) -> String {
        format!("{}/{}", self.namespace, self.mesh)
    }
}

/// The kinds that a plan writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Written {
    Service,
    EndpointSlice,
    ServiceImport,
    ServiceExport,
}

/// One write in one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceWrite {
    pub kind: Written,
    pub namespace: String,
    pub name: String,
    pub change: ServiceChange,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ServiceChange {
    /// The object without `apiVersion` and `kind`: which version is written depends on the server.
    Create(Value),
    /// A JSON merge patch for this version.
    Patch {
        version: Option<String>,
        patch: Value,
    },
    /// As `Patch`, of the subresource.
    PatchStatus {
        version: Option<String>,
        patch: Value,
    },
    Delete {
        version: Option<String>,
    },
}

/// What a cluster may contribute to Services of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceState {
    Known,
    /// It has not been looked at yet.
    Unknown,
    Away,
}

/// A valid export of one cluster.
struct Constituent<'a> {
    cluster: &'a str,
    index: &'a ClusterIndex,
    exported: Option<&'a Time>,
    ports: Vec<ImportedPort>,
    headless: bool,
    affinity: String,
    affinity_config: Option<SessionAffinityConfig>,
}

/// Plans one Service. `clusters` are all that are observed, members or not; no member is `Unknown`.
pub(crate) fn plan_service(
    context: &ServiceContext,
    key: &str,
    clusters: &BTreeMap<Arc<str>, ClusterIndex>,
    now: &Time,
) -> BTreeMap<Arc<str>, Vec<ServiceWrite>> {
    let Some((namespace, name)) = key.split_once('/') else { return BTreeMap::new() };
    let is_member = |cluster: &str| context.members.contains_key(cluster);
    let mut writes: BTreeMap<Arc<str>, Vec<ServiceWrite>> = BTreeMap::new();
    let mut constituents = Vec::new();
    let mut exports = Vec::new();
    for (cluster, index) in clusters {
        let Some(export) = index.export(key) else { continue };
        if !is_member(cluster) {
            let abandoned = abandoned(context, export, now);
            writes.entry(Arc::clone(cluster)).or_default().extend(abandoned);
            continue;
        }
        if context.frozen.contains(&**cluster) || index.state() != SourceState::Known {
            continue;
        }
        let valid = constituent(cluster, index, export, key);
        exports.push((cluster, export, valid.as_ref().err().copied()));
        constituents.extend(valid.ok());
    }
    // Two exports of the same second are in the order of their clusters' names.
    constituents.sort_by_key(|it| (it.exported.map(|time| time.0), it.cluster));
    let conflicts = conflicts(&constituents);
    for (cluster, export, invalid) in exports {
        let wanted = conditions(context, &constituents, &conflicts, invalid);
        let write = export_status(export, wanted, now);
        writes.entry(Arc::clone(cluster)).or_default().extend(write);
    }
    for (cluster, index) in clusters {
        let target = Target { context, namespace, name, key, cluster, index, clusters };
        let planned = match is_member(cluster) {
            true if context.frozen.contains(&**cluster) => continue,
            true => target.plan(&constituents),
            false => target.clear(),
        };
        writes.entry(Arc::clone(cluster)).or_default().extend(planned);
    }
    writes.retain(|_, writes| !writes.is_empty());
    writes
}

/// The ports of a Service as an import has them.
fn sorted_ports(of: &ServiceSpec) -> Vec<ImportedPort> {
    let port = |port: &ServicePort| ImportedPort {
        name: port.name.clone().unwrap_or_default(),
        protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
        app_protocol: port.app_protocol.clone(),
        port: port.port,
    };
    let mut ports: Vec<_> = of.ports.iter().flatten().map(port).collect();
    ports.sort();
    ports
}

/// What a cluster's export stands for, or why it stands for nothing: a reason and a sentence.
fn constituent<'a>(
    cluster: &'a str,
    index: &'a ClusterIndex,
    export: &'a ServiceExport,
    key: &str,
) -> Result<Constituent<'a>, (&'static str, &'static str)> {
    let service = index.service(key);
    let service = service.ok_or(("NoService", "there is no Service of this name"))?;
    let none = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&none);
    if spec.type_.as_deref() == Some("ExternalName") {
        let why = "a Service of the type ExternalName has no endpoints to export";
        return Err(("InvalidServiceType", why));
    }
    let ports = sorted_ports(spec);
    Ok(Constituent {
        cluster,
        index,
        exported: export.metadata.creation_timestamp.as_ref(),
        ports,
        headless: spec.cluster_ip.as_deref() == Some("None"),
        affinity: spec.session_affinity.clone().unwrap_or_else(|| "None".to_owned()),
        affinity_config: spec.session_affinity_config.clone(),
    })
}

/// The reasons of the condition `Conflict`, and the fields that they are about.
fn conflicts(constituents: &[Constituent<'_>]) -> Vec<(&'static str, &'static str)> {
    let Some((oldest, others)) = constituents.split_first() else { return Vec::new() };
    let differs = |field: fn(&Constituent<'_>, &Constituent<'_>) -> bool| {
        others.iter().any(|other| field(oldest, other))
    };
    let mut found = Vec::new();
    if differs(|a, b| a.ports != b.ports) {
        found.push(("PortConflict", "ports"));
    }
    if differs(|a, b| a.headless != b.headless) {
        found.push(("TypeConflict", "headless or not"));
    }
    if !oldest.headless && differs(|a, b| !b.headless && a.affinity != b.affinity) {
        found.push(("SessionAffinityConflict", "sessionAffinity"));
    } else if !oldest.headless
        && differs(|a, b| !b.headless && a.affinity_config != b.affinity_config)
    {
        found.push(("SessionAffinityConfigConflict", "sessionAffinityConfig"));
    }
    found
}

/// A condition: its type, whether it is true, its reason and its message.
type Wanted = (&'static str, bool, String, String);

fn conditions(
    context: &ServiceContext,
    constituents: &[Constituent<'_>],
    conflicts: &[(&'static str, &'static str)],
    invalid: Option<(&'static str, &'static str)>,
) -> Vec<Wanted> {
    let mesh = context.id();
    if let Some((reason, message)) = invalid {
        return vec![
            ("Valid", false, reason.to_owned(), message.to_owned()),
            (
                "Ready",
                false,
                "Failed".to_owned(),
                format!("mesh {mesh} cannot export it: {message}"),
            ),
            ("Conflict", false, "NoConflicts".to_owned(), "it is not exported".to_owned()),
        ];
    }
    let (reason, message) = match (constituents.first(), conflicts) {
        (Some(oldest), [_, ..]) => {
            let fields: Vec<&str> = conflicts.iter().map(|(_, field)| *field).collect();
            let reasons: Vec<&str> = conflicts.iter().map(|(reason, _)| *reason).collect();
            let others: Vec<&str> = constituents.iter().skip(1).map(|it| it.cluster).collect();
            let message = format!(
                "{} differ between {} and {}; {} decides, because its export is the oldest",
                fields.join(", "),
                oldest.cluster,
                others.join(", "),
                oldest.cluster
            );
            (reasons.join(","), message)
        }
        _ => ("NoConflicts".to_owned(), "all clusters export the same".to_owned()),
    };
    vec![
        ("Valid", true, "Valid".to_owned(), "the Service can be exported".to_owned()),
        ("Ready", true, "Exported".to_owned(), format!("mesh {mesh} exports it")),
        ("Conflict", !conflicts.is_empty(), reason, message),
    ]
}

fn status_word(holds: bool) -> &'static str {
    if holds { "True" } else { "False" }
}

/// The write of an export's conditions, unless it has them. Conditions of other types stay.
fn export_status(export: &ServiceExport, wanted: Vec<Wanted>, now: &Time) -> Option<ServiceWrite> {
    let none = Vec::new();
    let before = export.status.as_ref().map_or(&none, |status| &status.conditions);
    let has = |(kind, holds, reason, message): &Wanted| {
        before.iter().any(|it| {
            it.type_ == *kind
                && it.status == status_word(*holds)
                && it.reason == *reason
                && it.message == *message
        })
    };
    if wanted.iter().all(has) {
        return None;
    }
    let mut conditions: Vec<Condition> = before
        .iter()
        .filter(|it| wanted.iter().all(|(kind, ..)| it.type_ != *kind))
        .cloned()
        .collect();
    for (kind, holds, reason, message) in wanted {
        let status = status_word(holds).to_owned();
        let same = before.iter().find(|it| it.type_ == kind && it.status == status);
        conditions.push(Condition {
            type_: kind.to_owned(),
            last_transition_time: same.map_or(now, |it| &it.last_transition_time).clone(),
            observed_generation: export.metadata.generation,
            status,
            reason,
            message,
        });
    }
    let patch = json!({"status": {"conditions": conditions}});
    let version = export.resource_version();
    Some(ServiceWrite {
        kind: Written::ServiceExport,
        namespace: export.namespace().unwrap_or_default(),
        name: export.name_any(),
        change: ServiceChange::PatchStatus { version, patch },
    })
}

/// An export that this mesh exported, in a cluster that left.
fn abandoned(context: &ServiceContext, export: &ServiceExport, now: &Time) -> Option<ServiceWrite> {
    let mesh = context.id();
    let ours = format!("mesh {mesh} exports it");
    let conditions = export.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().find(|it| it.type_ == "Ready" && it.message == ours)?;
    let message = format!("mesh {mesh} does not export it any more");
    export_status(export, vec![("Ready", false, "Pending".to_owned(), message)], now)
}
