//! `Supervisor`: starts and stops an observer for each cluster that a mesh names and a reconciler for
//! each mesh, and offers the kubeconfigs in Secrets as clusters while meshes name them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet::{Offers, SecretCluster};
use k8s_openapi::api::core::v1::Secret;
use objects::kinds::{ClusterMesh, MeshClusterRef};
use objects::{Id, Reconcilers, WatchedIn};
use stallproof::Tasks;
use stallproof::tasks::TaskHandle;
use tokio::sync::watch;
use tokio::time::sleep;

use super::cluster_access::ClusterAccess;
use super::observer::{ClusterObserver, Wants};
use super::reconciler::{self, MeshReconciler};
use super::service_reconciler::ServiceReconciler;
use super::{Shared, has_services};
use crate::overlap;

/// How often tasks that ended by a panic are started again.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// How many meshes plan at a time. Planning takes milliseconds and yields in between, so this bounds
/// memory, not progress.
const MAX_PLANNING: usize = 64;

pub(super) struct Supervisor {
    tasks: Tasks,
    shared: Shared,
    /// Adds clusters to the fleet `from_secrets`.
    offers: Offers,
    secrets: WatchedIn<Secret>,
    observers: BTreeMap<MeshClusterRef, RunningObserver>,
    reconcilers: Reconcilers<Id>,
    /// Of the meshes that join Services, or did and are being cleared of them.
    service_reconcilers: Reconcilers<Id>,
}

struct AbortOnDrop(TaskHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct RunningObserver {
    task: AbortOnDrop,
    wants: watch::Sender<Wants>,
}

impl Supervisor {
    pub(super) fn new(tasks: Tasks, shared: Shared, offers: Offers) -> Self {
        let secrets = WatchedIn::new(&shared.objects);
        let reconcilers =
            Reconcilers::new("mesh", reconciler::PACE, MAX_PLANNING, &shared.ledger, &tasks);
        let service_reconcilers = Reconcilers::new(
            "mesh-services",
            reconciler::PACE,
            MAX_PLANNING,
            &shared.ledger,
            &tasks,
        );
        let observers = BTreeMap::new();
        Self { tasks, shared, offers, secrets, observers, reconcilers, service_reconcilers }
    }

    /// Supervises until it is dropped.
    pub(super) async fn run(mut self) {
        let mut mesh_changes = self.shared.meshes.subscribe();
        loop {
            self.reconcile_tasks();
            tokio::select! {
                _ = mesh_changes.changed() => {}
                () = self.secrets.changed() => {}
                () = sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    /// Starts and stops tasks, and offers kubeconfigs, so that there are those that meshes need.
    fn reconcile_tasks(&mut self) {
        let meshes = self.shared.meshes.load();
        let mut wanted: BTreeMap<MeshClusterRef, Wants> = BTreeMap::new();
        for mesh in meshes.values() {
            for cluster in references(mesh) {
                wanted.entry(cluster).or_default().add(mesh, needs_services(mesh));
            }
        }
        // No other namespace is watched: a store may have thousands of Secrets.
        let namespaces: BTreeSet<String> = wanted.keys().filter_map(secret_namespace).collect();
        self.secrets.watch(&namespaces);
        self.reconcilers.retain(|id| meshes.contains_key(id));
        for id in meshes.keys() {
            self.reconcilers.begin(id, || MeshReconciler::new(id.clone(), self.shared.clone()));
        }
        let with_services = |id: &Id| meshes.get(id).is_some_and(|mesh| needs_services(mesh));
        self.service_reconcilers.retain(|id| with_services(id));
        self.shared.service_problems.update(|all| {
            let gone: Vec<Id> = all.keys().filter(|id| !with_services(id)).cloned().collect();
            gone.iter().filter_map(|id| all.remove(id)).count() > 0
        });
        for id in meshes.keys().filter(|id| with_services(id)) {
            let begin = || ServiceReconciler::new(id.clone(), self.shared.clone());
            self.service_reconcilers.begin(id, begin);
        }
        // A task that ended panicked. It is started again, and no other task is affected.
        let stopped = self.observers.extract_if(.., |cluster, observer| {
            !wanted.contains_key(cluster) || observer.task.0.is_finished()
        });
        for (cluster, _) in stopped {
            self.shared.clusters.update(|clusters| clusters.remove(&cluster));
            self.shared.services.update(|services| services.remove(&cluster));
        }
        self.offers.replace(wanted.keys().filter_map(|cluster| {
            let MeshClusterRef::Secret(namespace, name, key) = cluster else { return None };
            let secret = self.secrets.get(namespace, name)?;
            let cluster_name = ClusterAccess::secret_cluster_name(namespace, name, key);
            Some((cluster_name, SecretCluster { secret, key }))
        }));
        for (cluster, wants) in wanted {
            if !self.observers.contains_key(&cluster) {
                let observer = self.start_observer(&cluster, wants);
                self.observers.insert(cluster.clone(), observer);
            }
            if let Some(observer) = self.observers.get(&cluster) {
                let set = |now: &mut Wants| std::mem::replace(now, wants) != wants;
                observer.wants.send_if_modified(set);
            }
        }
    }

    fn start_observer(&self, cluster: &MeshClusterRef, wants: Wants) -> RunningObserver {
        let (sender, wants) = watch::channel(wants);
        let observer = ClusterObserver {
            cluster: cluster.clone(),
            access: self.shared.access.clone(),
            clusters: self.shared.clusters.clone(),
            services: self.shared.services.clone(),
            wants,
        };
        let stop = self.tasks.stopping();
        let task = self.tasks.spawn(format!("observe {cluster}"), async move {
            stop.bound(Box::pin(observer.run())).await;
        });
        RunningObserver { task: AbortOnDrop(task), wants: sender }
    }
}

/// Returns whether a mesh joins Services, or may have imports left.
fn needs_services(mesh: &ClusterMesh) -> bool {
    let mut joined = mesh.status.iter().flat_map(|status| &status.joined);
    has_services(mesh) || joined.any(|joined| joined.services)
}

fn secret_namespace(cluster: &MeshClusterRef) -> Option<String> {
    match cluster {
        MeshClusterRef::Secret(namespace, ..) => Some(namespace.clone()),
        MeshClusterRef::Local | MeshClusterRef::Fleet(_) => None,
    }
}

/// The clusters that a mesh names, and those that it is still to be cleared from.
fn references(mesh: &ClusterMesh) -> Vec<MeshClusterRef> {
    let namespace = overlap::namespace(mesh);
    let joined = mesh.status.iter().flat_map(|status| &status.joined);
    let joined = joined.filter_map(|cluster| cluster.reference(&namespace));
    let named = mesh.spec.clusters.iter().filter_map(|cluster| cluster.reference(&namespace));
    named.chain(joined).collect()
}
