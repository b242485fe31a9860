#![allow(clippy::unwrap_used, reason = "tests")]

use objects::kinds::{WireguardHost, WireguardPeerSpec};

use super::*;

fn wanted<'p>(
    objects: impl IntoIterator<Item = &'p WireguardPeer>,
    names: &Found,
    own: PublicKey,
) -> Peers {
    claims(objects, names, own, &BTreeSet::new()).peers
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
        let down = down.into_iter().map(key).collect();
        let claims = claims(&objects, &Found::new(), key(9), &down);
        let has = |of: &Peer| of.allowed_ips.contains(&network);
        let owners: Vec<_> = claims.peers.iter().filter(|(_, of)| has(of)).collect();
        assert_eq!((owners.len(), *owners[0].0), (1, key(owner)), "{down:?}");
        // What is its own stays, and who shares nothing is none of it.
        assert!(claims.peers[&key(1)].allowed_ips.contains(&"10.2.1.0/24".parse().unwrap()));
        let sharing: Vec<_> = claims.sharing.into_iter().collect();
        assert_eq!(sharing, [1, 2, 3].map(|of| (key(of), of == owner)), "{down:?}");
    }
}
