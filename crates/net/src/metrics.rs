//! The metrics of a runtime's requests.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stallproof::metrics::Histogram;

use crate::service::steps::ByStep;

type Command = [(&'static str, &'static str); 1];
type Result = [(&'static str, String); 2];

#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    in_flight: Family<Command, Gauge>,
    pub(crate) wait: Histogram,
    pub(crate) steps: ByStep,
    total: Family<Command, Histogram>,
    results: Family<Result, Counter>,
    /// Kernel work that nobody waits for any more, and that has not come back.
    pub(crate) hanging: Gauge,
}

/// Counts a request as in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Gauge);

impl Metrics {
    pub(crate) fn began(&self, command: &'static str) -> InFlight {
        let gauge = self.in_flight.get_or_create(&[("command", command)]).clone();
        gauge.inc();
        InFlight(gauge)
    }

    pub(crate) fn ended(&self, command: &'static str, code: u32, took: Duration) {
        let total = self.total.get_or_create(&[("command", command)]).clone();
        total.observe(took);
        let labels = [("command", command.to_owned()), ("code", code.to_string())];
        self.results.get_or_create(&labels).inc();
    }

    pub(crate) fn step(&self, step: &'static str, took: Duration) {
        let histogram = self.steps.get_or_create(&[("step", step)]).clone();
        histogram.observe(took);
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let Self { in_flight, wait, steps, total, results, hanging } = self;
        registry.register("cni_in_flight", "Requests being served", in_flight.clone());
        registry.register("cni_wait_seconds", "From a request to its turn", wait.clone());
        registry.register("cni_step_seconds", "Steps of work in the kernel", steps.clone());
        registry.register("cni_request_seconds", "From a request to its answer", total.clone());
        registry.register("cni_results", "Answers by code; 0 is a success", results.clone());
        let help = "Work in the kernel that was given up on and has not come back";
        registry.register("cni_hanging", help, hanging.clone());
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
