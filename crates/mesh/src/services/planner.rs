//! `ServicePlanner`: the plan of a mesh's Services, kept up to date. A change costs what the Services
//! that it concerns cost.
//!
//! Contract:
//! - While a member has not been looked at yet, nothing is planned for any member: what a new leader does
//!   not know yet must not look as if it were gone.
//! - When `advance` has nothing left to do, the planner says what one would say that was made from
//!   nothing, whatever was observed before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::objects::{EndpointSlice, ServiceExport, ServiceImport};
use super::plan::{
    SERVICE_NAME, SLICE_SERVICE, ServiceContext, ServiceWrite, SourceState, derived_from,
    plan_service,
};
use crate::observation::{Index, Observed, changes};
use crate::set_map::SetMap;

/// Says of objects that they have not been looked at yet.
pub(crate) const NOT_YET: &str = "it is being looked at for the first time";

/// What is known of the Services of one cluster. Namespaced objects are indexed as `namespace/name`.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterServices {
    pub namespaces: Observed<Index<Namespace>>,
    pub services: Observed<Index<Service>>,
    pub slices: Observed<Index<EndpointSlice>>,
    /// Known and empty where the cluster does not know the kind.
    pub exports: Observed<Index<ServiceExport>>,
    pub imports: Observed<Index<ServiceImport>>,
}

impl Default for ClusterServices {
    fn default() -> Self {
        Self {
            namespaces: not_yet(),
            services: not_yet(),
            slices: not_yet(),
            exports: not_yet(),
            imports: not_yet(),
        }
    }
}

fn not_yet<T>() -> Observed<T> {
    Observed::Waiting(NOT_YET.to_owned())
}

impl ClusterServices {
    /// What the cluster may contribute.
    fn state(&self) -> SourceState {
        let parts = [self.exports.state(), self.services.state(), self.slices.state()];
        match () {
            () if parts.iter().all(|part| part.known().is_some()) => SourceState::Known,
            () if parts.iter().any(|part| matches!(part, Observed::Away(_))) => SourceState::Away,
            () => SourceState::Unknown,
        }
    }

    /// Why the cluster cannot export or import, where that is known.
    pub(crate) fn problem(&self) -> Option<String> {
        fn of<T>(part: &Observed<T>) -> Option<String> {
            match part {
                Observed::Away(why) => Some(why.clone()),
                Observed::Waiting(what) if what != NOT_YET => Some(format!("waiting for {what}")),
                Observed::Waiting(_) | Observed::Known(_) => None,
            }
        }
        let own = of(&self.exports).or_else(|| of(&self.services)).or_else(|| of(&self.slices));
        own.or_else(|| of(&self.namespaces)).or_else(|| of(&self.imports))
    }

    /// Returns whether the cluster is known to have nothing that the mesh made.
    pub(crate) fn is_clear_of(&self, context: &ServiceContext) -> bool {
        let (Some(services), Some(slices)) = (self.services.known(), self.slices.known()) else {
            return false;
        };
        let imports = match &self.imports {
            Observed::Known(imports) => imports.values().all(|it| !context.owns(&**it)),
            // A cluster without the kind has no imports.
            Observed::Waiting(what) => what != NOT_YET,
            Observed::Away(_) => false,
        };
        imports
            && services.values().all(|it| !context.owns(&**it))
            && slices.values().all(|it| !context.owns(&**it))
    }
}

/// One cluster's objects, by the Service of the mesh that they belong to.
#[derive(Debug, Default)]
pub(crate) struct ClusterIndex {
    observed: ClusterServices,
    /// The slices of a Service of the cluster.
    own_slices: SetMap<String, Arc<str>>,
    /// The slices and the derived Services that were imported.
    imported_slices: SetMap<String, Arc<str>>,
    derived: SetMap<String, Arc<str>>,
}

impl ClusterIndex {
    pub(crate) fn state(&self) -> SourceState {
        self.observed.state()
    }

    /// Returns whether Services can be imported into the cluster.
    pub(crate) fn is_writable(&self) -> bool {
        self.state() == SourceState::Known
            && self.observed.namespaces.known().is_some()
            && self.observed.imports.known().is_some()
    }

