//! `Audit`: a line on disk for every write, before it happens and after.
//!
//! Contract:
//! - [`Audit::begin`] answers once the intent is on disk (`sync_data`), and has then reserved the place
//!   of the outcome's line too. When it cannot (too many at once, a disk that fails or hangs), it is
//!   an error with a time to come back, and the write must not be done.
//! - [`Pending::finish`] writes the outcome and waits for nothing. Dropped without it (a caller that
//!   went away, a panic) the outcome is [`UNKNOWN`]. Outcomes that the disk does not take are kept and
//!   tried again; intents are refused meanwhile.
//! - So a write leaves two lines of one `id`: `begun`, then `ended` with everything that `begun` had.
//!   One that is `begun` and never `ended` was under way when the process died: nobody knows whether
//!   it was done.
//! - Lines go to `<data>/audit/audit.jsonl`, readable by its owner only, and are never changed. At
//!   [`Size::each`] the file becomes `audit.1.jsonl` and so on; [`Size::files`] are kept.
//!
//! One task writes. While it syncs one batch the next one gathers, so that a hundred writers at once
//! wait for two syncs and not for a hundred (`benches/audit.rs` measures).

mod log;
mod read;

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stallproof::{Deadline, Tasks};
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::role::Verb;
use crate::secret::random_id;
use crate::who::Who;
use log::Log;
pub use read::{Filter, MOST, OlderThan, Page, Phase, Record};

/// The outcome of a write whose caller did not say.
pub const UNKNOWN: &str = "unknown";
/// The outcome of a write that was not done because its intent was not on disk in time.
pub const NOT_DONE: &str = "not_done";

/// Lines that wait for the disk, two for each write in flight: more writes than a gate lets in, at
/// about 1 KiB each.
const QUEUE: usize = 4096;
/// What one sync takes at most, so that none is held up by the length of a batch.
const BATCH: usize = 512;
/// When to try a disk again that failed.
const RETRY: Duration = Duration::from_secs(1);

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Bytes of a file.
    pub each: u64,
    /// The one that is written included.
    pub files: usize,
}

impl Default for Size {
    /// 256 MiB: about a quarter of a million writes.
    fn default() -> Self {
        Self { each: 32 << 20, files: 8 }
    }
}

/// A write that somebody wants to do.
#[derive(Clone, Debug)]
pub struct Entry {
    pub who: Who,
    pub from: Option<IpAddr>,
    pub verb: Verb,
    /// [`FLEET`](crate::FLEET) for the fleet's own matters.
    pub cluster: String,
    pub namespace: Option<String>,
    /// `plural.group`.
    pub resource: String,
    pub name: Option<String>,
    pub request_id: Option<String>,
    pub dry_run: bool,
}

/// Why a write cannot be recorded, and so must not be done.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("the audit is busy, and no write goes unrecorded; come back in {retry_after:?}")]
    Busy { retry_after: Duration },
    #[error(
        "the audit cannot be written, and no write goes unrecorded; come back in {retry_after:?}"
    )]
    Unavailable {
        retry_after: Duration,
        #[source]
        source: Arc<io::Error>,
    },
    #[error("the audit was not on disk within the deadline, and no write goes unrecorded")]
    TooLate,
    #[error("shutting down")]
    Stopping,
}

/// Clones share one writer.
#[derive(Clone, Debug)]
pub struct Audit {
    lines: mpsc::Sender<Line>,
    dir: Arc<Path>,
    tasks: Tasks,
    metrics: Metrics,
}

/// What the writer is sent.
#[derive(Debug)]
struct Line {
    text: Vec<u8>,
    /// Of an intent: who waits for it to be on disk.
    written: Option<oneshot::Sender<Result<(), Arc<io::Error>>>>,
    /// Whether it is worth keeping while the disk fails: the outcome of a write that was let begin.
    /// Of those there are no more than places in the queue.
    keep: bool,
}

/// A write whose intent is on disk. Say how it ended.
#[derive(Debug)]
#[must_use = "dropped at once, its outcome is unknown"]
pub struct Pending {
    record: Record,
    began: Instant,
    /// The reserved place; taken when the outcome is sent.
    place: Option<OwnedPermit<Line>>,
    outcome: &'static str,
    metrics: Metrics,
}

