use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::address_table::Record;
use crate::address_table::tests::{adopted, attachment};
use crate::addresses::Demand;
use crate::pool::tests::pool as pool_object;

/// Pools of blocks of four addresses.
fn pool_objects() -> [objects::kinds::AddressPool; 2] {
    [
        pool_object("default", 0, 2, &[("10.0.0.0/24", "")]),
        pool_object("other", 1, 2, &[("10.1.0.0/24", "")]),
    ]
}

fn pools() -> Pools {
    pool_objects().into_iter().collect()
}

/// Block `index` of a pool of [`pools`], as the store has it.
fn block(pool: &str, index: u32, node: &str, age: i64) -> Arc<AddressBlock> {
    let third = if pool == "default" { 0 } else { 1 };
    let created = Timestamp::from_second(2_000_000 + age).unwrap();
    Arc::new(
        serde_json::from_value(json!({
            "apiVersion": "fairlead.dev/v1alpha1",
            "kind": "AddressBlock",
            "metadata": {
                "name": format!("{pool}-{index}"),
                "uid": format!("uid-{pool}-{index}"),
                "creationTimestamp": created.to_string(),
            },
            "spec": {
                "pool": pool,
                "index": index,
                "node": node,
                "ipv4": format!("10.{third}.0.{}/30", index * 4),
                "nodeAddresses": ["192.0.2.1"],
            },
        }))
        .unwrap(),
    )
}

fn blocks(all: &[Arc<AddressBlock>]) -> Blocks {
    all.iter().map(|block| (name_of(&**block), Arc::clone(block))).collect()
}

fn own(blocks: &Blocks) -> OwnBlocks {
    let mut own = OwnBlocks::new("me");
    own.follow(blocks);
    own
}

/// What the node has, with so many addresses of each block in use.
fn index(mine: &[(&str, u32, u32)]) -> AddressTable {
    let mut index = AddressTable::default();
    for (pool, number, used) in mine {
        let name = format!("{pool}-{number}");
        let networks = block(pool, *number, "me", 0).spec.networks();
        let network = networks.ipv4.unwrap();
        index.apply(&Record::Adopted(adopted(&name, pool, &network.to_string()))).unwrap();
        for (n, address) in
            network.hosts().chain([network.network(), network.broadcast()]).enumerate()
        {
            if n < *used as usize {
                let record = attachment(&format!("{name}-{n}"), pool, Some(&address.to_string()));
                index.apply(&Record::Assigned(record)).unwrap();
            }
        }
    }
    index
}

fn planned(blocks: &Blocks, index: &AddressTable, idle: &[&str], returned: &[&str]) -> ClaimPlan {
    plan(&ClaimInputs {
        node: "me",
        node_addresses: &["192.0.2.1".parse().unwrap()],
        pools: &pools(),
        blocks,
        own: &own(blocks),
        table: index,
        returned: &returned.iter().map(ToString::to_string).collect(),
        idle: &idle.iter().map(ToString::to_string).collect(),
        now: Instant::now(),
    })
}

fn claims(plan: &ClaimPlan) -> Vec<(&str, u32)> {
    plan.claim.iter().map(|(pool, blocks)| (&**pool, *blocks)).collect()
}

#[test]
fn half_a_block_is_kept_free_in_the_default_pool_and_in_those_in_use() {
    let nothing = planned(&blocks(&[]), &index(&[]), &[], &[]);
    assert_eq!(claims(&nothing), [("default", 1)]);

    let mine = [block("default", 0, "me", 0), block("other", 3, "me", 0)];
    let enough = index(&[("default", 0, 2), ("other", 3, 0)]);
    assert_eq!(planned(&blocks(&mine), &enough, &[], &[]), ClaimPlan::default());
    let scarce = index(&[("default", 0, 3), ("other", 3, 3)]);
    assert_eq!(claims(&planned(&blocks(&mine), &scarce, &[], &[])), [("default", 1), ("other", 1)]);
}

#[test]
fn who_waits_is_claimed_for_all_at_once_and_a_pool_in_demand_is_in_use() {
    let mut waiting = index(&[]);
    let demand = Demand { waiting: 21, last: Instant::now() };
    waiting.demand.insert("other".into(), demand);
    assert_eq!(claims(&planned(&blocks(&[]), &waiting, &[], &[])), [("default", 1), ("other", 6)]);
    // They have left, a moment ago.
    waiting.demand.insert("other".into(), Demand { waiting: 0, ..demand });
    assert_eq!(claims(&planned(&blocks(&[]), &waiting, &[], &[])), [("default", 1), ("other", 1)]);
}

