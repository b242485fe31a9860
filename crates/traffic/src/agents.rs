//! Agents: which nodes report, who they are, and how often they may.
//!
//! ```text
//! join ──► Snapshot of all agents ──► how many, which are alive, what the list shows
//! report ─► the agent's own counters (atomics); its rate; the interval it is told
//! ```
//!
//! Contract:
//! - Readers (how many agents there are, whether a node has one, what the interval is) load a snapshot.
//!   A join publishes one; a report changes only its own agent's numbers.
//! - A node has one agent: the greatest incarnation that joined. One that left does not come back
//!   under the incarnation it left with, because what was counted of that one is forgotten.
//! - Agents are bounded ([`Limits::agents`]); one that was silent for [`AWAY`] is forgotten.
//! - This is soft state: after a restart agents join again.

mod interval;
mod metrics;
mod rate;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use jiff::Timestamp;
use objects::is_subdomain;
use prometheus_client::registry::Registry;
use stallproof::snapshot::{Changes, View};
use stallproof::{Map, Snapshot};
use tokio::time::Instant;

pub use crate::conversations::{AWAY, Dropped};
pub use interval::{LONGEST, Load, SHORTEST};
pub use metrics::ReportOutcome;

use metrics::Metrics;
use rate::Rate;

/// An agent that was not heard for so long is not counted on: twice the longest interval, and a bit.
pub const SILENT: Duration = Duration::from_secs(150);

/// What agents may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Each costs some hundred bytes here, and a connection.
    pub agents: usize,
    /// The bytes of one report, as it comes.
    pub batch: usize,
    /// The records of one report.
    pub records: usize,
    /// The bytes of all reports that are being read or counted, times what they take when they are
    /// decoded.
    pub bytes: usize,
    /// The least time between two reports of one agent, over time.
    pub pace: Duration,
    /// So many may come at once: a whole table goes in eight.
    pub burst: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            agents: 16_384,
            batch: 1 << 20,
            records: 8192,
            bytes: 96 << 20,
            pace: Duration::from_millis(500),
            burst: 32,
        }
    }
}

/// What an agent says of itself when it joins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinFacts {
    pub node: String,
    pub incarnation: u64,
    pub version: String,
    pub kernel: String,
    pub cores: u32,
    /// Bytes.
    pub memory: u64,
    /// The node's own addresses.
    pub addresses: Vec<IpAddr>,
    /// The addresses of all of its interfaces. They are not kept with the agent, see
    /// [`ReportSink::set_node_addresses`](crate::ingest::ReportSink::set_node_addresses).
    pub local_addresses: Vec<IpAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotJoined {
    #[error("an agent of this node has begun later (or has left under this incarnation)")]
    Outdated { known: u64 },
    #[error("there are as many agents as there may be")]
    Full,
    #[error("a node's name has 1 to 253 characters of a-z, 0-9, '-' and '.'")]
    BadName,
}

/// There is no agent with this id: it must join first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such agent: join first")]
pub struct UnknownAgent;

/// The registry. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Agents(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Written by joins, leaves and the sweep; read by everybody.
    all: Snapshot<Map<Arc<str>, Agent>>,
    /// In milliseconds. Written by the tick, read by every answer.
    interval: AtomicU64,
    limits: Limits,
    rate: Rate,
    began: Instant,
    metrics: Metrics,
}

/// One agent. Clones share what is counted of it.
#[derive(Clone, Debug)]
pub struct Agent {
    pub node: Arc<str>,
    /// Names this joining: a stream belongs to one.
    pub id: Arc<str>,
    pub facts: Arc<JoinFacts>,
    pub joined: Timestamp,
    activity: Arc<Activity>,
}

/// What an agent did. Its stream writes it, the list reads it.
#[derive(Debug, Default)]
struct Activity {
    /// Milliseconds since the registry began.
    heard: AtomicU64,
    left: AtomicBool,
    connected: AtomicUsize,
    /// Of the rate.
    due: AtomicU64,
    through: AtomicU64,
    durable: AtomicU64,
    batches: AtomicU64,
    records: AtomicU64,
    refused: AtomicU64,
    dropped: [AtomicU64; 3],
    /// Counts streams: who holds an older number than this has been replaced.
    turn: Snapshot<u64>,
}

/// What is known of an agent at a moment.
#[derive(Clone, Debug)]
pub struct AgentView {
    pub node: Arc<str>,
    pub facts: Arc<JoinFacts>,
    pub state: AgentState,
    pub joined: Timestamp,
    pub heard: Timestamp,
    pub through: u64,
    pub durable: u64,
    pub batches: u64,
    pub records: u64,
    /// Reports that were told to come back.
    pub refused: u64,
    pub dropped: Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    /// It reports.
    Alive,
    /// It was heard of late, and has no connection now.
    Away,
    /// It was not heard for [`SILENT`].
    Silent,
    Left,
}

