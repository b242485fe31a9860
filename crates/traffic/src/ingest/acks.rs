//! `Acks`: how far each agent's reports were counted, and which are being counted.
//!
//! Contract:
//! - `through` is the greatest report that was counted below which none is being counted; it never
//!   goes back within an incarnation. A report that was refused is not being counted: its agent knows.
//! - `durable` is how far a checkpoint on disk goes.
//! - A report of an older incarnation is outdated; a newer one begins at zero.
//! - Each agent takes a few words. An agent that was not heard for [`AWAY`] is forgotten.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{Counted, NotCounted};
use crate::conversations::{AWAY, Progress, Report};

#[derive(Debug, Default)]
pub(super) struct Acks {
    /// Written at the beginning and the end of each offer, for a few instructions.
    agents: Mutex<FxHashMap<Arc<str>, Agent>>,
}

#[derive(Debug)]
struct Agent {
    incarnation: u64,
    heard: Instant,
    counted: u64,
    through: u64,
    durable: u64,
    /// Reports that are being counted: as many as its agent sends at once.
    flying: Vec<u64>,
}

/// A report that is being counted. Dropping it says that it was not counted.
#[derive(Debug)]
pub(super) struct InFlightReport<'a> {
    acks: &'a Acks,
    agent: Arc<str>,
    incarnation: u64,
    sequence: u64,
    landed: bool,
}

impl Acks {
    pub(super) fn of(progress: &[Progress], now: Instant) -> Self {
        let agents = progress.iter().map(|Progress { agent, incarnation, through }| {
            let known =
                Agent { counted: *through, durable: *through, ..Agent::new(*incarnation, now) };
            (Arc::clone(agent), Agent { through: *through, ..known })
        });
        Self { agents: Mutex::new(agents.collect()) }
    }

    pub(super) fn begin(
        &self,
        report: &Report,
        now: Instant,
    ) -> Result<InFlightReport<'_>, NotCounted> {
        let Report { agent, incarnation, sequence, .. } = report;
        let mut agents = self.agents.lock();
        let fresh = || Agent::new(*incarnation, now);
        let known = agents.entry(Arc::clone(agent)).or_insert_with(fresh);
        if *incarnation < known.incarnation {
            return Err(NotCounted::Outdated { known: known.incarnation });
        }
        if *incarnation > known.incarnation {
            *known = fresh();
        }
        known.heard = known.heard.max(now);
        known.flying.push(*sequence);
        drop(agents);
        let (agent, incarnation, sequence) = (Arc::clone(agent), *incarnation, *sequence);
        Ok(InFlightReport { acks: self, agent, incarnation, sequence, landed: false })
    }

    /// How far each has come; for a checkpoint.
    pub(super) fn progress(&self, now: Instant) -> Vec<Progress> {
        let mut agents = self.agents.lock();
        agents
            .retain(|_, agent| now.duration_since(agent.heard) < AWAY || !agent.flying.is_empty());
        let progress = agents.iter().map(|(agent, known)| Progress {
            agent: Arc::clone(agent),
            incarnation: known.incarnation,
            through: known.through,
        });
        progress.collect()
    }

    /// A checkpoint with this `progress` is on disk.
    pub(super) fn kept(&self, progress: &[Progress]) {
        let mut agents = self.agents.lock();
        for Progress { agent, incarnation, through } in progress {
            if let Some(known) = agents.get_mut(agent)
                && known.incarnation == *incarnation
            {
                known.durable = known.durable.max(*through);
            }
        }
    }

    pub(super) fn forget(&self, agent: &str) {
        self.agents.lock().remove(agent);
    }
}

impl Agent {
    fn new(incarnation: u64, heard: Instant) -> Self {
        Self { incarnation, heard, counted: 0, through: 0, durable: 0, flying: Vec::new() }
    }

    fn landed(&mut self, sequence: u64) {
        if let Some(place) = self.flying.iter().position(|flying| *flying == sequence) {
            self.flying.swap_remove(place);
        }
        let before = self.flying.iter().min().map_or(u64::MAX, |lowest| lowest.saturating_sub(1));
        self.through = self.through.max(self.counted.min(before));
    }
}

impl InFlightReport<'_> {
    /// Every shard has counted it.
    pub(super) fn counted(mut self) -> Counted {
        // If its agent was forgotten meanwhile, or began again, there is no more to say.
        self.land(true).unwrap_or(Counted { through: self.sequence, durable: 0 })
    }

    fn land(&mut self, counted: bool) -> Option<Counted> {
        if std::mem::replace(&mut self.landed, true) {
            return None;
        }
        let mut agents = self.acks.agents.lock();
        let known = agents.get_mut(&self.agent)?;
        if known.incarnation != self.incarnation {
            return None;
        }
        if counted {
            known.counted = known.counted.max(self.sequence);
        }
        known.landed(self.sequence);
        Some(Counted { through: known.through, durable: known.durable })
    }
}

impl Drop for InFlightReport<'_> {
    fn drop(&mut self) {
        self.land(false);
    }
}

#[cfg(test)]
mod tests;
