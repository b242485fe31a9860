mod calico;

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use cni::wire::{AddRequest, Operation, Reply, Request};
use kernel::netlink::{Link, RouteKind};
use objects::kinds::Networks;
use stallproof::Ledger;
use stallproof::ledger::LedgerConfig;
use testkit::requires;
use tokio::task::spawn_blocking;

use super::*;
use crate::addresses::{AssignRequest, Assignment};
use crate::datapath::Datapath;
use crate::namespace_pools::NamespacePools;
use crate::service::RequestLimits;
use crate::tests::pods::{self, is_cut_off_from_pod, reaches_pod};
use crate::wiring::{InterfaceNaming, MAIN_TABLE, ROUTE_PROTOCOL, host_interface, is_ours};
use crate::{AttachmentKey, pool};

struct Bench {
    wiring: Wiring,
    addresses: Addresses,
    service: CniService<Wiring>,
    reconciler: KernelReconciler,
    readiness: stallproof::Readiness,
    ledger: Ledger,
    tasks: Tasks,
    _dir: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        Self::named(InterfaceNaming::Fairlead).await
    }

    async fn named(naming: InterfaceNaming) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tasks = Tasks::new("test");
        let addresses = Addresses::open(dir.path(), &Ledger::default(), &tasks).unwrap();
        let networks = Networks {
            ipv4: Some("10.1.0.0/27".parse().unwrap()),
            ipv6: Some("fd00:1::/123".parse().unwrap()),
        };
        addresses.adopt("default-0", pool::DEFAULT, networks, soon()).await.unwrap();
        let wiring = pods::node().named(naming);
        let ledger = Ledger::new(LedgerConfig::default());
        let (pools, limits) = (NamespacePools::none(), RequestLimits::default());
        let (held, ledgers) = (addresses.clone(), ledger.clone());
        let service = CniService::new(wiring.clone(), held, pools, ledgers, limits);
        let readiness = stallproof::Readiness::default();
        let (held, owner, ready) = (addresses.clone(), tasks.clone(), readiness.announce("net"));
        let reconciler = KernelReconciler::new(wiring.clone(), service.clone(), held, owner, ready);
        Self { wiring, addresses, service, reconciler, readiness, ledger, tasks, _dir: dir }
    }

    /// Recorded, but not wired.
    async fn assign(&self, container: &str) -> (Arc<Attachment>, Namespace) {
        let (mut record, namespace) = pods::pod(1, 1);
        record.key = AttachmentKey { container: container.to_owned(), ..record.key };
        let wanted = AssignRequest {
            fixed: Default::default(),
            host_interface: host_interface(&record.key),
            key: record.key,
            network: record.network,
            pod: None,
            pool: record.pool,
            namespace: record.namespace,
            netns: record.netns,
        };
        match self.addresses.assign(wanted, soon()).await.unwrap() {
            Assignment::New(attachment) => (attachment, namespace),
            Assignment::Existing(_) => panic!("{container} twice"),
        }
    }

    async fn pod(&self, container: &str) -> (Arc<Attachment>, Namespace) {
        let (attachment, namespace) = self.assign(container).await;
        self.wiring.set_up(&attachment, &namespace, &()).unwrap();
        (attachment, namespace)
    }

    fn links(&self) -> Vec<Link> {
        ours(&self.wiring)
    }
}

