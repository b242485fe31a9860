//! `State`: a plan that is kept up to date. What a change costs follows from what it touches: one
//! node's change is decided for that node's own peers, and for the carrier of its cluster's residual
//! networks where the choice must change.
//!
//! ```text
//! see(cluster) ──diff──► nodes ──► settle its cluster ──► nodes that came out different ─┐
//!                  └───► peers ──► nodes by name and by key ─────────────────────────────┴► decide
//! ```
//!
//! Contract:
//! - After the work is done it says exactly what [`plan`](crate::plan) would say of the same, whatever
//!   came before and in whatever order.
//! - `work` does a bounded amount at a time, so that a large mesh takes no thread away from the rest.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use k8s_openapi::api::core::v1::Node;
use objects::kinds::{ClusterMesh, ClusterMeshStatus};

use crate::decide::{Decision, carrying, decide};
use crate::endpoint::Discovered;
use crate::frame::Frame;
use crate::peer::Peer;
use crate::plan::{Seen, TargetPlan};
use crate::source::{Candidate, Candidates, Everyone, Peered, Place, Source, settle};
use crate::status::{Account, status, unseen};
use crate::there::There;

/// Objects by name. A copy costs nothing, and what differs between two is found without a look at the
/// rest.
pub type Index<T> = OrdMap<Arc<str>, Arc<T>>;

/// What is seen of one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Sight {
    pub nodes: Seen<Index<Node>>,
    pub peers: Seen<Index<Peer>>,
}

#[derive(Debug)]
pub struct State {
    frame: Frame,
    clusters: BTreeMap<Arc<str>, Cluster>,
    everyone: Everyone,
    /// The nodes that are peered: those who would take a plain name, and by hashed name and by key.
    plain: HashMap<Arc<str>, BTreeSet<Place>>,
    hashed: HashMap<Arc<str>, Place>,
    keys: HashMap<String, Place>,
    /// Clusters whose nodes changed.
    unsettled: BTreeSet<Arc<str>>,
    /// By target: the nodes whose peers are to be decided anew.
    dirty: BTreeMap<Arc<str>, BTreeSet<Place>>,
}

/// One cluster, as a source and as a target.
#[derive(Debug)]
struct Cluster {
    sight: Sight,
    candidates: Candidates,
    /// None: its nodes are unknown, or it overlaps, or it is not in the mesh.
    source: Option<Source>,
    /// None: its peers are unknown.
    there: Option<There<Arc<Peer>>>,
    /// By source.
    pairs: HashMap<Arc<str>, Pair>,
    /// How many nodes keep a peer of a name; that is one, but for a moment.
    kept: HashMap<Arc<str>, u32>,
    /// Peers of the mesh that are to go.
    doomed: BTreeSet<String>,
    /// Those whose decision has something to write or to complain about.
    open: BTreeSet<Place>,
}

/// The peers of one cluster in another.
#[derive(Debug, Default)]
struct Pair {
    carrier: Option<Arc<str>>,
    decided: HashMap<Arc<str>, Decision>,
    registered: u32,
}

impl State {
    /// Of a mesh, and those beside it, of whose clusters nothing has been seen yet.
    pub fn new(mesh: &ClusterMesh, others: &[ClusterMesh]) -> Self {
        Self::of(Frame::new(mesh, others, mesh.spec.adopt))
    }

    fn of(frame: Frame) -> Self {
        Self {
            frame,
            clusters: BTreeMap::new(),
            everyone: Everyone::default(),
            plain: HashMap::new(),
            hashed: HashMap::new(),
            keys: HashMap::new(),
            unsettled: BTreeSet::new(),
            dirty: BTreeMap::new(),
        }
    }

    /// The mesh or one beside it changed. Where that makes a difference, all is begun anew.
    pub fn reframe(&mut self, mesh: &ClusterMesh, others: &[ClusterMesh]) {
        let frame = Frame::new(mesh, others, mesh.spec.adopt);
        if frame == self.frame {
            return;
        }
        let before = std::mem::replace(self, Self::of(frame));
        for (name, cluster) in before.clusters {
            self.see(&name, &cluster.sight);
        }
    }

