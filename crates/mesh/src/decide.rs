//! Decides about the peers of one cluster's nodes in another cluster: their names, and what must be
//! written.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use objects::kinds::{WireguardRouting, WireguardWithin};
use serde_json::{Value, json};

use crate::context::MeshContext;
use crate::peer::{Peer, PeerEndpoint, PeerSpec, label};
use crate::plan::{Conflict, Update};
use crate::source::{PeeredNode, SourceCluster};
use crate::target_peers::TargetPeers;

/// What happens to one node's peer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    /// The name of the peer that the node keeps or gets. None if it has no peer of this mesh.
    pub(crate) keeps: Option<Arc<str>>,
    pub(crate) write: Option<Box<Write>>,
    pub(crate) conflict: Option<Box<Conflict>>,
    /// Whether the node's peer is in place, exactly as it should be.
    pub(crate) registered: bool,
}

#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "decisions keep it in a box")]
pub(crate) enum Write {
    Create(Peer),
    Update(Update),
}

/// How well a node carries its cluster's residual networks: whether it does not carry them yet, and its
/// name. The least rank carries them.
pub(crate) type CarrierRank = (bool, Arc<str>);

/// The cluster and the node that own a plain name: the first of those that would use it.
pub(crate) type NameOwner<'a> = (&'a str, &'a str);

/// The nodes of a source cluster as peers in a target cluster.
pub(crate) struct ClusterPair<'a> {
    pub(crate) context: &'a MeshContext,
    pub(crate) source: &'a str,
    pub(crate) cluster: &'a SourceCluster,
    /// The nodes that are peers in the target.
    pub(crate) nodes: &'a BTreeMap<Arc<str>, PeeredNode>,
    /// When packets are sent to them.
    pub(crate) routing: WireguardRouting,
    /// The peers of the target.
    pub(crate) peers: &'a TargetPeers,
    pub(crate) name_owner: &'a dyn Fn(&PeeredNode) -> NameOwner<'a>,
}

impl ClusterPair<'_> {
    /// Returns the name of a node's peer, and the peer if it exists. An existing peer keeps its name; a
    /// new one takes the plain name unless another peer owns that.
    fn find_peer<'n>(&self, node: &'n PeeredNode) -> (&'n Arc<str>, Option<Peer>) {
        let Self { context, source, peers, .. } = *self;
        let names = &node.peer_names;
        if let Some(peer) = peers.owned_for(&names.hashed, source) {
            return (&names.hashed, Some(peer));
        }
        let owner = (self.name_owner)(node);
        let is_owner = owner == (source, &*node.name);
        match peers.owned_for(&names.plain, source) {
            // A node of another cluster may own the name by now; this peer was written before.
            Some(peer) if is_owner || owner.0 != source => (&names.plain, Some(peer)),
            None if is_owner && !context.plain_names_taken && !peers.contains(&names.plain) => {
                (&names.plain, None)
            }
            _ => (&names.hashed, None),
        }
    }

    /// Ranks a node as the carrier of its cluster's residual networks; the least rank carries them. The
    /// current carrier keeps them while it can be reached. None if the node has no endpoint.
    pub(crate) fn carrier_rank(&self, node: &Arc<str>) -> Option<CarrierRank> {
        let residual = &self.cluster.residual;
        let node = self.cluster.peered.get(node).filter(|_| !residual.is_empty())?;
        let (_, existing) = self.find_peer(node);
        self.peers.endpoint(node, existing.as_ref())?;
        let is_carrier = existing
            .is_some_and(|peer| peer.spec.allowed_ips.iter().any(|ip| residual.contains(ip)));
        Some((!is_carrier, Arc::clone(&node.name)))
    }

    /// The node that should carry its cluster's residual networks.
    pub(crate) fn best_carrier(&self) -> Option<CarrierRank> {
        self.cluster.peered.keys().filter_map(|node| self.carrier_rank(node)).min()
    }

    /// Decides about a node's peer. A carrier has its cluster's residual networks beside its own routes.
    pub(crate) fn decide(&self, node: &PeeredNode, is_carrier: bool) -> Decision {
        let Self { context, source, peers, .. } = *self;
        let (name, existing) = self.find_peer(node);
        let wanted = WantedPeer {
            routes: &node.routes,
            residual: if is_carrier { &self.cluster.residual } else { &[] },
            endpoint: peers.endpoint(node, existing.as_ref()),
            keepalive: context.keepalive,
            key: &node.key,
            next_key: node.next_key.as_ref(),
            within: node.within.as_ref(),
            routing: self.routing,
            external_networks: &context.external_networks,
        };
        let mut conflict = None;
        if let Some(holder) = peers.foreign_with_key(&node.key) {
            let covers = holder.labels().contains_key(label::MESH)
                && wanted.allowed_ips().all(|ip| holder.spec.allowed_ips.contains(ip));
            let holder_name = holder.name_any();
            if covers && (existing.is_none() || *holder_name < **name) {
                // Another mesh has the same node with the same routes: one peer is enough.
                return Decision { keeps: None, write: None, conflict: None, registered: true };
            }
            if !covers {
                conflict = Some(Box::new(Conflict {
                    cluster: source.to_owned(),
                    node: node.name.to_string(),
                    adoptable: holder.source(&context.namespace, &context.name, true).is_some(),
                    holder: holder_name,
                }));
                if existing.is_none() {
                    return Decision { keeps: None, write: None, conflict, registered: false };
                }
            }
        }
        let write = match existing {
            None => {
                let mut peer = Peer::new(context.data_plane, name, wanted.spec());
                let labels = context.labels(source);
                let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
                peer.metadata.labels = Some(labels.into());
                Some(Write::Create(peer))
            }
            Some(peer) => patch(context, source, &peer, &wanted).map(|(patch, releases_routes)| {
                let version = peer.resource_version();
                Write::Update(Update { name: name.to_string(), version, patch, releases_routes })
            }),
        };
        Decision {
            keeps: Some(Arc::clone(name)),
            registered: write.is_none(),
            write: write.map(Box::new),
            conflict,
        }
    }
}

