//! From an attachment to a pair of interfaces that carries packets, and back.
//!
//! ```text
//! pod   eth0   ADDR/32, default via 169.254.1.1; ADDR6/128, default via fe80::1
//!   │          both gateways are permanent neighbours: the node's end
//! node  flXXX  no address; ADDR dev flXXX, ADDR6 dev flXXX, permanent neighbours: the pod's end
//! ```
//!
//! Layer 3 only: no bridge, no ARP, no duplicate address detection, nothing to settle. The node's
//! end has no address, since with the last address of a link the kernel silently drops its routes.
//!
//! Contract:
//! - [`Wiring::connect`] makes what is missing and leaves what is right: to call it twice is to call
//!   it once. If it fails, nothing of it is left; what could not be removed is told.
//! - [`Wiring::disconnect`] is done when nothing is left, whoever removed it; where nothing is, it
//!   costs one call.
//! - Names and hardware addresses are functions of the attachment's key alone.
//! - All calls block, and a call into the kernel cannot be taken back. Before each one the caller is
//!   told ([`Progress`]) and may say that nobody waits any more; the work is then undone.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use ipnet::IpNet;
use kernel::netlink::{
    self, Address, Change, End, Link, LinkRef, Mac, Neighbour, Netlink, Route, RouteKind, SetLink,
    Veth,
};
use kernel::netns::Namespace;
use sha2::{Digest, Sha256};

use crate::node::{Node, NodeError};
use crate::{Attachment, Key};

/// What a pod sends its packets to. Both are addresses that nobody has: the neighbour entry says
/// which interface is meant.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// Marks the routes that are ours, in any table.
pub const ROUTE_PROTOCOL: u8 = 119;
pub const MAIN_TABLE: u32 = 254;

/// The steps, as [`Progress`] is told and as metrics call them.
pub mod step {
    pub const CREATE: &str = "create-veth";
    pub const ENTER: &str = "open-netns";
    pub const CONFIGURE: &str = "configure-pod";
    pub const ROUTE: &str = "route-pod";
    pub const DELETE: &str = "delete-veth";

    pub const ALL: [&str; 5] = [CREATE, ENTER, CONFIGURE, ROUTE, DELETE];
}

/// Told before each step. Its caller may be gone by then.
pub trait Progress: Sync {
    fn step(&self, name: &'static str) -> Result<(), Abandoned>;
}

/// Nobody waits for the result any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody waits for it any more")]
pub struct Abandoned;

/// For who does not want to know.
impl Progress for () {
    fn step(&self, _: &'static str) -> Result<(), Abandoned> {
        Ok(())
    }
}

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Wiring {
    node: Node,
    mtu: u32,
}

/// What a pod got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wired {
    pub host_interface: String,
    pub host_mac: Mac,
    pub pod_interface: String,
    pub pod_mac: Mac,
    pub mtu: u32,
    pub gateway_v4: Option<Ipv4Addr>,
    pub gateway_v6: Option<Ipv6Addr>,
}