fn ours(wiring: &Wiring) -> Vec<Link> {
    let mut links = wiring.node().netlink(kernel::netlink::Netlink::links).unwrap();
    links.retain(is_ours);
    links
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_vanished_comes_back_what_is_half_made_goes_and_the_dead_give_back() {
    requires!(netns);
    let bench = Bench::new().await;
    let node = bench.wiring.node().clone();
    let (well, _well) = bench.pod("well").await;
    let (routeless, _routeless) = bench.pod("routeless").await;
    let (orphan, _orphan) = bench.pod("orphan").await;
    let (dead, sandbox) = bench.pod("dead").await;
    let (unplugged, _unplugged) = bench.pod("unplugged").await;
    let (begun, never_wired) = bench.assign("begun").await;

    let routes = node.netlink(|netlink| netlink.routes(MAIN_TABLE)).unwrap();
    let link = bench.links().iter().find(|l| l.name == routeless.host_interface).unwrap().index;
    let vanish = routes
        .into_iter()
        .filter(|route| route.kind == RouteKind::Link(link) && route.protocol == ROUTE_PROTOCOL);
    let vanish: Vec<_> = vanish.map(Change::DeleteRoute).collect();
    assert_eq!(vanish.len(), 2);
    node.netlink(|netlink| netlink.apply(&vanish)).unwrap();
    bench.addresses.release(&orphan.key, soon()).await.unwrap();
    bench.wiring.tear_down(&unplugged, &()).unwrap();
    drop((sandbox, never_wired));
    // The kernel takes its time over namespaces.
    while bench.links().iter().any(|link| link.name == dead.host_interface) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    let report = bench.reconciler.once().await.unwrap();

    assert_eq!(
        report,
        ReconcileReport { removed: 1, restored: 2, released: 2, failed: Vec::new() }
    );
    for pod in [&well, &routeless, &unplugged] {
        assert!(reaches_pod(node.namespace(), pod), "{}", pod.key);
    }
    assert!(is_cut_off_from_pod(node.namespace(), &orphan));
    let view = bench.addresses.view();
    assert_eq!(view.attachments().count(), 3);
    assert!(view.attachment(&dead.key).is_none() && view.attachment(&begun.key).is_none());
    assert_eq!(bench.links().len(), 3);
    assert_eq!(bench.reconciler.once().await.unwrap(), ReconcileReport::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_a_request_takes_away_meanwhile_is_left_to_it() {
    requires!(netns);
    let bench = Bench::new().await;
    let (pod, sandbox) = bench.assign("pod").await;
    drop(sandbox);
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let request = bench.service.alone(&pod.key, soon(), async {
        begun.send(()).unwrap();
        // Reconciling has seen the record, and stands behind this request to repair it.
        while bench.service.queued() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        bench.addresses.release(&pod.key, soon()).await.unwrap();
    });
    let reconcile = async {
        has_begun.await.unwrap();
        bench.reconciler.once().await.unwrap()
    };
    let (served, report) = tokio::join!(request, reconcile);
    assert_eq!((served, report), (Some(()), ReconcileReport::default()));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_pods_come_and_go_none_is_harmed() {
    requires!(netns);
    let bench = Bench::new().await;
    let (stays, _stays) = bench.pod("stays").await;
    // Pods come and go until this many attempts have seen them do so.
    const ATTEMPTS: usize = 40;
    let attempts = AtomicUsize::new(0);
    let churn = async {
        let mut round = 0;
        while round < 20 || attempts.load(Ordering::Relaxed) < ATTEMPTS {
            round += 1;
            let names = [0, 1, 2].map(|n| format!("pod-{round}-{n}"));
            let pods = futures::future::join_all(names.iter().map(|name| bench.assign(name))).await;
            for (pod, namespace) in pods {
                let job = async {
                    let wiring = bench.wiring.clone();
                    let work = Arc::clone(&pod);
                    let (wired, inside) =
                        spawn_blocking(move || (wiring.set_up(&work, &namespace, &()), namespace))
                            .await
                            .unwrap();
                    wired.unwrap();
                    assert_eq!(bench.wiring.verify(&pod, Some(&inside)), []);
                    let (wiring, work) = (bench.wiring.clone(), Arc::clone(&pod));
                    spawn_blocking(move || wiring.tear_down(&work, &()).unwrap()).await.unwrap();
                    bench.addresses.release(&pod.key, soon()).await.unwrap();
                };
                bench.service.alone(&pod.key, soon(), job).await.unwrap();
            }
        }
    };
    tokio::pin!(churn);
    loop {
        tokio::select! {
            () = &mut churn => break,
            report = bench.reconciler.once() => {
                let report = report.unwrap();
                attempts.fetch_add(1, Ordering::Relaxed);
                assert_eq!((report.removed, report.released, &report.failed), (0, 0, &vec![]));
            }
        }
    }
    assert!(reaches_pod(bench.wiring.node().namespace(), &stays));
    assert_eq!(bench.reconciler.once().await.unwrap(), ReconcileReport::default());
}

/// A request makes the interfaces before the journal has the record, and removes them after it has none.
#[tokio::test(flavor = "multi_thread")]
async fn while_requests_are_served_none_is_harmed() {
    requires!(netns);
    let bench = Bench::new().await;
    bench.service.health().publish(Health::Well);
    bench.tasks.spawn("links", bench.service.clone().remove_links(bench.tasks.stopping()));
    let serve = |operation, namespace: &Namespace| {
        let descriptor = namespace.as_fd().try_clone_to_owned().unwrap();
        let request = Request { wait_ms: 60_000, operation };
        Box::pin(bench.service.serve(request, Some(descriptor)))
    };
    let requests = async {
        for round in 0..100 {
            let namespace = Namespace::create().unwrap();
            let key =
                AttachmentKey { container: format!("pod-{round}"), ifname: "eth0".to_owned() };
            let network = "pods".to_owned();
            let netns =
                format!("/proc/{}/fd/{}", std::process::id(), namespace.as_fd().as_raw_fd());
            let add = AddRequest {
                key: key.clone(),
                network,
                netns,
                pod: None,
                pool: None,
                fixed: Default::default(),
            };
            let added = serve(Operation::Add(add), &namespace).await;
            assert!(matches!(added, Reply::Added(_)), "{added:?}");
            let record = bench.addresses.view().attachment(&key).cloned().unwrap();
            assert_eq!(bench.wiring.verify(&record, Some(&namespace)), []);
            let network = "pods".to_owned();
            let deleted = serve(Operation::Del { key, network }, &namespace).await;
            assert_eq!(deleted, Reply::Done);
        }
    };
    tokio::pin!(requests);
    loop {
        tokio::select! {
            () = &mut requests => break,
            report = bench.reconciler.once() => {
                // A pod that was finished after the kernel was read gets nothing that it has not.
                let report = report.unwrap();
                assert_eq!((report.removed, report.released, &report.failed), (0, 0, &vec![]));
            }
        }
    }
    let mut changes = bench.addresses.changes();
    while bench.addresses.view().leaving().next().is_some() {
        soon().bound(changes.changed()).await.unwrap();
    }
    assert_eq!(bench.links(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_comes_while_the_kernel_is_read_is_not_taken_for_half_made() {
    requires!(netns);
    let bench = Arc::new(Bench::new().await);
    let (sent, made) = tokio::sync::oneshot::channel();
    let (runtime, busy) = (tokio::runtime::Handle::current(), Arc::clone(&bench));
    // The pod is recorded and wired after the attempt began, and before it has read the kernel.
    let fetch = move |netlink: &mut Netlink| {
        assert!(sent.send(runtime.block_on(busy.pod("late"))).is_ok());
        KernelState::fetch(netlink)
    };
    let report = bench.reconciler.attempt(fetch).await.unwrap();
    assert_eq!(report, ReconcileReport::default());
    let (pod, _inside) = made.await.unwrap();
    assert!(reaches_pod(bench.wiring.node().namespace(), &pod));
}

#[tokio::test(flavor = "multi_thread")]
async fn serving_begins_when_the_first_is_over() {
    requires!(netns);
    let bench = Bench::new().await;
    let (lost, _lost) = bench.assign("lost").await;
    let (service, health) = (bench.service.clone(), bench.service.health());
    let Bench { reconciler, readiness, ledger, tasks, .. } = bench;
    let (key, stop) = ("node".to_owned(), tasks.stopping());
    let run = Box::pin(objects::reconcile("reconcile-kernel", key, PACE, reconciler, ledger, stop));
    // Whoever works on the key of a record to repair holds up the first attempt.
    let mut running = None;
    let held = service.alone(&lost.key, soon(), async {
        running = Some(tasks.spawn("reconcile", run));
        while service.queued() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(matches!(&*health.load(), Health::Reconciling(_)));
        assert!(!readiness.report().ready);
    });
    let mut changes = health.subscribe();
    held.await.unwrap();
    soon().bound(changes.changed()).await.unwrap();
    assert_eq!(*health.load(), Health::Well);
    tasks.stop("over");
    running.unwrap().await.unwrap();
    assert!(readiness.report().ready);
}
