//! Policies where packets do not go straight from one pod to another: node ports, connections from before
//! the agent.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ground;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ground::{Ground, Host, NODE, NODE_V4, PATIENCE, Servers};
use node::enforcement::{Enforcer, EnforcerSettings, NftDatapath};
use policy::cluster::Key;
use policy::compile::{Change, Compiler};
use policy::program::{Delta, Program};
use policy::spec::{AcceptRule, NetworkPolicy, Peer, Settings};
use testkit::requires;

const QUIET: Duration = Duration::from_millis(300);

/// The pods `a/web` and `a/db` and two hosts outside.
fn ground() -> Ground {
    let mut ground = Ground::new();
    for (app, number) in [("web", 1), ("db", 2)] {
        ground.add(Key::new("a", app), number, &[("app", app)], true);
    }
    for (name, number) in [("one", 1), ("two", 200)] {
        ground.add(Key::new("outside", name), number, &[], false);
    }
    ground
}

/// Only these peers reach the pods `app=APP`.
fn program(ground: &Ground, app: &str, peers: Vec<Peer>, generation: u64) -> Program {
    let mut compiler = Compiler::new(Settings::default());
    compiler.apply(Change::Namespace("a".into(), Some(Default::default())));
    for host in ground.pods() {
        compiler.apply(Change::Pod(host.key.clone(), Some(host.pod(&[]))));
    }
    let key = Key::new("a", app);
    let rules = match peers.is_empty() {
        true => vec![],
        false => vec![AcceptRule { peers, ports: vec![] }],
    };
    let pods = format!("app={app}").parse().unwrap();
    let policy = NetworkPolicy { key: key.clone(), pods, ingress: Some(rules), egress: None };
    compiler.apply(Change::NetworkPolicy(key, Some(Arc::new(policy))));
    compiler.program(NODE, generation)
}

/// Enforces that only these peers reach the pods `app=APP`.
fn enforce(ground: &Ground, app: &str, peers: Vec<Peer>) -> Enforcer<NftDatapath> {
    let program = program(ground, app, peers, 1);
    ground.in_node(|| {
        let datapath = NftDatapath::open().unwrap();
        let mut enforcer =
            Enforcer::start(datapath, EnforcerSettings::default(), Some(program), []).unwrap();
        enforcer.revoke().unwrap();
        enforcer
    })
}

