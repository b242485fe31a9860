//! Counts conversations in this process for as long as it leads.

use std::time::{Duration, Instant};

use edge::api;
use fleet::Fleet;
use objects::{Leader, Objects};
use prometheus_client::registry::Registry;
use stallproof::backoff::Curve;
use stallproof::{Backoff, Ledger, Tasks};
use traffic::history::HistoryFiles;
use traffic::ingest::{ActiveIngest, Ingest, PolicyStore, Settings};

use crate::config::{Config, Store};

/// How soon counting begins again after one of its threads ended.
const AGAIN: Curve = Curve { first: Duration::from_secs(1), most: Duration::from_secs(60) };
/// For the tasks of a term that has ended.
const GRACE: Duration = Duration::from_secs(2);

/// Counting, which the leader does.
#[derive(Clone, Debug)]
pub(crate) struct LeaderWork {
    active: ActiveIngest,
    settings: Settings,
    facts: FactsSource,
    ledger: Ledger,
}

impl LeaderWork {
    /// Where pods, services, nodes and their policies are known from.
    pub(crate) fn facts(&self) -> &FactsSource {
        &self.facts
    }
}

/// Where pods, services and nodes are known from.
#[derive(Clone, Debug)]
pub(crate) enum FactsSource {
    /// From the cluster that the store is in.
    Here,
    /// From a cluster of the fleet.
    Cluster(String, Fleet),
    /// From agents, which tell of their own nodes.
    Agents,
}

pub(crate) fn begin(
    config: &Config,
    objects: &Objects,
    fleet: &Fleet,
    ledger: &Ledger,
    registry: &mut Registry,
) -> (api::Traffic, LeaderWork) {
    let active = ActiveIngest::default();
    active.register(registry);
    let facts = match (&config.guard.cluster, config.store) {
        (Some(cluster), _) => FactsSource::Cluster(cluster.clone(), fleet.clone()),
        (None, Store::Kubernetes) => FactsSource::Here,
        (None, Store::Embedded) => FactsSource::Agents,
    };
    let observed = match &facts {
        FactsSource::Here => api::ObservedCluster::Own,
        FactsSource::Cluster(cluster, _) => api::ObservedCluster::Named(cluster.clone()),
        FactsSource::Agents => api::ObservedCluster::Unknown,
    };
    let mut settings =
        Settings { mode: config.guard.mode, ..Settings::new(config.data.join("guard")) };
    settings.history.age = config.guard.history;
    settings.history.bytes = config.guard.history_size;
    let history = HistoryFiles::new(settings.history.clone());
    let policy_store = PolicyStore::new(objects.clone());
    let work = LeaderWork { active: active.clone(), settings, facts, ledger: ledger.clone() };
    (api::Traffic { active, policy_store, observed, history }, work)
}

impl LeaderWork {
    /// Begins a term.
    pub(crate) fn lead(&self, leader: &Leader) {
        leader.tasks.spawn("guard", self.clone().count(leader.clone()));
    }

    /// Counts until the term ends, and begins again when a thread of it panicked. It runs beside the rest
    /// of the term's work.
    async fn count(self, leader: Leader) {
        let stop = leader.tasks.stopping();
        let mut backoff = Backoff::new(AGAIN);
        while !stop.is_stopped() {
            let tasks = leader.tasks.child("guard");
            let Self { active, settings, facts, ledger } = self.clone();
            let (objects, below) = (leader.objects.clone(), tasks.clone());
            let begin = move |ingest: &Ingest| {
                ingest.follow_store(&objects, &below);
                ingest.keep_statuses(&objects, &below);
                facts.follow(ingest, &objects, &below);
            };
            let began = Instant::now();
            active.hold(settings, ledger, tasks.clone(), begin).await;
            tasks.shutdown(GRACE).await;
            if began.elapsed() > AGAIN.most {
                backoff.succeeded();
            }
            stop.bound(tokio::time::sleep(backoff.failed().wait)).await;
        }
    }
}

impl FactsSource {
    fn follow(self, ingest: &Ingest, objects: &Objects, tasks: &Tasks) {
        match self {
            Self::Agents => {}
            Self::Here => ingest.follow_cluster(objects, tasks),
            Self::Cluster(cluster, fleet) => {
                let ingest = ingest.clone();
                fleet.follow([cluster], tasks, move |_, objects, tasks| {
                    ingest.follow_cluster(objects, tasks);
                });
            }
        }
    }
}
