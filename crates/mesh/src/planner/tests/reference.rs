//! A plan made from nothing, without the planner's indexes: the truth that the planner is compared with.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use objects::kinds::ClusterMesh;

use crate::context::MeshContext;
use crate::decide::{ClusterPair, Decision};
use crate::endpoint::DiscoveredEndpoints;
use crate::observation::Observation;
use crate::plan::{Plan, TargetPlan};
use crate::resolver::reference::resolve;
use crate::source::{Candidate, Candidates, CrossClusterIndex, PeeredNode, SourceCluster};
use crate::status::{ClusterSummary, status};
use crate::target_peers::TargetPeers;

pub(super) fn plan(
    mesh: &ClusterMesh,
    others: &[ClusterMesh],
    observations: &BTreeMap<String, Observation>,
) -> Plan {
    let plane = mesh.spec.data_plane;
    let context = MeshContext::new(mesh, others, plane, &BTreeMap::new());
    let sources = sources(&context, observations);
    // The first node by cluster and name owns a plain name while no peer of that name exists.
    let mut plain: HashMap<&str, (&str, &str)> = HashMap::new();
    for (cluster, source) in &sources {
        for (node, peered) in &source.peered {
            plain.entry(&peered.peer_names.plain).or_insert((cluster, node));
        }
    }
    let mut plan = Plan::default();
    let unobserved = Observation::default();
    let mut summaries: BTreeMap<&str, ClusterSummary<'_>> = BTreeMap::new();
    for cluster in &context.clusters {
        let name = cluster.name.as_str();
        let mut summary = ClusterSummary::new(observations.get(name).unwrap_or(&unobserved));
        summary.source = sources.get(name);
        summaries.insert(name, summary);
    }
    for (target, observation) in observations {
        let Some(peers) = observation.peers.known() else { continue };
        let nodes = observation.nodes.known();
        let discovered = nodes.map(|all| DiscoveredEndpoints::of(all.values().map(|n| &**n)));
        let peers = TargetPeers::new(&context, peers, discovered);
        let planned = target_plan(&context, &sources, &plain, target, &peers, &mut summaries);
        plan.targets.insert(target.clone(), planned);
    }
    for (target, planned) in &plan.targets {
        if let Some(summary) = summaries.get_mut(target.as_str()) {
            summary.has_writes = !planned.is_empty();
            summary.conflict = planned.conflicts.first();
        }
    }
    let status = status(&context, &summaries, mesh.status.as_ref(), mesh.metadata.generation);
    drop(summaries);
    plan.status = status;
    for (cluster, source) in sources {
        plan.notes.extend(source.notes().cloned());
        plan.skipped.insert(cluster.to_owned(), source.skipped.into_values().collect());
    }
    plan.overlaps = context.overlaps.into_iter().collect();
    plan
}

/// The clusters whose nodes are known and that do not overlap.
fn sources<'c>(
    context: &'c MeshContext,
    observations: &BTreeMap<String, Observation>,
) -> BTreeMap<&'c str, SourceCluster> {
    let mut all_clusters = CrossClusterIndex::default();
    let mut all: Vec<(Arc<str>, &str, Candidates)> = Vec::new();
    for cluster in &context.clusters {
        let nodes = observations.get(&cluster.name).and_then(|o| o.nodes.known());
        let Some(nodes) = nodes else { continue };
        let name: Arc<str> = cluster.name.as_str().into();
        let mut candidates = Candidates::new();
        for node in nodes.values() {
            let candidate = Candidate::read(context, cluster, node);
            candidates.insert(node.name_any().into(), candidate);
        }
        for (node, candidate) in &candidates {
            all_clusters.insert(&(Arc::clone(&name), Arc::clone(node)), candidate);
        }
        all.push((name, &cluster.name, candidates));
    }
    all.into_iter()
        .filter(|(name, ..)| !context.overlapping.contains(&**name))
        .map(|(_, name, candidates)| (name, resolve(context, name, &candidates, &all_clusters)))
        .collect()
}

fn target_plan<'c>(
    context: &MeshContext,
    sources: &BTreeMap<&'c str, SourceCluster>,
    plain: &HashMap<&str, (&str, &str)>,
    target: &str,
    peers: &TargetPeers,
    summaries: &mut BTreeMap<&'c str, ClusterSummary<'_>>,
) -> TargetPlan {
    let wanted = context.is_target(target);
    if wanted && context.overlapping.contains(target) {
        return TargetPlan::default();
    }
    let mut decisions: Vec<Decision> = Vec::new();
    if wanted {
        for (source, of) in sources.iter().filter(|(source, _)| **source != target) {
            let name_owner: &dyn Fn(&PeeredNode) -> _ = &|node| plain[&*node.peer_names.plain];
            let Some(routing) = context.routing(source, target) else { continue };
            let (cluster, nodes) = (of, of.nodes(false));
            let pair = ClusterPair { context, source, cluster, nodes, routing, peers, name_owner };
            let carrier = pair.best_carrier().map(|(_, node)| node);
            let (mut wanted, mut registered) = (0, 0);
            for (name, node) in nodes {
                let decision = pair.decide(node, carrier.as_ref() == Some(name));
                wanted += 1;
                registered += u32::from(decision.registered);
                decisions.push(decision);
            }
            if let Some(summary) = summaries.get_mut(source) {
                let uncarried = !of.residual.is_empty() && carrier.is_none();
                summary.add(target, wanted, registered, uncarried);
            }
        }
    }
    let kept: BTreeSet<&str> = decisions.iter().filter_map(|d| d.keeps.as_deref()).collect();
    let deletes = peers.owned().filter(|(name, source)| {
        // A node that is unknown is not gone.
        let unknown = wanted
            && ***source != *target
            && context.cluster(source).is_some()
            && !sources.contains_key(&***source);
        !unknown && !kept.contains(&***name)
    });
    TargetPlan::new(deletes.map(|(name, _)| name.to_string()).collect(), &decisions)
}
