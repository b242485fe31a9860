//! A node with pods: network namespaces with a veth each, wired as the pod network wires them, and
//! servers in them that answer.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use kernel::netlink::{
    Address, Change, LinkRef, Mac, Neighbour, Route, RouteKind, SetLink, Veth, VethPeer,
};
use kernel::netns::Namespace;
use policy::cluster::{Key, Labels, NamedPort, Pod};
use policy::program::Protocol;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

pub(crate) mod raw;

pub(crate) const NODE: &str = "node-1";
pub(crate) const NODE_V4: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
pub(crate) const NODE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, 1);
const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// How long an answer that has to come may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Host {
    pub(crate) namespace: Namespace,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
    pub(crate) key: Key,
    pub(crate) labels: Labels,
    /// Whether it is a pod of the cluster.
    pub(crate) is_pod: bool,
}

impl Host {
    pub(crate) fn addresses(&self) -> [IpAddr; 2] {
        [self.v4.into(), self.v6.into()]
    }

    pub(crate) fn address(&self, v6: bool) -> IpAddr {
        if v6 { self.v6.into() } else { self.v4.into() }
    }

    pub(crate) fn pod(&self, ports: &[(&str, Protocol, u16)]) -> Arc<Pod> {
        let ports = ports.iter().map(|(name, protocol, port)| NamedPort {
            name: (*name).into(),
            protocol: *protocol,
            port: *port,
        });
        Arc::new(Pod {
            key: self.key.clone(),
            node: NODE.into(),
            labels: self.labels.clone(),
            addresses: self.addresses().to_vec(),
            host_network: false,
            finished: false,
            ports: ports.collect(),
            images: Vec::new(),
            owner: format!("Pod/{}", self.key.name).into(),
            created: 0,
        })
    }
}

pub(crate) struct Ground {
    pub(crate) node: Namespace,
    pub(crate) hosts: Vec<Host>,
}

fn mac(side: u8, number: usize) -> Mac {
    Mac([2, side, 0, 0, (number >> 8) as u8, number as u8])
}

fn switch(path: &str) {
    std::fs::write(path, "1").unwrap_or_else(|error| panic!("{path}: {error}"));
}

impl Ground {
    /// A node without pods.
    pub(crate) fn new() -> Self {
        Self::at(NODE_V4, NODE_V6)
    }

    /// A node without pods, with these addresses.
    pub(crate) fn at(v4: Ipv4Addr, v6: Ipv6Addr) -> Self {
        let node = Namespace::create().unwrap();
        node.run_in(|| {
            let mut netlink = kernel::netlink::Netlink::open().unwrap();
            let up = SetLink { up: true, ..SetLink::default() };
            netlink.apply(&[Change::Set(LinkRef::Name("lo"), up)]).unwrap();
            let own = [IpNet::from(IpAddr::from(v4)), IpNet::from(IpAddr::from(v6))];
            let own = own.map(|address| Change::Address(Address { link: 1, address }));
            netlink.apply(&own).unwrap();
            switch("/proc/sys/net/ipv4/ip_forward");
            switch("/proc/sys/net/ipv6/conf/all/forwarding");
        })
        .unwrap();
        Self { node, hosts: Vec::new() }
    }

    /// Three namespaces of three pods each, and two hosts outside.
    pub(crate) fn of_nine() -> Self {
        let mut ground = Self::new();
        for (at, namespace) in ["a", "b", "c"].into_iter().enumerate() {
            for (pod, app) in ["web", "db", "job"].into_iter().enumerate() {
                let number = at * 3 + pod + 1;
                ground.add(Key::new(namespace, app), number as u8, &[("app", app)], true);
            }
        }
        for (name, number) in [("one", 1), ("two", 200)] {
            ground.add(Key::new("outside", name), number, &[], false);
        }
        ground
    }

    pub(crate) fn add(
        &mut self,
        key: Key,
        number: u8,
        labels: &[(&str, &str)],
        is_pod: bool,
    ) -> &Host {
        self.add_in(Namespace::create().unwrap(), key, number, labels, is_pod)
    }

