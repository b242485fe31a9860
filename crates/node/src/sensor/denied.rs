//! `Denied`: what rules of policies stopped, added up for controllers.
//!
//! Contract: as the sensor's totals these are running totals with a beginning, told until they are counted.
//! They are not saved: after a restart they begin anew, with a later beginning. Bounded.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use traffic::conversations::{DeniedRecord, Moment};

use super::ConversationKey;

/// As many as one report holds. What finds no room is counted as dropped.
const MOST: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Denied(HashMap<(ConversationKey, Arc<str>), Total>);

#[derive(Debug)]
struct Total {
    packets: u64,
    first: Moment,
    last: Moment,
    /// The number of the last report with it; 0 if there was none.
    sent: u64,
    changed: bool,
}

impl Denied {
    /// Says whether there was room.
    pub(super) fn add(
        &mut self,
        key: ConversationKey,
        rule: &Arc<str>,
        packets: u64,
        now: Moment,
        idle: Duration,
    ) -> bool {
        let key = (key, Arc::clone(rule));
        if let Some(total) = self.0.get_mut(&key) {
            // A controller forgets a total that was idle, so that it has to begin anew.
            if now.since(total.last) >= idle && !total.changed {
                *total = Total { packets: 0, first: now, last: now, sent: 0, changed: true };
            }
            total.packets = total.packets.saturating_add(packets);
            total.last = now;
            total.changed = true;
            return true;
        }
        if self.0.len() >= MOST {
            return false;
        }
        self.0.insert(key, Total { packets, first: now, last: now, sent: 0, changed: true });
        true
    }

    pub(super) fn has_news(&self) -> bool {
        self.0.values().any(|total| total.changed)
    }

    pub(super) fn tell(&mut self, sequence: u64) -> Vec<DeniedRecord> {
        let changed = self.0.iter_mut().filter(|(_, total)| total.changed);
        let told = changed.map(|((key, rule), total)| {
            total.changed = false;
            total.sent = sequence;
            DeniedRecord {
                client: key.client,
                server: key.server,
                port: key.port,
                protocol: key.protocol,
                rule: Arc::clone(rule),
                packets: total.packets,
                first: total.first,
                last: total.last,
            }
        });
        told.collect()
    }

    /// What was told in reports after this one has to be told again.
    pub(super) fn lost_after(&mut self, durable: u64) {
        for total in self.0.values_mut() {
            total.changed |= total.sent > durable;
        }
    }

    /// Forgets what is idle and on a controller's disk.
    pub(super) fn forget(&mut self, durable: u64, now: Moment, idle: Duration) {
        let is_on_disk = |total: &Total| !total.changed && total.sent <= durable;
        self.0.retain(|_, total| !is_on_disk(total) || now.since(total.last) < idle);
    }
}

#[cfg(test)]
mod tests;
