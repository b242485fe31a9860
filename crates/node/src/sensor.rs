//! `Sensor`: adds up a node's connections to running totals, and keeps them until a controller has them.
//!
//! ```text
//! Flow (listed, or at its end) ──► growth since it was last seen ──► total of its conversation
//!                                                                        │
//!                            controller ◄── Report, one at a time ◄──────┘ those that changed
//! ```
//!
//! Contract:
//! - Nothing is counted twice: a connection brings what it has carried since it was last seen. Where
//!   nothing is lost, everything is counted once: connections are followed while they are listed, and
//!   bring the rest at their end. One for which there is no room is counted whole at its end.
//! - What connections carried before the sensor's incarnation began is not counted: an earlier one
//!   may have.
//! - Totals keep the contract of [`Report`]s. One report is under way at a time, and is the same
//!   however often it is sent. Saved before each is sent, a sensor goes on where it was after a
//!   `kill -9`, in the same incarnation. Where the kernel's table did not survive, totals end with what was
//!   saved of them.
//! - What has ended is kept for a day, so that a controller that has never led is told it too. Each
//!   controller is told once: what it has on disk is not told again, under whichever incarnation.
//! - What a conversation carries from the moment on at which its application is known, or another one, is a total
//!   of its own, unless no controller was told of the one before.
//! - Bounded. Past the bounds, what a controller has on disk is forgotten first; what is dropped after
//!   that is counted, and what is against the rules is dropped last.
//!
//! No I/O, no clock: the time is passed in, and may be set back without harm.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use controllers::{Controllers, Holders};
use denied::Denied;
use flow::{FlowCounters, is_somebody};
use named::NamedConversations;
use total::RunningTotal;
use traffic::conversations::{self, AWAY, Dropped, Moment, Report, Totals};

mod controllers;
mod denied;
mod flow;
mod named;
mod room;
mod rules;
mod saved;
mod total;

#[cfg(feature = "fuzzing")]
pub(crate) use saved::fuzz;

pub use flow::{ConversationKey, Flow, FlowId};
pub use rules::Rules;

/// More reports than are sent while a file that was written waits for the disk.
const UNSAVED_REPORTS: u64 = 1 << 16;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Totals that are kept.
    pub totals: usize,
    /// Connections that are followed while they last.
    pub flows: usize,
    /// Records of a report.
    pub records: usize,
    /// Conversations whose application is known.
    pub named: usize,
    /// A total that was idle for so long grows no more.
    pub idle: Duration,
    /// Totals that grow no more and that the controller has, kept for other controllers.
    pub ended: usize,
}

impl Default for Limits {
    /// At worst some 13 MB of totals, 25 MB of connections and 4 MB of applications.
    fn default() -> Self {
        let idle = conversations::Limits::default().idle;
        let (totals, flows, records) = (1 << 16, 1 << 18, 1 << 12);
        // What has ended is one report more for a controller that begins to lead.
        Self { totals, flows, records, named: 1 << 15, idle, ended: records }
    }
}

#[derive(Debug)]
pub struct Sensor {
    agent: Arc<str>,
    limits: Limits,
    incarnation: u64,
    /// When the incarnation began.
    since: Moment,
    /// The latest that was passed in.
    now: Moment,
    /// Addresses that are this node's; none: all are of interest.
    scope: Option<Vec<IpNet>>,
    rules: Option<Arc<Rules>>,
    flows: HashMap<FlowId, FlowCounters>,
    /// Counts listings.
    listing: u32,
    /// There was a whole listing in this incarnation.
    settled: bool,
    totals: HashMap<ConversationKey, RunningTotal>,
    /// Those that grow no more.
    past: Vec<(ConversationKey, RunningTotal)>,
    /// What rules of policies stopped.
    denied: Denied,
    /// What first bytes told.
    named: NamedConversations,
    /// Of the last report.
    sequence: u64,
    outstanding: Option<Arc<Report>>,
    controllers: Controllers,
    /// Reports up to this one are on the disk of the controller that was joined.
    durable: u64,
    /// It goes on after the machine was started anew, and has not told everything since: what was saved may not be
    /// the last.
    is_unconfirmed: bool,
    /// When a controller last said something.
    heard: Moment,
    /// Looking for room is of no use before.
    full_until: Moment,
    dropped: Dropped,
    /// What was in the totals that were dropped.
    lost: Totals,
    unfollowed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub flows: usize,
    pub totals: usize,
    pub dropped: Dropped,
    /// What was in the totals that were dropped.
    pub lost: Totals,
    /// Times that there was no room to follow a connection; it is counted at its end.
    pub unfollowed: u64,
    /// Conversations whose application is known.
    pub named: usize,
    /// Those that made room for others, and are known by their ports.
    pub unnamed: u64,
}

