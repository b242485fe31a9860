//! Why can the pods of one cluster not reach those of another? From what the mesh's status says, the
//! first thing to mend first.
//!
//! A packet needs both ends: where it comes from there must be a peer with the way to go, and where it
//! arrives one that it may come from.

use objects::kinds::{ClusterMesh, MeshClusterStatus, MeshState};
use serde::Serialize;

/// One reason, for programs and for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// One word: a contract.
    pub reason: &'static str,
    pub message: String,
}

/// None found: every node of either has its peer in the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub from: String,
    pub to: String,
    /// In the order in which they are to be mended.
    pub reasons: Vec<Finding>,
}

impl Check {
    pub fn reaches(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// `Err`: one of them is no cluster of the mesh; the sentence says which there are.
pub fn check(mesh: &ClusterMesh, from: &str, to: &str) -> Result<Check, String> {
    let known: Vec<&str> = mesh.spec.clusters.iter().map(|c| c.name.as_str()).collect();
    if let Some(stranger) = [from, to].iter().find(|name| !known.contains(name)) {
        return Err(format!("the mesh has no cluster {stranger}; it has {}", known.join(", ")));
    }
    let mut reasons = Vec::new();
    let mut found = |reason, message: String| reasons.push(Finding { reason, message });
    if mesh.metadata.deletion_timestamp.is_some() {
        found("MeshDeleting", "the mesh is being deleted, and its peers with it".to_owned());
    }
    let status = mesh.status.clone().unwrap_or_default();
    if status.observed_generation.is_none() {
        let message =
            "nobody has looked at the mesh yet: no controller leads, or it has just begun";
        found("NotObserved", message.to_owned());
    } else if status.observed_generation < mesh.metadata.generation {
        found("Outdated", "the mesh was changed, and nobody has looked at it since".to_owned());
    }
    let of = |name: &str| status.clusters.iter().find(|cluster| cluster.name == name);
    let ends: Vec<_> = [from, to].into_iter().filter_map(of).collect();
    // What stops a whole cluster, before what is wrong with its nodes.
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
    Ok(Check { from: from.to_owned(), to: to.to_owned(), reasons })
}

#[cfg(test)]
mod tests;
