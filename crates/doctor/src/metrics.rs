//! Metrics in, figures out: Prometheus text in one scrape or many, tables of latencies as people
//! paste them, and what they prove: started against handled, growth in flight, goroutines, memory
//! against its limit, latency pinned at a client's deadline.

mod calls;
mod findings;
mod latency;
mod memory;
mod prometheus;
mod rising;

use std::collections::BTreeMap;

pub(crate) use self::findings::slug;
pub(crate) use self::latency::{Latency, LatencyRow, Table, duration_ms};
pub(crate) use self::memory::{MemoryFact, memory_events, over_limit};
use self::prometheus::Sample;
pub(crate) use self::rising::{Rising, weigh};
use crate::log::At;
use crate::log::stamp::Millis;
use crate::report::Evidence;

const MOST_SERIES: usize = 100_000;
const MOST_POINTS: usize = 512;

/// One series over the scrapes, oldest first.
#[derive(Debug)]
struct Series {
    name: String,
    labels: Vec<(String, String)>,
    points: Vec<(Option<Millis>, f64)>,
    evidence: Evidence,
}

impl Series {
    fn last(&self) -> f64 {
        self.points.last().map_or(0.0, |(_, value)| *value)
    }

    /// The points that are amounts: a series may have anything that its format can say, infinity too.
    fn finite(&self) -> impl Iterator<Item = &(Option<Millis>, f64)> {
        self.points.iter().filter(|(_, value)| value.is_finite())
    }

    fn label(&self, names: &[&str]) -> Option<&str> {
        let mut labels = self.labels.iter();
        labels.find(|(name, _)| names.contains(&name.as_str())).map(|(_, value)| value.as_str())
    }

    /// Whether all of these labels are among its own.
    fn covers(&self, labels: &[(String, String)]) -> bool {
        labels.iter().all(|label| self.labels.contains(label))
    }
}

/// Collects samples and tables.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    series: BTreeMap<String, Series>,
    rows: Vec<LatencyRow>,
    samples: u64,
}

impl Metrics {
    /// Takes one line where it is a sample.
    pub(crate) fn line(&mut self, at: At<'_>) -> bool {
        let Some(sample) = Sample::parse(at.bytes) else {
            return false;
        };
        self.samples += 1;
        let known = self.series.contains_key(sample.key.as_str());
        if !known && self.series.len() >= MOST_SERIES {
            return true;
        }
        let series = self.series.entry(sample.key).or_insert_with(|| Series {
            name: sample.name,
            labels: sample.labels,
            points: Vec::new(),
            evidence: at.evidence(),
        });
        if series.points.len() >= MOST_POINTS {
            let mut odd = false;
            series.points.retain(|_| {
                odd = !odd;
                odd
            });
        }
        series.points.push((sample.at, sample.value));
        series.evidence = at.evidence();
        true
    }

    /// Takes a row of a table of latencies.
    pub(crate) fn row(&mut self, row: LatencyRow) {
        const MOST: usize = 4096;
        if self.rows.len() < MOST {
            self.rows.push(row);
        }
    }

    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }
}
