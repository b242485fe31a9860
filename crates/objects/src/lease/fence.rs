//! `Fence`: whether a leader still leads, for those who write in its name.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, DynamicClockId, clock_gettime, clock_gettime_dynamic};
use stallproof::Deadline;

use super::candidate::Moment;
use crate::store::Id;

/// The annotation that says in which term an object was last written.
pub(super) const ANNOTATION: &str = "fairlead.dev/fence";

/// Identifies a term of a lease. Terms of one lease follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub(super) lease: String,
    pub(super) uid: String,
    pub(super) term: i32,
}

impl Token {
    pub(super) fn new(lease: &Id, uid: &str, term: i32) -> Self {
        Self { lease: lease.to_string(), uid: uid.to_owned(), term }
    }

    /// Parses what [`Token`] prints.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (rest, term) = text.rsplit_once('/')?;
        let (lease, uid) = rest.rsplit_once('/')?;
        Some(Self { lease: lease.to_owned(), uid: uid.to_owned(), term: term.parse().ok()? })
    }

    /// Whether this token is of a later term. Terms of two leases (also of one that was deleted and made
    /// again) cannot be compared; the wait before a new lease is taken stands between those.
    pub(super) fn is_after(&self, other: &Self) -> bool {
        (&self.lease, &self.uid) == (&other.lease, &other.uid) && self.term > other.term
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.lease, self.uid, self.term)
    }
}

/// A clock that only goes forward.
#[derive(Clone)]
pub(super) struct Clock(Arc<dyn Fn() -> Moment + Send + Sync>);

impl Clock {
    pub(super) fn new(read: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub(super) fn now(&self) -> Moment {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({:?})", self.now())
    }
}

/// The time since boot, time spent suspended included: the clock that tokio and std use stands still
/// while a machine sleeps, and a lease does not.
pub(super) fn boot_time() -> Moment {
    let now = clock_gettime_dynamic(DynamicClockId::Boottime)
        .unwrap_or_else(|_| clock_gettime(ClockId::Monotonic));
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// One term's right to write. Clones share it; it only ever runs out once.
#[derive(Clone)]
pub struct Fence(Arc<Inner>);

struct Inner {
    token: Token,
    clock: Clock,
    /// When the right runs out, in nanoseconds of `clock`. The election moves it, every guarded write
    /// reads it.
    until: AtomicU64,
}

impl Fence {
    pub(super) fn new(token: Token, clock: Clock, until: Moment) -> Self {
        Self(Arc::new(Inner { token, clock, until: AtomicU64::new(nanos(until)) }))
    }

    /// A fence for a process that cannot lose its leadership.
    pub(super) fn endless(token: Token, clock: Clock) -> Self {
        Self::new(token, clock, Moment::MAX)
    }

    pub fn token(&self) -> &Token {
        &self.0.token
    }

    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the fence holds if it is not renewed.
    pub fn remaining(&self) -> Duration {
        let until = self.0.until.load(Ordering::SeqCst);
        Duration::from_nanos(until.saturating_sub(nanos(self.0.clock.now())))
    }

    /// The earlier of `deadline` and the fence's end; `None` when the fence has run out.
    pub(super) fn clip(&self, deadline: Deadline) -> Option<Deadline> {
        let remaining = self.remaining();
        (!remaining.is_zero()).then(|| deadline.within(remaining))
    }

    /// Moves the fence's end. A fence that has run out or was revoked stays so.
    pub(super) fn extend(&self, until: Moment) {
        let now = nanos(self.0.clock.now());
        let _ = self.0.until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |current| {
            (current > now).then(|| current.max(nanos(until)))
        });
    }

    pub(super) fn revoke(&self) {
        self.0.until.store(0, Ordering::SeqCst);
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({}, {:?} left)", self.0.token, self.remaining())
    }
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
