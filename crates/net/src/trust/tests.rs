use std::sync::Arc;

use objects::kinds::{AddressBlockSpec, AddressBlockStatus};
use proptest::prelude::*;

use super::*;
use crate::pool::tests::pool as pool_object;

mod on_kube;

/// A pool of two blocks of both families.
fn pools() -> Pools {
    [pool_object("default", 0, 5, &[("10.2.0.0/26", "fd00:2::/122")])].into_iter().collect()
}

fn block(name: &str, node: &str, [ipv4, ipv6]: [&str; 2], via: &[&str]) -> AddressBlock {
    let (pool, index) = name.rsplit_once('-').unwrap();
    let spec = AddressBlockSpec {
        pool: pool.to_owned(),
        index: index.parse().unwrap(),
        node: node.to_owned(),
        ipv4: (!ipv4.is_empty()).then(|| ipv4.parse().unwrap()),
        ipv6: (!ipv6.is_empty()).then(|| ipv6.parse().unwrap()),
        node_addresses: via.iter().map(|address| address.parse().unwrap()).collect(),
    };
    AddressBlock::new(name, spec)
}

const FIRST: [&str; 2] = ["10.2.0.0/27", "fd00:2::/123"];
const SECOND: [&str; 2] = ["10.2.0.32/27", "fd00:2::20/123"];

fn blocks(all: Vec<AddressBlock>) -> Blocks {
    let named = |mut block: AddressBlock| {
        block.metadata.uid = Some(format!("uid of {}", name_of(&block)));
        (name_of(&block), Arc::new(block))
    };
    all.into_iter().map(named).collect()
}

fn nodes(all: &[(&str, &[&str])]) -> NodeAddresses {
    let addresses =
        |has: &[&str]| has.iter().map(|address| address.parse().unwrap()).collect::<Vec<IpAddr>>();
    all.iter().map(|(name, has)| ((*name).to_owned(), addresses(has))).collect()
}

fn via(verdict: &Verdict, name: &str) -> Vec<String> {
    verdict.believed[name].block.via.iter().map(ToString::to_string).collect()
}

#[test]
fn only_what_the_pool_has_there_is_believed_whoever_says_so() {
    let there = blocks(vec![
        block("default-0", "b", FIRST, &["10.0.0.2", "fd00::2"]),
        block("default-1", "b", ["10.96.0.0/12", ""], &["10.0.0.2"]),
        block("default-2", "b", ["10.2.0.64/27", "fd00:2::40/123"], &["10.0.0.2"]),
        block("evil-0", "b", ["0.0.0.0/1", ""], &["10.0.0.2"]),
        block("evil-1", "b", ["128.0.0.0/1", ""], &["10.0.0.2"]),
        // In the name of the one that looks: it would be a hole.
        block("evil-2", "a", ["192.0.2.0/24", ""], &[]),
    ]);
    for nodes in [None, Some(nodes(&[("b", &["10.0.0.2", "fd00::2"])]))] {
        let verdict = judge("a", &there, &pools(), nodes.as_ref(), &Believed::new());
        assert_eq!(verdict.believed.keys().collect::<Vec<_>>(), ["default-0"]);
        assert_eq!(via(&verdict, "default-0"), ["10.0.0.2", "fd00::2"]);
        let doubts: Vec<_> =
            verdict.doubts.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        assert_eq!(
            doubts,
            [
                "default-1: it says 10.96.0.0/12, and block 1 of pool default is 10.2.0.32/27 and \
                 fd00:2::20/123",
                "default-2: pool default has no block 2",
                "evil-0: there is no pool evil that 0.0.0.0/1 could be of",
                "evil-1: there is no pool evil that 128.0.0.0/1 could be of",
                "evil-2: there is no pool evil that 192.0.2.0/24 could be of",
            ]
        );
    }
}

#[test]
fn a_node_is_reached_where_its_node_object_says_and_one_without_is_not() {
    let there = blocks(vec![
        block("default-0", "b", FIRST, &["10.0.0.1", "fd00::2"]),
        block("default-1", "ghost", SECOND, &["10.0.0.3"]),
    ]);
    let told = nodes(&[("a", &["10.0.0.1"]), ("b", &["10.0.0.2", "fd00::7", "fd00::2"])]);
    let verdict = judge("c", &there, &pools(), Some(&told), &Believed::new());
    assert_eq!(via(&verdict, "default-0"), ["10.0.0.2", "fd00::2"]);
    assert!(verdict.doubts["default-0"].contains("10.0.0.1, which its Node does not have"));
    assert!(verdict.doubts["default-1"].contains("no Node ghost"));
    assert_eq!(verdict.believed.len(), 1);

    // A family that the Node has no address of is not routed, and that is said.
    let told = nodes(&[("b", &["10.0.0.1"])]);
    let verdict = judge("c", &there, &pools(), Some(&told), &Believed::new());
    assert_eq!(via(&verdict, "default-0"), ["10.0.0.1"]);
    assert!(verdict.doubts["default-0"].contains("no address of that family"));
}

