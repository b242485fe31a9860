//! `NetworkClaims`: networks, each with the nodes that claim it. What a lookup costs follows from the
//! claims that overlap the network, not from how many claims there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;

#[derive(Clone, Debug, Default)]
pub(crate) struct NetworkClaims {
    /// In the order of addresses, a wider network before a narrower one.
    claims: BTreeMap<IpNet, BTreeSet<Arc<str>>>,
    /// How many networks there are of each family (whether it is IPv6) and length: a network can be within
    /// another only if there is one of that length.
    lengths: BTreeMap<(bool, u8), usize>,
}

impl NetworkClaims {
    pub(crate) fn insert(&mut self, network: IpNet, node: &Arc<str>) {
        let nodes = self.claims.entry(network.trunc()).or_default();
        if nodes.is_empty() {
            *self.lengths.entry(length(&network)).or_default() += 1;
        }
        nodes.insert(Arc::clone(node));
    }

    pub(crate) fn remove(&mut self, network: IpNet, node: &str) {
        let network = network.trunc();
        let Some(nodes) = self.claims.get_mut(&network) else { return };
        if !nodes.remove(node) || !nodes.is_empty() {
            return;
        }
        self.claims.remove(&network);
        if let Some(count) = self.lengths.get_mut(&length(&network)) {
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
            self.claims.get_key_value(&wider)
        });
        let last = IpNet::new(network.broadcast(), network.max_prefix_len());
        let within = self.claims.range(network..=last.unwrap_or(network));
        wider.chain(within).flat_map(|(network, nodes)| nodes.iter().map(|node| (*network, node)))
    }
}

fn length(network: &IpNet) -> (bool, u8) {
    (matches!(network, IpNet::V6(_)), network.prefix_len())
}

#[cfg(test)]
mod tests;