impl Sensor {
    fn new(agent: Arc<str>, incarnation: u64, limits: Limits, now: Moment) -> Self {
        Self {
            agent,
            limits,
            incarnation,
            since: now,
            now,
            scope: None,
            rules: None,
            flows: HashMap::new(),
            listing: 0,
            settled: false,
            totals: HashMap::new(),
            past: Vec::new(),
            denied: Denied::default(),
            named: NamedConversations::default(),
            sequence: 0,
            outstanding: None,
            controllers: Controllers::default(),
            durable: 0,
            is_unconfirmed: false,
            heard: now,
            full_until: Moment::default(),
            dropped: Dropped::default(),
            lost: Totals::ZERO,
            unfollowed: 0,
        }
    }

    /// Counts connections whole that are there already: no other sensor has seen them.
    pub fn count_whole(&mut self) {
        self.settled = true;
    }

    /// Of conversations that begin from now on, only those with an end in one of `networks`.
    pub fn set_scope(&mut self, networks: Option<Vec<IpNet>>) {
        self.scope = networks;
    }

    pub fn set_rules(&mut self, rules: Arc<Rules>) {
        let past = self.past.iter_mut().map(|(key, total)| (&*key, total));
        for (key, total) in self.totals.iter_mut().chain(past) {
            total.alarming = rules.violates(key);
        }
        self.rules = Some(rules);
    }

    /// A connection as it is listed, or at its end.
    pub fn observe(&mut self, flow: &Flow, now: Moment) {
        self.now = self.now.max(now);
        let Flow { id, bytes, packets, ended } = flow;
        let seen = FlowCounters { bytes: *bytes, packets: *packets, listing: self.listing };
        let growth = if let Some(known) = self.flows.get_mut(id) {
            let before = std::mem::replace(known, seen);
            if *ended {
                self.flows.remove(id);
            }
            seen.since(before)
        } else {
            if !self.concerns(id.client, id.server) {
                return;
            }
            if !ended {
                if self.flows.len() >= self.limits.flows {
                    self.unfollowed += 1;
                    return;
                }
                self.flows.insert(*id, seen);
            }
            if id.begun.map_or(!self.settled, |begun| begun < self.since) {
                return;
            }
            Totals { bytes: *bytes, packets: *packets, sessions: 1 }
        };
        if !growth.is_zero() {
            self.grow(id.conversation(), growth);
        }
    }

    /// A rule stopped packets of a client to a server; `rule` names it in words.
    pub fn denied(&mut self, key: ConversationKey, rule: &Arc<str>, packets: u64, now: Moment) {
        self.now = self.now.max(now);
        if !self.denied.add(key, rule, packets, self.now, self.limits.idle) {
            self.dropped.totals += 1;
            self.dropped.violations += 1;
        }
    }

    /// The first bytes of a connection told which application its conversation is of, or that nobody knows them.
    pub fn name(&mut self, key: ConversationKey, application: Option<&'static str>, now: Moment) {
        self.now = self.now.max(now);
        if !self.concerns(key.client, key.server) {
            return;
        }
        self.named.tell(key, application, self.now, self.limits.named);
        // One that ended before this was heard grows no more.
        if let Some(total) = self.totals.get_mut(&key).filter(|total| total.sent == 0) {
            total.application = application;
        }
    }

    /// First bytes are not looked at any more: what they told is forgotten.
    pub fn forget_names(&mut self) {
        self.named = NamedConversations::default();
    }

    /// The kernel had told more ends of connections than were read.
    pub fn overrun(&mut self) {
        self.dropped.overruns += 1;
    }

    /// All connections have been observed: those that were not, in this listing and the one before,
    /// have ended unheard. (The kernel may miss one in a listing while its table is resized.)
    pub fn listed(&mut self) {
        let this = self.listing;
        self.flows.retain(|_, known| this.wrapping_sub(known.listing) < 2);
        self.listing = this.wrapping_add(1);
        self.settled = true;
    }

    /// The incarnation to join a controller with: a new one for who heard of none for [`AWAY`].
    pub fn joining(&mut self, now: Moment) -> u64 {
        self.now = self.now.max(now);
        if self.now.since(self.heard) >= AWAY {
            self.begin_again(0);
        }
        self.incarnation
    }

    /// A controller knows of the incarnation `known`, which began later, or that this one is over.
    /// The next is greater than both, whatever the clock says.
    pub fn outdated(&mut self, known: u64, now: Moment) {
        self.now = self.now.max(now);
        self.begin_again(known);
    }

