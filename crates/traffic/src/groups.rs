//! `Groups`: which groups a workload is in, and how strictly it is watched.
//!
//! Every workload is in one *learned* group, that of its namespace and owner, and in each *made*
//! group ([`Group`]) whose criteria fit. What is no workload is in made groups whose criteria speak
//! of addresses alone.
//!
//! Contract:
//! - Criteria are compiled once, when a group is applied. A change is looked at where it can matter:
//!   a pod by itself, a namespace's labels and a service's selector for the namespace's pods, a
//!   group for all pods but against that group alone.
//! - A learned group without members goes once it was empty for the time given to `age`.
//! - Clones share structure: publish it in a [`stallproof::Snapshot`].

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use objects::kinds::{Group, GroupCriteria, GroupKey, GroupMode, GroupSpec, GroupSubject, domain};
use objects::{Invalid, Kind};
use stallproof::Map;

use crate::conversations::{End, Endpoint, Labels, Moment, PodFacts, ServiceFacts};

/// Namespace and name.
type Id = (Arc<str>, Arc<str>);

#[derive(Clone, Debug)]
pub struct Groups {
    default: GroupMode,
    /// In the order of their names.
    made: Arc<Vec<Arc<Made>>>,
    pods: Map<Id, Arc<Pod>>,
    ids: Map<Arc<str>, Id>,
    namespaces: Map<Arc<str>, Arc<Labels>>,
    services: Map<Id, Arc<ServiceFacts>>,
    learned: Map<Id, Learned>,
}

/// A group that somebody made.
#[derive(Debug)]
pub struct Made {
    pub name: Arc<str>,
    pub mode: Option<GroupMode>,
    pub criteria: GroupCriteria,
    /// The domain names whose addresses are in it, if it names some; it then has nothing else.
    pub domains: Vec<Arc<str>>,
    pub spec: objects::kinds::GroupSpec,
}

#[derive(Clone, Debug)]
struct Pod {
    facts: PodFacts,
    /// The services that select it.
    services: Vec<Arc<str>>,
    membership: Membership,
}

/// What a workload is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Made groups, in the order of their names.
    pub groups: Vec<Arc<str>>,
    /// The strictest of theirs; the default if none has one.
    pub mode: GroupMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Learned {
    members: u32,
    empty_since: Option<Moment>,
}

impl Groups {
    /// `default` is the mode of workloads in no group that has one.
    pub fn new(default: GroupMode) -> Self {
        Self {
            default,
            made: Arc::default(),
            pods: Map::new(),
            ids: Map::new(),
            namespaces: Map::new(),
            services: Map::new(),
            learned: Map::new(),
        }
    }

    pub fn apply_group(&mut self, group: &Group) -> Result<(), Invalid> {
        group.check()?;
        let made = Made {
            name: group.name_any().into(),
            mode: group.spec.mode,
            criteria: GroupCriteria::compile(&group.spec.criteria)?,
            domains: domains(&group.spec),
            spec: group.spec.clone(),
        };
        let name = Arc::clone(&made.name);
        let groups = Arc::make_mut(&mut self.made);
        match groups.binary_search_by(|other| other.name.cmp(&name)) {
            Ok(place) => groups[place] = Arc::new(made),
            Err(place) => groups.insert(place, Arc::new(made)),
        }
        self.place_all(|_| true, Some(&name));
        Ok(())
    }

    pub fn delete_group(&mut self, name: &str) {
        Arc::make_mut(&mut self.made).retain(|group| *group.name != *name);
        self.place_all(|_| true, Some(name));
    }

    /// Says whether anything changed, as the following ones do.
    pub fn apply_pod(&mut self, pod: &PodFacts, now: Moment) -> bool {
        let id = (Arc::clone(&pod.namespace), Arc::clone(&pod.name));
        let known = self.pods.get(&id);
        if known.is_some_and(|known| known.facts == *pod) {
            return false;
        }
        let removed = self.remove(&id, now);
        if pod.until.is_some() {
            return removed;
        }
        let services = self.services_of(pod);
        let membership = self.membership(pod, &services);
        self.ids.insert(Arc::clone(&pod.uid), id.clone());
        let learned = self.learned.entry((id.0.clone(), pod.owner())).or_insert(EMPTY);
        *learned = Learned { members: learned.members + 1, empty_since: None };
        self.pods.insert(id, Arc::new(Pod { facts: pod.clone(), services, membership }));
        true
    }

