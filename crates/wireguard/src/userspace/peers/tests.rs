#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::key::PrivateKey;
use crate::peer::{Peers, delta};

fn any_key() -> impl Strategy<Value = PublicKey> {
    (1u8..5).prop_map(|it| PublicKey([it; 32]))
}

fn any_network() -> impl Strategy<Value = IpNet> {
    let network = |(it, length): (u32, u8)| {
        Ipv4Net::new(Ipv4Addr::from(0x0a00_0000 + (it << 6)), length).unwrap().trunc().into()
    };
    (0u32..8, 24u8..28).prop_map(network)
}

fn any_peers() -> impl Strategy<Value = Peers> {
    let peer =
        vec(any_network(), 0..4).prop_map(|allowed_ips| Peer { allowed_ips, ..Peer::default() });
    btree_map(any_key(), peer, 0..4).prop_map(|mut peers| {
        // What two want belongs to one of them: who plans peers sees to that.
        let mut taken = BTreeSet::new();
        for peer in peers.values_mut() {
            peer.allowed_ips.retain(|it| taken.insert(*it));
        }
        peers
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_packet_finds_the_peer_that_is_wanted_for_it_after_any_changes(
        wanted in vec(any_peers(), 1..6),
    ) {
        let device = DevicePeers::new(PrivateKey::generate().unwrap().secret().clone());
        let mut is = Peers::new();
        for wanted in wanted {
            device.apply(&delta(&is, &wanted));
            is = wanted;
            let table = device.table();
            let owners: BTreeMap<IpNet, PublicKey> = is
                .iter()
                .flat_map(|(key, peer)| peer.allowed_ips.iter().map(|it| (*it, *key)))
                .collect();
            for at in 0u32..512 {
                let address = IpAddr::from(Ipv4Addr::from(0x0a00_0000 + at));
                let expected = owners
                    .iter()
                    .filter(|(network, _)| network.contains(&address))
                    .max_by_key(|(network, _)| network.prefix_len())
                    .map(|(_, key)| *key);
                prop_assert_eq!(table.having(address).map(|peer| peer.key), expected);
            }
            let shown = device.views().into_iter().map(|it| (it.key, it.networks));
            let shown: BTreeMap<_, BTreeSet<_>> =
                shown.map(|(key, networks)| (key, networks.into_iter().collect())).collect();
            let expected: BTreeMap<_, BTreeSet<_>> = is
                .iter()
                .map(|(key, peer)| (*key, peer.allowed_ips.iter().copied().collect()))
                .collect();
            prop_assert_eq!(shown, expected);
        }
    }
}
