use objects::kinds::{AddressBlockSpec, AddressBlockStatus, AddressPool};

use super::*;
use crate::pool::tests::pool as pool_object;

fn block(index: u32, ipv4: &str, node: &str, used: u32, trouble: Option<&str>) -> AddressBlock {
    let spec = AddressBlockSpec {
        pool: "default".to_owned(),
        index,
        node: node.to_owned(),
        ipv4: Some(ipv4.parse().unwrap()),
        ipv6: None,
        node_addresses: Vec::new(),
    };
    let mut block = AddressBlock::new(&format!("default-{index}"), spec);
    let trouble = trouble.map(str::to_owned);
    block.status = Some(AddressBlockStatus { used, free: 4 - used, trouble });
    block
}

fn blocks(all: Vec<AddressBlock>) -> Blocks {
    let named = |block: AddressBlock| (name_of(&block), Arc::new(block));
    all.into_iter().map(named).collect()
}

fn of(object: &AddressPool, blocks: &Blocks, second: i64) -> AddressPoolStatus {
    let pools: Pools = [object.clone()].into_iter().collect();
    let judged = pools.get("default").unwrap();
    status(judged, blocks, None, Timestamp::from_second(second).unwrap())
}

fn told(status: &AddressPoolStatus) -> Vec<String> {
    let tell = |c: &Condition| format!("{}={} {} {}", c.r#type, c.status, c.reason, c.message);
    status.conditions.iter().map(tell).collect()
}

#[test]
fn it_counts_what_blocks_say() {
    let object = pool_object("default", 0, 2, &[("10.0.0.0/28", "")]);
    let there = blocks(vec![
        block(0, "10.0.0.0/30", "a", 3, None),
        block(2, "10.0.0.8/30", "b", 1, None),
        block(3, "10.0.0.12/30", "b", 0, None),
    ]);
    let status = of(&object, &there, 1);
    assert_eq!((status.blocks, status.claimed, status.nodes), (4, 3, 2));
    assert_eq!((status.used, status.free), (4, 12));
    let nodes: Vec<_> =
        status.per_node.iter().map(|n| (n.node.as_str(), n.blocks, n.used)).collect();
    assert_eq!(nodes, [("b", 2, 1), ("a", 1, 3)]);
    assert_eq!(
        told(&status),
        [
            "Ready=True Open blocks can be claimed",
            "Exhausted=False BlocksFree there are blocks to claim",
            "Consistent=True AsItShouldBe every block is of this pool"
        ]
    );
}

#[test]
fn what_takes_a_person_is_a_condition_with_its_time() {
    let mut object = pool_object("default", 0, 2, &[("10.0.0.0/29", "")]);
    let full = blocks(vec![
        block(0, "10.0.0.0/30", "a", 4, Some("no room")),
        block(1, "10.0.0.4/30", "a", 4, Some("no room")),
        // Of a subnet that was taken away.
        block(2, "10.9.0.0/30", "b", 1, None),
    ]);
    object.status = Some(of(&object, &full, 1));
    let again = of(&object, &full, 2);
    assert_eq!(object.status.as_ref(), Some(&again), "the time is that of the change");
    assert_eq!(
        told(&again),
        [
            "Ready=False Exhausted every block is claimed",
            "Exhausted=True AllClaimed all 2 blocks are claimed: append a subnet",
            "Consistent=False BlocksContested block default-2 of node b (10.9.0.0/30) is not what \
             this pool has at its index: nodes that have not routed to it before do not; put the \
             subnets back as they were, or delete its pods and then the block; node a: no room",
        ]
    );
    let times = |status: &AddressPoolStatus| -> Vec<_> {
        status.conditions.iter().map(|c| c.last_transition_time.clone().unwrap()).collect()
    };
    let mended = of(&object, &blocks(Vec::new()), 3);
    assert_eq!(times(&again), ["1970-01-01T00:00:01Z"; 3]);
    assert_eq!(times(&mended), ["1970-01-01T00:00:03Z"; 3]);
}

#[test]
fn an_overlap_and_an_invalid_pool_say_why_they_are_not_claimed_from() {
    let old = pool_object("old", 0, 2, &[("10.0.0.0/24", "")]);
    let new = pool_object("new", 1, 2, &[("10.0.0.0/28", "")]);
    let judged: Pools = [old, new].into_iter().collect();
    let now = Timestamp::from_second(1).unwrap();
    let overlaps = status(judged.get("new").unwrap(), &Blocks::default(), None, now);
    assert_eq!(
        told(&overlaps)[0],
        "Ready=False NotClaimedFrom nothing is claimed from it: its 10.0.0.0/28 overlaps 10.0.0.0/24 \
         of pool old, which is older"
    );
    assert_eq!((overlaps.blocks, overlaps.free), (4, 16));

    let invalid = of(&pool_object("default", 0, 2, &[("10.0.0.1/24", "")]), &Blocks::default(), 1);
    assert!(told(&invalid)[0].contains("has bits set after its prefix"), "{:?}", told(&invalid));
    assert_eq!((invalid.blocks, invalid.free), (0, 0));
}

#[test]
fn many_problems_are_counted_and_the_first_told() {
    let object = pool_object("default", 0, 2, &[("10.0.0.0/24", "")]);
    let all = (0..9).map(|n| {
        let net = format!("10.0.0.{}/30", n * 4);
        block(n, &net, &format!("node-{n}"), 1, Some("no room"))
    });
    let status = of(&object, &blocks(all.collect()), 1);
    let consistent = &told(&status)[2];
    assert!(consistent.ends_with("node node-4: no room; and 4 more"), "{consistent}");
}
