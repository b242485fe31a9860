use objects::kinds::AddressBlockSpec;

use super::*;

const GRACE: Duration = Duration::from_secs(600);

fn blocks(nodes: &[&str]) -> Blocks {
    let block = |(index, node): (usize, &&str)| {
        let spec = AddressBlockSpec {
            pool: "default".to_owned(),
            index: u32::try_from(index).unwrap(),
            node: (*node).to_owned(),
            ipv4: Some(format!("10.0.0.{}/30", index * 4).parse().unwrap()),
            ipv6: None,
            node_addresses: Vec::new(),
        };
        let name = format!("default-{index}");
        (name.clone(), Arc::new(AddressBlock::new(&name, spec)))
    };
    nodes.iter().enumerate().map(block).collect()
}

fn nodes(names: &[&str]) -> NodeAddresses {
    names.iter().map(|name| ((*name).to_owned(), Vec::new())).collect()
}

fn names(blocks: &[Arc<AddressBlock>]) -> Vec<String> {
    blocks.iter().map(|block| name_of(&**block)).collect()
}

/// The time of day, some seconds after one that is noted as `1970-01-01T00:00:00Z`.
fn second(second: u64) -> Timestamp {
    Timestamp::from_second(i64::try_from(second).unwrap()).unwrap()
}

/// What a leader does, as the store would have it afterwards.
fn written(blocks: &mut Blocks, plan: &ReclaimPlan) {
    for (block, since) in &plan.annotate {
        let mut noted = (**block).clone();
        let annotations = noted.metadata.annotations.get_or_insert_default();
        match since {
            Some(since) => annotations.insert(MISSING_SINCE.to_owned(), since.to_string()),
            None => annotations.remove(MISSING_SINCE),
        };
        blocks.set(name_of(&noted), Some(Arc::new(noted)));
    }
}

#[test]
fn blocks_go_when_their_node_was_absent_for_the_grace_without_a_break() {
    let (mut missing, start) = (MissingNodes::default(), Instant::now());
    let blocks = blocks(&["here", "gone", "gone", "flapping"]);
    let mut look = |there: &[&str], at: Duration| {
        let time = second(at.as_secs());
        names(&missing.look(&nodes(there), &blocks, GRACE, start + at, time).take_back)
    };
    assert_eq!(look(&["here"], Duration::ZERO), [""; 0]);
    assert_eq!(look(&["here", "flapping"], GRACE / 2), [""; 0]);
    assert_eq!(look(&["here"], GRACE / 2), [""; 0]);
    assert_eq!(look(&["here"], GRACE), ["default-1", "default-2"]);
    assert_eq!(look(&["here"], GRACE + GRACE / 2), ["default-1", "default-2", "default-3"]);
}

#[test]
fn a_server_that_knows_no_node_or_not_all_blocks_is_not_believed() {
    let (mut missing, start) = (MissingNodes::default(), Instant::now());
    let mut all = blocks(&["gone"]);
    let mut look = |there: &[&str], all: &mut Blocks, at: Duration| {
        let look = missing.look(&nodes(there), all, GRACE, start + at, second(at.as_secs()));
        written(all, &look);
        names(&look.take_back)
    };
    assert!(look(&["here"], &mut all, Duration::ZERO).is_empty());
    assert_eq!(noted_on(&all["default-0"]), Some("1970-01-01T00:00:00Z"));
    assert!(look(&[], &mut all, GRACE).is_empty());
    assert_eq!(noted_on(&all["default-0"]), None);
    // And the grace begins anew.
    assert!(look(&["here"], &mut all, GRACE + Duration::from_secs(1)).is_empty());
    all.synced = false;
    assert!(look(&["here"], &mut all, GRACE * 3).is_empty());
}

#[test]
fn the_grace_goes_on_under_another_leader_and_begins_anew_when_the_node_was_back() {
    let start = Instant::now();
    let mut all = blocks(&["here", "gone", "back"]);
    let look = |missing: &mut MissingNodes, there: &[&str], all: &mut Blocks, at: u64| {
        let now = start + Duration::from_secs(at);
        let look = missing.look(&nodes(there), all, GRACE, now, second(at));
        written(all, &look);
        names(&look.take_back)
    };
    let mut first = MissingNodes::default();
    assert_eq!(look(&mut first, &["here"], &mut all, 0), [""; 0]);
    assert_eq!(noted_on(&all["default-0"]), None);
    assert_eq!(noted_on(&all["default-2"]), Some("1970-01-01T00:00:00Z"));

    // The next leader has its own clocks; the note tells what passed before.
    let mut second = MissingNodes::default();
    assert_eq!(look(&mut second, &["here", "back"], &mut all, 590), [""; 0]);
    assert_eq!(noted_on(&all["default-2"]), None);
    assert_eq!(look(&mut second, &["here"], &mut all, 600), ["default-1"]);
    assert_eq!(noted_on(&all["default-2"]), Some("1970-01-01T00:10:00Z"));

    // A note that could not be taken away is not believed by who has seen the node.
    let mut third = MissingNodes::default();
    let kept = all.clone();
    assert_eq!(look(&mut third, &["here", "back"], &mut all, 700), ["default-1"]);
    all = kept;
    assert_eq!(look(&mut third, &["here"], &mut all, 1250), ["default-1"]);
    assert_eq!(look(&mut third, &["here"], &mut all, 1850), ["default-1", "default-2"]);

    // A clock that is ahead was the earlier leader's fault, and hurries nothing.
    let mut behind = MissingNodes::default();
    let mut all = blocks(&["here", "gone"]);
    assert_eq!(look(&mut MissingNodes::default(), &["here"], &mut all, 5000), [""; 0]);
    assert_eq!(look(&mut behind, &["here"], &mut all, 100), [""; 0]);
    assert_eq!(look(&mut behind, &["here"], &mut all, 700), ["default-1"]);
}
