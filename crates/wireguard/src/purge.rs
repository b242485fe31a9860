//! Removes from a node what its interface left there: the kernel's interface, routes, rules. An interface
//! of a process goes with the process. To purge a node twice is to purge it once.

use std::io;

use kernel::netlink::{Change, LinkRef};
use kernel::netns::Namespace;

use crate::clamp;
use crate::cluster;
use crate::routes;
use crate::tunnel::TunnelError;

/// Removes what an interface of that name left in a namespace, and says what that was. Blocks.
pub fn purge(namespace: &Namespace, interface: &str) -> Result<Vec<String>, TunnelError> {
    let mut netlink = namespace.netlink().map_err(TunnelError::Namespace)?;
    let link = netlink.link(LinkRef::Name(interface))?;
    let link = link.filter(|link| link.kind.as_deref() == Some("wireguard"));
    let link = link
        .map(|link| (Change::Delete(LinkRef::Index(link.index)), format!("interface {interface}")));
    let routes = routes::left(&mut netlink)?.into_iter();
    let routes = routes.map(|route| (Change::DeleteRoute(route), format!("route {route}")));
    let left = cluster::read(&mut netlink)?;
    let rule = |rule| (Change::DeleteRule(rule), format!("rule to table {}", rule.table));
    let rules: Vec<_> = left.rules.into_iter().map(rule).collect();
    let of_cluster = left.routes.into_iter();
    let of_cluster = of_cluster.map(|route| (Change::DeleteRoute(route), format!("route {route}")));
    let mut removed = Vec::new();
    for (change, what) in link.into_iter().chain(routes).chain(rules).chain(of_cluster) {
        match netlink.apply(&[change]) {
            Ok(()) => removed.push(what),
            // Routes go with their interface.
            Err(error) if error.not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    routes::remove_rules(&mut netlink)?;
    match namespace.run_in(clamp::remove).and_then(|removed| removed) {
        Ok(true) => removed.push(format!("nftables table inet {}", clamp::TABLE)),
        Ok(false) => {}
        // A kernel without nftables has no table.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
        Err(error) => return Err(TunnelError::Namespace(error)),
    }
    Ok(removed)
}
