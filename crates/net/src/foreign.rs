//! Addresses that pods of another plugin have on this node, of blocks that are this node's now: those of Coil's
//! pods while a cluster moves over. Nobody else is given them, and their blocks are not returned.
//!
//! What says so is the kernel: a route to a single address, by a veth that is not ours, in the main table or in
//! the one that Coil has for pods. So nobody needs to be asked, and an address is free when its pod is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kernel::netlink::{self, Netlink, RouteKind};

use crate::wiring::{MAIN_TABLE, ROUTE_PROTOCOL, is_ours};

/// Where Coil has the routes to its pods, unless it is told otherwise.
const COIL_PODS: u32 = 116;

/// Addresses, and the interface that each is behind.
pub(crate) type ForeignAddresses = BTreeMap<IpAddr, String>;

/// Reads the kernel. Blocks.
pub(crate) fn read(netlink: &mut Netlink) -> Result<ForeignAddresses, netlink::Error> {
    let mut links = netlink.links()?;
    links.retain(|link| link.kind.as_deref() == Some("veth") && !is_ours(link));
    let links: BTreeMap<u32, String> = links.into_iter().map(|it| (it.index, it.name)).collect();
    let mut found = ForeignAddresses::new();
    if links.is_empty() {
        return Ok(found);
    }
    for table in BTreeSet::from([MAIN_TABLE, COIL_PODS]) {
        let routes = match netlink.routes(table) {
            // There is no such table before its first route.
            Err(error) if error.not_found() => Vec::new(),
            other => other?,
        };
        for route in routes {
            if route.protocol == ROUTE_PROTOCOL {
                continue;
            }
            let (RouteKind::Link(link) | RouteKind::Sourced { link, .. }) = route.kind else {
                continue;
            };
            let whole = route.destination.prefix_len() == route.destination.max_prefix_len();
            if let Some(name) = links.get(&link).filter(|_| whole) {
                found.insert(route.destination.addr(), name.clone());
            }
        }
    }
    Ok(found)
}
