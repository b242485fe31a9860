//! `TargetPeers`: the peers that one cluster has, which of them the mesh owns, and the endpoints that
//! the cluster's nodes have discovered.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube::ResourceExt;

use crate::context::MeshContext;
use crate::endpoint::DiscoveredEndpoints;
use crate::peer::{Peer, PeerEndpoint};
use crate::set_map::SetMap;
use crate::source::PeeredNode;

#[derive(Clone, Debug, Default)]
pub(crate) struct TargetPeers {
    peers: HashMap<String, Arc<Peer>>,
    /// The mesh's own peers by name, with the cluster that their node is in.
    owned: BTreeMap<String, String>,
    /// The names of the peers of others, by public key.
    foreign: SetMap<String, String>,
    /// None while the cluster's nodes are unknown.
    pub(crate) discovered: Option<DiscoveredEndpoints>,
}

impl TargetPeers {
    pub(crate) fn new<'p>(
        context: &MeshContext,
        peers: impl IntoIterator<Item = &'p Arc<Peer>>,
        discovered: Option<DiscoveredEndpoints>,
    ) -> Self {
        let mut all = Self { discovered, ..Self::default() };
        for peer in peers {
            all.insert(context, Arc::clone(peer));
        }
        all
    }

    /// Adds a peer. A peer of the same name must have been removed before.
    pub(crate) fn insert(&mut self, context: &MeshContext, peer: Arc<Peer>) {
        let name = peer.name_any();
        match peer.source(&context.namespace, &context.name, context.adopt) {
            Some(source) => drop(self.owned.insert(name.clone(), source.to_owned())),
            None => self.foreign.insert(peer.spec.public_key.clone(), name.clone()),
        }
        self.peers.insert(name, peer);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Arc<Peer>> {
        let peer = self.peers.remove(name)?;
        if self.owned.remove(name).is_none() {
            self.foreign.remove(&peer.spec.public_key, &peer.name_any());
        }
        Some(peer)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.peers.contains_key(name)
    }

    /// The mesh's own peers by name, with the cluster that their node is in.
    pub(crate) fn owned(&self) -> &BTreeMap<String, String> {
        &self.owned
    }

    /// The mesh's own peer of this name, if it is for a node of `source`.
    pub(crate) fn owned_for(&self, name: &str, source: &str) -> Option<&Peer> {
        let owned = self.owned.get(name).is_some_and(|cluster| cluster == source);
        self.peers.get(name).filter(|_| owned).map(AsRef::as_ref)
    }

    /// The first peer by name that has this public key and belongs to somebody else.
    pub(crate) fn foreign_with_key(&self, key: &str) -> Option<&Peer> {
        let first = self.foreign.get(key).next()?;
        self.peers.get(first).map(AsRef::as_ref)
    }

    /// Where the cluster reaches a node: where its own nodes have seen the node's key, else what the
    /// node says itself. While the cluster's nodes are unknown, a peer keeps the endpoint that it has.
    pub(crate) fn endpoint(
        &self,
        node: &PeeredNode,
        existing: Option<&Peer>,
    ) -> Option<PeerEndpoint> {
        let known = match &self.discovered {
            Some(discovered) => discovered.get(&node.key).cloned(),
            None => existing.and_then(|peer| peer.spec.endpoint.clone()),
        };
        known.or_else(|| node.endpoint.clone())
    }
}
