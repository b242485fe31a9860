//! Follows clusters of the fleet: starts work on the objects of each cluster, and starts it again
//! whenever the cluster has another client.
//!
//! Contract:
//! - The work of one cluster runs in a group of tasks of its own, on a store that uses the cluster's
//!   current client. The group is stopped once the cluster has another client, is disabled or has left
//!   the fleet. A cluster that does not answer keeps its work: watches retry by themselves.
//! - The published map has the stores of the clusters whose work runs. It changes after the work began.
//! - No cluster waits for another: following one costs a look at the fleet's newest generation.

use std::collections::HashMap;

use objects::Objects;
use stallproof::{Map, Snapshot, Tasks};

use super::Fleet;
use crate::connection::Connection;
use crate::resources::FIELD_MANAGER;
use crate::view::{FleetView, State};

impl Fleet {
    /// Follows these clusters until `tasks` stops. `begin` is given a cluster's name, its objects and
    /// the group of tasks in which to start the work.
    pub fn follow(
        &self,
        clusters: impl IntoIterator<Item = String>,
        tasks: &Tasks,
        begin: impl Fn(&str, &Objects, &Tasks) + Send + 'static,
    ) -> Snapshot<Map<String, Objects>> {
        follow(self.published.clone(), clusters.into_iter().collect(), tasks, begin)
    }
}

fn follow(
    published: Snapshot<FleetView>,
    clusters: Vec<String>,
    tasks: &Tasks,
    begin: impl Fn(&str, &Objects, &Tasks) + Send + 'static,
) -> Snapshot<Map<String, Objects>> {
    let stores = Snapshot::new(Map::new());
    let mut follower = Follower {
        clusters,
        begin,
        tasks: tasks.clone(),
        stores: stores.clone(),
        followed: HashMap::new(),
    };
    let (mut changes, stop) = (published.subscribe(), tasks.stopping());
    tasks.spawn("follow clusters", async move {
        loop {
            follower.update(&published.load());
            if stop.bound(changes.changed()).await.is_none() {
                return;
            }
        }
    });
    stores
}

struct Follower<B> {
    clusters: Vec<String>,
    begin: B,
    tasks: Tasks,
    stores: Snapshot<Map<String, Objects>>,
    followed: HashMap<String, Followed>,
}

struct Followed {
    connection: Connection,
    work: Tasks,
}

impl<B: Fn(&str, &Objects, &Tasks)> Follower<B> {
    fn update(&mut self, fleet: &FleetView) {
        for cluster in &self.clusters {
            let view = fleet.clusters.get(cluster.as_str());
            if view.is_none_or(|view| view.state == State::Disabled) {
                if let Some(followed) = self.followed.remove(cluster) {
                    self.stores.update(|stores| stores.remove(cluster).is_some());
                    followed.work.stop("the cluster was removed or disabled");
                }
                continue;
            }
            let Ok(connection) = fleet.own_connection(cluster) else { continue };
            let followed = self.followed.get(cluster);
            if followed.is_some_and(|followed| followed.connection.is_same_client(&connection)) {
                continue;
            }
            let objects = Objects::kubernetes(connection.client(), FIELD_MANAGER);
            let work = self.tasks.child(cluster.clone());
            (self.begin)(cluster, &objects, &work);
            self.stores.update(|stores| {
                stores.insert(cluster.clone(), objects);
                true
            });
            let followed = Followed { connection, work };
            if let Some(before) = self.followed.insert(cluster.clone(), followed) {
                before.work.stop("the cluster has another client");
            }
        }
    }
}

#[cfg(test)]
mod tests;
