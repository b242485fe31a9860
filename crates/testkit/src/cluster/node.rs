//! One node: a process that is the first of its own PID, mount, network, UTS and IPC namespaces, and
//! the daemons that were started in them.
//!
//! - It ends with the test process, however that ends, and with it everything that runs in the node.
//! - Its `/etc`, `/opt` and `/var` are in `disk` of its directory, and stay over a reboot; `/run` does
//!   not. All else it shows of this machine's file system is the machine's.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::daemons::{self, CONTAINERD, Place};
use super::{Assets, GATEWAY, Network, PREFIX, node_address, node_name, pod_network};
use crate::Host;
use crate::leash::Leash;

const INIT: &str = include_str!("node-init.sh");
const CLEAN: &str = include_str!("clean.sh");

/// Ten times what it takes on two busy cores.
const UP_WITHIN: Duration = Duration::from_secs(30);

/// Seconds that a command may take whose end is waited for.
pub(super) const LONGEST: &str = "300";

/// A session of its own, so that no signal to a test's group reaches the daemon.
const START: &str = r#"
group=/sys/fs/cgroup/pids/$CGROUP
[ -d "$group" ] || group=/sys/fs/cgroup/$CGROUP
echo 0 >"$group/daemons/cgroup.procs"
ulimit -n "$(ulimit -Hn)"
setsid "$DIR/daemon/$1" >>"$DIR/log/$1" 2>&1 </dev/null &
echo $! >"/run/daemons/$1"
"#;

const AGENT_DISK: &str = r#"
set -e
image=$DIR/agent-disk
if [ ! -e "$image" ]; then
    truncate -s "$1M" "$image.new"
    mkfs.ext4 -q -m 0 "$image.new"
    mv "$image.new" "$image"
fi
mkdir -p /var/lib/fairlead
mount -o loop "$image" /var/lib/fairlead
"#;

/// Returns when the daemon is gone.
const KILL: &str = r#"
pid=$(cat "/run/daemons/$1") || exit 1
rm "/run/daemons/$1"
kill -"$2" "$pid" || exit 1
for _ in {1..300}; do
    read -r _ _ state _ 2>/dev/null <"/proc/$pid/stat" || exit 0
    [ "$state" != Z ] || exit 0
    sleep 0.1
done
echo "process $pid does not end" >&2
exit 1
"#;

#[derive(Debug)]
pub(super) struct Node {
    pub(super) number: u32,
    pub(super) name: String,
    pub(super) address: String,
    dir: PathBuf,
    cgroup: String,
    /// Written by a boot and by the end of it; read by whoever enters the node.
    boot: Mutex<Option<Boot>>,
}

#[derive(Debug)]
struct Boot {
    /// The first process' id, as this machine sees it.
    pid: u32,
    id: String,
    _init: Leash,
}

impl Node {
    /// Makes the node's directory; [`Self::boot`] starts it.
    pub(super) fn new(number: u32, cluster: &Path, cgroup: &str) -> Self {
        let name = node_name(number);
        let dir = cluster.join(&name);
        for part in ["disk", "daemon", "log"] {
            let part = dir.join(part);
            fs::create_dir_all(&part).unwrap_or_else(|error| panic!("{}: {error}", part.display()));
        }
        Self {
            number,
            address: node_address(number),
            cgroup: format!("{cgroup}/{name}"),
            name,
            dir,
            boot: Mutex::new(None),
        }
    }

