#![allow(clippy::unwrap_used, reason = "tests")]

use objects::kinds::{WireguardHost, WireguardPeerSpec, WireguardWithin};

use super::*;

fn wanted<'p>(
    objects: impl IntoIterator<Item = &'p WireguardPeer>,
    names: &Found,
    own: PublicKey,
) -> Peers {
    claims(objects, names, own, &Verdicts::default(), Moving::default()).peers
}

fn claimed(objects: &[WireguardPeer], own: PublicKey, down: &[u8]) -> Claims {
    let down = down.iter().copied().map(key).collect();
    let verdicts = Verdicts { down, ..Verdicts::default() };
    claims(objects, &Found::new(), own, &verdicts, Moving::default())
}

fn key(byte: u8) -> PublicKey {
    PublicKey([byte; 32])
}

fn object(name: &str, of: u8, networks: &[&str], next: Option<u8>) -> WireguardPeer {
    let spec = WireguardPeerSpec {
        allowed_ips: networks.iter().map(|it| (*it).to_owned()).collect(),
        endpoint: None,
        persistent_keepalive: 25,
        public_key: key(of).to_string(),
        next_public_key: next.map(|next| key(next).to_string()),
        ..WireguardPeerSpec::default()
    };
    WireguardPeer::new(name, spec)
}

#[test]
fn a_network_and_a_key_have_one_peer_the_first_by_name() {
    let objects = [
        object("c", 1, &["10.3.0.0/24"], None),
        object("b", 2, &["10.1.0.0/24", "10.2.0.0/24"], None),
        object("a", 1, &["10.1.0.0/24"], None),
    ];
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let wanted = wanted(order.map(|at| &objects[at]), &Found::new(), key(9));
        let networks = |of: u8| {
            let networks = wanted[&key(of)].allowed_ips.iter();
            networks.map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(wanted.len(), 2);
        assert_eq!(networks(1), ["10.1.0.0/24"]);
        assert_eq!(networks(2), ["10.2.0.0/24"]);
    }
}

#[test]
fn a_next_key_that_is_somebodys_key_takes_nothing() {
    let objects = [
        // It says that it will use the key of b, of c, and of this node.
        object("a", 1, &["10.1.0.0/24"], Some(2)),
        object("b", 2, &["10.2.0.0/24"], Some(9)),
        object("c", 3, &["10.3.0.0/24"], Some(4)),
    ];
    let wanted = wanted(&objects, &Found::new(), key(9));
    assert_eq!(wanted.keys().copied().collect::<Vec<_>>(), [key(1), key(2), key(3), key(4)]);
    assert_eq!(wanted[&key(2)].allowed_ips.len(), 1);
    assert_eq!(wanted[&key(2)].successor_of, None);
    assert_eq!(wanted[&key(4)].successor_of, Some(key(3)));
    assert!(wanted[&key(4)].allowed_ips.is_empty());
}

#[test]
fn this_nodes_own_key_is_no_peer_and_nonsense_is_left_out() {
    let mut nonsense = object("n", 5, &["10.5.0.0/24", "nonsense"], None);
    let mut other = object("o", 6, &[], None);
    other.spec.public_key = "nonsense".to_owned();
    nonsense.spec.endpoint = Some(WireguardEndpoint {
        dns_or_ip: WireguardHost { ip: Some("nonsense".to_owned()), dns: None },
        port: 1,
    });
    let objects = [object("own", 9, &["10.9.0.0/24"], None), nonsense, other];
    let wanted = wanted(&objects, &Found::new(), key(9));
    assert_eq!(wanted.keys().copied().collect::<Vec<_>>(), [key(5)]);
    assert_eq!(wanted[&key(5)].allowed_ips.len(), 1);
    assert_eq!(wanted[&key(5)].endpoint, None);
}

#[test]
fn a_name_is_where_it_was_found() {
    let mut named = object("n", 5, &[], None);
    let dns = Some("gate.example.com".to_owned());
    named.spec.endpoint =
        Some(WireguardEndpoint { dns_or_ip: WireguardHost { dns, ip: None }, port: 7 });
    let nowhere = wanted([&named], &Found::new(), key(9));
    assert_eq!(nowhere[&key(5)].endpoint, None);
    let at: SocketAddr = "192.0.2.7:7".parse().unwrap();
    let names = [(("gate.example.com".to_owned(), 7), at)].into();
    assert_eq!(wanted([&named], &names, key(9))[&key(5)].endpoint, Some(at));
}

#[test]
fn a_shared_network_is_the_first_s_that_answers() {
    let objects = [
        object("g1", 1, &["10.2.1.0/24", "10.2.0.0/16"], None),
        object("g2", 2, &["10.2.2.0/24", "10.2.0.0/16"], None),
        object("g3", 3, &["10.2.0.0/16"], None),
        object("other", 4, &["10.3.0.0/16"], None),
    ];
    let network: IpNet = "10.2.0.0/16".parse().unwrap();
    for (down, owner) in
        [(vec![], 1), (vec![1], 2), (vec![1, 2], 3), (vec![2], 1), (vec![1, 2, 3], 1), (vec![4], 1)]
    {
        let claims = claimed(&objects, key(9), &down);
        let has = |of: &Peer| of.allowed_ips.contains(&network);
        let owners: Vec<_> = claims.peers.iter().filter(|(_, of)| has(of)).collect();
        assert_eq!((owners.len(), *owners[0].0), (1, key(owner)), "{down:?}");
        // What is its own stays, and who shares nothing is none of it.
        assert!(claims.peers[&key(1)].allowed_ips.contains(&"10.2.1.0/24".parse().unwrap()));
        let sharing: Vec<_> = claims.sharing.into_iter().collect();
        assert_eq!(sharing, [1, 2, 3].map(|of| (key(of), of == owner)), "{down:?}");
    }
}

