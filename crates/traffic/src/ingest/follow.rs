//! Keeps the inventory and the written rules up to date with the API server. Each kind is watched by
//! itself. A term counts nothing before each kind was listed once, or [`LISTED_WITHIN`] has passed: an
//! address whose node is not known yet would be counted, and learned, as one from outside.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use objects::kinds::{AddressPool, Group, NetworkRule};
use objects::{Index, Kind, Objects, Within};
use stallproof::{Snapshot, Tasks};
use tracing::warn;

use super::Ingest;
use crate::conversations::Moment;

/// How often facts that are long over are forgotten.
const AGE: Duration = Duration::from_secs(60);
/// A kind that cannot be listed holds up a term's beginning for no longer; agents ask again meanwhile.
const LISTED_WITHIN: Duration = Duration::from_secs(10);

impl Ingest {
    /// Follows what users write to the store: groups, rules and address pools.
    pub fn follow_store(&self, objects: &Objects, tasks: &Tasks) {
        self.keep::<Group, _>(&self.0.inventory, objects, tasks);
        self.keep::<AddressPool, _>(&self.0.inventory, objects, tasks);
        self.keep::<NetworkRule, _>(&self.0.policies.rules, objects, tasks);
        tasks.spawn("guard-forgets", self.clone().forget_what_is_over(tasks.clone()));
    }

    /// Follows the pods, services, nodes and namespaces of a cluster.
    pub fn follow_cluster(&self, objects: &Objects, tasks: &Tasks) {
        self.keep::<Pod, _>(&self.0.inventory, objects, tasks);
        self.keep::<Service, _>(&self.0.inventory, objects, tasks);
        self.keep::<Node, _>(&self.0.inventory, objects, tasks);
        self.keep::<Namespace, _>(&self.0.inventory, objects, tasks);
    }

    /// Waits until each kind that is followed was listed once.
    pub(super) async fn listed(&self) {
        let mut changes = self.0.unlisted.subscribe();
        let all = async {
            while !self.0.unlisted.read(BTreeSet::is_empty) {
                changes.changed().await;
            }
        };
        if tokio::time::timeout(LISTED_WITHIN, all).await.is_err() {
            let kinds = self.0.unlisted.load();
            warn!(kinds = ?*kinds, "counting begins before these kinds could be listed");
        }
    }

    async fn forget_what_is_over(self, tasks: Tasks) {
        let stop = tasks.stopping();
        while stop.bound(tokio::time::sleep(AGE)).await.is_some() {
            self.0.inventory.update(|inventory| {
                inventory.age(Moment::now());
                true
            });
        }
    }

    fn keep<K: Kind, I: Index<K> + Clone + Send + Sync + 'static>(
        &self,
        index: &Snapshot<I>,
        objects: &Objects,
        tasks: &Tasks,
    ) {
        let unlisted = self.0.unlisted.clone();
        unlisted.update(|kinds| kinds.insert(K::NAME));
        let (index, stop) = (index.clone(), tasks.stopping());
        let mut watch = objects.watch::<K>(Within::default());
        tasks.spawn(format!("guard watches {}", K::NAME), async move {
            // The first event is the whole list.
            if let Some(Some(list)) = stop.bound(watch.next()).await {
                index.update(|index| list.apply_to(index));
                unlisted.update(|kinds| kinds.remove(K::NAME));
                watch.keep(index, stop).await;
            }
        });
    }
}
