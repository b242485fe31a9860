//! `RecentOwners`: whose reviews were seen lately, so that what they own is judged by who made them.
//!
//! Contract: an entry lives five minutes from the root's own review, and there are at most
//! [`MOST`]; beyond that the oldest go first. What is not here is looked up in the cluster, where
//! nobody knows who made it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stallproof::Map;
use tokio::time::Instant;

use super::facts::Owner;

const KEPT: Duration = Duration::from_secs(5 * 60);
/// About a kilobyte each.
pub(super) const MOST: usize = 16_384;

#[derive(Clone, Debug, Default)]
pub(super) struct RecentOwners(Map<String, (Arc<Owner>, Instant)>);

impl RecentOwners {
    pub(super) fn owner(&self, uid: &str) -> Option<&Owner> {
        self.0.get(uid).map(|(owner, _)| &**owner)
    }
}

/// An object that may own others, as its review had it.
#[derive(Debug)]
pub(super) struct ReviewedOwner {
    pub(super) uid: String,
    /// The uid of what controls it, if that is believed.
    pub(super) above: Option<String>,
    pub(super) owner: Owner,
}

/// Who writes it: knows which entry is the oldest.
#[derive(Debug, Default)]
pub(super) struct OwnerRecorder {
    seen: RecentOwners,
    order: BTreeSet<(Instant, String)>,
}

impl OwnerRecorder {
    pub(super) fn seen(&self) -> RecentOwners {
        self.seen.clone()
    }

    pub(super) fn take(
        &mut self,
        ReviewedOwner { uid, above, owner }: ReviewedOwner,
        now: Instant,
    ) {
        let entry = match above {
            None => Some((Arc::new(owner), now)),
            // Below a root that was seen, it stands for that root, and no longer than it.
            Some(above) => self.seen.0.get(&above).cloned(),
        };
        if let Some((owner, since)) = entry {
            self.order.insert((since, uid.clone()));
            if let Some((_, before)) = self.seen.0.insert(uid.clone(), (owner, since))
                && before != since
            {
                self.order.remove(&(before, uid));
            }
        }
        self.expire(now);
    }

    /// Says whether something went.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let mut gone = false;
        while let Some((since, uid)) = self.order.first() {
            if now.duration_since(*since) < KEPT && self.order.len() <= MOST {
                break;
            }
            self.seen.0.remove(uid);
            self.order.pop_first();
            gone = true;
        }
        gone
    }
}

#[cfg(test)]
mod tests;
