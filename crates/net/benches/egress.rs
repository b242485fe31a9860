//! What an egress costs: bytes by an egress pod against the same way through a bare vxlan, a pod that may use
//! egresses against a plain one, how soon a replica that falls silent is left, and what a thousand clients
//! make of a node and of an egress pod.
//!
//! `cargo bench -p net --bench egress -- [PAIRS]`, as root.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bench::{Table, in_turn};
use cni::wire::{AddRequest, Operation, Reply, Request};
use kernel::netns::Namespace;
use net::datapath::{Datapath, PodPolicies};
use net::egress::{
    self, ClassNumbers, Client, EgressDevice, EgressHold, EgressInputs, EgressTable, EgressView,
    Gateway, GatewaySettings, PORT, ReplicaView,
};
use net::namespace_pools::NamespacePools;
use net::node::Node;
use net::overlay::{self, DeviceSettings};
use net::service::{CniService, Health, RequestLimits};
use net::wiring::{Wiring, host_interface};
use net::{Addresses, Attachment, AttachmentKey, Pod};
use objects::kinds::{EgressFailure, Networks, SessionAffinity};
use stallproof::{Deadline, Ledger, Snapshot, Tasks};

/// The MTU of uplinks and of egress pods. Clients have what the tunnel leaves of it, with a tunnel of either
/// kind: segments are of one size, and nothing is cut in pieces. That is checked with every stream.
const UPLINK: u32 = 1500;
const BYTES: usize = 256 << 20;
const CLIENTS: usize = 1_000;
/// Pods that are set up in one turn.
const PODS: u16 = 24;
const WAIT: Duration = Duration::from_secs(20);
const WORLD: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const ECHO: u16 = 7;

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let pairs = args.next().map_or(5, |pairs| pairs.parse().unwrap());
    if let Err(why) = testkit::need::netns().and_then(|()| testkit::need::nft()) {
        eprintln!("cannot measure: {why}");
        return ExitCode::from(2);
    }
    let mut table = Table::new("egress");
    throughput(&mut table, pairs);
    set_up(&mut table, pairs);
    failover(&mut table, pairs);
    thousand(&mut table, pairs);
    table.finish()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn ip(within: &Namespace, args: &str) {
    let args: Vec<&str> = args.split_whitespace().collect();
    let output = within.run_in(|| Command::new("ip").args(&args).output()).unwrap().unwrap();
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn nft(within: &Namespace, rules: &str) {
    let output = within.run_in(|| Command::new("nft").arg(rules).output()).unwrap().unwrap();
    assert!(output.status.success(), "{rules}: {}", String::from_utf8_lossy(&output.stderr));
}

fn path(namespace: &Namespace) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), namespace.as_fd().as_raw_fd())
}

/// A pod's namespace and record: the `number`th of `10.NET.0.0/16`.
fn pod(net: u8, number: u16) -> (Attachment, Namespace) {
    let namespace = Namespace::create().unwrap();
    let [high, low] = number.to_be_bytes();
    let key = AttachmentKey { container: format!("pod-{net}-{number}"), ifname: "eth0".to_owned() };
    let attachment = Attachment {
        mac: None,
        network: "pods".to_owned(),
        pod: None,
        pool: "default".to_owned(),
        ipv4: Some(Ipv4Addr::new(10, net, high, low)),
        ipv6: None,
        namespace: namespace.id(),
        netns: path(&namespace),
        host_interface: host_interface(&key),
        since: jiff::Timestamp::UNIX_EPOCH,
        key,
    };
    (attachment, namespace)
}

/// A client's node, a node with two pods that may be egress pods, and the world behind it.
struct World {
    clients: Wiring,
    behind: Wiring,
    client: (Attachment, Namespace),
    replicas: Vec<(Attachment, Namespace)>,
    gateways: Vec<Gateway>,
    outside: Namespace,
    table: EgressTable,
    numbers: ClassNumbers,
    inputs: EgressInputs,
}

