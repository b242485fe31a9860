use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use proptest::prelude::*;

use super::Ranges;

fn ranges(texts: &[&str]) -> Ranges {
    let networks: Vec<IpNet> = texts.iter().filter_map(|text| text.parse().ok()).collect();
    assert_eq!(networks.len(), texts.len());
    Ranges::of(&networks)
}

#[test]
fn adjacent_networks_become_one_and_exceptions_leave_holes() {
    assert_eq!(ranges(&["10.0.0.0/9", "10.128.0.0/9"]), ranges(&["10.0.0.0/8"]));
    let left = ranges(&["10.0.0.0/30"]).minus(&ranges(&["10.0.0.1/32"]));
    assert_eq!(left.to_string(), "10.0.0.0-10.0.0.0,10.0.0.2-10.0.0.3");
    assert!(ranges(&["10.0.0.0/8"]).minus(&ranges(&["0.0.0.0/0"])).is_empty());
    let all = Ranges::everything();
    assert_eq!(all, ranges(&["0.0.0.0/0", "::/0"]));
    assert_eq!(all.minus(&ranges(&["::/0"])), ranges(&["0.0.0.0/0"]));
}

#[test]
fn the_families_do_not_touch() {
    let both = ranges(&["255.255.255.255/32", "::/128"]);
    assert_eq!(both.iter().count(), 2);
    assert!(!ranges(&["0.0.0.0/0"]).contains(IpAddr::from([0_u8; 16])));
}

/// Networks among sixteen addresses, so that they overlap.
fn small() -> impl Strategy<Value = Vec<IpNet>> {
    let network = (0_u8..16, 28_u8..=32).prop_map(|(last, bits)| {
        IpNet::new_assert(Ipv4Addr::new(10, 0, 0, last).into(), bits).trunc()
    });
    prop::collection::vec(network, 0..6)
}

proptest! {
    #[test]
    fn ranges_hold_what_their_networks_do(a in small(), b in small()) {
        let (one, other) = (Ranges::of(&a), Ranges::of(&b));
        let (union, left) = (one.union(&other), one.minus(&other));
        for last in 0..20 {
            let address = IpAddr::from([10, 0, 0, last]);
            let within = |networks: &[IpNet]| networks.iter().any(|it| it.contains(&address));
            prop_assert_eq!(union.contains(address), within(&a) || within(&b));
            prop_assert_eq!(left.contains(address), within(&a) && !within(&b));
        }
        for pair in left.0.windows(2) {
            prop_assert!(super::after(pair[0].1) < Some(pair[1].0));
        }
    }
}
