//! A fleet's users, whatever design the fleet has: one that looks clusters up without pause, on a thread
//! of its own, and some that call them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stallproof::Tasks;
use stallproof::tasks::TaskHandle;

use crate::incident::Cannot;
use crate::incident::cluster_sync::Load;
use crate::latency::Latencies;
use crate::plan::Plan;
use crate::record::Recorder;
use crate::stage::stand_in::Manner;

/// What a design of a fleet offers to the requests of its users.
pub(crate) trait Fleet: Clone + Send + Sync + 'static {
    type Connection: Send + Sync + 'static;

    /// What every request does first.
    fn look_up(&self, name: &str) -> Option<Self::Connection>;
    /// What a list shows.
    fn look(&self, load: &Load) -> Looked;
    fn call(
        &self,
        connection: &Self::Connection,
    ) -> impl Future<Output = Result<(), Cannot>> + Send;
}

/// How much of each generation a list showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Looked {
    known: usize,
    left: usize,
    come: usize,
    all: usize,
    leaving: usize,
}

impl Looked {
    pub(crate) fn new(load: &Load, known: usize, is_known: impl Fn(&String) -> bool) -> Self {
        let count = |of: &[(String, Manner)]| of.iter().filter(|(name, _)| is_known(name)).count();
        Self {
            known,
            left: count(load.left()),
            come: count(&load.coming),
            all: load.clusters.len(),
            leaving: load.leaving,
        }
    }

    /// Neither nothing yet, nor the first generation, nor the second.
    pub(crate) fn is_torn(&self) -> bool {
        let Self { known, left, come, all, leaving } = *self;
        ![(0, 0, 0), (all, leaving, 0), (all, 0, leaving)].contains(&(known, left, come))
    }
}

/// The users at work.
pub(crate) struct Script<F> {
    fleet: F,
    load: Load,
    recorder: Recorder,
    reader: Arc<Reader>,
    thread: JoinHandle<()>,
    callers: Vec<TaskHandle<()>>,
}

#[derive(Default)]
struct Reader {
    done: AtomicBool,
    idle: AtomicBool,
    views: AtomicU64,
    torn: AtomicU64,
    look_ups: AtomicU64,
    /// Of one look-up, in nanoseconds where it says microseconds: during the sync, and after it.
    during: Latencies,
    after: Latencies,
}

/// Look-ups between two looks at a list; their time is taken together, being nanoseconds each.
const LOOK_UPS: usize = 64;

