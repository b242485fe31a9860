//! `Watchdog`: names whoever owes progress and makes none.
//!
//! Contract: it runs on plain threads, outside any async runtime. A [`Beacon`], a lane set or a
//! runtime that owes progress and has made none is named within 5 s: once in the log, in
//! [`Watchdog::stalls`], in the metrics. If it is critical, [`Watchdog::health`] fails within 30 s,
//! after the [`Evidence`] was written, and recovers when it does. Being idle or slow is no alarm, and
//! neither is time in which the whole process was stopped.
//!
//! ```text
//! asker thread  ──► every watch and tick closure ──► readings (atomics)
//!                   a closure that hangs keeps its asker; another one takes over the rest
//! judge thread  ──► readings, beacons ──► Patience ──► log, stalls, metrics, evidence, health
//!                   calls nobody, so it cannot be held up
//! ```

mod beacon;
mod evidence;
mod judge;
mod runtime;

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tracing::{error, info, warn};

use self::beacon::Moves;
use self::judge::{Patience, Stage, Verdict};
use self::runtime::Probed;
use crate::sync::Mutex;

pub use self::beacon::{Beacon, Owed};
pub use self::evidence::{Evidence, Saving};

/// How long failing waits for the evidence: `fail_after`, a tick and this stay below 30 s.
const EVIDENCE_WITHIN: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Named, and no more.
    Noted,
    /// The process is of no use without it: its stall fails the liveness check.
    Critical,
}

/// What a watched closure answers: is there work to do, and a number that changes when some is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub owed: bool,
    pub count: u64,
}

#[derive(Clone, Debug)]
pub struct WatchdogLimits {
    pub tick: Duration,
    /// With three ticks on top (to see the last move, to ask, to judge) this must stay within the
    /// 5 s that are promised.
    pub name_after: Duration,
    pub fail_after: Duration,
}

impl Default for WatchdogLimits {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(250),
            name_after: Duration::from_secs(4),
            fail_after: Duration::from_secs(25),
        }
    }
}

/// Someone who owes progress and makes none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    pub name: Cow<'static, str>,
    pub severity: Severity,
    pub stalled_for: Duration,
    /// It alone is reason enough to fail the liveness check.
    pub failing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Live,
    Failing { reason: String },
}

/// Dropping it ends its threads.
pub struct Watchdog {
    shared: Arc<Shared>,
    judge: Option<JoinHandle<()>>,
}

struct Shared {
    limits: WatchdogLimits,
    evidence: Option<Evidence>,
    /// Written by whoever starts to watch; copied out by both threads once a tick.
    subjects: Mutex<Vec<Arc<Subject>>>,
    /// Published by the judge, read by anyone.
    stalls: Mutex<Vec<Stall>>,
    stop: AtomicBool,
    /// Which asker is in charge; an earlier one that comes back from a closure that hung leaves.
    asker: AtomicU64,
    metrics: Metrics,
}

struct Subject {
    name: Cow<'static, str>,
    severity: Severity,
    source: Source,
    /// Used by the judge only.
    patience: Mutex<Patience>,
}

enum Source {
    Beacon(Weak<Moves>),
    Closure(Box<Closure>),
}

struct Closure {
    ask: Box<dyn Fn() -> Progress + Send + Sync>,
    /// The asker that is inside `ask`; 0 when none is.
    asked_by: AtomicU64,
    answers: AtomicU64,
    panicked: AtomicBool,
    /// The last answer and when it was given. It is judged as of then: no time passes for someone
    /// who was not asked.
    reading: Mutex<Option<(Instant, Progress)>>,
    /// Does it answer at all? Used by the judge only.
    patience: Mutex<Patience>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Label {
    name: String,
}

#[derive(Clone, Debug, Default)]
struct Metrics {
    stalls: Family<Label, Counter>,
    stalled: Gauge,
}

impl Watchdog {
    pub fn start(limits: WatchdogLimits, evidence: Option<Evidence>) -> Self {
        let shared = Arc::new(Shared::new(limits, evidence));
        if let Some(evidence) = &shared.evidence {
            let weak = Arc::downgrade(&shared);
            evidence.source("beacons.txt", move || {
                weak.upgrade().map(|shared| shared.listing().into_bytes()).unwrap_or_default()
            });
        }
        let judged = Arc::clone(&shared);
        let judge = thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || judged.judge())
            .expect("a process that cannot start its first threads cannot run");
        Self { shared, judge: Some(judge) }
    }

