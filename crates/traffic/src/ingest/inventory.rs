//! `Inventory`: the pods, services, nodes and groups of one moment.
//!
//! Contract:
//! - Facts come in any order; what the whole list of a kind no longer has is gone.
//! - Workloads and addresses that an agent tells of its own node stand in where Kubernetes tells
//!   nothing of that kind.
//! - A made group that speaks of addresses alone names those networks: an address outside of the
//!   cluster that is in one is `external NAME`.
//! - Clones share structure: it is published whole.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use objects::kinds::{GroupKey, GroupMode, GroupOp, GroupSpec, network};
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
    pub(super) pods_told: bool,
    pub(super) nodes_told: bool,
    /// The addresses of each node, and the networks of its pods.
    pub(super) nodes: Map<Arc<str>, Arc<(NodeFacts, Vec<IpNet>)>>,
    pub(super) pools: Map<Arc<str>, Arc<[IpNet]>>,
    /// By node, what its agent told.
    pub(super) local: Map<Arc<str>, Arc<[PodFacts]>>,
    pub(super) hosts: Map<Arc<str>, Arc<[IpAddr]>>,
    /// Groups that are not valid, and why.
    pub(super) wrong: Map<Arc<str>, Arc<str>>,
}

impl Inventory {
    /// `mode` is that of workloads in no group that has one.
    pub(super) fn new(mode: GroupMode) -> Self {
        Self {
            directory: Directory::new(),
            groups: Groups::new(mode),
            pods_told: false,
            nodes_told: false,
            nodes: Map::new(),
            pools: Map::new(),
            local: Map::new(),
            hosts: Map::new(),
            wrong: Map::new(),
        }
    }

    /// Why a group of the store is not in use.
    pub fn wrong_group(&self, name: &str) -> Option<&Arc<str>> {
        self.wrong.get(name)
    }

    /// All groups that are not in use, and why.
    pub fn wrong_groups(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.wrong.iter()
    }

    pub(super) fn apply_pod(&mut self, pod: &PodFacts, now: Moment) -> bool {
        self.directory.apply_pod(pod, now) | self.groups.apply_pod(pod, now)
    }

    pub(super) fn delete_pod(&mut self, uid: &str, now: Moment) -> bool {
        self.directory.delete_pod(uid, now) | self.groups.delete_pod(uid, now)
    }

    /// Takes in all workloads that an agent told of its node; says whether anything changed.
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
            self.delete_pod(&gone.uid, now);
        }
        for pod in pods.iter() {
            self.apply_pod(pod, now);
        }
        if pods.is_empty() {
            self.local.remove(&node);
        } else {
            self.local.insert(node, pods);
        }
        true
    }

    /// Takes in all addresses that an agent told of its node; says whether anything changed.
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

    pub(super) fn set_ranges(&mut self) {
        let ranges = self.ranges();
        self.directory.set_ranges(&ranges);
    }

    /// The cluster's own ranges.
    pub(super) fn ranges(&self) -> Vec<IpNet> {
        let pods = self.nodes.values().flat_map(|node| node.1.iter());
        let pools = self.pools.values().flat_map(|networks| networks.iter());
        let mut ranges: Vec<_> = pods.chain(pools).copied().collect();
        ranges.sort();
        ranges.dedup();
        ranges
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = IpAddr> {
        let told = self.nodes.values().flat_map(|node| node.0.addresses.iter());
        told.chain(self.hosts.values().flat_map(|addresses| addresses.iter())).copied()
    }

    pub(super) fn services(&self) -> impl Iterator<Item = &ServiceFacts> {
        self.groups.services()
    }

    pub(super) fn name_networks(&mut self) {
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
