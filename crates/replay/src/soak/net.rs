//! Pods come and go on a node: the real plugin, as a runtime runs it, and the real daemon, in a process
//! of its own that can be killed.
//!
//! ```text
//! workers ─► fairlead-cni ─► socket ─► node's process (daemon, journal on a small disk, faults)
//!    └── which pod has which address ◄── compared ──► what the daemon has on record, and the kernel
//! ```
//!
//! What must hold: no address is with two pods; what the runtime was given is on record; the daemon
//! does not end by itself; after each fault record and kernel agree; at the end nothing is left. Of a
//! step that hangs its own pod is named, soon, and no other.

mod disk;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use cni::wire::{self, Operation, Reply, Request, Show};
use kernel::netlink::Netlink;
use net::faults;
use net::wiring::step;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ledger::{Explained, Is, Late, Names, late};
use super::{Drive, Fault, Planned, Ran, Stage, Work};
use crate::incident::Cannot;
use crate::new::cni_burst::{Daemon, addresses, config};
use crate::stage::node::{Pod, on_a_node, pods};
use disk::Disk;

/// Each with pods of its own. Fewer than ten pods: a name is then not the beginning of another.
const WORKERS: usize = 3;
const PODS: usize = 9;
/// Between two requests of a worker.
const PAUSE: Duration = Duration::from_millis(150);
/// What a runtime waits for.
const TIMEOUT: Duration = Duration::from_secs(5);
/// When the node's ledger calls a request late.
const LATE: Duration = Duration::from_secs(3);
/// For a start of the daemon, and for a question to it.
const START: Duration = Duration::from_secs(60);
const ASK: Duration = Duration::from_secs(5);
/// After a fault nothing is compared for so long: what it held up has to end.
const AFTER: Duration = Duration::from_secs(2);

/// To the node's process, a line each. When there is no more to come it ends.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    Hang(String),
    LetGo,
}

/// From it.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    Ready,
    Cannot(String),
    Late(Late),
}

