//! The soak: all jobs together at a steady load, faults from a seed, and what must always hold, looked
//! at all the time.
//!
//! ```text
//! seed ─► Schedule ─┬─► net    pods come and go on a node            ─┐
//!                   ├─► fleet  clusters are looked up and called      ├─► checks ─► Report
//!                   ├─► lease  two candidates; the leader writes      │
//!                   ├─► guard  agents report to an ingest             │
//!                   └─► mesh   nodes change, peers follow            ─┘
//! ```
//!
//! Contract:
//! - The faults are those of the [`schedule`]: a soak that found something is run again with its seed.
//! - Each job has a thread that injects its faults and checks it, again and again; when the time is up
//!   the load ends, everything gets [`PATIENCE`] to recover, and is checked for the last time.
//! - What does not hold is told with the moment at which it was seen. A job that could not be run is
//!   left out, and said to be; one that did less than its minimum makes the soak void.

pub mod cluster;
mod fleet;
mod guard;
mod lease;
mod ledger;
mod mesh;
mod net;
mod schedule;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::incident::{Need, Ran};
use crate::record::memory_of;
use crate::run::CannotRun;
pub use net::node;
pub use schedule::{Fault, Job, Planned, SHORTEST, schedule};

/// Between two checks of a job.
const EVERY: Duration = Duration::from_millis(200);
/// For everything to be as it should be, once faults and load are over.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most that this process and the node's daemon may have resident at any moment, together. The
/// jobs keep a few MiB of data; the rest is code, runtimes and what is on the way.
pub const MEMORY: u64 = 512 << 20;
/// So many different things are told; the rest, and what is told again, is counted.
const TOLD: usize = 20;

/// Why a job that stood was not run.
const OTHER: &str = "another job could not be run";

/// How to soak.
#[derive(Clone, Debug)]
pub struct Soak {
    pub seed: u64,
    pub time: Duration,
    /// The jobs that are wanted; none is all.
    pub only: Vec<Job>,
    /// For everything that is written; gone afterwards.
    pub dir: PathBuf,
    /// The CNI plugin.
    pub plugin: PathBuf,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub minutes: f64,
    pub faults: Vec<Planned>,
    pub jobs: BTreeMap<&'static str, Done>,
    pub left_out: Vec<LeftOut>,
    /// Bytes.
    pub peak_memory: u64,
    pub memory_limit: u64,
    /// Why it shows nothing, if it does not.
    pub void: Option<String>,
    pub ok: bool,
}

/// Of one job.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Done {
    /// What was asked of it and done.
    pub load: u64,
    /// Below this it shows nothing.
    pub minimum: u64,
    pub checks: u64,
    pub broken: Vec<Broken>,
    /// How many more there were.
    pub more: u64,
}

/// Something that must hold and did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    pub at_ms: u64,
    pub what: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct LeftOut {
    pub job: String,
    pub why: String,
}

/// What every job is given.
struct Stage<'a> {
    soak: &'a Soak,
    /// How this program is run as the node's daemon: an argument is added, its directory.
    node: &'a (dyn Fn() -> Command + Sync),
    /// Another process whose memory counts.
    process: &'a AtomicU32,
}

/// A job under load.
trait Work {
    fn begin(&mut self, planned: &Planned) -> Ran;
    fn end(&mut self, planned: &Planned) -> Ran;
    /// What does not hold now.
    fn check(&mut self) -> Vec<String>;
    /// What was done so far.
    fn load(&self) -> u64;
    /// The load ends; what does not hold when all has recovered, or does not recover until `until`.
    fn finish(&mut self, until: Instant) -> Vec<String>;
}

/// Sets the stage, lets itself be driven, and clears up.
type Play = fn(&Stage<'_>, &mut Drive<'_>) -> Ran;
type Drive<'a> = dyn FnMut(&mut dyn Work) -> Ran + Send + 'a;

fn play(job: Job) -> Play {
    match job {
        Job::Net => net::play,
        Job::Fleet => fleet::play,
        Job::Lease => lease::play,
        Job::Guard => guard::play,
        Job::Mesh => mesh::play,
    }
}

fn needs(job: Job) -> &'static [Need] {
    match job {
        Job::Net => &[Need::Root, Need::Plugin],
        Job::Lease | Job::Mesh => &[Need::Kube],
        Job::Fleet | Job::Guard => &[],
    }
}

/// For each second of the soak, on a busy machine and under faults.
fn minimum(job: Job) -> f64 {
    match job {
        Job::Net => 1.0,
        Job::Fleet => 5.0,
        Job::Lease => 0.5,
        Job::Guard => 4.0,
        Job::Mesh => 0.5,
    }
}

/// How far a job has come; written by its thread, read for the progress.
#[derive(Debug, Default)]
struct Gauge {
    load: AtomicU64,
    broken: AtomicU64,
}

