use std::net::UdpSocket;
use std::time::Duration;

use proptest::prelude::*;
use testkit::{Sandbox, requires};

use super::*;
use crate::netns::Namespace;
use crate::nftables::{Batch, Chain, Expression, Hook, Nftables, Rule};

proptest! {
    #[test]
    fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = logged(&bytes);
    }

    /// A packet within well-formed attributes is reached more often than by chance.
    #[test]
    fn any_packet_can_be_read(packet in proptest::collection::vec(any::<u8>(), 0..80), version: bool) {
        let mut packet = packet;
        if let Some(first) = packet.first_mut() {
            *first = *first & 15 | if version { 0x40 } else { 0x60 };
        }
        let mut payload = vec![0; 4];
        write(&mut payload, 10, b"name\0");
        write(&mut payload, 9, &packet);
        if let Some(logged) = logged(&payload) {
            prop_assert_eq!(logged.prefix, "name");
            prop_assert_eq!(logged.source.is_ipv4(), version);
        }
    }
}

#[test]
fn headers_that_say_they_are_shorter_than_any_are_no_packet_or_carry_nothing() {
    let logged_with = |packet: &[u8]| {
        let mut payload = vec![0; 4];
        write(&mut payload, 9, packet);
        logged(&payload)
    };
    let mut packet = [0; 48];
    (packet[0], packet[9]) = (0x45, 6);
    packet[32] = 0x50;
    assert_eq!(logged_with(&packet).unwrap().carried.len(), 8);
    packet[32] = 0x40;
    assert!(logged_with(&packet).unwrap().carried.is_empty());
    packet[0] = 0x44;
    assert_eq!(logged_with(&packet), None);
}

#[test]
fn a_packet_that_a_rule_logs_is_read_with_the_rules_prefix() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let host = sandbox.host("log");
    let namespace = Namespace::open(host.netns()).unwrap();
    namespace
        .run_in(|| {
            let mut log = PacketLog::open(77).unwrap();
            let mut batch = Batch::new("test");
            batch.add_table(0);
            let hook = Some((Hook::Output, 0));
            batch.add_chain(&Chain { name: "out".to_owned(), hook, drops: false });
            let tell = Expression::Log { group: 77, prefix: "rule 1".to_owned(), length: 96 };
            batch.add_rule("out", &Rule { expressions: vec![tell], ..Rule::default() });
            Nftables::open().unwrap().commit(&batch, None).unwrap();
            for (from, to) in [("127.0.0.1:0", "127.0.0.1:7777"), ("[::1]:0", "[::1]:7777")] {
                let socket = UdpSocket::bind(from).unwrap();
                socket.send_to(b"x", to).unwrap();
                let mut found = Vec::new();
                while found.is_empty() {
                    let lost = log.read(Duration::from_secs(20), |packet| {
                        found.extend((packet.protocol == 17).then_some(packet));
                    });
                    assert!(!lost.unwrap());
                }
                let own = socket.local_addr().unwrap();
                assert_eq!(
                    found[0],
                    Logged {
                        prefix: "rule 1".to_owned(),
                        source: own.ip(),
                        destination: own.ip(),
                        protocol: 17,
                        source_port: own.port(),
                        destination_port: 7777,
                        carried: b"x".to_vec(),
                    }
                );
            }
        })
        .unwrap();
}

#[test]
fn a_packet_is_told_at_once_with_what_it_carries() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let namespace = Namespace::open(sandbox.host("log").netns()).unwrap();
    namespace
        .run_in(|| {
            let mut log = PacketLog::open_at_once(78, 64).unwrap();
            let mut batch = Batch::new("test");
            batch.add_table(0);
            let hook = Some((Hook::Output, 0));
            batch.add_chain(&Chain { name: "out".to_owned(), hook, drops: false });
            let tell = Expression::Log { group: 78, prefix: "x".to_owned(), length: 64 };
            batch.add_rule("out", &Rule { expressions: vec![tell], ..Rule::default() });
            Nftables::open().unwrap().commit(&batch, None).unwrap();
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(&[7; 100], "127.0.0.1:7777").unwrap();
            let mut found = Vec::new();
            // The kernel waits for nothing: it is there when the packet was sent.
            log.read(Duration::ZERO, |packet| {
                found.extend((packet.protocol == 17).then_some(packet));
            })
            .unwrap();
            // Cut off where it was asked for: 64 bytes with the two headers.
            assert_eq!(found[0].carried, [7; 36]);
        })
        .unwrap();
}
