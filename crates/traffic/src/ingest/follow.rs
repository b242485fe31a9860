//! Keeps the inventory and the written rules up to date with the API server. Each kind is watched by
//! itself.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use objects::kinds::{AddressPool, Group, NetworkRule};
use objects::{Index, Kind, Objects, Within};
use stallproof::{Snapshot, Tasks};

use super::Ingest;
use crate::conversations::Moment;

/// How often facts that are long over are forgotten.
const AGE: Duration = Duration::from_secs(60);

impl Ingest {
    /// Follows what users write to the store: groups, rules and address pools.
    pub fn follow_store(&self, objects: &Objects, tasks: &Tasks) {
        keep::<Group, _>(&self.0.inventory, objects, tasks);
        keep::<AddressPool, _>(&self.0.inventory, objects, tasks);
        keep::<NetworkRule, _>(&self.0.policies.rules, objects, tasks);
        tasks.spawn("guard-forgets", self.clone().forget_what_is_over(tasks.clone()));
    }

    /// Follows the pods, services, nodes and namespaces of a cluster.
    pub fn follow_cluster(&self, objects: &Objects, tasks: &Tasks) {
        keep::<Pod, _>(&self.0.inventory, objects, tasks);
        keep::<Service, _>(&self.0.inventory, objects, tasks);
        keep::<Node, _>(&self.0.inventory, objects, tasks);
        keep::<Namespace, _>(&self.0.inventory, objects, tasks);
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
}

fn keep<K: Kind, I: Index<K> + Clone + Send + Sync + 'static>(
    index: &Snapshot<I>,
    objects: &Objects,
    tasks: &Tasks,
) {
    let watch = objects.watch::<K>(Within::default());
    tasks.spawn(format!("guard watches {}", K::NAME), watch.keep(index.clone(), tasks.stopping()));
}
