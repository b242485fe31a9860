//! Why the pods of one cluster cannot reach the pods of another, according to the mesh's status.
//!
//! A packet needs a peer at both ends: one in the cluster that sends it, with a route to its destination,
//! and one in the cluster that receives it, from which it may come.

use objects::kinds::{ClusterMesh, MeshClusterStatus, MeshState};
use serde::Serialize;

/// One reason why a cluster cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// One word for programs, part of the API.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// Whether the pods of one cluster reach the pods of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reachability {
    pub from: String,
    pub to: String,
    /// Why they do not, in the order in which to fix it. Empty if every node of both clusters has its
    /// peer in the other.
    pub reasons: Vec<Finding>,
}

impl Reachability {
    pub fn reaches(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// Checks whether the pods of one cluster reach the pods of another. The error says that one of them is
/// no cluster of the mesh, and which clusters are.
pub fn check(mesh: &ClusterMesh, from: &str, to: &str) -> Result<Reachability, String> {
    let known: Vec<&str> = mesh.spec.clusters.iter().map(|c| c.name.as_str()).collect();
    if let Some(unknown) = [from, to].iter().find(|name| !known.contains(name)) {
        return Err(format!("the mesh has no cluster {unknown}; it has {}", known.join(", ")));
    }
    let mut reasons = Vec::new();
    let mut found = |reason, message: String| reasons.push(Finding { reason, message });
    if mesh.metadata.deletion_timestamp.is_some() {
        found("MeshDeleting", "the mesh is being deleted, and its peers with it".to_owned());
    }
    let status = mesh.status.clone().unwrap_or_default();
    if status.observed_generation.is_none() {
        let message =
            "no controller has reconciled the mesh yet: none leads, or it has just started";
        found("NotObserved", message.to_owned());
    } else if status.observed_generation < mesh.metadata.generation {
        found(
            "Outdated",
            "the mesh was changed, and no controller has reconciled it since".to_owned(),
        );
    }
    let of = |name: &str| status.clusters.iter().find(|cluster| cluster.name == name);
    let ends: Vec<_> = [from, to].into_iter().filter_map(of).collect();
    // The reasons that stop a whole cluster come before those of its nodes.
    for cluster in &ends {
        let (name, why) = (&cluster.name, cluster.why.as_deref().unwrap_or_default());
        let since = cluster.since.as_deref().unwrap_or("an unknown time");
        match cluster.state {
            MeshState::Overlapping => found("NetworksOverlap", format!("{name}: {why}")),
            MeshState::Unreachable => found(
                "ClusterUnreachable",
                format!(
                    "{name} cannot be reached since {since}: {why}; its peers are as they were"
                ),
            ),
            MeshState::Waiting if cluster.skipped == 0 && cluster.missing_in.is_empty() => {
                found("ClusterWaiting", format!("{name}: {why}"));
            }
            MeshState::Waiting | MeshState::Converged => {}
        }
    }
    for cluster in &ends {
        for node in &cluster.skipped_nodes {
            let message =
                format!("{}/{}: {}: {}", cluster.name, node.name, node.reason, node.message);
            found("NodeSkipped", message);
        }
        let listed = cluster.skipped_nodes.len() as u32;
        if let Some(more @ 1..) = cluster.skipped.checked_sub(listed) {
            found("NodeSkipped", format!("{} more nodes of {}", more, cluster.name));
        }
    }
    if from != to {
        let missing = |source: &MeshClusterStatus, target: &str| {
            let missing = source.missing_in.iter().any(|name| name == target);
            missing.then(|| {
                let why = source.why.as_deref().unwrap_or("they are being written");
                let name = &source.name;
                format!("{target} does not have all peers of {name}: {why}")
            })
        };
        for (source, target) in [(to, from), (from, to)] {
            if let Some(message) = of(source).and_then(|source| missing(source, target)) {
                found("PeersMissing", message);
            }
        }
    }
    Ok(Reachability { from: from.to_owned(), to: to.to_owned(), reasons })
}

#[cfg(test)]
mod tests;