/// The whole of the node's process: the daemon, with its files in `dir`, until its stdin ends.
pub fn node(dir: &Path) -> ! {
    let say = |said: Said| {
        let mut line = serde_json::to_string(&said).unwrap_or_default();
        line.push('\n');
        if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
            std::process::exit(0);
        }
    };
    let daemon = match Daemon::start(dir, LATE) {
        Ok(daemon) => daemon,
        Err(error) => {
            say(Said::Cannot(stallproof::sentence(&*error)));
            std::process::exit(2);
        }
    };
    say(Said::Ready);
    std::thread::spawn(|| {
        let mut hangs = Vec::new();
        for line in std::io::stdin().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(Order::Hang(container)) => hangs.push(faults::hang(&container, step::CONFIGURE)),
                Ok(Order::LetGo) => hangs.clear(),
                Err(_) => break,
            }
        }
        // Whoever started this is gone, or wants it gone.
        std::process::exit(0);
    });
    loop {
        late(&daemon.ledger).into_iter().for_each(|late| say(Said::Late(late)));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// That process, as its starter has it.
struct Node {
    process: Child,
    orders: ChildStdin,
    said: Receiver<Said>,
}

impl Node {
    fn start(stage: &Stage<'_>, dir: &Path) -> Result<Self, Cannot> {
        let mut command = (stage.node)();
        command.arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        stage.process.store(process.id(), Relaxed);
        let (Some(orders), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("the node's process has no pipes".into());
        };
        // Some lines: they are taken several times a second.
        let (say, said) = sync_channel(1024);
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            for said in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if say.send(said).is_err() {
                    return;
                }
            }
        });
        match said.recv_timeout(START) {
            Ok(Said::Ready) => Ok(Self { process, orders, said }),
            Ok(Said::Cannot(why)) => {
                Err(format!("the node's daemon could not be started: {why}").into())
            }
            Ok(Said::Late(_)) | Err(RecvTimeoutError::Timeout) => {
                Err("the node's daemon does not become ready".into())
            }
            Err(RecvTimeoutError::Disconnected) => Err("the node's daemon ended at once".into()),
        }
    }

    fn order(&mut self, order: &Order) -> Ran {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        Ok(self.orders.write_all(line.as_bytes())?)
    }

    fn late(&self) -> Vec<Late> {
        let late = |said| if let Said::Late(late) = said { Some(late) } else { None };
        self.said.try_iter().filter_map(late).collect()
    }

    fn kill(mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the workers share with who checks them.
struct Shared {
    plugin: PathBuf,
    config: Value,
    /// Which container has which addresses, as the runtime was told. What is about to be given back
    /// is not in it any more.
    given: Mutex<HashMap<String, Vec<IpAddr>>>,
    /// When each container was last asked for.
    asked: Mutex<HashMap<String, Instant>>,
    broken: Mutex<Vec<String>>,
    done: AtomicU64,
    stop: AtomicBool,
    /// Workers that have left.
    left: AtomicUsize,
}

impl Shared {
    fn add(&self, pod: &Pod) -> bool {
        self.asked.lock().insert(pod.container.clone(), Instant::now());
        let Ok(Ok(result)) = pod.run(&self.plugin, "ADD", &self.config) else { return false };
        let addresses = addresses(&result);
        let mut given = self.given.lock();
        for (other, theirs) in given.iter() {
            if let Some(twice) = addresses.iter().find(|address| theirs.contains(address)) {
                let what = format!("{twice} is with {other}, and was given to {}", pod.container);
                self.broken.lock().push(what);
            }
        }
        if addresses.is_empty() {
            self.broken.lock().push(format!("{} was set up without an address", pod.container));
        }
        given.insert(pod.container.clone(), addresses);
        self.done.fetch_add(1, Relaxed);
        true
    }

    fn delete(&self, pod: &Pod) -> bool {
        self.given.lock().remove(&pod.container);
        let gone = matches!(pod.run(&self.plugin, "DEL", &self.config), Ok(Ok(_)));
        self.done.fetch_add(u64::from(gone), Relaxed);
        gone
    }

    /// As a runtime does it: what could not be set up is taken down before it is tried again.
    fn work(&self, pods: &[Pod]) {
        let mut there = vec![false; pods.len()];
        while !self.stop.load(Relaxed) {
            for (pod, there) in pods.iter().zip(&mut there) {
                if self.stop.load(Relaxed) {
                    return;
                }
                *there =
                    if *there { !self.delete(pod) } else { self.add(pod) || !self.delete(pod) };
                std::thread::sleep(PAUSE);
            }
        }
    }
}

pub(super) fn play(stage: &Stage<'_>, drive: &mut Drive<'_>) -> Ran {
    on_a_node(|| {
        let dir = stage.soak.dir.join("net");
        std::fs::create_dir(&dir)?;
        let disk = Disk::new(&dir)?;
        std::os::unix::fs::symlink(disk.path(), dir.join("net"))?;
        let socket = dir.join("run/cni.sock");
        let shared = Shared {
            plugin: stage.soak.plugin.clone(),
            config: config(&socket, TIMEOUT),
            given: Mutex::default(),
            asked: Mutex::default(),
            broken: Mutex::default(),
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            left: AtomicUsize::new(0),
        };
        let pods = pods(&dir, PODS)?;
        let node = Some(Node::start(stage, &dir)?);
        std::thread::scope(|scope| {
            for own in pods.chunks(PODS / WORKERS) {
                let shared = &shared;
                scope.spawn(move || {
                    shared.work(own);
                    shared.left.fetch_add(1, Relaxed);
                });
            }
            let names = Names::default();
            let mut job = Net {
                stage,
                dir: &dir,
                socket: &socket,
                shared: &shared,
                pods: &pods,
                disk,
                node,
                names,
                fault: None,
                calm_since: Instant::now(),
            };
            let driven = drive(&mut job);
            shared.stop.store(true, Relaxed);
            if let Some(node) = job.node.take() {
                node.kill();
            }
            driven
        })
    })
}

struct Net<'a> {
    stage: &'a Stage<'a>,
    dir: &'a Path,
    socket: &'a Path,
    shared: &'a Shared,
    pods: &'a [Pod],
    disk: Disk,
    /// None while it is killed.
    node: Option<Node>,
    names: Names,
    /// The fault, since when, and the pod that is made to hang.
    fault: Option<(Fault, Instant, String)>,
    calm_since: Instant,
}

impl Work for Net<'_> {
    fn begin(&mut self, planned: &Planned) -> Ran {
        let victim = &self.pods[(planned.pick % self.pods.len() as u64) as usize].container;
        match planned.fault {
            Fault::NetKill => {
                if let Some(node) = self.node.take() {
                    node.kill();
                }
            }
            Fault::NetDiskFull => self.disk.fill()?,
            _ => {
                let order = Order::Hang(victim.clone());
                self.node.as_mut().ok_or("there is no node")?.order(&order)?;
            }
        }
        let explained = match planned.fault {
            Fault::NetHang => Explained { may: of(victim), must: None },
            _ => Explained::anything(),
        };
        self.names.begin(explained, Instant::now());
        self.fault = Some((planned.fault, Instant::now(), victim.clone()));
        Ok(())
    }

    fn end(&mut self, planned: &Planned) -> Ran {
        match planned.fault {
            Fault::NetKill => self.node = Some(Node::start(self.stage, self.dir)?),
            Fault::NetDiskFull => self.disk.free()?,
            _ => self.node.as_mut().ok_or("there is no node")?.order(&Order::LetGo)?,
        }
        self.names.end(Instant::now());
        self.fault = None;
        self.calm_since = Instant::now();
        Ok(())
    }

    fn check(&mut self) -> Vec<String> {
        let mut broken = std::mem::take(&mut *self.shared.broken.lock());
        self.expect_a_name();
        if let Some(node) = &mut self.node {
            broken.extend(self.names.check(&node.late(), Instant::now()));
            if let Ok(Some(status)) = node.process.try_wait() {
                broken.push(format!("the node's daemon ended by itself: {status}"));
                self.node = None;
            }
        }
        if self.fault.is_none() && self.calm_since.elapsed() > AFTER {
            broken.extend(self.compare());
        }
        broken
    }

    fn load(&self) -> u64 {
        self.shared.done.load(Relaxed)
    }

    fn finish(&mut self, until: Instant) -> Vec<String> {
        self.shared.stop.store(true, Relaxed);
        // Each has an answer within its time.
        while self.shared.left.load(Relaxed) < WORKERS && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
        let mut broken = until_none(until, || self.faults());
        let mut left: Vec<&Pod> = self.pods.iter().collect();
        while !left.is_empty() && Instant::now() < until {
            left.retain(|pod| !self.shared.delete(pod));
        }
        let left = left.iter().map(|pod| format!("{} cannot be taken down", pod.container));
        broken.extend(left);
        broken.extend(until_none(until, || self.leaked()));
        broken.append(&mut self.check());
        broken
    }
}

