// clippy takes a module for a test only under a plain `cfg(test)`.
#![allow(clippy::unwrap_used)]

use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::watchdog::tests::eventually;
use crate::watchdog::{Evidence, Severity, Watchdog, WatchdogLimits};

const WORKERS: usize = 2;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap()
}

fn limits(name_after: Duration) -> WatchdogLimits {
    WatchdogLimits { tick: Duration::from_millis(20), name_after, fail_after: name_after * 2 }
}

/// Blocks that many workers until the sender is dropped; returns once they are blocked.
fn block(runtime: &Runtime, workers: usize) -> Vec<mpsc::Sender<()>> {
    let (entered, inside) = mpsc::channel();
    let held = (0..workers)
        .map(|_| {
            let (release, hang) = mpsc::channel::<()>();
            let entered = entered.clone();
            runtime.spawn(async move {
                entered.send(()).unwrap();
                // What an async task must never do.
                let _ = hang.recv();
            });
            release
        })
        .collect();
    for _ in 0..workers {
        inside.recv_timeout(Duration::from_secs(60)).expect("a worker takes the task");
    }
    held
}

fn named(watchdog: &Watchdog) -> Vec<String> {
    watchdog.stalls().iter().map(|stall| stall.name.to_string()).collect()
}

#[test]
fn a_runtime_with_all_workers_blocked_is_named_with_evidence_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let evidence = Evidence::new(dir.path());
    let watchdog = Watchdog::start(limits(Duration::from_millis(500)), Some(evidence));
    watchdog.watch_runtime("main", runtime.handle().clone(), Severity::Critical);
    let held = block(&runtime, WORKERS);
    eventually("the runtime is named", || {
        watchdog.stalls().into_iter().find(|stall| stall.name == "main")
    });
    let event = eventually("evidence", || {
        std::fs::read_dir(dir.path())
            .ok()?
            .map(|entry| entry.unwrap().path())
            .find(|path| path.to_string_lossy().ends_with("-stalled-main"))
    });
    let beacons = std::fs::read_to_string(event.join("beacons.txt")).unwrap();
    assert!(beacons.contains("main"), "{beacons}");
    drop(held);
    eventually("recovery", || watchdog.stalls().is_empty().then_some(()));
}

#[test]
fn one_blocked_worker_is_named_and_the_runtime_is_not() {
    let runtime = runtime();
    let watchdog = Watchdog::start(limits(Duration::from_secs(1)), None);
    watchdog.watch_runtime("main", runtime.handle().clone(), Severity::Critical);
    let held = block(&runtime, 1);
    eventually("a worker is named", || {
        named(&watchdog).iter().any(|name| name.starts_with("main/worker-")).then_some(())
    });
    // The other worker still answers.
    let (answer, answered) = mpsc::channel();
    runtime.spawn(async move { answer.send(()).unwrap() });
    answered.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(!named(&watchdog).contains(&"main".to_owned()));
    drop(held);
    eventually("recovery", || watchdog.stalls().is_empty().then_some(()));
}

#[test]
fn a_busy_worker_moves_and_a_parked_one_owes_nothing() {
    let runtime = runtime();
    let probed = Probed::new(runtime.handle().clone());
    eventually("both park", || (0..WORKERS).all(|n| !probed.worker(n).owed).then_some(()));

    let busy = Arc::new(AtomicBool::new(true));
    for _ in 0..WORKERS * 2 {
        let busy = Arc::clone(&busy);
        runtime.spawn(async move {
            while busy.load(Relaxed) {
                std::hint::black_box((0..10_000).sum::<u64>());
                tokio::task::yield_now().await;
            }
        });
    }
    for worker in 0..WORKERS {
        // Never parks, yet keeps moving.
        for _ in 0..10 {
            let before = probed.worker(worker).count;
            eventually("moves", || (probed.worker(worker).count != before).then_some(()));
        }
    }
    busy.store(false, Relaxed);
    eventually("both park", || (0..WORKERS).all(|n| !probed.worker(n).owed).then_some(()));
}

#[test]
fn a_runtime_that_was_shut_down_owes_nothing() {
    let runtime = runtime();
    let probed = Probed::new(runtime.handle().clone());
    runtime.shutdown_timeout(Duration::from_secs(60));
    eventually("nothing is owed", || {
        let whole = probed.whole();
        let workers = (0..WORKERS).any(|n| probed.worker(n).owed);
        (!whole.owed && !workers).then_some(())
    });
}

#[test]
fn work_in_the_blocking_pool_is_held_against_no_worker() {
    let runtime = runtime();
    let probed = Probed::new(runtime.handle().clone());
    let (release, hang) = mpsc::channel::<()>();
    let (entered, inside) = mpsc::channel();
    runtime.spawn(async move {
        tokio::task::block_in_place(|| {
            entered.send(()).unwrap();
            let _ = hang.recv();
        });
    });
    inside.recv_timeout(Duration::from_secs(60)).unwrap();
    eventually("both park", || (0..WORKERS).all(|n| !probed.worker(n).owed).then_some(()));
    drop(release);
}