    /// What a cluster has now, by the mesh's name for it.
    pub fn see(&mut self, cluster: &str, sight: &Sight) {
        let name: Arc<str> = match self.clusters.get_key_value(cluster) {
            Some((name, _)) => Arc::clone(name),
            None => {
                let name: Arc<str> = cluster.into();
                self.clusters.insert(Arc::clone(&name), Cluster::unseen());
                name
            }
        };
        let Some(known) = self.clusters.get_mut(&name) else { return };
        let before = std::mem::replace(&mut known.sight, sight.clone());
        self.see_nodes(&name, &before.nodes, &sight.nodes);
        self.see_peers(&name, &before.peers, &sight.peers);
    }

    /// A cluster that is neither in the mesh nor to be cleared any more.
    pub fn drop_cluster(&mut self, cluster: &str) {
        let nothing = "nothing is known of it".to_owned();
        if self.clusters.contains_key(cluster) {
            let nodes = Seen::Away(nothing.clone());
            self.see(cluster, &Sight { nodes, peers: Seen::Away(nothing) });
            while self.work(usize::MAX) {}
            self.clusters.remove(cluster);
        }
    }

    fn see_nodes(
        &mut self,
        cluster: &Arc<str>,
        before: &Seen<Index<Node>>,
        now: &Seen<Index<Node>>,
    ) {
        let none = Index::default();
        let (old, new) = (before.known().unwrap_or(&none), now.known().unwrap_or(&none));
        let changes = old.diff(new).map(|item| match item {
            DiffItem::Add(name, node) => (Arc::clone(name), None, Some(Arc::clone(node))),
            DiffItem::Update { old: (name, old), new: (_, new) } => {
                (Arc::clone(name), Some(Arc::clone(old)), Some(Arc::clone(new)))
            }
            DiffItem::Remove(name, node) => (Arc::clone(name), Some(Arc::clone(node)), None),
        });
        let changes: Vec<_> = changes.collect();
        let flipped = before.known().is_some() != now.known().is_some();
        if flipped {
            self.unsettled.insert(Arc::clone(cluster));
            if let Some(there) = self.clusters.get_mut(cluster).and_then(|c| c.there.as_mut()) {
                there.discovered = now.known().map(|_| Discovered::default());
                self.dirty_all_in(cluster);
            }
        }
        for (name, old, new) in changes {
            self.node(cluster, &name, old.as_deref(), new.as_deref());
        }
    }

    fn node(
        &mut self,
        cluster: &Arc<str>,
        name: &Arc<str>,
        old: Option<&Node>,
        new: Option<&Node>,
    ) {
        let Self { frame, clusters, everyone, unsettled, .. } = self;
        let Some(known) = clusters.get_mut(cluster) else { return };
        if let Some(entry) = frame.cluster(cluster) {
            if let Some(before) = known.candidates.remove(name) {
                unsettled.extend(everyone.sharing(&before));
                everyone.remove(cluster, name, &before);
            }
            if let Some(node) = new {
                let candidate = Candidate::read(frame, entry, node);
                everyone.add(cluster, name, &candidate);
                unsettled.extend(everyone.sharing(&candidate));
                known.candidates.insert(Arc::clone(name), candidate);
            }
            unsettled.insert(Arc::clone(cluster));
        }
        let discovered = known.there.as_mut().and_then(|there| there.discovered.as_mut());
        let keys = discovered.map(|discovered| discovered.learn(old, new)).unwrap_or_default();
        let places: Vec<_> = keys.iter().filter_map(|key| self.keys.get(key).cloned()).collect();
        self.dirty(cluster, places);
    }

