//! What is measured of leading: whether this replica leads, how often it began to, and what the leader
//! says of pools and meshes. The figures of a term end with it: two replicas never tell of one pool.

use std::collections::{BTreeMap, BTreeSet};

use objects::kinds::{AddressPool, ClusterMesh, MeshState};
use objects::{Id, KeyChanges, Kind, Leader, Within};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Names and values of labels.
type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Leading {
    leads: Gauge,
    terms: Counter,
    pools: Pools,
    meshes: Meshes,
}

#[derive(Clone, Debug, Default)]
struct Pools {
    used: Gauges,
    free: Gauges,
    blocks: Gauges,
    claimed: Gauges,
}

#[derive(Clone, Debug, Default)]
struct Meshes {
    clusters: Gauges,
    missing: Gauges,
}

impl Leading {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let Self { leads, terms, pools, meshes } = self;
        registry.register("leader", "Whether this replica leads", leads.clone());
        registry.register("leader_terms", "Terms that this replica began", terms.clone());
        for (name, help, gauges) in [
            ("net_pool_addresses_used", "Addresses of a pool that pods have", &pools.used),
            ("net_pool_addresses_free", "Addresses of a pool that no pod has", &pools.free),
            ("net_pool_blocks", "Blocks of a pool", &pools.blocks),
            ("net_pool_blocks_claimed", "Blocks of a pool that nodes have", &pools.claimed),
            ("mesh_clusters", "Clusters of a mesh, by state", &meshes.clusters),
            ("mesh_peers_missing", "Peers of a mesh that are not in place", &meshes.missing),
        ] {
            registry.register(name, help, gauges.clone());
        }
    }

    /// At the start of a term.
    pub(crate) fn lead(&self, leader: &Leader) {
        self.terms.inc();
        let term = Term::begin(&self.leads);
        let Self { pools, meshes, .. } = self.clone();
        leader.tasks.spawn("pool-metrics", {
            let leader = leader.clone();
            async move { follow(&leader, |pool| pools.figures(pool)).await }
        });
        leader.tasks.spawn("mesh-metrics", {
            let leader = leader.clone();
            async move {
                // Both watch until the term ends, so this is its end.
                let _term = term;
                follow(&leader, |mesh| meshes.figures(mesh)).await;
            }
        });
    }
}

/// This replica leads while it is there. A task that does not stop in time is dropped with it.
struct Term(Gauge);

impl Term {
    fn begin(leads: &Gauge) -> Self {
        leads.inc();
        Self(leads.clone())
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The figures that are shown of each object, which go with it.
#[derive(Default)]
struct Shown(BTreeMap<Id, Vec<(Gauges, Labels)>>);

impl Drop for Shown {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).into_values().for_each(forget);
    }
}

/// Sets what `figures` says of each object, until the term ends; then nothing is left of it.
async fn follow<K: Kind>(leader: &Leader, figures: impl Fn(&K) -> Vec<(Gauges, Labels, i64)>) {
    let stop = leader.tasks.stopping();
    let watched = leader.objects.watched::<K, Id>(Within::default(), &leader.tasks);
    let mut changes = KeyChanges::of(&watched);
    let mut shown = Shown::default();
    while let Some(changed) = stop.bound(changes.changed()).await {
        for (id, object) in changed {
            let now = object.map(|object| figures(&object)).unwrap_or_default();
            let labels: BTreeSet<&Labels> = now.iter().map(|(_, labels, _)| labels).collect();
            let before = shown.0.remove(&id).unwrap_or_default();
            forget(before.into_iter().filter(|(_, old)| !labels.contains(old)).collect());
            for (gauges, labels, value) in &now {
                gauges.get_or_create(labels).set(*value);
            }
            if !now.is_empty() {
                let now = now.into_iter().map(|(gauges, labels, _)| (gauges, labels));
                shown.0.insert(id, now.collect());
            }
        }
    }
}

fn forget(figures: Vec<(Gauges, Labels)>) {
    for (gauges, labels) in figures {
        gauges.remove(&labels);
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Pools {
    fn figures(&self, pool: &AddressPool) -> Vec<(Gauges, Labels, i64)> {
        let Some(status) = &pool.status else { return Vec::new() };
        let labels = vec![("pool", Id::of(pool).name)];
        let figures = [
            (&self.used, status.used),
            (&self.free, status.free),
            (&self.blocks, status.blocks),
            (&self.claimed, status.claimed),
        ];
        figures.map(|(gauges, count)| (gauges.clone(), labels.clone(), number(count))).to_vec()
    }
}

impl Meshes {
    fn figures(&self, mesh: &ClusterMesh) -> Vec<(Gauges, Labels, i64)> {
        let Some(status) = &mesh.status else { return Vec::new() };
        let id = Id::of(mesh);
        let mesh = format!("{}/{}", id.namespace.unwrap_or_default(), id.name);
        let labels = vec![("mesh", mesh)];
        let states = [
            (MeshState::Converged, "converged"),
            (MeshState::Waiting, "waiting"),
            (MeshState::Unreachable, "unreachable"),
            (MeshState::Overlapping, "overlapping"),
        ];
        let mut figures: Vec<_> = (states.into_iter())
            .map(|(state, name)| {
                let count = status.clusters.iter().filter(|cluster| cluster.state == state).count();
                let mut labels = labels.clone();
                labels.push(("state", name.to_owned()));
                (self.clusters.clone(), labels, number(count as u64))
            })
            .collect();
        let missing = status.clusters.iter().map(|cluster| {
            u64::from(cluster.wanted_peers.saturating_sub(cluster.registered_peers))
        });
        figures.push((self.missing.clone(), labels, number(missing.sum())));
        figures
    }
}

#[cfg(test)]
mod tests;
