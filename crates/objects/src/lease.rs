//! `Election`: one of several processes leads, and what it writes is fenced.
//!
//! The lease is a Kubernetes `Lease`: who holds it, for how long the holder may be silent, and a
//! count of its terms. It is changed only over the version that was read, so the store decides
//! between two candidates. A store that only one process can open needs none of this: there the
//! candidate leads from the start.
//!
//! What is guaranteed:
//! - **A leader stops before the next begins.** A leader takes itself to lead for four fifths of the
//!   lease's duration, counted from *before* it sent the renewal that was accepted. Then its fence is
//!   closed, its work is told to stop, and aborted after another tenth. A candidate takes the lease
//!   when it has not changed for its whole duration, counted from *after* it read it. Each counts on
//!   its own clock; no two clocks are ever compared. So this holds if clocks run within a tenth of
//!   the same speed, whatever they say, and however long a request or an answer took.
//! - **A stall ends a term.** Time is since boot, suspension included. A process that was stopped, or
//!   whose machine slept, finds its fence closed when it looks; every guarded write looks.
//! - **A term that is over stays over.** An answer that comes late revives nothing.
//! - **Terms count up**, one for each time that the lease is taken; the token (lease, term) goes with
//!   every guarded write ([`Objects::guarded`]): as an annotation on what is created or applied, and
//!   on an object before its status is. A write is made over the version that was read just before,
//!   and not over a later token. So a leader that does not know that it is deposed (a machine that was
//!   paused with all its clocks) can still not undo what a later one did: its write finds the later
//!   token, or meets a conflict if it was already under way.
//! - A lease that is deleted under its leader is made again as nobody's, and must run out before it
//!   is taken. That is why the very first term of all begins after one duration.
//! - A process that stops in order gives the lease back when all its work has ended; the next takes
//!   it as soon as it looks.
//!
//! What is not: a write that a leader sent in time, and that the network holds back until after its
//! term, is made if it finds the object as it was: nobody can call it back, and nothing in the store
//! says that the object now has another master. The same goes for the creation of an object that the
//! next leader has not made. A task that blocks its thread cannot be stopped; only its guarded writes
//! are refused. What is done outside the store is not fenced.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ObjectMeta;
use stallproof::{Deadline, Ledger, Snapshot, Tasks};
use tokio::time::sleep;
use tracing::{debug, info, warn};

mod candidate;
mod fence;
mod guarded;

use candidate::{Candidate, Moment, Next, Record};
use fence::{Clock, boot_time};
pub use fence::{Fence, Token};

use crate::store::{Error, Expected, Id, Objects, Version};

/// The holder of a lease that was just made.
const NOBODY: &str = "nobody";

/// How long an election waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// For how long a leader may be silent before another takes over.
    duration: Duration,
    /// How often a leader renews.
    renew: Duration,
    /// The deadline of one request: long enough to be answered, short enough to be tried again.
    request: Duration,
    /// How often the other candidates look, and how soon a leader tries again. With these a store that
    /// is away for a third of the duration costs no term.
    retry: Duration,
}

impl Timing {
    /// Rounds the duration up to whole seconds, in which a lease has it; at least one.
    pub fn of(duration: Duration) -> Self {
        let seconds = duration.as_secs_f64().ceil().clamp(1.0, f64::from(i32::MAX));
        let duration = Duration::from_secs_f64(seconds);
        Self { duration, renew: duration / 5, request: duration / 6, retry: duration / 15 }
    }

    /// How long work may still run when a term ends; see the contract.
    fn grace(self) -> Duration {
        self.duration / 10
    }
}

impl Default for Timing {
    /// A lease of 15 s, as Kubernetes' own components use it.
    fn default() -> Self {
        Self::of(Duration::from_secs(15))
    }
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Nobody leads, or the store cannot be asked.
    Unknown,
    /// Another process leads; this is the name that it gave itself.
    Other(String),
    /// This process leads, in this term.
    Us(Token),
}

