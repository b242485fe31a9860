//! `ObservedClusters`: the nodes and peers of every cluster that a mesh names, as they were last seen.

use std::sync::Arc;

use fleet::resources::Change;
use imbl::OrdMap;
use kube::ResourceExt;
use objects::kinds::MeshClusterRef;

use crate::observation::{Index, Observation, Observed, index};

/// Observers write what they see of their cluster, reconcilers write the peers that they wrote, and
/// reconcilers read. A clone is cheap.
#[derive(Clone, Debug, Default)]
pub(super) struct ObservedClusters(OrdMap<MeshClusterRef, Arc<ObservedCluster>>);

/// One cluster, by whatever names meshes know it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ObservedCluster {
    pub(super) observation: Observation,
    /// The uid of the namespace `kube-system`: it is the same however the cluster is reached.
    pub(super) identity: Option<Arc<str>>,
}

impl Default for ObservedCluster {
    fn default() -> Self {
        let observation = Observation::away("it is being looked at for the first time");
        Self { observation, identity: None }
    }
}

impl ObservedClusters {
    pub(super) fn get(&self, cluster: &MeshClusterRef) -> Option<&ObservedCluster> {
        self.0.get(cluster).map(AsRef::as_ref)
    }

    /// Edits what is known of a cluster; `edit` and this return whether that changed anything.
    pub(super) fn edit(
        &mut self,
        cluster: &MeshClusterRef,
        edit: impl FnOnce(&mut ObservedCluster) -> bool,
    ) -> bool {
        let mut observed = self.get(cluster).cloned().unwrap_or_default();
        let changed = edit(&mut observed);
        if changed {
            self.0.insert(cluster.clone(), Arc::new(observed));
        }
        changed
    }

    pub(super) fn remove(&mut self, cluster: &MeshClusterRef) -> bool {
        self.0.remove(cluster).is_some()
    }
}

impl<T: Clone + PartialEq + ResourceExt> Observed<Index<T>> {
    /// Takes in a change that a watch reported, and returns whether it made a difference. `strip`
    /// removes what no plan depends on.
    pub(super) fn apply(&mut self, change: Change<Vec<T>, T>, strip: fn(T) -> T) -> bool {
        match change {
            Change::Listed(all) => self.replace(Self::Known(index(all.into_iter().map(strip)))),
            Change::Applied(object) => self.put(strip(object)),
            Change::Deleted(object) => self.remove(&object.name_any(), None),
            // The last known objects stay; the fleet says when the cluster is away.
            Change::Interrupted { .. } | Change::Resumed => false,
        }
    }

    /// Takes in an object that was read or written. An older version than the known one is ignored.
    pub(super) fn put(&mut self, object: T) -> bool {
        let Self::Known(known) = self else { return false };
        let name: Arc<str> = object.name_any().into();
        if known.get(&name).is_some_and(|known| !is_newer(&object, known)) {
            return false;
        }
        known.insert(name, Arc::new(object));
        true
    }

    /// Removes an object that is gone. With `version`, only if that is still the known version.
    pub(super) fn remove(&mut self, name: &str, version: Option<&str>) -> bool {
        let Self::Known(known) = self else { return false };
        let same = |object: &Arc<T>| {
            version.is_none() || object.meta().resource_version.as_deref() == version
        };
        known.get(name).is_some_and(same) && known.remove(name).is_some()
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
