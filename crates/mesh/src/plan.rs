//! What must change, per cluster that peers are written to: the whole of it, from nothing. It is the
//! truth that [`State`](crate::State) keeps up with, one change at a time.
//!
//! A plan is applied in the order deletes, updates, creates: an address is let go of before another
//! peer takes it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use objects::kinds::{ClusterMesh, ClusterMeshStatus};
use serde_json::Value;

use crate::decide::{Decision, Write, carrying, decide};
use crate::endpoint::Discovered;
use crate::frame::Frame;
use crate::member::Skipped;
use crate::overlap::Overlap;
use crate::peer::Peer;
use crate::source::{Candidate, Candidates, Everyone, Source, settle};
use crate::status::{Account, status, unseen};
use crate::there::There;

/// What a cluster was seen to have.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen<All> {
    /// All of them. None at all is a fact too.
    Known(All),
    /// Not yet, and what for: `the Peer CRD`, `Secret prod-eu`.
    Waiting(String),
    /// The cluster cannot be asked, and why.
    Away(String),
}

impl<All> Seen<All> {
    pub fn known(&self) -> Option<&All> {
        match self {
            Self::Known(all) => Some(all),
            Self::Waiting(_) | Self::Away(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub nodes: Seen<Vec<Node>>,
    pub peers: Seen<Vec<Peer>>,
}

#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub mesh: &'a ClusterMesh,
    /// The other meshes that there are: what it must not overlap with.
    pub others: &'a [ClusterMesh],
    /// By the mesh's names for them. One that is in the mesh and not here is away; one that is here
    /// and no longer in the mesh is cleared of the mesh's peers.
    pub views: &'a BTreeMap<String, View>,
    /// Whether peers that kilo-clustermesh made for a mesh of this name become ours.
    pub adopt: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// By target; without those that cannot be written to now.
    pub targets: BTreeMap<String, TargetPlan>,
    /// By cluster.
    pub skipped: BTreeMap<String, Vec<Skipped>>,
    pub overlaps: Vec<Overlap>,
    /// Sentences about what is left out and stops nothing.
    pub notes: Vec<String>,
    pub status: ClusterMeshStatus,
}

impl Plan {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.targets.values().all(TargetPlan::is_empty)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetPlan {
    pub deletes: Vec<String>,
    pub updates: Vec<Update>,
    pub creates: Vec<Peer>,
    pub conflicts: Vec<Conflict>,
}

impl TargetPlan {
    pub fn is_empty(&self) -> bool {
        self.deletes.is_empty() && self.updates.is_empty() && self.creates.is_empty()
    }
}

/// A JSON merge patch of a peer that is ours. What it does not name stays, a preshared key above all.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    pub name: String,
    /// Of the peer that the patch was made for.
    pub version: Option<String>,
    pub patch: Value,
    /// Whether the peer gives up routes, which another may be about to take.
    pub yields: bool,
}

/// A peer that is not written because somebody else's peer has its public key: WireGuard knows peers
/// by their key, and two of one key undo each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub cluster: String,
    pub node: String,
    /// The peer that has the key.
    pub holder: String,
    /// Whether `adopt` would settle it.
    pub adoptable: bool,
}

pub fn plan(input: Input<'_>) -> Plan {
    let Input { mesh, others, views, adopt } = input;
    let frame = Frame::new(mesh, others, adopt);
    let sources = sources(&frame, views);
    // Who has a plain name when nothing is written yet: the first by cluster and node.
    let mut plain: HashMap<&str, (&str, &str)> = HashMap::new();
    for (cluster, source) in &sources {
        for (node, peered) in &source.peered {
            plain.entry(&peered.names.plain).or_insert((cluster, node));
        }
    }
    let mut plan = Plan::default();
    let mut accounts: BTreeMap<&str, Account<'_>> = BTreeMap::new();
    for cluster in &frame.clusters {
        let name = cluster.name.as_str();
        let (unseen, source) = (unseen(views.get(name).map(View::unseen)), sources.get(name));
        accounts.insert(name, Account { unseen, source, ..Account::default() });
    }
    for (target, view) in views {
        let Some(peers) = view.peers.known() else { continue };
        let mut there = There::new(view.nodes.known().map(Discovered::of));
        for peer in peers {
            there.insert(&frame, peer);
        }
        let planned = target_plan(&frame, &sources, &plain, target, &there, &mut accounts);
        if let Some(account) = accounts.get_mut(target.as_str()) {
            account.to_write = !planned.is_empty();
            account.conflict = planned.conflicts.first().cloned();
        }
        plan.targets.insert(target.clone(), planned);
    }
    plan.status = status(&frame, &accounts, mesh.status.as_ref(), mesh.metadata.generation);
    drop(accounts);
    for (cluster, source) in sources {
        plan.notes.extend(source.notes);
        plan.skipped.insert(cluster.to_owned(), source.skipped);
    }
    plan.overlaps = frame.overlaps.into_iter().collect();
    plan
}

impl View {
    fn unseen(&self) -> (Seen<()>, Seen<()>) {
        (self.nodes.bare(), self.peers.bare())
    }
}

impl<All> Seen<All> {
    /// Whether and why, without what.
    pub(crate) fn bare(&self) -> Seen<()> {
        match self {
            Self::Known(_) => Seen::Known(()),
            Self::Waiting(what) => Seen::Waiting(what.clone()),
            Self::Away(why) => Seen::Away(why.clone()),
        }
    }
}

/// Of the clusters whose nodes are known and that overlap nobody.
fn sources<'f>(frame: &'f Frame, views: &BTreeMap<String, View>) -> BTreeMap<&'f str, Source> {
    let mut everyone = Everyone::default();
    let mut all: Vec<(Arc<str>, &str, Candidates)> = Vec::new();
    for cluster in &frame.clusters {
        let nodes = views.get(&cluster.name).and_then(|view| view.nodes.known());
        let Some(nodes) = nodes else { continue };
        let name: Arc<str> = cluster.name.as_str().into();
        let mut candidates = Candidates::new();
        for node in nodes {
            let candidate = Candidate::read(frame, cluster, node);
            candidates.insert(node.name_any().into(), candidate);
        }
        for (node, candidate) in &candidates {
            everyone.add(&name, node, candidate);
        }
        all.push((name, &cluster.name, candidates));
    }
    all.into_iter()
        .filter(|(name, ..)| !frame.overlapping.contains(&**name))
        .map(|(_, name, candidates)| (name, settle(frame, name, &candidates, &everyone)))
        .collect()
}

