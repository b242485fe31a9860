use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;

use netlink_packet_core::NLM_F_ACK;
use testkit::{Host, Sandbox, requires};

use super::*;
use crate::netns::Namespace;

const UDP: u8 = 17;
const TCP: u8 = 6;
const PATIENCE: Duration = Duration::from_secs(20);

/// Two hosts with a cable; connections are looked at from the first.
struct Ground {
    _sandbox: Sandbox,
    a: Namespace,
    b: Namespace,
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn ground() -> Ground {
    let sandbox = Sandbox::new();
    let [a, b] = ["a", "b"].map(|name| sandbox.host(name));
    sandbox.link((&a, "10.0.0.1/24"), (&b, "10.0.0.2/24"));
    let more = |host: &Host, address: &str, link: &str| {
        let args = ["address", "add", address, "dev", link, "nodad"];
        run(host.command("ip").args(args));
    };
    more(&a, "fd00::1/64", "b");
    more(&b, "fd00::2/64", "a");
    let open = |host: Host| Namespace::open(host.netns()).unwrap();
    Ground { _sandbox: sandbox, a: open(a), b: open(b) }
}

impl Ground {
    fn in_a<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.a.run_in(work).unwrap()
    }

    fn watched() -> (Self, Table, EndEvents) {
        let ground = ground();
        let (table, ends) = ground.in_a(|| {
            enable_accounting().unwrap();
            enable_tracking().unwrap();
            (Table::open().unwrap(), EndEvents::open().unwrap())
        });
        (ground, table, ends)
    }

    /// Three datagrams of 100 bytes there, one of 50 back. Gives the address they came from.
    fn udp(&self, to: &str) -> (SocketAddr, SocketAddr) {
        let to: SocketAddr = to.parse().unwrap();
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let server = self.b.run_in(|| UdpSocket::bind(to)).unwrap().unwrap();
        let client = self.in_a(|| UdpSocket::bind(any)).unwrap();
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        client.connect(server.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 200];
        for _ in 0..3 {
            client.send(&[1; 100]).unwrap();
        }
        let mut from = None;
        for _ in 0..3 {
            from = Some(server.recv_from(&mut buffer).unwrap().1);
        }
        server.send_to(&[2; 50], from.unwrap()).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), 50);
        (client.local_addr().unwrap(), server.local_addr().unwrap())
    }
}

fn listed(table: &mut Table) -> Vec<Entry> {
    let mut found = Vec::new();
    assert!(table.list(|entry| found.push(entry)).unwrap());
    found
}

/// Ends all connections of the namespace that `table` is of.
fn flush(table: &Table) {
    let mut request = Vec::new();
    attributes::message(&mut request, DELETE, NLM_F_REQUEST | NLM_F_ACK, 1, [0; 4], |_| {});
    socket::send(&table.socket, &request).unwrap();
    let mut answer = socket::buffer();
    socket::receive(&table.socket, &mut answer).unwrap();
    socket::acknowledged(messages(&answer).next().unwrap().payload()).unwrap();
}

fn ended(ends: &mut EndEvents, count: usize) -> Vec<Entry> {
    let mut found = Vec::new();
    while found.len() < count {
        let heard = ends.read(PATIENCE, |entry| found.push(entry)).unwrap();
        assert!(heard.count > 0 && !heard.lost, "{heard:?}: {found:?}");
    }
    found
}

fn of(entries: &[Entry], client: SocketAddr) -> Entry {
    let mut ours = entries.iter().filter(|entry| {
        entry.original.source == client.ip() && entry.original.source_port == client.port()
    });
    let found = ours.next().unwrap_or_else(|| panic!("{client} is not in {entries:?}"));
    assert_eq!(ours.next(), None);
    found.clone()
}

#[test]
fn what_datagrams_carried_is_listed_exactly_and_told_at_the_end() {
    requires!(netns);
    let (ground, mut table, mut ends) = Ground::watched();
    for (to, header) in [("10.0.0.2:0", 20 + 8), ("[fd00::2]:0", 40 + 8)] {
        let (client, server) = ground.udp(to);
        let entry = of(&listed(&mut table), client);
        let there = Tuple {
            source: client.ip(),
            destination: server.ip(),
            protocol: UDP,
            source_port: client.port(),
            destination_port: server.port(),
        };
        let back = Tuple {
            source: server.ip(),
            destination: client.ip(),
            source_port: server.port(),
            destination_port: client.port(),
            ..there
        };
        assert_eq!((entry.original, entry.reply), (there, back));
        assert_eq!(entry.carried, Some(Carried { bytes: 350 + 4 * header, packets: 4 }));
        assert!(entry.begun.is_some() && entry.ended.is_none(), "{entry:?}");

        flush(&table);
        let end = of(&ended(&mut ends, 1), client);
        assert!(end.ended >= end.begun, "{end:?}");
        assert_eq!((end.id, end.begun, end.carried), (entry.id, entry.begun, entry.carried));
        assert_eq!((end.original, end.reply), (there, back));
        assert_eq!(listed(&mut table), []);
    }
}