impl World {
    fn new() -> Self {
        let [a, b, outside] = [(); 3].map(|()| Namespace::create().unwrap());
        ip(
            &a,
            &format!("link add uplink mtu {UPLINK} type veth peer name uplink netns {}", path(&b)),
        );
        ip(&b, &format!("link add world type veth peer name eth0 netns {}", path(&outside)));
        for (namespace, link, address) in [
            (&a, "uplink", "10.0.0.1/24"),
            (&b, "uplink", "10.0.0.2/24"),
            (&b, "world", "203.0.113.1/24"),
            (&outside, "eth0", "203.0.113.9/24"),
        ] {
            ip(namespace, "link set lo up");
            ip(namespace, &format!("address add {address} dev {link}"));
            ip(namespace, &format!("link set {link} up"));
        }
        ip(&outside, "route add default via 203.0.113.1");
        ip(&a, "route add default via 10.0.0.2");
        ip(&b, "route add 10.1.0.0/16 via 10.0.0.1");
        let [clients, behind] = [(a, overlay::mtu(UPLINK, true)), (b, UPLINK)].map(|(it, mtu)| {
            let node = Node::new(it);
            node.forward().unwrap();
            Wiring::new(node, mtu)
        });
        let client = pod(1, 1);
        clients.set_up(&client.0, &client.1, &()).unwrap();
        let replicas = [pod(2, 1), pod(2, 2)];
        for (attachment, inside) in &replicas {
            behind.set_up(attachment, inside, &()).unwrap();
        }
        let table = clients.node().namespace().run_in(EgressTable::open).unwrap().unwrap();
        let own = ["10.1.0.0/16", "10.2.0.0/16"].map(|net| net.parse().unwrap()).into();
        let (numbers, gateways) = (ClassNumbers::default(), Vec::new());
        let inputs = EgressInputs { own, ..EgressInputs::default() };
        let replicas = replicas.into();
        Self { clients, behind, client, replicas, gateways, outside, table, numbers, inputs }
    }

    /// An egress to the world with both pods, which the client chose.
    fn with_egress(mut self) -> Self {
        let settings = GatewaySettings { port: PORT };
        let made = self.replicas.iter();
        let made = made.map(|(_, it)| it.run_in(|| Gateway::set_up(settings)).unwrap().unwrap());
        self.gateways = made.collect();
        let replicas = self.replicas.iter().zip(0..).map(|((attachment, _), number)| ReplicaView {
            pod: format!("nat-{number}"),
            addresses: attachment.addresses().collect(),
            draining: false,
        });
        let view = EgressView {
            destinations: vec!["0.0.0.0/0".parse().unwrap()],
            affinity: SessionAffinity::ClientIp,
            failure: EgressFailure::Drop,
            namespaces: None,
            replicas: replicas.collect(),
        };
        self.inputs.egresses.insert("internet/nat".to_owned(), view);
        self.inputs.clients = vec![client("web".to_owned(), self.client.0.ipv4.unwrap().into())];
        self.apply();
        self
    }

    /// The same way by a plain vxlan device on each side; with or without the addresses translated.
    fn with_bare_vxlan(self, masquerade: bool) -> Self {
        let (on_a, on_b) = (self.clients.node().namespace(), self.behind.node().namespace());
        let (attachment, inside) = &self.replicas[0];
        let (replica, mtu) = (attachment.ipv4.unwrap(), overlay::mtu(UPLINK, true));
        for (namespace, local, remote, own) in [
            (on_a, Ipv4Addr::new(10, 0, 0, 1), replica, "172.30.0.1/30"),
            (inside, replica, Ipv4Addr::new(10, 0, 0, 1), "172.30.0.2/30"),
        ] {
            // Without checksums outside, as ours: those inside do.
            let device = format!("id 7 local {local} remote {remote} dstport 4790 noudpcsum");
            ip(namespace, &format!("link add bare mtu {mtu} type vxlan {device}"));
            ip(namespace, &format!("address add {own} dev bare"));
            ip(namespace, "link set bare up");
        }
        ip(on_a, "route add 203.0.113.0/24 via 172.30.0.2");
        let forward = || fs::write("/proc/sys/net/ipv4/ip_forward", "1");
        inside.run_in(forward).unwrap().unwrap();
        if masquerade {
            let rules = "table ip bare { chain post { type nat hook postrouting priority 100; \
                         oifname eth0 masquerade; }; }";
            nft(inside, rules);
            ip(inside, "route add 10.1.0.0/16 via 172.30.0.1");
        } else {
            // Answers come back by the same way.
            ip(inside, "route add 10.1.0.0/16 via 172.30.0.1");
            let host = &attachment.host_interface;
            ip(on_b, &format!("route replace 10.1.0.0/16 via {replica} dev {host} onlink"));
        }
        self
    }

    fn apply(&mut self) {
        let node = self.clients.node();
        let mtu = overlay::mtu(UPLINK, true);
        let mac = egress::mac_of("a", &[[10, 0, 0, 1].into()]);
        let device = EgressDevice { mac, settings: DeviceSettings { port: PORT, mtu } };
        let program =
            egress::plan_on(&self.inputs, &mut self.numbers, || device.ensure(node)).unwrap();
        egress::apply(node, &program, &mut self.table, PORT).unwrap();
    }

