//! `NetworkClaims`: networks, each with the nodes that claim it. What a lookup costs follows from the
//! claims that overlap the network, not from how many claims there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;

#[derive(Clone, Debug, Default)]
pub(crate) struct NetworkClaims {
    /// In the order of addresses, a wider network before a narrower one.
    claims: BTreeSet<(IpNet, Arc<str>)>,
    /// How many claims there are of each family (whether it is IPv6) and length: a network can be within
    /// another only if there is one of that length.
    lengths: BTreeMap<(bool, u8), usize>,
}

impl NetworkClaims {
    pub(crate) fn insert(&mut self, network: IpNet, node: &Arc<str>) {
        if self.claims.insert((network.trunc(), Arc::clone(node))) {
            *self.lengths.entry(length(&network)).or_default() += 1;
        }
    }

    pub(crate) fn remove(&mut self, network: IpNet, node: &Arc<str>) {
        if self.claims.remove(&(network.trunc(), Arc::clone(node)))
            && let Some(count) = self.lengths.get_mut(&length(&network))
        {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length(&network));
            }
        }
    }

    /// The claims of networks that have an address in common with this one: first those that contain it,
    /// the widest first, then it and those within it by address.
    pub(crate) fn overlapping(&self, network: &IpNet) -> impl Iterator<Item = (IpNet, &Arc<str>)> {
        let network = network.trunc();
        let (is_ipv6, length) = length(&network);
        let wider = self.lengths.range((is_ipv6, 0)..(is_ipv6, length));
        let wider = wider.filter_map(move |((_, length), _)| {
            let wider = IpNet::new(network.addr(), *length).ok()?.trunc();
            Some(self.from(wider).take_while(move |(of, _)| *of == wider))
        });
        let last = network.broadcast();
        let within = self.from(network);
        let within =
            within.take_while(move |(of, _)| of.addr() <= last && of.addr().is_ipv6() == is_ipv6);
        wider.flatten().chain(within).map(|(network, node)| (*network, node))
    }

    fn from(&self, network: IpNet) -> impl Iterator<Item = &(IpNet, Arc<str>)> {
        self.claims.range((network, Arc::default())..)
    }
}

fn length(network: &IpNet) -> (bool, u8) {
    (matches!(network, IpNet::V6(_)), network.prefix_len())
}

#[cfg(test)]
mod tests;
