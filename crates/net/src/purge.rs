//! Removes from the node's kernel what agents made, for a node on which none runs any more.
//!
//! Agents made the interfaces whose names follow from an attachment or that are in the group of pods'
//! interfaces, and the routes with Fairlead's
//! protocol number, in the main table and in the tables that blocks were exported to. To purge a node
//! twice is to purge it once.

use kernel::netlink::{Change, Link, LinkRef, Netlink, Route};

use crate::egress;
use crate::node::{Node, NodeError};
use crate::overlay;
use crate::wiring::{MAIN_TABLE, ROUTE_PROTOCOL, is_ours};

/// The outcome of a purge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    pub interfaces: Vec<String>,
    pub routes: Vec<String>,
    /// What could not be removed, one sentence each.
    pub failed: Vec<String>,
}

/// Lists the containers' interfaces that agents made. Blocks.
pub fn interfaces(node: &Node) -> Result<Vec<Link>, NodeError> {
    let mut links = node.netlink(Netlink::links)?;
    links.retain(is_ours);
    Ok(links)
}

/// Removes the interfaces, if `with_interfaces`, and then the routes: those that lead to pods go with
/// their interfaces. Blocks.
pub fn purge(
    node: &Node,
    export_tables: &[u32],
    with_interfaces: bool,
) -> Result<Purged, NodeError> {
    let mut purged = Purged::default();
    if with_interfaces {
        for link in interfaces(node)? {
            let change = Change::Delete(LinkRef::Index(link.index));
            if removed(node, &change, &mut purged.failed)? {
                purged.interfaces.push(link.name);
            }
        }
    }
    match egress::remove(node) {
        Ok(true) => purged.interfaces.push(egress::DEVICE.to_owned()),
        Ok(false) => {}
        Err(error) => purged.failed.push(stallproof::sentence(&error)),
    }
    // Pods do not need it once no agent says where other nodes are.
    if overlay::remove(node)? {
        purged.interfaces.push(overlay::DEVICE.to_owned());
    }
    let mut rules = node.netlink(Netlink::rules)?;
    rules.retain(overlay::is_our_rule);
    for rule in rules {
        if removed(node, &Change::DeleteRule(rule), &mut purged.failed)? {
            purged.routes.push(format!("rule for {}", rule.from));
        }
    }
    let mut tables = vec![MAIN_TABLE, overlay::NODE_TABLE];
    tables.extend_from_slice(export_tables);
    tables.sort_unstable();
    tables.dedup();
    for table in tables {
        for route in ours(node, table)? {
            if removed(node, &Change::DeleteRoute(route), &mut purged.failed)? {
                purged.routes.push(route.to_string());
            }
        }
    }
    Ok(purged)
}

fn ours(node: &Node, table: u32) -> Result<Vec<Route>, NodeError> {
    let mut routes = node.netlink(|netlink| netlink.routes(table))?;
    routes.retain(|route| route.protocol == ROUTE_PROTOCOL);
    Ok(routes)
}

/// Makes one removal; returns false if the thing was gone already, or could not be removed.
fn removed(node: &Node, change: &Change<'_>, failed: &mut Vec<String>) -> Result<bool, NodeError> {
    match node.netlink(|netlink| netlink.apply(std::slice::from_ref(change))) {
        Ok(()) => Ok(true),
        Err(NodeError::Kernel(error)) if error.not_found() => Ok(false),
        Err(error @ NodeError::Kernel(_)) => {
            failed.push(stallproof::sentence(&error));
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
