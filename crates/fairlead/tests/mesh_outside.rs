//! A machine outside of clusters: wg-quick and Debian's wireguard-go with what `fairlead mesh peer add`
//! printed, against real agents.

#![allow(clippy::unwrap_used, reason = "tests")]

mod mesh_machines;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kernel::netns::Namespace;
use mesh_machines::controllers::{Controller, eventually};
use mesh_machines::*;
use objects::kinds::{WireguardPathState, WireguardTunnel};
use testkit::{Host, Sandbox, requires};

/// A machine behind the router, which knows nothing of clusters.
struct Outsider {
    host: Host,
    namespace: Arc<Namespace>,
    dir: tempfile::TempDir,
    name: &'static str,
}

impl Outsider {
    fn new(sandbox: &Sandbox, router: &Host, name: &'static str, at: u8) -> Self {
        let host = sandbox.host(name);
        let (here, there) = (format!("192.0.2.{}", at + 1), format!("192.0.2.{}", at + 2));
        sandbox.link((&host, &format!("{here}/30")), (router, &format!("{there}/30")));
        run(host.command("ip").args(["route", "add", "default", "via", &there]));
        let namespace = Arc::new(Namespace::open(host.netns()).unwrap());
        Self { host, namespace, dir: tempfile::tempdir().unwrap(), name }
    }

    /// The name of the interface is that of the file, and of a socket that all namespaces share.
    fn file(&self) -> PathBuf {
        self.dir.path().join(format!("{}{}.conf", &self.name[..3], std::process::id() % 100_000))
    }

    /// Has the machine let in, and does what its owner does with the answer.
    fn joins(&self, controller: &Controller) {
        let (code, printed, err) =
            controller.fairlead(&["mesh", "peer", "add", self.name, "--mesh", "m"]);
        assert_eq!(code, 0, "{err}");
        std::fs::write(self.file(), printed).unwrap();
        let mut command = self.host.command("wg-quick");
        command.env("WG_QUICK_USERSPACE_IMPLEMENTATION", "wireguard-go");
        run(command.arg("up").arg(self.file()));
    }

    fn is_revoked(&self, controller: &Controller) {
        let (code, _, err) =
            controller.fairlead(&["mesh", "peer", "revoke", self.name, "--mesh", "m"]);
        assert_eq!(code, 0, "{err}");
    }

    fn connect(&self, to: SocketAddr, wait: Duration) -> Option<TcpStream> {
        let connecting = || TcpStream::connect_timeout(&to, wait);
        let stream = self.namespace.run_in(connecting).unwrap().ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(stream)
    }

    fn until_connected(&self, to: SocketAddr) -> TcpStream {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(stream) = self.connect(to, Duration::from_secs(3)) {
                return stream;
            }
            assert!(Instant::now() < end, "{} does not reach {to}", self.name);
        }
    }

    fn until_nothing_is_reached(&self, places: &[SocketAddr]) {
        let (end, wait) = (Instant::now() + PATIENCE, Duration::from_secs(2));
        while places.iter().any(|at| self.connect(*at, wait).is_some()) {
            assert!(Instant::now() < end, "{} is let in still", self.name);
        }
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        // wireguard-go ends with its interface.
        let file = self.file();
        let interface = file.file_stem().unwrap();
        let _ = self.host.command("ip").args(["link", "delete"]).arg(interface).output();
    }
}

