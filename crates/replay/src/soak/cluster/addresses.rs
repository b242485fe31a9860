//! Checks that no address is given twice: neither to two pods, as the kernels of the nodes have them, nor
//! as a part of two nodes' blocks.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// A pod's address and the node whose kernel routes it to a pod.
pub(super) fn twice(routes: &[(u32, String)]) -> Vec<String> {
    let mut nodes: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (node, address) in routes {
        nodes.entry(address).or_default().push(*node);
    }
    let twice = nodes.into_iter().filter(|(_, nodes)| nodes.len() > 1);
    twice.map(|(address, nodes)| format!("{address} is a pod's on nodes {nodes:?}")).collect()
}

/// Routes to single addresses by links of pods, of what `ip -o route` prints.
pub(super) fn pod_routes(printed: &str) -> Vec<String> {
    let lines = printed.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next()?;
        let is_pod = words.next()? == "dev" && words.next()? != "node0";
        (is_pod && address.parse::<Ipv4Addr>().is_ok()).then(|| address.to_owned())
    });
    lines.collect()
}

/// Blocks by their names, of which two share addresses.
pub(super) fn overlapping(blocks: &[(String, String)]) -> Vec<String> {
    let ranges: Vec<_> =
        blocks.iter().filter_map(|(name, block)| Some((name, range(block)?))).collect();
    let mut broken = Vec::new();
    for (place, (name, (first, last))) in ranges.iter().enumerate() {
        for (other, (begins, ends)) in &ranges[place + 1..] {
            if first <= ends && begins <= last {
                broken.push(format!("blocks {name} and {other} share addresses"));
            }
        }
    }
    broken
}

fn range(block: &str) -> Option<(u32, u32)> {
    let (address, bits) = block.split_once('/')?;
    let first = u32::from(address.parse::<Ipv4Addr>().ok()?);
    let bits: u32 = bits.parse().ok().filter(|bits| *bits <= 32)?;
    let size = 1u64 << (32 - bits);
    u32::try_from(u64::from(first) + size - 1).ok().map(|last| (first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_two_pods_is_found() {
        let routes = [(1, "10.244.0.2"), (1, "10.244.0.3"), (2, "10.244.1.2")];
        let mut routes = routes.map(|(node, address)| (node, address.to_owned())).to_vec();
        assert_eq!(twice(&routes), Vec::<String>::new());
        routes.push((3, "10.244.0.3".to_owned()));
        assert_eq!(twice(&routes), ["10.244.0.3 is a pod's on nodes [1, 3]"]);
    }

    #[test]
    fn routes_to_pods_are_read() {
        let printed = "default via 10.97.0.1 dev node0 \n\
                       10.97.0.0/24 dev node0 proto kernel scope link src 10.97.0.11 \n\
                       10.244.0.2 dev fl0a1b2c scope link \n\
                       10.244.0.32/27 via 10.97.0.12 dev node0 \n";
        assert_eq!(pod_routes(printed), ["10.244.0.2"]);
    }

    #[test]
    fn blocks_that_overlap_are_found() {
        let block = |name: &str, net: &str| (name.to_owned(), net.to_owned());
        let mut blocks = vec![block("a", "10.244.0.0/27"), block("b", "10.244.0.32/27")];
        assert_eq!(overlapping(&blocks), Vec::<String>::new());
        blocks.push(block("c", "10.244.0.16/28"));
        assert_eq!(overlapping(&blocks), ["blocks a and c share addresses"]);
    }
}
