//! The participants of a mesh: the clusters in its spec, and those that left it and may still have peers.

use std::collections::{BTreeMap, BTreeSet};

use objects::kinds::{ClusterMesh, ClusterMeshStatus, JoinedCluster, MeshClusterRef};

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
            let participant = Participant { reference, left: None, ambiguous: false };
            participants.insert(cluster.name.clone(), participant);
        }
    }
    let forgotten = forgotten(mesh);
    let identity = |reference: &MeshClusterRef| clusters.get(reference)?.identity.clone();
    let present: BTreeSet<_> = references.iter().filter_map(identity).collect();
    for joined in status.into_iter().flat_map(|status| &status.joined) {
        let Some(reference) = joined.reference(&namespace) else { continue };
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
        participants.insert(name, Participant { reference, left, ambiguous });
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

/// Computes `status.joined`: the clusters that may have peers of the mesh from now on. `is_clear` says
/// whether a participant is known to have none, and to get none.
pub(super) fn joined(
    mesh: &ClusterMesh,
    status: Option<&ClusterMeshStatus>,
    clusters: &ObservedClusters,
    participants: &BTreeMap<String, Participant>,
    is_clear: impl Fn(&str) -> bool,
) -> Vec<JoinedCluster> {
    let deleting = mesh.metadata.deletion_timestamp.is_some();
    let plane = mesh.spec.data_plane;
    let peers =
        |reference: &MeshClusterRef| clusters.get(reference).map(|c| &c.observation(plane).peers);
    let is_clear = |name: &str, participant: &Participant| {
        let peers = peers(&participant.reference);
        let no_kind = matches!(peers, Some(Observed::Waiting(what)) if what == peer_crd_of(plane));
        !participant.ambiguous && (is_clear(name) || no_kind)
    };
    let leaving = |participant: &Participant, entry: JoinedCluster| {
        let why = match peers(&participant.reference) {
            _ if participant.ambiguous => "it may be the cluster that has its name now".to_owned(),
            Some(Observed::Known(_)) => "waiting for its peers to be removed".to_owned(),
            Some(Observed::Waiting(what)) => format!("waiting for {what}"),
            Some(Observed::Away(why)) => why.clone(),
            None => NOT_OBSERVED.to_owned(),
        };
        JoinedCluster { leaving: Some(why), ..entry }
    };
    let mut joined = Vec::new();
    for cluster in &mesh.spec.clusters {
        let Some(participant) = participants.get(&cluster.name) else { continue };
        let entry = JoinedCluster::from(cluster);
        if !deleting {
            joined.push(entry);
        } else if is_joined(mesh, status, &participant.reference)
            && !forgotten(mesh).contains(cluster.name.as_str())
            && !is_clear(&cluster.name, participant)
        {
            joined.push(leaving(participant, entry));
        }
    }
    for (name, participant) in participants {
        if let Some(entry) = &participant.left
            && !is_clear(name, participant)
        {
            joined.push(leaving(participant, entry.clone()));
        }
    }
    joined
}
