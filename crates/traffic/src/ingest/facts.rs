//! Converts objects of Kubernetes to facts, which are plain values.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use objects::kinds::AddressPool;

use crate::conversations::{Moment, NodeFacts, PodFacts, ServiceFacts};

pub(super) fn pod(pod: &Pod, now: Moment) -> PodFacts {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let in_nodes_network = spec.and_then(|spec| spec.host_network) == Some(true);
    let several = status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten();
    let one = status.and_then(|status| status.pod_ip.as_ref());
    let mut addresses: Vec<IpAddr> = Vec::new();
    if !in_nodes_network {
        let texts = several.map(|ip| &ip.ip).chain(one);
        addresses.extend(texts.filter_map(|text| text.parse::<IpAddr>().ok()));
        addresses.sort();
        addresses.dedup();
    }
    let mut images: Vec<String> = Vec::new();
    if let Some(spec) = spec {
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        images.extend(containers.filter_map(|container| container.image.clone()));
        images.dedup();
    }
    PodFacts {
        uid: pod.uid().unwrap_or_default().into(),
        namespace: pod.namespace().unwrap_or_default().into(),
        name: pod.name_any().into(),
        owner: objects::uppermost_owner(pod).map(Arc::from),
        node: spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default().into(),
        addresses,
        images,
        labels: pod.labels().clone(),
        from: moment(pod.metadata.creation_timestamp.as_ref()),
        until: ended(pod, now),
    }
}

/// When it gave its addresses up though it is still there.
fn ended(pod: &Pod, now: Moment) -> Option<Moment> {
    let status = pod.status.as_ref()?;
    if !matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let containers = status.container_statuses.iter().flatten();
    let ends = containers.filter_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        ended.finished_at.as_ref().map(|at| moment(Some(at)))
    });
    Some(ends.max().unwrap_or(now))
}

pub(super) fn service(service: &Service) -> ServiceFacts {
    let spec = service.spec.as_ref();
    let several = spec.and_then(|spec| spec.cluster_ips.as_ref()).into_iter().flatten();
    let one = spec.and_then(|spec| spec.cluster_ip.as_ref());
    let outside = spec.and_then(|spec| spec.external_ips.as_ref()).into_iter().flatten();
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let entrances = balancer.and_then(|it| it.ingress.as_ref()).into_iter().flatten();
    let entrances = entrances.filter_map(|entrance| entrance.ip.as_ref());
    ServiceFacts {
        namespace: service.namespace().unwrap_or_default().into(),
        name: service.name_any().into(),
        cluster_addresses: parsed(several.chain(one)),
        ingress_addresses: parsed(outside.chain(entrances)),
        selector: spec.and_then(|spec| spec.selector.clone()).unwrap_or_default(),
        from: moment(service.metadata.creation_timestamp.as_ref()),
    }
}

/// A node's addresses, and the networks of its pods.
pub(super) fn node(node: &Node) -> (NodeFacts, Vec<IpNet>) {
    let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
    let addresses = status.and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    let facts = NodeFacts {
        name: node.name_any().into(),
        addresses: parsed(addresses.map(|address| &address.address)),
        from: moment(node.metadata.creation_timestamp.as_ref()),
    };
    let several = spec.and_then(|spec| spec.pod_cidrs.as_ref()).into_iter().flatten();
    let one = spec.and_then(|spec| spec.pod_cidr.as_ref());
    let mut networks: Vec<IpNet> =
        several.chain(one).filter_map(|text| text.parse().ok()).collect();
    networks.sort();
    networks.dedup();
    (facts, networks)
}

pub(super) fn pool(pool: &AddressPool) -> Vec<IpNet> {
    let subnets = pool.spec.subnets.iter();
    let texts = subnets.flat_map(|subnet| subnet.ipv4.iter().chain(&subnet.ipv6));
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// Those that are addresses: `None` and names are not.
fn parsed<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = texts.filter_map(|text| text.parse().ok()).collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

fn moment(time: Option<&Time>) -> Moment {
    time.map_or(Moment(0), |time| time.0.into())
}

#[cfg(test)]
mod tests;
