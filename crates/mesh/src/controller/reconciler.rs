//! `MeshReconciler`: one mesh. It reads the newest snapshots, plans what differs, starts the writes of
//! each target cluster, and writes the mesh's status. It never waits for a write: writes run beside it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use imbl::OrdMap;
use kube::ResourceExt;
use objects::Id;
use objects::kinds::{ClusterMesh, ClusterMeshStatus, MeshClusterRef};
use stallproof::Backoff;
use stallproof::backoff::Curve;
use stallproof::ledger::Outcome;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::observed_clusters::ObservedClusters;
use super::participants::{Participant, is_joined, joined, participants};
use super::peer_writer::{BatchResult, WriteBatch};
use super::status_writer::{self, MeshWrite};
use super::{FINALIZER, Shared, forgotten};
use crate::planner::Planner;
use crate::status::WAITING_FOR_WRITES;

/// How many decisions are made between two yields: a few milliseconds of work.
const SLICE: usize = 256;
/// Between attempts to write to a target, and to the store.
const RETRY: Curve = Curve { first: Duration::from_millis(500), most: Duration::from_secs(30) };
/// After how long a mesh that is not ready is looked at again, whatever else happens.
const INCOMPLETE: Duration = Duration::from_secs(30);
/// How often a status is written in which only numbers change: they change with every peer.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// After how many batches in a row a target is written to with pauses: somebody may be undoing the
/// writes.
const MAX_BATCHES_IN_A_ROW: u32 = 64;

pub(super) struct MeshReconciler {
    id: Id,
    shared: Shared,
    planner: Option<Planner>,
    /// The meshes that the planner knows.
    planned_meshes: OrdMap<Id, Arc<ClusterMesh>>,
    /// The clusters that the planner knows, by its names for them.
    planned_clusters: BTreeMap<String, MeshClusterRef>,
    /// The targets with a batch under way.
    writing: BTreeSet<String>,
    backoffs: HashMap<String, WriteBackoff>,
    /// The mesh's uid: another mesh of the same name has nothing in common with it.
    uid: Option<String>,
    /// The status that was written last, which the watch may not have reported yet.
    written_status: Option<ClusterMeshStatus>,
    writing_mesh: bool,
    write_mesh_after: Instant,
    store_backoff: Backoff,
}

/// How a target's latest writes went.
struct WriteBackoff {
    backoff: Backoff,
    until: Instant,
    error: Option<String>,
    batches_in_a_row: u32,
}

enum Finished {
    Batch { target: String, result: BatchResult },
    Mesh(Result<Option<ClusterMeshStatus>, String>),
}

type Writes = FuturesUnordered<BoxFuture<'static, Finished>>;

impl MeshReconciler {
    pub(super) fn new(id: Id, shared: Shared) -> Self {
        Self {
            id,
            shared,
            planner: None,
            planned_meshes: OrdMap::new(),
            planned_clusters: BTreeMap::new(),
            writing: BTreeSet::new(),
            backoffs: HashMap::new(),
            uid: None,
            written_status: None,
            writing_mesh: false,
            write_mesh_after: Instant::now(),
            store_backoff: Backoff::new(RETRY),
        }
    }

