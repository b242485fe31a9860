//! `Meshes`: the meshes of a store, as people read and change them. Who leads acts on what is written.

use kube::ResourceExt;
use kube::api::ObjectMeta;
use objects::kinds::{ClusterMesh, ClusterMeshSpec};
use objects::{Deletion, Error, Expected, Id, Objects, Version, Within};
use stallproof::Deadline;

use crate::controller::{FORGET, forgotten};

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Meshes(Objects);

#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    /// The sentence says what to do first.
    #[error("{0}")]
    NotLeaving(String),
    #[error(transparent)]
    Store(#[from] Error),
}

impl Meshes {
    pub fn new(objects: Objects) -> Self {
        Self(objects)
    }

    /// By namespace and name.
    pub async fn list(&self, deadline: Deadline) -> Result<Vec<ClusterMesh>, Error> {
        let mut all = self.0.list::<ClusterMesh>(&Within::default(), deadline).await?.items;
        all.sort_by_key(Id::of);
        Ok(all)
    }

    pub async fn get(&self, id: &Id, deadline: Deadline) -> Result<ClusterMesh, Error> {
        let found = self.0.get(id, deadline).await?;
        found.ok_or_else(|| Error::NotFound { kind: "ClusterMesh", id: id.clone() })
    }

    /// Makes a mesh, or makes it what is said here.
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
                    self.write(&mesh, deadline).await
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
                // Whoever came in between did not know of this.
                Err(Error::Conflict { .. } | Error::Exists { .. } | Error::NotFound { .. }) => {}
                written => return written,
            }
        }
    }

    /// Its peers go before it does.
    pub async fn delete(&self, id: &Id, deadline: Deadline) -> Result<Deletion, Error> {
        self.0.delete::<ClusterMesh>(id, Expected::Any, deadline).await
    }

    /// Gives up a cluster that left the mesh, or that a mesh which is deleted waits for: its peers stay
    /// as they are.
    pub async fn forget(
        &self,
        id: &Id,
        cluster: &str,
        deadline: Deadline,
    ) -> Result<(), ForgetError> {
        loop {
            let mut mesh = self.get(id, deadline).await?;
            let joined = mesh.status.iter().flat_map(|status| &status.joined);
            let leaving: Vec<&str> = joined
                .filter(|joined| joined.leaving.is_some())
                .map(|joined| joined.name.as_str())
                .collect();
            if !leaving.contains(&cluster) {
                let known = mesh.spec.clusters.iter().any(|known| known.name == cluster);
                return Err(ForgetError::NotLeaving(match (known, leaving.is_empty()) {
                    (true, _) => format!(
                        "{cluster} is in the mesh; take it out of spec.clusters, or delete the mesh, \
                         and forget it if it then does not answer"
                    ),
                    (false, true) => "no cluster is waited for".to_owned(),
                    (false, false) => {
                        format!("{cluster} is not waited for; these are: {}", leaving.join(", "))
                    }
                }));
            }
            let mut names = forgotten(&mesh);
            if !names.insert(cluster) {
                return Ok(());
            }
            let names = names.into_iter().collect::<Vec<_>>().join(",");
            mesh.annotations_mut().insert(FORGET.to_owned(), names);
            match self.write(&mesh, deadline).await {
                Ok(_) => return Ok(()),
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn write(&self, mesh: &ClusterMesh, deadline: Deadline) -> Result<ClusterMesh, Error> {
        let version = Version(mesh.resource_version().unwrap_or_default());
        self.0.apply(mesh, Expected::Version(version), deadline).await
    }
}

#[cfg(test)]
mod tests;
