//! `Shard`: the part of the conversations that one owner writes.
//!
//! Contract:
//! - Everything takes `&mut self`: there is no lock, and a shard that is held up holds up nobody but
//!   itself. Readers have what was last published.
//! - Applying a report is idempotent. If there was no room for all of it, it says so: the report must
//!   not be acknowledged, and may come again whole.
//! - A wall clock that jumps, the controller's or an agent's, makes nothing forgotten or folded that
//!   would not have been. What is old is said only by a clock that has gone on without a jump for a
//!   24th of the time that makes it so: an hour of a day.
//! - `publish` costs a pointer for each span of chunks of the table, and nothing if nothing changed; what
//!   changes after it costs a copy of its chunk, once. `age` costs the `places` it is given.

use std::sync::Arc;
use std::time::Duration;

use stallproof::Snapshot;

use super::judge::{Judge, Judgement, NoRules, Service, Verdict};
use super::router::{Router, ShardReport};
use super::steady_clock::SteadyClock;
use super::table::Table;
use super::view::{Readers, ShardView};
use super::watermarks::{Advance, Loaded, WatermarkLimits, Watermarks};
use super::{Conversation, End, Moment, Totals};

/// Of all shards together; each has its part.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Conversations kept by themselves.
    pub rows: usize,
    /// Of one client and one server.
    pub rows_per_pair: u16,
    /// Running totals of agents that are remembered. Past it, reports are refused.
    pub totals: usize,
    /// No agent takes more of them.
    pub totals_per_agent: usize,
    /// An agent lets no total grow that was idle for so long.
    pub idle: Duration,
    /// A conversation that was not seen for so long is folded.
    pub age: Duration,
}

impl Default for Limits {
    /// A million conversations in some 140 MB.
    fn default() -> Self {
        Self {
            rows: 1 << 20,
            rows_per_pair: 32,
            totals: 1 << 21,
            totals_per_agent: 1 << 17,
            idle: Duration::from_secs(10 * 60),
            age: Duration::from_secs(24 * 60 * 60),
        }
    }
}

#[derive(Debug)]
pub struct Shard {
    router: Router,
    number: usize,
    limits: Limits,
    clock: SteadyClock,
    watermarks: Watermarks,
    pub(super) table: Table,
    judge: Arc<dyn Judge>,
    published: Snapshot<Arc<ShardView>>,
    /// Since the last publish.
    changed: bool,
    counters: Counters,
}

/// Since the shard was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records that brought something.
    pub counted: u64,
    /// Records that brought nothing: sent again, or late.
    pub repeated: u64,
    /// Records there was no room for; their agents keep them.
    pub refused: u64,
    /// Reports of an incarnation that is over.
    pub outdated: u64,
    pub folded_rows: u64,
    pub folded_pairs: u64,
}

/// The result of counting a report, or of ageing.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// Records there was no room for: do not acknowledge, say when to come back.
    pub refused: usize,
    /// The agent has begun again since, as this incarnation: nothing of the report was counted, and
    /// nothing will be.
    pub outdated: Option<u64>,
    /// Conversations that were seen for the first time, or are judged anew: the rules learn from them.
    pub discovered: Vec<Conversation>,
    /// Conversations against the rules, with what came since the last time.
    pub violations: Vec<Conversation>,
}

/// The shards, each to be given to one owner, and where all of them are read.
pub fn shards(router: Router, limits: Limits) -> (Vec<Shard>, Readers) {
    let shards: Vec<_> = (0..router.shards()).map(|i| Shard::new(router, i, limits)).collect();
    let readers = shards.iter().map(|shard| shard.published.clone()).collect();
    (shards, readers)
}

impl Shard {
    fn new(router: Router, number: usize, limits: Limits) -> Self {
        let rows = limits.rows.div_ceil(router.shards());
        Self {
            router,
            number,
            limits,
            clock: SteadyClock::default(),
            watermarks: Watermarks::default(),
            table: Table::new(router.seed()[0], rows, limits.rows_per_pair),
            judge: Arc::new(NoRules),
            published: Snapshot::new(Arc::default()),
            changed: true,
            counters: Counters::default(),
        }
    }

    /// The rules from now on. What was judged is judged again as `age` comes by.
    pub fn govern(&mut self, judge: Arc<dyn Judge>) {
        self.judge = judge;
    }

