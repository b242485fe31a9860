//! Writes the objects of a cluster as manifests, with what policies look at and nothing else.
//!
//! Contract: what is written here reads as the same cluster.

use std::net::IpAddr;

use jiff::Timestamp;
use objects::kinds::Protocol;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Key, Node, Pod, Service};

/// Every namespace, node, service, pool and pod.
pub fn documents(cluster: &Cluster) -> Vec<Value> {
    let namespaces = cluster.namespaces.iter().map(|(name, labels)| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": &**name, "labels": labels}})
    });
    let nodes = cluster.nodes.iter().map(|(name, it)| node(name, it));
    let services = cluster.services.iter().map(|(key, it)| service(key, it));
    let pools = cluster.pools.iter().map(|(name, networks)| {
        let subnets: Vec<_> = networks
            .iter()
            .map(|network| match network.addr().is_ipv4() {
                true => json!({"ipv4": network.to_string()}),
                false => json!({"ipv6": network.to_string()}),
            })
            .collect();
        json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "AddressPool",
               "metadata": {"name": &**name}, "spec": {"blockSizeBits": 0, "subnets": subnets}})
    });
    let pods = cluster.pods.values().map(|it| pod(it));
    namespaces.chain(nodes).chain(services).chain(pools).chain(pods).collect()
}

fn addresses(field: &str, addresses: &[IpAddr]) -> Value {
    addresses.iter().map(|address| json!({field: address})).collect()
}

fn node(name: &str, Node { labels, addresses, networks }: &Node) -> Value {
    let addresses: Vec<_> =
        addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
           "spec": {"podCIDRs": networks}, "status": {"addresses": addresses}})
}

fn service(key: &Key, service: &Service) -> Value {
    let Service { cluster_addresses, ingress_addresses, selector } = service;
    json!({"apiVersion": "v1", "kind": "Service",
           "metadata": {"name": &*key.name, "namespace": &*key.namespace},
           "spec": {"clusterIPs": cluster_addresses, "externalIPs": ingress_addresses,
                    "selector": selector}})
}

fn pod(pod: &Pod) -> Value {
    let containers = |ports: Vec<Value>| {
        // The first has the ports; an image is looked at wherever it is.
        let images = pod.images.iter().map(String::as_str);
        let images: Vec<_> = if pod.images.is_empty() { vec![""] } else { images.collect() };
        let mut all: Vec<Value> = images
            .iter()
            .enumerate()
            .map(|(i, image)| json!({"name": format!("c{i}"), "image": image}))
            .collect();
        if let Some(first) = all.first_mut() {
            first["ports"] = ports.into();
        }
        if pod.images.is_empty() {
            for container in &mut all {
                container.as_object_mut().map(|it| it.remove("image"));
            }
        }
        all
    };
    let ports = pod.ports.iter().map(|port| {
        let protocol = match port.protocol {
            Protocol::UDP => "UDP",
            Protocol::SCTP => "SCTP",
            _ => "TCP",
        };
        json!({"name": &*port.name, "containerPort": port.port, "protocol": protocol})
    });
    let mut metadata = json!({"name": &*pod.key.name, "namespace": &*pod.key.namespace,
                              "labels": pod.labels});
    if pod.created != 0
        && let Ok(created) = Timestamp::from_second(pod.created)
    {
        metadata["creationTimestamp"] = json!(created.to_string());
    }
    if let Some((kind, name)) = pod.owner.split_once('/')
        && kind != "Pod"
    {
        metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": "", "controller": true}]);
    }
    let phase = if pod.finished { "Succeeded" } else { "Running" };
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
           "spec": {"nodeName": &*pod.node, "hostNetwork": pod.host_network,
                    "containers": containers(ports.collect())},
           "status": {"phase": phase, "podIPs": addresses("ip", &pod.addresses)}})
}