    /// Wires a namespace in which something may run already.
    pub(crate) fn add_in(
        &mut self,
        namespace: Namespace,
        key: Key,
        number: u8,
        labels: &[(&str, &str)],
        is_pod: bool,
    ) -> &Host {
        let (v4, v6) = match is_pod {
            true => (
                Ipv4Addr::new(10, 0, 0, number),
                Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()),
            ),
            false => (
                Ipv4Addr::new(192, 0, 2, number),
                Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, number.into(), 1),
            ),
        };
        self.wire(&namespace, v4, v6);
        let labels =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.hosts.push(Host { namespace, v4, v6, key, labels, is_pod });
        self.hosts.last().unwrap()
    }

    /// A veth, routed: no bridge, no neighbour to discover.
    fn wire(&self, pod: &Namespace, v4: Ipv4Addr, v6: Ipv6Addr) {
        let number = self.hosts.len();
        let name = format!("pod{number}");
        let (ours, theirs) = (mac(1, number), mac(2, number));
        let mut outside = self.node.netlink().unwrap();
        let mut inside = pod.netlink().unwrap();
        let peer = VethPeer { name: "eth0", mac: theirs, namespace: pod.as_fd() };
        let host = outside
            .create_veth(Veth { name: &name, mac: ours, mtu: 1500, group: None, peer })
            .unwrap();
        let link = inside.link(LinkRef::Name("eth0")).unwrap().unwrap().index;
        let up = || SetLink { up: true, no_own_addresses: true, ..SetLink::default() };
        let lo = SetLink { up: true, ..SetLink::default() };
        let mut changes =
            vec![Change::Set(LinkRef::Name("lo"), lo), Change::Set(LinkRef::Index(link), up())];
        let mut routes = vec![Change::Set(LinkRef::Index(host.index), up())];
        let pairs: [(IpAddr, IpAddr, &str); 2] =
            [(v4.into(), GATEWAY_V4.into(), "0.0.0.0/0"), (v6.into(), GATEWAY_V6.into(), "::/0")];
        for (own, gateway, all) in pairs {
            let route = |destination, kind| {
                Change::Route(Route { destination, table: 254, protocol: 4, kind })
            };
            changes.push(Change::Address(Address { link, address: own.into() }));
            changes.push(Change::Neighbour(Neighbour { link, address: gateway, mac: ours }));
            changes.push(route(all.parse().unwrap(), RouteKind::On(link, gateway)));
            let neighbour = Neighbour { link: host.index, address: own, mac: theirs };
            routes.push(Change::Neighbour(neighbour));
            routes.push(route(own.into(), RouteKind::Link(host.index)));
        }
        inside.apply(&changes).unwrap();
        outside.apply(&routes).unwrap();
        // To look at an end makes it ready to send.
        inside.link(LinkRef::Index(link)).unwrap();
        outside.link(LinkRef::Index(host.index)).unwrap();
    }

    /// Joins two nodes by a wire; each reaches the addresses of the other and of its hosts.
    pub(crate) fn join(&self, own: Ipv4Addr, other: &Self, theirs: Ipv4Addr) {
        let mut here = self.node.netlink().unwrap();
        let mut there = other.node.netlink().unwrap();
        let (mine, yours) = (mac(3, 1), mac(3, 2));
        let peer = VethPeer { name: "wire", mac: yours, namespace: other.node.as_fd() };
        let near = here
            .create_veth(Veth { name: "wire", mac: mine, mtu: 1500, group: None, peer })
            .unwrap();
        let far = there.link(LinkRef::Name("wire")).unwrap().unwrap();
        let reach = |link: u32, mac: Mac, node: Ipv4Addr, hosts: &[Host]| {
            let up = SetLink { up: true, no_own_addresses: true, ..SetLink::default() };
            let mut changes = vec![Change::Set(LinkRef::Index(link), up)];
            for v4 in [node].into_iter().chain(hosts.iter().map(|host| host.v4)) {
                let (address, kind) = (IpAddr::from(v4), RouteKind::Link(link));
                changes.push(Change::Neighbour(Neighbour { link, address, mac }));
                let destination = address.into();
                let route = Route { destination, table: 254, protocol: 4, kind };
                changes.push(Change::Route(route));
            }
            changes
        };
        here.apply(&reach(near.index, yours, theirs, &other.hosts)).unwrap();
        there.apply(&reach(far.index, mine, own, &self.hosts)).unwrap();
        // To look at an end makes it ready to send.
        here.link(LinkRef::Index(near.index)).unwrap();
        there.link(LinkRef::Index(far.index)).unwrap();
    }

    pub(crate) fn in_node<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.node.run_in(work).unwrap()
    }

    pub(crate) fn pods(&self) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter(|host| host.is_pod)
    }

    pub(crate) fn host(&self, name: &str) -> &Host {
        let is = |host: &&Host| host.key.to_string() == name;
        self.hosts.iter().find(is).unwrap()
    }
}

/// What came to a server: who asked whom, by which protocol and port.
pub(crate) type Arrived = (IpAddr, IpAddr, Protocol, u16);