    fn see_peers(
        &mut self,
        target: &Arc<str>,
        before: &Seen<Index<Peer>>,
        now: &Seen<Index<Peer>>,
    ) {
        let Some(cluster) = self.clusters.get_mut(target) else { return };
        match (before.known(), now.known()) {
            (None, None) => {}
            (Some(_), None) => {
                // What is not known is not decided.
                *cluster = Cluster {
                    sight: cluster.sight.clone(),
                    candidates: std::mem::take(&mut cluster.candidates),
                    source: cluster.source.take(),
                    ..Cluster::unseen()
                };
                self.dirty.remove(target);
            }
            (None, Some(peers)) => {
                let nodes = cluster.sight.nodes.known();
                let discovered =
                    nodes.map(|nodes| Discovered::of(nodes.values().map(|node| &**node)));
                let mut there = There::new(discovered);
                for peer in peers.values() {
                    there.insert(&self.frame, Arc::clone(peer));
                }
                let names: Vec<_> = there.ours().keys().cloned().collect();
                cluster.there = Some(there);
                for name in names {
                    self.doom(target, &name);
                }
                self.dirty_all_in(target);
            }
            (Some(old), Some(new)) => {
                let changes = old.diff(new).map(|item| match item {
                    DiffItem::Add(name, peer) | DiffItem::Update { new: (name, peer), .. } => {
                        (Arc::clone(name), Some(Arc::clone(peer)))
                    }
                    DiffItem::Remove(name, _) => (Arc::clone(name), None),
                });
                for (name, peer) in changes.collect::<Vec<_>>() {
                    self.peer(target, &name, peer);
                }
            }
        }
    }

    fn peer(&mut self, target: &Arc<str>, name: &Arc<str>, new: Option<Arc<Peer>>) {
        let cluster = self.clusters.get_mut(target);
        let Some(there) = cluster.and_then(|cluster| cluster.there.as_mut()) else { return };
        let old = there.remove(name);
        let mut places: Vec<Place> = Vec::new();
        // Who has its key, before and now.
        for peer in old.iter().chain(&new) {
            places.extend(self.keys.get(&peer.spec.public_key).cloned());
        }
        if let Some(peer) = new {
            there.insert(&self.frame, peer);
        }
        places.extend(self.hashed.get(name).cloned());
        places.extend(self.plain.get(name).into_iter().flatten().cloned());
        self.dirty(target, places);
        self.doom(target, name);
    }

    /// Does some of what is to be done, about `most` decisions; whether there is more.
    pub fn work(&mut self, most: usize) -> bool {
        let mut left = most;
        while let Some(cluster) = self.unsettled.pop_first() {
            left = left.saturating_sub(1 + self.settle(&cluster));
            if left == 0 {
                return true;
            }
        }
        while let Some(mut entry) = self.dirty.first_entry() {
            let Some(place) = entry.get_mut().pop_first() else {
                entry.remove();
                continue;
            };
            let target = Arc::clone(entry.key());
            self.decide(&target, &place);
            left = left.saturating_sub(1);
            if left == 0 {
                return true;
            }
        }
        false
    }

    /// Holds a cluster's nodes against each other again; says how many there are.
    fn settle(&mut self, name: &Arc<str>) -> usize {
        let Self { frame, clusters, everyone, .. } = self;
        let Some(cluster) = clusters.get_mut(name) else { return 0 };
        let counts = frame.cluster(name).is_some()
            && !frame.overlapping.contains(&**name)
            && cluster.sight.nodes.known().is_some();
        let after = counts.then(|| settle(frame, name, &cluster.candidates, everyone));
        let before = std::mem::replace(&mut cluster.source, after.clone());
        let size = cluster.candidates.len();
        let appeared = before.is_some() != after.is_some();
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        let mut touched: BTreeSet<Place> = BTreeSet::new();
        for (node, peered) in &before.peered {
            if after.peered.get(node) != Some(peered) {
                self.unlist(&(Arc::clone(name), Arc::clone(node)), peered, &mut touched);
            }
        }
        for (node, peered) in &after.peered {
            if before.peered.get(node) != Some(peered) {
                self.list(&(Arc::clone(name), Arc::clone(node)), peered, &mut touched);
            }
        }
        let targets: Vec<Arc<str>> = self.clusters.keys().cloned().collect();
        for target in &targets {
            self.dirty(target, touched.iter().cloned());
            if before.residual != after.residual {
                self.recarry(target, name);
            }
            if appeared {
                self.doom_all_of(target, name);
            }
        }
        size
    }

