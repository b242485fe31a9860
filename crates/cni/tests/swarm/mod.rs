//! Many pods at once: a node and its pods are namespaces of this process, the daemon is the real one,
//! and so is the plugin.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, io};

use cni::wire::{self, Operation, Reply, Request, Show};
use kernel::netlink::{Address, Change, LinkRef, Mac, Netlink, SetLink, Veth, VethPeer};
use kernel::netns::Namespace;
use net::daemon::{self, DaemonContext, NetConfig};
use objects::Objects;
use objects::kinds::Subnet;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use stallproof::{Ledger, Readiness, Tasks};

pub(crate) const PLUGIN: &str = env!("CARGO_BIN_EXE_fairlead-cni");
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `work` on a node of its own: a namespace with an address, which threads and processes that
/// `work` starts are in as well.
pub(crate) fn on_a_node<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let node = Namespace::create().unwrap();
    let mac = |number| Mac([2, 0, 0, 0, 0, number]);
    let peer = VethPeer { name: "far", mac: mac(2), namespace: node.as_fd() };
    let veth = Veth { name: "uplink", mac: mac(1), mtu: 1500, group: None, peer };
    let mut netlink = node.netlink().unwrap();
    let uplink = netlink.create_veth(veth).unwrap().index;
    let up = |name| Change::Set(LinkRef::Name(name), SetLink { up: true, ..SetLink::default() });
    let own = |address: &str| {
        Change::Address(Address { link: uplink, address: address.parse().unwrap() })
    };
    let changes = [up("lo"), up("far"), up("uplink"), own("192.0.2.1/24"), own("2001:db8::1/64")];
    netlink.apply(&changes).unwrap();
    node.run_in(work).unwrap()
}

/// The daemon, in this process and in the namespace that its starter is in.
pub(crate) struct Daemon {
    pub(crate) ledger: Ledger,
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Daemon {
    pub(crate) fn start(dir: &Path) -> Self {
        Self::with(dir, dual_stack())
    }

    pub(crate) fn with(dir: &Path, subnet: Subnet) -> Self {
        let ledger = Ledger::default();
        let (stop, stopped) = channel::<()>();
        let begin = {
            let (dir, ledger) = (dir.to_owned(), ledger.clone());
            move || serve(&dir, subnet, ledger, Duration::ZERO, &stopped)
        };
        let thread = std::thread::spawn(begin);
        wait_until_ready(dir);
        Self { ledger, running: Some((stop, thread)) }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            // A panic of it was told by itself.
            let _ = thread.join();
        }
    }
}

/// Four thousand addresses of both families.
pub(crate) fn dual_stack() -> Subnet {
    Subnet { ipv4: Some("10.64.0.0/20".to_owned()), ipv6: Some("fd64::/116".to_owned()) }
}

/// Serves until `stopped` is closed.
pub(crate) fn serve(
    dir: &Path,
    subnet: Subnet,
    ledger: Ledger,
    grace: Duration,
    stopped: &Receiver<()>,
) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let tasks = Tasks::new("node");
    let begin = async {
        let objects = Objects::embedded(&dir.join("objects"), &tasks).unwrap();
        let config = NetConfig {
            socket: socket(dir),
            data: dir.join("net"),
            node: "node".to_owned(),
            addresses: vec!["192.0.2.1".parse().unwrap()],
            subnets: vec![subnet],
            masquerade: false,
            interface_names: Default::default(),
            mtu: None,
            vxlan_port: 4789,
            egress: false,
            egress_port: net::egress::PORT,
            export_table: Some(119),
            grace,
            encryption: None,
            tunnel: None,
            kubernetes: false,
        };
        let context =
            DaemonContext { ledger, readiness: Readiness::default(), tasks: tasks.clone() };
        daemon::start(config, objects, context, &mut Registry::default()).unwrap();
    };
    runtime.block_on(begin);
    // An error: it is over.
    let _ = stopped.recv();
    runtime.block_on(tasks.shutdown(Duration::from_secs(10)));
    runtime.shutdown_background();
}