impl<F: Fleet> Script<F> {
    pub(crate) fn begin(
        fleet: F,
        load: &Load,
        plan: &Plan,
        recorder: &Recorder,
        tasks: &Tasks,
    ) -> Self {
        let reader = Arc::<Reader>::default();
        let thread = {
            let (fleet, load, reader, mut random) =
                (fleet.clone(), load.clone(), Arc::clone(&reader), plan.random());
            std::thread::spawn(move || reader.read(&fleet, &load, &mut random))
        };
        let well: Arc<[String]> = {
            let staying = &load.clusters[..load.clusters.len() - load.leaving];
            let well = staying.iter().filter(|(_, m)| matches!(m, Manner::Well | Manner::Rotates));
            well.map(|(name, _)| name.clone()).collect()
        };
        let calls = Arc::new(AtomicUsize::new(0));
        let failed = Arc::new(AtomicUsize::new(0));
        recorder.figure("callsFailed", 0.0);
        let mut callers = Vec::new();
        for caller in 0..load.callers {
            let (fleet, recorder, well, stop) =
                (fleet.clone(), recorder.clone(), Arc::clone(&well), tasks.stopping());
            let (calls, failed, until) =
                (Arc::clone(&calls), Arc::clone(&failed), Arc::clone(&reader));
            let mut random = fastrand::Rng::with_seed(plan.seed ^ (caller as u64 + 1));
            callers.push(tasks.spawn("caller", async move {
                let calling = async {
                    while !until.done.load(Relaxed) {
                        let name = &well[random.usize(..well.len().max(1))];
                        let asked = recorder.begin();
                        // One that is not there yet is not there yet; what counts is a call that fails.
                        let Some(connection) = fleet.look_up(name) else {
                            asked.refused();
                            tokio::time::sleep(Duration::from_millis(100)).await;
                            continue;
                        };
                        recorder.figure("calls", (calls.fetch_add(1, Relaxed) + 1) as f64);
                        match fleet.call(&connection).await {
                            Ok(()) => {
                                asked.answered();
                            }
                            Err(error) => {
                                asked.failed();
                                let failed = failed.fetch_add(1, Relaxed) + 1;
                                recorder.figure("callsFailed", failed as f64);
                                if failed <= 3 {
                                    recorder
                                        .note(format!("{name}: {}", stallproof::sentence(&*error)));
                                }
                            }
                        }
                    }
                };
                stop.bound(calling).await;
            }));
        }
        let (told, shown, stop) = (recorder.clone(), Arc::clone(&reader), tasks.stopping());
        tasks.spawn("figures", async move {
            let telling = async {
                loop {
                    shown.tell(&told);
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            };
            stop.bound(telling).await;
        });
        Self { fleet, load: load.clone(), recorder: recorder.clone(), reader, thread, callers }
    }

    /// Users of clusters that are about to go.
    pub(crate) fn hold_those_that_leave(&self) -> Vec<F::Connection> {
        self.load.left().iter().filter_map(|(name, _)| self.fleet.look_up(name)).collect()
    }

    /// They go on with what they have, and nobody else finds it.
    pub(crate) async fn after_removal(&self, held: &[F::Connection]) {
        let mut served = 0;
        for connection in held {
            match self.fleet.call(connection).await {
                Ok(()) => served += 1,
                Err(error) => self.recorder.note(stallproof::sentence(&*error)),
            }
        }
        let found = self.load.left().iter().filter(|(name, _)| self.fleet.look_up(name).is_some());
        self.recorder.figure("servedAfterRemoval", f64::from(served));
        self.recorder.figure("foundAfterRemoval", found.count() as f64);
    }

    /// From now on nothing changes: what a look-up takes when the reader has the fleet to itself.
    pub(crate) fn idle(&self) {
        self.reader.idle.store(true, Relaxed);
    }

    /// The users leave, each after its call.
    pub(crate) async fn end(self) {
        self.reader.done.store(true, Relaxed);
        for caller in self.callers {
            // One that did not leave by itself was told why.
            let _ = caller.await;
        }
        let _ = self.thread.join();
        self.reader.tell(&self.recorder);
    }
}

impl Reader {
    fn read(&self, fleet: &impl Fleet, load: &Load, random: &mut fastrand::Rng) {
        while !self.done.load(Relaxed) {
            let began = Instant::now();
            for _ in 0..LOOK_UPS {
                let (name, _) = &load.clusters[random.usize(..load.clusters.len())];
                std::hint::black_box(fleet.look_up(name));
            }
            let each = began.elapsed() / LOOK_UPS as u32;
            let times = if self.idle.load(Relaxed) { &self.after } else { &self.during };
            times.add(Duration::from_micros(u64::try_from(each.as_nanos()).unwrap_or(u64::MAX)));
            self.look_ups.fetch_add(LOOK_UPS as u64, Relaxed);
            if fleet.look(load).is_torn() {
                self.torn.fetch_add(1, Relaxed);
            }
            self.views.fetch_add(1, Relaxed);
        }
    }

    fn tell(&self, recorder: &Recorder) {
        recorder.figure("lookUps", self.look_ups.load(Relaxed) as f64);
        recorder.figure("views", self.views.load(Relaxed) as f64);
        recorder.figure("tornViews", self.torn.load(Relaxed) as f64);
        let [during, after] = [&self.during, &self.after].map(|times| times.counted().ms(0.5));
        if let Some(during) = during {
            recorder.figure("lookUpNanoseconds", during * 1000.0);
        }
        if let (Some(during), Some(after)) = (during, after) {
            recorder.figure("lookUpIdleNanoseconds", after * 1000.0);
            recorder.figure("lookUpRatio", during / after.max(1e-3));
        }
    }
}
