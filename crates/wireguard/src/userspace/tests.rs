#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::{IpAddr, SocketAddr};

use gotatun::packet::Packet;
use ipnet::IpNet;
use kernel::datagrams::Received;
use kernel::tun::{Offload, Segments};

use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::peers::DevicePeers;
use crate::key::{PrivateKey, PublicKey};
use crate::peer::{Change, Delta, Peer};

const MTU: u16 = 1_420;
const WHOLE: Offload = Offload { segments: None, checksum: None, headers: 0 };

/// One end, whose packets are carried by hand.
struct End {
    peers: DevicePeers,
    key: PublicKey,
    inside: IpAddr,
    outside: SocketAddr,
}

type Sent = Vec<(Packet, SocketAddr)>;

impl End {
    fn new(number: u8) -> Self {
        let key = PrivateKey::generate().unwrap();
        Self {
            peers: DevicePeers::new(key.secret().clone()),
            key: key.public(),
            inside: [10, 0, number, 1].into(),
            outside: ([192, 0, 2, number], 51_820).into(),
        }
    }

    fn knows(&self, other: &Self) {
        let peer = Peer {
            allowed_ips: vec![IpNet::new(other.inside, 24).unwrap()],
            endpoint: Some(other.outside),
            ..Peer::default()
        };
        self.peers.apply(&Delta { added: [(other.key, peer)].into(), ..Delta::default() });
    }

    /// Encrypts packets of the interface.
    fn sends(&self, offload: &Offload, packets: &[Vec<u8>]) -> Sent {
        let mut outgoing = Outgoing::new(&self.peers, MTU);
        let table = self.peers.table();
        for packet in packets {
            outgoing.seal(&table, offload, &mut packet.clone());
        }
        outgoing.sealed
    }

    /// Decrypts what comes from a place, as much in one buffer as has one size. Returns what goes to the
    /// interface, and what is answered.
    fn receives(&self, from: SocketAddr, datagrams: &[Vec<u8>]) -> (Vec<Vec<u8>>, Sent) {
        let mut incoming = Incoming::new(&self.peers, MTU);
        let table = self.peers.table();
        let mut rest = datagrams;
        while let Some(first) = rest.first() {
            let size = first.len();
            let same = rest.iter().take_while(|it| it.len() == size).count();
            // The last of a buffer may be smaller.
            let run = same + usize::from(rest.get(same).is_some_and(|it| it.len() < size));
            let bytes = rest[..run].concat();
            let received = Received { from, length: bytes.len(), size };
            incoming.open(&table, Packet::copy_from(&bytes[..]), &received);
            rest = &rest[run..];
        }
        (incoming.opened.iter().map(|it| it.to_vec()).collect(), incoming.answers)
    }

    fn endpoint(&self) -> Option<SocketAddr> {
        self.peers.views()[0].endpoint
    }
}

fn bytes(sent: &Sent) -> Vec<Vec<u8>> {
    sent.iter().map(|(packet, _)| packet.to_vec()).collect()
}

/// Carries everything to and fro until nobody has anything to say; returns what `to` and `from` were told.
fn carry(from: &End, to: &End, sent: &Sent) -> [Vec<Vec<u8>>; 2] {
    let mut told = [Vec::new(), Vec::new()];
    let (mut sent, mut turn) = (bytes(sent), 0);
    while !sent.is_empty() {
        let (sender, receiver) = if turn == 0 { (from, to) } else { (to, from) };
        let (opened, answers) = receiver.receives(sender.outside, &sent);
        told[turn].extend(opened);
        (sent, turn) = (bytes(&answers), 1 - turn);
    }
    told
}

/// A packet of UDP as far as anybody here looks at it.
fn packet(from: IpAddr, to: IpAddr, payload: &[u8]) -> Vec<u8> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) else { panic!("of IPv4") };
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet.extend([from.octets(), to.octets()].concat());
    packet.extend(payload);
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet
}

/// A packet of the kernel that is to be cut into segments.
fn large(from: &End, to: &End, payload: &[u8], size: u16) -> (Offload, Vec<u8>) {
    let tcp =
        [&[0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0], payload].concat();
    let mut packet = packet(from.inside, to.inside, &tcp);
    packet[9] = 6;
    let segments = Some((Segments::Tcp4, size));
    (Offload { segments, checksum: Some((20, 16)), headers: 40 }, packet)
}

