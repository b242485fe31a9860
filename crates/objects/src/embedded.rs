//! The embedded engine: everything in memory, and in one redb file before it is acknowledged.
//!
//! ```text
//! writes   request ──► GroupCommit ──► Writer (its thread) ──► redb, one fsync a group
//!                                                   │ then
//! reads    Snapshot<State> ◄────────────────────────┘ publish, answer
//! watches  a revision each; what comes after it is in the state's history
//! ```
//!
//! Reads are a load and a map get, in memory that redb knows nothing of: its own read transactions
//! would cost a walk through pages and a parse each, and would be refused after an I/O error, just
//! when reads must go on. What a control plane keeps (some ten thousand objects of a few KiB) fits.
//!
//! A watcher is a number, so it costs a commit nothing, and one that is slow grows nothing: when
//! the history has moved on without it, it begins again.
//!
//! There is no garbage collector, so what an object owns goes with it in the same commit.
//!
//! The disk is real, and so must be the clock: not for tests that pause time.

mod disk;
mod state;
#[cfg(feature = "fuzzing")]
pub(crate) use state::fuzz;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kube::core::DynamicObject;
use prometheus_client::registry::Registry;
use stallproof::group_commit::QueueError;
use stallproof::snapshot::Changes;
use stallproof::{Deadline, GroupCommit, Snapshot, Tasks};
use tokio::sync::oneshot;

pub use disk::OpenError;

use crate::store::{
    Answer, Done, Engine, Error, Event, Id, Listing, Objects, Operation, Type, Version, Within,
};
use disk::Disk;
use state::{State, kind_of};
use writer::{Meters, QUEUE, Request, Writer};

/// When a caller whom a full queue refuses should come back: a slow disk makes some commits by then.
const COME_BACK: Duration = Duration::from_millis(200);
/// How much longer than its deadline a caller waits to be told what became of a commit that has
/// begun. A disk that takes longer has hung.
const OUTCOME_WITHIN: Duration = Duration::from_secs(10);

impl Objects {
    /// Opens the store in `dir`, and makes it if it does not exist. This reads the whole file, on this
    /// thread. The store is closed when `tasks` stops, or when the last clone is dropped.
    pub fn embedded(dir: &Path, tasks: &Tasks) -> Result<Self, OpenError> {
        let (disk, state) = Disk::open(dir)?;
        let file = disk.file().to_owned();
        let state = Snapshot::new(state);
        let meters = Meters::default();
        let writer = Writer::new(dir.to_owned(), disk, state.clone(), meters.clone());
        let queue = GroupCommit::start("objects-writer", QUEUE, writer, tasks)
            .map_err(|source| OpenError::Io { file, source: Box::new(source) })?;
        Ok(Self::on(Embedded { state, queue, meters }))
    }
}

struct Embedded {
    state: Snapshot<State>,
    queue: GroupCommit<Box<Request>>,
    meters: Meters,
}

#[derive(Debug, thiserror::Error)]
enum Gone {
    #[error("the store was closed")]
    Closed,
    #[error("the disk does not answer, and whether the write was made is not known")]
    Hangs,
    #[error("the commit panicked; the log has the panic")]
    Panicked,
}

impl Embedded {
    fn read<T>(&self, doing: &str, of: &Type, read: impl FnOnce(&State) -> T) -> Result<T, Error> {
        let state = self.state.load();
        if state.closed {
            return Err(unavailable(format!("{doing} {}", of.kind), Gone::Closed));
        }
        Ok(read(&state))
    }

    async fn commit(
        &self,
        of: Type,
        operation: Operation,
        deadline: Deadline,
    ) -> Result<Done, Error> {
        let doing = format!("{} {} {}", operation.doing(), of.kind, operation.id());
        let taken = Arc::new(AtomicBool::new(false));
        let (answer, mut answered) = oneshot::channel();
        let request = Request {
            of,
            operation,
            doing: doing.clone(),
            deadline,
            taken: Arc::clone(&taken),
            answer,
        };
        match self.queue.try_send(Box::new(request)) {
            Ok(()) => {}
            Err(QueueError::Full) => return Err(Error::Busy { retry_after: COME_BACK }),
            Err(QueueError::Closed) => return Err(unavailable(doing, Gone::Closed)),
        }
        let outcome = match deadline.bound(&mut answered).await {
            Ok(outcome) => outcome,
            Err(_) if !taken.swap(true, Ordering::AcqRel) => return Err(Error::TooLate { doing }),
            Err(_) => match Deadline::after(OUTCOME_WITHIN).bound(answered).await {
                Ok(outcome) => outcome,
                Err(_) => return Err(unavailable(doing, Gone::Hangs)),
            },
        };
        outcome.unwrap_or_else(|_| {
            let closed = self.state.load().closed || self.queue.is_closed();
            Err(unavailable(doing, if closed { Gone::Closed } else { Gone::Panicked }))
        })
    }
}

impl Engine for Embedded {
    fn exclusive(&self) -> bool {
        true
    }

    fn register(&self, registry: &mut Registry) {
        self.meters.register(registry);
    }

    fn get<'a>(&'a self, of: Type, id: &'a Id, _: Deadline) -> Answer<'a, Option<DynamicObject>> {
        let get = |state: &State| state.get(&kind_of(&of), id).map(|found| (**found).clone());
        let found = self.read("reading", &of, get);
        Box::pin(async { found })
    }

    fn list<'a>(
        &'a self,
        of: Type,
        within: &'a Within,
        _: Deadline,
    ) -> Answer<'a, Listing<DynamicObject>> {
        let listing = self.read("listing", &of, |state| state.list(&kind_of(&of), within));
        Box::pin(async { listing })
    }

    fn watch(
        &self,
        of: Type,
        within: Within,
        after: Option<Version>,
    ) -> BoxStream<'static, Event<DynamicObject>> {
        let watcher = Watcher {
            state: self.state.clone(),
            changes: self.state.subscribe(),
            kind: kind_of(&of),
            within,
            // What is no number of ours is as good as forgotten.
            seen: after.and_then(|Version(version)| version.parse().ok()),
        };
        stream::unfold(watcher, |mut watcher| async move {
            let event = watcher.next().await?;
            Some((event, watcher))
        })
        .boxed()
    }

    fn write(&self, of: Type, operation: Operation, deadline: Deadline) -> Answer<'_, Done> {
        Box::pin(self.commit(of, operation, deadline))
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Embedded(revision {})", self.state.load().revision())
    }
}

struct Watcher {
    state: Snapshot<State>,
    changes: Changes<State>,
    kind: state::Kind,
    within: Within,
    /// The last revision that was told; none at the start.
    seen: Option<u64>,
}

impl Watcher {
    async fn next(&mut self) -> Option<Event<DynamicObject>> {
        loop {
            let closed = {
                // Not kept while waiting: a slow watcher must not keep an old state alive.
                let state = self.state.load();
                let (seen, event) = state.next(&self.kind, &self.within, self.seen);
                self.seen = Some(seen);
                if event.is_some() {
                    return event;
                }
                state.closed
            };
            if closed {
                return None;
            }
            self.changes.changed().await;
        }
    }
}

fn unavailable(doing: String, why: Gone) -> Error {
    Error::Unavailable { doing, source: Box::new(why) }
}

#[cfg(test)]
mod tests;
