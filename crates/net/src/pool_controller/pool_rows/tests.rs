use std::sync::Arc;

use objects::kinds::{AddressBlock, AddressBlockSpec, AddressBlockStatus, AddressPool};

use super::*;
use crate::claims::name_of;
use crate::pool::tests::pool as pool_object;

fn block(index: u32, ipv4: &str, node: &str, used: u32) -> AddressBlock {
    let spec = AddressBlockSpec {
        pool: "default".to_owned(),
        index,
        node: node.to_owned(),
        ipv4: Some(ipv4.parse().unwrap()),
        ipv6: None,
        node_addresses: Vec::new(),
    };
    let mut block = AddressBlock::new(&format!("default-{index}"), spec);
    block.status = Some(AddressBlockStatus { used, free: 4 - used, trouble: None });
    block
}

fn pools(object: &AddressPool) -> Pools {
    [object.clone()].into_iter().collect()
}

fn blocks(all: Vec<AddressBlock>) -> Blocks {
    let named = |block: AddressBlock| (name_of(&block), Arc::new(block));
    all.into_iter().map(named).collect()
}

#[test]
fn blocks_are_counted_whether_a_controller_is_there_or_not() {
    let mut object = pool_object("default", 0, 2, &[("10.0.0.0/28", "")]);
    object.metadata.generation = Some(3);
    let there = blocks(vec![block(0, "10.0.0.0/30", "a", 3), block(2, "10.0.0.8/30", "b", 1)]);
    let row = rows(&pools(&object), &there).remove(0);
    let numbers = ["blocks", "claimed", "used", "free", "nodes"].map(|n| row[n].as_u64().unwrap());
    assert_eq!(numbers, [4, 2, 4, 12, 2]);
    assert_eq!(row["observed"], false);
    assert_eq!(row["trouble"], "no controller has looked at it yet");

    // A status of before the last change is none.
    let status =
        |observed_generation| AddressPoolStatus { observed_generation, ..Default::default() };
    object.status = Some(status(Some(2)));
    assert_eq!(rows(&pools(&object), &there)[0]["observed"], false);
    // One that says 0 is older than the blocks.
    object.status = Some(status(Some(3)));
    let row = rows(&pools(&object), &there).remove(0);
    assert_eq!((row["observed"].as_bool(), row["claimed"].as_u64()), (Some(true), Some(2)));
    assert!(row["trouble"].is_null(), "{row}");

    // Until the blocks are told, what the last leader saw.
    let row = rows(&pools(&object), &Blocks::default()).remove(0);
    assert_eq!((row["claimed"].as_u64(), row["blocks"].as_u64()), (Some(0), Some(0)));
}

#[test]
fn what_is_wrong_with_a_pool_is_said_before_a_controller_says_it() {
    let pools = [
        pool_object("default", 0, 2, &[("10.0.0.1/24", "")]),
        pool_object("fine", 0, 2, &[("10.1.0.0/24", "")]),
    ];
    let rows = rows(&pools.into_iter().collect(), &blocks(Vec::new()));
    let trouble = rows[0]["trouble"].as_str().unwrap();
    assert!(trouble.contains("has bits set after its prefix"), "{trouble}");
    assert!(trouble.ends_with("; no controller has looked at it yet"), "{trouble}");
    assert_eq!(rows[1]["trouble"], "no controller has looked at it yet");
}
