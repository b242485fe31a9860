//! Requests, with a datapath that fails and hangs as it is told to.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;

use cni::spec::{Code, Error, Success};
use cni::wire::AddRequest;
use kernel::netlink::Mac;
use kernel::netns;
use objects::kinds::Networks;
use parking_lot::Condvar;
use stallproof::ledger::{Filter, LedgerConfig};

use super::*;
use crate::addresses::AssignError;
use crate::datapath::{Coming, PodInterfaces, Progress};
use crate::node::NodeError;
use crate::wiring::{Cause, Fault, WiringError};
use crate::{Attachment, NamespaceId};

#[derive(Clone, Default)]
struct Fake(Arc<FakeInner>);

#[derive(Default)]
struct FakeInner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Where each key is connected.
    connected: HashMap<AttachmentKey, NamespaceId>,
    /// Containers whose set-up, or tear-down, hangs.
    hang: HashSet<(String, &'static str)>,
    hanging: usize,
    fail: Option<fn() -> WiringError>,
    faults: Vec<Fault>,
    /// How often the kernel was touched.
    calls: usize,
}

impl Fake {
    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.state.lock());
        self.0.changed.notify_all();
    }

    fn get<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.0.state.lock())
    }

    fn pass(
        &self,
        key: &AttachmentKey,
        call: &'static str,
        progress: &dyn Progress,
    ) -> Result<(), WiringError> {
        let failed = |cause: Cause| WiringError { step: call, cause, left: None };
        progress.step(call).map_err(|gone| failed(gone.into()))?;
        let mut state = self.0.state.lock();
        state.calls += 1;
        let at = (key.container.clone(), call);
        state.hanging += 1;
        while state.hang.contains(&at) {
            self.0.changed.wait(&mut state);
        }
        state.hanging -= 1;
        if let Some(fail) = state.fail {
            return Err(fail());
        }
        drop(state);
        progress.step("finish").map_err(|gone| failed(gone.into()))
    }
}

impl Datapath for Fake {
    type Namespace = NamespaceId;

    fn hold(&self, descriptor: OwnedFd) -> Result<NamespaceId, netns::Error> {
        let file = File::from(descriptor).metadata().map_err(netns::Error::Examine)?;
        Ok(NamespaceId { device: file.dev(), inode: file.ino() })
    }

    fn id(&self, namespace: &NamespaceId) -> NamespaceId {
        *namespace
    }

    fn set_up_when(
        &self,
        coming: &Coming<'_>,
        namespace: &NamespaceId,
        progress: &dyn Progress,
    ) -> Result<PodInterfaces, WiringError> {
        self.pass(coming.key, "set_up", progress)?;
        let failed = |cause| WiringError { step: "set_up", cause, left: None };
        let attachment = (coming.chosen)().ok_or_else(|| failed(Cause::NoAddress))?;
        if !(coming.recorded)() {
            return Err(failed(Cause::NoAddress));
        }
        self.set(|state| {
            state.connected.insert(attachment.key.clone(), *namespace);
        });
        Ok(PodInterfaces {
            host_interface: attachment.host_interface.clone(),
            host_mac: Mac([2, 0, 0, 0, 0, 1]),
            pod_interface: attachment.key.ifname.clone(),
            pod_mac: Mac([2, 0, 0, 0, 0, 2]),
            mtu: 1500,
            gateway_v4: None,
            gateway_v6: None,
        })
    }

    fn tear_down(
        &self,
        attachment: &Attachment,
        progress: &dyn Progress,
    ) -> Result<(), WiringError> {
        self.pass(&attachment.key, "tear_down", progress)?;
        self.set(|state| {
            state.connected.remove(&attachment.key);
        });
        Ok(())
    }

    fn verify(&self, _: &Attachment, _: Option<&NamespaceId>) -> Vec<Fault> {
        self.get(|state| state.faults.clone())
    }
}

struct Bench {
    kernel: Fake,
    service: CniService<Fake>,
    addresses: Addresses,
    ledger: Ledger,
    namespace: File,
    _dir: tempfile::TempDir,
    _tasks: Tasks,
}

