//! What is written of one Service into one cluster: its import, the derived Service and the slices, or their
//! removal.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use kube::ResourceExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    Constituent, SERVICE_NAME, SLICE_SERVICE, SOURCE_CLUSTER, ServiceChange, ServiceContext,
    ServiceWrite, SourceState, Written, sorted_ports,
};
use crate::services::objects::{EndpointSlice, ImportType, ImportedPort};
use crate::services::planner::ClusterIndex;

/// The annotation of a ServiceImport that names its derived Service.
const DERIVED_SERVICE: &str = "multicluster.kubernetes.io/derived-service";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "mesh.fairlead.dev";

/// One Service in one cluster.
pub(super) struct Target<'a> {
    pub(super) context: &'a ServiceContext,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) key: &'a str,
    pub(super) cluster: &'a str,
    pub(super) index: &'a ClusterIndex,
    pub(super) clusters: &'a BTreeMap<Arc<str>, ClusterIndex>,
}

/// An EndpointSlice as it should be.
#[derive(Clone, Debug, PartialEq)]
struct WantedSlice {
    source: String,
    address_type: String,
    /// Addresses, and the hostname of each.
    endpoints: Vec<(Vec<String>, Option<String>)>,
    /// Name, protocol and port.
    ports: Vec<(String, String, i32)>,
}