    pub(crate) fn has_namespace(&self, name: &str) -> bool {
        let found = self.observed.namespaces.known().and_then(|all| all.get(name));
        found.is_some_and(|it| it.metadata.deletion_timestamp.is_none())
    }

    pub(crate) fn export(&self, key: &str) -> Option<&ServiceExport> {
        let found = self.observed.exports.known()?.get(key).map(AsRef::as_ref);
        found.filter(|it: &&ServiceExport| it.metadata.deletion_timestamp.is_none())
    }

    pub(crate) fn import(&self, key: &str) -> Option<&ServiceImport> {
        self.observed.imports.known()?.get(key).map(AsRef::as_ref)
    }

    pub(crate) fn service(&self, key: &str) -> Option<&Service> {
        self.observed.services.known()?.get(key).map(AsRef::as_ref)
    }

    pub(crate) fn service_in(&self, namespace: &str, name: &str) -> Option<&Service> {
        self.service(&format!("{namespace}/{name}"))
    }

    pub(crate) fn slice_in(&self, namespace: &str, name: &str) -> Option<&EndpointSlice> {
        let key = format!("{namespace}/{name}");
        self.observed.slices.known()?.get(key.as_str()).map(AsRef::as_ref)
    }

    fn slices<'a>(
        &'a self,
        by: &'a SetMap<String, Arc<str>>,
        key: &'a str,
    ) -> impl Iterator<Item = &'a EndpointSlice> {
        let all = self.observed.slices.known();
        by.get(key).filter_map(move |name| all?.get(name).map(AsRef::as_ref))
    }

    /// The slices of the cluster's own Service.
    pub(crate) fn slices_of<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a EndpointSlice> {
        self.slices(&self.own_slices, key)
    }

    /// The slices that were imported for a Service, whoever did so.
    pub(crate) fn imported_of<'a>(
        &'a self,
        key: &'a str,
    ) -> impl Iterator<Item = &'a EndpointSlice> {
        self.slices(&self.imported_slices, key)
    }

    /// The Services that were derived from a Service, whoever did so.
    pub(crate) fn derived_of<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Service> {
        self.derived.get(key).filter_map(|name| self.service(name))
    }

    /// Takes in what the cluster has now, and collects the Services that it concerns.
    fn observe(&mut self, now: &ClusterServices, touched: &mut BTreeSet<String>) -> bool {
        let before = std::mem::replace(&mut self.observed, now.clone());
        for (name, old, new) in changes(before.services.known(), now.services.known()) {
            touched.insert(name.to_string());
            for (service, is) in
                old.iter().map(|it| (it, false)).chain(new.iter().map(|it| (it, true)))
            {
                let Some(key) = derived_from(service) else { continue };
                mark(&mut self.derived, &key, &name, is);
                touched.insert(key);
            }
        }
        for (name, old, new) in changes(before.slices.known(), now.slices.known()) {
            for (slice, is) in
                old.iter().map(|it| (it, false)).chain(new.iter().map(|it| (it, true)))
            {
                let namespace = slice.namespace().unwrap_or_default();
                let key = |label: &str| Some(format!("{namespace}/{}", slice.labels().get(label)?));
                match (key(SERVICE_NAME), key(SLICE_SERVICE)) {
                    (Some(key), _) => {
                        mark(&mut self.imported_slices, &key, &name, is);
                        touched.insert(key);
                    }
                    (None, Some(key)) => {
                        mark(&mut self.own_slices, &key, &name, is);
                        touched.insert(key);
                    }
                    (None, None) => {}
                }
            }
        }
        let exports = changes(before.exports.known(), now.exports.known());
        touched.extend(exports.into_iter().map(|it| it.0.to_string()));
        let imports = changes(before.imports.known(), now.imports.known());
        touched.extend(imports.into_iter().map(|it| it.0.to_string()));
        // What concerns every Service: whether the cluster can be asked, and its namespaces.
        before.state() != now.state()
            || before.imports.known().is_some() != now.imports.known().is_some()
            || before.namespaces != now.namespaces
    }

    /// The Services of the mesh that the cluster has something to do with.
    fn keys(&self) -> impl Iterator<Item = String> {
        let exports = self.observed.exports.known().into_iter().flat_map(|all| all.keys());
        let imports = self.observed.imports.known().into_iter().flat_map(|all| all.keys());
        let named = exports.chain(imports).map(ToString::to_string);
        named.chain(self.imported_slices.keys().cloned()).chain(self.derived.keys().cloned())
    }
}

