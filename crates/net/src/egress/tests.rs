//! Egress with real namespaces and packets: a client's node, a node with two egress pods, and the world
//! behind it. No route leads from the egress pods' node to clients but by the tunnel.

mod first_packet;

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kernel::netns::Namespace;
use objects::kinds::{EgressFailure, SessionAffinity};
use parking_lot::Mutex;
use stallproof::{Snapshot, Tasks};
use testkit::requires;

use super::*;
use crate::Attachment;
use crate::datapath::Datapath;
use crate::node::Node;
use crate::overlay::DeviceSettings;
use crate::tests::pods::{pod, two_nodes};
use crate::wiring::Wiring;

const WAIT: Duration = Duration::from_secs(20);
pub(super) const WORLD: [&str; 2] = ["203.0.113.9", "2001:db8:9::9"];
const ECHO: u16 = 7;

pub(super) struct World {
    clients: Wiring,
    _egress_node: Wiring,
    client: (Attachment, Namespace),
    /// A pod of the same node that chose nothing.
    other: (Attachment, Namespace),
    pub(super) replicas: Vec<(Attachment, Namespace, Gateway)>,
    outside: Namespace,
    pub(super) table: EgressTable,
    pub(super) numbers: ClassNumbers,
    pub(super) inputs: EgressInputs,
}

impl World {
    pub(super) fn new() -> Self {
        let [a, b] = two_nodes();
        let outside = Namespace::create().unwrap();
        let (on_a, on_b) = (a.node().namespace(), b.node().namespace());
        let pods = [pod(1, 1), pod(1, 2)];
        for (attachment, inside) in &pods {
            a.set_up(attachment, inside, &()).unwrap();
        }
        let replicas = [pod(2, 1), pod(2, 2)];
        for (attachment, inside) in &replicas {
            b.set_up(attachment, inside, &()).unwrap();
        }
        let fd = format!("/proc/{}/fd/{}", std::process::id(), fd_of(&outside));
        ip(on_b, &["link", "add", "world", "type", "veth", "peer", "name", "eth0", "netns", &fd]);
        for (namespace, link) in [(on_b, "world"), (&outside, "eth0"), (&outside, "lo")] {
            ip(namespace, &["link", "set", link, "up"]);
        }
        for (address, link, namespace) in [
            ("203.0.113.1/24", "world", on_b),
            ("2001:db8:9::1/64", "world", on_b),
            ("203.0.113.9/24", "eth0", &outside),
            ("2001:db8:9::9/64", "eth0", &outside),
        ] {
            ip(namespace, &["address", "add", address, "dev", link, "nodad"]);
        }
        // The world knows pods' addresses, and the clients' node the way out: what goes past the egress is
        // seen with the client's own address.
        ip(&outside, &["route", "add", "default", "via", "203.0.113.1"]);
        ip(&outside, &["-6", "route", "add", "default", "via", "2001:db8:9::1"]);
        ip(on_a, &["route", "add", "default", "via", "10.0.0.2"]);
        ip(on_a, &["-6", "route", "add", "default", "via", "fd00::2"]);
        ip(on_b, &["route", "add", "10.1.0.0/16", "via", "10.0.0.1"]);
        ip(on_b, &["-6", "route", "add", "fd00:1::/32", "via", "fd00::1"]);
        let settings = GatewaySettings { port: PORT };
        let replicas = replicas.map(|(attachment, inside)| {
            let gateway = inside.run_in(|| Gateway::set_up(settings)).unwrap().unwrap();
            (attachment, inside, gateway)
        });
        let table = on_a.run_in(EgressTable::open).unwrap().unwrap();
        serve(&outside);
        let [client, other] = pods;
        Self {
            clients: a,
            _egress_node: b,
            client,
            other,
            replicas: replicas.into(),
            outside,
            table,
            numbers: ClassNumbers::default(),
            inputs: EgressInputs {
                own: ["10.1.0.0/16", "10.2.0.0/16", "fd00:1::/32", "fd00:2::/32"]
                    .map(|net| net.parse().unwrap())
                    .into(),
                ..EgressInputs::default()
            },
        }
    }

