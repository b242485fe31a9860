//! What the overlay costs: bytes through the tunnel against the same way without it, and how long the
//! kernel takes for the routes of a large cluster and for one node's change.
//!
//! `cargo bench -p net -- [PAIRS]`, as root.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bench::{Table, in_turn};
use ipnet::{IpNet, Ipv4Net};
use kernel::netlink::{
    Address, Change, LinkRef, Mac, Route, RouteKind, SetLink, Tunnel, Veth, VethPeer,
};
use kernel::netns::Namespace;
use net::node::Node;
use net::overlay::{self, DeviceSettings, PORT};
use net::routes::{self, BlockRef, BlockRoutes, RouteInputs, RoutedBlock};
use net::wiring::MAIN_TABLE;
use objects::kinds::Overlay;

const BYTES: usize = 512 << 20;
const NODES: u32 = 1_000;
const BLOCKS: u32 = 10;

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let pairs = args.next().map_or(5, |pairs| pairs.parse().unwrap());
    if let Err(why) = testkit::need::netns() {
        eprintln!("cannot measure: {why}");
        return ExitCode::from(2);
    }
    let mut table = Table::new("overlay");
    throughput(&mut table, pairs);
    large_cluster(&mut table, pairs);
    table.finish()
}

/// Two nodes with a cable between them, each with an address that is a pod's.
fn two_nodes() -> [Node; 2] {
    let [a, b] = [(); 2].map(|()| Namespace::create().unwrap());
    let mac = |number| Mac([2, 0, 0, 0, 0, number]);
    let peer = VethPeer { name: "uplink", mac: mac(2), namespace: b.as_fd() };
    let veth = Veth { name: "uplink", mac: mac(1), mtu: 1500, group: None, peer };
    let made = a.netlink().unwrap().create_veth(veth).unwrap();
    let ends = [(&a, made.index, 1), (&b, made.peer.unwrap(), 2)];
    for (namespace, uplink, number) in ends {
        let mut netlink = namespace.netlink().unwrap();
        let up = |link| Change::Set(link, SetLink { up: true, ..SetLink::default() });
        let lo = netlink.link(LinkRef::Name("lo")).unwrap().unwrap().index;
        let own = |link, address: String| {
            Change::Address(Address { link, address: address.parse().unwrap() })
        };
        netlink
            .apply(&[
                up(LinkRef::Index(lo)),
                up(LinkRef::Index(uplink)),
                own(uplink, format!("10.0.0.{number}/24")),
                own(lo, format!("10.{number}.0.1/32")),
            ])
            .unwrap();
    }
    [a, b].map(Node::new)
}

fn inputs(node: &str, blocks: Vec<RoutedBlock>) -> RouteInputs {
    let device = DeviceSettings { port: PORT, mtu: overlay::mtu(1500, true) };
    RouteInputs {
        node: node.to_owned(),
        blocks,
        export_table: None,
        overlaid: vec!["10.64.0.0/10".parse().unwrap()],
        device,
        complete: true,
    }
}

fn block(node: &str, network: IpNet, via: IpAddr, overlay: Overlay) -> RoutedBlock {
    RoutedBlock { node: node.to_owned(), networks: vec![network], via: vec![via], overlay }
}

fn throughput(table: &mut Table, pairs: usize) {
    let nodes = two_nodes();
    let carried = |through: bool| {
        let overlay = if through { Overlay::Vxlan } else { Overlay::Direct };
        let blocks: Vec<_> = [("a", 1), ("b", 2)]
            .map(|(name, number)| {
                let network = Ipv4Net::new(Ipv4Addr::new(10, number, 0, 0), 24).unwrap().into();
                block(name, network, [10, 0, 0, number].into(), overlay)
            })
            .to_vec();
        for (node, name) in nodes.iter().zip(["a", "b"]) {
            let report = routes::apply(node, &inputs(name, blocks.clone())).unwrap();
            assert!(report.failed.is_empty(), "{report:?}");
        }
        bytes_per_second(&nodes)
    };
    let [plain, tunnelled] = in_turn(pairs, carried, |rate| *rate);
    table.row("TCP through the tunnel, one stream", "B/s", tunnelled, &[("without", plain)]);
    table.must("0.85 of it", tunnelled >= 0.85 * plain);
}

