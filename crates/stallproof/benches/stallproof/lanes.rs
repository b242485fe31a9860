//! Lanes with one of 1,000 keys stuck, against none stuck.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bench::{Table, in_turn};
use stallproof::Deadline;
use stallproof::lanes::{Lanes, LanesConfig, LanesLimits, Work};

const KEYS: u64 = 1_000;
const WORKERS: usize = 64;
const CLIENTS: u64 = 256;
const RUN: Duration = Duration::from_millis(500);
/// With a stuck key and without.
const PAIRS: usize = 11;

pub(crate) fn run(table: &mut Table) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built");
    let [free, stuck] = in_turn(PAIRS, |stuck| runtime.block_on(throughput(stuck)), |rate| *rate);
    table.row("turns given with one of 1,000 keys stuck", "/s", stuck, &[("none stuck", free)]);
    table.must("at least 90 % of none stuck", stuck >= 0.9 * free);
}

async fn throughput(with_stuck: bool) -> f64 {
    let limits = LanesLimits {
        workers: WORKERS,
        per_tenant: WORKERS / 4,
        queue: 4096,
        queue_per_tenant: 1024,
        queue_per_key: 32,
        max_cost: 1,
    };
    let lanes: Arc<Lanes<u64>> = Arc::new(Lanes::new(LanesConfig { name: "bench".into(), limits }));
    let done = Arc::new(AtomicU64::new(0));
    let end = Instant::now() + RUN;
    let deadline = Deadline::after(RUN * 4);
    let stuck = with_stuck.then(|| {
        let lanes = lanes.clone();
        tokio::spawn(async move {
            let work = Work::new(0, "tenant-0", deadline);
            let _ = lanes.run(work, std::future::pending::<()>()).await;
        })
    });
    tokio::task::yield_now().await;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (lanes, done) = (lanes.clone(), done.clone());
            tokio::spawn(async move {
                let tenant = format!("tenant-{}", client % 8);
                let mut key = client;
                while Instant::now() < end {
                    key = (key + 13) % KEYS;
                    // Whoever needs the stuck key gives up soon, as a caller with other work does.
                    let limit = if key == 0 {
                        Deadline::after(Duration::from_millis(10))
                    } else {
                        deadline
                    };
                    let work = Work::new(key, &tenant, limit);
                    if lanes.run(work, tokio::task::yield_now()).await.is_ok() {
                        done.fetch_add(1, Relaxed);
                    }
                }
            })
        })
        .collect();
    let began = Instant::now();
    for client in clients {
        client.await.expect("a client does not panic");
    }
    if let Some(stuck) = stuck {
        stuck.abort();
    }
    done.load(Relaxed) as f64 / began.elapsed().as_secs_f64()
}
