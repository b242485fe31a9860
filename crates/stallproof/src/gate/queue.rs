//! Decides which request is let in: the state machine under the lock of `Gate`. It does no I/O and knows no runtime;
//! time and wakers are handed in, so that a property test can drive it through any history.
//!
//! After every call either the limit is reached or nobody waits who may have one place more
//! (`gate/shares.rs` says who may).
//!
//! The prediction. A newcomer must see `in_flight - limit + 1` requests leave, and one more for each
//! that waits at its priority or above, as far as its caller's turn comes after theirs. Requests leave
//! once every `service time / in flight` (Little's law), unless none has left for much longer than
//! that: then the silence is the better witness, and a gate whose requests are all stuck begins to
//! refuse at once although its average is still good. Who waits for its own share waits for its own
//! requests, and is told by theirs. The service time that has to fit behind the wait is the mean plus
//! four mean deviations, kept for each caller and priority: bulk reports must not make quick reads look
//! hopeless, nor one caller's slow requests those of another.

use std::task::{Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::time::Instant;

use super::limit::Limit;
use super::shares::{CallerId, Estimate, Shares};
use super::{GateStatus, InFlightLimits, LoadSignal, Overloaded, Priority, Reason, Shedding};
use crate::list::{Links, List};
use crate::retry::retry_after;

pub(super) type Slot = usize;

/// Completions come at random; a pause of this many mean intervals happens by chance once in fifty.
pub(super) const SILENCE: u32 = 4;
/// A newcomer is told a wait that is longer by this than the prediction: a refusal on arrival costs
/// its caller nothing, the same refusal after the wait costs it the wait.
const SLACK: f64 = 1.25;
/// The part of its time that a request which has to wait keeps for what no estimate foresees, such as
/// a pause of the whole machine. It costs no goodput: somebody else is served meanwhile.
const RESERVE: f64 = 0.1;
/// When to come back if the gate is closed to a priority altogether.
const SHED_FOR: Duration = Duration::from_secs(5);

/// Since when a request is in flight, and as what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started {
    pub(super) at: Instant,
    priority: Priority,
    caller: CallerId,
}

#[derive(Debug)]
pub(super) enum Arrival {
    Admitted(Started),
    /// It waits, at most until the instant given: after that it could not make its deadline.
    Waits(Slot, Instant),
}

#[derive(Debug)]
pub(super) struct Queue {
    limit: Limit,
    bound: usize,
    slots: Slab<Waiter>,
    /// Everybody who waits, in the order of arrival.
    lines: [List; Priority::COUNT],
    /// The same by caller, with what each holds: who is next.
    shares: Shares,
    queued: usize,
    in_flight: usize,
    /// Of all callers and priorities together: how fast places come free.
    overall: Estimate,
    /// When a place last came free, or somebody began to wait for one.
    moved: Instant,
    shedding: Shedding,
    refused: u64,
}

#[derive(Debug)]
pub(super) struct Waiter {
    priority: Priority,
    caller: CallerId,
    deadline: Instant,
    state: State,
    waker: Option<Waker>,
    links: Links,
    /// In the line of its caller.
    pub(super) own: Links,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Waiting,
    Admitted(Started),
    Refused(Overloaded),
}

fn links(waiter: &mut Waiter) -> &mut Links {
    &mut waiter.links
}

impl Queue {
    pub(super) fn new(limits: InFlightLimits, bound: usize, now: Instant) -> Self {
        Self {
            limit: Limit::new(limits, now),
            bound,
            slots: Slab::new(),
            lines: Default::default(),
            shares: Shares::new(now),
            queued: 0,
            in_flight: 0,
            overall: Estimate::default(),
            moved: now,
            shedding: Shedding::None,
            refused: 0,
        }
    }

