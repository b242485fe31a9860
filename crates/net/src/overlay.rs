//! The overlay: packets between pods of different nodes inside UDP packets (vxlan), where a pool says so.
//!
//! ```text
//! main table  BLOCK      ─► tunnel to NODE by fl-vxlan, gateway fe80::NODE     one for each block
//!             fe80::NODE ─► tunnel to NODE by fl-vxlan                         one for each node: for probes
//! neighbours  fe80::NODE is MAC of NODE on fl-vxlan                            one for each node
//! table 118   NODE       ─► tunnel to NODE by fl-vxlan                         for packets from pods
//! rules       from a pool's network: table 118
//! ```
//!
//! One device does for all nodes: its routes say where a packet goes, nothing is learned or flooded. A
//! node's hardware address and its address behind the tunnel are functions of its name, so that nodes
//! need not tell each other, and a node that moves to another address changes one number in its routes.
//! Table 118 is for what pods send to nodes themselves: a network that does not route pods' addresses
//! would drop it.

mod path;
mod probe;

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use kernel::netlink::{
    self, Address, Change, Link, LinkRef, Mac, Neighbour, Netlink, Route, RouteKind, Rule, SetLink,
    Tunnel, Vxlan, VxlanPeers,
};
use kernel::sysctl;
use objects::kinds::Overlay;
use sha2::{Digest, Sha256};

pub(crate) use path::{NodePath, PathInputs, look};
pub(crate) use probe::probe;

use crate::node::{Node, NodeError};
use crate::routes::RoutedBlock;
use crate::wiring::{MAIN_TABLE, ROUTE_PROTOCOL};

/// The device's name.
pub const DEVICE: &str = "fl-vxlan";
/// The UDP port that is registered for vxlan.
pub const PORT: u16 = 4789;
/// The routing table for what pods send to nodes.
pub const NODE_TABLE: u32 = 118;
/// Before the main table's 32766.
const PRIORITY: u32 = 11_800;
/// The number on every packet; the device takes no notice of it.
const NETWORK: u32 = 0x66_6c;
/// What goes around a packet: Ethernet, IP, UDP and vxlan headers.
const OVERHEAD_V4: u32 = 50;
const OVERHEAD_V6: u32 = 70;

/// What the overlay needs to know of the node it is on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Underlay {
    /// The number of the vxlan device; none where no pool wants one.
    pub device: Option<u32>,
    /// This node's own addresses, with their networks.
    pub addresses: Vec<IpNet>,
}

/// How the device is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    pub port: u16,
    pub mtu: u32,
}

/// The largest packet of a pod that a tunnel carries, where all tunnels go over IPv4 or not all do.
pub fn mtu(uplink: u32, all_over_ipv4: bool) -> u32 {
    uplink.saturating_sub(if all_over_ipv4 { OVERHEAD_V4 } else { OVERHEAD_V6 })
}

/// The hardware address of a node's device: a function of its name.
pub fn mac_of(node: &str) -> Mac {
    let digest = Sha256::digest(node.as_bytes());
    let mut mac = [0; 6];
    mac.copy_from_slice(&digest[..6]);
    // Not a group's, and administered locally.
    mac[0] = mac[0] & !1 | 2;
    Mac(mac)
}

/// A node's address behind the tunnel: a function of its name.
pub fn gateway_of(node: &str) -> Ipv6Addr {
    let digest = Sha256::digest(node.as_bytes());
    let mut octets = [0; 16];
    octets[..2].copy_from_slice(&[0xfe, 0x80]);
    octets[8..].copy_from_slice(&digest[8..16]);
    octets.into()
}

impl Underlay {
    /// Reads this node's addresses. Blocks.
    pub(crate) fn read(netlink: &mut Netlink, device: Option<u32>) -> Result<Self, netlink::Error> {
        let mut addresses: Vec<_> = netlink
            .all_addresses()?
            .into_iter()
            .filter(|own| Some(own.link) != device)
            .map(|own| own.address)
            .filter(|own| !own.addr().is_loopback() && !is_link_local(own.addr()))
            .collect();
        addresses.sort_unstable();
        Ok(Self { device, addresses })
    }