    /// How many packets were cut in pieces on the way, by anybody.
    fn fragments(&self) -> u64 {
        let nodes = [&self.clients, &self.behind].map(|it| it.node().namespace());
        let pods = [&self.client.1, &self.replicas[0].1, &self.replicas[1].1];
        let count = |within: &Namespace| {
            let text = within.run_in(|| fs::read_to_string("/proc/net/snmp")).unwrap().unwrap();
            let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
            let [names, values] = [(); 2].map(|()| lines.next().unwrap().split_whitespace());
            let made = names.zip(values).find(|(name, _)| *name == "FragCreates");
            made.map_or(0, |(_, value)| value.parse::<u64>().unwrap())
        };
        nodes.into_iter().chain(pods).map(count).sum()
    }

    /// The size of the segments that the client sends.
    fn segment(&self) -> u32 {
        let args = ["-tinH", "dst", "203.0.113.9"];
        let output = self.client.1.run_in(|| Command::new("ss").args(args).output());
        let text = String::from_utf8(output.unwrap().unwrap().stdout).unwrap();
        let found = text.split_whitespace().find_map(|word| word.strip_prefix("mss:"));
        found.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    }

    /// Sends to the world, and says how fast, by which address the world saw it, and in segments of what size.
    fn bytes_per_second(&self) -> (f64, IpAddr, u32) {
        let before = self.fragments();
        let to = SocketAddr::from((WORLD, 0));
        let listener = self.outside.run_in(|| TcpListener::bind(to)).unwrap().unwrap();
        let to = listener.local_addr().unwrap();
        let sink = thread::spawn(move || {
            let (mut stream, from) = listener.accept().unwrap();
            let mut buffer = vec![0; 256 << 10];
            while stream.read(&mut buffer).unwrap() > 0 {}
            from.ip()
        });
        let dial = || TcpStream::connect_timeout(&to, WAIT);
        let mut stream = self.client.1.run_in(dial).unwrap().unwrap();
        let buffer = vec![7; 256 << 10];
        // The first bytes find out what fits.
        stream.write_all(&buffer).unwrap();
        let segment = self.segment();
        let began = Instant::now();
        for _ in 0..BYTES / buffer.len() {
            stream.write_all(&buffer).unwrap();
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let from = sink.join().unwrap();
        let took = began.elapsed().as_secs_f64();
        assert_eq!(self.fragments(), before, "packets are cut in pieces");
        (BYTES as f64 / took, from, segment)
    }
}

fn client(pod: String, address: IpAddr) -> Client {
    let (namespace, egresses) = ("shop".to_owned(), vec!["internet/nat".to_owned()]);
    Client { namespace, pod, addresses: vec![address], egresses }
}

fn throughput(table: &mut Table, rounds: usize) {
    let worlds = [
        World::new().with_egress(),
        World::new().with_bare_vxlan(false),
        World::new().with_bare_vxlan(true),
    ];
    let own: IpAddr = worlds[0].client.0.ipv4.unwrap().into();
    let mut rates = [const { Vec::new() }; 3];
    let mut segments = BTreeSet::new();
    for round in 0..rounds {
        for turn in 0..worlds.len() {
            // Each is first in its turn.
            let which = (round + turn) % worlds.len();
            let (rate, from, segment) = worlds[which].bytes_per_second();
            segments.insert(segment);
            // What is measured is what is said: translated, or not.
            assert_eq!(from == own, which == 1, "{which}: the world saw {from}");
            rates[which].push(rate);
        }
    }
    assert_eq!(segments.len(), 1, "segments are not of one size: {segments:?}");
    let [ours, bare, masquerading] = rates.map(median);
    let rivals = [("bare vxlan", bare), ("bare vxlan that masquerades", masquerading)];
    table.row("TCP by an egress pod, one stream", "B/s", ours, &rivals);
    table.must("0.9 of a bare vxlan", ours >= 0.9 * bare);
}

/// ADDs as an agent serves them, to the journal and the kernel: of pods that no egress may concern, and of
/// pods that are held until their choice is known.
fn set_up(table: &mut Table, pairs: usize) {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let world = World::new();
    let node = world.clients.node();
    let hold = EgressHold::new(node.clone(), Snapshot::default());
    node.namespace().run_in(|| hold.ensure(true)).unwrap().unwrap();
    let holding = world.clients.clone().with_policies([Arc::new(hold) as Arc<dyn PodPolicies>]);
    let [plain, held] = runtime.block_on(async {
        let tasks = Tasks::new("bench");
        let addresses = Addresses::open(dir.path(), &Ledger::default(), &tasks).unwrap();
        let ipv4 = Some("10.3.0.0/20".parse().unwrap());
        let soon = || Deadline::after(WAIT);
        let networks = Networks { ipv4, ipv6: None };
        addresses.adopt("default-0", "default", networks, soon()).await.unwrap();
        [world.clients.clone(), holding].map(|wiring| {
            let (ledger, limits) = (Ledger::default(), RequestLimits::default());
            let pools = NamespacePools::none();
            let service = CniService::new(wiring, addresses.clone(), pools, ledger, limits);
            service.health().publish(Health::Well);
            tasks.spawn("links", service.clone().remove_links(tasks.stopping()));
            (service, addresses.clone())
        })
    });
    let mut number = 0;
    let measure = |is_held: bool| {
        let (service, addresses) = if is_held { &held } else { &plain };
        let pods: Vec<_> = (0..PODS)
            .map(|_| {
                number += 1;
                let (attachment, inside) = pod(3, number);
                let name = attachment.key.container.clone();
                let named = Pod { namespace: "shop".to_owned(), name, uid: None };
                (attachment, inside, named)
            })
            .collect();
        runtime.block_on(async {
            let ask = |operation, inside: &Namespace| {
                let descriptor = inside.as_fd().try_clone_to_owned().unwrap();
                let request = Request { wait_ms: 20_000, operation };
                Box::pin(service.serve(request, Some(descriptor)))
            };
            let began = Instant::now();
            for (attachment, inside, named) in &pods {
                let add = AddRequest {
                    key: attachment.key.clone(),
                    network: "pods".to_owned(),
                    netns: attachment.netns.clone(),
                    pod: Some(named.clone()),
                    pool: None,
                    fixed: Default::default(),
                };
                let reply = ask(Operation::Add(add), inside).await;
                assert!(matches!(reply, Reply::Added(_)), "{reply:?}");
            }
            let took = began.elapsed().as_nanos() as f64 / f64::from(PODS);
            for (attachment, inside, _) in &pods {
                let (key, network) = (attachment.key.clone(), "pods".to_owned());
                assert_eq!(ask(Operation::Del { key, network }, inside).await, Reply::Done);
            }
            // The next in turn does not pay for these.
            let mut changes = addresses.changes();
            while addresses.view().leaving().next().is_some() {
                Deadline::after(WAIT).bound(changes.changed()).await.unwrap();
            }
            took
        })
    };
    let [plain, held] = in_turn(pairs, measure, |time| *time);
    table.row(
        "ADD of a pod that is held until its egress is known",
        "ns",
        held,
        &[("plain", plain)],
    );
    table.must("within 1.2 times a plain ADD", held <= 1.2 * plain);
}

/// A replica's packets are dropped while it counts as ready, with a client that connects all the time.
fn failover(table: &mut Table, rounds: usize) {
    let mut times = Vec::new();
    let mut lost = Vec::new();
    for _ in 0..rounds {
        let mut world = World::new().with_egress();
        let listener = SocketAddr::from((WORLD, ECHO));
        let listener = world.outside.run_in(|| TcpListener::bind(listener)).unwrap().unwrap();
        thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(mut connection) = connection else { return };
                let from = connection.peer_addr().unwrap().ip().to_string();
                let _ = connection.write_all(format!("{from:40}").as_bytes());
            }
        });
        let first = seen(&world.client.1, WAIT).unwrap();
        let tasks = Tasks::new("asking");
        let silent = ask(&world, &tasks);
        // One that has not been heard yet is not called silent.
        let cut = loop {
            let rules = format!(
                "table ip planted {{ chain forward {{ type filter hook forward priority -200; \
                 ip saddr {first} drop; ip daddr {first} drop; }}; }}"
            );
            nft(world.behind.node().namespace(), &rules);
            let cut = Instant::now();
            while cut.elapsed() < Duration::from_secs(3) && !silent.read(|it| it.contains(&first)) {
                thread::sleep(Duration::from_millis(1));
            }
            if silent.read(|it| it.contains(&first)) {
                break cut;
            }
            nft(world.behind.node().namespace(), "delete table ip planted");
        };
        world.inputs.silent = (*silent.load()).clone();
        world.apply();
        times.push(cut.elapsed().as_nanos() as f64);
        let next = seen(&world.client.1, WAIT).unwrap();
        assert_ne!(next, first, "the replica that is silent has it");
        lost.push(cut.elapsed().as_nanos() as f64);
        tasks.stop("over");
    }
    let (left, back) = (median(times), median(lost));
    table.row("a replica falls silent: it is left after", "ns", left, &[]);
    table.must("a second at most", left <= 1e9);
    table.row("the same, until a new connection is made", "ns", back, &[]);
    table.must("a second at most", back <= 1e9);
}

