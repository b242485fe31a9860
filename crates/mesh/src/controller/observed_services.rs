//! `ObservedServices`: the Services of every cluster whose Services a mesh joins, as they were last seen.

use std::sync::Arc;

use imbl::OrdMap;
use objects::kinds::MeshClusterRef;

use crate::services::ClusterServices;

/// Observers write what they see of their cluster, reconcilers write what they wrote, and reconcilers
/// read. A clone is cheap.
#[derive(Clone, Debug, Default)]
pub(super) struct ObservedServices(OrdMap<MeshClusterRef, Arc<ClusterServices>>);

impl ObservedServices {
    pub(super) fn get(&self, cluster: &MeshClusterRef) -> Option<&ClusterServices> {
        self.0.get(cluster).map(AsRef::as_ref)
    }

    /// Edits what is known of a cluster; `edit` and this return whether that changed anything.
    pub(super) fn edit(
        &mut self,
        cluster: &MeshClusterRef,
        edit: impl FnOnce(&mut ClusterServices) -> bool,
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
