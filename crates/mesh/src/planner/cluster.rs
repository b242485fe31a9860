//! What the planner knows and has decided of one cluster, as a source of peers and as a target.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::decide::Decision;
use crate::observation::Observation;
use crate::source::{Candidates, NodeRef, SourceCluster};
use crate::target_peers::TargetPeers;

#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) observation: Observation,
    pub(super) candidates: Candidates,
    /// None while its nodes are unknown, if it overlaps, and if it is not in the mesh.
    pub(super) source: Option<SourceCluster>,
    /// None while its peers are unknown.
    pub(super) peers: Option<TargetPeers>,
    /// The decisions about the peers of each other cluster's nodes.
    pub(super) sources: HashMap<Arc<str>, SourceDecisions>,
    /// How many decisions keep a peer of a name. It is one, except between two decisions.
    pub(super) kept: HashMap<Arc<str>, u32>,
    /// The mesh's own peers that are to be deleted.
    pub(super) to_delete: BTreeSet<String>,
    /// The nodes whose decision has something to write, or a conflict.
    pending: BTreeSet<NodeRef>,
}

/// The decisions about the peers of one cluster's nodes in another cluster.
#[derive(Debug, Default)]
pub(super) struct SourceDecisions {
    /// The node that carries the cluster's residual networks.
    pub(super) carrier: Option<Arc<str>>,
    by_node: HashMap<Arc<str>, Decision>,
    pub(super) registered: u32,
}

impl Cluster {
    /// Drops the peers and every decision about them: nothing is decided about unknown peers.
    pub(super) fn forget_peers(&mut self) {
        let Self { observation, candidates, source, .. } = std::mem::take(self);
        *self = Self { observation, candidates, source, ..Self::default() };
    }

    /// Replaces the decision about a node's peer, and returns the names of the peers that are kept from
    /// now on, or no longer.
    pub(super) fn set_decision(
        &mut self,
        node: &NodeRef,
        decision: Option<Decision>,
    ) -> Vec<Arc<str>> {
        let decisions = self.sources.entry(Arc::clone(&node.0)).or_default();
        let keeps = decision.as_ref().and_then(|decision| decision.keeps.clone());
        decisions.registered += u32::from(decision.as_ref().is_some_and(|d| d.registered));
        match decision.as_ref().is_some_and(|d| d.write.is_some() || d.conflict.is_some()) {
            true => self.pending.insert(node.clone()),
            false => self.pending.remove(node),
        };
        let before = match decision {
            Some(decision) => decisions.by_node.insert(Arc::clone(&node.1), decision),
            None => decisions.by_node.remove(&node.1),
        };
        decisions.registered -= u32::from(before.as_ref().is_some_and(|d| d.registered));
        let kept = before.and_then(|before| before.keeps);
        if keeps == kept {
            return Vec::new();
        }
        if let Some(name) = &keeps {
            *self.kept.entry(Arc::clone(name)).or_default() += 1;
        }
        if let Some(name) = &kept
            && let Some(count) = self.kept.get_mut(name)
        {
            *count -= 1;
            if *count == 0 {
                self.kept.remove(name);
            }
        }
        keeps.into_iter().chain(kept).collect()
    }

    /// The decisions that have something to write, or a conflict.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Decision> {
        let decision = |node: &NodeRef| self.sources.get(&node.0)?.by_node.get(&node.1);
        self.pending.iter().filter_map(decision)
    }

    pub(super) fn has_writes(&self) -> bool {
        !self.to_delete.is_empty() || self.pending().any(|decision| decision.write.is_some())
    }
}
