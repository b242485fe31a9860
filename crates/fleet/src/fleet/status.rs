//! Writes the state of each imported cluster into the status of its `Cluster` object, for those who
//! look at the store. At most once a second; what could not be written is written later.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use objects::kinds::{Cluster, ClusterStatus};
use objects::{Attempt, Expected, Id, Next, Objects, Pace, Reconciler, reconcile};
use stallproof::snapshot::Changes;
use stallproof::{Deadline, Ledger, Snapshot, Tasks};

use crate::failure::one_line;
use crate::view::{ClusterView, FleetView, SourceKind};

const SETTLE: Duration = Duration::from_secs(1);
/// The store takes a sentence a little longer than this.
const LONGEST: usize = 1000;

pub(super) fn start(
    published: &Snapshot<FleetView>,
    objects: &Objects,
    ledger: &Ledger,
    tasks: &Tasks,
) {
    let writer = StatusWriter {
        published: published.clone(),
        changes: published.subscribe(),
        objects: objects.clone(),
        written: HashMap::new(),
    };
    let pace = Pace { settle: SETTLE, ..Pace::default() };
    let key = "imported clusters".to_owned();
    let work = reconcile("write-status", key, pace, writer, ledger.clone(), tasks.stopping());
    tasks.spawn("status of imported clusters", work);
}

struct StatusWriter {
    published: Snapshot<FleetView>,
    changes: Changes<FleetView>,
    objects: Objects,
    written: HashMap<Arc<str>, ClusterStatus>,
}

impl Reconciler for StatusWriter {
    type Error = objects::Error;

    /// A status that cannot be written holds up no other.
    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, objects::Error> {
        let view = self.published.load();
        self.written.retain(|name, _| view.clusters.contains_key(name));
        let mut result = Ok(Next::OnChange);
        for cluster in view.clusters.values() {
            let status = status(cluster);
            let is_written = self.written.get(&cluster.name) == Some(&status);
            if cluster.source.kind != SourceKind::Imported || is_written {
                continue;
            }
            match write(&self.objects, &cluster.name, &status, attempt.deadline).await {
                Ok(()) => drop(self.written.insert(Arc::clone(&cluster.name), status)),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    async fn changed(&mut self) {
        self.changes.changed().await;
    }
}

fn status(cluster: &ClusterView) -> ClusterStatus {
    ClusterStatus {
        state: cluster.state.name().to_owned(),
        why: cluster.why.as_ref().map(|why| one_line(why, LONGEST)),
        version: cluster.version.clone(),
    }
}

async fn write(
    objects: &Objects,
    name: &str,
    status: &ClusterStatus,
    deadline: Deadline,
) -> Result<(), objects::Error> {
    let Some(mut object) = objects.get::<Cluster>(&Id::cluster(name), deadline).await? else {
        return Ok(());
    };
    if object.status.as_ref() == Some(status) {
        return Ok(());
    }
    object.status = Some(status.clone());
    match objects.apply_status(&object, Expected::Any, deadline).await {
        Ok(_) | Err(objects::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
