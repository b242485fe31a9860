//! Plans the repairs: a pure function of what the kernel shows and what the journal records.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ipnet::IpNet;
use kernel::netlink::{self, Change, Link, Neighbour, Netlink, Route, RouteKind};

use crate::Attachment;
use crate::wiring::{InterfaceNames, MAIN_TABLE, ROUTE_PROTOCOL, host_side, is_ours};

/// What the node's kernel has of Fairlead's.
#[derive(Clone, Debug, Default)]
pub struct KernelState {
    pub links: Vec<Link>,
    pub neighbours: Vec<Neighbour>,
    pub routes: Vec<Route>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// No attachment has the interface of this number and name.
    RemoveInterface(u32, String),
    /// No attachment has the route's address.
    RemoveRoute(Route),
    /// Something of the node's end is missing; its interface has this number.
    RestoreHostSide(Arc<Attachment>, u32),
    /// The attachment's interface is gone.
    Regain(Arc<Attachment>),
}

impl KernelState {
    /// Reads the kernel. Blocks.
    pub fn fetch(netlink: &mut Netlink) -> Result<Self, netlink::Error> {
        let mut links = netlink.links()?;
        links.retain(is_ours);
        let mut routes = netlink.routes(MAIN_TABLE)?;
        let ours: HashSet<u32> = links.iter().map(|link| link.index).collect();
        routes.retain(|route| match route.kind {
            RouteKind::Link(link) => route.protocol == ROUTE_PROTOCOL || ours.contains(&link),
            _ => false,
        });
        Ok(Self { links, routes, neighbours: netlink.neighbours(None)? })
    }
}

/// What others are at work on: it is left to them.
#[derive(Clone, Debug, Default)]
pub struct UnderWay {
    /// The names of the interfaces of requests that are being served.
    pub interfaces: HashSet<String>,
    /// Attachments that were deleted and whose interfaces are being removed.
    pub leaving: Vec<Arc<Attachment>>,
}

/// Plans the repairs. `recorded` must have been read after `under_way`, and that after `seen`.
pub fn plan(seen: &KernelState, under_way: &UnderWay, recorded: &[Arc<Attachment>]) -> Vec<Repair> {
    let by_name: HashMap<&str, &Link> =
        seen.links.iter().map(|link| (link.name.as_str(), link)).collect();
    let known = || recorded.iter().chain(&under_way.leaving);
    let mut names: HashSet<&str> =
        known().map(|attachment| attachment.host_interface.as_str()).collect();
    names.extend(under_way.interfaces.iter().map(String::as_str));
    let neighbours: HashSet<_> = seen.neighbours.iter().collect();
    // Whoever made it: Calico makes those by interfaces of its names anew, as its own.
    let routes: HashSet<_> =
        seen.routes.iter().map(|route| Route { protocol: ROUTE_PROTOCOL, ..*route }).collect();
    let taken: HashSet<IpNet> = known().flat_map(|a| a.addresses()).map(IpNet::from).collect();

    let remove = seen
        .links
        .iter()
        .filter(|link| !names.contains(link.name.as_str()))
        .map(|link| Repair::RemoveInterface(link.index, link.name.clone()));
    let unroute = seen
        .routes
        .iter()
        .filter(|route| route.protocol == ROUTE_PROTOCOL && !taken.contains(&route.destination))
        .map(|route| Repair::RemoveRoute(*route));
    // What a request is making is not whole yet, and its routes come after its policies.
    let at_rest =
        |attachment: &&Arc<Attachment>| !under_way.interfaces.contains(&attachment.host_interface);
    let mend = recorded.iter().filter(at_rest).filter_map(|attachment| {
        let Some(link) = by_name.get(attachment.host_interface.as_str()) else {
            return Some(Repair::Regain(Arc::clone(attachment)));
        };
        let whole = is_whole(attachment, link, &neighbours, &routes);
        (!whole).then(|| Repair::RestoreHostSide(Arc::clone(attachment), link.index))
    });
    remove.chain(unroute).chain(mend).collect()
}

fn is_whole(
    attachment: &Attachment,
    link: &Link,
    neighbours: &HashSet<&Neighbour>,
    routes: &HashSet<Route>,
) -> bool {
    let names = InterfaceNames::of_attachment(attachment);
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
