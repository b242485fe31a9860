//! `Observed`: the kinds of objects that an inventory keeps facts of, and how.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use kube::ResourceExt;
use objects::kinds::{AddressPool, Group};
use objects::{Index, Kind};
use stallproof::Map;

use super::facts;
use super::inventory::Inventory;
use crate::conversations::Moment;

pub(super) trait Observed: Kind {
    /// What an object is kept under.
    fn key(&self) -> Arc<str> {
        self.name_any().into()
    }

    /// The keys of all objects of the kind that are kept.
    fn kept(inventory: &Inventory) -> Vec<Arc<str>>;

    /// Takes in an object; says whether that changed anything.
    fn apply(&self, inventory: &mut Inventory, now: Moment) -> bool;

    /// Takes out an object; says whether that changed anything.
    fn delete(key: &str, inventory: &mut Inventory, now: Moment) -> bool;

    /// Prepares the inventory for a whole list.
    fn before_reset(_: &mut Inventory, _: Moment) {}

    /// Renews what is derived from all objects of the kind.
    fn after_changes(_: &mut Inventory) {}
}

impl<K: Observed> Index<K> for Inventory {
    fn reset(&mut self, all: Vec<K>) -> bool {
        self.reset_at(&all, Moment::now());
        true
    }

    fn apply(&mut self, object: K) -> bool {
        let changed = object.apply(self, Moment::now());
        K::after_changes(self);
        changed
    }

    fn delete(&mut self, object: K) -> bool {
        let changed = K::delete(&object.key(), self, Moment::now());
        K::after_changes(self);
        changed
    }
}

impl Inventory {
    /// Takes in all objects of a kind: those that are not among them are gone.
    pub(super) fn reset_at<K: Observed>(&mut self, all: &[K], now: Moment) {
        K::before_reset(self, now);
        let there: BTreeSet<_> = all.iter().map(K::key).collect();
        let gone = K::kept(self).into_iter().filter(|key| !there.contains(key));
        gone.for_each(|key| _ = K::delete(&key, self, now));
        all.iter().for_each(|object| _ = object.apply(self, now));
        K::after_changes(self);
    }
}

impl Observed for Pod {
    /// Its uid: a pod of the same name may be another one.
    fn key(&self) -> Arc<str> {
        self.uid().unwrap_or_default().into()
    }

    fn kept(inventory: &Inventory) -> Vec<Arc<str>> {
        inventory.groups.pods().cloned().collect()
    }

    fn apply(&self, inventory: &mut Inventory, now: Moment) -> bool {
        inventory.apply_pod(&facts::pod(self, now), now)
    }

    fn delete(uid: &str, inventory: &mut Inventory, now: Moment) -> bool {
        inventory.delete_pod(uid, now)
    }

    /// Kubernetes tells of pods: those that agents told of are among the kept ones, and go.
    fn before_reset(inventory: &mut Inventory, _: Moment) {
        inventory.pods_told = true;
        inventory.local = Map::new();
    }
}

impl Observed for Service {
    fn key(&self) -> Arc<str> {
        format!("{}/{}", self.namespace().unwrap_or_default(), self.name_any()).into()
    }

    fn kept(inventory: &Inventory) -> Vec<Arc<str>> {
        let services = inventory.services();
        services.map(|it| format!("{}/{}", it.namespace, it.name).into()).collect()
    }

    fn apply(&self, inventory: &mut Inventory, now: Moment) -> bool {
        let service = facts::service(self);
        inventory.directory.apply_service(&service, now) | inventory.groups.apply_service(&service)
    }

    fn delete(key: &str, inventory: &mut Inventory, now: Moment) -> bool {
        let Some((namespace, name)) = key.split_once('/') else { return false };
        inventory.directory.delete_service(namespace, name, now)
            | inventory.groups.delete_service(namespace, name)
    }
}

impl Observed for Node {
    fn kept(inventory: &Inventory) -> Vec<Arc<str>> {
        inventory.nodes.keys().chain(inventory.hosts.keys()).cloned().collect()
    }

    fn apply(&self, inventory: &mut Inventory, now: Moment) -> bool {
        let node = facts::node(self);
        inventory.directory.apply_node(&node.0, now);
        let known = inventory.nodes.insert(self.key(), Arc::new(node.clone()));
        known.is_none_or(|known| *known != node)
    }

    fn delete(name: &str, inventory: &mut Inventory, now: Moment) -> bool {
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

impl Observed for Namespace {
    fn kept(inventory: &Inventory) -> Vec<Arc<str>> {
        inventory.groups.namespaces().cloned().collect()
    }

    fn apply(&self, inventory: &mut Inventory, _: Moment) -> bool {
        inventory.groups.apply_namespace(&self.key(), self.labels())
    }

    fn delete(name: &str, inventory: &mut Inventory, _: Moment) -> bool {
        inventory.groups.delete_namespace(name)
    }
}

impl Observed for AddressPool {
    fn kept(inventory: &Inventory) -> Vec<Arc<str>> {
        inventory.pools.keys().cloned().collect()
    }

    fn apply(&self, inventory: &mut Inventory, _: Moment) -> bool {
        let networks: Arc<[_]> = facts::pool(self).into();
        inventory.pools.insert(self.key(), Arc::clone(&networks)).is_none_or(|it| it != networks)
    }

    fn delete(name: &str, inventory: &mut Inventory, _: Moment) -> bool {
        inventory.pools.remove(name).is_some()
    }

    fn after_changes(inventory: &mut Inventory) {
        inventory.set_ranges();
    }
}

impl Observed for Group {
    fn kept(inventory: &Inventory) -> Vec<Arc<str>> {
        let made = inventory.groups.all_made().iter().map(|made| Arc::clone(&made.name));
        made.chain(inventory.wrong.keys().cloned()).collect()
    }

    fn apply(&self, inventory: &mut Inventory, _: Moment) -> bool {
        match inventory.groups.apply_group(self) {
            Ok(()) => drop(inventory.wrong.remove(&self.key())),
            Err(problems) => {
                // A group that is no longer valid does not go on as it was before.
                inventory.groups.delete_group(&self.key());
                inventory.wrong.insert(self.key(), problems.to_string().into());
            }
        }
        true
    }

    fn delete(name: &str, inventory: &mut Inventory, _: Moment) -> bool {
        inventory.groups.delete_group(name);
        inventory.wrong.remove(name);
        true
    }

    fn after_changes(inventory: &mut Inventory) {
        inventory.name_networks();
    }
}