/// Two ends with a session.
fn two() -> (End, End) {
    let (a, b) = (End::new(1), End::new(2));
    a.knows(&b);
    b.knows(&a);
    let hello = packet(a.inside, b.inside, b"hello");
    let [told, back] = carry(&a, &b, &a.sends(&WHOLE, std::slice::from_ref(&hello)));
    assert_eq!((told, back), (vec![hello], vec![]), "what waited for the session goes through it");
    (a, b)
}

#[test]
fn a_packet_of_64_kilobytes_arrives_in_segments_of_which_none_is_missing() {
    let (a, b) = two();
    for length in [1, 1_368, 1_369, 20_000, 64_296] {
        let payload: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let (offload, packet) = large(&a, &b, &payload, 1_368);
        let sent = a.sends(&offload, &[packet]);
        assert_eq!(sent.len(), payload.len().div_ceil(1_368));
        assert!(sent.iter().all(|(_, to)| *to == b.outside));
        let (opened, answers) = b.receives(a.outside, &bytes(&sent));
        assert!(answers.is_empty());
        let arrived: Vec<u8> = opened.iter().flat_map(|it| it[40..].to_vec()).collect();
        assert!(arrived == payload, "{length} bytes");
    }
}

#[test]
fn packets_that_come_late_or_twice_or_not_at_all_leave_the_others() {
    let (a, b) = two();
    let packets: Vec<_> = (0..100u8).map(|it| packet(a.inside, b.inside, &[it; 99])).collect();
    let mut sent = bytes(&a.sends(&WHOLE, &packets));
    let lost = sent.remove(50);
    sent.swap(10, 20);
    let again = sent.clone();
    let (opened, _) = b.receives(a.outside, &sent);
    let mut expected = packets.clone();
    expected.remove(50);
    expected.swap(10, 20);
    assert_eq!(opened, expected);
    assert_eq!(b.receives(a.outside, &again).0, Vec::<Vec<u8>>::new(), "each counts once");
    assert_eq!(b.receives(a.outside, &[lost]).0, packets[50..=50], "and may come late");
}

#[test]
fn what_a_peer_may_not_send_goes_nowhere() {
    let (a, b) = two();
    let stranger = IpAddr::from([10, 0, 9, 1]);
    let own = packet(a.inside, b.inside, b"own");
    let spoofed = packet(stranger, b.inside, b"spoofed");
    let mut longer = own.clone();
    longer[3] += 60;
    let nothing = vec![0x99; 40];
    // The destination is what it is sent by; the source is what it is taken by.
    let packets = [spoofed, own.clone(), longer, nothing];
    let (opened, _) = b.receives(a.outside, &bytes(&a.sends(&WHOLE, &packets)));
    assert_eq!(opened, std::slice::from_ref(&own));
    // A network that another peer has by now is no longer this one's, nor is it sent there.
    let change = Change { allowed_ips: Some(vec![]), ..Change::default() };
    b.peers.apply(&Delta { changed: [(a.key, change)].into(), ..Delta::default() });
    assert!(b.receives(a.outside, &bytes(&a.sends(&WHOLE, &[own]))).0.is_empty());
    assert!(b.sends(&WHOLE, &[packet(b.inside, a.inside, b"back")]).is_empty());
    assert!(b.peers.views()[0].networks.is_empty());
}

#[test]
fn a_peer_is_followed_by_what_is_authentic_alone() {
    let (a, b) = two();
    let (elsewhere, forged) = ("198.51.100.7:9".parse().unwrap(), "203.0.113.9:9".parse().unwrap());
    let sent = bytes(&a.sends(&WHOLE, &[packet(a.inside, b.inside, b"from elsewhere")]));
    let mut broken = sent.clone();
    *broken[0].last_mut().unwrap() ^= 1;
    assert!(b.receives(forged, &broken).0.is_empty());
    assert_eq!(b.endpoint(), Some(a.outside));
    assert_eq!(b.receives(elsewhere, &sent).0.len(), 1);
    assert_eq!(b.endpoint(), Some(elsewhere));
    // Who repeats it is nobody.
    assert!(b.receives(forged, &sent).0.is_empty());
    assert_eq!(b.endpoint(), Some(elsewhere));
    let back = b.sends(&WHOLE, &[packet(b.inside, a.inside, b"back")]);
    assert_eq!(back[0].1, elsewhere);
}