/// No request of these tests is to be late, unless it hangs.
const LONG: u64 = 60_000;
/// What a request that is to hang waits.
const SHORT: u64 = 100;

impl Bench {
    async fn new() -> Self {
        Self::with(RequestLimits::default()).await
    }

    async fn with(limits: RequestLimits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tasks = Tasks::new("test");
        let addresses = Addresses::open(dir.path(), &Ledger::default(), &tasks).unwrap();
        let networks = Networks { ipv4: Some("10.64.0.0/27".parse().unwrap()), ipv6: None };
        let soon = Deadline::after(Duration::from_secs(30));
        addresses.adopt("default-0", "default", networks, soon).await.unwrap();
        let kernel = Fake::default();
        let ledger = Ledger::new(LedgerConfig::default());
        let (pools, ledgers) = (NamespacePools::none(), ledger.clone());
        let service = CniService::new(kernel.clone(), addresses.clone(), pools, ledgers, limits);
        service.health().publish(Health::Well);
        tasks.spawn("remove-links", service.clone().remove_links(tasks.stopping()));
        let namespace = tempfile::tempfile().unwrap();
        Self { kernel, service, addresses, ledger, namespace, _dir: dir, _tasks: tasks }
    }

    async fn ask(&self, operation: Operation, wait_ms: u64) -> Result<Option<Success>, Error> {
        let descriptor = self.namespace.try_clone().unwrap().into();
        match self.service.serve(Request { wait_ms, operation }, Some(descriptor)).await {
            Reply::Added(success) => Ok(Some(success)),
            Reply::Done => Ok(None),
            Reply::Failed(error) => Err(error),
            Reply::Shown(_) => panic!(),
        }
    }

    async fn add_within(&self, container: &str, wait_ms: u64) -> Result<Ipv4Addr, Error> {
        let pod = Pod { namespace: "shop".to_owned(), name: container.to_owned(), uid: None };
        let add = Operation::Add(AddRequest {
            key: key(container),
            network: "n".to_owned(),
            netns: "/run/netns/x".to_owned(),
            pod: Some(pod),
            pool: None,
            fixed: Default::default(),
        });
        let added = self.ask(add, wait_ms).await?.expect("an ADD says what it made");
        match added.ips[0].address.address {
            IpAddr::V4(address) => Ok(address),
            IpAddr::V6(_) => panic!(),
        }
    }

    async fn add(&self, container: &str) -> Result<Ipv4Addr, Error> {
        self.add_within(container, LONG).await
    }

    async fn del_within(&self, container: &str, wait_ms: u64) -> Result<(), Error> {
        let delete = Operation::Del { key: key(container), network: "n".to_owned() };
        self.ask(delete, wait_ms).await.map(|_| ())
    }

    async fn del(&self, container: &str) -> Result<(), Error> {
        self.del_within(container, LONG).await
    }

    async fn check(&self, container: &str, address: Ipv4Addr) -> Result<(), Error> {
        let (key, network) = (key(container), "n".to_owned());
        let check = Operation::Check { key, network, addresses: vec![address.into()] };
        self.ask(check, LONG).await.map(|_| ())
    }

    fn recorded(&self) -> Vec<String> {
        let view = self.addresses.view();
        let mut all: Vec<_> = view.attachments().map(|a| a.key.container.clone()).collect();
        all.sort();
        all
    }

    /// Waits until the interfaces of all that was deleted are gone.
    async fn until_removed(&self) {
        let mut changes = self.addresses.changes();
        while self.addresses.view().leaving().next().is_some() {
            changes.changed().await;
        }
    }

    fn connected(&self) -> usize {
        self.kernel.get(|state| state.connected.len())
    }

    fn hang(&self, container: &str, call: &'static str) {
        self.kernel.set(|state| {
            state.hang.insert((container.to_owned(), call));
        });
    }