impl fmt::Display for AgentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alive => "alive",
            Self::Away => "away",
            Self::Silent => "silent",
            Self::Left => "left",
        })
    }
}

impl Agents {
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(Shared {
            all: Snapshot::default(),
            interval: AtomicU64::new(millis(SHORTEST)),
            limits,
            rate: Rate::new(limits.pace, limits.burst),
            began: Instant::now(),
            metrics: Metrics::default(),
        }))
    }

    pub fn limits(&self) -> Limits {
        self.0.limits
    }

    pub fn register(&self, registry: &mut Registry) {
        self.0.metrics.register(registry);
    }

    /// Takes an agent in, or takes note that it began again.
    pub fn join(&self, facts: JoinFacts) -> Result<Agent, NotJoined> {
        if !is_subdomain(&facts.node) {
            return Err(NotJoined::BadName);
        }
        let node: Arc<str> = facts.node.as_str().into();
        let id = format!("{:016x}.{node}", random()).into();
        let (facts, joined) = (Arc::new(facts), Timestamp::now());
        let (mut taken, mut before) = (Err(NotJoined::Full), None);
        self.0.all.update(|all| {
            let known = all.get(&node);
            let activity = match known {
                Some(known) if !known.admits(facts.incarnation) => {
                    taken = Err(NotJoined::Outdated { known: known.facts.incarnation });
                    return false;
                }
                Some(known) if known.facts.incarnation == facts.incarnation => {
                    known.activity.clone()
                }
                None if all.len() >= self.0.limits.agents => return false,
                _ => Arc::default(),
            };
            before = known.cloned();
            let agent = Agent { node: node.clone(), id, facts, joined, activity };
            taken = Ok(agent.clone());
            all.insert(node.clone(), agent);
            true
        });
        let taken = taken.inspect_err(|_| self.0.metrics.join_refused())?;
        // Its streams end, once nobody finds it any more.
        if let Some(before) = before {
            before.end_streams();
        }
        taken.activity.heard.store(self.now(), Relaxed);
        self.0.metrics.joined(self.0.all.load().len());
        Ok(taken)
    }

    /// The agent that was given this id.
    pub fn find(&self, id: &str) -> Result<Agent, UnknownAgent> {
        let (_, node) = id.split_once('.').ok_or(UnknownAgent)?;
        let found = self.0.all.read(|all| all.get(node).cloned()).ok_or(UnknownAgent)?;
        if *found.id == *id && !found.activity.left.load(Relaxed) {
            Ok(found)
        } else {
            Err(UnknownAgent)
        }
    }

    /// Opens an agent's stream of reports; one that it had before ends.
    pub fn open_stream(&self, id: &str) -> Result<ReportStream, UnknownAgent> {
        let agent = self.find(id)?;
        let (turns, turn) = (agent.activity.turn.subscribe(), agent.end_streams());
        agent.activity.connected.fetch_add(1, Relaxed);
        self.0.metrics.connected(1);
        let stream = ReportStream { agents: self.clone(), agent, turn, turns };
        // An agent that joined or left in between ended only the streams that there were before.
        self.find(id).map(|_| stream)
    }

    /// The node goes for good. What was kept of its reports can be forgotten.
    pub fn leave(&self, id: &str) -> Result<Agent, UnknownAgent> {
        let agent = self.find(id)?;
        agent.activity.left.store(true, Relaxed);
        agent.end_streams();
        Ok(agent)
    }

    /// Ends what a node has open: its certificate is worth nothing any more.
    pub fn cut_off(&self, node: &str) {
        if let Some(agent) = self.0.all.read(|all| all.get(node).cloned()) {
            agent.end_streams();
        }
    }

    /// Whether a node has an agent that reports.
    pub fn alive(&self, node: &str) -> bool {
        let now = self.now();
        self.0.all.read(|all| all.get(node).is_some_and(|agent| agent.is_alive(now)))
    }

    /// As `alive`, of one moment: for a caller that asks about many nodes.
    pub fn living(&self) -> impl Fn(&str) -> bool + Send + Sync + 'static {
        let (all, now): (View<_>, _) = (self.0.all.load(), self.now());
        move |node| all.get(node).is_some_and(|agent: &Agent| agent.is_alive(now))
    }

    pub fn count(&self) -> usize {
        self.0.all.read(Map::len)
    }

    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.0.interval.load(Relaxed))
    }

    /// By name.
    pub fn list(&self) -> Vec<AgentView> {
        let (now, clock) = (self.now(), Timestamp::now());
        let all = self.0.all.load();
        let mut list: Vec<_> = all.values().map(|agent| agent.view(now, clock)).collect();
        list.sort_by(|a, b| a.node.cmp(&b.node));
        list
    }

    /// To be called once a second: adapts the interval to the load, and forgets who has long been
    /// away. Says whom.
    pub fn tick(&self, busy: f64) -> Vec<Arc<str>> {
        let refused = self.0.metrics.take_refused();
        let all = self.0.all.load();
        let now = self.now();
        let alive = all.values().filter(|agent| agent.is_alive(now)).count();
        let load = Load { agents: alive, busy, refused: refused > 0 };
        let interval = interval::next(self.interval(), load);
        self.0.interval.store(millis(interval), Relaxed);
        self.0.metrics.tick(alive, interval);
        let gone: Vec<_> =
            all.values().filter(|agent| agent.is_gone(now)).map(|a| a.node.clone()).collect();
        if !gone.is_empty() {
            self.0.all.update(|all| {
                // An agent that came back since stays.
                all.retain(|_, agent| !agent.is_gone(now));
                true
            });
        }
        gone
    }

    /// Milliseconds since this registry began.
    fn now(&self) -> u64 {
        millis(self.0.began.elapsed())
    }
}

