//! `PeerIndex`: the peers of one cluster by name. A mesh of a hundred clusters keeps half a million of
//! them, so each is kept in a hundred bytes, and is a [`Peer`] only while somebody looks at it.

use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use kube::ResourceExt;

use crate::peer::Peer;

mod packed_peer;

use packed_peer::PackedPeer;

/// A clone is cheap, and the difference between two indexes is found without comparing what they share.
#[derive(Clone, Default, PartialEq)]
pub struct PeerIndex(OrdMap<Arc<str>, PackedPeer>);

/// A peer before and after a change.
pub(crate) type PeerChange = (Arc<str>, Option<Peer>, Option<Peer>);

impl PeerIndex {
    pub fn get(&self, name: &str) -> Option<Peer> {
        self.0.get(name).map(|peer| peer.unpack(name))
    }

    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Adds a peer, or replaces the one of its name.
    pub fn insert(&mut self, peer: &Peer) {
        self.0.insert(peer.name_any().into(), PackedPeer::pack(peer));
    }

    /// Removes a peer, and returns whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    pub fn iter(&self) -> impl Iterator<Item = Peer> {
        self.0.iter().map(|(name, peer)| peer.unpack(name))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The peers that differ between two indexes.
    pub(crate) fn changes(&self, now: &Self) -> Vec<PeerChange> {
        let change = |item: DiffItem<'_, '_, Arc<str>, PackedPeer>| match item {
            DiffItem::Add(name, new) => (Arc::clone(name), None, Some(new.unpack(name))),
            DiffItem::Update { old: (name, old), new: (_, new) } => {
                (Arc::clone(name), Some(old.unpack(name)), Some(new.unpack(name)))
            }
            DiffItem::Remove(name, old) => (Arc::clone(name), Some(old.unpack(name)), None),
        };
        self.0.diff(&now.0).map(change).collect()
    }
}

impl FromIterator<Peer> for PeerIndex {
    fn from_iter<I: IntoIterator<Item = Peer>>(peers: I) -> Self {
        let packed = |peer: Peer| (Arc::from(peer.name_any()), PackedPeer::pack(&peer));
        Self(peers.into_iter().map(packed).collect())
    }
}

impl fmt::Debug for PeerIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
