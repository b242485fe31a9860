//! `Wiring`: makes the pair of interfaces that carries a pod's packets, and removes it.
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
//! Names are functions of the attachment's key, or of its pod where they are to be Calico's
//! ([`InterfaceNaming`]); hardware addresses are functions of the key, unless one was chosen. An interface
//! keeps the name that the journal has for it. Calico's own interfaces may have such names too: those are ours
//! that are in [`PODS`]. [`Datapath`] says what the calls promise.

mod names;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ipnet::IpNet;
use kernel::netlink::{
    self, Address, Change, Link, LinkRef, Neighbour, Netlink, Route, RouteKind, SetLink, Veth,
    VethPeer,
};
use kernel::netns::{self, Namespace};
use kernel::sysctl;
use stallproof::Snapshot;

use crate::datapath::{Abandoned, Coming, Datapath, PodInterfaces, PodPolicies, Progress};
use crate::foreign::{self, ForeignAddresses};
use crate::node::{Node, NodeError};
use crate::pool::Pools;
use crate::{Attachment, AttachmentKey, NamespaceId, Pod};

pub use cni::interface::host_interface;
use names::LEAVING;
pub use names::{InterfaceNames, InterfaceNaming, PODS};
pub(crate) use names::{is_ours, own_link};

/// The gateways of a pod. Nobody has these addresses: the neighbour entry says which interface is meant.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The routing protocol number that marks Fairlead's routes, in any table.
pub const ROUTE_PROTOCOL: u8 = 119;
pub const MAIN_TABLE: u32 = 254;

/// The names of the steps, in [`Progress`] and in metrics.
pub mod step {
    pub const CREATE: &str = "create-veth";
    pub const ENTER: &str = "open-netns";
    pub const ADDRESS: &str = "assign";
    pub const CONFIGURE: &str = "configure-pod";
    pub const RECORD: &str = "journal";
    pub const ROUTE: &str = "route-pod";
    pub const DELETE: &str = "delete-veth";

    pub const ALL: [&str; 7] = [CREATE, ENTER, ADDRESS, CONFIGURE, RECORD, ROUTE, DELETE];
}

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Wiring {
    node: Node,
    mtu: PodMtu,
    naming: InterfaceNaming,
    /// Who decides about pods: none where no policies are enforced and no egress may be chosen.
    policies: Vec<Arc<dyn PodPolicies>>,
    /// What pods of another plugin have on this node, as it was last seen.
    foreign: Snapshot<ForeignAddresses>,
}

/// The MTU of pods' interfaces: less where a pool's packets may take the overlay.
#[derive(Clone, Debug)]
pub struct PodMtu {
    direct: u32,
    overlaid: u32,
    /// None where there is no overlay.
    pools: Option<Snapshot<Pools>>,
}

impl PodMtu {
    pub fn of_pools(direct: u32, overlaid: u32, pools: Snapshot<Pools>) -> Self {
        Self { direct, overlaid, pools: Some(pools) }
    }

    /// A pool that is not known, as while the store is away after a restart, gets what is right for any.
    fn of(&self, pool: &str) -> u32 {
        let Some(pools) = &self.pools else { return self.direct };
        let direct = pools
            .read(|pools| pools.get(pool).is_some_and(|it| it.object.spec.overlay.is_direct()));
        if direct { self.direct } else { self.overlaid }
    }
}

impl From<u32> for PodMtu {
    fn from(mtu: u32) -> Self {
        Self { direct: mtu, overlaid: mtu, pools: None }
    }
}

/// Kernel work that did not succeed.
#[derive(Debug, thiserror::Error)]
#[error("{step} failed{}", self.left_told())]
pub struct WiringError {
    /// The step that failed.
    pub step: &'static str,
    #[source]
    pub cause: Cause,
    /// Why what was made could not be removed again, if so.
    pub left: Option<Box<NodeError>>,
}

impl WiringError {
    fn left_told(&self) -> String {
        let told = |left: &NodeError| stallproof::sentence(left);
        let left = self.left.as_deref().map(told);
        left.map(|left| format!(" and was not undone ({left})")).unwrap_or_default()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Kernel(#[from] netlink::Error),
    #[error("the pod's network namespace cannot be entered")]
    Enter(#[source] io::Error),
    #[error("policies cannot decide about the pod: {0}")]
    Policies(String),
    #[error("there is no address for it")]
    NoAddress,
    #[error("{address} is the address of a pod of another plugin, behind {link}")]
    Foreign { address: IpAddr, link: String },
    #[error("the network namespace has an interface {0} already, which is not ours; remove it")]
    Taken(String),
    #[error(
        "the node has an interface {0} already, of another container or another plugin; it goes with its \
         container, and the runtime tries again"
    )]
    NameTaken(String),
}

/// A difference between what was made and what is there.
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
    #[error("the kernel cannot be read: {0}")]
    Unseen(String),
}

