//! Which pods' packets netfilter does not see: what cannot be judged is not said to be enforced.
//!
//! Looked at by links and sysctls of the node; which CNI plugin says to be there counts for nothing.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use kernel::netlink::{Link, Netlink};

/// Who wires the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodNetwork {
    /// This agent: each pod has a veth that is routed.
    Own,
    /// Another plugin: its pods may have anything.
    Foreign,
}

/// A way of packets past netfilter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bypass {
    /// Programs of this plugin forward packets between pods below netfilter.
    Ebpf { plugin: &'static str, link: String },
    /// Pods on such links reach each other and the network without the host.
    Sublink { kind: String, link: String },
    /// Pods with functions of such a card of their own do.
    HardwareFunctions { link: String, count: u32 },
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
            Self::Sublink { kind, link } => write!(
                f,
                "pods on {kind} links ({link}) do not pass the host's netfilter: give them veth links"
            ),
            Self::HardwareFunctions { link, count } => write!(
                f,
                "{link} has {count} virtual functions (SR-IOV), whose pods do not pass netfilter: \
                 give them veth links"
            ),
            Self::Bridge { link, sysctl } => write!(
                f,
                "pods on the bridge {link} reach each other past netfilter: set {sysctl}=1 \
                 (module br_netfilter)"
            ),
        }
    }
}

/// Looks at the network namespace of the calling thread.
pub fn bypasses(network: PodNetwork) -> io::Result<Vec<Bypass>> {
    let links = Netlink::open()?.links().map_err(io::Error::other)?;
    let mut found: Vec<_> = links.iter().filter_map(|link| of_link(link, network)).collect();
    if network == PodNetwork::Foreign {
        for link in links.iter().filter(|link| link.kind.is_none()) {
            let file = Path::new("/sys/class/net").join(&link.name).join("device/sriov_numvfs");
            let count = fs::read_to_string(file).ok().and_then(|it| it.trim().parse().ok());
            if let Some(count) = count.filter(|count| *count > 0) {
                found.push(Bypass::HardwareFunctions { link: link.name.clone(), count });
            }
        }
    }
    Ok(found)
}

fn of_link(link: &Link, network: PodNetwork) -> Option<Bypass> {
    let name = || link.name.clone();
    let plugin = match link.name.as_str() {
        "cilium_host" | "cilium_net" => Some("Cilium"),
        "bpfin.cali" | "bpfout.cali" => Some("Calico's eBPF datapath"),
        _ => None,
    };
    if let Some(plugin) = plugin {
        return Some(Bypass::Ebpf { plugin, link: name() });
    }
    if network == PodNetwork::Own {
        return None;
    }
    match link.kind.as_deref() {
        Some(kind @ ("ipvlan" | "macvlan" | "netkit")) => {
            Some(Bypass::Sublink { kind: kind.to_owned(), link: name() })
        }
        Some("bridge") if carries_pods(&link.name) => {
            let unseen = |sysctl: &&&'static str| {
                let file = Path::new("/proc/sys").join(sysctl.replace('.', "/"));
                fs::read_to_string(file).ok().is_none_or(|it| it.trim() != "1")
            };
            let sysctls =
                ["net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"];
            let sysctl = sysctls.iter().find(unseen)?;
            Some(Bypass::Bridge { link: name(), sysctl })
        }
        _ => None,
    }
}

/// Whether two links or more are on the bridge: what one alone sends leaves by the host.
fn carries_pods(bridge: &str) -> bool {
    let ports = Path::new("/sys/class/net").join(bridge).join("brif");
    fs::read_dir(ports).is_ok_and(|ports| ports.count() >= 2)
}

#[cfg(test)]
mod tests;
