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
//!   `kill -9`, in the same incarnation; one that the kernel's table did not survive begins anew.
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

use denied::Denied;
use named::NamedConversations;
use traffic::conversations::{self, AWAY, Dropped, Moment, Protocol, Record, Report, Totals};

mod denied;
mod named;
mod rules;
mod saved;

#[cfg(feature = "fuzzing")]
pub(crate) use saved::fuzz;

pub use rules::Rules;

/// Below are ports that only servers have; from `EPHEMERAL` on, those that systems give to clients.
const WELL_KNOWN: u16 = 1024;
const EPHEMERAL: u16 = 32_768;
/// When there is no room, this part of all totals is forgotten together.
const PART: usize = 16;

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
}

impl Default for Limits {
    /// At worst some 13 MB of totals, 25 MB of connections and 4 MB of applications.
    fn default() -> Self {
        let idle = conversations::Limits::default().idle;
        Self { totals: 1 << 16, flows: 1 << 18, records: 1 << 12, named: 1 << 15, idle }
    }
}

/// A connection, and what it has carried so far, both ways together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub id: FlowId,
    pub bytes: u64,
    pub packets: u64,
    /// Whether the connection has ended.
    pub ended: bool,
}

/// Identifies a connection. Addresses and ports alone do not: they may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId {
    /// The kernel's number of the connection.
    pub number: u32,
    pub zone: u16,
    pub protocol: Protocol,
    pub client: IpAddr,
    pub client_port: u16,
    /// The address that really serves, behind address translation.
    pub server: IpAddr,
    pub port: u16,
    /// When the connection began, if the kernel knows.
    pub begun: Option<Moment>,
}

/// Identifies a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConversationKey {
    pub client: IpAddr,
    pub server: IpAddr,
    pub port: u16,
    pub protocol: Protocol,
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
    /// Those that grow no more, and that no controller has on disk.
    past: Vec<(ConversationKey, RunningTotal)>,
    /// What rules of policies stopped.
    denied: Denied,
    /// What first bytes told.
    named: NamedConversations,
    /// Of the last report.
    sequence: u64,
    outstanding: Option<Arc<Report>>,
    epoch: Option<u64>,
    /// Reports up to this one are on a controller's disk.
    durable: u64,
    /// When a controller last said something.
    heard: Moment,
    /// Looking for room is of no use before.
    full_until: Moment,
    dropped: Dropped,
    /// What was in the totals that were dropped.
    lost: Totals,
    unfollowed: u64,
}

/// What a connection had carried when it was last seen.
#[derive(Clone, Copy, Debug)]
struct FlowCounters {
    bytes: u64,
    packets: u64,
    /// The last listing that had it.
    listing: u32,
}

