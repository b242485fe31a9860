//! `Inventory`: the pods, services, nodes and groups of one moment.
//!
//! Contract:
//! - Facts come in any order; what the whole list of a kind no longer has is gone.
//! - Workloads and addresses that an agent tells of its own node stand in where Kubernetes tells
//!   nothing of that kind.
//! - A made group that speaks of addresses alone names those networks: an address outside of the
//!   cluster that is in one is `external NAME`.
//! - Clones share structure: it is published whole.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use kube::ResourceExt;
use objects::kinds::{Group, GroupKey, GroupMode, GroupOp, GroupSpec, network};
use stallproof::Map;

use crate::conversations::{
    Directory, ExternalFacts, Labels, LocalWorkload, Moment, NodeFacts, PodFacts, ServiceFacts,
};
use crate::groups::Groups;

/// A report is minutes old at most; an hour is for clocks that are not right.
const REMEMBER: Duration = Duration::from_secs(60 * 60);
/// A learned group that was empty for so long goes.
const EMPTY: Duration = Duration::from_secs(60 * 60);

#[derive(Clone, Debug)]
pub struct Inventory {
    pub directory: Directory,
    pub groups: Groups,
    /// Whether Kubernetes tells of pods, and of nodes.
    pods_told: bool,
    nodes_told: bool,
    /// Uids of what Kubernetes told.
    pods: Map<Arc<str>, ()>,
    services: Map<(Arc<str>, Arc<str>), Arc<ServiceFacts>>,
    namespaces: Map<Arc<str>, ()>,
    nodes: Map<Arc<str>, Arc<NodeWithNetworks>>,
    pools: Map<Arc<str>, Arc<[IpNet]>>,
    /// By node, what its agent told.
    local: Map<Arc<str>, Arc<[PodFacts]>>,
    hosts: Map<Arc<str>, Arc<[IpAddr]>>,
    /// Groups that are not right, and why.
    wrong: Map<Arc<str>, Arc<str>>,
}

/// A node with the networks of its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeWithNetworks {
    pub(super) facts: NodeFacts,
    pub(super) networks: Vec<IpNet>,
}

/// A namespace and its labels.
#[derive(Clone, Debug)]
pub(super) struct NamespaceFacts {
    pub(super) name: Arc<str>,
    pub(super) labels: Labels,
}

/// An address pool and its networks.
#[derive(Clone, Debug)]
pub(super) struct PoolFacts {
    pub(super) name: Arc<str>,
    pub(super) networks: Arc<[IpNet]>,
}

/// A fact about one object, kept in an inventory under the object's id.
pub(super) trait Fact {
    type Id: Ord;

    fn id(&self) -> Self::Id;

    /// The ids of all facts of this kind.
    fn kept(inventory: &Inventory) -> Vec<Self::Id>;

    /// Keeps the fact; says whether that changed anything.
    fn apply(&self, inventory: &mut Inventory, now: Moment) -> bool;

    /// Forgets the fact; says whether that changed anything.
    fn delete(id: &Self::Id, inventory: &mut Inventory, now: Moment) -> bool;

    /// Prepares the inventory for a whole list.
    fn before_reset(_: &mut Inventory, _: Moment) {}

    /// Renews what is derived from all facts of this kind.
    fn after_changes(_: &mut Inventory) {}
}

impl Inventory {
    /// `mode` is that of workloads in no group that has one.
    pub(super) fn new(mode: GroupMode) -> Self {
        Self {
            directory: Directory::new(),
            groups: Groups::new(mode),
            pods_told: false,
            nodes_told: false,
            pods: Map::new(),
            services: Map::new(),
            namespaces: Map::new(),
            nodes: Map::new(),
            pools: Map::new(),
            local: Map::new(),
            hosts: Map::new(),
            wrong: Map::new(),
        }
    }

    /// Why a group that is stored is in no use.
    pub fn wrong_group(&self, name: &str) -> Option<&Arc<str>> {
        self.wrong.get(name)
    }

    /// All groups that are in no use, and why.
    pub fn wrong_groups(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.wrong.iter()
    }

    /// Takes in all facts of a kind: what is not among them is gone.
    pub(super) fn reset<F: Fact>(&mut self, all: &[F], now: Moment) {
        F::before_reset(self, now);
        let there: BTreeSet<_> = all.iter().map(F::id).collect();
        let gone = F::kept(self).into_iter().filter(|id| !there.contains(id));
        gone.for_each(|id| _ = F::delete(&id, self, now));
        all.iter().for_each(|fact| _ = fact.apply(self, now));
        F::after_changes(self);
    }

    /// Takes in one fact; says whether it changed anything.
    pub(super) fn apply<F: Fact>(&mut self, fact: &F, now: Moment) -> bool {
        let changed = fact.apply(self, now);
        if changed {
            F::after_changes(self);
        }
        changed
    }

