#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use super::*;
use crate::netlink::{Address, Change, LinkRef, SetLink};
use crate::netns::Namespace;

#[test]
fn a_name_that_no_interface_can_have_is_refused() {
    for name in ["", "sixteen-letters-", "a\0b"] {
        assert_eq!(Tun::create(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
    }
}

#[test]
fn packets_go_both_ways_and_the_interface_ends_with_its_file() {
    testkit::requires!(netns, tun);
    let namespace = Namespace::create().unwrap();
    let mut netlink = namespace.netlink().unwrap();
    let (tun, socket) = namespace
        .run_in(|| {
            let tun = Tun::create("tun0").unwrap();
            assert!(Tun::create("tun0").is_err(), "a second of the same name");
            let mut netlink = crate::netlink::Netlink::open().unwrap();
            let link = netlink.link(LinkRef::Name("tun0")).unwrap().unwrap().index;
            let address = "10.9.0.1/24".parse().unwrap();
            let up = SetLink { up: true, no_own_addresses: true, ..SetLink::default() };
            let changes =
                [Change::Set(LinkRef::Index(link), up), Change::Address(Address { link, address })];
            netlink.apply(&changes).unwrap();
            (tun, UdpSocket::bind("10.9.0.1:700").unwrap())
        })
        .unwrap();
    socket.send_to(b"out", "10.9.0.2:700").unwrap();
    // The kernel may have said something of its own by IPv6 before.
    let mut packet = [0; 200];
    let length = loop {
        let (offload, length) = tun.read(&mut packet).unwrap();
        if packet[0] >> 4 == 4 {
            // UDP behind 20 bytes of IPv4, whose sum is its seventh byte.
            assert_eq!(offload.checksum, Some((20, 6)));
            packet[26..28].fill(0);
            break length;
        }
    };
    assert_eq!(&packet[length - 3..length], b"out");

    // The answer: addresses and ports are the same numbers the other way round, so the sum of
    // the header holds; UDP needs none.
    let mut answer = packet[..length].to_vec();
    answer[12..16].copy_from_slice(&packet[16..20]);
    answer[16..20].copy_from_slice(&packet[12..16]);
    tun.write(&answer).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (length, from) = socket.recv_from(&mut packet).unwrap();
    assert_eq!((&packet[..length], from.to_string().as_str()), (&b"out"[..], "10.9.0.2:700"));

    drop(tun);
    let end = Instant::now() + Duration::from_secs(10);
    while netlink.link(LinkRef::Name("tun0")).unwrap().is_some() {
        assert!(Instant::now() < end, "the interface is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_is_left_to_do_is_read_as_it_was_written() {
    for offload in [
        Offload::default(),
        Offload { checksum: Some((20, 16)), ..Offload::default() },
        Offload { segments: Some((Segments::Tcp4, 1_368)), checksum: Some((20, 16)), headers: 52 },
        Offload { segments: Some((Segments::Tcp6, 1_348)), checksum: Some((40, 16)), headers: 72 },
        Offload { segments: Some((Segments::Other(5), 100)), checksum: None, headers: 28 },
    ] {
        assert_eq!(Offload::decode(&offload.encode()), offload);
    }
}