    pub(super) fn node(&self) -> &Node {
        self.clients.node()
    }

    /// An egress to the whole world with both replicas, which the client chose.
    pub(super) fn with_egress(mut self, affinity: SessionAffinity) -> Self {
        let replicas = self.replicas.iter().enumerate();
        let replicas = replicas.map(|(number, (attachment, ..))| ReplicaView {
            pod: format!("nat-{number}"),
            addresses: attachment.addresses().collect(),
            draining: false,
        });
        let view = EgressView {
            destinations: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
            affinity,
            failure: EgressFailure::Drop,
            namespaces: None,
            replicas: replicas.collect(),
        };
        self.inputs.egresses.insert("internet/nat".to_owned(), view);
        self.inputs.clients = vec![self.choose(&self.client.0)];
        self
    }

    fn choose(&self, attachment: &Attachment) -> Client {
        Client {
            namespace: "shop".to_owned(),
            pod: attachment.key.container.clone(),
            addresses: attachment.addresses().collect(),
            egresses: vec!["internet/nat".to_owned()],
        }
    }

    fn egress(&mut self) -> &mut EgressView {
        self.inputs.egresses.get_mut("internet/nat").unwrap()
    }

    fn apply(&mut self) -> EgressProgram {
        let mac = mac_of("a", &[[10, 0, 0, 1].into()]);
        let device = EgressDevice { mac, settings: DeviceSettings { port: PORT, mtu: 1400 } };
        let node = self.clients.node().clone();
        let index = device.ensure(&node).unwrap();
        let program = plan(&self.inputs, &mut self.numbers, index);
        apply(&node, &program, &mut self.table, PORT).unwrap();
        program
    }

    /// The addresses of a replica.
    pub(super) fn replica(&self, number: usize) -> Vec<IpAddr> {
        self.replicas[number].0.addresses().collect()
    }

    pub(super) fn all_replicas(&self) -> BTreeSet<IpAddr> {
        (0..self.replicas.len()).flat_map(|number| self.replica(number)).collect()
    }
}

fn fd_of(namespace: &Namespace) -> i32 {
    use std::os::fd::{AsFd, AsRawFd};
    namespace.as_fd().as_raw_fd()
}

