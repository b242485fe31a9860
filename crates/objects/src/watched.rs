//! `Watched`: the objects of a kind as a watch tells them, published for readers.
//!
//! ```text
//! watch ──► Event::apply_to ──► index (plain values) ──► Snapshot ──► readers, KeyChanges
//! ```
//!
//! Contract:
//! - A [`Watched`] map says by `synced` whether the store has told everything once. While the store is
//!   away it holds the last known.
//! - A publish costs what changed, and an event that leaves every kept value as it was publishes
//!   nothing and wakes nobody: a node's heartbeat, a list that is read again.
//! - Two events of one object are never taken in another order, nor is one lost. Readers may skip
//!   generations; [`KeyChanges`] then tells the sum of what changed, each key once.
//! - A task of the given [`Tasks`] does the work. It ends with them, or when the store is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::task::Poll;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use kube::ResourceExt;
use stallproof::snapshot::{Changes, View};
use stallproof::{Snapshot, Stop, Tasks};

use crate::Selector;
use crate::store::{Event, Id, Kind, Objects, Watch, Within};

/// Plain values that the events of a kind keep up to date. Each method says whether it changed
/// anything that a reader sees. An index of several kinds implements this for each of them.
pub trait Index<K> {
    /// Replaces everything that is known of the kind.
    fn reset(&mut self, all: Vec<K>) -> bool;
    /// Takes in an object that is new or has changed.
    fn apply(&mut self, object: K) -> bool;
    /// Takes out an object that is gone; it is given as it was last.
    fn delete(&mut self, object: K) -> bool;
}

impl<K> Event<K> {
    /// Brings an index up to date; says whether anything changed.
    pub fn apply_to(self, index: &mut impl Index<K>) -> bool {
        match self {
            Self::Restarted(all) => index.reset(all),
            Self::Applied(object) => index.apply(object),
            Self::Deleted(object) => index.delete(object),
        }
    }
}

impl<K: Kind> Watch<K> {
    /// Keeps the index in `snapshot` up to date until `stop`, or until the store is closed.
    pub async fn keep<I: Index<K> + Clone>(mut self, snapshot: Snapshot<I>, stop: Stop) {
        while let Some(Some(event)) = stop.bound(self.next()).await {
            snapshot.update(|index| event.apply_to(index));
        }
    }
}

/// How an object is found in a [`Watched`] map: by its name, where the kind has no namespaces or one
/// namespace is watched, else by its [`Id`].
pub trait Key: Ord + Clone + Send + Sync + 'static {
    fn of(object: &impl ResourceExt) -> Self;
}

impl Key for String {
    fn of(object: &impl ResourceExt) -> Self {
        object.name_any()
    }
}

impl Key for Arc<str> {
    fn of(object: &impl ResourceExt) -> Self {
        object.name_any().into()
    }
}

impl Key for Id {
    fn of(object: &impl ResourceExt) -> Self {
        Id::of(object)
    }
}

/// The objects of a kind, in the order of their keys; `V` is what is kept of each. It reads as the map
/// that it holds, and clones of it share their structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched<Q: Key, V: Clone> {
    /// Whether the store has told everything once.
    pub synced: bool,
    by_key: OrdMap<Q, V>,
}

impl<Q: Key, V: Clone> Default for Watched<Q, V> {
    fn default() -> Self {
        Self { synced: false, by_key: OrdMap::new() }
    }
}

impl<Q: Key, V: Clone> Deref for Watched<Q, V> {
    type Target = OrdMap<Q, V>;

    fn deref(&self) -> &OrdMap<Q, V> {
        &self.by_key
    }
}

/// A map that was told whole.
impl<Q: Key, V: Clone> FromIterator<(Q, V)> for Watched<Q, V> {
    fn from_iter<T: IntoIterator<Item = (Q, V)>>(entries: T) -> Self {
        Self { synced: true, by_key: entries.into_iter().collect() }
    }
}

impl<Q: Key, V: Clone + PartialEq> Watched<Q, V> {
    /// Takes an event in. An object of which `keep` keeps nothing is not in the map.
    pub fn take<K: Kind>(&mut self, event: Event<K>, keep: impl Fn(K) -> Option<V>) -> bool {
        event.apply_to(&mut Projected { watched: self, keep })
    }

