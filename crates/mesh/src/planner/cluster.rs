//! What the planner knows and has decided of one cluster, as a source of peers and as a target.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::decide::{CarrierRank, Decision};
use crate::observation::Observation;
use crate::plan::Conflict;
use crate::resolver::Resolver;
use crate::source::{NodeRef, SourceCluster};
use crate::target_peers::TargetPeers;

#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) observation: Observation,
    /// Its nodes, if it is in the mesh.
    pub(super) resolver: Resolver,
    /// None while its nodes are unknown, if it overlaps, and if it is not in the mesh.
    pub(super) source: Option<SourceCluster>,
    /// None while its peers are unknown.
    pub(super) peers: Option<TargetPeers>,
    /// The decisions about the peers of each other cluster's nodes.
    pub(super) sources: HashMap<Arc<str>, SourceDecisions>,
    pub(super) kept: KeptNames,
    /// The mesh's own peers that are to be deleted.
    pub(super) to_delete: BTreeSet<Arc<str>>,
    /// The nodes whose decision has something to write, or a conflict.
    pending: BTreeSet<NodeRef>,
    conflicts: BTreeMap<NodeRef, Box<Conflict>>,
}

/// The names of which decisions keep a peer. Each is kept by one, except between two decisions: so those that
/// are kept by more are counted beside the others.
#[derive(Debug, Default)]
pub(super) struct KeptNames {
    once: HashSet<Arc<str>>,
    more: HashMap<Arc<str>, u32>,
}

impl KeptNames {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.once.contains(name)
    }

    fn add(&mut self, name: &Arc<str>) {
        if !self.once.insert(Arc::clone(name)) {
            *self.more.entry(Arc::clone(name)).or_default() += 1;
        }
    }

    fn remove(&mut self, name: &Arc<str>) {
        match self.more.get_mut(name) {
            Some(1) => _ = self.more.remove(name),
            Some(count) => *count -= 1,
            None => _ = self.once.remove(name),
        }
    }
}

/// The decisions about the peers of one cluster's nodes in another cluster.
#[derive(Debug, Default)]
pub(super) struct SourceDecisions {
    /// The node that carries the cluster's residual networks, by its rank when it was chosen: no other node
    /// had a lesser one.
    pub(super) carrier: Option<CarrierRank>,
    /// In the order of their names. A map would take twice the room.
    by_node: Vec<(Arc<str>, Decided)>,
    pub(super) registered: u32,
}

/// What is kept of a decision. What is to be written is worked out again when it is: of half a million
/// peers that are missing none is kept.
#[derive(Debug)]
struct Decided {
    keeps: Option<Arc<str>>,
    writes: bool,
    registered: bool,
}

impl SourceDecisions {
    fn get(&self, node: &str) -> Option<&Decided> {
        let at = self.by_node.binary_search_by(|(name, _)| (**name).cmp(node)).ok()?;
        self.by_node.get(at).map(|(_, decided)| decided)
    }

    /// Replaces the decision about a node, and returns the one before.
    fn replace(&mut self, node: &Arc<str>, decided: Option<Decided>) -> Option<Decided> {
        let place = self.by_node.binary_search_by(|(name, _)| name.cmp(node));
        match (place, decided) {
            (Ok(at), Some(decided)) => Some(std::mem::replace(&mut self.by_node[at].1, decided)),
            (Ok(at), None) => Some(self.by_node.remove(at).1),
            (Err(at), Some(decided)) => {
                self.by_node.insert(at, (Arc::clone(node), decided));
                None
            }
            (Err(_), None) => None,
        }
    }
}

impl Cluster {
    /// Drops the peers and every decision about them: nothing is decided about unknown peers.
    pub(super) fn forget_peers(&mut self) {
        let Self { observation, resolver, source, .. } = std::mem::take(self);
        *self = Self { observation, resolver, source, ..Self::default() };
    }

    /// Replaces the decision about a node's peer, and returns the names of the peers that are kept from
    /// now on, or no longer.
    pub(super) fn set_decision(
        &mut self,
        node: &NodeRef,
        decision: Option<Decision>,
    ) -> Vec<Arc<str>> {
        let mut conflict = None;
        let decision = decision.map(|decision| {
            let Decision { keeps, write, conflict: found, registered } = decision;
            conflict = found;
            Decided { keeps, writes: write.is_some(), registered }
        });
        let has_conflict = conflict.is_some();
        match conflict {
            Some(conflict) => drop(self.conflicts.insert(node.clone(), conflict)),
            None => drop(self.conflicts.remove(node)),
        }
        let decisions = self.sources.entry(Arc::clone(&node.0)).or_default();
        let keeps = decision.as_ref().and_then(|decision| decision.keeps.clone());
        decisions.registered += u32::from(decision.as_ref().is_some_and(|d| d.registered));
        match has_conflict || decision.as_ref().is_some_and(|d| d.writes) {
            true => self.pending.insert(node.clone()),
            false => self.pending.remove(node),
        };
        let before = decisions.replace(&node.1, decision);
        decisions.registered -= u32::from(before.as_ref().is_some_and(|d| d.registered));
        let kept = before.and_then(|before| before.keeps);
        if keeps == kept {
            return Vec::new();
        }
        if let Some(name) = &keeps {
            self.kept.add(name);
        }
        if let Some(name) = &kept {
            self.kept.remove(name);
        }
        keeps.into_iter().chain(kept).collect()
    }

    /// The nodes whose decision has something to write, or a conflict.
    pub(super) fn pending(&self) -> impl Iterator<Item = &NodeRef> {
        self.pending.iter()
    }

    fn decided(&self, node: &NodeRef) -> Option<&Decided> {
        self.sources.get(&node.0)?.get(&node.1)
    }

    /// The first conflict.
    pub(super) fn conflict(&self) -> Option<&Conflict> {
        self.conflicts.values().next().map(AsRef::as_ref)
    }

    pub(super) fn has_writes(&self) -> bool {
        let writes = |node: &NodeRef| self.decided(node).is_some_and(|decided| decided.writes);
        !self.to_delete.is_empty() || self.pending.iter().any(writes)
    }
}
