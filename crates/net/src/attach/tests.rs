//! Attaching, with a kernel that fails and hangs as it is told to.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;

use cni::spec::{Ip, Prefix};
use objects::kinds::Networks;
use parking_lot::Condvar;
use stallproof::ledger::{Filter, LedgerConfig};

use super::*;
use crate::NamespaceId;

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
    connected: HashMap<Key, NamespaceId>,
    /// Containers whose connect, or disconnect, hangs.
    hang: HashSet<(String, &'static str)>,
    hanging: usize,
    fail: Option<Failed>,
    faults: Vec<String>,
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

    fn pass(&self, key: &Key, call: &'static str, steps: &Steps) -> Result<(), Failed> {
        let gone = |_| Failed { why: "given up on".to_owned(), left: Vec::new() };
        steps.step(call).map_err(gone)?;
        let mut state = self.0.state.lock();
        state.calls += 1;
        let at = (key.container.clone(), call);
        state.hanging += 1;
        while state.hang.contains(&at) {
            self.0.changed.wait(&mut state);
        }
        state.hanging -= 1;
        if let Some(failed) = state.fail.clone() {
            return Err(failed);
        }
        drop(state);
        steps.step("finish").map_err(gone)
    }
}

impl Kernel for Fake {
    type Namespace = NamespaceId;

    fn namespace(&self, descriptor: OwnedFd) -> std::io::Result<NamespaceId> {
        let file = File::from(descriptor).metadata()?;
        Ok(NamespaceId { device: file.dev(), inode: file.ino() })
    }

    fn id(&self, namespace: &NamespaceId) -> NamespaceId {
        *namespace
    }

    fn connect(
        &self,
        attachment: &Attachment,
        namespace: &NamespaceId,
        steps: &Steps,
    ) -> Result<Success, Failed> {
        self.pass(&attachment.key, "connect", steps)?;
        self.set(|state| {
            state.connected.insert(attachment.key.clone(), *namespace);
        });
        let address = Prefix::host(attachment.ipv4.unwrap().into());
        Ok(Success { ips: vec![Ip { address, gateway: None, interface: 0 }], ..Success::default() })
    }

    fn disconnect(&self, attachment: &Attachment, steps: &Steps) -> Result<(), Failed> {
        self.pass(&attachment.key, "disconnect", steps)?;
        self.set(|state| {
            state.connected.remove(&attachment.key);
        });
        Ok(())
    }

    fn verify(&self, attachment: &Attachment, _: &NamespaceId, steps: &Steps) -> Vec<String> {
        let _ = self.pass(&attachment.key, "verify", steps);
        self.get(|state| state.faults.clone())
    }
}