impl Target<'_> {
    fn write(&self, kind: Written, name: &str, change: ServiceChange) -> ServiceWrite {
        let (namespace, name) = (self.namespace.to_owned(), name.to_owned());
        ServiceWrite { kind, namespace, name, change }
    }

    /// Deletes what the mesh made of the Service, except what `keeps` says.
    fn delete_others(&self, keeps: impl Fn(Written, &str) -> bool) -> Vec<ServiceWrite> {
        let mut writes = Vec::new();
        let mut delete = |kind, name: String, version| {
            if !keeps(kind, &name) {
                writes.push(self.write(kind, &name, ServiceChange::Delete { version }));
            }
        };
        if let Some(import) = self.index.import(self.key).filter(|it| self.context.owns(*it)) {
            delete(Written::ServiceImport, import.name_any(), import.resource_version());
        }
        for service in self.index.derived_of(self.key).filter(|it| self.context.owns(*it)) {
            delete(Written::Service, service.name_any(), service.resource_version());
        }
        for slice in self.index.imported_of(self.key).filter(|it| self.context.owns(*it)) {
            delete(Written::EndpointSlice, slice.name_any(), slice.resource_version());
        }
        writes
    }

    pub(super) fn clear(&self) -> Vec<ServiceWrite> {
        self.delete_others(|_, _| false)
    }

    pub(super) fn plan(&self, constituents: &[Constituent<'_>]) -> Vec<ServiceWrite> {
        if !self.index.is_writable() {
            return Vec::new();
        }
        let import = self.index.import(self.key);
        // Somebody else imports the Service: a person, or another implementation of the same API.
        if import.is_some_and(|import| !self.context.owns(import)) {
            return self.clear();
        }
        if !self.index.has_namespace(self.namespace) {
            return self.clear();
        }
        let away = |source: &str| {
            let cluster = self.clusters.get(source);
            self.context.members.contains_key(source)
                && (self.context.frozen.contains(source)
                    || cluster.is_none_or(|it| it.state() != SourceState::Known))
        };
        let Some(oldest) = constituents.first() else {
            // Nobody who can be asked exports it. What clusters that are away had exported stays.
            let sources = self.index.imported_of(self.key);
            let sources = sources.filter_map(|it| it.labels().get(SOURCE_CLUSTER));
            let recorded =
                import.and_then(|it| it.status.as_ref()).map_or(&[][..], |it| &it.clusters);
            let mut sources = sources.chain(recorded.iter().map(|it| &it.cluster));
            if !sources.any(|source| away(source)) {
                return self.clear();
            }
            return self.delete_others(|kind, name| {
                kind != Written::EndpointSlice || self.source_of(name).is_some_and(&away)
            });
        };
        let headless = oldest.headless;
        let ports = union(constituents);
        let derived = derived_name(self.key, headless);
        // A Service of this name that is not ours: no name of Kubernetes looks like it by accident.
        if self.index.service_in(self.namespace, &derived).is_some_and(|it| !self.context.owns(it))
        {
            return self.clear();
        }
        let mut slices = BTreeMap::new();
        for constituent in constituents {
            slices.extend(self.slices_of(constituent, &ports));
        }
        let any = slices.values().any(|slice: &WantedSlice| !slice.endpoints.is_empty());
        let mut writes = self.delete_others(|kind, name| match kind {
            Written::Service => name == derived,
            Written::EndpointSlice => {
                slices.contains_key(name) || (!any && self.source_of(name).is_some_and(&away))
            }
            Written::ServiceImport | Written::ServiceExport => true,
        });
        let kept: BTreeSet<String> = self
            .index
            .imported_of(self.key)
            .filter(|it| self.context.owns(*it))
            .filter_map(|it| it.labels().get(SOURCE_CLUSTER).cloned())
            .filter(|source| !any && away(source))
            .collect();
        writes.extend(self.service_write(&derived, oldest, &ports));
        writes.extend(slices.iter().filter_map(|(name, it)| self.slice_write(name, &derived, it)));
        let mut sources: BTreeSet<String> =
            constituents.iter().map(|it| it.cluster.to_owned()).collect();
        sources.extend(kept);
        writes.extend(self.import_writes(&derived, oldest, &ports, &sources));
        writes
    }

    /// The cluster that an imported slice is of.
    fn source_of(&self, slice: &str) -> Option<&str> {
        let slice = self.index.slice_in(self.namespace, slice)?;
        slice.labels().get(SOURCE_CLUSTER).map(String::as_str)
    }

    /// The slices of one cluster as they should be here, by name.
    fn slices_of(
        &self,
        source: &Constituent<'_>,
        ports: &[ImportedPort],
    ) -> BTreeMap<String, WantedSlice> {
        let none = Vec::new();
        let networks = self.context.members.get(source.cluster).unwrap_or(&none);
        // A cluster reaches its own pods wherever they are.
        let carried = |address: &String| {
            source.cluster == self.cluster
                || address
                    .parse::<IpAddr>()
                    .is_ok_and(|ip| networks.iter().any(|it| it.contains(&ip)))
        };
        let is_exposed = |name: &str| {
            let own = source.ports.iter().find(|port| port.name == name);
            own.is_some_and(|own| ports.contains(own))
        };
        let mut wanted = BTreeMap::new();
        for slice in source.index.slices_of(self.key) {
            if !matches!(slice.address_type.as_str(), "IPv4" | "IPv6") {
                continue;
            }
            let mut endpoints: Vec<(Vec<String>, Option<String>)> = slice
                .endpoints
                .iter()
                .flatten()
                .filter(|it| it.is_ready())
                .map(|it| {
                    let addresses = it.addresses.iter().filter(|it| carried(it)).cloned();
                    (addresses.collect::<Vec<_>>(), it.hostname.clone())
                })
                .filter(|(addresses, _)| !addresses.is_empty())
                .collect();
            endpoints.sort();
            let mut named: Vec<(String, String, i32)> = slice
                .ports
                .iter()
                .flatten()
                .filter(|port| is_exposed(port.name.as_deref().unwrap_or_default()))
                .filter_map(|port| {
                    let name = port.name.clone().unwrap_or_default();
                    let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
                    Some((name, protocol, port.port?))
                })
                .collect();
            named.sort();
            // A headless Service may have no ports at all.
            if endpoints.is_empty() || (named.is_empty() && !source.headless) {
                continue;
            }
            let name =
                slice_name(self.name, source.cluster, &slice.name_any(), &slice.address_type);
            let (source, address_type) = (source.cluster.to_owned(), slice.address_type.clone());
            wanted.insert(name, WantedSlice { source, address_type, endpoints, ports: named });
        }
        wanted
    }

    fn slice_write(&self, name: &str, derived: &str, wanted: &WantedSlice) -> Option<ServiceWrite> {
        let mut labels: BTreeMap<&str, &str> = self.context.labels().into();
        labels.extend([
            (SERVICE_NAME, self.name),
            (SOURCE_CLUSTER, wanted.source.as_str()),
            (SLICE_SERVICE, derived),
            (MANAGED_BY, MANAGER),
        ]);
        let endpoints = wanted.endpoints.iter().map(|(addresses, hostname)| {
            let mut endpoint = json!({"addresses": addresses, "conditions": {"ready": true}});
            if let Some(hostname) = hostname {
                endpoint["hostname"] = json!(hostname);
            }
            endpoint
        });
        let endpoints: Vec<Value> = endpoints.collect();
        let ports = wanted.ports.iter().map(
            |(name, protocol, port)| json!({"name": name, "protocol": protocol, "port": port}),
        );
        let ports: Vec<Value> = ports.collect();
        let Some(existing) = self.index.slice_in(self.namespace, name) else {
            let slice = json!({
                "metadata": {"name": name, "namespace": self.namespace, "labels": labels},
                "addressType": wanted.address_type, "endpoints": endpoints, "ports": ports,
            });
            return Some(self.write(Written::EndpointSlice, name, ServiceChange::Create(slice)));
        };
        if !self.context.owns(existing) {
            return None;
        }
        let mut patch = serde_json::Map::new();
        if is_without(existing.labels(), &labels) {
            patch.insert("metadata".to_owned(), json!({"labels": labels}));
        }
        if read_endpoints(existing) != wanted.endpoints {
            patch.insert("endpoints".to_owned(), endpoints.into());
        }
        if read_ports(existing) != wanted.ports {
            patch.insert("ports".to_owned(), ports.into());
        }
        self.patch(Written::EndpointSlice, existing, patch)
    }

    fn patch(
        &self,
        kind: Written,
        existing: &impl ResourceExt,
        patch: serde_json::Map<String, Value>,
    ) -> Option<ServiceWrite> {
        let version = existing.resource_version();
        let change = ServiceChange::Patch { version, patch: patch.into() };
        let empty = matches!(&change, ServiceChange::Patch { patch, .. } if *patch == json!({}));
        (!empty).then(|| self.write(kind, &existing.name_any(), change))
    }

    /// The derived Service has no selector: its endpoints are the slices that are attached to it.
    fn service_write(
        &self,
        derived: &str,
        oldest: &Constituent<'_>,
        ports: &[ImportedPort],
    ) -> Option<ServiceWrite> {
        let mut labels: BTreeMap<&str, &str> = self.context.labels().into();
        labels.insert(SERVICE_NAME, self.name);
        let affinity = if oldest.headless { "None" } else { oldest.affinity.as_str() };
        let config = oldest.affinity_config.as_ref().filter(|_| affinity != "None");
        let Some(existing) = self.index.service_in(self.namespace, derived) else {
            let mut spec =
                json!({"type": "ClusterIP", "ports": ports, "sessionAffinity": affinity});
            if oldest.headless {
                spec["clusterIP"] = json!("None");
            }
            if let Some(config) = config {
                spec["sessionAffinityConfig"] = json!(config);
            }
            let metadata = json!({"name": derived, "namespace": self.namespace, "labels": labels});
            let service = json!({"metadata": metadata, "spec": spec});
            return Some(self.write(Written::Service, derived, ServiceChange::Create(service)));
        };
        let none = ServiceSpec::default();
        let is = existing.spec.as_ref().unwrap_or(&none);
        let has = sorted_ports(is);
        let mut spec = serde_json::Map::new();
        if has != ports {
            spec.insert("ports".to_owned(), json!(ports));
        }
        if is.session_affinity.as_deref().unwrap_or("None") != affinity {
            spec.insert("sessionAffinity".to_owned(), json!(affinity));
        }
        if is.session_affinity_config.as_ref() != config {
            spec.insert("sessionAffinityConfig".to_owned(), json!(config));
        }
        let mut patch = serde_json::Map::new();
        if is_without(existing.labels(), &labels) {
            patch.insert("metadata".to_owned(), json!({"labels": labels}));
        }
        if !spec.is_empty() {
            patch.insert("spec".to_owned(), spec.into());
        }
        self.patch(Written::Service, existing, patch)
    }

    fn import_writes(
        &self,
        derived: &str,
        oldest: &Constituent<'_>,
        ports: &[ImportedPort],
        sources: &BTreeSet<String>,
    ) -> Vec<ServiceWrite> {
        let labels: BTreeMap<&str, &str> = self.context.labels().into();
        let service = self.index.service_in(self.namespace, derived);
        let service = service.and_then(|it| it.spec.as_ref());
        let mut ips: Vec<String> =
            service.and_then(|it| it.cluster_ips.clone()).unwrap_or_default();
        if ips.is_empty() {
            ips.extend(service.and_then(|it| it.cluster_ip.clone()));
        }
        ips.retain(|ip| ip.parse::<IpAddr>().is_ok());
        let kind = if oldest.headless { ImportType::Headless } else { ImportType::ClusterSetIP };
        let affinity = (!oldest.headless).then(|| oldest.affinity.clone());
        let config = oldest.affinity_config.clone();
        let config = config.filter(|_| affinity.as_deref().is_some_and(|it| it != "None"));
        let Some(existing) = self.index.import(self.key) else {
            let mut spec = json!({"ports": ports, "type": kind});
            if !ips.is_empty() {
                spec["ips"] = json!(ips);
            }
            if let Some(affinity) = affinity {
                spec["sessionAffinity"] = json!(affinity);
            }
            if let Some(config) = config {
                spec["sessionAffinityConfig"] = json!(config);
            }
            let import = json!({
                "metadata": {"name": self.name, "namespace": self.namespace, "labels": labels,
                             "annotations": {DERIVED_SERVICE: derived}},
                "spec": spec,
            });
            let change = ServiceChange::Create(import);
            return vec![self.write(Written::ServiceImport, self.name, change)];
        };
        let mut metadata = serde_json::Map::new();
        if existing.annotations().get(DERIVED_SERVICE).is_none_or(|has| has != derived) {
            metadata.insert("annotations".to_owned(), json!({DERIVED_SERVICE: derived}));
        }
        let mut spec = serde_json::Map::new();
        if existing.spec.ports != ports {
            spec.insert("ports".to_owned(), json!(ports));
        }
        if existing.spec.r#type != kind {
            spec.insert("type".to_owned(), json!(kind));
        }
        if existing.spec.ips != ips {
            spec.insert("ips".to_owned(), if ips.is_empty() { Value::Null } else { json!(ips) });
        }
        if existing.spec.session_affinity != affinity {
            spec.insert("sessionAffinity".to_owned(), json!(affinity));
        }
        if existing.spec.session_affinity_config != config {
            spec.insert("sessionAffinityConfig".to_owned(), json!(config));
        }
        let mut patch = serde_json::Map::new();
        if !metadata.is_empty() {
            patch.insert("metadata".to_owned(), metadata.into());
        }
        if !spec.is_empty() {
            patch.insert("spec".to_owned(), spec.into());
        }
        if let Some(write) = self.patch(Written::ServiceImport, existing, patch) {
            return vec![write];
        }
        let status = existing.status.as_ref();
        let has: BTreeSet<&String> =
            status.into_iter().flat_map(|it| &it.clusters).map(|it| &it.cluster).collect();
        if has == sources.iter().collect() {
            return Vec::new();
        }
        let clusters: Vec<Value> = sources.iter().map(|it| json!({"cluster": it})).collect();
        let version = existing.resource_version();
        let patch = json!({"status": {"clusters": clusters}});
        let change = ServiceChange::PatchStatus { version, patch };
        vec![self.write(Written::ServiceImport, self.name, change)]
    }
}