#[derive(Debug, thiserror::Error)]
#[error("{step} failed{}", left.as_ref().map(|left| format!(" and was not undone ({left})")).unwrap_or_default())]
pub struct WiringError {
    /// The step that it came to.
    pub step: &'static str,
    #[source]
    pub cause: Cause,
    /// Why something may be left, if so.
    pub left: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Kernel(#[from] netlink::Error),
    #[error("cannot enter the network namespace")]
    Enter(#[source] io::Error),
    #[error("the network namespace has an interface {0} already, which is not ours; remove it")]
    Taken(String),
}

/// What is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("interface {0} is gone")]
    NoLink(String),
    #[error("interface {0} is down")]
    Down(String),
    #[error("interface {0} is not the other end of {1}")]
    Strange(String, String),
    #[error("interface {link} has no address {address}")]
    NoAddress { link: String, address: IpAddr },
    #[error("{0} has no route to {1}")]
    NoRoute(&'static str, IpNet),
    #[error("{0} has no neighbour entry for {1}")]
    NoNeighbour(&'static str, IpAddr),
    #[error("cannot look: {0}")]
    Unseen(String),
}

/// What a key's interfaces are called and how they are addressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub host_interface: String,
    pub host_mac: Mac,
    pub pod_mac: Mac,
}

impl Names {
    pub fn of(key: &Key) -> Self {
        let digest = Sha256::new()
            .chain_update(key.container.as_bytes())
            .chain_update([0])
            .chain_update(key.ifname.as_bytes())
            .finalize();
        let mac = |at: usize| {
            let mut mac = [0; 6];
            mac.copy_from_slice(&digest[at..at + 6]);
            // Not a group's, and administered locally.
            mac[0] = mac[0] & !1 | 2;
            Mac(mac)
        };
        Self { host_interface: host_interface(key), host_mac: mac(12), pod_mac: mac(18) }
    }
}

/// The node's interface for a key.
pub fn host_interface(key: &Key) -> String {
    let Key { container, ifname } = key.clone();
    cni::interface::host_interface(&cni::wire::Name { container, ifname })
}

impl Wiring {
    pub fn new(node: Node, mtu: u32) -> Self {
        Self { node, mtu }
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Blocks. Whether anybody still waits after its last step is for the caller to see.
    pub fn connect(
        &self,
        attachment: &Attachment,
        netns: &Namespace,
        progress: &dyn Progress,
    ) -> Result<Wired, WiringError> {
        let names = Names::of(&attachment.key);
        let mut at = step::CREATE;
        let mut made = None;
        let mut connect = || {
            let mut begin = |step| {
                at = step;
                progress.step(step)?;
                #[cfg(feature = "faults")]
                crate::faults::pass(&attachment.key, step);
                Ok::<_, Abandoned>(())
            };
            begin(step::CREATE)?;
            let (host, pod) = self.pair(attachment, &names, netns)?;
            made = Some(host);
            begin(step::ENTER)?;
            let mut inside = netns.netlink().map_err(Cause::Enter)?;
            begin(step::CONFIGURE)?;
            configure(&mut inside, netns, attachment, &names, pod)?;
            begin(step::ROUTE)?;
            self.node.netlink(|netlink| {
                netlink.apply(&host_side(attachment, &names, host))?;
                netlink.link(LinkRef::Index(host))
            })?;
            // Both ends are up from here on, but the kernel lets them send when it next comes to it,
            // and drops what is sent before: a pod's first packets. To look at an end (Linux 6.8)
            // makes it ready.
            inside.link(LinkRef::Index(pod))?;
            Ok(())
        };
        match connect() {
            Ok(()) => Ok(self.wired(attachment, names)),
            Err(cause) => {
                let left = made.and_then(|host| self.delete(LinkRef::Index(host)).err());
                Err(WiringError {
                    step: at,
                    cause,
                    left: left.map(|error| stallproof::sentence(&error)),
                })
            }
        }
    }

    /// Blocks.
    pub fn disconnect(
        &self,
        attachment: &Attachment,
        progress: &dyn Progress,
    ) -> Result<(), WiringError> {
        let failed = |cause| WiringError { step: step::DELETE, cause, left: None };
        progress.step(step::DELETE).map_err(|abandoned| failed(abandoned.into()))?;
        #[cfg(feature = "faults")]
        crate::faults::pass(&attachment.key, step::DELETE);
        self.delete(LinkRef::Name(&attachment.host_interface)).map_err(|error| failed(error.into()))
    }

    /// Blocks. What is at the node's side, and in the namespace if it is at hand.
    pub fn verify(
        &self,
        attachment: &Attachment,
        netns: Option<&Namespace>,
    ) -> Result<(), Vec<Fault>> {
        let names = Names::of(&attachment.key);
        let mut faults = Vec::new();
        let host = self.node.netlink(|netlink| netlink.link(LinkRef::Name(&names.host_interface)));
        let host = match host {
            Ok(Some(host)) => host,
            Ok(None) => return Err(vec![Fault::NoLink(names.host_interface)]),
            Err(error) => return Err(vec![Fault::Unseen(stallproof::sentence(&error))]),
        };
        let seen = self.node.netlink(|netlink| {
            look("the node", netlink, &host, &host_side(attachment, &names, host.index))
        });
        faults
            .extend(seen.unwrap_or_else(|error| vec![Fault::Unseen(stallproof::sentence(&error))]));
        if let Some(netns) = netns {
            faults.extend(verify_inside(attachment, &names, netns, &host));
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    fn wired(&self, attachment: &Attachment, names: Names) -> Wired {
        Wired {
            host_interface: names.host_interface,
            host_mac: names.host_mac,
            pod_interface: attachment.key.ifname.clone(),
            pod_mac: names.pod_mac,
            mtu: self.mtu,
            gateway_v4: attachment.ipv4.map(|_| GATEWAY_V4),
            gateway_v6: attachment.ipv6.map(|_| GATEWAY_V6),
        }
    }

    /// The numbers of both ends: of a new pair, or of the one that is there.
    fn pair(
        &self,
        attachment: &Attachment,
        names: &Names,
        netns: &Namespace,
    ) -> Result<(u32, u32), Cause> {
        match self.create(attachment, names, netns) {
            Err(Cause::Node(NodeError::Kernel(error))) if error.is_there() => {}
            other => return other,
        }
        let ifname = &attachment.key.ifname;
        let host =
            self.node.netlink(|netlink| netlink.link(LinkRef::Name(&names.host_interface)))?;
        let Some(host) = host else {
            return Err(Cause::Taken(ifname.clone()));
        };
        let mut inside = netns.netlink().map_err(Cause::Enter)?;
        let pod = inside.link(LinkRef::Name(ifname))?;
        if let Some(pod) = pod.filter(|pod| are_ends(&host, pod, names)) {
            return Ok((host.index, pod.index));
        }
        // Of an earlier namespace of the same container, or half of what it should be.
        self.delete(LinkRef::Index(host.index))?;
        match self.create(attachment, names, netns) {
            Err(Cause::Node(NodeError::Kernel(error))) if error.is_there() => {
                Err(Cause::Taken(ifname.clone()))
            }
            other => other,
        }
    }

    fn create(
        &self,
        attachment: &Attachment,
        names: &Names,
        netns: &Namespace,
    ) -> Result<(u32, u32), Cause> {
        let veth = Veth {
            name: &names.host_interface,
            mac: names.host_mac,
            mtu: self.mtu,
            peer: End {
                name: &attachment.key.ifname,
                mac: names.pod_mac,
                namespace: netns.as_fd(),
            },
        };
        let host = self.node.netlink(|netlink| netlink.create_veth(veth))?;
        match host.peer {
            Some(pod) => Ok((host.index, pod)),
            // The namespace is going away, and the pair with it.
            None => {
                self.delete(LinkRef::Index(host.index))?;
                Err(Cause::Enter(io::ErrorKind::NotFound.into()))
            }
        }
    }

    fn delete(&self, link: LinkRef<'_>) -> Result<(), NodeError> {
        match self.node.netlink(|netlink| netlink.apply(&[Change::Delete(link)])) {
            Err(NodeError::Kernel(error)) if error.is_absent() => Ok(()),
            other => other,
        }
    }
}

fn are_ends(host: &Link, pod: &Link, names: &Names) -> bool {
    host.peer == Some(pod.index)
        && pod.peer == Some(host.index)
        && host.mac == Some(names.host_mac)
        && pod.mac == Some(names.pod_mac)
}

/// An attachment's addresses, with what stands for "the way out" to each.
fn addresses(attachment: &Attachment) -> impl Iterator<Item = (IpAddr, IpAddr)> {
    let v4 = attachment.ipv4.map(|address| (address.into(), GATEWAY_V4.into()));
    let v6 = attachment.ipv6.map(|address| (address.into(), GATEWAY_V6.into()));
    v4.into_iter().chain(v6)
}

/// What is true of the node's end.
pub(crate) fn host_side<'a>(
    attachment: &'a Attachment,
    names: &Names,
    link: u32,
) -> Vec<Change<'a>> {
    let quiet = SetLink {
        alias: Some(&attachment.key.container),
        no_own_addresses: true,
        ..SetLink::default()
    };
    let up = SetLink { up: true, ..SetLink::default() };
    let on = LinkRef::Index(link);
    let mut changes = vec![Change::Set(on, quiet), Change::Set(on, up)];
    for (address, _) in addresses(attachment) {
        changes.push(Change::Neighbour(Neighbour { link, address, mac: names.pod_mac }));
        changes.push(Change::Route(Route {
            destination: address.into(),
            table: MAIN_TABLE,
            protocol: ROUTE_PROTOCOL,
            kind: RouteKind::Link(link),
        }));
    }
    changes
}

/// What is true of the pod's end.
fn pod_side<'a>(attachment: &Attachment, names: &Names, link: u32) -> Vec<Change<'a>> {
    let quiet = SetLink { no_own_addresses: true, ..SetLink::default() };
    let up = SetLink { up: true, ..SetLink::default() };
    let on = LinkRef::Index(link);
    let mut changes = vec![Change::Set(on, quiet), Change::Set(on, up)];
    for (address, gateway) in addresses(attachment) {
        changes.push(Change::Address(Address { link, address: address.into() }));
        changes.push(Change::Neighbour(Neighbour { link, address: gateway, mac: names.host_mac }));
        changes.push(Change::Route(Route {
            destination: everywhere(address),
            table: MAIN_TABLE,
            protocol: ROUTE_PROTOCOL,
            kind: RouteKind::On(link, gateway),
        }));
    }
    changes
}

fn everywhere(address: IpAddr) -> IpNet {
    match address {
        IpAddr::V4(_) => IpNet::V4(ipnet::Ipv4Net::default()),
        IpAddr::V6(_) => IpNet::V6(ipnet::Ipv6Net::default()),
    }
}

fn configure(
    inside: &mut Netlink,
    netns: &Namespace,
    attachment: &Attachment,
    names: &Names,
    pod: u32,
) -> Result<(), Cause> {
    let changes = pod_side(attachment, names, pod);
    let Err(error) = inside.apply(&changes) else {
        return Ok(());
    };
    if attachment.ipv6.is_none() {
        return Err(error.into());
    }
    // Some runtimes switch IPv6 off in every namespace they make. Who has an IPv6 address wants it.
    let switch = format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", attachment.key.ifname);
    let switch_on = || {
        let off = std::fs::read_to_string(&switch).is_ok_and(|value| value.trim_end() == "1");
        off && std::fs::write(&switch, "0").is_ok()
    };
    if !netns.run_in(switch_on).map_err(Cause::Enter)? {
        return Err(error.into());
    }
    Ok(inside.apply(&changes)?)
}

fn verify_inside(
    attachment: &Attachment,
    names: &Names,
    netns: &Namespace,
    host: &Link,
) -> Vec<Fault> {
    let ifname = &attachment.key.ifname;
    let mut inside = match netns.netlink() {
        Ok(inside) => inside,
        Err(error) => return vec![Fault::Unseen(error.to_string())],
    };
    match inside.link(LinkRef::Name(ifname)) {
        Ok(Some(pod)) if are_ends(host, &pod, names) => {
            let wanted = pod_side(attachment, names, pod.index);
            look("the pod", &mut inside, &pod, &wanted)
                .unwrap_or_else(|error| vec![Fault::Unseen(stallproof::sentence(&error))])
        }
        Ok(Some(_)) => vec![Fault::Strange(ifname.clone(), names.host_interface.clone())],
        Ok(None) => vec![Fault::NoLink(ifname.clone())],
        Err(error) => vec![Fault::Unseen(stallproof::sentence(&error))],
    }
}

/// Which of `wanted` is not so.
fn look(
    whose: &'static str,
    netlink: &mut Netlink,
    link: &Link,
    wanted: &[Change<'_>],
) -> Result<Vec<Fault>, netlink::Error> {
    let addresses = netlink.addresses(link.index)?;
    let neighbours = netlink.neighbours(Some(link.index))?;
    let routes = netlink.routes(MAIN_TABLE)?;
    let fault = |change: &Change<'_>| match change {
        Change::Set(_, SetLink { up: true, .. }) if !link.up => {
            Some(Fault::Down(link.name.clone()))
        }
        Change::Address(wanted) if !addresses.contains(wanted) => {
            Some(Fault::NoAddress { link: link.name.clone(), address: wanted.address.addr() })
        }
        Change::Neighbour(wanted) if !neighbours.contains(wanted) => {
            Some(Fault::NoNeighbour(whose, wanted.address))
        }
        Change::Route(wanted) if !routes.contains(wanted) => {
            Some(Fault::NoRoute(whose, wanted.destination))
        }
        _ => None,
    };
    Ok(wanted.iter().filter_map(fault).collect())
}

#[cfg(test)]
mod tests;
