//! `Meter`: what one change costs in CPU time, and what standing costs in memory.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::record::memory_of;

/// How often a change is made in one measurement, at least so that it takes this long: the clock is not
/// finer than some microseconds.
const LONG_ENOUGH: Duration = Duration::from_millis(2);
/// The median of so many measurements counts.
const MEASUREMENTS: usize = 9;
/// Memory is counted in pages.
const PAGE: u64 = 4096;

/// How a cost may grow with the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grows {
    /// Not at all. Trees grow by their logarithm, and caches are small.
    Not,
    /// Twice the size costs twice as much.
    Linearly,
}

impl Grows {
    /// The largest exponent that is taken for this. A single cost that noise doubles moves an exponent by
    /// 0.3 at most.
    pub fn limit(self) -> f64 {
        match self {
            Self::Not => 0.4,
            Self::Linearly => 1.3,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Nanoseconds,
    Bytes,
}

impl Unit {
    pub fn text(self, cost: f64) -> String {
        match self {
            Self::Nanoseconds if cost < 1e6 => format!("{:.1} µs", cost / 1e3),
            Self::Nanoseconds => format!("{:.2} ms", cost / 1e6),
            Self::Bytes => format!("{:.1} MB", cost / 1e6),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub what: String,
    pub unit: Unit,
    pub grows: Grows,
    pub cost: f64,
}

/// What was measured so far.
pub(super) struct Meter {
    /// The CPU time of this process, with all its threads.
    clock: Box<dyn Fn() -> Duration>,
    /// The memory of this process, in bytes.
    memory: Box<dyn Fn() -> u64>,
    pub(super) costs: Vec<Cost>,
}

impl Default for Meter {
    fn default() -> Self {
        Self::new(cpu, || memory_of(0).now)
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

impl Meter {
    pub(super) fn new(
        clock: impl Fn() -> Duration + 'static,
        memory: impl Fn() -> u64 + 'static,
    ) -> Self {
        Self { clock: Box::new(clock), memory: Box::new(memory), costs: Vec::new() }
    }

    /// Builds something that then stands.
    pub(super) fn standing<T>(&mut self, what: &str, build: impl FnOnce() -> T) -> T {
        let before = (self.memory)();
        let built = build();
        let bytes = (self.memory)().saturating_sub(before).max(PAGE);
        let (what, unit, grows) = (what.to_owned(), Unit::Bytes, Grows::Linearly);
        self.costs.push(Cost { what, unit, grows, cost: bytes as f64 });
        built
    }

    /// Makes a change again and again; it is told how often it was made before.
    pub(super) fn change(&mut self, what: &str, grows: Grows, mut make: impl FnMut(usize)) {
        let mut made = 0..;
        let mut measure = |times: usize| {
            let before = (self.clock)();
            made.by_ref().take(times).for_each(&mut make);
            (self.clock)().saturating_sub(before)
        };
        // The first ones warm up what is cold.
        let mut times = 4;
        while measure(times) < LONG_ENOUGH && times < 1 << 20 {
            times *= 2;
        }
        let mut each: Vec<f64> =
            (0..MEASUREMENTS).map(|_| measure(times).as_nanos() as f64 / times as f64).collect();
        each.sort_by(f64::total_cmp);
        let (what, unit, cost) = (what.to_owned(), Unit::Nanoseconds, each[MEASUREMENTS / 2]);
        self.costs.push(Cost { what, unit, grows, cost });
    }
}
