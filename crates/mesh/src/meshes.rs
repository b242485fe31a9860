//! `Meshes`: the meshes of a store, as users read and change them. The controller that leads carries out
//! what is written.

use std::collections::BTreeSet;

use ipnet::IpNet;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use objects::kinds::{ClusterMesh, ClusterMeshSpec, ExternalPeer};
use objects::{Deletion, Error, Expected, Id, Objects, Version, Watch, Within};
use stallproof::{Deadline, Snapshot};

use crate::controller::{FORGET, MeshAccess, forgotten};

/// A handle that is cheap to clone.
#[derive(Clone, Debug)]
pub struct Meshes {
    objects: Objects,
    /// Written by the controller when it leads.
    leading: Snapshot<Option<MeshAccess>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ExternalPeerError {
    /// The sentence says what to do.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Store(#[from] Error),
}

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
        Self { objects, leading: Snapshot::default() }
    }

    pub(crate) fn lead(&self, access: MeshAccess) {
        self.leading.update(|leading| {
            *leading = Some(access);
            true
        });
    }

    pub(crate) fn leading(&self) -> Option<MeshAccess> {
        self.leading.read(Clone::clone)
    }

    /// Lists the meshes by namespace and name.
    pub async fn list(&self, deadline: Deadline) -> Result<Vec<ClusterMesh>, Error> {
        let mut all = self.objects.list::<ClusterMesh>(&Within::default(), deadline).await?.items;
        all.sort_by_key(Id::of);
        Ok(all)
    }

    /// Tells every mesh there is, then every change.
    pub fn watch(&self) -> Watch<ClusterMesh> {
        self.objects.watch(Within::default())
    }

    pub async fn get(&self, id: &Id, deadline: Deadline) -> Result<ClusterMesh, Error> {
        let found = self.objects.get(id, deadline).await?;
        found.ok_or_else(|| Error::NotFound { kind: "ClusterMesh", id: id.clone() })
    }

    /// Creates a mesh, or replaces its spec. Machines outside of clusters that a mesh has stay unless the
    /// new spec names others: they are not in the file that somebody applies again.
    pub async fn put(
        &self,
        id: &Id,
        spec: ClusterMeshSpec,
        deadline: Deadline,
    ) -> Result<ClusterMesh, Error> {
        loop {
            let found = self.objects.get::<ClusterMesh>(id, deadline).await?;
            let written = match found {
                Some(mut mesh) => {
                    let external = std::mem::take(&mut mesh.spec.external_peers);
                    mesh.spec = spec.clone();
                    if mesh.spec.external_peers.is_empty() {
                        mesh.spec.external_peers = external;
                    }
                    let version = Version(mesh.resource_version().unwrap_or_default());
                    self.objects.apply(&mesh, Expected::Version(version), deadline).await
                }
                None => {
                    let metadata = ObjectMeta {
                        name: Some(id.name.clone()),
                        namespace: id.namespace.clone(),
                        ..ObjectMeta::default()
                    };
                    let mesh = ClusterMesh { metadata, spec: spec.clone(), status: None };
                    self.objects.create(&mesh, deadline).await
                }
            };
            match written {
                // Somebody else wrote the mesh meanwhile: it is read again.
                Err(Error::Conflict { .. } | Error::Exists { .. } | Error::NotFound { .. }) => {}
                written => return written,
            }
        }
    }

    /// Adds a machine outside of clusters, and returns it with its addresses. With `replace` one of this
    /// name gets the new key, and keeps its addresses.
    pub async fn add_external_peer(
        &self,
        id: &Id,
        name: &str,
        public_key: &str,
        networks: &[String],
        replace: bool,
        deadline: Deadline,
    ) -> Result<ExternalPeer, ExternalPeerError> {
        loop {
            let mut mesh = self.get(id, deadline).await?;
            let spec = &mut mesh.spec;
            let existing = spec.external_peers.iter().position(|it| it.name == name);
            let addresses = match existing {
                Some(at) if replace => spec.external_peers[at].addresses.clone(),
                Some(_) => {
                    let why = format!(
                        "the mesh has a peer {name} already; --replace gives it a new key, and the \
                         old one is of no use from then on"
                    );
                    return Err(ExternalPeerError::Refused(why));
                }
                None => free_addresses(spec).map_err(ExternalPeerError::Refused)?,
            };
            let peer = ExternalPeer {
                name: name.to_owned(),
                public_key: public_key.to_owned(),
                addresses,
                networks: networks.to_vec(),
            };
            match existing {
                Some(at) => spec.external_peers[at] = peer.clone(),
                None => spec.external_peers.push(peer.clone()),
            }
            if self.write_spec(&mesh, deadline).await? {
                return Ok(peer);
            }
        }
    }

    /// Removes a machine outside of clusters, and with it its peer in every cluster.
    pub async fn remove_external_peer(
        &self,
        id: &Id,
        name: &str,
        deadline: Deadline,
    ) -> Result<(), ExternalPeerError> {
        loop {
            let mut mesh = self.get(id, deadline).await?;
            let before = mesh.spec.external_peers.len();
            mesh.spec.external_peers.retain(|it| it.name != name);
            if mesh.spec.external_peers.len() == before {
                let why =
                    format!("the mesh has no peer {name}; `fairlead mesh peer list` shows them");
                return Err(ExternalPeerError::Refused(why));
            }
            if self.write_spec(&mesh, deadline).await? {
                return Ok(());
            }
        }
    }

    /// Writes a spec that was read, and returns whether nobody else wrote meanwhile.
    async fn write_spec(&self, mesh: &ClusterMesh, deadline: Deadline) -> Result<bool, Error> {
        let version = Version(mesh.resource_version().unwrap_or_default());
        match self.objects.apply(mesh, Expected::Version(version), deadline).await {
            Ok(_) => Ok(true),
            Err(Error::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes a mesh. It stays until its peers are gone.
    pub async fn delete(&self, id: &Id, deadline: Deadline) -> Result<Deletion, Error> {
        self.objects.delete::<ClusterMesh>(id, Expected::Any, deadline).await
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
            match self.objects.annotate(&mesh, FORGET, Some(names), deadline).await {
                Ok(_) => return Ok(()),
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The first address of each range that nobody has; the first and the last of an IPv4 range are left out.
fn free_addresses(spec: &ClusterMeshSpec) -> Result<Vec<String>, String> {
    if spec.external_networks.is_empty() {
        return Err("the mesh has no addresses for machines outside of clusters; give it a range \
                    that nobody uses, such as externalNetworks: [10.99.0.0/24], in its spec"
            .to_owned());
    }
    let taken: BTreeSet<&str> =
        spec.external_peers.iter().flat_map(|it| &it.addresses).map(String::as_str).collect();
    let ranges = spec.external_networks.iter().filter_map(|it| it.parse::<IpNet>().ok());
    let mut addresses = Vec::new();
    for range in ranges {
        // A range has at most as many addresses in use as there are peers, and one that stands for it.
        let mut hosts = range.hosts().filter(|it| *it != range.network());
        let free = hosts.find(|it| !taken.contains(it.to_string().as_str()));
        let free = free.ok_or_else(|| format!("{range} has no free address any more"))?;
        addresses.push(free.to_string());
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests;
