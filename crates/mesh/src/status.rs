//! The status of a mesh as its planner sees it. It describes what is in the clusters, not what is about
//! to be written: a mesh is ready when nothing is left to write.

use std::collections::{BTreeMap, BTreeSet};

use objects::kinds::{
    ClusterMeshStatus, MOST_SKIPPED, MeshClusterStatus, MeshCondition, MeshState, SkippedNode,
};

use crate::context::MeshContext;
use crate::endpoint::WIREGUARD_ENDPOINT;
use crate::mesh_node::Skipped;
use crate::observation::{Observation, Observed};
use crate::pairs::Pair;
use crate::plan::Conflict;
use crate::planner::Planner;
use crate::source::SourceCluster;

/// How many entries a message lists; the clusters' own states have the rest.
const MAX_LISTED: usize = 10;

/// Says why a cluster waits of which everything is known.
pub(crate) const WAITING_FOR_WRITES: &str = "waiting for its peers to be written";

/// What the status of one cluster is computed from.
#[derive(Debug, Default)]
pub(crate) struct ClusterSummary<'a> {
    /// Why the cluster's nodes or its peers are unknown.
    unknown: Option<(MeshState, String)>,
    /// None if its nodes are unknown, and if it overlaps.
    pub(crate) source: Option<&'a SourceCluster>,
    /// Whether something is to be written in it.
    pub(crate) has_writes: bool,
    pub(crate) conflict: Option<&'a Conflict>,
    /// How many peers its nodes should have in the other clusters, and have.
    wanted: u32,
    registered: u32,
    /// Whether there is a cluster in which no node can carry its residual networks.
    uncarried: bool,
    missing_in: Vec<String>,
}

impl ClusterSummary<'_> {
    pub(crate) fn new(observation: &Observation) -> Self {
        let unknown = why_unknown(&observation.nodes).or_else(|| why_unknown(&observation.peers));
        Self { unknown, ..Self::default() }
    }

    /// Adds the peers of the cluster's nodes in one other cluster.
    pub(crate) fn add(&mut self, target: &str, wanted: u32, registered: u32, uncarried: bool) {
        self.wanted += wanted;
        self.registered += registered;
        self.uncarried |= uncarried;
        if registered < wanted || uncarried {
            self.missing_in.push(target.to_owned());
        }
    }
}

/// Computes the status. A state or a condition that is the same as in `before`, the status that was
/// written last, keeps its times.
pub(crate) fn status(
    context: &MeshContext,
    summaries: &BTreeMap<&str, ClusterSummary<'_>>,
    before: Option<&ClusterMeshStatus>,
    generation: Option<i64>,
) -> ClusterMeshStatus {
    let mut clusters = Vec::new();
    let mut passes = false;
    for entry in &context.clusters {
        let name = entry.name.as_str();
        let summary = &summaries[name];
        let (state, why, cluster_passes) = state(context, name, summary);
        passes |= cluster_passes;
        let earlier = before.and_then(|before| before.clusters.iter().find(|c| c.name == name));
        let skipped = || summary.source.into_iter().flat_map(|source| source.skipped.values());
        let listed = skipped().take(MOST_SKIPPED).map(|skipped| SkippedNode {
            name: skipped.node.clone(),
            reason: skipped.reason.to_string(),
            message: skipped.message.clone(),
        });
        clusters.push(MeshClusterStatus {
            name: name.to_owned(),
            state,
            why,
            // The controller, which has a clock, fills in the time of a new state.
            since: earlier.filter(|earlier| earlier.state == state).and_then(|e| e.since.clone()),
            last_success: earlier.and_then(|earlier| earlier.last_success.clone()),
            wanted_peers: summary.wanted,
            registered_peers: summary.registered,
            missing_in: summary.missing_in.clone(),
            skipped: skipped().count() as u32,
            skipped_nodes: listed.collect(),
        });
    }
    let conditions = conditions(context, &clusters, passes).into();
    let joined = before.map(|before| before.joined.clone()).unwrap_or_default();
    let mut status = ClusterMeshStatus {
        observed_generation: generation,
        clusters,
        joined,
        data_planes: before.map(|before| before.data_planes.clone()).unwrap_or_default(),
        conditions,
    };
    keep_transition_times(&mut status, before);
    status
}

