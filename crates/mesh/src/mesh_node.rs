//! `MeshNode`: what a node's data plane and Kubernetes say of it, or why the node cannot have a peer.
//!
//! Kilo says it by annotations of the Node. Our own agents say it by a `WireguardNode`, which only the
//! agent of that node may write; [`with_wireguard`] puts the two together. The networks are never the
//! node's own word: they are those that Kubernetes gave it, or the blocks that it claimed.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use objects::kinds::{AddressBlock, DataPlane, WireguardNode};

use crate::endpoint::{addresses, declared};
use crate::peer::PeerEndpoint;

const KEY: &str = "kilo.squat.ai/key";
const WIREGUARD_IP: &str = "kilo.squat.ai/wireguard-ip";
/// What [`with_wireguard`] puts on a node. What somebody else put there does not count.
const WIREGUARD_KEY: &str = "wireguard.fairlead.dev/key";
const WIREGUARD_NEXT_KEY: &str = "wireguard.fairlead.dev/next-key";
const WIREGUARD_PORT: &str = "wireguard.fairlead.dev/port";

/// Why a node has no peer. The names are part of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkipReason {
    NodeNoPodCIDR,
    NodeNoWireguardIP,
    NodeNoPublicKey,
    NodePodCIDROutOfRange,
    NodePodCIDRDuplicate,
    NodePublicKeyDuplicate,
    NodeEndpointInvalid,
    WGIPInvalid,
    WGIPOutOfRange,
    WGIPDuplicate,
}

impl SkipReason {
    /// Returns whether the reason goes away by itself once Kilo and Kubernetes have set the node up.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::NodeNoPodCIDR | Self::NodeNoWireguardIP | Self::NodeNoPublicKey)
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A node that has no peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub node: String,
    pub reason: SkipReason,
    /// A sentence for people.
    pub message: String,
}

/// What a node says of itself, complete and well-formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MeshNode {
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) next_key: Option<String>,
    pub(crate) pod_networks: Vec<IpNet>,
    /// Kilo's interface has an address; ours needs none.
    pub(crate) wireguard_ip: Option<IpAddr>,
    pub(crate) endpoint: Option<PeerEndpoint>,
    /// Where the nodes of its own cluster reach it.
    pub(crate) inner_endpoint: Option<PeerEndpoint>,
    /// Whether somebody wants it to be a gateway rather than others.
    pub(crate) is_preferred: bool,
}

/// The annotation of a node that is to be a gateway rather than others.
pub(crate) const GATEWAY: &str = "fairlead.dev/mesh-gateway";

impl MeshNode {
    /// Reads a node of a cluster with these networks and this default WireGuard port. The first problem
    /// in the order in which a person would fix them is the one that is returned.
    pub(crate) fn read(
        node: &Node,
        plane: DataPlane,
        allowed: &[IpNet],
        port: u16,
    ) -> Result<Self, Skipped> {
        let name = node.name_any();
        let skip = |reason, message| Skipped { node: name.clone(), reason, message };
        let pod_networks = pod_networks(node, allowed).map_err(|(r, message)| skip(r, message))?;
        let wireguard_ip = match wireguard_ip(node, plane) {
            _ if plane == DataPlane::Wireguard => None,
            Some(Ok(ip)) => Some(ip),
            Some(Err(text)) => {
                let message = format!("annotation {WIREGUARD_IP} is {text:?}, not an address");
                return Err(skip(SkipReason::WGIPInvalid, message));
            }
            None => {
                let message = format!("Kilo has not set annotation {WIREGUARD_IP} yet");
                return Err(skip(SkipReason::NodeNoWireguardIP, message));
            }
        };
        if let Some(ip) = wireguard_ip
            && !allowed.iter().any(|network| network.contains(&ip))
        {
            let message = format!("its WireGuard address {ip} is in none of the allowedNetworks");
            return Err(skip(SkipReason::WGIPOutOfRange, message));
        }
        let Some(key) = public_key(node, plane) else {
            let message = match plane {
                DataPlane::Kilo => format!("Kilo has not set annotation {KEY} yet"),
                DataPlane::Wireguard => {
                    "its agent has not written its WireguardNode yet (mesh.wireguard)".to_owned()
                }
            };
            return Err(skip(SkipReason::NodeNoPublicKey, message));
        };
        let annotation = |name: &str| node.annotations().get(name);
        let (port, next_key) = match plane {
            DataPlane::Kilo => (port, None),
            DataPlane::Wireguard => {
                let own = annotation(WIREGUARD_PORT).and_then(|port| port.parse().ok());
                (own.unwrap_or(port), annotation(WIREGUARD_NEXT_KEY).cloned())
            }
        };
        let endpoint = declared(node, plane, port)
            .map_err(|malformed| skip(SkipReason::NodeEndpointInvalid, malformed))?;
        let inner = addresses(node, "InternalIP").min_by_key(IpAddr::is_ipv6);
        let inner = inner.map(|ip| PeerEndpoint::ip(ip, port));
        Ok(Self {
            name,
            key: key.to_owned(),
            next_key,
            pod_networks,
            wireguard_ip,
            inner_endpoint: inner.or_else(|| endpoint.clone()),
            endpoint,
            is_preferred: annotation(GATEWAY).is_some_and(|it| it == "true"),
        })
    }
}

