//! `Planner`: a plan that is kept up to date. The cost of a change follows from what it touches: when
//! one node changes, decisions are made about that node's own peers, and about the carrier of its
//! cluster's residual networks if another node must carry them.
//!
//! ```text
//! observe(cluster) ──diff──► nodes ──► those that claim the same ──► nodes with another result ─┐
//!                      └───► peers ──► nodes with the peer's name or key ───────────────────────┴► decide
//! ```
//!
//! Contract:
//! - When `advance` has nothing left to do, the planner says what a plan made from nothing would say,
//!   whatever was observed before and in whatever order.
//! - Only `advance` makes decisions, and each call makes a bounded number of them, so that a large mesh
//!   does not keep a thread from other work. `observe` and `remove_cluster` note what changed.

mod cluster;
mod summary;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use objects::kinds::{ClusterMesh, DataPlane};

use crate::context::{EXTERNAL, MeshContext};
use crate::decide::{CarrierRank, ClusterPair, Decision};
use crate::endpoint::DiscoveredEndpoints;
use crate::observation::{Index, Observation, Observed, changes};
use crate::pairs::Pairs;
use crate::peer::Peer;
use crate::peer_index::PeerIndex;
use crate::resolver::{PeersBefore, Surroundings};
use crate::set_map::SetMap;
use crate::source::{Candidate, CrossClusterIndex, NodeRef, PeeredNode, SourceCluster};
use crate::target_peers::TargetPeers;

use cluster::Cluster;

#[derive(Debug, Default)]
pub struct Planner {
    context: MeshContext,
    clusters: BTreeMap<Arc<str>, Cluster>,
    all_clusters: CrossClusterIndex,
    /// The nodes with a peer, by plain name, by hashed name and by public key. Several nodes may share
    /// a plain name; the first owns it.
    by_plain_name: SetMap<Arc<str>, NodeRef>,
    by_hashed_name: HashMap<Arc<str>, NodeRef>,
    by_key: HashMap<String, NodeRef>,
    /// The clusters with nodes that are to be compared again.
    unresolved: BTreeSet<Arc<str>>,
    /// The nodes about whose peers decisions are to be made, by target.
    undecided: BTreeMap<Arc<str>, BTreeSet<NodeRef>>,
    /// The clusters that are forgotten when all decisions about them are made.
    removed: BTreeSet<Arc<str>>,
}

impl Planner {
    /// Plans a mesh beside other meshes. Nothing has been observed of its clusters yet.
    pub fn new(mesh: &ClusterMesh, others: &[ClusterMesh]) -> Self {
        Self::of_plane(mesh, others, mesh.spec.main_data_plane(), &Pairs::new())
    }

    /// Plans the peers of one data plane, where pairs of clusters may be moved from one to another.
    pub(crate) fn of_plane(
        mesh: &ClusterMesh,
        others: &[ClusterMesh],
        plane: DataPlane,
        pairs: &Pairs,
    ) -> Self {
        Self::with_context(MeshContext::new(mesh, others, plane, pairs))
    }

    fn with_context(context: MeshContext) -> Self {
        let mut planner = Self { context, ..Self::default() };
        planner.add_external();
        planner
    }

    /// Adds the machines outside of clusters as the nodes of a cluster that is a source alone. They have
    /// no endpoint: they connect by themselves.
    fn add_external(&mut self) {
        if self.context.external.is_empty() {
            return;
        }
        let cluster: Arc<str> = EXTERNAL.into();
        let mut source = SourceCluster::default();
        for peer in self.context.external.clone() {
            let name: Arc<str> = peer.name.as_str().into();
            let peered = PeeredNode {
                name: Arc::clone(&name),
                peer_names: self.context.peer_names(EXTERNAL, &peer.name),
                key: peer.public_key.clone(),
                next_key: None,
                routes: peer.routes().iter().map(ToString::to_string).collect(),
                endpoint: None,
                within: None,
            };
            let node = (Arc::clone(&cluster), Arc::clone(&name));
            self.index(&node, &peered, &mut BTreeSet::new());
            source.peered.insert(name, peered);
        }
        self.clusters.entry(cluster).or_default().source = Some(source);
    }

    /// Takes over a change of the mesh or of another mesh. If it makes a difference to the plan, the
    /// planner starts again from what it has observed.
    pub fn set_mesh(&mut self, mesh: &ClusterMesh, others: &[ClusterMesh]) {
        self.set_plane(mesh, others, mesh.spec.main_data_plane(), &Pairs::new());
    }

