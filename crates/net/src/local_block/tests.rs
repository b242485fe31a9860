use objects::kinds::Networks;

use super::LocalBlock;

fn block(ipv4: &str, ipv6: &str) -> LocalBlock {
    let networks = Networks { ipv4: ipv4.parse().ok(), ipv6: ipv6.parse().ok() };
    LocalBlock::new("default".into(), networks, 0).unwrap()
}

#[test]
fn the_next_address_is_the_one_after_the_last_round_and_round() {
    let mut block = block("10.0.0.8/30", "");
    let mut given = Vec::new();
    for _ in 0..3 {
        let offset = block.vacant(|_| true).unwrap();
        block.take(offset);
        given.push(offset);
    }
    assert_eq!(given, [0, 1, 2]);
    // What comes back first is given last.
    block.give_back(0);
    assert_eq!(block.vacant(|_| true), Some(3));
    block.take(3);
    assert_eq!((block.vacant(|_| true), block.free()), (Some(0), 1));
    block.take(0);
    assert_eq!((block.vacant(|_| true), block.free(), block.used()), (None, 0, 4));
}

#[test]
fn a_block_larger_than_any_of_a_pool_is_none() {
    let made = |ipv4: &str| {
        let networks = Networks { ipv4: ipv4.parse().ok(), ipv6: None };
        LocalBlock::new("default".into(), networks, 0).is_some()
    };
    assert!(made("10.0.0.0/16"));
    assert!(!made("10.0.0.0/15"));
}

#[test]
fn both_families_have_the_same_place() {
    let block = block("10.0.0.32/27", "fd00::20/123");
    let (ipv4, ipv6) = block.addresses(5);
    assert_eq!(ipv4.unwrap().to_string(), "10.0.0.37");
    assert_eq!(ipv6.unwrap().to_string(), "fd00::25");
    assert_eq!(block.offset(ipv4, ipv6), Some(5));
    assert_eq!(block.offset(None, ipv6), Some(5));
    assert_eq!(block.offset("10.0.0.64".parse().ok(), None), None);
    assert_eq!(block.offset(None, None), None);
}

#[test]
fn every_address_of_a_large_or_a_single_block_is_given_once() {
    for (network, size) in [("10.0.0.0/22", 1024), ("10.0.0.7/32", 1), ("10.0.0.0/25", 128)] {
        let mut block = block(network, "");
        assert_eq!(block.size(), size);
        for expected in 0..size {
            assert_eq!(block.vacant(|_| true), Some(expected));
            block.take(expected);
        }
        assert_eq!(block.vacant(|_| true), None);
    }
}

#[test]
fn nothing_is_given_of_a_barred_block_nor_of_none() {
    let mut cordoned = block("10.0.0.0/30", "");
    cordoned.cordoned = Some("it is another's".into());
    assert_eq!((cordoned.vacant(|_| true), cordoned.free()), (None, 0));
    assert_eq!(LocalBlock::new("default".into(), Networks::default(), 0), None);
    let huge = Networks { ipv6: "fd00::/64".parse().ok(), ipv4: None };
    assert_eq!(LocalBlock::new("default".into(), huge, 0), None);
}
