//! `Table`: conversations of one shard, by pair of ends.
//!
//! ```text
//! Pair (client, server, totals) ──► Row (port, protocol, application, totals) ──► Row ──► other
//! rest: (realm, realm) ──► totals of pairs that were folded
//! ```
//!
//! Contract:
//! - A pair's totals are the sum of its rows'; everything ever credited is in some pair or in the
//!   rest. Folding moves totals, it never loses them.
//! - Rows are bounded, per pair and in all. Past the first bound the pair's oldest row is folded
//!   into its `other` row; past the second a pair that is the oldest of some is folded into the rest
//!   of its two realms.
//! - A row whose application is not known becomes that of the first application that is told of it; after
//!   that, what is told without one has a row of its own.
//! - Only totals live here; what makes them exactly-once is in `marks`.

use std::sync::Arc;

use hashbrown::HashTable;
use stallproof::Map;

use super::interner::Interner;
use super::judge::{Judge, Judgement, Service, Verdict};
use super::router::RoutedRecord;
use super::slab::{Frozen, Slab};
use super::{End, Protocol, Reporter, Totals};

pub(super) const NONE: u32 = u32::MAX;

/// Of how many pairs the oldest is folded: the more, the older it is.
const CANDIDATES: usize = 16;
/// Pairs of realms in the rest: namespaces are hundreds. What is more goes into one.
const MOST_FOLDED: usize = 16_384;
/// Applications come from agents, so that their number is not ours to choose.
const MOST_APPLICATIONS: u16 = 1024;

#[derive(Debug)]
pub(super) struct Table {
    /// Addresses are chosen by strangers; where they fall in the index must not be.
    seed: u64,
    ends: Slab<EndSlot>,
    end_index: HashTable<u32>,
    pairs: Slab<Pair>,
    pair_index: HashTable<u32>,
    rows: Slab<Row>,
    pub(super) applications: Interner,
    rules: Interner,
    folded: Map<Realms, FoldedTotals>,
    /// Where the search for old pairs goes on.
    hand: u32,
    pub(super) folded_rows: u64,
    pub(super) folded_pairs: u64,
    most_rows: usize,
    most_rows_per_pair: u16,
}

/// An end and how many pairs have it.
#[derive(Clone, Debug, Default)]
pub(super) struct EndSlot {
    pub(super) end: Option<End>,
    pairs: u32,
}

/// 48 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    /// `NONE` in an empty place.
    pub(super) client: u32,
    pub(super) server: u32,
    pub(super) head: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) rows: u16,
    pub(super) totals: Totals,
}

/// 48 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) next: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) port: u16,
    pub(super) application: u16,
    pub(super) rule: u16,
    pub(super) protocol: u8,
    pub(super) kind: Kind,
    pub(super) reporter: Reporter,
    pub(super) verdict: Verdict,
    pub(super) totals: Totals,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Conversation,
    /// What was folded of its pair.
    Other,
}

pub type Realms = (Arc<str>, Arc<str>);

/// What was folded of the pairs between two realms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoldedTotals {
    pub totals: Totals,
    /// Pairs folded into it; one that comes back and is folded again counts again.
    pub pairs: u64,
    /// In seconds.
    pub last: u32,
}

impl FoldedTotals {
    pub(super) fn add(&mut self, more: Self) {
        self.totals += more.totals;
        self.pairs += more.pairs;
        self.last = self.last.max(more.last);
    }
}

/// The result of crediting growth to a conversation.
#[derive(Clone, Debug)]
pub(super) struct Credited {
    /// The conversation has a row of its own since now, or another verdict since its application is known.
    pub(super) is_new: bool,
    pub(super) judgement: Judgement,
    pub(super) counted: Totals,
}

impl Default for Pair {
    fn default() -> Self {
        Self {
            client: NONE,
            server: NONE,
            head: NONE,
            first: u32::MAX,
            last: 0,
            rows: 0,
            totals: Totals::ZERO,
        }
    }
}

impl Row {
    /// Whether it is the conversation of a record about this application.
    fn is_of(&self, record: &RoutedRecord, application: u16) -> bool {
        let key = (self.port, self.protocol, self.application);
        self.kind == Kind::Conversation && key == (record.port, record.protocol.0, application)
    }
}

impl Default for Row {
    fn default() -> Self {
        Self {
            next: NONE,
            first: u32::MAX,
            last: 0,
            port: 0,
            application: 0,
            rule: 0,
            protocol: 0,
            kind: Kind::Conversation,
            reporter: Reporter::Transit,
            verdict: Verdict::Unjudged,
            totals: Totals::ZERO,
        }
    }
}