#[test]
fn what_waits_for_a_session_is_bounded_and_keeps_its_order() {
    let (a, b) = (End::new(1), End::new(2));
    a.knows(&b);
    b.knows(&a);
    let packets: Vec<_> =
        (0..1_000u16).map(|it| packet(a.inside, b.inside, &it.to_be_bytes())).collect();
    let sent = a.sends(&WHOLE, &packets);
    assert_eq!(sent.len(), 1, "one handshake for all");
    let [told, _] = carry(&a, &b, &sent);
    assert_eq!(told, packets[..256]);
}

#[test]
fn what_waits_at_the_end_that_is_called_leaves_with_the_callers_first_packet() {
    let (a, b) = (End::new(1), End::new(2));
    a.knows(&b);
    b.knows(&a);
    // Both begin, and what B sent is lost.
    let back = packet(b.inside, a.inside, b"back");
    assert_eq!(b.sends(&WHOLE, std::slice::from_ref(&back)).len(), 1);
    let hello = packet(a.inside, b.inside, b"hello");
    let [told, heard] = carry(&a, &b, &a.sends(&WHOLE, std::slice::from_ref(&hello)));
    assert_eq!((told, heard), (vec![hello], vec![back]));
}

#[test]
fn a_peer_that_is_gone_has_no_session_and_one_of_the_same_key_begins_anew() {
    let (a, b) = two();
    b.peers.apply(&Delta { removed: vec![a.key], ..Delta::default() });
    let hello = packet(a.inside, b.inside, b"hello");
    let sent = a.sends(&WHOLE, std::slice::from_ref(&hello));
    let session = u32::from_le_bytes(sent[0].0[4..8].try_into().unwrap());
    assert!(b.peers.of_session(session).is_none());
    assert!(b.receives(a.outside, &bytes(&sent)).0.is_empty());
    assert!(b.peers.views().is_empty());
    b.knows(&a);
    let [told, back] = carry(&b, &a, &b.sends(&WHOLE, &[packet(b.inside, a.inside, b"again")]));
    assert_eq!((told.len(), back.len()), (1, 0));
    let [told, _] = carry(&a, &b, &a.sends(&WHOLE, std::slice::from_ref(&hello)));
    assert_eq!(told, [hello]);
}

#[test]
fn a_changed_key_ends_sessions_and_calls_the_peers_that_know_it() {
    let (mut a, b) = two();
    let next = PrivateKey::generate().unwrap();
    b.peers.apply(&Delta { removed: vec![a.key], ..Delta::default() });
    a.key = next.public();
    b.knows(&a);
    let calls = a.peers.set_key(next.secret().clone());
    let calls: Sent = calls.into_iter().map(|(packet, to)| (packet.into(), to)).collect();
    assert_eq!(calls.len(), 1);
    carry(&a, &b, &calls);
    let hello = packet(a.inside, b.inside, b"hello");
    let [told, back] = carry(&a, &b, &a.sends(&WHOLE, std::slice::from_ref(&hello)));
    assert_eq!((told, back), (vec![hello], vec![]));
}

#[test]
fn who_shakes_hands_too_often_has_to_prove_where_it_is() {
    let b = End::new(2);
    let from: SocketAddr = "192.0.2.1:51820".parse().unwrap();
    // A machine that is no peer and knows the public key.
    let kinds: Vec<u8> = (0..110)
        .filter_map(|_| {
            let a = End::new(1);
            a.knows(&b);
            let sent = a.sends(&WHOLE, &[packet(a.inside, b.inside, b"hello")]);
            let (_, answers) = b.receives(from, &bytes(&sent));
            Some(answers.first()?.0[0])
        })
        .collect();
    assert_eq!(kinds, [3; 10], "cookies for what is more than a hundred a second, else nothing");
}
