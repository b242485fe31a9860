//! The node's network as its users run it: the agent, what it shows, and what is installed.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cni::spec::Success;
use cni::wire::{self, AddRequest, AttachmentKey, Operation, Pod, Reply, Request};
use kernel::netns::Namespace;
use serde_json::{Value, json};
use testkit::{Host, Sandbox, requires};

const PATIENCE: Duration = Duration::from_secs(60);

/// Without the machine's own settings.
fn alone(mut command: Command) -> Command {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
        command.env_remove(name);
    }
    command.env("FAIRLEAD_CONFIG", "/dev/null");
    command
}

fn fairlead(args: &[&str]) -> Output {
    alone(Command::new(env!("CARGO_BIN_EXE_fairlead"))).args(args).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `fairlead agent` on a node that is a namespace; killed when dropped.
struct Agent {
    child: Child,
    namespace: Namespace,
    admin: String,
    socket: PathBuf,
}

impl Agent {
    fn start(host: &Host, dir: &Path) -> Self {
        let socket = dir.join("run/cni.sock");
        let mut command = alone(host.command(env!("CARGO_BIN_EXE_fairlead")));
        command.args(["agent", "--net-node", "node1", "--net-addresses", "192.0.2.1"]);
        command.args(["--net-subnets", "10.64.0.0/24+fd64::/120", "--admin-listen", "127.0.0.1:0"]);
        command.args(["--net-masquerade", "on"]);
        command.arg("--data").arg(dir.join("data")).arg("--net-socket").arg(&socket);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map(|line| line.unwrap().trim().to_owned());
        let line = lines.find(|line| line.starts_with("admin")).expect("it says where it listens");
        let admin = line.rsplit("http://").next().unwrap().trim_end_matches('/').to_owned();
        Self { child, namespace: Namespace::open(host.netns()).unwrap(), admin, socket }
    }

    fn get(&self, path: &str) -> String {
        let get = || {
            let mut stream = TcpStream::connect(&self.admin).unwrap();
            let admin = &self.admin;
            write!(stream, "GET {path} HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n")
                .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        self.namespace.run_in(get).unwrap()
    }

    fn until_ready(&self) {
        let until = Instant::now() + PATIENCE;
        while !self.get("/readyz").starts_with("HTTP/1.1 200") {
            assert!(Instant::now() < until, "{}", self.get("/readyz"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ask(&self, ask: Operation, pod: Option<&Host>) -> Reply {
        let namespace = pod.map(|pod| Namespace::open(pod.netns()).unwrap());
        let deadline = Instant::now() + PATIENCE;
        let request = Request::within(deadline, ask);
        let descriptor = namespace.as_ref().map(AsFd::as_fd);
        wire::call(&self.socket, &request, descriptor, deadline).unwrap()
    }

    fn add(&self, container: &str, pod: &Host) -> Success {
        let add = Operation::Add(AddRequest {
            key: name(container),
            network: "pods".to_owned(),
            netns: pod.netns().display().to_string(),
            pod: Some(Pod { namespace: "shop".to_owned(), name: container.to_owned(), uid: None }),
            pool: None,
            fixed: Default::default(),
        });
        match self.ask(add, Some(pod)) {
            Reply::Added(success) => success,
            other => panic!("{other:?}"),
        }
    }

    /// Exit code and what was printed as JSON.
    fn shown(&self, verb: &str) -> (i32, Value) {
        let socket = self.socket.to_str().unwrap();
        let output = fairlead(&["net", verb, "-o", "json", "--net-socket", socket]);
        let value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
        (output.status.code().unwrap(), value)
    }

    fn leave(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn name(container: &str) -> AttachmentKey {
    AttachmentKey { container: container.to_owned(), ifname: "eth0".to_owned() }
}

#[test]
fn the_agent_serves_shows_and_remembers() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let [node, pod] = ["node", "pod"].map(|name| sandbox.host(name));
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(&node, dir.path());
    agent.until_ready();
    let added = agent.add("web", &pod);

    let (code, addresses) = agent.shown("addresses");
    assert_eq!(code, 0);
    let [row] = addresses.as_array().unwrap().as_slice() else { panic!("{addresses}") };
    assert_eq!(row["pod"], json!({"namespace": "shop", "name": "web"}));
    assert_eq!(row["ipv4"], added.ips[0].address.address.to_string());
    assert_eq!(row["ipv6"], added.ips[1].address.address.to_string());
    assert_eq!((&row["container"], &row["pool"]), (&json!("web"), &json!("default")));
    assert_eq!(row["hostInterface"], cni::interface::host_interface(&name("web")));

    let (_, blocks) = agent.shown("blocks");
    let block = &blocks[0];
    assert_eq!(
        (&block["node"], &block["here"], &block["used"]),
        (&json!("node1"), &json!(true), &json!(1))
    );
    assert_eq!(block["via"], json!(["192.0.2.1"]));
    let (_, pools) = agent.shown("pools");
    assert_eq!(pools[0]["subnets"], json!(["10.64.0.0/24", "fd64::/120"]));

    // Routes to a block that was just claimed follow in a moment.
    let until = Instant::now() + PATIENCE;
    while agent.shown("check") != (0, json!([])) {
        assert!(Instant::now() < until, "{:?}", agent.shown("check"));
    }
    let metrics = agent.get("/metrics");
    for metric in
        ["fairlead_cni_results_total{command=\"add\",code=\"0\"} 1", "fairlead_cni_step_seconds"]
    {
        assert!(metrics.contains(metric), "{metric} is not in {metrics}");
    }
    agent.leave();

    let agent = Agent::start(&node, dir.path());
    agent.until_ready();
    assert_eq!(agent.add("web", &pod), added);
    let delete = Operation::Del { key: name("web"), network: "pods".to_owned() };
    assert_eq!(agent.ask(delete, None), Reply::Done);
    assert_eq!(agent.shown("addresses"), (0, json!([])));
}

#[test]
fn without_an_agent_it_is_said_what_to_do() {
    let output = fairlead(&["net", "addresses", "--net-socket", "/no/such/socket"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("fairlead agent"), "{}", said(&output));
    let output = fairlead(&["config", "check", "--net-subnets", "10.64.0.0", "--net-mtu", "9"]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("net.subnets") && told.contains("net.mtu"), "{told}");
}

struct Place {
    dir: tempfile::TempDir,
}

/// Debian's portmap, of a release that knows CNI 1.0.0 and no later one.
const PORTMAP: &str = "/usr/lib/cni/portmap";

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("net.d")).unwrap();
        fs::write(dir.path().join("plugin"), "the plugin").unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, verb: &str, more: &[&str]) -> (i32, Value, String) {
        self.run_in(Command::new(env!("CARGO_BIN_EXE_fairlead")), verb, more)
    }

    fn run_in(&self, command: Command, verb: &str, more: &[&str]) -> (i32, Value, String) {
        let [bin, conf, plugin] = ["bin", "net.d", "plugin"].map(|name| self.path(name));
        let mut command = alone(command);
        command.args(["net", verb, "-o", "json", "--bin-dir"]).arg(bin).arg("--conf-dir").arg(conf);
        if verb == "install" {
            command.arg("--plugin").arg(plugin);
        }
        let output = command.args(more).output().unwrap();
        let value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code().unwrap(), value, said(&output))
    }

    fn conflist(&self) -> Value {
        let text = fs::read(self.path("net.d/10-fairlead.conflist")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// What changes when the file is written again, whatever is in it.
    fn inode(&self) -> u64 {
        fs::metadata(self.path("net.d/10-fairlead.conflist")).unwrap().ino()
    }

    /// A chained plugin that knows these versions.
    fn plugin(&self, name: &str, versions: &[&str]) {
        fs::create_dir_all(self.path("bin")).unwrap();
        let answer = json!({"cniVersion": "1.0.0", "supportedVersions": versions});
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\necho '{answer}'\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn files(&self) -> Vec<String> {
        let entries = ["bin", "net.d"]
            .iter()
            .flat_map(|dir| fs::read_dir(self.path(dir)).into_iter().flatten());
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// What runtimes are asked to pass on.
fn capabilities() -> Value {
    json!({"ips": true, "mac": true, "io.kubernetes.cri.pod-annotations": true})
}

#[test]
fn what_is_installed_is_whole_and_can_be_undone() {
    let place = Place::new();
    let (code, done, _) = place.run("install", &["--net-socket", "/run/x.sock", "--timeout", "30"]);
    assert_eq!((code, &done["notes"]), (0, &json!([])));
    let conflist: Value =
        serde_json::from_slice(&fs::read(place.path("net.d/10-fairlead.conflist")).unwrap())
            .unwrap();
    assert_eq!(
        conflist,
        json!({
            "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"], "name": "fairlead",
            "plugins": [{
                "type": "fairlead-cni", "socket": "/run/x.sock", "timeout": 30,
                "capabilities": capabilities(),
            }],
        })
    );
    assert_eq!(fs::read(place.path("bin/fairlead-cni")).unwrap(), b"the plugin");
    assert_eq!(place.files(), ["10-fairlead.conflist", "fairlead-cni"]);
    // Again is an upgrade.
    fs::write(place.path("plugin"), "newer").unwrap();
    assert_eq!(place.run("install", &[]).0, 0);
    assert_eq!(fs::read(place.path("bin/fairlead-cni")).unwrap(), b"newer");
    let (code, done, why) = place.run("uninstall", &["--force"]);
    assert_eq!((code, &done["taken"]), (0, &Value::Null), "{why}");
    assert!(place.files().is_empty());
}

#[test]
fn what_others_installed_is_left_alone_and_said() {
    let place = Place::new();
    let theirs = place.path("net.d/20-theirs.conflist");
    let text = r#"{"name": "theirs", "plugins": [{"type": "ptp"}]}"#;
    fs::write(&theirs, text).unwrap();
    let (code, done, _) = place.run("install", &[]);
    assert_eq!(code, 0);
    assert!(done["notes"][0].as_str().unwrap().contains("in place of"), "{done}");
    let (code, done, _) = place.run("uninstall", &["--force"]);
    assert_eq!((code, &done["taken"]), (0, &json!(theirs)));
    let (code, done, _) = place.run("install", &["--configuration", "90-fairlead.conflist"]);
    assert_eq!(code, 0);
    assert_eq!(done["taken"], theirs.to_str().unwrap());
    assert!(done["notes"][0].as_str().unwrap().contains("go on taking"), "{done}");
    for verb in ["install", "uninstall"] {
        let (code, _, why) = place.run(verb, &["--configuration", "20-theirs.conflist"]);
        assert_eq!(code, 2);
        assert!(why.contains("--configuration"), "{why}");
    }
    assert_eq!(fs::read_to_string(&theirs).unwrap(), text);
    let (code, _, why) = place.run("install", &["--network", "../x"]);
    assert_eq!(code, 2);
    assert!(why.contains("../x"), "{why}");
}

#[test]
fn what_the_administrator_chained_survives_every_installation() {
    let place = Place::new();
    assert_eq!(place.run("install", &[]).0, 0);
    let mut edited = place.conflist();
    edited["plugins"].as_array_mut().unwrap().push(json!({"type": "tuning", "mtu": 1400}));
    edited["x-note"] = json!("ours");
    let path = place.path("net.d/10-fairlead.conflist");
    fs::write(&path, edited.to_string()).unwrap();
    place.plugin("tuning", &["1.0.0", "1.1.0"]);
    let (text, inode) = (fs::read(&path).unwrap(), place.inode());

    let (code, done, why) = place.run("install", &[]);
    assert_eq!((code, &done["written"]), (0, &json!([])), "{why}");
    assert_eq!((fs::read(&path).unwrap(), place.inode()), (text, inode), "not written again");
    let chained = json!([{"plugin": "tuning", "cniVersions": ["1.0.0", "1.1.0"]}]);
    assert_eq!(done["chained"], chained);

    // What the installer owns is brought up to date, and nothing else.
    let (code, done, _) = place.run("install", &["--timeout", "90", "--network", "other"]);
    assert_eq!((code, &done["network"]), (0, &json!("fairlead")));
    assert!(done["notes"][0].as_str().unwrap().contains("--reset"), "{done}");
    edited["plugins"][0]["timeout"] = json!(90);
    assert_eq!(place.conflist(), edited);
    assert_ne!(place.inode(), inode);

    let (code, done, _) = place.run("install", &["--reset", "--network", "other"]);
    assert_eq!((code, &done["chained"]), (0, &json!([])));
    assert_eq!(
        place.conflist()["plugins"],
        json!([{"type": "fairlead-cni", "capabilities": capabilities()}])
    );
    assert_eq!(place.conflist()["name"], "other");
}

#[test]
fn a_new_network_has_host_ports_where_their_plugin_is() {
    let place = Place::new();
    place.plugin("portmap", &["0.4.0", "1.0.0", "1.1.0"]);
    let (code, done, why) = place.run("install", &[]);
    assert_eq!((code, &done["notes"]), (0, &json!([])), "{why}");
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    assert_eq!(
        place.conflist()["plugins"],
        json!([{"type": "fairlead-cni", "capabilities": capabilities()}, portmap])
    );
    assert_eq!(done["cniVersions"], json!(["1.0.0", "1.1.0"]));
    let output = fairlead(&[
        "net",
        "install",
        "--bin-dir",
        place.path("bin").to_str().unwrap(),
        "--conf-dir",
        place.path("net.d").to_str().unwrap(),
        "--plugin",
        place.path("plugin").to_str().unwrap(),
    ]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("unchanged") && told.contains("chained with portmap"), "{told}");

    // The plugin is replaced by an older one: STATUS of 1.1.0 would fail the whole node.
    place.plugin("portmap", &["0.4.0", "1.0.0"]);
    let (_, done, _) = place.run("install", &[]);
    assert_eq!(done["cniVersions"], json!(["1.0.0"]));
    let (code, _, why) = place.run("install", &["--cni-version", "1.1.0"]);
    assert_eq!(code, 2);
    assert!(why.contains("portmap"), "{why}");
    // It is gone: that is said, and the network is left as it is.
    fs::remove_file(place.path("bin/portmap")).unwrap();
    let (code, done, _) = place.run("install", &[]);
    assert_eq!((code, &done["written"]), (0, &json!([])));
    assert!(done["notes"][0].as_str().unwrap().contains("portmap"), "{done}");
    let (code, done, why) = place.run("uninstall", &["--force"]);
    assert_eq!(code, 0, "{why}");
    assert!(done["notes"][0].as_str().unwrap().contains("portmap"), "{done}");
}

#[test]
fn what_is_chained_can_be_chosen() {
    let place = Place::new();
    let (code, _, why) = place.run("install", &["--chain", "bandwidth"]);
    assert_eq!(code, 2);
    assert!(why.contains("bandwidth"), "{why}");
    for name in ["portmap", "bandwidth"] {
        place.plugin(name, &["1.0.0"]);
    }
    let types = || {
        let list = place.conflist();
        let plugins = list["plugins"].as_array().unwrap().clone();
        plugins.iter().map(|plugin| plugin["type"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(place.run("install", &["--chain", "none"]).0, 0);
    assert_eq!(types(), ["fairlead-cni"]);
    assert_eq!(place.run("install", &[]).0, 0);
    assert_eq!(types(), ["fairlead-cni"], "the default is for a new network");
    assert_eq!(place.run("install", &["--chain", "portmap", "--chain", "bandwidth"]).0, 0);
    assert_eq!(types(), ["fairlead-cni", "portmap", "bandwidth"]);
    assert_eq!(place.run("install", &["--chain", "none", "--chain", "portmap"]).0, 2);
    // A file that nobody can read is written anew only when that is asked for.
    fs::write(place.path("net.d/10-fairlead.conflist"), "{").unwrap();
    let (code, _, why) = place.run("install", &[]);
    assert_eq!(code, 2);
    assert!(why.contains("--reset"), "{why}");
    assert_eq!(place.run("install", &["--reset"]).0, 0);
    assert_eq!(types(), ["fairlead-cni", "portmap"]);
}

/// Debian 12's portmap made nodes NotReady: it does not know 1.1.0, which was listed all the same.
#[test]
fn a_real_portmap_is_asked_and_heeded() {
    if !Path::new(PORTMAP).exists() {
        let why = format!("no {PORTMAP}: scripts/setup installs containernetworking-plugins");
        return testkit::need::skip("a_real_portmap_is_asked_and_heeded::here", &why);
    }
    let place = Place::new();
    fs::create_dir(place.path("bin")).unwrap();
    fs::copy(PORTMAP, place.path("bin/portmap")).unwrap();
    let (code, done, why) = place.run("install", &[]);
    assert_eq!((code, &done["notes"]), (0, &json!([])), "{why}");
    let known = done["chained"][0]["cniVersions"].as_array().unwrap();
    assert!(known.contains(&json!("1.0.0")), "{known:?}");
    let knows_later = known.contains(&json!("1.1.0"));
    let listed = if knows_later { json!(["1.0.0", "1.1.0"]) } else { json!(["1.0.0"]) };
    assert_eq!(done["cniVersions"], listed);
}

/// What of the node is not as in a namespace that was just made.
fn traces(host: &Host) -> Vec<String> {
    let looks: [&[&str]; 6] = [
        &["ip", "-oneline", "link"],
        &["ip", "route", "show", "table", "all"],
        &["ip", "-6", "route", "show", "table", "all"],
        &["ip", "rule"],
        &["ip", "neighbour"],
        &["nft", "list", "ruleset"],
    ];
    let mut lines = Vec::new();
    for look in looks {
        let output = host.command(look[0]).args(&look[1..]).output().unwrap();
        assert!(output.status.success(), "{look:?}: {}", said(&output));
        lines.extend(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned));
    }
    // What the kernel makes of its own accord on a cable, a second after it was plugged in.
    lines.retain(|line| !line.contains("fe80::"));
    lines
}

#[test]
fn a_purge_leaves_nothing_on_the_node() {
    requires!(netns, nft);
    let sandbox = Sandbox::new();
    let [node, pod, other] = ["node", "pod", "other"].map(|name| sandbox.host(name));
    sandbox.link((&node, "192.0.2.1/24"), (&other, "192.0.2.2/24"));
    let before = traces(&node);
    let place = Place::new();
    let agent = Agent::start(&node, place.dir.path());
    agent.until_ready();
    assert_eq!(place.run("install", &[]).0, 0);
    agent.add("web", &pod);
    // The other host has no route to pods: it answers the node.
    let far: SocketAddr = "192.0.2.2:9".parse().unwrap();
    let inside = Namespace::open(pod.netns()).unwrap();
    let until = Instant::now() + PATIENCE;
    let refused = |it: std::io::Result<TcpStream>| {
        it.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    let wait = Duration::from_millis(200);
    while !refused(inside.run_in(|| TcpStream::connect_timeout(&far, wait)).unwrap()) {
        assert!(Instant::now() < until, "the pod is not masqueraded");
    }
    // Another node's block, an interface that nobody has, and the table of what watches connections.
    let ip = |args: &[&str]| {
        let output = node.command("ip").args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    };
    let (data, socket) = (place.path("data"), agent.socket.clone());
    let options = ["--data", data.to_str().unwrap(), "--net-socket", socket.to_str().unwrap()];
    let uninstall = |more: &[&str]| {
        let command = node.command(env!("CARGO_BIN_EXE_fairlead"));
        place.run_in(command, "uninstall", &[&options[..], more].concat())
    };
    let (code, _, why) = uninstall(&["--purge"]);
    assert_eq!(code, 2, "a pod has its network from us");
    assert!(why.contains("--force"), "{why}");
    let delete = Operation::Del { key: name("web"), network: "pods".to_owned() };
    assert_eq!(agent.ask(delete, None), Reply::Done);
    // A DEL does not wait for the kernel.
    let until = Instant::now() + PATIENCE;
    while traces(&node).iter().any(|line| line.contains("scope link") && line.contains(" fl")) {
        assert!(Instant::now() < until, "the interface stays");
    }
    let (code, _, why) = uninstall(&["--purge"]);
    assert_eq!(code, 2, "an agent would make everything again");
    assert!(why.contains("agent runs"), "{why}");
    assert_eq!(place.files(), ["10-fairlead.conflist", "fairlead-cni"], "nothing was removed");
    assert!(!traces(&node).iter().all(|line| before.contains(line)), "the agent left traces");
    drop(agent);
    ip(&["route", "add", "10.99.0.0/27", "via", "192.0.2.2", "protocol", "119"]);
    ip(&["link", "add", "flabcdefghijklm", "type", "veth", "peer", "name", "far"]);
    let hooked =
        Namespace::open(node.netns()).unwrap().run_in(kernel::conntrack::enable_tracking).unwrap();
    hooked.unwrap();

    let (code, _, why) = uninstall(&["--purge"]);
    assert_eq!(code, 2, "an interface of ours is there: {why}");
    let (code, done, why) = uninstall(&["--purge", "--force"]);
    assert_eq!(code, 0, "{why}");
    let removed = done["removed"].to_string();
    for what in
        ["flabcdefghijklm", "10.99.0.0/27", "table inet fairlead-nat", "fairlead-cni", "data"]
    {
        assert!(removed.contains(what), "{what} is not in {removed}");
    }
    // The kernel's own, of who was talked to.
    ip(&["neighbour", "flush", "dev", "other"]);
    let after = traces(&node);
    let left: Vec<_> = after.iter().filter(|line| !before.contains(line)).collect();
    assert_eq!(left, Vec::<&String>::new());
    assert!(place.files().is_empty(), "{:?}", place.files());
    let mut kept: Vec<_> = fs::read_dir(place.dir.path()).unwrap().flatten().collect();
    kept.sort_by_key(fs::DirEntry::file_name);
    let kept: Vec<_> = kept.iter().map(fs::DirEntry::file_name).collect();
    assert_eq!(kept, ["bin", "net.d", "plugin"], "neither data nor run");

    let (code, done, why) = uninstall(&["--purge", "--force"]);
    assert_eq!((code, &done["removed"]), (0, &json!([])), "again is nothing: {why}");
}

#[test]
fn a_directory_that_is_not_ours_is_not_purged() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let node = sandbox.host("node");
    let place = Place::new();
    fs::create_dir(place.path("home")).unwrap();
    fs::write(place.path("home/letter"), "dear").unwrap();
    let (home, socket) = (place.path("home"), place.path("run/cni.sock"));
    let options =
        ["--purge", "--data", home.to_str().unwrap(), "--net-socket", socket.to_str().unwrap()];
    let command = node.command(env!("CARGO_BIN_EXE_fairlead"));
    let (code, done, why) = place.run_in(command, "uninstall", &options);
    assert_eq!(code, 0, "{why}");
    assert!(done["notes"].to_string().contains("--data"), "{done}");
    assert_eq!(fs::read(place.path("home/letter")).unwrap(), b"dear");
}

/// As in a container that has the node's directories as volumes.
#[test]
fn a_data_directory_that_is_a_mount_point_is_emptied_and_one_in_use_is_left() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let node = sandbox.host("node");
    let place = Place::new();
    let (data, socket) = (place.path("data"), place.path("run/cni.sock"));
    fs::create_dir_all(data.join("net")).unwrap();
    fs::write(data.join("net/addresses.journal"), "").unwrap();
    let lock = kernel::lock_file::LockFile::take(&data).unwrap();
    let [data, socket] = [&data, &socket].map(|path| path.to_str().unwrap());
    let uninstall = || {
        let mut command = node.command("unshare");
        let script = "mount --bind \"$0\" \"$0\" && exec \"$@\"";
        command.args(["--mount", "sh", "-c", script, data, env!("CARGO_BIN_EXE_fairlead")]);
        let options = ["--purge", "--data", data, "--net-socket", socket];
        place.run_in(command, "uninstall", &options)
    };
    let (code, _, why) = uninstall();
    assert_eq!(code, 2);
    assert!(why.contains("in use by another process"), "{why}");
    drop(lock);
    for again in [false, true] {
        let (code, done, why) = uninstall();
        assert_eq!(code, 0, "{why}");
        assert!(done["notes"].to_string().contains("mount point"), "{done}");
        assert_eq!(done["removed"].as_array().unwrap().is_empty(), again, "{done}");
        assert_eq!(fs::read_dir(data).unwrap().count(), 0);
    }
}
