#![allow(clippy::unwrap_used, reason = "tests")]

use kernel::netns::Namespace;

use super::*;
use crate::peer::{PeerStatus, Routing};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn node(networks: &[&str], address: &str) -> NodeNetworks {
    let networks = networks.iter().map(|it| net(it)).collect();
    NodeNetworks { networks, addresses: vec![ip(address)] }
}

fn network() -> PodNetwork {
    PodNetwork {
        addresses: vec![ip("192.0.2.1")],
        own: [net("10.64.0.0/27")].into(),
        pools: [net("10.64.0.0/16")].into(),
        nodes: [
            ("b".to_owned(), node(&["10.64.0.32/27", "10.64.0.64/27"], "192.0.2.2")),
            ("c".to_owned(), node(&["10.64.0.96/27"], "192.0.2.3")),
        ]
        .into(),
        complete: true,
    }
}

fn key(byte: u8) -> PublicKey {
    PublicKey([byte; 32])
}

fn said(of: &[(&str, PublicKey, bool)]) -> KeysSaid {
    let spec = |(node, key, encrypts_pods): &(&str, PublicKey, bool)| {
        let spec = WireguardNodeSpec {
            node: (*node).to_owned(),
            public_key: key.to_string(),
            next_public_key: None,
            port: 7,
            encrypts_pods: *encrypts_pods,
        };
        ((*node).to_owned(), spec)
    };
    of.iter().map(spec).collect()
}

fn joined(keys: &KeysSaid) -> Claims {
    let mut claims = Claims::default();
    join(&mut claims, &network(), keys, key(1), true);
    claims
}

fn at(table: u32, routes: &ClusterRoutes) -> Vec<String> {
    let of = routes.routes.iter().filter(|route| route.table == table);
    let mut told: Vec<_> = of.map(ToString::to_string).collect();
    told.sort_unstable();
    told
}

#[test]
fn a_node_is_a_peer_with_its_blocks_and_its_address_once_it_says_that_it_encrypts() {
    let claims = joined(&said(&[("a", key(1), true), ("b", key(2), true), ("c", key(3), false)]));
    assert_eq!(claims.names, [(key(2), "b".to_owned())].into());
    let peer = &claims.peers[&key(2)];
    let allowed = ["10.64.0.32/27", "10.64.0.64/27", "192.0.2.2/32"].map(net);
    assert_eq!(peer.allowed_ips, allowed);
    assert_eq!(peer.endpoint, Some("192.0.2.2:7".parse().unwrap()));
    assert_eq!(peer.routing, Routing::Cluster);
    // A node that says another's key, or ours, takes nothing from anybody.
    let claims = joined(&said(&[("b", key(1), true), ("c", key(1), true)]));
    assert_eq!(claims, Claims::default());
    let claims = joined(&said(&[("b", key(2), true), ("c", key(2), true)]));
    assert_eq!(claims.cluster, [("b".to_owned(), key(2))].into());
}

#[test]
fn packets_are_preferred_encrypted_when_a_node_has_connected_and_required_always() {
    let claims = joined(&said(&[("b", key(2), true), ("c", key(3), true)]));
    let heard = PeerStatus { last_handshake: Some(Duration::ZERO), ..PeerStatus::default() };
    let tunnel = TunnelStatus {
        implementation: Implementation::Userspace,
        public_key: key(1),
        mtu: 1420,
        peers: [(key(2), heard), (key(3), PeerStatus::default())].into(),
        unrouted: BTreeSet::new(),
        kept: BTreeSet::new(),
        lost: BTreeSet::new(),
    };
    let routed = |mode, down: BTreeSet<PublicKey>| {
        let ways = ways(mode, &network(), &claims, &tunnel, &BTreeMap::new(), &down);
        ["b", "c"].map(|name| ways.nodes[name].routed)
    };
    assert_eq!(routed(Encryption::Preferred, [].into()), [true, false]);
    assert_eq!(routed(Encryption::Preferred, [key(2)].into()), [false, false]);
    assert_eq!(routed(Encryption::Required, [key(2)].into()), [true, true]);
}

