//! `View`: the conversations as they were published, for as long as they are wanted.
//!
//! A reader never waits and never holds anybody up. Each shard's part is whole; two shards' parts
//! may be of different moments, at most one publish apart.

use std::sync::Arc;

use flow::Snapshot;

use super::graph::{Graph, Level};
use super::judge::Verdict;
use super::shard::Counters;
use super::table::{FrozenTable, Kind, NONE, Pair, Realms, Rest, Row};
use super::words::nth;
use super::{End, Moment, Protocol, Totals};

/// Where the shards publish. Clones read the same.
#[derive(Clone, Debug)]
pub struct Readers(Arc<[Snapshot<Arc<ShardView>>]>);

#[derive(Debug, Default)]
pub struct ShardView {
    pub(super) table: FrozenTable,
    pub(super) counters: Counters,
}

#[derive(Clone, Debug)]
pub struct View(pub(super) Arc<[Arc<ShardView>]>);

/// One line of who talks to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    pub client: End,
    pub server: End,
    /// None for what was folded of this client and this server.
    pub about: Option<About>,
    pub totals: Totals,
    pub first: Moment,
    pub last: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub protocol: Protocol,
    pub port: u16,
    pub application: Option<Arc<str>>,
    pub verdict: Verdict,
    pub rule: Option<Arc<str>>,
}

impl Readers {
    pub fn view(&self) -> View {
        View(self.0.iter().map(|shard| Arc::clone(&shard.load())).collect())
    }
}

impl FromIterator<Snapshot<Arc<ShardView>>> for Readers {
    fn from_iter<I: IntoIterator<Item = Snapshot<Arc<ShardView>>>>(shards: I) -> Self {
        Self(shards.into_iter().collect())
    }
}

impl View {
    /// All with an end that `wanted` picks, seen at `since` or after. `wanted` is asked once for
    /// each end, not for each conversation.
    pub fn conversations<'a>(
        &'a self,
        wanted: impl Fn(&End) -> bool + 'a,
        since: Moment,
    ) -> impl Iterator<Item = Conversation> + 'a {
        let since = since.seconds();
        self.0.iter().flat_map(move |shard| {
            let table = &shard.table;
            let is_wanted: Vec<bool> =
                table.ends.iter().map(|place| place.end.as_ref().is_some_and(&wanted)).collect();
            table
                .pairs
                .iter()
                .filter(move |pair| {
                    pair.client != NONE
                        && pair.last >= since
                        && (is_wanted[pair.client as usize] || is_wanted[pair.server as usize])
                })
                .flat_map(move |pair| table.rows_of(pair).map(move |row| (pair, row)))
                .filter(move |(_, row)| row.last >= since)
                .filter_map(move |(pair, row)| table.conversation(pair, row))
        })
    }

    /// Who talks to whom, drawn at `level`.
    pub fn graph(&self, level: Level, since: Moment) -> Graph {
        Graph::of(self, level, since)
    }

    /// What was folded, by realm of client and of server.
    pub fn rest(&self) -> Vec<(Realms, Rest)> {
        let mut rests: Vec<(Realms, Rest)> = Vec::new();
        let mut all: Vec<_> = self
            .0
            .iter()
            .flat_map(|shard| shard.table.rest.iter())
            .map(|(realms, rest)| (realms.clone(), *rest))
            .collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (realms, rest) in all {
            match rests.last_mut() {
                Some((last, sum)) if *last == realms => {
                    sum.totals += rest.totals;
                    sum.pairs += rest.pairs;
                    sum.last = sum.last.max(rest.last);
                }
                _ => rests.push((realms, rest)),
            }
        }
        rests
    }

    /// Everything that was ever counted, folded or not.
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::ZERO;
        for shard in self.0.iter() {
            shard.table.pairs.iter().for_each(|pair| sum += pair.totals);
            shard.table.rest.values().for_each(|rest| sum += rest.totals);
        }
        sum
    }

    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for Counters { counted, repeated, refused, outdated, folded_rows, folded_pairs } in
            self.0.iter().map(|shard| shard.counters)
        {
            sum.counted += counted;
            sum.repeated += repeated;
            sum.refused += refused;
            sum.outdated += outdated;
            sum.folded_rows += folded_rows;
            sum.folded_pairs += folded_pairs;
        }
        sum
    }
}

impl FrozenTable {
    pub(super) fn rows_of(&self, pair: &Pair) -> impl Iterator<Item = &Row> {
        let row = |place: u32| (place != NONE).then(|| self.rows.get(place));
        std::iter::successors(row(pair.head), move |last| row(last.next))
    }

    pub(super) fn conversation(&self, pair: &Pair, row: &Row) -> Option<Conversation> {
        let about = (row.kind == Kind::Conversation).then(|| About {
            protocol: Protocol(row.protocol),
            port: row.port,
            application: nth(&self.applications, row.application).cloned(),
            verdict: row.verdict,
            rule: nth(&self.rules, row.rule).cloned(),
        });
        Some(Conversation {
            client: self.ends.get(pair.client).end.clone()?,
            server: self.ends.get(pair.server).end.clone()?,
            about,
            totals: row.totals,
            first: Moment::from_seconds(row.first),
            last: Moment::from_seconds(row.last),
        })
    }
}