    /// Returns how another node's block is reached, for one of its networks. Without its device nothing
    /// is reached through the tunnel, and nothing goes beside it instead.
    pub(crate) fn way(&self, block: &RoutedBlock, network: IpNet) -> Option<RouteKind> {
        let is_ipv4 = network.addr().is_ipv4();
        match self.is_tunnelled(block, is_ipv4) {
            true => self.tunnel(block).map(RouteKind::Tunnel),
            false => direct(block, is_ipv4).map(RouteKind::Via),
        }
    }

    fn is_tunnelled(&self, block: &RoutedBlock, is_ipv4: bool) -> bool {
        let shares = |address: IpAddr| self.addresses.iter().any(|own| own.contains(&address));
        match block.overlay {
            Overlay::Direct => false,
            Overlay::Vxlan => true,
            Overlay::Auto => !direct(block, is_ipv4).is_some_and(shares),
        }
    }

    /// Returns the tunnel to a block's node.
    fn tunnel(&self, block: &RoutedBlock) -> Option<Tunnel> {
        let (link, remote) = (self.device?, self.remote(&block.via)?);
        Some(Tunnel { link, remote, network: NETWORK, gateway: Some(gateway_of(&block.node)) })
    }

    /// Returns the tunnel to a block's node, if any packet to the block takes it.
    pub(crate) fn tunnel_to(&self, block: &RoutedBlock) -> Option<Tunnel> {
        let mut families = block.networks.iter().map(|network| network.addr().is_ipv4());
        let tunnelled = families.any(|is_ipv4| self.is_tunnelled(block, is_ipv4));
        self.tunnel(block).filter(|_| tunnelled)
    }

    /// Returns the address that a tunnel leads to: IPv4 where both ends have it.
    fn remote(&self, via: &[IpAddr]) -> Option<IpAddr> {
        let of = |is_ipv4: bool| via.iter().copied().find(|address| address.is_ipv4() == is_ipv4);
        let has_ipv4 = self.addresses.iter().any(|own| own.addr().is_ipv4());
        of(true).filter(|_| has_ipv4).or_else(|| of(false))
    }

    /// Returns, for each node that is reached through the tunnel, one of its tunnels and its addresses.
    pub(crate) fn nodes<'a>(
        &self,
        own: &str,
        blocks: &'a [RoutedBlock],
    ) -> BTreeMap<&'a str, (Tunnel, &'a [IpAddr])> {
        let mut nodes = BTreeMap::new();
        for block in blocks.iter().filter(|block| block.node != own) {
            if let Some(tunnel) = self.tunnel_to(block) {
                nodes.entry(block.node.as_str()).or_insert((tunnel, block.via.as_slice()));
            }
        }
        nodes
    }
}

