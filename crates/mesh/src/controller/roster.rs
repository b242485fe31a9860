//! The roster: which meshes there are and which clusters they name. It begins and ends the tasks that
//! look at clusters and those that sit over meshes, and offers kubeconfigs as their Secrets come,
//! change and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet::{Fleet, Offers};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use objects::kinds::{ClusterMesh, MeshClusterRef};
use objects::{Event, Fence, Id, Leader, Objects, Within};
use stallproof::tasks::TaskHandle;
use stallproof::{Ledger, Snapshot, Tasks};
use tokio::sync::watch;
use tokio::time::sleep;

use super::desk::Desk;
use super::observe::{Observer, Reach};
use super::world::World;
use crate::overlap;

/// How often it is looked whether all tasks are there that should be.
const LOOK: Duration = Duration::from_secs(30);

pub(super) struct Roster {
    tasks: Tasks,
    objects: Objects,
    fence: Fence,
    fleet: Fleet,
    /// Of the kubeconfigs in Secrets.
    private: Fleet,
    offers: Offers,
    ledger: Ledger,
    world: Snapshot<World>,
    meshes: BTreeMap<Id, Arc<ClusterMesh>>,
    /// By namespace, those that meshes name.
    secrets: BTreeMap<String, BTreeMap<String, Secret>>,
    observers: BTreeMap<MeshClusterRef, Watched>,
    desks: BTreeMap<Id, Task>,
}

