//! `ForeignPods`: egress for pods that another CNI plugin connects.
//!
//! ```text
//! API server  pod: annotations, status.podIPs ─► clients, known addresses
//! prerouting  from a link to other machines ─► as ever
//!             from a pod network, of no class and not known ─► mark of the hold
//! ```
//!
//! Contract:
//! - Nobody asks this agent before a pod starts. So an address of a pod network sends nothing to destinations
//!   of egresses until the API server has told whose it is and what that pod chose, and the kernel has it.
//! - The plugin, its configuration and its rules are left alone.
//! - Where packets do not pass the node's routing nothing can be done: that is said, and nothing is made.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use kernel::netlink::{self, Link, Netlink, RouteKind};
use kernel::nftables::Nftables;
use objects::{Id, Objects, Watched, Within};
use stallproof::snapshot::{Changes, View};
use stallproof::{Snapshot, Tasks};

use super::hold;
use super::kernel_state::EgressError;
use super::plan::{Client, EgressInputs, ForeignNetwork};
use super::reconciler::chosen;
use crate::node::Node;
use crate::wiring::MAIN_TABLE;

/// A pod of this node that has, or will have, an address of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ForeignPod {
    pub(super) addresses: Vec<IpAddr>,
    /// `NAMESPACE/NAME` of each.
    pub(super) egresses: Vec<String>,
    /// It is being deleted: its address may be another pod's already.
    pub(super) ending: bool,
}

pub(super) type Pods = Watched<Id, ForeignPod>;

/// A pod that cannot use an egress because of how it is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bypass {
    pub(super) egress: String,
    pub(super) why: String,
}

/// A handle; clones follow the same pods.
#[derive(Clone, Debug)]
pub(crate) struct ForeignPods {
    pods: Snapshot<Pods>,
    networks: Vec<IpNet>,
}

/// One look at the pods.
pub(super) struct PodsSeen {
    pods: View<Pods>,
    networks: Vec<IpNet>,
}

impl ForeignPods {
    /// Follows the pods of the node of this name until `tasks` stops. Pods of all nodes have addresses of these
    /// networks.
    pub(crate) fn watch(
        name: &str,
        networks: Vec<IpNet>,
        objects: &Objects,
        tasks: &Tasks,
    ) -> Self {
        let here = Within { node: Some(name.to_owned()), ..Within::default() };
        Self { pods: objects.watched_as(here, tasks, |pod| read(&pod)), networks }
    }

    pub(super) fn look(&self) -> Option<PodsSeen> {
        let pods = self.pods.load();
        pods.synced.then(|| PodsSeen { pods, networks: self.networks.clone() })
    }

    pub(super) fn subscribe(&self) -> Changes<Pods> {
        self.pods.subscribe()
    }

    pub(super) fn without_address(&self) -> usize {
        let new = |pod: &&ForeignPod| pod.addresses.is_empty() && !pod.ending;
        self.pods.read(|pods| pods.values().filter(new).count())
    }
}

/// Reads a pod; none of one that has no network of its own, or is over and only remembered.
fn read(pod: &Pod) -> Option<ForeignPod> {
    if pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false) {
        return None;
    }
    let status = pod.status.as_ref();
    if matches!(status.and_then(|it| it.phase.as_deref()), Some("Succeeded" | "Failed")) {
        return None;
    }
    let several = status.and_then(|it| it.pod_ips.as_ref()).into_iter().flatten().map(|it| &it.ip);
    let one = status.and_then(|it| it.pod_ip.as_ref());
    let addresses: BTreeSet<IpAddr> = several.chain(one).filter_map(|ip| ip.parse().ok()).collect();
    Some(ForeignPod {
        addresses: addresses.into_iter().collect(),
        egresses: chosen(pod).unwrap_or_default(),
        ending: pod.metadata.deletion_timestamp.is_some(),
    })
}

impl PodsSeen {
    pub(super) fn networks(&self) -> &[IpNet] {
        &self.networks
    }

    /// Whose each address is: of two pods the one that stays, since the plugin gives the address of one that
    /// ends to the next.
    fn owners(&self) -> BTreeMap<IpAddr, (&Id, &ForeignPod)> {
        let mut owners: BTreeMap<IpAddr, (&Id, &ForeignPod)> = BTreeMap::new();
        for (id, pod) in self.pods.iter() {
            for address in &pod.addresses {
                let owner = owners.entry(*address).or_insert((id, pod));
                if owner.1.ending && !pod.ending {
                    *owner = (id, pod);
                }
            }
        }
        owners
    }

