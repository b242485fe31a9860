//! The controller: what a leader does for the meshes of its store.
//!
//! ```text
//! ClusterMesh ──watch──► Snapshot ──► supervisor: starts and stops the tasks below
//! Secret ──────watch─────────────────────┘
//!                  one task a cluster │ one task a mesh
//!                                     ▼
//! Node, Peer ──watch──► ClusterObserver ──► Snapshot<ObservedClusters> ──► MeshReconciler ──► Planner
//!                                                    ▲                          │
//!                                                    └── peers as written ◄─────┤ peer_writer
//!                                                                               └ status_writer
//! ```
//!
//! fetch → plan → apply → status. No step waits for another cluster or another mesh:
//! - **fetch**: one `ClusterObserver` for each cluster that a mesh names, however many meshes do. It
//!   publishes the nodes and peers, or what it waits for, or why the cluster is away. A missing kind is
//!   asked for again when the cluster's definitions change, and every few seconds.
//! - **plan**: one `MeshReconciler` for each mesh. It reads the newest snapshots, so that no event can be
//!   lost or arrive in the wrong order, and finds what differs without comparing the rest. Planning is
//!   done in slices.
//! - **apply**: each target cluster is written to on its own, one batch after the other, with a bounded
//!   number of writes at a time. Each write has a deadline, names the version that the plan was made
//!   for, and is made only while the leader's fence holds. A target that fails is tried again after half
//!   a minute at most. What was written goes into the snapshot at once, so that the next plan includes
//!   it.
//! - **status**: data that is written when it changes. It describes what was observed, so that `Ready` is
//!   never true with a peer missing.
//!
//! With `services: true` the Services of the clusters go the same way, in snapshots and tasks of their own:
//! `ObservedServices`, `ServiceReconciler`, `service_writer`. Endpoints change more often than nodes, and
//! neither waits for the other.
//!
//! Before a cluster gets its first peer, the mesh has a finalizer and the cluster is in `status.joined`.
//! It leaves that list when it was observed without peers of the mesh, or when a person gave it up
//! (annotation [`FORGET`]). So neither a restart nor a new leader forgets a cluster.

mod cluster_access;
mod moves;
mod observed_clusters;
mod observed_services;
mod observer;
mod participants;
mod peer_writer;
mod reconciler;
mod service_reconciler;
mod service_writer;
mod status_writer;
mod supervisor;
mod write_backoff;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fleet::{Connection, Fleet, Timing};
use kube::ResourceExt;
use objects::kinds::{ClusterMesh, DataPlane, MeshClusterRef};
use objects::{Fence, Id, Leader, Objects, Watched, Within};
use stallproof::{Ledger, Snapshot};

use cluster_access::ClusterAccess;
use observed_clusters::ObservedClusters;
use observed_services::ObservedServices;
use service_reconciler::ServiceProblems;
use supervisor::Supervisor;

use crate::meshes::Meshes;
use crate::observation::Observation;

/// An annotation of a mesh: the clusters that left it, or that it is deleted with, and that are not
/// waited for any more. Their names are separated by commas.
pub const FORGET: &str = "fairlead.dev/forget";
/// The finalizer that keeps a mesh until its peers are gone.
pub const FINALIZER: &str = "fairlead.dev/mesh";

/// How often a cluster whose kubeconfig is in a Secret is tried while it does not answer. It is often,
/// because a mesh has few of these clusters and needs each of them.
const RETRY: Duration = Duration::from_secs(10);
/// How often such a cluster is asked whether it is there: endpoints of its Services are to leave the others
/// soon after it dies.
const PROBE: Duration = Duration::from_secs(3);

/// What the controller's tasks share.
#[derive(Clone)]
struct Shared {
    objects: Objects,
    fence: Fence,
    ledger: Ledger,
    access: ClusterAccess,
    meshes: Snapshot<Watched<Id, Arc<ClusterMesh>>>,
    clusters: Snapshot<ObservedClusters>,
    services: Snapshot<ObservedServices>,
    service_problems: Snapshot<ServiceProblems>,
}

/// Returns whether a mesh joins the Services of its clusters.
fn has_services(mesh: &ClusterMesh) -> bool {
    mesh.spec.services && mesh.metadata.deletion_timestamp.is_none()
}

/// The clusters that a person gave up.
pub(crate) fn forgotten(mesh: &ClusterMesh) -> BTreeSet<&str> {
    let names = mesh.annotations().get(FORGET).map_or("", String::as_str);
    names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

/// What the leader knows of the clusters of meshes, for those who ask it.
#[derive(Clone, Debug)]
pub(crate) struct MeshAccess {
    access: ClusterAccess,
    clusters: Snapshot<ObservedClusters>,
}

impl MeshAccess {
    pub(crate) fn connection(&self, cluster: &MeshClusterRef) -> Result<Connection, fleet::Error> {
        self.access.connection(cluster)
    }

    /// The nodes of a cluster as plans see them.
    pub(crate) fn nodes(&self, cluster: &MeshClusterRef, plane: DataPlane) -> Observation {
        let clusters = self.clusters.load();
        let observed = clusters.get(cluster).map(|it| it.observation(plane).nodes.clone());
        let nodes = observed.unwrap_or_else(|| Observation::default().nodes);
        // Without peers nothing has to be decided about them.
        Observation { nodes, ..Observation::default() }
    }
}

/// Starts what the leader does for meshes. It ends with the leader's tasks.
pub fn start(leader: &Leader, fleet: &Fleet, ledger: &Ledger) {
    start_for(leader, fleet, ledger, &Meshes::new(leader.objects.clone()));
}

/// As [`start`], and has `meshes` answer what only the leader knows.
pub fn start_for(leader: &Leader, fleet: &Fleet, ledger: &Ledger, meshes: &Meshes) {
    let tasks = leader.tasks.child("mesh");
    let (objects, ledger) = (leader.objects.clone(), ledger.clone());
    let timing = Timing { probe: PROBE, retry: RETRY, ..Timing::default() };
    let (from_secrets, offers) = Fleet::private(timing, objects.clone(), ledger.clone(), &tasks);
    let shared = Shared {
        meshes: objects.watched(Within::default(), &tasks),
        clusters: Snapshot::default(),
        services: Snapshot::default(),
        service_problems: Snapshot::default(),
        access: ClusterAccess { fleet: fleet.clone(), from_secrets },
        fence: leader.fence.clone(),
        objects,
        ledger,
    };
    meshes.lead(MeshAccess { access: shared.access.clone(), clusters: shared.clusters.clone() });
    let stop = tasks.stopping();
    let supervisor = Supervisor::new(tasks, shared, offers);
    // Without it no mesh would be reconciled: another replica leads instead.
    leader.tasks.spawn_essential("mesh supervisor", async move {
        stop.bound(supervisor.run()).await;
    });
}