impl Audit {
    /// Opens the audit of a data directory. Files are made when the first line comes, so a disk that
    /// fails refuses writes, not the start.
    pub fn start(data: &Path, size: Size, tasks: &Tasks) -> Self {
        let (lines, queue) = mpsc::channel(QUEUE);
        let dir: Arc<Path> = data.join("audit").into();
        let metrics = Metrics::default();
        let writer = Writer {
            log: None,
            dir: Arc::clone(&dir),
            size,
            queue,
            kept: Vec::new(),
            failed: None,
            tasks: tasks.clone(),
            metrics: metrics.clone(),
        };
        tasks.spawn_essential("audit writer", writer.run());
        Self { lines, dir, tasks: tasks.clone(), metrics }
    }

    /// Puts the intent on disk. Do the write only if this is `Ok`.
    pub async fn begin(&self, entry: Entry, deadline: Deadline) -> Result<Pending, AuditError> {
        let (intent, place) = self.places().inspect_err(|_| {
            self.metrics.refused.inc();
        })?;
        let record = Record::begun(entry, random_id::<8>(), Timestamp::now());
        let (written, answer) = oneshot::channel();
        self.metrics.waiting.inc();
        let line = Line { text: record.line(), written: Some(written), keep: false };
        let _ = intent.send(line);
        // From here on a caller that goes away leaves a line that says so.
        let mut pending = Pending {
            record,
            began: Instant::now(),
            place: Some(place),
            outcome: NOT_DONE,
            metrics: self.metrics.clone(),
        };
        let answer = deadline.bound(answer).await;
        let refused = match answer {
            Ok(Ok(Ok(()))) => {
                pending.outcome = UNKNOWN;
                return Ok(pending);
            }
            Ok(Ok(Err(source))) => {
                // It is not on disk: there is nothing to end.
                pending.place = None;
                AuditError::Unavailable { retry_after: RETRY, source }
            }
            Ok(Err(_)) => AuditError::Stopping,
            Err(_) => AuditError::TooLate,
        };
        self.metrics.refused.inc();
        Err(refused)
    }

    /// The newest records that match, newest first. Blocking reads run on a thread for them; what is
    /// not read by the deadline is left out, and the page says so.
    pub async fn read(
        &self,
        filter: Filter,
        limit: usize,
        deadline: Deadline,
    ) -> Result<Page, AuditError> {
        let dir = Arc::clone(&self.dir);
        // Leave time to answer with what was found.
        let until = Deadline::after(deadline.remaining().mul_f64(0.8));
        let work = move || read::newest(&dir, &filter, limit, until);
        let too_late = |_| AuditError::TooLate;
        let task =
            self.tasks.spawn_blocking("read audit", deadline, work).await.map_err(too_late)?;
        let read =
            deadline.bound(task).await.map_err(too_late)?.map_err(|_| AuditError::Stopping)?;
        read.map_err(|error| AuditError::Unavailable {
            retry_after: RETRY,
            source: Arc::new(error),
        })
    }

    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// The place of an intent and that of its outcome, or neither.
    fn places(&self) -> Result<(OwnedPermit<Line>, OwnedPermit<Line>), AuditError> {
        let place = || {
            self.lines.clone().try_reserve_owned().map_err(|refused| match refused {
                mpsc::error::TrySendError::Full(_) => AuditError::Busy { retry_after: RETRY },
                mpsc::error::TrySendError::Closed(_) => AuditError::Stopping,
            })
        };
        Ok((place()?, place()?))
    }
}

impl Pending {
    /// As in the audit's lines.
    pub fn id(&self) -> &str {
        &self.record.id
    }

    /// `outcome` is `ok`, or the code of the error that the caller was answered with.
    pub fn finish(mut self, outcome: &str) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: &str) {
        let Some(place) = self.place.take() else {
            return;
        };
        self.record.end(outcome, Timestamp::now(), self.began.elapsed());
        self.metrics.waiting.inc();
        let keep = outcome != NOT_DONE;
        let _ = place.send(Line { text: self.record.line(), written: None, keep });
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.end(self.outcome);
    }
}

