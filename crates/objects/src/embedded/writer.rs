//! The one writer: it makes everything that waits into one commit.
//!
//! Contract:
//! - After a group of several the next waits a moment for them to come back: else it would begin
//!   with the first, and all others would wait for a commit that is not theirs.
//! - An answer is given, and a change published, when it is on disk; never before.
//! - A request that is late before its commit begins is not applied. After that it is answered by
//!   what became of it.
//! - After a commit that failed, memory is what was acknowledged: the file is opened again and made
//!   to say what memory says. Until that succeeds writes are refused, and reads go on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use stallproof::backoff::Curve;
use stallproof::group_commit::GroupWriter;
use stallproof::metrics::Histogram;
use stallproof::{Backoff, Deadline, Snapshot};
use tokio::sync::oneshot;

use super::disk::Disk;
use super::state::{State, Write};
use crate::store::{Done, Error, Operation, Type};

/// The most requests that wait, and that one commit takes: many times the number of callers at once;
/// more would only wait longer than their deadlines.
pub(super) const QUEUE: usize = 512;
/// The part of a commit's time that the next one waits for more requests, and how long at most: little
/// enough to be lost in the time that the disk takes.
const GATHER: u32 = 8;
const GATHER_MOST: Duration = Duration::from_millis(2);
/// How long a disk that failed is left alone: at first, and at most.
const REOPEN: Curve = Curve { first: Duration::from_millis(100), most: Duration::from_secs(5) };

pub(super) struct Request {
    pub(super) of: Type,
    pub(super) operation: Operation,
    pub(super) doing: String,
    pub(super) deadline: Deadline,
    /// Set by the writer when its commit begins, or by the caller when it gives up before that.
    pub(super) taken: Arc<AtomicBool>,
    pub(super) answer: oneshot::Sender<Result<Done, Error>>,
}

/// Says why nothing can be written now.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Broken(Arc<str>);

/// The writer's metrics. Clones count together.
#[derive(Clone, Default)]
pub(super) struct Meters {
    /// How long each commit took; those that failed as well.
    commits: Histogram,
    writes: Counter,
    failures: Counter,
}

impl Meters {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "objects_commit_seconds",
            "How long commits of the embedded store took",
            self.commits.clone(),
        );
        registry.register(
            "objects_writes",
            "Changes of objects that the embedded store has committed",
            self.writes.clone(),
        );
        registry.register(
            "objects_commit_failures",
            "Commits of the embedded store that failed",
            self.failures.clone(),
        );
    }
}

pub(super) struct Writer {
    dir: PathBuf,
    state: Snapshot<State>,
    meters: Meters,
    disk: Result<Disk, Broken>,
    backoff: Backoff,
    /// When the file may be opened again.
    rest: Instant,
}

impl Writer {
    pub(super) fn new(dir: PathBuf, disk: Disk, state: Snapshot<State>, meters: Meters) -> Self {
        let backoff = Backoff::new(REOPEN);
        Self { dir, state, meters, disk: Ok(disk), backoff, rest: Instant::now() }
    }

    fn commit(&mut self, group: Vec<Request>) {
        let mut state = (*self.state.load()).clone();
        let before = state.revision();
        let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
        let mut writes = Vec::new();
        let mut answers = Vec::with_capacity(group.len());
        for request in group {
            let Request { of, operation, doing, deadline, taken, answer } = request;
            if taken.swap(true, Ordering::AcqRel) || answer.is_closed() {
                continue;
            }
            let result = if deadline.has_passed() {
                Err(Error::TooLate { doing: doing.clone() })
            } else {
                state.run(&of, operation, now, &mut writes)
            };
            answers.push((doing, answer, result));
        }

        let written = if writes.is_empty() { Ok(()) } else { self.store(&state, &writes) };
        if written.is_ok() && state.revision() != before {
            self.state.update(|current| {
                *current = state;
                true
            });
        }
        for (doing, answer, result) in answers {
            // Even a refusal may rest on what another of the group was about to write.
            let result = match &written {
                Ok(()) => result,
                Err(broken) => Err(Error::Unavailable { doing, source: Box::new(broken.clone()) }),
            };
            // Whoever has left does not want it.
            let _ = answer.send(result);
        }
    }

    fn store(&mut self, state: &State, writes: &[Write]) -> Result<(), Broken> {
        self.recover()?;
        let disk = self.disk.as_ref().map_err(Clone::clone)?;
        let began = Instant::now();
        let committed = disk.commit(state.revision(), writes);
        self.meters.commits.observe(began.elapsed());
        let Err(error) = committed else {
            self.backoff.succeeded();
            self.meters.writes.inc_by(writes.len() as u64);
            return Ok(());
        };
        let file = disk.file().display().to_string();
        self.meters.failures.inc();
        tracing::error!(file, %error, "the store cannot write; it will try again");
        Err(self.broke(format!("{file}: {error}")))
    }

    /// Opens the file again after a failure. If it holds the commit that failed, it is written anew
    /// from memory: that commit was not acknowledged, and the kernel may show pages of it that it
    /// gave up writing.
    fn recover(&mut self) -> Result<(), Broken> {
        let Err(broken) = &self.disk else { return Ok(()) };
        if Instant::now() < self.rest {
            return Err(broken.clone());
        }
        let reopen = || -> Result<Disk, Box<dyn std::error::Error>> {
            let (disk, there) = Disk::open(&self.dir)?;
            let acknowledged = self.state.load();
            if there.revision() != acknowledged.revision() {
                disk.replace(&acknowledged)?;
            }
            Ok(disk)
        };
        match reopen() {
            Ok(disk) => {
                tracing::info!(file = %disk.file().display(), "the store writes again");
                self.disk = Ok(disk);
                Ok(())
            }
            Err(error) => {
                let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                Err(self.broke(format!("{error}{cause}")))
            }
        }
    }

    fn broke(&mut self, why: String) -> Broken {
        let broken = Broken(why.into());
        self.rest = Instant::now() + self.backoff.failed().wait;
        self.disk = Err(broken.clone());
        broken
    }
}

impl GroupWriter for Writer {
    type Request = Box<Request>;

    fn write(&mut self, group: Vec<Box<Request>>) {
        let (several, began) = (group.len() > 1, Instant::now());
        self.commit(group.into_iter().map(|request| *request).collect());
        if several {
            thread::sleep((began.elapsed() / GATHER).min(GATHER_MOST));
        }
    }

    fn panicked(&mut self, why: &str) {
        tracing::error!(why, "a commit panicked; the store is opened again");
        self.broke("a commit panicked".to_owned());
    }

    fn close(self) {}
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The file first: whoever sees that the store is closed may open it.
        self.disk = Err(Broken("the store is closed".into()));
        self.state.update(|state| {
            state.closed = true;
            true
        });
    }
}

#[cfg(test)]
mod tests;