    pub fn beacon(&self, name: impl Into<Cow<'static, str>>, severity: Severity) -> Beacon {
        let (beacon, moves) = Beacon::new();
        self.shared.add(name.into(), severity, Source::Beacon(moves));
        beacon
    }

    /// Asks `progress` once a tick. A closure that does not answer is named like one that owes.
    pub fn watch(
        &self,
        name: impl Into<Cow<'static, str>>,
        severity: Severity,
        progress: impl Fn() -> Progress + Send + Sync + 'static,
    ) {
        let source = Source::Closure(Box::new(Closure {
            ask: Box::new(progress),
            asked_by: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            panicked: AtomicBool::new(false),
            reading: Mutex::new(None),
            patience: Mutex::new(Patience::new(Instant::now())),
        }));
        self.shared.add(name.into(), severity, source);
    }

    /// Runs `work` once a tick; named if it hangs.
    pub fn each_tick(
        &self,
        name: impl Into<Cow<'static, str>>,
        work: impl Fn() + Send + Sync + 'static,
    ) {
        self.watch(name, Severity::Noted, move || {
            work();
            Progress { owed: false, count: 0 }
        });
    }

    /// Watches a runtime that someone drives: as a whole, with `severity`, and each of its workers,
    /// noted.
    pub fn watch_runtime(&self, name: &str, handle: tokio::runtime::Handle, severity: Severity) {
        let probed = Probed::new(handle);
        for worker in 0..probed.workers() {
            let probed = Arc::clone(&probed);
            self.watch(format!("{name}/worker-{worker}"), Severity::Noted, move || {
                probed.worker(worker)
            });
        }
        self.watch(name.to_owned(), severity, move || probed.whole());
    }

    /// Everyone who is stalled now, longest first.
    pub fn stalls(&self) -> Vec<Stall> {
        self.shared.stalls.lock().clone()
    }

    pub fn health(&self) -> Health {
        let stalls = self.shared.stalls.lock();
        match stalls.iter().find(|stall| stall.failing) {
            None => Health::Live,
            Some(Stall { name, stalled_for, .. }) => Health::Failing {
                reason: format!("{name} made no progress for {} s", stalled_for.as_secs()),
            },
        }
    }

    pub fn register(&self, registry: &mut Registry) {
        let Metrics { stalls, stalled } = &self.shared.metrics;
        registry.register("watchdog_stalls", "Stalls named, by who stalled", stalls.clone());
        registry.register("watchdog_stalled", "Stalled at this moment", stalled.clone());
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        if let Some(judge) = self.judge.take() {
            judge.thread().unpark();
            // It has nothing to panic with; and if it had, there is no one left to tell.
            let _ = judge.join();
        }
    }
}

impl Shared {
    fn new(limits: WatchdogLimits, evidence: Option<Evidence>) -> Self {
        Self {
            limits,
            evidence,
            subjects: Mutex::new(Vec::new()),
            stalls: Mutex::new(Vec::new()),
            stop: AtomicBool::new(false),
            asker: AtomicU64::new(0),
            metrics: Metrics::default(),
        }
    }

    fn add(&self, name: Cow<'static, str>, severity: Severity, source: Source) {
        let patience = Mutex::new(Patience::new(Instant::now()));
        self.subjects.lock().push(Arc::new(Subject { name, severity, source, patience }));
    }

    fn stopped(&self) -> bool {
        self.stop.load(SeqCst)
    }

