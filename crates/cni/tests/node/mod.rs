//! A node that is a network namespace, the real daemon in it, and the real plugin before it.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cni::wire::{self, Operation, Reply, Request, Show};
use kernel::netns::Namespace;
use net::daemon::{self, DaemonContext, NetConfig};
use objects::Objects;
use objects::kinds::{AddressPool, AddressPoolSpec, Subnet};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use stallproof::{Deadline, Ledger, Readiness, Tasks};
use testkit::{Host, Sandbox};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const PLUGIN: &str = env!("CARGO_BIN_EXE_fairlead-cni");

pub(crate) struct Node {
    pub(crate) sandbox: Sandbox,
    pub(crate) host: Host,
    /// On the other end of the node's cable.
    pub(crate) router: Host,
    dir: tempfile::TempDir,
    address: IpAddr,
    pools: Vec<(&'static str, Subnet)>,
    running: Option<Running>,
}

struct Running {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

/// What the plugin said.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) success: bool,
    pub(crate) output: Value,
}

impl Answer {
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.success, "{}", self.output);
        self.output
    }

    /// The code of its error; every error says something.
    #[track_caller]
    pub(crate) fn code(self) -> u64 {
        assert!(!self.success, "{}", self.output);
        assert!(!self.output["msg"].as_str().unwrap().is_empty());
        self.output["code"].as_u64().unwrap()
    }
}

