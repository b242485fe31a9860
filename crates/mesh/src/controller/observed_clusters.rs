//! `ObservedClusters`: the nodes and peers of every cluster that a mesh names, as they were last seen.

use std::collections::BTreeSet;
use std::sync::Arc;

use fleet::resources::Change;
use imbl::OrdMap;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use objects::kinds::{AddressBlock, DataPlane, MeshClusterRef, WireguardNode};

use crate::mesh_node::with_wireguard;
use crate::observation::{Index, Observation, Observed, changes, index, index_key};
use crate::peer::Peer;
use crate::peer_index::PeerIndex;

/// Observers write what they see of their cluster, reconcilers write the peers that they wrote, and
/// reconcilers read. A clone is cheap.
#[derive(Clone, Debug, Default)]
pub(super) struct ObservedClusters(OrdMap<MeshClusterRef, Arc<ObservedCluster>>);

/// One cluster, by whatever names meshes know it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ObservedCluster {
    /// The Nodes, and Kilo's peers.
    pub(super) kilo: Observation,
    /// The same Nodes with what their agents say, and our own peers.
    pub(super) wireguard: Observation,
    pub(super) wireguard_nodes: Observed<Index<WireguardNode>>,
    pub(super) blocks: Observed<Index<AddressBlock>>,
    /// The uid of the namespace `kube-system`: it is the same however the cluster is reached.
    pub(super) identity: Option<Arc<str>>,
}

impl Default for ObservedCluster {
    fn default() -> Self {
        const WHY: &str = "it is being looked at for the first time";
        Self {
            kilo: Observation::away(WHY),
            wireguard: Observation::away(WHY),
            wireguard_nodes: Observed::Away(WHY.to_owned()),
            blocks: Observed::Away(WHY.to_owned()),
            identity: None,
        }
    }
}

impl ObservedCluster {
    /// What a mesh with this data plane is planned from.
    pub(super) fn observation(&self, plane: DataPlane) -> &Observation {
        match plane {
            DataPlane::Kilo => &self.kilo,
            DataPlane::Wireguard => &self.wireguard,
        }
    }

    pub(super) fn observation_mut(&mut self, plane: DataPlane) -> &mut Observation {
        match plane {
            DataPlane::Kilo => &mut self.kilo,
            DataPlane::Wireguard => &mut self.wireguard,
        }
    }

    /// Brings `wireguard.nodes` up to date: those nodes alone of which something has changed.
    fn join_nodes(&mut self, before: &Self) {
        let unknown = |what: &Observed<()>| match what {
            Observed::Waiting(what) => Observed::Waiting(what.clone()),
            Observed::Away(why) => Observed::Away(why.clone()),
            Observed::Known(()) => Observed::Away(String::new()),
        };
        let parts = [self.kilo.nodes.state(), self.wireguard_nodes.state(), self.blocks.state()];
        if let Some(missing) = parts.iter().find(|part| part.known().is_none()) {
            self.wireguard.nodes = unknown(missing);
            return;
        }
        let (Some(nodes), Some(said), Some(blocks)) =
            (self.kilo.nodes.known(), self.wireguard_nodes.known(), self.blocks.known())
        else {
            return;
        };
        let join = |name: &str| -> Option<Arc<Node>> {
            let node = Node::clone(nodes.get(name)?);
            let said = said.get(name).map(AsRef::as_ref);
            Some(Arc::new(with_wireguard(node, said, blocks.values().map(AsRef::as_ref))))
        };
        let joined = match &mut self.wireguard.nodes {
            Observed::Known(joined)
                if before.kilo.nodes.known().is_some()
                    && before.wireguard_nodes.known().is_some()
                    && before.blocks.known().is_some() =>
            {
                joined
            }
            stale => {
                *stale = Observed::Known(Index::default());
                let Observed::Known(joined) = stale else { return };
                joined.extend(nodes.keys().filter_map(|name| Some((name.clone(), join(name)?))));
                return;
            }
        };
        let mut names: BTreeSet<Arc<str>> = BTreeSet::new();
        names.extend(changes(before.kilo.nodes.known(), Some(nodes)).into_iter().map(|it| it.0));
        names
            .extend(changes(before.wireguard_nodes.known(), Some(said)).into_iter().map(|it| it.0));
        for (_, old, new) in changes(before.blocks.known(), Some(blocks)) {
            names.extend(old.iter().chain(&new).map(|block| Arc::from(block.spec.node.as_str())));
        }
        for name in names {
            match join(&name) {
                Some(node) => drop(joined.insert(name, node)),
                None => drop(joined.remove(&name)),
            }
        }
    }
}

