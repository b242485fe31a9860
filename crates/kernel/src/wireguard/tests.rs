#![allow(clippy::unwrap_used, reason = "tests")]

use netlink_packet_core::{NetlinkBuffer, NlasIterator, Parseable};
use netlink_packet_wireguard::{
    WireguardAllowedIpAttr, WireguardAttribute, WireguardPeerAttribute, WireguardPeerFlags,
};
use proptest::prelude::*;

use super::*;

/// What another implementation reads of a message: the generic header and the attributes.
fn decoded(bytes: &[u8]) -> ([u8; 4], Vec<WireguardAttribute>) {
    let raw = NetlinkBuffer::new_checked(bytes).unwrap();
    assert_eq!(raw.length() as usize, bytes.len());
    let (header, attributes) = raw.payload().split_first_chunk().unwrap();
    let attributes = NlasIterator::new(attributes);
    (*header, attributes.map(|it| WireguardAttribute::parse(&it.unwrap()).unwrap()).collect())
}

fn network(of: &netlink_packet_wireguard::WireguardAllowedIp) -> IpNet {
    let (mut address, mut prefix) = (None, None);
    for attribute in of.iter() {
        match attribute {
            WireguardAllowedIpAttr::IpAddr(ip) => address = Some(*ip),
            WireguardAllowedIpAttr::Cidr(length) => prefix = Some(*length),
            _ => {}
        }
    }
    IpNet::new(address.unwrap(), prefix.unwrap()).unwrap()
}

/// What another implementation reads of the peers of a change, mentions of one peer joined.
fn peers(messages: &[Vec<u8>]) -> Vec<SetPeer> {
    let mut peers: Vec<SetPeer> = Vec::new();
    for bytes in messages {
        for attribute in decoded(bytes).1 {
            let WireguardAttribute::Peers(mentioned) = attribute else { continue };
            for mention in mentioned {
                let mut peer = SetPeer::default();
                for attribute in mention.iter() {
                    match attribute {
                        WireguardPeerAttribute::PublicKey(key) => peer.public_key = *key,
                        WireguardPeerAttribute::PresharedKey(key) => {
                            peer.preshared_key = Some(*key);
                        }
                        WireguardPeerAttribute::Endpoint(at) => peer.endpoint = Some(*at),
                        WireguardPeerAttribute::PersistentKeepalive(s) => peer.keepalive = Some(*s),
                        WireguardPeerAttribute::Flags(flags) => {
                            peer.remove = flags.contains(WireguardPeerFlags::RemoveMe);
                            if flags.contains(WireguardPeerFlags::ReplaceAllowedIps) {
                                peer.allowed_ips.get_or_insert_default();
                            }
                        }
                        WireguardPeerAttribute::AllowedIps(ips) => {
                            peer.allowed_ips
                                .get_or_insert_default()
                                .extend(ips.iter().map(network));
                        }
                        other => panic!("{other:?}"),
                    }
                }
                match peers.last_mut().filter(|last| last.public_key == peer.public_key) {
                    Some(last) => {
                        let more = peer.allowed_ips.unwrap();
                        last.allowed_ips.as_mut().unwrap().extend(more);
                    }
                    None => peers.push(peer),
                }
            }
        }
    }
    peers
}

