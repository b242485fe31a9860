//! `Follower`: what one node's agent is to be sent next.
//!
//! Contract:
//! - One change is under way at a time. The next leads from what the agent acknowledged to the newest
//!   program, however many there were in between.
//! - An agent that has a program of which nothing is known here is sent a whole one, unless it is the same.
//! - An agent that acknowledges nothing for [`SILENT`] is given up; it comes back by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use policy::program::{Delta, Fingerprint, Program};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::counts::{Enforced, Totals};
use crate::status::{NodeState, NodeStatus};

/// How long an agent may take to enforce a change: a node that is busy takes seconds for a large one.
pub(crate) const SILENT: Duration = Duration::from_secs(60);

/// What an agent has: nothing at generation 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub generation: u64,
    pub fingerprint: Fingerprint,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub generation: u64,
    /// Why it is not enforced.
    pub error: Option<String>,
}

/// Why a follower is sent nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    #[error("another stream of this node took its place")]
    Replaced,
    #[error("a change was not acknowledged in time")]
    Silent,
    #[error("the node could not enforce a change; begin again")]
    Failed,
    #[error("programs are not made here any more")]
    Over,
}

/// What a node has, and was sent. It outlives its agent's connections.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Written by its follower and by what the agent acknowledges.
    state: Mutex<SlotState>,
    /// Wakes the follower, and one that it replaced: whoever waits looks at the state after it began to wait.
    wake: Notify,
}

#[derive(Debug, Default)]
struct SlotState {
    /// Counts the followers; the last one is the one.
    session: u64,
    connected: bool,
    /// What the agent acknowledged, or said that it has.
    has: Option<Arc<Program>>,
    under_way: Option<(Arc<Program>, Instant)>,
    /// What the node should have, while its agent is connected.
    newest: Option<Newest>,
    /// When the last change was acknowledged.
    acknowledged: Option<Timestamp>,
    failing: Option<String>,
    /// Why packets of some of its pods are not judged.
    uncovered: Vec<String>,
    totals: Totals,
}

type Newest = watch::Receiver<Option<Arc<Program>>>;

/// The slots of all nodes that have or had an agent in this term.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Mutex<BTreeMap<Arc<str>, Arc<Slot>>>);

/// The nodes that are remembered after their agents went; a cluster has fewer.
const MOST: usize = 20_000;

impl Nodes {
    pub(crate) fn slot(&self, node: &str) -> Arc<Slot> {
        let mut nodes = self.0.lock();
        if let Some(slot) = nodes.get(node) {
            return Arc::clone(slot);
        }
        if nodes.len() >= MOST {
            nodes.retain(|_, slot| slot.state.lock().connected);
        }
        Arc::clone(nodes.entry(node.into()).or_default())
    }

    pub(crate) fn find(&self, node: &str) -> Option<Arc<Slot>> {
        self.0.lock().get(node).cloned()
    }

    /// The program that each node has, and what its rules counted.
    pub(crate) fn counted(&self) -> Vec<(Arc<Program>, Totals)> {
        let nodes = self.0.lock().clone();
        let counted = nodes.into_values().filter_map(|slot| {
            let state = slot.state.lock();
            Some((state.has.clone()?, state.totals.clone()))
        });
        counted.collect()
    }

    pub(crate) fn list(&self) -> Vec<NodeStatus> {
        let nodes = self.0.lock().clone();
        nodes.into_iter().map(|(node, slot)| slot.status(node)).collect()
    }
}

impl Slot {
    pub(crate) fn applied(&self, Applied { generation, error }: Applied) {
        let mut state = self.state.lock();
        let is_under_way =
            state.under_way.as_ref().is_some_and(|(program, _)| program.generation == generation);
        if !is_under_way {
            return;
        }
        let under_way = state.under_way.take();
        match error {
            None => {
                state.has = under_way.map(|(program, _)| program);
                state.acknowledged = Some(Timestamp::now());
                state.failing = None;
            }
            Some(error) => {
                // What it has now is for it to say.
                state.has = None;
                state.failing = Some(error);
            }
        }
        drop(state);
        self.wake.notify_waiters();
    }

    pub(crate) fn enforced(&self, enforced: &Enforced) {
        let mut state = self.state.lock();
        state.uncovered.clone_from(&enforced.uncovered);
        state.totals.take(&enforced.totals, enforced.anew);
    }