/// Answers in all hosts: accepts TCP connections, and echoes datagrams.
pub(crate) struct Servers {
    arrived: Arc<Mutex<HashSet<Arrived>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

enum Socket {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

impl Servers {
    pub(crate) fn start(ground: &Ground, tcp: &[u16], udp: &[u16]) -> Self {
        let mut sockets: Vec<(Socket, IpAddr, u16)> = Vec::new();
        for host in &ground.hosts {
            let made = host.namespace.run_in(|| {
                let mut made = Vec::new();
                for address in host.addresses() {
                    for port in tcp {
                        let socket = TcpListener::bind((address, *port)).unwrap();
                        socket.set_nonblocking(true).unwrap();
                        made.push((Socket::Tcp(socket), address, *port));
                    }
                    for port in udp {
                        let socket = UdpSocket::bind((address, *port)).unwrap();
                        socket.set_nonblocking(true).unwrap();
                        made.push((Socket::Udp(socket), address, *port));
                    }
                }
                made
            });
            sockets.extend(made.unwrap());
        }
        let arrived = Arc::new(Mutex::new(HashSet::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (heard, stopped) = (Arc::clone(&arrived), Arc::clone(&stop));
        let thread = thread::spawn(move || serve(&sockets, &heard, &stopped));
        Self { arrived, stop, thread: Some(thread) }
    }

    /// What has come since this was asked last.
    pub(crate) fn take(&self) -> HashSet<Arrived> {
        std::mem::take(&mut self.arrived.lock().unwrap())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(sockets: &[(Socket, IpAddr, u16)], arrived: &Mutex<HashSet<Arrived>>, stop: &AtomicBool) {
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        let mut ready: Vec<PollFd<'_>> = sockets
            .iter()
            .map(|(socket, ..)| match socket {
                Socket::Tcp(socket) => PollFd::new(socket, PollFlags::IN),
                Socket::Udp(socket) => PollFd::new(socket, PollFlags::IN),
            })
            .collect();
        let _ = poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 }));
        let ready: Vec<bool> = ready.iter().map(|it| !it.revents().is_empty()).collect();
        for ((socket, own, port), _) in sockets.iter().zip(ready).filter(|(_, ready)| *ready) {
            match socket {
                Socket::Tcp(listener) => {
                    while let Ok((_, from)) = listener.accept() {
                        let met = (from.ip(), *own, Protocol::TCP, *port);
                        arrived.lock().unwrap().insert(met);
                    }
                }
                Socket::Udp(socket) => {
                    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                        let met = (from.ip(), *own, Protocol::UDP, *port);
                        arrived.lock().unwrap().insert(met);
                        let _ = socket.send_to(&buffer[..length], from);
                    }
                }
            }
        }
    }
}

/// A connection that is tried: from one host to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) from: usize,
    pub(crate) source: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    /// What has to come of it. It decides how long to wait, not what is found.
    pub(crate) passes: bool,
}

/// Tries all connections at the same time, and says of each whether it was made.
pub(crate) fn try_all(ground: &Ground, probes: &[Probe], quiet: Duration) -> Vec<bool> {
    let mut tried: Vec<Option<OwnedFd>> = Vec::with_capacity(probes.len());
    let mut sockets: Vec<(usize, OwnedFd)> = Vec::new();
    for (at, host) in ground.hosts.iter().enumerate() {
        let own: Vec<_> = probes.iter().enumerate().filter(|(_, it)| it.from == at).collect();
        if own.is_empty() {
            continue;
        }
        let begun = host.namespace.run_in(|| {
            own.iter()
                .filter_map(|(place, probe)| Some((*place, begin(probe)?)))
                .collect::<Vec<_>>()
        });
        sockets.extend(begun.unwrap());
    }
    tried.resize_with(probes.len(), || None);
    for (at, socket) in sockets {
        tried[at] = Some(socket);
    }
    let mut passed = vec![false; probes.len()];
    let began = Instant::now();
    let mut calm = None;
    loop {
        let waiting: Vec<usize> = (0..probes.len()).filter(|at| tried[*at].is_some()).collect();
        if waiting.is_empty() {
            return passed;
        }
        // Those that have to pass are waited for; those that must not get some time after that.
        let due = waiting.iter().any(|at| probes[*at].passes);
        if !due && calm.get_or_insert_with(Instant::now).elapsed() >= quiet
            || began.elapsed() > PATIENCE
        {
            return passed;
        }
        let mut ready: Vec<PollFd<'_>> = waiting
            .iter()
            .filter_map(|at| {
                let wanted = match probes[*at].protocol {
                    Protocol::TCP => PollFlags::OUT,
                    _ => PollFlags::IN,
                };
                tried[*at].as_ref().map(|socket| PollFd::new(socket, wanted))
            })
            .collect();
        let _ = poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 }));
        let ready: Vec<bool> = ready.iter().map(|it| !it.revents().is_empty()).collect();
        for (at, _) in waiting.iter().zip(ready).filter(|(_, ready)| *ready) {
            if let Some(socket) = tried[*at].take() {
                passed[*at] = finish(&probes[*at], socket);
            }
        }
    }
}

fn begin(probe: &Probe) -> Option<OwnedFd> {
    let family = if probe.to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let kind = match probe.protocol {
        Protocol::TCP => SocketType::STREAM,
        _ => SocketType::DGRAM,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
    let to = SocketAddr::new(probe.to, probe.port);
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(_) => return None,
    }
    if probe.protocol != Protocol::TCP {
        UdpSocket::from(socket.try_clone().unwrap()).send(b"probe").ok()?;
    }
    Some(socket)
}

fn finish(probe: &Probe, socket: OwnedFd) -> bool {
    match probe.protocol {
        Protocol::TCP => {
            let stream = TcpStream::from(socket);
            stream.take_error().unwrap().is_none() && stream.peer_addr().is_ok()
        }
        _ => match UdpSocket::from(socket).recv(&mut [0; 16]) {
            Ok(_) => true,
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        },
    }
}

/// Runs a connected UDP socket in a host.
pub(crate) fn udp(host: &Host, to: SocketAddr) -> io::Result<UdpSocket> {
    host.namespace.run_in(|| {
        let any: SocketAddr = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        Ok(socket)
    })?
}