#[test]
fn what_was_long_empty_is_given_back_but_for_what_is_kept_free() {
    let mine = [0, 1, 2].map(|n| block("default", n, "me", 0));
    let there = blocks(&mine);
    let idle = ["default-1", "default-2"];
    let spare = planned(
        &there,
        &index(&[("default", 0, 2), ("default", 1, 0), ("default", 2, 0)]),
        &idle,
        &[],
    );
    assert_eq!(spare.give_back, ["default-1", "default-2"]);
    let needed = planned(
        &there,
        &index(&[("default", 0, 3), ("default", 1, 0), ("default", 2, 0)]),
        &idle,
        &[],
    );
    assert_eq!(needed.give_back, ["default-1"]);
    let fresh = planned(
        &there,
        &index(&[("default", 0, 2), ("default", 1, 0), ("default", 2, 0)]),
        &[],
        &[],
    );
    assert_eq!(fresh.give_back, [""; 0]);

    // The last block of another pool goes too; that of the default pool stays.
    let last = blocks(&[block("default", 0, "me", 0), block("other", 0, "me", 0)]);
    let empty = index(&[("default", 0, 0), ("other", 0, 0)]);
    let plan = planned(&last, &empty, &["default-0", "other-0"], &[]);
    assert_eq!(plan.give_back, ["other-0"]);
}

#[test]
fn what_the_store_says_is_ours_is_adopted_unless_it_was_given_back() {
    let mine = block("default", 7, "me", 0);
    let there = blocks(&[Arc::clone(&mine), block("default", 8, "other", 0)]);
    let adopts = planned(&there, &index(&[]), &[], &[]);
    assert_eq!(adopts, ClaimPlan { adopt: vec![Arc::clone(&mine)], ..ClaimPlan::default() });

    let mut cordoned = index(&[("default", 7, 1)]);
    let why = "it was another's".to_owned();
    cordoned.apply(&Record::Cordoned { block: "default-7".to_owned(), why }).unwrap();
    assert_eq!(planned(&there, &cordoned, &[], &[]).adopt, [Arc::clone(&mine)]);

    let returned = planned(&there, &index(&[]), &[], &["uid-default-7"]);
    assert_eq!((&returned.adopt[..], &returned.delete[..]), (&[][..], &[mine][..]));
}

#[test]
fn a_block_that_the_store_gives_to_another_is_assigned_from_no_more_and_told() {
    let there = blocks(&[block("default", 0, "you", 0), block("default", 1, "you", 0)]);
    let plan = planned(&there, &index(&[("default", 0, 2), ("default", 1, 0)]), &[], &[]);
    assert_eq!(plan.cordon["default-0"], "the store says that block default-0 is node you's");
    assert_eq!(plan.forget, ["default-1"]);
    assert_eq!(
        plan.troubles["default"],
        ["the store says that block default-0 is node you's, and 2 pods of this node have \
             addresses of it: delete those pods, and they get others"]
    );
    // Neither counts as free.
    assert_eq!(claims(&plan), [("default", 1)]);
    assert!(plan.give_back.is_empty() && plan.missing.is_empty());
}

#[test]
fn of_two_blocks_that_overlap_the_younger_is_assigned_from_no_more() {
    let mut wide = (*block("other", 0, "you", 1)).clone();
    wide.spec.ipv4 = Some("10.0.0.0/24".parse().unwrap());
    let there = blocks(&[block("default", 0, "me", 2), Arc::new(wide.clone())]);
    let plan = planned(&there, &index(&[("default", 0, 1)]), &[], &[]);
    assert_eq!(
        plan.cordon["default-0"],
        "block default-0 (10.0.0.0/30) overlaps block other-0 of node you, which is older"
    );
    // Not adopted either.
    assert!(planned(&there, &index(&[]), &[], &[]).adopt.is_empty());
    // The older one goes on.
    let there = blocks(&[block("default", 0, "me", 0), Arc::new(wide)]);
    assert!(planned(&there, &index(&[("default", 0, 1)]), &[], &[]).cordon.is_empty());
}

#[test]
fn what_the_store_does_not_have_is_looked_for_and_old_addresses_are_corrected() {
    let plan = planned(&blocks(&[]), &index(&[("default", 0, 1)]), &[], &[]);
    assert_eq!(plan.missing, ["default-0"]);

    let mut moved = (*block("default", 0, "me", 0)).clone();
    moved.spec.node_addresses = vec!["192.0.2.9".parse().unwrap()];
    let moved = Arc::new(moved);
    let plan = planned(&blocks(&[Arc::clone(&moved)]), &index(&[("default", 0, 1)]), &[], &[]);
    assert_eq!(plan, ClaimPlan { correct: vec![moved], ..ClaimPlan::default() });
}