struct Bench {
    kernel: Fake,
    attach: Attach<Fake>,
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
        Self::with(Limits::default()).await
    }

    async fn with(limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tasks = Tasks::new("test");
        let addresses = Addresses::open(dir.path(), &tasks).unwrap();
        let networks = Networks { ipv4: Some("10.64.0.0/27".parse().unwrap()), ipv6: None };
        let soon = Deadline::after(Duration::from_secs(30));
        addresses.adopt("default-0", "default", networks, soon).await.unwrap();
        let kernel = Fake::default();
        let ledger = Ledger::new(LedgerConfig::default());
        let attach =
            Attach::new(kernel.clone(), addresses.clone(), Facts::none(), ledger.clone(), limits);
        attach.health().publish(Health::Well);
        let namespace = tempfile::tempfile().unwrap();
        Self { kernel, attach, addresses, ledger, namespace, _dir: dir, _tasks: tasks }
    }

    async fn ask(&self, ask: Ask, wait_ms: u64) -> Result<Option<Success>, Error> {
        let descriptor = self.namespace.try_clone().unwrap().into();
        match self.attach.serve(Request { wait_ms, ask }, Some(descriptor)).await {
            Reply::Added(success) => Ok(Some(success)),
            Reply::Done => Ok(None),
            Reply::Failed(error) => Err(error),
            Reply::Shown(_) => panic!(),
        }
    }

    async fn add_within(&self, container: &str, wait_ms: u64) -> Result<Ipv4Addr, Error> {
        let pod = wire::Pod { namespace: "shop".to_owned(), name: container.to_owned(), uid: None };
        let add = Ask::Add {
            name: name(container),
            network: "n".to_owned(),
            netns: "/run/netns/x".to_owned(),
            pod: Some(pod),
            pool: None,
        };
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
        let delete = Ask::Delete { name: name(container), network: "n".to_owned() };
        self.ask(delete, wait_ms).await.map(|_| ())
    }

    async fn del(&self, container: &str) -> Result<(), Error> {
        self.del_within(container, LONG).await
    }

    async fn check(&self, container: &str, address: Ipv4Addr) -> Result<(), Error> {
        let (name, network) = (name(container), "n".to_owned());
        let check = Ask::Check { name, network, addresses: vec![address.into()] };
        self.ask(check, LONG).await.map(|_| ())
    }

    fn recorded(&self) -> Vec<String> {
        let view = self.addresses.view();
        let mut all: Vec<_> = view.attachments().map(|a| a.key.container.clone()).collect();
        all.sort();
        all
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
        while self.attach.is_busy(&key(name(container))) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn name(container: &str) -> Name {
    Name { container: container.to_owned(), ifname: "eth0".to_owned() }
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
    let record = view.attachment(&key(name("a"))).unwrap();
    let inode = bench.namespace.metadata().unwrap().ino();
    assert_eq!(record.namespace.inode, inode);
    assert_eq!(bench.kernel.get(|state| state.connected[&record.key].inode), inode);
}

#[tokio::test]
async fn what_fails_gives_its_address_back_unless_something_is_left() {
    let bench = Bench::new().await;
    let fail = |left: &[&str]| {
        let left = left.iter().map(|text| (*text).to_owned()).collect();
        let failed = Failed { why: "create: no memory".to_owned(), left };
        bench.kernel.set(|state| state.fail = Some(failed));
    };
    fail(&[]);
    let error = bench.add("a").await.unwrap_err();
    assert_eq!((error.code, error.msg.as_str()), (Code::Wiring, "create: no memory"));
    assert!(bench.recorded().is_empty());
    fail(&["flx is still there"]);
    let error = bench.add("a").await.unwrap_err();
    assert!(error.details.contains("flx is still there"), "{error}");
    assert_eq!(bench.recorded(), ["a"]);
    bench.kernel.set(|state| state.fail = None);
    bench.del("a").await.unwrap();
    assert!(bench.recorded().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_hangs_holds_up_nobody_is_named_fails_in_time_and_is_undone() {
    let bench = Bench::new().await;
    bench.hang("hung", "connect");
    let containers: Vec<_> = (0..20).map(|number| format!("other-{number}")).collect();
    let others = futures::future::join_all(containers.iter().map(|other| bench.add(other)));
    let (hung, others) = tokio::join!(bench.add_within("hung", SHORT), others);
    let others: HashSet<_> = others.into_iter().map(Result::unwrap).collect();
    assert_eq!(others.len(), 20);
    let error = hung.unwrap_err();
    assert_eq!(error.code, Code::TryAgainLater);
    assert!(error.msg.contains("container hung") && error.msg.contains("step connect"), "{error}");

    let in_flight = bench.ledger.in_flight(&Filter::default());
    let [op] = in_flight.as_slice() else { panic!("{in_flight:?}") };
    assert_eq!((op.kind, op.step), ("cni_add", "connect"));
    assert!(op.key.contains("hung/eth0") && op.key.contains("shop/hung"), "{}", op.key);

    // It keeps its address and its key.
    assert!(bench.recorded().contains(&"hung".to_owned()));
    for refused in [bench.add("hung").await.map(|_| ()), bench.del("hung").await] {
        assert!(refused.unwrap_err().msg.contains("step connect"));
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
    let limits = Limits { step: Duration::from_millis(50), ..Limits::default() };
    let bench = Bench::with(limits).await;
    bench.hang("a", "connect");
    let error = bench.add("a").await.unwrap_err();
    assert!(error.msg.contains("step connect"), "{error}");
    bench.let_go("a").await;
    assert!(bench.recorded().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_del_that_hangs_keeps_its_record_for_the_next() {
    let bench = Bench::new().await;
    bench.add("a").await.unwrap();
    bench.hang("a", "disconnect");
    let error = bench.del_within("a", SHORT).await.unwrap_err();
    assert!(error.msg.contains("step disconnect"), "{error}");
    bench.let_go("a").await;
    assert_eq!(bench.recorded(), ["a"]);
    bench.del("a").await.unwrap();
    assert!(bench.recorded().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_about_one_container_wait_for_each_other() {
    let bench = Bench::new().await;
    bench.hang("a", "connect");
    let (added, deleted, ()) = tokio::join!(bench.add("a"), bench.del("a"), async {
        while bench.kernel.get(|state| state.hanging) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        bench.let_go("other").await;
    });
    added.unwrap();
    deleted.unwrap();
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
    bench.kernel.set(|state| state.faults = vec!["no route".to_owned()]);
    assert!(bench.check("a", address).await.unwrap_err().details.contains("no route"));
    bench.kernel.set(|state| state.faults.clear());
    bench.namespace = tempfile::tempfile().unwrap();
    let error = bench.check("a", address).await.unwrap_err();
    assert!(error.details.contains("another network namespace"), "{error}");
}

#[tokio::test]
async fn gc_removes_what_is_stale_in_its_network_and_says_what_it_could_not() {
    let bench = Bench::new().await;
    for container in ["a", "b", "c"] {
        bench.add(container).await.unwrap();
    }
    let collect =
        |network: &str| Ask::Collect { network: network.to_owned(), valid: vec![name("a")] };
    bench.ask(collect("other"), LONG).await.unwrap();
    assert_eq!(bench.recorded().len(), 3);
    let failed = Failed { why: "busy".to_owned(), left: Vec::new() };
    bench.kernel.set(|state| state.fail = Some(failed));
    let error = bench.ask(collect("n"), LONG).await.unwrap_err();
    assert!(error.msg.starts_with("2 stale") && error.details.contains("b/eth0: busy"), "{error}");
    bench.kernel.set(|state| state.fail = None);
    bench.ask(collect("n"), LONG).await.unwrap();
    assert_eq!(bench.recorded(), ["a"]);
}

#[tokio::test]
async fn nothing_is_served_before_the_first_reconcile_and_status_says_so() {
    let limits = Limits { reconcile: Duration::from_millis(50), ..Limits::default() };
    let bench = Bench::with(limits).await;
    let status = || bench.ask(Ask::Status, LONG);
    status().await.unwrap();
    bench.attach.health().publish(Health::Reconciling("routes".to_owned()));
    assert_eq!(status().await.unwrap_err().code, Code::NotAvailable);
    let error = bench.add("a").await.unwrap_err();
    assert_eq!(error.code, Code::TryAgainLater);
    assert!(error.msg.contains("reconciling"), "{error}");
    bench.attach.health().publish(Health::Limited("no routes".to_owned()));
    assert_eq!(status().await.unwrap_err().code, Code::LimitedConnectivity);
    bench.add("a").await.unwrap();
}

#[tokio::test]
async fn a_request_during_a_short_reconcile_is_served_after_it() {
    let bench = Bench::new().await;
    bench.attach.health().publish(Health::Reconciling("links".to_owned()));
    let (added, _) = tokio::join!(bench.add("a"), async {
        tokio::task::yield_now().await;
        bench.attach.health().publish(Health::Well)
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
        let refused = refusal(&error);
        assert_eq!((refused.code.number(), refused.msg), (code, error.to_string()));
    }
}

#[tokio::test]
async fn every_answer_is_counted_by_its_code() {
    let bench = Bench::new().await;
    let mut registry = Registry::default();
    bench.attach.register(&mut registry);
    bench.add("a").await.unwrap();
    bench.check("b", Ipv4Addr::UNSPECIFIED).await.unwrap_err();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"cni_results_total{command="add",code="0"} 1"#,
        r#"cni_results_total{command="check",code="3"} 1"#,
        r#"cni_in_flight{command="add"} 0"#,
        r#"cni_request_seconds_count{command="add"} 1"#,
        r#"cni_step_seconds_count{step="connect"} 1"#,
        "cni_wait_seconds_count 2",
        "cni_hanging 0",
    ] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
}

#[test]
fn the_plugin_and_the_daemon_call_an_interface_the_same() {
    for container in ["a", "k8s.io-web", &"0123456789abcdef".repeat(4)] {
        let name = name(container);
        assert_eq!(cni::interface::host_interface(&name), host_interface(&key(name.clone())));
    }
}