    fn status(&self, node: Arc<str>) -> NodeStatus {
        let state = self.state.lock();
        let generation = state.has.as_ref().map_or(0, |program| program.generation);
        let of = |newest: &Newest| newest.borrow().as_ref().map_or(0, |program| program.generation);
        let newest = state.newest.as_ref().map_or(0, of);
        let sent =
            state.under_way.as_ref().map(|(program, since)| (program.generation, since.elapsed()));
        let now = match (&state.failing, state.connected, sent) {
            (Some(why), ..) => NodeState::Failing(why.clone()),
            (None, false, _) => NodeState::Away,
            (None, true, Some((_, since))) => NodeState::UnderWay(since),
            (None, true, None) if newest == 0 => NodeState::NotCompiled,
            (None, true, None) if generation == newest && !state.uncovered.is_empty() => {
                NodeState::Bypassed(state.uncovered.join("; "))
            }
            (None, true, None) if generation == newest => NodeState::Applied,
            (None, true, None) => NodeState::UnderWay(Duration::ZERO),
        };
        NodeStatus { node, generation, newest, acknowledged: state.acknowledged, state: now }
    }
}

/// Follows the program of one node for its agent.
#[derive(Debug)]
pub struct Follower {
    slot: Arc<Slot>,
    session: u64,
    newest: Newest,
    /// What the agent said it has, until that was compared with what is known.
    said: Option<Position>,
}

impl Follower {
    pub(crate) fn new(slot: Arc<Slot>, newest: Newest, has: Position) -> Self {
        let mut state = slot.state.lock();
        state.session += 1;
        state.connected = true;
        state.newest = Some(newest.clone());
        let session = state.session;
        drop(state);
        // The one before looks whether it is still the one.
        slot.wake.notify_waiters();
        Self { slot, session, newest, said: Some(has) }
    }

    /// Waits until the agent has to be sent something. May be dropped and called again.
    pub async fn next(&mut self) -> Result<Delta, Ended> {
        loop {
            let slot = Arc::clone(&self.slot);
            // Before the look: what happens after it is not missed.
            let woken = slot.wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let newest = self.newest.borrow_and_update().clone();
            let begin =
                self.said.zip(newest.as_ref()).map(|(said, newest)| self.compare(said, newest));
            if begin.is_some() {
                self.said = None;
            }
            let (sent, silent) = {
                let mut state = self.slot.state.lock();
                if state.session != self.session {
                    return Err(Ended::Replaced);
                }
                if let Some(has) = begin {
                    state.has = has;
                    state.under_way = None;
                    state.failing = None;
                } else if self.said.is_none() && state.failing.is_some() {
                    return Err(Ended::Failed);
                }
                let until = state.under_way.as_ref().map(|(_, since)| *since + SILENT);
                let next = newest.filter(|newest| {
                    let has = state.has.as_ref().map(|has| has.generation);
                    until.is_none() && has != Some(newest.generation)
                });
                if let Some(next) = &next {
                    state.under_way = Some((Arc::clone(next), Instant::now()));
                }
                (next.map(|next| (state.has.clone(), next)), until)
            };
            if let Some((has, next)) = sent {
                return Ok(match has {
                    Some(has) => Delta::between(&has, &next),
                    None => Delta::whole(&next),
                });
            }
            let silence = async {
                match silent {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = self.newest.changed() => changed.map_err(|_| Ended::Over)?,
                () = woken => {}
                () = silence => return Err(Ended::Silent),
            }
        }
    }

    /// Waits until what is under way was acknowledged. May be dropped and called again.
    pub async fn acknowledged(&mut self) -> Result<(), Ended> {
        loop {
            let slot = Arc::clone(&self.slot);
            let woken = slot.wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let until = {
                let state = self.slot.state.lock();
                match &state.under_way {
                    _ if state.session != self.session => return Err(Ended::Replaced),
                    None if state.failing.is_some() => return Err(Ended::Failed),
                    None => return Ok(()),
                    Some((_, since)) => *since + SILENT,
                }
            };
            tokio::select! {
                biased;
                () = woken => {}
                () = tokio::time::sleep_until(until) => return Err(Ended::Silent),
            }
        }
    }

    /// The program that the agent has, by what it said: one that is known here, or one that is the same.
    fn compare(&self, said: Position, newest: &Arc<Program>) -> Option<Arc<Program>> {
        if said.generation == 0 {
            return None;
        }
        let known = {
            let state = self.slot.state.lock();
            let sent = state.under_way.as_ref().map(|(program, _)| program);
            let of_generation = |program: &&Arc<Program>| program.generation == said.generation;
            state.has.iter().chain(sent).find(of_generation).cloned()
        };
        let is_it = |program: &Arc<Program>| program.fingerprint() == said.fingerprint;
        known.filter(is_it).or_else(|| {
            is_it(newest).then(|| {
                Arc::new(Program { generation: said.generation, ..Program::clone(newest) })
            })
        })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut state = self.slot.state.lock();
        if state.session == self.session {
            state.connected = false;
            state.newest = None;
        }
    }
}

#[cfg(test)]
mod tests;