#[test]
fn nothing_is_claimed_from_a_pool_that_is_gone_or_refused_and_its_empty_blocks_go_back() {
    let there = blocks(&[block("other", 0, "me", 0), block("other", 1, "me", 0)]);
    let here = index(&[("other", 0, 4), ("other", 1, 0)]);
    let mut going = pool_objects()[1].clone();
    going.metadata.deletion_timestamp.clone_from(&going.metadata.creation_timestamp);
    for pools in [Pools::from_iter([]), Pools::from_iter([going])] {
        let plan = plan(&ClaimInputs {
            node: "me",
            node_addresses: &["192.0.2.1".parse().unwrap()],
            pools: &pools,
            blocks: &there,
            own: &own(&there),
            table: &here,
            returned: &HashSet::new(),
            idle: &BTreeSet::from(["other-1".to_owned()]),
            now: Instant::now(),
        });
        assert_eq!(
            plan,
            ClaimPlan { give_back: vec!["other-1".to_owned()], ..ClaimPlan::default() }
        );
    }
}

proptest! {
    /// Whatever is so: nothing in use is given up, nothing of another's is assigned from, nothing is
    /// claimed that is not needed, and nothing needed is left unclaimed.
    #[test]
    fn it_is_safe_and_sufficient(
        there in proptest::collection::vec((0..8_u32, any::<bool>()), 0..8),
        here in proptest::collection::btree_map(0..8_u32, 0..=4_u32, 0..8),
        idle in proptest::collection::btree_set(0..8_u32, 0..8),
        waiting in 0..20_u32,
    ) {
        let node = |mine: bool| if mine { "me" } else { "you" };
        let there: Vec<_> = there.iter().map(|(n, mine)| block("default", *n, node(*mine), 0)).collect();
        let there = blocks(&there);
        let mine: Vec<_> = here.iter().map(|(n, used)| ("default", *n, *used)).collect();
        let mut index = index(&mine);
        index.demand.insert("default".into(), Demand { waiting, last: Instant::now() });
        let idle: Vec<_> = idle.iter().map(|n| format!("default-{n}")).collect();
        let idle: Vec<_> = idle.iter().map(String::as_str).collect();
        let plan = planned(&there, &index, &idle, &[]);

        let used = |name: &str| index.block(name).map_or(0, LocalBlock::used);
        for name in plan.forget.iter().chain(&plan.give_back) {
            prop_assert_eq!(used(name), 0);
        }
        for name in &plan.give_back {
            prop_assert!(idle.contains(&name.as_str()));
        }
        for (name, _) in index.blocks() {
            let theirs = there.get(name).is_some_and(|block| block.spec.node == "you");
            let out = plan.cordon.contains_key(name) || plan.forget.iter().any(|other| other == name);
            prop_assert_eq!(theirs, out);
            prop_assert!(!out || !plan.adopt.iter().any(|block| name_of(&**block) == name));
        }
        let gone = |name: &str| {
            plan.cordon.contains_key(name)
                || plan.forget.iter().chain(&plan.give_back).any(|other| other == name)
        };
        let kept: u32 =
            index.blocks().filter(|(name, _)| !gone(name)).map(|(_, block)| block.free()).sum();
        let coming = plan.adopt.len() as u32 * 4;
        let claimed: u32 = plan.claim.iter().map(|(_, blocks)| blocks * 4).sum();
        prop_assert!(kept + coming + claimed >= waiting + 2);
        prop_assert!(claimed == 0 || kept + coming + claimed < waiting + 2 + 4);
        prop_assert!(claimed == 0 || plan.give_back.is_empty());
    }
}

