//! Cluster: a whole Kubernetes, on this machine: control plane, and nodes with kubelet, containerd and
//! kube-proxy, each in PID, mount, network, UTS and IPC namespaces of its own.
//!
//! ```text
//! test ── 127.0.0.1:PORT ── wire (bridge, 10.97.0.0/24) ─┬─ node-1 10.97.0.11: + etcd, API server,
//!                                                        │                       controllers, scheduler
//!                                                        ├─ node-2 10.97.0.12
//!                                                        └─ node-3 10.97.0.13
//! ```
//!
//! - Nothing outlives the test process, however that ends: no process, mount, namespace, control group
//!   or file. Nothing of the machine's own network, sysctls or file system is changed. Several clusters
//!   run at once.
//! - The control plane runs on node 1, so that it reaches pods as that node does; pods are scheduled
//!   there as well. A reboot of node 1 is one of the control plane.
//! - Names for pods come from a stand-in for CoreDNS ([`dns`]), on every node's own address.
//! - A node's `/etc`, `/opt` and `/var` are its own and survive a reboot; `/run` is its own and does
//!   not. The machine's `/usr` is read-only there. Each boot has another boot id, in the node; a
//!   container sees the machine's.
//! - Verbs block, and panic with a sentence and with evidence: the test ends there. They may be called
//!   from several threads at once.
//!
//! Needs [`need::cluster`]. Binaries come from `KUBEBUILDER_ASSETS` and `FAIRLEAD_CNI_ASSETS`, or from
//! `scripts/kube-assets` and `scripts/cni-assets`; versions are asked for, and flags follow.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};
use std::{fmt, panic, thread};

use serde_json::{Value, json};

mod assets;
mod daemons;
mod dns;
mod image;
mod leftovers;
mod node;
mod pki;
mod wait;
mod wire;

use assets::Assets;
use daemons::{API_SERVER, CONTAINERD, CONTROLLERS, ETCD, KUBE_PROXY, KUBELET, PAUSE, SCHEDULER};
use node::Node;
use pki::Pki;
use wire::Wire;

use crate::kube_server::Credentials;
use crate::leash::Leash;
use crate::{Access, Host, Sandbox, port};

pub(crate) use assets::possible;

/// The wire's own address, at which `outside` is.
pub const GATEWAY: &str = "10.97.0.1";
/// Where pods' addresses are taken from; kube-proxy takes what comes from elsewhere for foreign.
pub const POD_NETWORK: &str = "10.244.0.0/16";
pub const SERVICE_NETWORK: &str = "10.96.0.0/16";
const PREFIX: u8 = 24;
const API_PORT: u16 = 6443;
const MOST_NODES: u32 = 32;

/// With the process' id, the name of a cluster's directory and of its control group.
const NAME: &str = "fairlead-cluster-";

/// Several times what a start takes on two busy cores.
const READY_WITHIN: Duration = Duration::from_secs(180);

/// Who gives pods a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Nobody: nodes stay `NotReady` until somebody installs one.
    #[default]
    None,
    /// The reference plugin `ptp`, with a range of addresses and static routes for each node.
    Ptp,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub nodes: u32,
    pub network: Network,
    /// The size in MiB of a disk of its own for each node's `/var/lib/fairlead`, which a test can fill or
    /// freeze; none leaves it on the node's.
    pub agent_disk: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self { nodes: 3, network: Network::None, agent_disk: None }
    }
}

pub struct Cluster {
    // In this order they go: what runs, who cleans up after it, the wire's namespace.
    nodes: RwLock<BTreeMap<u32, Arc<Node>>>,
    wire: Wire,
    _cleaner: Leash,
    outside: Host,
    _sandbox: Sandbox,
    dir: PathBuf,
    cgroup: String,
    pki: Pki,
    assets: Assets,
    access: Access,
    network: Network,
    agent_disk: Option<u32>,
    archives: Mutex<Vec<PathBuf>>,
    took: Duration,
}

impl Cluster {
    /// Three nodes with a network of this kind. With [`Network::Ptp`] they are Ready on return; with
    /// [`Network::None`] they are registered.
    pub fn start(network: Network) -> Self {
        Self::start_with(&Options { network, ..Options::default() })
    }

