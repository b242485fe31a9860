#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn network(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn the_longest_network_counts_in_each_family() {
    let mut table = AllowedIps::default();
    assert_eq!(table.find(address("10.0.0.1")), None);
    for (at, it) in ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "fd00::/8", "::/0", "fd00::1/128"]
        .into_iter()
        .enumerate()
    {
        assert_eq!(table.insert(&network(it), at), None);
    }
    for (at, expected) in [
        ("10.9.9.9", Some(0)),
        ("10.1.9.9", Some(1)),
        ("10.1.2.3", Some(2)),
        ("10.1.2.4", Some(1)),
        ("11.0.0.1", None),
        ("fd99::1", Some(3)),
        ("fd00::1", Some(5)),
        ("2001:db8::1", Some(4)),
    ] {
        assert_eq!(table.find(address(at)).copied(), expected, "{at}");
    }
    assert_eq!(table.insert(&network("10.1.0.0/16"), 9), Some(1));
    table.remove(&network("10.1.2.3/32"));
    assert_eq!(table.find(address("10.1.2.3")), Some(&9));
}

#[test]
fn a_network_of_all_addresses_and_one_of_a_single_one_hold_each_other() {
    let mut table = AllowedIps::default();
    table.insert(&network("0.0.0.0/0"), 1);
    table.insert(&network("255.255.255.255/32"), 2);
    assert_eq!(table.find(address("255.255.255.255")), Some(&2));
    assert_eq!(table.find(address("0.0.0.0")), Some(&1));
    table.remove(&network("0.0.0.0/0"));
    assert_eq!(table.find(address("255.255.255.254")), None);
    assert_eq!(table.find(address("255.255.255.255")), Some(&2));
}

#[test]
fn a_clone_sees_nothing_of_later_changes() {
    let mut table = AllowedIps::default();
    table.insert(&network("10.0.0.0/8"), 1);
    let before = table.clone();
    table.insert(&network("10.0.0.0/8"), 2);
    table.insert(&network("10.1.0.0/16"), 3);
    assert_eq!(before.find(address("10.1.0.1")), Some(&1));
    table.remove(&network("10.0.0.0/8"));
    assert_eq!(before.find(address("10.2.0.1")), Some(&1));
    assert_eq!(table.find(address("10.2.0.1")), None);
}

/// How many nodes there are, of which how many are shared with another table.
fn nodes(link: &Link<usize>) -> (usize, usize) {
    let Some(node) = link else { return (0, 0) };
    let shared = usize::from(Arc::strong_count(node) > 1);
    // What hangs on a shared node is shared by it.
    let of = |(all, some): (usize, usize)| (all, if shared == 1 { all } else { some });
    node.children
        .iter()
        .map(nodes)
        .map(of)
        .fold((1, shared), |sum, it| (sum.0 + it.0, sum.1 + it.1))
}

#[test]
fn a_change_among_many_networks_copies_few_nodes() {
    let mut table = AllowedIps::default();
    for at in 0..4_096u32 {
        let it = IpNet::from(Ipv4Net::new(Ipv4Addr::from(0x0a00_0000 + (at << 8)), 24).unwrap());
        table.insert(&it, at as usize);
    }
    let mut changed = table.clone();
    changed.remove(&network("10.3.7.0/24"));
    changed.insert(&network("10.3.7.128/25"), 1);
    let (all, shared) = nodes(&changed.v4);
    assert_eq!(all, 2 * 4_096 - 1, "a node has a value or two children");
    assert!(all - shared <= 16, "{} copied", all - shared);
}

/// The table that nothing can be wrong with.
#[derive(Default)]
struct Naive(BTreeMap<IpNet, usize>);

impl Naive {
    fn find(&self, address: IpAddr) -> Option<&usize> {
        let having = self.0.iter().filter(|(network, _)| network.contains(&address));
        having.max_by_key(|(network, _)| network.prefix_len()).map(|(_, value)| value)
    }
}

/// Networks and addresses that are often near each other.
fn v4() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..8, (0u32..8).prop_map(|it| it << 29), any::<u32>()]
}

fn v6() -> impl Strategy<Value = u128> {
    prop_oneof![0u128..8, (0u128..8).prop_map(|it| it << 125), any::<u128>()]
}

fn any_network() -> impl Strategy<Value = IpNet> {
    let four = (v4(), 0u8..=32)
        .prop_map(|(it, length)| Ipv4Net::new(Ipv4Addr::from(it), length).unwrap().trunc().into());
    let six = (v6(), 0u8..=128)
        .prop_map(|(it, length)| Ipv6Net::new(Ipv6Addr::from(it), length).unwrap().trunc().into());
    prop_oneof![four, six]
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        v4().prop_map(|it| IpAddr::from(Ipv4Addr::from(it))),
        v6().prop_map(|it| IpAddr::from(Ipv6Addr::from(it))),
    ]
}

proptest! {
    #[test]
    fn any_changes_leave_what_a_plain_list_has(
        steps in vec((any_network(), 0usize..3, any::<proptest::sample::Index>()), 0..80),
        addresses in vec(any_address(), 0..40),
    ) {
        let (mut table, mut naive) = (AllowedIps::default(), Naive::default());
        for (at, (network, step, which)) in steps.iter().enumerate() {
            let known: Vec<_> = naive.0.keys().copied().collect();
            match step {
                // One that is there, if any is.
                0 if !known.is_empty() => {
                    let gone = which.get(&known);
                    table.remove(gone);
                    naive.0.remove(gone);
                }
                1 => {
                    table.remove(network);
                    naive.0.remove(network);
                }
                _ => prop_assert_eq!(table.insert(network, at), naive.0.insert(*network, at)),
            }
            for network in &known {
                prop_assert_eq!(table.get(network), naive.0.get(network));
                for address in [network.network(), network.broadcast()] {
                    prop_assert_eq!(table.find(address), naive.find(address));
                }
            }
        }
        for address in addresses {
            prop_assert_eq!(table.find(address), naive.find(address));
        }
        let (mut all, count) = ((nodes(&table.v4).0, nodes(&table.v6).0), naive.0.len());
        all.0 += all.1;
        prop_assert!(all.0 <= 2 * count, "{} nodes for {} networks", all.0, count);
    }
}
