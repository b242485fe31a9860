//! `ActiveIngest`: where the one who ingests is found, and a term of it from beginning to end.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use stallproof::snapshot::Changes;
use stallproof::{Deadline, Ledger, Snapshot, Tasks};
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::checkpoints::Checkpoints;
use super::metrics::Metrics;
use super::{Ingest, ReportSink, Settings};
use crate::history::{self, HistoryFiles};

/// For the last checkpoint of a term. Whatever is not in it is sent again.
const LAST: Duration = Duration::from_secs(5);

/// The ingest of a process while it leads. Clones share it.
#[derive(Clone, Debug)]
pub struct ActiveIngest {
    current: Snapshot<Option<Ingest>>,
    metrics: Metrics,
    /// Whoever writes a checkpoint has it; a disk may hang for longer than a term.
    writing: Arc<Semaphore>,
}

impl Default for ActiveIngest {
    fn default() -> Self {
        let (current, metrics) = (Snapshot::default(), Metrics::default());
        Self { current, metrics, writing: Arc::new(Semaphore::new(1)) }
    }
}

impl ActiveIngest {
    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// None while another replica leads, and before the checkpoint was read and the cluster listed.
    pub fn ingest(&self) -> Option<Ingest> {
        self.current.read(Clone::clone)
    }

    /// The same, for who follows it.
    pub fn current(&self) -> &Snapshot<Option<Ingest>> {
        &self.current
    }

    pub fn changes(&self) -> Changes<Option<Ingest>> {
        self.current.subscribe()
    }

    /// A term: opens, calls `begin` once that is done, waits until what `begin` follows was listed, and
    /// keeps checkpoints until `tasks` stops.
    pub async fn hold(
        self,
        settings: Settings,
        ledger: Ledger,
        tasks: Tasks,
        begin: impl FnOnce(&Ingest) + Send,
    ) {
        let stop = tasks.stopping();
        let checkpoints = Checkpoints::new(&settings.dir, Arc::clone(&self.writing));
        let opening = Ingest::open(&settings, &ledger, &self.metrics, checkpoints, &tasks);
        let ingest = match stop.bound(opening).await {
            Some(Ok(ingest)) => ingest,
            Some(Err(error)) => return warn!(%error, "conversations cannot be counted"),
            None => return,
        };
        begin(&ingest);
        let files = HistoryFiles::new(settings.history.clone());
        let recording = history::record(files, ingest.readers(), ledger.clone(), tasks.clone());
        tasks.spawn("guard-history", recording);
        if stop.bound(ingest.listed()).await.is_some() {
            self.set(Some(ingest.clone()));
            info!(epoch = ingest.epoch(), "conversations are counted here");
            ingest.keep_checkpoints(&tasks).await;
            self.set(None);
        }
        ingest.save(Deadline::after(LAST), &tasks).await;
        ingest.close();
        self.metrics.term_ended();
    }

    fn set(&self, ingest: Option<Ingest>) {
        self.current.update(|current| {
            *current = ingest;
            true
        });
    }
}
