//! What each caller holds of a gate and waits for: who may have one more, and whose turn is next.
//!
//! - A caller may hold one place more while it holds fewer than are free. Alone it has half of the gate;
//!   of `n` that want all they can get each has one part in `n + 1`, and as much stays free for the next
//!   who comes. So no caller, and no few of them together, holds what others need, and nobody is asked
//!   beforehand how many there will be.
//! - The same rule bounds what a caller takes of the queue.
//! - A place that comes free goes to the caller that holds fewest, and of these to the one whose last turn
//!   is longest ago. If that one may not have it, nobody may: callers that must wait are never searched.
//! - Requests that are nobody's have no share to keep to and count as holding nothing.
//!
//! A request that need not wait costs a lookup by name and a counter; one that waits, two moves in an
//! ordered set of the callers that wait. A caller is known while it holds or waits for something.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use tokio::time::Instant;

use super::Priority;
use super::queue::{SILENCE, Slot, Waiter};
use crate::list::{Links, List};

pub(super) type CallerId = usize;

/// The caller of requests that are nobody's; always known.
const NOBODY: CallerId = 0;

/// Mean and mean deviation, as TCP keeps its round-trip time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    known: bool,
    mean: f64,
    deviation: f64,
}

impl Estimate {
    pub(super) fn learn(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        if self.known {
            self.deviation += ((took - self.mean).abs() - self.deviation) / 4.0;
            self.mean += (took - self.mean) / 8.0;
        } else {
            *self = Self { known: true, mean: took, deviation: took / 2.0 };
        }
    }

    pub(super) fn mean(&self) -> Duration {
        Duration::from_secs_f64(self.mean)
    }

    pub(super) fn cautious(&self) -> Duration {
        Duration::from_secs_f64(self.mean + 4.0 * self.deviation)
    }
}

/// How many places a caller holds, and since when it has had no turn: the order of turns.
type Rank = (usize, u64, CallerId);

#[derive(Debug)]
pub(super) struct Shares {
    callers: Slab<Caller>,
    index: HashMap<Arc<str>, CallerId>,
    /// The callers that wait at each priority.
    turns: [BTreeSet<Rank>; Priority::COUNT],
    next_turn: u64,
}

#[derive(Debug)]
struct Caller {
    /// None of [`NOBODY`].
    name: Option<Arc<str>>,
    held: usize,
    /// One of its requests is being looked at: it is known whatever it holds.
    arriving: bool,
    lines: [List; Priority::COUNT],
    /// Given anew when it begins to wait and when it is let in.
    turn: u64,
    /// When one of its requests last left, or began to wait where none waited.
    moved: Instant,
    service: [Estimate; Priority::COUNT],
}

impl Caller {
    fn new(name: Option<Arc<str>>, now: Instant) -> Self {
        Self {
            name,
            held: 0,
            arriving: false,
            lines: Default::default(),
            turn: 0,
            moved: now,
            service: Default::default(),
        }
    }

    /// The places that count against it.
    fn counted(&self) -> usize {
        if self.name.is_some() { self.held } else { 0 }
    }

    fn waiting(&self) -> usize {
        self.lines.iter().map(List::len).sum()
    }
}

fn own(waiter: &mut Waiter) -> &mut Links {
    &mut waiter.own
}

impl Shares {
    pub(super) fn new(now: Instant) -> Self {
        let mut callers = Slab::new();
        let nobody = callers.insert(Caller::new(None, now));
        debug_assert_eq!(nobody, NOBODY);
        Self { callers, index: HashMap::new(), turns: Default::default(), next_turn: 0 }
    }