impl Wiring {
    pub fn new(node: Node, mtu: impl Into<PodMtu>) -> Self {
        let (naming, policies) = (InterfaceNaming::default(), Vec::new());
        Self { node, mtu: mtu.into(), naming, policies, foreign: Snapshot::default() }
    }

    /// Gives these names to the interfaces of pods that come.
    #[must_use]
    pub fn named(self, naming: InterfaceNaming) -> Self {
        Self { naming, ..self }
    }

    /// Has these decide about pods, each from its first packet on.
    #[must_use]
    pub fn with_policies(
        mut self,
        policies: impl IntoIterator<Item = Arc<dyn PodPolicies>>,
    ) -> Self {
        self.policies.extend(policies);
        self
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Notes which addresses pods of another plugin have on this node.
    pub(crate) fn note_foreign(&self, found: ForeignAddresses) {
        self.foreign.publish(found);
    }

    /// Refuses addresses that a pod of another plugin has got meanwhile. Where none has any, as on most nodes,
    /// nothing is asked.
    fn refuse_foreign(&self, attachment: &Attachment) -> Result<(), Cause> {
        if self.foreign.read(ForeignAddresses::is_empty) {
            return Ok(());
        }
        let found = self.node.netlink(foreign::read)?;
        let taken = attachment.addresses().find_map(|it| Some((it, found.get(&it)?.clone())));
        self.foreign.publish(found);
        taken.map_or(Ok(()), |(address, link)| Err(Cause::Foreign { address, link }))
    }

    /// Returns the numbers of both ends: of a new pair, or of the one that is there.
    fn pair(
        &self,
        coming: &Coming<'_>,
        names: &InterfaceNames,
        netns: &Namespace,
    ) -> Result<(u32, u32), Cause> {
        match self.create(coming, names, netns) {
            Err(Cause::Node(NodeError::Kernel(error))) if error.already_exists() => {}
            other => return other,
        }
        let ifname = &coming.key.ifname;
        let host =
            self.node.netlink(|netlink| netlink.link(LinkRef::Name(&names.host_interface)))?;
        let Some(host) = host else {
            return Err(Cause::Taken(ifname.clone()));
        };
        // A name that follows from the key is nobody else's.
        if !cni::interface::is_ours(&host.name) && host.mac != Some(names.host_mac) {
            return Err(Cause::NameTaken(host.name));
        }
        let mut inside = netns.netlink().map_err(Cause::Enter)?;
        let pod = inside.link(LinkRef::Name(ifname))?;
        if let Some(pod) = pod.filter(|pod| are_ends(&host, pod, names)) {
            return Ok((host.index, pod.index));
        }
        // The pair belongs to an earlier namespace of the same container, or is half made.
        self.delete(LinkRef::Index(host.index))?;
        match self.create(coming, names, netns) {
            Err(Cause::Node(NodeError::Kernel(error))) if error.already_exists() => {
                Err(Cause::Taken(ifname.clone()))
            }
            other => other,
        }
    }

    fn create(
        &self,
        coming: &Coming<'_>,
        names: &InterfaceNames,
        netns: &Namespace,
    ) -> Result<(u32, u32), Cause> {
        let veth = Veth {
            name: &names.host_interface,
            mac: names.host_mac,
            mtu: self.mtu.of(coming.pool),
            group: Some(PODS),
            peer: VethPeer {
                name: &coming.key.ifname,
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

    fn release(&self, attachment: &Attachment) {
        self.policies.iter().for_each(|policies| policies.release(attachment));
    }

    /// Deletes an attachment's interface at the node's side, if it is there and ours.
    fn delete_of(&self, attachment: &Attachment) -> Result<(), NodeError> {
        match self.node.netlink(|netlink| own_link(netlink, attachment))? {
            Some(link) => self.delete(link),
            None => Ok(()),
        }
    }

    fn delete(&self, link: LinkRef<'_>) -> Result<(), NodeError> {
        match self.node.netlink(|netlink| netlink.apply(&[Change::Delete(link)])) {
            Err(NodeError::Kernel(error)) if error.not_found() => Ok(()),
            other => other,
        }
    }
}

impl Datapath for Wiring {
    type Namespace = Namespace;

    fn hold(&self, descriptor: OwnedFd) -> Result<Namespace, netns::Error> {
        descriptor.try_into()
    }

    fn id(&self, namespace: &Namespace) -> NamespaceId {
        namespace.id()
    }

    fn host_interface(&self, key: &AttachmentKey, pod: Option<&Pod>) -> String {
        let calico = match self.naming {
            InterfaceNaming::Fairlead => None,
            InterfaceNaming::Calico => cni::interface::calico_interface(key, pod),
        };
        calico.unwrap_or_else(|| host_interface(key))
    }

    fn set_up_when(
        &self,
        coming: &Coming<'_>,
        namespace: &Namespace,
        progress: &dyn Progress,
    ) -> Result<PodInterfaces, WiringError> {
        let names = InterfaceNames::of(coming.key).with(coming.host_interface, coming.mac);
        let mut at = step::CREATE;
        let mut made = None;
        let mut assigned = None;
        let mut steps = || {
            let mut begin = |step| {
                at = step;
                progress.step(step)?;
                #[cfg(feature = "faults")]
                crate::faults::pass(coming.key, step);
                Ok::<_, Abandoned>(())
            };
            begin(step::CREATE)?;
            let (host, pod) = self.pair(coming, &names, namespace)?;
            made = Some(host);
            begin(step::ENTER)?;
            let mut inside = namespace.netlink().map_err(Cause::Enter)?;
            begin(step::ADDRESS)?;
            let attachment = assigned.insert((coming.chosen)().ok_or(Cause::NoAddress)?);
            self.refuse_foreign(attachment)?;
            begin(step::CONFIGURE)?;
            // The other end is down and without routes: nobody can use the address yet.
            configure(&mut inside, namespace, attachment, &names, pod)?;
            begin(step::RECORD)?;
            if !(coming.recorded)() {
                return Err(Cause::NoAddress);
            }
            begin(step::ROUTE)?;
            // Before the routes: no packet comes to the pod or leaves it unjudged.
            for policies in &self.policies {
                policies.admit(attachment).map_err(Cause::Policies)?;
            }
            // Both ends are up from here on, but the kernel lets them send when it next comes to it,
            // and drops what is sent before: a pod's first packets. To look at an end (Linux 6.8)
            // makes it ready.
            let changes = host_side(attachment, &names, host);
            self.node.netlink(|netlink| netlink.apply_then_link(&changes, host))?;
            inside.link(LinkRef::Index(pod))?;
            self.policies.iter().for_each(|policies| policies.settle(attachment));
            Ok(())
        };
        if let Err(cause) = steps() {
            let left = made.and_then(|host| self.delete(LinkRef::Index(host)).err()).map(Box::new);
            if let Some(attachment) = &assigned {
                self.release(attachment);
            }
            return Err(WiringError { step: at, cause, left });
        }
        Ok(PodInterfaces {
            host_interface: names.host_interface,
            host_mac: names.host_mac,
            pod_interface: coming.key.ifname.clone(),
            pod_mac: names.pod_mac,
            mtu: self.mtu.of(coming.pool),
            gateway_v4: assigned.as_ref().and_then(|it| it.ipv4).map(|_| GATEWAY_V4),
            gateway_v6: assigned.as_ref().and_then(|it| it.ipv6).map(|_| GATEWAY_V6),
        })
    }

    fn tear_down(
        &self,
        attachment: &Attachment,
        progress: &dyn Progress,
    ) -> Result<(), WiringError> {
        let failed = |cause| WiringError { step: step::DELETE, cause, left: None };
        progress.step(step::DELETE).map_err(|abandoned| failed(abandoned.into()))?;
        #[cfg(feature = "faults")]
        crate::faults::pass(&attachment.key, step::DELETE);
        self.delete_of(attachment).map_err(|error| failed(error.into()))?;
        self.release(attachment);
        Ok(())
    }

    /// The kernel waits some twenty milliseconds for each link that it deletes, and as long for a group.
    fn tear_down_all(
        &self,
        attachments: &[Arc<Attachment>],
    ) -> Vec<(Arc<Attachment>, WiringError)> {
        #[cfg(feature = "faults")]
        for attachment in attachments {
            crate::faults::pass(&attachment.key, step::DELETE);
        }
        let grouped = self.node.netlink(|netlink| {
            let mut changes = Vec::with_capacity(attachments.len() + 1);
            for attachment in attachments {
                let group = SetLink { group: Some(LEAVING), ..SetLink::default() };
                let link = own_link(netlink, attachment)?;
                changes.extend(link.map(|link| Change::Set(link, group)));
            }
            // Together they are one call; where one is refused it is not said what became of the others, and
            // each is asked about.
            if netlink.apply(&changes).is_err() {
                for change in &changes {
                    match netlink.apply(std::slice::from_ref(change)) {
                        Err(error) if !error.not_found() => return Err(error),
                        _ => {}
                    }
                }
            }
            match netlink.apply(&[Change::DeleteGroup(LEAVING)]) {
                Err(error) if !error.not_found() => Err(error),
                _ => Ok(()),
            }
        });
        let mut left = Vec::new();
        for attachment in attachments {
            // Where the group could not be deleted, each is; else there is nothing left to delete.
            let done = match &grouped {
                Ok(()) => Ok(()),
                Err(_) => self.delete_of(attachment),
            };
            match done {
                Ok(()) => self.release(attachment),
                Err(error) => {
                    let error = WiringError { step: step::DELETE, cause: error.into(), left: None };
                    left.push((Arc::clone(attachment), error));
                }
            }
        }
        left
    }

    fn verify(&self, attachment: &Attachment, namespace: Option<&Namespace>) -> Vec<Fault> {
        let names = InterfaceNames::of_attachment(attachment);
        let host = self.node.netlink(|netlink| netlink.link(LinkRef::Name(&names.host_interface)));
        let host = match host {
            Ok(Some(host)) => host,
            Ok(None) => return vec![Fault::NoLink(names.host_interface)],
            Err(error) => return vec![Fault::unseen(&error)],
        };
        let seen = self.node.netlink(|netlink| {
            look("the node", netlink, &host, &host_side(attachment, &names, host.index))
        });
        let mut faults = seen.unwrap_or_else(|error| vec![Fault::unseen(&error)]);
        if let Some(namespace) = namespace {
            faults.extend(verify_inside(attachment, &names, namespace, &host));
        }
        faults
    }
}

impl Fault {
    fn unseen(error: &dyn std::error::Error) -> Self {
        Self::Unseen(stallproof::sentence(error))
    }
}

fn are_ends(host: &Link, pod: &Link, names: &InterfaceNames) -> bool {
    host.peer == Some(pod.index)
        && pod.peer == Some(host.index)
        && host.mac == Some(names.host_mac)
        && pod.mac == Some(names.pod_mac)
}

/// Returns an attachment's addresses, each with its gateway.
fn with_gateways(attachment: &Attachment) -> impl Iterator<Item = (IpAddr, IpAddr)> {
    let v4 = attachment.ipv4.map(|address| (address.into(), GATEWAY_V4.into()));
    let v6 = attachment.ipv6.map(|address| (address.into(), GATEWAY_V6.into()));
    v4.into_iter().chain(v6)
}

/// Returns what must be true of the node's end.
pub(crate) fn host_side<'a>(
    attachment: &'a Attachment,
    names: &InterfaceNames,
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
    for address in attachment.addresses() {
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

/// Returns what must be true of the pod's end.
fn pod_side<'a>(attachment: &Attachment, names: &InterfaceNames, link: u32) -> Vec<Change<'a>> {
    let quiet = SetLink { no_own_addresses: true, ..SetLink::default() };
    let up = SetLink { up: true, ..SetLink::default() };
    let on = LinkRef::Index(link);
    let mut changes = vec![Change::Set(on, quiet), Change::Set(on, up)];
    for (address, gateway) in with_gateways(attachment) {
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

/// Says whether a route leads where another does, whoever made it: Calico makes those by interfaces of its
/// names anew, as its own.
pub(crate) fn leads_as(route: &Route, wanted: &Route) -> bool {
    Route { protocol: wanted.protocol, ..*route } == *wanted
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
    names: &InterfaceNames,
    pod: u32,
) -> Result<(), Cause> {
    let changes = pod_side(attachment, names, pod);
    let Err(error) = inside.apply(&changes) else {
        return Ok(());
    };
    if attachment.ipv6.is_none() {
        return Err(error.into());
    }
    // Some runtimes switch IPv6 off in every namespace they make. A pod with an IPv6 address wants it.
    let switch = sysctl::net(format!("ipv6/conf/{}/disable_ipv6", attachment.key.ifname));
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
    names: &InterfaceNames,
    netns: &Namespace,
    host: &Link,
) -> Vec<Fault> {
    let ifname = &attachment.key.ifname;
    let mut inside = match netns.netlink() {
        Ok(inside) => inside,
        Err(error) => return vec![Fault::unseen(&error)],
    };
    match inside.link(LinkRef::Name(ifname)) {
        Ok(Some(pod)) if are_ends(host, &pod, names) => {
            let wanted = pod_side(attachment, names, pod.index);
            look("the pod", &mut inside, &pod, &wanted)
                .unwrap_or_else(|error| vec![Fault::unseen(&error)])
        }
        Ok(Some(_)) => vec![Fault::Strange(ifname.clone(), names.host_interface.clone())],
        Ok(None) => vec![Fault::NoLink(ifname.clone())],
        Err(error) => vec![Fault::unseen(&error)],
    }
}

/// Returns which of the `wanted` changes are not in effect.
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
        Change::Route(wanted) if !routes.iter().any(|route| leads_as(route, wanted)) => {
            Some(Fault::NoRoute(whose, wanted.destination))
        }
        _ => None,
    };
    Ok(wanted.iter().filter_map(fault).collect())
}

#[cfg(test)]
mod tests;
