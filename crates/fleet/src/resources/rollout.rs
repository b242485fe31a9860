//! The revisions of a workload, and the way back to one of them.
//!
//! A Deployment keeps its revisions in ReplicaSets, a StatefulSet and a DaemonSet in
//! ControllerRevisions. Going back makes the pod template of the workload what it was; the workload's own
//! strategy does the rest, as with `kubectl rollout undo`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, ReplicaSet};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::{DynamicObject, ObjectMeta};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stallproof::Deadline;

use super::{FIELD_MANAGER, Target};
use crate::{Connection, Error};

const REVISION: &str = "deployment.kubernetes.io/revision";
const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";
const TEMPLATE_HASH: &str = "pod-template-hash";

/// One revision of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    pub revision: i64,
    /// The ReplicaSet or ControllerRevision that keeps it.
    pub name: String,
    pub created: Option<Timestamp>,
    pub images: Vec<String>,
    /// Why it was made, if somebody said so.
    pub cause: Option<String>,
    /// Whether it is what the workload is now.
    pub current: bool,
    /// The pods of a ReplicaSet.
    pub replicas: Option<i32>,
    /// The pod template, or the patch that brings it back.
    #[serde(skip)]
    template: Value,
}

/// Lists the revisions, the newest first.
pub async fn revisions(
    connection: &Connection,
    target: &Target,
    deadline: Deadline,
) -> Result<Vec<Revision>, Error> {
    let workload = workload(connection, target, deadline).await?;
    let mut revisions = match Keeper::of(target)? {
        Keeper::ReplicaSets => {
            let sets = owned::<ReplicaSet>(connection, target, &workload, deadline).await?;
            let now = annotation(&workload.metadata, REVISION);
            sets.into_iter().filter_map(|set| of_replica_set(set, now.as_deref())).collect()
        }
        Keeper::ControllerRevisions => {
            let all = owned::<ControllerRevision>(connection, target, &workload, deadline).await?;
            let newest = all.iter().filter_map(|revision| revision.revision).max();
            let of = |revision| of_controller_revision(revision, newest);
            all.iter().map(of).collect::<Vec<_>>()
        }
    };
    revisions.sort_by_key(|revision| Reverse(revision.revision));
    Ok(revisions)
}

/// Makes the pod template what it was in `revision`; the one before the present unless said. Returns the
/// revision that it went back to.
pub async fn rollback(
    connection: &Connection,
    target: &Target,
    revision: Option<i64>,
    deadline: Deadline,
) -> Result<Revision, Error> {
    let all = revisions(connection, target, deadline).await?;
    let chosen = match revision {
        Some(number) => all.iter().find(|one| one.revision == number),
        None => all.iter().find(|one| !one.current),
    };
    let Some(chosen) = chosen.cloned() else {
        let kept: Vec<_> = all.iter().map(|one| one.revision.to_string()).collect();
        return Err(Error::Invalid(match revision {
            Some(number) => {
                format!("{target} keeps no revision {number}; it has {}", kept.join(", "))
            }
            None => format!("{target} has no earlier revision to go back to"),
        }));
    };
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = &chosen.template;
    let keeper = Keeper::of(target)?;
    connection
        .call("going back to a revision", deadline, |client| async move {
            let api = target.api(client);
            match keeper {
                Keeper::ReplicaSets => {
                    let replace =
                        json!([{ "op": "replace", "path": "/spec/template", "value": patch }]);
                    let replace =
                        serde_json::from_value(replace).map_err(kube::Error::SerdeError)?;
                    api.patch(target.name(), &params, &Patch::<()>::Json(replace)).await
                }
                Keeper::ControllerRevisions => {
                    api.patch(target.name(), &params, &Patch::Strategic(patch)).await
                }
            }
        })
        .await?;
    Ok(chosen)
}

#[derive(Clone, Copy)]
enum Keeper {
    ReplicaSets,
    ControllerRevisions,
}

impl Keeper {
    fn of(target: &Target) -> Result<Self, Error> {
        let resource = target.resource();
        match (resource.group.as_str(), resource.plural.as_str()) {
            ("apps", "deployments") => Ok(Self::ReplicaSets),
            ("apps", "statefulsets" | "daemonsets") => Ok(Self::ControllerRevisions),
            (_, other) => Err(Error::Invalid(format!(
                "{other} have no revisions; Deployments, StatefulSets and DaemonSets have"
            ))),
        }
    }
}

async fn workload(
    connection: &Connection,
    target: &Target,
    deadline: Deadline,
) -> Result<DynamicObject, Error> {
    let get = |client| async move { target.api(client).get(target.name()).await };
    connection.call("reading a workload", deadline, get).await
}

/// The objects of a kind in the workload's namespace that it owns.
async fn owned<K>(
    connection: &Connection,
    target: &Target,
    workload: &DynamicObject,
    deadline: Deadline,
) -> Result<Vec<K>, Error>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let namespace = target.namespace().unwrap_or_default();
    let list = connection
        .call("listing revisions", deadline, |client| async move {
            Api::<K>::namespaced(client, namespace).list(&ListParams::default()).await
        })
        .await?;
    let is_owned = |object: &K| {
        object
            .owner_references()
            .iter()
            .any(|owner| Some(&owner.uid) == workload.metadata.uid.as_ref())
    };
    Ok(list.items.into_iter().filter(is_owned).collect())
}

fn annotation(metadata: &ObjectMeta, name: &str) -> Option<String> {
    metadata.annotations.as_ref().and_then(|all: &BTreeMap<_, _>| all.get(name).cloned())
}

fn of_replica_set(set: ReplicaSet, now: Option<&str>) -> Option<Revision> {
    let revision = annotation(&set.metadata, REVISION)?;
    let mut template = serde_json::to_value(set.spec.template.as_ref()?).ok()?;
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(TEMPLATE_HASH);
    }
    Some(Revision {
        revision: revision.parse().ok()?,
        name: set.name_any(),
        created: set.metadata.creation_timestamp.as_ref().map(|time| time.0),
        images: images(template.pointer("/spec")),
        cause: annotation(&set.metadata, CHANGE_CAUSE),
        current: now == Some(revision.as_str()),
        replicas: set.status.map(|status| status.replicas),
        template,
    })
}

fn of_controller_revision(revision: &ControllerRevision, newest: Option<i64>) -> Revision {
    let patch = revision.data.0.clone();
    Revision {
        revision: revision.revision.unwrap_or_default(),
        name: revision.name_any(),
        created: revision.metadata.creation_timestamp.as_ref().map(|time| time.0),
        images: images(patch.pointer("/spec/template/spec")),
        cause: annotation(&revision.metadata, CHANGE_CAUSE),
        current: newest == revision.revision,
        replicas: None,
        template: patch,
    }
}

fn images(pod: Option<&Value>) -> Vec<String> {
    let containers = pod.and_then(|pod| pod.get("containers")).and_then(Value::as_array);
    let image = |container: &Value| Some(container.get("image")?.as_str()?.to_owned());
    containers.into_iter().flatten().filter_map(image).collect()
}
