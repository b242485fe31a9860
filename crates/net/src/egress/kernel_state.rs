//! A node's kernel brought in line with its [`EgressProgram`]: device, routes, rules, table.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use kernel::netlink::{Change, LinkRef, Mac, Neighbour, Netlink, Route, Vxlan, VxlanPeers};
use kernel::nftables::{CommitError, Nftables};

use super::plan::{EgressInputs, EgressProgram, is_our_rule};
use super::table::EgressTable;
use super::{DEVICE, GATEWAY, GATEWAY_MAC, NODES, hold};
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
    #[error(
        "{plugin} forwards pods' packets by eBPF (link {link}), past this node's routing: no pod can use an \
         egress; use that plugin's own egress gateways, or have it forward by the kernel"
    )]
    Ebpf { plugin: &'static str, link: String },
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
    /// Returns the device with room for no more than the links that lead to replicas have: those may be
    /// tunnels themselves. Blocks.
    pub fn fitted(mut self, node: &Node, inputs: &EgressInputs) -> Result<Self, NodeError> {
        let replicas = inputs.egresses.values().flat_map(|egress| &egress.replicas);
        for remote in replicas.filter_map(|it| it.addresses.iter().min_by_key(|it| it.is_ipv6())) {
            let link = node.netlink(|netlink| match netlink.link_towards(*remote)? {
                Some(index) => netlink.link(LinkRef::Index(index)),
                None => Ok(None),
            })?;
            let room = link.map(|link| overlay::mtu(link.mtu, remote.is_ipv4()));
            self.settings.mtu = self.settings.mtu.min(room.unwrap_or(u32::MAX));
        }
        Ok(self)
    }

    /// Makes the device, or corrects the one that is there; returns its number. Blocks.
    pub fn ensure(&self, node: &Node) -> Result<u32, NodeError> {
        let DeviceSettings { port, mtu } = self.settings;
        let peers = VxlanPeers::ByRoute;
        let vxlan = Vxlan { name: DEVICE, mac: self.mac, mtu, port, peers };
        let link = overlay::ensure_vxlan(node, vxlan, NODES)?;
        let neighbour = Neighbour { link, address: GATEWAY.into(), mac: GATEWAY_MAC };
        node.netlink(|netlink| netlink.apply(&[Change::Neighbour(neighbour)]))?;
        Ok(link)
    }
}

/// Brings the kernel in line; says whether anything changed. Routes are there before connections take them,
/// and go when none does. Blocks.
pub fn apply(
    node: &Node,
    program: &EgressProgram,
    table: &mut EgressTable,
    port: u16,
) -> Result<bool, EgressError> {
    let wanted_rules = || program.rules.iter().chain(&program.hold.rules);
    let (found, rules) = node.netlink(|netlink| {
        let mut rules = netlink.rules()?;
        rules.retain(is_our_rule);
        let tables = wanted_rules().map(|rule| rule.table);
        let tables = tables.chain(rules.iter().map(|rule| rule.table));
        let mut found = Vec::new();
        for table in tables.collect::<BTreeSet<u32>>() {
            found.extend(of_table(netlink, table)?);
        }
        Ok((found, rules))
    })?;
    let place = |route: &Route| (route.table, route.destination);
    let wanted = program.routes.iter().chain(&program.hold.routes);
    let wanted: BTreeMap<_, _> = wanted.map(|route| (place(route), *route)).collect();
    let there: BTreeMap<_, _> = found.iter().map(|route| (place(route), *route)).collect();
    let new = wanted.iter().filter(|(place, route)| there.get(place) != Some(route));
    let mut first: Vec<Change<'_>> = new
        .flat_map(|(place, route)| {
            // One of another kind is not replaced, but stays beside it.
            let other = there.get(place).map(|other| Change::DeleteRoute(*other));
            other.into_iter().chain([Change::Route(*route)])
        })
        .collect();
    let new_rules = wanted_rules().filter(|rule| !rules.contains(rule));
    first.extend(new_rules.map(|rule| Change::Rule(*rule)));
    let mut last: Vec<Change<'_>> = rules
        .iter()
        .filter(|rule| !wanted_rules().any(|wanted| wanted == *rule))
        .map(|rule| Change::DeleteRule(*rule))
        .collect();
    let stale = there.iter().filter(|(place, _)| !wanted.contains_key(*place));
    last.extend(stale.map(|(_, route)| Change::DeleteRoute(*route)));
    let mut changed = !first.is_empty() || !last.is_empty();
    make(node, &first)?;
    changed |= table.adopt(program, port)?;
    make(node, &last)?;
    if !program.has_classes() {
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
pub fn remove(node: &Node) -> Result<bool, EgressError> {
    let inside = || -> Result<bool, EgressError> {
        let mut table = EgressTable::open().map_err(EgressError::Socket)?;
        hold::remove(&mut Nftables::open().map_err(EgressError::Socket)?)?;
        apply(node, &EgressProgram::default(), &mut table, 0)
    };
    node.namespace().run_in(inside).map_err(EgressError::Socket)?
}
