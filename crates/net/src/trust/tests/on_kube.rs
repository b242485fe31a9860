//! One node in the wrong hands, on a real API server and with real routes.

use std::time::Duration;

use kernel::netlink::{Route, RouteKind};
use kube::Api;
use kube::api::PostParams;
use objects::{Id, Objects};
use prometheus_client::metrics::gauge::Gauge;
use serde_json::json;
use stallproof::ledger::LedgerConfig;
use stallproof::{Deadline, Ledger, Tasks};
use tempfile::TempDir;
use testkit::{KubeServer, requires};

use super::*;
use crate::Addresses;
use crate::claims::{BlockClaims, NodeIdentity};
use crate::datapath::Datapath;
use crate::overlay::{self, DeviceSettings};
use crate::routes::{self, RouteReconciler};
use crate::tests::pods::{self, pod, reaches_pod};
use crate::wiring::{MAIN_TABLE, ROUTE_PROTOCOL, Wiring};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(Deadline::after(Duration::from_secs(60)).bound(wait).await.is_ok(), "{what}");
}

async fn make_node(client: &kube::Client, name: &str, addresses: &[&str]) {
    let nodes = Api::<Node>::all(client.clone());
    let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    let mut node = nodes.create(&PostParams::default(), &node).await.unwrap();
    let has = addresses.iter().map(|address| json!({"type": "InternalIP", "address": address}));
    let status = json!({"addresses": has.collect::<Vec<_>>()});
    node.status = Some(serde_json::from_value(status).unwrap());
    nodes.replace_status(name, &PostParams::default(), &node).await.unwrap();
}