    fn judge(self: &Arc<Self>) {
        let mut asker = self.start_asker();
        while !self.stopped() {
            let asleep_since = Instant::now();
            thread::park_timeout(self.limits.tick);
            let now = Instant::now();
            self.wake(asleep_since, now);
            if self.asker_hangs(now) {
                // It is named in its time. Until it comes back its thread is lost; that is one
                // thread for each closure that hangs, no more.
                asker = self.start_asker();
            }
        }
        if let Some(asker) = asker {
            asker.thread().unpark();
            if !self.asker_is_inside() {
                let _ = asker.join();
            }
        }
    }

    fn wake(&self, asleep_since: Instant, now: Instant) {
        // Only the sleep counts: what we did while awake, others could have done as well.
        let overslept = (now - asleep_since).saturating_sub(self.limits.tick);
        if overslept > self.limits.name_after / 2 {
            info!(seconds = overslept.as_secs_f64(), "the process was stopped for a while");
            self.forgive(overslept);
        }
        self.look(now);
    }

    fn forgive(&self, time: Duration) {
        for subject in self.subjects.lock().iter() {
            subject.patience.lock().forgive(time);
            if let Source::Closure(closure) = &subject.source {
                closure.patience.lock().forgive(time);
            }
        }
    }

    fn look(&self, now: Instant) {
        let subjects = {
            let mut subjects = self.subjects.lock();
            subjects.retain(|subject| !subject.is_gone());
            subjects.clone()
        };
        let mut stalls = Vec::new();
        let mut failed = None;
        for subject in &subjects {
            for (question, verdict) in subject.look(now, &self.limits) {
                self.say(subject, question, verdict);
                if verdict == Verdict::Failed {
                    failed = Some(subject);
                }
            }
            stalls.extend(subject.stall(now));
        }
        stalls.sort_by_key(|stall| std::cmp::Reverse(stall.stalled_for));
        self.metrics.stalled.set(stalls.len() as i64);
        if let Some(subject) = failed {
            // The evidence shows who stalls; nobody restarts us before it is written.
            let named = |stall: &Stall| Stall { failing: false, ..stall.clone() };
            *self.stalls.lock() = stalls.iter().map(named).collect();
            self.save("failing", subject, Some(EVIDENCE_WITHIN));
        }
        *self.stalls.lock() = stalls;
    }

    fn say(&self, subject: &Subject, question: Question, verdict: Verdict) {
        let Subject { name, severity, .. } = subject;
        match verdict {
            Verdict::Named => {
                self.metrics.stalls.get_or_create(&Label { name: name.to_string() }).inc();
                match question {
                    Question::Moves => {
                        warn!(%name, ?severity, "stalled: owes progress, makes none");
                    }
                    Question::Answers => warn!(%name, ?severity, "stalled: hangs when asked"),
                }
                if *severity == Severity::Critical {
                    self.save("stalled", subject, None);
                }
            }
            Verdict::Failed => error!(%name, "stalled too long: liveness fails"),
            Verdict::Recovered { after } => {
                info!(%name, seconds = after.as_secs_f64(), "recovered from its stall");
            }
        }
    }

    fn save(&self, what: &str, subject: &Subject, wait: Option<Duration>) {
        let Some(evidence) = &self.evidence else {
            return;
        };
        let saving = evidence.save(&format!("{what}-{}", subject.name));
        if let (Some(saving), Some(wait)) = (saving, wait) {
            saving.wait(wait);
        }
    }

    fn listing(&self) -> String {
        let now = Instant::now();
        let subjects = self.subjects.lock().clone();
        let lines = subjects.iter().map(|subject| {
            let stalled = subject.stall(now).map_or(String::new(), |stall| {
                format!("  stalled for {:.1} s", stall.stalled_for.as_secs_f64())
            });
            format!("{:8?}  {}{stalled}\n", subject.severity, subject.name)
        });
        lines.collect()
    }
}

/// The askers.
impl Shared {
    fn start_asker(self: &Arc<Self>) -> Option<JoinHandle<()>> {
        let number = self.asker.fetch_add(1, SeqCst) + 1;
        let shared = Arc::clone(self);
        let asker = thread::Builder::new()
            .name(format!("watchdog-asks-{number}"))
            .spawn(move || shared.ask_in_turn(number));
        asker.inspect_err(|error| error!(%error, "no thread to ask the watched")).ok()
    }