    /// Takes out one fact; says whether it changed anything.
    pub(super) fn delete<F: Fact>(&mut self, id: &F::Id, now: Moment) -> bool {
        let changed = F::delete(id, self, now);
        F::after_changes(self);
        changed
    }

    /// Says whether anything changed.
    pub(super) fn set_local(
        &mut self,
        node: &str,
        workloads: &[LocalWorkload],
        now: Moment,
    ) -> bool {
        if self.pods_told {
            return false;
        }
        let node: Arc<str> = node.into();
        let pods: Arc<[PodFacts]> = workloads.iter().map(|it| local_pod(it, &node)).collect();
        let before = self.local.get(&node).cloned().unwrap_or_default();
        if before == pods {
            return false;
        }
        for gone in before.iter().filter(|pod| pods.iter().all(|other| other.uid != pod.uid)) {
            PodFacts::delete(&gone.uid, self, now);
        }
        for pod in pods.iter() {
            self.directory.apply_pod(pod, now);
            self.groups.apply_pod(pod, now);
        }
        if pods.is_empty() {
            self.local.remove(&node);
        } else {
            self.local.insert(node, pods);
        }
        true
    }

    /// Says whether anything changed.
    pub(super) fn set_host(&mut self, node: &str, addresses: &[IpAddr], now: Moment) -> bool {
        if self.nodes_told || self.hosts.get(node).map_or(&[][..], |known| known) == addresses {
            return false;
        }
        let name: Arc<str> = node.into();
        if addresses.is_empty() {
            self.hosts.remove(&name);
            return self.directory.delete_node(node, now);
        }
        self.hosts.insert(Arc::clone(&name), addresses.into());
        // From before anything that is reported: it had them before it said so.
        let facts = NodeFacts { name, addresses: addresses.to_vec(), from: Moment(0) };
        self.directory.apply_node(&facts, now)
    }

    /// For a slow timer: it visits everything.
    pub(super) fn age(&mut self, now: Moment) {
        self.directory.forget(now.before(REMEMBER));
        self.groups.age(now, EMPTY);
    }

    fn set_ranges(&mut self) {
        let ranges = self.ranges();
        self.directory.set_ranges(&ranges);
    }

    /// The cluster's own.
    pub(super) fn ranges(&self) -> Vec<IpNet> {
        let pods = self.nodes.values().flat_map(|node| node.networks.iter());
        let pools = self.pools.values().flat_map(|networks| networks.iter());
        let mut ranges: Vec<_> = pods.chain(pools).copied().collect();
        ranges.sort();
        ranges.dedup();
        ranges
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = IpAddr> {
        let told = self.nodes.values().flat_map(|node| node.facts.addresses.iter());
        told.chain(self.hosts.values().flat_map(|addresses| addresses.iter())).copied()
    }

    pub(super) fn services(&self) -> impl Iterator<Item = &ServiceFacts> {
        self.services.values().map(|service| &**service)
    }

    fn name_networks(&mut self) {
        let made = self.groups.all_made().iter();
        let named: Vec<_> = made
            .filter_map(|made| {
                let networks = networks(&made.spec)?;
                Some(ExternalFacts { name: Arc::clone(&made.name), networks })
            })
            .collect();
        self.directory.set_externals(&named);
    }
}

/// Those of a group that is nothing but networks.
fn networks(spec: &GroupSpec) -> Option<Vec<IpNet>> {
    let one = |criterion: &objects::kinds::GroupCriterion| {
        let plain = criterion.key == GroupKey::Address && criterion.op == GroupOp::Equals;
        plain.then(|| network(&criterion.value)).flatten()
    };
    spec.criteria.iter().map(one).collect()
}

impl Fact for PodFacts {
    type Id = Arc<str>;

    fn id(&self) -> Arc<str> {
        Arc::clone(&self.uid)
    }

    fn kept(inventory: &Inventory) -> Vec<Arc<str>> {
        inventory.pods.keys().cloned().collect()
    }

    fn apply(&self, inventory: &mut Inventory, now: Moment) -> bool {
        inventory.pods.insert(Arc::clone(&self.uid), ());
        inventory.directory.apply_pod(self, now) | inventory.groups.apply_pod(self, now)
    }

    fn delete(uid: &Arc<str>, inventory: &mut Inventory, now: Moment) -> bool {
        inventory.pods.remove(uid);
        inventory.directory.delete_pod(uid, now) | inventory.groups.delete_pod(uid, now)
    }

    /// Kubernetes tells of pods: what agents told is void.
    fn before_reset(inventory: &mut Inventory, now: Moment) {
        inventory.pods_told = true;
        for pod in std::mem::take(&mut inventory.local).values().flat_map(|pods| pods.iter()) {
            Self::delete(&pod.uid, inventory, now);
        }
    }
}

impl Fact for ServiceFacts {
    type Id = (Arc<str>, Arc<str>);

    fn id(&self) -> Self::Id {
        (Arc::clone(&self.namespace), Arc::clone(&self.name))
    }

