//! NeuVector 5.x, controller: one process-wide `cacheMutex`, nested and held across I/O (NVSHAS-9810):
//!
//! ```text
//! gRPC ReportConnections   cacheMutexRLock   (to count the hosts)   128,846 parked
//! gRPC RequestAdmission    cacheMutexLock    (an agent joins)        47,501
//! webhook                  cacheMutexRLock   (to match rules)         9,832
//! timers of groups         cacheMutexLock                             2,573
//! REST                     cacheMutexRLock
//! the leader's lease       cacheMutexRLock   (to say that it is alive)
//!
//! the writer that is stuck:  cacheMutexLock { I/O that does not return }
//! ```
//!
//! A goroutine for each request; nothing bounds them, and nothing ends one whose caller has given up. It
//! keeps what it was sent, decoded, and its stack: a goroutine's first is 2 KiB, and one that has come
//! through a gRPC handler has grown to 8. Go's RWMutex lets no reader in before a writer that waits, and
//! neither does this one.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use stallproof::Tasks;
use tokio::sync::{RwLock, oneshot};

use crate::incident::Ran;
use crate::incident::controller_stall::{DEADLINE, Load, RECORDS, due};
use crate::plan::Plan;
use crate::record::Recorder;

const STACK: usize = 8 << 10;
/// Between two looks at what is due.
const PACE: Duration = Duration::from_millis(10);
/// A leader that has not said for this long that it is alive is not the leader any more.
const LEASE: Duration = Duration::from_secs(15);

/// A connection as it was reported, decoded.
#[derive(Clone, Debug)]
struct Connection {
    _client: IpAddr,
    _server: IpAddr,
    _port: u16,
    _application: String,
    _totals: [u64; 3],
    _first_and_last: [u64; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Report,
    Join,
    Review,
    Timer,
    Read,
}

/// What a goroutine holds on to while it is parked.
struct Goroutine {
    _payload: Vec<Connection>,
    _stack: Vec<u8>,
}

impl Goroutine {
    fn of(request: Request) -> Self {
        let records = if request == Request::Report { RECORDS } else { 1 };
        let connection = |i: usize| Connection {
            _client: Ipv4Addr::new(10, 0, 0, i as u8).into(),
            _server: Ipv4Addr::new(10, 0, 1, i as u8).into(),
            _port: 443,
            _application: "ssl".to_owned(),
            _totals: [1, 2, 3],
            _first_and_last: [4, 5],
        };
        // Not zeroes: those would be pages that nobody has touched.
        Self { _payload: (0..records).map(connection).collect(), _stack: vec![1; STACK] }
    }
}

#[derive(Debug, Default)]
struct Counts {
    waiting: AtomicUsize,
    reviewed: AtomicUsize,
    gave_up: AtomicUsize,
}

pub(crate) fn run(plan: &Plan, recorder: &Recorder) -> Ran {
    let load = Load::of(plan);
    let runtime = tokio::runtime::Runtime::new()?;
    let tasks = Tasks::new("old");
    runtime.block_on(async {
        let cache = Arc::new(RwLock::new(()));
        recorder.figure("termsEnded", 0.0);
        recorder.staged();
        let (writer, (stuck, is_stuck)) = (Arc::clone(&cache), oneshot::channel());
        tasks.spawn("stuck writer", async move {
            let _held = writer.write().await;
            let _ = stuck.send(());
            tokio::time::sleep(load.hold).await;
        });
        is_stuck.await?;
        let (renews, told) = (Arc::clone(&cache), recorder.clone());
        tasks.spawn("lease", async move {
            let mut lost = 0;
            loop {
                let asked = Instant::now();
                drop(renews.read().await);
                if asked.elapsed() > LEASE {
                    lost += 1;
                    told.figure("termsEnded", f64::from(lost));
                }
                tokio::time::sleep(LEASE / 5).await;
            }
        });
        flood(&load, &cache, recorder, &tasks).await;
        Ok(())
    })
}

/// Everything that comes while the writer is stuck; returns when all of it is answered or given up on.
async fn flood(load: &Load, cache: &Arc<RwLock<()>>, recorder: &Recorder, tasks: &Tasks) {
    let kinds = [
        (Request::Report, load.reports),
        (Request::Join, load.joins),
        (Request::Review, load.reviews),
        (Request::Timer, load.timers),
        (Request::Read, load.reads),
    ];
    let counts = Arc::<Counts>::default();
    let (mut sent, began) = ([0; 5], Instant::now());
    while began.elapsed() < load.hold {
        for ((request, all), sent) in kinds.into_iter().zip(&mut sent) {
            while *sent < due(all, began.elapsed(), load.hold) {
                *sent += 1;
                let (cache, recorder) = (Arc::clone(cache), recorder.clone());
                let counts = Arc::clone(&counts);
                counts.waiting.fetch_add(1, Relaxed);
                tasks.spawn("goroutine", async move {
                    serve(request, &cache, &recorder, &counts).await;
                    counts.waiting.fetch_sub(1, Relaxed);
                });
            }
        }
        tokio::time::sleep(PACE).await;
    }
    while counts.waiting.load(Relaxed) > 0 {
        tokio::time::sleep(PACE).await;
    }
}

async fn serve(request: Request, cache: &RwLock<()>, recorder: &Recorder, counts: &Counts) {
    let asked = recorder.begin();
    let goroutine = Goroutine::of(request);
    let mut work = std::pin::pin!(async {
        match request {
            Request::Join | Request::Timer => drop(cache.write().await),
            Request::Report | Request::Review | Request::Read => drop(cache.read().await),
        }
    });
    if tokio::time::timeout(DEADLINE, &mut work).await.is_ok() {
        if request == Request::Review {
            recorder.level((counts.reviewed.fetch_add(1, Relaxed) + 1) as f64);
        }
        asked.answered();
    } else {
        // Whoever asked gives up; the goroutine does not hear of it.
        recorder.figure("gaveUp", (counts.gave_up.fetch_add(1, Relaxed) + 1) as f64);
        work.await;
        asked.failed();
    }
    drop(goroutine);
}
