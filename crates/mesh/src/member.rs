//! One node as a member of a mesh: its key, the routes that are its own, its endpoint; or why it
//! cannot be one.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::endpoint::Endpoint;

const KEY: &str = "kilo.squat.ai/key";
const WIREGUARD_IP: &str = "kilo.squat.ai/wireguard-ip";
const INTERNAL: &str = "InternalIP";

/// Why a node has no peer. The names are a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
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

impl Reason {
    /// Whether it passes by itself, once Kilo and Kubernetes have set the node up.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::NodeNoPodCIDR | Self::NodeNoWireguardIP | Self::NodeNoPublicKey)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub node: String,
    pub reason: Reason,
    /// A sentence for people.
    pub message: String,
}

/// What a node says of itself, complete and well-formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) node: String,
    pub(crate) key: String,
    pub(crate) pods: Vec<IpNet>,
    pub(crate) wireguard: IpAddr,
    pub(crate) internal: Vec<IpAddr>,
    pub(crate) endpoint: Option<Endpoint>,
}

impl Member {
    /// Asked in an order that names the first thing to mend.
    pub(crate) fn read(node: &Node, allowed: &[IpNet], port: u16) -> Result<Self, Skipped> {
        let name = node.name_any();
        let skip = |reason, message| Skipped { node: name.clone(), reason, message };
        let pods = pods(node, allowed).map_err(|(reason, message)| skip(reason, message))?;
        let wireguard = match wireguard(node) {
            Some(Ok(ip)) => ip,
            Some(Err(text)) => {
                let message = format!("annotation {WIREGUARD_IP} is {text:?}, not an address");
                return Err(skip(Reason::WGIPInvalid, message));
            }
            None => {
                let message = format!("Kilo has not set annotation {WIREGUARD_IP} yet");
                return Err(skip(Reason::NodeNoWireguardIP, message));
            }
        };
        if !allowed.iter().any(|network| network.contains(&wireguard)) {
            let message =
                format!("its WireGuard address {wireguard} is in none of the allowedNetworks");
            return Err(skip(Reason::WGIPOutOfRange, message));
        }
        let Some(key) = key(node) else {
            let message = format!("Kilo has not set annotation {KEY} yet");
            return Err(skip(Reason::NodeNoPublicKey, message));
        };
        let endpoint = Endpoint::of(node, port)
            .map_err(|malformed| skip(Reason::NodeEndpointInvalid, malformed.to_string()))?;
        let internal = internal(node);
        Ok(Self { node: name, key: key.to_owned(), pods, wireguard, internal, endpoint })
    }
}

pub(crate) fn key(node: &Node) -> Option<&str> {
    node.annotations().get(KEY).map(|key| key.trim()).filter(|key| !key.is_empty())
}

/// The host's address, whatever prefix it is written with; the text where there is none in it.
pub(crate) fn wireguard(node: &Node) -> Option<Result<IpAddr, &str>> {
    let text = node.annotations().get(WIREGUARD_IP).filter(|text| !text.is_empty())?;
    let ip = text.parse::<IpNet>().map(|net| net.addr()).or_else(|_| text.parse::<IpAddr>());
    Some(ip.map_err(|_| text.as_str()))
}

pub(crate) fn internal(node: &Node) -> Vec<IpAddr> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    addresses
        .into_iter()
        .flatten()
        .filter(|address| address.type_ == INTERNAL)
        .filter_map(|address| address.address.parse().ok())
        .collect()
}

fn pods(node: &Node, allowed: &[IpNet]) -> Result<Vec<IpNet>, (Reason, String)> {
    let spec = node.spec.as_ref();
    let several = spec.and_then(|spec| spec.pod_cidrs.as_ref()).filter(|pods| !pods.is_empty());
    let one = spec.and_then(|spec| spec.pod_cidr.as_ref()).filter(|pods| !pods.is_empty());
    let texts: Vec<&String> =
        several.map_or_else(|| one.into_iter().collect(), |s| s.iter().collect());
    if texts.is_empty() {
        return Err((Reason::NodeNoPodCIDR, "it has no pod CIDR yet".to_owned()));
    }
    let mut pods = Vec::with_capacity(texts.len());
    for text in texts {
        let network = text.parse::<IpNet>().ok().map(|network| network.trunc());
        match network.filter(|pods| allowed.iter().any(|network| network.contains(pods))) {
            Some(network) => pods.push(network),
            None => {
                let message = format!("its pod CIDR {text} is in none of the allowedNetworks");
                return Err((Reason::NodePodCIDROutOfRange, message));
            }
        }
    }
    Ok(pods)
}