    fn kept(inventory: &Inventory) -> Vec<Self::Id> {
        inventory.services.keys().cloned().collect()
    }

    fn apply(&self, inventory: &mut Inventory, now: Moment) -> bool {
        let known = inventory.services.insert(self.id(), Arc::new(self.clone()));
        inventory.directory.apply_service(self, now);
        inventory.groups.apply_service(self);
        known.is_none_or(|known| *known != *self)
    }

    fn delete(id: &Self::Id, inventory: &mut Inventory, now: Moment) -> bool {
        let (namespace, name) = id;
        inventory.directory.delete_service(namespace, name, now);
        inventory.groups.delete_service(namespace, name);
        inventory.services.remove(id).is_some()
    }
}

impl Fact for NodeWithNetworks {
    type Id = Arc<str>;

    fn id(&self) -> Arc<str> {
        Arc::clone(&self.facts.name)
    }

    fn kept(inventory: &Inventory) -> Vec<Arc<str>> {
        inventory.nodes.keys().chain(inventory.hosts.keys()).cloned().collect()
    }

    fn apply(&self, inventory: &mut Inventory, now: Moment) -> bool {
        inventory.directory.apply_node(&self.facts, now);
        let known = inventory.nodes.insert(self.id(), Arc::new(self.clone()));
        known.is_none_or(|known| *known != *self)
    }

    fn delete(name: &Arc<str>, inventory: &mut Inventory, now: Moment) -> bool {
        inventory.nodes.remove(name).is_some() | inventory.directory.delete_node(name, now)
    }

    fn before_reset(inventory: &mut Inventory, _: Moment) {
        inventory.nodes_told = true;
    }

    /// Kubernetes tells of nodes: what agents told of addresses is void.
    fn after_changes(inventory: &mut Inventory) {
        inventory.hosts = Map::new();
        inventory.set_ranges();
    }
}

impl Fact for NamespaceFacts {
    type Id = Arc<str>;

    fn id(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn kept(inventory: &Inventory) -> Vec<Arc<str>> {
        inventory.namespaces.keys().cloned().collect()
    }

    fn apply(&self, inventory: &mut Inventory, _: Moment) -> bool {
        inventory.namespaces.insert(Arc::clone(&self.name), ());
        inventory.groups.apply_namespace(&self.name, &self.labels)
    }

    fn delete(name: &Arc<str>, inventory: &mut Inventory, _: Moment) -> bool {
        inventory.groups.delete_namespace(name);
        inventory.namespaces.remove(name).is_some()
    }
}

impl Fact for PoolFacts {
    type Id = Arc<str>;

    fn id(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn kept(inventory: &Inventory) -> Vec<Arc<str>> {
        inventory.pools.keys().cloned().collect()
    }

    fn apply(&self, inventory: &mut Inventory, _: Moment) -> bool {
        let known = inventory.pools.insert(self.id(), Arc::clone(&self.networks));
        known.is_none_or(|known| known != self.networks)
    }

    fn delete(name: &Arc<str>, inventory: &mut Inventory, _: Moment) -> bool {
        inventory.pools.remove(name).is_some()
    }

    fn after_changes(inventory: &mut Inventory) {
        inventory.set_ranges();
    }
}

impl Fact for Group {
    type Id = Arc<str>;

    fn id(&self) -> Arc<str> {
        self.name_any().into()
    }

    fn kept(inventory: &Inventory) -> Vec<Arc<str>> {
        let made = inventory.groups.all_made().iter().map(|made| Arc::clone(&made.name));
        made.chain(inventory.wrong.keys().cloned()).collect()
    }

    fn apply(&self, inventory: &mut Inventory, _: Moment) -> bool {
        let name = self.id();
        match inventory.groups.apply_group(self) {
            Ok(()) => drop(inventory.wrong.remove(&name)),
            Err(problems) => {
                // A group that is no longer valid does not go on as it was before.
                inventory.groups.delete_group(&name);
                inventory.wrong.insert(name, problems.to_string().into());
            }
        }
        true
    }

    fn delete(name: &Arc<str>, inventory: &mut Inventory, _: Moment) -> bool {
        inventory.groups.delete_group(name);
        inventory.wrong.remove(name);
        true
    }

    fn after_changes(inventory: &mut Inventory) {
        inventory.name_networks();
    }
}

/// What an agent knows of a workload on its node.
fn local_pod(workload: &LocalWorkload, node: &Arc<str>) -> PodFacts {
    let LocalWorkload { namespace, name, addresses, from } = workload;
    PodFacts {
        uid: format!("{node}/{namespace}/{name}").into(),
        namespace: Arc::clone(namespace),
        name: Arc::clone(name),
        owner: None,
        node: Arc::clone(node),
        addresses: addresses.clone(),
        images: Vec::new(),
        labels: Labels::new(),
        from: *from,
        until: None,
    }
}

#[cfg(test)]
mod tests;
