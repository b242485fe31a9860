//! What the planner says of its clusters: what is to be written, and the mesh's status.

use std::collections::BTreeMap;
use std::sync::Arc;

use objects::kinds::ClusterMeshStatus;

use super::Planner;
use crate::context::{EXTERNAL, MeshContext};
use crate::decide::Decision;
use crate::observation::Observation;
use crate::plan::{Plan, TargetPlan};
use crate::source::{NodeRef, SourceCluster};
use crate::status::{ClusterSummary, status};

impl Planner {
    /// The clusters in which something is to be written.
    pub fn targets_to_write(&self) -> impl Iterator<Item = &str> {
        let due = self.clusters.iter().filter(|(_, cluster)| cluster.has_writes());
        due.map(|(name, _)| &**name)
    }

    /// What is to be written in one cluster. None while the cluster's peers are unknown.
    pub fn target_plan(&self, cluster: &str) -> Option<TargetPlan> {
        let (target, cluster) = self.clusters.get_key_value(cluster)?;
        cluster.peers.as_ref()?;
        let decide = |(source, name): &NodeRef| {
            let is_carrier = self.carrier(target, source).is_some_and(|(_, it)| it == name);
            let decided = self.with_pair(target, source, |pair| {
                Some(pair.decide(pair.nodes.get(name)?, is_carrier))
            });
            decided.flatten()
        };
        let decisions: Vec<Decision> = cluster.pending().filter_map(decide).collect();
        let deletes = cluster.to_delete.iter().map(ToString::to_string).collect();
        Some(TargetPlan::new(deletes, &decisions))
    }

    /// Returns whether a cluster is known to have no peer of the mesh.
    pub fn is_clear(&self, cluster: &str) -> bool {
        let peers = self.clusters.get(cluster).and_then(|cluster| cluster.peers.as_ref());
        peers.is_some_and(|peers| peers.owned().len() == 0)
    }

    /// How many peers of a cluster's nodes another cluster has; none while that is unknown.
    pub(crate) fn peers_of(&self, source: &str, target: &str) -> Option<usize> {
        let peers = self.clusters.get(target)?.peers.as_ref()?;
        Some(peers.owned().filter(|(_, of)| ***of == *source).count())
    }

    /// Returns whether every node of a cluster has its peer in another, exactly as planned.
    pub(crate) fn is_complete(&self, source: &str, target: &str) -> bool {
        let (Some(of), Some(there)) = (self.source(source), self.clusters.get(target)) else {
            return false;
        };
        let registered = there.sources.get(source).map_or(0, |peers| peers.registered);
        let carrier = self.carrier(target, source);
        let carried = of.residual.is_empty() || carrier.is_some();
        let all = registered as usize == of.peered.len();
        all && carried && of.skipped.is_empty() && !of.peered.is_empty() && there.peers.is_some()
    }

    pub(crate) fn context(&self) -> &MeshContext {
        &self.context
    }

    /// Returns the mesh's status. `before` is the status that was written last.
    pub fn status(
        &self,
        before: Option<&ClusterMeshStatus>,
        generation: Option<i64>,
    ) -> ClusterMeshStatus {
        let unobserved = Observation::default();
        let mut summaries = BTreeMap::new();
        for entry in &self.context.clusters {
            let name = entry.name.as_str();
            let cluster = self.clusters.get(name);
            let observation = cluster.map_or(&unobserved, |cluster| &cluster.observation);
            let mut summary = ClusterSummary::new(observation);
            if let Some(cluster) = cluster {
                summary.source = cluster.source.as_ref();
                summary.has_writes = cluster.has_writes();
                summary.conflict = cluster.conflict();
            }
            if let Some(source) = summary.source {
                self.count_peers(name, source, &mut summary);
            }
            summaries.insert(name, summary);
        }
        status(&self.context, &summaries, before, generation)
    }

    fn count_peers(&self, source: &str, of: &SourceCluster, summary: &mut ClusterSummary<'_>) {
        for (target, cluster) in &self.clusters {
            let is_peer = self.context.routing(source, target).is_some();
            if is_peer && self.context.is_written(target) && cluster.peers.is_some() {
                let peers = cluster.sources.get(source);
                let carrier = peers.and_then(|peers| peers.carrier.as_ref());
                let uncarried = !of.residual.is_empty() && carrier.is_none();
                let registered = peers.map_or(0, |peers| peers.registered);
                let nodes = of.nodes(**target == *source).len();
                summary.add(target, nodes as u32, registered, uncarried);
            }
        }
    }

    /// The nodes of a cluster that are peers of the others, and the networks that one of them carries.
    pub(crate) fn source(&self, cluster: &str) -> Option<&SourceCluster> {
        self.clusters.get(cluster)?.source.as_ref()
    }

    /// Everything that there is to say, where `before` is the status that was written last.
    pub(crate) fn plan(&self, before: Option<&ClusterMeshStatus>, generation: Option<i64>) -> Plan {
        let target = |name: &Arc<str>| Some((name.to_string(), self.target_plan(name)?));
        let clusters = || self.clusters.iter().filter(|(name, _)| &***name != EXTERNAL);
        let sources = || clusters().filter_map(|(n, c)| Some((n, c.source.as_ref()?)));
        let skipped = |of: &SourceCluster| of.skipped.values().cloned().collect();
        Plan {
            targets: self.clusters.keys().filter_map(target).collect(),
            skipped: sources().map(|(n, of)| (n.to_string(), skipped(of))).collect(),
            overlaps: self.context.overlaps.iter().cloned().collect(),
            notes: sources().flat_map(|(_, of)| of.notes().cloned()).collect(),
            status: self.status(before, generation),
        }
    }
}