/// A task that ends with this.
struct Task(TaskHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Watched {
    task: Task,
    install: watch::Sender<bool>,
    /// What was offered last, of a cluster that comes from a Secret.
    offered: Option<Result<Vec<u8>, String>>,
}

impl Roster {
    pub(super) fn new(
        tasks: Tasks,
        leader: &Leader,
        fleet: &Fleet,
        private: Fleet,
        offers: Offers,
        ledger: &Ledger,
        world: Snapshot<World>,
    ) -> Self {
        Self {
            tasks,
            objects: leader.objects.clone(),
            fence: leader.fence.clone(),
            fleet: fleet.clone(),
            private,
            offers,
            ledger: ledger.clone(),
            world,
            meshes: BTreeMap::new(),
            secrets: BTreeMap::new(),
            observers: BTreeMap::new(),
            desks: BTreeMap::new(),
        }
    }

    /// Returns only when the store was closed.
    pub(super) async fn run(mut self) {
        let mut meshes = self.objects.watch::<ClusterMesh>(Within::default());
        let mut namespaces = BTreeSet::new();
        let mut secrets = self.objects.watch_in::<Secret>(&namespaces);
        loop {
            tokio::select! {
                event = meshes.next() => {
                    let Some(event) = event else { return };
                    self.learn(event);
                    let named = self.namespaces();
                    if named != namespaces {
                        self.secrets.retain(|namespace, _| named.contains(namespace));
                        secrets = self.objects.watch_in::<Secret>(&named);
                        namespaces = named;
                    }
                }
                Some((namespace, event)) = secrets.next() => self.learn_secret(namespace, event),
                () = sleep(LOOK) => {}
            }
            self.look_after();
        }
    }

    fn learn(&mut self, event: Event<ClusterMesh>) {
        match event {
            Event::Restarted(all) => {
                self.meshes = all.into_iter().map(|mesh| (Id::of(&mesh), Arc::new(mesh))).collect();
            }
            Event::Applied(mesh) => drop(self.meshes.insert(Id::of(&mesh), Arc::new(mesh))),
            Event::Deleted(mesh) => drop(self.meshes.remove(&Id::of(&mesh))),
        }
        let meshes = self.meshes.iter().map(|(id, mesh)| (id.clone(), Arc::clone(mesh))).collect();
        self.world.update(|world| {
            world.meshes = meshes;
            true
        });
    }

    fn learn_secret(&mut self, namespace: String, event: Event<Secret>) {
        let name = |secret: &Secret| secret.metadata.name.clone().unwrap_or_default();
        let known = self.secrets.entry(namespace).or_default();
        match event {
            Event::Restarted(all) => {
                *known = all.into_iter().map(|secret| (name(&secret), secret)).collect();
            }
            Event::Applied(secret) => drop(known.insert(name(&secret), secret)),
            Event::Deleted(secret) => drop(known.remove(&name(&secret))),
        }
    }

    /// Where the Secrets are that meshes name. No others are watched: there may be thousands.
    fn namespaces(&self) -> BTreeSet<String> {
        let references = self.meshes.values().flat_map(|mesh| references(mesh));
        let namespace = |reference| match reference {
            MeshClusterRef::Secret(namespace, ..) => Some(namespace),
            MeshClusterRef::Local | MeshClusterRef::Fleet(_) => None,
        };
        references.filter_map(namespace).collect()
    }

    /// Begins and ends tasks, and offers kubeconfigs, so that they are those that are needed.
    fn look_after(&mut self) {
        let mut wanted: BTreeMap<MeshClusterRef, bool> = BTreeMap::new();
        for mesh in self.meshes.values() {
            for reference in references(mesh) {
                *wanted.entry(reference).or_default() |= mesh.spec.install_crds;
            }
        }
        // One that panicked is begun anew, and costs nobody else anything.
        self.desks.retain(|id, desk| self.meshes.contains_key(id) && !desk.0.is_finished());
        let gone = self.observers.iter().filter(|(reference, watched)| {
            !wanted.contains_key(*reference) || watched.task.0.is_finished()
        });
        for reference in gone.map(|(reference, _)| reference.clone()).collect::<Vec<_>>() {
            self.observers.remove(&reference);
            if let MeshClusterRef::Secret(namespace, name, key) = &reference {
                self.offers.withdraw(&Reach::name_of(namespace, name, key));
            }
            self.world.update(|world| world.clusters.remove(&reference).is_some());
        }
        for (reference, install) in wanted {
            if !self.observers.contains_key(&reference) {
                let observer = self.observe(&reference, install);
                self.observers.insert(reference.clone(), observer);
            }
            self.offer(&reference);
            if let Some(observer) = self.observers.get(&reference) {
                observer.install.send_if_modified(|now| std::mem::replace(now, install) != install);
            }
        }
        for id in self.meshes.keys() {
            if !self.desks.contains_key(id) {
                let desk = Desk::new(
                    id.clone(),
                    self.objects.clone(),
                    self.fence.clone(),
                    self.ledger.clone(),
                    self.world.clone(),
                    [self.fleet.clone(), self.private.clone()],
                );
                let stop = self.tasks.stopping();
                let task = self.tasks.spawn(format!("mesh {id}"), async move {
                    stop.bound(desk.run()).await;
                });
                self.desks.insert(id.clone(), Task(task));
            }
        }
    }

    fn observe(&self, reference: &MeshClusterRef, install: bool) -> Watched {
        let (sender, install) = watch::channel(install);
        let reach = reach(reference, &[self.fleet.clone(), self.private.clone()]);
        let observer = Observer { reach, world: self.world.clone(), install };
        let stop = self.tasks.stopping();
        let task = self.tasks.spawn(format!("observe {reference}"), async move {
            stop.bound(Box::pin(observer.run())).await;
        });
        Watched { task: Task(task), install: sender, offered: None }
    }

    fn offer(&mut self, reference: &MeshClusterRef) {
        let MeshClusterRef::Secret(namespace, name, key) = reference else { return };
        let Some(watched) = self.observers.get_mut(reference) else { return };
        let secret = self.secrets.get(namespace).and_then(|known| known.get(name));
        let called = Reach::name_of(namespace, name, key);
        let Some(secret) = secret else {
            watched.offered = None;
            self.offers.withdraw(&called);
            return;
        };
        let place = format!("{namespace}/{name}");
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        let data = data.map(|bytes| bytes.0.clone());
        let data = data.ok_or_else(|| format!("Secret {place} has no key {key}"));
        if watched.offered.as_ref() == Some(&data) {
            return;
        }
        let text = data.as_deref().map_err(Clone::clone).and_then(|bytes| {
            std::str::from_utf8(bytes)
                .map_err(|_| format!("Secret {place}: the kubeconfig is not text"))
        });
        self.offers.offer(&called, &place, text);
        watched.offered = Some(data);
    }
}

/// Every cluster that a mesh has to do with: those in it, and those on their way out.
fn references(mesh: &ClusterMesh) -> impl Iterator<Item = MeshClusterRef> {
    let namespace = overlap::namespace(mesh);
    let joined = mesh.status.iter().flat_map(|status| &status.joined);
    let joined = joined.filter_map(|cluster| cluster.reference(&namespace));
    let named = mesh.spec.clusters.iter().filter_map(|cluster| cluster.reference(&namespace));
    named.chain(joined).collect::<Vec<_>>().into_iter()
}

pub(super) fn reach(reference: &MeshClusterRef, [fleet, private]: &[Fleet; 2]) -> Reach {
    let fleet = if matches!(reference, MeshClusterRef::Secret(..)) { private } else { fleet };
    Reach { reference: reference.clone(), fleet: fleet.clone() }
}
