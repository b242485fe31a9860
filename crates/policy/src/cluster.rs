//! `Cluster`: the pods, namespaces, nodes and services that policies speak of, as plain values.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1 as core;
use objects::kinds::Protocol;

pub type Labels = BTreeMap<String, String>;

/// Namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

/// The pods, namespaces, nodes and services of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    pub namespaces: BTreeMap<Arc<str>, Labels>,
    pub pods: BTreeMap<Key, Arc<Pod>>,
    pub nodes: BTreeMap<Arc<str>, Node>,
    pub services: BTreeMap<Key, Service>,
    /// Networks of pods beside those of nodes: address pools.
    pub pools: BTreeMap<Arc<str>, Vec<IpNet>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub key: Key,
    /// Empty until it is scheduled.
    pub node: Arc<str>,
    pub labels: Labels,
    /// In the order of its status; those of the node if it is in the node's network.
    pub addresses: Vec<IpAddr>,
    pub host_network: bool,
    /// It succeeded or failed: its addresses may be another's.
    pub finished: bool,
    /// Container ports that have a name.
    pub ports: Vec<NamedPort>,
    pub images: Vec<String>,
    /// Kind and name of its uppermost owner, as `Deployment/web`; `Pod/NAME` for a pod by itself.
    pub owner: Arc<str>,
    /// Seconds since 1970: of two pods with one address the later one has it.
    pub created: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedPort {
    pub name: Arc<str>,
    pub protocol: Protocol,
    pub port: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub labels: Labels,
    pub addresses: Vec<IpAddr>,
    /// The networks of its pods.
    pub networks: Vec<IpNet>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    pub cluster_addresses: Vec<IpAddr>,
    /// External and load balancer addresses.
    pub ingress_addresses: Vec<IpAddr>,
    /// Empty selects nothing, as in Kubernetes.
    pub selector: Labels,
}

/// What an address is to guard's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    Workload,
    Host,
    Service,
    Ingress,
    /// In the cluster's own ranges, and nobody's that is known.
    Unmanaged,
    External,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Pod {
    /// Whether policies can select it: it is there, in a network of its own.
    pub fn is_selectable(&self) -> bool {
        !self.host_network && !self.finished
    }

    /// The number of a container port.
    pub fn port(&self, name: &str, protocol: Option<Protocol>) -> Option<&NamedPort> {
        let same = |port: &&NamedPort| {
            *port.name == *name && protocol.is_none_or(|protocol| port.protocol == protocol)
        };
        self.ports.iter().find(same)
    }
}

impl Service {
    pub fn selects(&self, labels: &Labels) -> bool {
        let has = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        !self.selector.is_empty() && self.selector.iter().all(has)
    }
}

impl Cluster {
    /// The pod that has an address: of several, the one that was created last.
    pub fn owner(&self, address: IpAddr) -> Option<&Arc<Pod>> {
        let pods = self.pods.values().filter(|pod| pod.is_selectable());
        let having = pods.filter(|pod| pod.addresses.contains(&address));
        having.max_by_key(|pod| (pod.created, &pod.key))
    }

    /// The node that has an address.
    pub fn node_of(&self, address: IpAddr) -> Option<&Arc<str>> {
        self.nodes.iter().find(|(_, node)| node.addresses.contains(&address)).map(|(name, _)| name)
    }

    /// The services that select a pod.
    pub fn services_of(&self, pod: &Pod) -> Vec<Arc<str>> {
        let services = self.services.iter();
        services
            .filter(|(key, it)| key.namespace == pod.key.namespace && it.selects(&pod.labels))
            .map(|(key, _)| Arc::clone(&key.name))
            .collect()
    }

    /// The cluster's own ranges.
    pub fn ranges(&self) -> Vec<IpNet> {
        let nodes = self.nodes.values().flat_map(|node| &node.networks);
        let mut ranges: Vec<_> = nodes.chain(self.pools.values().flatten()).copied().collect();
        ranges.sort();
        ranges.dedup();
        ranges
    }

