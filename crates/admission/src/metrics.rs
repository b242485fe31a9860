//! What is counted of reviews, rules and the audit.

use std::sync::Arc;

use objects::kinds::admission_rule::RuleState;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stallproof::metrics::Histogram;

use super::audit::Outcome;
use super::rules::Rules;

type Counters = Family<[(&'static str, &'static str); 1], Counter>;
type Gauges = Family<[(&'static str, &'static str); 1], Gauge>;

#[derive(Clone, Debug)]
pub(super) struct Metrics(Arc<Meters>);

#[derive(Debug)]
struct Meters {
    reviews: Counters,
    // Looked up once: a family is a locked map.
    allowed: Counter,
    denied: Counter,
    malformed: Counter,
    monitored: Counter,
    took: Histogram,
    rules: Gauges,
    dropped: Counter,
    forgotten: Counter,
    not_kept: Counter,
    expires: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let reviews = Counters::default();
        let of = |verdict| reviews.get_or_create(&[("verdict", verdict)]).clone();
        let (allowed, denied, malformed) = (of("allowed"), of("denied"), of("malformed"));
        Self(Arc::new(Meters {
            allowed,
            denied,
            malformed,
            reviews,
            monitored: Counter::default(),
            took: Histogram::default(),
            rules: Gauges::default(),
            dropped: Counter::default(),
            forgotten: Counter::default(),
            not_kept: Counter::default(),
            expires: Gauge::default(),
        }))
    }
}

impl Metrics {
    pub(super) fn decided(&self, outcome: Outcome, took: std::time::Duration) {
        match outcome {
            Outcome::Denied => self.0.denied.inc(),
            Outcome::Monitored => {
                self.0.monitored.inc();
                self.0.allowed.inc()
            }
            Outcome::Allowed => self.0.allowed.inc(),
        };
        self.0.took.observe(took);
    }

    pub(super) fn malformed(&self) {
        self.0.malformed.inc();
    }

    pub(super) fn dropped(&self) {
        self.0.dropped.inc();
    }

    pub(super) fn drops(&self) -> u64 {
        self.0.dropped.get()
    }

    pub(super) fn forgotten(&self, all: u64) {
        self.0.forgotten.inc_by(all.saturating_sub(self.0.forgotten.get()));
    }

    /// Lines that were lost to the files, all in all.
    pub(super) fn not_kept(&self, all: u64) {
        self.0.not_kept.inc_by(all.saturating_sub(self.0.not_kept.get()));
    }

    pub(super) fn all_not_kept(&self) -> u64 {
        self.0.not_kept.get()
    }

    pub(super) fn rules(&self, rules: &Rules) {
        for (state, name) in [
            (RuleState::Active, "active"),
            (RuleState::Disabled, "disabled"),
            (RuleState::Invalid, "invalid"),
        ] {
            let count = i64::try_from(rules.count(state)).unwrap_or(i64::MAX);
            self.0.rules.get_or_create(&[("state", name)]).set(count);
        }
    }

    pub(super) fn expires(&self, at: jiff::Timestamp) {
        self.0.expires.set(at.as_second());
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let meters = &self.0;
        registry.register("admission_reviews", "Reviews decided", meters.reviews.clone());
        registry.register(
            "admission_monitored",
            "Reviews admitted although a rule in monitor mode matched",
            meters.monitored.clone(),
        );
        registry.register(
            "admission_decision_seconds",
            "From a review's bytes to its answer",
            meters.took.clone(),
        );
        registry.register("admission_rules", "Rules of the store", meters.rules.clone());
        registry.register(
            "admission_audit_dropped",
            "Decisions that the audit was too slow to take",
            meters.dropped.clone(),
        );
        registry.register(
            "admission_audit_forgotten",
            "Lines of the audit that made room for others",
            meters.forgotten.clone(),
        );
        registry.register(
            "admission_audit_not_kept",
            "Lines of the audit that made room for others before they were on disk",
            meters.not_kept.clone(),
        );
        registry.register(
            "admission_certificate_expires_timestamp_seconds",
            "When the webhook's certificate ends; 0 while there is none",
            meters.expires.clone(),
        );
    }
}