/// All ports that a constituent has, sorted. Neither a name nor a protocol's port comes twice: the older
/// export's counts.
fn union(constituents: &[Constituent<'_>]) -> Vec<ImportedPort> {
    let mut ports: Vec<ImportedPort> = Vec::new();
    for port in constituents.iter().flat_map(|it| &it.ports) {
        let clashes = |has: &ImportedPort| {
            has.name == port.name || (has.protocol == port.protocol && has.port == port.port)
        };
        if !ports.iter().any(clashes) {
            ports.push(port.clone());
        }
    }
    // Ports need names where there are several.
    if ports.len() > 1 {
        ports.retain(|port| !port.name.is_empty());
    }
    ports.sort();
    ports
}

fn is_without(has: &BTreeMap<String, String>, wanted: &BTreeMap<&str, &str>) -> bool {
    wanted.iter().any(|(key, value)| has.get(*key).is_none_or(|has| has != value))
}

fn read_endpoints(slice: &EndpointSlice) -> Vec<(Vec<String>, Option<String>)> {
    let endpoints = slice.endpoints.iter().flatten();
    let mut endpoints: Vec<_> =
        endpoints.map(|it| (it.addresses.clone(), it.hostname.clone())).collect();
    endpoints.sort();
    endpoints
}

fn read_ports(slice: &EndpointSlice) -> Vec<(String, String, i32)> {
    let ports = slice.ports.iter().flatten();
    let mut ports: Vec<_> = ports
        .filter_map(|it| {
            let protocol = it.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            Some((it.name.clone().unwrap_or_default(), protocol, it.port?))
        })
        .collect();
    ports.sort();
    ports
}

fn hash(text: &str, bytes: usize) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

/// The name of the derived Service. A headless one is another Service: its address cannot be changed.
fn derived_name(key: &str, headless: bool) -> String {
    format!("derived-{}", hash(&format!("{key}{}", if headless { " headless" } else { "" }), 5))
}

/// The name of an imported slice. What cannot be changed about a slice is in its name.
fn slice_name(service: &str, cluster: &str, slice: &str, address_type: &str) -> String {
    let hash = hash(&format!("{cluster}/{slice}/{address_type}"), 8);
    format!("{service}-{cluster}-{hash}")
}

/// Returns whether a Service is derived, and from which.
pub(crate) fn derived_from(service: &Service) -> Option<String> {
    let name = service.labels().get(SERVICE_NAME)?;
    Some(format!("{}/{name}", service.namespace()?))
}