#[test]
fn what_was_believed_stays_while_it_is_the_same_and_nobody_new_before_all_is_told() {
    let there = blocks(vec![block("default-0", "b", FIRST, &["10.0.0.2"])]);
    let told = nodes(&[("b", &["10.0.0.2"])]);
    for (pools, nodes) in [(Pools::default(), &told), (pools(), &NodeAddresses::default())] {
        let verdict = judge("a", &there, &pools, Some(nodes), &Believed::new());
        assert_eq!(verdict, Verdict::default(), "no belief, no doubt, and nothing is taken away");
    }
    let whole = judge("a", &there, &pools(), Some(&told), &Believed::new());
    assert!(whole.complete && whole.doubts.is_empty());

    // The pool is gone, the Node is gone: its pods are still there.
    let (gone, nobody) = (Pools::from_iter([]), nodes(&[]));
    let later = judge("a", &there, &gone, Some(&nobody), &whole.believed);
    assert_eq!(later, whole);
    // Another block of the name is another block.
    let mut other = blocks(vec![block("default-0", "b", FIRST, &["10.0.0.2"])]);
    let mut made_anew = (*other["default-0"]).clone();
    made_anew.metadata.uid = Some("another".to_owned());
    other.set("default-0".to_owned(), Some(Arc::new(made_anew)));
    let later = judge("a", &other, &gone, Some(&nobody), &whole.believed);
    assert!(later.believed.is_empty());
    assert_eq!(later.doubts.len(), 1);
}

#[test]
fn a_doubt_is_said_once_and_again_when_it_is_another() {
    let mut said = ReportedDoubts::default();
    let doubt = |why: &str| BTreeMap::from([("default-0".to_owned(), why.to_owned())]);
    assert_eq!(said.news(&doubt("one")).len(), 1);
    assert_eq!(said.news(&doubt("one")).len(), 0);
    assert_eq!(said.news(&doubt("other")).len(), 1);
    assert_eq!(said.news(&BTreeMap::new()).len(), 0);
    assert_eq!(said.news(&doubt("other")).len(), 1);
}

/// One thing that changes.
#[derive(Clone, Debug)]
enum Edit {
    Block(u32, Option<(u8, bool, u8, u32)>),
    Node(u8, Option<Vec<u8>>),
    Pools(u8),
    NodesListed,
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let block = (0u8..3, any::<bool>(), 0u8..4, 0u32..3);
    prop_oneof![
        4 => (0u32..4, proptest::option::weighted(0.8, block))
            .prop_map(|(number, block)| Edit::Block(number, block)),
        2 => (0u8..3, proptest::option::of(proptest::collection::vec(0u8..4, 0..3)))
            .prop_map(|(node, has)| Edit::Node(node, has)),
        1 => (0u8..3).prop_map(Edit::Pools),
        1 => Just(Edit::NodesListed),
    ]
}

proptest! {
    #[test]
    fn what_is_judged_by_changes_is_what_all_blocks_are_judged(
        edits in proptest::collection::vec(any_edit(), 1..40), has_nodes: bool,
    ) {
        let address = |number: u8| IpAddr::from([10, 0, 0, number]);
        let own = "n0";
        let (mut there, mut told) = (blocks(Vec::new()), NodeAddresses::default());
        let (mut pools, mut generation) = (Pools::default(), 0);
        let mut unsure = UnsureBlocks::default();
        let (mut judge_of_changes, mut expected) = (Judge::default(), Verdict::default());
        for edit in edits {
            match edit {
                Edit::Block(number, None) => {
                    there.set(format!("default-{number}"), None);
                }
                Edit::Block(number, Some((node, lies, via, used))) => {
                    let name = format!("default-{number}");
                    let at = if lies { 7 } else { number * 32 };
                    let network = format!("10.2.0.{at}/27");
                    let network = network.parse::<ipnet::Ipv4Net>().unwrap().trunc().to_string();
                    let via = address(via).to_string();
                    let mut new = block(&name, &format!("n{node}"), [&network, ""], &[&via]);
                    new.metadata.uid = Some(format!("uid {used}"));
                    new.status = Some(AddressBlockStatus { used, free: 0, trouble: None });
                    there.set(name, Some(Arc::new(new)));
                }
                Edit::Node(node, has) => {
                    let has = has.map(|has| has.into_iter().map(address).collect());
                    told.set(format!("n{node}"), has);
                }
                Edit::NodesListed => told.synced = true,
                Edit::Pools(which) => {
                    generation += 1;
                    let subnets = [&[][..], &[("10.2.0.0/26", "")], &[("10.2.0.0/25", "")]];
                    let pool = |subnets: &[(&str, &str)]| pool_object("default", 0, 5, subnets);
                    let subnets = subnets[usize::from(which)];
                    let all = (!subnets.is_empty()).then(|| pool(subnets));
                    pools = all.into_iter().collect();
                }
            }
            let nodes = has_nodes.then_some(&told);
            let all = there.values().filter(|block| {
                let has = told.get(&block.spec.node);
                has.is_none_or(|has| block.spec.node_addresses.iter().any(|says| !has.contains(says)))
            });
            let all: BTreeSet<_> = all.map(|block| block.spec.node.clone()).collect();
            unsure.follow(&there, &told);
            prop_assert_eq!(unsure.nodes().into_keys().collect::<BTreeSet<_>>(), all);
            let before = expected.believed.clone();
            expected = judge(own, &there, &pools, nodes, &before);
            let changed = judge_of_changes.take(own, &there, (&pools, generation), nodes);
            prop_assert_eq!(judge_of_changes.verdict(), &expected);
            let names: BTreeSet<_> = before.keys().chain(expected.believed.keys()).collect();
            let differ = |name: &&&String| before.get(**name) != expected.believed.get(**name);
            let differ: Vec<_> = names.iter().filter(differ).map(|name| (*name).clone()).collect();
            prop_assert_eq!(changed, differ);
        }
    }
}