    pub(super) fn clients(&self) -> Vec<Client> {
        let mut clients: BTreeMap<&Id, Client> = BTreeMap::new();
        for (address, (id, pod)) in self.owners() {
            if pod.egresses.is_empty() {
                continue;
            }
            let client = clients.entry(id).or_insert_with(|| Client {
                namespace: id.namespace.clone().unwrap_or_default(),
                pod: id.name.clone(),
                addresses: Vec::new(),
                egresses: pod.egresses.clone(),
            });
            client.addresses.push(address);
        }
        clients.into_values().collect()
    }

    /// Adds to the inputs what the node's links are, and finds pods whose packets go past the node. Blocks.
    pub(super) fn read_node(
        &self,
        node: &Node,
        inputs: &mut EgressInputs,
        bypasses: &mut Vec<Bypass>,
    ) -> Result<(), EgressError> {
        let links = node.netlink(Netlink::links)?;
        let ebpf = |link: &Link| {
            let plugin = link.ebpf_datapath()?;
            Some(EgressError::Ebpf { plugin, link: link.name.clone() })
        };
        if let Some(error) = links.iter().find_map(ebpf) {
            return Err(error);
        }
        let owners = self.owners();
        inputs.foreign = Some(ForeignNetwork {
            networks: self.networks.clone(),
            known: owners.keys().copied().collect(),
            outside: node.netlink(|netlink| outside(netlink, &links))?,
        });
        let choosing =
            owners.iter().filter(|(_, (_, pod))| !pod.egresses.is_empty() && !pod.ending);
        for (address, (id, pod)) in choosing {
            let why = match self.networks.iter().any(|net| net.contains(address)) {
                true => node.netlink(|netlink| bypass(netlink, *address, &links))?,
                false => Some(format!(
                    "its address {address} is in none of net.pod-networks: before its choice was known \
                     it left by itself; add its network there"
                )),
            };
            for egress in why.iter().flat_map(|_| &pod.egresses) {
                let why = why.as_deref().unwrap_or_default();
                let why = format!("pod {id} chose egress {egress}: {why}");
                bypasses.push(Bypass { egress: egress.clone(), why });
            }
        }
        Ok(())
    }

    /// Removes what an agent left that connected the pods itself. In the namespace of the node. Blocks.
    pub(super) fn settle(&self) -> Result<(), EgressError> {
        hold::remove(&mut Nftables::open().map_err(EgressError::Socket)?)?;
        Ok(())
    }
}

/// Kinds of links that lead to pods, as far as a node can see.
fn may_lead_to_pods(link: &Link) -> bool {
    matches!(link.kind.as_deref(), Some("veth" | "bridge" | "tun"))
}

/// The names of links that lead to other machines: those by which a route has a next hop, whatever they are (in
/// a node that is a container itself the uplink is a veth), and those of kinds that pods are not behind.
fn outside(netlink: &mut Netlink, links: &[Link]) -> Result<BTreeSet<String>, netlink::Error> {
    let mut leading: BTreeSet<u32> = netlink.default_link()?.into_iter().collect();
    let addresses = netlink.all_addresses()?;
    let mut elsewhere = BTreeSet::new();
    for route in netlink.routes(MAIN_TABLE)? {
        match route.kind {
            RouteKind::On(link, _) => drop(leading.insert(link)),
            RouteKind::Tunnel(tunnel) => drop(leading.insert(tunnel.link)),
            RouteKind::Via(gateway) => {
                match addresses.iter().find(|it| it.address.contains(&gateway)) {
                    Some(own) => drop(leading.insert(own.link)),
                    None => drop(elsewhere.insert(gateway)),
                }
            }
            _ => {}
        }
    }
    for gateway in elsewhere {
        leading.extend(netlink.link_towards(gateway)?);
    }
    let outside = links.iter().filter(|it| leading.contains(&it.index) || !may_lead_to_pods(it));
    Ok(outside.map(|link| link.name.clone()).collect())
}

/// Why packets of a pod with this address do not pass the node's routing, if they do not.
fn bypass(
    netlink: &mut Netlink,
    address: IpAddr,
    links: &[Link],
) -> Result<Option<String>, netlink::Error> {
    let way = netlink.link_towards(address)?;
    let uplink = netlink.default_link()?;
    let link = way.and_then(|way| links.iter().find(|link| link.index == way));
    Ok(match link {
        Some(link) if Some(link.index) != uplink && may_lead_to_pods(link) => None,
        Some(link) => Some(format!(
            "the way to its address {address} is the link {}, so its packets do not pass this node's routing, \
             as those of pods on macvlan, ipvlan or SR-IOV links; give it a veth",
            link.name
        )),
        None => Some(format!(
            "this node has no route to its address {address}, so its packets do not pass this node's \
             routing; give it a veth that the node routes to"
        )),
    })
}

#[cfg(test)]
mod tests;