impl Table {
    pub(super) fn new(seed: u64, most_rows: usize, most_rows_per_pair: u16) -> Self {
        // One pair alone must never be the one to make room for itself.
        let most_rows = most_rows.max(usize::from(most_rows_per_pair) + 2);
        Self {
            seed,
            ends: Slab::new(),
            end_index: HashTable::new(),
            pairs: Slab::new(),
            pair_index: HashTable::new(),
            rows: Slab::new(),
            applications: Interner::new(MOST_APPLICATIONS),
            rules: Interner::new(u16::MAX),
            folded: Map::new(),
            hand: 0,
            folded_rows: 0,
            folded_pairs: 0,
            most_rows,
            most_rows_per_pair,
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Adds `growth`, which came until `last`, to the conversation of `record`.
    pub(super) fn credit(
        &mut self,
        record: &RoutedRecord,
        growth: Totals,
        last: u32,
        judge: &dyn Judge,
    ) -> Credited {
        let pair = self.pair_of(&record.client, &record.server);
        let application =
            record.application.as_ref().map_or(0, |name| self.applications.number(name));
        let first = record.first.min(last);
        let mut found = self.find_row(pair, |row| row.is_of(record, application));
        // What it is may not have been known at first: the same conversation goes on under its name.
        let mut judged_anew = false;
        if found.is_none() && application != 0 {
            found = self.find_row(pair, |row| row.is_of(record, 0));
            if let Some(place) = found {
                self.rows.get_mut(place).application = application;
                self.judge_again(pair, place, judge, &mut |_, _, _, _| judged_anew = true);
            }
        }
        let Some(place) = found else {
            let judgement = judge.judge(&record.client, &record.server, record.service());
            let row = Row {
                next: NONE,
                first,
                last,
                port: record.port,
                application,
                rule: judgement.rule.as_ref().map_or(0, |rule| self.rules.number(rule)),
                protocol: record.protocol.0,
                kind: Kind::Conversation,
                reporter: record.reporter,
                verdict: judgement.verdict,
                totals: growth,
            };
            self.add_row(pair, row);
            return Credited { is_new: true, judgement, counted: growth };
        };
        let row = self.rows.get(place);
        let takes_over = row.reporter != record.reporter;
        if takes_over && last <= row.last {
            return Credited {
                is_new: false,
                judgement: Judgement::default(),
                counted: Totals::ZERO,
            };
        }
        let counted = if takes_over { Totals::ZERO } else { growth };
        let row = self.rows.get_mut(place);
        row.reporter = record.reporter;
        row.totals += counted;
        row.first = row.first.min(first);
        row.last = row.last.max(last);
        let (verdict, rule) = (row.verdict, row.rule);
        self.touch(pair, counted, first, last);
        // A rule's name is only needed for a violation.
        let rule = verdict.is_violation().then(|| self.rules.name(rule).cloned()).flatten();
        Credited { is_new: judged_anew, judgement: Judgement { verdict, rule }, counted }
    }

    /// Adds a row to a pair, with its totals, and makes room for it.
    fn add_row(&mut self, pair: u32, mut row: Row) {
        // The pair is about to be used: it is not the oldest of anything.
        self.touch(pair, row.totals, row.first, row.last);
        if self.pairs.get(pair).rows >= self.most_rows_per_pair {
            self.fold_oldest_row(pair);
        }
        while self.rows.len() >= self.most_rows && self.fold_some_pair(pair) {}
        row.next = self.pairs.get(pair).head;
        let place = self.rows.insert(row);
        let pair = self.pairs.get_mut(pair);
        pair.head = place;
        pair.rows += 1;
    }

    fn touch(&mut self, pair: u32, growth: Totals, first: u32, last: u32) {
        let pair = self.pairs.get_mut(pair);
        pair.totals += growth;
        pair.first = pair.first.min(first);
        pair.last = pair.last.max(last);
    }

    fn find_row(&self, pair: u32, is: impl Fn(&Row) -> bool) -> Option<u32> {
        self.chain(pair).find(|place| is(self.rows.get(*place)))
    }

    fn chain(&self, pair: u32) -> impl Iterator<Item = u32> {
        let present = |place: u32| (place != NONE).then_some(place);
        let head = present(self.pairs.get(pair).head);
        std::iter::successors(head, move |place| present(self.rows.get(*place).next))
    }

    /// Into the pair's `other` row. A pair without one turns the oldest into it.
    fn fold_oldest_row(&mut self, pair: u32) {
        let named = |place: &u32| self.rows.get(*place).kind == Kind::Conversation;
        let oldest = self.chain(pair).filter(named).min_by_key(|place| self.rows.get(*place).last);
        if let Some(oldest) = oldest {
            self.fold_row(pair, oldest);
        }
    }

    fn fold_row(&mut self, pair: u32, place: u32) {
        self.folded_rows += 1;
        let Some(other) = self.find_row(pair, |row| row.kind == Kind::Other) else {
            let row = self.rows.get_mut(place);
            let Row { next, first, last, totals, .. } = *row;
            *row = Row { next, first, last, totals, kind: Kind::Other, ..Row::default() };
            return;
        };
        let before = self.chain(pair).find(|other| self.rows.get(*other).next == place);
        let row = self.rows.remove(place);
        match before {
            Some(before) => self.rows.get_mut(before).next = row.next,
            None => self.pairs.get_mut(pair).head = row.next,
        }
        self.pairs.get_mut(pair).rows -= 1;
        let other = self.rows.get_mut(other);
        other.totals += row.totals;
        other.first = other.first.min(row.first);
        other.last = other.last.max(row.last);
    }

    /// The oldest of some that the hand passes, but not `spared`.
    fn fold_some_pair(&mut self, spared: u32) -> bool {
        let mut oldest: Option<(u32, u32)> = None;
        let mut seen = 0;
        for _ in 0..self.pairs.end() {
            let place = self.next_place();
            let pair = self.pairs.get(place);
            if pair.client == NONE || place == spared {
                continue;
            }
            oldest = Some(oldest.map_or((pair.last, place), |it| it.min((pair.last, place))));
            seen += 1;
            if seen == CANDIDATES {
                break;
            }
        }
        let Some((_, pair)) = oldest else { return false };
        self.fold_pair(pair);
        true
    }

    fn next_place(&mut self) -> u32 {
        let place = if self.hand < self.pairs.end() { self.hand } else { 0 };
        self.hand = place + 1;
        place
    }

    fn fold_pair(&mut self, place: u32) {
        let chain: Vec<_> = self.chain(place).collect();
        for row in chain {
            self.rows.remove(row);
        }
        let pair = *self.pairs.get(place);
        let hash = pair_hash(pair.client, pair.server);
        if let Ok(found) = self.pair_index.find_entry(hash, |other| *other == place) {
            found.remove();
        }
        self.pairs.remove(place);
        let realm = |place: &EndSlot| -> Arc<str> {
            place.end.as_ref().map_or("", |end| end.endpoint.realm()).into()
        };
        let realms = (realm(self.ends.get(pair.client)), realm(self.ends.get(pair.server)));
        self.release(pair.client);
        self.release(pair.server);
        self.add_folded(realms, FoldedTotals { totals: pair.totals, pairs: 1, last: pair.last });
        self.folded_pairs += 1;
    }

    pub(super) fn add_folded(&mut self, realms: Realms, more: FoldedTotals) {
        let full = self.folded.len() >= MOST_FOLDED && !self.folded.contains_key(&realms);
        let realms = if full { (Arc::from(""), Arc::from("")) } else { realms };
        self.folded.entry(realms).or_default().add(more);
    }

    fn pair_of(&mut self, client: &End, server: &End) -> u32 {
        let (client, server) = (self.end_of(client), self.end_of(server));
        let hash = pair_hash(client, server);
        let same = |place: &u32| {
            let pair = self.pairs.get(*place);
            pair.client == client && pair.server == server
        };
        if let Some(place) = self.pair_index.find(hash, same) {
            return *place;
        }
        let place = self.pairs.insert(Pair { client, server, ..Pair::default() });
        self.pair_index.insert_unique(hash, place, |place| {
            let pair = self.pairs.get(*place);
            pair_hash(pair.client, pair.server)
        });
        self.ends.get_mut(client).pairs += 1;
        self.ends.get_mut(server).pairs += 1;
        place
    }

    fn end_of(&mut self, end: &End) -> u32 {
        let hash = end_hash(self.seed, end);
        let same = |place: &u32| {
            self.ends.get(*place).end.as_ref().is_some_and(|other| {
                other.address == end.address
                    && (Arc::ptr_eq(&other.endpoint, &end.endpoint)
                        || other.endpoint == end.endpoint)
            })
        };
        if let Some(place) = self.end_index.find(hash, same).copied() {
            let known = self.ends.get(place).end.as_ref();
            if known.is_some_and(|known| !Arc::ptr_eq(&known.endpoint, &end.endpoint)) {
                // Next time, pointers are compared; and the old one goes.
                self.ends.get_mut(place).end = Some(end.clone());
            }
            return place;
        }
        let place = self.ends.insert(EndSlot { end: Some(end.clone()), pairs: 0 });
        self.end_index.insert_unique(hash, place, |place| {
            self.ends.get(*place).end.as_ref().map_or(0, |end| end_hash(self.seed, end))
        });
        place
    }

    fn release(&mut self, place: u32) {
        let slot = self.ends.get_mut(place);
        slot.pairs -= 1;
        if slot.pairs > 0 {
            return;
        }
        let hash = slot.end.as_ref().map_or(0, |end| end_hash(self.seed, end));
        if let Ok(found) = self.end_index.find_entry(hash, |other| *other == place) {
            found.remove();
        }
        self.ends.remove(place);
    }

    /// Looks at `count` places: folds what was last seen before `stale`, judges the rest again.
    /// `noticed` hears of each conversation whose verdict became another.
    pub(super) fn age(
        &mut self,
        count: usize,
        stale: u32,
        judge: &dyn Judge,
        mut noticed: impl FnMut(&End, &End, Service<'_>, &Judgement),
    ) {
        for _ in 0..count.min(self.pairs.end() as usize) {
            let place = self.next_place();
            let pair = self.pairs.get(place);
            if pair.client == NONE {
                continue;
            }
            if pair.last < stale {
                self.fold_pair(place);
                continue;
            }
            let chain: Vec<_> = self.chain(place).collect();
            for row in chain {
                if self.rows.get(row).kind == Kind::Other {
                    continue;
                }
                if self.rows.get(row).last < stale {
                    self.fold_row(place, row);
                } else {
                    self.judge_again(place, row, judge, &mut noticed);
                }
            }
        }
    }

    fn judge_again(
        &mut self,
        pair: u32,
        place: u32,
        judge: &dyn Judge,
        noticed: &mut impl FnMut(&End, &End, Service<'_>, &Judgement),
    ) {
        let (pair, row) = (self.pairs.get(pair), self.rows.get(place));
        let (client, server) = (self.ends.get(pair.client), self.ends.get(pair.server));
        let (Some(client), Some(server)) = (&client.end, &server.end) else { return };
        let service = Service {
            protocol: Protocol(row.protocol),
            port: row.port,
            application: self.applications.name(row.application).map(|name| &**name),
        };
        let judgement = judge.judge(client, server, service);
        let rule = judgement.rule.as_ref().map_or(0, |rule| self.rules.number(rule));
        if (judgement.verdict, rule) == (row.verdict, row.rule) {
            return;
        }
        if judgement.verdict != row.verdict {
            noticed(client, server, service, &judgement);
        }
        let row = self.rows.get_mut(place);
        (row.verdict, row.rule) = (judgement.verdict, rule);
    }

    /// A row of a checkpoint.
    pub(super) fn restore_row(
        &mut self,
        client: &End,
        server: &End,
        application: Option<&Arc<str>>,
        rule: Option<&Arc<str>>,
        row: Row,
    ) {
        let pair = self.pair_of(client, server);
        let application = application.map_or(0, |name| self.applications.number(name));
        let rule = rule.map_or(0, |name| self.rules.number(name));
        self.add_row(pair, Row { application, rule, ..row });
    }

    pub(super) fn freeze(&self) -> FrozenTable {
        FrozenTable {
            ends: self.ends.freeze(),
            pairs: self.pairs.freeze(),
            rows: self.rows.freeze(),
            applications: self.applications.freeze(),
            rules: self.rules.freeze(),
            folded: self.folded.clone(),
        }
    }

    /// Bytes allocated, but for what the names take.
    pub(super) fn footprint(&self) -> usize {
        self.ends.footprint()
            + self.end_index.allocation_size()
            + self.pairs.footprint()
            + self.pair_index.allocation_size()
            + self.rows.footprint()
    }
}

/// What a reader has of a shard.
#[derive(Debug, Default)]
pub(super) struct FrozenTable {
    pub(super) ends: Frozen<EndSlot>,
    pub(super) pairs: Frozen<Pair>,
    pub(super) rows: Frozen<Row>,
    pub(super) applications: Arc<Vec<Arc<str>>>,
    pub(super) rules: Arc<Vec<Arc<str>>>,
    pub(super) folded: Map<Realms, FoldedTotals>,
}

fn pair_hash(client: u32, server: u32) -> u64 {
    scramble(u64::from(client) << 32 | u64::from(server))
}

fn end_hash(seed: u64, end: &End) -> u64 {
    let address = match end.address {
        std::net::IpAddr::V4(v4) => u64::from(v4.to_bits()),
        std::net::IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            scramble(seed ^ bits as u64) ^ (bits >> 64) as u64
        }
    };
    // Whose it is makes no difference here: an address has few holders at a time.
    scramble(seed ^ address)
}

fn scramble(word: u64) -> u64 {
    let product = u128::from(word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests;
