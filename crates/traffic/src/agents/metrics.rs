//! Metrics of agents and their reports.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Counters = Family<[(&'static str, &'static str); 1], Counter>;

/// The outcome of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    Counted,
    /// Its agent sends too often.
    TooFast,
    /// No room for it now.
    Busy,
    /// It is nonsense.
    Malformed,
    /// Its agent has begun again since.
    Outdated,
}

impl ReportOutcome {
    const ALL: [Self; 5] =
        [Self::Counted, Self::TooFast, Self::Busy, Self::Malformed, Self::Outdated];

    fn name(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::TooFast => "too_fast",
            Self::Busy => "busy",
            Self::Malformed => "malformed",
            Self::Outdated => "outdated",
        }
    }
}

#[derive(Debug)]
pub(super) struct Metrics {
    known: Gauge,
    alive: Gauge,
    connected: Gauge,
    interval: Gauge<f64, AtomicU64>,
    joins: Counter,
    joins_refused: Counter,
    batches_family: Counters,
    // Looked up once: a family is a locked map.
    batches: [Counter; ReportOutcome::ALL.len()],
    records: Counter,
    /// Batches refused for want of room since the last tick.
    refused: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        let batches_family = Counters::default();
        let batches = ReportOutcome::ALL
            .map(|outcome| batches_family.get_or_create(&[("outcome", outcome.name())]).clone());
        Self {
            known: Gauge::default(),
            alive: Gauge::default(),
            connected: Gauge::default(),
            interval: Gauge::default(),
            joins: Counter::default(),
            joins_refused: Counter::default(),
            batches_family,
            batches,
            records: Counter::default(),
            refused: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    pub(super) fn joined(&self, known: usize) {
        self.joins.inc();
        self.known.set(i64::try_from(known).unwrap_or(i64::MAX));
    }

    pub(super) fn join_refused(&self) {
        self.joins_refused.inc();
    }

    pub(super) fn connected(&self, by: i64) {
        self.connected.inc_by(by);
    }

    pub(super) fn reported(&self, outcome: ReportOutcome, records: usize) {
        self.batches[outcome as usize].inc();
        self.records.inc_by(records as u64);
        if outcome == ReportOutcome::Busy {
            self.refused.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn take_refused(&self) -> u64 {
        self.refused.swap(0, Relaxed)
    }

    pub(super) fn tick(&self, alive: usize, interval: Duration) {
        self.alive.set(i64::try_from(alive).unwrap_or(i64::MAX));
        self.interval.set(interval.as_secs_f64());
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("agents_known", "Agents that joined", self.known.clone());
        registry.register("agents_alive", "Agents heard of late", self.alive.clone());
        registry.register(
            "agents_connected",
            "Streams of reports that are open",
            self.connected.clone(),
        );
        registry.register(
            "agents_interval_seconds",
            "How often agents are asked to report",
            self.interval.clone(),
        );
        registry.register("agents_joins", "Agents taken in, again or not", self.joins.clone());
        registry.register(
            "agents_joins_refused",
            "Joins of what has begun again since, or that were too many",
            self.joins_refused.clone(),
        );
        registry.register("agents_batches", "Batches, by outcome", self.batches_family.clone());
        registry.register("agents_records", "Records of counted batches", self.records.clone());
    }
}
