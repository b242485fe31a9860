//! The agent is replaced while pods come and go and a kubelet asks how the node is: nobody notices.
//! One that does not come back is noticed when its grace is over.

#![allow(clippy::unwrap_used, reason = "tests")]

mod swarm;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use serde_json::Value;
use stallproof::Ledger;
use swarm::{
    PATIENCE, Pod, config, dual_stack, on_a_node, recorded, serve, until_none_is_left,
    wait_until_ready,
};
use testkit::requires;

const SERVES: &str = "the_process_that_is_replaced";
const DIR: &str = "FAIRLEAD_TEST_DAEMON";
const GRACE: &str = "FAIRLEAD_TEST_GRACE_MS";

/// A process of its own: this program again, which serves until its stdin is closed.
struct Agent {
    process: Child,
    stdin: Option<ChildStdin>,
}

impl Agent {
    fn start(dir: &Path, grace: Duration) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", SERVES, "--nocapture"])
            .env(DIR, dir)
            .env(GRACE, grace.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take();
        Self { process, stdin }
    }

    fn end(mut self) {
        drop(self.stdin.take());
        self.process.wait().unwrap();
    }
}

/// Killed.
impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// No test of its own: see [`Agent`].
#[test]
fn the_process_that_is_replaced() {
    let Some(dir) = env::var_os(DIR).map(PathBuf::from) else { return };
    let grace = env::var(GRACE).unwrap().parse().map(Duration::from_millis).unwrap();
    let (stop, stopped) = channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        drop(stop);
    });
    serve(&dir, dual_stack(), Ledger::default(), grace, &stopped);
}

/// What a kubelet and its runtime do, until `over`; what failed is kept.
struct Load<'a> {
    dir: &'a Path,
    over: AtomicBool,
    /// Nobody serves now.
    away: AtomicBool,
    asked_while_away: AtomicUsize,
    pods: AtomicUsize,
    failed: Mutex<Vec<String>>,
}

impl Load<'_> {
    fn fail(&self, what: &str, error: &Value) {
        self.failed.lock().unwrap().push(format!("{what}: {error}"));
    }

    fn ask_status(&self) {
        let pod = Pod::new(self.dir, "nobody");
        while !self.over.load(Ordering::Relaxed) {
            let away = self.away.load(Ordering::Relaxed);
            match pod.plugin("STATUS", &config(self.dir, 60)) {
                Ok(_) => drop(self.asked_while_away.fetch_add(away.into(), Ordering::Relaxed)),
                Err(error) => self.fail("STATUS", &error),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn run_pods(&self, worker: usize) {
        for number in 0.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let pod = Pod::new(self.dir, &format!("pod-{worker}-{number}"));
            for command in ["ADD", "DEL"] {
                if let Err(error) = pod.plugin(command, &config(self.dir, 60)) {
                    self.fail(command, &error);
                }
            }
            self.pods.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Until the load goes on as it did.
    fn goes_on(&self) {
        let (before, until) = (self.pods.load(Ordering::Relaxed), Instant::now() + PATIENCE);
        while self.pods.load(Ordering::Relaxed) < before + 8 {
            assert!(Instant::now() < until, "pods are not set up any more");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn an_agent_that_is_replaced_fails_no_status_and_no_pod() {
    requires!(netns);
    on_a_node(|| {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let grace = cni::ready::DEFAULT_GRACE;
        let first = Agent::start(dir, grace);
        wait_until_ready(dir);
        let load = Load {
            dir,
            over: AtomicBool::new(false),
            away: AtomicBool::new(false),
            asked_while_away: AtomicUsize::new(0),
            pods: AtomicUsize::new(0),
            failed: Mutex::default(),
        };
        // The mark is there a moment after the first reconcile.
        let until = Instant::now() + PATIENCE;
        while !cni::ready::holds(&swarm::socket(dir)) {
            assert!(Instant::now() < until, "no mark");
            std::thread::sleep(Duration::from_millis(5));
        }
        let load = &load;
        let _last = std::thread::scope(|scope| {
            let mut agent = first;
            scope.spawn(|| load.ask_status());
            for worker in 0..4 {
                scope.spawn(move || load.run_pods(worker));
            }
            for round in 0..6 {
                load.goes_on();
                match round % 2 {
                    0 => agent.end(),
                    _ => drop(agent),
                }
                load.away.store(true, Ordering::Relaxed);
                // What a kubelet takes to start the next one, or some of it.
                std::thread::sleep(Duration::from_millis(500));
                load.away.store(false, Ordering::Relaxed);
                let began = Instant::now();
                agent = Agent::start(dir, grace);
                wait_until_ready(dir);
                println!("ready {} ms after its start", began.elapsed().as_millis());
            }
            load.goes_on();
            load.over.store(true, Ordering::Relaxed);
            agent
        });
        assert_eq!(*load.failed.lock().unwrap(), Vec::<String>::new());
        assert!(load.asked_while_away.load(Ordering::Relaxed) > 0, "nobody asked meanwhile");
        assert_eq!(recorded(dir), Vec::<Value>::new());
        until_none_is_left();
    });
}

#[test]
fn an_agent_that_is_gone_for_good_is_said_after_the_grace() {
    requires!(netns);
    on_a_node(|| {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let grace = Duration::from_secs(3);
        let agent = Agent::start(dir, grace);
        let pod = Pod::new(dir, "web");
        let status = || pod.plugin("STATUS", &config(dir, 60));
        wait_until_ready(dir);
        pod.plugin("ADD", &config(dir, 60)).unwrap();
        drop(agent);
        let killed = Instant::now();
        let mut held = 0;
        let said = loop {
            match status() {
                Ok(_) => held += 1,
                Err(said) => break said,
            }
            assert!(killed.elapsed() < PATIENCE, "it is never said");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(said["code"], 50, "{said}");
        assert!(held > 0, "not at once");
        // And is not waited for any more.
        let other = Pod::new(dir, "other");
        let asked = Instant::now();
        assert_eq!(other.plugin("ADD", &config(dir, 60)).unwrap_err()["code"], 11);
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        // The next one is well, and has nothing to thank the mark for.
        let _agent = Agent::start(dir, grace);
        wait_until_ready(dir);
        status().unwrap();
        pod.plugin("DEL", &config(dir, 60)).unwrap();
    });
}