fn target_plan<'f>(
    frame: &Frame,
    sources: &BTreeMap<&'f str, Source>,
    plain: &HashMap<&str, (&str, &str)>,
    target: &str,
    there: &There<&Peer>,
    accounts: &mut BTreeMap<&'f str, Account<'_>>,
) -> TargetPlan {
    let wanted = frame.wants(target);
    if wanted && frame.overlapping.contains(target) {
        return TargetPlan::default();
    }
    let mut decisions: Vec<Decision> = Vec::new();
    if wanted {
        for (source, of) in sources.iter().filter(|(source, _)| **source != target) {
            let first = |names: &crate::name::Names| plain[&*names.plain];
            let able = of
                .peered
                .values()
                .filter_map(|node| carrying(frame, source, of, node, first(&node.names), there));
            let carrier = able.min().filter(|_| !of.residual.is_empty()).map(|(_, node)| node);
            let (mut wanted, mut registered) = (0, 0);
            for (name, node) in &of.peered {
                let extra = if carrier == Some(name) { &of.residual[..] } else { &[] };
                let decision = decide(frame, source, node, extra, first(&node.names), there);
                wanted += 1;
                registered += u32::from(decision.registered);
                decisions.push(decision);
            }
            if let Some(account) = accounts.get_mut(source) {
                let uncarried = !of.residual.is_empty() && carrier.is_none();
                account.add(target, wanted, registered, uncarried);
            }
        }
    }
    let kept: BTreeSet<&str> = decisions.iter().filter_map(|d| d.keeps.as_deref()).collect();
    let deletes = there.ours().iter().filter(|(name, source)| {
        // What cannot be seen is not gone, and what overlaps is left as it is.
        let unseen = wanted
            && source.as_str() != target
            && frame.cluster(source).is_some()
            && !sources.contains_key(source.as_str());
        !unseen && !kept.contains(name.as_str())
    });
    TargetPlan::of(deletes.map(|(name, _)| name.clone()).collect(), &decisions)
}

impl TargetPlan {
    /// In the order in which it is applied.
    pub(crate) fn of<'d>(
        deletes: Vec<String>,
        decisions: impl IntoIterator<Item = &'d Decision>,
    ) -> Self {
        let mut plan = Self { deletes, ..Self::default() };
        for decision in decisions {
            match decision.write.as_deref() {
                Some(Write::Create(peer)) => plan.creates.push(peer.clone()),
                Some(Write::Update(update)) => plan.updates.push(update.clone()),
                None => {}
            }
            plan.conflicts.extend(decision.conflict.as_deref().cloned());
        }
        // Who gives routes up is written before who takes them.
        plan.updates.sort_by(|a, b| (!a.yields, &a.name).cmp(&(!b.yields, &b.name)));
        plan.creates.sort_by_key(ResourceExt::name_any);
        plan
    }
}

#[cfg(test)]
mod tests;