/// Puts the statuses of the plans of two data planes together. `moves` says what is going on between pairs
/// of clusters.
pub(crate) fn merged(
    kilo: &Planner,
    wireguard: &Planner,
    moves: &BTreeMap<Pair, String>,
    before: Option<&ClusterMeshStatus>,
    generation: Option<i64>,
) -> ClusterMeshStatus {
    let mut status = kilo.status(before, generation);
    let ours = wireguard.status(before, generation);
    let is_progressing = |status: &ClusterMeshStatus| {
        find_condition(Some(status), "Progressing").is_some_and(|it| it.status == "True")
    };
    let mut passes = is_progressing(&status) || is_progressing(&ours) || !moves.is_empty();
    for (cluster, ours) in status.clusters.iter_mut().zip(ours.clusters) {
        let name = cluster.name.clone();
        let earlier = before.and_then(|before| before.clusters.iter().find(|it| it.name == name));
        let has = |planner: &Planner| {
            let others = planner.context().clusters.iter().filter(|other| other.name != name);
            others.into_iter().any(|it| planner.context().routing(&name, &it.name).is_some())
        };
        let (has_kilo, has_ours) = (has(kilo), has(wireguard));
        if !has_kilo && has_ours {
            *cluster = ours;
        } else if has_ours {
            cluster.wanted_peers += ours.wanted_peers;
            cluster.registered_peers += ours.registered_peers;
            let missing: BTreeSet<String> =
                cluster.missing_in.drain(..).chain(ours.missing_in).collect();
            cluster.missing_in = missing.into_iter().collect();
            if cluster.skipped == 0 {
                (cluster.skipped, cluster.skipped_nodes) = (ours.skipped, ours.skipped_nodes);
            }
            if cluster.state == MeshState::Converged {
                (cluster.state, cluster.why) = (ours.state, ours.why);
            }
        }
        let moving = moves.iter().find(|((a, b), _)| *a == name || *b == name);
        if let Some((_, what)) = moving {
            passes = true;
            if cluster.state == MeshState::Converged {
                cluster.state = MeshState::Waiting;
            }
            if cluster.state == MeshState::Waiting {
                let why = cluster.why.take().map(|why| format!("; {why}")).unwrap_or_default();
                cluster.why = Some(format!("{what}{why}"));
            }
        }
        let same = earlier.filter(|earlier| earlier.state == cluster.state);
        cluster.since = same.and_then(|earlier| earlier.since.clone());
    }
    status.conditions = conditions(kilo.context(), &status.clusters, passes).into();
    keep_transition_times(&mut status, before);
    status
}

/// The condition of a mesh that joins Services, from what is wrong with them in each cluster.
pub(crate) fn services_condition(problems: Option<&BTreeMap<String, String>>) -> MeshCondition {
    let of = |(cluster, why): (&String, &String)| format!("{cluster}: {why}");
    let problems: Vec<String> = problems.into_iter().flatten().map(of).collect();
    let (status, reason, message) = match problems.is_empty() {
        true => ("True", "Joined", "exported Services are reached from every cluster".to_owned()),
        false => ("False", "Problem", abridge(&problems, "; ")),
    };
    MeshCondition {
        r#type: "Services".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: None,
    }
}

/// Sets the time of each condition that has the same status as in `before`; the others have none.
pub(crate) fn keep_transition_times(
    status: &mut ClusterMeshStatus,
    before: Option<&ClusterMeshStatus>,
) {
    for condition in &mut status.conditions {
        let same = find_condition(before, &condition.r#type);
        let same = same.filter(|earlier| earlier.status == condition.status);
        condition.last_transition_time = same.and_then(|same| same.last_transition_time.clone());
    }
}

pub(crate) fn find_condition<'a>(
    status: Option<&'a ClusterMeshStatus>,
    kind: &str,
) -> Option<&'a MeshCondition> {
    status?.conditions.iter().find(|condition| condition.r#type == kind)
}

