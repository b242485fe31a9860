//! `Rates`: how often each of many may do something: so many times at once, then once every so often.
//!
//! Contract: what is kept of a key is one instant, and only while that says anything. The number of keys is
//! bounded; while it is reached, one that is not known yet is told to come back, so that keys which somebody
//! makes up take bounded memory. Every call is a few lines under one lock, but for one in `most` that looks
//! at all keys.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

#[derive(Debug)]
pub struct Rates<K> {
    every: Duration,
    /// How far ahead of its pace a key may be.
    ahead: Duration,
    most: usize,
    /// When the next one of a key would be due at an even pace. Written by every `take`.
    due: Mutex<HashMap<K, Instant>>,
}

impl<K: Eq + Hash> Rates<K> {
    /// `at_once`, then one every `every`, for each of `most` keys.
    pub fn new(at_once: u32, every: Duration, most: usize) -> Self {
        Self { every, ahead: every * at_once.saturating_sub(1), most, due: Mutex::default() }
    }

    /// Takes one of a key's; or says when the next may be taken.
    pub fn take<Q>(&self, key: &Q, now: Instant) -> Result<(), Duration>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let mut all = self.due.lock();
        let known = all.get(key).copied();
        if known.is_none() && all.len() >= self.most {
            all.retain(|_, due| *due > now);
            if all.len() >= self.most {
                return Err(self.every);
            }
        }
        let due = known.map_or(now, |due| due.max(now));
        let early = due.saturating_duration_since(now);
        if early > self.ahead {
            return Err(early - self.ahead);
        }
        all.insert(key.to_owned(), due + self.every);
        Ok(())
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
