use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kernel::netlink::{Veth, VethPeer};
use kernel::netns::Namespace;
use testkit::requires;

use super::*;
use crate::Attachment;
use crate::datapath::Datapath;
use crate::routes::{self, BlockRef, BlockRoutes, RouteInputs, RouteReport};
use crate::tests::pods::{is_cut_off, is_cut_off_from_pod, pod, reaches, reaches_pod};
use crate::wiring::Wiring;

const WAIT: Duration = Duration::from_secs(10);

#[test]
fn a_node_is_known_by_its_name_alone() {
    assert_eq!(mac_of("a"), mac_of("a"));
    assert_ne!(mac_of("a"), mac_of("b"));
    assert_eq!(mac_of("a").0[0] & 3, 2);
    assert_ne!(gateway_of("a"), gateway_of("b"));
    assert!(gateway_of("a").is_unicast_link_local());
}

fn block(node: &str, networks: &[&str], via: &[&str], overlay: Overlay) -> RoutedBlock {
    RoutedBlock {
        node: node.to_owned(),
        networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
        via: via.iter().map(|address| address.parse().unwrap()).collect(),
        overlay,
    }
}

#[test]
fn auto_goes_directly_within_a_subnet_and_through_the_tunnel_elsewhere() {
    let own = |addresses: &[&str]| Underlay {
        device: Some(7),
        addresses: addresses.iter().map(|own| own.parse().unwrap()).collect(),
    };
    let both = own(&["10.0.0.1/24", "fd00::1/64"]);
    let to = |underlay: &Underlay, network: &str, via: &[&str], overlay| {
        underlay.way(&block("b", &[network], via, overlay), network.parse().unwrap())
    };
    let remote = |way: Option<RouteKind>| match way {
        Some(RouteKind::Tunnel(tunnel)) => Some((tunnel.link, tunnel.remote)),
        _ => None,
    };
    let near = IpAddr::from([10, 0, 0, 2]);
    let far = IpAddr::from([10, 0, 1, 2]);
    let v6: IpAddr = "fd00:9::2".parse().unwrap();
    let net = "10.2.0.0/27";
    assert_eq!(to(&both, net, &["10.0.0.2"], Overlay::Auto), Some(RouteKind::Via(near)));
    assert_eq!(to(&both, net, &["10.0.1.2"], Overlay::Direct), Some(RouteKind::Via(far)));
    assert_eq!(remote(to(&both, net, &["10.0.1.2"], Overlay::Auto)), Some((7, far)));
    assert_eq!(remote(to(&both, net, &["10.0.0.2"], Overlay::Vxlan)), Some((7, near)));
    // Pods have a family that nodes do not talk to each other with.
    assert_eq!(remote(to(&both, net, &["fd00:9::2"], Overlay::Auto)), Some((7, v6)));
    assert_eq!(remote(to(&both, "fd00:2::/123", &["10.0.1.2"], Overlay::Auto)), Some((7, far)));
    // This node has no IPv4 to go over.
    let v6_only = own(&["fd00::1/64"]);
    assert_eq!(remote(to(&v6_only, net, &["10.0.1.2", "fd00:9::2"], Overlay::Auto)), Some((7, v6)));
    // An address without a network, as some clouds have it, shares none.
    let alone = own(&["10.0.0.1/32"]);
    assert_eq!(remote(to(&alone, net, &["10.0.0.2"], Overlay::Auto)), Some((7, near)));
    // Without the device nothing goes beside it.
    let without = Underlay { device: None, ..both };
    assert_eq!(to(&without, net, &["10.0.1.2"], Overlay::Auto), None);
    assert_eq!(to(&without, net, &["10.0.0.2"], Overlay::Vxlan), None);
    assert_eq!(to(&without, net, &["10.0.0.2"], Overlay::Auto), Some(RouteKind::Via(near)));
}

