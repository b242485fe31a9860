//! What is written of a mesh: its status, its finalizer, and events for what a person must act on.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use objects::kinds::{ClusterMesh, ClusterMeshStatus, MeshCondition, MeshState};
use objects::{Error, Expected, Kind, Objects, Version};
use stallproof::{Deadline, sentence};
use tracing::{debug, info};

use super::{FINALIZER, FORGET};

const WRITE: Duration = Duration::from_secs(10);
/// As Kubernetes bounds it.
const LONGEST_MESSAGE: usize = 1000;

pub(super) enum Record {
    /// The finalizer, before anything is written anywhere.
    Hold,
    Release,
    /// What a person gave up is given up.
    Forgotten,
    Status(Box<ClusterMeshStatus>),
}

impl Record {
    /// What is stored now, where it is known; or why it could not be written.
    pub(super) async fn write(
        self,
        objects: &Objects,
        mut mesh: ClusterMesh,
        before: Option<&ClusterMeshStatus>,
    ) -> Result<Option<ClusterMeshStatus>, String> {
        let deadline = Deadline::after(WRITE);
        match self {
            Self::Hold | Self::Release | Self::Forgotten => {
                match self {
                    Self::Hold => mesh.finalizers_mut().push(FINALIZER.to_owned()),
                    Self::Release => mesh.finalizers_mut().retain(|name| name != FINALIZER),
                    _ => drop(mesh.annotations_mut().remove(FORGET)),
                }
                let version = Version(mesh.resource_version().unwrap_or_default());
                let expected = Expected::Version(version);
                match objects.apply_metadata(&mesh, expected, deadline).await {
                    Ok(_) | Err(Error::NotFound { .. }) => Ok(None),
                    Err(error) => Err(sentence(&error)),
                }
            }
            Self::Status(status) => {
                mesh.status = Some((*status).clone());
                match objects.apply_status(&mesh, Expected::Any, deadline).await {
                    Ok(_) => {
                        for (reason, message, is_warning) in news(before, &status) {
                            tell(objects, &mesh, reason, &message, is_warning).await;
                        }
                        Ok(Some(*status))
                    }
                    Err(Error::NotFound { .. }) => Ok(None),
                    Err(error) => Err(sentence(&error)),
                }
            }
        }
    }
}

/// A mesh that should have been refused, but was taken by a server that could not see it, says what is
/// wrong with it.
pub(super) fn refuse(
    status: &mut ClusterMeshStatus,
    before: Option<&ClusterMeshStatus>,
    mesh: &ClusterMesh,
) {
    let Err(problems) = mesh.check() else { return };
    for condition in status.conditions.iter_mut().filter(|condition| condition.r#type == "Ready") {
        "False".clone_into(&mut condition.status);
        "Invalid".clone_into(&mut condition.reason);
        condition.message = clip(&format!("the mesh is invalid: {problems}"), 4000);
        let same = find(before, "Ready").filter(|earlier| earlier.status == "False");
        condition.last_transition_time =
            same.and_then(|earlier| earlier.last_transition_time.clone());
    }
}

/// Adds what only a clock knows, and what waits for clusters that leave.
pub(super) fn complete(
    status: &mut ClusterMeshStatus,
    before: Option<&ClusterMeshStatus>,
    going: bool,
) {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let leaving: Vec<String> = status
        .joined
        .iter()
        .filter_map(|joined| Some(format!("{}: {}", joined.name, joined.leaving.as_ref()?)))
        .collect();
    for condition in &mut status.conditions {
        match condition.r#type.as_str() {
            "Ready" if going => {
                "Deleting".clone_into(&mut condition.reason);
                condition.message = match leaving.is_empty() {
                    true => "no cluster has peers of it any more".to_owned(),
                    false => clip(&format!("peers are left in {}", leaving.join("; ")), 4000),
                };
            }
            "Progressing" if !leaving.is_empty() => {
                "True".clone_into(&mut condition.status);
                "Leaving".clone_into(&mut condition.reason);
                condition.message =
                    clip(&format!("peers are removed from {}", leaving.join("; ")), 4000);
                let same = find(before, "Progressing").filter(|earlier| earlier.status == "True");
                condition.last_transition_time =
                    same.and_then(|earlier| earlier.last_transition_time.clone());
            }
            _ => {}
        }
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

fn find<'a>(status: Option<&'a ClusterMeshStatus>, kind: &str) -> Option<&'a MeshCondition> {
    status?.conditions.iter().find(|condition| condition.r#type == kind)
}

pub(super) fn is_ready(status: &ClusterMeshStatus) -> bool {
    find(Some(status), "Ready").is_some_and(|condition| condition.status == "True")
}

/// What a person should hear of: that it is done, and what does not come right by itself.
fn news(
    before: Option<&ClusterMeshStatus>,
    now: &ClusterMeshStatus,
) -> Vec<(&'static str, String, bool)> {
    let mut news = Vec::new();
    let was = find(before, "Ready");
    if let Some(ready) = find(Some(now), "Ready")
        && was.is_none_or(|was| (&was.reason, &was.message) != (&ready.reason, &ready.message))
    {
        match ready.reason.as_str() {
            "Converged" if was.is_none_or(|was| was.reason != "Converged") => {
                news.push(("Converged", ready.message.clone(), false));
            }
            "NetworksOverlap" => news.push(("NetworksOverlap", ready.message.clone(), true)),
            "NeedsAttention" => news.push(("NeedsAttention", ready.message.clone(), true)),
            _ => {}
        }
    }
    for cluster in now.clusters.iter().filter(|c| c.state == MeshState::Unreachable) {
        let earlier = before.and_then(|b| b.clusters.iter().find(|c| c.name == cluster.name));
        // The first look at a cluster is not news.
        if earlier.is_some_and(|earlier| earlier.state == MeshState::Converged) {
            let why = cluster.why.as_deref().unwrap_or_default();
            news.push(("ClusterUnreachable", format!("{}: {why}", cluster.name), true));
        }
    }
    news
}

/// As an event of Kubernetes; where there is none of that, in the log.
async fn tell(
    objects: &Objects,
    mesh: &ClusterMesh,
    reason: &'static str,
    message: &str,
    is_warning: bool,
) {
    let (name, namespace) = (mesh.name_any(), mesh.namespace());
    info!(mesh = name, namespace, reason, message, "mesh");
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
        message: Some(clip(message, LONGEST_MESSAGE)),
        type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        source: Some(EventSource { component: Some("fairlead".to_owned()), host: None }),
        ..Event::default()
    };
    if let Err(error) = objects.create(&event, Deadline::after(WRITE)).await {
        debug!(error = sentence(&error), "the event could not be written");
    }
}

fn clip(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
