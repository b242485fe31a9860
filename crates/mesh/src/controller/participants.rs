//! The participants of a mesh: the clusters in its spec, and those that left it and may still have peers.

use std::collections::{BTreeMap, BTreeSet};

use objects::kinds::{ClusterMesh, ClusterMeshStatus, DataPlane, JoinedCluster, MeshClusterRef};

use super::forgotten;
use super::observed_clusters::ObservedClusters;
use super::observer::peer_crd_of;
use crate::observation::{NOT_OBSERVED, Observed};
use crate::overlap;

pub(super) struct Participant {
    pub(super) reference: MeshClusterRef,
    /// The cluster's entry of `status.joined`, if it is no longer in the spec.
    left: Option<JoinedCluster>,
    /// Whether it may be the cluster that has its name now, reached another way. Until that is known,
    /// the cluster is left alone.
    pub(super) ambiguous: bool,
    /// The identity of a cluster that had peers and that nothing leads to any more: what its entry names
    /// leads to another cluster now.
    lost: Option<String>,
}

impl Participant {
    /// Returns whether the mesh only removes what it wrote there. Such a cluster is in `status.joined`,
    /// however it is reached now.
    pub(super) fn has_left(&self) -> bool {
        self.left.is_some()
    }
}

/// The participants by the planner's names for them. `status` is the newest one that was written.
pub(super) fn participants(
    mesh: &ClusterMesh,
    status: Option<&ClusterMeshStatus>,
    clusters: &ObservedClusters,
) -> BTreeMap<String, Participant> {
    let namespace = overlap::namespace(mesh);
    let mut participants = BTreeMap::new();
    let mut references = BTreeSet::new();
    for cluster in &mesh.spec.clusters {
        if let Some(reference) = cluster.reference(&namespace) {
            references.insert(reference.clone());
            let participant = Participant { reference, left: None, ambiguous: false, lost: None };
            participants.insert(cluster.name.clone(), participant);
        }
    }
    let forgotten = forgotten(mesh);
    let identity = |reference: &MeshClusterRef| clusters.get(reference)?.identity.clone();
    let present: BTreeSet<_> = references.iter().filter_map(identity).collect();
    for joined in status.into_iter().flat_map(|status| &status.joined) {
        let Some(mut reference) = joined.reference(&namespace) else { continue };
        let now = identity(&reference);
        // An entry that was noted as lost stays so while nobody knows what its reference leads to.
        let is_lost = match now.as_deref() {
            Some(now) => joined.identity.as_deref().is_some_and(|before| before != now),
            None => joined.leaving.is_some() && references.contains(&reference),
        };
        if let Some(before) = joined.identity.as_deref().filter(|_| is_lost) {
            if present.contains(before) || forgotten.contains(joined.name.as_str()) {
                continue;
            }
            // Another mesh may name a way to it; else it is named as left until a person gives it up.
            let other = clusters.find(before);
            let lost = other.is_none().then(|| before.to_owned());
            reference = other.unwrap_or(reference);
            let (left, ambiguous) = (Some(joined.clone()), lost.is_some());
            let participant = Participant { reference, left, ambiguous, lost };
            participants.insert(format!("{} ({before})", joined.name), participant);
            continue;
        }
        // A cluster that is in the spec under another name or reference is cleared by its own plan.
        let is_present = references.contains(&reference)
            || identity(&reference).is_some_and(|identity| present.contains(&identity));
        if is_present || forgotten.contains(joined.name.as_str()) {
            continue;
        }
        let mut name = joined.name.clone();
        let mut ambiguous = false;
        if let Some(successor) = participants.get(&name) {
            ambiguous = identity(&successor.reference).is_none() || identity(&reference).is_none();
            name = format!("{name} ({reference})");
        }
        let left = Some(joined.clone());
        participants.insert(name, Participant { reference, left, ambiguous, lost: None });
    }
    participants
}

/// Returns whether `status.joined` has a cluster: only then it may get peers.
pub(super) fn is_joined(
    mesh: &ClusterMesh,
    status: Option<&ClusterMeshStatus>,
    reference: &MeshClusterRef,
) -> bool {
    let namespace = overlap::namespace(mesh);
    let mut joined = status.into_iter().flat_map(|status| &status.joined);
    joined.any(|joined| joined.reference(&namespace).as_ref() == Some(reference))
}

/// Returns whether `status.joined` has a cluster with its Services: only then it may get imports.
pub(super) fn joined_services(
    mesh: &ClusterMesh,
    status: Option<&ClusterMeshStatus>,
    reference: &MeshClusterRef,
) -> bool {
    let namespace = overlap::namespace(mesh);
    let joined = status.into_iter().flat_map(|status| &status.joined);
    let mut services = joined.filter(|joined| joined.services);
    services.any(|joined| joined.reference(&namespace).as_ref() == Some(reference))
}