    /// As [`set_mesh`](Self::set_mesh), for the peers of one data plane.
    pub(crate) fn set_plane(
        &mut self,
        mesh: &ClusterMesh,
        others: &[ClusterMesh],
        plane: DataPlane,
        pairs: &Pairs,
    ) {
        let context = MeshContext::new(mesh, others, plane, pairs);
        if context == self.context {
            return;
        }
        let before = std::mem::replace(self, Self::with_context(context));
        for (name, cluster) in before.clusters {
            if !before.removed.contains(&name) && &*name != EXTERNAL {
                self.observe(&name, &cluster.observation);
            }
        }
    }

    /// Notes what a cluster has now. `cluster` is the mesh's name for it.
    pub fn observe(&mut self, cluster: &str, observation: &Observation) {
        self.removed.remove(cluster);
        let name: Arc<str> = match self.clusters.get_key_value(cluster) {
            Some((name, _)) => Arc::clone(name),
            None => cluster.into(),
        };
        let known = self.clusters.entry(Arc::clone(&name)).or_default();
        let before = std::mem::replace(&mut known.observation, observation.clone());
        self.observe_nodes(&name, &before.nodes, &observation.nodes);
        self.observe_peers(&name, &before.peers, &observation.peers);
    }

    /// Forgets a cluster that is neither in the mesh nor to be cleared any more, or whose name means
    /// another cluster from now on. `advance` takes its nodes out of the other clusters first.
    pub fn remove_cluster(&mut self, cluster: &str) {
        let Some((name, _)) = self.clusters.get_key_value(cluster) else { return };
        let name = Arc::clone(name);
        self.observe(cluster, &Observation::default());
        self.removed.insert(name);
    }

    fn observe_nodes(
        &mut self,
        cluster: &Arc<str>,
        before: &Observed<Index<Node>>,
        now: &Observed<Index<Node>>,
    ) {
        if before.known().is_some() != now.known().is_some() {
            self.unresolved.insert(Arc::clone(cluster));
            if let Some(peers) = self.clusters.get_mut(cluster).and_then(|c| c.peers.as_mut()) {
                peers.discovered = now.known().map(|_| DiscoveredEndpoints::default());
                self.undecide_all_in(cluster);
            }
        }
        for (name, old, new) in changes(before.known(), now.known()) {
            self.node_changed(cluster, &name, old.as_deref(), new.as_deref());
        }
    }

    fn node_changed(
        &mut self,
        cluster: &Arc<str>,
        name: &Arc<str>,
        old: Option<&Node>,
        new: Option<&Node>,
    ) {
        if let Some(entry) = self.context.cluster(cluster) {
            let candidate = new.map(|node| Candidate::read(&self.context, entry, node));
            self.candidate_changed(cluster, name, candidate);
        }
        let Some(known) = self.clusters.get_mut(cluster) else { return };
        let discovered = known.peers.as_mut().and_then(|peers| peers.discovered.as_mut());
        let keys = discovered.map(|discovered| discovered.update(old, new)).unwrap_or_default();
        let nodes: Vec<_> = keys.iter().filter_map(|key| self.by_key.get(key).cloned()).collect();
        self.undecide(cluster, nodes);
    }

    /// Notes what a node claims now. It is compared again, and so are those that claim the same.
    fn candidate_changed(
        &mut self,
        cluster: &Arc<str>,
        name: &Arc<str>,
        candidate: Option<Candidate>,
    ) {
        let Self { clusters, all_clusters, unresolved, .. } = self;
        let Some(known) = clusters.get_mut(cluster) else { return };
        let before = known.resolver.get(name);
        if before == candidate.as_ref() {
            return;
        }
        let node_ref = (Arc::clone(cluster), Arc::clone(name));
        if let Some(before) = before {
            all_clusters.remove(&node_ref, before);
        }
        let both = before.into_iter().chain(&candidate);
        let sharing: BTreeSet<NodeRef> =
            both.flat_map(|it| all_clusters.sharing(it)).cloned().collect();
        match candidate {
            Some(candidate) => {
                all_clusters.insert(&node_ref, &candidate);
                known.resolver.insert(name, candidate);
            }
            None => known.resolver.remove(name),
        }
        unresolved.insert(Arc::clone(cluster));
        for (cluster, node) in sharing {
            if let Some(known) = clusters.get_mut(&cluster) {
                known.resolver.compare_again(&node);
                unresolved.insert(cluster);
            }
        }
    }

