//! Metrics of observing.

use std::sync::atomic::AtomicU64;

use crate::sensor::Counters;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stallproof::metrics::Histogram;

#[derive(Clone, Debug, Default)]
pub(super) struct Metrics {
    flows: Gauge,
    totals: Gauge,
    dropped: Gauge,
    unfollowed: Gauge,
    named: Gauge,
    unnamed: Gauge,
    pub(super) connected: Gauge,
    pub(super) counted: Counter<u64, AtomicU64>,
    pub(super) refused: Counter<u64, AtomicU64>,
    pub(super) overruns: Counter<u64, AtomicU64>,
    pub(super) applications_named: Counter<u64, AtomicU64>,
    pub(super) applications_unknown: Counter<u64, AtomicU64>,
    pub(super) applications_dropped: Counter<u64, AtomicU64>,
    pub(super) application_overruns: Counter<u64, AtomicU64>,
    pub(super) listing: Histogram,
}

impl Metrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let Self { flows, totals, dropped, unfollowed, named, unnamed, connected, .. } = self;
        for (name, help, gauge) in [
            ("sense_connections", "Connections that are followed", flows),
            ("sense_totals", "Running totals that are kept for controllers", totals),
            ("sense_dropped", "Times that something was seen that will never be told", dropped),
            (
                "sense_unfollowed",
                "Times that a connection found no room to be followed; it is counted at its end",
                unfollowed,
            ),
            ("sense_applications", "Conversations whose application is known by bytes", named),
            (
                "sense_applications_forgotten",
                "Conversations whose application made room for that of others",
                unnamed,
            ),
            ("sense_connected", "Whether a controller has taken this agent in", connected),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            ("sense_reports_counted", "Reports that a controller has counted", &self.counted),
            ("sense_reports_refused", "Reports that were told to come back", &self.refused),
            (
                "sense_overruns",
                "Times that the kernel told of more ends than were read",
                &self.overruns,
            ),
            (
                "sense_first_bytes_named",
                "Times that first bytes told an application",
                &self.applications_named,
            ),
            (
                "sense_first_bytes_unknown",
                "Times that nobody knew first bytes",
                &self.applications_unknown,
            ),
            (
                "sense_first_bytes_dropped",
                "Times that what first bytes told found no room to wait",
                &self.applications_dropped,
            ),
            (
                "sense_first_bytes_overruns",
                "Times that the kernel told of more first bytes than were read",
                &self.application_overruns,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
        registry.register(
            "sense_listing_seconds",
            "How long the kernel takes to list its connections",
            self.listing.clone(),
        );
    }

    pub(super) fn show(&self, counters: &Counters) {
        let set = |gauge: &Gauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        set(&self.flows, counters.flows as u64);
        set(&self.totals, counters.totals as u64);
        set(&self.dropped, counters.dropped.totals);
        set(&self.unfollowed, counters.unfollowed);
        set(&self.named, counters.named as u64);
        set(&self.unnamed, counters.unnamed);
    }
}
