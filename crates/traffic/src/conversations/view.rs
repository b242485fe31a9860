//! `View`: the conversations as they were published, for as long as they are wanted.
//!
//! A reader never waits and never holds anybody up. Each shard's part is whole; two shards' parts
//! may be of different moments, at most one publish apart.

use std::sync::Arc;

use stallproof::Snapshot;

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
    /// All with an end that `wanted` picks, seen at `since` or after.
    pub fn conversations<'a>(
        &'a self,
        wanted: impl Fn(&End) -> bool + 'a,
        since: Moment,
    ) -> impl Iterator<Item = Conversation> + 'a {
        let lines = self.talks(wanted, since).flat_map(move |talk| talk.lines(since));
        lines.map(|line| line.conversation())
    }

    /// All pairs with an end that `wanted` picks, seen at `since` or after; mostly the latest first.
    /// `wanted` is asked once for each end, not for each pair.
    pub fn talks<'a>(
        &'a self,
        wanted: impl Fn(&End) -> bool + 'a,
        since: Moment,
    ) -> impl Iterator<Item = Talk<'a>> + 'a {
        let since = since.seconds();
        self.0.iter().flat_map(move |shard| {
            let table = &shard.table;
            let is_wanted: Vec<bool> =
                table.ends.iter().map(|place| place.end.as_ref().is_some_and(&wanted)).collect();
            // Places fill up from the front.
            table
                .pairs
                .iter()
                .rev()
                .filter(move |pair| {
                    pair.client != NONE
                        && pair.last >= since
                        && (is_wanted[pair.client as usize] || is_wanted[pair.server as usize])
                })
                .filter_map(move |pair| Talk::of(table, pair))
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
}

/// All that one client and one server say to each other, where it stands: to look at it costs no
/// allocation.
#[derive(Clone, Copy, Debug)]
pub struct Talk<'a> {
    pub client: &'a End,
    pub server: &'a End,
    table: &'a FrozenTable,
    pair: &'a Pair,
}

/// A conversation where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    pub talk: Talk<'a>,
    row: &'a Row,
}

impl<'a> Talk<'a> {
    fn of(table: &'a FrozenTable, pair: &'a Pair) -> Option<Self> {
        let end = |place: u32| table.ends.get(place).end.as_ref();
        Some(Self { client: end(pair.client)?, server: end(pair.server)?, table, pair })
    }

    /// Of all its lines.
    pub fn totals(&self) -> Totals {
        self.pair.totals
    }

    pub fn len(&self) -> usize {
        usize::from(self.pair.rows)
    }

    pub fn is_empty(&self) -> bool {
        self.pair.rows == 0
    }

    /// No line of it was last seen before.
    pub fn first(&self) -> Moment {
        Moment::from_seconds(self.pair.first)
    }

    /// No line of it was seen after.
    pub fn last(&self) -> Moment {
        Moment::from_seconds(self.pair.last)
    }

    /// Those seen at `since` or after.
    pub fn lines(self, since: Moment) -> impl Iterator<Item = Line<'a>> {
        let since = since.seconds();
        let rows = self.table.rows_of(self.pair).filter(move |row| row.last >= since);
        rows.map(move |row| Line { talk: self, row })
    }
}

impl Line<'_> {
    /// None for what was folded.
    pub fn service(&self) -> Option<(Protocol, u16)> {
        self.is_named().then_some((Protocol(self.row.protocol), self.row.port))
    }

    pub fn verdict(&self) -> Option<Verdict> {
        self.is_named().then_some(self.row.verdict)
    }

    pub fn application(&self) -> Option<&Arc<str>> {
        self.is_named().then(|| nth(&self.talk.table.applications, self.row.application)).flatten()
    }

    pub fn totals(&self) -> Totals {
        self.row.totals
    }

    pub fn last(&self) -> Moment {
        Moment::from_seconds(self.row.last)
    }

    pub fn conversation(&self) -> Conversation {
        let Self { talk, row } = self;
        let about = self.is_named().then(|| About {
            protocol: Protocol(row.protocol),
            port: row.port,
            application: self.application().cloned(),
            verdict: row.verdict,
            rule: nth(&talk.table.rules, row.rule).cloned(),
        });
        Conversation {
            client: talk.client.clone(),
            server: talk.server.clone(),
            about,
            totals: row.totals,
            first: Moment::from_seconds(row.first),
            last: self.last(),
        }
    }

    fn is_named(&self) -> bool {
        self.row.kind == Kind::Conversation
    }
}
