//! Compiles policies in this process for as long as it leads, and hands nodes their programs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use objects::{Leader, Objects};
use policy::spec::Settings;
use programs::ActivePrograms;
use stallproof::backoff::Curve;
use stallproof::{Backoff, Tasks, Watchdog};
use traffic::ingest::ActiveIngest;

use crate::daemon::traffic::FactsSource;

/// How soon compiling begins again after its thread ended.
const AGAIN: Curve = Curve { first: Duration::from_secs(1), most: Duration::from_secs(60) };
/// For the tasks of a term that has ended.
const GRACE: Duration = Duration::from_secs(2);

/// Compiling, which the leader does.
#[derive(Clone, Debug)]
pub(crate) struct LeaderWork {
    pub(crate) active: ActivePrograms,
    pub(crate) facts: FactsSource,
    pub(crate) ingest: ActiveIngest,
    pub(crate) settings: Settings,
    pub(crate) watchdog: Arc<Watchdog>,
}

impl LeaderWork {
    /// Whether a leader compiles anything: agents tell of pods by name and address, and policies select by
    /// what only Kubernetes knows.
    pub(crate) fn compiles(&self) -> bool {
        !matches!(self.facts, FactsSource::Agents)
    }

    /// Begins a term.
    pub(crate) fn lead(&self, leader: &Leader) {
        let store = leader.objects.clone();
        match self.facts.clone() {
            FactsSource::Agents => {}
            FactsSource::Here => {
                let work = self.clone().compile(store.clone(), store, leader.tasks.clone());
                leader.tasks.spawn("policies", work);
            }
            FactsSource::Cluster(cluster, fleet) => {
                let work = self.clone();
                fleet.follow([cluster], &leader.tasks, move |_, objects, tasks| {
                    let (cluster, store) = (objects.clone(), store.clone());
                    tasks.spawn("policies", work.clone().compile(cluster, store, tasks.clone()));
                });
            }
        }
    }

    /// Compiles until the tasks stop, and begins again when the thread of it panicked.
    async fn compile(self, cluster: Objects, store: Objects, tasks: Tasks) {
        let stop = tasks.stopping();
        let mut backoff = Backoff::new(AGAIN);
        while !stop.is_stopped() {
            let below = tasks.child("policies");
            let Self { active, ingest, settings, watchdog, .. } = self.clone();
            let began = Instant::now();
            let (cluster, store) = (cluster.clone(), store.clone());
            active.hold(cluster, store, ingest, settings, watchdog, below.clone()).await;
            below.shutdown(GRACE).await;
            if began.elapsed() > AGAIN.most {
                backoff.succeeded();
            }
            stop.bound(tokio::time::sleep(backoff.failed().wait)).await;
        }
    }
}
