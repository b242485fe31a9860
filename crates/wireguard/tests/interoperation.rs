//! Ours and Debian's wireguard-go speak with each other, also where packets are lost, late, or come twice.

#![allow(clippy::unwrap_used, reason = "tests")]

mod machines;

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use kernel::netns::Namespace;
use machines::{
    Echo, Machine, PATIENCE, WireguardGo, directory, eventually, inside, much_goes_both_ways,
    peers, round_trip,
};
use testkit::{Host, Sandbox};
use wireguard::{Peer, PresharedKey, PrivateKey};

#[test]
fn debians_wireguard_go_is_a_peer_like_any_other() {
    testkit::requires!(netns, tun, wireguard);
    let (sandbox, sockets) = (Sandbox::new(), directory());
    let (a, b) = (sandbox.host("a"), sandbox.host("b"));
    sandbox.link((&a, "192.0.2.1/24"), (&b, "192.0.2.2/24"));
    let mut a = Machine::new(a, 'a', "192.0.2.1", sockets.path().to_str().unwrap());
    let key = PrivateKey::generate().unwrap();
    let go = WireguardGo::start(&b, &key, inside('b'));
    let shared = PresharedKey::generate().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), shared.to_base64()).unwrap();
    let peer = Peer {
        allowed_ips: vec![inside('b').into()],
        endpoint: None,
        preshared_key: Some(shared),
        ..Peer::default()
    };
    a.tunnel.set_peers(peers([(key.public(), peer)])).unwrap();
    let (public, allowed) = (a.key().to_string(), format!("{}/32", a.inside));
    let shared = file.path().to_str().unwrap();
    let peer = ["peer", &public, "preshared-key", shared, "allowed-ips", &allowed];
    go.wg(&[&peer[..], &["endpoint", "192.0.2.1:51820", "persistent-keepalive", "1"]].concat());

    // Theirs connects first: ours has no endpoint, as for a peer behind a NAT.
    let connected =
        |a: &mut Machine| a.tunnel.status().unwrap().peers[&key.public()].last_handshake.is_some();
    eventually("theirs connects to ours", || connected(&mut a));
    let there = Namespace::open(b.netns()).unwrap();
    let mut stream = a.connect(Echo::start(&there, inside('b')).at);
    round_trip(&mut stream, 1);
    let here = Echo::start(&a.namespace, a.inside);
    let back = there.run_in(|| TcpStream::connect_timeout(&here.at, PATIENCE)).unwrap();
    let mut back = back.unwrap();
    back.set_read_timeout(Some(PATIENCE)).unwrap();
    round_trip(&mut back, 2);

    much_goes_both_ways(stream);
}

/// Carries datagrams between two places, and loses some, keeps some back, and sends some twice: one of 50 each,
/// by turns that are the same every time.
struct Relay {
    lost: Arc<AtomicUsize>,
    late: Arc<AtomicUsize>,
    twice: Arc<AtomicUsize>,
}

impl Relay {
    /// Takes the place of each for the other, at two ports of one machine.
    fn start(host: &Host, between: [SocketAddr; 2], at: [SocketAddr; 2]) -> Self {
        let namespace = Namespace::open(host.netns()).unwrap();
        let sockets = at.map(|at| {
            let socket = namespace.run_in(|| UdpSocket::bind(at)).unwrap().unwrap();
            Arc::new(socket)
        });
        let relay = Self { lost: Arc::default(), late: Arc::default(), twice: Arc::default() };
        for i in 0..2 {
            // What one sends to its port leaves by the other's.
            let (from, by, to) =
                (Arc::clone(&sockets[i]), Arc::clone(&sockets[1 - i]), between[1 - i]);
            let [lost, late, twice] = [&relay.lost, &relay.late, &relay.twice].map(Arc::clone);
            thread::spawn(move || {
                let (mut packet, mut kept) = ([0; 4_096], None::<Vec<u8>>);
                let mut state = 2_463_534_242u32;
                while let Ok(length) = from.recv(&mut packet) {
                    state ^= state << 13;
                    state ^= state >> 17;
                    state ^= state << 5;
                    let packet = &packet[..length];
                    let count = |of: &AtomicUsize| of.fetch_add(1, Ordering::Relaxed);
                    let copies = match state % 50 {
                        0 => {
                            count(&lost);
                            0
                        }
                        1 if kept.is_none() => {
                            count(&late);
                            kept = Some(packet.to_vec());
                            0
                        }
                        2 => {
                            count(&twice);
                            2
                        }
                        _ => 1,
                    };
                    for _ in 0..copies {
                        let _ = by.send_to(packet, to);
                    }
                    // What was kept back comes some packets later.
                    if state % 7 == 3 {
                        kept.take().into_iter().for_each(|it| drop(by.send_to(&it, to)));
                    }
                }
            });
        }
        relay
    }
}

fn much(from: &Namespace, to: SocketAddr) -> TcpStream {
    let stream = from.run_in(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn much_goes_both_ways_at_once_with_wireguard_go_where_packets_are_lost_late_and_come_twice() {
    testkit::requires!(netns, tun, wireguard);
    let (sandbox, sockets) = (Sandbox::new(), directory());
    let (a, middle, b) = (sandbox.host("a"), sandbox.host("m"), sandbox.host("b"));
    sandbox.link((&a, "192.0.2.1/24"), (&middle, "192.0.2.254/24"));
    sandbox.link((&middle, "198.51.100.254/24"), (&b, "198.51.100.1/24"));
    let place = |it: &str| it.parse::<SocketAddr>().unwrap();
    let relay = Relay::start(
        &middle,
        [place("192.0.2.1:51820"), place("198.51.100.1:51820")],
        [place("192.0.2.254:7001"), place("198.51.100.254:7002")],
    );
    let mut a = Machine::new(a, 'a', "192.0.2.1", sockets.path().to_str().unwrap());
    let key = PrivateKey::generate().unwrap();
    let go = WireguardGo::start(&b, &key, inside('b'));
    let peer = Peer {
        allowed_ips: vec![inside('b').into()],
        endpoint: Some(place("192.0.2.254:7001")),
        ..Peer::default()
    };
    a.tunnel.set_peers(peers([(key.public(), peer)])).unwrap();
    let (public, allowed) = (a.key().to_string(), format!("{}/32", a.inside));
    go.wg(&["peer", &public, "allowed-ips", &allowed, "endpoint", "198.51.100.254:7002"]);
    let there = Namespace::open(b.netns()).unwrap();
    let (echo_there, echo_here) =
        (Echo::start(&there, inside('b')), Echo::start(&a.namespace, a.inside));
    // Both ends send much to the other, and hear it again, at the same time.
    let streams = [much(&a.namespace, echo_there.at), much(&there, echo_here.at)];
    let both = streams.map(|stream| thread::spawn(move || much_goes_both_ways(stream)));
    for one in both {
        one.join().unwrap();
    }
    for (what, count) in [("lost", relay.lost), ("late", relay.late), ("twice", relay.twice)] {
        assert!(count.load(Ordering::Relaxed) > 10, "too few packets were {what}");
    }
    let status = &a.tunnel.status().unwrap().peers[&key.public()];
    assert_eq!(status.endpoint, Some(place("192.0.2.254:7001")));
    assert!(status.received_bytes > 4 << 20 && status.sent_bytes > 4 << 20);
}
