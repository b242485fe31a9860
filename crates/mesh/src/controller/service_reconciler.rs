//! `ServiceReconciler`: the Services of one mesh. Like the reconciler of its peers, an attempt reads the
//! newest snapshots, plans what differs, and starts the writes of each cluster, for none of which it
//! waits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use imbl::OrdMap;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use objects::kinds::{ClusterMesh, MeshClusterRef};
use objects::{Attempt, Id, Next, Reconciler, Watched};
use stallproof::ledger::Outcome;
use stallproof::snapshot::Changes;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::observed_services::ObservedServices;
use super::participants::{joined_services, participants};
use super::peer_writer::BatchResult;
use super::service_writer::{BATCH_SIZE, ServiceBatch};
use super::write_backoff::WriteBackoff;
use super::{Shared, has_services};
use crate::overlap;
use crate::services::{ClusterServices, ServiceContext, ServicePlanner};

/// How many Services are planned between two yields.
const SLICE: usize = 64;

/// What is wrong with the Services of meshes, by mesh and cluster. Reconcilers of Services write it, and
/// those of meshes put it into the status.
pub(super) type ServiceProblems = OrdMap<Id, BTreeMap<String, String>>;

pub(super) struct ServiceReconciler {
    id: Id,
    shared: Shared,
    mesh_changes: Changes<Watched<Id, Arc<ClusterMesh>>>,
    service_changes: Changes<ObservedServices>,
    planner: ServicePlanner,
    /// The meshes that the context was made from.
    planned_meshes: OrdMap<Id, Arc<ClusterMesh>>,
    context: ServiceContext,
    writes: FuturesUnordered<BoxFuture<'static, (String, BatchResult)>>,
    /// The clusters that the planner knows, by its names for them.
    planned: BTreeMap<String, MeshClusterRef>,
    writing: BTreeSet<String>,
    backoffs: HashMap<String, WriteBackoff>,
}

impl Reconciler for ServiceReconciler {
    type Error = Infallible;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Infallible> {
        let (meshes, services) = (self.shared.meshes.load(), self.shared.services.load());
        let Some(mesh) = meshes.get(&self.id) else { return Ok(Next::OnChange) };
        attempt.step("plan");
        let clusters = self.shared.clusters.load();
        let status = mesh.status.as_ref();
        let participants = participants(mesh, status, &clusters);
        let references: BTreeMap<String, MeshClusterRef> = participants
            .into_iter()
            .filter(|(_, it)| !it.ambiguous && joined_services(mesh, status, &it.reference))
            .map(|(name, it)| (name, it.reference))
            .collect();
        let gone: Vec<String> = self.planner.clusters().map(ToOwned::to_owned).collect();
        for name in gone {
            if references.get(&name) != self.planned.get(&name) {
                self.planner.remove_cluster(&name);
            }
        }
        let all_meshes: &OrdMap<Id, Arc<ClusterMesh>> = &meshes;
        if !self.planned_meshes.ptr_eq(all_meshes) {
            self.planned_meshes = all_meshes.clone();
            self.context = context(all_meshes, mesh);
            self.planner.set_context(self.context.clone());
        }
        for (name, reference) in &references {
            if let Some(observed) = services.get(reference) {
                self.planner.observe(name, observed);
            }
        }
        self.planned.clone_from(&references);
        // As Kubernetes writes times: without fractions of a second.
        let now = Timestamp::now();
        let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
        while self.planner.advance(SLICE, &now) {
            tokio::task::yield_now().await;
        }
        attempt.step("start writes");
        self.start_batches(&references);
        self.publish_problems(&references, &services);
        let now = Instant::now();
        let pauses = self.backoffs.values().map(|it| it.until).filter(|at| *at > now);
        Ok(pauses.min().map_or(Next::OnChange, |next| Next::Within(next.duration_since(now))))
    }

    async fn changed(&mut self) {
        tokio::select! {
            _ = self.mesh_changes.changed() => {}
            _ = self.service_changes.changed() => {}
            Some((target, result)) = self.writes.next() => self.finish(&target, result),
        }
    }
}