    /// No caller holds or waits for anything.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let nobody = &self.callers[NOBODY];
        self.callers.len() == 1
            && self.index.is_empty()
            && self.turns.iter().all(BTreeSet::is_empty)
            && (nobody.held, nobody.waiting()) == (0, 0)
    }

    /// The caller of this name, known until `settle` at least.
    pub(super) fn enter(&mut self, name: Option<&str>, now: Instant) -> CallerId {
        let Some(name) = name else { return NOBODY };
        let id = match self.index.get(name) {
            Some(known) => *known,
            None => {
                let name: Arc<str> = name.into();
                let id = self.callers.insert(Caller::new(Some(name.clone()), now));
                self.index.insert(name, id);
                id
            }
        };
        self.callers[id].arriving = true;
        id
    }

    /// What was decided of its request is in the books.
    pub(super) fn settle(&mut self, id: CallerId) {
        self.callers[id].arriving = false;
        self.forget_if_idle(id);
    }

    fn forget_if_idle(&mut self, id: CallerId) {
        let caller = &self.callers[id];
        if caller.held > 0 || caller.waiting() > 0 || caller.arriving {
            return;
        }
        if let Some(name) = &caller.name {
            self.index.remove(name);
            self.callers.remove(id);
        }
    }

    /// How many places the caller of this name holds.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(super) fn held(&self, name: &str) -> usize {
        self.index.get(name).map_or(0, |id| self.callers[*id].held)
    }

    pub(super) fn service(&self, id: CallerId, priority: Priority) -> Estimate {
        self.callers[id].service[priority as usize]
    }

    /// Whether it may have one of the `free` places.
    pub(super) fn may_hold_more(&self, id: CallerId, free: usize) -> bool {
        self.callers[id].counted() < free
    }

    /// Whether it may have one of the `room` places in the queue.
    pub(super) fn may_wait_more(&self, id: CallerId, room: usize) -> bool {
        let caller = &self.callers[id];
        caller.name.is_none() || caller.waiting() < room
    }

    /// How long a newcomer waits for requests of its own caller to leave, which has all that it may
    /// have.
    pub(super) fn own_wait(&self, id: CallerId, priority: Priority, now: Instant) -> Duration {
        let caller = &self.callers[id];
        let usual = caller.service[priority as usize].mean().div_f64(caller.held.max(1) as f64);
        let silence = if caller.waiting() == 0 {
            Duration::ZERO
        } else {
            now.saturating_duration_since(caller.moved)
        };
        let ahead: usize = caller.lines[..=priority as usize].iter().map(List::len).sum();
        usual.max(silence / SILENCE).mul_f64((ahead + 1) as f64)
    }

    /// How many turns of this caller and of others come before that of a newcomer: each other caller has
    /// one for each of its own.
    pub(super) fn turns_before(&self, id: CallerId, priority: Priority) -> usize {
        let upto = ..=priority as usize;
        let ahead: usize = self.callers[id].lines[upto].iter().map(List::len).sum();
        let callers: usize = self.turns[upto].iter().map(BTreeSet::len).sum();
        let own = self.callers[id].lines[upto].iter().filter(|line| !line.is_empty()).count();
        ahead + (ahead + 1) * (callers - own)
    }

    /// Who is let in next, with `free` places: nobody if none may have one.
    pub(super) fn next(&self, free: usize) -> Option<Slot> {
        (0..Priority::COUNT).find_map(|priority| {
            let (held, _, id) = self.turns[priority].first()?;
            (*held < free).then(|| self.callers[*id].lines[priority].front()).flatten()
        })
    }

    /// It has one place more.
    pub(super) fn hold(&mut self, id: CallerId) {
        let turn = self.turn();
        self.change(id, |caller| {
            caller.held += 1;
            caller.turn = turn;
        });
    }

    /// It has one place less, whose request took so long if that says anything.
    pub(super) fn release(
        &mut self,
        id: CallerId,
        priority: Priority,
        took: Option<Duration>,
        now: Instant,
    ) {
        self.change(id, |caller| {
            caller.held -= 1;
            caller.moved = now;
            if let Some(took) = took {
                caller.service[priority as usize].learn(took);
            }
        });
        self.forget_if_idle(id);
    }

    /// A request of it waits.
    pub(super) fn wait(
        &mut self,
        id: CallerId,
        priority: Priority,
        slot: Slot,
        slots: &mut Slab<Waiter>,
        now: Instant,
    ) {
        if self.callers[id].waiting() == 0 {
            let turn = self.turn();
            let caller = &mut self.callers[id];
            caller.turn = turn;
            caller.moved = now;
        }
        self.callers[id].lines[priority as usize].push_back(slots, slot, own);
        let rank = self.rank(id);
        self.turns[priority as usize].insert(rank);
    }

    /// A request of it waits no more.
    pub(super) fn stop_waiting(
        &mut self,
        id: CallerId,
        priority: Priority,
        slot: Slot,
        slots: &mut Slab<Waiter>,
    ) {
        let rank = self.rank(id);
        let line = &mut self.callers[id].lines[priority as usize];
        line.remove(slots, slot, own);
        if line.is_empty() {
            self.turns[priority as usize].remove(&rank);
        }
        self.forget_if_idle(id);
    }

    fn turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }

    fn rank(&self, id: CallerId) -> Rank {
        let caller = &self.callers[id];
        (caller.counted(), caller.turn, id)
    }

    /// Changes a caller, and its place in the order of turns with it.
    fn change(&mut self, id: CallerId, change: impl FnOnce(&mut Caller)) {
        let before = self.rank(id);
        change(&mut self.callers[id]);
        let after = self.rank(id);
        for (turns, line) in self.turns.iter_mut().zip(&self.callers[id].lines) {
            if !line.is_empty() {
                turns.remove(&before);
                turns.insert(after);
            }
        }
    }
}
