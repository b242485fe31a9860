//! `FailedLogins`: folds failed logins, so that a flood of them becomes a few lines.
//!
//! Contract:
//! - The first failure of a kind (an outcome, an address, a user) is due at once. Those that follow are
//!   counted, and are due together [`WINDOW`] later, and so on for as long as there are any.
//! - No more than [`KINDS`] kinds are told apart; failures of all others are one kind without address and user.
//!   So there are at most [`KINDS`] + 1 lines in a window, whoever tries whatever.
//! - A user is named only if there is one of that name: people type passwords into the wrong field.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Map;
use tokio::time::Instant;

use super::read::{Phase, Record};
use super::{LOGIN, SESSIONS};
use crate::role::FLEET;
use crate::secret::random_id;

/// With 33 lines of half a kilobyte in each window, a flood that never ends writes 5 MB a day.
const WINDOW: Duration = Duration::from_secs(5 * 60);
const KINDS: usize = 32;

/// A login that failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LoginFailure {
    /// The code of the refusal.
    pub outcome: &'static str,
    /// `None` stands for many addresses.
    pub from: Option<IpAddr>,
    /// The user, if there is one of that name.
    pub user: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct FailedLogins(HashMap<LoginFailure, Counted>);

#[derive(Debug)]
struct Counted {
    due: Instant,
    count: u64,
    first: Timestamp,
    last: Timestamp,
}

/// Failures of one kind, to be written as one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoldedFailures {
    failure: LoginFailure,
    count: u64,
    first: Timestamp,
    last: Timestamp,
}

impl FailedLogins {
    /// Counts a failure; says whether it is the first of its kind, and so due at once.
    pub(super) fn add(&mut self, failure: LoginFailure, now: Instant, at: Timestamp) -> bool {
        let failure = if self.0.len() < KINDS || self.0.contains_key(&failure) {
            failure
        } else {
            LoginFailure { from: None, user: None, ..failure }
        };
        // Outcomes are few, so that these kinds are too.
        let is_first = !self.0.contains_key(&failure);
        let counted =
            self.0.entry(failure).or_insert(Counted { due: now, count: 0, first: at, last: at });
        if counted.count == 0 {
            counted.first = at;
        }
        counted.count += 1;
        counted.last = at;
        is_first
    }

    /// When something is to be taken.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().map(|counted| counted.due).min()
    }

    /// Takes what is due, or everything.
    pub(super) fn take(&mut self, now: Instant, all: bool) -> Vec<FoldedFailures> {
        let mut taken = Vec::new();
        self.0.retain(|failure, counted| {
            if counted.due > now && !all {
                return true;
            }
            let Counted { count, first, last, .. } = *counted;
            if count > 0 {
                taken.push(FoldedFailures { failure: failure.clone(), count, first, last });
            }
            counted.due = now + WINDOW;
            std::mem::take(&mut counted.count) > 0
        });
        taken
    }
}

impl FoldedFailures {
    pub(super) fn line(self) -> Vec<u8> {
        let Self { failure, count, first, last } = self;
        let record = Record {
            id: random_id::<8>(),
            phase: Phase::Noted,
            time: first,
            // Nobody was found out to be somebody.
            who: "-".to_owned(),
            via: "-".to_owned(),
            from: failure.from.map(|from| from.to_string()),
            verb: LOGIN.to_owned(),
            cluster: FLEET.to_owned(),
            namespace: None,
            resource: SESSIONS.to_owned(),
            name: failure.user,
            request_id: None,
            dry_run: false,
            count: Some(count),
            details: Map::new(),
            before: None,
            after: None,
            outcome: Some(failure.outcome.to_owned()),
            ended: Some(last),
            took_ms: u64::try_from(last.duration_since(first).as_millis()).ok(),
        };
        record.line()
    }
}

#[cfg(test)]
mod tests;
