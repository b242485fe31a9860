#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn any_peer() -> impl Strategy<Value = Peer> {
    let network = (0..6u8).prop_map(|at| format!("10.{at}.0.0/16").parse().unwrap());
    let networks = proptest::collection::btree_set(network, 0..4);
    let endpoint =
        proptest::option::of((0..3u8).prop_map(|at| SocketAddr::from(([192, 0, 2, at], 51820))));
    let keepalive = proptest::option::of(prop_oneof![Just(25), Just(5)]);
    let shared = proptest::option::of((0..2u8).prop_map(|byte| PresharedKey([byte; 32])));
    (networks, endpoint, keepalive, shared).prop_map(
        |(networks, endpoint, keepalive, preshared_key): (BTreeSet<IpNet>, _, _, _)| Peer {
            allowed_ips: networks.into_iter().collect(),
            endpoint,
            keepalive,
            preshared_key,
            successor_of: None,
            routing: Routing::default(),
        },
    )
}

/// Peers of which no two have a network in common, as a plan makes them.
fn any_peers() -> impl Strategy<Value = Peers> {
    let key = (0..6u8).prop_map(|byte| PublicKey([byte; 32]));
    proptest::collection::btree_map(key, any_peer(), 0..5).prop_map(|mut peers: Peers| {
        let mut taken = BTreeSet::new();
        for peer in peers.values_mut() {
            peer.allowed_ips.retain(|ip| taken.insert(*ip));
        }
        peers
    })
}

/// Does what a delta says, and asserts at each step that no network has two peers.
fn follow(is: &Peers, delta: &Delta) -> Peers {
    let mut peers = is.clone();
    for key in &delta.removed {
        assert!(peers.remove(key).is_some());
    }
    for (key, kept) in &delta.released {
        peers.get_mut(key).unwrap().allowed_ips.clone_from(kept);
    }
    for (key, peer) in &delta.added {
        assert!(peers.insert(*key, peer.clone()).is_none());
        one_peer_a_network(&peers);
    }
    for (key, change) in &delta.changed {
        let peer = peers.get_mut(key).unwrap();
        let Change { allowed_ips, endpoint, keepalive, preshared_key } = change.clone();
        peer.allowed_ips = allowed_ips.unwrap_or_else(|| peer.allowed_ips.clone());
        peer.endpoint = endpoint.or(peer.endpoint);
        peer.keepalive = keepalive.unwrap_or(peer.keepalive);
        peer.preshared_key = preshared_key.unwrap_or_else(|| peer.preshared_key.clone());
        one_peer_a_network(&peers);
    }
    peers
}

fn one_peer_a_network(peers: &Peers) {
    let mut taken = BTreeSet::new();
    assert!(peers.values().flat_map(|peer| &peer.allowed_ips).all(|ip| taken.insert(*ip)));
}

proptest! {
    #[test]
    fn a_delta_leads_to_what_is_wanted(is in any_peers(), wanted in any_peers()) {
        let mut reached = follow(&is, &delta(&is, &wanted));
        // What is said of an endpoint no longer may stay.
        for (key, peer) in &mut reached {
            if wanted[key].endpoint.is_none() {
                peer.endpoint = None;
            }
        }
        prop_assert_eq!(reached, wanted);
    }

    #[test]
    fn nothing_leads_from_peers_to_themselves(is in any_peers()) {
        prop_assert!(delta(&is, &is).is_empty());
    }

    #[test]
    fn a_peer_that_stays_the_same_is_not_mentioned(
        is in any_peers(), wanted in any_peers(), same in any_peer(),
    ) {
        let (mut is, mut wanted) = (is, wanted);
        let key = PublicKey([99; 32]);
        is.insert(key, same.clone());
        wanted.insert(key, same);
        let delta = delta(&is, &wanted);
        prop_assert!(!delta.changed.contains_key(&key) && !delta.released.contains_key(&key));
        prop_assert!(!delta.added.contains_key(&key) && !delta.removed.contains(&key));
    }
}
