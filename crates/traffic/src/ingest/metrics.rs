//! What is counted of ingesting. It outlives a term: a replica that leads again goes on counting.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stallproof::metrics::Histogram;

use crate::conversations::{Counters, Shard};

type Counts = Family<[(&'static str, &'static str); 1], Counter>;

#[derive(Clone, Debug, Default)]
pub(super) struct Metrics(Arc<Meters>);

#[derive(Debug, Default)]
struct Meters {
    reports: Counts,
    records: Counts,
    took: Histogram,
    waiting: Gauge,
    rows: Gauge,
    totals: Gauge,
    footprint: Gauge,
    folded: Counter,
    violations_missed: Counter,
    checkpoints: Counts,
    checkpoint_bytes: Gauge,
    checkpoint_took: Histogram,
    /// By shard, what was last added of it. Each is written by its own shard, a tick at a time.
    shards: Mutex<Vec<Last>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Last {
    counters: Counters,
    rows: i64,
    totals: i64,
    footprint: i64,
}

impl Metrics {
    pub(super) fn report(&self, outcome: &'static str, took: std::time::Duration) {
        self.0.reports.get_or_create(&[("outcome", outcome)]).inc();
        self.0.took.observe(took);
    }

    pub(super) fn left_out(&self, records: usize) {
        if records > 0 {
            self.0.records.get_or_create(&[("outcome", "left_out")]).inc_by(records as u64);
        }
    }

    pub(super) fn shard(&self, number: usize, shard: &Shard) {
        let small = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let now = Last {
            counters: shard.counters(),
            rows: small(shard.rows()),
            totals: small(shard.totals()),
            footprint: small(shard.footprint()),
        };
        let mut shards = self.0.shards.lock();
        if shards.len() <= number {
            shards.resize(number + 1, Last::default());
        }
        let before = std::mem::replace(&mut shards[number], now);
        drop(shards);
        let meters = &*self.0;
        meters.rows.inc_by(now.rows - before.rows);
        meters.totals.inc_by(now.totals - before.totals);
        meters.footprint.inc_by(now.footprint - before.footprint);
        let Counters { counted, repeated, refused, folded_rows, folded_pairs, .. } =
            before.counters;
        for (outcome, now, before) in [
            ("counted", now.counters.counted, counted),
            ("repeated", now.counters.repeated, repeated),
            ("refused", now.counters.refused, refused),
        ] {
            if now > before {
                meters.records.get_or_create(&[("outcome", outcome)]).inc_by(now - before);
            }
        }
        let folded = now.counters.folded_rows + now.counters.folded_pairs;
        meters.folded.inc_by(folded.saturating_sub(folded_rows + folded_pairs));
    }

    /// The shards of a term are gone, and what they held with them.
    pub(super) fn term_ended(&self) {
        for last in std::mem::take(&mut *self.0.shards.lock()) {
            self.0.rows.dec_by(last.rows);
            self.0.totals.dec_by(last.totals);
            self.0.footprint.dec_by(last.footprint);
        }
    }

    /// Bytes before the shards.
    pub(super) fn waiting(&self, bytes: usize) {
        self.0.waiting.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(super) fn violations_missed(&self, count: u64) {
        self.0.violations_missed.inc_by(count);
    }

    pub(super) fn checkpoint(
        &self,
        outcome: &'static str,
        bytes: usize,
        took: std::time::Duration,
    ) {
        self.0.checkpoints.get_or_create(&[("outcome", outcome)]).inc();
        self.0.checkpoint_took.observe(took);
        if bytes > 0 {
            self.0.checkpoint_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let Meters {
            reports,
            records,
            took,
            waiting,
            rows,
            totals,
            footprint,
            folded,
            violations_missed,
            checkpoints,
            checkpoint_bytes,
            checkpoint_took,
            shards: _,
        } = &*self.0;
        let mut counted = |name: &str, help: &str, counter: &Counter| {
            registry.register(name, help, counter.clone());
        };
        counted("conversations_folded", "Conversations and pairs that were folded", folded);
        counted(
            "violations_missed",
            "Violations that came faster than they were written down",
            violations_missed,
        );
        for (name, help, counts) in [
            (
                "conversations_reports",
                "Reports that agents offered, by what became of them",
                reports,
            ),
            ("conversations_records", "Records of reports, by what became of them", records),
            ("conversations_checkpoints", "Checkpoints, by what became of them", checkpoints),
        ] {
            registry.register(name, help, counts.clone());
        }
        for (name, help, gauge) in [
            ("conversations_waiting_bytes", "Reports that wait to be counted", waiting),
            ("conversations", "Conversations that are kept by themselves", rows),
            ("conversations_totals", "Running totals of agents that are remembered", totals),
            ("conversations_bytes", "Memory of conversations and totals, but for names", footprint),
            ("conversations_checkpoint_bytes", "Size of the last checkpoint", checkpoint_bytes),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, histogram) in [
            ("conversations_report_seconds", "How long it took to count a report", took),
            ("conversations_checkpoint_seconds", "How long checkpoints took", checkpoint_took),
        ] {
            registry.register(name, help, histogram.clone());
        }
    }
}
