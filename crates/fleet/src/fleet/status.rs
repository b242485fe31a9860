//! Writes what is seen of imported clusters into the status of their objects, for those who look at
//! the store and not at us. At most once a second; what could not be written is written later.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use objects::kinds::{Cluster, ClusterStatus};
use objects::{Expected, Id, Objects};
use stallproof::{Deadline, Snapshot};
use tokio::time::sleep;
use tracing::debug;

use crate::failure::one_line;
use crate::view::{ClusterView, FleetView, SourceKind};

const EVERY: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(10);
const WITHIN: Duration = Duration::from_secs(10);
/// The store takes a sentence a little longer than this.
const LONGEST: usize = 1000;

pub(super) async fn run(published: Snapshot<FleetView>, objects: Objects) {
    let mut changes = published.subscribe();
    let mut written: HashMap<Arc<str>, ClusterStatus> = HashMap::new();
    let mut missed = false;
    loop {
        let wait = if missed { AGAIN } else { stallproof::deadline::LONGEST };
        let _ = Deadline::after(wait).bound(changes.changed()).await;
        let view = published.load();
        written.retain(|name, _| view.clusters.contains_key(name));
        let imported = view.clusters.values();
        let imported = imported.filter(|cluster| cluster.source.kind == SourceKind::Imported);
        missed = false;
        for cluster in imported {
            let status = status(cluster);
            if written.get(&cluster.name) == Some(&status) {
                continue;
            }
            match write(&objects, &cluster.name, &status).await {
                Ok(()) => {
                    written.insert(Arc::clone(&cluster.name), status);
                }
                Err(error) => {
                    missed = true;
                    debug!(cluster = %cluster.name, %error, "status not written");
                }
            }
        }
        sleep(EVERY).await;
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
) -> Result<(), objects::Error> {
    let deadline = Deadline::after(WITHIN);
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