pub(crate) fn socket(dir: &Path) -> PathBuf {
    dir.join("run/cni.sock")
}

pub(crate) fn wait_until_ready(dir: &Path) {
    let until = Instant::now() + PATIENCE;
    while !matches!(ask(dir, Operation::Status), Ok(Reply::Done)) {
        assert!(Instant::now() < until, "the daemon does not become ready");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn ask(dir: &Path, ask: Operation) -> io::Result<Reply> {
    let deadline = Instant::now() + Duration::from_secs(10);
    wire::call(&socket(dir), &Request::within(deadline, ask), None, deadline)
}

/// What the daemon has on record.
pub(crate) fn recorded(dir: &Path) -> Vec<Value> {
    match ask(dir, Operation::Show(Show::Addresses)).unwrap() {
        Reply::Shown(Value::Array(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

/// The node's interfaces that are ours.
pub(crate) fn interfaces() -> Vec<String> {
    let links = Netlink::open().unwrap().links().unwrap();
    links.into_iter().map(|link| link.name).filter(|name| cni::interface::is_ours(name)).collect()
}

/// Waits until the interfaces of deleted containers are gone: a DEL does not.
pub(crate) fn until_none_is_left() {
    let until = Instant::now() + Duration::from_secs(60);
    while !interfaces().is_empty() {
        assert!(Instant::now() < until, "{:?}", interfaces());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A sandbox. Its path is its own: it means nothing when this is gone.
pub(crate) struct Pod {
    pub(crate) container: String,
    pub(crate) namespace: Namespace,
    pub(crate) path: PathBuf,
}

impl Pod {
    pub(crate) fn new(dir: &Path, container: &str) -> Self {
        let namespace = Namespace::create().unwrap();
        let path = dir.join(container);
        let fd = namespace.as_fd().as_raw_fd();
        symlink(format!("/proc/{}/fd/{fd}", std::process::id()), &path).unwrap();
        Self { container: container.to_owned(), namespace, path }
    }

    /// Runs the plugin for `eth0`, as a runtime does.
    pub(crate) fn plugin(&self, command: &str, config: &Value) -> Result<Value, Value> {
        self.run(Path::new(PLUGIN), command, config)
    }

    pub(crate) fn run(&self, plugin: &Path, command: &str, config: &Value) -> Result<Value, Value> {
        let args = format!("K8S_POD_NAMESPACE=shop;K8S_POD_NAME={}", self.container);
        let mut process = Command::new(plugin)
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &self.container)
            .env("CNI_NETNS", &self.path)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_ARGS", format!("IgnoreUnknown=1;{args}"))
            .env("CNI_PATH", plugin.parent().unwrap())
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        process.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
        let output = process.wait_with_output().unwrap();
        let said = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
            let text = [output.stdout, output.stderr].concat();
            Value::String(String::from_utf8_lossy(&text).into_owned())
        });
        if output.status.success() { Ok(said) } else { Err(said) }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // Its directory may be gone before it.
        let _ = fs::remove_file(&self.path);
    }
}

pub(crate) fn config(dir: &Path, seconds: u64) -> Value {
    json!({"cniVersion": "1.1.0", "name": "pods", "type": "fairlead-cni",
        "socket": socket(dir), "timeout": seconds})
}

pub(crate) fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().unwrap().iter();
    ips.map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().parse().unwrap())
        .collect()
}

/// From the node; nobody listens, so a refusal is the answer.
pub(crate) fn answers(address: IpAddr) -> bool {
    let dial = TcpStream::connect_timeout(&SocketAddr::new(address, 9), Duration::from_secs(10));
    dial.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// All at once, each on a thread of its own; what each gave, in their order.
pub(crate) fn at_once<I: Sync, T: Send>(items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(|| work(item))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
