//! What keeping an operation on the ledger costs: `cargo run --release -p flow --example ledger_cost`.
//!
//! Every figure stands beside that of the obvious rival from the same run: one mutex around one map,
//! with no steps, no histograms and a listing that holds the mutex.

#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use flow::ledger::Filter;
use flow::{Ledger, Op, Outcome};

const ROUNDS: u32 = 1000;
const RUNS: u32 = 2000;
const MILLION: usize = 1_000_000;

fn main() {
    let ledger = Ledger::default();
    let rival = Mutex::new(HashMap::new());
    println!(
        "the clock: {:?} a reading",
        per_op(1, |_| _ = black_box(Instant::now()))
    );
    for threads in [1, 2] {
        let naive = per_op(threads, |n| {
            rival
                .lock()
                .expect("no panic")
                .insert(n, ("add", "key", "tenant", Instant::now()));
            black_box(rival.lock().expect("no panic").remove(&n));
        });
        let bare = per_op(threads, |_| {
            ledger.begin("add", "key", "tenant").finish(Outcome::Done);
        });
        let steps = per_op(threads, |_| {
            let op = ledger.begin("add", "key", "tenant");
            op.step("connect");
            op.step("write");
            op.step("wait");
            op.finish(Outcome::Done);
        });
        println!(
            "{threads} threads: begin and finish {bare:?} ({:.1} x one locked map), with three steps {steps:?}",
            bare.as_secs_f64() / naive.as_secs_f64()
        );
    }

    let before = resident();
    let ops: Vec<Op> = (0..MILLION)
        .map(|_| ledger.begin("add", "key", "tenant"))
        .collect();
    let held = size_of::<Op>() * MILLION;
    println!(
        "in flight: {} bytes each, no steps",
        (resident() - before - held) / MILLION
    );
    let busy = per_op(1, |_| {
        ledger.begin("add", "key", "tenant").finish(Outcome::Done);
    });
    println!("with a million in flight: begin and finish {busy:?}");

    let oldest = Filter {
        limit: 100,
        ..Filter::default()
    };
    println!(
        "the oldest 100 of a million: {:?}",
        timed(|| ledger.in_flight(&oldest))
    );
    let none = Filter {
        tenant: Some("nobody".into()),
        ..Filter::default()
    };
    println!(
        "a million searched by tenant: {:?}",
        timed(|| ledger.in_flight(&none))
    );
    println!("counted by kind: {:?}", timed(|| ledger.count()));
    for op in &ops {
        op.step("connect");
    }
    println!(
        "in flight: {} bytes each, with a step ended",
        (resident() - before - held) / MILLION
    );
}

/// The best of many short runs on each thread, the worst of the threads: what it costs when no
/// neighbour takes the processor away.
fn per_op(threads: u64, work: impl Fn(u64) + Sync) -> Duration {
    let best = &|thread: u64| {
        let run = |_| timed(|| (0..ROUNDS).for_each(|n| work(thread << 32 | u64::from(n))));
        (0..RUNS).map(run).min().unwrap_or_default() / ROUNDS
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|n| scope.spawn(move || best(n))).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        joined.max().unwrap_or_default()
    })
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let began = Instant::now();
    black_box(work());
    began.elapsed()
}

/// The memory this process has, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("this runs on Linux");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("the second number is the resident pages") * 4096
}
