//! A flood of strangers on every listener at once: connections that say nothing, headers and bodies that
//! drip, answers that nobody reads, handshakes that do not go on, HTTP/2 resets, headers without end and
//! pings. Whoever is not a stranger is answered, every time.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test tells and fails by panicking")]

mod running;
mod strangers;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use node::Identity;
use running::{PATIENCE, http};
use serde_json::{Value, json};
use stallproof::{Deadline, Tasks};
use strangers::{Listeners, Strangers};

/// How long it lasts: longer than a server waits for headers, bodies and handshakes.
const LASTS: Duration = Duration::from_secs(15);
/// More than a process with this much was flooded could need.
const MOST_MEMORY: u64 = 512 << 20;

fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

fn flooded(each: usize, limit: Option<usize>) {
    let dir = tempfile::tempdir().unwrap();
    let (up, at) = Listeners::up(&dir.path().join("data"), limit);
    up.wait_until_ready_says("fleet");
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}},
    });
    let reviewed = || {
        let url = format!("https://{}/admit", at.webhook);
        let json = [("content-type", "application/json")];
        http::send("POST", &url, &json, &review.to_string(), PATIENCE)
    };
    // Without the cluster's own store it decides for no cluster, and says so.
    let usual = reviewed().status;
    let token = up.ask("POST", "/guard/agents/token", &json!({})).json();
    let token = token["token"].as_str().unwrap();

    let strangers = Strangers::flood(at, each);
    let over = AtomicBool::new(false);
    let (users, probes, reviews) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let (mut most_memory, mut most_descriptors) = (0, 0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    let answer = up.get("/clusters");
                    assert_eq!(answer.status, 200, "{}", answer.text);
                    users.fetch_add(1, Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while !over.load(Relaxed) {
                let answer = up.send("GET", &format!("{}/livez", up.admin), &[], &Value::Null);
                assert_eq!(answer.status, 200, "{}", answer.text);
                probes.fetch_add(1, Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        });
        scope.spawn(|| {
            while !over.load(Relaxed) {
                let answer = reviewed();
                assert_eq!(answer.status, usual, "{}", answer.text);
                reviews.fetch_add(1, Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        });
        scope.spawn(|| {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let tasks = Tasks::new("nodes");
            for nth in 0..5 {
                let (name, into) = (format!("node-{nth}"), dir.path().join(format!("node-{nth}")));
                let (addresses, soon) = ([at.agents.to_string()], Deadline::after(PATIENCE));
                // An agent comes back when it has waited for long.
                loop {
                    let enrol = Identity::enrol(&addresses, token, &name, &into, &tasks, soon);
                    let Err(error) = runtime.block_on(enrol) else { break };
                    assert!(!soon.has_passed(), "{name}: {error}");
                }
                thread::sleep(LASTS / 6);
            }
        });
        let until = Instant::now() + LASTS;
        while Instant::now() < until {
            most_memory = most_memory.max(memory(up.pid()));
            most_descriptors = most_descriptors.max(descriptors(up.pid()));
            thread::sleep(Duration::from_millis(100));
        }
        over.store(true, Relaxed);
    });
    println!(
        "{} connections of strangers; answered: {users:?} users, {probes:?} probes, {reviews:?} reviews, \
         5 nodes; at most {} MiB and {most_descriptors} descriptors",
        strangers.opened(),
        most_memory >> 20,
    );
    assert!(strangers.opened() > each, "there was no flood");
    assert!(most_memory < MOST_MEMORY, "{most_memory}");
    if let Some(limit) = limit {
        assert!(most_descriptors < limit, "{most_descriptors}");
    }
    // Gone with it is what it held.
    drop(strangers);
    let until = Instant::now() + PATIENCE;
    while descriptors(up.pid()) > 100 {
        assert!(Instant::now() < until, "{} are still open", descriptors(up.pid()));
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_flood_of_strangers_keeps_nobody_out() {
    flooded(300, None);
}

#[test]
fn nor_does_it_where_a_process_may_have_1024_descriptors() {
    flooded(200, Some(1024));
}