    /// Lets go of what hangs, and waits until it has come back.
    async fn let_go(&self, container: &str) {
        self.kernel.set(|state| state.hang.clear());
        while self.service.is_busy(&key(container)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn key(container: &str) -> AttachmentKey {
    AttachmentKey { container: container.to_owned(), ifname: "eth0".to_owned() }
}

#[tokio::test]
async fn an_add_is_recorded_then_connected_and_twice_is_the_same() {
    let bench = Bench::new().await;
    let address = bench.add("a").await.unwrap();
    assert_eq!(bench.add("a").await.unwrap(), address);
    assert_ne!(bench.add("b").await.unwrap(), address);
    assert_eq!((bench.recorded(), bench.connected()), (vec!["a".to_owned(), "b".to_owned()], 2));
}

#[tokio::test]
async fn a_del_is_exact_and_one_of_nothing_touches_nothing() {
    let bench = Bench::new().await;
    bench.add("a").await.unwrap();
    bench.add("b").await.unwrap();
    let calls = bench.kernel.get(|state| state.calls);
    bench.del("c").await.unwrap();
    assert_eq!(bench.kernel.get(|state| state.calls), calls);
    bench.del("a").await.unwrap();
    bench.del("a").await.unwrap();
    bench.until_removed().await;
    assert_eq!(bench.kernel.get(|state| state.calls), calls + 1);
    assert_eq!((bench.recorded(), bench.connected()), (vec!["b".to_owned()], 1));
}

#[tokio::test]
async fn a_container_that_is_elsewhere_now_gets_its_network_there() {
    let mut bench = Bench::new().await;
    bench.add("a").await.unwrap();
    bench.namespace = tempfile::tempfile().unwrap();
    bench.add("a").await.unwrap();
    let view = bench.addresses.view();
    let record = view.attachment(&key("a")).unwrap();
    let inode = bench.namespace.metadata().unwrap().ino();
    assert_eq!(record.namespace.inode, inode);
    assert_eq!(bench.kernel.get(|state| state.connected[&record.key].inode), inode);
}

fn no_memory() -> WiringError {
    let cause = Cause::Enter(std::io::Error::other("no memory"));
    WiringError { step: "create", cause, left: None }
}

#[tokio::test]
async fn what_fails_gives_its_address_back_unless_something_is_left() {
    let bench = Bench::new().await;
    bench.kernel.set(|state| state.fail = Some(no_memory));
    let error = bench.add("a").await.unwrap_err();
    let told = "create failed: the pod's network namespace cannot be entered: no memory";
    assert_eq!((error.code, error.msg.as_str()), (Code::Wiring, told));
    assert!(bench.recorded().is_empty());
    let left = || {
        let left = std::io::Error::other("flx is still there");
        WiringError { left: Some(Box::new(NodeError::Open(left))), ..no_memory() }
    };
    bench.kernel.set(|state| state.fail = Some(left));
    let error = bench.add("a").await.unwrap_err();
    assert!(error.msg.contains("flx is still there"), "{error}");
    assert!(error.details.contains("kept until a DEL or reconciling"), "{error}");
    assert_eq!(bench.recorded(), ["a"]);
    bench.kernel.set(|state| state.fail = None);
    bench.del("a").await.unwrap();
    assert!(bench.recorded().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_hangs_holds_up_nobody_is_named_fails_in_time_and_is_undone() {
    let bench = Bench::new().await;
    bench.hang("hung", "set_up");
    let containers: Vec<_> = (0..20).map(|number| format!("other-{number}")).collect();
    let others = futures::future::join_all(containers.iter().map(|other| bench.add(other)));
    let (hung, others) = tokio::join!(bench.add_within("hung", SHORT), others);
    let others: HashSet<_> = others.into_iter().map(Result::unwrap).collect();
    assert_eq!(others.len(), 20);
    let error = hung.unwrap_err();
    assert_eq!(error.code, Code::TryAgainLater);
    assert!(error.msg.contains("container hung") && error.msg.contains("step set_up"), "{error}");

    let in_flight = bench.ledger.in_flight(&Filter::default());
    let [op] = in_flight.as_slice() else { panic!("{in_flight:?}") };
    assert_eq!((op.kind, op.step), ("cni_add", "set_up"));
    assert!(op.key.contains("hung/eth0") && op.key.contains("shop/hung"), "{}", op.key);

    // It keeps its address and its key.
    assert!(bench.recorded().contains(&"hung".to_owned()));
    for refused in [bench.add("hung").await.map(|_| ()), bench.del("hung").await] {
        assert!(refused.unwrap_err().msg.contains("step set_up"));
    }
    bench.let_go("hung").await;
    assert!(!bench.recorded().contains(&"hung".to_owned()));
    assert_eq!(bench.connected(), 20);
    assert!(bench.ledger.in_flight(&Filter::default()).is_empty());
    bench.add("hung").await.unwrap();
    assert_eq!(bench.connected(), 21);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_takes_too_long_is_given_up_on_before_the_deadline() {
    let limits = RequestLimits { step: Duration::from_millis(50), ..RequestLimits::default() };
    let bench = Bench::with(limits).await;
    bench.hang("a", "set_up");
    let error = bench.add("a").await.unwrap_err();
    assert!(error.msg.contains("step set_up"), "{error}");
    bench.let_go("a").await;
    assert!(bench.recorded().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_del_is_answered_before_the_kernel_is_done_and_its_address_is_nobodys_until_then() {
    let limits = RequestLimits { step: Duration::from_millis(100), ..RequestLimits::default() };
    let bench = Bench::with(limits).await;
    let address = bench.add("a").await.unwrap();
    bench.hang("a", "tear_down");
    bench.del("a").await.unwrap();
    bench.del("a").await.unwrap();
    assert!(bench.recorded().is_empty());
    while bench.kernel.get(|state| state.hanging) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let in_flight = bench.ledger.in_flight(&Filter::default());
    let [op] = in_flight.as_slice() else { panic!("{in_flight:?}") };
    assert_eq!((op.kind, op.step, &*op.key), ("cni_remove_links", "delete-veth", "a/eth0"));

    // The other 31 addresses of the block are given, and this one is not.
    let others: Vec<_> = (0..31).map(|number| format!("other-{number}")).collect();
    for other in &others {
        assert_ne!(bench.add(other).await.unwrap(), address);
    }
    // Its name is not free either.
    let error = bench.add("a").await.unwrap_err();
    assert_eq!(error.code, Code::TryAgainLater);
    assert!(error.msg.contains("step delete-veth"), "{error}");

    bench.kernel.set(|state| state.hang.clear());
    bench.until_removed().await;
    assert_eq!(bench.connected(), 31);
    assert_eq!(bench.add("a").await.unwrap(), address, "it is the only one there is");
}

#[tokio::test]
async fn an_interface_that_cannot_be_removed_is_tried_again() {
    let bench = Bench::new().await;
    bench.add("a").await.unwrap();
    bench.kernel.set(|state| state.fail = Some(no_memory));
    bench.del("a").await.unwrap();
    while bench.kernel.get(|state| state.calls) < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(bench.addresses.view().is_leaving(&key("a")));
    bench.kernel.set(|state| state.fail = None);
    bench.until_removed().await;
    assert_eq!(bench.connected(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_about_one_container_wait_for_each_other() {
    let bench = Bench::new().await;
    bench.hang("a", "set_up");
    let (added, deleted, ()) = tokio::join!(bench.add("a"), bench.del("a"), async {
        while bench.kernel.get(|state| state.hanging) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        bench.let_go("other").await;
    });
    added.unwrap();
    deleted.unwrap();
    bench.until_removed().await;
    assert_eq!((bench.recorded().len(), bench.connected()), (0, 0));
}

#[tokio::test]
async fn a_check_compares_record_result_and_kernel() {
    let mut bench = Bench::new().await;
    let nowhere = Ipv4Addr::UNSPECIFIED;
    assert_eq!(bench.check("a", nowhere).await.unwrap_err().code, Code::UnknownContainer);
    let address = bench.add("a").await.unwrap();
    bench.check("a", address).await.unwrap();
    let error = bench.check("a", nowhere).await.unwrap_err();
    assert_eq!(error.code, Code::Differs);
    assert!(error.details.contains(&address.to_string()), "{error}");
    bench.kernel.set(|state| state.faults = vec![Fault::NoLink("flx".to_owned())]);
    assert!(bench.check("a", address).await.unwrap_err().details.contains("flx is gone"));
    bench.kernel.set(|state| state.faults.clear());
    bench.namespace = tempfile::tempfile().unwrap();
    let error = bench.check("a", address).await.unwrap_err();
    assert!(error.details.contains("another network namespace"), "{error}");
}

#[tokio::test]
async fn gc_removes_what_is_stale_in_its_network() {
    let bench = Bench::new().await;
    for container in ["a", "b", "c"] {
        bench.add(container).await.unwrap();
    }
    let collect =
        |network: &str| Operation::Gc { network: network.to_owned(), valid: vec![key("a")] };
    bench.ask(collect("other"), LONG).await.unwrap();
    assert_eq!(bench.recorded().len(), 3);
    bench.ask(collect("n"), LONG).await.unwrap();
    assert_eq!(bench.recorded(), ["a"]);
    bench.until_removed().await;
    assert_eq!(bench.connected(), 1);
}

#[tokio::test]
async fn nothing_is_served_before_the_first_reconcile_and_status_says_so() {
    let limits = RequestLimits { reconcile: Duration::from_millis(50), ..RequestLimits::default() };
    let bench = Bench::with(limits).await;
    let status = || bench.ask(Operation::Status, LONG);
    status().await.unwrap();
    bench.service.health().publish(Health::Reconciling("routes".to_owned()));
    assert_eq!(status().await.unwrap_err().code, Code::NotAvailable);
    let error = bench.add("a").await.unwrap_err();
    assert_eq!(error.code, Code::TryAgainLater);
    assert!(error.msg.contains("reconciling"), "{error}");
    bench.service.health().publish(Health::Limited("no routes".to_owned()));
    assert_eq!(status().await.unwrap_err().code, Code::LimitedConnectivity);
    bench.add("a").await.unwrap();
}

#[tokio::test]
async fn a_request_during_a_short_reconcile_is_served_after_it() {
    let bench = Bench::new().await;
    bench.service.health().publish(Health::Reconciling("links".to_owned()));
    let (added, _) = tokio::join!(bench.add("a"), async {
        tokio::task::yield_now().await;
        bench.service.health().publish(Health::Well)
    });
    added.unwrap();
}

#[test]
fn a_lack_of_addresses_is_told_from_a_lack_of_time() {
    let (pool, why): (String, Arc<str>) = ("fast".to_owned(), "all claimed".into());
    let retry_after = Duration::from_secs(1);
    for (error, code) in [
        (AssignError::NoPool { pool: pool.clone() }, 101),
        (AssignError::Exhausted { pool: pool.clone(), why: why.clone() }, 101),
        (AssignError::Journal { why: why.clone() }, 102),
        (AssignError::NoBlockYet { pool, why, retry_after }, 11),
        (AssignError::Busy { retry_after }, 11),
        (AssignError::TooLate, 11),
        (AssignError::Closed, 11),
    ] {
        let told = error.to_string();
        let Reply::Failed(refused) = cni_reply::failed(&error.into()) else { panic!() };
        assert_eq!((refused.code.number(), refused.msg), (code, told));
    }
}

#[tokio::test]
async fn every_answer_is_counted_by_its_code() {
    let bench = Bench::new().await;
    let mut registry = Registry::default();
    bench.service.register(&mut registry);
    bench.add("a").await.unwrap();
    bench.check("b", Ipv4Addr::UNSPECIFIED).await.unwrap_err();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"cni_results_total{command="add",code="0"} 1"#,
        r#"cni_results_total{command="check",code="3"} 1"#,
        r#"cni_in_flight{command="add"} 0"#,
        r#"cni_request_seconds_count{command="add"} 1"#,
        r#"cni_step_seconds_count{step="set_up"} 1"#,
        "cni_wait_seconds_count 2",
        "cni_hanging 0",
    ] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
}

#[tokio::test]
async fn the_plugin_and_the_agent_call_an_interface_the_same() {
    let bench = Bench::new().await;
    for container in ["a", "k8s.io-web", &"0123456789abcdef".repeat(4)] {
        bench.add(container).await.unwrap();
        let view = bench.addresses.view();
        let recorded = &view.attachment(&key(container)).unwrap().host_interface;
        assert_eq!(*recorded, cni::interface::host_interface(&key(container)));
    }
}
