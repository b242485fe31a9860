//! `Expiring<K, V>`: a map that is bounded and forgets.
//!
//! Contract: every entry has an instant after which it is as good as gone. At the limit, the entry
//! that would be gone soonest makes room. Removed values are handed out, so that the caller can drop
//! them after its lock. No operation visits more than a few entries.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use tokio::time::Instant;

/// How many dead entries an insert clears away: more than it adds, so that they do not pile up.
const CLEARED: usize = 2;

#[derive(Debug)]
pub(crate) struct Expiring<K, V> {
    limit: usize,
    entries: HashMap<K, (Order, V)>,
    by_end: BTreeMap<Order, K>,
    inserted: u64,
}

/// When an entry ends; the number tells apart those that end together.
type Order = (Instant, u64);

impl<K: Clone + Eq + Hash, V> Expiring<K, V> {
    /// At least one entry is always kept.
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.max(1);
        Self { limit, entries: HashMap::new(), by_end: BTreeMap::new(), inserted: 0 }
    }

    pub(crate) fn get(&self, key: &K, now: Instant) -> Option<&V> {
        let ((end, _), value) = self.entries.get(key)?;
        (now < *end).then_some(value)
    }

    /// Keeps `value` until `end`; answers the values that it displaced.
    #[must_use = "displaced values are to be dropped outside the lock"]
    pub(crate) fn insert(&mut self, key: K, value: V, end: Instant, now: Instant) -> Vec<V> {
        let mut displaced: Vec<V> = self.remove(&key).into_iter().collect();
        for _ in 0..CLEARED {
            let Some(((soonest, _), _)) = self.by_end.first_key_value() else {
                break;
            };
            if *soonest > now && self.entries.len() < self.limit {
                break;
            }
            displaced.extend(self.pop_soonest());
        }
        self.inserted += 1;
        let order = (end, self.inserted);
        self.by_end.insert(order, key.clone());
        self.entries.insert(key, (order, value));
        displaced
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let (order, value) = self.entries.remove(key)?;
        self.by_end.remove(&order);
        Some(value)
    }

    /// All that lives, in no order.
    pub(crate) fn iter(&self, now: Instant) -> impl Iterator<Item = (&K, &V)> {
        let alive = move |(_, ((end, _), _)): &(&K, &(Order, V))| now < *end;
        self.entries.iter().filter(alive).map(|(key, (_, value))| (key, value))
    }

    /// Forgets all; the old content is handed out.
    #[must_use = "the content is to be dropped outside the lock"]
    pub(crate) fn take(&mut self) -> Self {
        let limit = self.limit;
        std::mem::replace(self, Self::new(limit))
    }

    fn pop_soonest(&mut self) -> Option<V> {
        let (_, key) = self.by_end.pop_first()?;
        self.entries.remove(&key).map(|(_, value)| value)
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