/// One that nobody chose. Small, because people will type it.
pub fn any_seed() -> u64 {
    fastrand::u64(..1_000_000)
}

/// Runs it. `node` is how this program is run again as the node's daemon.
pub fn soak(
    soak: &Soak,
    node: &(dyn Fn() -> Command + Sync),
    tell: &mut dyn FnMut(&str),
) -> Result<Report, CannotRun> {
    let (mut left_out, mut jobs) = (Vec::new(), Vec::new());
    for job in Job::ALL.into_iter().filter(|job| soak.only.is_empty() || soak.only.contains(job)) {
        let missing = needs(job).iter().filter_map(|need| need.missing(&soak.plugin));
        match missing.collect::<Vec<_>>() {
            missing if missing.is_empty() => jobs.push(job),
            missing => {
                left_out.push(LeftOut { job: job.name().to_owned(), why: missing.join("; ") });
            }
        }
    }
    let mut faults = schedule(soak.seed, soak.time);
    faults.retain(|planned| jobs.contains(&planned.job));
    let process = AtomicU32::new(0);
    let stage = Stage { soak, node, process: &process };
    let gauges: Vec<(Job, Gauge)> = jobs.iter().map(|job| (*job, Gauge::default())).collect();
    let (peak, done) = std::thread::scope(|scope| {
        let (staged, is_staged) = channel();
        let (mut starts, mut threads) = (Vec::new(), Vec::new());
        for (job, gauge) in &gauges {
            let own: Vec<Planned> = faults.iter().filter(|p| p.job == *job).cloned().collect();
            let (start, started) = channel();
            let (staged, stage) = (staged.clone(), &stage);
            let thread = scope.spawn(move || {
                let mut done = Done::default();
                let told = &mut done;
                let mut driven = move |work: &mut dyn Work| {
                    let _ = staged.send(());
                    drive(work, &own, soak.time, &started, gauge, told)
                };
                let ran = play(*job)(stage, &mut driven);
                drop(driven);
                ran.map(|()| done)
                    .map_err(|error| format!("{}: {}", job.name(), stallproof::sentence(&*error)))
            });
            starts.push(start);
            threads.push((*job, thread));
        }
        drop(staged);
        let began = all_staged(&is_staged, starts, &threads);
        let mut peak = 0;
        while threads.iter().any(|(_, thread)| !thread.is_finished()) {
            std::thread::sleep(EVERY);
            peak = peak.max(resident(&process));
            tell(&progress(soak, began, &gauges, &faults));
        }
        let done: Vec<_> = threads
            .into_iter()
            .map(|(job, thread)| {
                let done = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                (job, done)
            })
            .collect();
        (peak, done)
    });
    let (mut jobs, mut cannot) = (BTreeMap::new(), Vec::new());
    for (job, done) in done {
        let minimum = (minimum(job) * soak.time.as_secs_f64()) as u64;
        match done {
            Ok(done) => {
                jobs.insert(job.name(), Done { minimum, ..done });
            }
            Err(why) if why.ends_with(OTHER) => {}
            Err(why) => cannot.push(why),
        }
    }
    if !cannot.is_empty() {
        return Err(CannotRun(cannot.join("; ")));
    }
    Ok(judge(soak, faults, jobs, left_out, peak))
}

fn judge(
    soak: &Soak,
    faults: Vec<Planned>,
    jobs: BTreeMap<&'static str, Done>,
    left_out: Vec<LeftOut>,
    peak_memory: u64,
) -> Report {
    let idle = jobs.iter().filter(|(_, done)| done.load < done.minimum);
    let idle: Vec<String> = idle
        .map(|(job, done)| format!("{job} did {} of at least {}", done.load, done.minimum))
        .collect();
    let void = match jobs.is_empty() {
        true => Some("no job could be run here".to_owned()),
        false => (!idle.is_empty()).then(|| idle.join("; ")),
    };
    let whole = jobs.values().all(|done| done.broken.is_empty() && done.checks > 0);
    Report {
        seed: soak.seed,
        minutes: soak.time.as_secs_f64() / 60.0,
        faults,
        left_out,
        peak_memory,
        memory_limit: MEMORY,
        ok: void.is_none() && whole && peak_memory <= MEMORY,
        void,
        jobs,
    }
}

type Driven<'a> = std::thread::ScopedJoinHandle<'a, Result<Done, String>>;