/// The routes to other nodes and the holes that are ours, as `NETWORK → WHERE`.
fn ours(wiring: &Wiring) -> Vec<String> {
    let found = wiring.node().netlink(|netlink| netlink.routes(MAIN_TABLE)).unwrap();
    let ours = found.iter().filter(|route| route.protocol == ROUTE_PROTOCOL);
    let told = |route: &Route| match route.kind {
        RouteKind::Via(via) => Some(format!("{} → {via}", route.destination)),
        RouteKind::Blackhole => Some(format!("{} → nowhere", route.destination)),
        _ => None,
    };
    let mut ours: Vec<_> = ours.filter_map(told).collect();
    ours.sort();
    ours
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_in_the_wrong_hands_does_not_reroute_the_others() {
    requires!(netns);
    requires!(kube);
    let server = KubeServer::start().await;
    let client = server.client().await;
    objects::install(client.clone(), Deadline::after(Duration::from_secs(60))).await.unwrap();
    let objects = Objects::kubernetes(client.clone(), "test");
    make_node(&client, "a", &["10.0.0.1", "fd00::1"]).await;
    make_node(&client, "b", &["10.0.0.2", "fd00::2"]).await;
    let subnets = [("10.2.0.0/26", "fd00:2::/122"), ("10.3.0.0/27", "fd00:3::/123")];
    let pool = pool_object("default", 0, 5, &subnets);
    let pool = objects::kinds::AddressPool::new("default", pool.spec);
    objects.create(&pool, soon()).await.unwrap();

    // What the machine of b says. The first is what it may say; the others are the attack.
    let said = [
        block("default-0", "b", FIRST, &["10.0.0.2", "fd00::2"]),
        block("default-1", "b", SECOND, &["10.0.0.200", "fd00::1"]),
        block("default-2", "late", ["10.3.0.0/27", "fd00:3::/123"], &["10.0.0.2", "fd00::2"]),
        block("default-9", "b", ["10.96.0.0/12", ""], &["10.0.0.2"]),
        block("evil-0", "b", ["10.0.0.0/8", ""], &["10.0.0.2"]),
        block("evil-1", "b", ["192.0.0.0/8", ""], &["10.0.0.2"]),
        block("evil-2", "ghost", ["10.4.0.0/27", ""], &["10.0.0.2"]),
        block("evil-3", "a", ["192.0.2.0/24", ""], &[]),
    ];
    for block in &said {
        objects.create(block, soon()).await.unwrap();
    }
    // Half of all addresses at once the schema does not take; a server with an older one may have it.
    for half in ["0.0.0.0/1", "128.0.0.0/1"] {
        let refused = objects.create(&block("evil-9", "b", [half, ""], &[]), soon()).await;
        assert!(matches!(refused, Err(objects::Error::Invalid { .. })), "{refused:?}");
    }

    let [a, b] = pods::two_nodes();
    let (on_a, inside_a) = pod(1, 1);
    let (on_b, inside_b) = pod(2, 1);
    a.set_up(&on_a, &inside_a, &()).unwrap();
    b.set_up(&on_b, &inside_b, &()).unwrap();
    // The way back.
    let back = [routes::RoutedBlock {
        node: "a".to_owned(),
        networks: ["10.1.0.0/27", "fd00:1::/123"].map(|net| net.parse().unwrap()).to_vec(),
        via: ["10.0.0.1", "fd00::1"].map(|address| address.parse().unwrap()).to_vec(),
        overlay: Default::default(),
    }];
    routes::apply(b.node(), &routes::tests::inputs("b", &back, None)).unwrap();

    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let addresses = Addresses::open(dir.path(), &Ledger::default(), &tasks).unwrap();
    let identity = NodeIdentity { name: "a".to_owned(), addresses: Snapshot::default() };
    let ledger = Ledger::new(LedgerConfig::default());
    let claims = BlockClaims::start(objects.clone(), identity, addresses.clone(), &ledger, &tasks);
    let nodes = Snapshot::<NodeAddresses>::default();
    let lister = NodeLister::new(objects.clone(), claims.blocks(), nodes.clone());
    let (key, stop) = ("a".to_owned(), tasks.stopping());
    let list = objects::reconcile("list-nodes", key, PACE, lister, ledger.clone(), stop);
    tasks.spawn("nodes", list);
    let trust = BlockTrust {
        node: "a".to_owned(),
        blocks: claims.blocks(),
        pools: claims.pools(),
        nodes: Some(nodes),
        believed: Snapshot::default(),
    };
    let doubted = Gauge::default();
    let (node, counted) = (a.node().clone(), doubted.clone());
    let (held, owner) = (addresses.clone(), tasks.clone());
    let device = DeviceSettings { port: overlay::PORT, mtu: 1450 };
    let keep = RouteReconciler::new(node, trust.clone(), counted, held, None, device, owner);
    let (key, stop) = ("a".to_owned(), tasks.stopping());
    let keep = objects::reconcile("routes", key, routes::PACE, keep, ledger, stop);
    tasks.spawn("routes", keep);

    until("seven blocks are doubted", || doubted.get() == 7).await;
    // Both pods' networks, where the Node of b says; nothing else.
    let expected = [
        "10.2.0.0/27 → 10.0.0.2",
        "10.2.0.32/27 → 10.0.0.2",
        "fd00:2::/123 → fd00::2",
        "fd00:2::20/123 → fd00::2",
    ];
    until("b is routed to", || ours(&a).len() >= expected.len()).await;
    assert_eq!(ours(&a), expected);
    assert!(reaches_pod(&inside_a, &on_b));
    assert!(addresses.view().blocks().next().is_none(), "evil-3 was taken for this node's own");
    until("that is told", || !claims.troubles().is_empty()).await;
    assert!(claims.troubles()[0].contains("evil-3 is not taken for this node's"));

    // A Node that comes is found, although nobody watches.
    make_node(&client, "late", &["10.0.0.2", "fd00::2"]).await;
    until("it is believed", || doubted.get() == 6).await;
    let late = ["10.3.0.0/27 → 10.0.0.2", "fd00:3::/123 → fd00::2"].map(str::to_owned);
    until("late is routed to", || late.iter().all(|route| ours(&a).contains(route))).await;
    let id = Id::cluster("default-2");
    objects.delete::<AddressBlock>(&id, objects::Expected::Any, soon()).await.unwrap();
    // This node claims what is free.
    until("the route to late is gone", || !late.iter().any(|route| ours(&a).contains(route))).await;

    // A Node that goes takes nothing away while its block is there; the block that goes does.
    let nodes = Api::<Node>::all(client);
    nodes.delete("b", &kube::api::DeleteParams::default()).await.unwrap();
    let id = Id::cluster("default-1");
    objects.delete::<AddressBlock>(&id, objects::Expected::Any, soon()).await.unwrap();
    let via_b = |route: &String| route.ends_with(" → 10.0.0.2") || route.ends_with(" → fd00::2");
    until("its route is gone", || ours(&a).iter().filter(|route| via_b(route)).count() == 2).await;
    let left: Vec<_> = ours(&a).into_iter().filter(via_b).collect();
    assert_eq!(left, ["10.2.0.0/27 → 10.0.0.2", "fd00:2::/123 → fd00::2"]);
    assert!(tasks.shutdown(Duration::from_secs(30)).await.is_empty());
}