/// What is planned: the clusters whose Services this mesh joins. A cluster of several meshes belongs to
/// the first of those that join Services.
pub(super) fn context(meshes: &OrdMap<Id, Arc<ClusterMesh>>, mesh: &ClusterMesh) -> ServiceContext {
    let (name, namespace) = (mesh.name_any(), overlap::namespace(mesh));
    let own = Id::of(mesh);
    let before = meshes.iter().filter(|(id, it)| **id < own && has_services(it));
    let taken: BTreeSet<MeshClusterRef> = before
        .flat_map(|(_, it)| {
            let namespace = overlap::namespace(it);
            let clusters = it.spec.clusters.iter();
            clusters.filter_map(|it| it.reference(&namespace)).collect::<Vec<_>>()
        })
        .collect();
    let others: Vec<ClusterMesh> =
        meshes.iter().filter(|(id, _)| **id != own).map(|(_, it)| (**it).clone()).collect();
    let overlaps = overlap::overlaps(mesh, &others);
    let frozen = overlaps.into_iter().map(|it| it.cluster).collect();
    let members = mesh.spec.clusters.iter().filter(|cluster| {
        let reference = cluster.reference(&namespace);
        has_services(mesh) && reference.is_some_and(|it| !taken.contains(&it))
    });
    let members = members.map(|it| (it.name.clone(), overlap::networks(it))).collect();
    ServiceContext { mesh: name, namespace, members, frozen }
}

impl ServiceReconciler {
    pub(super) fn new(id: Id, shared: Shared) -> Self {
        Self {
            id,
            mesh_changes: shared.meshes.subscribe(),
            service_changes: shared.services.subscribe(),
            shared,
            planner: ServicePlanner::default(),
            planned_meshes: OrdMap::new(),
            context: ServiceContext::default(),
            writes: FuturesUnordered::new(),
            planned: BTreeMap::new(),
            writing: BTreeSet::new(),
            backoffs: HashMap::new(),
        }
    }

    fn start_batches(&mut self, references: &BTreeMap<String, MeshClusterRef>) {
        let mut due = BTreeSet::new();
        for (target, writes) in self.planner.writes() {
            due.insert(target.to_owned());
            let waiting = self.backoffs.get(target).is_some_and(|it| it.until > Instant::now());
            if waiting || self.writing.contains(target) {
                continue;
            }
            let Some(reference) = references.get(target) else { continue };
            // The observer says why a cluster without a connection is away.
            let Ok(connection) = self.shared.access.connection(reference) else { continue };
            let batch = ServiceBatch {
                cluster: reference.clone(),
                connection,
                fence: self.shared.fence.clone(),
                services: self.shared.services.clone(),
                writes: writes.take(BATCH_SIZE).cloned().collect(),
            };
            let target = target.to_owned();
            let op = self.shared.ledger.begin("mesh-services", self.id.to_string(), target.clone());
            self.writing.insert(target.clone());
            self.writes.push(Box::pin(async move {
                let result = op.in_span(batch.write()).await;
                op.finish(if result.error.is_none() { Outcome::Done } else { Outcome::Failed });
                (target, result)
            }));
        }
        self.backoffs.retain(|target, _| due.contains(target));
    }

    fn finish(&mut self, target: &str, BatchResult { written, error }: BatchResult) {
        let mesh = &self.id;
        self.writing.remove(target);
        debug!(%mesh, target, written, "wrote Services");
        let state = self.backoffs.entry(target.to_owned()).or_insert_with(WriteBackoff::new);
        if let Some(error) = state.finished(error) {
            warn!(%mesh, target, error, "cannot write Services");
        }
    }

    /// Tells the reconciler of the mesh, which writes the status, what is wrong.
    fn publish_problems(
        &self,
        references: &BTreeMap<String, MeshClusterRef>,
        services: &ObservedServices,
    ) {
        let mut problems = BTreeMap::new();
        let of_mesh = &self.context;
        for (name, reference) in references {
            let observed = services.get(reference);
            let written = self.backoffs.get(name).and_then(|it| it.error.clone());
            let read = observed.and_then(ClusterServices::problem);
            let left = !of_mesh.members.contains_key(name)
                && !observed.is_some_and(|it| it.is_clear_of(of_mesh));
            let left = left.then(|| "its imported Services are being removed".to_owned());
            problems.extend(read.or(written).or(left).map(|it| (name.clone(), it)));
        }
        self.shared.service_problems.update(|all| {
            let same = all.get(&self.id) == Some(&problems);
            all.insert(self.id.clone(), problems);
            !same
        });
    }
}