    fn observe_peers(
        &mut self,
        target: &Arc<str>,
        before: &Observed<PeerIndex>,
        now: &Observed<PeerIndex>,
    ) {
        let Some(cluster) = self.clusters.get_mut(target) else { return };
        match (before.known(), now.known()) {
            (None, None) => {}
            (Some(_), None) => {
                cluster.forget_peers();
                self.undecided.remove(target);
            }
            (None, Some(peers)) => {
                let nodes = cluster.observation.nodes.known();
                let discovered =
                    nodes.map(|all| DiscoveredEndpoints::of(all.values().map(|n| &**n)));
                let peers = TargetPeers::new(&self.context, peers, discovered);
                let names: Vec<_> = peers.owned().map(|(name, _)| Arc::clone(name)).collect();
                cluster.peers = Some(peers);
                for name in names {
                    self.update_deletion(target, &name);
                }
                self.undecide_all_in(target);
            }
            (Some(old), Some(new)) => {
                let Some(peers) = cluster.peers.as_mut() else { return };
                for (name, old, new) in peers.observe(&self.context, old, new) {
                    self.peer_changed(target, &name, old.as_ref(), new.as_ref());
                }
            }
        }
    }

    fn peer_changed(
        &mut self,
        target: &Arc<str>,
        name: &Arc<str>,
        old: Option<&Peer>,
        new: Option<&Peer>,
    ) {
        let mut nodes: Vec<NodeRef> = Vec::new();
        for peer in old.iter().chain(&new) {
            nodes.extend(self.by_key.get(&peer.spec.public_key).cloned());
        }
        nodes.extend(self.by_hashed_name.get(name).cloned());
        nodes.extend(self.by_plain_name.get(name).cloned());
        self.undecide(target, nodes);
        self.update_deletion(target, name);
    }

    /// Makes about `most` decisions, and returns whether there are more to make.
    pub fn advance(&mut self, most: usize) -> bool {
        let mut left = most;
        while let Some(cluster) = self.unresolved.pop_first() {
            left = left.saturating_sub(1 + self.resolve(&cluster, left));
            if left == 0 {
                return true;
            }
        }
        while let Some(mut entry) = self.undecided.first_entry() {
            let Some(node) = entry.get_mut().pop_first() else {
                entry.remove();
                continue;
            };
            let target = Arc::clone(entry.key());
            self.decide(&target, &node);
            left = left.saturating_sub(1);
            if left == 0 {
                return true;
            }
        }
        for name in std::mem::take(&mut self.removed) {
            self.clusters.remove(&name);
            for cluster in self.clusters.values_mut() {
                cluster.sources.remove(&name);
            }
        }
        false
    }

    /// Compares about `most` of a cluster's nodes that are to be compared again, and returns how many it
    /// were.
    fn resolve(&mut self, name: &Arc<str>, most: usize) -> usize {
        let Self { context, clusters, all_clusters, unresolved, .. } = self;
        let Some(cluster) = clusters.get_mut(name) else { return 0 };
        let is_source = context.cluster(name).is_some()
            && !context.overlapping.contains(&**name)
            && cluster.observation.nodes.known().is_some();
        let appeared = is_source != cluster.source.is_some();
        let residual = cluster.source.as_ref().map(|source| source.residual.clone());
        let (compared, changed) = if is_source {
            let around = Surroundings { context, cluster: name, all_clusters };
            let source = cluster.source.get_or_insert_default();
            let settled = cluster.resolver.settle(around, source, most);
            if !cluster.resolver.is_settled() {
                unresolved.insert(Arc::clone(name));
            }
            settled
        } else {
            let gone = cluster.source.take().map(SourceCluster::into_peers).unwrap_or_default();
            if !gone.is_empty() {
                cluster.resolver.forget_results();
            }
            (gone.len(), gone)
        };
        let is_other_residual =
            cluster.source.as_ref().map(|source| &source.residual) != residual.as_ref();
        let touched = self.index_again(name, changed);
        let targets: Vec<Arc<str>> = self.clusters.keys().cloned().collect();
        for target in &targets {
            self.undecide(target, touched.iter().cloned());
            if is_other_residual {
                self.choose_carrier(target, name);
            }
            if appeared {
                self.update_deletions_of(target, name);
            }
        }
        compared
    }