    fn list(&mut self, place: &Place, node: &Peered, touched: &mut BTreeSet<Place>) {
        self.keys.insert(node.key.clone(), place.clone());
        self.hashed.insert(Arc::clone(&node.names.hashed), place.clone());
        let takers = self.plain.entry(Arc::clone(&node.names.plain)).or_default();
        takers.insert(place.clone());
        // Who was first may be so no more.
        touched.extend(takers.iter().cloned());
    }

    fn unlist(&mut self, place: &Place, node: &Peered, touched: &mut BTreeSet<Place>) {
        if self.keys.get(&node.key) == Some(place) {
            self.keys.remove(&node.key);
        }
        if self.hashed.get(&node.names.hashed) == Some(place) {
            self.hashed.remove(&node.names.hashed);
        }
        if let Some(takers) = self.plain.get_mut(&node.names.plain) {
            takers.remove(place);
            touched.extend(takers.iter().cloned());
            if takers.is_empty() {
                self.plain.remove(&node.names.plain);
            }
        }
        touched.insert(place.clone());
    }

    fn dirty(&mut self, target: &Arc<str>, places: impl IntoIterator<Item = Place>) {
        let mut places = places.into_iter().filter(|(source, _)| source != target).peekable();
        let known = self.clusters.get(target).is_some_and(|cluster| cluster.there.is_some());
        if known && places.peek().is_some() {
            self.dirty.entry(Arc::clone(target)).or_default().extend(places);
        }
    }

    fn dirty_all_in(&mut self, target: &Arc<str>) {
        let sources = self.clusters.iter().filter_map(|(name, c)| Some((name, c.source.as_ref()?)));
        let places: Vec<Place> = sources
            .flat_map(|(name, source)| {
                source.peered.keys().map(|node| (Arc::clone(name), Arc::clone(node)))
            })
            .collect();
        self.dirty(target, places);
    }

    /// Decides one node's peer in one target.
    fn decide(&mut self, target: &Arc<str>, place: &Place) {
        let (source, name) = place;
        let Self { frame, clusters, plain, .. } = self;
        let wanted = frame.wants(target) && !frame.overlapping.contains(&**target);
        let of = clusters.get(source).and_then(|cluster| cluster.source.as_ref());
        let node = of.and_then(|of| of.peered.get(name)).filter(|_| wanted && source != target);
        let Some(cluster) = clusters.get(target) else { return };
        let Some(there) = &cluster.there else { return };
        let (Some(of), Some(node)) = (of, node) else {
            self.set(target, place, None);
            if self.pair(target, source).is_some_and(|pair| pair.carrier.as_ref() == Some(name)) {
                self.recarry(target, source);
            }
            return;
        };
        let carrier = cluster.pairs.get(source).and_then(|pair| pair.carrier.clone());
        let mut chosen = carrier.clone();
        if !of.residual.is_empty() {
            let able = |node: &Arc<str>| {
                let node = of.peered.get(node)?;
                let first = first(plain, node);
                carrying(frame, source, of, node, first, there)
                    .map(|(not, name)| (not, name.clone()))
            };
            let has = carrier.as_ref().and_then(able);
            chosen = match (has, able(name)) {
                // Whoever had them cannot any more: all are asked.
                (None, _) if carrier.is_some() => of.peered.keys().filter_map(able).min(),
                (Some(has), _) if has.1 == *name => of.peered.keys().filter_map(able).min(),
                (has, new) => has.into_iter().chain(new).min(),
            }
            .map(|(_, name)| name);
        }
        let extra = if chosen.as_ref() == Some(name) { &of.residual[..] } else { &[] };
        let decision = decide(frame, source, node, extra, first(plain, node), there);
        self.set(target, place, Some(decision));
        self.carried_by(target, source, carrier, chosen, Some(name));
    }

