//! `HealthMachine`: the state of a cluster, by the results of its probes. Pure: events in, state and
//! time of the next attempt out.
//!
//! ```text
//! connecting ──answered──► ready ──slow, or failed once──► degraded ──failed again──► unreachable
//!      │                     ▲                                │                      unauthorised
//!      └──failed─────────────┼────────────────────────────────┼───────────────────► misconfigured
//!                            └─────────────answered───────────┴──────────────────────────┘
//! ```
//!
//! Contract:
//! - Only an answer makes a cluster ready, and the first problem ends that.
//! - After one failure a cluster can still be called: it is degraded, and tried again at once on a new
//!   connection. After two in a row it cannot.
//! - The wait between attempts grows to a bound, so that there always is a next attempt.

use std::time::Duration;

use stallproof::backoff::Curve;

use crate::config::Timing;
use crate::failure::{Failure, short};
use crate::view::State;

#[derive(Debug)]
pub(crate) struct HealthMachine {
    state: State,
    failures: u32,
    probe: Duration,
    retry: Curve,
}

#[derive(Debug)]
pub(crate) enum Event<'a> {
    Answered,
    /// It answered that it is not ready.
    Unwell(&'a str),
    /// It has not answered the current probe for this long.
    Slow(Duration),
    Failed(&'a Failure),
    /// New credentials do not work, and those before still do.
    Kept(&'a Failure),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Transition {
    pub(crate) state: State,
    pub(crate) why: Option<String>,
    /// The time until the next attempt; `None` leaves it as it was.
    pub(crate) next: Option<Duration>,
}

/// The first wait after a failure.
const FIRST: Duration = Duration::from_secs(1);

impl HealthMachine {
    pub(crate) fn new(timing: &Timing) -> Self {
        let retry = Curve { first: FIRST.min(timing.retry), most: timing.retry };
        Self { state: State::Connecting, failures: 0, probe: timing.probe, retry }
    }

    /// The number of failures in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// `chance` is in 0..1 and spreads the attempts of many clusters.
    pub(crate) fn on(&mut self, event: &Event<'_>, chance: f64) -> Transition {
        let (state, why, next) = match event {
            Event::Answered => {
                self.failures = 0;
                (State::Ready, None, Some(self.steady(chance)))
            }
            Event::Unwell(why) => {
                self.failures = 0;
                (State::Degraded, Some((*why).to_owned()), Some(self.steady(chance)))
            }
            Event::Slow(so_long) => {
                let state = if self.state == State::Ready { State::Degraded } else { self.state };
                let why = format!("it has not answered for {}", short(*so_long));
                (state, Some(why), None)
            }
            Event::Failed(failure) => {
                self.failures = self.failures.saturating_add(1);
                let usable = matches!(self.state, State::Ready | State::Degraded);
                let state = if usable && self.failures == 1 {
                    State::Degraded
                } else {
                    failure.reason.state()
                };
                let wait = self.retry.wait(self.failures, chance);
                (state, Some(failure.why.clone()), Some(wait))
            }
            Event::Kept(failure) => {
                self.failures = self.failures.saturating_add(1);
                let why = format!(
                    "its new credentials do not work, those before are still in use: {}",
                    failure.why
                );
                (State::Degraded, Some(why), Some(self.retry.wait(self.failures, chance)))
            }
        };
        self.state = state;
        Transition { state, why, next }
    }

    fn steady(&self, chance: f64) -> Duration {
        self.probe.mul_f64(0.75 + chance / 2.0)
    }
}

#[cfg(test)]
mod tests;
