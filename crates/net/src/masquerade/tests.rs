use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use kernel::netns::Namespace;
use testkit::requires;

use super::*;
use crate::datapath::Datapath;
use crate::tests::pods::{self, is_cut_off, pod, reaches, reaches_pod};

const WAIT: Duration = Duration::from_secs(10);

fn pool(networks: &[&str], rule: Option<MasqueradeRule>) -> MasqueradedPool {
    let networks = networks.iter().map(|net| net.parse().unwrap()).collect();
    MasqueradedPool { networks, rule }
}

/// `web` is masqueraded by this rule, `own` never.
fn pools(rule: MasqueradeRule) -> MasqueradedPools {
    let web = pool(&["10.1.0.0/24", "fd00:1::/120"], Some(rule));
    let own = pool(&["10.2.0.0/24", "fd00:2::/120"], None);
    [("web".into(), web), ("own".into(), own)].into()
}

fn open(namespace: &Namespace) -> NatTable {
    namespace.run_in(NatTable::open).unwrap().unwrap()
}

fn adopt(table: &mut NatTable, rule: MasqueradeRule) -> bool {
    table.adopt(Ruleset::of(&pools(rule)).as_ref()).unwrap()
}

/// Connects, and returns from where the server sees that come.
fn seen_as(from: &Namespace, server: &Namespace, at: &str) -> IpAddr {
    let listener = server.run_in(|| TcpListener::bind(at)).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    let accepting = thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        stream.write_all(b"x").unwrap();
        peer.ip()
    });
    let stream = from.run_in(|| TcpStream::connect_timeout(&at, WAIT)).unwrap();
    let mut stream = stream.expect("no way there");
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    accepting.join().unwrap()
}

