//! `Recorder`: what one design does under the load, sampled while it does it.
//!
//! Contract:
//! - A request is counted from [`Recorder::begin`] until it is answered, refused or failed; one that is
//!   dropped has failed.
//! - A thread of its own takes a sample every [`EVERY`], whatever the design does to its threads, and
//!   stops the design at its limits: the process says how far it came, and exits. A design that is
//!   stuck for ever is thus reported like any other.
//! - Figures are set as they become known, so that those of a stopped design are there as well.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::latency::Latencies;
use crate::outcome::{Ended, Figures, Named, Sample};

/// Between two samples.
pub(crate) const EVERY: Duration = Duration::from_millis(200);

/// What a design's process says, a line each.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Line {
    /// The stage is being set; nothing is measured yet.
    Staging,
    Sample(Sample),
    /// The last one.
    Ended(Box<Ended>),
    /// The last one, of a design that could not be run.
    Cannot(String),
}

impl Line {
    pub(crate) fn say(&self) -> io::Result<()> {
        let mut text = serde_json::to_string(self)?;
        text.push('\n');
        io::stdout().lock().write_all(text.as_bytes())
    }
}

/// When a design is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) time: Duration,
    pub(crate) memory: u64,
}

/// A handle; clones are the same.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// When the load began; not yet while the stage is set.
    began: OnceLock<Instant>,
    /// Those in flight by number, hence by age. Written at each end of a request, read by the sampler.
    open: Mutex<BTreeMap<u64, Instant>>,
    last: AtomicU64,
    most: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    /// Since the last sample, and since the beginning.
    recent: Latencies,
    all: Latencies,
    /// The bits of a float.
    level: AtomicU64,
    /// Whose memory counts; 0: this process'.
    watched: AtomicU32,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    figures: Figures,
    named: Option<Named>,
    notes: Vec<String>,
    peak: u64,
}

/// One request in flight.
#[derive(Debug)]
#[must_use = "a request that is dropped has failed"]
pub struct Asked {
    recorder: Recorder,
    number: u64,
    began: Instant,
    end: End,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Answered,
    Refused,
    Failed,
}

impl Recorder {
    #[expect(clippy::new_without_default, reason = "there is one in a process")]
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            began: OnceLock::new(),
            open: Mutex::default(),
            last: AtomicU64::new(0),
            most: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            recent: Latencies::default(),
            all: Latencies::default(),
            level: AtomicU64::new(0),
            watched: AtomicU32::new(0),
            told: Mutex::default(),
        }))
    }

    /// The stage is set and the load begins: time and limits count from now.
    pub fn staged(&self) {
        self.0.began.get_or_init(Instant::now);
    }

    pub fn begin(&self) -> Asked {
        let number = self.0.last.fetch_add(1, Relaxed);
        let began = Instant::now();
        let now = {
            let mut open = self.0.open.lock();
            open.insert(number, began);
            open.len() as u64
        };
        self.0.most.fetch_max(now, Relaxed);
        Asked { recorder: self.clone(), number, began, end: End::Failed }
    }

    /// How far it has come.
    pub fn level(&self, level: f64) {
        self.0.level.store(level.to_bits(), Relaxed);
    }

    pub fn figure(&self, name: &str, value: f64) {
        self.0.told.lock().figures.insert(name.to_owned(), value);
    }

    /// The stall was named; the first time counts.
    pub fn named(&self, named: Named) {
        self.0.told.lock().named.get_or_insert(named);
    }

    pub fn note(&self, note: impl Into<String>) {
        self.0.told.lock().notes.push(note.into());
    }

    /// From now on the memory of this process counts, not ours: the server's, beside which we only
    /// make load.
    pub fn watch(&self, process: u32) {
        self.0.watched.store(process, Relaxed);
    }

    pub fn failures(&self) -> u64 {
        self.0.failed.load(Relaxed)
    }

    fn sample(&self) -> Sample {
        let Inner { began, open, recent, .. } = &*self.0;
        let now = Instant::now();
        let began = began.get().copied().unwrap_or(now);
        let (in_flight, oldest) = {
            let open = open.lock();
            (open.len() as u64, open.values().next().copied())
        };
        let recent = recent.take();
        let memory = memory_of(self.0.watched.load(Relaxed));
        let mut told = self.0.told.lock();
        told.peak = told.peak.max(memory.peak);
        Sample {
            at_ms: u64::try_from(now.saturating_duration_since(began).as_millis())
                .unwrap_or(u64::MAX),
            in_flight,
            answered: self.0.answered.load(Relaxed),
            refused: self.0.refused.load(Relaxed),
            failed: self.0.failed.load(Relaxed),
            p50_ms: recent.ms(0.5),
            p99_ms: recent.ms(0.99),
            oldest_ms: oldest.map_or(0.0, |since| ms(now.saturating_duration_since(since))),
            memory_bytes: memory.now,
            level: f64::from_bits(self.0.level.load(Relaxed)),
        }
    }

    fn ended(&self, stopped: Option<String>) -> Ended {
        let last = self.sample();
        let all = self.0.all.counted();
        let told = self.0.told.lock();
        Ended {
            stopped,
            seconds: last.at_ms as f64 / 1000.0,
            answered: last.answered,
            refused: last.refused,
            failed: last.failed,
            in_flight: last.in_flight,
            most_in_flight: self.0.most.load(Relaxed),
            p50_ms: all.ms(0.5),
            p99_ms: all.ms(0.99),
            max_ms: all.ms(1.0),
            peak_memory_bytes: told.peak,
            figures: told.figures.clone(),
            named: told.named.clone(),
            notes: told.notes.clone(),
        }
    }

    /// Samples from now on, on a thread of its own, and ends the process at the limits, or when
    /// nobody listens any more.
    pub(crate) fn sampling(&self, limits: Limits) {
        let recorder = self.clone();
        std::thread::spawn(move || {
            loop {
                let sample = recorder.sample();
                let is_staged = recorder.0.began.get().is_some();
                let line = if is_staged { Line::Sample(sample) } else { Line::Staging };
                if line.say().is_err() {
                    std::process::exit(2);
                }
                if let Some(stopped) = limits.passed(&sample) {
                    recorder.end(Some(stopped));
                }
                std::thread::sleep(EVERY);
            }
        });
    }

    /// Says how it ended, and ends the process: what is stuck in it is not waited for.
    pub(crate) fn end(&self, stopped: Option<String>) -> ! {
        let said = Line::Ended(Box::new(self.ended(stopped))).say();
        std::process::exit(if said.is_ok() { 0 } else { 2 });
    }
}

