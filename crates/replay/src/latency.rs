//! `Latencies`: how long things took, in buckets that any thread fills without waiting.
//!
//! Log-linear: 32 steps to a doubling, so that a percentile is at most 3 % off, from a microsecond to
//! longer than anybody waits.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const STEP_BITS: u32 = 5;
const STEPS: usize = 1 << STEP_BITS;
const BUCKETS: usize = (64 - STEP_BITS as usize + 1) * STEPS;

#[derive(Debug)]
pub(crate) struct Latencies(Box<[AtomicU64]>);

/// What was counted, to be asked for percentiles.
#[derive(Clone, Debug)]
pub(crate) struct Counted(Vec<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Latencies {
    pub(crate) fn add(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0[bucket(micros)].fetch_add(1, Relaxed);
    }

    pub(crate) fn counted(&self) -> Counted {
        Counted(self.0.iter().map(|count| count.load(Relaxed)).collect())
    }

    /// What was counted since the last time.
    pub(crate) fn take(&self) -> Counted {
        Counted(self.0.iter().map(|count| count.swap(0, Relaxed)).collect())
    }
}

impl Counted {
    /// In milliseconds; nothing of nothing.
    pub(crate) fn ms(&self, part: f64) -> Option<f64> {
        let all: u64 = self.0.iter().sum();
        if all == 0 {
            return None;
        }
        let rank = ((all as f64 * part).ceil() as u64).clamp(1, all);
        let mut seen = 0;
        let at = self.0.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(middle(at) / 1000.0)
    }
}

fn bucket(micros: u64) -> usize {
    let Some(exponent) = micros.checked_ilog2().filter(|exponent| *exponent >= STEP_BITS) else {
        return micros as usize;
    };
    let step = (micros >> (exponent - STEP_BITS)) as usize % STEPS;
    (exponent - STEP_BITS + 1) as usize * STEPS + step
}

/// The middle of a bucket, in microseconds.
fn middle(bucket: usize) -> f64 {
    if bucket < STEPS {
        return bucket as f64;
    }
    let exponent = (bucket / STEPS - 1) as i32;
    ((STEPS + bucket % STEPS) as f64 + 0.5) * 2f64.powi(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_what_was_put_in_to_within_three_percent() {
        for micros in [0, 1, 31, 32, 33, 1000, 12_345, 60_000_000, 3_600_000_000] {
            let latencies = Latencies::default();
            latencies.add(Duration::from_micros(micros));
            let ms = latencies.counted().ms(0.5).unwrap();
            let wanted = micros as f64 / 1000.0;
            assert!((ms - wanted).abs() <= wanted * 0.03 + 1e-9, "{ms} for {wanted}");
        }
    }

    #[test]
    fn percentiles_are_of_all_and_taking_them_begins_anew() {
        let latencies = Latencies::default();
        for ms in 1..=100 {
            latencies.add(Duration::from_millis(ms));
        }
        let counted = latencies.take();
        for (part, wanted) in [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let ms = counted.ms(part).unwrap();
            assert!((ms - wanted).abs() <= wanted * 0.03, "{ms} for {wanted}");
        }
        assert_eq!(latencies.take().ms(0.5), None);
    }

    #[test]
    fn the_longest_time_there_is_has_a_bucket() {
        assert!(bucket(u64::MAX) < BUCKETS);
    }
}
