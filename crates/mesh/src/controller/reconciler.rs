//! `MeshReconciler`: one mesh. An attempt reads the newest snapshots, plans what differs, and starts the
//! writes of each target cluster and of the mesh's status. It waits for none of them: they run beside
//! it, and the end of each leads to the next attempt.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use imbl::OrdMap;
use kube::ResourceExt;
use objects::kinds::{ClusterMesh, ClusterMeshStatus, DataPlane, MeshClusterRef};
use objects::{Attempt, Id, Next, Pace, Reconciler, Watched};
use stallproof::Backoff;
use stallproof::ledger::Outcome;
use stallproof::snapshot::Changes;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::moves::{self, Planners};
use super::observed_clusters::ObservedClusters;
use super::participants::{Participant, data_planes, is_clear_of, is_joined, joined, participants};
use super::peer_writer::{BatchResult, WriteBatch};
use super::service_reconciler::ServiceProblems;
use super::status_writer::{self, MeshWrite};
use super::write_backoff::{RETRY, WriteBackoff};
use super::{FINALIZER, Shared, forgotten, has_services};
use crate::overlap;
use crate::pairs::{Pair, Pairs};
use crate::planner::Planner;
use crate::services::ServiceContext;
use crate::status::{self, WAITING_FOR_WRITES};

/// How many decisions are made between two yields: a few milliseconds of work.
const SLICE: usize = 256;
/// After how long a mesh that is not ready is reconciled again, whatever else happens.
const INCOMPLETE: Duration = Duration::from_secs(30);
/// An attempt plans in slices and waits for nothing, so its deadline only bounds the planning of a huge
/// mesh.
pub(super) const PACE: Pace = Pace {
    attempt: Duration::from_secs(10 * 60),
    resync: Duration::from_secs(5 * 60),
    settle: Duration::ZERO,
    retry: RETRY,
};
/// How often pairs of clusters are looked at in one attempt: a few states follow from the same facts.
const ROUNDS: usize = 4;
/// How often a status is written in which only numbers change: they change with every peer.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct MeshReconciler {
    id: Id,
    shared: Shared,
    mesh_changes: Changes<Watched<Id, Arc<ClusterMesh>>>,
    cluster_changes: Changes<ObservedClusters>,
    problem_changes: Changes<ServiceProblems>,
    /// The writes under way: a batch a target, and one of the mesh itself.
    writes: FuturesUnordered<BoxFuture<'static, Finished>>,
    planners: Planners,
    /// The state of each pair of clusters, while there are peers of two data planes.
    pairs: Pairs,
    /// What is said of those that move.
    moves: BTreeMap<Pair, String>,
    /// The meshes that the planner knows.
    planned_meshes: OrdMap<Id, Arc<ClusterMesh>>,
    /// The clusters that the planner knows, by its names for them.
    planned_clusters: BTreeMap<String, MeshClusterRef>,
    /// The targets with a batch under way.
    writing: BTreeSet<Target>,
    backoffs: HashMap<Target, WriteBackoff>,
    /// The mesh's uid: another mesh of the same name has nothing in common with it.
    uid: Option<String>,
    /// The status that was written last, which the watch may not have reported yet.
    written_status: Option<ClusterMeshStatus>,
    writing_mesh: bool,
    write_mesh_after: Instant,
    store_backoff: Backoff,
}

/// A cluster, and the data plane of the peers that are written there.
type Target = (DataPlane, String);

enum Finished {
    Batch { target: Target, result: BatchResult },
    Mesh(Result<Option<ClusterMeshStatus>, String>),
}

impl Reconciler for MeshReconciler {
    type Error = Infallible;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Infallible> {
        let (meshes, clusters) = (self.shared.meshes.load(), self.shared.clusters.load());
        // The supervisor is about to stop the reconciler of a mesh that is gone.
        let Some(mesh) = meshes.get(&self.id) else { return Ok(Next::OnChange) };
        if self.uid != mesh.metadata.uid {
            self.uid.clone_from(&mesh.metadata.uid);
            self.written_status = None;
        }
        attempt.step("plan");
        let participants = participants(mesh, self.status_of(mesh), &clusters);
        let planners = self.plan(&meshes, mesh, &clusters, &participants).await;
        attempt.step("start writes");
        self.start_batches(&planners, mesh, &participants);
        let mesh_write = self.start_mesh_write(&planners, &clusters, mesh, &participants);
        self.planners = planners;
        let now = Instant::now();
        let pauses = self.backoffs.values().map(|backoff| backoff.until).filter(|at| *at > now);
        let next = pauses.chain(mesh_write).min();
        Ok(next.map_or(Next::OnChange, |next| Next::Within(next.duration_since(now))))
    }

    async fn changed(&mut self) {
        tokio::select! {
            _ = self.mesh_changes.changed() => {}
            _ = self.cluster_changes.changed() => {}
            _ = self.problem_changes.changed() => {}
            Some(finished) = self.writes.next() => self.finish(finished),
        }
    }
}