/// The data planes of which clusters have, or may have, peers of the mesh.
pub(super) fn data_planes(
    mesh: &ClusterMesh,
    status: Option<&ClusterMeshStatus>,
) -> BTreeSet<DataPlane> {
    let before = status.into_iter().flat_map(|status| status.data_planes.iter().copied());
    mesh.spec.data_planes().into_iter().chain(before).collect()
}

/// Returns whether a participant is known to have no peers of a data plane. `is_clear` says so of those
/// whose peers are known.
pub(super) fn is_clear_of(
    clusters: &ObservedClusters,
    name: &str,
    participant: &Participant,
    plane: DataPlane,
    is_clear: impl Fn(&str, DataPlane) -> bool,
) -> bool {
    let observed = clusters.get(&participant.reference);
    let peers = observed.map(|it| &it.observation(plane).peers);
    let no_kind = matches!(peers, Some(Observed::Waiting(what)) if what == peer_crd_of(plane));
    is_clear(name, plane) || no_kind
}

/// Computes `status.joined`: the clusters that may have peers or imports of the mesh from now on.
/// `is_clear` says whether a participant is known to have no peers, and to get none; `has_imports`
/// whether a cluster may still have imports.
pub(super) fn joined(
    mesh: &ClusterMesh,
    status: Option<&ClusterMeshStatus>,
    clusters: &ObservedClusters,
    participants: &BTreeMap<String, Participant>,
    is_clear: impl Fn(&str, DataPlane) -> bool,
    has_imports: impl Fn(&MeshClusterRef) -> bool,
) -> Vec<JoinedCluster> {
    let has_imports = |reference: &MeshClusterRef| {
        joined_services(mesh, status, reference) && has_imports(reference)
    };
    let deleting = mesh.metadata.deletion_timestamp.is_some();
    let planes = data_planes(mesh, status);
    let has_peers = |name: &str, participant: &Participant, plane: DataPlane| {
        !is_clear_of(clusters, name, participant, plane, &is_clear)
    };
    let is_clear = |name: &str, participant: &Participant| {
        let mut planes = planes.iter();
        let has_peers = planes.any(|plane| has_peers(name, participant, *plane));
        !participant.ambiguous && !has_peers && !has_imports(&participant.reference)
    };
    let leaving = |name: &str, participant: &Participant, entry: JoinedCluster| {
        let plane = planes.iter().find(|plane| has_peers(name, participant, **plane));
        let plane = plane.copied().unwrap_or(mesh.spec.main_data_plane());
        let observed = clusters.get(&participant.reference);
        let peers = observed.map(|it| &it.observation(plane).peers);
        let lost = participant.lost.as_ref().map(|identity| {
            format!(
                "{} leads to another cluster now; peers of the mesh are left in the cluster whose \
                 namespace kube-system has the uid {identity}",
                participant.reference
            )
        });
        let why = match peers {
            _ if participant.ambiguous => {
                lost.unwrap_or_else(|| "it may be the cluster that has its name now".to_owned())
            }
            Some(Observed::Known(_)) if has_imports(&participant.reference) => {
                "waiting for its peers and its imported Services to be removed".to_owned()
            }
            Some(Observed::Known(_)) => "waiting for its peers to be removed".to_owned(),
            Some(Observed::Waiting(what)) => format!("waiting for {what}"),
            Some(Observed::Away(why)) => why.clone(),
            None => NOT_OBSERVED.to_owned(),
        };
        let services = has_imports(&participant.reference);
        JoinedCluster { leaving: Some(why), services, ..entry }
    };
    let mut joined = Vec::new();
    for cluster in &mesh.spec.clusters {
        let Some(participant) = participants.get(&cluster.name) else { continue };
        let mut entry = JoinedCluster::from(cluster);
        let now = clusters.get(&participant.reference).and_then(|it| it.identity.as_deref());
        let namespace = overlap::namespace(mesh);
        let mut recorded = status.into_iter().flat_map(|status| &status.joined);
        let recorded = recorded.find(|it| {
            it.reference(&namespace).as_ref() == Some(&participant.reference)
                && it.leaving.is_none()
        });
        entry.identity = match now {
            Some(now) => Some(now.to_owned()),
            None => recorded.and_then(|it| it.identity.clone()),
        };
        if !deleting {
            entry.services = mesh.spec.services || has_imports(&participant.reference);
            joined.push(entry);
        } else if is_joined(mesh, status, &participant.reference)
            && !forgotten(mesh).contains(cluster.name.as_str())
            && !is_clear(&cluster.name, participant)
        {
            joined.push(leaving(&cluster.name, participant, entry));
        }
    }
    for (name, participant) in participants {
        if let Some(entry) = &participant.left
            && !is_clear(name, participant)
        {
            joined.push(leaving(name, participant, entry.clone()));
        }
    }
    joined
}