#[test]
fn an_address_rests_under_churn_because_blocks_are_claimed_instead() {
    let (pools, began) = (pools(), Instant::now());
    let mut table = AddressTable::default();
    let mut mine: Vec<Arc<AddressBlock>> = Vec::new();
    let mut alive = std::collections::VecDeque::new();
    let mut freed: BTreeMap<String, Instant> = BTreeMap::new();
    // A pod comes and a pod goes every second for two minutes, beside three that stay a little.
    for second in 0..120_u64 {
        let now = began + Duration::from_secs(second);
        let there = blocks(&mine);
        let plan = plan(&ClaimInputs {
            node: "me",
            node_addresses: &["192.0.2.1".parse().unwrap()],
            pools: &pools,
            blocks: &there,
            own: &own(&there),
            table: &table,
            returned: &HashSet::new(),
            idle: &BTreeSet::new(),
            now,
        });
        let claimed: u32 = plan.claim.iter().filter(|it| &*it.0 == DEFAULT).map(|it| it.1).sum();
        for _ in 0..claimed {
            let new = block(DEFAULT, u32::try_from(mine.len()).unwrap(), "me", 0);
            let network = new.spec.ipv4.unwrap().to_string();
            table.apply(&Record::Adopted(adopted(&name_of(&*new), DEFAULT, &network))).unwrap();
            mine.push(new);
        }
        let address = table.vacant(DEFAULT, now).unwrap().0.unwrap().to_string();
        if let Some(since) = freed.get(&address) {
            let rested = now.duration_since(*since).as_secs();
            assert!(rested >= 30, "{address} was given again after {rested} s");
        }
        let new = attachment(&format!("pod-{second}"), DEFAULT, Some(&address));
        table.apply(&Record::Assigned(Arc::clone(&new))).unwrap();
        alive.push_back(new);
        if alive.len() > 3 {
            let old = table.released(&alive.pop_front().unwrap().key).unwrap();
            table.rest(&old, now);
            freed.insert(old.ipv4.unwrap().to_string(), now);
        }
    }
    // As many as rest at a time, those that are used, and the spare ones.
    assert!((9..=11).contains(&mine.len()), "{} blocks of four", mine.len());
}

#[test]
fn the_block_of_an_address_that_a_pod_chose_is_claimed_or_it_is_said_why_not() {
    let mut table = index(&[("default", 0, 0)]);
    for address in ["10.0.0.21", "10.0.0.41", "10.9.0.1"] {
        table.wanted.insert(address.parse().unwrap(), "default".into());
    }
    let all = blocks(&[block("default", 0, "me", 0), block("default", 10, "other", 0)]);
    let plan = planned(&all, &table, &[], &[]);
    let these: Vec<_> = plan.claim_these.iter().map(|(pool, index)| (&**pool, *index)).collect();
    assert_eq!(these, [("default", 5)]);
    let why: Vec<_> = plan.unobtainable.values().collect();
    assert!(why[0].contains("block default-10, which is node other's"), "{why:?}");
    assert!(why[1].contains("pool default has no address 10.9.0.1"), "{why:?}");
    // A pool of single addresses keeps none that nobody chose.
    let single: Pools = [
        pool_object("default", 0, 2, &[("10.0.0.0/24", "")]),
        pool_object("fixed", 1, 0, &[("10.2.0.0/24", "")]),
    ]
    .into_iter()
    .collect();
    let record = attachment("chosen", "fixed", Some("10.2.0.7"));
    table = index(&[("default", 0, 0)]);
    table.apply(&Record::Adopted(adopted("fixed-7", "fixed", "10.2.0.7/32"))).unwrap();
    table.apply(&Record::Assigned(record)).unwrap();
    let there = blocks(&[block("default", 0, "me", 0)]);
    let plan = super::plan(&ClaimInputs {
        node: "me",
        node_addresses: &[],
        pools: &single,
        blocks: &there,
        own: &own(&there),
        table: &table,
        returned: &HashSet::new(),
        idle: &BTreeSet::new(),
        now: Instant::now(),
    });
    assert!(claims(&plan).is_empty(), "{plan:?}");
}

#[test]
fn a_block_with_pods_of_another_plugin_is_kept_and_its_addresses_are_not_counted_on() {
    let mine = [block("default", 0, "me", 0), block("default", 1, "me", 0)];
    let mut table = index(&[("default", 0, 0), ("default", 1, 0)]);
    let idle = ["default-0", "default-1"];
    assert_eq!(planned(&blocks(&mine), &table, &idle, &[]).give_back.len(), 1);
    let theirs = ["10.0.0.1", "10.0.0.2", "10.0.0.5"];
    table.foreign.extend(theirs.map(|it| it.parse::<IpAddr>().unwrap()));
    let kept = planned(&blocks(&mine), &table, &idle, &[]);
    assert_eq!((kept.give_back.len(), claims(&kept).len()), (0, 0));
    table
        .foreign
        .extend(["10.0.0.3", "10.0.0.6", "10.0.0.7"].map(|it| it.parse::<IpAddr>().unwrap()));
    let scarce = planned(&blocks(&mine), &table, &idle, &[]);
    assert!(claims(&scarce).is_empty(), "two are left, half a block");
    table.foreign.insert("10.0.0.4".parse().unwrap());
    assert_eq!(claims(&planned(&blocks(&mine), &table, &idle, &[])), [("default", 1)]);
}
