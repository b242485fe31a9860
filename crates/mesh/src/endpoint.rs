//! Where a node can be reached: `host:port`. The host is an address or a DNS name, and an IPv6 address
//! has brackets around it.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use objects::kinds::DataPlane;
use serde::Deserialize;

use crate::peer::PeerEndpoint;

/// The annotations that may hold a node's endpoint; the first one that is set counts.
const ANNOTATIONS: [&str; 2] =
    ["kilo.squat.ai/clustermesh-endpoint", "kilo.squat.ai/force-endpoint"];
/// The annotation of a node whose interface is ours.
pub(crate) const WIREGUARD_ENDPOINT: &str = "fairlead.dev/wireguard-endpoint";
const DISCOVERED: &str = "kilo.squat.ai/discovered-endpoints";

/// Reads the endpoint that a node itself declares. A node without one is valid: its peer connects from
/// wherever it is. The error is a sentence about a malformed annotation.
pub(crate) fn declared(
    node: &Node,
    plane: DataPlane,
    port: u16,
) -> Result<Option<PeerEndpoint>, String> {
    let annotations: &[&str] = match plane {
        DataPlane::Kilo => &ANNOTATIONS,
        DataPlane::Wireguard => &[WIREGUARD_ENDPOINT],
    };
    // Some tools clear an annotation instead of removing it.
    let value = |name| node.annotations().get(name).filter(|value| !value.is_empty());
    if let Some((name, value)) = annotations.iter().find_map(|name| Some((name, value(*name)?))) {
        return parse(value).map(Some).map_err(|problem| {
            format!("annotation {name} is {value:?}, which is not host:port ({problem})")
        });
    }
    // IPv4 goes first, else the order is the node's.
    let best = addresses(node, "ExternalIP").min_by_key(IpAddr::is_ipv6);
    Ok(best.map(|ip| PeerEndpoint::ip(ip, port)))
}

/// A node's addresses of one type, `InternalIP` or `ExternalIP`.
pub(crate) fn addresses(node: &Node, kind: &str) -> impl Iterator<Item = IpAddr> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let addresses = addresses.into_iter().flatten().filter(move |a| a.type_ == kind);
    addresses.filter_map(|address| address.address.parse().ok())
}

/// Parses `host:port` as Kilo does: brackets are required around an IPv6 address, and allowed around
/// every other host.
fn parse(text: &str) -> Result<PeerEndpoint, &'static str> {
    let (host, port) = text.rsplit_once(':').ok_or("it has no port")?;
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let port = digits.then(|| port.parse().ok()).flatten().filter(|port| *port != 0);
    let port = port.ok_or("the port is not 1 to 65535")?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').ok_or("the bracket before the host is not closed")?,
        None if host.contains(':') => return Err("an IPv6 address needs brackets around it"),
        None => host,
    };
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() || ip.is_multicast() => {
            Err("no node can be reached at that address")
        }
        Ok(ip) => Ok(PeerEndpoint::ip(ip, port)),
        Err(_) => {
            let name = dns_name(host).ok_or("the host is neither an address nor a DNS name")?;
            Ok(PeerEndpoint::dns(name, port))
        }
    }
}

/// Returns a DNS name in lower case: Kilo takes no other.
fn dns_name(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let label = |label: &str| {
        let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = label.as_bytes();
        label.len() <= 63
            && edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    // A name that ends in a number is a mistyped address.
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_valid = name.len() <= 253
        && name.split('.').all(label)
        && !last.bytes().all(|b| b.is_ascii_digit());
    is_valid.then_some(name)
}

/// One entry of Kilo's annotation.
#[derive(Deserialize)]
struct DiscoveredEndpoint {
    #[serde(rename = "IP")]
    ip: IpAddr,
    #[serde(rename = "Port")]
    port: u16,
}

/// Where the nodes of a cluster have seen each public key, by key and by the node that saw it. The first
/// node by name counts. An entry that cannot be parsed is skipped alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DiscoveredEndpoints(HashMap<String, BTreeMap<String, PeerEndpoint>>);

impl DiscoveredEndpoints {
    pub(crate) fn of<'n>(nodes: impl IntoIterator<Item = &'n Node>) -> Self {
        let mut all = Self::default();
        for node in nodes {
            all.update(None, Some(node));
        }
        all
    }

    pub(crate) fn get(&self, key: &str) -> Option<&PeerEndpoint> {
        self.0.get(key)?.values().next()
    }

    /// Replaces what a node has discovered, and returns the keys that are affected.
    pub(crate) fn update(&mut self, before: Option<&Node>, after: Option<&Node>) -> Vec<String> {
        if before.is_some() == after.is_some() && annotation(before) == annotation(after) {
            return Vec::new();
        }
        let mut keys = Vec::new();
        if let Some(node) = before {
            for key in discovered_by(node).into_keys() {
                if let Some(endpoints) = self.0.get_mut(&key) {
                    endpoints.remove(&node.name_any());
                    if endpoints.is_empty() {
                        self.0.remove(&key);
                    }
                }
                keys.push(key);
            }
        }
        if let Some(node) = after {
            for (key, endpoint) in discovered_by(node) {
                self.0.entry(key.clone()).or_default().insert(node.name_any(), endpoint);
                keys.push(key);
            }
        }
        keys
    }
}

fn annotation(node: Option<&Node>) -> Option<&String> {
    node.and_then(|node| node.annotations().get(DISCOVERED))
}

fn discovered_by(node: &Node) -> BTreeMap<String, PeerEndpoint> {
    let Some(text) = annotation(Some(node)) else { return BTreeMap::new() };
    let all: BTreeMap<String, serde_json::Value> = serde_json::from_str(text).unwrap_or_default();
    let usable = |(key, value)| {
        let DiscoveredEndpoint { ip, port } = serde_json::from_value(value).ok()?;
        let ip = ip.to_canonical();
        (port != 0 && is_routable(ip)).then(|| (key, PeerEndpoint::ip(ip, port)))
    };
    all.into_iter().filter_map(usable).collect()
}

/// Returns whether an address that one node saw means the same to other nodes.
fn is_routable(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(link_local || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast())
}
