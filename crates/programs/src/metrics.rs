//! Metrics of compiling and handing out programs.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stallproof::metrics::Histogram;

#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) generation: Gauge,
    pub(crate) followed: Gauge,
    pub(crate) problems: Gauge,
    pub(crate) published: Counter,
    pub(crate) took: Histogram,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let Self { generation, followed, problems, published, took } = self;
        for (name, help, gauge) in [
            ("policy_generation", "The generation of policies that was published last", generation),
            ("policy_nodes_followed", "Nodes whose agents are sent their programs", followed),
            ("policy_problems", "Policies that cannot be followed as they are written", problems),
        ] {
            registry.register(name, help, gauge.clone());
        }
        registry.register(
            "policy_programs_published",
            "Times that a node's program became another",
            published.clone(),
        );
        registry.register(
            "policy_compile_seconds",
            "How long a batch of changes takes until programs are published",
            took.clone(),
        );
    }

    /// The figures of a term end with it.
    pub(crate) fn term_ended(&self) {
        self.generation.set(0);
        self.followed.set(0);
        self.problems.set(0);
    }
}