    /// Reconciles until it is dropped.
    pub(super) async fn run(mut self) {
        let mut mesh_changes = self.shared.meshes.subscribe();
        let mut cluster_changes = self.shared.clusters.subscribe();
        let mut writes = Writes::new();
        loop {
            let (meshes, clusters) = (self.shared.meshes.load(), self.shared.clusters.load());
            let wake = match meshes.get(&self.id) {
                Some(mesh) => self.reconcile(&meshes, mesh, &clusters, &mut writes).await,
                // The supervisor is about to stop this task.
                None => Instant::now() + INCOMPLETE,
            };
            drop((meshes, clusters));
            tokio::select! {
                _ = mesh_changes.changed() => {}
                _ = cluster_changes.changed() => {}
                Some(finished) = writes.next() => self.finish(finished),
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Plans, starts writes, and returns when to reconcile again at the latest.
    async fn reconcile(
        &mut self,
        meshes: &OrdMap<Id, Arc<ClusterMesh>>,
        mesh: &ClusterMesh,
        clusters: &ObservedClusters,
        writes: &mut Writes,
    ) -> Instant {
        if self.uid != mesh.metadata.uid {
            self.uid.clone_from(&mesh.metadata.uid);
            self.written_status = None;
        }
        let participants = participants(mesh, self.status_of(mesh), clusters);
        let mut planner = self.planner_for(meshes, mesh);
        for (name, before) in &self.planned_clusters {
            // A name may also mean another cluster from now on.
            if participants.get(name).is_none_or(|now| now.reference != *before) {
                planner.remove_cluster(name);
            }
        }
        for (name, participant) in participants.iter().filter(|(_, p)| !p.ambiguous) {
            if let Some(cluster) = clusters.get(&participant.reference) {
                planner.observe(name, &cluster.observation);
            }
        }
        let references = participants.iter().map(|(name, p)| (name.clone(), p.reference.clone()));
        self.planned_clusters = references.collect();
        while planner.advance(SLICE) {
            tokio::task::yield_now().await;
        }
        self.start_batches(&planner, mesh, &participants, writes);
        let wake = self.start_mesh_write(&planner, clusters, mesh, &participants, writes);
        self.planner = Some(planner);
        let pauses = self.backoffs.values().map(|backoff| backoff.until);
        pauses.filter(|until| *until > Instant::now()).fold(wake, Instant::min)
    }

    /// Takes the planner out, with the meshes as they are now.
    fn planner_for(
        &mut self,
        meshes: &OrdMap<Id, Arc<ClusterMesh>>,
        mesh: &ClusterMesh,
    ) -> Planner {
        let planner = match self.planner.take() {
            Some(planner) if self.planned_meshes.ptr_eq(meshes) => return planner,
            planner => planner,
        };
        let others = meshes.iter().filter(|(id, _)| **id != self.id);
        let others: Vec<ClusterMesh> = others
            .map(|(_, other)| ClusterMesh {
                metadata: other.metadata.clone(),
                spec: other.spec.clone(),
                status: None,
            })
            .collect();
        self.planned_meshes = meshes.clone();
        match planner {
            Some(mut planner) => {
                planner.set_mesh(mesh, &others);
                planner
            }
            None => Planner::new(mesh, &others),
        }
    }

    /// The newest status that was written.
    fn status_of<'a>(&'a self, mesh: &'a ClusterMesh) -> Option<&'a ClusterMeshStatus> {
        self.written_status.as_ref().or(mesh.status.as_ref())
    }

    fn start_batches(
        &mut self,
        planner: &Planner,
        mesh: &ClusterMesh,
        participants: &BTreeMap<String, Participant>,
        writes: &mut Writes,
    ) {
        let due: BTreeSet<&str> = planner.targets_to_write().collect();
        self.backoffs.retain(|target, _| due.contains(target.as_str()));
        if !has_finalizer(mesh) {
            return;
        }
        for target in due {
            let Some(Participant { reference, .. }) = participants.get(target) else { continue };
            let waiting = self.backoffs.get(target).is_some_and(|b| b.until > Instant::now());
            let is_joined = is_joined(mesh, self.status_of(mesh), reference);
            if waiting || self.writing.contains(target) || !is_joined {
                continue;
            }
            // The observer says why a cluster without a connection is away.
            let Ok(connection) = self.shared.access.connection(reference) else { continue };
            let Some(plan) = planner.target_plan(target) else { continue };
            let batch = WriteBatch {
                cluster: reference.clone(),
                connection,
                fence: self.shared.fence.clone(),
                clusters: self.shared.clusters.clone(),
                plan,
            };
            let op = self.shared.ledger.begin("mesh-apply", self.id.to_string(), target.to_owned());
            let target = target.to_owned();
            self.writing.insert(target.clone());
            writes.push(Box::pin(async move {
                let result = op.in_span(batch.write()).await;
                op.finish(if result.error.is_none() { Outcome::Done } else { Outcome::Failed });
                Finished::Batch { target, result }
            }));
        }
    }

    /// Starts to write the mesh's finalizer or status if it changed and it is time to, and returns when
    /// to look again.
    fn start_mesh_write(
        &mut self,
        planner: &Planner,
        clusters: &ObservedClusters,
        mesh: &ClusterMesh,
        participants: &BTreeMap<String, Participant>,
        writes: &mut Writes,
    ) -> Instant {
        let deleting = mesh.metadata.deletion_timestamp.is_some();
        let before = self.status_of(mesh);
        let is_clear = |name: &str| !self.writing.contains(name) && planner.is_clear(name);
        let mut status = planner.status(before, mesh.metadata.generation);
        status.joined = joined(mesh, before, clusters, participants, is_clear);
        for cluster in &mut status.clusters {
            let error = self.backoffs.get(&cluster.name).and_then(|b| b.error.as_ref());
            if let Some(error) =
                error.filter(|_| cluster.why.as_deref() == Some(WAITING_FOR_WRITES))
            {
                cluster.why = Some(format!("its peers cannot be written: {error}"));
            }
        }
        status_writer::complete(&mut status, before, mesh);
        let changed = before != Some(&status);
        let ready = status_writer::is_ready(&status);
        let urgent = before.is_none_or(|before| {
            status_writer::is_ready(before) != ready || before.joined != status.joined
        });
        let (write, urgent) = match (deleting, has_finalizer(mesh)) {
            (false, false) => (Some(MeshWrite::AddFinalizer), true),
            // The finalizer goes when no cluster has peers of the mesh.
            (true, true) if status.joined.is_empty() => (Some(MeshWrite::RemoveFinalizer), true),
            (true, false) => (None, false),
            _ if changed => (Some(MeshWrite::Status(Box::new(status))), urgent),
            // The cluster is forgotten, and may join and leave again.
            _ if is_forget_done(mesh, &status) => (Some(MeshWrite::ClearForget), true),
            _ => (None, false),
        };
        let again = Instant::now() + if ready { INCOMPLETE * 10 } else { INCOMPLETE };
        let Some(write) = write.filter(|_| !self.writing_mesh) else { return again };
        let urgent = urgent && self.store_backoff.failures() == 0;
        if !urgent && self.write_mesh_after > Instant::now() {
            return self.write_mesh_after;
        }
        let (objects, mesh, before) = (self.shared.objects.clone(), mesh.clone(), before.cloned());
        self.writing_mesh = true;
        writes.push(Box::pin(async move {
            Finished::Mesh(write.write(&objects, mesh, before.as_ref()).await)
        }));
        again
    }

    fn finish(&mut self, finished: Finished) {
        match finished {
            Finished::Batch { target, result } => self.finish_batch(target, result),
            Finished::Mesh(result) => {
                self.writing_mesh = false;
                let wait = match result {
                    Ok(status) => {
                        self.written_status = status.or_else(|| self.written_status.take());
                        self.store_backoff.succeeded();
                        STATUS_INTERVAL
                    }
                    Err(error) => {
                        let retry = self.store_backoff.failed();
                        if retry.attempt == 1 {
                            info!(mesh = %self.id, error, "cannot write the mesh's status");
                        }
                        retry.wait
                    }
                };
                self.write_mesh_after = Instant::now() + wait;
            }
        }
    }

    fn finish_batch(&mut self, target: String, BatchResult { written, error }: BatchResult) {
        let mesh = &self.id;
        self.writing.remove(&target);
        debug!(%mesh, target, written, "wrote peers");
        let state = self.backoffs.entry(target.clone()).or_insert_with(|| WriteBackoff {
            backoff: Backoff::new(RETRY),
            until: Instant::now(),
            error: None,
            batches_in_a_row: 0,
        });
        state.batches_in_a_row += 1;
        if error.is_some() || state.batches_in_a_row > MAX_BATCHES_IN_A_ROW {
            state.until = Instant::now() + state.backoff.failed().wait;
        } else {
            state.backoff.succeeded();
        }
        if let Some(error) = error.as_ref().filter(|error| state.error.as_ref() != Some(*error)) {
            warn!(%mesh, target, error, "cannot write peers");
        }
        state.error = error;
    }
}

fn has_finalizer(mesh: &ClusterMesh) -> bool {
    mesh.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Returns whether the annotation names clusters, and none of them is waited for any more.
fn is_forget_done(mesh: &ClusterMesh, status: &ClusterMeshStatus) -> bool {
    let is_leaving = |name: &&str| {
        status.joined.iter().any(|joined| joined.name == **name && joined.leaving.is_some())
    };
    let names = forgotten(mesh);
    !names.is_empty() && !names.iter().any(is_leaving)
}