/// Returns a cluster's state, why it is in that state, and whether the state passes by itself.
fn state(
    context: &MeshContext,
    name: &str,
    summary: &ClusterSummary<'_>,
) -> (MeshState, Option<String>, bool) {
    let waiting = |why: String, passes| (MeshState::Waiting, Some(why), passes);
    let overlaps = context.overlaps.iter().filter(|overlap| overlap.cluster == name);
    let overlaps: Vec<String> = overlaps.map(ToString::to_string).collect();
    if !overlaps.is_empty() {
        return (MeshState::Overlapping, Some(abridge(&overlaps, "; ")), false);
    }
    if let Some((state, why)) = &summary.unknown {
        return (*state, Some(why.clone()), true);
    }
    if context.deleting {
        let why = "waiting for its peers of this mesh to be removed".to_owned();
        return match summary.has_writes {
            true => waiting(why, true),
            false => (MeshState::Converged, None, false),
        };
    }
    // One with gateways alone may have nodes and no gateway.
    let has_nodes = |source: &&SourceCluster| {
        !(source.peered.is_empty() && source.skipped.is_empty() && source.inside.is_empty())
    };
    let Some(source) = summary.source.filter(has_nodes) else {
        return waiting("waiting for nodes".to_owned(), true);
    };
    let (transient, permanent): (Vec<_>, Vec<_>) =
        source.skipped.values().partition(|skipped| skipped.reason.is_transient());
    if !permanent.is_empty() {
        return waiting(format!("skipped {}", describe(&permanent)), false);
    }
    if let Some(conflict) = &summary.conflict {
        let hint = if conflict.adoptable { "; it can be adopted" } else { "" };
        let why = format!(
            "its peer {} has the public key of {}/{}{hint}",
            conflict.holder, conflict.cluster, conflict.node
        );
        return waiting(why, false);
    }
    if !transient.is_empty() {
        return waiting(format!("waiting for {}", describe(&transient)), true);
    }
    if source.missing_gateways > 0 {
        let (missing, wanted) = (source.missing_gateways, context.gateways(name));
        let why = format!(
            "waiting for {missing} of {wanted} gateways: a gateway is a node with an endpoint (annotation \
             {WIREGUARD_ENDPOINT}, or an external address)"
        );
        return waiting(why, true);
    }
    if summary.uncarried {
        let networks = abridge(&source.residual, ", ");
        return waiting(format!("waiting for a node with an endpoint to carry {networks}"), true);
    }
    if summary.has_writes || summary.registered < summary.wanted {
        return waiting(WAITING_FOR_WRITES.to_owned(), true);
    }
    (MeshState::Converged, None, false)
}

fn describe(skipped: &[&Skipped]) -> String {
    let one = |s: &&Skipped| format!("node {} ({}: {})", s.node, s.reason, s.message);
    abridge(&skipped.iter().map(one).collect::<Vec<_>>(), "; ")
}

fn why_unknown<T>(observed: &Observed<T>) -> Option<(MeshState, String)> {
    match observed {
        Observed::Known(_) => None,
        Observed::Waiting(what) => Some((MeshState::Waiting, format!("waiting for {what}"))),
        Observed::Away(why) => Some((MeshState::Unreachable, why.clone())),
    }
}

fn conditions(
    context: &MeshContext,
    clusters: &[MeshClusterStatus],
    passes: bool,
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
    let overlaps: Vec<String> = context.overlaps.iter().map(ToString::to_string).collect();
    let overlapping = !overlaps.is_empty();
    let ready = open.is_empty() && !context.deleting;
    let reason = match () {
        () if context.deleting => "Deleting",
        () if ready => "Converged",
        () if overlapping => "NetworksOverlap",
        () if passes => "Waiting",
        () => "NeedsAttention",
    };
    let all = if ready {
        "every node has its peer in every other cluster".to_owned()
    } else {
        abridge(&open, "; ")
    };
    let overlaps =
        if overlapping { abridge(&overlaps, "; ") } else { "no networks overlap".to_owned() };
    let (progress, moving) = match () {
        () if passes => ("Waiting", "what is missing comes by itself".to_owned()),
        () if ready => ("Converged", "there is nothing to do".to_owned()),
        () => ("NeedsAttention", "nothing more happens until somebody acts".to_owned()),
    };
    [
        condition("Ready", ready, reason, all),
        condition("Progressing", passes, progress, moving),
        condition(
            "NetworksOverlap",
            overlapping,
            if overlapping { "Overlap" } else { "None" },
            overlaps,
        ),
    ]
}

/// Joins the first entries and says how many more there are, so that a status stays small.
fn abridge(all: &[String], between: &str) -> String {
    let mut text = all[..all.len().min(MAX_LISTED)].join(between);
    // Ten entries with long names are still too long.
    if let Some((end, _)) = text.char_indices().nth(3000) {
        text.truncate(end);
        text.push('…');
    }
    match all.len().checked_sub(MAX_LISTED) {
        Some(more @ 1..) => format!("{text} and {more} more"),
        _ => text,
    }
}