/// The address by which the world sees a new connection.
fn seen(from: &Namespace, wait: Duration) -> std::io::Result<IpAddr> {
    let to = SocketAddr::from((WORLD, ECHO));
    let mut connection = from.run_in(|| TcpStream::connect_timeout(&to, wait))??;
    connection.set_read_timeout(Some(wait))?;
    let mut line = String::new();
    connection.read_to_string(&mut line)?;
    Ok(line.trim().parse().unwrap())
}

/// Asks the replicas as an agent does.
fn ask(world: &World, tasks: &Tasks) -> Snapshot<BTreeSet<IpAddr>> {
    let replicas = world.replicas.iter().flat_map(|(attachment, _)| attachment.addresses());
    let replicas: BTreeSet<IpAddr> = replicas.collect();
    let (silent, stop, node) =
        (Snapshot::default(), tasks.stopping(), world.clients.node().clone());
    let told = silent.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let asking = egress::follow_silent(Snapshot::new(replicas), told, stop);
        node.namespace().run_in(|| runtime.block_on(asking)).unwrap();
    });
    silent
}

/// Every one of them sends a packet and gets an answer.
fn thousand(table: &mut Table, rounds: usize) {
    let mut world = World::new().with_egress();
    let addresses: Vec<IpAddr> = (0..CLIENTS)
        .map(|it| IpAddr::from([10, 1, 1 + (it / 250) as u8, 1 + (it % 250) as u8]))
        .collect();
    let host = &world.client.0.host_interface;
    ip(world.clients.node().namespace(), &format!("route add 10.1.0.0/16 dev {host}"));
    let own = addresses.iter().map(|it| format!("address add {it}/32 dev eth0\n"));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), own.collect::<String>()).unwrap();
    ip(&world.client.1, &format!("-batch {}", file.path().display()));
    let links = |world: &World| -> Vec<usize> {
        let count = |inside: &Namespace| inside.netlink().unwrap().links().unwrap().len();
        let (clients, replicas) = (world.clients.node().namespace(), &world.replicas);
        replicas.iter().map(|it| count(&it.1)).chain([count(clients)]).collect()
    };
    let before = links(&world);
    let clients: Vec<_> = addresses.iter().map(|it| client(format!("web-{it}"), *it)).collect();
    let (mut all, mut one) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        world.inputs.clients = clients[..1].to_vec();
        world.apply();
        let began = Instant::now();
        world.inputs.clients = clients[..CLIENTS - 1].to_vec();
        world.apply();
        all.push(began.elapsed().as_nanos() as f64);
        let began = Instant::now();
        world.inputs.clients.push(clients[CLIENTS - 1].clone());
        world.apply();
        one.push(began.elapsed().as_nanos() as f64);
    }
    let to = SocketAddr::from((WORLD, 53));
    let server = world.outside.run_in(|| UdpSocket::bind(to)).unwrap().unwrap();
    server.set_read_timeout(Some(WAIT)).unwrap();
    for address in &addresses {
        let from = SocketAddr::new(*address, 0);
        let socket = world.client.1.run_in(|| UdpSocket::bind(from)).unwrap().unwrap();
        socket.set_read_timeout(Some(WAIT)).unwrap();
        socket.send_to(b"?", to).unwrap();
        let (_, source) = server.recv_from(&mut [0; 8]).unwrap();
        server.send_to(b"!", source).unwrap();
        socket.recv_from(&mut [0; 8]).unwrap();
    }
    let used = world.gateways.iter().map(|it| it.usage().unwrap().clients).sum::<usize>();
    let (all, one) = (median(all), median(one));
    table.row("1,000 clients of one node: planned and made", "ns", all, &[]);
    table.must("a second at most", all <= 1e9);
    table.row("one more among them", "ns", one, &[("all of them", all)]);
    let what = "links of two egress pods and the node, with 1,000 clients";
    let after = links(&world);
    let (now, then) = (after.iter().sum::<usize>() as f64, before.iter().sum::<usize>() as f64);
    table.row(what, "links", now, &[("with one client", then)]);
    table
        .must("as with one client, and every one was answered", after == before && used == CLIENTS);
}
