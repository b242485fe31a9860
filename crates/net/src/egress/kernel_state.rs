//! A node's kernel brought in line with its [`EgressProgram`]: device, routes, rules, table.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};
use kernel::netlink::{Address, Change, Mac, Neighbour, Netlink, Route, Vxlan, VxlanPeers};
use kernel::nftables::CommitError;

use super::plan::{self, EgressProgram, is_our_rule};
use super::table::EgressTable;
use super::{DEVICE, GATEWAY, GATEWAY_MAC, NODES};
use crate::node::{KernelCallError, Node, NodeError};
use crate::overlay::{self, DeviceSettings};
use crate::wiring::ROUTE_PROTOCOL;

/// Sent to the kernel together.
const TOGETHER: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error("the kernel's rules of egress cannot be asked for")]
    Socket(#[source] io::Error),
    #[error("the kernel's rules of egress cannot be changed")]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error("the numbers of classes cannot be kept in {path}")]
    Keep {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Thread(#[from] KernelCallError),
}

/// The tunnel's device of a node, to be made or there.
#[derive(Clone, Copy, Debug)]
pub struct EgressDevice {
    pub mac: Mac,
    pub settings: DeviceSettings,
}

impl EgressDevice {
    /// Makes the device, or corrects the one that is there; returns its number. Blocks.
    pub fn ensure(&self, node: &Node) -> Result<u32, NodeError> {
        let DeviceSettings { port, mtu } = self.settings;
        let peers = VxlanPeers::ByRoute;
        let vxlan = Vxlan { name: DEVICE, mac: self.mac, mtu, port, peers };
        let link = overlay::ensure_vxlan(node, vxlan, NODES)?;
        let neighbour = Neighbour { link, address: GATEWAY.into(), mac: GATEWAY_MAC };
        let own = has_address(link);
        node.netlink(|netlink| netlink.apply(&[own, Change::Neighbour(neighbour)]))?;
        Ok(link)
    }
}

/// The device has an IPv4 address, which nobody uses: on a device without one the kernel drops packets
/// from addresses that are reached elsewhere, also where it is told to be loose about that.
pub(super) fn has_address(link: u32) -> Change<'static> {
    let address = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 117, 1), 32));
    Change::Address(Address { link, address })
}

/// Brings the kernel in line; says whether anything changed. Routes are there before connections take them,
/// and go when none does. Blocks.
pub fn apply(
    node: &Node,
    program: &EgressProgram,
    table: &mut EgressTable,
    port: u16,
) -> Result<bool, EgressError> {
    let (found, rules) = node.netlink(|netlink| {
        let mut rules = netlink.rules()?;
        rules.retain(is_our_rule);
        let tables: BTreeSet<u32> = program.numbers.iter().map(|it| plan::table_of(*it)).collect();
        let tables = tables.into_iter().chain(rules.iter().map(|rule| rule.table));
        let mut found = Vec::new();
        for table in tables.collect::<BTreeSet<u32>>() {
            found.extend(of_table(netlink, table)?);
        }
        Ok((found, rules))
    })?;
    let place = |route: &Route| (route.table, route.destination);
    let wanted: BTreeMap<_, _> =
        program.routes.iter().map(|route| (place(route), *route)).collect();
    let there: BTreeMap<_, _> = found.iter().map(|route| (place(route), *route)).collect();
    let new = wanted.iter().filter(|(place, route)| there.get(place) != Some(route));
    let mut first: Vec<Change<'_>> = new
        .flat_map(|(place, route)| {
            // One of another kind is not replaced, but stays beside it.
            let other = there.get(place).map(|other| Change::DeleteRoute(*other));
            other.into_iter().chain([Change::Route(*route)])
        })
        .collect();
    let new_rules = program.rules.iter().filter(|rule| !rules.contains(rule));
    first.extend(new_rules.map(|rule| Change::Rule(*rule)));
    let mut last: Vec<Change<'_>> = rules
        .iter()
        .filter(|rule| !program.rules.contains(rule))
        .map(|rule| Change::DeleteRule(*rule))
        .collect();
    let stale = there.iter().filter(|(place, _)| !wanted.contains_key(*place));
    last.extend(stale.map(|(_, route)| Change::DeleteRoute(*route)));
    let mut changed = !first.is_empty() || !last.is_empty();
    make(node, &first)?;
    changed |= table.adopt(program, port)?;
    make(node, &last)?;
    if program.is_empty() {
        changed |= overlay::remove_device(node, DEVICE)?;
    }
    Ok(changed)
}

fn of_table(netlink: &mut Netlink, table: u32) -> Result<Vec<Route>, kernel::netlink::Error> {
    let mut routes = match netlink.routes(table) {
        // There is no such table before its first route.
        Err(error) if error.not_found() => Vec::new(),
        other => other?,
    };
    routes.retain(|route| route.protocol == ROUTE_PROTOCOL);
    Ok(routes)
}

fn make(node: &Node, changes: &[Change<'_>]) -> Result<(), NodeError> {
    for together in changes.chunks(TOGETHER) {
        node.netlink(|netlink| netlink.apply(together))?;
    }
    Ok(())
}

/// Removes everything that agents make for egress on a node; says whether there was anything. Blocks.
pub(crate) fn remove(node: &Node) -> Result<bool, EgressError> {
    let inside = || -> Result<bool, EgressError> {
        let mut table = EgressTable::open().map_err(EgressError::Socket)?;
        apply(node, &EgressProgram::default(), &mut table, 0)
    };
    node.namespace().run_in(inside).map_err(EgressError::Socket)?
}
