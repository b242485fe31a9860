//! `Watermarks`: how far each running total has been counted. This is what makes counting exactly-once:
//! a total says only how much it has grown since its mark.
//!
//! Contract:
//! - A total that comes again, late or out of order brings nothing. One of an older incarnation is
//!   refused: what it could still bring cannot be told from what it brought.
//! - A mark is kept for as long as its agent may go on with the total: until the agent has been
//!   heard for twice the agreed time without a word of it (time in which nothing was heard does not
//!   count), begins a new incarnation, or was away for so long that it has to.
//! - Every `now` is a time that was [lived](super::steady_clock) through, not the wall clock's: a clock that
//!   jumps makes nobody forgotten, and keeps nobody for ever.
//! - Watermarks are bounded, in all and per agent. A total for which there is no room is refused, not
//!   counted; its agent keeps it.
//!
//! A total is known by a fingerprint of 56 bits under a secret seed. Two totals of one agent that
//! share one would be taken for one: among a hundred thousand, the odds that any two do are one in
//! ten million.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;
use rustc_hash::FxHashMap;

use super::codec::{Reader, Torn, Writer};
use super::{Moment, Record, Totals};

/// Who stays away for longer begins a new incarnation.
pub const AWAY: Duration = Duration::from_secs(24 * 60 * 60);

/// An agent is heard more often than this, if only to say that there is nothing new; a longer silence
/// says nothing about what it has forgotten.
pub const SILENCE: Duration = Duration::from_secs(60);

const GENERATION: u64 = 0xff;

#[derive(Debug, Default)]
pub(super) struct Watermarks {
    agents: FxHashMap<Arc<str>, AgentWatermarks>,
    /// Of all agents.
    len: usize,
}

#[derive(Debug)]
struct AgentWatermarks {
    incarnation: u64,
    heard: Moment,
    /// For how long it was heard in this generation.
    attended: Duration,
    generation: u8,
    marks: HashTable<Watermark>,
}

#[derive(Clone, Copy, Debug)]
struct Watermark {
    /// The lowest byte is the generation in which it was last heard of.
    print: u64,
    totals: Totals,
}

/// An agent's marks, open for one batch.
pub(super) struct Open<'a> {
    agent: &'a mut AgentWatermarks,
    len: &'a mut usize,
    most: usize,
    most_per_agent: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advance {
    /// Counted for the first time.
    Grown(Totals),
    Nothing,
    NoRoom,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WatermarkLimits {
    pub(super) most: usize,
    pub(super) most_per_agent: usize,
    pub(super) idle: Duration,
}

impl Watermarks {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// If the agent has begun again since: the incarnation that is known of it.
    pub(super) fn open(
        &mut self,
        agent: &Arc<str>,
        incarnation: u64,
        now: Moment,
        room: WatermarkLimits,
    ) -> Result<Open<'_>, u64> {
        let marks = self
            .agents
            .entry(Arc::clone(agent))
            .or_insert_with(|| AgentWatermarks::new(incarnation, now));
        if incarnation < marks.incarnation {
            return Err(marks.incarnation);
        }
        if incarnation > marks.incarnation {
            self.len -= marks.marks.len();
            *marks = AgentWatermarks::new(incarnation, now);
        }
        let silence = now.since(marks.heard);
        if silence <= SILENCE {
            marks.attended += silence;
        }
        marks.heard = marks.heard.max(now);
        if marks.attended >= room.idle * 2 {
            self.len -= marks.turn();
        }
        let WatermarkLimits { most, most_per_agent, .. } = room;
        Ok(Open { agent: marks, len: &mut self.len, most, most_per_agent })
    }

    pub(super) fn forget(&mut self, agent: &str) {
        if let Some(gone) = self.agents.remove(agent) {
            self.len -= gone.marks.len();
        }
    }

    pub(super) fn forget_away(&mut self, now: Moment) {
        self.agents.retain(|_, agent| now.since(agent.heard) < AWAY);
        self.len = self.agents.values().map(|agent| agent.marks.len()).sum();
    }

    /// Bytes allocated.
    pub(super) fn footprint(&self) -> usize {
        self.agents.values().map(|agent| agent.marks.allocation_size()).sum()
    }

    pub(super) fn save(&self, out: &mut Writer) {
        out.count(self.agents.len());
        for (name, agent) in &self.agents {
            out.text(name);
            out.number(agent.incarnation);
            out.number(agent.heard.0);
            out.count(agent.marks.len());
            for Watermark { print, totals } in &agent.marks {
                out.fixed(*print);
                out.totals(*totals);
            }
        }
    }

    /// Reads what `save` wrote.
    pub(super) fn load(from: &mut Reader<'_>) -> Result<Vec<Loaded>, Torn> {
        let agents = from.count()?;
        (0..agents)
            .map(|_| {
                let (agent, incarnation) = (from.text()?.into(), from.number()?);
                let heard = Moment(from.number()?);
                let count = from.count()?;
                let marks = (0..count)
                    .map(|_| Ok((from.fixed()?, from.totals()?)))
                    .collect::<Result<_, Torn>>()?;
                Ok(Loaded { agent, incarnation, heard, marks })
            })
            .collect()
    }

    /// Adds those of a checkpoint that are `mine`: the shards may be others than when it was made.
    pub(super) fn restore(&mut self, loaded: &Loaded, mine: impl Fn(u64) -> bool) {
        let Loaded { agent, incarnation, heard, marks } = loaded;
        let fresh = || AgentWatermarks::new(*incarnation, *heard);
        let known = self.agents.entry(Arc::clone(agent)).or_insert_with(fresh);
        if *incarnation < known.incarnation {
            return;
        }
        if *incarnation > known.incarnation {
            self.len -= known.marks.len();
            *known = fresh();
        }
        for (print, totals) in marks.iter().filter(|(print, _)| mine(*print)) {
            let mark = Watermark { print: print & !GENERATION, totals: *totals };
            known.marks.insert_unique(mark.hash(), mark, Watermark::hash);
            self.len += 1;
        }
    }
}

