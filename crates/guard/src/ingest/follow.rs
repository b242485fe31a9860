//! Watches become facts: each kind is followed by itself, and what is told is in the next world.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use kube::ResourceExt;
use objects::kinds::{AddressPool, Group, NetworkRule};
use objects::{Event, Kind, Objects, Within};
use stallproof::Tasks;

use super::policy::Rules;
use super::world::World;
use super::{Ingest, facts};
use crate::conversations::Moment;

/// How often what is over is forgotten.
const AGE: Duration = Duration::from_secs(60);

impl Ingest {
    /// What people wrote: groups, rules, pools.
    pub fn follow_store(&self, objects: &Objects, tasks: &Tasks) {
        self.follow::<Group>(objects, tasks, |world, event, _| match event {
            Event::Restarted(all) => world.reset_groups(&all),
            Event::Applied(group) => world.apply_group(&group),
            Event::Deleted(group) => world.delete_group(&group.name_any()),
        });
        self.follow::<AddressPool>(objects, tasks, |world, event, _| match event {
            Event::Restarted(all) => {
                let pools = all.iter().map(|pool| (pool.name_any().into(), facts::pool(pool)));
                world.reset_pools(pools.collect());
            }
            Event::Applied(pool) => world.apply_pool(&pool.name_any(), facts::pool(&pool)),
            Event::Deleted(pool) => world.delete_pool(&pool.name_any()),
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
        self.follow::<Pod>(objects, tasks, |world, event, now| match event {
            Event::Restarted(all) => {
                let pods: Vec<_> = all.iter().map(|pod| facts::pod(pod, now)).collect();
                world.reset_pods(&pods, now);
            }
            Event::Applied(pod) => world.apply_pod(&facts::pod(&pod, now), now),
            Event::Deleted(pod) => world.delete_pod(&facts::pod(&pod, now).uid, now),
        });
        self.follow::<Service>(objects, tasks, |world, event, now| match event {
            Event::Restarted(all) => {
                let services: Vec<_> = all.iter().map(facts::service).collect();
                world.reset_services(&services, now);
            }
            Event::Applied(service) => world.apply_service(&facts::service(&service), now),
            Event::Deleted(service) => {
                let gone = facts::service(&service);
                world.delete_service(&gone.namespace, &gone.name, now);
            }
        });
        self.follow::<Node>(objects, tasks, |world, event, now| match event {
            Event::Restarted(all) => {
                world.reset_nodes(all.iter().map(facts::node).collect(), now);
            }
            Event::Applied(node) => world.apply_node(facts::node(&node), now),
            Event::Deleted(node) => world.delete_node(&node.name_any(), now),
        });
        self.follow::<Namespace>(objects, tasks, |world, event, _| match event {
            Event::Restarted(all) => {
                let named = |it: &Namespace| (it.name_any().into(), it.labels().clone());
                let namespaces: Vec<_> = all.iter().map(named).collect();
                world.reset_namespaces(&namespaces);
            }
            Event::Applied(it) => world.apply_namespace(&it.name_any().into(), it.labels()),
            Event::Deleted(it) => world.delete_namespace(&it.name_any()),
        });
    }

    fn follow<K: Kind>(
        &self,
        objects: &Objects,
        tasks: &Tasks,
        take: fn(&mut World, Event<K>, Moment),
    ) {
        let (world, stop) = (self.0.world.clone(), tasks.stopping());
        let mut watch = objects.watch::<K>(Within::default());
        tasks.spawn(format!("guard watches {}", K::NAME), async move {
            while let Some(Some(event)) = stop.bound(watch.next()).await {
                world.update(|world| {
                    take(world, event, Moment::now());
                    true
                });
            }
        });
    }

    async fn forget_what_is_over(self, tasks: Tasks) {
        let stop = tasks.stopping();
        while stop.bound(tokio::time::sleep(AGE)).await.is_some() {
            self.0.world.update(|world| {
                world.age(Moment::now());
                true
            });
        }
    }
}