/// What was seen of a conversation since its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RunningTotal {
    totals: Totals,
    first: Moment,
    last: Moment,
    /// What the last report with it said.
    told: Totals,
    /// The number of that report; 0 if there was none.
    sent: u64,
    /// It is to be told, again or for the first time.
    changed: bool,
    /// It is against the rules.
    alarming: bool,
    /// What its first bytes were of, if that is known.
    application: Option<&'static str>,
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
            epoch: None,
            durable: 0,
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
        if self.epoch.replace(epoch) != Some(epoch) {
            self.durable = 0;
        }
        let durable = self.durable;
        let past = self.past.iter_mut().map(|(_, total)| total);
        for total in self.totals.values_mut().chain(past) {
            total.changed |= total.sent > durable;
        }
        self.denied.lost_after(durable);
    }

    /// The report that is under way: to be sent until it is [counted](Self::counted).
    pub fn outstanding(&self) -> Option<&Arc<Report>> {
        self.outstanding.as_ref()
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
        let most = self.limits.records;
        let past = self.past.iter_mut().map(|(key, total)| (&*key, total));
        let mut changed: Vec<_> =
            self.totals.iter_mut().chain(past).filter(|(_, total)| total.changed).collect();
        if changed.is_empty() && !self.denied.has_news() && !anyway {
            return None;
        }
        if changed.len() > most {
            // Who has waited longest comes first.
            let order = |total: &RunningTotal| (!total.alarming, total.sent, total.first);
            changed.select_nth_unstable_by_key(most, |(_, total)| order(total));
            changed.truncate(most);
        }
        let records = changed.into_iter().map(|(key, total)| {
            total.changed = false;
            total.sent = sequence;
            total.told = total.totals;
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
                return;
            }
            let over = *total;
            self.totals.remove(&key);
            if !over.is_on_disk(self.durable) {
                self.past.push((key, over));
            }
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
            alarming,
            application,
        };
        self.totals.insert(key, total);
    }

    /// Forgets the oldest totals that a controller has on disk; where there are none, for one that is
    /// alarming, those that are not.
    fn make_room(&mut self, alarming: bool) -> bool {
        if self.now < self.full_until && !alarming {
            return false;
        }
        let durable = self.durable;
        if self.forget_oldest(|total| total.is_on_disk(durable)) {
            return true;
        }
        self.full_until = Moment(self.now.0 + 1000);
        alarming && self.forget_oldest(|total| !total.alarming)
    }

    fn forget_oldest(&mut self, may: impl Fn(&RunningTotal) -> bool) -> bool {
        // The next beginning of a key must lie in another second.
        let second = self.now.seconds();
        let may = |total: &RunningTotal| may(total) && total.first.seconds() < second;
        let age = |key: &ConversationKey, total: &RunningTotal| (total.last, total.first, *key);
        let past = self.past.iter().map(|(key, total)| (key, total));
        let all = self.totals.iter().chain(past);
        let mut ages: Vec<_> =
            all.filter(|(_, total)| may(total)).map(|(key, total)| age(key, total)).collect();
        let count = ages.len().min(self.limits.totals.div_ceil(PART));
        let Some(last) = count.checked_sub(1) else { return false };
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

    /// What is idle and on a controller's disk.
    fn forget(&mut self) {
        let (now, idle, durable) = (self.now, self.limits.idle, self.durable);
        self.past.retain(|(_, total)| !total.is_on_disk(durable));
        self.totals.retain(|_, total| !total.is_on_disk(durable) || now.since(total.last) < idle);
        self.denied.forget(durable, now, idle);
        self.named.forget(now);
    }

    /// Connections are followed on; totals begin at zero.
    fn begin_again(&mut self, known: u64) {
        let totals = std::mem::take(&mut self.totals).into_values();
        let past = std::mem::take(&mut self.past).into_iter().map(|(_, total)| total);
        totals.chain(past).for_each(|total| self.drop_total(&total));
        self.denied = Denied::default();
        self.incarnation = self.now.0.max(self.incarnation.max(known).saturating_add(1));
        self.outstanding = None;
        self.epoch = None;
        self.heard = self.now;
        (self.sequence, self.durable) = (0, 0);
    }

    /// What a total has that no controller was told will never be told.
    fn drop_total(&mut self, total: &RunningTotal) {
        self.drop_growth(total.totals.growth(total.told), total.alarming);
    }

    fn drop_growth(&mut self, growth: Totals, alarming: bool) {
        if !growth.is_zero() {
            self.dropped.totals += 1;
            self.dropped.violations += u64::from(alarming);
            self.lost += growth;
        }
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

/// Not a group, nor an address that means somebody else elsewhere.
fn is_somebody(address: &IpAddr) -> bool {
    let shared = match address {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(shared || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

impl FlowId {
    fn conversation(&self) -> ConversationKey {
        let Self { protocol, client, client_port, server, port, .. } = *self;
        ConversationKey::between(protocol, (client, client_port), (server, port))
    }
}

impl ConversationKey {
    /// The conversation of a connection whose first packet went from `client` to `server`.
    ///
    /// One that seems to go from a well-known port to one that systems give to clients was not seen
    /// from its beginning: its first packet here was an answer.
    pub(crate) fn between(
        protocol: Protocol,
        (client, client_port): (IpAddr, u16),
        (server, port): (IpAddr, u16),
    ) -> Self {
        if client_port != 0 && client_port < WELL_KNOWN && port >= EPHEMERAL {
            return Self { client: server, server: client, port: client_port, protocol };
        }
        Self { client, server, port, protocol }
    }
}

impl FlowCounters {
    /// Counters that are behind were set to zero by somebody: all there is came since.
    fn since(self, before: Self) -> Totals {
        if self.bytes < before.bytes || self.packets < before.packets {
            return Totals { bytes: self.bytes, packets: self.packets, sessions: 0 };
        }
        let (bytes, packets) = (self.bytes - before.bytes, self.packets - before.packets);
        Totals { bytes, packets, sessions: 0 }
    }
}

impl RunningTotal {
    fn is_on_disk(&self, durable: u64) -> bool {
        !self.changed && self.sent <= durable
    }

    fn record(&self, key: &ConversationKey) -> Record {
        Record {
            client: key.client,
            server: key.server,
            port: key.port,
            protocol: key.protocol,
            application: self.application.map(Arc::from),
            totals: self.totals,
            first: self.first,
            last: self.last,
        }
    }
}

#[cfg(test)]
mod tests;