impl Net<'_> {
    /// A hang is to be named once somebody is held up by it.
    fn expect_a_name(&mut self) {
        let Some((Fault::NetHang, since, victim)) = &mut self.fault else { return };
        let asked = self.shared.asked.lock().get(victim).copied();
        // Also one that began before, and has not come to the step yet; but not for sure.
        if let Some(asked) = asked.filter(|asked| *asked > *since) {
            self.names.must(of(victim), asked);
            // Only the first.
            *since = asked + Duration::from_secs(3600);
        }
    }

    fn ask(&self, show: Show) -> Result<Vec<Value>, String> {
        let deadline = Instant::now() + ASK;
        let request = Request::within(deadline, Operation::Show(show));
        match wire::call(self.socket, &request, None, deadline) {
            Ok(Reply::Shown(Value::Array(rows))) => Ok(rows),
            Ok(other) => Err(format!("the daemon said {other:?}")),
            Err(error) => Err(format!("the daemon does not answer: {error}")),
        }
    }

    /// What the runtime was given is on record, and nothing is there twice.
    fn compare(&self) -> Vec<String> {
        let before = self.shared.given.lock().clone();
        let rows = match self.ask(Show::Addresses) {
            Ok(rows) => rows,
            Err(why) => return vec![why],
        };
        let after = self.shared.given.lock().clone();
        let mut broken = Vec::new();
        let mut recorded: HashMap<IpAddr, &str> = HashMap::new();
        for row in &rows {
            let container = row["container"].as_str().unwrap_or_default();
            let addresses = [&row["ipv4"], &row["ipv6"]];
            let addresses = addresses.into_iter().filter_map(|text| text.as_str()?.parse().ok());
            for address in addresses {
                if let Some(other) = recorded.insert(address, container) {
                    broken.push(format!("{address} is on record for {other} and {container}"));
                }
            }
        }
        // Those that were not asked about meanwhile.
        for (container, addresses) in before {
            if after.get(&container) != Some(&addresses) {
                continue;
            }
            for address in addresses {
                let found = recorded.get(&address);
                if found != Some(&container.as_str()) {
                    broken.push(format!("{container} has {address}, and on record is {found:?}"));
                }
            }
        }
        broken
    }

    /// Where record and kernel disagree.
    fn faults(&self) -> Vec<String> {
        let told = |row: &Value| format!("record and kernel disagree: {row}");
        self.ask(Show::Faults).map_or_else(|why| vec![why], |rows| rows.iter().map(told).collect())
    }

    fn leaked(&self) -> Vec<String> {
        let told = |row: &Value| format!("still on record: {row}");
        let recorded = self.ask(Show::Addresses);
        let mut left =
            recorded.map_or_else(|why| vec![why], |rows| rows.iter().map(told).collect());
        match Netlink::open()
            .map_err(|e| e.to_string())
            .and_then(|mut n| n.links().map_err(|e| e.to_string()))
        {
            Ok(links) => {
                let ours = links.iter().filter(|link| cni::interface::is_ours(&link.name));
                left.extend(ours.map(|link| format!("the interface {} is left", link.name)));
            }
            Err(why) => left.push(format!("the node's links cannot be listed: {why}")),
        }
        left
    }
}

fn of(container: &str) -> Is {
    let container = container.to_owned();
    Box::new(move |late| late.key.contains(&container))
}

/// What is still wrong at `until`.
fn until_none(until: Instant, mut wrong: impl FnMut() -> Vec<String>) -> Vec<String> {
    loop {
        let found = wrong();
        if found.is_empty() || Instant::now() >= until {
            return found;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