    pub fn start_with(options: &Options) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        assert!((1..=MOST_NODES).contains(&options.nodes), "a cluster has 1 to {MOST_NODES} nodes");
        let began = Instant::now();
        let assets = Assets::find().unwrap_or_else(|why| panic!("{why}"));
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        remove_those_of_the_dead();
        let cgroup = format!("{NAME}{}-{count}", process::id());
        let dir = tempfile::Builder::new().prefix(&format!("{cgroup}-")).tempdir();
        let dir = dir.unwrap_or_else(|error| panic!("no directory for a cluster: {error}")).keep();
        let sandbox = Sandbox::new();
        let cleaner = node::cleaner(&cgroup, &dir);
        let outside = sandbox.host("wire");
        node::make_bridge(&outside, options.network);

        let pki_dir = dir.join("pki");
        let images = dir.join("images");
        for dir in [&pki_dir, &images] {
            fs::create_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        }
        let pki = Pki::new(&pki_dir);
        let token = pki::secret();
        pki.write("tokens.csv", &format!("{token},token,token,system:masters\n"));
        let admin = pki.sign("admin", ("admin", Some("system:masters")), &[]);
        let server: SocketAddr =
            format!("{}:{API_PORT}", node_address(1)).parse().expect("an address");
        let kubeconfig = pki.kubeconfig(&admin, &format!("https://{server}"));
        let listener = port::pick();
        let address = listener.local_addr().expect("a bound socket has an address");
        let ca = pki.ca().to_owned();
        let admin = Credentials { ca, certificate: admin.certificate, key: admin.key, token };
        let access = Access::new(address, &admin);
        pki.write("admin.kubeconfig", access.kubeconfig());
        let wire = Wire::start(&outside.netns(), listener, server, kubeconfig);
        let wire = wire.unwrap_or_else(|error| panic!("no wire: {error}"));