pub(super) fn ip(within: &Namespace, args: &[&str]) {
    let output = within.run_in(|| Command::new("ip").args(args).output()).unwrap().unwrap();
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Says to everybody who connects from where, in a line, and then what they say.
fn serve(outside: &Namespace) {
    for address in WORLD {
        let address = SocketAddr::new(address.parse().unwrap(), ECHO);
        let listener = outside.run_in(|| TcpListener::bind(address)).unwrap().unwrap();
        thread::spawn(move || {
            while let Ok((mut connection, from)) = listener.accept() {
                thread::spawn(move || {
                    let mut line = [0; 40];
                    let said = from.ip().to_string();
                    line[..said.len()].copy_from_slice(said.as_bytes());
                    connection.write_all(&line)?;
                    std::io::copy(&mut connection.try_clone()?, &mut connection)
                });
            }
        });
    }
}

fn dial(from: &Namespace, to: &str, wait: Duration) -> std::io::Result<(TcpStream, IpAddr)> {
    let address = SocketAddr::new(to.parse().unwrap(), ECHO);
    let mut connection = from.run_in(|| TcpStream::connect_timeout(&address, wait)).unwrap()?;
    connection.set_read_timeout(Some(wait))?;
    connection.set_write_timeout(Some(wait))?;
    let mut line = [0; 40];
    connection.read_exact(&mut line)?;
    let said = String::from_utf8_lossy(&line);
    Ok((connection, said.trim_end_matches('\0').parse().unwrap()))
}

/// Connects, and returns the connection and the address by which the world saw it.
pub(super) fn connect(from: &Namespace, to: &str) -> (TcpStream, IpAddr) {
    dial(from, to, WAIT).unwrap()
}

pub(super) fn seen_by(from: &Namespace, to: &str) -> IpAddr {
    connect(from, to).1
}

/// Sends bytes and reads them back.
pub(super) fn echo(connection: &mut TcpStream, bytes: usize) -> std::io::Result<()> {
    let sent: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    let mut back = vec![0; bytes];
    thread::scope(|scope| {
        let mut writer = connection.try_clone()?;
        let sent = &sent;
        let writing = scope.spawn(move || writer.write_all(sent));
        let read = connection.read_exact(&mut back);
        writing.join().unwrap()?;
        read
    })?;
    assert_eq!(sent, back);
    Ok(())
}

/// Whether new connections are not answered: a busy machine makes no way.
pub(super) fn is_cut_off(from: &Namespace, to: &str) -> bool {
    dial(from, to, Duration::from_millis(400)).is_err()
}

#[test]
fn connections_leave_with_a_replicas_address_in_both_families_and_come_back() {
    requires!(netns, nft);
    let mut world = World::new().with_egress(SessionAffinity::ClientIp);
    let links = |world: &World| {
        let of =
            |it: &(Attachment, Namespace, Gateway)| it.1.netlink().unwrap().links().unwrap().len();
        world.replicas.iter().map(of).collect::<Vec<_>>()
    };
    let own: BTreeSet<IpAddr> = world.client.0.addresses().collect();
    for to in WORLD {
        assert!(own.contains(&seen_by(&world.client.1, to)), "before it chose");
    }
    let before = links(&world);
    world.apply();
    let replicas = world.all_replicas();
    let mut through = BTreeSet::new();
    for to in WORLD {
        let (mut connection, from) = connect(&world.client.1, to);
        assert!(replicas.contains(&from), "{to}: {from}");
        echo(&mut connection, 100).unwrap();
        // More than fits in one packet of any network on the way, again and again, as Coil's tests send it.
        for _ in 0..20 {
            let (mut connection, from) = connect(&world.client.1, to);
            echo(&mut connection, 1 << 20).unwrap();
            through.insert(from);
        }
    }
    // All by one replica: one address of each family.
    assert_eq!(through.len(), 2, "{through:?}");
    // Who chose nothing goes as ever; pods are reached as ever.
    let other = &world.other;
    assert!(other.0.addresses().any(|own| own == seen_by(&other.1, WORLD[0])));
    let listener = other.1.run_in(|| TcpListener::bind(("0.0.0.0", 80))).unwrap().unwrap();
    let to = SocketAddr::from((other.0.ipv4.unwrap(), 80));
    let direct = world.client.1.run_in(|| TcpStream::connect_timeout(&to, WAIT)).unwrap();
    assert!(own.contains(&listener.accept().unwrap().1.ip()), "{direct:?}");
    // Links are the same, whoever comes.
    assert_eq!(links(&world), before);
    let used: usize = world.replicas.iter().map(|it| it.2.usage().unwrap().clients).sum();
    assert_eq!(used, 2, "a client of each family");
    // No longer chosen, while the pod runs.
    world.inputs.clients.clear();
    world.inputs.egresses.clear();
    let program = world.apply();
    assert!(program.is_empty());
    assert!(own.contains(&seen_by(&world.client.1, WORLD[0])));
}

/// Whoever masquerades pods on the node: a replica sees each client's own address.
#[test]
fn clients_that_are_masqueraded_leave_by_the_egress_as_themselves() {
    requires!(netns, nft);
    let mut world = World::new().with_egress(SessionAffinity::ClientIp);
    world.inputs.clients.push(world.choose(&world.other.0));
    world.egress().replicas.truncate(1);
    let rules =
        "table inet other { chain post { type nat hook postrouting priority 100; masquerade; }; }";
    let nft = || Command::new("nft").arg(rules).status();
    assert!(world.node().namespace().run_in(nft).unwrap().unwrap().success());
    assert_eq!(seen_by(&world.client.1, WORLD[0]).to_string(), "10.0.0.1");
    world.apply();
    let replicas = world.all_replicas();
    for inside in [&world.client.1, &world.other.1] {
        for to in WORLD {
            let (mut connection, from) = connect(inside, to);
            assert!(replicas.contains(&from), "{to}: {from}");
            echo(&mut connection, 1 << 16).unwrap();
        }
    }
    let used: usize = world.replicas.iter().map(|it| it.2.usage().unwrap().clients).sum();
    assert_eq!(used, 4, "two clients, each with an address of each family");
}

#[test]
fn connections_from_the_world_to_a_client_are_answered_past_the_egress() {
    requires!(netns, nft);
    let mut world = World::new().with_egress(SessionAffinity::ClientIp);
    world.apply();
    let listener = world.client.1.run_in(|| TcpListener::bind(("0.0.0.0", 8080))).unwrap().unwrap();
    thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        connection.write_all(b"hello").unwrap();
    });
    let to = SocketAddr::from((world.client.0.ipv4.unwrap(), 8080));
    let inward = world.outside.run_in(|| TcpStream::connect_timeout(&to, WAIT)).unwrap();
    let mut inward = inward.unwrap();
    inward.set_read_timeout(Some(WAIT)).unwrap();
    let mut said = String::new();
    inward.read_to_string(&mut said).unwrap();
    assert_eq!(said, "hello");
    // And nobody comes in by a replica.
    let to = SocketAddr::from((world.replicas[0].0.ipv4.unwrap(), 8080));
    let refused = world.outside.run_in(|| TcpStream::connect_timeout(&to, WAIT)).unwrap();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_replica_that_drains_keeps_its_connections_and_one_that_dies_ends_only_its_own() {
    requires!(netns, nft);
    let mut world = World::new().with_egress(SessionAffinity::None);
    world.apply();
    let mut connections: Vec<_> = (0..40).map(|_| connect(&world.client.1, WORLD[0])).collect();
    let second = world.replica(1);
    let by_second = |from: &IpAddr| second.contains(from);
    let split = connections.iter().filter(|(_, from)| by_second(from)).count();
    assert!((1..40).contains(&split), "{split} of 40 by the second replica");
    // It drains: everything goes on, and new connections go to the other.
    world.egress().replicas[1].draining = true;
    world.apply();
    for _ in 0..20 {
        assert!(!by_second(&seen_by(&world.client.1, WORLD[0])));
    }
    for (connection, _) in &mut connections {
        echo(connection, 100).unwrap();
    }
    // The agent is replaced: connections still have their numbers.
    let on = world.node().namespace();
    world.table = on.run_in(EgressTable::open).unwrap().unwrap();
    world.apply();
    for (connection, _) in &mut connections {
        echo(connection, 100).unwrap();
    }
    // It dies: its pod is gone with its network.
    drop(world.replicas.remove(1));
    world.inputs.silent.extend(second.iter().copied());
    world.apply();
    let (mut kept, mut ended) = (0, 0);
    for (connection, from) in &mut connections {
        match echo(connection, 100) {
            Ok(()) => {
                assert!(!by_second(from), "its replica is gone");
                kept += 1;
            }
            Err(error) => {
                assert!(by_second(from), "{error}: its replica is there");
                assert_ne!(error.kind(), ErrorKind::WouldBlock, "it was not told");
                ended += 1;
            }
        }
    }
    assert_eq!((kept, ended), (40 - split, split));
}

