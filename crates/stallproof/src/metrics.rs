//! `Histogram`: durations counted in atomics, so that observing never waits.
//!
//! prometheus-client's own histogram is behind a mutex; this one is an array of atomics with fixed
//! bounds, 50 µs to 120 s, wide enough for a lock and for a CNI deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Upper bounds in seconds; the last, infinite one is implied.
pub const BOUNDS: [f64; 16] = [
    0.000_05, 0.000_25, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 120.0,
];

#[derive(Clone, Debug, Default)]
pub struct Histogram(Arc<Cells>);

#[derive(Debug, Default)]
struct Cells {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl Histogram {
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.partition_point(|bound| *bound < seconds);
        self.0.buckets[bucket].fetch_add(1, Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.nanos.fetch_add(nanos, Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.0.buckets.iter().map(|b| b.load(Relaxed)).sum()
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts: Vec<u64> = self.0.buckets.iter().map(|b| b.load(Relaxed)).collect();
        let buckets: Vec<(f64, u64)> =
            BOUNDS.iter().copied().chain([f64::INFINITY]).zip(counts.iter().copied()).collect();
        let sum = self.0.nanos.load(Relaxed) as f64 / 1e9;
        encoder.encode_histogram::<prometheus_client::encoding::NoLabelSet>(
            sum,
            counts.iter().sum(),
            &buckets,
            None,
        )
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