/// Three nodes on two networks, with a router between them that drops what is not from and to nodes:
/// a and b on `10.0.0.0/24` and `fd00:a::/64`, c on `10.0.1.0/24` and `fd00:c::/64`.
struct World {
    nodes: [Wiring; 3],
    router: Namespace,
    _bridge: Namespace,
    pods: [(Attachment, Namespace); 3],
    mtu: u32,
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const ADDRESSES: [[&str; 2]; 3] =
    [["10.0.0.1", "fd00:a::1"], ["10.0.0.2", "fd00:a::2"], ["10.0.1.1", "fd00:c::1"]];

impl World {
    fn new(families: usize) -> Self {
        let mtu = mtu(1500, families == 2);
        let [a, b, c, router, bridge] = [(); 5].map(|()| Namespace::create().unwrap());
        // The network of a, b and the router is a bridge; that of c and the router a cable.
        ip(&bridge, &["link", "add", "br0", "type", "bridge"]);
        ip(&bridge, &["link", "set", "br0", "up"]);
        for (number, namespace) in [(1, &a), (2, &b), (3, &router)] {
            cable(namespace, "uplink", &bridge, &format!("port{number}"));
            ip(&bridge, &["link", "set", &format!("port{number}"), "master", "br0"]);
        }
        cable(&c, "uplink", &router, "to-c");
        let own = [(&a, ADDRESSES[0]), (&b, ADDRESSES[1]), (&c, ADDRESSES[2])];
        for (namespace, [v4, v6]) in own {
            let gateways = match v4 {
                "10.0.1.1" => ["10.0.1.254", "fd00:c::254"],
                _ => ["10.0.0.254", "fd00:a::254"],
            };
            let families = [(format!("{v4}/24"), gateways[0]), (format!("{v6}/64"), gateways[1])]
                .into_iter()
                .skip(2 - families);
            for (address, gateway) in families {
                ip(namespace, &["address", "add", &address, "dev", "uplink", "nodad"]);
                ip(namespace, &["route", "add", "default", "via", gateway]);
            }
        }
        for (address, dev) in [
            ("10.0.0.254/24", "uplink"),
            ("fd00:a::254/64", "uplink"),
            ("10.0.1.254/24", "to-c"),
            ("fd00:c::254/64", "to-c"),
        ] {
            ip(&router, &["address", "add", address, "dev", dev, "nodad"]);
        }
        let forwards = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"];
        router.run_in(|| forwards.map(|name| fs::write(sysctl::net(name), "1").unwrap())).unwrap();
        let pods_are_dropped = "table inet filter { chain forward { type filter hook forward priority 0; \
            ip saddr != 10.0.0.0/16 drop; ip daddr != 10.0.0.0/16 drop; \
            ip6 saddr { fd00:1::/32, fd00:2::/32, fd00:3::/32 } drop; \
            ip6 daddr { fd00:1::/32, fd00:2::/32, fd00:3::/32 } drop; }; }";
        nft(&router, &[pods_are_dropped]);
        let nodes = [a, b, c].map(|namespace| {
            let node = Node::new(namespace);
            node.forward().unwrap();
            Wiring::new(node, mtu)
        });
        let pods = [1, 2, 3].map(|net| pod(net, 1));
        for (wiring, (attachment, inside)) in nodes.iter().zip(&pods) {
            wiring.set_up(attachment, inside, &()).unwrap();
        }
        Self { nodes, router, _bridge: bridge, pods, mtu }
    }

    fn blocks(&self, overlay: Overlay, families: usize) -> Vec<RoutedBlock> {
        let one = |(number, name): (usize, &&str)| {
            let networks =
                [format!("10.{}.0.0/27", number + 1), format!("fd00:{}::/123", number + 1)];
            let networks: Vec<_> = networks.iter().map(String::as_str).collect();
            block(name, &networks, &ADDRESSES[number][2 - families..], overlay)
        };
        NAMES.iter().enumerate().map(one).collect()
    }

    fn install(&self, blocks: &[RoutedBlock]) -> Vec<RouteReport> {
        self.install_on(&NAMES, blocks)
    }

    fn install_on(&self, names: &[&str], blocks: &[RoutedBlock]) -> Vec<RouteReport> {
        let nets = ["10.1.0.0/24", "10.2.0.0/24", "10.3.0.0/24", "fd00:1::/120"];
        let inputs = |node: &str| RouteInputs {
            node: node.to_owned(),
            blocks: blocks.to_vec(),
            export_table: None,
            overlaid: nets.iter().map(|net| net.parse().unwrap()).collect(),
            device: DeviceSettings { port: PORT, mtu: self.mtu },
            complete: true,
        };
        let nodes = self.nodes.iter().zip(NAMES).filter(|(_, name)| names.contains(name));
        nodes.map(|(wiring, name)| routes::apply(wiring.node(), &inputs(name)).unwrap()).collect()
    }

