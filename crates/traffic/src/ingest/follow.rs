//! Keeps the inventory and the written rules up to date with the API server. Each kind is watched by
//! itself.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use kube::ResourceExt;
use objects::kinds::{AddressPool, Group, NetworkRule};
use objects::{Index, Kind, Objects, Within};
use stallproof::{Snapshot, Tasks};

use super::inventory::{Fact, Inventory, NamespaceFacts, NodeWithNetworks, PoolFacts};
use super::{Ingest, facts};
use crate::conversations::{Moment, PodFacts, ServiceFacts};

/// How often facts that are long over are forgotten.
const AGE: Duration = Duration::from_secs(60);

/// A kind of object that the inventory keeps a fact of.
trait Observed: Kind {
    type Fact: Fact;
    fn fact(self, now: Moment) -> Self::Fact;
}

impl Observed for Pod {
    type Fact = PodFacts;

    fn fact(self, now: Moment) -> PodFacts {
        facts::pod(&self, now)
    }
}

impl Observed for Service {
    type Fact = ServiceFacts;

    fn fact(self, _: Moment) -> ServiceFacts {
        facts::service(&self)
    }
}

impl Observed for Node {
    type Fact = NodeWithNetworks;

    fn fact(self, _: Moment) -> NodeWithNetworks {
        facts::node(&self)
    }
}

impl Observed for Namespace {
    type Fact = NamespaceFacts;

    fn fact(self, _: Moment) -> NamespaceFacts {
        NamespaceFacts { name: self.name_any().into(), labels: self.labels().clone() }
    }
}

impl Observed for AddressPool {
    type Fact = PoolFacts;

    fn fact(self, _: Moment) -> PoolFacts {
        PoolFacts { name: self.name_any().into(), networks: facts::pool(&self).into() }
    }
}

impl Observed for Group {
    type Fact = Self;

    fn fact(self, _: Moment) -> Self {
        self
    }
}

impl<K: Observed> Index<K> for Inventory {
    fn reset(&mut self, all: Vec<K>) -> bool {
        let now = Moment::now();
        let all: Vec<_> = all.into_iter().map(|object| object.fact(now)).collect();
        Self::reset(self, &all, now);
        true
    }

    fn apply(&mut self, object: K) -> bool {
        let now = Moment::now();
        Self::apply(self, &object.fact(now), now)
    }

    fn delete(&mut self, object: K) -> bool {
        let now = Moment::now();
        Self::delete::<K::Fact>(self, &object.fact(now).id(), now)
    }
}

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
