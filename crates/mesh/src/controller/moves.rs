//! Looks at the pairs of clusters of a mesh whose peers may be of two data planes: which state each is in,
//! and what it waits for.

use std::collections::BTreeMap;

use objects::kinds::{ClusterMesh, DataPlane, WireguardMove};

use super::observed_clusters::ObservedClusters;
use super::participants::Participant;
use crate::overlap;
use crate::pairs::{Pair, PairFacts, Pairs, next, pair, wanted};
use crate::planner::Planner;
use kube::ResourceExt;

/// The planners of a mesh, one for each data plane that its clusters have or may have peers of.
pub(super) type Planners = BTreeMap<DataPlane, Planner>;

/// The states of all pairs, and a sentence for each that moves. Both are empty while there is one data
/// plane alone.
pub(super) fn look(
    mesh: &ClusterMesh,
    planners: &Planners,
    clusters: &ObservedClusters,
    participants: &BTreeMap<String, Participant>,
) -> (Pairs, BTreeMap<Pair, String>) {
    let (mut pairs, mut moves) = (Pairs::new(), BTreeMap::new());
    let (Some(kilo), Some(wireguard)) =
        (planners.get(&DataPlane::Kilo), planners.get(&DataPlane::Wireguard))
    else {
        return (pairs, moves);
    };
    let names: Vec<&String> = mesh.spec.clusters.iter().map(|cluster| &cluster.name).collect();
    for (i, one) in names.iter().enumerate() {
        for another in &names[i + 1..] {
            let pair = pair(one, another);
            let both = [(&pair.0, &pair.1), (&pair.1, &pair.0)];
            // What is unknown may be there.
            let has = |planner: &Planner| {
                let mut both = both.iter();
                both.any(|(source, target)| planner.peers_of(source, target) != Some(0))
            };
            let facts = PairFacts {
                has_kilo: has(kilo),
                has_wireguard: has(wireguard),
                kilo_complete: both.iter().all(|(of, target)| kilo.is_complete(of, target)),
                not_taken_over: both.iter().find_map(|(source, target)| {
                    if !wireguard.is_complete(source, target) {
                        return Some(format!("{target} does not have all peers of {source} yet"));
                    }
                    let count = |it: &WireguardMove| it.taken_over;
                    lagging(mesh, wireguard, clusters, participants, source, target, count)
                }),
                not_standing_by: both.iter().find_map(|(source, target)| {
                    let count = |it: &WireguardMove| it.standing_by;
                    lagging(mesh, wireguard, clusters, participants, source, target, count)
                }),
            };
            let state = next(wanted(&mesh.spec, &pair), &facts);
            let what = state.describe(&pair, &facts);
            moves.extend(what.map(|what| (pair.clone(), what)));
            pairs.insert(pair, state);
        }
    }
    (pairs, moves)
}

/// Names a node of a cluster that has not come as far as it should with the peers of another cluster's
/// nodes.
fn lagging(
    mesh: &ClusterMesh,
    planner: &Planner,
    clusters: &ObservedClusters,
    participants: &BTreeMap<String, Participant>,
    source: &str,
    target: &str,
    count: impl Fn(&WireguardMove) -> u32,
) -> Option<String> {
    let Some(expected) = planner.peers_of(source, target) else {
        return Some(format!("{target} is not known"));
    };
    let observed = participants.get(target).and_then(|it| clusters.get(&it.reference));
    let nodes = observed.and_then(|it| it.wireguard_nodes.known());
    let (Some(nodes), Some(of)) = (nodes, planner.source(target)) else {
        return (expected > 0).then(|| format!("the nodes of {target} are not known"));
    };
    let id = format!("{}/{}", overlap::namespace(mesh), mesh.name_any());
    let has_come = |node: &str| {
        let status = nodes.get(node).and_then(|it| it.status.as_ref());
        let mut moves = status.into_iter().flat_map(|status| &status.moves);
        let own = moves.find(|it| it.mesh == id && it.cluster == source);
        own.map_or(0, &count) as usize >= expected
    };
    let late = of.peered.keys().find(|node| !has_come(node))?;
    Some(format!("{target}/{late} has not for {source}"))
}