    /// Indexes the peers that these nodes of a cluster have now instead of those that they had, and returns
    /// the nodes about which decisions are to be made.
    fn index_again(
        &mut self,
        cluster: &Arc<str>,
        changed: BTreeMap<Arc<str>, PeersBefore>,
    ) -> BTreeSet<NodeRef> {
        let mut touched = BTreeSet::new();
        for (node, before) in &changed {
            // A node that is a peer inside and outside has the same key and names in both.
            let node = (Arc::clone(cluster), Arc::clone(node));
            for peered in before.iter().flatten() {
                self.unindex(&node, peered, &mut touched);
            }
        }
        for node in changed.into_keys() {
            let source = self.clusters.get(cluster).and_then(|cluster| cluster.source.as_ref());
            let now =
                source.map(|source| [false, true].map(|it| source.nodes(it).get(&node).cloned()));
            let node = (Arc::clone(cluster), node);
            for peered in now.iter().flatten().flatten() {
                self.index(&node, peered, &mut touched);
            }
            touched.insert(node);
        }
        touched
    }

    fn index(&mut self, node: &NodeRef, peered: &PeeredNode, touched: &mut BTreeSet<NodeRef>) {
        self.by_key.insert(peered.key.clone(), node.clone());
        self.by_hashed_name.insert(Arc::clone(&peered.peer_names.hashed), node.clone());
        self.by_plain_name.insert(Arc::clone(&peered.peer_names.plain), node.clone());
        // The name may have another owner now.
        touched.extend(self.by_plain_name.get(&peered.peer_names.plain).cloned());
    }

    fn unindex(&mut self, node: &NodeRef, peered: &PeeredNode, touched: &mut BTreeSet<NodeRef>) {
        if self.by_key.get(&peered.key) == Some(node) {
            self.by_key.remove(&peered.key);
        }
        if self.by_hashed_name.get(&peered.peer_names.hashed) == Some(node) {
            self.by_hashed_name.remove(&peered.peer_names.hashed);
        }
        self.by_plain_name.remove(&peered.peer_names.plain, node);
        touched.extend(self.by_plain_name.get(&peered.peer_names.plain).cloned());
        touched.insert(node.clone());
    }

    /// Notes that decisions about the peers of these nodes in a target are to be made again.
    fn undecide(&mut self, target: &Arc<str>, nodes: impl IntoIterator<Item = NodeRef>) {
        let context = &self.context;
        let is_peer = |(source, _): &NodeRef| context.routing(source, target).is_some();
        let mut nodes = nodes.into_iter().filter(is_peer).peekable();
        let known = self.clusters.get(target).is_some_and(|cluster| cluster.peers.is_some());
        if known && nodes.peek().is_some() {
            self.undecided.entry(Arc::clone(target)).or_default().extend(nodes);
        }
    }

    fn undecide_all_in(&mut self, target: &Arc<str>) {
        let sources = self.clusters.iter().filter_map(|(name, c)| Some((name, c.source.as_ref()?)));
        let nodes = sources.flat_map(|(name, source)| {
            let nodes = source.nodes(name == target).keys();
            nodes.map(|node| (Arc::clone(name), Arc::clone(node)))
        });
        self.undecide(target, nodes.collect::<Vec<_>>());
    }

    /// Decides about one node's peer in one target.
    fn decide(&mut self, target: &Arc<str>, node: &NodeRef) {
        let (source, name) = node;
        let carrier = self.carrier(target, source).cloned();
        let decided = self.with_pair(target, source, |pair| {
            let peered = pair.nodes.get(name)?;
            let current = carrier.as_ref().and_then(|(_, carrier)| pair.carrier_rank(carrier));
            let chosen = if carrier.is_some() && (current.is_none() || current > carrier) {
                pair.best_carrier()
            } else {
                // All other nodes were compared with the carrier already.
                pair.carrier_rank(name).into_iter().chain(current).min()
            };
            let is_carrier = chosen.as_ref().is_some_and(|(_, carrier)| carrier == name);
            Some((pair.decide(peered, is_carrier), chosen))
        });
        match decided.flatten() {
            Some((decision, chosen)) => {
                self.set_decision(target, node, Some(decision));
                self.set_carrier(target, source, carrier, chosen, Some(name));
            }
            None => {
                self.set_decision(target, node, None);
                if carrier.is_some_and(|(_, carrier)| carrier == *name) {
                    self.choose_carrier(target, source);
                }
            }
        }
    }