    /// Counts a report's part.
    pub fn apply(&mut self, report: &ShardReport, now: Moment) -> Applied {
        let mut applied = Applied::default();
        self.changed = true;
        let (limits, lived) = (self.watermark_limits(), self.clock.advance(now));
        // Who tells of something now saw it within the time that agents keep things for. One whose
        // clock says otherwise must not have it folded at once.
        let earliest = if self.believes() { now.before(self.limits.age / 2) } else { Moment(0) };
        let mut marks = match self.watermarks.open(&report.agent, report.incarnation, lived, limits)
        {
            Ok(marks) => marks,
            Err(known) => {
                self.counters.outdated += 1;
                applied.outdated = Some(known);
                return applied;
            }
        };
        for record in &report.records {
            let growth = match marks.advance(record.print, record.totals) {
                Advance::Grown(growth) => growth,
                Advance::Nothing => {
                    self.counters.repeated += 1;
                    continue;
                }
                Advance::NoRoom => {
                    applied.refused += 1;
                    self.counters.refused += 1;
                    continue;
                }
            };
            self.counters.counted += 1;
            // A clock that is ahead must not keep a conversation from growing old.
            let last = record.last.max(earliest.seconds()).min(now.seconds());
            if let Some(rule) = &record.stopped_by {
                let (at, first) = (Moment::from_seconds(last), record.first.min(last));
                applied.violations.push(Conversation {
                    client: record.client.clone(),
                    server: record.server.clone(),
                    protocol: record.protocol,
                    port: record.port,
                    application: None,
                    verdict: Verdict::Stopped,
                    rule: (!rule.is_empty()).then(|| Arc::clone(rule)),
                    totals: growth,
                    first: Moment::from_seconds(first),
                    last: at,
                });
                continue;
            }
            let credited = self.table.credit(record, growth, last, &*self.judge);
            applied.notice(
                Moment::from_seconds(last),
                (&record.client, &record.server),
                record.service(),
                &credited.judgement,
                credited.counted,
                credited.is_new,
            );
        }
        applied
    }

    /// Looks at the next `places` of the table: folds what is too old, judges the rest again.
    pub fn age(&mut self, now: Moment, places: usize) -> Applied {
        let mut applied = Applied::default();
        self.changed |= places > 0;
        let lived = self.clock.advance(now);
        let stale = if self.believes() { now.before(self.limits.age) } else { Moment(0) };
        self.table.age(
            places,
            stale.seconds(),
            &*self.judge,
            |client, server, service, judgement| {
                applied.notice(now, (client, server), service, judgement, Totals::ZERO, true);
            },
        );
        self.watermarks.forget_away(lived);
        applied
    }

    /// The node is gone, and its agent with it.
    pub fn forget_agent(&mut self, agent: &str) {
        self.watermarks.forget(agent);
    }

    /// For the readers, from now on.
    pub fn publish(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let view = Arc::new(ShardView { table: self.table.freeze(), counters: self.counters() });
        self.published.update(|published| {
            *published = view;
            true
        });
    }

    pub fn counters(&self) -> Counters {
        let Table { folded_rows, folded_pairs, .. } = self.table;
        Counters { folded_rows, folded_pairs, ..self.counters }
    }

    /// Conversations kept by themselves, with those that hold what was folded of a pair.
    pub fn rows(&self) -> usize {
        self.table.rows()
    }

    pub fn pairs(&self) -> usize {
        self.table.pairs()
    }

    /// Running totals remembered.
    pub fn totals(&self) -> usize {
        self.watermarks.len()
    }

    /// Bytes allocated, but for names.
    pub fn footprint(&self) -> usize {
        self.watermarks.footprint() + self.table.footprint()
    }

    pub(super) fn watermarks(&self) -> &Watermarks {
        &self.watermarks
    }

    /// An agent's marks of a checkpoint, those that are `mine`.
    pub(super) fn restore_watermarks(&mut self, loaded: &Loaded, mine: impl Fn(u64) -> bool) {
        self.clock.resume(loaded.heard);
        self.watermarks.restore(loaded, mine);
    }

    /// Whether the clock may say what is old.
    fn believes(&self) -> bool {
        self.clock.steady_for() >= self.limits.age / 24
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    fn watermark_limits(&self) -> WatermarkLimits {
        let shards = self.router.shards();
        WatermarkLimits {
            most: self.limits.totals.div_ceil(shards),
            most_per_agent: self.limits.totals_per_agent.div_ceil(shards),
            idle: self.limits.idle,
        }
    }
}

impl Applied {
    /// Keeps a conversation that the learner is to hear of.
    fn notice(
        &mut self,
        at: Moment,
        (client, server): (&End, &End),
        service: Service<'_>,
        judgement: &Judgement,
        totals: Totals,
        is_new: bool,
    ) {
        let list = match judgement.verdict {
            Verdict::Discovered if is_new => &mut self.discovered,
            verdict if verdict.is_violation() && (is_new || totals.sessions > 0) => {
                &mut self.violations
            }
            _ => return,
        };
        list.push(Conversation {
            client: client.clone(),
            server: server.clone(),
            protocol: service.protocol,
            port: service.port,
            application: service.application.map(Arc::from),
            verdict: judgement.verdict,
            rule: judgement.rule.clone(),
            totals,
            first: at,
            last: at,
        });
    }
}

#[cfg(test)]
mod tests;
