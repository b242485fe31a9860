//! `Buckets<K>`: a rate limit for each key, in bounded memory.
//!
//! Contract: a key has `burst` attempts at once and then one every `every`; a refusal says when the next
//! one is. Used attempts come back with time, and a key that has all of them costs nothing. At most
//! `keys` are remembered; beyond that the key with the most attempts left is forgotten, so that a flood
//! of keys frees the lightest offenders and not the heaviest.
//!
//! It is the generic cell rate algorithm: for each key the instant at which all attempts are back.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use stallproof::TrackedMutex;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) burst: u32,
    pub(crate) every: Duration,
}

#[derive(Debug)]
pub(crate) struct Buckets<K> {
    rate: Rate,
    keys: usize,
    /// Written by every attempt, for a few lines.
    debts: TrackedMutex<Debts<K>>,
}

#[derive(Debug)]
struct Debts<K> {
    /// When each key has all attempts again; the number tells apart keys of one instant.
    of: HashMap<K, (Instant, u64)>,
    by_end: BTreeMap<(Instant, u64), K>,
    last: u64,
}

impl<K: Clone + Eq + Hash> Buckets<K> {
    pub(crate) fn new(rate: Rate, keys: usize) -> Self {
        let debts = Debts { of: HashMap::new(), by_end: BTreeMap::new(), last: 0 };
        Self { rate, keys, debts: TrackedMutex::new("access buckets", debts) }
    }

    /// Takes an attempt, or returns the time until there is one.
    pub(crate) fn take(&self, key: &K) -> Result<(), Duration> {
        let now = Instant::now();
        let mut debts = self.debts.lock();
        let paid = debts.paid(key).map_or(now, |paid| paid.max(now)) + self.rate.every;
        let limit = now + self.rate.every * self.rate.burst;
        if paid > limit {
            return Err(paid - limit);
        }
        debts.set(key, paid);
        // Removes two keys for one, so that those that are whole again do not pile up.
        for _ in 0..2 {
            debts.forget_lightest(now, self.keys);
        }
        Ok(())
    }

    /// Gives an attempt back.
    pub(crate) fn give_back(&self, key: &K) {
        let now = Instant::now();
        let mut debts = self.debts.lock();
        match debts.paid(key) {
            Some(paid) if paid > now + self.rate.every => debts.set(key, paid - self.rate.every),
            _ => debts.remove(key),
        }
    }

    /// Gives all attempts of the key back.
    pub(crate) fn reset(&self, key: &K) {
        self.debts.lock().remove(key);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.debts.lock().of.len()
    }
}

impl<K: Clone + Eq + Hash> Debts<K> {
    fn paid(&self, key: &K) -> Option<Instant> {
        self.of.get(key).map(|(paid, _)| *paid)
    }

    fn set(&mut self, key: &K, paid: Instant) {
        self.remove(key);
        self.last += 1;
        self.of.insert(key.clone(), (paid, self.last));
        self.by_end.insert((paid, self.last), key.clone());
    }

    fn remove(&mut self, key: &K) {
        if let Some(order) = self.of.remove(key) {
            self.by_end.remove(&order);
        }
    }

    fn forget_lightest(&mut self, now: Instant, keys: usize) {
        let lightest = self.by_end.first_key_value();
        let lightest = lightest.filter(|((paid, _), _)| *paid <= now || self.of.len() > keys);
        if let Some((_, key)) = lightest {
            let key = key.clone();
            self.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
