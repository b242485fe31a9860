//! `View`: the conversations as they were published, for as long as they are wanted.
//!
//! A reader never waits and never holds anybody up. Each shard's part is whole; two shards' parts
//! may be of different moments, at most one publish apart.

use std::fmt;
use std::sync::Arc;

use stallproof::Snapshot;

use super::graph::{Graph, Level};
use super::interner::nth;
use super::judge::Verdict;
use super::shard::Counters;
use super::table::{FoldedTotals, FrozenTable, Kind, NONE, Pair, Realms, Row};
use super::{Conversation, End, Moment, Protocol, Totals};

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
    /// All conversations with an end that `wanted` picks, seen at `since` or after.
    pub fn conversations<'a>(
        &'a self,
        wanted: impl Fn(&End) -> bool,
        since: Moment,
    ) -> impl Iterator<Item = ConversationRef<'a>> {
        self.pairs(wanted, since).flat_map(move |pair| pair.conversations(since))
    }

    /// All pairs with an end that `wanted` picks, seen at `since` or after; mostly the latest first.
    /// `wanted` is asked once for each end, not for each pair.
    pub fn pairs<'a>(
        &'a self,
        wanted: impl Fn(&End) -> bool,
        since: Moment,
    ) -> impl Iterator<Item = PairRef<'a>> {
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
                .filter_map(move |pair| PairRef::of(table, pair))
        })
    }

    /// Who talks to whom, drawn at `level`.
    pub fn graph(&self, level: Level, since: Moment) -> Graph {
        Graph::of(self, level, since)
    }

    /// The totals of folded pairs, by realm of client and of server.
    pub fn folded(&self) -> Vec<(Realms, FoldedTotals)> {
        let mut sums: Vec<(Realms, FoldedTotals)> = Vec::new();
        let mut all: Vec<_> = self
            .0
            .iter()
            .flat_map(|shard| shard.table.folded.iter())
            .map(|(realms, folded)| (realms.clone(), *folded))
            .collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (realms, folded) in all {
            match sums.last_mut() {
                Some((last, sum)) if *last == realms => sum.add(folded),
                _ => sums.push((realms, folded)),
            }
        }
        sums
    }

    /// Everything that was ever counted, folded or not.
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::ZERO;
        for shard in self.0.iter() {
            shard.table.pairs.iter().for_each(|pair| sum += pair.totals);
            shard.table.folded.values().for_each(|folded| sum += folded.totals);
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
        self.places_of(pair).map(|(_, row)| row)
    }

    /// The rows of a pair, each with its place in the table.
    pub(super) fn places_of(&self, pair: &Pair) -> impl Iterator<Item = (u32, &Row)> {
        let row = |place: u32| (place != NONE).then(|| (place, self.rows.get(place)));
        std::iter::successors(row(pair.head), move |(_, last)| row(last.next))
    }

    /// The rule that decided on a conversation, if one did.
    pub(super) fn rule(&self, row: &Row) -> Option<&Arc<str>> {
        nth(&self.rules, row.rule).filter(|_| row.kind == Kind::Conversation)
    }
}

/// All conversations of one client and one server, read in place: looking at it allocates nothing.
#[derive(Clone, Copy)]
pub struct PairRef<'a> {
    pub client: &'a End,
    pub server: &'a End,
    table: &'a FrozenTable,
    pair: &'a Pair,
}

/// One conversation, or what was folded of its pair, read in place.
#[derive(Clone, Copy)]
pub struct ConversationRef<'a> {
    pair: PairRef<'a>,
    row: &'a Row,
}

impl<'a> PairRef<'a> {
    fn of(table: &'a FrozenTable, pair: &'a Pair) -> Option<Self> {
        let end = |place: u32| table.ends.get(place).end.as_ref();
        Some(Self { client: end(pair.client)?, server: end(pair.server)?, table, pair })
    }

    /// The sum of all its conversations.
    pub fn totals(&self) -> Totals {
        self.pair.totals
    }

    pub fn len(&self) -> usize {
        usize::from(self.pair.rows)
    }

    pub fn is_empty(&self) -> bool {
        self.pair.rows == 0
    }

    /// None of its conversations was last seen before.
    pub fn first(&self) -> Moment {
        Moment::from_seconds(self.pair.first)
    }

    /// None of its conversations was seen after.
    pub fn last(&self) -> Moment {
        Moment::from_seconds(self.pair.last)
    }

    /// Its conversations that were seen at `since` or after.
    pub fn conversations(self, since: Moment) -> impl Iterator<Item = ConversationRef<'a>> {
        let since = since.seconds();
        let rows = self.table.rows_of(self.pair).filter(move |row| row.last >= since);
        rows.map(move |row| ConversationRef { pair: self, row })
    }
}

impl<'a> ConversationRef<'a> {
    pub fn client(&self) -> &'a End {
        self.pair.client
    }

    pub fn server(&self) -> &'a End {
        self.pair.server
    }

    /// None for what was folded of its pair, as all that a service has.
    pub fn service(&self) -> Option<(Protocol, u16)> {
        self.has_service().then_some((Protocol(self.row.protocol), self.row.port))
    }

    pub fn application(&self) -> Option<&'a Arc<str>> {
        let name = nth(&self.pair.table.applications, self.row.application);
        name.filter(|_| self.has_service())
    }

    pub fn verdict(&self) -> Option<Verdict> {
        self.has_service().then_some(self.row.verdict)
    }

    /// The rule that decided, if one did.
    pub fn rule(&self) -> Option<&'a Arc<str>> {
        nth(&self.pair.table.rules, self.row.rule).filter(|_| self.has_service())
    }

    pub fn totals(&self) -> Totals {
        self.row.totals
    }

    pub fn first(&self) -> Moment {
        Moment::from_seconds(self.row.first)
    }

    pub fn last(&self) -> Moment {
        Moment::from_seconds(self.row.last)
    }

    /// A copy; none of what was folded.
    pub fn to_conversation(&self) -> Option<Conversation> {
        let (protocol, port) = self.service()?;
        Some(Conversation {
            client: self.client().clone(),
            server: self.server().clone(),
            protocol,
            port,
            application: self.application().cloned(),
            verdict: self.row.verdict,
            rule: self.rule().cloned(),
            totals: self.row.totals,
            first: self.first(),
            last: self.last(),
        })
    }

    fn has_service(&self) -> bool {
        self.row.kind == Kind::Conversation
    }
}

/// Leaves out the table that both are read from.
impl fmt::Debug for PairRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, server, pair, .. } = self;
        f.debug_tuple("PairRef").field(client).field(server).field(pair).finish()
    }
}

impl fmt::Debug for ConversationRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = (self.client(), self.server(), self.service(), self.application());
        let judged = (self.verdict(), self.rule());
        let seen = (self.totals(), self.first(), self.last());
        f.debug_tuple("ConversationRef").field(&named).field(&judged).field(&seen).finish()
    }
}
