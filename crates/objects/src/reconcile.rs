//! `Reconciler`: something in the world is brought to the state that it should have, and kept there.
//!
//! ```text
//!        ┌── on a change, now and then, after a failure ──┐
//!        ▼                                                │
//! fetch ──► plan (no I/O) ──► apply ──► status ───────────┘      one attempt
//! ```
//!
//! Contract:
//! - The first attempt is made at once. The next one is made when [`Reconciler::changed`] returns, or
//!   when nothing was heard for [`Pace::resync`], a quarter more or less at random. Changes that come
//!   within [`Pace::settle`] are one attempt, and no change is missed: one that comes during an attempt
//!   is followed by another.
//! - An attempt has a deadline. One that is not done by then is dropped, and has failed.
//! - A failure is followed by a wait that doubles up to a bound; a success begins anew. A change may be
//!   what was missing: it cuts the wait to a fifth, so that a flood of changes is no flood of attempts.
//! - A failure is logged once, and again when another one takes its place; so is its end.
//! - Every attempt is an operation on the ledger, and its log lines carry the operation's span.
//! - Keys do not wait for each other ([`Reconcilers`]), but for one of so many places. Whoever has a
//!   place gives it back by its deadline.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::fmt::Display;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use stallproof::backoff::Curve;
use stallproof::ledger::Outcome;
use stallproof::tasks::TaskHandle;
use stallproof::{Backoff, Deadline, Expired, Ledger, Op, Stop, Tasks, sentence};
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use crate::lease::Leader;

/// Keeps one thing as it should be.
pub trait Reconciler: Send + 'static {
    type Error: Into<Box<dyn Error + Send + Sync>> + Send;

    /// Makes one attempt: reads what is, plans, and applies what differs.
    fn reconcile(
        &mut self,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<Next, Self::Error>> + Send;

    /// Waits for a change after which another attempt should be made, and returns at once if there
    /// was one since it returned last. It may be dropped while it waits.
    fn changed(&mut self) -> impl Future<Output = ()> + Send {
        pending()
    }
}

/// One attempt, which is an operation on the ledger.
#[derive(Debug)]
pub struct Attempt {
    /// For every call that the attempt makes: it is dropped then.
    pub deadline: Deadline,
    op: Op,
}

impl Attempt {
    /// Names what is done now.
    pub fn step(&self, name: &'static str) {
        self.op.step(name);
    }
}

/// When to make the next attempt after one that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When something changes, or when it is time to look again.
    OnChange,
    /// The same, and after this time at the latest.
    Within(Duration),
    /// Never: there is nothing left to keep.
    Finished,
}

/// How a reconciler paces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// For one attempt.
    pub attempt: Duration,
    /// How long nothing may change before another attempt is made all the same.
    pub resync: Duration,
    /// From a change to the attempt that it causes: whoever changes something in a loop is no flood.
    pub settle: Duration,
    /// Between attempts that fail.
    pub retry: Curve,
}

impl Default for Pace {
    /// For what is written to a store or a cluster: seconds to do it, a minute to notice an edit that
    /// nobody told of.
    fn default() -> Self {
        Self {
            attempt: Duration::from_secs(20),
            resync: Duration::from_secs(60),
            settle: Duration::from_millis(100),
            retry: Curve { first: Duration::from_millis(500), most: Duration::from_secs(30) },
        }
    }
}

impl Leader {
    /// Reconciles until the term ends. `kind` names the work on the ledger and in the log
    /// (`publish-bundle`), `key` says of which thing.
    pub fn reconcile(
        &self,
        kind: &'static str,
        key: impl Display,
        pace: Pace,
        reconciler: impl Reconciler,
    ) {
        let (key, stop) = (key.to_string(), self.tasks.stopping());
        let work = reconcile(kind, key, pace, reconciler, self.ledger.clone(), stop);
        self.tasks.spawn(kind, work);
    }
}

/// Reconciles one thing until `stop`, or until nothing is left to keep.
pub async fn reconcile(
    kind: &'static str,
    key: String,
    pace: Pace,
    reconciler: impl Reconciler,
    ledger: Ledger,
    stop: Stop,
) {
    let work = Loop { kind, key, pace, ledger, places: None };
    stop.bound(work.run(reconciler)).await;
}

struct Loop {
    kind: &'static str,
    key: String,
    pace: Pace,
    ledger: Ledger,
    /// Shared with other keys.
    places: Option<Arc<Semaphore>>,
}

