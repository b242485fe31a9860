//! Writes what a plan of Services says in one cluster, or the first batch of it.
//!
//! Contract: each write checks the fence, has a deadline that ends with it, and names the version that
//! the plan was made for. Its result is in the snapshot before the batch ends. A refused write holds up
//! no other.

use std::time::Duration;

use fleet::{Connection, Error};
use futures::{StreamExt, stream};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use objects::Fence;
use objects::kinds::MeshClusterRef;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stallproof::{Deadline, Snapshot, sentence};

use super::observed_services::ObservedServices;
use super::observer::{strip_export, strip_import, strip_service, strip_slice};
use super::peer_writer::BatchResult;
use crate::services::{
    ENDPOINT_SLICES, SERVICE_EXPORTS, SERVICE_IMPORTS, ServiceChange, ServiceWrite, Written,
};

/// As for peers.
const CONCURRENCY: usize = 8;
pub(super) const BATCH_SIZE: usize = 256;
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct ServiceBatch {
    pub(super) cluster: MeshClusterRef,
    pub(super) connection: Connection,
    pub(super) fence: Fence,
    pub(super) services: Snapshot<ObservedServices>,
    pub(super) writes: Vec<ServiceWrite>,
}

impl ServiceBatch {
    pub(super) async fn write(mut self) -> BatchResult {
        let writes = std::mem::take(&mut self.writes);
        let mut result = BatchResult { written: 0, error: None };
        let writes = writes.into_iter().map(|write| self.write_one(write));
        let mut writes = stream::iter(writes).buffer_unordered(CONCURRENCY);
        while let Some(written) = writes.next().await {
            match written {
                Ok(()) => result.written += 1,
                Err((message, affects_cluster)) => {
                    result.error.get_or_insert(message);
                    if affects_cluster {
                        // The writes under way are dropped.
                        break;
                    }
                }
            }
        }
        result
    }

    /// The error says whether the other writes would fail too.
    async fn write_one(&self, write: ServiceWrite) -> Result<(), (String, bool)> {
        let remaining = self.fence.remaining();
        if remaining.is_zero() {
            return Err(("leadership was lost".to_owned(), true));
        }
        let deadline = Deadline::after(WRITE_TIMEOUT.min(remaining));
        let what = format!("{:?} {}/{}", write.kind, write.namespace, write.name);
        self.send(write, deadline).await.map_err(|error| {
            let refused =
                matches!(&error, Error::Refused { status, .. } if (400..500).contains(&status.code));
            (format!("{what}: {}", sentence(&error)), !refused)
        })
    }

    async fn send(&self, write: ServiceWrite, deadline: Deadline) -> Result<(), Error> {
        let ServiceWrite { kind, namespace, name, change } = write;
        let (word, name) = (resource(kind), name.as_str());
        let doing = "writing a Service of the mesh";
        let change = &change;
        let sent = self.connection.on(word, Some(&namespace), doing, deadline, |api, served| {
            let change = change.clone();
            async move {
                match change {
                    ServiceChange::Create(mut object) => {
                        object["apiVersion"] = json!(served.resource.api_version);
                        object["kind"] = json!(served.resource.kind);
                        let object: DynamicObject =
                            serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
                        api.create(&PostParams::default(), &object).await.map(Some)
                    }
                    ServiceChange::Patch { version, patch } => {
                        let patch = Patch::Merge(versioned(patch, version.as_deref()));
                        api.patch(name, &PatchParams::default(), &patch).await.map(Some)
                    }
                    ServiceChange::PatchStatus { version, patch } => {
                        let patch = Patch::Merge(versioned(patch, version.as_deref()));
                        api.patch_status(name, &PatchParams::default(), &patch).await.map(Some)
                    }
                    ServiceChange::Delete { version } => {
                        let preconditions =
                            Preconditions { resource_version: version, ..Preconditions::default() };
                        let params = DeleteParams::default().preconditions(preconditions);
                        api.delete(name, &params).await.map(|_| None)
                    }
                }
            }
        });
        let place = format!("{namespace}/{name}");
        match sent.await {
            Ok(Some(object)) => self.put(kind, object),
            Ok(None) => self.removed(kind, &place, change),
            // It is gone already. Of another version the watch tells.
            Err(Error::Refused { status, .. })
                if status.code == 404 && matches!(change, ServiceChange::Delete { .. }) =>
            {
                self.removed(kind, &place, change);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes in an object as the server returned it.
    fn put(&self, kind: Written, object: DynamicObject) {
        fn parse<T: DeserializeOwned>(mut object: Value) -> Option<T> {
            // The type is known, and the version is the server's.
            let fields = object.as_object_mut()?;
            fields.remove("apiVersion");
            fields.remove("kind");
            serde_json::from_value(object).ok()
        }
        let Ok(object) = serde_json::to_value(object) else { return };
        self.services.update(|services| {
            services.edit(&self.cluster, |known| match kind {
                Written::Service => {
                    parse(object).is_some_and(|it| known.services.put(strip_service(it)))
                }
                Written::EndpointSlice => {
                    parse(object).is_some_and(|it| known.slices.put(strip_slice(it)))
                }
                Written::ServiceImport => {
                    parse(object).is_some_and(|it| known.imports.put(strip_import(it)))
                }
                Written::ServiceExport => {
                    parse(object).is_some_and(|it| known.exports.put(strip_export(it)))
                }
            })
        });
    }

    fn removed(&self, kind: Written, place: &str, change: &ServiceChange) {
        let ServiceChange::Delete { version } = change else { return };
        let version = version.as_deref();
        self.services.update(|services| {
            services.edit(&self.cluster, |known| match kind {
                Written::Service => known.services.remove(place, version),
                Written::EndpointSlice => known.slices.remove(place, version),
                Written::ServiceImport => known.imports.remove(place, version),
                Written::ServiceExport => known.exports.remove(place, version),
            })
        });
    }
}

fn resource(kind: Written) -> &'static str {
    match kind {
        Written::Service => "services",
        Written::EndpointSlice => ENDPOINT_SLICES,
        Written::ServiceImport => SERVICE_IMPORTS,
        Written::ServiceExport => SERVICE_EXPORTS,
    }
}

fn versioned(mut patch: Value, version: Option<&str>) -> Value {
    patch["metadata"]["resourceVersion"] = json!(version);
    patch
}
