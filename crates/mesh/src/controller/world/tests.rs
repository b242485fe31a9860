use std::sync::Arc;

use objects::kinds::MeshClusterRef;

use super::{Observed, World};
use crate::peer::{Peer, PeerSpec};
use crate::plan::Seen;
use crate::state::Index;

fn peer(version: &str, key: &str) -> Peer {
    let spec = PeerSpec { public_key: key.to_owned(), ..PeerSpec::default() };
    let mut peer = Peer::new("p", spec);
    peer.metadata.resource_version = Some(version.to_owned());
    peer
}

fn observed() -> Observed {
    let mut observed = Observed::default();
    observed.sight.peers = Seen::Known(Index::default());
    observed
}

fn key(observed: &Observed) -> Option<&str> {
    let peer = observed.sight.peers.known()?.get("p")?;
    Some(&peer.spec.public_key)
}

#[test]
fn an_older_version_of_a_peer_does_not_replace_a_newer_one() {
    let mut observed = observed();
    assert!(observed.put(peer("9", "a")));
    assert!(observed.put(peer("10", "b")));
    assert!(!observed.put(peer("10", "b")));
    assert!(!observed.put(peer("9", "a")));
    assert_eq!(key(&observed), Some("b"));
}

#[test]
fn a_delete_of_another_version_removes_nothing() {
    let mut observed = observed();
    observed.put(peer("10", "b"));
    assert!(!observed.remove("p", Some("9")));
    assert_eq!(key(&observed), Some("b"));
    assert!(observed.remove("p", Some("10")));
    assert_eq!(key(&observed), None);
}

#[test]
fn what_is_not_known_is_not_made_known_by_one_peer() {
    let mut observed = Observed::default();
    assert!(!observed.put(peer("1", "a")));
    assert!(observed.sight.peers.known().is_none());
}

#[test]
fn an_edit_that_changes_nothing_leaves_the_cluster_as_it_is() {
    let mut world = World::default();
    let cluster = MeshClusterRef::Local;
    assert!(!world.edit(&cluster, |_| false));
    assert!(world.clusters.is_empty());
    assert!(world.edit(&cluster, |_| true));
    let before = Arc::clone(&world.clusters[&cluster]);
    world.edit(&cluster, |_| false);
    assert!(Arc::ptr_eq(&before, &world.clusters[&cluster]));
}
