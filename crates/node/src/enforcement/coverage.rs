//! Which pods' packets netfilter does not see: what cannot be judged is not said to be enforced.
//!
//! Pods of our own network each have a veth that is routed. Pods of another plugin may have anything: a
//! link in a pod's own namespace is not seen from the node, but the way to the pod's address is. It leads
//! by a veth or a bridge, or else its packets take a way that netfilter is not on. Which plugin says to
//! be there counts for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use kernel::netlink::{Link, Netlink};

/// Who wires the pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodNetwork {
    /// This agent: each pod has a veth that is routed.
    #[default]
    Own,
    /// Another plugin: its pods may have anything.
    Foreign,
}

/// A way of packets past netfilter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bypass {
    /// Programs of this plugin forward packets between pods below netfilter.
    Ebpf { plugin: &'static str, link: String },
    /// Pods that such a link leads to reach each other and the network without the node: they are on
    /// macvlan or ipvlan links, or on functions of a card. Without a kind it is a card.
    Link { kind: Option<String>, link: String },
    /// No route of the node leads to the pods: they are on a network of their own.
    NoRoute,
    /// Pods on one bridge reach each other within it.
    Bridge { link: String, sysctl: &'static str },
}

impl fmt::Display for Bypass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ebpf { plugin, link } => write!(
                f,
                "{plugin} forwards packets by eBPF (link {link}), which netfilter does not see: \
                 leave policies to it, or have it forward by the kernel"
            ),
            Self::Link { kind: Some(kind), link } => write!(
                f,
                "the way to its pods is {link}, a {kind} link, past the node's netfilter: give \
                 them veth links"
            ),
            Self::Link { kind: None, link } => write!(
                f,
                "the way to its pods is the network card {link}: they are on macvlan or ipvlan \
                 links, or have functions of a card (SR-IOV), and do not pass the node's \
                 netfilter: give them veth links"
            ),
            Self::NoRoute => f.write_str(
                "the node has no route to its pods: they do not pass its netfilter: give them \
                 veth links that the node routes to",
            ),
            Self::Bridge { link, sysctl } => write!(
                f,
                "pods on the bridge {link} reach each other past netfilter: set {sysctl}=1 \
                 (module br_netfilter)"
            ),
        }
    }
}

/// Pods that are not judged, by one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncovered {
    pub bypass: Bypass,
    /// Namespace and name.
    pub pods: BTreeSet<String>,
}

impl fmt::Display for Uncovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.pods.first().map_or("", String::as_str);
        match self.pods.len() {
            0 | 1 => write!(f, "{first} is not judged: {}", self.bypass),
            2 => write!(f, "{first} and another pod are not judged: {}", self.bypass),
            many => write!(f, "{first} and {} more pods are not judged: {}", many - 1, self.bypass),
        }
    }
}

/// What keeps all pods' packets from netfilter, in the network namespace of the calling thread.
pub fn of_node() -> io::Result<Vec<Bypass>> {
    let links = Netlink::open()?.links().map_err(io::Error::other)?;
    let found = links.iter().filter_map(|link| {
        let plugin = link.ebpf_datapath()?;
        Some(Bypass::Ebpf { plugin, link: link.name.clone() })
    });
    Ok(found.collect())
}

/// Which of these pods of another plugin are not judged, in the network namespace of the calling thread.
pub fn of_pods<'a>(
    pods: impl IntoIterator<Item = (IpAddr, &'a str)>,
) -> io::Result<Vec<Uncovered>> {
    let mut netlink = Netlink::open()?;
    let links = netlink.links().map_err(io::Error::other)?;
    // Whatever it is, and in a node that is a container itself it is a veth, no pod is behind it.
    let uplink = netlink.default_link().map_err(io::Error::other)?;
    let mut found: BTreeMap<Bypass, BTreeSet<String>> = BTreeMap::new();
    for (address, pod) in pods {
        let way = netlink.link_towards(address).map_err(io::Error::other)?;
        let way = way.and_then(|way| links.iter().find(|link| link.index == way));
        let bypass = match way {
            Some(link) if Some(link.index) == uplink => {
                Some(Bypass::Link { kind: None, link: link.name.clone() })
            }
            Some(link) => of_link(link, address, &links),
            None => Some(Bypass::NoRoute),
        };
        if let Some(bypass) = bypass {
            found.entry(bypass).or_default().insert(pod.to_owned());
        }
    }
    Ok(found.into_iter().map(|(bypass, pods)| Uncovered { bypass, pods }).collect())
}

/// Why packets of a pod behind this link are not judged, if they are not.
fn of_link(link: &Link, address: IpAddr, links: &[Link]) -> Option<Bypass> {
    let name = link.name.clone();
    match link.kind.as_deref() {
        Some("veth" | "tun") => None,
        Some("bridge") => {
            // What the only port of a bridge sends leaves by the node.
            let ports = links.iter().filter(|it| it.bridge == Some(link.index)).count();
            let sysctl = match address {
                IpAddr::V4(_) => "net.bridge.bridge-nf-call-iptables",
                IpAddr::V6(_) => "net.bridge.bridge-nf-call-ip6tables",
            };
            let file = Path::new("/proc/sys").join(sysctl.replace('.', "/"));
            let seen = fs::read_to_string(file).is_ok_and(|it| it.trim() == "1");
            (ports > 1 && !seen).then_some(Bypass::Bridge { link: name, sysctl })
        }
        kind => Some(Bypass::Link { kind: kind.map(str::to_owned), link: name }),
    }
}

#[cfg(test)]
mod tests;