    /// Chooses the carrier of a cluster's residual networks among all its nodes.
    fn choose_carrier(&mut self, target: &Arc<str>, source: &Arc<str>) {
        let chosen = self.with_pair(target, source, |pair| pair.best_carrier()).flatten();
        let carrier = self.carrier(target, source).cloned();
        self.set_carrier(target, source, carrier.clone(), chosen.clone(), None);
        // The networks themselves may have changed.
        let again = carrier.into_iter().chain(chosen).map(|(_, node)| (Arc::clone(source), node));
        self.undecide(target, again.collect::<Vec<_>>());
    }

    /// The node that carries the residual networks of `source` in a target.
    fn carrier(&self, target: &str, source: &str) -> Option<&CarrierRank> {
        self.clusters.get(target)?.sources.get(source)?.carrier.as_ref()
    }

    /// Calls `f` with a source and a target, if peers of the source are to be in the target.
    fn with_pair<T>(
        &self,
        target: &str,
        source: &str,
        f: impl FnOnce(ClusterPair<'_>) -> T,
    ) -> Option<T> {
        let peers = self.clusters.get(target)?.peers.as_ref()?;
        let cluster = self.clusters.get(source)?.source.as_ref()?;
        let name_owner = |node: &PeeredNode| {
            let owner = self.by_plain_name.get(&node.peer_names.plain).next();
            owner.map_or(("", ""), |(cluster, node)| (&**cluster, &**node))
        };
        let context = &self.context;
        let routing = context.routing(source, target).filter(|_| context.is_written(target))?;
        let nodes = cluster.nodes(source == target);
        let name_owner = &name_owner;
        Some(f(ClusterPair { context, source, cluster, nodes, routing, peers, name_owner }))
    }

    /// Notes the carrier. The decision about the node `decided` has taken it into account already.
    fn set_carrier(
        &mut self,
        target: &Arc<str>,
        source: &Arc<str>,
        before: Option<CarrierRank>,
        now: Option<CarrierRank>,
        decided: Option<&Arc<str>>,
    ) {
        if before == now {
            return;
        }
        if let Some(cluster) = self.clusters.get_mut(target) {
            cluster.sources.entry(Arc::clone(source)).or_default().carrier.clone_from(&now);
        }
        let [before, now] = [before, now].map(|carrier| carrier.map(|(_, node)| node));
        if before == now {
            return;
        }
        let again = before.into_iter().chain(now).filter(|node| Some(node) != decided);
        let again: Vec<_> = again.map(|node| (Arc::clone(source), node)).collect();
        self.undecide(target, again);
    }

    fn set_decision(&mut self, target: &Arc<str>, node: &NodeRef, decision: Option<Decision>) {
        let Some(cluster) = self.clusters.get_mut(target) else { return };
        for name in cluster.set_decision(node, decision) {
            self.update_deletion(target, &name);
        }
    }

    /// Notes whether a peer is to be deleted.
    fn update_deletion(&mut self, target: &Arc<str>, name: &Arc<str>) {
        let Self { context, clusters, .. } = self;
        let is_target = context.is_target(target);
        let Some(cluster) = clusters.get(target) else { return };
        let source = cluster.peers.as_ref().and_then(|peers| peers.source_of(name));
        let is_deleted = source.is_some_and(|source| {
            // A node that is unknown is not gone, and a cluster that overlaps is left as it is.
            let known = clusters.get(source).is_some_and(|c| c.source.is_some());
            let is_source =
                context.routing(source, target).is_some() && context.cluster(source).is_some();
            let stays = (is_source && !known) || context.overlapping.contains(&**target);
            !((is_target && stays) || cluster.kept.contains(name))
        });
        if let Some(cluster) = clusters.get_mut(target) {
            match is_deleted {
                true => cluster.to_delete.insert(Arc::clone(name)),
                false => cluster.to_delete.remove(name),
            };
        }
    }

    fn update_deletions_of(&mut self, target: &Arc<str>, source: &str) {
        let peers = self.clusters.get(target).and_then(|cluster| cluster.peers.as_ref());
        let owned = peers.into_iter().flat_map(TargetPeers::owned);
        let names: Vec<_> =
            owned.filter(|(_, of)| ***of == *source).map(|(name, _)| Arc::clone(name)).collect();
        for name in names {
            self.update_deletion(target, &name);
        }
    }
}

#[cfg(test)]
mod tests;
