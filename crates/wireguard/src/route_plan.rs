//! What one peer's change changes of routes, without a look at the other peers. Pure.
//!
//! [`routes::wanted`](crate::routes::wanted) says what is wanted of all peers, and is what this agrees with.
//!
//! Contract: a change costs what the changed peers have, however many others there are: their networks, and for
//! each place that a peer is reached at, or no longer is, one look for each length of a prefix.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use kernel::netlink::RouteKind;

use crate::key::PublicKey;
use crate::path;
use crate::peer::{Peer, Peers, Routing};
use crate::routes::{BEFORE_TABLE, MAIN_TABLE, Wanted};

/// Peers that change: as they will be, or none if they go.
pub type PeerChanges = BTreeMap<PublicKey, Option<Peer>>;

/// Which peers have a network, and where peers are reached.
#[derive(Debug)]
pub(crate) struct RoutePlan {
    link: u32,
    narrow: BTreeMap<PublicKey, u32>,
    external: BTreeSet<IpNet>,
    owners: BTreeSet<(IpNet, PublicKey)>,
    /// By how many peers each place is used.
    endpoints: BTreeMap<IpAddr, usize>,
}

/// What differs from before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteChanges {
    pub(crate) new: Vec<((u32, IpNet), RouteKind)>,
    pub(crate) gone: Vec<((u32, IpNet), RouteKind)>,
    pub(crate) guarded: Vec<IpNet>,
    pub(crate) unguarded: Vec<IpNet>,
}

/// The network that a peer's network is routed by: one leads to all that are probed.
fn routed_by(network: &IpNet) -> IpNet {
    if path::is_probed(network) { path::network() } else { network.trunc() }
}

/// Whether peers like this one change nothing but their own routes: a successor takes over the networks of
/// another, and one that yields looks at the routes of everybody else.
pub(crate) fn is_plain(peer: &Peer) -> bool {
    peer.successor_of.is_none() && peer.routing != Routing::Yielding
}

impl RoutePlan {
    /// None if one peer's change may concern the routes of others.
    pub(crate) fn new(
        link: u32,
        peers: &Peers,
        narrow: &BTreeMap<PublicKey, u32>,
        external: &BTreeSet<IpNet>,
    ) -> Option<Self> {
        if !peers.values().all(is_plain) {
            return None;
        }
        let (narrow, external) = (narrow.clone(), external.clone());
        let (owners, endpoints) = (BTreeSet::new(), BTreeMap::new());
        let mut plan = Self { link, narrow, external, owners, endpoints };
        for (key, peer) in peers {
            let networks = peer.allowed_ips.iter().map(|network| (routed_by(network), *key));
            plan.owners.extend(networks);
            plan.reach(peer, 1);
        }
        Some(plan)
    }

    /// Counts where a peer is reached; returns the place if it is new or gone.
    fn reach(&mut self, peer: &Peer, by: isize) -> Option<IpAddr> {
        let place = peer.endpoint?.ip();
        let count = self.endpoints.entry(place).or_default();
        let before = *count;
        *count = count.saturating_add_signed(by);
        let after = *count;
        if after == 0 {
            self.endpoints.remove(&place);
        }
        ((before == 0) != (after == 0)).then_some(place)
    }

    fn is_reached(&self, network: &IpNet) -> bool {
        self.endpoints.range(network.network()..=network.broadcast()).next().is_some()
    }

    fn owners_of(&self, network: IpNet) -> impl Iterator<Item = &PublicKey> {
        let all = (network, PublicKey([0; 32]))..=(network, PublicKey([0xff; 32]));
        self.owners.range(all).map(|(_, key)| key)
    }

    /// Makes `wanted`, which is of `peers`, what it is after the changes, and says what differs. `peers` are
    /// those before; the changed ones must be plain.
    pub(crate) fn change(
        &mut self,
        peers: &Peers,
        changes: &PeerChanges,
        wanted: &mut Wanted,
    ) -> RouteChanges {
        let (mut concerned, mut places) = (BTreeSet::new(), Vec::new());
        for (key, new) in changes {
            let old = peers.get(key);
            for network in old.iter().flat_map(|old| &old.allowed_ips).map(routed_by) {
                self.owners.remove(&(network, *key));
                concerned.insert(network);
            }
            for network in new.iter().flat_map(|new| &new.allowed_ips).map(routed_by) {
                self.owners.insert((network, *key));
                concerned.insert(network);
            }
            places.extend(old.and_then(|old| self.reach(old, -1)));
            places.extend(new.as_ref().and_then(|new| self.reach(new, 1)));
        }
        for place in places {
            let whole = IpNet::from(place);
            let around =
                (0..=whole.prefix_len()).filter_map(|length| IpNet::new(place, length).ok());
            let is_known =
                |it: &IpNet| self.owners_of(*it).next().is_some() || self.external.contains(it);
            concerned.extend(around.map(|it| it.trunc()).filter(is_known));
        }
        let mut differs = RouteChanges::default();
        for network in concerned {
            let after = |key: &PublicKey| match changes.get(key) {
                Some(new) => new.as_ref(),
                None => peers.get(key),
            };
            self.settle(network, after, wanted, &mut differs);
        }
        differs
    }

    /// Makes what is wanted of one network what it should be.
    fn settle<'p>(
        &self,
        network: IpNet,
        peer: impl Fn(&PublicKey) -> Option<&'p Peer>,
        wanted: &mut Wanted,
        differs: &mut RouteChanges,
    ) {
        let is_probed = path::is_probed(&network);
        let is_reached = !is_probed && self.is_reached(&network);
        let (mut routes, mut is_guarded, mut is_unrouted) = (BTreeMap::new(), false, false);
        for (key, peer) in self.owners_of(network).filter_map(|key| Some((key, peer(key)?))) {
            let narrow = |mtu: &u32| RouteKind::Narrow { link: self.link, mtu: *mtu };
            let into = self.narrow.get(key).map_or(RouteKind::Link(self.link), narrow);
            match peer.routing {
                _ if is_probed => {
                    routes.insert(MAIN_TABLE, RouteKind::Link(self.link));
                    is_guarded = true;
                }
                Routing::Cluster => {}
                _ if is_reached => is_unrouted = true,
                Routing::Main => {
                    routes.insert(MAIN_TABLE, into);
                    is_guarded = true;
                }
                Routing::Before => drop(routes.insert(BEFORE_TABLE, into)),
                Routing::Nowhere | Routing::Yielding => {}
            }
        }
        if self.external.contains(&network) {
            match self.is_reached(&network) {
                true => is_unrouted = true,
                false => is_guarded = true,
            }
        }
        for table in [MAIN_TABLE, BEFORE_TABLE] {
            let (at, new) = ((table, network), routes.get(&table).copied());
            let old = match new {
                Some(kind) => wanted.routed.insert(at, kind),
                None => wanted.routed.remove(&at),
            };
            match (old, new) {
                (Some(old), None) => differs.gone.push((at, old)),
                (old, Some(new)) if old != Some(new) => differs.new.push((at, new)),
                _ => {}
            }
        }
        if is_guarded && wanted.guarded.insert(network) {
            differs.guarded.push(network);
        } else if !is_guarded && wanted.guarded.remove(&network) {
            differs.unguarded.push(network);
        }
        match is_unrouted {
            true => wanted.unrouted.insert(network),
            false => wanted.unrouted.remove(&network),
        };
    }
}

#[cfg(test)]
mod tests;
