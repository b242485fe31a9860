//! `Inventory`: what is known of pods, services, nodes and groups at one moment.
//!
//! Contract:
//! - Each fact comes as it is told, in any order; what a kind's whole list no longer has is gone.
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
    Directory, ExternalFacts, Labels, Moment, NodeFacts, PodFacts, ServiceFacts,
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
    nodes: Map<Arc<str>, Arc<KnownNode>>,
    pools: Map<Arc<str>, Arc<[IpNet]>>,
    /// By node, what its agent told.
    local: Map<Arc<str>, Arc<[PodFacts]>>,
    hosts: Map<Arc<str>, Arc<[IpAddr]>>,
    /// Groups that are not right, and why.
    wrong: Map<Arc<str>, Arc<str>>,
}

/// A node with the networks of its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownNode {
    pub(super) facts: NodeFacts,
    pub(super) networks: Vec<IpNet>,
}

/// A workload of a node, as its agent knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalWorkload {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub addresses: Vec<IpAddr>,
    /// Since when it has them.
    pub from: Moment,
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

    pub(super) fn reset_pods(&mut self, pods: &[PodFacts], now: Moment) {
        self.pods_told = true;
        let local: Vec<_> = self.local.keys().cloned().collect();
        local.iter().for_each(|node| self.forget_local(node, now));
        let there: BTreeSet<_> = pods.iter().map(|pod| &*pod.uid).collect();
        let gone: Vec<_> =
            self.pods.keys().filter(|uid| !there.contains(&***uid)).cloned().collect();
        gone.iter().for_each(|uid| self.delete_pod(uid, now));
        pods.iter().for_each(|pod| self.apply_pod(pod, now));
    }

    pub(super) fn apply_pod(&mut self, pod: &PodFacts, now: Moment) {
        self.pods.insert(Arc::clone(&pod.uid), ());
        self.directory.apply_pod(pod, now);
        self.groups.apply_pod(pod, now);
    }

    pub(super) fn delete_pod(&mut self, uid: &Arc<str>, now: Moment) {
        self.pods.remove(uid);
        self.directory.delete_pod(uid, now);
        self.groups.delete_pod(uid, now);
    }

    pub(super) fn reset_services(&mut self, services: &[ServiceFacts], now: Moment) {
        let there: BTreeSet<_> =
            services.iter().map(|service| (&*service.namespace, &*service.name)).collect();
        let known = self.services.keys().filter(|(ns, name)| !there.contains(&(&**ns, &**name)));
        let gone: Vec<_> = known.cloned().collect();
        gone.iter().for_each(|(namespace, name)| self.delete_service(namespace, name, now));
        services.iter().for_each(|service| self.apply_service(service, now));
    }

    pub(super) fn apply_service(&mut self, service: &ServiceFacts, now: Moment) {
        let id = (Arc::clone(&service.namespace), Arc::clone(&service.name));
        self.services.insert(id, Arc::new(service.clone()));
        self.directory.apply_service(service, now);
        self.groups.apply_service(service);
    }

    pub(super) fn delete_service(&mut self, namespace: &str, name: &str, now: Moment) {
        self.services.remove(&(namespace.into(), name.into()));
        self.directory.delete_service(namespace, name, now);
        self.groups.delete_service(namespace, name);
    }

    pub(super) fn reset_nodes(&mut self, nodes: Vec<KnownNode>, now: Moment) {
        self.nodes_told = true;
        let there: BTreeSet<_> = nodes.iter().map(|node| Arc::clone(&node.facts.name)).collect();
        let known = self.nodes.keys().chain(self.hosts.keys());
        let gone: Vec<_> = known.filter(|name| !there.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.remove_node(name, now));
        for node in nodes {
            self.directory.apply_node(&node.facts, now);
            self.nodes.insert(Arc::clone(&node.facts.name), Arc::new(node));
        }
        self.hosts = Map::new();
        self.set_ranges();
    }

    pub(super) fn apply_node(&mut self, node: KnownNode, now: Moment) {
        self.directory.apply_node(&node.facts, now);
        self.nodes.insert(Arc::clone(&node.facts.name), Arc::new(node));
        self.set_ranges();
    }

    pub(super) fn delete_node(&mut self, name: &str, now: Moment) {
        self.remove_node(name, now);
        self.set_ranges();
    }

    fn remove_node(&mut self, name: &str, now: Moment) {
        self.nodes.remove(name);
        self.directory.delete_node(name, now);
    }

    pub(super) fn reset_namespaces(&mut self, namespaces: &[(Arc<str>, Labels)]) {
        let there: BTreeSet<_> = namespaces.iter().map(|(name, _)| &**name).collect();
        let known = self.namespaces.keys();
        let gone: Vec<_> = known.filter(|name| !there.contains(&***name)).cloned().collect();
        gone.iter().for_each(|name| self.delete_namespace(name));
        namespaces.iter().for_each(|(name, labels)| self.apply_namespace(name, labels));
    }

    pub(super) fn apply_namespace(&mut self, name: &Arc<str>, labels: &Labels) {
        self.namespaces.insert(Arc::clone(name), ());
        self.groups.apply_namespace(name, labels);
    }

    pub(super) fn delete_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
        self.groups.delete_namespace(name);
    }

    pub(super) fn reset_pools(&mut self, pools: Vec<(Arc<str>, Vec<IpNet>)>) {
        self.pools = pools.into_iter().map(|(name, networks)| (name, networks.into())).collect();
        self.set_ranges();
    }

    pub(super) fn apply_pool(&mut self, name: &str, networks: Vec<IpNet>) {
        self.pools.insert(name.into(), networks.into());
        self.set_ranges();
    }

    pub(super) fn delete_pool(&mut self, name: &str) {
        self.pools.remove(name);
        self.set_ranges();
    }

    pub(super) fn reset_groups(&mut self, groups: &[Group]) {
        let there: BTreeSet<_> = groups.iter().map(ResourceExt::name_any).collect();
        let made = self.groups.all_made().iter().map(|made| Arc::clone(&made.name));
        let known: BTreeSet<_> = made.chain(self.wrong.keys().cloned()).collect();
        for name in known.iter().filter(|name| !there.contains(&***name)) {
            self.groups.delete_group(name);
            self.wrong.remove(name);
        }
        groups.iter().for_each(|group| self.put_group(group));
        self.name_networks();
    }

    pub(super) fn apply_group(&mut self, group: &Group) {
        self.put_group(group);
        self.name_networks();
    }

    pub(super) fn delete_group(&mut self, name: &str) {
        self.groups.delete_group(name);
        self.wrong.remove(name);
        self.name_networks();
    }

    fn put_group(&mut self, group: &Group) {
        let name = group.name_any();
        match self.groups.apply_group(group) {
            Ok(()) => {
                self.wrong.remove(name.as_str());
            }
            Err(problems) => {
                // What it was before is not what it should be now.
                self.groups.delete_group(&name);
                self.wrong.insert(name.into(), problems.to_string().into());
            }
        }
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
        let pods: Arc<[PodFacts]> = workloads.iter().map(|it| it.facts(&node)).collect();
        let before = self.local.get(&node).cloned().unwrap_or_default();
        if before == pods {
            return false;
        }
        for gone in before.iter().filter(|pod| pods.iter().all(|other| other.uid != pod.uid)) {
            self.delete_pod(&gone.uid, now);
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

    fn forget_local(&mut self, node: &Arc<str>, now: Moment) {
        for pod in self.local.remove(node).iter().flat_map(|pods| pods.iter()) {
            self.directory.delete_pod(&pod.uid, now);
            self.groups.delete_pod(&pod.uid, now);
        }
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

impl LocalWorkload {
    fn facts(&self, node: &Arc<str>) -> PodFacts {
        let Self { namespace, name, addresses, from } = self;
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
}

#[cfg(test)]
mod tests;
