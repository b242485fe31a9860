//! `TargetPeers`: the peers that one cluster has, which of them the mesh owns, and the endpoints that
//! the cluster's nodes have discovered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::context::MeshContext;
use crate::endpoint::DiscoveredEndpoints;
use crate::peer::{Peer, PeerEndpoint};
use crate::peer_index::PeerIndex;
use crate::set_map::SetMap;
use crate::source::PeeredNode;

#[derive(Clone, Debug, Default)]
pub(crate) struct TargetPeers {
    /// As they were observed; it shares everything with the observation.
    peers: PeerIndex,
    /// The mesh's own peers by name, with the cluster that their node is in.
    owned: BTreeMap<Arc<str>, Arc<str>>,
    /// The names of clusters, each kept once.
    sources: BTreeSet<Arc<str>>,
    /// The names of the peers of others, by public key.
    foreign: SetMap<String, Arc<str>>,
    /// None while the cluster's nodes are unknown.
    pub(crate) discovered: Option<DiscoveredEndpoints>,
}

impl TargetPeers {
    pub(crate) fn new(
        context: &MeshContext,
        peers: &PeerIndex,
        discovered: Option<DiscoveredEndpoints>,
    ) -> Self {
        let mut all = Self { discovered, peers: peers.clone(), ..Self::default() };
        for (name, peer) in peers.names().zip(peers.iter()) {
            all.insert(context, name, &peer);
        }
        all
    }

    /// Takes in what the cluster has now, and returns what changed.
    pub(crate) fn observe(
        &mut self,
        context: &MeshContext,
        before: &PeerIndex,
        now: &PeerIndex,
    ) -> Vec<(Arc<str>, Option<Peer>, Option<Peer>)> {
        self.peers = now.clone();
        let changes = before.changes(now);
        for (name, old, new) in &changes {
            if let Some(old) = old
                && self.owned.remove(name).is_none()
            {
                self.foreign.remove(&old.spec.public_key, name);
            }
            if let Some(new) = new {
                self.insert(context, name, new);
            }
        }
        changes
    }

    fn insert(&mut self, context: &MeshContext, name: &Arc<str>, peer: &Peer) {
        match peer.source(&context.namespace, &context.name, context.adopt) {
            Some(source) => {
                let source = match self.sources.get(source) {
                    Some(known) => Arc::clone(known),
                    None => {
                        let new: Arc<str> = source.into();
                        self.sources.insert(Arc::clone(&new));
                        new
                    }
                };
                self.owned.insert(Arc::clone(name), source);
            }
            None => self.foreign.insert(peer.spec.public_key.clone(), Arc::clone(name)),
        }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.peers.contains(name)
    }

    /// The mesh's own peers by name, with the cluster that their node is in.
    pub(crate) fn owned(&self) -> &BTreeMap<Arc<str>, Arc<str>> {
        &self.owned
    }

    /// The mesh's own peer of this name, if it is for a node of `source`.
    pub(crate) fn owned_for(&self, name: &str, source: &str) -> Option<Peer> {
        let owned = self.owned.get(name).is_some_and(|cluster| **cluster == *source);
        owned.then(|| self.peers.get(name)).flatten()
    }

    /// The first peer by name that has this public key and belongs to somebody else.
    pub(crate) fn foreign_with_key(&self, key: &str) -> Option<Peer> {
        let first = self.foreign.get(key).next()?;
        self.peers.get(first)
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