    /// Chooses the carrier among all, and decides both anew.
    fn recarry(&mut self, target: &Arc<str>, source: &Arc<str>) {
        let Self { frame, clusters, plain, .. } = self;
        let of = clusters.get(source).and_then(|cluster| cluster.source.as_ref());
        let there = clusters.get(target).and_then(|cluster| cluster.there.as_ref());
        let wanted = frame.wants(target) && !frame.overlapping.contains(&**target);
        let (Some(there), true) = (there, source != target) else { return };
        let of = of.filter(|of| wanted && !of.residual.is_empty());
        let able = of.into_iter().flat_map(|of| {
            let nodes = of.peered.values();
            nodes.filter_map(|node| carrying(frame, source, of, node, first(plain, node), there))
        });
        let chosen = able.min().map(|(_, name)| Arc::clone(name));
        let carrier = self.pair(target, source).and_then(|pair| pair.carrier.clone());
        self.carried_by(target, source, carrier.clone(), chosen.clone(), None);
        // What is carried may be other networks than before.
        let again = carrier.into_iter().chain(chosen).map(|node| (Arc::clone(source), node));
        self.dirty(target, again.collect::<Vec<_>>());
    }

    /// `decided` has been decided with the new carrier in mind.
    fn carried_by(
        &mut self,
        target: &Arc<str>,
        source: &Arc<str>,
        before: Option<Arc<str>>,
        now: Option<Arc<str>>,
        decided: Option<&Arc<str>>,
    ) {
        if before == now {
            return;
        }
        if let Some(cluster) = self.clusters.get_mut(target) {
            cluster.pairs.entry(Arc::clone(source)).or_default().carrier.clone_from(&now);
        }
        let again = before.into_iter().chain(now).filter(|node| Some(node) != decided);
        let again: Vec<_> = again.map(|node| (Arc::clone(source), node)).collect();
        self.dirty(target, again);
    }

    fn pair(&self, target: &Arc<str>, source: &Arc<str>) -> Option<&Pair> {
        self.clusters.get(target)?.pairs.get(source)
    }

    fn set(&mut self, target: &Arc<str>, place: &Place, decision: Option<Decision>) {
        let Some(cluster) = self.clusters.get_mut(target) else { return };
        let pair = cluster.pairs.entry(Arc::clone(&place.0)).or_default();
        let keeps = decision.as_ref().and_then(|decision| decision.keeps.clone());
        pair.registered += u32::from(decision.as_ref().is_some_and(|d| d.registered));
        match decision.as_ref().is_some_and(|d| d.write.is_some() || d.conflict.is_some()) {
            true => cluster.open.insert(place.clone()),
            false => cluster.open.remove(place),
        };
        let before = match decision {
            Some(decision) => pair.decided.insert(Arc::clone(&place.1), decision),
            None => pair.decided.remove(&place.1),
        };
        pair.registered -= u32::from(before.as_ref().is_some_and(|d| d.registered));
        let kept = before.and_then(|before| before.keeps);
        if keeps == kept {
            return;
        }
        if let Some(name) = &keeps {
            *cluster.kept.entry(Arc::clone(name)).or_default() += 1;
        }
        if let Some(name) = &kept
            && let Some(count) = cluster.kept.get_mut(name)
        {
            *count -= 1;
            if *count == 0 {
                cluster.kept.remove(name);
            }
        }
        for name in keeps.iter().chain(&kept) {
            self.doom(target, name);
        }
    }

    /// Whether a peer is to go.
    fn doom(&mut self, target: &Arc<str>, name: &str) {
        let Self { frame, clusters, .. } = self;
        let wanted = frame.wants(target);
        let Some(cluster) = clusters.get(target) else { return };
        let source = cluster.there.as_ref().and_then(|there| there.ours().get(name));
        let is_doomed = source.is_some_and(|source| {
            // What cannot be seen is not gone, and what overlaps is left as it is.
            let seen = clusters.get(source.as_str()).is_some_and(|c| c.source.is_some());
            let unseen = wanted && **source != **target && frame.cluster(source).is_some() && !seen;
            let left_alone = unseen || (wanted && frame.overlapping.contains(&**target));
            !left_alone && !cluster.kept.contains_key(name)
        });
        if let Some(cluster) = clusters.get_mut(target) {
            match is_doomed {
                true => cluster.doomed.insert(name.to_owned()),
                false => cluster.doomed.remove(name),
            };
        }
    }