    /// A controller has taken this agent in. It is told the whole table if it is one that knows
    /// nothing of it, else what it may have lost.
    pub fn joined(&mut self, epoch: u64, now: Moment) {
        self.now = self.now.max(now);
        self.heard = self.now;
        let joined = self.controllers.join(epoch, self.now);
        let place = Some(joined.place);
        let durable = self.durable;
        if joined.is_another {
            self.durable = 0;
            // It has what this one may have on disk already.
            self.empty_outstanding();
        }
        let past = self.past.iter_mut().map(|(_, total)| total);
        for total in self.totals.values_mut().chain(past) {
            if joined.has_replaced {
                total.told_to.remove(joined.place);
                total.kept_by.remove(joined.place);
            }
            if total.is_on_disk(durable) {
                total.kept_by.add(joined.left);
            }
            let is_lacking = !total.kept_by.has(place);
            // What was to be told to another one need not be told to this one.
            total.changed = match joined.is_another {
                true => is_lacking || total.totals != total.told,
                false => total.changed || is_lacking && total.sent > durable,
            };
        }
        self.denied.lost_after(self.durable);
    }

    /// The report that is under way: to be sent until it is [counted](Self::counted).
    pub fn outstanding(&self) -> Option<&Arc<Report>> {
        self.outstanding.as_ref()
    }

    /// The number of the report that is under way is sent without what it held.
    fn empty_outstanding(&mut self) {
        let Some(report) = &mut self.outstanding else { return };
        let Report { incarnation, sequence, dropped, .. } = **report;
        let agent = Arc::clone(&self.agent);
        *report = Arc::new(Report { agent, incarnation, sequence, dropped, ..Report::default() });
    }

    /// The next report, if none is under way and there is something to tell, or if it is to be sent
    /// `anyway`. Save before sending it.
    pub fn report(&mut self, anyway: bool, now: Moment) -> Option<Arc<Report>> {
        self.now = self.now.max(now);
        if self.outstanding.is_some() {
            return None;
        }
        self.forget();
        let sequence = self.sequence + 1;
        let (most, idle, now) = (self.limits.records, self.limits.idle, self.now);
        let controller = self.controllers.current();
        let past = self.past.iter_mut().map(|(key, total)| (&*key, total));
        let mut changed: Vec<_> =
            self.totals.iter_mut().chain(past).filter(|(_, total)| total.changed).collect();
        if changed.is_empty() && !self.denied.has_news() && !anyway {
            return None;
        }
        if changed.len() > most {
            // Who has waited longest comes first, and what has ended long ago last.
            let order = |total: &RunningTotal| {
                (!total.alarming, now.since(total.last) >= idle, total.sent, total.first)
            };
            changed.select_nth_unstable_by_key(most, |(_, total)| order(total));
            changed.truncate(most);
        }
        let records = changed.into_iter().map(|(key, total)| {
            total.changed = false;
            total.sent = sequence;
            total.told = total.totals;
            total.told_to.add(controller);
            total.record(key)
        });
        let records = records.collect();
        self.sequence = sequence;
        let (agent, incarnation) = (Arc::clone(&self.agent), self.incarnation);
        let (dropped, workloads) = (self.dropped, None);
        let denied = self.denied.tell(sequence);
        // Who sends it adds what is told beside: pods, and what names resolved to.
        let names = None;
        let report =
            Report { agent, incarnation, sequence, records, denied, dropped, workloads, names };
        let report = Arc::new(report);
        self.outstanding = Some(Arc::clone(&report));
        Some(report)
    }

    /// A controller has counted a report, and has those up to `durable` on disk. Says whether there
    /// is more to tell than one report could hold.
    pub fn counted(&mut self, sequence: u64, durable: u64, now: Moment) -> bool {
        self.now = self.now.max(now);
        self.heard = self.now;
        let Some(report) = self.outstanding.take_if(|report| report.sequence == sequence) else {
            return false;
        };
        self.durable = self.durable.max(durable.min(sequence));
        if self.is_unconfirmed {
            let controller = self.controllers.current();
            let past = self.past.iter().map(|(_, total)| total);
            let is_untold =
                |it: &RunningTotal| !it.told_to.has(controller) && !it.kept_by.has(controller);
            self.is_unconfirmed = self.totals.values().chain(past).any(is_untold);
        }
        report.records.len() >= self.limits.records
    }

    pub fn counters(&self) -> Counters {
        Counters {
            flows: self.flows.len(),
            totals: self.totals.len() + self.past.len(),
            dropped: self.dropped,
            lost: self.lost,
            unfollowed: self.unfollowed,
            named: self.named.known.len(),
            unnamed: self.named.forgotten,
        }
    }