/// An agent's marks in a checkpoint.
#[derive(Debug)]
pub(super) struct Loaded {
    agent: Arc<str>,
    incarnation: u64,
    pub(super) heard: Moment,
    marks: Vec<(u64, Totals)>,
}

impl AgentWatermarks {
    fn new(incarnation: u64, now: Moment) -> Self {
        Self {
            incarnation,
            heard: now,
            attended: Duration::ZERO,
            generation: 0,
            marks: HashTable::new(),
        }
    }

    /// Forgets what was not heard of for a whole generation; says how many.
    fn turn(&mut self) -> usize {
        let (before, this) = (self.marks.len(), u64::from(self.generation));
        self.marks.retain(|mark| mark.print & GENERATION == this);
        self.generation = self.generation.wrapping_add(1);
        self.attended = Duration::ZERO;
        if self.marks.len() * 4 < self.marks.capacity() {
            self.marks.shrink_to_fit(Watermark::hash);
        }
        before - self.marks.len()
    }
}

impl Watermark {
    /// The table looks at the lowest and at the highest bits.
    fn hash(&self) -> u64 {
        (self.print >> 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Open<'_> {
    pub(super) fn advance(&mut self, print: u64, totals: Totals) -> Advance {
        let mark =
            Watermark { print: (print & !GENERATION) | u64::from(self.agent.generation), totals };
        let marks = &mut self.agent.marks;
        let same = |other: &Watermark| (other.print ^ mark.print) & !GENERATION == 0;
        if let Some(known) = marks.find_mut(mark.hash(), same) {
            known.print = mark.print;
            let growth = totals.growth(known.totals);
            known.totals += growth;
            return if growth.is_zero() { Advance::Nothing } else { Advance::Grown(growth) };
        }
        if marks.len() >= self.most_per_agent || *self.len >= self.most {
            return Advance::NoRoom;
        }
        marks.insert_unique(mark.hash(), mark, Watermark::hash);
        *self.len += 1;
        Advance::Grown(totals)
    }
}

/// The fingerprint of a total: 16 bits of its two addresses (what a shard is chosen by), then 40 of
/// everything; the lowest byte is the table's.
pub(super) fn print(seed: [u64; 2], record: &Record) -> u64 {
    let pair = pair_hash(seed, record);
    let rest = u64::from(record.port)
        | u64::from(record.protocol.0) << 16
        | u64::from(record.first.seconds()) << 32;
    let mut all = mix(pair ^ rest, seed[1]);
    for piece in record.application.iter().flat_map(|name| name.as_bytes().chunks(8)) {
        let mut word = [0; 8];
        word[..piece.len()].copy_from_slice(piece);
        // The length, so that a name and the same with a zero behind it differ.
        all = mix(all ^ u64::from_le_bytes(word), seed[0] ^ piece.len() as u64);
    }
    pair & (0xffff << 48) | (all >> 16) & !GENERATION
}

/// The upper 16 bits choose the shard.
pub(super) fn pair_hash(seed: [u64; 2], record: &Record) -> u64 {
    addresses_hash(seed, record.client, record.server)
}

pub(super) fn addresses_hash(
    seed: [u64; 2],
    client: std::net::IpAddr,
    server: std::net::IpAddr,
) -> u64 {
    let mut hash = seed[0];
    for address in [client, server] {
        let bits = match address.to_canonical() {
            std::net::IpAddr::V4(v4) => u128::from(v4.to_bits()),
            std::net::IpAddr::V6(v6) => v6.to_bits(),
        };
        hash = mix(hash ^ bits as u64, seed[1]);
        hash = mix(hash ^ (bits >> 64) as u64, seed[0] ^ seed[1]);
    }
    hash
}

/// Multiplies and folds: every bit of both reaches every bit of the result. Written here because
/// checkpoints hold what it gives.
fn mix(a: u64, b: u64) -> u64 {
    let (a, b) = (a ^ 0x9e37_79b9_7f4a_7c15, b ^ 0xd6e8_feb8_6659_fd93);
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests;
