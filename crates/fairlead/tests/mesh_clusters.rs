//! Three clusters of real processes that reach each other, and what `fairlead mesh check` says of them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod mesh_machines;

use std::time::{Duration, Instant};

use mesh_machines::controllers::Controller;
use mesh_machines::*;
use serde_json::Value;
use testkit::{Sandbox, requires};

/// What `fairlead mesh check` says: its exit code, and its reasons.
fn check(controller: &Controller, from: &str, to: &str) -> (i32, Value) {
    let (code, out, err) = controller.fairlead(&["mesh", "check", "m", from, to, "-o", "json"]);
    (code, serde_json::from_str(&out).unwrap_or_else(|_| Value::from(err)))
}

async fn until_checked(controller: &Controller, from: &str, to: &str, reason: Option<&str>) {
    let end = Instant::now() + PATIENCE;
    loop {
        let (code, said) = check(controller, from, to);
        let is_so = match reason {
            None => code == 0 && said["reaches"] == true && said["tunnels"].as_u64() > Some(0),
            Some(reason) => code == 1 && said["reasons"][0]["reason"] == reason,
        };
        if is_so {
            return;
        }
        assert!(Instant::now() < end, "{from} to {to}, not {reason:?}: {code} {said}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

mod kube_servers {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn three_clusters_reach_each_other_and_a_check_says_where_packets_end() {
        requires!(kube, netns, tun, nft);
        let (sandbox, dir) = (Sandbox::new(), tempfile::tempdir().unwrap());
        let router = watching_router(&sandbox);
        let (a, b, c) =
            tokio::join!(Cluster::start("a", 0), Cluster::start("b", 1), Cluster::start("c", 2));
        let clusters = [&a, &b, &c];
        let mut machines = Vec::new();
        for cluster in clusters {
            machines.push(Machine::new(&sandbox, &router, cluster, 0).await);
        }
        machines.iter_mut().for_each(Machine::start);
        let controller = planned(&clusters, dir.path(), "127.78.0.3", &[]).await;
        let echoes: Vec<_> = machines.iter().map(Machine::echo).collect();
        let each_reaches_each = || {
            for (i, from) in machines.iter().enumerate() {
                for (j, to) in echoes.iter().enumerate().filter(|(j, _)| *j != i) {
                    round_trip(&mut from.until_connected(*to), (10 * i + j) as u64);
                }
            }
        };
        // Before nodes hear of each other nothing tells them what a mesh is to carry.
        each_reaches_each();
        let before = clear_packets(&router);
        each_reaches_each();
        for (from, to) in [("a", "b"), ("b", "c"), ("c", "a")] {
            until_checked(&controller, from, to, None).await;
        }

        // One of them answers no more, and its node and its cluster are as ready as before.
        machines[2].agent.as_ref().unwrap().signal("-STOP");
        until_checked(&controller, "a", "c", Some("TunnelDown")).await;
        let (_, said) = check(&controller, "a", "c");
        let why = said["reasons"][0]["message"].as_str().unwrap();
        assert!(why.starts_with("a/a0 to c/c0: probes are not answered"), "{why}");
        assert_eq!(check(&controller, "a", "b").0, 0, "the others reach each other");
        round_trip(&mut machines[0].until_connected(echoes[1]), 1);
        machines[2].agent.as_ref().unwrap().signal("-CONT");
        until_checked(&controller, "a", "c", None).await;
        each_reaches_each();
        assert_eq!(clear_packets(&router), before, "packets left in clear text");
    }
}