#[test]
fn a_thousand_clients_are_a_thousand_elements() {
    requires!(netns, nft);
    let mut world = World::new().with_egress(SessionAffinity::ClientIp);
    let namespace = world.node().namespace();
    let host = world.client.0.host_interface.clone();
    let addresses: Vec<IpAddr> = (0..1_000u16)
        .map(|it| IpAddr::from([10, 1, 1 + (it / 250) as u8, 1 + (it % 250) as u8]))
        .collect();
    // By one neighbour: the kernel has 1,024 for all namespaces of a machine.
    let via = world.client.0.ipv4.unwrap().to_string();
    ip(namespace, &["route", "add", "10.1.0.0/16", "via", &via, "dev", &host, "onlink"]);
    let own: Vec<_> =
        addresses.iter().map(|it| format!("address add {it}/32 dev eth0\n")).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), own.concat()).unwrap();
    ip(&world.client.1, &["-batch", file.path().to_str().unwrap()]);
    world.inputs.clients = addresses
        .iter()
        .map(|address| Client {
            pod: format!("client-{address}"),
            addresses: vec![*address],
            ..world.choose(&world.client.0)
        })
        .collect();
    let before = world.replicas[0].1.netlink().unwrap().links().unwrap().len();
    let began = Instant::now();
    let program = world.apply();
    println!("1,000 clients: {:?}, {} classes", began.elapsed(), program.rules.len() / 2);
    assert_eq!(program.clients(), 1_000);
    assert_eq!(program.rules.len(), 4, "a class for each replica, in both families");
    let to = SocketAddr::new(WORLD[0].parse().unwrap(), 53);
    let server = world.outside.run_in(|| UdpSocket::bind(to)).unwrap().unwrap();
    // Datagrams may be lost while the machine does other things: each asks again until it is answered.
    let soon = Some(Duration::from_secs(1));
    server.set_read_timeout(soon).unwrap();
    let replicas = world.all_replicas();
    let mut seen = BTreeSet::new();
    for address in &addresses {
        let from = SocketAddr::new(*address, 0);
        let socket = world.client.1.run_in(|| UdpSocket::bind(from)).unwrap().unwrap();
        socket.set_read_timeout(soon).unwrap();
        let exchange = || {
            socket.send_to(b"?", to)?;
            let (_, source) = server.recv_from(&mut [0; 8])?;
            server.send_to(b"!", source)?;
            socket.recv_from(&mut [0; 8]).map(|_| source.ip())
        };
        let answered = (0..WAIT.as_secs()).find_map(|_| exchange().ok());
        seen.insert(answered.unwrap_or_else(|| panic!("{address} is not answered")));
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.is_subset(&replicas));
    let used: Vec<_> = world.replicas.iter().map(|it| it.2.usage().unwrap().clients).collect();
    assert_eq!(used.iter().sum::<usize>(), 1_000, "{used:?}");
    assert_eq!(world.replicas[0].1.netlink().unwrap().links().unwrap().len(), before);
}

