//! How many requests may be in flight: a limit that follows latency.
//!
//! The idea is Netflix's Gradient: compare the latency now with the latency of an unloaded system
//! (the baseline), and scale the limit by their ratio, with some headroom to find out whether more
//! would do. Everything hangs on the baseline, and there the known variants go wrong:
//! - Gradient2 takes the long-term average. Under steady overload that average learns the overloaded
//!   latency, and the limit creeps up for ever.
//! - Vegas takes the lowest latency ever seen. One cheap request among dear ones, or a backend that
//!   has become slower for good, and the limit collapses and does not heal.
//! - AIMD needs no baseline, but its only signal is requests that fail or come too late, which are
//!   what a gate is there to prevent.
//!
//! So here the baseline is measured where it can be: on mean latencies (never single ones), over
//! windows in which the gate was less than half full; and, if it never is, by a probe. A probe
//! halves the limit for a window. If latency does not follow, the load is not the cause of it: this
//! is the baseline, and the limit comes back. If latency falls with the limit, the limit was past
//! the knee and half of it serves as many: stay there, and halve again. Probes come after
//! `CALM` windows of load, and when the limit has lost half its height: that has to be earned.
//! Nothing else moves the baseline: a loaded window says what the load costs, not what it would be
//! without it.
//!
//! A window is as long as it takes to answer two requests per place, so that slow answers are in it,
//! and twice that in a probe, on which more depends. Its mean is taken with its standard error: the
//! limit is lowered, and a probe goes further down, only for a difference of at least two of those.

use std::time::Duration;

use tokio::time::Instant;

use super::{InFlightLimits, LoadSignal};

/// Latency that may be the noise of a healthy system, as a multiple of the baseline.
const TOLERANCE: f64 = 1.5;
/// How much of the way to its target the limit goes at a time.
const STRIDE: f64 = 0.2;
/// Latency fell with the limit if it fell below this part of itself (a half would be all of it).
const FELL: f64 = 0.75;
/// Windows under load from one probe to the next: a probe may cost half the throughput of one or
/// two windows, so this bounds its price to about one per cent.
const CALM: u32 = 100;
const SHORTEST: Duration = Duration::from_millis(100);
const FEWEST: usize = 32;

#[derive(Debug)]
pub(super) struct Limit {
    bounds: InFlightLimits,
    limit: f64,
    /// Mean seconds of an unloaded system, once known.
    baseline: Option<f64>,
    window: Window,
    probe: Option<Probe>,
    /// Mean seconds under load, over the last few windows. A probe is measured against this: it is
    /// often a bad window that calls for one, and a usual one after it would look like relief.
    loaded: Option<f64>,
    /// Windows under load since the last probe.
    calm: u32,
    /// The highest the limit was since the last probe.
    height: f64,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    seconds: f64,
    squares: f64,
    done: usize,
    failed: usize,
    peak: usize,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    /// The limit to come back to.
    limit: f64,
    /// The latency that was seen there.
    latency: f64,
}

impl Limit {
    pub(super) fn new(bounds: InFlightLimits, now: Instant) -> Self {
        let min = bounds.min.max(1);
        let bounds = InFlightLimits { min, max: bounds.max.max(min), initial: bounds.initial };
        let limit = bounds.initial.clamp(bounds.min, bounds.max) as f64;
        Self {
            bounds,
            limit,
            baseline: None,
            window: Window::new(now),
            probe: None,
            loaded: None,
            // The first baseline may have been taken under load: check it soon.
            calm: CALM - CALM / 10,
            height: limit,
        }
    }

    pub(super) fn get(&self) -> usize {
        self.limit as usize
    }

    /// Learns from a request that has left; `in_flight` counts it still.
    pub(super) fn observe(
        &mut self,
        started: Instant,
        outcome: LoadSignal,
        in_flight: usize,
        now: Instant,
    ) {
        // After a cut, those let in before it would tell of the load before it.
        if self.probe.is_some() && started < self.window.since {
            return;
        }
        self.window.peak = self.window.peak.max(in_flight);
        match outcome {
            LoadSignal::Done => {
                let seconds = now.saturating_duration_since(started).as_secs_f64();
                self.window.done += 1;
                self.window.seconds += seconds;
                self.window.squares += seconds * seconds;
            }
            LoadSignal::Failed => self.window.failed += 1,
            LoadSignal::Ignored => return,
        }
        let enough = FEWEST.max(2 * self.get()) * if self.probe.is_some() { 2 } else { 1 };
        let long = now.saturating_duration_since(self.window.since) >= SHORTEST;
        if long && self.window.done + self.window.failed >= enough {
            let window = std::mem::replace(&mut self.window, Window::new(now));
            self.conclude(&window);
        }
    }

    fn conclude(&mut self, window: &Window) {
        let loaded = window.peak * 2 >= self.get();
        let failed = window.failed as f64 / (window.done + window.failed) as f64;
        if window.done == 0 {
            // Nothing but failures says nothing about latency.
            self.end_probe();
            self.step(1.0 - failed / 2.0);
            return;
        }
        let (latency, doubt) = window.mean();
        let baseline = *self.baseline.get_or_insert(latency);

        if let Some(probe) = self.probe {
            let fell = loaded && latency + doubt < probe.latency * FELL;
            if fell && self.limit > self.bounds.min as f64 {
                self.cut(latency);
            } else {
                self.baseline = Some(latency);
                self.end_probe();
            }
            return;
        }
        if !loaded || self.get() <= self.bounds.min {
            // At the floor nothing is left to cut, so this is the best there is.
            self.baseline = Some(baseline + STRIDE * (latency - baseline));
        }
        if loaded {
            let before = self.loaded.unwrap_or(latency);
            let usual = before + STRIDE * (latency - before);
            self.loaded = Some(usual);
            let gradient = (TOLERANCE * baseline / (latency - doubt).max(baseline)).clamp(0.5, 1.0);
            self.step(gradient.min(1.0 - failed / 2.0));
            self.calm += 1;
            if self.calm >= CALM || self.limit < self.height / 2.0 {
                self.cut(usual);
            }
        }
    }

    fn step(&mut self, gradient: f64) {
        let target = self.limit * gradient + self.limit.sqrt();
        self.set(self.limit + STRIDE * (target - self.limit));
        self.height = self.height.max(self.limit);
    }

    fn cut(&mut self, latency: f64) {
        self.probe = Some(Probe { limit: self.limit, latency });
        self.set(self.limit / 2.0);
    }

    fn end_probe(&mut self) {
        if let Some(probe) = self.probe.take() {
            self.limit = probe.limit;
            self.loaded = Some(probe.latency);
            self.height = probe.limit;
            self.calm = 0;
        }
    }

    fn set(&mut self, limit: f64) {
        self.limit = limit.clamp(self.bounds.min as f64, self.bounds.max as f64);
    }
}

impl Window {
    /// Mean seconds, and two standard errors of it.
    fn mean(&self) -> (f64, f64) {
        let n = self.done as f64;
        let mean = self.seconds / n;
        let variance = (self.squares / n - mean * mean).max(0.0);
        (mean, 2.0 * (variance / n).sqrt())
    }

    fn new(since: Instant) -> Self {
        Self { since, seconds: 0.0, squares: 0.0, done: 0, failed: 0, peak: 0 }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
