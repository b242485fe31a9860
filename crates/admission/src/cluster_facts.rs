//! `ClusterFacts`: what is known of the cluster that asks, from its own objects.
//!
//! ```text
//! claims   ─┐
//! roles and bindings ─┼─ watch ──► Snapshot ──► a decision's Facts
//! workloads ─┘
//! ```
//!
//! Contract: each part is unknown until its kinds have been told whole, and is then as old as their
//! watches. A part that may not be read stays unknown; nothing else waits for it.

mod bindings;
mod workloads;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ReplicationController};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use objects::{Id, Index, Kind, Objects, Within};
use stallproof::{Map, Snapshot, Tasks};

use bindings::Bindings;
use workloads::Workloads;

use super::facts::{Facts, Owner, RiskyTags};
use super::images::Images;
use super::recent_owners::RecentOwners;

/// The storage classes of claims, by namespace and name.
#[derive(Clone, Debug, Default)]
struct Claims(Map<String, Map<String, String>>);

/// A cluster whose reviews are decided. Clones share what they know.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterFacts {
    claims: Snapshot<Claims>,
    bindings: Snapshot<Bindings>,
    workloads: Snapshot<Workloads>,
    pub(super) images: Snapshot<Images>,
}

impl ClusterFacts {
    pub(super) fn new(images: Snapshot<Images>) -> Self {
        Self { images, ..Self::default() }
    }

    /// Reads what there is to know from the cluster's own store, from now on.
    pub(super) fn follow(&self, objects: &Objects, tasks: &Tasks) {
        follow::<PersistentVolumeClaim, _>(objects, tasks, &self.claims);
        let bindings = &self.bindings;
        follow::<Role, _>(objects, tasks, bindings);
        follow::<ClusterRole, _>(objects, tasks, bindings);
        follow::<RoleBinding, _>(objects, tasks, bindings);
        follow::<ClusterRoleBinding, _>(objects, tasks, bindings);
        let workloads = &self.workloads;
        follow::<Deployment, _>(objects, tasks, workloads);
        follow::<ReplicaSet, _>(objects, tasks, workloads);
        follow::<DaemonSet, _>(objects, tasks, workloads);
        follow::<StatefulSet, _>(objects, tasks, workloads);
        follow::<ReplicationController, _>(objects, tasks, workloads);
        follow::<Job, _>(objects, tasks, workloads);
        follow::<CronJob, _>(objects, tasks, workloads);
    }

    /// One moment of it, and of what was seen of reviews.
    pub(super) fn now(&self, seen: &Snapshot<RecentOwners>) -> Now {
        Now {
            claims: self.claims.load(),
            bindings: self.bindings.load(),
            workloads: self.workloads.load(),
            images: self.images.load(),
            seen: seen.load(),
        }
    }
}

fn follow<K, I>(objects: &Objects, tasks: &Tasks, snapshot: &Snapshot<I>)
where
    K: Kind,
    I: Index<K> + Clone + Send + Sync + 'static,
{
    let watch = objects.watch::<K>(Within::default());
    let keeping = watch.keep(snapshot.clone(), tasks.stopping());
    tasks.spawn(format!("admission watches {}", K::NAME), keeping);
}

impl Index<PersistentVolumeClaim> for Claims {
    fn reset(&mut self, all: Vec<PersistentVolumeClaim>) -> bool {
        self.0 = Map::new();
        all.iter().for_each(|claim| self.put(claim));
        true
    }

    fn apply(&mut self, claim: PersistentVolumeClaim) -> bool {
        self.put(&claim);
        true
    }

    fn delete(&mut self, claim: PersistentVolumeClaim) -> bool {
        let Id { namespace, name } = Id::of(&claim);
        let claims = self.0.get_mut(&namespace.unwrap_or_default());
        claims.is_some_and(|claims| claims.remove(&name).is_some())
    }
}

impl Claims {
    fn put(&mut self, claim: &PersistentVolumeClaim) {
        let Id { namespace, name } = Id::of(claim);
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
        let claims = self.0.entry(namespace.unwrap_or_default()).or_default();
        match class {
            Some(class) => claims.insert(name, class),
            None => claims.remove(&name),
        };
    }
}

/// What is known at one moment.
pub(super) struct Now {
    claims: stallproof::snapshot::View<Claims>,
    bindings: stallproof::snapshot::View<Bindings>,
    workloads: stallproof::snapshot::View<Workloads>,
    images: stallproof::snapshot::View<Images>,
    seen: stallproof::snapshot::View<RecentOwners>,
}

impl Facts for Now {
    fn owner(&self, uid: &str) -> Option<&Owner> {
        self.workloads.root(uid, &self.seen)
    }

    fn injected(&self, controller: Option<&str>, container: &str) -> bool {
        controller.is_some_and(|uid| self.workloads.template_lacks(uid, container))
    }

    fn storage_class(&self, namespace: &str, claim: &str) -> Option<&str> {
        self.claims.0.get(namespace)?.get(claim).map(String::as_str)
    }

    fn risky_tags(&self, namespace: &str, service_account: &str) -> Option<RiskyTags> {
        self.bindings.tags(namespace, service_account)
    }

    fn images(&self) -> Option<&Images> {
        Some(&self.images)
    }
}

#[cfg(test)]
mod tests;