#[test]
fn without_a_replica_packets_are_dropped_or_leave_as_the_egress_says_and_nobody_borrows_it() {
    requires!(netns, nft);
    let mut world = World::new().with_egress(SessionAffinity::ClientIp);
    world.apply();
    // A pod that did not choose it cannot speak to the tunnel's port itself; nor can the world to a node's.
    let to = SocketAddr::new(world.replica(0)[0], PORT);
    let inside =
        world.replicas[0].1.netlink().unwrap().link(kernel::netlink::LinkRef::Name(DEVICE));
    assert!(inside.unwrap().is_some());
    let socket = world.other.1.run_in(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    let received = |world: &World| {
        let path = "/proc/thread-self/net/snmp";
        let text = world.replicas[0].1.run_in(|| fs::read_to_string(path)).unwrap().unwrap();
        let line = text.lines().filter(|line| line.starts_with("Ip: ")).nth(1).unwrap().to_owned();
        line.split(' ').nth(3).unwrap().parse::<u64>().unwrap()
    };
    let before = received(&world);
    for _ in 0..3 {
        socket.send_to(b"not a tunnel", to).unwrap();
    }
    // What is sent afterwards to another port arrives, and nothing before it did.
    let beside = SocketAddr::new(world.replica(0)[0], 9);
    socket.connect(beside).unwrap();
    socket.set_read_timeout(Some(WAIT)).unwrap();
    socket.send(b"?").unwrap();
    assert_eq!(socket.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(received(&world), before + 1);

    world.egress().replicas.clear();
    world.apply();
    assert!(is_cut_off(&world.client.1, WORLD[0]));
    world.egress().failure = EgressFailure::Direct;
    world.apply();
    assert_eq!(seen_by(&world.client.1, WORLD[0]), world.client.0.ipv4.unwrap());
    // One that is for others drops, whatever it says of failures.
    world.egress().namespaces = Some(vec!["bank".to_owned()]);
    world.apply();
    assert!(is_cut_off(&world.client.1, WORLD[0]));
    // The agent is gone, and with it the table's owner.
    world.table = world.node().namespace().run_in(EgressTable::open).unwrap().unwrap();
    assert!(remove(world.node()).unwrap());
    assert!(!remove(world.node()).unwrap());
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Asks replicas from a node as its agent does, until the tasks stop.
fn ask_replicas(
    node: &Node,
    replicas: BTreeSet<IpAddr>,
    tasks: &Tasks,
) -> Snapshot<BTreeSet<IpAddr>> {
    let (silent, stop, node) = (Snapshot::default(), tasks.stopping(), node.clone());
    let told = silent.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let asking = || runtime.block_on(health::follow(Snapshot::new(replicas), told, stop));
        node.namespace().run_in(asking).unwrap();
    });
    silent
}

#[test]
fn a_replica_that_falls_silent_under_load_is_left_and_connections_of_others_stay() {
    requires!(netns, nft);
    let mut world = World::new().with_egress(SessionAffinity::None);
    world.apply();
    let mut connections: Vec<_> = (0..40).map(|_| connect(&world.client.1, WORLD[0])).collect();
    let second = world.replica(1);
    let split = connections.iter().filter(|(_, from)| second.contains(from)).count();
    let tasks = Tasks::new("asking");
    let silent = ask_replicas(world.node(), world.all_replicas(), &tasks);
    // New connections all the while: when each began, and by which replica it went.
    let done = Arc::new(AtomicBool::new(false));
    let made = Arc::new(Mutex::new(Vec::<(Instant, Option<IpAddr>)>::new()));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let client = Namespace::open(&world.client.0.netns).unwrap();
            let (done, made) = (Arc::clone(&done), Arc::clone(&made));
            thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let by = dial(&client, WORLD[0], Duration::from_millis(200)).ok();
                    made.lock().push((began, by.map(|(_, from)| from)));
                    thread::sleep(Duration::from_millis(5));
                }
            })
        })
        .collect();

    // One that has not been heard yet is not called silent: until it is, it is cut off and heard again.
    let on_b = world._egress_node.node().namespace();
    let address = second.iter().find(|it| it.is_ipv4()).unwrap();
    let rules = format!(
        "table inet planted {{ chain forward {{ type filter hook forward priority -200; \
         ip saddr {address} drop; ip daddr {address} drop; }}; }}"
    );
    let nft = |args: &[&str]| {
        let run = || Command::new("nft").args(args).status();
        assert!(on_b.run_in(run).unwrap().unwrap().success());
    };
    let end = Instant::now() + WAIT;
    let cut = 'cut: loop {
        nft(&[&rules]);
        let cut = Instant::now();
        while cut.elapsed() < Duration::from_secs(3) {
            if silent.read(|it| it.contains(address)) {
                break 'cut cut;
            }
            thread::sleep(Duration::from_millis(1));
        }
        nft(&["delete", "table", "inet", "planted"]);
        assert!(Instant::now() < end, "it is never found silent");
    };
    let found = cut.elapsed();
    world.inputs.silent = (*silent.load()).clone();
    world.apply();
    let moved = cut.elapsed();
    let (mut kept, mut ended) = (0, 0);
    for (connection, from) in &mut connections {
        match echo(connection, 100) {
            Ok(()) => kept += 1,
            Err(error) => {
                assert!(second.contains(from), "{error}: its replica answers");
                ended += 1;
            }
        }
    }
    assert_eq!((kept, ended), (40 - split, split));
    let since = Instant::now();
    until("new connections go on", || {
        made.lock().iter().filter(|(began, by)| *began > since && by.is_some()).count() > 20
    });
    done.store(true, Ordering::Relaxed);
    load.into_iter().for_each(|it| it.join().unwrap());
    let made = made.lock();
    let failed: Vec<_> = made.iter().filter(|it| it.1.is_none() && it.0 > cut).collect();
    let last = failed.iter().map(|it| it.0.duration_since(cut)).max().unwrap_or_default();
    println!(
        "found silent after {found:?}, moved after {moved:?}; of 40 connections {kept} kept, {ended} \
         ended; {} new ones failed, the last of them begun after {last:?}",
        failed.len()
    );
    let after = cut + moved;
    assert!(
        made.iter().all(|(began, by)| *began < after || by.is_none_or(|it| !second.contains(&it)))
    );
    tasks.stop("over");
}