impl ObservedClusters {
    pub(super) fn get(&self, cluster: &MeshClusterRef) -> Option<&ObservedCluster> {
        self.0.get(cluster).map(AsRef::as_ref)
    }

    /// A way that leads to the cluster with this identity.
    pub(super) fn find(&self, identity: &str) -> Option<MeshClusterRef> {
        let mut all = self.0.iter();
        let found = all.find(|(_, cluster)| cluster.identity.as_deref() == Some(identity));
        found.map(|(reference, _)| reference.clone())
    }

    /// Edits what is known of a cluster; `edit` and this return whether that changed anything.
    pub(super) fn edit(
        &mut self,
        cluster: &MeshClusterRef,
        edit: impl FnOnce(&mut ObservedCluster) -> bool,
    ) -> bool {
        let before = self.get(cluster).cloned().unwrap_or_default();
        let mut observed = before.clone();
        let changed = edit(&mut observed);
        if changed {
            observed.join_nodes(&before);
            self.0.insert(cluster.clone(), Arc::new(observed));
        }
        changed
    }

    pub(super) fn remove(&mut self, cluster: &MeshClusterRef) -> bool {
        self.0.remove(cluster).is_some()
    }
}

/// Objects of one kind by name, as an observer keeps them up to date.
pub(super) trait ObjectIndex: PartialEq + Sized {
    type Object: ResourceExt;

    fn listed(objects: Vec<Self::Object>) -> Self;

    /// Takes in an object that was read or written. An older version than the known one is ignored.
    fn put(&mut self, object: Self::Object) -> bool;

    /// Removes an object that is gone. With `version`, only if that is still the known version.
    fn take(&mut self, name: &str, version: Option<&str>) -> bool;
}

impl<T: Clone + PartialEq + ResourceExt> ObjectIndex for Index<T> {
    type Object = T;

    fn listed(objects: Vec<T>) -> Self {
        index(objects)
    }

    fn put(&mut self, object: T) -> bool {
        let name: Arc<str> = index_key(&object).into();
        if self.get(&name).is_some_and(|known| !is_newer(&object, known)) {
            return false;
        }
        self.insert(name, Arc::new(object));
        true
    }

    fn take(&mut self, name: &str, version: Option<&str>) -> bool {
        let same = |object: &Arc<T>| {
            version.is_none() || object.meta().resource_version.as_deref() == version
        };
        self.get(name).is_some_and(same) && self.remove(name).is_some()
    }
}

impl ObjectIndex for PeerIndex {
    type Object = Peer;

    fn listed(objects: Vec<Peer>) -> Self {
        objects.into_iter().collect()
    }

    fn put(&mut self, object: Peer) -> bool {
        if self.get(&object.name_any()).is_some_and(|known| !is_newer(&object, &known)) {
            return false;
        }
        self.insert(&object);
        true
    }

    fn take(&mut self, name: &str, version: Option<&str>) -> bool {
        let same = |peer: Peer| version.is_none() || peer.resource_version().as_deref() == version;
        self.get(name).is_some_and(same) && self.remove(name)
    }
}

#[allow(private_bounds, reason = "only the controller changes what is observed")]
impl<I: ObjectIndex> Observed<I> {
    /// Takes in a change that a watch reported, and returns whether it made a difference. `strip`
    /// removes what no plan depends on.
    pub(super) fn apply(
        &mut self,
        change: Change<Vec<I::Object>, I::Object>,
        strip: fn(I::Object) -> I::Object,
    ) -> bool {
        match change {
            Change::Listed(all) => {
                self.replace(Self::Known(I::listed(all.into_iter().map(strip).collect())))
            }
            Change::Applied(object) => self.put(strip(object)),
            Change::Deleted(object) => self.remove(&index_key(&object), None),
            // The last known objects stay; the fleet says when the cluster is away.
            Change::Interrupted { .. } | Change::Resumed => false,
        }
    }

    /// Takes in an object that was read or written.
    pub(super) fn put(&mut self, object: I::Object) -> bool {
        let Self::Known(known) = self else { return false };
        known.put(object)
    }

    /// Removes an object that is gone.
    pub(super) fn remove(&mut self, name: &str, version: Option<&str>) -> bool {
        let Self::Known(known) = self else { return false };
        known.take(name, version)
    }
}

/// Every API server counts its versions up. An object without a version is newer if it is different.
fn is_newer<T: PartialEq + ResourceExt>(object: &T, known: &T) -> bool {
    let version = |object: &T| object.resource_version()?.parse::<u64>().ok();
    match (version(object), version(known)) {
        (Some(new), Some(old)) => new > old,
        _ => object != known,
    }
}

#[cfg(test)]
mod tests;
