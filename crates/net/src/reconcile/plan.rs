//! What to mend: pure, from what the kernel shows and what is recorded.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use kernel::netlink::{self, Change, Link, Neighbour, Netlink, Route, RouteKind};

use crate::Attachment;
use crate::wiring::{MAIN_TABLE, Names, ROUTE_PROTOCOL, host_side};

/// What of ours is in the node's kernel.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub links: Vec<Link>,
    pub neighbours: Vec<Neighbour>,
    pub routes: Vec<Route>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// An interface that nobody has: its number and its name.
    Remove(u32, String),
    /// A route to an address that nobody has.
    Unroute(Route),
    /// Something of the node's end is missing; its interface's number.
    Restore(Arc<Attachment>, u32),
    /// The interface is gone.
    Lost(Arc<Attachment>),
}

impl Seen {
    /// Blocks.
    pub fn fetch(netlink: &mut Netlink) -> Result<Self, netlink::Error> {
        let mut links = netlink.links()?;
        links.retain(is_ours);
        let mut routes = netlink.routes(MAIN_TABLE)?;
        routes.retain(|route| {
            route.protocol == ROUTE_PROTOCOL && matches!(route.kind, RouteKind::Link(_))
        });
        Ok(Self { links, routes, neighbours: netlink.neighbours(None)? })
    }
}

fn is_ours(link: &Link) -> bool {
    link.kind.as_deref() == Some("veth") && cni::interface::is_ours(&link.name)
}

/// `recorded` was read after what was seen.
pub fn plan(seen: &Seen, recorded: &[Arc<Attachment>]) -> Vec<Repair> {
    let by_name: HashMap<&str, &Link> =
        seen.links.iter().map(|link| (link.name.as_str(), link)).collect();
    let names: HashSet<&str> =
        recorded.iter().map(|attachment| attachment.host_interface.as_str()).collect();
    let neighbours: HashSet<_> = seen.neighbours.iter().collect();
    let routes: HashSet<_> = seen.routes.iter().collect();
    let taken: HashSet<IpNet> =
        recorded.iter().flat_map(|attachment| addresses(attachment)).collect();

    let remove = seen
        .links
        .iter()
        .filter(|link| !names.contains(link.name.as_str()))
        .map(|link| Repair::Remove(link.index, link.name.clone()));
    let unroute = seen
        .routes
        .iter()
        .filter(|route| !taken.contains(&route.destination))
        .map(|route| Repair::Unroute(*route));
    let mend = recorded.iter().filter_map(|attachment| {
        let Some(link) = by_name.get(attachment.host_interface.as_str()) else {
            return Some(Repair::Lost(Arc::clone(attachment)));
        };
        let whole = is_whole(attachment, link, &neighbours, &routes);
        (!whole).then(|| Repair::Restore(Arc::clone(attachment), link.index))
    });
    remove.chain(unroute).chain(mend).collect()
}

fn addresses(attachment: &Attachment) -> impl Iterator<Item = IpNet> {
    let v4 = attachment.ipv4.map(IpAddr::from);
    let v6 = attachment.ipv6.map(IpAddr::from);
    v4.into_iter().chain(v6).map(IpNet::from)
}

fn is_whole(
    attachment: &Attachment,
    link: &Link,
    neighbours: &HashSet<&Neighbour>,
    routes: &HashSet<&Route>,
) -> bool {
    let names = Names::of(&attachment.key);
    let wanted = host_side(attachment, &names, link.index);
    link.up
        && wanted.iter().all(|wanted| match wanted {
            Change::Neighbour(neighbour) => neighbours.contains(neighbour),
            Change::Route(route) => routes.contains(route),
            _ => true,
        })
}

#[cfg(test)]
mod tests;