fn bytes_per_second([a, b]: &[Node; 2]) -> f64 {
    let server = SocketAddr::from(([10, 2, 0, 1], 0));
    let listener = b.namespace().run_in(|| TcpListener::bind(server)).unwrap().unwrap();
    let server = listener.local_addr().unwrap();
    let sink = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 256 << 10];
        while stream.read(&mut buffer).unwrap() > 0 {}
    });
    let patience = Duration::from_secs(10);
    let stream = a.namespace().run_in(|| TcpStream::connect_timeout(&server, patience)).unwrap();
    let mut stream = stream.unwrap();
    let buffer = vec![7; 256 << 10];
    let began = Instant::now();
    for _ in 0..BYTES / buffer.len() {
        stream.write_all(&buffer).unwrap();
    }
    drop(stream);
    sink.join().unwrap();
    BYTES as f64 / began.elapsed().as_secs_f64()
}

/// Each node on a network of its own, with some blocks.
fn cluster() -> Vec<(BlockRef, Arc<RoutedBlock>)> {
    let first = u32::from(Ipv4Addr::new(10, 64, 0, 0));
    let blocks = (0..NODES * BLOCKS).map(|number| {
        let node = number / BLOCKS;
        let via = Ipv4Addr::from(u32::from(Ipv4Addr::new(172, 16, 0, 1)) + node * 256);
        let network = Ipv4Net::new(Ipv4Addr::from(first + number * 32), 27).unwrap();
        let block = block(&format!("node-{node}"), network.into(), via.into(), Overlay::Auto);
        (BlockRef::Listed(format!("default-{number}").into()), Arc::new(block))
    });
    blocks.collect()
}

/// Changes all routes to a node in one call, and returns how long that takes.
fn back_and_forth(node: &Node, remote: IpAddr) -> Duration {
    let routes = node.netlink(|netlink| netlink.routes(MAIN_TABLE)).unwrap();
    let moved = routes.into_iter().filter_map(|route| match route.kind {
        RouteKind::Tunnel(tunnel) if tunnel.remote == remote => {
            let tunnel = Tunnel { remote: [192, 168, 10, 1].into(), ..tunnel };
            Some(Change::Route(Route { kind: RouteKind::Tunnel(tunnel), ..route }))
        }
        _ => None,
    });
    let moved: Vec<_> = moved.collect();
    assert_eq!(moved.len(), BLOCKS as usize + 1);
    let began = Instant::now();
    node.netlink(|netlink| netlink.apply(&moved)).unwrap();
    began.elapsed()
}

fn large_cluster(table: &mut Table, rounds: usize) {
    let [node, _other] = two_nodes();
    let blocks = cluster();
    let (mut all, mut one, mut in_kernel) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let began = Instant::now();
        let device = DeviceSettings { port: PORT, mtu: overlay::mtu(1500, true) };
        let mut routes = BlockRoutes::new("here", None, device);
        routes.planner.set_overlaid(vec!["10.64.0.0/10".parse().unwrap()]);
        for (name, block) in &blocks {
            routes.planner.set_block(name, Some(Arc::clone(block)));
        }
        let report = routes.apply(&node, true).unwrap();
        all.push(began.elapsed());
        assert!(report.failed.is_empty(), "{:?}", report.failed.first());
        // The node moves.
        let to = IpAddr::from([192, 168, 9, round as u8 + 1]);
        let moves = |(name, block): &(BlockRef, Arc<RoutedBlock>)| {
            let moved = RoutedBlock { via: vec![to], ..RoutedBlock::clone(block) };
            (block.node == "node-500").then(|| (name.clone(), Arc::new(moved)))
        };
        let moved: Vec<_> = blocks.iter().filter_map(moves).collect();
        let began = Instant::now();
        for (name, block) in moved {
            routes.planner.set_block(&name, Some(block));
        }
        let report = routes.apply(&node, true).unwrap();
        one.push(began.elapsed());
        // Its blocks, itself, where pods reach it and where they did.
        assert_eq!(report.changed, BLOCKS as usize + 3);
        in_kernel.push(back_and_forth(&node, to));
        routes::apply(&node, &inputs("here", Vec::new())).unwrap();
    }
    let median = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let (all, one, in_kernel) = (median(all), median(one), median(in_kernel));
    let figure = |time: Duration| time.as_nanos() as f64;
    let what = format!("{NODES} nodes with {BLOCKS} blocks each, all routes made");
    table.row(&what, "ns", figure(all), &[]);
    table.must("a second at most", all <= Duration::from_secs(1));
    let what = "one of those nodes moves: planned and made";
    table.row(what, "ns", figure(one), &[("all made", figure(all))]);
    table.must("a millisecond at most", one <= Duration::from_millis(1));
    table.row("the same, in the kernel", "ns", figure(in_kernel), &[("all made", figure(all))]);
}
