//! What a tracked lock that is free costs beside a bare one:
//! `cargo run --release -p flow --example lock_cost`.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use flow::TrackedMutex;
use parking_lot::Mutex;

const ROUNDS: u32 = 10_000;
const RUNS: u32 = 500;

fn main() {
    let (tracked, bare) = (TrackedMutex::new("example", 0_u64), Mutex::new(0_u64));
    let bare = nanos_per_lock(|| *black_box(&bare).lock() += 1);
    let tracked = nanos_per_lock(|| *black_box(&tracked).lock() += 1);
    let ratio = tracked / bare;
    println!("{ratio:.2} x parking_lot ({tracked:.1} and {bare:.1} ns)");
}

/// The best of many short runs: what it costs when no neighbour takes the processor away.
fn nanos_per_lock(work: impl Fn()) -> f64 {
    let run = |_| {
        let began = Instant::now();
        (0..ROUNDS).for_each(|_| work());
        began.elapsed()
    };
    let best = (0..RUNS).map(run).min().unwrap_or_default();
    best.as_secs_f64() * 1e9 / f64::from(ROUNDS)
}
