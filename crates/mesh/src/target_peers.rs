//! `TargetPeers`: the peers that one cluster has, which of them the mesh owns, and the endpoints that
//! the cluster's nodes have discovered.

use std::collections::BTreeMap;
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
    /// The mesh's own peers by name, with the place in `sources` of the cluster that their node is in.
    owned: BTreeMap<Arc<str>, u32>,
    /// The names of clusters, each kept once, and where each is.
    sources: Vec<Arc<str>>,
    places: BTreeMap<Arc<str>, u32>,
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
                let place = match self.places.get(source) {
                    Some(known) => *known,
                    None => {
                        let new: Arc<str> = source.into();
                        // There are no more sources than peers, and no four thousand million of these.
                        let place = self.sources.len() as u32;
                        self.sources.push(Arc::clone(&new));
                        self.places.insert(new, place);
                        place
                    }
                };
                self.owned.insert(Arc::clone(name), place);
            }
            None => self.foreign.insert(peer.spec.public_key.clone(), Arc::clone(name)),
        }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.peers.contains(name)
    }

    /// The mesh's own peers in the order of their names, with the cluster that their node is in.
    pub(crate) fn owned(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Arc<str>)> {
        self.owned.iter().map(|(name, place)| (name, &self.sources[*place as usize]))
    }

    /// The cluster that the node of one of the mesh's own peers is in.
    pub(crate) fn source_of(&self, name: &str) -> Option<&Arc<str>> {
        self.owned.get(name).map(|place| &self.sources[*place as usize])
    }

    /// The mesh's own peer of this name, if it is for a node of `source`.
    pub(crate) fn owned_for(&self, name: &str, source: &str) -> Option<Peer> {
        let owned = self.source_of(name).is_some_and(|cluster| **cluster == *source);
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
