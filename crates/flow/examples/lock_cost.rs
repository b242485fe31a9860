//! What a tracked lock costs beside a bare one: `cargo run --release -p flow --example lock_cost`.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use flow::TrackedMutex;
use parking_lot::Mutex;

const ROUNDS: u32 = 10_000;
const RUNS: u32 = 500;

fn main() {
    let (tracked, bare) = (TrackedMutex::new("example", 0_u64), Mutex::new(0_u64));
    for threads in [1, 2] {
        let bare = per_lock(threads, || *black_box(&bare).lock() += 1);
        let tracked = per_lock(threads, || *black_box(&tracked).lock() += 1);
        let ratio = tracked / bare;
        println!("{threads} threads: {ratio:.2} x parking_lot ({tracked:.1} and {bare:.1} ns)");
    }
}

/// The best of many short runs on each thread, the worst of the threads: what it costs when no
/// neighbour takes the processor away.
fn per_lock(threads: usize, work: impl Fn() + Sync) -> f64 {
    let best = &|| {
        let run = |_| {
            let began = Instant::now();
            (0..ROUNDS).for_each(|_| work());
            began.elapsed()
        };
        let best = (0..RUNS).map(run).min().unwrap_or_default();
        best.as_secs_f64() * 1e9 / f64::from(ROUNDS)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(best)).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        joined.fold(0.0, f64::max)
    })
}