/// One term of this process: where its work runs, and what it writes through.
#[derive(Clone, Debug)]
pub struct Leader {
    /// The tasks of the term. They are stopped before another process may lead.
    pub tasks: Tasks,
    /// The store, guarded by `fence`.
    pub objects: Objects,
    pub fence: Fence,
    /// The process's ledger.
    pub ledger: Ledger,
}

/// A candidate for one lease.
#[derive(Debug)]
pub struct Election {
    objects: Objects,
    lease: Id,
    holder: String,
    timing: Timing,
    leadership: Snapshot<Leadership>,
    ledger: Ledger,
    clock: Clock,
}

/// Ends a term however its election ends, also when that is aborted.
struct Term(Leader);

impl Drop for Term {
    fn drop(&mut self) {
        self.0.fence.revoke();
        self.0.tasks.stop("no longer leading");
    }
}

/// Why a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// This process stops, or an essential task of the term ended.
    Stopped,
    /// The lease has another holder, or none.
    Lost,
    /// The lease could not be renewed in time.
    RanOut,
}

impl Election {
    /// `holder` is what the others are told about the leader: a name, an address. It need not be
    /// unique.
    pub fn new(objects: Objects, lease: Id, holder: &str, timing: Timing) -> Self {
        // Two processes of one name must not take each other's lease for their own.
        let holder = format!("{holder}_{:016x}", fastrand::u64(..));
        let leadership = Snapshot::new(Leadership::Unknown);
        let ledger = Ledger::default();
        Self { objects, lease, holder, timing, leadership, ledger, clock: Clock::new(boot_time) }
    }

    /// Gives each leader the process's ledger, in place of one that nobody looks at.
    #[must_use]
    pub fn on_ledger(mut self, ledger: &Ledger) -> Self {
        self.ledger = ledger.clone();
        self
    }

