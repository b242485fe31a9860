//! `World`: everything that desks plan from, as it was last seen.

use std::sync::Arc;

use imbl::OrdMap;
use kube::ResourceExt;
use objects::Id;
use objects::kinds::{ClusterMesh, MeshClusterRef};

use crate::peer::Peer;
use crate::plan::Seen;
use crate::state::Sight;

/// A copy costs nothing. Written by the roster (meshes), observers (their cluster) and desks (peers
/// that they wrote); read by desks.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    pub(super) meshes: OrdMap<Id, Arc<ClusterMesh>>,
    pub(super) clusters: OrdMap<MeshClusterRef, Arc<Observed>>,
}

/// One cluster, whoever names it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Observed {
    pub(super) sight: Sight,
    /// What makes it that cluster, however it is reached: the uid of its `kube-system`.
    pub(super) identity: Option<Arc<str>>,
}

impl Default for Observed {
    fn default() -> Self {
        let why = "it is being looked at for the first time".to_owned();
        let sight = Sight { nodes: Seen::Away(why.clone()), peers: Seen::Away(why) };
        Self { sight, identity: None }
    }
}

impl World {
    /// Changes what is known of a cluster; whether it did.
    pub(super) fn edit(
        &mut self,
        cluster: &MeshClusterRef,
        edit: impl FnOnce(&mut Observed) -> bool,
    ) -> bool {
        let mut observed = match self.clusters.get(cluster) {
            Some(observed) => (**observed).clone(),
            None => Observed::default(),
        };
        let changed = edit(&mut observed);
        if changed {
            self.clusters.insert(cluster.clone(), Arc::new(observed));
        }
        changed
    }
}

impl Observed {
    /// A peer was read or written. An older version than the one that is known says nothing.
    pub(super) fn put(&mut self, peer: Peer) -> bool {
        let Seen::Known(peers) = &mut self.sight.peers else { return false };
        let name: Arc<str> = peer.name_any().into();
        if peers.get(&name).is_some_and(|known| !is_newer(&peer, known)) {
            return false;
        }
        peers.insert(name, Arc::new(peer));
        true
    }

    /// A peer is gone. `of`: only if it is still the one of this version.
    pub(super) fn remove(&mut self, name: &str, of: Option<&str>) -> bool {
        let Seen::Known(peers) = &mut self.sight.peers else { return false };
        let same =
            |peer: &Arc<Peer>| of.is_none() || peer.metadata.resource_version.as_deref() == of;
        peers.get(name).is_some_and(same) && peers.remove(name).is_some()
    }
}

/// Every API server counts its versions up. One that did not would be believed as it comes.
fn is_newer(peer: &Peer, known: &Peer) -> bool {
    let version = |peer: &Peer| peer.resource_version()?.parse::<u64>().ok();
    match (version(peer), version(known)) {
        (Some(new), Some(old)) => new > old,
        _ => peer != known,
    }
}

#[cfg(test)]
mod tests;
