//! `Audit`: records every write on disk, before it happens and after.
//!
//! Contract:
//! - [`Audit::begin`] returns once the intent is on disk (`sync_data`), and has reserved the place of the
//!   outcome's line as well. When it cannot (too many at once, a disk that fails or hangs), it returns an
//!   error with a time to come back, and the write must not be done.
//! - [`Pending::finish`] writes the outcome and waits for nothing. When it is dropped without that (a
//!   caller that went away, a panic), the outcome is [`UNKNOWN`]. Outcomes that cannot be written are
//!   kept and tried again; intents are refused meanwhile.
//! - So a write has two lines with one `id`: `begun`, then `ended` with everything that `begun` had. A
//!   write that is `begun` and never `ended` was under way when the process died: whether it was done is
//!   unknown.
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

use crate::identity::Identity;
use crate::role::Verb;
use crate::secret::random_id;
use log::Log;
pub use read::{Filter, MOST, OlderThan, Page, Phase, Record};

/// The outcome of a write whose caller did not report one.
pub const UNKNOWN: &str = "unknown";
/// The outcome of a write that was not done because its intent was not on disk in time.
pub const NOT_DONE: &str = "not_done";

/// Lines that wait for the disk, two for each write in flight, of about 1 KiB. It is more than a gate
/// lets in.
const QUEUE: usize = 4096;
/// The most lines of one sync, so that none waits for a long batch.
const BATCH: usize = 512;
/// The wait before a disk that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How much of the audit is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The size of a file in bytes.
    pub each: u64,
    /// The number of files, with the one that is being written.
    pub files: usize,
}

impl Default for Size {
    /// 256 MiB: about a quarter of a million writes.
    fn default() -> Self {
        Self { each: 32 << 20, files: 8 }
    }
}

/// A write that a user wants to make.
#[derive(Clone, Debug)]
pub struct Entry {
    pub who: Identity,
    pub from: Option<IpAddr>,
    pub verb: Verb,
    /// The cluster; [`FLEET`](crate::FLEET) for the fleet's own objects.
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

/// A line for the writer.
#[derive(Debug)]
struct Line {
    text: Vec<u8>,
    /// The caller who waits for an intent to be on disk.
    written: Option<oneshot::Sender<Result<(), Arc<io::Error>>>>,
    /// Whether it is kept while the disk fails, as the outcome of a write that has begun is. There are no
    /// more of those than places in the queue.
    keep: bool,
}

/// A write whose intent is on disk. Its outcome must be reported.
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
    /// Opens the audit of a data directory. Files are created with the first line, so that a disk that
    /// fails refuses writes and not the start.
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

    /// Writes the intent to disk. The write may be done only if this is `Ok`.
    pub async fn begin(&self, entry: Entry, deadline: Deadline) -> Result<Pending, AuditError> {
        let (intent, place) = self.places().inspect_err(|_| {
            self.metrics.refused.inc();
        })?;
        let record = Record::begun(entry, random_id::<8>(), Timestamp::now());
        let (written, answer) = oneshot::channel();
        self.metrics.waiting.inc();
        let line = Line { text: record.line(), written: Some(written), keep: false };
        let _ = intent.send(line);
        // From here on a caller that goes away leaves a line with that outcome.
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
                // The intent is not on disk, so that there is no outcome.
                pending.place = None;
                AuditError::Unavailable { retry_after: RETRY, source }
            }
            Ok(Err(_)) => AuditError::Stopping,
            Err(_) => AuditError::TooLate,
        };
        self.metrics.refused.inc();
        Err(refused)
    }

    /// Returns the newest records that match, the newest first. They are read on a blocking thread; a page
    /// that the deadline cuts short is marked as incomplete.
    pub async fn read(
        &self,
        filter: Filter,
        limit: usize,
        deadline: Deadline,
    ) -> Result<Page, AuditError> {
        let dir = Arc::clone(&self.dir);
        // Leaves time to return the records that were found.
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

    /// Reserves the place of an intent and that of its outcome, or neither.
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
    /// The id in the audit's lines.
    pub fn id(&self) -> &str {
        &self.record.id
    }

    /// Reports the outcome: `ok`, or the code of the error that the caller got.
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

/// The task that writes the files.
struct Writer {
    /// `None` at first, while a thread writes with it, and after that thread has panicked.
    log: Option<Log>,
    dir: Arc<Path>,
    size: Size,
    queue: mpsc::Receiver<Line>,
    /// Outcomes that could not be written. While the disk fails no write may begin, so that there are no
    /// more of them than reserved places.
    kept: Vec<Line>,
    /// When the disk is tried again, and why it failed.
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
                // From now on no write begins; outcomes of those that have begun are still written.
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
                    // A caller that does not wait any more has sent an outcome.
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

    /// Writes a batch. A disk that hangs blocks this task, and its callers until their own deadlines.
    async fn append(&mut self, batch: &[Line]) -> io::Result<()> {
        let mut log = self.log.take().unwrap_or_else(|| Log::new(&self.dir, self.size));
        let text: Vec<u8> = batch.iter().flat_map(|line| &line.text).copied().collect();
        let work = move || {
            let done = log.append(&text);
            (log, done)
        };
        // Until a thread is free, the queue fills and refuses.
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