    /// Reads the time from this clock, in place of the time since boot.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn with_clock(mut self, read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.clock = Clock::new(read);
        self
    }

    /// Publishes who leads, from now on.
    pub fn leadership(&self) -> Snapshot<Leadership> {
        self.leadership.clone()
    }

    /// Takes part until `tasks` stops. `lead` is called at the start of each term and returns at
    /// once: it spawns its work into the leader's tasks. When an essential task of it ends, the
    /// lease is given back.
    pub async fn run(self, tasks: &Tasks, mut lead: impl FnMut(Leader) + Send) {
        if self.objects.engine().exclusive() {
            return self.reign(tasks, lead).await;
        }
        let stop = tasks.stopping();
        let mut candidate = Candidate::new(self.holder.clone(), self.timing.duration);
        while let Some(until) = stop.bound(self.win(&mut candidate)).await {
            let Some((record, _)) = candidate.led() else { continue };
            let token = Token::new(&self.lease, &record.uid, record.term);
            let fence = Fence::new(token, self.clock.clone(), until);
            let term = self.begin(tasks, fence, &mut lead);
            let end = self.hold(&mut candidate, &term.0).await;
            self.finish(&mut candidate, term, end).await;
            // The others first: what ended this term may be a matter of this process.
            stop.bound(sleep(self.timing.renew)).await;
        }
        self.leadership.publish(Leadership::Unknown);
    }

    /// Leads without a lease, where no other process can.
    async fn reign(&self, tasks: &Tasks, mut lead: impl FnMut(Leader) + Send) {
        let stop = tasks.stopping();
        while !stop.is_stopped() {
            let fence = Fence::endless(Token::new(&self.lease, "", 0), self.clock.clone());
            let term = self.begin(tasks, fence, &mut lead);
            term.0.tasks.stopping().stopped().await;
            term.0.tasks.shutdown(self.timing.duration).await;
            drop(term);
            self.leadership.publish(Leadership::Unknown);
            stop.bound(sleep(self.timing.renew)).await;
        }
    }

    fn begin(&self, tasks: &Tasks, fence: Fence, lead: &mut impl FnMut(Leader)) -> Term {
        info!(lease = %self.lease, token = %fence.token(), "leading");
        self.leadership.publish(Leadership::Us(fence.token().clone()));
        let objects = self.objects.guarded(&fence);
        let (tasks, ledger) = (tasks.child("leading"), self.ledger.clone());
        let leader = Leader { tasks, objects, fence, ledger };
        let term = Term(leader.clone());
        lead(leader);
        term
    }

    /// Waits until this process holds the lease; says until when.
    async fn win(&self, candidate: &mut Candidate) -> Moment {
        let mut failing = false;
        loop {
            let won = self.try_to_win(candidate).await;
            match &won {
                Ok(Some(until)) => return *until,
                Ok(None) => self.leadership.publish(other(candidate.leader())),
                Err(_) => self.leadership.publish(Leadership::Unknown),
            };
            self.log(&mut failing, won.as_ref().err(), "cannot stand for election");
            sleep(self.timing.retry.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        }
    }

    async fn try_to_win(&self, candidate: &mut Candidate) -> Result<Option<Moment>, Error> {
        let found = self.look().await?;
        match candidate.observe(found, self.clock.now()) {
            Next::Make => {
                let made = self.lease_of(NOBODY, 0, None);
                match self.objects.create(&made, self.deadline()).await {
                    Ok(made) => candidate.observe(Some(self.record(&made)), self.clock.now()),
                    Err(Error::Exists { .. }) => return Ok(None),
                    Err(error) => return Err(error),
                };
                Ok(None)
            }
            Next::Take { term, over } => {
                let asked = self.clock.now();
                match self.write(&self.holder, term, &over, self.deadline()).await {
                    Ok(taken) => Ok(candidate.accepted(taken, asked, self.clock.now())),
                    // Another was faster.
                    Err(Error::Conflict { .. } | Error::NotFound { .. }) => Ok(None),
                    Err(error) => Err(error),
                }
            }
            Next::Wait | Next::Renew { .. } | Next::Lost => Ok(None),
        }
    }

    /// Renews until the term ends.
    async fn hold(&self, candidate: &mut Candidate, leader: &Leader) -> End {
        let stop = leader.tasks.stopping();
        let mut pause = self.timing.renew;
        let mut failing = false;
        loop {
            // Whatever the others wait for, this is looked at first.
            if !leader.fence.is_valid() {
                return End::RanOut;
            }
            let until = Deadline::after(leader.fence.remaining());
            let round = async {
                sleep(pause).await;
                self.renew(candidate, &leader.fence).await
            };
            let renewed = match stop.bound(until.bound(round)).await {
                None => return End::Stopped,
                Some(Err(_)) => continue,
                Some(Ok(renewed)) => renewed,
            };
            if let Ok(Some(end)) = renewed {
                return end;
            }
            pause = if renewed.is_ok() { self.timing.renew } else { self.timing.retry };
            self.log(&mut failing, renewed.as_ref().err(), "cannot renew the lease");
        }
    }

    async fn renew(&self, candidate: &mut Candidate, fence: &Fence) -> Result<Option<End>, Error> {
        let Some((record, _)) = candidate.led() else { return Ok(Some(End::RanOut)) };
        let mut over = record.clone();
        loop {
            let asked = self.clock.now();
            let deadline = fence.clip(self.deadline()).unwrap_or_else(|| self.deadline());
            match self.write(&self.holder, over.term, &over, deadline).await {
                Ok(renewed) if renewed.version == over.version => {
                    // Nothing changed in the store, so nobody else saw a renewal.
                    return Ok(None);
                }
                Ok(renewed) => {
                    return Ok(match candidate.accepted(renewed, asked, self.clock.now()) {
                        Some(until) => {
                            fence.extend(until);
                            None
                        }
                        None => Some(End::RanOut),
                    });
                }
                // It was taken from us, or somebody touched it, or our last write was made although
                // its answer was lost.
                Err(Error::Conflict { .. } | Error::NotFound { .. }) => {
                    match candidate.observe(self.look().await?, self.clock.now()) {
                        Next::Renew { over: found } => over = found,
                        _ => return Ok(Some(End::Lost)),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn finish(&self, candidate: &mut Candidate, term: Term, end: End) {
        let token = term.0.fence.token().clone();
        // A leader that stops of itself still leads while its work ends: it may write its last.
        if end != End::Stopped {
            term.0.fence.revoke();
            warn!(lease = %self.lease, %token, ?end, "no longer leading");
        }
        let left = term.0.tasks.shutdown(term.0.fence.remaining() + self.timing.grace()).await;
        drop(term);
        candidate.resign();
        self.leadership.publish(Leadership::Unknown);
        if end == End::Stopped && !left.iter().any(|task| task.blocked) {
            match self.release(&token).await {
                Ok(()) => info!(lease = %self.lease, %token, "gave the lease back"),
                Err(error) => {
                    debug!(lease = %self.lease, %error, "the lease runs out by itself");
                }
            }
        }
    }

    async fn release(&self, token: &Token) -> Result<(), Error> {
        let ours = |record: &Record| {
            let same = (&record.uid, record.term) == (&token.uid, token.term);
            same && record.holder.as_ref() == Some(&self.holder)
        };
        if let Some(record) = self.look().await?.filter(ours) {
            self.write("", record.term, &record, self.deadline()).await?;
        }
        Ok(())
    }

    async fn look(&self) -> Result<Option<Record>, Error> {
        let found = self.objects.get::<Lease>(&self.lease, self.deadline()).await?;
        Ok(found.map(|lease| self.record(&lease)))
    }

    async fn write(
        &self,
        holder: &str,
        term: i32,
        over: &Record,
        deadline: Deadline,
    ) -> Result<Record, Error> {
        let lease = self.lease_of(holder, term, Some(over));
        let expected = Expected::Version(over.version.clone());
        self.objects.apply(&lease, expected, deadline).await.map(|lease| self.record(&lease))
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.timing.request)
    }

    fn lease_of(&self, holder: &str, term: i32, over: Option<&Record>) -> Lease {
        // For people to read: no candidate looks at the times.
        let now = MicroTime(Timestamp::now());
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: i32::try_from(self.timing.duration.as_secs()).ok(),
            lease_transitions: Some(term),
            renew_time: Some(now),
            ..LeaseSpec::default()
        };
        let metadata = ObjectMeta {
            name: Some(self.lease.name.clone()),
            namespace: self.lease.namespace.clone(),
            uid: over.map(|record| record.uid.clone()),
            ..ObjectMeta::default()
        };
        Lease { metadata, spec: Some(spec) }
    }

    fn record(&self, lease: &Lease) -> Record {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Record {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: seconds.map_or(self.timing.duration, Duration::from_secs),
            term: spec.lease_transitions.unwrap_or_default(),
            uid: lease.metadata.uid.clone().unwrap_or_default(),
            version: Version(lease.metadata.resource_version.clone().unwrap_or_default()),
        }
    }

    /// Logs a failure once when it begins, and once when it is over.
    fn log(&self, failing: &mut bool, error: Option<&Error>, what: &str) {
        let lease = &self.lease;
        match error {
            Some(error) if !*failing => {
                let cause = std::error::Error::source(error);
                warn!(%lease, %error, cause, "{what}");
            }
            Some(error) => debug!(%lease, %error, "{what}, still"),
            None if *failing => info!(%lease, "the store answers the election again"),
            None => {}
        }
        *failing = error.is_some();
    }
}

/// The holder's name without what makes it unique.
fn other(holder: Option<&str>) -> Leadership {
    let name = |holder: &str| holder.rsplit_once('_').map_or(holder, |(name, _)| name).to_owned();
    match holder {
        None | Some(NOBODY) => Leadership::Unknown,
        Some(holder) => Leadership::Other(name(holder)),
    }
}

#[cfg(test)]
mod tests;