    pub(super) fn place(&self) -> Place<'_> {
        Place { name: &self.name, address: &self.address, dir: &self.dir, cgroup: &self.cgroup }
    }

    /// The first process' id, as this machine sees it; none while the node is off.
    pub(super) fn pid(&self) -> Option<u32> {
        self.boot.lock().expect("nobody panics with it").as_ref().map(|boot| boot.pid)
    }

    /// The kernel's name for this boot, which the kubelet reports.
    pub(super) fn boot_id(&self) -> Option<String> {
        self.boot.lock().expect("nobody panics with it").as_ref().map(|boot| boot.id.clone())
    }

    /// The directory on this machine that is `/` to what the node keeps: `/etc`, `/opt`, `/var`.
    pub(super) fn disk(&self) -> PathBuf {
        self.dir.join("disk")
    }

    pub(super) fn log(&self, daemon: &str) -> PathBuf {
        self.dir.join("log").join(daemon)
    }

    /// Starts the node and plugs it into the wire's bridge. No daemon runs yet.
    pub(super) fn boot(&self, wire: &Host, assets: &Assets, network: Network) {
        for sign in ["pid", "up"] {
            let _ = fs::remove_file(self.dir.join(sign));
        }
        let id = read_line("/proc/sys/kernel/random/uuid").expect("the kernel makes identifiers");
        let routes = match network {
            Network::None => Vec::new(),
            Network::Ptp => (1..=super::MOST_NODES)
                .filter(|other| *other != self.number)
                .map(|other| format!("{}={}", pod_network(other), node_address(other)))
                .collect(),
        };
        let keep = [self.dir.parent(), Some(&assets.kube), Some(&assets.cni)];
        let keep: Vec<_> =
            keep.into_iter().flatten().map(|path| path.display().to_string()).collect();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--pid", "--uts", "--ipc", "--propagation=private"]);
        command.args(["--fork", "--kill-child", "bash", "-c", INIT, "node-init"]);
        command.current_dir("/").env("DIR", &self.dir).env("CGROUP", &self.cgroup);
        command.env("NAME", &self.name).env("ADDRESS", &self.address).env("BOOT_ID", &id);
        command.env("PREFIX", PREFIX.to_string()).env("GATEWAY", GATEWAY);
        command
            .env("PLUGINS", &assets.plugins)
            .env("ROUTES", routes.join(" "))
            .env("KEEP", keep.join(" "));
        let leash = File::create(self.log("node-init")).and_then(|log| Leash::run(&command, log));
        let init = leash.unwrap_or_else(|error| panic!("cannot run unshare: {error}"));

        let pid = self.until("its namespaces", || read_line(self.dir.join("pid")));
        let pid = pid.parse().unwrap_or_else(|_| panic!("{}: {pid:?} is no process", self.name));
        self.plug(wire, pid);
        self.until("its network", || self.dir.join("up").exists().then_some(()));
        *self.boot.lock().expect("nobody panics with it") = Some(Boot { pid, id, _init: init });
    }

    /// Mounts a disk of its own where an agent keeps its state. It is made at the first boot, and stays.
    pub(super) fn mount_agent_disk(&self, mebibytes: u32) {
        let mut command = self.command("bash");
        command.args(["-c", AGENT_DISK, "disk", &mebibytes.to_string()]).env("DIR", &self.dir);
        run(&mut command);
    }

    fn plug(&self, wire: &Host, pid: u32) {
        let port = format!("port{}", self.number);
        // The one of the boot before may still be on its way out.
        let _ = wire.command("ip").args(["link", "delete", "dev", &port]).output();
        let pid = pid.to_string();
        // The same at every boot, as that of a real machine: who knew it finds it again.
        let mac = format!("02:00:0a:61:00:{:02x}", 10 + self.number);
        let end = ["peer", "name", "node0", "address", &mac, "netns", &pid];
        let add = [&["link", "add", "name", &port, "type", "veth"][..], &end].concat();
        run(wire.command("ip").args(add));
        run(wire.command("ip").args(["link", "set", "dev", &port, "master", "wire0", "up"]));
    }

    fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + UP_WITHIN;
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            if Instant::now() > deadline {
                panic!(
                    "{} has not got {what} in time:\n{}",
                    self.name,
                    self.last_words("node-init", 30)
                );
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends every process of the node at once, as a power cut does. The disk stays.
    pub(super) fn cut_power(&self) {
        let Some(Boot { pid, _init: init, .. }) =
            self.boot.lock().expect("nobody panics with it").take()
        else {
            return;
        };
        drop(init);
        // The first process is a zombie when all others are gone, and then nobody's.
        let deadline = Instant::now() + UP_WITHIN;
        while is_alive(pid) {
            assert!(Instant::now() < deadline, "{}'s processes do not end", self.name);
            thread::sleep(Duration::from_millis(10));
        }
        // Empty control groups would not outlive a real machine.
        drop(Leash::finally(CLEAN, &[&self.cgroup, ""]));
    }

    /// Ends the node and removes its directory.
    pub(super) fn destroy(&self) {
        self.cut_power();
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            panic!("{}: {error}", self.dir.display());
        }
    }

    pub(super) fn start(&self, daemon: &str) {
        assert!(self.dir.join("daemon").join(daemon).exists(), "{} has no {daemon}", self.name);
        let mut command = self.command("bash");
        command
            .args(["-c", START, "start", daemon])
            .env("DIR", &self.dir)
            .env("CGROUP", &self.cgroup);
        run(&mut command);
    }

    /// Returns when the daemon is gone.
    pub(super) fn kill(&self, daemon: &str, signal: &str) -> Result<(), String> {
        self.output("bash", &["-c", KILL, "kill", daemon, signal]).map(drop)
    }

    pub(super) fn is_running(&self, daemon: &str) -> bool {
        let look = r#"kill -0 "$(cat "/run/daemons/$1")""#;
        self.output("bash", &["-c", look, "look", daemon]).is_ok()
    }

    /// A command that runs in the node's namespaces, and ends with what started it.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let pid = self.pid().unwrap_or_else(|| panic!("{} is off", self.name));
        let mut command = Command::new("nsenter");
        command.args(["--target", &pid.to_string(), "--mount", "--net", "--pid", "--uts", "--ipc"]);
        command.args(["--", "setpriv", "--pdeathsig", "KILL", "--"]).arg(program);
        command
    }

    /// What the command printed; what it said, if it failed.
    pub(super) fn output(&self, program: &str, args: &[&str]) -> Result<String, String> {
        let mut command = self.command("timeout");
        command.args(["--kill-after=5", LONGEST, program]).args(args);
        said(command.stdin(Stdio::null()).output(), program)
    }

    pub(super) fn last_words(&self, daemon: &str, lines: usize) -> String {
        last_lines(&self.log(daemon), lines)
    }

    /// Loads an image archive into containerd, once that answers.
    pub(super) fn import(&self, archive: &Path, assets: &Assets) -> Result<(), String> {
        let (ctr, archive) = (assets.cni("ctr"), archive.display().to_string());
        self.until("containerd's socket", || {
            let socket = format!("/proc/{}/root/run/containerd/containerd.sock", self.pid()?);
            Path::new(&socket).exists().then_some(())
        });
        let deadline = Instant::now() + UP_WITHIN;
        loop {
            match self.output(&ctr, &["--namespace=k8s.io", "images", "import", &archive]) {
                Ok(_) => return Ok(()),
                Err(why) if Instant::now() > deadline => {
                    let log = self.last_words(CONTAINERD, 20);
                    return Err(format!("{} does not take {archive}: {why}\n{log}", self.name));
                }
                Err(_) => thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// Writes a file of the node's disk, such as `etc/cni/net.d/10-ptp.conflist`.
    pub(super) fn write(&self, path: &str, content: &str) {
        let path = self.disk().join(path);
        let dir = path.parent().expect("a file is in a directory");
        fs::create_dir_all(dir)
            .and_then(|()| fs::write(&path, content))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    pub(super) fn daemons(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.join("daemon")).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// Makes the bridge that all nodes are plugged into.
pub(super) fn make_bridge(wire: &Host, network: Network) {
    for args in [
        &["link", "add", "name", "wire0", "type", "bridge"][..],
        &["address", "add", &daemons::on_wire(GATEWAY), "dev", "wire0"],
        &["link", "set", "dev", "wire0", "up"],
    ] {
        run(wire.command("ip").args(args));
    }
    if network == Network::Ptp {
        for number in 1..=super::MOST_NODES {
            let (to, via) = (pod_network(number), node_address(number));
            run(wire.command("ip").args(["route", "add", &to, "via", &via]));
        }
    }
}

/// Removes the cluster's control groups and its directory when dropped, or when this process ends.
pub(super) fn cleaner(cgroup: &str, dir: &Path) -> Leash {
    let dir = dir.display().to_string();
    Leash::finally(CLEAN, &[cgroup, &dir]).unwrap_or_else(|error| panic!("cannot run sh: {error}"))
}

pub(super) fn last_lines(file: &Path, count: usize) -> String {
    let text = fs::read(file)
        .map_or_else(|error| error.to_string(), |text| String::from_utf8_lossy(&text).into());
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

pub(super) fn said(output: std::io::Result<Output>, program: &str) -> Result<String, String> {
    let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let complained = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}: {}{}", output.status, complained.trim(), printed.trim()))
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output();
    said(output, "a command").unwrap_or_else(|why| panic!("{command:?}: {why}"));
}

fn read_line(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// A zombie is not alive.
fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name, in parentheses, may hold anything.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    !after_name.trim_start().starts_with(['Z', 'X'])
}