    pub fn delete_pod(&mut self, uid: &str, now: Moment) -> bool {
        self.ids.get(uid).cloned().is_some_and(|id| self.remove(&id, now))
    }

    pub fn apply_namespace(&mut self, name: &Arc<str>, labels: &Labels) -> bool {
        let changed = self.namespaces.get(name).is_none_or(|known| **known != *labels);
        if changed {
            self.namespaces.insert(Arc::clone(name), Arc::new(labels.clone()));
            self.place_all(|pod| pod.facts.namespace == *name, None);
        }
        changed
    }

    pub fn delete_namespace(&mut self, name: &str) -> bool {
        let known = self.namespaces.remove(name).is_some();
        if known {
            self.place_all(|pod| *pod.facts.namespace == *name, None);
        }
        known
    }

    pub fn apply_service(&mut self, service: &ServiceFacts) -> bool {
        let id = (Arc::clone(&service.namespace), Arc::clone(&service.name));
        let known = self.services.insert(id, Arc::new(service.clone()));
        if known.as_ref().is_none_or(|known| known.selector != service.selector) {
            self.place_all(|pod| pod.facts.namespace == service.namespace, None);
        }
        known.is_none_or(|known| *known != *service)
    }

    pub fn delete_service(&mut self, namespace: &str, name: &str) -> bool {
        let known = self.services.remove(&(namespace.into(), name.into())).is_some();
        if known {
            self.place_all(|pod| *pod.facts.namespace == *namespace, None);
        }
        known
    }

    /// Lets learned groups go that were empty for `empty`.
    pub fn age(&mut self, now: Moment, empty: Duration) {
        let gone =
            |learned: &Learned| learned.empty_since.is_some_and(|since| now.since(since) >= empty);
        if self.learned.values().any(gone) {
            self.learned.retain(|_, learned| !gone(learned));
        }
    }

    /// What a workload is in; none if it is not known.
    pub fn of(&self, namespace: &Arc<str>, name: &Arc<str>) -> Option<&Membership> {
        self.pods.get(&(Arc::clone(namespace), Arc::clone(name))).map(|pod| &pod.membership)
    }

    /// How strictly an end is watched; none if it is no workload.
    pub fn mode(&self, end: &End) -> Option<GroupMode> {
        let Endpoint::Workload { namespace, name, .. } = &*end.endpoint else { return None };
        Some(self.of(namespace, name).map_or(self.default, |membership| membership.mode))
    }

    /// Whether an end is in the made group `name`.
    pub fn has(&self, name: &str, end: &End) -> bool {
        match &*end.endpoint {
            Endpoint::Workload { namespace, name: pod, .. } => {
                let membership = self.of(namespace, pod);
                membership.is_some_and(|it| it.groups.iter().any(|group| **group == *name))
            }
            _ => self.made(name).is_some_and(|made| made.criteria.fits_address(end.address)),
        }
    }

    pub fn made(&self, name: &str) -> Option<&Arc<Made>> {
        let place = self.made.binary_search_by(|group| (*group.name).cmp(name)).ok()?;
        Some(&self.made[place])
    }

    pub fn all_made(&self) -> &[Arc<Made>] {
        &self.made
    }

    /// Namespace, owner and number of members, in that order.
    pub fn all_learned(&self) -> Vec<(Arc<str>, Arc<str>, u32)> {
        let learned = self.learned.iter();
        let mut all: Vec<_> = learned
            .map(|((namespace, owner), it)| (namespace.clone(), owner.clone(), it.members))
            .collect();
        all.sort();
        all
    }

    /// The workloads of a made group.
    pub fn members<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a PodFacts> {
        let pods = self.pods.values();
        pods.filter(move |pod| pod.membership.groups.iter().any(|name| **name == *group))
            .map(|pod| &pod.facts)
    }

