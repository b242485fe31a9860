//! Writes a mesh's status, its finalizer, and events about what a person must act on.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use objects::kinds::{ClusterMesh, ClusterMeshStatus, MeshState};
use objects::{Error, Expected, Kind, Objects, Version};
use stallproof::{Deadline, sentence};
use tracing::{debug, info};

use super::{FINALIZER, FORGET};
use crate::status::{find_condition, keep_transition_times};

const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest message of an event that Kubernetes takes.
const MAX_EVENT_MESSAGE: usize = 1000;
/// The longest message of a condition that the definition of `ClusterMesh` allows, with room for `…`.
const MAX_CONDITION_MESSAGE: usize = 4000;

pub(super) enum MeshWrite {
    /// Adds the finalizer, before any peer is written.
    AddFinalizer,
    RemoveFinalizer,
    /// Removes the annotation [`FORGET`] when its clusters are forgotten.
    ClearForget,
    Status(Box<ClusterMeshStatus>),
}

impl MeshWrite {
    /// Writes the mesh, and returns the status that was written, or why it could not be.
    pub(super) async fn write(
        self,
        objects: &Objects,
        mut mesh: ClusterMesh,
        before: Option<&ClusterMeshStatus>,
    ) -> Result<Option<ClusterMeshStatus>, String> {
        let deadline = Deadline::after(WRITE_TIMEOUT);
        let expected = Expected::Version(Version(mesh.resource_version().unwrap_or_default()));
        let is_status = matches!(self, Self::Status(_));
        let written = match self {
            Self::AddFinalizer => {
                mesh.finalizers_mut().push(FINALIZER.to_owned());
                objects.apply_metadata(&mesh, expected, deadline).await
            }
            Self::RemoveFinalizer => {
                mesh.finalizers_mut().retain(|name| name != FINALIZER);
                objects.apply_metadata(&mesh, expected, deadline).await
            }
            Self::ClearForget => objects.annotate(&mesh, FORGET, None, deadline).await,
            Self::Status(status) => {
                mesh.status = Some(*status);
                objects.apply_status(&mesh, Expected::Any, deadline).await
            }
        };
        match written {
            Ok(_) if is_status => {
                for event in mesh.status.iter().flat_map(|now| events(before, now)) {
                    publish(objects, &mesh, event).await;
                }
                Ok(mesh.status)
            }
            // After a conflict the watch brings the version that the next attempt is made from.
            Ok(_) | Err(Error::NotFound { .. } | Error::Conflict { .. }) => Ok(None),
            Err(error) => Err(sentence(&error)),
        }
    }
}

/// Completes a planner's status with times, with the clusters that leave, and with what is wrong with
/// the mesh's spec if a server that could not check it took it.
pub(super) fn complete(
    status: &mut ClusterMeshStatus,
    before: Option<&ClusterMeshStatus>,
    mesh: &ClusterMesh,
) {
    let deleting = mesh.metadata.deletion_timestamp.is_some();
    let leaving = status.joined.iter();
    let leaving = leaving.filter_map(|j| Some(format!("{}: {}", j.name, j.leaving.as_ref()?)));
    let leaving = leaving.collect::<Vec<_>>().join("; ");
    let invalid = mesh.check().err();
    for condition in &mut status.conditions {
        let (holds, reason, message) = match (condition.r#type.as_str(), &invalid) {
            ("Ready", _) if deleting && leaving.is_empty() => {
                ("False", "Deleting", "no cluster has peers of it any more".to_owned())
            }
            ("Ready", _) if deleting => {
                ("False", "Deleting", format!("peers are left in {leaving}"))
            }
            ("Ready", Some(problems)) => {
                ("False", "Invalid", format!("the mesh is invalid: {problems}"))
            }
            ("Progressing", _) if !leaving.is_empty() => {
                ("True", "Leaving", format!("peers are removed from {leaving}"))
            }
            _ => continue,
        };
        holds.clone_into(&mut condition.status);
        reason.clone_into(&mut condition.reason);
        condition.message = truncate(&message, MAX_CONDITION_MESSAGE);
    }
    keep_transition_times(status, before);
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    for condition in &mut status.conditions {
        condition.last_transition_time.get_or_insert_with(|| now.clone());
    }
    for cluster in &mut status.clusters {
        let earlier = before.and_then(|b| b.clusters.iter().find(|c| c.name == cluster.name));
        let was_well = earlier.is_some_and(|earlier| earlier.state == MeshState::Converged);
        let is_well = cluster.state == MeshState::Converged;
        if is_well != was_well {
            cluster.last_success = Some(now.clone());
        }
        if !is_well && !was_well {
            cluster.last_success = earlier.and_then(|earlier| earlier.last_success.clone());
        }
        cluster.since.get_or_insert_with(|| now.clone());
    }
}

pub(super) fn is_ready(status: &ClusterMeshStatus) -> bool {
    find_condition(Some(status), "Ready").is_some_and(|condition| condition.status == "True")
}

struct MeshEvent {
    reason: &'static str,
    message: String,
    is_warning: bool,
}

/// The events that a change of status is worth: that the mesh is ready, and what does not pass by itself.
fn events(before: Option<&ClusterMeshStatus>, now: &ClusterMeshStatus) -> Vec<MeshEvent> {
    let mut events = Vec::new();
    let mut add = |reason, message, is_warning| {
        events.push(MeshEvent { reason, message, is_warning });
    };
    let was = find_condition(before, "Ready");
    if let Some(ready) = find_condition(Some(now), "Ready")
        && was.is_none_or(|was| (&was.reason, &was.message) != (&ready.reason, &ready.message))
    {
        match ready.reason.as_str() {
            "Converged" if was.is_none_or(|was| was.reason != "Converged") => {
                add("Converged", ready.message.clone(), false);
            }
            "NetworksOverlap" => add("NetworksOverlap", ready.message.clone(), true),
            "NeedsAttention" => add("NeedsAttention", ready.message.clone(), true),
            _ => {}
        }
    }
    for cluster in now.clusters.iter().filter(|c| c.state == MeshState::Unreachable) {
        let earlier = before.and_then(|b| b.clusters.iter().find(|c| c.name == cluster.name));
        // A cluster that never converged is expected to be away at first.
        if earlier.is_some_and(|earlier| earlier.state == MeshState::Converged) {
            let why = cluster.why.as_deref().unwrap_or_default();
            add("ClusterUnreachable", format!("{}: {why}", cluster.name), true);
        }
    }
    events
}

/// Logs an event, and writes it to the store if that is Kubernetes.
async fn publish(objects: &Objects, mesh: &ClusterMesh, event: MeshEvent) {
    let MeshEvent { reason, message, is_warning } = event;
    let (name, namespace) = (mesh.name_any(), mesh.namespace());
    info!(mesh = name, namespace, reason, message, "mesh event");
    if objects.is_exclusive() {
        return;
    }
    let now = Timestamp::now();
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            namespace: namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("fairlead.dev/v1alpha1".to_owned()),
            kind: Some("ClusterMesh".to_owned()),
            name: Some(name),
            namespace,
            uid: mesh.uid(),
            ..ObjectReference::default()
        },
        reason: Some(reason.to_owned()),
        message: Some(truncate(&message, MAX_EVENT_MESSAGE)),
        type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        source: Some(EventSource { component: Some("fairlead".to_owned()), host: None }),
        ..Event::default()
    };
    if let Err(error) = objects.create(&event, Deadline::after(WRITE_TIMEOUT)).await {
        debug!(error = sentence(&error), "cannot write an event");
    }
}

fn truncate(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
