//! Pods of three nodes whose packets to each other are encrypted, or refused.

#![allow(clippy::unwrap_used, reason = "tests")]

mod encrypted_pods;

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use encrypted_pods::*;
use kube::Api;
use kube::api::DeleteParams;
use objects::kinds::WireguardNode;
use serde_json::json;
use testkit::requires;

#[tokio::test(flavor = "multi_thread")]
async fn kube_what_is_required_is_encrypted_or_refused() {
    requires!(kube, netns, tun, nft);
    let stage = Stage::new().await;
    let (sandbox, capture) = (&stage.sandbox, &stage.capture);
    let (mut a, mut b) = (stage.machine(0).await, stage.machine(1).await);
    let mut c = stage.machine(2).await;
    // The capture sees what it should: nodes' own packets are not encrypted.
    let between_nodes = b.here().answers();
    assert_eq!(a.here().until_heard(between_nodes), a.address);
    eventually("the capture sees the marker", || (capture.clear() > 0).then_some(()));

    a.start("required");
    b.start("required");
    let (p, beside, q) = (a.pod(sandbox, "p"), a.pod(sandbox, "p2"), b.pod(sandbox, "q"));
    let before = capture.clear();
    let (at_q, at_b, at_beside, echo) =
        (q.answers(), b.here().answers(), beside.answers(), q.echo());
    // Everybody is seen with the address that is his, although the pool is masqueraded.
    assert_eq!(p.until_heard(at_q), p.address);
    assert_eq!(p.until_heard(at_b), p.address);
    assert_eq!(a.here().until_heard(at_q), a.address);
    assert_eq!(p.until_heard(at_beside), p.address);
    eventually("the capture sees WireGuard's packets", || {
        (capture.encrypted.load(Ordering::Relaxed) > 0).then_some(())
    });
    // The pod's interface has room for what goes around its packets.
    let link = run(p.host.as_ref().unwrap().command("ip").args(["link", "show", "dev", "eth0"]));
    assert!(link.contains("mtu 1420"), "{link}");
    a.until_encrypted(1);
    let (_, nodes) = a.says("status");
    assert_eq!(
        (&nodes[0]["implementation"], &nodes[0]["mode"]),
        (&json!("userspace"), &json!("required"))
    );
    a.until_well();

    // A node cannot send from what is another's, nor from an address that nobody has.
    let stolen = SocketAddr::new("10.64.0.200".parse().unwrap(), 0);
    for address in [beside.address, stolen.ip()] {
        let host = b
            .host
            .command("ip")
            .args(["address", "add", &format!("{address}/32"), "dev", "lo"])
            .output();
        assert!(host.unwrap().status.success());
        let thief = b.namespace.run_in(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
        let victim = p.udp();
        let to = SocketAddr::new(p.address, victim.local_addr().unwrap().port());
        for _ in 0..20 {
            let _ = thief.send_to(MARKER, to);
        }
        // What is its own comes through, so that the others had the time to. A datagram may be lost on a
        // machine that has no time for it.
        let honest = q.udp();
        let mut said = [0; 100];
        let (length, from) = eventually("the honest one is heard", || {
            honest.send_to(b"honest", to).unwrap();
            victim.recv_from(&mut said).ok()
        });
        assert_eq!((&said[..length], from.ip()), (&b"honest"[..], q.address));
        run(b.host.command("ip").args(["address", "del", &format!("{address}/32"), "dev", "lo"]));
    }

    // An agent is killed. Its interface is gone with it, and nothing leaves.
    let load = Load::start(p.connect(echo));
    load.goes_on("a connection");
    a.end("-KILL");
    let stray = p.udp();
    let unknown: SocketAddr = "10.64.0.250:9".parse().unwrap();
    for _ in 0..50 {
        for to in [at_q, at_b, unknown] {
            let _ = stray.send_to(MARKER, to);
            let _ = a.here().udp().send_to(MARKER, if to == at_b { at_q } else { to });
        }
        thread::sleep(Duration::from_millis(10));
    }
    let refused = a.here().udp().send_to(MARKER, at_q).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::HostUnreachable, "{refused}");
    // Pods of the same node go on.
    assert_eq!(p.until_heard(at_beside), p.address);
    a.start("required");
    load.goes_on("the connection after the agent was killed");

    // A node joins: its block is refused before its key is known, and reached after.
    c.start("required");
    let r = c.pod(sandbox, "r");
    // From its first moment on a pod says nothing in clear text.
    let first = r.udp();
    for _ in 0..20 {
        let _ = first.send_to(MARKER, at_q);
        thread::sleep(Duration::from_millis(5));
    }
    let at_r = r.answers();
    assert_eq!(p.until_heard(at_r), p.address);
    assert_eq!(r.until_heard(at_q), r.address);
    // It gets another key.
    c.end("-KILL");
    std::fs::remove_file(c.dir.path().join("data/wireguard/key")).unwrap();
    c.start("required");
    assert_eq!(r.until_heard(at_q), r.address);
    assert_eq!(p.until_heard(at_r), p.address);
    // It leaves, and is named.
    c.end("-KILL");
    let keys = Api::<WireguardNode>::all(stage.client.clone());
    keys.delete("n2", &DeleteParams::default()).await.unwrap();
    eventually("a node without a key is named", || {
        let (code, faults) = a.says("check");
        let named = faults.iter().find(|fault| fault["what"] == "node n2")?;
        let why = named["fault"].as_str().unwrap();
        (code == 1 && why.starts_with("its pods are not reached: it has said no key")).then_some(())
    });
    assert_eq!(a.says("status").0, 1);
    let _ = p.asks(at_r);
    load.goes_on("the connection while others come and go");
    load.stop();
    assert_eq!(capture.clear(), before, "packets left in clear text");

    // Without the guards they would have.
    a.end("-KILL");
    run(a.host.command("ip").args(["route", "flush", "table", "117"]));
    eventually("the guard kept it", || {
        let _ = p.udp().send_to(MARKER, at_q);
        (capture.clear() > before).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_encryption_is_rolled_out_and_taken_back_under_load() {
    requires!(kube, netns, tun, nft);
    let stage = Stage::new().await;
    let (sandbox, capture) = (&stage.sandbox, &stage.capture);
    let mut machines = vec![stage.machine(0).await, stage.machine(1).await];
    machines.iter_mut().for_each(|machine| machine.start("none"));
    let [p, q] = [0, 1].map(|i: usize| machines[i].pod(sandbox, &format!("p{i}")));
    let load = Load::start(p.connect(q.echo()));
    load.goes_on("in clear");
    assert!(capture.clear() > 0);

    machines[0].restart("preferred");
    load.goes_on("one node prefers it");
    eventually("the node that does not encrypt is named", || {
        let (code, faults) = machines[0].says("check");
        let named = faults.iter().find(|fault| fault["what"] == "node n1")?;
        let why = named["fault"].as_str().unwrap();
        (code == 1 && why.starts_with("packets to its pods are not encrypted")).then_some(())
    });
    machines[1].restart("preferred");
    load.goes_on("both prefer it");
    machines.iter().for_each(|machine| machine.until_encrypted(1));
    let until_silent = || {
        eventually("nothing more is sent in clear", || {
            let before = capture.clear();
            load.goes_on("encrypted");
            (capture.clear() == before).then_some(())
        });
    };
    until_silent();
    for i in [0, 1] {
        // While it is replaced, packets go beside it again.
        machines[i].restart("required");
        load.goes_on("one more requires it");
        machines[i].until_encrypted(1);
    }
    let before = capture.clear();
    load.goes_on("both require it");
    assert_eq!(capture.clear(), before, "packets left in clear text");
    for mode in ["preferred", "none"] {
        for i in [0, 1] {
            machines[i].restart(mode);
            load.goes_on(&format!("one more has it {mode}"));
        }
    }
    eventually("packets go in clear again", || {
        load.goes_on("off");
        (capture.clear() > before).then_some(())
    });
    load.stop();
    // Nothing of it is left.
    for machine in &machines {
        for table in ["115", "117"] {
            let left = machine.host.command("ip").args(["route", "show", "table", table]).output();
            assert_eq!(left.unwrap().stdout, b"", "table {table} of {}", machine.name);
        }
        let rules = run(machine.host.command("ip").args(["rule", "show"]));
        assert!(!rules.contains("lookup 11"), "{rules}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_what_is_required_is_encrypted_or_refused_by_ipv6() {
    requires!(kube, netns, tun, nft);
    let stage = Stage::new().await;
    let (sandbox, capture) = (&stage.sandbox, &stage.capture);
    let (mut a, mut b) = (stage.machine(0).await, stage.machine(1).await);
    a.start("required");
    b.start("required");
    let (p, q) = (a.pod(sandbox, "p").by_ipv6(), b.pod(sandbox, "q").by_ipv6());
    let before = capture.clear();
    let (at_q, at_b) = (q.answers(), b.here().by_ipv6().answers());
    let here = a.here().by_ipv6();
    assert_eq!(p.until_heard(at_q), p.address);
    assert_eq!(p.until_heard(at_b), p.address);
    assert_eq!(here.until_heard(at_q), here.address);
    let load = Load::start(p.connect(q.echo()));
    load.goes_on("a connection");
    a.end("-KILL");
    let stray = p.udp();
    for _ in 0..20 {
        let _ = stray.send_to(MARKER, at_q);
        let _ = stray.send_to(MARKER, at_b);
        let _ = here.udp().send_to(MARKER, at_q);
        thread::sleep(Duration::from_millis(10));
    }
    let refused = here.udp().send_to(MARKER, at_q).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::HostUnreachable, "{refused}");
    a.start("required");
    load.goes_on("the connection after the agent was killed");
    load.stop();
    assert_eq!(capture.clear(), before, "packets left in clear text");

    // Without the guards they would have.
    a.end("-KILL");
    run(a.host.command("ip").args(["-6", "route", "flush", "table", "117"]));
    eventually("the guard kept it", || {
        let _ = p.udp().send_to(MARKER, at_q);
        (capture.clear() > before).then_some(())
    });
}