fn nft(within: &Namespace, args: &[&str]) -> String {
    let output = within.run_in(|| Command::new("nft").args(args).output()).unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_pod_reaches_a_world_that_does_not_know_it_and_pods_see_each_other_as_they_are() {
    requires!(netns, nft);
    let [a, b] = pods::two_nodes();
    let (web, in_web) = pod(1, 1);
    let (other, in_other) = pod(1, 2);
    let (own, in_own) = pod(2, 1);
    for (attachment, inside) in [(&web, &in_web), (&other, &in_other), (&own, &in_own)] {
        a.set_up(attachment, inside, &()).unwrap();
    }
    let host = a.node().namespace();
    let world = b.node().namespace();
    assert!(is_cut_off(&in_web, [10, 0, 0, 2]), "the world has no route to pods");

    let mut table = open(host);
    assert!(adopt(&mut table, MasqueradeRule::default()));
    assert!(!adopt(&mut table, MasqueradeRule::default()), "nothing is left to do");
    assert_eq!(seen_as(&in_web, world, "10.0.0.2:0"), IpAddr::from([10, 0, 0, 1]));
    let own_v6 = "fd00::1".parse::<Ipv6Addr>().unwrap();
    assert_eq!(seen_as(&in_web, world, "[fd00::2]:0"), own_v6);
    let itself = IpAddr::from(web.ipv4.unwrap());
    assert_eq!(seen_as(&in_web, &in_other, "10.1.0.2:0"), itself, "within a pool");
    assert_eq!(seen_as(&in_web, &in_own, "10.2.0.1:0"), itself, "to another pool");
    assert!(is_cut_off(&in_own, [10, 0, 0, 2]), "a pool that is not masqueraded");
    assert!(reaches_pod(host, &web));
    assert_eq!(table.counted().unwrap(), [("web".into(), 2)].into());

    // Nobody but nft itself can say that it reads our rules.
    let listed = nft(host, &["list", "table", "inet", TABLE]);
    assert!(listed.contains("masquerade fully-random"), "{listed}");
    assert!(listed.contains("10.1.0.0/24 : goto pool-web"), "{listed}");
}

#[test]
fn networks_that_are_never_masqueraded_come_and_go_as_elements() {
    requires!(netns, nft);
    let [a, _world] = pods::two_nodes();
    let (web, in_web) = pod(1, 1);
    a.set_up(&web, &in_web, &()).unwrap();
    let mut table = open(a.node().namespace());
    adopt(&mut table, MasqueradeRule::default());
    assert!(reaches(&in_web, [10, 0, 0, 2]));

    // Overlapping networks are one range.
    let never = ["10.0.0.0/24", "10.0.0.2/32", "fd00::/64", "192.168.0.0/16"];
    let never = MasqueradeRule {
        never: never.iter().map(|net| net.parse().unwrap()).collect(),
        ports: None,
    };
    assert!(adopt(&mut table, never.clone()));
    assert!(is_cut_off(&in_web, [10, 0, 0, 2]), "the pod's own address has no way back");
    assert!(is_cut_off(&in_web, "fd00::2".parse::<Ipv6Addr>().unwrap()));
    assert_eq!(table.counted().unwrap(), [("web".into(), 1)].into(), "rules stay as they are");
    let mut fewer = never;
    fewer.never.retain(|net| net.to_string().starts_with("192"));
    assert!(adopt(&mut table, fewer));
    assert!(reaches(&in_web, [10, 0, 0, 2]));
    assert!(reaches(&in_web, "fd00::2".parse::<Ipv6Addr>().unwrap()));
    assert_eq!(table.counted().unwrap(), [("web".into(), 3)].into());

    // A pool more, and none at all.
    let mut more = pools(MasqueradeRule::default());
    more.insert("late".into(), pool(&["10.9.0.0/24"], Some(MasqueradeRule::default())));
    assert!(table.adopt(Ruleset::of(&more).as_ref()).unwrap());
    assert!(table.adopt(Ruleset::of(&pools(MasqueradeRule::default())).as_ref()).unwrap());
    assert!(reaches(&in_web, [10, 0, 0, 2]));
    assert_eq!(Ruleset::of(&[("own".into(), pool(&["10.2.0.0/24"], None))].into()), None);
    assert!(table.adopt(None).unwrap());
    assert!(is_cut_off(&in_web, [10, 0, 0, 2]));
    assert!(!table.adopt(None).unwrap());
}

#[test]
fn connections_get_ports_of_the_range_and_those_that_find_none_are_counted() {
    requires!(netns, nft);
    let [a, b] = pods::two_nodes();
    let (web, in_web) = pod(1, 1);
    a.set_up(&web, &in_web, &()).unwrap();
    let (host, world) = (a.node().namespace(), b.node().namespace());
    let mut table = open(host);
    adopt(&mut table, MasqueradeRule { never: Vec::new(), ports: Some((40_000, 40_001)) });
    let statistics = || host.run_in(conntrack::statistics).unwrap().unwrap();
    let before = statistics();
    let listener = world.run_in(|| TcpListener::bind("10.0.0.2:0")).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    let dial = |wait| in_web.run_in(|| TcpStream::connect_timeout(&at, wait)).unwrap();
    let mut held = Vec::new();
    let mut ports = Vec::new();
    for _ in 0..2 {
        held.push(dial(WAIT).unwrap());
        let (stream, peer) = listener.accept().unwrap();
        held.push(stream);
        ports.push(peer.port());
    }
    ports.sort_unstable();
    assert_eq!(ports, [40_000, 40_001]);
    assert!(dial(Duration::from_millis(500)).is_err(), "there is no third port");
    let after = statistics();
    assert!(after.insert_failed > before.insert_failed, "{before:?} {after:?}");
    assert!(after.connections >= 2 && after.limit > after.connections, "{after:?}");
    let listed = nft(host, &["list", "table", "inet", TABLE]);
    assert!(listed.contains("masquerade to :40000-40001 fully-random"), "{listed}");
}

#[test]
fn rules_outlive_the_agent_and_what_others_flush_is_there_or_comes_back() {
    requires!(netns, nft);
    let [a, _b] = pods::two_nodes();
    let (web, in_web) = pod(1, 1);
    a.set_up(&web, &in_web, &()).unwrap();
    let host = a.node().namespace();
    let mut table = open(host);
    adopt(&mut table, MasqueradeRule::default());
    if table.is_owned() {
        nft(host, &["flush", "ruleset"]);
        assert!(reaches(&in_web, [10, 0, 0, 2]), "an owned table is not flushed by others");
        let second = open(host).adopt(Ruleset::of(&pools(MasqueradeRule::default())).as_ref());
        assert!(matches!(second, Err(NatError::Owned)), "{second:?}");
    }
    drop(table);
    assert!(reaches(&in_web, [10, 0, 0, 2]), "without an agent");
    let mut next = open(host);
    adopt(&mut next, MasqueradeRule::default());
    assert!(!adopt(&mut next, MasqueradeRule::default()));
    drop(next);
    nft(host, &["flush", "ruleset"]);
    assert!(is_cut_off(&in_web, [10, 0, 0, 2]), "nobody owned it");
    let mut unowned = open(host).unowned();
    assert!(adopt(&mut unowned, MasqueradeRule::default()));
    nft(host, &["delete", "element", "inet", TABLE, "from4", "{ 10.1.0.0/24 }"]);
    assert!(is_cut_off(&in_web, [10, 0, 0, 2]));
    assert!(adopt(&mut unowned, MasqueradeRule::default()));
    assert!(reaches(&in_web, [10, 0, 0, 2]));
    assert!(host.run_in(NatTable::remove).unwrap().unwrap());
    assert!(!host.run_in(NatTable::remove).unwrap().unwrap());
}