fn any_peer() -> impl Strategy<Value = SetPeer> {
    let v4 = (any::<[u8; 4]>(), 0..=32u8).prop_map(|(ip, n)| IpNet::new(ip.into(), n).unwrap());
    let v6 = (any::<[u8; 16]>(), 0..=128u8).prop_map(|(ip, n)| IpNet::new(ip.into(), n).unwrap());
    let network = prop_oneof![v4, v6].prop_map(|network| network.trunc());
    let endpoint = any::<(std::net::IpAddr, u16)>().prop_map(SocketAddr::from);
    let several = proptest::collection::vec(network, 0..700);
    let parts = (
        any::<Key>(),
        any::<Option<Key>>(),
        proptest::option::of(endpoint),
        any::<Option<u16>>(),
        proptest::option::of(several),
    );
    parts.prop_map(|(public_key, preshared_key, endpoint, keepalive, allowed_ips)| SetPeer {
        public_key,
        remove: false,
        preshared_key,
        endpoint,
        keepalive,
        allowed_ips,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn another_implementation_reads_what_is_written(
        wanted in proptest::collection::vec(any_peer(), 0..12),
    ) {
        let keys: std::collections::HashSet<_> = wanted.iter().map(|it| it.public_key).collect();
        prop_assume!(keys.len() == wanted.len());
        let change = SetDevice { peers: wanted.clone(), ..SetDevice::default() };
        let messages = set_messages(31, "flwg0", &change);
        prop_assert!(messages.iter().all(|bytes| bytes.len() < 64 << 10));
        prop_assert_eq!(peers(&messages), wanted);
    }

    #[test]
    fn reading_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        read_device(&bytes, &mut Device::default());
    }
}

#[test]
fn keys_and_port_are_in_the_first_message_alone() {
    let many = (0..2_000u32).map(|at| {
        let mut public_key = [0; 32];
        public_key[..4].copy_from_slice(&at.to_ne_bytes());
        SetPeer { public_key, allowed_ips: Some(vec![]), ..SetPeer::default() }
    });
    let change =
        SetDevice { private_key: Some([7; 32]), listen_port: Some(51820), peers: many.collect() };
    let messages = set_messages(31, "flwg0", &change);
    assert!(messages.len() > 1);
    for (at, bytes) in messages.iter().enumerate() {
        let (header, attributes) = decoded(bytes);
        assert_eq!(header, [SET_DEVICE, 1, 0, 0]);
        assert_eq!(attributes[0], WireguardAttribute::IfName("flwg0".to_owned()));
        let key = attributes.contains(&WireguardAttribute::PrivateKey([7; 32]));
        let port = attributes.contains(&WireguardAttribute::ListenPort(51820));
        assert_eq!((key, port), (at == 0, at == 0));
    }
    assert_eq!(peers(&messages), change.peers);
}

/// The bytes of <linux/wireguard.h>, written down by hand.
#[test]
fn a_change_has_the_bytes_that_the_kernel_expects() {
    let peer = SetPeer {
        public_key: [0xaa; 32],
        endpoint: Some("192.0.2.1:51820".parse().unwrap()),
        keepalive: Some(25),
        allowed_ips: Some(vec!["10.2.0.0/16".parse().unwrap()]),
        ..SetPeer::default()
    };
    let change = SetDevice { listen_port: Some(7), peers: vec![peer], ..SetDevice::default() };
    let messages = set_messages(0x1f, "wg", &change);
    let mut expected = vec![];
    expected.extend(148u32.to_ne_bytes()); // length
    expected.extend(0x1fu16.to_ne_bytes());
    expected.extend(5u16.to_ne_bytes()); // request, acknowledged
    expected.extend([0; 8]); // sequence, port
    expected.extend([1, 1, 0, 0]); // WG_CMD_SET_DEVICE, version 1
    expected.extend([7, 0, 2, 0, b'w', b'g', 0, 0]); // WGDEVICE_A_IFNAME
    expected.extend([6, 0, 6, 0, 7, 0, 0, 0]); // WGDEVICE_A_LISTEN_PORT
    expected.extend([112, 0, 8, 0x80]); // WGDEVICE_A_PEERS, nested
    expected.extend([108, 0, 0, 0x80]);
    expected.extend([36, 0, 1, 0]); // WGPEER_A_PUBLIC_KEY
    expected.extend([0xaa; 32]);
    expected.extend([8, 0, 3, 0, 2, 0, 0, 0]); // WGPEER_F_REPLACE_ALLOWEDIPS
    expected.extend([20, 0, 4, 0]); // WGPEER_A_ENDPOINT: sockaddr_in
    expected.extend([2, 0, 0xca, 0x6c, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([6, 0, 5, 0, 25, 0, 0, 0]); // WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL
    expected.extend([32, 0, 9, 0x80]); // WGPEER_A_ALLOWEDIPS
    expected.extend([28, 0, 0, 0x80]);
    expected.extend([6, 0, 1, 0, 2, 0, 0, 0]); // WGALLOWEDIP_A_FAMILY: AF_INET
    expected.extend([8, 0, 2, 0, 10, 2, 0, 0]); // WGALLOWEDIP_A_IPADDR
    expected.extend([5, 0, 3, 0, 16, 0, 0, 0]); // WGALLOWEDIP_A_CIDR_MASK
    assert_eq!(messages, [expected]);
}

#[test]
fn a_removal_says_nothing_but_the_key() {
    let gone = SetPeer {
        public_key: [1; 32],
        remove: true,
        keepalive: Some(3),
        preshared_key: Some([9; 32]),
        ..SetPeer::default()
    };
    let change = SetDevice { peers: vec![gone], ..SetDevice::default() };
    let read = peers(&set_messages(31, "flwg0", &change));
    assert_eq!(read, [SetPeer { public_key: [1; 32], remove: true, ..SetPeer::default() }]);
}

#[test]
fn an_interface_is_read_from_several_answers() {
    let answer = |key: u8, networks: &[&str], first: bool| {
        let mut out = Vec::new();
        if first {
            write(&mut out, device::PUBLIC_KEY, &[5; 32]);
            write(&mut out, device::LISTEN_PORT, &51820u16.to_ne_bytes());
        }
        nested(&mut out, device::PEERS, |out| {
            nested(out, 0, |out| {
                write(out, peer::PUBLIC_KEY, &[key; 32]);
                if first {
                    let at = "[2001:db8::1]:9".parse().unwrap();
                    write(out, peer::ENDPOINT, &socket_address(at));
                    let time = [12i64.to_ne_bytes(), 34i64.to_ne_bytes()].concat();
                    write(out, peer::LAST_HANDSHAKE, &time);
                    write(out, peer::RECEIVED, &5u64.to_ne_bytes());
                    write(out, peer::SENT, &6u64.to_ne_bytes());
                }
                nested(out, peer::ALLOWED_IPS, |out| {
                    for network in networks {
                        nested(out, 0, |out| write_network(out, &network.parse().unwrap()));
                    }
                });
            });
        });
        out
    };
    let mut found = Device::default();
    read_device(&answer(1, &["10.0.0.0/8"], true), &mut found);
    read_device(&answer(1, &["fd00::/64"], false), &mut found);
    read_device(&answer(2, &[], false), &mut found);
    let first = Peer {
        public_key: [1; 32],
        endpoint: Some("[2001:db8::1]:9".parse().unwrap()),
        keepalive: 0,
        last_handshake: Some(SystemTime::UNIX_EPOCH + Duration::new(12, 34)),
        received: 5,
        sent: 6,
        allowed_ips: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/64".parse().unwrap()],
    };
    let second = Peer { public_key: [2; 32], ..Peer::default() };
    let expected =
        Device { public_key: Some([5; 32]), listen_port: 51820, peers: vec![first, second] };
    assert_eq!(found, expected);
}

/// Every kernel has this family, so the exchange itself is tried.
#[test]
fn a_family_is_found_by_its_name_and_a_missing_one_is_not_found() {
    let protocol = rustix::net::netlink::GENERIC;
    let socket = open(protocol, 0).unwrap();
    let mut socket = Socket { socket, family: CONTROL, sequence: 0, received: buffer() };
    assert_eq!(socket.family("nlctrl").unwrap(), CONTROL);
    let missing = socket.family("no-such-family").unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}