    fn ask_in_turn(&self, number: u64) {
        let in_charge = || !self.stopped() && self.asker.load(SeqCst) == number;
        while in_charge() {
            let subjects = self.subjects.lock().clone();
            for subject in &subjects {
                let Source::Closure(closure) = &subject.source else {
                    continue;
                };
                if closure.asked_by.compare_exchange(0, number, SeqCst, SeqCst).is_err() {
                    continue;
                }
                // Said that we are inside, then looked whether to stop: so that whoever stops us,
                // then looks whether we are inside, does not wait for a closure that hangs.
                if in_charge() {
                    closure.ask(&subject.name);
                }
                closure.asked_by.store(0, SeqCst);
                if !in_charge() {
                    return;
                }
            }
            thread::park_timeout(self.limits.tick);
        }
    }

    fn inside(&self) -> Option<Arc<Subject>> {
        let number = self.asker.load(SeqCst);
        let subjects = self.subjects.lock();
        subjects.iter().find(|subject| subject.asked_by() == number).cloned()
    }

    fn asker_is_inside(&self) -> bool {
        self.inside().is_some()
    }

    /// Has the asker in charge been inside one closure for a good part of our patience?
    fn asker_hangs(&self, now: Instant) -> bool {
        self.inside().is_some_and(|subject| {
            let Source::Closure(closure) = &subject.source else {
                return false;
            };
            closure.patience.lock().stalled_for(now) >= self.limits.name_after / 4
        })
    }
}

/// The question that a verdict answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Moves,
    Answers,
}

impl Subject {
    fn is_gone(&self) -> bool {
        matches!(&self.source, Source::Beacon(moves) if moves.strong_count() == 0)
    }

    fn asked_by(&self) -> u64 {
        match &self.source {
            Source::Beacon(_) => 0,
            Source::Closure(closure) => closure.asked_by.load(SeqCst),
        }
    }

    fn look(
        &self,
        now: Instant,
        limits: &WatchdogLimits,
    ) -> impl Iterator<Item = (Question, Verdict)> + use<> {
        let mut patience = self.patience.lock();
        let mut look = |at, progress| patience.look(at, progress, self.severity, limits);
        let (moves, answers) = match &self.source {
            Source::Beacon(moves) => (moves.upgrade().and_then(|m| look(now, m.progress())), None),
            Source::Closure(closure) => {
                let reading = *closure.reading.lock();
                let moves = reading.and_then(|(at, progress)| look(at, progress));
                let answering = Progress {
                    owed: closure.asked_by.load(SeqCst) != 0,
                    count: closure.answers.load(SeqCst),
                };
                let mut patience = closure.patience.lock();
                (moves, patience.look(now, answering, self.severity, limits))
            }
        };
        let moves = moves.map(|verdict| (Question::Moves, verdict));
        let answers = answers.map(|verdict| (Question::Answers, verdict));
        moves.into_iter().chain(answers)
    }

    fn stall(&self, now: Instant) -> Option<Stall> {
        let of = |patience: &Mutex<Patience>| {
            let patience = patience.lock();
            (patience.stage(), patience.stalled_for(now))
        };
        let mut worst = of(&self.patience);
        if let Source::Closure(closure) = &self.source {
            worst = worst.max(of(&closure.patience));
        }
        let (stage, stalled_for) = worst;
        (stage != Stage::Fine).then(|| Stall {
            name: self.name.clone(),
            severity: self.severity,
            stalled_for,
            failing: stage == Stage::Failed,
        })
    }
}

impl Closure {
    fn ask(&self, name: &str) {
        // A closure that panics has told us nothing, and is not asked to explain itself twice.
        match catch_unwind(AssertUnwindSafe(|| (self.ask)())) {
            Ok(progress) => *self.reading.lock() = Some((Instant::now(), progress)),
            Err(_) if self.panicked.swap(true, SeqCst) => {}
            Err(_) => error!(name, "panicked when asked for its progress"),
        }
        self.answers.fetch_add(1, SeqCst);
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").field("stalls", &self.stalls()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
