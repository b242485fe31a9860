//! Machines in network namespaces with interfaces of ours, and of Debian's wireguard-go.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kernel::netns::Namespace;
use testkit::{Host, Sandbox};
use wireguard::{Implementation, Peer, Peers, PrivateKey, PublicKey, Tunnel, TunnelConfig};

/// Far more than anything here takes; the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const PORT: u16 = 51820;

/// A machine with one interface of ours.
pub struct Machine {
    pub host: Host,
    pub namespace: Arc<Namespace>,
    pub tunnel: Tunnel,
    /// Its address inside the tunnel, and outside.
    pub inside: IpAddr,
    pub outside: IpAddr,
    pub name: String,
}

impl Machine {
    pub fn new(host: Host, letter: char, outside: &str, sockets: &str) -> Self {
        let namespace = Arc::new(Namespace::open(host.netns()).unwrap());
        // Names of interfaces have at most fifteen letters, and `wg` finds them by name alone.
        let name = format!("fl{letter}{}", std::process::id());
        let inside = inside(letter);
        let config = TunnelConfig {
            addresses: vec![inside.into()],
            socket_directory: sockets.into(),
            implementation: Some(Implementation::Userspace),
            ..TunnelConfig::new(&name, PORT)
        };
        let tunnel = Tunnel::open(&namespace, config, &PrivateKey::generate().unwrap()).unwrap();
        Self { host, namespace, tunnel, inside, outside: outside.parse().unwrap(), name }
    }

    pub fn as_peer(&self) -> Peer {
        Peer {
            allowed_ips: vec![self.inside.into()],
            endpoint: Some((self.outside, PORT).into()),
            ..Peer::default()
        }
    }

    pub fn key(&self) -> PublicKey {
        self.tunnel.public_key()
    }

    pub fn in_namespace<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run_in(work).unwrap()
    }

    /// A connection to a machine's echo.
    pub fn connect(&self, to: SocketAddr) -> TcpStream {
        let stream = self.in_namespace(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends to another machine and hears the same.
    pub fn reaches(&self, other: &Machine) {
        let echo = Echo::start(&other.namespace, other.inside);
        let mut stream = self.connect(echo.at);
        round_trip(&mut stream, 7);
    }
}

pub fn inside(letter: char) -> IpAddr {
    IpAddr::from([10, 64, letter as u8, 1])
}

pub fn peers<const N: usize>(peers: [(PublicKey, Peer); N]) -> Peers {
    peers.into()
}

pub fn round_trip(stream: &mut TcpStream, number: u64) {
    stream.write_all(&number.to_ne_bytes()).unwrap();
    let mut back = [0; 8];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(u64::from_ne_bytes(back), number);
}

/// Much at once, in packets of full size, comes back as it was.
pub fn much_goes_both_ways(mut stream: TcpStream) {
    let much: Vec<u8> =
        (0..2u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut reader = stream.try_clone().unwrap();
    let (sent, length) = (much.clone(), much.len());
    let writing = thread::spawn(move || stream.write_all(&sent).unwrap());
    let mut heard = vec![0; length];
    reader.read_exact(&mut heard).unwrap();
    writing.join().unwrap();
    assert!(heard == much);
}

/// Says back what one connection after the other says.
pub struct Echo {
    pub at: SocketAddr,
}

impl Echo {
    pub fn start(namespace: &Namespace, address: IpAddr) -> Self {
        let listener = namespace.run_in(|| TcpListener::bind((address, 0))).unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                thread::spawn(move || {
                    let _ = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream);
                });
            }
        });
        Self { at }
    }
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

pub fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// Two machines with a cable, that know each other.
pub fn two(sandbox: &Sandbox, sockets: &str) -> (Machine, Machine) {
    let (a, b) = (sandbox.host("a"), sandbox.host("b"));
    sandbox.link((&a, "192.0.2.1/24"), (&b, "192.0.2.2/24"));
    let mut a = Machine::new(a, 'a', "192.0.2.1", sockets);
    let mut b = Machine::new(b, 'b', "192.0.2.2", sockets);
    a.tunnel.set_peers(peers([(b.key(), b.as_peer())])).unwrap();
    b.tunnel.set_peers(peers([(a.key(), a.as_peer())])).unwrap();
    (a, b)
}

pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// wireguard-go in a host, killed when it is dropped.
pub struct WireguardGo {
    child: Child,
    name: String,
}

impl WireguardGo {
    pub fn start(host: &Host, key: &PrivateKey, address: IpAddr) -> Self {
        let name = format!("go{}", std::process::id());
        let mut command = host.command("wireguard-go");
        command.args(["-f", &name]).env("LOG_LEVEL", "error");
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let started = Self { child, name };
        let socket = format!("/var/run/wireguard/{}.sock", started.name);
        eventually("wireguard-go listens", || UnixStream::connect(&socket).is_ok());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), key.to_base64()).unwrap();
        let (port, path) = (PORT.to_string(), file.path().to_str().unwrap().to_owned());
        started.wg(&["private-key", &path, "listen-port", &port]);
        let address = format!("{address}/32");
        for args in [
            &["address", "add", &address, "dev", &started.name][..],
            &["link", "set", "up", "dev", &started.name, "mtu", "1420"],
            &["route", "add", "10.64.0.0/16", "dev", &started.name],
        ] {
            run(host.command("ip").args(args));
        }
        started
    }

    pub fn wg(&self, args: &[&str]) {
        run(Command::new("wg").args(["set", &self.name]).args(args));
    }
}

impl Drop for WireguardGo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(format!("/var/run/wireguard/{}.sock", self.name));
    }
}