    fn silent(&self, node: usize) -> Vec<(String, String)> {
        let wiring = &self.nodes[node];
        let device = routes::device(wiring.node()).unwrap().unwrap();
        let others = [("c".to_owned(), ADDRESSES[2][0].parse().unwrap())];
        let wait = Duration::from_secs(2);
        probe(wiring.node().namespace(), device, PORT, &others, wait).unwrap()
    }
}

fn ip(within: &Namespace, args: &[&str]) {
    let output = within.run_in(|| Command::new("ip").args(args).output()).unwrap().unwrap();
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn nft(within: &Namespace, args: &[&str]) {
    let output = within.run_in(|| Command::new("nft").args(args).output()).unwrap().unwrap();
    assert!(output.status.success(), "nft {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn cable(a: &Namespace, name: &str, b: &Namespace, peer: &str) {
    let mac = |namespace: &Namespace, name: &str| mac_of(&format!("{:?}{name}", namespace.id()));
    let end = VethPeer { name: peer, mac: mac(b, peer), namespace: b.as_fd() };
    let veth = Veth { name, mac: mac(a, name), mtu: 1500, group: None, peer: end };
    a.netlink().unwrap().create_veth(veth).unwrap();
    for (namespace, name) in [(a, name), (b, peer)] {
        ip(namespace, &["link", "set", name, "addrgenmode", "none"]);
        ip(namespace, &["link", "set", name, "up"]);
        // A router without such an address does not ask for its neighbours.
        let digits = namespace.id().inode;
        let own = format!("fe80::{:x}:{:x}/64", digits >> 16 & 0xffff, digits & 0xffff);
        ip(namespace, &["address", "add", &own, "dev", name, "nodad"]);
        ip(namespace, &["link", "set", "lo", "up"]);
    }
}

/// Sends a megabyte there and back again.
fn carries_tcp(from: &Namespace, to: &Namespace, address: IpAddr) {
    let listener = to.run_in(|| TcpListener::bind((address, 0))).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    let echo = thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
        peer.ip()
    });
    let stream = from.run_in(|| TcpStream::connect_timeout(&at, WAIT)).unwrap();
    let mut stream = stream.unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let sent: Vec<u8> = (0..1 << 20).map(|n: u32| n as u8).collect();
    let mut writing = stream.try_clone().unwrap();
    let writer = {
        let sent = sent.clone();
        thread::spawn(move || {
            writing.write_all(&sent).unwrap();
            writing.shutdown(std::net::Shutdown::Write).unwrap();
        })
    };
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert_eq!(back.len(), sent.len());
    assert!(back == sent);
    assert_eq!(
        echo.join().unwrap(),
        stream.local_addr().unwrap().ip(),
        "nobody changed its address"
    );
}

/// Sends the largest datagram that fits in a packet.
fn carries_udp(from: &Namespace, to: &Namespace, address: Ipv4Addr) {
    let bound = |namespace: &Namespace, at: SocketAddr| {
        let socket = namespace.run_in(|| UdpSocket::bind(at)).unwrap().unwrap();
        socket.set_read_timeout(Some(WAIT)).unwrap();
        socket
    };
    let server = bound(to, (address, 0).into());
    let client = bound(from, (Ipv4Addr::UNSPECIFIED, 0).into());
    let whole = vec![7; 1450 - 28];
    client.send_to(&whole, server.local_addr().unwrap()).unwrap();
    let mut got = vec![0; 2000];
    let (length, peer) = server.recv_from(&mut got).unwrap();
    assert_eq!(length, whole.len());
    server.send_to(&whole, peer).unwrap();
    assert_eq!(client.recv(&mut got).unwrap(), whole.len());
}

#[test]
fn pods_on_two_networks_reach_each_other_past_a_router_that_drops_their_addresses() {
    requires!(netns, nft);
    let world = World::new(2);
    let [(on_a, in_a), (on_b, in_b), (on_c, in_c)] = &world.pods;
    // Without an overlay only those on one network do.
    world.install(&world.blocks(Overlay::Direct, 2));
    assert!(reaches_pod(in_a, on_b));
    assert!(is_cut_off_from_pod(in_a, on_c));
    assert_eq!(routes::device(world.nodes[0].node()).unwrap(), None);

    let blocks = world.blocks(Overlay::Auto, 2);
    for report in world.install(&blocks) {
        assert_eq!(report.failed, Vec::<String>::new());
    }
    for report in world.install(&blocks) {
        assert_eq!(report, RouteReport::default(), "nothing is left to do");
    }
    for (from, inside) in [(on_a, in_a), (on_b, in_b), (on_c, in_c)] {
        for (to, _) in world.pods.iter().filter(|(to, _)| to.key != from.key) {
            assert!(reaches_pod(inside, to), "{} to {}", from.key, to.key);
        }
    }
    carries_tcp(in_a, in_c, on_c.ipv4.unwrap().into());
    carries_tcp(in_c, in_b, on_b.ipv6.unwrap().into());
    carries_udp(in_a, in_c, on_c.ipv4.unwrap());
    // While agents disagree, what comes by the tunnel and is answered beside it arrives.
    world.install_on(&["a"], &world.blocks(Overlay::Vxlan, 2));
    assert!(reaches_pod(in_a, on_b));
    world.install(&blocks);
    // Nodes reach pods of other nodes, and pods other nodes: kubelets, API servers and host networks. Also
    // where a node wants packets to come by the link that answers go by, as distributions have it.
    let [a, _, c] = &world.nodes;
    for wiring in &world.nodes {
        let strict = || fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1");
        wiring.node().namespace().run_in(strict).unwrap().unwrap();
    }
    assert!(reaches(a.node().namespace(), on_c.ipv4.unwrap()));
    assert!(reaches(c.node().namespace(), on_b.ipv4.unwrap()));
    assert!(reaches(in_a, [10, 0, 1, 1]));
    assert_eq!(world.silent(0), []);

    // Those on one network go on talking without the tunnel.
    nft(&world.router, &["add rule inet filter forward udp dport 4789 drop"]);
    assert!(reaches_pod(in_a, on_b));
    assert!(is_cut_off_from_pod(in_a, on_c));
    let silent = world.silent(0);
    assert_eq!(silent.len(), 1);
    assert!(silent[0].1.contains("UDP port 4789 is blocked"), "{silent:?}");
    nft(&world.router, &["flush chain inet filter forward"]);
    nft(&world.router, &["add rule inet filter forward drop"]);
    let silent = world.silent(0);
    assert!(silent[0].1.contains("neither through the tunnel nor beside it"), "{silent:?}");
    nft(&world.router, &["flush chain inet filter forward"]);

    // No pool wants it any more.
    world.install(&world.blocks(Overlay::Direct, 2));
    let rules = |wiring: &Wiring| wiring.node().netlink(Netlink::rules).unwrap();
    for wiring in &world.nodes {
        assert_eq!(routes::device(wiring.node()).unwrap(), None);
        assert!(!rules(wiring).iter().any(is_our_rule));
    }
}

#[test]
fn a_node_that_moves_is_reached_where_it_is_and_vxlan_takes_the_tunnel_within_a_subnet_too() {
    requires!(netns, nft);
    let world = World::new(2);
    let [(on_a, in_a), (on_b, in_b), (on_c, in_c)] = &world.pods;
    let mut blocks = world.blocks(Overlay::Vxlan, 2);
    world.install(&blocks);
    for (inside, to) in [(in_a, on_b), (in_b, on_c), (in_c, on_a)] {
        assert!(reaches_pod(inside, to));
    }
    let to_b = world.nodes[0].node().netlink(|netlink| netlink.routes(MAIN_TABLE)).unwrap();
    let to_b = to_b.iter().find(|route| route.destination == blocks[1].networks[0]).unwrap();
    assert!(matches!(to_b.kind, RouteKind::Tunnel(_)), "{to_b}");

    let c = world.nodes[2].node().namespace();
    ip(c, &["address", "delete", "10.0.1.1/24", "dev", "uplink"]);
    ip(c, &["address", "add", "10.0.1.77/24", "dev", "uplink"]);
    ip(c, &["route", "add", "default", "via", "10.0.1.254"]);
    assert!(is_cut_off(in_a, on_c.ipv4.unwrap()));
    blocks[2].via[0] = [10, 0, 1, 77].into();
    let reports = world.install(&blocks);
    // Both of its block's routes, that to itself, and that of packets from pods; one old route goes.
    assert_eq!(reports[0], RouteReport { changed: 5 + 1, failed: Vec::new() });
    assert!(reaches_pod(in_a, on_c));
    assert!(reaches_pod(in_c, on_a));
}

#[test]
fn a_device_that_somebody_removed_is_there_again_with_the_next_change() {
    requires!(netns);
    let [here, far] = [(), ()].map(|()| Namespace::create().unwrap());
    cable(&here, "uplink", &far, "far");
    ip(&here, &["address", "add", "192.168.9.9/24", "dev", "uplink"]);
    let node = Node::new(here);
    let mut routes = BlockRoutes::new("a", None, DeviceSettings { port: PORT, mtu: 1450 });
    let add = |routes: &mut BlockRoutes, name: &str, network: &str, via: &str| {
        let block = block(name, &[network], &[via], Overlay::Vxlan);
        routes.planner.set_block(&BlockRef::Listed(name.into()), Some(Arc::new(block)));
        let report = routes.apply(&node, true).unwrap();
        assert!(report.failed.is_empty(), "{:?}", report.failed);
    };
    add(&mut routes, "b", "10.2.0.0/27", "192.168.9.2");
    assert!(remove(&node).unwrap());
    add(&mut routes, "c", "10.3.0.0/27", "192.168.9.3");
    let there = node.netlink(|netlink| netlink.routes(MAIN_TABLE)).unwrap();
    for network in ["10.2.0.0/27", "10.3.0.0/27"] {
        let network: IpNet = network.parse().unwrap();
        assert!(there.iter().any(|route| route.destination == network), "{network}: {there:?}");
    }
}

#[test]
fn tunnels_go_over_ipv6_where_nodes_have_nothing_else() {
    requires!(netns, nft);
    let world = World::new(1);
    let [(on_a, in_a), (_, in_b), (on_c, in_c)] = &world.pods;
    for report in world.install(&world.blocks(Overlay::Auto, 1)) {
        assert_eq!(report.failed, Vec::<String>::new());
    }
    assert!(reaches_pod(in_a, on_c), "also pods with IPv4");
    assert!(reaches_pod(in_c, on_a));
    carries_tcp(in_b, in_c, on_c.ipv4.unwrap().into());
}

#[test]
fn the_way_to_a_node_is_looked_at_with_packets_of_every_size() {
    requires!(netns, nft);
    let world = World::new(2);
    let blocks = world.blocks(Overlay::Auto, 2);
    world.install(&blocks);
    let ways = |to: usize| {
        let node = world.nodes[0].node();
        let device = routes::device(node).unwrap();
        let underlay = node.netlink(|netlink| Underlay::read(netlink, device)).unwrap();
        let settings = DeviceSettings { port: PORT, mtu: world.mtu };
        let wait = Duration::from_millis(900);
        let inputs = PathInputs { underlay: &underlay, device: settings, direct_mtu: 1500, wait };
        look(node.namespace(), inputs, &blocks[to..=to]).unwrap()
    };
    let [v4, v6] = <[NodePath; 2]>::try_from(ways(1)).unwrap();
    assert_eq!((v4.path, v4.at, v4.carries), ("direct", [10, 0, 0, 2].into(), Some(1500)));
    assert_eq!((v6.family, v6.at.is_ipv6(), v6.carries), ("ipv6", true, Some(1500)));
    let by_tunnel = |ways: Vec<NodePath>| ways.into_iter().find(|it| it.family == "ipv4").unwrap();
    let whole = by_tunnel(ways(2));
    assert_eq!((whole.path, whole.at, whole.port), ("vxlan", [10, 0, 1, 1].into(), Some(PORT)));
    assert_eq!((whole.mtu, whole.carries, whole.fault), (1450, Some(1450), None));
    assert!(whole.milliseconds.is_some());

    // Something between the nodes swallows large packets.
    nft(&world.router, &["add rule inet filter forward meta length > 1400 drop"]);
    let narrow = by_tunnel(ways(2));
    assert_eq!(narrow.carries, Some(1330), "{narrow:?}");
    assert!(narrow.fault.unwrap().contains("set net.mtu to 1330"));
    // And then all of the tunnel's.
    nft(&world.router, &["add rule inet filter forward udp dport 4789 drop"]);
    let blocked = by_tunnel(ways(2));
    assert_eq!(blocked.carries, None);
    assert!(blocked.fault.as_ref().unwrap().contains("UDP port 4789 is blocked"), "{blocked:?}");
}
