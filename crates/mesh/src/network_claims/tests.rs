use std::sync::Arc;

use ipnet::IpNet;
use proptest::prelude::*;

use super::NetworkClaims;
use crate::overlap::overlap;

/// Networks of few addresses and all lengths, of both families: many contain each other.
fn network() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (0u32..64, 24u8..=32).prop_map(|(low, length)| {
            IpNet::new(std::net::Ipv4Addr::from(0x0a00_0000 + low).into(), length).unwrap()
        }),
        (0u128..64, 120u8..=128).prop_map(|(low, length)| {
            IpNet::new(std::net::Ipv6Addr::from((0xfd00 << 112) + low).into(), length).unwrap()
        }),
        Just("0.0.0.0/0".parse().unwrap()),
        Just("::/0".parse().unwrap()),
    ]
}

proptest! {
    #[test]
    fn overlapping_claims_are_those_of_a_look_at_all(
        steps in proptest::collection::vec((any::<bool>(), network(), 0u8..4), 0..80),
        asked in proptest::collection::vec(network(), 1..20),
    ) {
        let mut claims = NetworkClaims::default();
        let mut all: std::collections::BTreeSet<(IpNet, Arc<str>)> = Default::default();
        for (adds, network, node) in steps {
            let node: Arc<str> = format!("n{node}").into();
            if adds {
                claims.insert(network, &node);
                all.insert((network.trunc(), node));
            } else {
                claims.remove(network, &node);
                all.remove(&(network.trunc(), node));
            }
        }
        for network in asked {
            let found: Vec<_> =
                claims.overlapping(&network).map(|(of, node)| (of, Arc::clone(node))).collect();
            let mut sorted = found.clone();
            sorted.sort();
            let truth: Vec<_> =
                all.iter().filter(|(of, _)| overlap(of, &network)).cloned().collect();
            prop_assert_eq!(&sorted, &truth);
            // Those that contain it come first.
            let contains = |(of, _): &(IpNet, Arc<str>)| of.prefix_len() < network.prefix_len();
            prop_assert!(found.is_sorted_by_key(|claim| !contains(claim)));
        }
        prop_assert_eq!(claims.lengths.values().sum::<usize>(), claims.claims.len());
    }
}
