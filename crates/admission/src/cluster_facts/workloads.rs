//! Who owns whom: the workloads of a cluster, by uid.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{PodTemplateSpec, ReplicationController};
use kube::ResourceExt;
use objects::{Index, Kind};
use stallproof::Map;

use crate::facts::Owner;
use crate::recent_owners::RecentOwners;

/// A pod of a job of a cron job has two above it; more than this is a loop.
const DEEPEST: usize = 8;
/// Of the size of the object itself, and about nothing but it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[derive(Clone, Debug, Default)]
pub(super) struct Workloads(Map<String, Arc<Workload>>);

#[derive(Debug)]
struct Workload {
    /// As in `kind:`.
    of: &'static str,
    /// The uid of what controls it.
    above: Option<String>,
    itself: Owner,
    /// The names of its template's containers.
    containers: Box<[String]>,
}

/// A kind that makes pods.
pub(super) trait Templated: Kind {
    fn template(&self) -> Option<&PodTemplateSpec>;
}

macro_rules! templated {
    ($($kind:ident: $object:ident => $template:expr;)*) => {$(
        impl Templated for $kind {
            fn template(&self) -> Option<&PodTemplateSpec> {
                let $object = self;
                $template
            }
        }
    )*};
}

templated! {
    DaemonSet: set => Some(&set.spec.template);
    Deployment: deployment => Some(&deployment.spec.template);
    StatefulSet: set => Some(&set.spec.template);
    ReplicaSet: set => set.spec.template.as_ref();
    ReplicationController: controller => controller.spec.as_ref()?.template.as_ref();
    Job: job => Some(&job.spec.as_ref()?.template);
    CronJob: job => Some(&job.spec.job_template.spec.as_ref()?.template);
}

impl<K: Templated> Index<K> for Workloads {
    fn reset(&mut self, all: Vec<K>) -> bool {
        self.0.retain(|_, workload| workload.of != K::NAME);
        all.iter().for_each(|object| self.put(object));
        true
    }

    fn apply(&mut self, object: K) -> bool {
        self.put(&object);
        true
    }

    fn delete(&mut self, object: K) -> bool {
        self.0.remove(&object.uid().unwrap_or_default()).is_some()
    }
}

impl Workloads {
    fn put(&mut self, object: &impl Templated) {
        let owners = object.owner_references();
        let above = owners.iter().find(|owner| owner.controller == Some(true)).or(owners.first());
        let containers = object.template().and_then(|template| template.spec.as_ref());
        let containers = containers.into_iter().flat_map(|spec| {
            let init = spec.init_containers.iter().flatten();
            init.chain(&spec.containers).map(|container| container.name.clone())
        });
        let containers = containers.collect();
        let template = object.template().and_then(|template| template.metadata.as_ref());
        let merged = |own: &BTreeMap<String, String>, over: Option<&BTreeMap<String, String>>| {
            let mut merged = own.clone();
            merged.extend(over.into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
            merged.remove(LAST_APPLIED);
            merged
        };
        let itself = Owner {
            kind: kind_of(object).to_owned(),
            name: object.name_any(),
            by: None,
            labels: merged(object.labels(), template.and_then(|meta| meta.labels.as_ref())),
            annotations: merged(
                object.annotations(),
                template.and_then(|meta| meta.annotations.as_ref()),
            ),
        };
        let above = above.map(|owner| owner.uid.clone());
        let workload = Workload { of: kind_of(object), above, itself, containers };
        self.0.insert(object.uid().unwrap_or_default(), Arc::new(workload));
    }

    /// The root above `uid`, itself included: as its own review had it if that was seen, else as it
    /// is in the cluster. One that is not known is no root, so that nothing below it is taken for it.
    pub(super) fn root<'a>(&'a self, uid: &str, seen: &'a RecentOwners) -> Option<&'a Owner> {
        let mut uid = uid;
        for _ in 0..DEEPEST {
            if let Some(owner) = seen.owner(uid) {
                return Some(owner);
            }
            let workload = self.0.get(uid)?;
            match &workload.above {
                None => return Some(&workload.itself),
                Some(above) => uid = above,
            }
        }
        None
    }
}

impl Workloads {
    /// Whether a workload is known, and makes pods without a container of this name.
    pub(super) fn template_lacks(&self, uid: &str, container: &str) -> bool {
        self.0
            .get(uid)
            .is_some_and(|workload| !workload.containers.iter().any(|name| name == container))
    }
}

fn kind_of<K: Kind>(_: &K) -> &'static str {
    K::NAME
}
