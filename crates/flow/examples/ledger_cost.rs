//! What keeping an operation on the ledger costs:
//! `cargo run --release -p flow --example ledger_cost`.
//!
//! The rival of the same run is the obvious one: one mutex around one map, with no steps, no
//! histograms, and a listing that holds the mutex.

#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use flow::ledger::Filter;
use flow::{Ledger, Op, Outcome};

const ROUNDS: u32 = 1000;
const RUNS: u32 = 2000;
const MILLION: usize = 1_000_000;

fn main() {
    let ledger = Ledger::default();
    let begin = || ledger.begin("add", "key", "tenant");
    let rival = Mutex::new(HashMap::new());

    let clock = per_op(|_| _ = black_box(Instant::now()));
    let naive = per_op(|n| {
        let since = Instant::now();
        rival.lock().expect("no panic").insert(n, ("add", "key", "tenant", since));
        black_box(rival.lock().expect("no panic").remove(&n));
    });
    let bare = per_op(|_| begin().finish(Outcome::Done));
    let steps = per_op(|_| {
        let op = begin();
        op.step("connect");
        op.step("write");
        op.step("wait");
        op.finish(Outcome::Done);
    });
    let ratio = bare.as_secs_f64() / naive.as_secs_f64();
    println!("begin and finish: {bare:?}, {ratio:.1} x one locked map; the clock: {clock:?}");
    println!("with three steps: {steps:?}");

    let before = resident();
    let ops: Vec<Op> = (0..MILLION).map(|_| begin()).collect();
    let held = size_of::<Op>() * MILLION;
    println!("in flight: {} bytes each", (resident() - before - held) / MILLION);
    let busy = per_op(|_| begin().finish(Outcome::Done));
    println!("with a million in flight: begin and finish {busy:?}");

    let oldest = Filter { limit: 100, ..Filter::default() };
    println!("the oldest 100 of a million: {:?}", timed(|| ledger.in_flight(&oldest)));
    let nobody = Filter { tenant: Some("nobody".into()), ..Filter::default() };
    println!("a million searched by tenant: {:?}", timed(|| ledger.in_flight(&nobody)));
    println!("counted by kind: {:?}", timed(|| ledger.count()));
    for op in &ops {
        op.step("connect");
    }
    println!("in flight: {} bytes each, with steps", (resident() - before - held) / MILLION);
}

/// The best of many short runs: what it costs when no neighbour takes the processor away.
fn per_op(work: impl Fn(u32)) -> Duration {
    let run = |_| timed(|| (0..ROUNDS).for_each(&work));
    (0..RUNS).map(run).min().unwrap_or_default() / ROUNDS
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let began = Instant::now();
    black_box(work());
    began.elapsed()
}

/// The memory this process has, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("this runs on Linux");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("the second number is the resident pages") * 4096
}
