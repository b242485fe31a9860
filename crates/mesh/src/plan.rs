//! What must change, per cluster that peers are written to.
//!
//! A plan is applied in the order deletes, updates, creates: an address is let go of before another
//! peer takes it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use objects::kinds::{ClusterMesh, ClusterMeshStatus, MeshCluster};
use serde_json::{Value, json};

use crate::endpoint::{self, Endpoint};
use crate::member::Skipped;
use crate::name;
use crate::overlap::{self, Overlap};
use crate::peer::{Peer, PeerEndpoint, PeerSpec, label};
use crate::source::{self, Peered, Source};
use crate::status;

/// What a cluster was seen to have.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen<T> {
    /// All of them. None at all is a fact too.
    Known(Vec<T>),
    /// Not yet, and what for: `the Peer CRD`, `Secret prod-eu`.
    Waiting(String),
    /// The cluster cannot be asked, and why.
    Away(String),
}

impl<T> Seen<T> {
    pub fn known(&self) -> Option<&[T]> {
        match self {
            Self::Known(all) => Some(all),
            Self::Waiting(_) | Self::Away(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub nodes: Seen<Node>,
    pub peers: Seen<Peer>,
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

/// What is known of a mesh before any target is looked at.
pub(crate) struct Mesh<'a> {
    pub(crate) input: Input<'a>,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) going: bool,
    pub(crate) overlaps: BTreeSet<Overlap>,
    pub(crate) overlapping: BTreeSet<String>,
    /// Of the clusters whose nodes are known and that overlap nobody.
    pub(crate) sources: BTreeMap<&'a str, Source>,
    /// Who has a plain name when nothing is written yet: the first by cluster and node.
    plain: HashMap<String, (&'a str, String)>,
    /// Whether the plain names belong to a mesh of the same name in another namespace.
    rival: bool,
    keepalive: u32,
}

/// How a cluster's peers stand in one target, or in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) wanted: u32,
    pub(crate) registered: u32,
    /// Networks that no node can carry there.
    pub(crate) uncarried: bool,
}

pub fn plan(input: Input<'_>) -> Plan {
    let mesh = Mesh::new(input);
    let mut plan = Plan::default();
    let mut tallies: BTreeMap<(&str, &str), Tally> = BTreeMap::new();
    for (target, view) in input.views {
        if let Some(peers) = view.peers.known() {
            let planned = mesh.target(target, view.nodes.known(), peers, &mut tallies);
            plan.targets.insert(target.clone(), planned);
        }
    }
    plan.status = status::status(&mesh, &plan.targets, &tallies);
    for (cluster, source) in mesh.sources {
        plan.notes.extend(source.notes);
        plan.skipped.insert(cluster.to_owned(), source.skipped);
    }
    plan.overlaps = mesh.overlaps.into_iter().collect();
    plan
}

impl<'a> Mesh<'a> {
    fn new(input: Input<'a>) -> Self {
        let Input { mesh, others, views, .. } = input;
        let (name, namespace) = (mesh.name_any(), overlap::namespace(mesh));
        let overlaps = overlap::overlaps(mesh, others);
        let overlapping: BTreeSet<_> = overlaps.iter().map(|o| o.cluster.clone()).collect();
        let nodes = |cluster: &'a MeshCluster| {
            let nodes = views.get(&cluster.name)?.nodes.known()?;
            Some((cluster, nodes))
        };
        let seen: Vec<_> = mesh.spec.clusters.iter().filter_map(nodes).collect();
        let mut sources = source::settle(&seen, &mesh.spec.clusters);
        sources.retain(|cluster, _| !overlapping.contains(*cluster));
        let mut plain = HashMap::new();
        for (cluster, source) in &sources {
            for peered in &source.peered {
                let wanted = name::plain(&name, cluster, &peered.node);
                plain.entry(wanted).or_insert_with(|| (*cluster, peered.node.clone()));
            }
        }
        let before =
            |other: &ClusterMesh| other.name_any() == name && overlap::namespace(other) < namespace;
        Self {
            input,
            going: mesh.metadata.deletion_timestamp.is_some(),
            rival: others.iter().any(before),
            // The larger of the cluster's own and the mesh's largest is the mesh's largest.
            keepalive: mesh
                .spec
                .clusters
                .iter()
                .map(|c| c.persistent_keepalive)
                .max()
                .unwrap_or(0)
                .into(),
            name,
            namespace,
            overlaps,
            overlapping,
            sources,
            plain,
        }
    }

    pub(crate) fn has(&self, cluster: &str) -> bool {
        self.input.mesh.spec.clusters.iter().any(|c| c.name == cluster)
    }

    fn target(
        &self,
        target: &str,
        nodes: Option<&[Node]>,
        peers: &[Peer],
        tallies: &mut BTreeMap<(&'a str, &'a str), Tally>,
    ) -> TargetPlan {
        let mut plan = TargetPlan::default();
        let there = There::new(self, peers, nodes);
        let wanted = !self.going && self.has(target);
        if wanted && self.overlapping.contains(target) {
            return plan;
        }
        let mut kept = BTreeSet::new();
        if wanted {
            for (source, nodes) in self.sources.iter().filter(|(source, _)| **source != target) {
                let tally = self.pair(source, nodes, &there, &mut plan, &mut kept);
                let target = self.input.views.get_key_value(target).map_or("", |(k, _)| k.as_str());
                tallies.insert((*source, target), tally);
            }
        }
        for (name, (_, source)) in &there.ours {
            // What cannot be seen is not gone, and what overlaps is left as it is.
            let unseen = wanted
                && *source != target
                && self.has(source)
                && !self.sources.contains_key(source);
            if !unseen && !kept.contains(*name) {
                plan.deletes.push((*name).to_owned());
            }
        }
        plan.updates.sort_by(|a, b| a.name.cmp(&b.name));
        // Who gives routes up is written before who takes them.
        plan.updates.sort_by_key(|update| !there.shrinks(update));
        plan.creates.sort_by_key(ResourceExt::name_any);
        plan
    }

    /// The peers of one cluster in another.
    fn pair(
        &self,
        source: &'a str,
        nodes: &Source,
        there: &There<'_>,
        plan: &mut TargetPlan,
        kept: &mut BTreeSet<String>,
    ) -> Tally {
        let named: Vec<(String, Option<&Peer>)> =
            nodes.peered.iter().map(|node| self.called(source, &node.node, there)).collect();
        let endpoints: Vec<Option<PeerEndpoint>> = nodes
            .peered
            .iter()
            .zip(&named)
            .map(|(node, (_, existing))| there.endpoint(node, *existing))
            .collect();
        let carrier = carrier(nodes, &named, &endpoints);
        let mut tally = Tally {
            uncarried: !nodes.residual.is_empty() && carrier.is_none(),
            ..Tally::default()
        };
        for (i, (node, ((name, existing), endpoint))) in
            nodes.peered.iter().zip(named.into_iter().zip(endpoints)).enumerate()
        {
            tally.wanted += 1;
            let extra = if carrier == Some(i) { &nodes.residual[..] } else { &[] };
            let spec = PeerSpec {
                allowed_ips: node.routes.iter().chain(extra).map(ToString::to_string).collect(),
                endpoint,
                persistent_keepalive: self.keepalive,
                public_key: node.key.clone(),
            };
            if let Some(holder) = there.keys.get(node.key.as_str()) {
                let covers = holder.labels().contains_key(label::MESH)
                    && spec.allowed_ips.iter().all(|ip| holder.spec.allowed_ips.contains(ip));
                let holder_name = holder.name_any();
                if covers && (existing.is_none() || holder_name < name) {
                    // Another mesh brings the same node with the same routes: one peer is enough.
                    tally.registered += 1;
                    continue;
                }
                if !covers {
                    plan.conflicts.push(Conflict {
                        cluster: source.to_owned(),
                        node: node.node.clone(),
                        adoptable: holder.source(&self.namespace, &self.name, true).is_some(),
                        holder: holder_name,
                    });
                    if existing.is_none() {
                        continue;
                    }
                }
            }
            match existing {
                None => plan.creates.push(self.peer(source, &name, spec)),
                Some(peer) => match self.patch(source, peer, &spec) {
                    None => tally.registered += 1,
                    Some(patch) => plan.updates.push(Update {
                        name: name.clone(),
                        version: peer.metadata.resource_version.clone(),
                        patch,
                    }),
                },
            }
            kept.insert(name);
        }
        tally
    }

    /// The name of a node's peer in a target, and the peer if it is there. A peer keeps the name it
    /// has; a new one takes the plain name unless that is somebody else's.
    fn called<'t>(
        &self,
        cluster: &str,
        node: &str,
        there: &There<'t>,
    ) -> (String, Option<&'t Peer>) {
        let hashed = name::hashed(&self.namespace, &self.name, cluster, node);
        let plain = name::plain(&self.name, cluster, node);
        let ours = |name: &str| there.ours.get(name).filter(|(_, source)| *source == cluster);
        if let Some((peer, _)) = ours(&hashed) {
            return (hashed, Some(peer));
        }
        let (of, first) = self.plain.get(&plain).map_or((cluster, node), |(c, n)| (*c, n.as_str()));
        let first = (of, first) == (cluster, node);
        match ours(&plain) {
            // Written before the other cluster had such a node.
            Some((peer, _)) if first || of != cluster => (plain, Some(peer)),
            None if first && !self.rival && !there.names.contains(plain.as_str()) => (plain, None),
            _ => (hashed, None),
        }
    }

    fn labels(&self, source: &str) -> BTreeMap<String, String> {
        [
            (label::MESH, self.name.as_str()),
            (label::NAMESPACE, &self.namespace),
            (label::CLUSTER, source),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    fn peer(&self, source: &str, name: &str, spec: PeerSpec) -> Peer {
        let mut peer = Peer::new(name, spec);
        peer.metadata.labels = Some(self.labels(source));
        peer
    }

    /// What makes `peer` as it should be; nothing if it is.
    fn patch(&self, source: &str, peer: &Peer, spec: &PeerSpec) -> Option<Value> {
        let mut labels = serde_json::Map::new();
        for (key, value) in self.labels(source) {
            if peer.labels().get(&key) != Some(&value) {
                labels.insert(key, value.into());
            }
        }
        // An adopted peer that kept its old labels would be removed with its old mesh.
        for key in [label::KILO_MESH, label::KILO_CLUSTER] {
            if peer.labels().contains_key(key) {
                labels.insert(key.to_owned(), Value::Null);
            }
        }
        let mut fields = serde_json::Map::new();
        if peer.spec.public_key != spec.public_key {
            fields.insert("publicKey".to_owned(), json!(spec.public_key));
        }
        if peer.spec.allowed_ips != spec.allowed_ips {
            fields.insert("allowedIPs".to_owned(), json!(spec.allowed_ips));
        }
        if peer.spec.persistent_keepalive != spec.persistent_keepalive {
            fields.insert("persistentKeepalive".to_owned(), json!(spec.persistent_keepalive));
        }
        if peer.spec.endpoint != spec.endpoint {
            let endpoint = spec.endpoint.as_ref().map(|endpoint| {
                // A merge keeps what it does not name: the kind of host that it was.
                let host = &endpoint.dns_or_ip;
                json!({"dnsOrIP": {"ip": host.ip, "dns": host.dns}, "port": endpoint.port})
            });
            fields.insert("endpoint".to_owned(), json!(endpoint));
        }
        let mut patch = serde_json::Map::new();
        if !labels.is_empty() {
            patch.insert("metadata".to_owned(), json!({"labels": labels}));
        }
        if !fields.is_empty() {
            patch.insert("spec".to_owned(), fields.into());
        }
        (!patch.is_empty()).then(|| patch.into())
    }
}

/// Which node carries the residual networks: who has them now, while it can be reached.
fn carrier(
    nodes: &Source,
    named: &[(String, Option<&Peer>)],
    endpoints: &[Option<PeerEndpoint>],
) -> Option<usize> {
    if nodes.residual.is_empty() {
        return None;
    }
    let residual: BTreeSet<String> = nodes.residual.iter().map(ToString::to_string).collect();
    let able = || (0..endpoints.len()).filter(|i| endpoints[*i].is_some());
    let carries = |i: &usize| {
        let peer = named[*i].1;
        peer.is_some_and(|peer| peer.spec.allowed_ips.iter().any(|ip| residual.contains(ip)))
    };
    able().find(carries).or_else(|| able().next())
}

/// What is in a target.
struct There<'a> {
    names: BTreeSet<String>,
    /// With the cluster whose node it is.
    ours: BTreeMap<&'a str, (&'a Peer, &'a str)>,
    /// The public keys that others have.
    keys: HashMap<&'a str, &'a Peer>,
    /// None: its nodes are unknown, and so is what they discovered.
    discovered: Option<BTreeMap<String, Endpoint>>,
}

impl<'a> There<'a> {
    fn new(mesh: &Mesh<'_>, peers: &'a [Peer], nodes: Option<&[Node]>) -> Self {
        let mut there = Self {
            names: peers.iter().map(ResourceExt::name_any).collect(),
            ours: BTreeMap::new(),
            keys: HashMap::new(),
            discovered: nodes.map(endpoint::discovered),
        };
        for peer in peers {
            let name = peer.metadata.name.as_deref().unwrap_or_default();
            match peer.source(&mesh.namespace, &mesh.name, mesh.input.adopt) {
                Some(source) => {
                    there.ours.insert(name, (peer, source));
                }
                None => {
                    let holder = there.keys.entry(&peer.spec.public_key).or_insert(peer);
                    if name < holder.metadata.name.as_deref().unwrap_or_default() {
                        *holder = peer;
                    }
                }
            }
        }
        there
    }

    fn endpoint(&self, node: &Peered, existing: Option<&Peer>) -> Option<PeerEndpoint> {
        let known = match &self.discovered {
            Some(discovered) => discovered.get(&node.key).map(PeerEndpoint::from),
            None => existing.and_then(|peer| peer.spec.endpoint.clone()),
        };
        known.or_else(|| node.endpoint.as_ref().map(PeerEndpoint::from))
    }

    fn shrinks(&self, update: &Update) -> bool {
        let after = update.patch.pointer("/spec/allowedIPs").and_then(Value::as_array);
        let Some((after, (peer, _))) = after.zip(self.ours.get(update.name.as_str())) else {
            return false;
        };
        peer.spec.allowed_ips.iter().any(|ip| !after.iter().any(|a| a.as_str() == Some(ip)))
    }
}

#[cfg(test)]
mod tests;
