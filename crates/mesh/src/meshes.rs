//! `Meshes`: the meshes of a store, as users read and change them. The controller that leads carries out
//! what is written.

use kube::ResourceExt;
use kube::api::ObjectMeta;
use objects::kinds::{ClusterMesh, ClusterMeshSpec};
use objects::{Deletion, Error, Expected, Id, Objects, Version, Watch, Within};
use stallproof::Deadline;

use crate::controller::{FORGET, forgotten};

/// A handle that is cheap to clone.
#[derive(Clone, Debug)]
pub struct Meshes(Objects);

#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    /// The mesh does not wait for the cluster. The sentence says what to do first.
    #[error("{0}")]
    NotLeaving(String),
    #[error(transparent)]
    Store(#[from] Error),
}

impl Meshes {
    pub fn new(objects: Objects) -> Self {
        Self(objects)
    }

    /// Lists the meshes by namespace and name.
    pub async fn list(&self, deadline: Deadline) -> Result<Vec<ClusterMesh>, Error> {
        let mut all = self.0.list::<ClusterMesh>(&Within::default(), deadline).await?.items;
        all.sort_by_key(Id::of);
        Ok(all)
    }

    /// Tells every mesh there is, then every change.
    pub fn watch(&self) -> Watch<ClusterMesh> {
        self.0.watch(Within::default())
    }

    pub async fn get(&self, id: &Id, deadline: Deadline) -> Result<ClusterMesh, Error> {
        let found = self.0.get(id, deadline).await?;
        found.ok_or_else(|| Error::NotFound { kind: "ClusterMesh", id: id.clone() })
    }

    /// Creates a mesh, or replaces its spec.
    pub async fn put(
        &self,
        id: &Id,
        spec: ClusterMeshSpec,
        deadline: Deadline,
    ) -> Result<ClusterMesh, Error> {
        loop {
            let found = self.0.get::<ClusterMesh>(id, deadline).await?;
            let written = match found {
                Some(mut mesh) => {
                    mesh.spec = spec.clone();
                    let version = Version(mesh.resource_version().unwrap_or_default());
                    self.0.apply(&mesh, Expected::Version(version), deadline).await
                }
                None => {
                    let metadata = ObjectMeta {
                        name: Some(id.name.clone()),
                        namespace: id.namespace.clone(),
                        ..ObjectMeta::default()
                    };
                    let mesh = ClusterMesh { metadata, spec: spec.clone(), status: None };
                    self.0.create(&mesh, deadline).await
                }
            };
            match written {
                // Somebody else wrote the mesh meanwhile: it is read again.
                Err(Error::Conflict { .. } | Error::Exists { .. } | Error::NotFound { .. }) => {}
                written => return written,
            }
        }
    }

    /// Deletes a mesh. It stays until its peers are gone.
    pub async fn delete(&self, id: &Id, deadline: Deadline) -> Result<Deletion, Error> {
        self.0.delete::<ClusterMesh>(id, Expected::Any, deadline).await
    }

    /// Stops waiting for a cluster that left the mesh, or that a mesh which is being deleted waits for.
    /// The peers of the cluster stay as they are.
    pub async fn forget(
        &self,
        id: &Id,
        cluster: &str,
        deadline: Deadline,
    ) -> Result<(), ForgetError> {
        loop {
            let mesh = self.get(id, deadline).await?;
            let joined = mesh.status.iter().flat_map(|status| &status.joined);
            let leaving: Vec<&str> = joined
                .filter(|joined| joined.leaving.is_some())
                .map(|joined| joined.name.as_str())
                .collect();
            if !leaving.contains(&cluster) {
                let is_member = mesh.spec.clusters.iter().any(|member| member.name == cluster);
                return Err(ForgetError::NotLeaving(match () {
                    () if is_member => format!(
                        "{cluster} is in the mesh; take it out of spec.clusters, or delete the mesh, \
                         and forget it if it then does not answer"
                    ),
                    () if leaving.is_empty() => "no cluster is waited for".to_owned(),
                    () => format!("{cluster} is not waited for; these are: {}", leaving.join(", ")),
                }));
            }
            let mut names = forgotten(&mesh);
            if !names.insert(cluster) {
                return Ok(());
            }
            let names = names.into_iter().collect::<Vec<_>>().join(",");
            match self.0.annotate(&mesh, FORGET, Some(names), deadline).await {
                Ok(_) => return Ok(()),
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
