//! A soak: the jobs together, at a steady load, with faults that a seed chooses, until time is up. What
//! must always hold is looked at after every round.
//!
//! ```text
//! seed ─► a thread for each job: round after round of load, a fault, a look ─► Report
//! ```
//!
//! A seed chooses the same faults in the same order again; how they meet each other is up to the machine.
//! The first thing that does not hold ends the soak.

mod agents;
mod clusters;
mod pods;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;
use serde::Serialize;

use crate::incident::{Cannot, Need};

/// What is asked of a soak.
#[derive(Clone, Debug)]
pub struct Soak {
    pub seed: u64,
    pub time: Duration,
    /// Empty, and gone afterwards.
    pub dir: PathBuf,
    pub plugin: PathBuf,
    pub program: PathBuf,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub seed: u64,
    pub seconds: f64,
    pub jobs: Vec<JobReport>,
    pub ok: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobReport {
    pub job: &'static str,
    pub rounds: u64,
    /// How often each fault was made.
    pub faults: BTreeMap<&'static str, u64>,
    /// What did not hold, or why the job could not go on.
    pub broke: Option<String>,
    /// Why it was not run here.
    pub skipped: Option<String>,
}

struct Job {
    name: &'static str,
    needs: &'static [Need],
    run: fn(&Soak, &Rounds<'_>) -> Result<(), Cannot>,
}

static JOBS: [Job; 3] = [
    Job { name: "pods", needs: &[Need::Root, Need::Plugin], run: pods::run },
    Job { name: "clusters", needs: &[], run: clusters::run },
    Job { name: "agents", needs: &[], run: agents::run },
];

/// One job's rounds: when to stop, and what was done.
pub(crate) struct Rounds<'a> {
    until: Instant,
    stop: &'a AtomicBool,
    random: Mutex<Rng>,
    done: Mutex<(u64, BTreeMap<&'static str, u64>)>,
}

impl Rounds<'_> {
    /// Whether there is time for another round.
    pub(crate) fn next(&self) -> bool {
        let goes_on = Instant::now() < self.until && !self.stop.load(Relaxed);
        if goes_on {
            self.done.lock().0 += 1;
        }
        goes_on
    }

    /// One of these faults; the first is none.
    pub(crate) fn fault<F: Copy>(&self, faults: &[(&'static str, F)]) -> F {
        let (name, fault) = faults[self.number(faults.len())];
        *self.done.lock().1.entry(name).or_default() += 1;
        fault
    }

    /// Below `bound`.
    pub(crate) fn number(&self, bound: usize) -> usize {
        self.random.lock().usize(..bound)
    }
}

/// `tell` is called about once a second.
pub fn soak(soak: &Soak, tell: &mut dyn FnMut(Duration)) -> Report {
    let (began, stop) = (Instant::now(), AtomicBool::new(false));
    let jobs = std::thread::scope(|scope| {
        let threads: Vec<_> = (JOBS.iter().enumerate())
            .map(|(i, job)| {
                let (stop, until) = (&stop, began + soak.time);
                let random = Mutex::new(Rng::with_seed(soak.seed.wrapping_add(i as u64)));
                let rounds = Rounds { until, stop, random, done: Mutex::default() };
                scope.spawn(move || run(soak, job, &rounds))
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            tell(began.elapsed());
            std::thread::sleep(Duration::from_millis(200));
        }
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    report(soak.seed, began.elapsed(), jobs)
}

fn report(seed: u64, took: Duration, jobs: Vec<JobReport>) -> Report {
    let ran = jobs.iter().any(|job| job.skipped.is_none());
    // One that ran and did nothing shows nothing.
    let idle = |job: &JobReport| job.skipped.is_none() && job.rounds == 0;
    let ok = ran && !jobs.iter().any(|job| job.broke.is_some() || idle(job));
    Report { seed, seconds: took.as_secs_f64(), jobs, ok }
}

fn run(soak: &Soak, job: &Job, rounds: &Rounds<'_>) -> JobReport {
    let missing: Vec<String> =
        job.needs.iter().filter_map(|need| need.missing(&soak.plugin)).collect();
    let mut broke = None;
    if missing.is_empty() {
        let dir = soak.dir.join(job.name);
        let own = Soak { dir: dir.clone(), ..soak.clone() };
        let ran = std::fs::create_dir_all(dir).map_err(Cannot::from);
        broke = ran.and_then(|()| (job.run)(&own, rounds)).err().map(|e| flow::sentence(&*e));
    }
    if broke.is_some() {
        rounds.stop.store(true, Relaxed);
    }
    let (count, faults) = rounds.done.lock().clone();
    let skipped = (!missing.is_empty()).then(|| missing.join("; "));
    JobReport { job: job.name, rounds: count, faults, broke, skipped }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(rounds: u64, broke: bool, skipped: bool) -> JobReport {
        let say = |so: bool| so.then(|| "why".to_owned());
        let (broke, skipped) = (say(broke), say(skipped));
        JobReport { job: "x", rounds, faults: BTreeMap::new(), broke, skipped }
    }

    #[test]
    fn a_soak_is_ok_only_if_something_ran_and_nothing_broke() {
        let ok = |jobs| report(1, Duration::ZERO, jobs).ok;
        assert!(ok(vec![job(3, false, false), job(0, false, true)]));
        assert!(!ok(vec![job(3, false, false), job(3, true, false)]));
        assert!(!ok(vec![job(0, false, true)]));
        assert!(!ok(vec![job(0, false, false), job(3, false, false)]));
    }

    #[test]
    fn a_seed_chooses_the_same_faults_again() {
        let faults = [("none", 0), ("a", 1), ("b", 2), ("c", 3)];
        let chosen = || {
            let rounds = Rounds {
                until: Instant::now(),
                stop: &AtomicBool::new(false),
                random: Mutex::new(Rng::with_seed(7)),
                done: Mutex::default(),
            };
            (0..50).map(|_| rounds.fault(&faults)).collect::<Vec<_>>()
        };
        assert_eq!(chosen(), chosen());
        assert!((0..4).all(|fault| chosen().contains(&fault)));
    }
}
