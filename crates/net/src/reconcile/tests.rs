use kernel::netlink::{Link, RouteKind};
use objects::kinds::Networks;
use stallproof::Ledger;
use stallproof::ledger::LedgerConfig;
use testkit::requires;
use tokio::task::spawn_blocking;

use super::*;
use crate::addresses::{Assigned, Wanted};
use crate::attach::Limits;
use crate::facts::Facts;
use crate::pods::{self, is_cut_off_from_pod, reaches_pod};
use crate::wiring::{MAIN_TABLE, ROUTE_PROTOCOL, host_interface};
use crate::{Key, pool};

struct Ground {
    wiring: Wiring,
    addresses: Addresses,
    attach: Attach<Wiring>,
    reconcile: Reconcile,
    tasks: Tasks,
    _dir: tempfile::TempDir,
}

impl Ground {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tasks = Tasks::new("test");
        let addresses = Addresses::open(dir.path(), &tasks).unwrap();
        let networks = Networks {
            ipv4: Some("10.1.0.0/27".parse().unwrap()),
            ipv6: Some("fd00:1::/123".parse().unwrap()),
        };
        addresses.adopt("default-0", pool::DEFAULT, networks, soon()).await.unwrap();
        let wiring = pods::node();
        let ledger = Ledger::new(LedgerConfig::default());
        let limits = Limits::default();
        let attach = Attach::new(wiring.clone(), addresses.clone(), Facts::none(), ledger, limits);
        let reconcile =
            Reconcile::new(wiring.clone(), attach.clone(), addresses.clone(), tasks.clone());
        Self { wiring, addresses, attach, reconcile, tasks, _dir: dir }
    }

    /// Recorded, but not wired.
    async fn assign(&self, container: &str) -> (Arc<Attachment>, Namespace) {
        let (mut record, namespace) = pods::pod(1, 1);
        record.key = Key { container: container.to_owned(), ..record.key };
        let wanted = Wanted {
            host_interface: host_interface(&record.key),
            key: record.key,
            network: record.network,
            pod: None,
            pool: record.pool,
            namespace: record.namespace,
            netns: record.netns,
        };
        match self.addresses.assign(wanted, soon()).await.unwrap() {
            Assigned::New(attachment) => (attachment, namespace),
            Assigned::Again(_) => panic!("{container} twice"),
        }
    }

    async fn pod(&self, container: &str) -> (Arc<Attachment>, Namespace) {
        let (attachment, namespace) = self.assign(container).await;
        self.wiring.connect(&attachment, &namespace, &()).unwrap();
        (attachment, namespace)
    }

    fn links(&self) -> Vec<Link> {
        let mut links = self.wiring.node().netlink(kernel::netlink::Netlink::links).unwrap();
        links.retain(|link| cni::interface::is_ours(&link.name));
        links
    }
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_vanished_comes_back_what_is_half_made_goes_and_the_dead_give_back() {
    requires!(netns);
    let ground = Ground::new().await;
    let node = ground.wiring.node().clone();
    let (well, _well) = ground.pod("well").await;
    let (routeless, _routeless) = ground.pod("routeless").await;
    let (orphan, _orphan) = ground.pod("orphan").await;
    let (dead, sandbox) = ground.pod("dead").await;
    let (unplugged, _unplugged) = ground.pod("unplugged").await;
    let (begun, never_wired) = ground.assign("begun").await;

    let routes = node.netlink(|netlink| netlink.routes(MAIN_TABLE)).unwrap();
    let link = ground.links().iter().find(|l| l.name == routeless.host_interface).unwrap().index;
    let vanish = routes
        .into_iter()
        .filter(|route| route.kind == RouteKind::Link(link) && route.protocol == ROUTE_PROTOCOL);
    let vanish: Vec<_> = vanish.map(Change::DeleteRoute).collect();
    assert_eq!(vanish.len(), 2);
    node.netlink(|netlink| netlink.apply(&vanish)).unwrap();
    ground.addresses.release(&orphan.key, soon()).await.unwrap();
    ground.wiring.disconnect(&unplugged, &()).unwrap();
    drop((sandbox, never_wired));
    // The kernel takes its time over namespaces.
    while ground.links().iter().any(|link| link.name == dead.host_interface) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    let report = ground.reconcile.once().await.unwrap();

    assert_eq!(report, Report { removed: 1, restored: 2, released: 2, failed: Vec::new() });
    for pod in [&well, &routeless, &unplugged] {
        assert!(reaches_pod(node.namespace(), pod), "{}", pod.key);
    }
    assert!(is_cut_off_from_pod(node.namespace(), &orphan));
    let view = ground.addresses.view();
    assert_eq!(view.attachments().count(), 3);
    assert!(view.attachment(&dead.key).is_none() && view.attachment(&begun.key).is_none());
    assert_eq!(ground.links().len(), 3);
    assert_eq!(ground.reconcile.once().await.unwrap(), Report::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_a_request_takes_away_meanwhile_is_left_to_it() {
    requires!(netns);
    let ground = Ground::new().await;
    let (pod, sandbox) = ground.assign("pod").await;
    drop(sandbox);
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let request = ground.attach.alone(&pod.key, soon(), async {
        begun.send(()).unwrap();
        // Long enough for reconciling to stand behind it; what it finds then is the same.
        tokio::time::sleep(Duration::from_millis(200)).await;
        ground.addresses.release(&pod.key, soon()).await.unwrap();
    });
    let reconcile = async {
        has_begun.await.unwrap();
        ground.reconcile.once().await.unwrap()
    };
    let (served, report) = tokio::join!(request, reconcile);
    assert_eq!((served, report), (Some(()), Report::default()));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_pods_come_and_go_none_is_harmed() {
    requires!(netns);
    let ground = Ground::new().await;
    let (stays, _stays) = ground.pod("stays").await;
    let churn = async {
        for round in 0..20 {
            let names = [0, 1, 2].map(|n| format!("pod-{round}-{n}"));
            let pods =
                futures::future::join_all(names.iter().map(|name| ground.assign(name))).await;
            for (pod, namespace) in pods {
                let job = async {
                    let wiring = ground.wiring.clone();
                    let work = Arc::clone(&pod);
                    let (wired, inside) =
                        spawn_blocking(move || (wiring.connect(&work, &namespace, &()), namespace))
                            .await
                            .unwrap();
                    wired.unwrap();
                    ground.wiring.verify(&pod, Some(&inside)).unwrap();
                    let (wiring, work) = (ground.wiring.clone(), Arc::clone(&pod));
                    spawn_blocking(move || wiring.disconnect(&work, &()).unwrap()).await.unwrap();
                    ground.addresses.release(&pod.key, soon()).await.unwrap();
                };
                ground.attach.alone(&pod.key, soon(), job).await.unwrap();
            }
        }
    };
    tokio::pin!(churn);
    loop {
        tokio::select! {
            () = &mut churn => break,
            report = ground.reconcile.once() => {
                let report = report.unwrap();
                assert_eq!((report.removed, report.released, &report.failed), (0, 0, &vec![]));
            }
        }
    }
    assert!(reaches_pod(ground.wiring.node().namespace(), &stays));
    assert_eq!(ground.reconcile.once().await.unwrap(), Report::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn serving_begins_when_the_first_is_over() {
    requires!(netns);
    let ground = Ground::new().await;
    let readiness = stallproof::Readiness::default();
    let ready = readiness.announce("net");
    let health = ground.attach.health();
    assert!(matches!(&*health.load(), Health::Reconciling(_)));
    let mut changes = health.subscribe();
    let run = ground.reconcile.clone().run(health.clone(), ready, ground.tasks.stopping());
    let running = ground.tasks.spawn("reconcile", run);
    changes.changed().await;
    assert_eq!(*health.load(), Health::Well);
    ground.tasks.stop("over");
    running.await.unwrap();
    assert!(readiness.report().ready);
}
