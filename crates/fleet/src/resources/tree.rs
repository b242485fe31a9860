//! The owners of an object up to the root, and the objects that it owns down to the pods.
//!
//! Owners are followed by reference. Owned objects name their owner, so that they are found in the lists
//! of the kinds that such an object owns; each list is read once, whatever the depth of the tree. Lists
//! that could not be read, or not completely, are named in `incomplete`.

use std::collections::HashMap;

use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::DynamicObject;
use serde::Serialize;
use stallproof::{Deadline, sentence};

use super::get::get;
use super::list::{ListQuery, gather};
use super::list_format::{Metadata, Objects};
use super::state::state;
use crate::connection::Connection;
use crate::error::Error;

/// The longest chain of owners. Nothing forbids a circle.
const DEPTH: usize = 8;
/// The most objects that are read of each kind.
const MOST: u32 = 5_000;
/// The most nodes in a tree. An object with several owners is below each of them, so that there may be
/// many more nodes than objects.
const SHOWN: usize = 2_000;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Node {
    pub api_version: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
    /// The state, from [`state`](super::state()); `Missing` for an owner that is gone.
    pub state: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Branch {
    #[serde(flatten)]
    pub node: Node,
    pub owned: Vec<Branch>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tree {
    /// The owners, the nearest first, the root last.
    pub owners: Vec<Node>,
    pub owned: Vec<Branch>,
    /// The parts that are missing, and why.
    pub incomplete: Vec<String>,
}

/// Returns the kinds that objects of a kind own, each with whether its metadata is enough.
fn below(kind: &str) -> &'static [(&'static str, bool)] {
    const PODS: (&str, bool) = ("pods", false);
    const JOBS: (&str, bool) = ("jobs.batch", false);
    const REPLICA_SETS: (&str, bool) = ("replicasets.apps", false);
    match kind {
        "Pod" | "Event" | "ConfigMap" | "Secret" | "Lease" | "EndpointSlice" | "Endpoints" => &[],
        "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController" => &[PODS],
        "Deployment" => &[REPLICA_SETS, PODS],
        "CronJob" => &[JOBS, PODS],
        "Service" => &[("endpointslices.discovery.k8s.io", true)],
        "Node" => &[PODS, ("leases.coordination.k8s.io", true)],
        _ => &[
            ("deployments.apps", false),
            ("statefulsets.apps", false),
            ("daemonsets.apps", false),
            REPLICA_SETS,
            ("cronjobs.batch", false),
            JOBS,
            PODS,
            ("services", true),
            ("ingresses.networking.k8s.io", true),
            ("configmaps", true),
            ("secrets", true),
            ("serviceaccounts", true),
            ("persistentvolumeclaims", false),
        ],
    }
}

pub async fn tree(connection: &Connection, object: &DynamicObject, deadline: Deadline) -> Tree {
    let (owners, owned) =
        futures::join!(owners(connection, object, deadline), owned(connection, object, deadline));
    let (owners, mut incomplete) = owners;
    incomplete.extend(owned.1);
    Tree { owners, owned: owned.0, incomplete }
}

async fn owners(
    connection: &Connection,
    object: &DynamicObject,
    deadline: Deadline,
) -> (Vec<Node>, Vec<String>) {
    let (mut owners, mut incomplete) = (Vec::new(), Vec::new());
    let mut below = object.clone();
    while let Some(reference) = owner(&below) {
        if owners.len() == DEPTH {
            incomplete.push(format!("more than {DEPTH} owners, one above the other"));
            break;
        }
        match above(connection, &below, &reference, deadline).await {
            Ok(object) => {
                owners.push(Node::of(&object));
                below = object;
            }
            Err(error) => {
                let gone = matches!(&error, Error::Refused { status, .. } if status.code == 404);
                if !gone {
                    incomplete.push(sentence(&error));
                }
                owners.push(Node {
                    api_version: reference.api_version,
                    kind: reference.kind,
                    namespace: below.metadata.namespace.clone(),
                    name: reference.name,
                    state: if gone { "Missing" } else { "Unknown" }.to_owned(),
                });
                break;
            }
        }
    }
    (owners, incomplete)
}

