//! The state of one breaker. No clock, no lock, no chance: those are passed in.

use std::time::Duration;

use tokio::time::Instant;

use super::{BreakerConfig, BreakerStatus, Open};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Closed,
    Open,
    HalfOpen,
}

#[derive(Debug)]
pub(super) struct Machine {
    phase: Phase,
    since: Instant,
    /// In a row.
    failures: u32,
    /// Times opened since it was last closed.
    opened: u32,
    /// The last report that counted.
    heard: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Reports of attempts before `from` are of an earlier state.
    Closed {
        from: u64,
    },
    Open {
        until: Instant,
    },
    HalfOpen {
        probe: u64,
        until: Instant,
    },
}

impl Machine {
    pub(super) fn new(now: Instant) -> Self {
        Self { phase: Phase::Closed { from: 0 }, since: now, failures: 0, opened: 0, heard: now }
    }

    pub(super) fn pass(
        &mut self,
        attempt: u64,
        now: Instant,
        probe_for: Duration,
    ) -> Result<(), Open> {
        match self.phase {
            Phase::Closed { .. } => Ok(()),
            Phase::Open { until } | Phase::HalfOpen { until, .. } if now < until => {
                Err(Open { retry_after: until - now })
            }
            Phase::Open { .. } | Phase::HalfOpen { .. } => {
                self.phase = Phase::HalfOpen { probe: attempt, until: now + probe_for };
                Ok(())
            }
        }
    }

    pub(super) fn succeeded(&mut self, attempt: u64, now: Instant) {
        match self.phase {
            Phase::Closed { from } if attempt >= from => self.failures = 0,
            Phase::HalfOpen { probe, .. } if attempt == probe => {
                *self = Self { phase: Phase::Closed { from: attempt }, ..Self::new(now) };
            }
            _ => {}
        }
    }

    /// Says whether this one tripped the breaker.
    pub(super) fn failed(
        &mut self,
        attempt: u64,
        now: Instant,
        config: &BreakerConfig,
        chance: f64,
    ) -> bool {
        let counts = match self.phase {
            Phase::Closed { from } => attempt >= from,
            Phase::HalfOpen { probe, .. } => attempt == probe,
            Phase::Open { .. } => false,
        };
        if !counts {
            return false;
        }
        self.heard = now;
        self.failures = self.failures.saturating_add(1);
        let was_closed = matches!(self.phase, Phase::Closed { .. });
        if was_closed && self.failures < config.failures {
            return false;
        }
        if was_closed {
            self.since = now;
        }
        self.opened = self.opened.saturating_add(1);
        self.phase = Phase::Open { until: now + config.open.wait(self.opened, chance) };
        was_closed
    }

    pub(super) fn abandoned(&mut self, attempt: u64, now: Instant) {
        if matches!(self.phase, Phase::HalfOpen { probe, .. } if attempt == probe) {
            self.phase = Phase::Open { until: now };
        }
    }

    /// Whether a new one would do as well.
    pub(super) fn is_as_new(&self) -> bool {
        matches!(self.phase, Phase::Closed { from: 0 }) && self.failures == 0
    }

    /// Until when the state matters even if nobody calls.
    pub(super) fn matters_until(&self) -> Instant {
        self.next_probe().unwrap_or(self.heard)
    }

    fn next_probe(&self) -> Option<Instant> {
        match self.phase {
            Phase::Closed { .. } => None,
            Phase::Open { until } | Phase::HalfOpen { until, .. } => Some(until),
        }
    }

    pub(super) fn status<T>(&self, tenant: T) -> BreakerStatus<T> {
        let state = match self.phase {
            Phase::Closed { .. } => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen { .. } => State::HalfOpen,
        };
        let (since, failures, next_probe) = (self.since, self.failures, self.next_probe());
        BreakerStatus { tenant, state, since, failures, next_probe }
    }
}