impl Agent {
    fn admits(&self, incarnation: u64) -> bool {
        let known = self.facts.incarnation;
        if self.activity.left.load(Relaxed) { incarnation > known } else { incarnation >= known }
    }

    /// Says the number of the next one.
    fn end_streams(&self) -> u64 {
        let mut next = 0;
        self.activity.turn.update(|turn| {
            *turn += 1;
            next = *turn;
            true
        });
        next
    }

    fn silence(&self, now: u64) -> Duration {
        Duration::from_millis(now.saturating_sub(self.activity.heard.load(Relaxed)))
    }

    fn is_alive(&self, now: u64) -> bool {
        !self.activity.left.load(Relaxed) && self.silence(now) < SILENT
    }

    fn is_gone(&self, now: u64) -> bool {
        self.silence(now) >= AWAY
    }

    fn view(&self, now: u64, clock: Timestamp) -> AgentView {
        let activity = &self.activity;
        let state = if activity.left.load(Relaxed) {
            AgentState::Left
        } else if !self.is_alive(now) {
            AgentState::Silent
        } else if activity.connected.load(Relaxed) == 0 {
            AgentState::Away
        } else {
            AgentState::Alive
        };
        let [totals, violations, overruns] = activity.dropped.each_ref().map(|n| n.load(Relaxed));
        AgentView {
            node: self.node.clone(),
            facts: self.facts.clone(),
            state,
            joined: self.joined,
            heard: clock - self.silence(now),
            through: activity.through.load(Relaxed),
            durable: activity.durable.load(Relaxed),
            batches: activity.batches.load(Relaxed),
            records: activity.records.load(Relaxed),
            refused: activity.refused.load(Relaxed),
            dropped: Dropped { totals, violations, overruns },
        }
    }
}

/// A stream of reports that is open.
#[derive(Debug)]
pub struct ReportStream {
    agents: Agents,
    pub agent: Agent,
    turn: u64,
    turns: Changes<u64>,
}

impl ReportStream {
    /// A report has come: says whether it may be counted now, or when to come back.
    pub fn heard(&self, dropped: Dropped) -> Result<(), Duration> {
        let (activity, now) = (&self.agent.activity, self.agents.now());
        activity.heard.store(now, Relaxed);
        let Dropped { totals, violations, overruns } = dropped;
        for (cell, n) in activity.dropped.iter().zip([totals, violations, overruns]) {
            cell.store(n, Relaxed);
        }
        self.agents.0.rate.admit(&activity.due, now)
    }

    pub fn counted(&self, records: usize, through: u64, durable: u64) {
        let activity = &self.agent.activity;
        activity.through.fetch_max(through, Relaxed);
        activity.durable.fetch_max(durable, Relaxed);
        activity.batches.fetch_add(1, Relaxed);
        activity.records.fetch_add(records as u64, Relaxed);
        self.agents.0.metrics.reported(ReportOutcome::Counted, records);
    }

    pub fn not_counted(&self, outcome: ReportOutcome) {
        self.agent.activity.refused.fetch_add(1, Relaxed);
        self.agents.0.metrics.reported(outcome, 0);
    }

    /// Returns when this stream has been replaced, or its agent has left or joined again.
    pub async fn ended(&mut self) {
        while *self.agent.activity.turn.load() == self.turn {
            self.turns.changed().await;
        }
    }
}

impl Drop for ReportStream {
    fn drop(&mut self) {
        self.agent.activity.connected.fetch_sub(1, Relaxed);
        self.agents.0.metrics.connected(-1);
    }
}

/// From the operating system: it must not be guessed.
fn random() -> u64 {
    getrandom::u64().expect("the operating system has random numbers")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
