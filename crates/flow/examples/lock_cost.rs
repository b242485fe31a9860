//! What a tracked lock costs beside a bare one: `cargo run --release -p flow --example lock_cost`.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use flow::TrackedMutex;
use parking_lot::Mutex;

const ROUNDS: u32 = 200_000;

fn main() {
    let (tracked, bare) = (TrackedMutex::new("example", 0_u64), Mutex::new(0_u64));
    for threads in [1, 2] {
        let bare = per_lock(threads, || *black_box(&bare).lock() += 1);
        let tracked = per_lock(threads, || *black_box(&tracked).lock() += 1);
        let ratio = tracked.as_secs_f64() / bare.as_secs_f64();
        println!("{threads} threads: {ratio:.2} x parking_lot ({tracked:?} and {bare:?} a lock)");
    }
}

/// The best of many runs: what it costs when no neighbour takes the processor away.
fn per_lock(threads: u32, work: impl Fn() + Sync) -> Duration {
    let mut runs: Vec<Duration> = (0..20)
        .map(|_| {
            let began = Instant::now();
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| (0..ROUNDS).for_each(|_| work()));
                }
            });
            began.elapsed()
        })
        .collect();
    runs.sort();
    runs[0] / (ROUNDS * threads)
}