    fn doom_all_of(&mut self, target: &Arc<str>, source: &str) {
        let there = self.clusters.get(target).and_then(|cluster| cluster.there.as_ref());
        let ours = there.into_iter().flat_map(There::ours);
        let names: Vec<_> =
            ours.filter(|(_, of)| *of == source).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.doom(target, &name);
        }
    }

    /// The targets that something is to be written to.
    pub fn due(&self) -> impl Iterator<Item = &str> {
        let due = |cluster: &Cluster| {
            let writes = |place| cluster.decision(place).is_some_and(|d| d.write.is_some());
            !cluster.doomed.is_empty() || cluster.open.iter().any(writes)
        };
        self.clusters.iter().filter(move |(_, cluster)| due(cluster)).map(|(name, _)| &**name)
    }

    /// What is to be written to one target; none where its peers are not known.
    pub fn target(&self, cluster: &str) -> Option<TargetPlan> {
        let cluster = self.clusters.get(cluster)?;
        cluster.there.as_ref()?;
        let open = cluster.open.iter().filter_map(|place| cluster.decision(place));
        Some(TargetPlan::of(cluster.doomed.iter().cloned().collect(), open))
    }

    /// Whether a cluster is known to have no peer of the mesh.
    pub fn is_clear(&self, cluster: &str) -> bool {
        let there = self.clusters.get(cluster).and_then(|cluster| cluster.there.as_ref());
        there.is_some_and(|there| there.ours().is_empty())
    }

    /// What is to be said of the mesh, where `before` was said last.
    pub fn status(
        &self,
        before: Option<&ClusterMeshStatus>,
        generation: Option<i64>,
    ) -> ClusterMeshStatus {
        let mut accounts = BTreeMap::new();
        for entry in &self.frame.clusters {
            let cluster = self.clusters.get(entry.name.as_str());
            let sight = cluster.map(|c| (c.sight.nodes.bare(), c.sight.peers.bare()));
            let planned = self.target(&entry.name).unwrap_or_default();
            let mut account = Account {
                unseen: unseen(sight),
                source: cluster.and_then(|cluster| cluster.source.as_ref()),
                to_write: !planned.is_empty(),
                conflict: planned.conflicts.into_iter().next(),
                ..Account::default()
            };
            if let Some(source) = account.source {
                self.tell_of(&entry.name, source, &mut account);
            }
            accounts.insert(entry.name.as_str(), account);
        }
        status(&self.frame, &accounts, before, generation)
    }

    fn tell_of(&self, source: &str, of: &Source, account: &mut Account<'_>) {
        for (target, cluster) in &self.clusters {
            let wanted = self.frame.wants(target) && !self.frame.overlapping.contains(&**target);
            if **target != *source && wanted && cluster.there.is_some() {
                let pair = cluster.pairs.get(source);
                let carrier = pair.and_then(|pair| pair.carrier.as_ref());
                let uncarried = !of.residual.is_empty() && carrier.is_none();
                let registered = pair.map_or(0, |pair| pair.registered);
                account.add(target, of.peered.len() as u32, registered, uncarried);
            }
        }
    }
}

impl Cluster {
    fn unseen() -> Self {
        let nothing = "nothing is known of it".to_owned();
        let sight = Sight { nodes: Seen::Away(nothing.clone()), peers: Seen::Away(nothing) };
        Self {
            sight,
            candidates: Candidates::new(),
            source: None,
            there: None,
            pairs: HashMap::new(),
            kept: HashMap::new(),
            doomed: BTreeSet::new(),
            open: BTreeSet::new(),
        }
    }

    fn decision(&self, place: &Place) -> Option<&Decision> {
        self.pairs.get(&place.0)?.decided.get(&place.1)
    }
}

/// Who has a node's plain name when nothing is written yet.
fn first<'p>(plain: &'p HashMap<Arc<str>, BTreeSet<Place>>, node: &Peered) -> (&'p str, &'p str) {
    let first = plain.get(&node.names.plain).and_then(BTreeSet::first);
    first.map_or(("", ""), |(cluster, node)| (cluster, node))
}

#[cfg(test)]
mod tests;