    fn grow(&mut self, key: ConversationKey, growth: Totals) {
        let (now, idle) = (self.now, self.limits.idle);
        let application = self.named.of(&key, now);
        if let Some(total) = self.totals.get_mut(&key) {
            let is_same = total.application == application || total.sent == 0;
            if is_same && now.since(total.last) < idle {
                total.application = application;
                total.totals += growth;
                total.last = now;
                total.changed = true;
                total.kept_by = Holders::default();
                return;
            }
            let over = *total;
            self.totals.remove(&key);
            self.past.push((key, over));
        }
        let alarming = self.rules.as_ref().is_some_and(|rules| rules.violates(&key));
        if self.totals.len() + self.past.len() >= self.limits.totals && !self.make_room(alarming) {
            self.drop_growth(growth, alarming);
            return;
        }
        let total = RunningTotal {
            totals: growth,
            first: now,
            last: now,
            told: Totals::ZERO,
            sent: 0,
            changed: true,
            told_to: Holders::default(),
            kept_by: Holders::default(),
            alarming,
            application,
        };
        self.totals.insert(key, total);
    }

    /// Connections are followed on, and totals begin at zero: those that controllers were told of end with
    /// what they were told.
    fn begin_again(&mut self, known: u64) {
        let mut rest = Vec::new();
        let (mut totals, mut past) =
            (std::mem::take(&mut self.totals), std::mem::take(&mut self.past));
        if std::mem::take(&mut self.is_unconfirmed) {
            // Who knows of a later incarnation may have been told all of it in that one.
            let gone = totals.drain().map(|(_, total)| total);
            gone.chain(past.drain(..).map(|(_, total)| total)).for_each(|it| self.drop_total(&it));
        }
        for (key, total) in totals {
            if total.is_untold() {
                self.totals.insert(key, total);
            } else {
                rest.extend(self.end(key, total));
            }
        }
        for (key, total) in past {
            if total.is_untold() {
                self.past.push((key, total));
            } else {
                rest.extend(self.end(key, total));
            }
        }
        self.denied = Denied::default();
        self.incarnation = self.now.0.max(self.incarnation.max(known).saturating_add(1));
        self.outstanding = None;
        self.controllers.leave();
        self.heard = self.now;
        (self.sequence, self.durable) = (0, 0);
        for (key, growth) in rest {
            self.grow(key, growth);
        }
    }

    /// Ends a total with what controllers were told of it; says what they were not told. What those have
    /// of it that were told something cannot be asked, so they are told nothing more.
    fn end(
        &mut self,
        key: ConversationKey,
        mut total: RunningTotal,
    ) -> Option<(ConversationKey, Totals)> {
        // The next beginning of its key must lie in another second.
        if total.first.seconds() >= self.now.seconds() {
            self.drop_total(&total);
            return None;
        }
        let growth = total.totals.growth(total.told);
        total.kept_by.add_all(total.told_to);
        (total.totals, total.sent, total.changed) = (total.told, 0, false);
        self.past.push((key, total));
        (!growth.is_zero()).then_some((key, growth))
    }

    /// The kernel has another table since the sensor was saved, whose connections are counted from `now`
    /// on. What was saved last may not have reached the disk: totals that went on would be behind what
    /// controllers know, as would the numbers of reports.
    fn follow_new_table(&mut self, now: Moment) {
        self.is_unconfirmed = true;
        self.flows.clear();
        self.named = NamedConversations::default();
        (self.settled, self.since) = (false, now);
        let second = self.now.seconds();
        self.past.extend(self.totals.extract_if(|_, total| total.first.seconds() < second));
        // All of it may have been told in reports that the file does not know.
        let controller = self.controllers.current();
        let past = self.past.iter_mut().map(|(_, total)| total);
        for total in self.totals.values_mut().chain(past).filter(|_| controller.is_some()) {
            total.told = total.totals;
            total.told_to.add(controller);
        }
        self.sequence = self.sequence.saturating_add(UNSAVED_REPORTS);
    }

    /// Whether a conversation is one between ends that can be told apart, and one of them is ours.
    fn concerns(&self, client: IpAddr, server: IpAddr) -> bool {
        let ends = [client, server];
        let ours = |scope: &Vec<IpNet>| {
            scope.iter().any(|network| ends.iter().any(|end| network.contains(end)))
        };
        ends.iter().all(is_somebody) && self.scope.as_ref().is_none_or(ours)
    }
}

#[cfg(test)]
mod tests;