#[test]
fn what_is_required_has_guards_beneath_and_what_is_preferred_the_main_table() {
    let nodes = [("b".to_owned(), Some(1300)), ("c".to_owned(), None)].into();
    let sources = [ip("192.0.2.1")];
    let way = Way { link: Some(9), sources: &sources, nodes: Some(&nodes) };
    let preferred = wanted(Encryption::Preferred, &network(), &way);
    let blocks = ["10.64.0.32/27", "10.64.0.64/27", "10.64.0.96/27"];
    let blocks = blocks.map(|it| format!("{it} on link 9 from 192.0.2.1 in table 117"));
    assert_eq!(at(BLOCK_TABLE, &preferred), blocks);
    let nodes = ["192.0.2.2/32", "192.0.2.3/32"];
    let nodes = nodes.map(|it| format!("{it} on link 9 from 192.0.2.1 in table 115"));
    assert_eq!(at(NODE_TABLE, &preferred), nodes);
    let from: Vec<_> = preferred.rules.iter().map(|rule| (rule.from, rule.table)).collect();
    assert_eq!(from, [(net("0.0.0.0/0"), BLOCK_TABLE), (net("10.64.0.0/16"), NODE_TABLE)]);

    // Before there is an interface, and when it is gone.
    let guards = wanted(Encryption::Required, &network(), &Way::default());
    let expected =
        ["10.64.0.0/16 as unreachable in table 117", "10.64.0.0/27 by the next rule in table 117"];
    assert_eq!(at(BLOCK_TABLE, &guards), expected);
    let expected =
        ["192.0.2.2/32 as unreachable in table 115", "192.0.2.3/32 as unreachable in table 115"];
    assert_eq!(at(NODE_TABLE, &guards), expected);
    assert_eq!(guards.rules, preferred.rules);
    let required = wanted(Encryption::Required, &network(), &way);
    let both = preferred.routes.iter().chain(&guards.routes);
    assert_eq!(required.routes, both.copied().collect::<Vec<_>>());
    assert_eq!(
        wanted(Encryption::Preferred, &network(), &Way::default()),
        ClusterRoutes::default()
    );
}

/// In a namespace of its own: the kernel keeps what is wanted, and says so.
#[test]
fn the_kernel_has_what_is_wanted_and_nothing_else() {
    testkit::requires!(netns);
    let namespace = Namespace::create().unwrap();
    let mut netlink = namespace.netlink().unwrap();
    let lo = netlink.link(kernel::netlink::LinkRef::Name("lo")).unwrap().unwrap().index;
    let up = kernel::netlink::SetLink { up: true, ..Default::default() };
    let own = kernel::netlink::Address { link: lo, address: net("192.0.2.1/32") };
    let set = Change::Set(kernel::netlink::LinkRef::Index(lo), up);
    netlink.apply(&[set, Change::Address(own)]).unwrap();
    let mut network = network();
    let (v6, sources) = (node(&["fd64::20/123"], "2001:db8::2"), [ip("192.0.2.1")]);
    network.nodes.insert("d".to_owned(), v6);
    network.pools.insert(net("fd64::/112"));
    network.own.insert(net("fd64::/123"));
    let nodes =
        [("b".to_owned(), Some(1300)), ("c".to_owned(), None), ("d".to_owned(), None)].into();
    let way = Way { link: Some(lo), sources: &sources, nodes: Some(&nodes) };
    let required = wanted(Encryption::Required, &network, &way);
    let is = |netlink: &mut Netlink, wanted: &ClusterRoutes| {
        let found = read(netlink).unwrap();
        let told: Vec<_> = plan(&found, wanted, true).iter().map(ToString::to_string).collect();
        assert_eq!(told, [""; 0]);
    };
    for wanted in [
        wanted(Encryption::Required, &network, &Way::default()),
        required.clone(),
        wanted(Encryption::Preferred, &network, &way),
        required,
        ClusterRoutes::default(),
    ] {
        let found = read(&mut netlink).unwrap();
        make(&mut netlink, &plan(&found, &wanted, true)).unwrap();
        is(&mut netlink, &wanted);
        assert_eq!(read(&mut netlink).unwrap().routes.len(), wanted.routes.len());
    }
}

#[test]
fn the_networks_of_pools_are_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pools");
    assert_eq!(remembered(&file), BTreeSet::new());
    let pools: BTreeSet<_> = ["10.64.0.0/16", "fd64::/64"].map(net).into();
    remember(&file, &pools).unwrap();
    assert_eq!(remembered(&file), pools);
    remember(&file, &[net("10.65.0.0/16")].into()).unwrap();
    assert_eq!(remembered(&file), [net("10.65.0.0/16")].into());
}
