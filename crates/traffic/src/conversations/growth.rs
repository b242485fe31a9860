//! What came between two views of the same shards, for the history.
//!
//! Contract: of each pair that is in both views, the sum of its growth is exactly what its totals grew by.
//! Conversations that were folded into their pair's `other` meanwhile are in the growth of that. A pair
//! that is new has grown by all of its totals; one that was folded away has no growth. Only chunks of the
//! table that were written to are looked at.

use std::sync::Arc;

use super::interner::nth;
use super::judge::Verdict;
use super::table::{FrozenTable, Kind, NONE, Pair, Row};
use super::view::{ShardView, View};
use super::{End, Moment, Protocol, Totals};

/// What one conversation grew by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    pub client: End,
    pub server: End,
    /// None for what was folded of the two ends.
    pub service: Option<(Protocol, u16)>,
    pub application: Option<Arc<str>>,
    pub verdict: Option<Verdict>,
    /// The rule that decided, if one did.
    pub rule: Option<Arc<str>>,
    pub totals: Totals,
    /// When the conversation began; none if it was there before.
    pub first: Option<Moment>,
    pub last: Moment,
}

impl View {
    /// What every conversation grew by since `earlier`, a view of the same term.
    pub fn growth_since(&self, earlier: &View) -> Vec<Growth> {
        let (mut grown, nothing) = (Vec::new(), ShardView::default());
        for (place, shard) in self.0.iter().enumerate() {
            let before = earlier.0.get(place).map_or(&nothing, |shard| &**shard);
            shard.table.growth_since(&before.table, &mut grown);
        }
        grown
    }
}

impl FrozenTable {
    fn growth_since(&self, earlier: &Self, grown: &mut Vec<Growth>) {
        for (place, pair) in self.pairs.changed_since(&earlier.pairs) {
            if pair.client == NONE {
                continue;
            }
            let before =
                earlier.pairs.checked(place).filter(|old| self.is_same(earlier, pair, old));
            let old = before.map_or(Totals::ZERO, |old| old.totals);
            let mut rest = pair.totals.growth(old);
            if rest.is_zero() {
                continue;
            }
            let mut folded: Option<&Row> = None;
            for (place, row) in self.places_of(pair) {
                if row.kind == Kind::Other {
                    folded = Some(row);
                    continue;
                }
                let known = before.and_then(|old| earlier.row_before(old, place, row, self));
                let growth = row.totals.growth(known.map_or(Totals::ZERO, |row| row.totals));
                let growth = growth.at_most(rest);
                if !growth.is_zero() {
                    rest = rest.growth(growth);
                    let is_new = known.is_none();
                    grown.extend(self.grown(pair, row, growth, is_new));
                }
            }
            if let Some(row) = folded
                && !rest.is_zero()
            {
                grown.extend(self.grown(pair, row, rest, before.is_none()));
            }
        }
    }

    /// Whether two places hold the same two ends.
    fn is_same(&self, earlier: &Self, pair: &Pair, old: &Pair) -> bool {
        let end = |table: &Self, place: u32| {
            (place != NONE).then(|| table.ends.get(place).end.clone()).flatten()
        };
        old.client != NONE
            && end(self, pair.client) == end(earlier, old.client)
            && end(self, pair.server) == end(earlier, old.server)
    }

    /// What was at `place` when the pair was `old`, if that is the conversation of `row` now: a row keeps its
    /// place while it lives, also when its application becomes known.
    fn row_before(&self, old: &Pair, place: u32, row: &Row, now: &Self) -> Option<&Row> {
        let (_, found) = self.places_of(old).find(|(before, _)| *before == place)?;
        let is_same = found.kind == Kind::Conversation
            && (found.port, found.protocol) == (row.port, row.protocol)
            && (found.application == 0
                || nth(&self.applications, found.application)
                    == nth(&now.applications, row.application));
        is_same.then_some(found)
    }

    fn grown(&self, pair: &Pair, row: &Row, totals: Totals, is_new: bool) -> Option<Growth> {
        let end = |place: u32| self.ends.get(place).end.clone();
        let is_named = row.kind == Kind::Conversation;
        Some(Growth {
            client: end(pair.client)?,
            server: end(pair.server)?,
            service: is_named.then_some((Protocol(row.protocol), row.port)),
            application: nth(&self.applications, row.application).filter(|_| is_named).cloned(),
            verdict: is_named.then_some(row.verdict),
            rule: self.rule(row).cloned(),
            totals,
            first: is_new.then(|| Moment::from_seconds(row.first)),
            last: Moment::from_seconds(row.last),
        })
    }
}

#[cfg(test)]
mod tests;
