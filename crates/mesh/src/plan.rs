//! What must be written in each cluster so that the mesh is as its spec says.

use std::collections::BTreeMap;

use kube::ResourceExt;
use objects::kinds::{ClusterMesh, ClusterMeshStatus};
use serde_json::Value;

use crate::decide::{Decision, Write};
use crate::mesh_node::Skipped;
use crate::observation::Observation;
use crate::overlap::Overlap;
use crate::peer::Peer;
use crate::planner::Planner;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What to write, by cluster. A cluster whose peers are unknown is not in it.
    pub targets: BTreeMap<String, TargetPlan>,
    /// The nodes without a peer, by cluster.
    pub skipped: BTreeMap<String, Vec<Skipped>>,
    pub overlaps: Vec<Overlap>,
    /// Sentences about what is left out without stopping anything.
    pub notes: Vec<String>,
    pub status: ClusterMeshStatus,
}

impl Plan {
    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.targets.values().all(TargetPlan::is_empty)
    }
}

/// What to write in one cluster. Deletes come first, then updates, then creates, so that a peer gives an
/// address up before another peer takes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetPlan {
    pub deletes: Vec<String>,
    pub updates: Vec<Update>,
    pub creates: Vec<Peer>,
    pub conflicts: Vec<Conflict>,
}

/// A JSON merge patch of a peer that the mesh owns. A field that it does not name stays as it is, the
/// preshared key above all.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    pub name: String,
    /// The version of the peer that the patch was made for.
    pub version: Option<String>,
    pub patch: Value,
    /// Whether the peer gives up routes, which another peer may be about to take.
    pub releases_routes: bool,
}

/// A peer that is not written because a peer of somebody else has its public key. WireGuard identifies
/// peers by their key, so two peers with one key would undo each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub cluster: String,
    pub node: String,
    /// The name of the peer that has the key.
    pub holder: String,
    /// Whether `adopt` in the mesh's spec would resolve the conflict.
    pub adoptable: bool,
}

/// Plans a mesh from what is known of its clusters, by the mesh's names for them. A cluster of the mesh
/// that is not in `observations` is away; a cluster that is in them and not in the mesh is cleared of the
/// mesh's peers. `others` are the other meshes that there are.
pub fn plan(
    mesh: &ClusterMesh,
    others: &[ClusterMesh],
    observations: &BTreeMap<String, Observation>,
) -> Plan {
    let mut planner = Planner::new(mesh, others);
    for (cluster, observation) in observations {
        planner.observe(cluster, observation);
    }
    while planner.advance(usize::MAX) {}
    planner.plan(mesh.status.as_ref(), mesh.metadata.generation)
}

impl TargetPlan {
    pub fn is_empty(&self) -> bool {
        self.deletes.is_empty() && self.updates.is_empty() && self.creates.is_empty()
    }

    /// Collects what decisions say, in the order in which it is to be written.
    pub(crate) fn new<'d>(
        deletes: Vec<String>,
        decisions: impl IntoIterator<Item = &'d Decision>,
    ) -> Self {
        let mut plan = Self { deletes, ..Self::default() };
        for decision in decisions {
            match decision.write.as_deref() {
                Some(Write::Create(peer)) => plan.creates.push(peer.clone()),
                Some(Write::Update(update)) => plan.updates.push(update.clone()),
                None => {}
            }
            plan.conflicts.extend(decision.conflict.as_deref().cloned());
        }
        // A peer that gives routes up is written before a peer that takes them.
        plan.updates
            .sort_by(|a, b| (!a.releases_routes, &a.name).cmp(&(!b.releases_routes, &b.name)));
        plan.creates.sort_by_key(ResourceExt::name_any);
        plan
    }
}

#[cfg(test)]
mod tests;
