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
    Blocks { synced: true, by_name: nodes.iter().enumerate().map(block).collect() }
}

fn nodes(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

fn names(blocks: &[Arc<AddressBlock>]) -> Vec<String> {
    blocks.iter().map(|block| name_of(&**block)).collect()
}

#[test]
fn blocks_go_when_their_node_was_absent_for_the_grace_without_a_break() {
    let (mut absent, start) = (Absent::default(), Instant::now());
    let blocks = blocks(&["here", "gone", "gone", "flapping"]);
    let mut look = |there: &[&str], at: Duration| {
        names(&absent.look(&nodes(there), &blocks, GRACE, start + at))
    };
    assert_eq!(look(&["here"], Duration::ZERO), [""; 0]);
    assert_eq!(look(&["here", "flapping"], GRACE / 2), [""; 0]);
    assert_eq!(look(&["here"], GRACE / 2), [""; 0]);
    assert_eq!(look(&["here"], GRACE), ["default-1", "default-2"]);
    assert_eq!(look(&["here"], GRACE + GRACE / 2), ["default-1", "default-2", "default-3"]);
}

#[test]
fn a_server_that_knows_no_node_or_not_all_blocks_is_not_believed() {
    let (mut absent, start) = (Absent::default(), Instant::now());
    let mut all = blocks(&["gone"]);
    absent.look(&nodes(&["here"]), &all, GRACE, start);
    assert!(absent.look(&nodes(&[]), &all, GRACE, start + GRACE).is_empty());
    // And the grace begins anew.
    assert!(absent.look(&nodes(&["here"]), &all, GRACE, start + GRACE).is_empty());
    all.synced = false;
    assert!(absent.look(&nodes(&["here"]), &all, GRACE, start + GRACE * 3).is_empty());
}
