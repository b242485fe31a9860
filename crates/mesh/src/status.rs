//! What a plan says of its mesh. It is about what is there, not about what is about to be written:
//! a mesh is ready when there was nothing left to write.

use std::collections::BTreeMap;

use objects::kinds::{
    ClusterMeshStatus, MOST_SKIPPED, MeshClusterStatus, MeshCondition, MeshState, SkippedNode,
};

use crate::plan::{Mesh, Seen, Tally, TargetPlan};

/// A bound on what a condition lists; the clusters' own states have the rest.
const MOST_SAID: usize = 10;

pub(crate) fn status(
    mesh: &Mesh<'_>,
    targets: &BTreeMap<String, TargetPlan>,
    tallies: &BTreeMap<(&str, &str), Tally>,
) -> ClusterMeshStatus {
    let before = mesh.input.mesh.status.as_ref();
    let mut clusters = Vec::new();
    let mut by_itself = false;
    for entry in &mesh.input.mesh.spec.clusters {
        let name = entry.name.as_str();
        let (state, why, comes) = state(mesh, name, targets, tallies);
        by_itself |= comes;
        let earlier = before.and_then(|before| before.clusters.iter().find(|c| c.name == name));
        let of_name = || tallies.iter().filter(|((source, _), _)| *source == name);
        let skipped = mesh.sources.get(name).map_or(&[][..], |source| &source.skipped);
        let listed = skipped.iter().take(MOST_SKIPPED).map(|skipped| SkippedNode {
            name: skipped.node.clone(),
            reason: skipped.reason.to_string(),
            message: skipped.message.clone(),
        });
        clusters.push(MeshClusterStatus {
            name: name.to_owned(),
            state,
            why,
            // When it began is for whoever has a clock.
            since: earlier.filter(|earlier| earlier.state == state).and_then(|e| e.since.clone()),
            last_success: earlier.and_then(|earlier| earlier.last_success.clone()),
            wanted_peers: of_name().map(|(_, tally)| tally.wanted).sum(),
            registered_peers: of_name().map(|(_, tally)| tally.registered).sum(),
            skipped: skipped.len() as u32,
            skipped_nodes: listed.collect(),
        });
    }
    let conditions = conditions(mesh, &clusters, by_itself)
        .map(|mut condition| {
            let earlier = before.and_then(|before| {
                before.conditions.iter().find(|earlier| earlier.r#type == condition.r#type)
            });
            let same = earlier.filter(|earlier| earlier.status == condition.status);
            condition.last_transition_time =
                same.and_then(|earlier| earlier.last_transition_time.clone());
            condition
        })
        .into();
    let observed_generation = mesh.input.mesh.metadata.generation;
    ClusterMeshStatus { observed_generation, clusters, conditions }
}

/// A cluster's state, why, and whether it passes by itself.
fn state(
    mesh: &Mesh<'_>,
    name: &str,
    targets: &BTreeMap<String, TargetPlan>,
    tallies: &BTreeMap<(&str, &str), Tally>,
) -> (MeshState, Option<String>, bool) {
    let waiting = |why: String, by_itself| (MeshState::Waiting, Some(why), by_itself);
    let overlaps: Vec<String> = mesh
        .overlaps
        .iter()
        .filter(|overlap| overlap.cluster == name)
        .map(ToString::to_string)
        .collect();
    if !overlaps.is_empty() {
        return (MeshState::Overlapping, Some(some_of(&overlaps, "; ")), false);
    }
    let Some(view) = mesh.input.views.get(name) else {
        return (MeshState::Unreachable, Some("nothing is known of it".to_owned()), true);
    };
    let (nodes, peers) = (unseen(&view.nodes), unseen(&view.peers));
    if let Some((state, why)) = nodes.or(peers) {
        return (state, Some(why), true);
    }
    let there = targets.get(name);
    if mesh.going {
        let left = there.is_some_and(|plan| !plan.is_empty());
        let why = "waiting for its peers of this mesh to be removed".to_owned();
        return if left { waiting(why, true) } else { (MeshState::Converged, None, false) };
    }
    let source = &mesh.sources[name];
    if source.peered.is_empty() && source.skipped.is_empty() {
        return waiting("waiting for nodes".to_owned(), true);
    }
    let permanent: Vec<String> =
        source.skipped.iter().filter(|s| !s.reason.is_transient()).map(told).collect();
    let transient: Vec<String> =
        source.skipped.iter().filter(|s| s.reason.is_transient()).map(told).collect();
    let mine = || tallies.iter().filter(|((of, _), _)| *of == name);
    if !permanent.is_empty() {
        return waiting(format!("skipped {}", some_of(&permanent, "; ")), false);
    }
    if let Some(conflict) = there.and_then(|plan| plan.conflicts.first()) {
        let hint = if conflict.adoptable { "; it can be adopted" } else { "" };
        let why = format!(
            "its peer {} has the public key of {}/{}{hint}",
            conflict.holder, conflict.cluster, conflict.node
        );
        return waiting(why, false);
    }
    if !transient.is_empty() {
        return waiting(format!("waiting for {}", some_of(&transient, "; ")), true);
    }
    if mine().any(|(_, tally)| tally.uncarried) {
        let networks: Vec<String> = source.residual.iter().map(ToString::to_string).collect();
        let networks = some_of(&networks, ", ");
        return waiting(format!("waiting for a node with an endpoint to carry {networks}"), true);
    }
    let to_write = there.is_some_and(|plan| !plan.is_empty())
        || mine().any(|(_, tally)| tally.registered < tally.wanted);
    if to_write {
        return waiting("waiting for its peers to be written".to_owned(), true);
    }
    (MeshState::Converged, None, false)
}

fn told(skipped: &crate::Skipped) -> String {
    format!("node {} ({}: {})", skipped.node, skipped.reason, skipped.message)
}

fn unseen<T>(seen: &Seen<T>) -> Option<(MeshState, String)> {
    match seen {
        Seen::Known(_) => None,
        Seen::Waiting(what) => Some((MeshState::Waiting, format!("waiting for {what}"))),
        Seen::Away(why) => Some((MeshState::Unreachable, why.clone())),
    }
}

fn conditions(
    mesh: &Mesh<'_>,
    clusters: &[MeshClusterStatus],
    by_itself: bool,
) -> [MeshCondition; 3] {
    let condition = |kind: &str, holds: bool, reason: &str, message: String| MeshCondition {
        r#type: kind.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: None,
    };
    let open: Vec<String> = clusters
        .iter()
        .filter(|cluster| cluster.state != MeshState::Converged)
        .map(|cluster| format!("{}: {}", cluster.name, cluster.why.as_deref().unwrap_or_default()))
        .collect();
    let overlaps: Vec<String> = mesh.overlaps.iter().map(ToString::to_string).collect();
    let overlapping = !overlaps.is_empty();
    let ready = open.is_empty() && !mesh.going;
    let reason = match () {
        () if mesh.going => "Deleting",
        () if ready => "Converged",
        () if overlapping => "NetworksOverlap",
        () if by_itself => "Waiting",
        () => "NeedsAttention",
    };
    let all = if ready {
        "every node has its peer in every other cluster".to_owned()
    } else {
        some_of(&open, "; ")
    };
    let overlaps =
        if overlapping { some_of(&overlaps, "; ") } else { "no networks overlap".to_owned() };
    let (progress, moving) = match () {
        () if by_itself => ("Waiting", "what is missing comes by itself".to_owned()),
        () if ready => ("Converged", "there is nothing to do".to_owned()),
        () => ("NeedsAttention", "nothing more happens until somebody acts".to_owned()),
    };
    [
        condition("Ready", ready, reason, all),
        condition("Progressing", by_itself, progress, moving),
        condition(
            "NetworksOverlap",
            overlapping,
            if overlapping { "Overlap" } else { "None" },
            overlaps,
        ),
    ]
}

/// At most a few, so that a status stays small; then how many more.
fn some_of(all: &[String], between: &str) -> String {
    let mut text = all[..all.len().min(MOST_SAID)].join(between);
    // Long names add up.
    if let Some((end, _)) = text.char_indices().nth(3000) {
        text.truncate(end);
        text.push('…');
    }
    match all.len().checked_sub(MOST_SAID) {
        Some(more @ 1..) => format!("{text} and {more} more"),
        _ => text,
    }
}
