//! `KiloNode`: what Kilo and Kubernetes have set on a node, or why the node cannot have a peer.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::endpoint::{addresses, declared};
use crate::peer::PeerEndpoint;

const KEY: &str = "kilo.squat.ai/key";
const WIREGUARD_IP: &str = "kilo.squat.ai/wireguard-ip";

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
pub(crate) struct KiloNode {
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) pod_networks: Vec<IpNet>,
    pub(crate) wireguard_ip: IpAddr,
    pub(crate) endpoint: Option<PeerEndpoint>,
}

impl KiloNode {
    /// Reads a node of a cluster with these networks and this default WireGuard port. The first problem
    /// in the order in which a person would fix them is the one that is returned.
    pub(crate) fn read(node: &Node, allowed: &[IpNet], port: u16) -> Result<Self, Skipped> {
        let name = node.name_any();
        let skip = |reason, message| Skipped { node: name.clone(), reason, message };
        let pod_networks = pod_networks(node, allowed).map_err(|(r, message)| skip(r, message))?;
        let wireguard_ip = match wireguard_ip(node) {
            Some(Ok(ip)) => ip,
            Some(Err(text)) => {
                let message = format!("annotation {WIREGUARD_IP} is {text:?}, not an address");
                return Err(skip(SkipReason::WGIPInvalid, message));
            }
            None => {
                let message = format!("Kilo has not set annotation {WIREGUARD_IP} yet");
                return Err(skip(SkipReason::NodeNoWireguardIP, message));
            }
        };
        if !allowed.iter().any(|network| network.contains(&wireguard_ip)) {
            let message =
                format!("its WireGuard address {wireguard_ip} is in none of the allowedNetworks");
            return Err(skip(SkipReason::WGIPOutOfRange, message));
        }
        let Some(key) = public_key(node) else {
            let message = format!("Kilo has not set annotation {KEY} yet");
            return Err(skip(SkipReason::NodeNoPublicKey, message));
        };
        let endpoint = declared(node, port)
            .map_err(|malformed| skip(SkipReason::NodeEndpointInvalid, malformed))?;
        Ok(Self { name, key: key.to_owned(), pod_networks, wireguard_ip, endpoint })
    }
}

pub(crate) fn public_key(node: &Node) -> Option<&str> {
    node.annotations().get(KEY).map(|key| key.trim()).filter(|key| !key.is_empty())
}

/// The node's WireGuard address, whatever prefix it is written with; the text if it is no address.
pub(crate) fn wireguard_ip(node: &Node) -> Option<Result<IpAddr, &str>> {
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
