//! `SetMap`: several values under one key. A key without values is not kept.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// The values of a key are in their order. Nearly always there is one: a tree would take ten times the room.
#[derive(Clone, Debug)]
pub(crate) struct SetMap<K, V>(HashMap<K, Vec<V>>);

impl<K, V> Default for SetMap<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V: Ord> SetMap<K, V> {
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let values = self.0.entry(key).or_insert_with(|| Vec::with_capacity(1));
        if let Err(place) = values.binary_search(&value) {
            values.insert(place, value);
        }
    }

    pub(crate) fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q, value: &V)
    where
        K: Borrow<Q>,
    {
        if let Some(values) = self.0.get_mut(key) {
            if let Ok(place) = values.binary_search(value) {
                values.remove(place);
            }
            if values.is_empty() {
                self.0.remove(key);
            }
        }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    /// The values of a key in their order.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> impl Iterator<Item = &V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key).into_iter().flatten()
    }
}