#[test]
fn a_stream_is_seen_while_it_lasts() {
    requires!(netns);
    let (ground, mut table, mut ends) = Ground::watched();
    let listener = ground.b.run_in(|| TcpListener::bind("[fd00::2]:0")).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let client = ground.in_a(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap();
    let (mut server, from) = listener.accept().unwrap();
    let first = of(&listed(&mut table), from);
    io::Write::write_all(&mut &client, &[7; 10_000]).unwrap();
    io::Read::read_exact(&mut server, &mut [0; 10_000]).unwrap();
    let then = of(&listed(&mut table), from);
    assert_eq!((first.id, first.original.protocol), (then.id, TCP));
    let (before, after) = (first.carried.unwrap(), then.carried.unwrap());
    assert!(after.bytes - before.bytes > 10_000 && after.packets > before.packets, "{after:?}");
    flush(&table);
    let end = of(&ended(&mut ends, 1), from);
    assert!(end.carried.unwrap().bytes >= after.bytes, "{end:?}");
}

#[test]
fn behind_a_translated_address_is_who_really_serves() {
    requires!(netns, nft);
    let (ground, mut table, _ends) = Ground::watched();
    let rules = "add table ip service; \
        add chain ip service out { type nat hook output priority -100; }; \
        add rule ip service out ip daddr 10.96.0.1 udp dport 53 dnat to 10.0.0.2:5353";
    ground.in_a(|| run(Command::new("nft").arg(rules)));
    let server = ground.b.run_in(|| UdpSocket::bind("10.0.0.2:5353")).unwrap().unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = ground.in_a(|| {
        // A way there, for a route to be found before the address is translated.
        run(Command::new("ip").args(["route", "add", "10.96.0.0/16", "dev", "b"]));
        let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
        socket.send_to(b"who?", "10.96.0.1:53").unwrap();
        socket.local_addr().unwrap()
    });
    server.recv(&mut [0; 8]).unwrap();
    let entry = of(&listed(&mut table), client);
    let end = |address: IpAddr, port: u16| (address.to_string(), port);
    let Entry { original, reply, .. } = entry;
    assert_eq!(
        end(original.destination, original.destination_port),
        ("10.96.0.1".to_owned(), 53),
        "what was asked for"
    );
    assert_eq!(end(reply.source, reply.source_port), ("10.0.0.2".to_owned(), 5353));
}

#[test]
fn nothing_is_tracked_unless_somebody_needs_it() {
    requires!(netns);
    let ground = ground();
    let mut table = ground.in_a(|| {
        enable_accounting().unwrap();
        enable_accounting().unwrap();
        Table::open().unwrap()
    });
    ground.udp("10.0.0.2:0");
    assert_eq!(listed(&mut table), []);
    ground.in_a(|| {
        probe_nftables().unwrap();
        disable_tracking().unwrap();
        enable_tracking().unwrap();
        enable_tracking().unwrap();
    });
    let (client, _) = ground.udp("10.0.0.2:0");
    of(&listed(&mut table), client);
    let (client, _) = ground.udp("[fd00::2]:0");
    of(&listed(&mut table), client);
    ground.in_a(|| disable_tracking().unwrap());
    flush(&table);
    ground.udp("10.0.0.2:0");
    assert_eq!(listed(&mut table), []);
}

#[test]
fn a_long_listing_is_whole_and_lost_ends_are_told() {
    requires!(netns);
    let (ground, mut table, mut ends) = Ground::watched();
    socket::enlarge(&ends.socket, 4096).unwrap();
    let ports = 10_000..12_000u16;
    ground.in_a(|| {
        let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
        for port in ports.clone() {
            socket.send_to(b"x", ("10.0.0.2", port)).unwrap();
        }
    });
    let mut found: Vec<_> = listed(&mut table)
        .iter()
        .filter(|entry| entry.original.protocol == UDP)
        .map(|entry| entry.original.destination_port)
        .collect();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, ports.collect::<Vec<_>>());
    flush(&table);
    let (mut count, mut lost) = (0, false);
    loop {
        let heard = ends.read(Duration::from_millis(100), |_| {}).unwrap();
        if heard == EndsRead::default() {
            break;
        }
        count += heard.count;
        lost |= heard.lost;
    }
    assert!(lost && count < 2_000, "{count}");
}
