//! `FleetContext`: what all clusters of a fleet share: timings, tasks, bounds and metrics.

use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use stallproof::{Deadline, Ledger, Snapshot, Tasks};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::config::Timing;
use crate::credentials::exec::Plugins;
use crate::dial::Resolver;
use crate::failure::Reason;
use crate::view::FleetView;

/// Concurrent attempts of clusters that answered last time or were never tried. An attempt costs a few
/// sockets and 50 KB, so that this is a bound of 50 MB and not a queue.
const ATTEMPTS: usize = 1024;
/// Concurrent attempts of clusters whose last attempt timed out. They wait for each other; a healthy
/// cluster never waits for them.
const SUSPECTS: usize = 128;

#[derive(Debug)]
pub(crate) struct FleetContext {
    pub(crate) timing: Timing,
    pub(crate) tasks: Tasks,
    pub(crate) ledger: Ledger,
    pub(crate) plugins: Plugins,
    pub(crate) resolver: Resolver,
    pub(crate) metrics: Metrics,
    attempts: Semaphore,
    suspects: Semaphore,
}

impl FleetContext {
    pub(crate) fn new(timing: Timing, ledger: Ledger, tasks: Tasks) -> Self {
        Self {
            timing,
            ledger,
            plugins: Plugins::new(timing.plugin),
            resolver: Resolver::new(&tasks),
            tasks,
            metrics: Metrics::default(),
            attempts: Semaphore::new(ATTEMPTS),
            suspects: Semaphore::new(SUSPECTS),
        }
    }

    /// The time for a plugin to run, and to wait for its turn among others of its kind.
    pub(crate) fn credentials_within(&self) -> Duration {
        self.timing.plugin * 4
    }

    /// The longest that connecting can take once the credentials are there.
    pub(crate) fn attempt_within(&self) -> Duration {
        let Timing { connect, tls, answer, .. } = self.timing;
        // A proxy needs the time for a connection once more.
        connect * 2 + tls * 2 + answer
    }

    /// Waits for a place among the concurrent attempts.
    pub(crate) async fn may_attempt(&self, is_suspect: bool) -> SemaphorePermit<'_> {
        let places = if is_suspect { &self.suspects } else { &self.attempts };
        // Every attempt ends by a deadline, so that there will be a place.
        places.acquire().await.expect("these are never closed")
    }

    pub(crate) fn credentials_deadline(&self) -> Deadline {
        Deadline::after(self.credentials_within())
    }
}

type ByReason = Family<[(&'static str, &'static str); 1], Counter>;

#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) connects: Counter,
    pub(crate) credentials: Gauge,
    pub(crate) refused_calls: Counter,
    failures_family: ByReason,
    failures: [Counter; Reason::ALL.len()],
}

impl Default for Metrics {
    fn default() -> Self {
        // Looked up once, because a family is a locked map.
        let failures_family = ByReason::default();
        let counter =
            |reason: Reason| failures_family.get_or_create(&[("reason", reason.label())]).clone();
        Self {
            connects: Counter::default(),
            credentials: Gauge::default(),
            refused_calls: Counter::default(),
            failures: Reason::ALL.map(counter),
            failures_family,
        }
    }
}

impl Metrics {
    pub(crate) fn failed(&self, reason: Reason) {
        self.failures[reason as usize].inc();
    }

    pub(crate) fn register(&self, published: &Snapshot<FleetView>, registry: &mut Registry) {
        registry.register("fleet_connects", "Connections made", self.connects.clone());
        registry.register(
            "fleet_failures",
            "Attempts and probes that failed, by reason",
            self.failures_family.clone(),
        );
        registry.register(
            "fleet_credentials",
            "Sets of credentials in use, those on their way out included",
            self.credentials.clone(),
        );
        registry.register(
            "fleet_refused_calls",
            "Calls not made: the cluster's share was used up, or its breaker was open",
            self.refused_calls.clone(),
        );
        registry.register_collector(Box::new(ByState(published.clone())));
    }
}

/// Counts clusters when metrics are read, so that a change of state costs nothing.
#[derive(Debug)]
struct ByState(Snapshot<FleetView>);

impl prometheus_client::collector::Collector for ByState {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.0.load().counts();
        let gauge = ConstGauge::new(0_i64);
        let mut family = encoder.encode_descriptor(
            "fleet_clusters",
            "Clusters, by state",
            None,
            gauge.metric_type(),
        )?;
        for (state, count) in counts {
            let labels = [("state", state.name())];
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
