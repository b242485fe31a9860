//! `ClusterAccess`: connections to the clusters that meshes name.

use fleet::{Connection, Error, Fleet, SourceKind};
use objects::kinds::MeshClusterRef;
use stallproof::sentence;

use crate::observation::Observed;

#[derive(Clone, Debug)]
pub(super) struct ClusterAccess {
    /// The fleet that users see.
    pub(super) fleet: Fleet,
    /// The clusters whose kubeconfigs are in Secrets beside the meshes; only meshes use them.
    pub(super) from_secrets: Fleet,
}

impl ClusterAccess {
    /// The name that the cluster of a Secret has in the fleet `from_secrets`.
    pub(super) fn secret_cluster_name(namespace: &str, secret: &str, key: &str) -> String {
        format!("{namespace}/{secret}/{key}")
    }

    pub(super) fn fleet_of(&self, cluster: &MeshClusterRef) -> &Fleet {
        match cluster {
            MeshClusterRef::Secret(..) => &self.from_secrets,
            MeshClusterRef::Local | MeshClusterRef::Fleet(_) => &self.fleet,
        }
    }

    pub(super) fn connection(&self, cluster: &MeshClusterRef) -> Result<Connection, Error> {
        match cluster {
            MeshClusterRef::Fleet(name) => self.fleet.own_connection(name),
            MeshClusterRef::Secret(namespace, name, key) => {
                self.from_secrets.own_connection(&Self::secret_cluster_name(namespace, name, key))
            }
            MeshClusterRef::Local => {
                let view = self.fleet.view();
                let local = view.clusters.values().find(|c| c.source.kind == SourceKind::InCluster);
                let local = local.ok_or(Error::NoSuchCluster { cluster: "local".to_owned() })?;
                view.own_connection(&local.name)
            }
        }
    }
}

/// Says what is missing when a cluster has no connection.
pub(super) fn why_unknown<T>(cluster: &MeshClusterRef, error: &Error) -> Observed<T> {
    match (error, cluster) {
        (Error::NoSuchCluster { .. }, MeshClusterRef::Secret(namespace, name, _)) => {
            Observed::Waiting(format!("Secret {namespace}/{name}"))
        }
        (Error::NoSuchCluster { .. }, MeshClusterRef::Fleet(name)) => {
            Observed::Waiting(format!("cluster {name} to be in the fleet"))
        }
        (Error::NoSuchCluster { .. }, MeshClusterRef::Local) => Observed::Away(
            "Fairlead does not run in a cluster here; name the cluster with clusterRef instead of \
             local"
                .to_owned(),
        ),
        (error, _) => Observed::Away(sentence(error)),
    }
}
