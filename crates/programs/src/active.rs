//! `ActivePrograms`: where the programs are found while this replica leads.

use std::sync::Arc;

use objects::Objects;
use policy::spec::Settings;
use prometheus_client::registry::Registry;
use stallproof::{Snapshot, Tasks, Watchdog};
use tracing::warn;
use traffic::ingest::ActiveIngest;

use crate::Programs;
use crate::compiler::{self, Environment};
use crate::metrics::Metrics;
use crate::sources::Sources;

/// The programs of a process while it leads. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ActivePrograms(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Written at the beginning and the end of a term, read by agents' streams and the API.
    current: Snapshot<Option<Programs>>,
    metrics: Metrics,
}

impl ActivePrograms {
    pub fn register(&self, registry: &mut Registry) {
        self.0.metrics.register(registry);
    }

    /// None while another replica leads.
    pub fn programs(&self) -> Option<Programs> {
        self.0.current.read(Clone::clone)
    }

    /// The same, for who follows it.
    pub fn current(&self) -> &Snapshot<Option<Programs>> {
        &self.0.current
    }

    /// Compiles and hands out until `tasks` stop, or until the compiler's thread ends. `cluster` has the
    /// pods and their policies, `store` what users write for guard; `ingest` has what was learned.
    pub async fn hold(
        self,
        cluster: Objects,
        store: Objects,
        ingest: ActiveIngest,
        settings: Settings,
        watchdog: Arc<Watchdog>,
        tasks: Tasks,
    ) {
        let stop = tasks.stopping();
        let metrics = self.0.metrics.clone();
        let environment = Environment { ingest, watchdog, metrics };
        let sources = Sources::open(&cluster, &store, &tasks);
        let (programs, end) = match compiler::start(sources, settings, &environment, &tasks) {
            Ok(started) => started,
            Err(error) => {
                return warn!(%error, "the thread that compiles policies cannot be started");
            }
        };
        self.set(Some(programs));
        stop.bound(end).await;
        self.set(None);
    }

    fn set(&self, programs: Option<Programs>) {
        self.0.current.update(|current| {
            *current = programs;
            true
        });
    }
}