/// Waits until every job stands, or one cannot, and lets all begin at one moment.
fn all_staged(
    is_staged: &Receiver<()>,
    starts: Vec<Sender<Instant>>,
    threads: &[(Job, Driven<'_>)],
) -> Option<Instant> {
    for _ in threads {
        while is_staged.recv_timeout(EVERY).is_err() {
            if threads.iter().any(|(_, thread)| thread.is_finished()) {
                // It says why when it is joined; the others see that nobody starts them.
                return None;
            }
        }
    }
    let now = Instant::now();
    for start in starts {
        // One that is gone says why when it is joined.
        let _ = start.send(now);
    }
    Some(now)
}

/// Faults at their time, checks between them, and the end.
fn drive(
    work: &mut dyn Work,
    faults: &[Planned],
    time: Duration,
    started: &Receiver<Instant>,
    gauge: &Gauge,
    done: &mut Done,
) -> Ran {
    let began = started.recv().map_err(|_| OTHER)?;
    // What was done while others were not ready yet is no part of it.
    let before = work.load();
    let mut waiting = faults.iter().peekable();
    let mut present: Option<&Planned> = None;
    let note = |done: &mut Done, found: Vec<String>| {
        gauge.broken.fetch_add(found.len() as u64, Relaxed);
        done.note(began, found);
    };
    while began.elapsed() < time || present.is_some() {
        if let Some(planned) = present.take_if(|planned| began.elapsed() >= planned.until())
            && let Err(error) = work.end(planned)
        {
            note(done, vec![told(planned, "ended", &*error)]);
        }
        if let Some(planned) =
            waiting.next_if(|next| present.is_none() && began.elapsed() >= next.at())
        {
            if let Err(error) = work.begin(planned) {
                note(done, vec![told(planned, "begun", &*error)]);
            }
            present = Some(planned);
        }
        note(done, work.check());
        gauge.load.store(work.load() - before, Relaxed);
        std::thread::sleep(EVERY);
    }
    note(done, work.finish(Instant::now() + PATIENCE));
    if waiting.next().is_some() {
        note(done, vec!["not every fault came before the time was up".to_owned()]);
    }
    done.load = work.load() - before;
    gauge.load.store(done.load, Relaxed);
    Ok(())
}

fn told(planned: &Planned, what: &str, error: &(dyn std::error::Error + 'static)) -> String {
    format!("{} cannot be {what}: {}", planned.fault.name(), stallproof::sentence(error))
}

impl Done {
    fn note(&mut self, began: Instant, found: Vec<String>) {
        self.checks += 1;
        let at_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        for what in found {
            let is_new = !self.broken.iter().any(|broken| broken.what == what);
            if is_new && self.broken.len() < TOLD {
                self.broken.push(Broken { at_ms, what });
            } else {
                self.more += 1;
            }
        }
    }
}

fn progress(
    soak: &Soak,
    began: Option<Instant>,
    gauges: &[(Job, Gauge)],
    faults: &[Planned],
) -> String {
    let Some(began) = began else { return "the stage is being set".to_owned() };
    let now = began.elapsed();
    let mut line = format!("{:.0} of {:.0} s", now.as_secs_f64(), soak.time.as_secs_f64());
    for (job, gauge) in gauges {
        // Into a string, which takes everything.
        let _ = write!(line, " · {} {}", job.name(), gauge.load.load(Relaxed));
        if let Some(planned) =
            faults.iter().find(|p| p.job == *job && p.at() <= now && now < p.until())
        {
            let _ = write!(line, " ({})", planned.fault.name());
        }
        let broken = gauge.broken.load(Relaxed);
        if broken > 0 {
            let _ = write!(line, " BROKEN {broken}");
        }
    }
    line
}

/// Of this process, and of the node's.
fn resident(node: &AtomicU32) -> u64 {
    let node = match node.load(Relaxed) {
        0 => 0,
        node => memory_of(node).now,
    };
    memory_of(0).now + node
}

/// For people.
pub fn text(report: &Report) -> String {
    let Report { seed, minutes, faults, jobs, left_out, peak_memory, memory_limit, void, ok } =
        report;
    let mut text = String::new();
    let line = |text: &mut String, line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    line(&mut text, format!("soak of {minutes:.2} minutes, seed {seed}: {} faults", faults.len()));
    for (name, done) in jobs {
        let Done { load, minimum, checks, broken, more } = done;
        let is = if broken.is_empty() { "✓" } else { "✗" };
        line(
            &mut text,
            format!("  {is} {name:6} {load} done (at least {minimum}), {checks} checks"),
        );
        for Broken { at_ms, what } in broken {
            line(&mut text, format!("      {:.1} s: {what}", *at_ms as f64 / 1000.0));
        }
        if *more > 0 {
            line(&mut text, format!("      and {more} more"));
        }
    }
    let is = if peak_memory <= memory_limit { "✓" } else { "✗" };
    line(
        &mut text,
        format!("  {is} memory {} MiB of {} MiB", peak_memory >> 20, memory_limit >> 20),
    );
    for LeftOut { job, why } in left_out {
        line(&mut text, format!("  - {job} left out: {why}"));
    }
    if let Some(void) = void {
        line(&mut text, format!("  void: {void}"));
    }
    let end =
        if *ok { "all of it holds".to_owned() } else { format!("run it again with --seed {seed}") };
    line(&mut text, end);
    text
}

#[cfg(test)]
mod tests;
