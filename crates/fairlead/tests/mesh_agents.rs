//! A mesh with our own data plane, of real processes: a controller, an agent on each node, and packets
//! between network namespaces. Agents are killed and frozen.

#![allow(clippy::unwrap_used, reason = "tests")]

mod mesh_machines;

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use mesh_machines::controllers::eventually;
use mesh_machines::*;
use testkit::{Sandbox, requires};

mod kube_servers {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn an_agent_that_is_killed_comes_back_and_nothing_leaves_in_clear_text() {
        requires!(kube, netns, tun, nft);
        let (sandbox, dir) = (Sandbox::new(), tempfile::tempdir().unwrap());
        let router = watching_router(&sandbox);
        let (a, b) = tokio::join!(Cluster::start("a", 0), Cluster::start("b", 1));
        let mut here = Machine::new(&sandbox, &router, &a, 0).await;
        let mut there = Machine::new(&sandbox, &router, &b, 0).await;
        // The capture sees what it should.
        let stray = here.namespace.run_in(|| UdpSocket::bind((here.pod, 0))).unwrap().unwrap();
        stray.send_to(b"clear", (there.pod, 9)).unwrap();
        eventually("the router counts", async || (clear_packets(&router) > 0).then_some(())).await;
        here.start();
        there.start();
        let _controller = planned(&[&a, &b], dir.path(), "127.78.0.1", &[]).await;

        let echo = there.echo();
        let load = Load::start(here.until_connected(echo));
        load.goes_on("the connection begins");
        let before = clear_packets(&router);
        let old = here.pid();
        here.agent.as_ref().unwrap().signal("-KILL");
        here.agent = None;
        // Its interface is gone, and packets are refused at once.
        let refused = stray.send_to(b"secret", (there.pod, 9)).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::HostUnreachable, "{refused}");
        for _ in 0..50 {
            let _ = stray.send_to(b"secret", (there.pod, 9));
            thread::sleep(Duration::from_millis(10));
        }
        here.start();
        assert_ne!(here.pid(), old);
        // While it starts, too.
        let end = Instant::now() + PATIENCE;
        while stray.send_to(b"secret", (there.pod, 9)).is_err() {
            assert!(Instant::now() < end, "{}", std::fs::read_to_string(here.log()).unwrap());
        }
        load.goes_on("the connection goes on after the agent was killed");
        load.stop();
        assert_eq!(clear_packets(&router), before, "packets left in clear text");

        // What each node sees of its tunnel is in its status.
        let status = eventually("the status says how the tunnel is", async || {
            let status = status_of(&a.client, "a0").await?;
            let tunnel = status.tunnels.first()?;
            (tunnel.round_trip_micros.is_some() && tunnel.last_handshake.is_some())
                .then_some(status)
        })
        .await;
        let tunnel = &status.tunnels[0];
        assert_eq!((status.implementation.as_str(), status.mtu), ("userspace", 1420));
        assert_eq!((status.peers, status.unreachable), (1, 0));
        assert_eq!(tunnel.peer, "m--b--b0");
        assert_eq!(tunnel.endpoint.as_deref(), Some("192.0.2.17:51821"));

        // What an agent left goes with a purge, and packets take the node's other routes again.
        here.agent = None;
        let purged = run(here
            .host
            .command(env!("CARGO_BIN_EXE_fairlead"))
            .env("FAIRLEAD_CONFIG", "/dev/null")
            .args(["net", "uninstall", "--purge", "--data"])
            .arg(here.dir.path().join("data"))
            .arg(format!("--mesh-interface={}", here.interface()))
            .arg(format!("--bin-dir={}", dir.path().display()))
            .arg(format!("--conf-dir={}", dir.path().display()))
            .arg(format!("--net-socket={}", dir.path().join("cni.sock").display())));
        assert!(purged.contains("removed route 10.11.0.0/24 as unreachable"), "{purged}");
        assert!(purged.contains("removed nftables table inet fairlead-mesh"), "{purged}");
        stray.send_to(b"clear", (there.pod, 9)).unwrap();
        eventually("the guard is gone", async || (clear_packets(&router) > before).then_some(()))
            .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_frozen_gateway_is_passed_over_within_seconds() {
        requires!(kube, netns, tun, nft);
        let (sandbox, dir) = (Sandbox::new(), tempfile::tempdir().unwrap());
        let router = watching_router(&sandbox);
        let (a, b) = tokio::join!(Cluster::start("a", 0), Cluster::start("b", 1));
        let mut here = Machine::new(&sandbox, &router, &a, 0).await;
        let mut gateways = Vec::new();
        for i in 0..2 {
            gateways.push(Machine::new(&sandbox, &router, &b, i).await);
        }
        here.start();
        let service: SocketAddr = "10.101.0.1:7".parse().unwrap();
        for gateway in &mut gateways {
            gateway.start();
            // As a proxy of services has it, on every node.
            run(gateway.host.command("ip").args(["address", "add", "10.101.0.1/32", "dev", "lo"]));
            let socket = gateway.namespace.run_in(|| UdpSocket::bind(service)).unwrap().unwrap();
            let name = gateway.name.clone();
            thread::spawn(move || {
                while let Ok((_, from)) = socket.recv_from(&mut [0; 100]) {
                    let _ = socket.send_to(name.as_bytes(), from);
                }
            });
        }
        let _controller = planned(&[&a, &b], dir.path(), "127.78.0.2", &[("b", 2)]).await;
        let socket = here.namespace.run_in(|| UdpSocket::bind((here.pod, 0))).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let until = async |name: &str| {
            let began = Instant::now();
            eventually(name, async || {
                // Refused while no way is known.
                let _ = socket.send_to(b"who", service);
                let mut said = [0; 100];
                let (length, _) = socket.recv_from(&mut said).ok()?;
                (said[..length] == *name.as_bytes()).then_some(())
            })
            .await;
            began.elapsed()
        };
        until("b0").await;
        let before = clear_packets(&router);
        eventually("both gateways are probed", async || {
            let status = status_of(&a.client, "a0").await?;
            let carries = |name: &str| {
                let mut tunnels = status.tunnels.iter();
                tunnels.find(|it| it.peer == format!("m--b--{name}"))?.carries
            };
            (carries("b0") == Some(true) && carries("b1") == Some(false)).then_some(())
        })
        .await;
        // Its node is as ready as before, and its process is there.
        let frozen = gateways[0].agent.as_ref().unwrap();
        frozen.signal("-STOP");
        let failover = until("b1").await;
        println!("failover from a frozen gateway: {:.1} s", failover.as_secs_f64());
        assert!(failover < Duration::from_secs(30), "{failover:?}");
        frozen.signal("-CONT");
        let back = until("b0").await;
        println!("back to it: {:.1} s", back.as_secs_f64());
        assert_eq!(clear_packets(&router), before, "packets left in clear text");
    }
}