    /// Sets or removes one value; says whether that changed anything.
    pub fn set(&mut self, key: Q, value: Option<V>) -> bool {
        if self.by_key.get(&key) == value.as_ref() {
            return false;
        }
        match value {
            Some(value) => drop(self.by_key.insert(key, value)),
            None => drop(self.by_key.remove(&key)),
        }
        true
    }
}

struct Projected<'a, Q: Key, V: Clone, F> {
    watched: &'a mut Watched<Q, V>,
    keep: F,
}

impl<K: Kind, Q: Key, V: Clone + PartialEq, F: Fn(K) -> Option<V>> Index<K>
    for Projected<'_, Q, V, F>
{
    fn reset(&mut self, all: Vec<K>) -> bool {
        let mut changed = !std::mem::replace(&mut self.watched.synced, true);
        let mut gone: BTreeSet<Q> = self.watched.keys().cloned().collect();
        // One by one, so that the new map shares with the old one what is the same in both.
        for object in all {
            gone.remove(&Q::of(&object));
            changed |= self.apply(object);
        }
        gone.into_iter().fold(changed, |changed, key| self.watched.set(key, None) || changed)
    }

    fn apply(&mut self, object: K) -> bool {
        let key = Q::of(&object);
        self.watched.set(key, (self.keep)(object))
    }

    fn delete(&mut self, object: K) -> bool {
        self.watched.set(Q::of(&object), None)
    }
}

impl Objects {
    /// Publishes the objects of a kind, from now on.
    pub fn watched<K: Kind, Q: Key>(
        &self,
        within: Within,
        tasks: &Tasks,
    ) -> Snapshot<Watched<Q, Arc<K>>> {
        self.watched_as(within, tasks, |object| Some(Arc::new(object)))
    }

    /// Publishes what `keep` keeps of each object of a kind, from now on.
    pub fn watched_as<K: Kind, Q: Key, V: Clone + PartialEq + Send + Sync + 'static>(
        &self,
        within: Within,
        tasks: &Tasks,
        keep: impl Fn(K) -> Option<V> + Send + Sync + 'static,
    ) -> Snapshot<Watched<Q, V>> {
        let snapshot = Snapshot::<Watched<Q, V>>::default();
        let (published, stop) = (snapshot.clone(), tasks.stopping());
        let mut watch = self.watch::<K>(within);
        tasks.spawn(format!("watch {}", K::NAME), async move {
            while let Some(Some(event)) = stop.bound(watch.next()).await {
                published.update(|watched| watched.take(event, &keep));
            }
        });
        snapshot
    }

    /// Publishes what `read` makes of one object, from now on; `read` is asked about `None` when the
    /// object is not there, and answers `None` for what was known to be kept. What is published is
    /// `None` until the store has told.
    ///
    /// `labels` should select the object and little else: that is what is watched.
    pub fn watched_one<K: Kind, T: Clone + PartialEq + Send + Sync + 'static>(
        &self,
        id: &Id,
        labels: Option<Selector>,
        tasks: &Tasks,
        read: impl Fn(Option<K>) -> Option<T> + Send + Sync + 'static,
    ) -> Snapshot<Option<T>> {
        let snapshot = Snapshot::new(None);
        let (published, stop, id) = (snapshot.clone(), tasks.stopping(), id.clone());
        let (namespace, name) = (id.namespace.clone(), Some(id.name.clone()));
        let mut watch = self.watch::<K>(Within { namespace, labels, name, node: None });
        tasks.spawn(format!("watch {} {id}", K::NAME), async move {
            while let Some(Some(event)) = stop.bound(watch.next()).await {
                let is_it = |object: &K| Id::of(object) == id;
                let found = match event {
                    Event::Restarted(all) => all.into_iter().find(is_it),
                    Event::Applied(object) if is_it(&object) => Some(object),
                    Event::Deleted(object) if is_it(&object) => None,
                    Event::Applied(_) | Event::Deleted(_) => continue,
                };
                if let Some(value) = read(found) {
                    published.publish(Some(value));
                }
            }
        });
        snapshot
    }
}

