//! A world on one thread in which a seed decides everything that is not decided by the code under test: what the
//! network delays, loses, repeats and reorders, how clocks run, what a disk has kept after a crash, and who
//! crashes when.
//!
//! ```text
//! seed ──► World (generator, steps) ──► network, clock, Disk ──► the product's own decisions
//!                     ▲                                              │
//!                     └────────── invariants, after every step ◄─────┘
//! ```
//!
//! Time is tokio's paused clock: it goes forward when nobody can go on. A schedule is one run of a subject with one
//! seed; the same seed gives the same schedule. [`explore`] runs many, and prints the seed and the last steps of
//! one in which an invariant does not hold. [`finds`] runs a subject with a planted bug, and fails if no schedule
//! finds it.

#![allow(clippy::print_stdout, reason = "a seed that fails is for whoever reads the test's output")]

mod disk;

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

pub use disk::Disk;

/// How many of the last steps are kept.
const LAST: usize = 60;

/// One schedule's world. Clones are the same world.
#[derive(Clone, Debug)]
pub struct World(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    seed: u64,
    began: Instant,
    /// Everybody in the world uses it, for a moment.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    generator: fastrand::Rng,
    steps: VecDeque<String>,
    /// Sums up all steps: two runs of one seed have one sum.
    sum: u64,
    broken: Option<String>,
    loud: bool,
}

impl World {
    fn new(seed: u64, loud: bool) -> Self {
        let generator = fastrand::Rng::with_seed(seed);
        let state = State { generator, steps: VecDeque::new(), sum: 0, broken: None, loud };
        Self(Arc::new(Inner { seed, began: Instant::now(), state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// The time since the world began.
    pub fn now(&self) -> Duration {
        self.0.began.elapsed()
    }

    /// A number below `end`.
    pub fn below(&self, end: u64) -> u64 {
        self.state().generator.u64(..end.max(1))
    }

    /// True once in so many times.
    pub fn one_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&self, of: &'a [T]) -> Option<&'a T> {
        of.get(usize::try_from(self.below(of.len() as u64)).unwrap_or_default())
    }

    /// A number of milliseconds below `most`.
    pub fn up_to(&self, most: Duration) -> Duration {
        Duration::from_millis(self.below(u64::try_from(most.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Writes a step down.
    pub fn step(&self, what: impl fmt::Display) {
        let line = format!("{:>10.3}s  {what}", self.now().as_secs_f64());
        let mut state = self.state();
        for byte in line.bytes() {
            state.sum = (state.sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if state.loud {
            println!("{line}");
        }
        if state.steps.len() >= LAST {
            state.steps.pop_front();
        }
        state.steps.push_back(line);
    }

    /// Says whether an invariant holds; the first that does not is what the schedule has found.
    pub fn holds(&self, holds: bool, otherwise: impl FnOnce() -> String) {
        if holds || self.is_broken() {
            return;
        }
        let what = otherwise();
        self.step(format_args!("BROKEN: {what}"));
        self.state().broken = Some(what);
    }

    /// Whether an invariant did not hold: the schedule may end.
    pub fn is_broken(&self) -> bool {
        self.state().broken.is_some()
    }
}

/// A schedule in which an invariant did not hold.
#[derive(Clone, Debug)]
pub struct Found {
    pub seed: u64,
    pub what: String,
    pub steps: Vec<String>,
}

/// Runs one schedule; answers the sum of its steps.
fn run(seed: u64, loud: bool, subject: &impl AsyncFn(World)) -> Result<u64, Found> {
    // The product's own jitter comes from this thread's generator.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without threads can be made");
    let _entered = runtime.enter();
    let world = World::new(seed, loud);
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(subject(world.clone()))));
    if let Err(panic) = ended {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
        world.holds(false, || format!("a panic: {text}"));
    }
    let state = world.state();
    match &state.broken {
        None => Ok(state.sum),
        Some(what) => {
            let steps = state.steps.iter().cloned().collect();
            Err(Found { seed, what: what.clone(), steps })
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// Runs `schedules` schedules of a subject, or those that the environment names: `SEED` runs one and prints all its
/// steps, `SCHEDULES` runs so many. Panics at the first in which an invariant does not hold.
pub fn explore(test: &str, schedules: u64, subject: impl AsyncFn(World)) {
    if let Some(seed) = number("SEED") {
        let ended = run(seed, true, &subject);
        if let Err(found) = ended {
            panic!("seed {seed}: {}", found.what);
        }
        return;
    }
    let schedules = number("SCHEDULES").unwrap_or(schedules);
    let began = std::time::Instant::now();
    for seed in 0..schedules {
        if let Err(found) = run(seed, false, &subject) {
            println!("the last steps:\n{}", found.steps.join("\n"));
            panic!(
                "seed {seed}: {}\nagain: SEED={seed} cargo nextest run --workspace --features fairlead/replay \
                 --test simulation --no-capture -E 'test({test})'",
                found.what
            );
        }
        // A schedule that cannot be run again is of no use.
        if seed.is_multiple_of(500) {
            let sums = [run(seed, false, &subject), run(seed, false, &subject)].map(Result::ok);
            assert!(sums[0] == sums[1], "{test}: seed {seed} does not give the same steps twice");
        }
    }
    println!("{test}: {schedules} schedules in {:.1} s", began.elapsed().as_secs_f64());
}

/// Runs schedules of a subject with a planted bug until one finds it; answers it. Panics if none of `most` does.
pub fn finds(bug: &str, most: u64, subject: impl AsyncFn(World)) -> Found {
    for seed in 0..most {
        if let Err(found) = run(seed, false, &subject) {
            println!("planted: {bug}: found by schedule {}: {}", seed + 1, found.what);
            return found;
        }
    }
    panic!("planted: {bug}: not found in {most} schedules");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_schedule() {
        let subject = async |world: World| {
            for _ in 0..20 {
                tokio::time::sleep(world.up_to(Duration::from_secs(5))).await;
                world.step(world.below(1000));
            }
        };
        assert_eq!(run(7, false, &subject).ok(), run(7, false, &subject).ok());
        assert_ne!(run(7, false, &subject).ok(), run(8, false, &subject).ok());
    }

    #[test]
    fn a_broken_invariant_is_found_with_its_steps() {
        let found = finds("a number that is sometimes three", 100, async |world| {
            let number = world.below(10);
            world.step(format_args!("it is {number}"));
            world.holds(number != 3, || "it is three".to_owned());
        });
        assert_eq!(found.what, "it is three");
        assert!(found.steps[0].ends_with("it is 3"), "{:?}", found.steps);
    }

    #[test]
    fn a_panic_is_found_too() {
        let found = finds("a panic", 1, async |world: World| assert!(world.seed() > 0, "no"));
        assert_eq!(found.what, "a panic: no");
    }

    #[test]
    #[should_panic(expected = "not found in 5 schedules")]
    fn a_bug_that_is_not_found_fails() {
        finds("none", 5, async |_: World| ());
    }
}
