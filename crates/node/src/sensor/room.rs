//! What a sensor forgets, and what makes room for what.

use std::time::Duration;

use super::total::RunningTotal;
use super::{ConversationKey, Sensor};
use traffic::conversations::{Moment, Totals};

/// When there is no room, this part of all totals is forgotten together.
pub(super) const PART: usize = 16;
/// So long is kept what grows no more, for controllers that do not know it.
pub(super) const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

impl Sensor {
    /// Forgets the oldest totals that a controller has on disk; where there are none, for one that is
    /// alarming, those that are not.
    pub(super) fn make_room(&mut self, alarming: bool) -> bool {
        if self.now < self.full_until && !alarming {
            return false;
        }
        let (durable, controller) = (self.durable, self.controllers.current());
        let part = self.limits.totals.div_ceil(PART);
        if self.forget_oldest(part, |total| total.is_kept(durable, controller)) {
            return true;
        }
        self.full_until = Moment(self.now.0 + 1000);
        alarming && self.forget_oldest(part, |total| !total.alarming)
    }

    fn forget_oldest(&mut self, most: usize, may: impl Fn(&RunningTotal) -> bool) -> bool {
        // The next beginning of a key must lie in another second.
        let second = self.now.seconds();
        let may = |total: &RunningTotal| may(total) && total.first.seconds() < second;
        let age = |key: &ConversationKey, total: &RunningTotal| (total.last, total.first, *key);
        let past = self.past.iter().map(|(key, total)| (key, total));
        let all = self.totals.iter().chain(past);
        let mut ages: Vec<_> =
            all.filter(|(_, total)| may(total)).map(|(key, total)| age(key, total)).collect();
        let Some(last) = ages.len().min(most).checked_sub(1) else { return false };
        let oldest = *ages.select_nth_unstable(last).1;
        let mut gone = Vec::new();
        let mut stays = |key: &ConversationKey, total: &RunningTotal| {
            let goes = may(total) && age(key, total) <= oldest;
            if goes {
                gone.push(*total);
            }
            !goes
        };
        self.totals.retain(|key, total| stays(key, total));
        self.past.retain(|(key, total)| stays(key, total));
        gone.iter().for_each(|total| self.drop_total(total));
        true
    }

    /// What ended a day ago, and the oldest of too much that has ended; the controller has it on disk.
    pub(super) fn forget(&mut self) {
        let (now, idle, durable) = (self.now, self.limits.idle, self.durable);
        let controller = self.controllers.current();
        let has_ended = |total: &RunningTotal| {
            total.is_kept(durable, controller) && now.since(total.last) >= idle
        };
        let mut ended = 0_usize;
        let mut stays = |total: &RunningTotal| {
            let has_ended = has_ended(total);
            let stays = !has_ended || now.since(total.last) < KEPT;
            ended += usize::from(has_ended && stays);
            stays
        };
        self.past.retain(|(_, total)| stays(total));
        self.totals.retain(|_, total| stays(total));
        let most = self.limits.ended;
        if ended > most {
            self.forget_oldest(ended - most, has_ended);
        }
        self.denied.forget(durable, now, idle);
        self.named.forget(now);
    }

    /// What a total has that no controller was told will never be told.
    pub(super) fn drop_total(&mut self, total: &RunningTotal) {
        self.drop_growth(total.totals.growth(total.told), total.alarming);
    }

    pub(super) fn drop_growth(&mut self, growth: Totals, alarming: bool) {
        if !growth.is_zero() {
            self.dropped.totals += 1;
            self.dropped.violations += u64::from(alarming);
            self.lost += growth;
        }
    }
}
