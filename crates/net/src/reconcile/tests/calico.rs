//! Interfaces with Calico's names: ours and Calico's own on one node, told apart.

use cni::wire::Pod;
use kernel::netlink::{Mac, Route, SetLink, Veth, VethPeer};

use super::*;

fn key(container: &str) -> AttachmentKey {
    AttachmentKey { container: container.to_owned(), ifname: "eth0".to_owned() }
}

fn web() -> Pod {
    Pod { namespace: "default".to_owned(), name: "web-0".to_owned(), uid: None }
}

/// `echo -n default.web-0 | sha1sum`
const WEB: &str = "cali0d7763386da";

impl Bench {
    async fn serve(&self, operation: Operation, namespace: &Namespace) -> Reply {
        let descriptor = namespace.as_fd().try_clone_to_owned().unwrap();
        let request = Request { wait_ms: 60_000, operation };
        Box::pin(self.service.serve(request, Some(descriptor))).await
    }

    async fn ask(&self, container: &str, pod: Pod, namespace: &Namespace) -> Reply {
        let netns = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_fd().as_raw_fd());
        let add = AddRequest {
            key: key(container),
            network: "pods".to_owned(),
            netns,
            pod: Some(pod),
            pool: None,
            fixed: Default::default(),
        };
        self.serve(Operation::Add(add), namespace).await
    }

    /// Adds a container of a pod; returns its record.
    async fn add(&self, container: &str, pod: Pod, namespace: &Namespace) -> Arc<Attachment> {
        let added = self.ask(container, pod, namespace).await;
        assert!(matches!(added, Reply::Added(_)), "{added:?}");
        let record = self.addresses.view().attachment(&key(container)).cloned().unwrap();
        assert_eq!(self.wiring.verify(&record, Some(namespace)), []);
        record
    }

    async fn del(&self, container: &str, namespace: &Namespace) {
        let (key, network) = (key(container), "pods".to_owned());
        assert_eq!(self.serve(Operation::Del { key, network }, namespace).await, Reply::Done);
    }

    fn serve_all(&self) {
        self.service.health().publish(Health::Well);
        self.tasks.spawn("links", self.service.clone().remove_links(self.tasks.stopping()));
    }

    fn link(&self, name: &str) -> Option<Link> {
        self.wiring.node().netlink(|netlink| netlink.link(LinkRef::Name(name))).unwrap()
    }

    /// An interface as Calico makes it, with a route to its pod.
    fn calicos_own(&self, name: &str, address: &str) -> Namespace {
        let inside = Namespace::create().unwrap();
        let peer =
            VethPeer { name: "eth0", mac: Mac([2, 0, 0, 0, 7, 7]), namespace: inside.as_fd() };
        let mac = Mac([0xee; 6]);
        let made = self.wiring.node().netlink(|netlink| {
            let made = netlink.create_veth(Veth { name, mac, mtu: 1500, group: None, peer })?;
            let up = SetLink { up: true, ..SetLink::default() };
            let route = Route {
                destination: address.parse().unwrap(),
                table: MAIN_TABLE,
                protocol: 80,
                kind: RouteKind::Link(made.index),
            };
            let on = LinkRef::Index(made.index);
            netlink.apply(&[Change::Set(on, up), Change::Route(route)])
        });
        made.unwrap();
        inside
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calicos_own_interfaces_are_left_to_it_and_ours_are_kept() {
    requires!(netns);
    let bench = Bench::named(InterfaceNaming::Calico).await;
    bench.serve_all();
    // Of another pod, and of one that comes to us next, on a node that moves over.
    let (_other, calicos) = (
        bench.calicos_own("cali00000000000", "10.9.0.1/32"),
        bench.calicos_own(WEB, "10.9.0.2/32"),
    );
    let inside = Namespace::create().unwrap();
    let refused = bench.ask("first", web(), &inside).await;
    let Reply::Failed(why) = refused else { panic!("{refused:?}") };
    assert!(why.msg.contains(WEB) && why.msg.contains("another plugin"), "{why:?}");
    assert_eq!(bench.link(WEB).unwrap().mac, Some(Mac([0xee; 6])), "Calico's own is there");
    assert_eq!(bench.addresses.view().attachments().count(), 0, "its address came back");

    drop(calicos);
    while bench.link(WEB).is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let record = bench.add("first", web(), &inside).await;
    assert_eq!(record.host_interface, WEB);
    assert!(reaches_pod(bench.wiring.node().namespace(), &record));
    assert_eq!(bench.reconciler.once().await.unwrap(), ReconcileReport::default());

    // Calico makes routes by interfaces of such names anew, as its own: that is as good.
    let link = bench.link(WEB).unwrap().index;
    for address in record.addresses() {
        let route = Route {
            destination: address.into(),
            table: MAIN_TABLE,
            protocol: 80,
            kind: RouteKind::Link(link),
        };
        bench.wiring.node().netlink(|netlink| netlink.apply(&[Change::Route(route)])).unwrap();
    }
    assert_eq!(bench.wiring.verify(&record, Some(&inside)), []);
    assert_eq!(bench.reconciler.once().await.unwrap(), ReconcileReport::default());

    // Half made: no record has it, and nobody else's is touched.
    bench.addresses.release(&record.key, soon()).await.unwrap();
    let report = bench.reconciler.once().await.unwrap();
    assert_eq!(report, ReconcileReport { removed: 1, ..ReconcileReport::default() });
    assert!(bench.link(WEB).is_none());
    assert!(bench.link("cali00000000000").is_some(), "Calico's own was taken for ours");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pods_next_container_waits_for_the_name_of_the_last_or_takes_another() {
    requires!(netns);
    let bench = Bench::named(InterfaceNaming::Calico).await;
    bench.serve_all();
    let inside = [(); 4].map(|()| Namespace::create().unwrap());
    let first = bench.add("first", web(), &inside[0]).await;
    assert_eq!(first.host_interface, WEB);
    // The runtime has not deleted the first yet.
    let second = bench.add("second", web(), &inside[1]).await;
    assert_eq!(second.host_interface, host_interface(&key("second")));
    assert!(reaches_pod(bench.wiring.node().namespace(), &first));
    assert!(reaches_pod(bench.wiring.node().namespace(), &second));
    // A DEL is answered before its interface is gone.
    bench.del("first", &inside[0]).await;
    let third = bench.add("third", web(), &inside[2]).await;
    assert_eq!(third.host_interface, WEB);
    assert!(reaches_pod(bench.wiring.node().namespace(), &third));
    // ADD twice gives the same twice.
    assert_eq!(bench.add("third", web(), &inside[2]).await, third);
    assert_eq!(bench.reconciler.once().await.unwrap(), ReconcileReport::default());

    // Somebody else has an interface of the name when ours, which is gone already, is deleted.
    bench.wiring.tear_down(&third, &()).unwrap();
    let _calicos = bench.calicos_own(WEB, "10.9.0.2/32");
    bench.del("third", &inside[2]).await;
    let mut changes = bench.addresses.changes();
    while bench.addresses.view().leaving().next().is_some() {
        soon().bound(changes.changed()).await.unwrap();
    }
    assert_eq!(bench.link(WEB).unwrap().mac, Some(Mac([0xee; 6])), "Calico's own was deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_keep_their_interfaces_when_names_change() {
    requires!(netns);
    for [before, after] in [
        [InterfaceNaming::Fairlead, InterfaceNaming::Calico],
        [InterfaceNaming::Calico, InterfaceNaming::Fairlead],
    ] {
        let mut bench = Bench::named(before).await;
        bench.serve_all();
        let [old, new] = [(); 2].map(|()| Namespace::create().unwrap());
        let stays = bench.add("stays", web(), &old).await;

        // The next agent, with the journal and the kernel as they are.
        let wiring = bench.wiring.clone().named(after);
        let (pools, limits) = (NamespacePools::none(), RequestLimits::default());
        let (held, ledger) = (bench.addresses.clone(), bench.ledger.clone());
        bench.service = CniService::new(wiring.clone(), held, pools, ledger, limits);
        let (held, owner) = (bench.addresses.clone(), bench.tasks.clone());
        let ready = bench.readiness.announce("next");
        bench.wiring = wiring.clone();
        bench.reconciler = KernelReconciler::new(wiring, bench.service.clone(), held, owner, ready);
        assert_eq!(bench.reconciler.once().await.unwrap(), ReconcileReport::default());
        bench.serve_all();

        assert!(reaches_pod(bench.wiring.node().namespace(), &stays));
        assert_eq!(bench.add("stays", web(), &old).await, stays);
        let other = Pod { name: "web-1".to_owned(), ..web() };
        let comes = bench.add("comes", other, &new).await;
        let is_calicos = |it: &Attachment| it.host_interface.starts_with("cali");
        assert_eq!(is_calicos(&stays), before == InterfaceNaming::Calico);
        assert_eq!(is_calicos(&comes), after == InterfaceNaming::Calico);
        bench.del("stays", &old).await;
        while bench.link(&stays.host_interface).is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(reaches_pod(bench.wiring.node().namespace(), &comes));
    }
}