/// Puts a node and what its agent says together. A node whose agent claimed blocks has their networks
/// instead of the pod CIDRs, which nothing uses then.
pub fn with_wireguard<'b>(
    mut node: Node,
    said: Option<&WireguardNode>,
    blocks: impl IntoIterator<Item = &'b AddressBlock>,
) -> Node {
    let annotations = node.metadata.annotations.get_or_insert_default();
    annotations.retain(|name, _| !name.starts_with("wireguard.fairlead.dev/"));
    if let Some(said) =
        said.filter(|said| said.spec.node == node.metadata.name.as_deref().unwrap_or_default())
    {
        let spec = &said.spec;
        annotations.insert(WIREGUARD_KEY.to_owned(), spec.public_key.clone());
        annotations.insert(WIREGUARD_PORT.to_owned(), spec.port.to_string());
        let next = spec.next_public_key.clone();
        annotations.extend(next.map(|key| (WIREGUARD_NEXT_KEY.to_owned(), key)));
    }
    let name = node.metadata.name.clone().unwrap_or_default();
    let own = blocks.into_iter().filter(|block| block.spec.node == name);
    // In the order of their names, whatever the order of the input.
    let own: BTreeMap<String, Vec<String>> = own
        .map(|block| {
            let ipv4 = block.spec.ipv4.iter().map(ToString::to_string);
            let ipv6 = block.spec.ipv6.iter().map(ToString::to_string);
            (block.name_any(), ipv4.chain(ipv6).collect())
        })
        .collect();
    if !own.is_empty() {
        let spec = node.spec.get_or_insert_default();
        spec.pod_cidr = None;
        spec.pod_cidrs = Some(own.into_values().flatten().collect());
    }
    node
}

pub(crate) fn public_key(node: &Node, plane: DataPlane) -> Option<&str> {
    let name = match plane {
        DataPlane::Kilo => KEY,
        DataPlane::Wireguard => WIREGUARD_KEY,
    };
    node.annotations().get(name).map(|key| key.trim()).filter(|key| !key.is_empty())
}

/// The address of Kilo's interface, whatever prefix it is written with; the text if it is no address.
pub(crate) fn wireguard_ip(node: &Node, plane: DataPlane) -> Option<Result<IpAddr, &str>> {
    if plane == DataPlane::Wireguard {
        return None;
    }
    let text = node.annotations().get(WIREGUARD_IP).filter(|text| !text.is_empty())?;
    let ip = text.parse::<IpNet>().map(|net| net.addr()).or_else(|_| text.parse::<IpAddr>());
    Some(ip.map_err(|_| text.as_str()))
}

pub(crate) fn internal_ips(node: &Node) -> Vec<IpAddr> {
    addresses(node, "InternalIP").collect()
}

fn pod_networks(node: &Node, allowed: &[IpNet]) -> Result<Vec<IpNet>, (SkipReason, String)> {
    let spec = node.spec.as_ref();
    let several = spec.and_then(|spec| spec.pod_cidrs.as_deref()).filter(|pods| !pods.is_empty());
    let one = spec.and_then(|spec| spec.pod_cidr.as_ref()).filter(|pods| !pods.is_empty());
    let texts = several.or(one.map(std::slice::from_ref)).unwrap_or_default();
    if texts.is_empty() {
        return Err((SkipReason::NodeNoPodCIDR, "it has no pod CIDR yet".to_owned()));
    }
    let parse = |text: &String| {
        let network = text.parse::<IpNet>().ok().map(|network| network.trunc());
        let network = network.filter(|pods| allowed.iter().any(|allowed| allowed.contains(pods)));
        network.ok_or_else(|| {
            let message = format!("its pod CIDR {text} is in none of the allowedNetworks");
            (SkipReason::NodePodCIDROutOfRange, message)
        })
    };
    texts.iter().map(parse).collect()
}
