//! Real packets through real interfaces, in network namespaces, between our own.

#![allow(clippy::unwrap_used, reason = "tests")]

mod machines;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ipnet::IpNet;
use machines::{
    Echo, Machine, PATIENCE, PORT, directory, eventually, much_goes_both_ways, peers, round_trip,
    run, two,
};
use testkit::{Host, Sandbox};
use wireguard::{Implementation, Peer, Peers, PresharedKey, PrivateKey, TunnelError};

#[test]
fn two_machines_reach_each_other_and_wg_shows_it() {
    testkit::requires!(netns, tun, wireguard);
    let sandbox = Sandbox::new();
    let (mut a, b) = two(&sandbox, "/var/run/wireguard");
    a.reaches(&b);
    b.reaches(&a);
    let status = a.tunnel.status().unwrap();
    assert_eq!(status.implementation, Implementation::Userspace);
    let peer = &status.peers[&b.key()];
    assert!(peer.last_handshake.is_some() && peer.received_bytes > 0 && peer.sent_bytes > 0);
    assert_eq!(peer.endpoint, Some((b.outside, PORT).into()));

    let shown = run(Command::new("wg").args(["show", &a.name]));
    let shown = String::from_utf8(shown.stdout).unwrap();
    for expected in [
        format!("interface: {}", a.name),
        format!("public key: {}", a.key()),
        format!("listening port: {PORT}"),
        format!("peer: {}", b.key()),
        "endpoint: 192.0.2.2:51820".to_owned(),
        format!("allowed ips: {}/32", b.inside),
        "latest handshake:".to_owned(),
        "transfer:".to_owned(),
    ] {
        assert!(shown.contains(&expected), "no {expected:?} in {shown}");
    }
    let refused = Command::new("wg").args(["set", &a.name, "listen-port", "5"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("not permitted"), "{said}");

    let socket = format!("/var/run/wireguard/{}.sock", a.name);
    assert!(std::fs::exists(&socket).unwrap());
    let (host, name) = (a.host, a.name);
    a.tunnel.close().unwrap();
    eventually("the socket goes with the interface", || !std::fs::exists(&socket).unwrap());
    let gone =
        || !host.command("ip").args(["link", "show", &name]).output().unwrap().status.success();
    eventually("the interface is gone", gone);
}

#[test]
fn three_machines_are_a_mesh_and_none_speaks_for_another() {
    testkit::requires!(netns, tun);
    let (sandbox, sockets) = (Sandbox::new(), directory());
    let hosts = ["a", "b", "c"].map(|name| sandbox.host(name));
    let [a, b, c] = &hosts;
    sandbox.link((a, "192.0.2.1/30"), (b, "192.0.2.2/30"));
    sandbox.link((b, "192.0.2.5/30"), (c, "192.0.2.6/30"));
    sandbox.link((a, "192.0.2.9/30"), (c, "192.0.2.10/30"));
    let at = sockets.path().to_str().unwrap();
    let [a, b, c] = hosts;
    let mut a = Machine::new(a, 'a', "192.0.2.1", at);
    let mut b = Machine::new(b, 'b', "192.0.2.2", at);
    let mut c = Machine::new(c, 'c', "192.0.2.10", at);
    let from = |machine: &Machine, ip: &str| Peer {
        endpoint: Some((ip.parse::<IpAddr>().unwrap(), PORT).into()),
        ..machine.as_peer()
    };
    a.tunnel.set_peers(peers([(b.key(), b.as_peer()), (c.key(), c.as_peer())])).unwrap();
    b.tunnel.set_peers(peers([(a.key(), a.as_peer()), (c.key(), from(&c, "192.0.2.6"))])).unwrap();
    c.tunnel
        .set_peers(peers([(a.key(), from(&a, "192.0.2.9")), (b.key(), from(&b, "192.0.2.5"))]))
        .unwrap();
    for (from, to) in [(&a, &b), (&b, &c), (&c, &a), (&b, &a)] {
        from.reaches(to);
    }

    // B takes C's address and speaks to A with it; then it speaks with its own.
    let add = format!("{}/32", c.inside);
    run(b.host.command("ip").args(["address", "add", &add, "dev", "lo"]));
    let heard = a.in_namespace(|| UdpSocket::bind((a.inside, 700))).unwrap();
    heard.set_read_timeout(Some(PATIENCE)).unwrap();
    for source in [c.inside, b.inside] {
        let socket = b.in_namespace(|| UdpSocket::bind((source, 0))).unwrap();
        socket.send_to(source.to_string().as_bytes(), (a.inside, 700)).unwrap();
    }
    let mut said = [0; 40];
    let (length, from) = heard.recv_from(&mut said).unwrap();
    assert_eq!(from.ip(), b.inside, "{}", String::from_utf8_lossy(&said[..length]));
}

#[test]
fn a_peer_is_taken_out_and_comes_back_while_others_go_on() {
    testkit::requires!(netns, tun);
    let (sandbox, sockets) = (Sandbox::new(), directory());
    let (mut a, b) = two(&sandbox, sockets.path().to_str().unwrap());
    let echo = Echo::start(&b.namespace, b.inside);
    let mut stream = a.connect(echo.at);
    round_trip(&mut stream, 1);
    let before = a.tunnel.status().unwrap().peers[&b.key()].clone();

    // A third peer comes and goes: the session with B is not touched.
    let other = PrivateKey::generate().unwrap().public();
    let networks = vec!["10.65.0.0/16".parse::<IpNet>().unwrap()];
    let stranger = Peer { allowed_ips: networks, keepalive: Some(25), ..Peer::default() };
    a.tunnel.set_peers(peers([(b.key(), b.as_peer()), (other, stranger)])).unwrap();
    let route = || {
        let shown = run(a.host.command("ip").args(["route", "show", "10.65.0.0/16"]));
        String::from_utf8(shown.stdout).unwrap()
    };
    assert!(route().contains(&a.name), "{}", route());
    // Somebody removes it, and it comes back.
    run(a.host.command("ip").args(["route", "delete", "10.65.0.0/16"]));
    a.tunnel.converge().unwrap();
    assert!(route().contains(&a.name), "{}", route());
    round_trip(&mut stream, 2);
    a.tunnel.set_peers(peers([(b.key(), b.as_peer())])).unwrap();
    assert_eq!(route(), "");
    round_trip(&mut stream, 3);
    let after = a.tunnel.status().unwrap().peers[&b.key()].clone();
    assert!(after.received_bytes > before.received_bytes && after.last_handshake.is_some());

    // Without its peer nothing goes through; with it the same connection goes on.
    a.tunnel.set_peers(Peers::new()).unwrap();
    assert!(a.tunnel.status().unwrap().peers.is_empty());
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    stream.write_all(&4u64.to_ne_bytes()).unwrap();
    assert!(stream.read_exact(&mut [0; 8]).is_err(), "it goes through without a peer");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    a.tunnel.set_peers(peers([(b.key(), b.as_peer())])).unwrap();
    let mut back = [0; 8];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(u64::from_ne_bytes(back), 4);
}

#[test]
fn an_interface_that_somebody_removed_says_so_and_is_opened_again() {
    testkit::requires!(netns, tun);
    let (sandbox, sockets) = (Sandbox::new(), directory());
    let (mut a, b) = two(&sandbox, sockets.path().to_str().unwrap());
    a.reaches(&b);
    run(a.host.command("ip").args(["link", "delete", &a.name]));
    let removed = a.tunnel.status().unwrap_err();
    assert!(matches!(&removed, TunnelError::Removed(name) if *name == a.name), "{removed}");
    let Machine { host, tunnel, .. } = a;
    drop(tunnel);
    let mut a = Machine::new(host, 'a', "192.0.2.1", sockets.path().to_str().unwrap());
    let mut b = b;
    a.tunnel.set_peers(peers([(b.key(), b.as_peer())])).unwrap();
    b.tunnel.set_peers(peers([(a.key(), a.as_peer())])).unwrap();
    a.reaches(&b);
}

#[test]
fn a_preshared_key_must_be_the_same_at_both_ends() {
    testkit::requires!(netns, tun);
    let (sandbox, sockets) = (Sandbox::new(), directory());
    let (mut a, mut b) = two(&sandbox, sockets.path().to_str().unwrap());
    let shared = PresharedKey::generate().unwrap();
    let with = |machine: &Machine, key: &PresharedKey| {
        peers([(machine.key(), Peer { preshared_key: Some(key.clone()), ..machine.as_peer() })])
    };
    a.tunnel.set_peers(with(&b, &shared)).unwrap();
    b.tunnel.set_peers(with(&a, &PresharedKey::generate().unwrap())).unwrap();
    let echo = Echo::start(&b.namespace, b.inside);
    let short = Duration::from_secs(2);
    let refused = a.in_namespace(|| TcpStream::connect_timeout(&echo.at, short));
    assert!(refused.is_err(), "two keys, and it connects");
    b.tunnel.set_peers(with(&a, &shared)).unwrap();
    a.reaches(&b);
}

#[test]
fn a_peer_that_roams_is_followed() {
    testkit::requires!(netns, tun);
    let (sandbox, sockets) = (Sandbox::new(), directory());
    let (mut a, b) = two(&sandbox, sockets.path().to_str().unwrap());
    a.reaches(&b);
    let echo = Echo::start(&b.namespace, b.inside);
    let mut stream = a.connect(echo.at);
    round_trip(&mut stream, 1);
    for change in [["del", "192.0.2.2/24"], ["add", "192.0.2.77/24"]] {
        run(b.host.command("ip").args(["address", change[0], change[1], "dev", "a"]));
    }
    b.reaches(&a);
    round_trip(&mut stream, 2);
    let at = a.tunnel.status().unwrap().peers[&b.key()].endpoint;
    assert_eq!(at, Some("192.0.2.77:51820".parse().unwrap()));
    // A change of something else does not call it back.
    let peer = Peer { keepalive: Some(25), ..b.as_peer() };
    a.tunnel.set_peers(peers([(b.key(), peer)])).unwrap();
    let at = a.tunnel.status().unwrap().peers[&b.key()].endpoint;
    assert_eq!(at, Some("192.0.2.77:51820".parse().unwrap()));
    round_trip(&mut stream, 3);
}

#[test]
fn peers_are_reached_by_ipv6() {
    testkit::requires!(netns, tun);
    let (sandbox, sockets) = (Sandbox::new(), directory());
    let (a, b) = (sandbox.host("a"), sandbox.host("b"));
    sandbox.link((&a, "2001:db8::1/64"), (&b, "2001:db8::2/64"));
    let at = sockets.path().to_str().unwrap();
    let mut a = Machine::new(a, 'a', "2001:db8::1", at);
    let mut b = Machine::new(b, 'b', "2001:db8::2", at);
    a.tunnel.set_peers(peers([(b.key(), b.as_peer())])).unwrap();
    b.tunnel.set_peers(peers([(a.key(), a.as_peer())])).unwrap();
    a.reaches(&b);
    b.reaches(&a);
    let at = a.tunnel.status().unwrap().peers[&b.key()].endpoint;
    assert_eq!(at, Some("[2001:db8::2]:51820".parse().unwrap()));

    // Inside of the tunnel, too.
    let [at_a, at_b] = ["fd00::a", "fd00::b"].map(|it| it.parse::<IpAddr>().unwrap());
    for (machine, own) in [(&a, at_a), (&b, at_b)] {
        let own = format!("{own}/128");
        let args = ["address", "add", &own, "dev", &machine.name, "nodad"];
        run(machine.host.command("ip").args(args));
    }
    for (i, (key, mut peer, ip)) in
        [(b.key(), b.as_peer(), at_b), (a.key(), a.as_peer(), at_a)].into_iter().enumerate()
    {
        peer.allowed_ips.push(ip.into());
        [&mut a, &mut b][i].tunnel.set_peers(peers([(key, peer)])).unwrap();
    }
    much_goes_both_ways(a.connect(Echo::start(&b.namespace, at_b).at));
}

#[test]
fn a_peer_behind_a_nat_is_reached_and_followed_to_another_port() {
    testkit::requires!(netns, tun, nft);
    let (sandbox, sockets) = (Sandbox::new(), directory());
    let (a, nat, b) = (sandbox.host("a"), sandbox.host("n"), sandbox.host("b"));
    sandbox.link((&a, "192.168.7.1/24"), (&nat, "192.168.7.254/24"));
    sandbox.link((&nat, "192.0.2.1/24"), (&b, "192.0.2.2/24"));
    run(a.command("ip").args(["route", "add", "default", "via", "192.168.7.254"]));
    run(nat.command("sysctl").args(["-q", "-w", "net.ipv4.ip_forward=1"]));
    let translate = |ports: &str| {
        let rules = format!(
            "table ip nat {{}}; delete table ip nat; table ip nat {{ chain out {{ type nat hook postrouting \
             priority srcnat; oifname \"b\" meta l4proto udp masquerade to :{ports}; }}; }}"
        );
        run(nat.command("nft").arg(rules));
    };
    translate("40000");
    let at = sockets.path().to_str().unwrap();
    let mut a = Machine::new(a, 'a', "192.168.7.1", at);
    let mut b = Machine::new(b, 'b', "192.0.2.2", at);
    a.tunnel.set_peers(peers([(b.key(), Peer { keepalive: Some(1), ..b.as_peer() })])).unwrap();
    // Nobody can say where a is: it says so itself, and is reached from then on.
    b.tunnel.set_peers(peers([(a.key(), Peer { endpoint: None, ..a.as_peer() })])).unwrap();
    let heard_at = |b: &mut Machine| b.tunnel.status().unwrap().peers[&a.key()].endpoint;
    eventually("a is heard", || heard_at(&mut b) == Some("192.0.2.1:40000".parse().unwrap()));
    b.reaches(&a);
    // The NAT is replaced, and knows nothing of before: its next keepalive comes from elsewhere.
    let echo = Echo::start(&a.namespace, a.inside);
    let mut stream = b.connect(echo.at);
    round_trip(&mut stream, 1);
    translate("41000");
    // A NAT forgets the connections of an interface that goes down.
    for state in ["down", "up"] {
        run(nat.command("ip").args(["link", "set", "dev", "b", state]));
    }
    eventually("a is heard elsewhere", || {
        heard_at(&mut b) == Some("192.0.2.1:41000".parse().unwrap())
    });
    round_trip(&mut stream, 2);
}

#[test]
fn what_a_dead_process_leaves_refuses_packets_and_goes_with_its_peer_or_by_a_purge() {
    testkit::requires!(netns, tun, nft);
    let (sandbox, sockets) = (Sandbox::new(), directory());
    let (mut a, b) = two(&sandbox, sockets.path().to_str().unwrap());
    let six: IpNet = "fd77::/64".parse().unwrap();
    let mut peer = b.as_peer();
    peer.allowed_ips.push(six);
    a.tunnel.set_peers(peers([(b.key(), peer)])).unwrap();
    a.reaches(&b);
    let ip = |host: &Host, args: &[&str]| {
        let output = host.command("ip").args(args).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let inside = IpNet::from(b.inside).to_string();
    let ways = [["-4", "route", "show", &inside], ["-6", "route", "show", "fd77::/64"]];
    let Machine { host, tunnel, name, namespace, .. } = a;
    assert!(ways.iter().all(|way| ip(&host, way).contains(&name)));
    // As the process dies: nothing is told to the kernel.
    drop(tunnel);
    eventually("the interface is gone", || ip(&host, &["link"]).find(&name).is_none());
    let left = |host: &Host, way: &[&str]| {
        let shown = ip(host, way);
        assert!(shown.starts_with("unreachable") && shown.lines().count() == 1, "{shown}");
    };
    for way in ways {
        left(&host, &way);
    }
    let to = SocketAddr::new(b.inside, 9);
    let refused = namespace.run_in(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap();
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::HostUnreachable);
    // The next process without that peer takes them away.
    let mut a = Machine::new(host, 'a', "192.0.2.1", sockets.path().to_str().unwrap());
    for way in ways {
        assert!(
            ip(&a.host, &way).contains("unreachable"),
            "while it starts: {}",
            ip(&a.host, &way)
        );
    }
    a.tunnel.set_peers(peers([(b.key(), b.as_peer())])).unwrap();
    assert_eq!(ip(&a.host, &ways[1]), "", "its peer is gone, and it stays");
    let Machine { host, tunnel, .. } = a;
    drop(tunnel);
    let purged = wireguard::purge(&namespace, &name).unwrap();
    let expected = [
        format!("route {inside} as unreachable in table 254"),
        "nftables table inet fairlead-mesh".to_owned(),
    ];
    assert!(expected.iter().all(|what| purged.contains(what)), "{purged:?}");
    assert_eq!(ip(&host, &ways[0]), "");
    assert_eq!(wireguard::purge(&namespace, &name).unwrap(), Vec::<String>::new());
}

#[test]
fn a_key_is_changed_under_load_and_no_connection_is_lost() {
    testkit::requires!(netns, tun);
    let (sandbox, sockets) = (Sandbox::new(), directory());
    let (mut a, mut b) = two(&sandbox, sockets.path().to_str().unwrap());
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    // One connection each way, busy all the time.
    let echoes = [Echo::start(&b.namespace, b.inside), Echo::start(&a.namespace, a.inside)];
    let streams = [a.connect(echoes[0].at), b.connect(echoes[1].at)];
    let load = streams.map(|mut stream| {
        let (stop, count) = (Arc::clone(&stop), Arc::clone(&count));
        thread::spawn(move || {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                round_trip(&mut stream, number);
                count.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let more = |what: &str| {
        let from = count.load(Ordering::Relaxed);
        eventually(what, || count.load(Ordering::Relaxed) > from + 50);
    };
    more("the load begins");
    for _ in 0..2 {
        let (old, next) = (a.key(), PrivateKey::generate().unwrap());
        // The next key is known before it is used, and has no networks yet.
        let successor = Peer { allowed_ips: vec![], successor_of: Some(old), ..a.as_peer() };
        b.tunnel.set_peers(peers([(old, a.as_peer()), (next.public(), successor)])).unwrap();
        assert!(b.tunnel.is_rotating());
        more("the next key changes nothing by being known");
        a.tunnel.set_key(&next).unwrap();
        assert_eq!(a.key(), next.public());
        eventually("the next key takes over", || {
            b.tunnel.converge().unwrap();
            b.tunnel.status().unwrap().peers[&next.public()].received_bytes > 1_000
        });
        more("the load goes on with the next key");
        b.tunnel.set_peers(peers([(a.key(), a.as_peer())])).unwrap();
        more("the load goes on without the old key");
    }
    stop.store(true, Ordering::Relaxed);
    for load in load {
        load.join().expect("a connection was lost");
    }
}
