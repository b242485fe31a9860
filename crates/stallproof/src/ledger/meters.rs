//! The ledger's metrics, read off the shelves when they are asked for.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::{Kind, Ledger, Outcome};

struct Reading {
    kind: &'static str,
    in_flight: usize,
    oldest_seconds: f64,
    finished: [u64; Outcome::ALL.len()],
    late: u64,
}

impl Ledger {
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }
}

impl Kind {
    fn read(&self, now: Instant) -> Reading {
        let mut reading = Reading {
            kind: self.meters.kind,
            in_flight: 0,
            oldest_seconds: 0.0,
            finished: [0; Outcome::ALL.len()],
            late: 0,
        };
        for shelf in &self.shelves {
            let open = shelf.open.lock();
            reading.in_flight += open.entries.len();
            reading.late += open.late;
            for (sum, count) in reading.finished.iter_mut().zip(open.finished) {
                *sum += count;
            }
            if let Some((_, oldest)) = open.entries.first_key_value() {
                let age = now.saturating_duration_since(oldest.began).as_secs_f64();
                reading.oldest_seconds = reading.oldest_seconds.max(age);
            }
        }
        reading
    }
}

impl Collector for Ledger {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let now = Instant::now();
        let readings: Vec<Reading> = self.0.kinds.iter().map(|kind| kind.read(now)).collect();

        let help = "Operations in flight";
        let mut family =
            encoder.encode_descriptor("operations_in_flight", help, None, MetricType::Gauge)?;
        for reading in &readings {
            family.encode_family(&[("kind", reading.kind)])?.encode_gauge(&reading.in_flight)?;
        }

        let (name, help) = ("operations_oldest_seconds", "Age of the oldest operation in flight");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for reading in &readings {
            let labels = [("kind", reading.kind)];
            let mut age = family.encode_family(&labels)?;
            age.encode_gauge(&reading.oldest_seconds)?;
        }

        let help = "Operations that have ended, by outcome";
        let mut family =
            encoder.encode_descriptor("operations_finished", help, None, MetricType::Counter)?;
        for reading in &readings {
            for (outcome, count) in Outcome::ALL.into_iter().zip(reading.finished) {
                let labels = [("kind", reading.kind), ("outcome", outcome.name())];
                let mut finished = family.encode_family(&labels)?;
                finished.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }

        let help = "Operations that took longer than expected of their kind, or are taking longer";
        let mut family =
            encoder.encode_descriptor("operations_late", help, None, MetricType::Counter)?;
        for reading in &readings {
            let labels = [("kind", reading.kind)];
            let mut late = family.encode_family(&labels)?;
            late.encode_counter::<NoLabelSet, _, u64>(&reading.late, None)?;
        }

        let (name, help) = ("operation_duration_seconds", "How long operations took");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for kind in self.0.kinds.iter() {
            kind.meters.whole.encode(family.encode_family(&[("kind", kind.meters.kind)])?)?;
        }

        let (name, help) = ("operation_step_duration_seconds", "How long their steps took");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for kind in self.0.kinds.iter() {
            for (step, took) in kind.meters.steps.named() {
                let labels = [("kind", kind.meters.kind), ("step", step)];
                took.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
