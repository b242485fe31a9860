//! Real connections through a node, in network namespaces.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use kernel::netns::Namespace;
use pki::tls;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use testkit::{Host, Sandbox, requires};

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

/// A client, a node that forwards, and a server behind it, which also has a Service's address.
struct Ground {
    _sandbox: Sandbox,
    client: Namespace,
    node: Namespace,
    server: Namespace,
    tasks: Tasks,
    metrics: Metrics,
    applications: Applications,
    heard: Vec<Named>,
}

const SERVERS: [&str; 2] = ["10.0.2.2", "fd02::2"];
const SERVICE: &str = "10.96.0.1";

fn run(host: &Host, line: &str) {
    let (program, args) = line.split_once(' ').unwrap();
    let done = host.command(program).args(args.split(' ')).output().unwrap();
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Ground {
    fn start() -> Self {
        let sandbox = Sandbox::new();
        let [client, node, server] = ["client", "node", "server"].map(|name| sandbox.host(name));
        sandbox.link((&client, "10.0.1.2/24"), (&node, "10.0.1.1/24"));
        sandbox.link((&node, "10.0.2.1/24"), (&server, "10.0.2.2/24"));
        for (host, line) in [
            (&client, "ip address add fd01::2/64 dev node nodad"),
            (&node, "ip address add fd01::1/64 dev client nodad"),
            (&node, "ip address add fd02::1/64 dev server nodad"),
            (&server, "ip address add fd02::2/64 dev node nodad"),
            (&client, "ip route add default via 10.0.1.1"),
            (&client, "ip route add default via fd01::1"),
            (&server, "ip route add default via 10.0.2.1"),
            (&server, "ip route add default via fd02::1"),
            (&node, "nft add table ip services"),
            (&node, "nft add chain ip services nat { type nat hook prerouting priority dstnat ; }"),
            (
                &node,
                "nft add rule ip services nat ip daddr 10.96.0.1 tcp dport 80 dnat to 10.0.2.2:7000",
            ),
        ] {
            run(host, line);
        }
        let [client, node, server] =
            [client, node, server].map(|host| Namespace::open(host.netns()).unwrap());
        let (tasks, metrics) = (Tasks::new("test"), Metrics::default());
        let runtime = tokio::runtime::Handle::current();
        let applications = node
            .run_in(|| {
                std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
                std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
                // Says why, where the kernel refuses.
                drop(Tap::open().unwrap());
                let _entered = runtime.enter();
                Applications::follow(metrics.clone(), &tasks).unwrap()
            })
            .unwrap();
        let ground = Self {
            _sandbox: sandbox,
            client,
            node,
            server,
            tasks,
            metrics,
            applications,
            heard: Vec::new(),
        };
        let until = Instant::now() + PATIENCE;
        while !ground.has_table() {
            assert!(Instant::now() < until, "the table is not made");
            thread::sleep(Duration::from_millis(20));
        }
        ground
    }

    fn has_table(&self) -> bool {
        let table = || Nftables::open().unwrap().table(TABLE).unwrap();
        self.node.run_in(table).unwrap().is_some()
    }

    /// A server at `at` that says `greets`, and a client that says `says` to `to`, by TCP.
    fn say_to(&self, at: SocketAddr, to: SocketAddr, greets: &[u8], says: &[u8]) {
        let listener = self.server.run_in(|| TcpListener::bind(at)).unwrap().unwrap();
        let dial = || TcpStream::connect_timeout(&to, PATIENCE);
        let mut client = self.client.run_in(dial).unwrap().unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(greets).unwrap();
        client.read_exact(&mut vec![0; greets.len()]).unwrap();
        client.write_all(says).unwrap();
        server.read_exact(&mut vec![0; says.len()]).unwrap();
    }

    fn say(&self, at: SocketAddr, greets: &[u8], says: &[u8]) {
        self.say_to(at, at, greets, says);
    }

    /// Waits for what was heard of a server's port.
    fn hear(&mut self, at: SocketAddr) -> Named {
        let until = Instant::now() + PATIENCE;
        loop {
            self.heard.extend(self.applications.take());
            let is = |it: &&Named| {
                (it.conversation.server, it.conversation.port) == (at.ip(), at.port())
            };
            if let Some(found) = self.heard.iter().find(is) {
                return *found;
            }
            assert!(Instant::now() < until, "{at} is not in {:?}", self.heard);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What a client of rustls sends first.
fn greeting() -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut connection =
        ClientConnection::new(Arc::new(config), "db.example.com".try_into().unwrap()).unwrap();
    let mut greeting = Vec::new();
    connection.write_tls(&mut greeting).unwrap();
    greeting
}

fn servers() -> [IpAddr; 2] {
    SERVERS.map(|address| address.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_passes_a_node_is_known_by_its_first_bytes_whoever_speaks_first() {
    requires!(netns, nft);
    let mut ground = Ground::start();
    for server in servers() {
        let at = |port| SocketAddr::new(server, port);
        // Neighbours find each other: the first packets of all may be sent again and again.
        ground.say(at(1), b"", b"");
        ground.say(at(8080), b"", &greeting());
        ground.say(at(7001), b"", b"*1\r\n$4\r\nPING\r\n");
        ground.say(at(2222), b"SSH-2.0-OpenSSH_9.2p1\r\n", b"SSH-2.0-Go\r\n");
        ground.say(at(3307), b"\x4a\0\0\0\x0a8.0.36\0\x08\0\0\0\x12\x34", b"x");
        // What nobody knows, on a port that redis has.
        ground.say(at(6379), b"", b"hello, is anybody there?");
        let socket = ground
            .client
            .run_in(|| UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }));
        let query = b"\x2a\x01\x01\0\0\x01\0\0\0\0\0\0\x02db\x04shop\0\0\x01\0\x01";
        socket.unwrap().unwrap().send_to(query, at(5300)).unwrap();
        for (port, application) in [
            (8080, Some("tls")),
            (7001, Some("redis")),
            (2222, Some("ssh")),
            (3307, Some("mysql")),
            (6379, None),
            (5300, Some("dns")),
        ] {
            let named = ground.hear(at(port));
            assert_eq!(named.application, application, "{named:?}");
            let client = if server.is_ipv4() { "10.0.1.2" } else { "fd01::2" };
            assert_eq!(named.conversation.client, client.parse::<IpAddr>().unwrap());
            let protocol = if port == 5300 { Protocol::UDP } else { Protocol::TCP };
            assert_eq!(named.conversation.protocol, protocol);
        }
    }
    assert_eq!(ground.heard.len(), 12, "each once: {:?}", ground.heard);

    // Behind a Service's address it is the one that serves.
    let served = SocketAddr::new(servers()[0], 7000);
    let service = SocketAddr::new(SERVICE.parse().unwrap(), 80);
    ground.say_to(served, service, b"", b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(ground.hear(served).application, Some("http"));

    // The same conversation again, which is not looked at, and one that is.
    let before = ground.heard.len();
    ground.say(SocketAddr::new(servers()[0], 7001), b"", b"SSH-2.0-Go\r\n");
    let other = SocketAddr::new(servers()[0], 7002);
    ground.say(other, b"", b"SSH-2.0-Go\r\n");
    assert_eq!(ground.hear(other).application, Some("ssh"));
    assert_eq!(ground.heard.len(), before + 1, "{:?}", ground.heard);

    // The node's own connections, both ways.
    let own = SocketAddr::new("10.0.2.1".parse().unwrap(), 9000);
    let listener = ground.node.run_in(|| TcpListener::bind(own)).unwrap().unwrap();
    let dial = || TcpStream::connect_timeout(&own, PATIENCE);
    let mut client = ground.server.run_in(dial).unwrap().unwrap();
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    assert_eq!(ground.hear(own).application, Some("http2"));
    drop((listener, client));
    let out = SocketAddr::new(servers()[0], 9001);
    let listener = ground.server.run_in(|| TcpListener::bind(out)).unwrap().unwrap();
    let dial = || TcpStream::connect_timeout(&out, PATIENCE);
    let mut client = ground.node.run_in(dial).unwrap().unwrap();
    client.write_all(&greeting()).unwrap();
    assert_eq!(ground.hear(out).application, Some("tls"));
    drop((listener, client));

    let Metrics { applications_named, applications_unknown, applications_dropped, .. } =
        &ground.metrics;
    assert_eq!((applications_unknown.get(), applications_dropped.get()), (2, 0));
    assert_eq!(applications_named.get() as usize, ground.heard.len() - 2);

    // With the agent goes the rule.
    assert!(ground.has_table());
    ground.tasks.shutdown(PATIENCE).await;
    assert!(!ground.has_table());
}

/// What is told while nobody takes it is bounded, and counted past that.
#[test]
fn names_that_nobody_takes_are_dropped_and_counted() {
    let queue = Arc::new(TrackedMutex::new("applications", Vec::new()));
    let applications = Applications { queue, metrics: Metrics::default() };
    let logged = Logged {
        prefix: CLIENT.to_owned(),
        source: "10.0.0.2".parse().unwrap(),
        destination: "10.0.0.1".parse().unwrap(),
        protocol: 6,
        source_port: 40_000,
        destination_port: 7000,
        carried: b"SSH-2.0-Go\r\n".to_vec(),
    };
    for _ in 0..WAITING + 5 {
        applications.add(&logged);
    }
    assert_eq!(applications.metrics.applications_dropped.get(), 5);
    assert_eq!(applications.take().len(), WAITING);
    assert_eq!(applications.take(), []);
    // Nothing is known of a packet that no rule of ours told of, or that carries nothing.
    applications.add(&Logged { prefix: "x".to_owned(), ..logged.clone() });
    applications.add(&Logged { carried: Vec::new(), ..logged });
    assert_eq!(applications.take(), []);
}
