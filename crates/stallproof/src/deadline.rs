//! `Deadline`: the instant by which an answer is worth having.
//!
//! Contract: every wait in Fairlead takes one. It is made once, where a request enters (from a gRPC
//! or HTTP timeout, or a configured default), and passed down by value; a step may only shorten it.
//! A timeout that cannot be read is an error to answer the caller with, never a silent default: a
//! caller that asked for 2 s and got 60 s is a stall.

use std::future::Future;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use crate::sync::sleep_until;

mod wire;

pub use wire::BadTimeout;

/// The instant by which an answer is worth having. Copy it freely; earlier sorts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Instant);

/// The deadline passed before the work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deadline passed")]
pub struct Expired;

/// The longest a deadline may lie ahead. A caller that asks for more gets this: nothing waits for ever.
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The time that a server grants: to a caller that names no timeout, and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub unasked: Duration,
    pub most: Duration,
}

impl Grant {
    fn deadline(self, asked: Option<Duration>) -> Deadline {
        Deadline::after(asked.unwrap_or(self.unasked).min(self.most))
    }
}

impl Deadline {
    pub fn after(wait: Duration) -> Self {
        Self(Instant::now() + wait.min(LONGEST))
    }

    pub fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// The deadline of a gRPC call: its `grpc-timeout`, within what the server grants.
    pub fn of_grpc(headers: &HeaderMap, grant: Grant) -> Result<Self, BadTimeout> {
        Ok(grant.deadline(wire::grpc(headers)?))
    }

    /// The deadline of an HTTP request: the shortest of its `Request-Timeout` and
    /// `X-Request-Timeout` headers and the `timeout` of its query (which an API server adds when it
    /// calls a webhook), each in seconds or as a duration such as `1m30s`; within what the server
    /// grants. Zero means "not asked", as it does to Kubernetes.
    pub fn of_http(
        headers: &HeaderMap,
        query: Option<&str>,
        grant: Grant,
    ) -> Result<Self, BadTimeout> {
        Ok(grant.deadline(wire::http(headers, query)?))
    }

    pub fn instant(self) -> Instant {
        self.0
    }

    /// The time that is left; zero once passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    pub fn has_passed(self) -> bool {
        Instant::now() >= self.0
    }

    /// This deadline, or `wait` from now if that is sooner: the budget of one step.
    #[must_use]
    pub fn within(self, wait: Duration) -> Self {
        self.min(Self::after(wait))
    }

    /// Runs `work` until the deadline, then drops it.
    pub async fn bound<F: Future>(self, work: F) -> Result<F::Output, Expired> {
        tokio::select! {
            // Work that is ready at the deadline counts as done.
            biased;
            done = work => Ok(done),
            () = sleep_until(self.0) => Err(Expired),
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
