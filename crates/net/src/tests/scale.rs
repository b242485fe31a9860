//! What an agent holds in a large cluster: 5,000 nodes with 500 pods each.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use ipnet::Ipv4Net;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use objects::kinds::{AddressBlock, AddressBlockSpec, AddressBlockStatus};
use stallproof::Snapshot;

use crate::address_table::{AddressTable, Record};
use crate::claims::Blocks;
use crate::overlay::Underlay;
use crate::pool::Pools;
use crate::pool::tests::pool;
use crate::routes::{KernelRoutes, RoutePlanner};
use crate::trust::{self, Believed, BlockTrust, Judge, NodeAddresses};

const NODES: u32 = 5_000;
const PODS: u32 = 500;
/// Of 32 addresses: 500 pods, and half a block that is kept free.
const BLOCKS: u32 = 17;

/// What the process has in memory, in bytes.
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn node_address(node: u32) -> IpAddr {
    Ipv4Addr::from_bits(u32::from_be_bytes([172, 16, 0, 1]) + node).into()
}

fn block(node: u32, number: u32) -> AddressBlock {
    let index = node * BLOCKS + number;
    let first = Ipv4Addr::from_bits(u32::from_be_bytes([10, 64, 0, 0]) + index * 32);
    let spec = AddressBlockSpec {
        pool: "default".to_owned(),
        index,
        node: format!("node-{node:04}.example.internal"),
        ipv4: Ipv4Net::new(first, 27).ok(),
        ipv6: None,
        node_addresses: vec![node_address(node)],
    };
    let mut block = AddressBlock::new(&AddressBlock::name_of("default", index), spec);
    block.metadata.uid = Some(format!("3f1e7a5c-6f7a-4a43-9f0e-{index:012}"));
    block.metadata.resource_version = Some((100_000 + index).to_string());
    block.metadata.generation = Some(1);
    block.metadata.creation_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    block.status = Some(AddressBlockStatus { used: 30, free: 2, trouble: None });
    block
}

#[test]
fn an_agent_of_a_cluster_of_5000_nodes_with_500_pods_each_holds_little() {
    let began = resident();
    let all = (0..NODES).flat_map(|node| (0..BLOCKS).map(move |number| block(node, number)));
    let named = |block: AddressBlock| (block.metadata.name.clone().unwrap(), Arc::new(block));
    let blocks: Blocks = all.map(named).collect();
    let of_blocks = resident().saturating_sub(began);
    let name = |node| format!("node-{node:04}.example.internal");
    let nodes: NodeAddresses =
        (0..NODES).map(|node| (name(node), vec![node_address(node)])).collect();
    let pools: Pools = [pool("default", 0, 5, &[("10.64.0.0/10", "")])].into_iter().collect();
    let judging = Instant::now();
    let verdict = trust::judge(&name(0), &blocks, &pools, Some(&nodes), &Believed::default());
    let judged = judging.elapsed();
    assert_eq!(verdict.believed.len(), (NODES * BLOCKS) as usize);
    assert!(verdict.doubts.is_empty());
    let of_verdict = resident().saturating_sub(began + of_blocks);

    let mut planner = RoutePlanner::new(&name(0), None);
    let addresses = vec!["172.16.0.1/12".parse().unwrap()];
    planner.set_underlay(Underlay { device: None, addresses });
    let planning = Instant::now();
    verdict.believed.keys().for_each(|name| planner.set_listed(name, &verdict));
    let planned = planning.elapsed();
    let mut kernel = KernelRoutes::default();
    let changes = planner.changes(&kernel, true);
    assert!(changes.len() >= ((NODES - 1) * BLOCKS) as usize);
    changes.iter().for_each(|change| kernel.made(change));
    drop(changes);
    planner.settle(&kernel);
    let of_routes = resident().saturating_sub(began + of_blocks + of_verdict);

    // A node that moves.
    let (own, listed) = (name(0), Snapshot::new(blocks.clone()));
    let (pools, told) = (Snapshot::new(pools), Snapshot::new(nodes));
    let believed = Snapshot::new(Believed::new());
    let trust =
        BlockTrust { node: own, blocks: listed, pools, nodes: Some(told.clone()), believed };
    let mut judge = Judge::default();
    assert_eq!(judge.update(&trust).len(), (NODES * BLOCKS) as usize);
    told.update(|nodes| nodes.set(name(77), Some(vec![IpAddr::from([192, 0, 2, 1])])));
    let moving = Instant::now();
    let moved = judge.update(&trust);
    assert_eq!(moved.len(), BLOCKS as usize);
    moved.iter().for_each(|name| planner.set_listed(name, judge.verdict()));
    assert_eq!(planner.changes(&kernel, true).len(), BLOCKS as usize);
    let moving = moving.elapsed();

    let before = resident();
    let mut table = AddressTable::default();
    for number in 0..BLOCKS {
        let block = block(0, number);
        let network = block.spec.ipv4.unwrap().to_string();
        let name = block.metadata.name.unwrap();
        let adopted = crate::address_table::tests::adopted(&name, "default", &network);
        table.apply(&Record::Adopted(adopted)).unwrap();
    }
    for number in 0..PODS {
        let address = Ipv4Addr::from_bits(u32::from_be_bytes([10, 64, 0, 0]) + number).to_string();
        let container = format!("{number:064}");
        let new = crate::address_table::tests::attachment(&container, "default", Some(&address));
        table.apply(&Record::Assigned(new)).unwrap();
    }
    let of_pods = resident().saturating_sub(before);
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    println!(
        "{} blocks: {:.0} MiB; what is believed of them: {:.0} MiB, judged in {judged:?}; routes: {:.0} \
         MiB, planned in {planned:?}; a node that moves is judged and planned in {moving:?}; {PODS} pods: \
         {:.1} MiB",
        NODES * BLOCKS,
        mib(of_blocks),
        mib(of_verdict),
        mib(of_routes),
        mib(of_pods),
    );
    let whole = mib(resident().saturating_sub(began));
    assert!(whole < 400.0, "{whole:.0} MiB");
    drop((planner, kernel, verdict, blocks));
}