        let mut cluster = Self {
            nodes: RwLock::default(),
            wire,
            _cleaner: cleaner,
            outside,
            _sandbox: sandbox,
            dir,
            cgroup,
            pki,
            assets,
            access,
            network: options.network,
            agent_disk: options.agent_disk,
            archives: Mutex::default(),
            took: Duration::ZERO,
        };
        cluster.archive(PAUSE, &[]);
        cluster.bring_up(options.nodes);
        cluster.took = began.elapsed();
        cluster
    }

    fn bring_up(&self, nodes: u32) {
        for number in 1..=nodes {
            let node = Arc::new(Node::new(number, &self.dir, &self.cgroup));
            self.nodes.write().expect("nobody panics with it").insert(number, node);
        }
        self.on_every_node(|node| {
            self.prepare(node);
            self.boot(node);
        });
        let first = self.node(1);
        self.start_control_plane(&first);
        self.on_every_node(|node| self.join(node));
        self.wait_for("the default service account", READY_WITHIN, || {
            self.get("/api/v1/namespaces/default/serviceaccounts/default")
        });
    }

    /// Writes what the node's daemons read.
    fn prepare(&self, node: &Node) {
        let server = format!("https://{}:{API_PORT}", node_address(1));
        daemons::write_node(&node.place(), &self.assets, &self.pki, &server);
        if node.number == 1 {
            daemons::write_control_plane(&node.place(), &self.assets, &self.pki, &server);
        }
        if self.network == Network::Ptp {
            node.write("etc/cni/net.d/10-ptp.conflist", &daemons::ptp(&pod_network(node.number)));
        }
    }

    /// Boots a node up to where it needs the API server; that itself is started as early as can be.
    fn boot(&self, node: &Node) {
        node.boot(&self.outside, &self.assets, self.network);
        if let Some(size) = self.agent_disk {
            node.mount_agent_disk(size);
        }
        if node.number == 1 {
            node.start(ETCD);
            node.start(API_SERVER);
        }
        node.start(CONTAINERD);
        let archives = self.archives.lock().expect("nobody panics with it").clone();
        for archive in archives {
            node.import(&archive, &self.assets).unwrap_or_else(|why| panic!("{why}"));
        }
        let (pid, address) = (node.pid().expect("it is on"), format!("{}:53", node.address));
        self.wire
            .names(node.number, pid, address.parse().expect("an address"))
            .unwrap_or_else(|error| panic!("no names on {}: {error}", node.name));
    }

    fn start_control_plane(&self, first: &Node) {
        self.wait_for("the API server", READY_WITHIN, || {
            self.request("GET", "/readyz", Vec::new())?;
            self.get("/api/v1/namespaces/default")
        });
        first.start(CONTROLLERS);
        first.start(SCHEDULER);
    }

    /// Starts a booted node's kubelet and kube-proxy, and waits for the node.
    fn join(&self, node: &Node) {
        node.start(KUBELET);
        node.start(KUBE_PROXY);
        let path = format!("/api/v1/nodes/{}", node.name);
        self.wait_for(&format!("{} to register", node.name), READY_WITHIN, || {
            let object = self.get(&path)?;
            if self.network == Network::Ptp && object["spec"]["podCIDR"].is_null() {
                // What `--allocate-node-cidrs` does, but that holds up all controllers for ten seconds.
                let range = pod_network(node.number);
                let patch = json!({ "spec": { "podCIDR": range, "podCIDRs": [range] } });
                self.request("PATCH", &path, patch.to_string().into_bytes())?;
            }
            (object["status"]["nodeInfo"]["bootID"].as_str() == node.boot_id().as_deref())
                .then_some(())
                .ok_or_else(|| "it has not reported this boot".to_owned())
        });
        if self.network == Network::Ptp {
            self.wait_node_ready(node.number, READY_WITHIN);
        }
    }

    // --- the cluster as an administrator sees it ----------------------------------------------------

    /// The administrator's kubeconfig, for a server at a port of this machine's loopback.
    pub fn kubeconfig(&self) -> PathBuf {
        PathBuf::from(self.pki.path("admin.kubeconfig"))
    }

    /// The same, for clients of this process.
    pub fn access(&self) -> &Access {
        &self.access
    }

    pub async fn client(&self) -> kube::Client {
        self.access.client().await
    }

    /// How long the start took.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// What kubectl printed; what it said, if it failed or took five minutes.
    pub fn try_kubectl(&self, args: &[&str]) -> Result<String, String> {
        let mut command = Command::new("timeout");
        let kubectl = self.kubectl_command();
        command.args(["--kill-after=5", node::LONGEST]).arg(kubectl.get_program());
        command.args(kubectl.get_args()).args(args).env("HOME", &self.dir);
        node::said(command.stdin(Stdio::null()).output(), "kubectl")
    }

    /// What kubectl printed. Panics with evidence if it failed.
    #[track_caller]
    pub fn kubectl(&self, args: &[&str]) -> String {
        self.try_kubectl(args)
            .unwrap_or_else(|why| panic!("kubectl {}: {why}\n{}", args.join(" "), self.evidence()))
    }

    /// kubectl as a command, for who wants its pipes or its process.
    pub fn kubectl_command(&self) -> Command {
        let mut command = Command::new(self.assets.kube.join("kubectl"));
        let cache = self.dir.join("kubectl");
        command.arg(format!("--kubeconfig={}", self.kubeconfig().display()));
        command.arg(format!("--cache-dir={}", cache.display())).env("HOME", &self.dir);
        command
    }

    /// Applies manifests.
    #[track_caller]
    pub fn apply(&self, manifests: &str) {
        let file = tempfile::NamedTempFile::new().and_then(|file| {
            fs::write(file.path(), manifests)?;
            Ok(file)
        });
        let file = file.unwrap_or_else(|error| panic!("no file for manifests: {error}"));
        self.kubectl(&["apply", "--filename", &file.path().display().to_string()]);
    }

    /// An object or a list, straight from the API server: cheaper than kubectl where a test asks often.
    pub fn get(&self, path: &str) -> Result<Value, String> {
        let text = self.request("GET", path, Vec::new())?;
        serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))
    }

    fn request(&self, method: &str, path: &str, body: Vec<u8>) -> Result<String, String> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/merge-patch+json")
            .body(body)
            .map_err(|error| format!("{path}: {error}"))?;
        self.wire.request(request)
    }

    // --- images -------------------------------------------------------------------------------------

    /// Makes an image of static files, each with its path in the image, and of busybox; loads it on
    /// every node, also on those that are added later. Pods use it with `imagePullPolicy: Never`.
    pub fn load_image(&self, reference: &str, files: &[(&Path, &str)]) {
        let archive = self.archive(reference, files);
        self.import(&archive);
    }

    /// Loads an OCI or Docker archive on every node, also on those that are added later.
    pub fn load_archive(&self, archive: &Path) {
        let mut archives = self.archives.lock().expect("nobody panics with it");
        let kept = self.dir.join("images").join(format!("{}.tar", archives.len()));
        fs::copy(archive, &kept).unwrap_or_else(|error| panic!("{}: {error}", archive.display()));
        archives.push(kept.clone());
        drop(archives);
        self.import(&kept);
    }

    /// Gives an image that every node has another name there.
    pub fn tag_image(&self, reference: &str, also: &str) {
        let [from, to] = [reference, also].map(|it| format!("docker.io/{it}"));
        let ctr = self.assets.cni("ctr");
        self.on_every_node(|node| {
            let tag = ["--namespace=k8s.io", "images", "tag", &from, &to];
            node.output(&ctr, &tag).unwrap_or_else(|why| panic!("{}: {why}", node.name));
        });
    }

    fn archive(&self, reference: &str, files: &[(&Path, &str)]) -> PathBuf {
        let mut archives = self.archives.lock().expect("nobody panics with it");
        let archive = self.dir.join("images").join(format!("{}.tar", archives.len()));
        let busybox = self.assets.cni.join("busybox");
        image::write(&archive, reference, &busybox, files)
            .unwrap_or_else(|error| panic!("cannot make the image {reference}: {error}"));
        archives.push(archive.clone());
        archive
    }

    fn import(&self, archive: &Path) {
        self.on_every_node(|node| {
            node.import(archive, &self.assets).unwrap_or_else(|why| panic!("{why}"));
        });
    }

    // --- nodes --------------------------------------------------------------------------------------

    /// The numbers of the nodes, from 1.
    pub fn nodes(&self) -> Vec<u32> {
        self.nodes.read().expect("nobody panics with it").keys().copied().collect()
    }

    pub fn node_name(&self, node: u32) -> String {
        node_name(node)
    }

    /// The process of this machine that is the node's first; none while the node is off.
    pub fn node_pid(&self, node: u32) -> Option<u32> {
        self.node(node).pid()
    }

    pub fn node_address(&self, node: u32) -> String {
        node_address(node)
    }

    /// What a command in a node's namespaces printed; what it said, if it failed or took five minutes.
    pub fn try_in_node(&self, node: u32, command: &[&str]) -> Result<String, String> {
        let (program, args) = command.split_first().ok_or("no command")?;
        self.node(node).output(program, args)
    }

    /// The same, but panics if it failed.
    #[track_caller]
    pub fn in_node(&self, node: u32, command: &[&str]) -> String {
        self.try_in_node(node, command)
            .unwrap_or_else(|why| panic!("on {}: {}: {why}", node_name(node), command.join(" ")))
    }

    /// A command in a node's namespaces, for who wants its pipes or its process.
    pub fn node_command(&self, node: u32, program: impl AsRef<OsStr>) -> Command {
        self.node(node).command(program)
    }

    /// A command beside the nodes, at [`GATEWAY`]: a client that is not part of the cluster.
    pub fn outside(&self, program: impl AsRef<OsStr>) -> Command {
        self.outside.command(program)
    }

    /// The network namespace that is beside the nodes, for who enters it.
    pub fn outside_netns(&self) -> PathBuf {
        self.outside.netns()
    }

    /// The directory on this machine in which a node's `/etc`, `/opt` and `/var` are.
    pub fn disk(&self, node: u32) -> PathBuf {
        self.node(node).disk()
    }

    /// Kills a daemon (`kubelet`, `containerd`, `kube-proxy`; on node 1 also those of the control plane)
    /// with SIGKILL, and returns when it is gone.
    #[track_caller]
    pub fn kill(&self, daemon: &str, node: u32) {
        let killed = self.node(node).kill(daemon, "KILL");
        killed.unwrap_or_else(|why| panic!("cannot kill {daemon} on {}: {why}", node_name(node)));
    }

    /// Kills a daemon if it runs, and starts it.
    #[track_caller]
    pub fn restart(&self, daemon: &str, node: u32) {
        let node = self.node(node);
        if node.is_running(daemon) {
            let killed = node.kill(daemon, "KILL");
            killed.unwrap_or_else(|why| panic!("cannot kill {daemon} on {}: {why}", node.name));
        }
        node.start(daemon);
    }

    /// Ends everything in the node at once, and starts it again: `/run` and the network are new, the
    /// disk is as it was. Returns when its kubelet has reported this boot; with [`Network::Ptp`] when
    /// the node is Ready. Pods come back after that.
    pub fn reboot(&self, node: u32) {
        self.cut_power(node);
        self.power_on(node);
    }

    /// Ends everything in the node at once. Returns when all of its processes are gone.
    pub fn cut_power(&self, node: u32) {
        self.wire.forget(node);
        self.node(node).cut_power();
    }

    /// Starts a node whose power was cut.
    pub fn power_on(&self, node: u32) {
        let node = self.node(node);
        self.boot(&node);
        if node.number == 1 {
            self.start_control_plane(&node);
        }
        self.join(&node);
    }

    /// Adds a node and returns its number. It has every image that was loaded.
    pub fn add_node(&self) -> u32 {
        let mut nodes = self.nodes.write().expect("nobody panics with it");
        let number = nodes.keys().last().map_or(1, |last| last + 1);
        assert!(number <= MOST_NODES, "a cluster has at most {MOST_NODES} nodes");
        let node = Arc::new(Node::new(number, &self.dir, &self.cgroup));
        nodes.insert(number, Arc::clone(&node));
        drop(nodes);
        self.prepare(&node);
        self.boot(&node);
        self.join(&node);
        number
    }

    /// Ends a node and deletes its object, as a cloud's autoscaler does. Its pods are gone with it.
    #[track_caller]
    pub fn remove_node(&self, node: u32) {
        assert!(node != 1, "node 1 has the control plane");
        self.cut_power(node);
        let removed = self.nodes.write().expect("nobody panics with it").remove(&node);
        removed.unwrap_or_else(|| panic!("there is no node {node}")).destroy();
        self.kubectl(&["delete", "node", &node_name(node)]);
    }

    #[track_caller]
    fn node(&self, number: u32) -> Arc<Node> {
        let nodes = self.nodes.read().expect("nobody panics with it");
        Arc::clone(nodes.get(&number).unwrap_or_else(|| panic!("there is no node {number}")))
    }

    /// On all nodes at once; the first panic is this thread's.
    fn on_every_node(&self, work: impl Fn(&Node) + Sync) {
        let nodes: Vec<_> =
            self.nodes.read().expect("nobody panics with it").values().cloned().collect();
        let work = &work;
        thread::scope(|scope| {
            let workers: Vec<_> =
                nodes.iter().map(|node| scope.spawn(move || work(node))).collect();
            for worker in workers {
                if let Err(panic) = worker.join() {
                    panic::resume_unwind(panic);
                }
            }
        });
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// What a crash of the machine or of a container left behind.
fn remove_those_of_the_dead() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let parts: Vec<_> =
            name.strip_prefix(NAME).into_iter().flat_map(|rest| rest.split('-')).collect();
        if let [pid, count, _] = parts[..]
            && !Path::new("/proc").join(pid).exists()
        {
            drop(node::cleaner(&format!("{NAME}{pid}-{count}"), &entry.path()));
        }
    }
}

fn node_name(number: u32) -> String {
    format!("node-{number}")
}

fn node_address(number: u32) -> String {
    format!("10.97.0.{}", 10 + number)
}

fn pod_network(number: u32) -> String {
    format!("10.244.{number}.0/24")
}

#[cfg(test)]
mod tests;