fn nft(ground: &Ground, rules: &str) {
    ground.in_node(|| {
        let output = Command::new("nft").arg(rules).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
}

fn connects(from: &Host, to: SocketAddr, passes: bool) -> bool {
    let wait = if passes { PATIENCE } else { QUIET };
    from.namespace.run_in(|| TcpStream::connect_timeout(&to, wait).is_ok()).unwrap()
}

#[test]
fn a_node_port_is_judged_by_the_clients_address_for_the_pod_behind_it() {
    requires!(netns, nft);
    let ground = ground();
    let servers = Servers::start(&ground, &[80], &[]);
    nft(
        &ground,
        "add table ip service; \
         add chain ip service pre { type nat hook prerouting priority -100; }; \
         add rule ip service pre ip daddr 10.99.0.1 tcp dport 30080 dnat to 10.0.0.2:80",
    );
    let networks = vec!["192.0.2.1/32".parse().unwrap()];
    let block = Peer::Networks { networks, except: vec![] };
    let _enforcer = enforce(&ground, "db", vec![block]);
    let port = SocketAddr::new(NODE_V4.into(), 30080);
    assert!(connects(ground.host("outside/one"), port, true), "the client that is let in");
    let began = Instant::now();
    while servers.take().is_empty() {
        assert!(began.elapsed() < PATIENCE, "the server was not told");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(!connects(ground.host("outside/two"), port, false), "another client came in");
    // A pod that asks the node port is itself the client.
    assert!(!connects(ground.host("a/web"), port, false), "a pod came in by the node port");
    assert!(servers.take().is_empty());
}

/// A connection from `a/web` to a server outside, both ends.
fn connection(ground: &Ground) -> (TcpStream, TcpStream) {
    let (web, outside) = (ground.host("a/web"), ground.host("outside/one"));
    let to = SocketAddr::new(outside.address(false), 80);
    let listener = outside.namespace.run_in(|| TcpListener::bind(to)).unwrap().unwrap();
    let connect = || TcpStream::connect_timeout(&to, PATIENCE);
    let client = web.namespace.run_in(connect).unwrap().unwrap();
    let (server, _) = listener.accept().unwrap();
    for end in [&client, &server] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        end.set_nodelay(true).unwrap();
    }
    (client, server)
}

#[test]
fn replies_of_connections_from_before_the_agent_pass_where_the_kernel_tracked_them() {
    requires!(netns, nft);
    let ground = ground();
    // As kube-proxy does: with it the kernel tracks connections.
    nft(
        &ground,
        "add table ip tracked; \
         add chain ip tracked seen { type filter hook forward priority 0; }; \
         add rule ip tracked seen ct state new counter",
    );
    let (mut client, mut server) = connection(&ground);
    let _enforcer = enforce(&ground, "web", vec![]);
    // Nobody may begin a connection to the pod; this one the pod began itself.
    server.write_all(b"reply").unwrap();
    let mut reply = [0; 5];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"reply");
    client.write_all(b"on").unwrap();
    server.read_exact(&mut [0; 2]).unwrap();
    assert!(!connects(ground.host("outside/two"), (ground.host("a/web").v4, 80).into(), false));
}

#[test]
fn connections_that_nobody_tracked_are_judged_by_the_first_packet_that_is_seen() {
    requires!(netns, nft);
    let ground = ground();
    let (mut client, mut server) = connection(&ground);
    let _enforcer = enforce(&ground, "web", vec![]);
    // The pod is the first to send: the connection is the pod's own.
    client.write_all(b"first").unwrap();
    server.read_exact(&mut [0; 5]).unwrap();
    server.write_all(b"reply").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();

    // The other end is the first to send: it seems to have begun it, and may not.
    let ground = self::ground();
    let (client, mut server) = connection(&ground);
    let _enforcer = enforce(&ground, "web", vec![]);
    server.write_all(b"reply").unwrap();
    client.set_read_timeout(Some(QUIET)).unwrap();
    assert!((&client).read(&mut [0; 5]).is_err(), "it is not known who began it");
    // What the pod sends next says who began it, and what waited arrives.
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    (&client).write_all(b"mine").unwrap();
    server.read_exact(&mut [0; 4]).unwrap();
    (&client).read_exact(&mut [0; 5]).unwrap();
}

#[test]
fn of_many_connections_those_that_are_over_are_not_ended_again() {
    requires!(netns);
    let ground = ground();
    let mut enforcer = enforce(&ground, "db", vec![Peer::Everyone]);
    let (web, db) = (ground.host("a/web"), ground.host("a/db"));
    let to = SocketAddr::new(db.address(false), 80);
    let listener = db.namespace.run_in(|| TcpListener::bind(to)).unwrap().unwrap();
    let connect = || web.namespace.run_in(|| TcpStream::connect_timeout(&to, PATIENCE));
    let client = connect().unwrap().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    for _ in 0..50 {
        drop((connect().unwrap().unwrap(), listener.accept().unwrap()));
    }
    let counted = |over: bool| {
        let mut count = 0;
        ground.in_node(|| {
            let mut table = kernel::conntrack::Table::open().unwrap();
            table.list(|entry| count += usize::from(entry.is_over == over)).unwrap();
        });
        count
    };
    let began = Instant::now();
    while counted(false) != 1 {
        assert!(began.elapsed() < PATIENCE, "{} connections are not over", counted(false));
        thread::sleep(Duration::from_millis(20));
    }
    assert!(counted(true) >= 50);
    let program = program(&ground, "db", vec![], 2);
    let delta = Delta::between(enforcer.program(), &program);
    let revoked = ground.in_node(|| {
        enforcer.apply(&delta).unwrap();
        enforcer.revoke().unwrap()
    });
    assert_eq!((revoked.ended, revoked.restored), (1, 0));
    while server.write_all(b"late").is_ok() {
        assert!(began.elapsed() < 2 * PATIENCE, "it goes on");
        thread::sleep(Duration::from_millis(1));
    }
    drop(client);
}
