#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::SocketAddr;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::routes;

const LINK: u32 = 7;

fn any_key() -> impl Strategy<Value = PublicKey> {
    (0u8..5).prop_map(|it| PublicKey([it; 32]))
}

/// Few networks, so that peers share some, and some hold others.
fn any_network() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (0u8..4, 22u8..26)
            .prop_map(|(it, length)| IpNet::new([10, 0, it, 1].into(), length).unwrap()),
        (0u8..3).prop_map(|it| IpNet::new([192, 0, 2, it].into(), 32).unwrap()),
        (0u16..2).prop_map(|it| IpNet::new([0xfd00, it, 0, 0, 0, 0, 0, 1].into(), 32).unwrap()),
        any_key().prop_map(path::allowed),
    ]
}

fn any_peer() -> impl Strategy<Value = Peer> {
    let routing = prop_oneof![
        4 => Just(Routing::Main),
        1 => Just(Routing::Before),
        1 => Just(Routing::Cluster),
        1 => Just(Routing::Nowhere),
    ];
    let place = prop_oneof![
        (0u8..3).prop_map(|it| SocketAddr::from(([192, 0, 2, it], 1))),
        (0u8..3).prop_map(|it| SocketAddr::from(([10, 0, it, 9], 1))),
        Just(SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 9], 1))),
    ];
    (vec(any_network(), 0..4), option::of(place), routing).prop_map(
        |(allowed_ips, endpoint, routing)| Peer {
            allowed_ips,
            endpoint,
            routing,
            ..Peer::default()
        },
    )
}

proptest! {
    #[test]
    fn changes_one_after_the_other_are_what_all_peers_at_once_want(
        first in btree_map(any_key(), any_peer(), 0..5),
        steps in vec(btree_map(any_key(), option::of(any_peer()), 0..3), 0..6),
        narrow in btree_map(any_key(), 1_280u32..1_400, 0..3),
        external in vec(any_network().prop_map(|it| it.trunc()), 0..2),
    ) {
        let (none, external) = (BTreeMap::new(), external.into_iter().collect());
        let all = |peers: &Peers| routes::wanted(LINK, peers, &narrow, &none, &external, &[]);
        let mut peers = first;
        let mut wanted = all(&peers);
        let mut plan = RoutePlan::new(LINK, &peers, &narrow, &external).unwrap();
        for changes in steps {
            let before = (wanted.routed.clone(), wanted.guarded.clone());
            let differs = plan.change(&peers, &changes, &mut wanted);
            for (key, new) in changes {
                match new {
                    Some(peer) => drop(peers.insert(key, peer)),
                    None => drop(peers.remove(&key)),
                }
            }
            let expected = all(&peers);
            prop_assert_eq!(&wanted.routed, &expected.routed);
            prop_assert_eq!(&wanted.guarded, &expected.guarded);
            prop_assert_eq!(&wanted.unrouted, &expected.unrouted);
            // What is said to differ leads from before to after.
            let (mut routed, mut guarded) = before;
            for (at, kind) in differs.gone {
                prop_assert_eq!(routed.remove(&at), Some(kind));
            }
            for (at, kind) in differs.new {
                prop_assert_ne!(routed.insert(at, kind), Some(kind));
            }
            prop_assert_eq!(routed, expected.routed);
            for network in differs.guarded {
                prop_assert!(guarded.insert(network));
            }
            for network in differs.unguarded {
                prop_assert!(guarded.remove(&network));
            }
            prop_assert_eq!(guarded, expected.guarded);
        }
    }
}

#[test]
fn peers_that_concern_the_routes_of_others_are_planned_with_them() {
    let plan = |peer: Peer| {
        let peers = [(PublicKey([1; 32]), peer)].into();
        RoutePlan::new(LINK, &peers, &BTreeMap::new(), &BTreeSet::new())
    };
    assert!(plan(Peer::default()).is_some());
    assert!(plan(Peer { routing: Routing::Yielding, ..Peer::default() }).is_none());
    let successor_of = Some(PublicKey([2; 32]));
    assert!(plan(Peer { successor_of, ..Peer::default() }).is_none());
}