    pub fn kind_of(&self, address: IpAddr) -> AddressKind {
        let mut services = self.services.values();
        if self.owner(address).is_some() {
            AddressKind::Workload
        } else if self.node_of(address).is_some() {
            AddressKind::Host
        } else if services.any(|it| it.cluster_addresses.contains(&address)) {
            AddressKind::Service
        } else if self.services.values().any(|it| it.ingress_addresses.contains(&address)) {
            AddressKind::Ingress
        } else if self.ranges().iter().any(|range| range.contains(&address)) {
            AddressKind::Unmanaged
        } else {
            AddressKind::External
        }
    }
}

impl From<&core::Pod> for Pod {
    fn from(pod: &core::Pod) -> Self {
        let (meta, spec, status) = (&pod.metadata, pod.spec.as_ref(), pod.status.as_ref());
        let name = meta.name.as_deref().unwrap_or_default();
        let several = status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten();
        let one = status.and_then(|status| status.pod_ip.as_ref());
        let containers = || {
            let init = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
            let main = spec.map(|spec| &spec.containers).into_iter().flatten();
            init.map(|container| (container, container.restart_policy.as_deref() == Some("Always")))
                .chain(main.map(|container| (container, true)))
        };
        let ports = containers()
            .filter(|(_, stays)| *stays)
            .flat_map(|(container, _)| container.ports.iter().flatten());
        let mut images: Vec<_> = containers().filter_map(|(it, _)| it.image.clone()).collect();
        images.dedup();
        let phase = status.and_then(|status| status.phase.as_deref());
        Self {
            key: Key::new(meta.namespace.as_deref().unwrap_or("default"), name),
            node: spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default().into(),
            labels: meta.labels.clone().unwrap_or_default(),
            addresses: parsed(several.map(|ip| &ip.ip).chain(one)),
            host_network: spec.and_then(|spec| spec.host_network) == Some(true),
            finished: matches!(phase, Some("Succeeded" | "Failed")),
            ports: ports.filter_map(named_port).collect(),
            images,
            owner: objects::uppermost_owner(pod).unwrap_or_else(|| format!("Pod/{name}")).into(),
            created: meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        }
    }
}

fn named_port(port: &core::ContainerPort) -> Option<NamedPort> {
    let protocol = protocol(port.protocol.as_deref().unwrap_or("TCP"))?;
    let number = u16::try_from(port.container_port).ok()?;
    Some(NamedPort { name: port.name.as_deref()?.into(), protocol, port: number })
}

/// A protocol as Kubernetes writes it.
pub fn protocol(text: &str) -> Option<Protocol> {
    match text {
        "TCP" => Some(Protocol::TCP),
        "UDP" => Some(Protocol::UDP),
        "SCTP" => Some(Protocol::SCTP),
        _ => None,
    }
}

impl From<&core::Node> for Node {
    fn from(node: &core::Node) -> Self {
        let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
        let addresses = status.and_then(|status| status.addresses.as_ref()).into_iter().flatten();
        let several = spec.and_then(|spec| spec.pod_cidrs.as_ref()).into_iter().flatten();
        let one = spec.and_then(|spec| spec.pod_cidr.as_ref());
        let mut networks: Vec<IpNet> =
            several.chain(one).filter_map(|text| text.parse().ok()).collect();
        networks.sort();
        networks.dedup();
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            addresses: parsed(addresses.map(|address| &address.address)),
            networks,
        }
    }
}

impl From<&core::Service> for Service {
    fn from(service: &core::Service) -> Self {
        let spec = service.spec.as_ref();
        let several = spec.and_then(|spec| spec.cluster_ips.as_ref()).into_iter().flatten();
        let one = spec.and_then(|spec| spec.cluster_ip.as_ref());
        let outside = spec.and_then(|spec| spec.external_ips.as_ref()).into_iter().flatten();
        let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let entrances = balancer.and_then(|it| it.ingress.as_ref()).into_iter().flatten();
        Self {
            cluster_addresses: parsed(several.chain(one)),
            ingress_addresses: parsed(outside.chain(entrances.filter_map(|it| it.ip.as_ref()))),
            selector: spec.and_then(|spec| spec.selector.clone()).unwrap_or_default(),
        }
    }
}

/// Those that are addresses, in their order: `None` and names are not.
fn parsed<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in texts.filter_map(|text| text.parse::<IpAddr>().ok()) {
        let address = address.to_canonical();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}