/// Speaks without end to everybody who connects to a pod.
fn chatter(machine: &Machine) -> SocketAddr {
    let pod = machine.pod;
    let listener = machine.namespace.run_in(|| TcpListener::bind((pod, 0))).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                while stream.write_all(b"more").is_ok() {
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
    at
}

/// Asserts that a pod's packets for an address are refused on its node.
async fn is_refused(machine: &Machine, to: &str) {
    let to: IpAddr = to.parse().unwrap();
    let socket = machine.namespace.run_in(|| UdpSocket::bind((machine.pod, 0))).unwrap().unwrap();
    eventually("packets for a machine that is not let in are refused", async || {
        let sent = socket.send_to(b"secret", (to, 9));
        sent.is_err_and(|error| error.kind() == ErrorKind::HostUnreachable).then_some(())
    })
    .await;
}

mod kube_servers {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_machine_outside_reaches_pods_until_it_is_revoked_and_is_then_told_nothing() {
        requires!(kube, netns, tun, nft);
        let (sandbox, dir) = (Sandbox::new(), tempfile::tempdir().unwrap());
        let router = watching_router(&sandbox);
        let (a, b) = tokio::join!(Cluster::start("a", 0), Cluster::start("b", 1));
        let mut here = Machine::new(&sandbox, &router, &a, 0).await;
        let mut there = Machine::new(&sandbox, &router, &b, 0).await;
        here.start();
        there.start();
        let controller = planned(&[&a, &b], dir.path(), "127.78.0.5", &[]).await;
        let echoes = [here.echo(), there.echo()];
        round_trip(&mut here.until_connected(echoes[1]), 0);
        let before = clear_packets(&router);

        let laptop = Outsider::new(&sandbox, &router, "laptop", 128);
        let office = Outsider::new(&sandbox, &router, "office", 132);
        laptop.joins(&controller);
        for at in echoes {
            round_trip(&mut laptop.until_connected(at), 1);
        }
        office.joins(&controller);
        for at in echoes {
            round_trip(&mut office.until_connected(at), 2);
        }
        // Pods reach it, too, by the same tunnel.
        let listener = laptop.namespace.run_in(|| TcpListener::bind("10.99.0.1:0"));
        let listener = listener.unwrap().unwrap();
        let calling = here.connect(listener.local_addr().unwrap());
        assert!(calling.is_some(), "a pod does not reach the laptop");

        // It is not probed: it would be down, and every node would say so.
        let status = eventually("the node says that the laptop has connected", async || {
            let status = status_of(&a.client, "a0").await?;
            let mut tunnels = status.tunnels.iter();
            let connected = |it: &&WireguardTunnel| {
                it.peer == "m--external--laptop" && it.last_handshake.is_some()
            };
            tunnels.find(connected).map(|it| it.state).map(|state| (state, status.unreachable))
        });
        assert_eq!(status.await, (WireguardPathState::Unknown, 0));

        // Somebody speaks to the laptop when it is revoked, and goes on.
        let mut heard = laptop.until_connected(chatter(&here));
        heard.read_exact(&mut [0; 40]).unwrap();
        laptop.is_revoked(&controller);
        laptop.until_nothing_is_reached(&echoes);
        for machine in [&here, &there] {
            is_refused(machine, "10.99.0.1").await;
            // Nobody ever had this one.
            is_refused(machine, "10.99.0.77").await;
        }
        heard.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let silence =
            eventually("the connection falls silent", async || heard.read_exact(&mut [0; 4]).err());
        let silence = silence.await.kind();
        assert!([ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&silence), "{silence}");
        // Retransmissions, and probes of a closed window, take a while to come.
        thread::sleep(Duration::from_secs(3));
        assert_eq!(clear_packets(&router), before, "packets left in clear text");

        // The other is let in as before, until it is revoked, the last one.
        for at in echoes {
            round_trip(&mut office.until_connected(at), 3);
        }
        office.is_revoked(&controller);
        office.until_nothing_is_reached(&echoes);
        is_refused(&here, "10.99.0.2").await;
        round_trip(&mut here.until_connected(echoes[1]), 4);
        assert_eq!(clear_packets(&router), before, "packets left in clear text");

        // Without the guard they would have.
        here.agent = None;
        run(here.host.command("ip").args(["route", "flush", "proto", "117"]));
        let stray = here.namespace.run_in(|| UdpSocket::bind((here.pod, 0))).unwrap().unwrap();
        eventually("the guard kept it", async || {
            let _ = stray.send_to(b"secret", ("10.99.0.1", 9));
            (clear_packets(&router) > before).then_some(())
        })
        .await;
    }
}
