//! What is in one target: its peers, whose they are, and what its nodes have discovered.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::ResourceExt;

use crate::endpoint::Discovered;
use crate::frame::Frame;
use crate::peer::{Peer, PeerEndpoint};
use crate::source::Peered;

#[derive(Clone, Debug)]
pub(crate) struct There<P> {
    peers: HashMap<String, P>,
    /// With the cluster whose node it is.
    ours: BTreeMap<String, String>,
    /// The public keys that others have, and in which peers.
    held: HashMap<String, BTreeSet<String>>,
    /// None: its nodes are unknown, and so is what they discovered.
    pub(crate) discovered: Option<Discovered>,
}

impl<P: Borrow<Peer>> There<P> {
    pub(crate) fn new(discovered: Option<Discovered>) -> Self {
        Self { peers: HashMap::new(), ours: BTreeMap::new(), held: HashMap::new(), discovered }
    }

    /// In place of one of its name, which must have been removed.
    pub(crate) fn insert(&mut self, frame: &Frame, peer: P) {
        let seen = peer.borrow();
        let name = seen.name_any();
        match seen.source(&frame.namespace, &frame.name, frame.adopt) {
            Some(source) => drop(self.ours.insert(name.clone(), source.to_owned())),
            None => {
                let key = seen.spec.public_key.clone();
                self.held.entry(key).or_default().insert(name.clone());
            }
        }
        self.peers.insert(name, peer);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<P> {
        let peer = self.peers.remove(name)?;
        if self.ours.remove(name).is_none() {
            let key = &peer.borrow().spec.public_key;
            if let Some(names) = self.held.get_mut(key) {
                names.remove(name);
                if names.is_empty() {
                    self.held.remove(key);
                }
            }
        }
        Some(peer)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.peers.contains_key(name)
    }

    /// Every peer of the mesh, with the cluster whose node it is.
    pub(crate) fn ours(&self) -> &BTreeMap<String, String> {
        &self.ours
    }

    /// A peer of the mesh for a node of `source`.
    pub(crate) fn ours_of(&self, name: &str, source: &str) -> Option<&Peer> {
        let ours = self.ours.get(name).is_some_and(|of| of == source);
        self.peers.get(name).filter(|_| ours).map(Borrow::borrow)
    }

    /// Somebody else's peer with this key; the first by name.
    pub(crate) fn holder(&self, key: &str) -> Option<&Peer> {
        let first = self.held.get(key)?.first()?;
        self.peers.get(first).map(Borrow::borrow)
    }

    pub(crate) fn endpoint(&self, node: &Peered, existing: Option<&Peer>) -> Option<PeerEndpoint> {
        let known = match &self.discovered {
            Some(discovered) => discovered.get(&node.key).map(PeerEndpoint::from),
            None => existing.and_then(|peer| peer.spec.endpoint.clone()),
        };
        known.or_else(|| node.endpoint.as_ref().map(PeerEndpoint::from))
    }
}