impl Node {
    /// With a daemon that serves these pools, and an address of its own.
    pub(crate) fn start(pools: &[(&'static str, Subnet)]) -> Self {
        Self::start_at(pools, "192.0.2.1/24", "192.0.2.2/24")
    }

    /// With these addresses at both ends of its cable.
    pub(crate) fn start_at(
        pools: &[(&'static str, Subnet)],
        own: &'static str,
        far: &'static str,
    ) -> Self {
        let sandbox = Sandbox::new();
        let host = sandbox.host("node");
        let router = sandbox.host("router");
        sandbox.link((&host, own), (&router, far));
        let dir = tempfile::tempdir().unwrap();
        let address = own.split('/').next().unwrap().parse().unwrap();
        let pools = pools.to_vec();
        let mut node = Self { sandbox, host, router, dir, address, pools, running: None };
        node.up();
        node
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("run/cni.sock")
    }

    /// Starts the daemon, with what the last one left.
    pub(crate) fn up(&mut self) {
        let (stop, stopped) = channel::<()>();
        let (begun, has_begun) = channel();
        let (dir, socket, pools) = (self.dir.path().to_owned(), self.socket(), self.pools.clone());
        let address = self.address;
        let namespace = Namespace::open(self.host.netns()).unwrap();
        // A thread begins in the namespace of the one that makes it.
        let begin = move || {
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                let tasks = Tasks::new("node");
                runtime.block_on(begin(&dir, socket, address, &pools, &tasks));
                begun.send(()).unwrap();
                // An error: the test is over.
                let _ = stopped.recv();
                runtime.block_on(tasks.shutdown(Duration::from_secs(10)));
                runtime.shutdown_background();
            })
        };
        let thread = namespace.run_in(begin).unwrap();
        has_begun.recv_timeout(PATIENCE).unwrap();
        self.running = Some(Running { stop, thread });
        let until = Instant::now() + PATIENCE;
        while !self.run("STATUS", &[], &self.config("1.1.0")).success {
            assert!(Instant::now() < until, "the daemon does not become ready");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn down(&mut self) {
        if let Some(Running { stop, thread }) = self.running.take() {
            drop(stop);
            thread.join().unwrap();
        }
    }

    /// The network configuration that a runtime would make of our conflist.
    pub(crate) fn config(&self, version: &str) -> Value {
        json!({"cniVersion": version, "name": "pods", "type": "fairlead-cni",
            "socket": self.socket(), "timeout": 30})
    }

    pub(crate) fn pod(&self, name: &str) -> Host {
        self.sandbox.host(name)
    }

    /// Runs the plugin as a runtime would, in the node's namespace.
    pub(crate) fn run(&self, command: &str, variables: &[(&str, &str)], config: &Value) -> Answer {
        self.run_raw(command, variables, config.to_string().as_bytes())
    }

    pub(crate) fn run_raw(
        &self,
        command: &str,
        variables: &[(&str, &str)],
        stdin: &[u8],
    ) -> Answer {
        let mut process: Command = self.host.command(PLUGIN);
        process.env("CNI_COMMAND", command).env("CNI_PATH", "/opt/cni/bin");
        for variable in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"] {
            process.env_remove(variable);
        }
        process.envs(variables.iter().copied());
        process.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = process.spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let output_value = match text.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap(),
        };
        Answer { success: output.status.success(), output: output_value }
    }

    /// Runs the plugin for `eth0` of a pod whose container has its name.
    pub(crate) fn of(
        &self,
        command: &str,
        container: &str,
        pod: Option<&Host>,
        config: &Value,
    ) -> Answer {
        let netns = pod.map(|pod| pod.netns().display().to_string()).unwrap_or_default();
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={container}");
        let variables = [
            ("CNI_CONTAINERID", container),
            ("CNI_NETNS", &netns),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", &args),
        ];
        self.run(command, &variables, config)
    }

    /// The names of the node's interfaces that are ours, when those of deleted containers are gone: a DEL
    /// does not wait for that.
    pub(crate) fn interfaces(&self) -> Vec<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let there = self.interfaces_now();
            let recorded = recorded(self);
            let is_recorded =
                |name: &String| recorded.iter().any(|row| row["hostInterface"] == **name);
            if there.iter().all(is_recorded) || Instant::now() > until {
                return there;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn interfaces_now(&self) -> Vec<String> {
        let output = self.host.command("ip").args(["-json", "link"]).output().unwrap();
        let links: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let names = links.iter().map(|link| link["ifname"].as_str().unwrap().to_owned());
        names.filter(|name| cni::interface::is_ours(name)).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.down();
        }
    }
}

async fn begin(
    dir: &Path,
    socket: PathBuf,
    address: IpAddr,
    pools: &[(&str, Subnet)],
    tasks: &Tasks,
) {
    let objects = Objects::embedded(&dir.join("objects"), tasks).unwrap();
    for (name, subnet) in pools {
        let spec = AddressPoolSpec::new(5, vec![subnet.clone()]);
        let made = objects.create(&AddressPool::new(name, spec), Deadline::after(PATIENCE)).await;
        assert!(matches!(made, Ok(_) | Err(objects::Error::Exists { .. })), "{made:?}");
    }
    let config = NetConfig {
        socket,
        data: dir.join("net"),
        node: "node".to_owned(),
        addresses: vec![address],
        subnets: Vec::new(),
        masquerade: false,
        interface_names: Default::default(),
        mtu: None,
        vxlan_port: 4789,
        egress: false,
        egress_port: net::egress::PORT,
        export_table: Some(119),
        // STATUS says how the daemon is, not how it was.
        grace: Duration::ZERO,
        encryption: None,
        tunnel: None,
        kubernetes: false,
    };
    let context = DaemonContext {
        ledger: Ledger::default(),
        readiness: Readiness::default(),
        tasks: tasks.clone(),
    };
    daemon::start(config, objects, context, &mut Registry::default()).unwrap();
}

/// What of the daemon's records is left.
pub(crate) fn recorded(node: &Node) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE;
    let request = Request::within(deadline, Operation::Show(Show::Addresses));
    match wire::call(&node.socket(), &request, None, deadline).unwrap() {
        Reply::Shown(Value::Array(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

/// Whether a connection from one namespace reaches the other's address.
pub(crate) fn reaches(from: &Host, to: &Host, address: IpAddr) -> bool {
    let [from, to] = [from, to].map(|host| Namespace::open(host.netns()).unwrap());
    let listener = to.run_in(|| TcpListener::bind(SocketAddr::new(address, 0))).unwrap().unwrap();
    let target = listener.local_addr().unwrap();
    from.run_in(|| TcpStream::connect_timeout(&target, Duration::from_secs(5)).is_ok()).unwrap()
}

pub(crate) fn subnet(ipv4: Option<&str>, ipv6: Option<&str>) -> Subnet {
    Subnet { ipv4: ipv4.map(str::to_owned), ipv6: ipv6.map(str::to_owned) }
}