fn mark(map: &mut SetMap<String, Arc<str>>, key: &str, name: &Arc<str>, is: bool) {
    match is {
        true => map.insert(key.to_owned(), Arc::clone(name)),
        false => map.remove(key, name),
    }
}

#[derive(Debug, Default)]
pub struct ServicePlanner {
    context: ServiceContext,
    clusters: BTreeMap<Arc<str>, ClusterIndex>,
    undecided: BTreeSet<String>,
    /// What is to be written, by cluster and Service.
    writes: BTreeMap<Arc<str>, BTreeMap<String, Vec<ServiceWrite>>>,
}

impl ServicePlanner {
    pub fn set_context(&mut self, context: ServiceContext) {
        if self.context != context {
            self.context = context;
            self.undecide_all();
        }
    }

    /// Notes what a cluster has now. `cluster` is the mesh's name for it.
    pub fn observe(&mut self, cluster: &str, now: &ClusterServices) {
        let known = match self.clusters.get_mut(cluster) {
            Some(known) if known.observed == *now => return,
            Some(known) => known,
            None => self.clusters.entry(cluster.into()).or_default(),
        };
        if known.observe(now, &mut self.undecided) {
            self.undecide_all();
        }
    }

    /// Forgets a cluster, or that its name means another one from now on.
    pub fn remove_cluster(&mut self, cluster: &str) {
        if self.clusters.remove(cluster).is_some() {
            self.writes.remove(cluster);
            self.undecide_all();
        }
    }

    /// The clusters that the planner knows.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = &str> {
        self.clusters.keys().map(|name| &**name)
    }

    fn undecide_all(&mut self) {
        let written = self.writes.values().flat_map(|by_key| by_key.keys().cloned());
        self.undecided.extend(written);
        self.undecided.extend(self.clusters.values().flat_map(ClusterIndex::keys));
    }

    /// Whether a member has not been looked at yet.
    fn waits(&self) -> bool {
        let known = |name: &String| {
            self.clusters.get(name.as_str()).is_some_and(|it| it.state() != SourceState::Unknown)
        };
        !self.context.members.keys().all(known)
    }

    /// Plans up to `most` Services, and returns whether there are more.
    pub fn advance(&mut self, most: usize, now: &Time) -> bool {
        if self.waits() {
            return false;
        }
        for _ in 0..most {
            let Some(key) = self.undecided.pop_first() else { return false };
            let mut planned = plan_service(&self.context, &key, &self.clusters, now);
            for (cluster, by_key) in &mut self.writes {
                if !planned.contains_key(cluster) {
                    by_key.remove(&key);
                }
            }
            while let Some((cluster, writes)) = planned.pop_first() {
                self.writes.entry(cluster).or_default().insert(key.clone(), writes);
            }
        }
        !self.undecided.is_empty()
    }

    /// What is to be written in each cluster.
    pub fn writes(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &ServiceWrite>)> {
        let waits = self.waits();
        let due = self.writes.iter().filter(move |(_, by_key)| !waits && !by_key.is_empty());
        due.map(|(cluster, by_key)| (&**cluster, by_key.values().flatten()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_a_cluster_has_not_is_named_and_one_not_looked_at_is_not() {
        let mut cluster = ClusterServices::default();
        assert_eq!(cluster.problem(), None);
        cluster.slices = Observed::Waiting("the API of EndpointSlices".to_owned());
        assert_eq!(cluster.problem().as_deref(), Some("waiting for the API of EndpointSlices"));
        cluster.services = Observed::Away("no answer".to_owned());
        assert_eq!(cluster.problem().as_deref(), Some("no answer"));
    }
}