    /// The uids of all workloads.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<str>> {
        self.ids.keys()
    }

    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<str>> {
        self.namespaces.keys()
    }

    pub fn services(&self) -> impl Iterator<Item = &ServiceFacts> {
        self.services.values().map(|service| &**service)
    }

    /// Every workload, and what it is in.
    pub fn all(&self) -> impl Iterator<Item = (&PodFacts, &Membership)> {
        self.pods.values().map(|pod| (&pod.facts, &pod.membership))
    }

    /// The workloads of a namespace.
    pub fn workloads<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a PodFacts> {
        let pods = self.pods.values();
        pods.map(|pod| &pod.facts).filter(move |pod| *pod.namespace == *namespace)
    }

    fn remove(&mut self, id: &Id, now: Moment) -> bool {
        let Some(pod) = self.pods.remove(id) else { return false };
        self.ids.remove(&pod.facts.uid);
        let learned = self.learned.entry((id.0.clone(), pod.facts.owner())).or_insert(EMPTY);
        learned.members = learned.members.saturating_sub(1);
        if learned.members == 0 {
            learned.empty_since = Some(now);
        }
        true
    }

    /// Places pods again, in the one group that changed or in all.
    fn place_all(&mut self, which: impl Fn(&Pod) -> bool, changed: Option<&str>) {
        let mut placed = Vec::new();
        for (id, pod) in self.pods.iter().filter(|(_, pod)| which(pod)) {
            let (services, membership) = match changed {
                Some(group) => (pod.services.clone(), self.patched(pod, group)),
                None => {
                    let services = self.services_of(&pod.facts);
                    let membership = self.membership(&pod.facts, &services);
                    (services, membership)
                }
            };
            if (&services, &membership) != (&pod.services, &pod.membership) {
                let facts = pod.facts.clone();
                placed.push((id.clone(), Arc::new(Pod { facts, services, membership })));
            }
        }
        for (id, pod) in placed {
            self.pods.insert(id, pod);
        }
    }

    fn patched(&self, pod: &Pod, group: &str) -> Membership {
        let mut groups = pod.membership.groups.clone();
        groups.retain(|name| **name != *group);
        let subject = self.subject(&pod.facts, &pod.services);
        if let Some(made) = self.made(group).filter(|made| made.criteria.fits(&subject)) {
            let place = groups.partition_point(|name| *name < made.name);
            groups.insert(place, Arc::clone(&made.name));
        }
        self.with_mode(groups)
    }

    fn membership(&self, pod: &PodFacts, services: &[Arc<str>]) -> Membership {
        let subject = self.subject(pod, services);
        let fitting = self.made.iter().filter(|made| made.criteria.fits(&subject));
        self.with_mode(fitting.map(|made| Arc::clone(&made.name)).collect())
    }

    fn with_mode(&self, groups: Vec<Arc<str>>) -> Membership {
        let modes = groups.iter().filter_map(|name| self.made(name)?.mode);
        Membership { mode: modes.max().unwrap_or(self.default), groups }
    }

    fn services_of(&self, pod: &PodFacts) -> Vec<Arc<str>> {
        let selects = |service: &ServiceFacts| {
            let has = |(key, value): (&String, &String)| pod.labels.get(key) == Some(value);
            service.namespace == pod.namespace
                && !service.selector.is_empty()
                && service.selector.iter().all(has)
        };
        let services = self.services.values().filter(|service| selects(service));
        let mut services: Vec<_> = services.map(|service| Arc::clone(&service.name)).collect();
        services.sort();
        services
    }

    fn subject<'a>(&'a self, pod: &'a PodFacts, services: &'a [Arc<str>]) -> GroupSubject<'a> {
        GroupSubject {
            namespace: &pod.namespace,
            name: &pod.name,
            owner: pod.owner.as_deref(),
            node: &pod.node,
            images: &pod.images,
            labels: &pod.labels,
            addresses: &pod.addresses,
            services,
            namespace_labels: self.namespaces.get(&pod.namespace).map(|labels| &**labels),
        }
    }
}

fn domains(spec: &GroupSpec) -> Vec<Arc<str>> {
    let named = spec.criteria.iter().filter(|criterion| criterion.key == GroupKey::Domain);
    named.filter_map(|criterion| domain(&criterion.value).ok().map(Arc::from)).collect()
}

const EMPTY: Learned = Learned { members: 0, empty_since: None };

#[cfg(test)]
mod tests;