impl Limits {
    fn passed(&self, sample: &Sample) -> Option<String> {
        if sample.memory_bytes > self.memory {
            return Some(format!("at its memory limit of {} MiB", self.memory >> 20));
        }
        let time = self.time.as_secs_f64();
        (sample.at_ms as f64 > time * 1000.0).then(|| format!("at its time limit of {time:.0} s"))
    }
}

impl Asked {
    pub fn answered(mut self) -> Duration {
        self.end = End::Answered;
        self.began.elapsed()
    }

    pub fn refused(mut self) {
        self.end = End::Refused;
    }

    pub fn failed(self) {}
}

impl Drop for Asked {
    fn drop(&mut self) {
        let inner = &*self.recorder.0;
        inner.open.lock().remove(&self.number);
        let (count, timed) = match self.end {
            End::Answered => (&inner.answered, true),
            End::Refused => (&inner.refused, false),
            // How long it took to fail is what its caller waited.
            End::Failed => (&inner.failed, true),
        };
        count.fetch_add(1, Relaxed);
        if timed {
            let took = self.began.elapsed();
            inner.recent.add(took);
            inner.all.add(took);
        }
    }
}

pub(crate) fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

pub(crate) struct Memory {
    pub(crate) now: u64,
    peak: u64,
}

/// Zero of a process that is gone.
pub(crate) fn memory_of(process: u32) -> Memory {
    let path = match process {
        0 => "/proc/self/status".to_owned(),
        process => format!("/proc/{process}/status"),
    };
    let status = std::fs::read_to_string(path).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    };
    Memory { now: field("VmRSS:"), peak: field("VmHWM:") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_in_flight_until_it_ends_and_counts_as_it_ended() {
        let recorder = Recorder::new();
        let (a, b, c, d) = (recorder.begin(), recorder.begin(), recorder.begin(), recorder.begin());
        assert_eq!(recorder.sample().in_flight, 4);
        a.answered();
        b.refused();
        c.failed();
        drop(d);
        let ended = recorder.ended(None);
        assert_eq!((ended.answered, ended.refused, ended.failed), (1, 1, 2));
        assert_eq!((ended.in_flight, ended.most_in_flight), (0, 4));
        assert!(ended.p99_ms.is_some() && ended.peak_memory_bytes > 0);
    }

    #[test]
    fn a_limit_is_named_when_it_is_passed() {
        let limits = Limits { time: Duration::from_secs(10), memory: 64 << 20 };
        let sample =
            |at_ms, mib: u64| Sample { at_ms, memory_bytes: mib << 20, ..Sample::default() };
        assert_eq!(limits.passed(&sample(10_000, 64)), None);
        assert_eq!(limits.passed(&sample(10_001, 1)).unwrap(), "at its time limit of 10 s");
        assert_eq!(limits.passed(&sample(1, 65)).unwrap(), "at its memory limit of 64 MiB");
    }
}