/// Returns the owner that controls the object, or else the first.
fn owner(object: &DynamicObject) -> Option<OwnerReference> {
    let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
    let manager = owners.iter().find(|owner| owner.controller == Some(true));
    manager.or(owners.first()).cloned()
}

async fn above(
    connection: &Connection,
    object: &DynamicObject,
    owner: &OwnerReference,
    deadline: Deadline,
) -> Result<DynamicObject, Error> {
    let found = connection.find_kind(&owner.api_version, &owner.kind, deadline).await?;
    let (group, version) = (&found.resource.group, &found.resource.version);
    let kind = format!("{}.{version}.{group}", found.resource.plural);
    let namespace = object.metadata.namespace.as_deref().filter(|_| found.namespaced);
    get(connection, &kind, namespace, &owner.name, deadline).await
}

async fn owned(
    connection: &Connection,
    object: &DynamicObject,
    deadline: Deadline,
) -> (Vec<Branch>, Vec<String>) {
    let namespace = object.metadata.namespace.as_deref();
    let lists = below(kind(object)).iter().map(|(kind, metadata)| async move {
        let mut query = ListQuery::of(*kind).within(namespace);
        query.limit = Some(MOST);
        let list = if *metadata {
            gather::<Metadata>(connection, &query, deadline).await
        } else {
            gather::<Objects>(connection, &query, deadline).await
        };
        (*kind, list)
    });
    let (mut objects, mut incomplete) = (Vec::new(), Vec::new());
    for (kind, list) in join_all(lists).await {
        match list {
            Ok(list) => {
                if list.continue_token.is_some() {
                    incomplete
                        .push(format!("only the first {} {kind} were read", list.items.len()));
                }
                objects.extend(list.items);
            }
            // A cluster that does not serve the kind has no such objects.
            Err(Error::NoSuchKind { .. }) => {}
            Err(error) => incomplete.push(format!("{kind}: {}", sentence(&error))),
        }
    }
    let mut room = SHOWN;
    let branches = grow(object, &objects, &mut room);
    if room == 0 {
        incomplete.push(format!("only the first {SHOWN} are shown"));
    }
    (branches, incomplete)
}

/// Builds the tree of `objects` below `root`, with at most `room` nodes.
fn grow(root: &DynamicObject, objects: &[DynamicObject], room: &mut usize) -> Vec<Branch> {
    let mut by_owner: HashMap<&str, Vec<&DynamicObject>> = HashMap::new();
    for object in objects {
        for owner in object.metadata.owner_references.as_deref().unwrap_or_default() {
            by_owner.entry(owner.uid.as_str()).or_default().push(object);
        }
    }
    for owned in by_owner.values_mut() {
        owned.sort_by_key(|object| (kind(object), object.metadata.name.as_deref()));
    }
    branches(root.metadata.uid.as_deref(), &by_owner, DEPTH, room)
}

fn branches(
    owner: Option<&str>,
    by_owner: &HashMap<&str, Vec<&DynamicObject>>,
    depth: usize,
    room: &mut usize,
) -> Vec<Branch> {
    let mut branches = Vec::new();
    let owned = owner.filter(|_| depth > 0).and_then(|owner| by_owner.get(owner));
    for object in owned.into_iter().flatten() {
        if *room == 0 {
            break;
        }
        *room -= 1;
        let uid = object.metadata.uid.as_deref();
        let owned = self::branches(uid, by_owner, depth - 1, room);
        branches.push(Branch { node: Node::of(object), owned });
    }
    branches
}

fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

impl Node {
    fn of(object: &DynamicObject) -> Self {
        let types = object.types.clone().unwrap_or_default();
        Self {
            api_version: types.api_version,
            kind: types.kind,
            namespace: object.metadata.namespace.clone(),
            name: object.metadata.name.clone().unwrap_or_default(),
            state: state(object),
        }
    }
}

#[cfg(test)]
mod tests;