impl MeshReconciler {
    pub(super) fn new(id: Id, shared: Shared) -> Self {
        Self {
            id,
            mesh_changes: shared.meshes.subscribe(),
            cluster_changes: shared.clusters.subscribe(),
            problem_changes: shared.service_problems.subscribe(),
            writes: FuturesUnordered::new(),
            shared,
            planners: Planners::new(),
            pairs: Pairs::new(),
            moves: BTreeMap::new(),
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

    async fn plan(
        &mut self,
        meshes: &OrdMap<Id, Arc<ClusterMesh>>,
        mesh: &ClusterMesh,
        clusters: &ObservedClusters,
        participants: &BTreeMap<String, Participant>,
    ) -> Planners {
        let others = meshes.iter().filter(|(id, _)| **id != self.id);
        let others: Vec<ClusterMesh> = others
            .map(|(_, other)| ClusterMesh {
                metadata: other.metadata.clone(),
                spec: other.spec.clone(),
                status: None,
            })
            .collect();
        let mut planners = std::mem::take(&mut self.planners);
        let planes = data_planes(mesh, self.status_of(mesh));
        let is_new = planners.keys().ne(&planes) || !self.planned_meshes.ptr_eq(meshes);
        planners.retain(|plane, _| planes.contains(plane));
        self.planned_meshes = meshes.clone();
        for (plane, planner) in &mut planners {
            if is_new {
                planner.set_plane(mesh, &others, *plane, &self.pairs);
            }
            for (name, before) in &self.planned_clusters {
                // A name may also mean another cluster from now on.
                if participants.get(name).is_none_or(|now| now.reference != *before) {
                    planner.remove_cluster(name);
                }
            }
        }
        for plane in planes {
            let new = || Planner::of_plane(mesh, &others, plane, &self.pairs);
            let planner = planners.entry(plane).or_insert_with(new);
            for (name, participant) in participants.iter().filter(|(_, p)| !p.ambiguous) {
                if let Some(cluster) = clusters.get(&participant.reference) {
                    planner.observe(name, cluster.observation(plane));
                }
            }
        }
        let references = participants.iter().map(|(name, p)| (name.clone(), p.reference.clone()));
        self.planned_clusters = references.collect();
        // What is there decides about pairs, and pairs about what is to be there. It settles: a state
        // leads to another by what is observed, which does not change here.
        for _ in 0..ROUNDS {
            for planner in planners.values_mut() {
                while planner.advance(SLICE) {
                    tokio::task::yield_now().await;
                }
            }
            let (pairs, moves) = moves::look(mesh, &planners, clusters, participants);
            self.moves = moves;
            if pairs == self.pairs {
                break;
            }
            for (pair, state) in
                pairs.iter().filter(|(pair, state)| self.pairs.get(pair) != Some(state))
            {
                info!(mesh = %self.id, ?pair, ?state, "who carries packets between two clusters");
            }
            self.pairs = pairs;
            for (plane, planner) in &mut planners {
                planner.set_plane(mesh, &others, *plane, &self.pairs);
            }
        }
        planners
    }

    /// The newest status that was written.
    fn status_of<'a>(&'a self, mesh: &'a ClusterMesh) -> Option<&'a ClusterMeshStatus> {
        self.written_status.as_ref().or(mesh.status.as_ref())
    }

    fn start_batches(
        &mut self,
        planners: &Planners,
        mesh: &ClusterMesh,
        participants: &BTreeMap<String, Participant>,
    ) {
        let due = planners.iter().flat_map(|(plane, planner)| {
            planner.targets_to_write().map(|target| (*plane, target.to_owned()))
        });
        let due: BTreeSet<Target> = due.collect();
        self.backoffs.retain(|target, _| due.contains(target));
        if !has_finalizer(mesh) {
            return;
        }
        let status = self.status_of(mesh);
        // A plane is noted before its first peer is written, so that its peers are found again.
        let noted: BTreeSet<DataPlane> =
            status.into_iter().flat_map(|status| status.data_planes.iter().copied()).collect();
        for target in due.into_iter().filter(|(plane, _)| noted.contains(plane)) {
            let (plane, cluster) = &target;
            let (Some(participant), Some(planner)) =
                (participants.get(cluster), planners.get(plane))
            else {
                continue;
            };
            let reference = &participant.reference;
            let waiting = self.backoffs.get(&target).is_some_and(|b| b.until > Instant::now());
            let is_joined =
                participant.has_left() || is_joined(mesh, self.status_of(mesh), reference);
            if waiting || self.writing.contains(&target) || !is_joined {
                continue;
            }
            // The observer says why a cluster without a connection is away.
            let Ok(connection) = self.shared.access.connection(reference) else { continue };
            let Some(plan) = planner.target_plan(cluster) else { continue };
            let batch = WriteBatch {
                cluster: reference.clone(),
                connection,
                fence: self.shared.fence.clone(),
                clusters: self.shared.clusters.clone(),
                data_plane: *plane,
                plan,
            };
            let op = self.shared.ledger.begin("mesh-apply", self.id.to_string(), cluster.clone());
            self.writing.insert(target.clone());
            self.writes.push(Box::pin(async move {
                let result = op.in_span(batch.write()).await;
                op.finish(if result.error.is_none() { Outcome::Done } else { Outcome::Failed });
                Finished::Batch { target, result }
            }));
        }
    }

    /// Starts to write the mesh's finalizer or status if it changed and it is time to. Returns when to
    /// reconcile again, unless the mesh is ready.
    fn start_mesh_write(
        &mut self,
        planners: &Planners,
        clusters: &ObservedClusters,
        mesh: &ClusterMesh,
        participants: &BTreeMap<String, Participant>,
    ) -> Option<Instant> {
        let deleting = mesh.metadata.deletion_timestamp.is_some();
        let before = self.status_of(mesh);
        let is_clear = |name: &str, plane: DataPlane| {
            let is_clear = planners.get(&plane).is_some_and(|planner| planner.is_clear(name));
            is_clear && !self.writing.contains(&(plane, name.to_owned()))
        };
        let generation = mesh.metadata.generation;
        let of = |plane: DataPlane| planners.get(&plane);
        let mut status = match (of(DataPlane::Kilo), of(DataPlane::Wireguard)) {
            (Some(kilo), Some(ours)) => status::merged(kilo, ours, &self.moves, before, generation),
            (Some(one), None) | (None, Some(one)) => one.status(before, generation),
            (None, None) => return None,
        };
        // One that is no longer wanted is noted until no cluster has its peers any more.
        let wanted = mesh.spec.data_planes();
        let noted = planners.keys().filter(|plane| {
            let mut all = participants.iter();
            let is_clear = |name: &str, participant: &Participant| {
                !participant.ambiguous
                    && is_clear_of(clusters, name, participant, **plane, is_clear)
            };
            wanted.contains(plane) || !all.all(|(name, it)| is_clear(name, it))
        });
        status.data_planes = noted.copied().collect();
        let services = self.shared.services.load();
        let of_mesh = ServiceContext {
            mesh: mesh.name_any(),
            namespace: overlap::namespace(mesh),
            ..ServiceContext::default()
        };
        let has_imports = |reference: &MeshClusterRef| {
            !services.get(reference).is_some_and(|it| it.is_clear_of(&of_mesh))
        };
        status.joined = joined(mesh, before, clusters, participants, is_clear, has_imports);
        if has_services(mesh) {
            let problems = self.shared.service_problems.load();
            status.conditions.push(status::services_condition(problems.get(&self.id)));
        }
        for cluster in &mut status.clusters {
            let of = |plane| self.backoffs.get(&(plane, cluster.name.clone()));
            let backoffs = [DataPlane::Kilo, DataPlane::Wireguard].into_iter().filter_map(of);
            let error = backoffs.filter_map(|it| it.error.as_ref()).next();
            if let (Some(WAITING_FOR_WRITES), Some(error)) = (cluster.why.as_deref(), error) {
                cluster.why = Some(format!("its peers cannot be written: {error}"));
            }
        }
        status_writer::complete(&mut status, before, mesh);
        let changed = before != Some(&status);
        let ready = status_writer::is_ready(&status);
        let urgent = before.is_none_or(|before| {
            status_writer::is_ready(before) != ready
                || before.joined != status.joined
                || before.data_planes != status.data_planes
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
        let again = (!ready).then(|| Instant::now() + INCOMPLETE);
        let Some(write) = write.filter(|_| !self.writing_mesh) else { return again };
        let urgent = urgent && self.store_backoff.failures() == 0;
        if !urgent && self.write_mesh_after > Instant::now() {
            return Some(self.write_mesh_after);
        }
        let (objects, mesh, before) = (self.shared.objects.clone(), mesh.clone(), before.cloned());
        let op = self.shared.ledger.begin("mesh-status", self.id.to_string(), "");
        self.writing_mesh = true;
        self.writes.push(Box::pin(async move {
            let result = op.in_span(write.write(&objects, mesh, before.as_ref())).await;
            op.finish(if result.is_ok() { Outcome::Done } else { Outcome::Failed });
            Finished::Mesh(result)
        }));
        again
    }

    fn finish(&mut self, finished: Finished) {
        match finished {
            Finished::Batch { target, result } => self.finish_batch(&target, result),
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

    fn finish_batch(&mut self, target: &Target, BatchResult { written, error }: BatchResult) {
        let mesh = &self.id;
        self.writing.remove(target);
        debug!(%mesh, target = target.1, written, "wrote peers");
        let state = self.backoffs.entry(target.clone()).or_insert_with(WriteBackoff::new);
        if let Some(error) = state.finished(error) {
            warn!(%mesh, target = target.1, error, "cannot write peers");
        }
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