impl Loop {
    async fn run(self, mut reconciler: impl Reconciler) {
        let mut backoff = Backoff::new(self.pace.retry);
        let mut trouble = Trouble::default();
        loop {
            let settle = self.pace.settle;
            let (wait, settle) = match self.attempt(&mut reconciler).await {
                Ok(Next::Finished) => return,
                Ok(next) => {
                    backoff.succeeded();
                    trouble.over(self.kind, &self.key);
                    let resync = self.pace.resync.mul_f64(0.75 + fastrand::f64() / 2.0);
                    let wait =
                        if let Next::Within(wait) = next { wait.min(resync) } else { resync };
                    (wait, settle)
                }
                Err(failure) => {
                    let retry = backoff.failed();
                    trouble.met(self.kind, &self.key, failure, retry.attempt);
                    (retry.wait, settle.max(retry.wait / 5))
                }
            };
            until_due(&mut reconciler, wait, settle).await;
        }
    }

    /// Makes one attempt; a failure is a sentence.
    async fn attempt(&self, reconciler: &mut impl Reconciler) -> Result<Next, String> {
        let op = self.ledger.begin(self.kind, self.key.clone(), "");
        let _place = match &self.places {
            Some(places) => {
                op.waits_on("other attempts of its kind", None);
                places.acquire().await.ok()
            }
            None => None,
        };
        op.step("attempt");
        let attempt = Attempt { deadline: Deadline::after(self.pace.attempt), op };
        let done = attempt.deadline.bound(attempt.op.in_span(reconciler.reconcile(&attempt))).await;
        let (outcome, result) = match done {
            Ok(Ok(next)) => (Outcome::Done, Ok(next)),
            Ok(Err(error)) => (Outcome::Failed, Err(sentence(&*error.into()))),
            Err(Expired) => {
                let limit = self.pace.attempt;
                (Outcome::Expired, Err(format!("the attempt was not done within {limit:?}")))
            }
        };
        attempt.op.finish(outcome);
        result
    }
}

/// Waits for a change and for it to settle, or for `wait` to be over.
async fn until_due(reconciler: &mut impl Reconciler, wait: Duration, settle: Duration) {
    let due = Instant::now() + wait;
    tokio::select! {
        biased;
        () = reconciler.changed() => {}
        () = sleep(wait) => return,
    }
    // What else changes meanwhile is part of the same attempt.
    let changes = async {
        loop {
            reconciler.changed().await;
            yield_now().await;
        }
    };
    let _: Result<Infallible, Expired> = Deadline::at(due).within(settle).bound(changes).await;
}

/// What is wrong, so that it is logged once and not with every attempt.
#[derive(Debug, Default)]
struct Trouble(Option<String>);

impl Trouble {
    fn met(&mut self, kind: &str, key: &str, failure: String, attempt: u32) {
        if self.0.as_ref() == Some(&failure) {
            debug!(kind, key, error = failure, attempt, "cannot reconcile, still");
            return;
        }
        warn!(kind, key, error = failure, "cannot reconcile, will try again");
        self.0 = Some(failure);
    }

    fn over(&mut self, kind: &str, key: &str) {
        if let Some(failure) = self.0.take() {
            info!(kind, key, was = failure, "reconciled after failures");
        }
    }
}

/// A reconciler for each of many keys: meshes, clusters, pools. Dropping this ends them all.
#[derive(Debug)]
pub struct Reconcilers<Q> {
    kind: &'static str,
    pace: Pace,
    places: Arc<Semaphore>,
    ledger: Ledger,
    tasks: Tasks,
    running: BTreeMap<Q, Running>,
}

/// Ends with this.
#[derive(Debug)]
struct Running(TaskHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<Q: Ord + Clone + Display> Reconcilers<Q> {
    /// At most `at_once` attempts are under way at a time.
    pub fn new(
        kind: &'static str,
        pace: Pace,
        at_once: usize,
        ledger: &Ledger,
        tasks: &Tasks,
    ) -> Self {
        Self {
            kind,
            pace,
            places: Arc::new(Semaphore::new(at_once)),
            ledger: ledger.clone(),
            tasks: tasks.clone(),
            running: BTreeMap::new(),
        }
    }

    /// Begins to reconcile a key, unless that is under way. One that panicked is begun anew.
    pub fn begin<R: Reconciler>(&mut self, key: &Q, reconciler: impl FnOnce() -> R) {
        if self.running.get(key).is_some_and(|running| !running.0.is_finished()) {
            return;
        }
        let work = Loop {
            kind: self.kind,
            key: key.to_string(),
            pace: self.pace,
            ledger: self.ledger.clone(),
            places: Some(Arc::clone(&self.places)),
        };
        let (stop, reconciler) = (self.tasks.stopping(), reconciler());
        let task = self.tasks.spawn(format!("{} {key}", self.kind), async move {
            stop.bound(work.run(reconciler)).await;
        });
        self.running.insert(key.clone(), Running(task));
    }

    /// Ends those whose key is not to be kept; what they have under way is dropped.
    pub fn retain(&mut self, mut keep: impl FnMut(&Q) -> bool) {
        self.running.retain(|key, _| keep(key));
    }

    pub fn remove(&mut self, key: &Q) {
        self.running.remove(key);
    }
}

#[cfg(test)]
mod tests;