    /// Nobody is in flight, waits, or has an answer that was not looked at.
    #[cfg(all(test, feature = "shuttle"))]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.in_flight == 0 && self.shares.is_empty()
    }

    pub(super) fn status(&self) -> GateStatus {
        GateStatus {
            limit: self.limit.get(),
            in_flight: self.in_flight,
            queued: self.lines.map(|line| line.len()),
            shedding: self.shedding,
            service: self.overall.mean(),
        }
    }

    /// A request asks to come in, for a caller if it is anybody's. `woken` gets whoever had to make room
    /// for it.
    pub(super) fn arrive(
        &mut self,
        caller: Option<&str>,
        priority: Priority,
        deadline: Instant,
        now: Instant,
        woken: &mut Vec<Waker>,
    ) -> Result<Arrival, Overloaded> {
        if self.shedding.sheds(priority) {
            return Err(self.refuse(Reason::Shed, now));
        }
        if deadline <= now {
            return Err(self.refuse(Reason::TooLate, now));
        }
        let caller = self.shares.enter(caller, now);
        let arrival = self.arrive_as(caller, priority, deadline, now, woken);
        self.shares.settle(caller);
        arrival
    }

    /// A request that comes in now or not at all.
    pub(super) fn try_arrive(
        &mut self,
        caller: &str,
        priority: Priority,
        now: Instant,
    ) -> Result<Started, Overloaded> {
        if self.shedding.sheds(priority) {
            return Err(self.refuse(Reason::Shed, now));
        }
        let caller = self.shares.enter(Some(caller), now);
        let free = self.free();
        let admitted = if self.shares.may_hold_more(caller, free) {
            Ok(self.admit(caller, priority, now))
        } else {
            Err(self.refuse(if free > 0 { Reason::Share } else { Reason::Full }, now))
        };
        self.shares.settle(caller);
        admitted
    }

    fn arrive_as(
        &mut self,
        caller: CallerId,
        priority: Priority,
        deadline: Instant,
        now: Instant,
        woken: &mut Vec<Waker>,
    ) -> Result<Arrival, Overloaded> {
        let service = self.shares.service(caller, priority);
        let free = self.free();
        if self.shares.may_hold_more(caller, free) {
            // A gate that is less than half full lets it try: it is not the gate's load that would
            // make it late, and the estimate may be what is wrong.
            if self.in_flight * 2 >= self.limit.get() && service.mean() > deadline - now {
                return Err(self.refuse(Reason::TooLate, now));
            }
            return Ok(Arrival::Admitted(self.admit(caller, priority, now)));
        }
        let wait = if free > 0 {
            self.shares.own_wait(caller, priority, now)
        } else {
            let before: usize = self.lines[..=priority as usize].iter().map(List::len).sum();
            let ahead = before.min(self.shares.turns_before(caller, priority));
            let leave = self.in_flight - self.limit.get() + 1 + ahead;
            self.interval(now).mul_f64(leave as f64)
        };
        let wait = wait.mul_f64(SLACK);
        let left = (deadline - now).mul_f64(1.0 - RESERVE);
        let deadline = now + left;
        if wait.saturating_add(service.cautious()) > left {
            return Err(self.refuse(Reason::TooLate, now));
        }
        let room = self.bound - self.queued;
        if room == 0 {
            self.evict_below(priority, now, woken)?;
        } else if !self.shares.may_wait_more(caller, room) {
            return Err(self.refuse(Reason::Share, now));
        }
        if self.queued == 0 {
            self.moved = now;
        }
        let waiter = Waiter {
            priority,
            caller,
            deadline,
            state: State::Waiting,
            waker: None,
            links: Links::default(),
            own: Links::default(),
        };
        let slot = self.slots.insert(waiter);
        self.lines[priority as usize].push_back(&mut self.slots, slot, links);
        self.shares.wait(caller, priority, slot, &mut self.slots, now);
        self.queued += 1;
        Ok(Arrival::Waits(slot, deadline - service.cautious().min(left)))
    }

    /// The answer for a waiter, which is thereby taken away; or `waker` is called when there is one.
    pub(super) fn poll(&mut self, slot: Slot, waker: &Waker) -> Poll<Result<Started, Overloaded>> {
        let waiter = &mut self.slots[slot];
        let answer = match waiter.state {
            State::Admitted(started) => Ok(started),
            State::Refused(overloaded) => Err(overloaded),
            State::Waiting => {
                match &mut waiter.waker {
                    Some(known) => known.clone_from(waker),
                    none => *none = Some(waker.clone()),
                }
                return Poll::Pending;
            }
        };
        self.slots.remove(slot);
        Poll::Ready(answer)
    }

    /// A waiter's time is up: an answer that has come meanwhile stands.
    pub(super) fn expire(&mut self, slot: Slot, now: Instant) -> Result<Started, Overloaded> {
        match self.slots[slot].state {
            State::Admitted(started) => {
                self.slots.remove(slot);
                Ok(started)
            }
            State::Refused(overloaded) => {
                self.slots.remove(slot);
                Err(overloaded)
            }
            State::Waiting => {
                self.unqueue(slot);
                self.slots.remove(slot);
                Err(self.refuse(Reason::TooLate, now))
            }
        }
    }

    /// A waiter has gone without looking at its answer.
    pub(super) fn abandon(&mut self, slot: Slot, now: Instant, woken: &mut Vec<Waker>) {
        let state = self.slots[slot].state;
        if let State::Waiting = state {
            self.unqueue(slot);
        }
        self.slots.remove(slot);
        if let State::Admitted(started) = state {
            self.leave(started, LoadSignal::Ignored, now, woken);
        }
    }

    /// A request that was in flight has ended.
    pub(super) fn leave(
        &mut self,
        started: Started,
        outcome: LoadSignal,
        now: Instant,
        woken: &mut Vec<Waker>,
    ) {
        self.limit.observe(started.at, outcome, self.in_flight, now);
        self.in_flight -= 1;
        self.moved = now;
        let took = match outcome {
            LoadSignal::Done => Some(now.saturating_duration_since(started.at)),
            LoadSignal::Failed | LoadSignal::Ignored => None,
        };
        if let Some(took) = took {
            self.overall.learn(took);
        }
        self.shares.release(started.caller, started.priority, took, now);
        self.let_in(now, woken);
    }

    /// Closes the gate to some priorities; those of them that wait are refused.
    pub(super) fn shed(&mut self, shedding: Shedding, now: Instant, woken: &mut Vec<Waker>) {
        self.shedding = shedding;
        for priority in Priority::ALL.into_iter().filter(|priority| shedding.sheds(*priority)) {
            while let Some(slot) = self.lines[priority as usize].front() {
                self.turn_away(slot, Reason::Shed, now, woken);
            }
        }
    }

    fn let_in(&mut self, now: Instant, woken: &mut Vec<Waker>) {
        while let Some(slot) = self.shares.next(self.free()) {
            let Waiter { priority, caller, deadline, .. } = self.slots[slot];
            let service = self.shares.service(caller, priority).cautious();
            // Strict, unlike on arrival: a line forms only before a full gate, so whoever stands in it
            // is late by the gate's load; and when the limit rises it must not let in the hopeless.
            if service > deadline.saturating_duration_since(now) || deadline <= now {
                self.turn_away(slot, Reason::TooLate, now, woken);
                continue;
            }
            let started = self.admit(caller, priority, now);
            self.unqueue(slot);
            let waiter = &mut self.slots[slot];
            waiter.state = State::Admitted(started);
            woken.extend(waiter.waker.take());
        }
    }

    fn admit(&mut self, caller: CallerId, priority: Priority, now: Instant) -> Started {
        self.in_flight += 1;
        self.shares.hold(caller);
        Started { at: now, priority, caller }
    }

    /// How many places nobody holds.
    fn free(&self) -> usize {
        self.limit.get().saturating_sub(self.in_flight)
    }

    /// How often a place comes free.
    fn interval(&self, now: Instant) -> Duration {
        let usual = self.overall.mean().div_f64(self.in_flight.max(1) as f64);
        let silence = if self.queued == 0 {
            Duration::ZERO
        } else {
            now.saturating_duration_since(self.moved)
        };
        usual.max(silence / SILENCE)
    }

    /// Makes room for a newcomer at the cost of the youngest of the lowest priority below its own.
    fn evict_below(
        &mut self,
        priority: Priority,
        now: Instant,
        woken: &mut Vec<Waker>,
    ) -> Result<(), Overloaded> {
        let below = self.lines[priority as usize + 1..].iter().rev().find_map(List::back);
        match below {
            Some(slot) => {
                self.turn_away(slot, Reason::Evicted, now, woken);
                Ok(())
            }
            None => Err(self.refuse(Reason::Full, now)),
        }
    }

    fn turn_away(&mut self, slot: Slot, reason: Reason, now: Instant, woken: &mut Vec<Waker>) {
        self.unqueue(slot);
        let overloaded = self.refuse(reason, now);
        let waiter = &mut self.slots[slot];
        waiter.state = State::Refused(overloaded);
        woken.extend(waiter.waker.take());
    }

    pub(super) fn refuse(&mut self, reason: Reason, now: Instant) -> Overloaded {
        self.refused += 1;
        let drain = match reason {
            Reason::Shed => SHED_FOR,
            _ => self.interval(now).mul_f64((self.queued + 1) as f64),
        };
        Overloaded { retry_after: retry_after(drain, self.refused), reason }
    }

    fn unqueue(&mut self, slot: Slot) {
        let Waiter { priority, caller, .. } = self.slots[slot];
        self.lines[priority as usize].remove(&mut self.slots, slot, links);
        self.shares.stop_waiting(caller, priority, slot, &mut self.slots);
        self.queued -= 1;
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
