//! `Resolved`: which names of rules resolved to which addresses, for whoever judges conversations.
//!
//! Contract: it has no more than [`MOST`] addresses of names; the one that resolved longest ago makes room. The
//! proxy of DNS writes it before a pod has its answer, so that who reports a connection knows its name.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use stallproof::{Map, Snapshot};

/// Some hundred kilobytes.
pub(super) const MOST: usize = 2048;

/// A name and an address of it, with the time at which it resolved last. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Resolved(Snapshot<Map<(Arc<str>, IpAddr), Instant>>);

impl Resolved {
    pub(super) fn add(&self, name: &str, addresses: impl Iterator<Item = IpAddr>, now: Instant) {
        let name: Arc<str> = name.into();
        let addresses: Vec<_> = addresses.collect();
        self.0.update(|known| {
            for address in &addresses {
                let key = (Arc::clone(&name), *address);
                if !known.contains_key(&key) && known.len() >= MOST {
                    let oldest = known.iter().min_by_key(|it| *it.1).map(|it| it.0.clone());
                    if let Some(oldest) = oldest {
                        known.remove(&oldest);
                    }
                }
                known.insert(key, now);
            }
            true
        });
    }

    /// All of them, as they are now.
    pub fn all(&self) -> Map<(Arc<str>, IpAddr), Instant> {
        self.0.read(Clone::clone)
    }
}

#[cfg(test)]
mod tests;