/// Nodes of this cluster, of which the first two are gateways, and two nodes of another.
fn with_gateways() -> Vec<WireguardPeer> {
    let within = |name: &str, of: u8, gateway: bool| {
        let mut object = object(name, of, &[], None);
        let networks = vec![format!("10.1.{of}.0/24")];
        object.spec.within = Some(WireguardWithin { gateway, networks });
        object
    };
    vec![
        within("m--a--g1", 1, true),
        within("m--a--g2", 2, true),
        within("m--a--n3", 3, false),
        within("m--a--n4", 4, false),
        object("m--b--r1", 11, &["10.2.1.0/24", "10.2.0.0/16"], None),
        object("m--b--r2", 12, &["10.2.2.0/24", "10.2.0.0/16"], None),
    ]
}

#[test]
fn a_node_that_is_no_gateway_has_its_gateways_as_peers_and_sends_to_the_first_that_answers() {
    let objects = with_gateways();
    for (down, gateway) in [(vec![], 1), (vec![1], 2), (vec![2], 1), (vec![1, 2], 1), (vec![11], 1)]
    {
        let claims = claimed(&objects, key(3), &down);
        assert_eq!(claims.peers.keys().copied().collect::<Vec<_>>(), [key(1), key(2)], "{down:?}");
        assert!(claims.peers.values().all(|peer| peer.allowed_ips.is_empty()), "probes alone");
        let expected = ["10.2.0.0/16", "10.2.1.0/24", "10.2.2.0/24"];
        assert!(claims.forwarded.keys().map(ToString::to_string).eq(expected), "{down:?}");
        let to: IpNet = format!("10.1.{gateway}.0/24").parse().unwrap();
        assert!(claims.forwarded.values().all(|it| it.networks == [to]), "{down:?}");
        let sharing: Vec<_> = claims.sharing.iter().map(|(of, carries)| (*of, *carries)).collect();
        assert_eq!(sharing, [1, 2].map(|of| (key(of), of == gateway)), "{down:?}");
    }
}

#[test]
fn a_gateway_has_all_as_peers_and_sends_on_to_later_ones_what_it_does_not_reach() {
    let objects = with_gateways();
    let forwarded = |own: u8, down: &[u8]| {
        let claims = claimed(&objects, key(own), down);
        assert_eq!(claims.peers.len(), 5, "its nodes, too: they probe it");
        assert_eq!(claims.gateway, None);
        let to = |it: &Gateway| it.name.clone();
        claims.forwarded.iter().map(|(net, it)| (net.to_string(), to(it))).collect::<Vec<_>>()
    };
    let on = |networks: &[&str]| -> Vec<_> {
        networks.iter().map(|it| ((*it).to_owned(), "m--a--g2".to_owned())).collect()
    };
    assert_eq!(forwarded(1, &[]), []);
    assert_eq!(forwarded(1, &[11]), on(&["10.2.1.0/24"]), "another may reach it");
    assert_eq!(forwarded(1, &[11, 12]), on(&["10.2.0.0/16", "10.2.1.0/24", "10.2.2.0/24"]));
    assert_eq!(forwarded(1, &[11, 12, 2]), [], "nobody is left");
    assert_eq!(forwarded(2, &[11, 12]), [], "never back to one before it");
}

#[test]
fn gateways_of_one_mesh_say_nothing_of_another() {
    let mut objects = with_gateways();
    for object in &mut objects[..4] {
        object.metadata.labels = Some([(MESH.to_owned(), "other".to_owned())].into());
    }
    let claims = claimed(&objects, key(3), &[]);
    assert!(claims.forwarded.is_empty());
    assert!(claims.peers[&key(11)].allowed_ips.contains(&"10.2.0.0/16".parse().unwrap()));
}

#[test]
fn a_machine_outside_is_no_reason_to_send_on_and_its_range_is_every_nodes() {
    let mut objects = with_gateways();
    let mut laptop = object("m--external--laptop", 21, &["10.99.0.1/32"], None);
    laptop.metadata.labels = Some([(CLUSTER.to_owned(), EXTERNAL.to_owned())].into());
    objects.push(laptop);
    let range: IpNet = "10.99.0.0/24".parse().unwrap();
    for object in &mut objects {
        object.spec.external_networks = vec![range.to_string()];
    }
    let gateway = claimed(&objects, key(1), &[]);
    assert_eq!(gateway.machines, [key(21)].into(), "nobody probes it");
    assert!(gateway.forwarded.is_empty());
    let node = claimed(&objects, key(3), &[]);
    assert!(node.forwarded.contains_key(&"10.99.0.1/32".parse().unwrap()) && node.peers.len() == 2);
    // It is revoked: no node knows it, and every node knows where it was.
    objects.pop();
    for own in [1, 3] {
        let claims = claimed(&objects, key(own), &[]);
        assert!(claims.machines.is_empty() && claims.external == [range].into());
    }
}
