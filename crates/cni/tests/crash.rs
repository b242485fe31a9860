//! The daemon is killed again and again while pods come and go: no address is ever given twice, none
//! is lost, and every pod that was told it has a network has one, also while the daemon is away.
//!
//! `FAIRLEAD_CRASHES=300 cargo nextest run -p cni --test crash` for more than a few.

#![allow(clippy::unwrap_used, reason = "tests")]

mod swarm;

use std::collections::HashMap;
use std::env;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use stallproof::Ledger;
use swarm::{
    PATIENCE, Pod, addresses, answers, config, dual_stack, interfaces, on_a_node, recorded, serve,
    wait_until_ready,
};
use testkit::requires;

const TEST: &str = "killed_at_any_moment_it_gives_no_address_twice_and_loses_none";
const DAEMON: &str = "FAIRLEAD_TEST_DAEMON";
/// So long do commands wait for the next daemon, and are asked again: also that gives no address twice.
const GRACE: Duration = Duration::from_millis(300);
const WORKERS: usize = 12;
/// More than these a worker does not keep.
const PODS: usize = 8;

/// The process that is killed: this program again.
struct Killed(Child);

impl Killed {
    fn start(dir: &Path) -> Self {
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(DAEMON, dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Who has an address, as those know who were told so.
#[derive(Default)]
struct Held(Mutex<HashMap<IpAddr, String>>);

impl Held {
    fn take(&self, addresses: &[IpAddr], container: &str) {
        let mut held = self.0.lock().unwrap();
        for address in addresses {
            let other = held.insert(*address, container.to_owned());
            assert_eq!(other, None, "{address} is given to {container} as well");
        }
    }

    /// Before the release is asked for: from then on somebody else may be given it.
    fn leave(&self, addresses: &[IpAddr]) {
        let mut held = self.0.lock().unwrap();
        addresses.iter().for_each(|address| drop(held.remove(address)));
    }
}

/// Lets workers act, and stops them between two acts.
#[derive(Default)]
struct Pace {
    paused: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Pace {
    fn act(&self, act: impl FnOnce()) {
        let mut paused = self.changed.wait_while(self.paused.lock().unwrap(), |p| p.0).unwrap();
        paused.1 += 1;
        drop(paused);
        act();
        self.paused.lock().unwrap().1 -= 1;
        self.changed.notify_all();
    }

    /// While nobody acts.
    fn pause<T>(&self, look: impl FnOnce() -> T) -> T {
        self.paused.lock().unwrap().0 = true;
        drop(self.changed.wait_while(self.paused.lock().unwrap(), |p| p.1 > 0).unwrap());
        let seen = look();
        self.paused.lock().unwrap().0 = false;
        self.changed.notify_all();
        seen
    }
}

/// A runtime's part: adds and deletes pods of its own, and believes what it is told.
struct Worker<'a> {
    name: usize,
    dir: &'a Path,
    held: &'a Held,
    done: &'a AtomicUsize,
    made: usize,
    pods: Vec<(Pod, Vec<IpAddr>)>,
    /// Those of which it does not know how they are: to be deleted, as a runtime does.
    doubtful: Vec<Pod>,
}

impl Worker<'_> {
    fn act(&mut self) {
        let config = config(self.dir, 10);
        if let Some(pod) = self.doubtful.pop() {
            match pod.plugin("DEL", &config) {
                Ok(_) => drop(pod),
                Err(_) => self.doubtful.push(pod),
            }
            return;
        }
        if self.pods.len() < PODS && fastrand::bool() {
            self.made += 1;
            let pod = Pod::new(self.dir, &format!("pod-{}-{}", self.name, self.made));
            match pod.plugin("ADD", &config) {
                Ok(result) => {
                    let addresses = addresses(&result);
                    self.held.take(&addresses, &pod.container);
                    self.pods.push((pod, addresses));
                    self.done.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => self.doubtful.push(pod),
            }
        } else if !self.pods.is_empty() {
            let (pod, addresses) = self.pods.swap_remove(fastrand::usize(..self.pods.len()));
            self.held.leave(&addresses);
            match pod.plugin("DEL", &config) {
                Ok(_) => drop(self.done.fetch_add(1, Ordering::Relaxed)),
                Err(_) => self.doubtful.push(pod),
            }
        }
    }
}

#[test]
fn killed_at_any_moment_it_gives_no_address_twice_and_loses_none() {
    requires!(netns);
    if let Some(dir) = env::var_os(DAEMON).map(PathBuf::from) {
        let (_never, stopped) = channel();
        return serve(&dir, dual_stack(), Ledger::default(), GRACE, &stopped);
    }
    let crashes = env::var("FAIRLEAD_CRASHES").map_or(8, |count| count.parse().unwrap());
    on_a_node(|| {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let (held, pace) = (Held::default(), Pace::default());
        let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let work = |name| {
            let (held, done) = (&held, &done);
            let (pods, doubtful) = (Vec::new(), Vec::new());
            let mut worker = Worker { name, dir, held, done, made: 0, pods, doubtful };
            while !over.load(Ordering::Relaxed) {
                pace.act(|| worker.act());
                // A runtime that was refused does not come back at once.
                if !worker.doubtful.is_empty() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            worker
        };
        let work = &work;
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..WORKERS).map(|name| scope.spawn(move || work(name))).collect();
            for _ in 0..crashes {
                let daemon = Killed::start(dir);
                wait_until_ready(dir);
                std::thread::sleep(Duration::from_millis(fastrand::u64(20..400)));
                drop(daemon);
                // Pods have their network while it is away.
                pace.pause(|| all_answer(&held));
            }
            over.store(true, Ordering::Relaxed);
            let workers: Vec<Worker<'_>> =
                workers.into_iter().map(|worker| worker.join().unwrap()).collect();

            let _daemon = Killed::start(dir);
            wait_until_ready(dir);
            all_answer(&held);
            let mut pods: Vec<Pod> = Vec::new();
            let mut known = HashMap::new();
            for worker in workers {
                worker.doubtful.iter().for_each(|pod| delete(dir, pod));
                for (pod, addresses) in worker.pods {
                    known.insert(pod.container.clone(), addresses);
                    pods.push(pod);
                }
            }
            settled(dir, &known);
            println!("{crashes} crashes in {} pods added or deleted", done.load(Ordering::Relaxed));
            pods.iter().for_each(|pod| delete(dir, pod));
            settled(dir, &HashMap::new());
        });
    });
}

fn delete(dir: &Path, pod: &Pod) {
    pod.plugin("DEL", &config(dir, 30)).unwrap_or_else(|error| panic!("{error}"));
}

fn all_answer(held: &Held) {
    for (address, container) in &*held.0.lock().unwrap() {
        assert!(answers(*address), "{container} at {address} does not answer");
    }
}

/// The record and the kernel have these pods and no other. Sandboxes of which the record knew until
/// they died are found by a reconcile, which comes by itself.
fn settled(dir: &Path, known: &HashMap<String, Vec<IpAddr>>) {
    let until = Instant::now() + PATIENCE;
    loop {
        let rows = recorded(dir);
        let found: HashMap<String, Vec<IpAddr>> = rows
            .iter()
            .map(|row| {
                let address = |family: &str| row[family].as_str().map(|a| a.parse().unwrap());
                let own = [address("ipv4"), address("ipv6")].into_iter().flatten().collect();
                (row["container"].as_str().unwrap().to_owned(), own)
            })
            .collect();
        let mut names: Vec<String> = known
            .keys()
            .map(|container| {
                let name = cni::wire::AttachmentKey {
                    container: container.clone(),
                    ifname: "eth0".to_owned(),
                };
                cni::interface::host_interface(&name)
            })
            .collect();
        let mut there = interfaces();
        names.sort();
        there.sort();
        if found == *known && there == names {
            return;
        }
        let why = format!("recorded {found:?}, known {known:?}, interfaces {there:?}");
        assert!(Instant::now() < until, "{why}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
