use objects::kinds::{AddressPoolSpec, Subnet};

use super::*;

/// `age`: which second of its life it was made in.
pub(crate) fn pool(name: &str, age: i64, bits: u8, subnets: &[(&str, &str)]) -> AddressPool {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let subnets =
        subnets.iter().map(|(ipv4, ipv6)| Subnet { ipv4: some(ipv4), ipv6: some(ipv6) }).collect();
    let mut pool = AddressPool::new(name, AddressPoolSpec::new(bits, subnets));
    let created = jiff::Timestamp::from_second(1_000_000 + age).unwrap();
    pool.metadata.creation_timestamp = serde_json::from_value(created.to_string().into()).ok();
    pool
}

fn pools<'a>(all: impl IntoIterator<Item = &'a AddressPool>) -> Pools {
    all.into_iter().cloned().collect()
}

fn claimable<'a>(pools: &'a Pools, name: &str) -> Result<&'a Pool, &'a str> {
    pools.get(name).unwrap().claimable()
}

fn judged(pool: &AddressPool) -> Pool {
    Pool::of(pool).unwrap()
}

#[test]
fn blocks_are_numbered_over_all_subnets_and_both_families() {
    let pool = judged(&pool(
        "default",
        0,
        5,
        &[("10.64.0.0/26", "fd00:64::/122"), ("10.65.0.0/27", "fd00:65::/123")],
    ));
    assert_eq!((pool.blocks(), pool.block_size()), (3, 32));
    let blocks: Vec<_> = (0..4).map(|i| pool.block(i).map(|block| block.to_string())).collect();
    assert_eq!(
        blocks,
        [
            Some("10.64.0.0/27 and fd00:64::/123".to_owned()),
            Some("10.64.0.32/27 and fd00:64::20/123".to_owned()),
            Some("10.65.0.0/27 and fd00:65::/123".to_owned()),
            None
        ]
    );
}

#[test]
fn the_largest_pool_can_be_counted() {
    let subnets: Vec<_> = (0..16).map(|i| format!("{}.0.0.0/8", 11 + i)).collect();
    let subnets: Vec<_> = subnets.iter().map(|net| (net.as_str(), "")).collect();
    let pool = judged(&pool("default", 0, 0, &subnets));
    assert_eq!(pool.blocks(), 1 << 28);
    assert_eq!(pool.block(pool.blocks() - 1).unwrap().to_string(), "26.255.255.255/32");
    assert_eq!(pool.block(pool.blocks()), None);
}

#[test]
fn of_two_that_overlap_the_older_one_is_claimed_from() {
    let old = pool("old", 1, 5, &[("10.0.0.0/16", "")]);
    let new = pool("a-new", 2, 5, &[("10.1.0.0/16", ""), ("10.0.7.0/24", "")]);
    let far = pool("far", 3, 5, &[("10.2.0.0/16", "")]);
    for order in [[&old, &new, &far], [&far, &new, &old]] {
        let pools = pools(order);
        assert!(claimable(&pools, "old").is_ok() && claimable(&pools, "far").is_ok());
        let why = claimable(&pools, "a-new").unwrap_err();
        assert_eq!(why, "its 10.0.7.0/24 overlaps 10.0.0.0/16 of pool old, which is older");
    }
    // Made within one second: by name, wherever it is judged.
    let twin = pool("twin", 1, 5, &[("10.0.0.0/16", "")]);
    let pools = pools([&twin, &old]);
    assert!(claimable(&pools, "old").is_ok() && claimable(&pools, "twin").is_err());
}

#[test]
fn an_invalid_pool_and_one_that_goes_are_not_claimed_from() {
    let invalid = pool("invalid", 0, 5, &[("10.0.0.1/16", "")]);
    let invalid = pools([&invalid]);
    let why = claimable(&invalid, "invalid").unwrap_err();
    assert!(why.starts_with("it is invalid: spec.subnets[0].ipv4: "), "{why}");

    let mut going = pool("going", 0, 5, &[("10.0.0.0/16", "")]);
    going.metadata.deletion_timestamp.clone_from(&going.metadata.creation_timestamp);
    let going = pools([&going]);
    assert_eq!(claimable(&going, "going").unwrap_err(), "it is being deleted");
    // Its blocks are still believed: it is valid.
    assert!(
        going.get("going").unwrap().pool.is_some()
            && invalid.get("invalid").unwrap().pool.is_none()
    );
}