/// Returns the first address of the block's node in that family.
fn direct(block: &RoutedBlock, is_ipv4: bool) -> Option<IpAddr> {
    block.via.iter().copied().find(|address| address.is_ipv4() == is_ipv4)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Returns the routes to a node itself, and who its neighbour is.
pub(crate) fn to_node(node: &str, tunnel: Tunnel, via: &[IpAddr]) -> (Vec<Route>, Neighbour) {
    let route = |destination: IpAddr, table, kind| Route {
        destination: destination.into(),
        table,
        protocol: ROUTE_PROTOCOL,
        kind: RouteKind::Tunnel(kind),
    };
    let gateway = gateway_of(node);
    let itself = Tunnel { gateway: None, ..tunnel };
    let mut routes = vec![route(gateway.into(), MAIN_TABLE, itself)];
    routes.extend(via.iter().map(|address| route(*address, NODE_TABLE, tunnel)));
    (routes, Neighbour { link: tunnel.link, address: gateway.into(), mac: mac_of(node) })
}

/// The rule by which packets from a pool's pods look into the table of nodes.
pub(crate) fn rule(network: IpNet) -> Rule {
    let (table, protocol) = (NODE_TABLE, ROUTE_PROTOCOL);
    Rule { from: network, mark: None, table, priority: PRIORITY, protocol }
}

/// Says whether a rule is one that [`rule`] made.
pub(crate) fn is_our_rule(rule: &Rule) -> bool {
    rule.protocol == ROUTE_PROTOCOL && rule.table == NODE_TABLE
}

/// Makes the device, or corrects the one that is there; returns its number. Blocks.
pub(crate) fn ensure(node: &Node, name: &str, settings: DeviceSettings) -> Result<u32, NodeError> {
    let DeviceSettings { port, mtu } = settings;
    let (mac, peers) = (mac_of(name), VxlanPeers::ByRoute);
    ensure_vxlan(node, Vxlan { name: DEVICE, mac, mtu, port, peers }, gateway_of(name))
}

/// Makes a vxlan device with an address of its own, or corrects the one that is there; returns its number.
/// Blocks.
pub(crate) fn ensure_vxlan(
    node: &Node,
    vxlan: Vxlan<'static>,
    own: Ipv6Addr,
) -> Result<u32, NodeError> {
    let Vxlan { name, mac, mtu, .. } = vxlan;
    let made = node.netlink(|netlink| {
        let made = match netlink.apply(&[Change::Vxlan(vxlan)]) {
            Err(error) if error.already_exists() => false,
            other => other.map(|()| true)?,
        };
        Ok((made, netlink.link(LinkRef::Name(name))?))
    })?;
    let (new, Some(link)) = made else { return Err(NodeError::Gone(name)) };
    node.netlink(|netlink| netlink.apply(&[nobodys(link.index)]))?;
    if new {
        node.namespace().run_in(|| loosen(name)).map_err(NodeError::Enter)?;
    }
    if !new && link.up && link.mtu == mtu && link.mac == Some(mac) {
        return Ok(link.index);
    }
    if !new && link.mac != Some(mac) {
        // The number of the node is in it, and nothing else of the device can be changed so well.
        remove_device(node, name)?;
        return ensure_vxlan(node, vxlan, own);
    }
    node.netlink(|netlink| netlink.apply(&set_up(&link, mtu, own)))?;
    Ok(link.index)
}

fn set_up(link: &Link, mtu: u32, own: Ipv6Addr) -> Vec<Change<'static>> {
    let on = LinkRef::Index(link.index);
    let quiet = SetLink { mtu: Some(mtu), no_own_addresses: true, ..SetLink::default() };
    let up = SetLink { up: true, ..SetLink::default() };
    let address = Address { link: link.index, address: IpAddr::V6(own).into() };
    vec![Change::Set(on, quiet), Change::Set(on, up), Change::Address(address)]
}

/// A tunnel's device has an IPv4 address that nobody uses or sends from: on a device without one the kernel drops packets
/// from addresses that are reached elsewhere, also where it is told to be loose about that.
fn nobodys(link: u32) -> Change<'static> {
    let address = IpAddr::V4(Ipv4Addr::new(169, 254, 117, 1)).into();
    Change::Address(Address { link, address })
}

/// What a node sends to another node's pod comes by the device from an address that is routed elsewhere:
/// reverse path filtering must be loose there. The higher of this and of the sysctl for all links holds.
fn loosen(device: &str) {
    // Errors: there is no such filter, or the device cannot have IPv6, which the address will say.
    let _ = fs::write(sysctl::net(format!("ipv4/conf/{device}/rp_filter")), "2");
    let _ = fs::write(sysctl::net(format!("ipv6/conf/{device}/disable_ipv6")), "0");
}

/// Removes the device and with it its routes; says whether there was one. Blocks.
pub(crate) fn remove(node: &Node) -> Result<bool, NodeError> {
    remove_device(node, DEVICE)
}

/// Removes a device; says whether there was one. Blocks.
pub(crate) fn remove_device(node: &Node, name: &str) -> Result<bool, NodeError> {
    match node.netlink(|netlink| netlink.apply(&[Change::Delete(LinkRef::Name(name))])) {
        Ok(()) => Ok(true),
        Err(NodeError::Kernel(error)) if error.not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
