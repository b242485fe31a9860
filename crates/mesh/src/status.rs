//! What a plan says of its mesh. It is about what is there, not about what is about to be written:
//! a mesh is ready when there was nothing left to write.

use std::collections::BTreeMap;

use objects::kinds::{
    ClusterMeshStatus, MOST_SKIPPED, MeshClusterStatus, MeshCondition, MeshState, SkippedNode,
};

use crate::frame::Frame;
use crate::plan::{Conflict, Seen};
use crate::source::Source;

/// A bound on what a condition lists; the clusters' own states have the rest.
const MOST_SAID: usize = 10;

/// Why a cluster waits for which all is known.
pub(crate) const TO_WRITE: &str = "waiting for its peers to be written";

/// How it stands with one cluster of the mesh.
#[derive(Debug, Default)]
pub(crate) struct Account<'a> {
    /// Why its nodes or its peers are not known.
    pub(crate) unseen: Option<(MeshState, String)>,
    /// None: its nodes are not known, or it overlaps.
    pub(crate) source: Option<&'a Source>,
    /// Whether something is to be written to it.
    pub(crate) to_write: bool,
    pub(crate) conflict: Option<Conflict>,
    /// Of the peers of its nodes in all others.
    pub(crate) wanted: u32,
    pub(crate) registered: u32,
    /// Networks that no node can carry somewhere.
    pub(crate) uncarried: bool,
    pub(crate) missing_in: Vec<String>,
}

impl Account<'_> {
    /// How the peers of its nodes stand in one target.
    pub(crate) fn add(&mut self, target: &str, wanted: u32, registered: u32, uncarried: bool) {
        self.wanted += wanted;
        self.registered += registered;
        self.uncarried |= uncarried;
        if registered < wanted || uncarried {
            self.missing_in.push(target.to_owned());
        }
    }
}

/// `before` is what was said last: what has not changed has been so since then.
pub(crate) fn status(
    frame: &Frame,
    accounts: &BTreeMap<&str, Account<'_>>,
    before: Option<&ClusterMeshStatus>,
    generation: Option<i64>,
) -> ClusterMeshStatus {
    let mut clusters = Vec::new();
    let mut by_itself = false;
    for entry in &frame.clusters {
        let name = entry.name.as_str();
        let account = &accounts[name];
        let (state, why, comes) = state(frame, name, account);
        by_itself |= comes;
        let earlier = before.and_then(|before| before.clusters.iter().find(|c| c.name == name));
        let skipped = account.source.map_or(&[][..], |source| &source.skipped);
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
            wanted_peers: account.wanted,
            registered_peers: account.registered,
            missing_in: account.missing_in.clone(),
            skipped: skipped.len() as u32,
            skipped_nodes: listed.collect(),
        });
    }
    let conditions = conditions(frame, &clusters, by_itself)
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
    let joined = before.map(|before| before.joined.clone()).unwrap_or_default();
    ClusterMeshStatus { observed_generation: generation, clusters, joined, conditions }
}

/// A cluster's state, why, and whether it passes by itself.
fn state(frame: &Frame, name: &str, account: &Account<'_>) -> (MeshState, Option<String>, bool) {
    let waiting = |why: String, by_itself| (MeshState::Waiting, Some(why), by_itself);
    let overlaps: Vec<String> = frame
        .overlaps
        .iter()
        .filter(|overlap| overlap.cluster == name)
        .map(ToString::to_string)
        .collect();
    if !overlaps.is_empty() {
        return (MeshState::Overlapping, Some(some_of(&overlaps, "; ")), false);
    }
    if let Some((state, why)) = &account.unseen {
        return (*state, Some(why.clone()), true);
    }
    if frame.going {
        let why = "waiting for its peers of this mesh to be removed".to_owned();
        return match account.to_write {
            true => waiting(why, true),
            false => (MeshState::Converged, None, false),
        };
    }
    let Some(source) = account.source.filter(|s| !s.peered.is_empty() || !s.skipped.is_empty())
    else {
        return waiting("waiting for nodes".to_owned(), true);
    };
    let permanent: Vec<String> =
        source.skipped.iter().filter(|s| !s.reason.is_transient()).map(told).collect();
    let transient: Vec<String> =
        source.skipped.iter().filter(|s| s.reason.is_transient()).map(told).collect();
    if !permanent.is_empty() {
        return waiting(format!("skipped {}", some_of(&permanent, "; ")), false);
    }
    if let Some(conflict) = &account.conflict {
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
    if account.uncarried {
        let networks = some_of(&source.residual, ", ");
        return waiting(format!("waiting for a node with an endpoint to carry {networks}"), true);
    }
    if account.to_write || account.registered < account.wanted {
        return waiting(TO_WRITE.to_owned(), true);
    }
    (MeshState::Converged, None, false)
}

fn told(skipped: &crate::Skipped) -> String {
    format!("node {} ({}: {})", skipped.node, skipped.reason, skipped.message)
}

/// Of nodes and peers: what is not known, and why; `seen` is none where nobody looked.
pub(crate) fn unseen(seen: Option<(Seen<()>, Seen<()>)>) -> Option<(MeshState, String)> {
    let Some((nodes, peers)) = seen else {
        return Some((MeshState::Unreachable, "nothing is known of it".to_owned()));
    };
    let why = |seen| match seen {
        Seen::Known(()) => None,
        Seen::Waiting(what) => Some((MeshState::Waiting, format!("waiting for {what}"))),
        Seen::Away(why) => Some((MeshState::Unreachable, why)),
    };
    why(nodes).or_else(|| why(peers))
}

fn conditions(
    frame: &Frame,
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
    let overlaps: Vec<String> = frame.overlaps.iter().map(ToString::to_string).collect();
    let overlapping = !overlaps.is_empty();
    let ready = open.is_empty() && !frame.going;
    let reason = match () {
        () if frame.going => "Deleting",
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
