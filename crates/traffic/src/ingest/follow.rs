//! Watches become facts: each kind is followed by itself, and what is told is in the next inventory.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use kube::ResourceExt;
use objects::kinds::{AddressPool, Group, NetworkRule};
use objects::{Event, Kind, Objects, Within};
use stallproof::Tasks;

use super::inventory::Inventory;
use super::policy::Rules;
use super::{Ingest, facts};
use crate::conversations::Moment;

/// How often what is over is forgotten.
const AGE: Duration = Duration::from_secs(60);

impl Ingest {
    /// What people wrote: groups, rules, pools.
    pub fn follow_store(&self, objects: &Objects, tasks: &Tasks) {
        self.follow::<Group>(objects, tasks, |inventory, event, _| match event {
            Event::Restarted(all) => inventory.reset_groups(&all),
            Event::Applied(group) => inventory.apply_group(&group),
            Event::Deleted(group) => inventory.delete_group(&group.name_any()),
        });
        self.follow::<AddressPool>(objects, tasks, |inventory, event, _| match event {
            Event::Restarted(all) => {
                let pools = all.iter().map(|pool| (pool.name_any().into(), facts::pool(pool)));
                inventory.reset_pools(pools.collect());
            }
            Event::Applied(pool) => inventory.apply_pool(&pool.name_any(), facts::pool(&pool)),
            Event::Deleted(pool) => inventory.delete_pool(&pool.name_any()),
        });
        let (rules, stop) = (self.0.policies.rules.clone(), tasks.stopping());
        let mut watch = objects.watch::<NetworkRule>(Within::default());
        tasks.spawn("guard watches NetworkRule", async move {
            while let Some(Some(event)) = stop.bound(watch.next()).await {
                rules.update(|rules| {
                    Rules::take(rules, event);
                    true
                });
            }
        });
        tasks.spawn("guard-forgets", self.clone().forget_what_is_over(tasks.clone()));
    }

    /// What a cluster's own API server tells.
    pub fn follow_cluster(&self, objects: &Objects, tasks: &Tasks) {
        self.follow::<Pod>(objects, tasks, |inventory, event, now| match event {
            Event::Restarted(all) => {
                let pods: Vec<_> = all.iter().map(|pod| facts::pod(pod, now)).collect();
                inventory.reset_pods(&pods, now);
            }
            Event::Applied(pod) => inventory.apply_pod(&facts::pod(&pod, now), now),
            Event::Deleted(pod) => inventory.delete_pod(&facts::pod(&pod, now).uid, now),
        });
        self.follow::<Service>(objects, tasks, |inventory, event, now| match event {
            Event::Restarted(all) => {
                let services: Vec<_> = all.iter().map(facts::service).collect();
                inventory.reset_services(&services, now);
            }
            Event::Applied(service) => inventory.apply_service(&facts::service(&service), now),
            Event::Deleted(service) => {
                let gone = facts::service(&service);
                inventory.delete_service(&gone.namespace, &gone.name, now);
            }
        });
        self.follow::<Node>(objects, tasks, |inventory, event, now| match event {
            Event::Restarted(all) => {
                inventory.reset_nodes(all.iter().map(facts::node).collect(), now);
            }
            Event::Applied(node) => inventory.apply_node(facts::node(&node), now),
            Event::Deleted(node) => inventory.delete_node(&node.name_any(), now),
        });
        self.follow::<Namespace>(objects, tasks, |inventory, event, _| match event {
            Event::Restarted(all) => {
                let named = |it: &Namespace| (it.name_any().into(), it.labels().clone());
                let namespaces: Vec<_> = all.iter().map(named).collect();
                inventory.reset_namespaces(&namespaces);
            }
            Event::Applied(it) => inventory.apply_namespace(&it.name_any().into(), it.labels()),
            Event::Deleted(it) => inventory.delete_namespace(&it.name_any()),
        });
    }

    fn follow<K: Kind>(
        &self,
        objects: &Objects,
        tasks: &Tasks,
        take: fn(&mut Inventory, Event<K>, Moment),
    ) {
        let (inventory, stop) = (self.0.inventory.clone(), tasks.stopping());
        let mut watch = objects.watch::<K>(Within::default());
        tasks.spawn(format!("guard watches {}", K::NAME), async move {
            while let Some(Some(event)) = stop.bound(watch.next()).await {
                inventory.update(|inventory| {
                    take(inventory, event, Moment::now());
                    true
                });
            }
        });
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