/// Waits until the store has told everything once.
pub async fn synced<Q: Key, V: Clone>(watched: &Snapshot<Watched<Q, V>>) -> View<Watched<Q, V>> {
    let mut changes = watched.subscribe();
    let mut view = watched.load();
    while !view.synced {
        view = changes.changed().await;
    }
    view
}

/// Tells which keys of a [`Watched`] map have changed. There is no queue behind it: it compares the
/// map that was told last with the newest, which costs what differs.
#[derive(Debug)]
pub struct KeyChanges<Q: Key, V: Clone> {
    snapshot: Snapshot<Watched<Q, V>>,
    changes: Changes<Watched<Q, V>>,
    told: Watched<Q, V>,
}

impl<Q: Key, V: Clone + PartialEq> KeyChanges<Q, V> {
    /// Begins with nothing told: what is there already is the first change.
    pub fn of(snapshot: &Snapshot<Watched<Q, V>>) -> Self {
        let changes = snapshot.subscribe();
        Self { snapshot: snapshot.clone(), changes, told: Watched::default() }
    }

    /// Whether everything that the store has was among what was told.
    pub fn is_synced(&self) -> bool {
        self.told.synced
    }

    /// Waits for a change and answers each key that differs from what was told last, with its value,
    /// `None` if it is gone. Nothing differs when all that has changed is that the store has told
    /// everything. Dropping the wait loses nothing.
    pub async fn changed(&mut self) -> Vec<(Q, Option<V>)> {
        loop {
            let now = Watched::clone(&self.snapshot.load());
            let told = std::mem::replace(&mut self.told, now);
            let changed: Vec<_> =
                told.diff(&self.told).map(|difference| entry(&difference)).collect();
            if !changed.is_empty() || told.synced != self.told.synced {
                return changed;
            }
            self.changes.changed().await;
        }
    }
}

fn entry<Q: Key, V: Clone>(difference: &DiffItem<'_, '_, Q, V>) -> (Q, Option<V>) {
    match *difference {
        DiffItem::Add(key, value) | DiffItem::Update { new: (key, value), .. } => {
            (key.clone(), Some(value.clone()))
        }
        DiffItem::Remove(key, _) => (key.clone(), None),
    }
}

/// The objects of a kind in some namespaces, for one task that also waits for other things. No other
/// namespace is watched, and a namespace that stays is not read again.
#[derive(Debug)]
pub struct WatchedIn<K: Kind> {
    objects: Objects,
    namespaces: BTreeMap<String, NamespaceWatch<K>>,
}

#[derive(Debug)]
struct NamespaceWatch<K: Kind> {
    watch: Watch<K>,
    known: Watched<String, Arc<K>>,
}

impl<K: Kind> WatchedIn<K> {
    pub fn new(objects: &Objects) -> Self {
        Self { objects: objects.clone(), namespaces: BTreeMap::new() }
    }

    /// Watches these namespaces from now on, and forgets the others.
    pub fn watch(&mut self, namespaces: &BTreeSet<String>) {
        self.namespaces.retain(|namespace, _| namespaces.contains(namespace));
        for namespace in namespaces {
            self.namespaces.entry(namespace.clone()).or_insert_with(|| {
                let within = Within { namespace: Some(namespace.clone()), ..Within::default() };
                NamespaceWatch { watch: self.objects.watch(within), known: Watched::default() }
            });
        }
    }

    /// Whether the store has told everything of each namespace once.
    pub fn synced(&self) -> bool {
        self.namespaces.values().all(|namespace| namespace.known.synced)
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        self.namespaces.get(namespace)?.known.get(name)
    }

    /// Waits for an event of any of the namespaces and takes it in. Never returns while there are
    /// none. Cancel-safe.
    pub async fn changed(&mut self) {
        poll_fn(|context| {
            for NamespaceWatch { watch, known } in self.namespaces.values_mut() {
                if let Poll::Ready(Some(event)) = watch.poll_next(context) {
                    known.take(event, |object| Some(Arc::new(object)));
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests;