/// A peer as it should be. It borrows everything, because nearly always there is nothing to write.
struct WantedPeer<'a> {
    routes: &'a [String],
    residual: &'a [String],
    endpoint: Option<PeerEndpoint>,
    keepalive: u32,
    key: &'a str,
    next_key: Option<&'a String>,
    within: Option<&'a WireguardWithin>,
    routing: WireguardRouting,
    external_networks: &'a [String],
}

impl WantedPeer<'_> {
    fn allowed_ips(&self) -> impl Iterator<Item = &String> {
        self.routes.iter().chain(self.residual)
    }

    fn spec(self) -> PeerSpec {
        PeerSpec {
            allowed_ips: self.allowed_ips().cloned().collect(),
            endpoint: self.endpoint,
            persistent_keepalive: self.keepalive,
            public_key: self.key.to_owned(),
            next_public_key: self.next_key.cloned(),
            within: self.within.cloned(),
            routing: self.routing,
            external_networks: self.external_networks.to_vec(),
        }
    }
}

/// Returns the patch that makes `peer` as it should be, and whether the peer gives up routes with it.
fn patch(
    context: &MeshContext,
    source: &str,
    peer: &Peer,
    wanted: &WantedPeer<'_>,
) -> Option<(Value, bool)> {
    let mut labels = serde_json::Map::new();
    for (key, value) in context.labels(source) {
        if peer.labels().get(key).is_none_or(|has| has != value) {
            labels.insert(key.to_owned(), value.into());
        }
    }
    // Whoever deletes the old mesh would delete an adopted peer that still has its labels.
    for key in [label::KILO_MESH, label::KILO_CLUSTER] {
        if peer.labels().contains_key(key) {
            labels.insert(key.to_owned(), Value::Null);
        }
    }
    let mut fields = serde_json::Map::new();
    let mut releases_routes = false;
    if peer.spec.public_key != wanted.key {
        fields.insert("publicKey".to_owned(), json!(wanted.key));
    }
    if peer.spec.next_public_key.as_ref() != wanted.next_key {
        fields.insert("nextPublicKey".to_owned(), json!(wanted.next_key));
    }
    if peer.spec.within.as_ref() != wanted.within {
        // A merge patch keeps what it does not name.
        let within =
            wanted.within.map(|it| json!({"gateway": it.gateway, "networks": it.networks}));
        fields.insert("within".to_owned(), json!(within));
    }
    if peer.spec.routing != wanted.routing {
        let routing = (!wanted.routing.is_always()).then_some(wanted.routing);
        fields.insert("routing".to_owned(), json!(routing));
    }
    if peer.spec.external_networks != wanted.external_networks {
        fields.insert("externalNetworks".to_owned(), json!(wanted.external_networks));
    }
    if !peer.spec.allowed_ips.iter().eq(wanted.allowed_ips()) {
        let after: Vec<&String> = wanted.allowed_ips().collect();
        releases_routes = peer.spec.allowed_ips.iter().any(|ip| !after.contains(&ip));
        fields.insert("allowedIPs".to_owned(), json!(after));
    }
    if peer.spec.persistent_keepalive != wanted.keepalive {
        fields.insert("persistentKeepalive".to_owned(), json!(wanted.keepalive));
    }
    if peer.spec.endpoint != wanted.endpoint {
        let endpoint = wanted.endpoint.as_ref().map(|endpoint| {
            // A merge patch keeps what it does not name, so the other kind of host is set to null.
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
    (!patch.is_empty()).then(|| (patch.into(), releases_routes))
}
