//! From packets between pods to lines of `fairlead conversations`: a controller, an agent, a kernel.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cni::wire::{self, AddRequest, AttachmentKey, Operation, Pod, Reply, Request};
use kernel::netns::Namespace;
use serde_json::Value;
use testkit::{Host, Sandbox, requires};

const PATIENCE: Duration = Duration::from_secs(90);

/// In a host that is a namespace, without the machine's own settings. All ports are free there.
fn fairlead(host: &Host, args: &[&str]) -> Command {
    let mut command = host.command(env!("CARGO_BIN_EXE_fairlead"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
        command.env_remove(name);
    }
    command.env("FAIRLEAD_CONFIG", "/dev/null").args(args);
    command
}

/// One that runs; killed when dropped, as by `kill -9`.
struct Daemon {
    child: Child,
    /// What it said when it was up.
    told: Vec<(String, String)>,
}

impl Daemon {
    fn start(command: &mut Command) -> Self {
        let log = match std::env::var_os("FAIRLEAD_TEST_LOG") {
            Some(_) => Stdio::inherit(),
            None => Stdio::null(),
        };
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut told = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some((name, place)) = line.trim().split_once(' ') {
                told.push((name.to_owned(), place.trim().to_owned()));
                if name == "data" {
                    break;
                }
            }
        }
        assert!(!told.is_empty(), "{command:?} did not come up");
        Self { child, told }
    }

    fn place(&self, of: &str) -> &str {
        let found = self.told.iter().find(|(name, _)| name == of);
        &found.unwrap_or_else(|| panic!("{of} is not in {:?}", self.told)).1
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `fairlead up` on a host.
struct Controller<'a> {
    host: &'a Host,
    daemon: Daemon,
}

impl<'a> Controller<'a> {
    fn start(host: &'a Host, data: &Path, more: &[&str]) -> Self {
        let args = ["up", "--fleet-kubeconfig", "none", "--admission-webhook", "off", "--data"];
        let mut command = fairlead(host, &args);
        // Not a flag: a test may set it otherwise.
        command.arg(data).args(more).env("FAIRLEAD_GUARD_OBSERVE", "off");
        Self { host, daemon: Daemon::start(&mut command) }
    }

    /// What a run of the command line says, if it can.
    fn run(&self, args: &[&str]) -> Option<String> {
        let mut command = fairlead(self.host, args);
        command.args(["--server", self.daemon.place("api"), "--token-file"]);
        let output = command.arg(self.daemon.place("token")).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// Runs it until it says something.
    fn insist(&self, args: &[&str]) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(said) = self.run(args) {
                return said;
            }
            assert!(Instant::now() < until, "{args:?} cannot be done");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn list(&self, what: &str) -> Vec<Value> {
        let shown = self.run(&[what, "-o", "json"]).unwrap_or_default();
        let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
        let lines = shown.get(what).unwrap_or(&shown);
        lines.as_array().cloned().unwrap_or_default()
    }

    fn until(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let lines = self.list(what);
            if let Some(line) = lines.iter().find(|line| fits(line)) {
                return line.clone();
            }
            assert!(Instant::now() < until, "not in {lines:#?}");
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// Asks until there is such a line, with at least these bytes.
    fn hears(&self, said: &Said) -> Value {
        self.until("conversations", |line| {
            line["protocol"] == said.protocol
                && line["port"] == said.server.port()
                && line["server"]["address"] == said.server.ip().to_string()
                && line["bytes"].as_u64().unwrap() >= said.bytes
        })
    }

    /// The same, of one connection and to the byte.
    fn hears_exactly(&self, said: &Said) -> Value {
        let line = self.hears(said);
        assert_eq!(line["bytes"], said.bytes, "{line:#}");
        assert_eq!((&line["packets"], &line["sessions"]), (&said.packets.into(), &1.into()));
        assert_eq!(line["client"]["address"], said.client.to_string());
        line
    }
}

/// A node with its pods.
struct Ground {
    _sandbox: Sandbox,
    node: Host,
    dir: tempfile::TempDir,
}

impl Ground {
    fn controller(&self) -> Controller<'_> {
        Controller::start(&self.node, &self.dir.path().join("controller"), &[])
    }

    fn agent(&self) -> Daemon {
        self.agent_with(&[])
    }

    fn agent_with(&self, more: &[&str]) -> Daemon {
        let args = ["agent", "--net-node", "node1", "--net-addresses", "192.0.2.1"];
        let mut command = fairlead(&self.node, &args);
        command.args(["--net-subnets", "10.64.0.0/24+fd64::/120", "--admin-listen", "127.0.0.1:0"]);
        command.args(["--guard-controllers", "127.0.0.1:7681"]).args(more);
        command.arg("--data").arg(self.dir.path().join("agent"));
        Daemon::start(command.arg("--net-socket").arg(self.socket()))
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("run/cni.sock")
    }

    /// Attaches a pod, and gives its addresses.
    fn attach(&self, name: &str, pod: &Host) -> [IpAddr; 2] {
        let until = Instant::now() + PATIENCE;
        let add = Operation::Add(AddRequest {
            key: AttachmentKey { container: name.to_owned(), ifname: "eth0".to_owned() },
            network: "pods".to_owned(),
            netns: pod.netns().display().to_string(),
            pod: Some(Pod { namespace: "shop".to_owned(), name: name.to_owned(), uid: None }),
            pool: None,
            fixed: Default::default(),
        });
        let namespace = open(pod);
        loop {
            let request = Request::within(until, add.clone());
            match wire::call(&self.socket(), &request, Some(namespace.as_fd()), until) {
                Ok(Reply::Added(success)) => {
                    return [0, 1].map(|i| success.ips[i].address.address);
                }
                // It reconciles first.
                other => assert!(Instant::now() < until, "{other:?}"),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// What two pods said to each other.
#[derive(Clone, Debug)]
struct Said {
    protocol: &'static str,
    client: IpAddr,
    server: SocketAddr,
    bytes: u64,
    packets: u64,
}

/// A client in one pod and a server in the other that go on speaking.
struct Datagrams {
    client: UdpSocket,
    server: UdpSocket,
    said: Said,
}

impl Datagrams {
    fn open(web: &Namespace, db: &Namespace, client: IpAddr, server: IpAddr) -> Self {
        let bind = |namespace: &Namespace, address: IpAddr| {
            let socket = namespace.run_in(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let (to, from) = (bind(db, server), bind(web, client));
        from.connect(to.local_addr().unwrap()).unwrap();
        let server = to.local_addr().unwrap();
        let said = Said { protocol: "udp", client, server, bytes: 0, packets: 0 };
        Self { client: from, server: to, said }
    }

    /// So many datagrams there, each of which is answered.
    fn say(&mut self, times: usize, length: usize) {
        let header = if self.said.client.is_ipv4() { 20 + 8 } else { 40 + 8 };
        let mut buffer = [0; 1500];
        for _ in 0..times {
            self.client.send(&vec![1; length]).unwrap();
            let (read, from) = self.server.recv_from(&mut buffer).unwrap();
            self.server.send_to(&buffer[..read], from).unwrap();
            assert_eq!(self.client.recv(&mut buffer).unwrap(), length);
            self.said.bytes += 2 * (length as u64 + header);
            self.said.packets += 2;
        }
    }
}

/// One connection: a request, and a longer answer.
fn stream(web: &Namespace, db: &Namespace, client: IpAddr, server: IpAddr) -> Said {
    let listener = db.run_in(|| TcpListener::bind((server, 5432))).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let mut dialled = web.run_in(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    dialled.write_all(&[1; 1_000]).unwrap();
    accepted.read_exact(&mut [0; 1_000]).unwrap();
    accepted.write_all(&[2; 100_000]).unwrap();
    drop(accepted);
    let mut answer = Vec::new();
    dialled.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.len(), 100_000);
    Said { protocol: "tcp", client, server: to, bytes: 101_000, packets: 0 }
}

fn open(host: &Host) -> Namespace {
    Namespace::open(host.netns()).unwrap()
}

fn write(host: &Host, file: &str, value: &str) {
    let work = || std::fs::write(Path::new("/proc/sys/net/netfilter").join(file), value);
    open(host).run_in(work).unwrap().unwrap();
}

#[test]
fn what_pods_say_is_counted_once_whoever_is_killed() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let [node, web, db] = ["node", "web", "db"].map(|name| sandbox.host(name));
    // However slow this machine is, they are the same connections from the beginning to the end.
    write(&node, "nf_conntrack_udp_timeout", "600");
    write(&node, "nf_conntrack_udp_timeout_stream", "600");
    let dir = tempfile::tempdir().unwrap();
    let ground = Ground { _sandbox: sandbox, node, dir };

    let controller = ground.controller();
    let agent = ground.agent();
    let clients = ground.attach("web", &web);
    let servers = ground.attach("db", &db);
    let (web, db) = (open(&web), open(&db));
    let pairs = [0, 1].map(|family| (clients[family], servers[family]));

    // First: where a link has just come up the kernel drops packets, and these are sent again.
    let streams = pairs.map(|(client, server)| stream(&web, &db, client, server));
    let mut datagrams = pairs.map(|(client, server)| Datagrams::open(&web, &db, client, server));
    for family in &mut datagrams {
        family.say(10, 100);
    }
    for said in datagrams.iter().map(|family| &family.said) {
        let line = controller.hears_exactly(said);
        for (end, name) in [(&line["client"], "shop/web"), (&line["server"], "shop/db")] {
            assert_eq!(
                (&end["kind"], &end["name"]),
                (&"workload".into(), &name.into()),
                "{line:#}"
            );
            assert_eq!((&end["namespace"], &end["node"]), (&"shop".into(), &"node1".into()));
        }
    }
    for said in &streams {
        let line = controller.hears(said);
        let bytes = line["bytes"].as_u64().unwrap();
        assert!(bytes < said.bytes * 2, "more than headers on top: {line:#}");
        assert_eq!(line["sessions"], 1, "{line:#}");
    }

    // The controller dies, and what is said meanwhile is known to its next start.
    drop(controller);
    for family in &mut datagrams {
        family.say(5, 200);
    }
    let controller = ground.controller();
    for family in &datagrams {
        controller.hears_exactly(&family.said);
    }
    for said in &streams {
        assert_eq!(controller.hears(said)["sessions"], 1);
    }

    // So does the agent: the kernel counts on, and the next one goes on where it was.
    drop(agent);
    for family in &mut datagrams {
        family.say(7, 300);
    }
    let agent = ground.agent();
    for family in &datagrams {
        controller.hears_exactly(&family.said);
    }

    // Both, and the next controller knows nothing.
    drop(agent);
    drop(controller);
    std::fs::remove_dir_all(ground.dir.path().join("controller")).unwrap();
    for family in &mut datagrams {
        family.say(3, 400);
    }
    let controller = ground.controller();
    let _agent = ground.agent();
    for family in &datagrams {
        controller.hears_exactly(&family.said);
    }
    let lines = controller.list("conversations");
    let loopback = |line: &&Value| line["client"]["address"].as_str().unwrap().starts_with("127.");
    assert_eq!(lines.iter().find(loopback), None, "what the two say to each other is no news");
}

/// An agent that only observes, on a node without pods.
fn observer(node: &Host, name: &str, addresses: &str, controller: &str, dir: &Path) -> Daemon {
    let args = ["agent", "--net-serve", "off", "--net-node", name, "--net-addresses", addresses];
    let mut command = fairlead(node, &args);
    command.args(["--guard-controllers", controller, "--guard-token-file"]);
    command.arg(dir.join(name).with_extension("token"));
    Daemon::start(command.arg("--data").arg(dir.join(name)))
}

#[test]
fn two_nodes_that_enrolled_see_one_connection_and_it_is_counted_once() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let [hub, one, two] = ["hub", "one", "two"].map(|name| sandbox.host(name));
    sandbox.link((&hub, "10.1.0.1/24"), (&one, "10.1.0.2/24"));
    sandbox.link((&hub, "10.2.0.1/24"), (&two, "10.2.0.2/24"));
    sandbox.link((&one, "10.0.0.1/24"), (&two, "10.0.0.2/24"));
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let controller =
        Controller::start(&hub, &dir.join("hub"), &["--agents-listen", "0.0.0.0:7681"]);
    let enrol = |node: &str| {
        let token = controller.insist(&["agents", "token", "--node", node]);
        std::fs::write(dir.join(node).with_extension("token"), token).unwrap();
    };
    enrol("one");
    // With the other's token nobody is let in.
    std::fs::copy(dir.join("one.token"), dir.join("two.token")).unwrap();
    let _one = observer(&one, "one", "10.0.0.1,10.1.0.2", "10.1.0.1:7681", dir);
    let _two = observer(&two, "two", "10.0.0.2,10.2.0.2", "10.2.0.1:7681", dir);
    let alive = |node: &str| {
        controller.until("agents", |line| line["node"] == node && line["state"] == "alive")
    };
    alive("one");
    assert!(!controller.list("agents").iter().any(|line| line["node"] == "two"));
    enrol("two");
    alive("two");

    let [client, server] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
    let mut datagrams = Datagrams::open(&open(&one), &open(&two), client, server);
    for _ in 0..3 {
        datagrams.say(10, 100);
        let line = controller.hears_exactly(&datagrams.said);
        for (end, name) in [(&line["client"], "one"), (&line["server"], "two")] {
            assert_eq!((&end["kind"], &end["node"]), (&"host".into(), &name.into()), "{line:#}");
        }
    }

    // Shut out, it is no longer heard; with a new token it is, and has forgotten nothing.
    controller.insist(&["agents", "revoke", "two"]);
    controller.until("agents", |line| line["node"] == "two" && line["state"] != "alive");
    datagrams.say(10, 100);
    enrol("two");
    alive("two");
    controller.hears_exactly(&datagrams.said);
}

#[test]
fn the_address_of_a_bridge_to_pods_is_its_own_node_s() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let [hub, one, two] = ["hub", "one", "two"].map(|name| sandbox.host(name));
    let [web, db] = ["web", "db"].map(|name| sandbox.host(name));
    sandbox.link((&hub, "10.1.0.1/24"), (&one, "10.1.0.2/24"));
    sandbox.link((&hub, "10.2.0.1/24"), (&two, "10.2.0.2/24"));
    // As ptp and bridge do it, with the same address on both nodes.
    sandbox.link((&one, "10.244.0.1/24"), (&web, "10.244.0.8/24"));
    sandbox.link((&two, "10.244.0.1/24"), (&db, "10.244.0.9/24"));
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let controller =
        Controller::start(&hub, &dir.join("hub"), &["--agents-listen", "0.0.0.0:7681"]);
    for node in ["one", "two"] {
        let token = controller.insist(&["agents", "token", "--node", node]);
        std::fs::write(dir.join(node).with_extension("token"), token).unwrap();
    }
    let _one = observer(&one, "one", "10.1.0.2", "10.1.0.1:7681", dir);
    let _two = observer(&two, "two", "10.2.0.2", "10.2.0.1:7681", dir);
    for node in ["one", "two"] {
        controller.until("agents", |line| line["node"] == node && line["state"] == "alive");
    }
    let gateway = "10.244.0.1".parse().unwrap();
    for (node, name, pod, address) in
        [(&one, "one", &web, "10.244.0.8"), (&two, "two", &db, "10.244.0.9")]
    {
        let server = address.parse().unwrap();
        let mut probe = Datagrams::open(&open(node), &open(pod), gateway, server);
        probe.say(10, 100);
        let line = controller.hears_exactly(&probe.said);
        let client = &line["client"];
        assert_eq!((&client["kind"], &client["node"]), (&"host".into(), &name.into()), "{line:#}");
    }
    // A first pod comes with an address that the node did not have when its agent joined.
    let late = sandbox.host("late");
    sandbox.link((&one, "10.245.0.1/24"), (&late, "10.245.0.8/24"));
    let [gateway, server] = ["10.245.0.1", "10.245.0.8"].map(|address| address.parse().unwrap());
    let mut probe = Datagrams::open(&open(&one), &open(&late), gateway, server);
    probe.say(10, 100);
    let client = &controller.hears_exactly(&probe.said)["client"];
    assert_eq!((&client["kind"], &client["node"]), (&"host".into(), &"one".into()), "{client:#}");
}

/// One connection on which the server says `greets`, then the client `says`.
fn exchange(from: &Namespace, to: &Namespace, at: SocketAddr, greets: &[u8], says: &[u8]) {
    let listener = to.run_in(|| TcpListener::bind(at)).unwrap().unwrap();
    let dial = || TcpStream::connect_timeout(&at, PATIENCE);
    let mut client = from.run_in(dial).unwrap().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.write_all(greets).unwrap();
    client.read_exact(&mut vec![0; greets.len()]).unwrap();
    client.write_all(says).unwrap();
    server.read_exact(&mut vec![0; says.len()]).unwrap();
}

/// What a client of TLS sends first.
fn tls_greeting() -> Vec<u8> {
    let config = rustls::ClientConfig::builder_with_provider(pki::tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = "db.example.com".try_into().unwrap();
    let mut connection = rustls::ClientConnection::new(config.into(), name).unwrap();
    let mut greeting = Vec::new();
    connection.write_tls(&mut greeting).unwrap();
    greeting
}

impl Controller<'_> {
    /// Asks until a line says this of a server, and how it is known.
    fn hears_application(&self, at: SocketAddr, application: &str, by: &str) {
        self.until("conversations", |line| {
            line["port"] == at.port()
                && line["server"]["address"] == at.ip().to_string()
                && line["application"] == application
                && line["applicationBy"] == by
        });
    }
}

/// Whether the table that looks at first bytes is there.
fn looks_at_bytes(node: &Host) -> bool {
    let listed = node.command("nft").args(["list", "tables"]).output().unwrap();
    String::from_utf8(listed.stdout).unwrap().contains("inet fairlead-applications")
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn applications_are_told_by_first_bytes_or_by_port_and_it_is_said_which() {
    requires!(netns, nft);
    let sandbox = Sandbox::new();
    let [node, web, db] = ["node", "web", "db"].map(|name| sandbox.host(name));
    let ground = Ground { _sandbox: sandbox, node, dir: tempfile::tempdir().unwrap() };
    let controller = ground.controller();
    // Beside the table that enforces policies.
    let enforces = ["--policy-enforce", "on", "--policy-new-pods", "open"];
    let agent = ground.agent_with(&enforces);
    ground.attach("web", &web);
    let servers = ground.attach("db", &db);
    let (web, db) = (open(&web), open(&db));
    until("first bytes are looked at", || looks_at_bytes(&ground.node));
    for server in servers {
        let at = |port| SocketAddr::new(server, port);
        exchange(&web, &db, at(8080), b"", &tls_greeting());
        exchange(&web, &db, at(7000), b"", b"*1\r\n$4\r\nPING\r\n");
        exchange(&web, &db, at(2222), b"SSH-2.0-OpenSSH_9.2p1\r\n", b"SSH-2.0-Go\r\n");
        exchange(&web, &db, at(6379), b"", b"hello, is anybody there?");
        controller.hears_application(at(8080), "tls", "bytes");
        controller.hears_application(at(7000), "redis", "bytes");
        controller.hears_application(at(2222), "ssh", "bytes");
        controller.hears_application(at(6379), "redis", "port");
    }
    let shown = controller.insist(&["conversations"]);
    for words in ["tcp/8080 tls ", "tcp/7000 redis ", "tcp/2222 ssh ", "tcp/6379 (redis) "] {
        assert!(shown.contains(words), "{words:?} is not in {shown}");
    }
    // However the agent ends, the rule ends with it.
    drop(agent);
    until("the rule is gone", || !looks_at_bytes(&ground.node));
    // Whoever does not want that has ports.
    let _agent = ground.agent_with(&["--guard-applications", "port"]);
    let at = SocketAddr::new(servers[0], 5432);
    exchange(&web, &db, at, b"", b"*1\r\n$4\r\nPING\r\n");
    controller.hears_application(at, "postgresql", "port");
    assert!(!looks_at_bytes(&ground.node));
}

/// The pod network is another's, and nothing is enforced.
#[test]
fn applications_are_told_by_first_bytes_beside_another_pod_network() {
    requires!(netns, nft);
    let sandbox = Sandbox::new();
    let [node, pod] = ["node", "pod"].map(|name| sandbox.host(name));
    sandbox.link((&node, "10.244.0.1/24"), (&pod, "10.244.0.8/24"));
    let dir = tempfile::tempdir().unwrap();
    let controller = Controller::start(&node, &dir.path().join("controller"), &[]);
    let args =
        ["agent", "--net-serve", "off", "--net-node", "node", "--admin-listen", "127.0.0.1:0"];
    let mut command = fairlead(&node, &args);
    command.args(["--net-addresses", "10.244.0.1", "--guard-controllers", "127.0.0.1:7681"]);
    let _agent = Daemon::start(command.arg("--data").arg(dir.path().join("agent")));
    until("first bytes are looked at", || looks_at_bytes(&node));
    let at = "10.244.0.8:8080".parse().unwrap();
    exchange(&open(&node), &open(&pod), at, b"", &tls_greeting());
    controller.hears_application(at, "tls", "bytes");
}

#[test]
fn a_first_run_shows_this_machines_own_connections_and_changes_nothing() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let [machine, other] = ["machine", "other"].map(|name| sandbox.host(name));
    sandbox.link((&machine, "192.0.2.1/24"), (&other, "192.0.2.2/24"));
    let rules = || machine.command("nft").args(["list", "ruleset"]).output().unwrap().stdout;
    let before = rules();
    let listener = open(&other).run_in(|| TcpListener::bind("192.0.2.2:80")).unwrap().unwrap();
    let connect = || TcpStream::connect("192.0.2.2:80");
    let mut client = open(&machine).run_in(connect).unwrap().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[1; 1000]).unwrap();
    server.read_exact(&mut [0; 1000]).unwrap();

    let dir = tempfile::tempdir().unwrap();
    let observe = ["--guard-observe", "on"];
    let controller = Controller::start(&machine, &dir.path().join("data"), &observe);
    assert!(controller.daemon.place("sees").contains("own connections"));
    let line = controller.until("conversations", |line| line["port"] == 80);
    assert_eq!(line["server"]["address"], "192.0.2.2");
    assert_eq!((&line["client"]["kind"], &line["sessions"]), (&"host".into(), &1.into()));
    assert!(line["bytes"].as_u64().unwrap() >= 1000, "{line:#}");
    assert_eq!(rules(), before);
    drop(controller);

    let controller = Controller::start(&machine, &dir.path().join("other"), &[]);
    assert!(controller.daemon.told.iter().all(|(name, _)| name != "sees"));
}