/// The one task that writes.
struct Writer {
    /// None at first, while a thread writes with it, and after that thread has panicked.
    log: Option<Log>,
    dir: Arc<Path>,
    size: Size,
    queue: mpsc::Receiver<Line>,
    /// Outcomes that the disk did not take. While it fails no write is let begin, so they are no more
    /// than had their places reserved before.
    kept: Vec<Line>,
    /// Until when the disk is not tried again, and why.
    failed: Option<(Instant, Arc<io::Error>)>,
    tasks: Tasks,
    metrics: Metrics,
}

impl Writer {
    async fn run(mut self) {
        let stop = self.tasks.stopping();
        let mut open = true;
        loop {
            let mut batch = std::mem::take(&mut self.kept);
            let retry = if batch.is_empty() { stallproof::deadline::LONGEST } else { RETRY };
            let room = BATCH.saturating_sub(batch.len()).max(1);
            tokio::select! {
                biased;
                // From now on nobody begins; those who have begun still end.
                () = stop.stopped(), if open => {
                    self.queue.close();
                    open = false;
                    self.kept = batch;
                    continue;
                }
                came = self.queue.recv_many(&mut batch, room) => {
                    if came == 0 {
                        self.failed = None;
                        self.write(batch).await;
                        return;
                    }
                }
                () = tokio::time::sleep(retry) => {}
            }
            self.write(batch).await;
        }
    }

    async fn write(&mut self, batch: Vec<Line>) {
        if batch.is_empty() {
            return;
        }
        let written = self.try_write(&batch).await;
        for mut line in batch {
            match (line.written.take(), &written) {
                (None, Err(_)) if line.keep => self.kept.push(line),
                (answer, written) => {
                    self.metrics.waiting.dec();
                    // Who does not wait any more has sent an outcome that says so.
                    answer.map(|answer| answer.send(written.clone()));
                }
            }
        }
    }

    async fn try_write(&mut self, batch: &[Line]) -> Result<(), Arc<io::Error>> {
        if let Some((until, error)) = &self.failed
            && Instant::now() < *until
        {
            return Err(Arc::clone(error));
        }
        let done = self.append(batch).await.map_err(Arc::new);
        match &done {
            Ok(()) => {
                if self.failed.take().is_some() {
                    tracing::info!("the audit can be written again");
                }
            }
            Err(error) => {
                tracing::error!(%error, "the audit cannot be written; writes are refused");
                self.metrics.failures.inc();
                self.failed = Some((Instant::now() + RETRY, Arc::clone(error)));
            }
        }
        done
    }

    /// Not in time or at all: an error. A disk that hangs holds this task, and its callers until
    /// their own deadlines.
    async fn append(&mut self, batch: &[Line]) -> io::Result<()> {
        let mut log = self.log.take().unwrap_or_else(|| Log::new(&self.dir, self.size));
        let text: Vec<u8> = batch.iter().flat_map(|line| &line.text).copied().collect();
        let work = move || {
            let done = log.append(&text);
            (log, done)
        };
        // A thread comes free sooner or later; until then the queue fills and refuses.
        let deadline = Deadline::after(stallproof::deadline::LONGEST);
        let task = self.tasks.spawn_blocking("write audit", deadline, work).await;
        let task = task.map_err(io::Error::other)?;
        let (log, done) = task.await.map_err(io::Error::other)?;
        self.log = Some(log);
        done
    }
}

#[derive(Clone, Debug, Default)]
struct Metrics {
    waiting: Gauge,
    refused: Counter,
    failures: Counter,
}

impl Metrics {
    fn register(&self, registry: &mut Registry) {
        registry.register("audit_queue", "Lines that wait for the disk", self.waiting.clone());
        let help = "Writes refused because they could not be recorded";
        registry.register("audit_refused", help, self.refused.clone());
        registry.register("audit_failures", "Batches that the disk refused", self.failures.clone());
    }
}

#[cfg(test)]
mod tests;
