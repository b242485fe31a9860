//! `Audit`: records on disk what users do: every write before it happens and after; logins, failed logins, and
//! reads of what is secret.
//!
//! Contract for writes:
//! - [`Audit::begin`] returns once the intent is on disk (`sync_data`), and has reserved the place of the
//!   outcome's line as well. When it cannot (too many at once, a disk that fails or hangs), it returns an
//!   error with a time to come back, and the write must not be done.
//! - [`Pending::finish`] writes the outcome and waits for nothing. When it is dropped without that (a
//!   caller that went away, a panic), the outcome is [`UNKNOWN`]. Outcomes that cannot be written are
//!   kept and tried again; intents are refused meanwhile.
//! - So a write has two lines with one `id`: `begun`, then `ended` with everything that `begun` had. A
//!   write that is `begun` and never `ended` was under way when the process died: whether it was done is
//!   unknown.
//!
//! Contract for what is no write:
//! - [`Audit::note`] queues one line and waits for nothing. It is on disk with the next batch. It is refused
//!   while [`NOTES`] of them wait for the disk: then the act must not be done either.
//! - [`Audit::failed_login`] never refuses and never waits. Failures are folded ([`failed_logins`]), so that a
//!   flood of them costs a few lines a minute.
//!
//! Lines go to `<data>/audit/audit.jsonl` ([`stallproof::line_log`]), and say nothing secret.
//!
//! One task writes. While it syncs one batch the next one gathers, so that a hundred writers at once
//! wait for two syncs and not for a hundred (`benches/audit.rs` measures).

mod failed_logins;
mod read;
pub mod recording;

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::{Map, Value};
use stallproof::line_log::LogPosition;
use stallproof::{Deadline, LineLog, Tasks, TrackedMutex};
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::identity::Identity;
use crate::role::{FLEET, Verb};
use crate::secret::random_id;
use failed_logins::FailedLogins;
pub use failed_logins::LoginFailure;
pub use read::{Filter, MOST, OlderThan, Page, Part, Phase, Record};
use recording::RecordingView;
pub use stallproof::LogSize as Size;

/// The outcome of a write whose caller did not report one.
pub const UNKNOWN: &str = "unknown";
/// The outcome of a write that was not done because its intent was not on disk in time.
pub const NOT_DONE: &str = "not_done";

/// The verb of logins, which no role speaks of.
pub const LOGIN: &str = "login";
/// The resource of logins.
pub const SESSIONS: &str = "sessions";

/// The name of the files.
const NAME: &str = "audit";
/// Lines that wait for the disk, two for each write in flight, of about 1 KiB. It is more than gates let in;
/// shells and forwards, of which some thousand may be open, hold one place each.
const QUEUE: usize = 8192;
/// Lines of reads and logins that wait for the disk, or for one that fails.
const NOTES: usize = 1024;
/// The most lines of one sync, so that none waits for a long batch.
const BATCH: usize = 512;
/// The wait before a disk that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What a user wants to do.
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
    /// What is asked for, without secrets.
    pub details: Map<String, Value>,
}

/// Why an act cannot be recorded, and so must not be done.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("the audit is busy, and nothing goes unrecorded; come back in {retry_after:?}")]
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
    /// A place for each line that is not of a write and not on disk yet.
    notes: Arc<Semaphore>,
    /// Written by whoever fails to log in, and taken from by the writer.
    failed_logins: Arc<TrackedMutex<FailedLogins>>,
    /// Wakes the writer for the first failure of a kind.
    failed: Arc<Notify>,
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
    /// more of those than places in the queue and in `notes`.
    keep: bool,
    /// The place of a note, given back when it is on disk.
    _note: Option<OwnedSemaphorePermit>,
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
    /// Where the files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Opens the audit of a data directory. Files are created with the first line, so that a disk that
    /// fails refuses writes and not the start.
    pub fn start(data: &Path, size: Size, tasks: &Tasks) -> Self {
        let (lines, queue) = mpsc::channel(QUEUE);
        let dir: Arc<Path> = data.join("audit").into();
        let metrics = Metrics::default();
        let failed_logins = TrackedMutex::new("audit failed logins", FailedLogins::default());
        let (failed_logins, failed) = (Arc::new(failed_logins), Arc::<Notify>::default());
        let writer = Writer {
            log: None,
            dir: Arc::clone(&dir),
            size,
            queue,
            failed_logins: Arc::clone(&failed_logins),
            login_failed: Arc::clone(&failed),
            kept: Vec::new(),
            failed: None,
            tasks: tasks.clone(),
            metrics: metrics.clone(),
        };
        tasks.spawn_essential("audit writer", writer.run());
        let notes = Arc::new(Semaphore::new(NOTES));
        Self { lines, notes, failed_logins, failed, dir, tasks: tasks.clone(), metrics }
    }

    /// Writes the intent to disk. The write may be done only if this is `Ok`.
    pub async fn begin(&self, entry: Entry, deadline: Deadline) -> Result<Pending, AuditError> {
        let (intent, place) = self.places().inspect_err(|_| {
            self.metrics.refused.inc();
        })?;
        let record = Record::begun(entry, random_id::<8>(), Timestamp::now());
        let (written, answer) = oneshot::channel();
        self.metrics.waiting.inc();
        let line = Line { text: record.line(), written: Some(written), keep: false, _note: None };
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

    /// Records what is no write, with its outcome, and waits for nothing. It may be done only if this is `Ok`.
    pub fn note(&self, entry: Entry, outcome: &str) -> Result<(), AuditError> {
        self.note_record(Record::begun(entry, random_id::<8>(), Timestamp::now()), outcome)
    }

    /// Records that somebody has logged in, by `method` (`password`, `link`).
    pub fn login(
        &self,
        who: &Identity,
        from: IpAddr,
        method: &str,
        request_id: Option<String>,
    ) -> Result<(), AuditError> {
        let mut record = Record::begun(
            Entry {
                who: who.clone(),
                from: Some(from),
                verb: Verb::Create,
                cluster: FLEET.to_owned(),
                namespace: None,
                resource: SESSIONS.to_owned(),
                name: Some(who.user.to_string()),
                request_id,
                dry_run: false,
                details: Map::from_iter([("method".to_owned(), method.into())]),
            },
            random_id::<8>(),
            Timestamp::now(),
        );
        LOGIN.clone_into(&mut record.verb);
        self.note_record(record, "ok")
    }

    /// Records that somebody failed to log in. Never refuses, and waits for nothing.
    pub fn failed_login(&self, failure: LoginFailure) {
        let now = (Instant::now(), Timestamp::now());
        if self.failed_logins.lock().add(failure, now.0, now.1) {
            self.failed.notify_one();
        }
    }

    fn note_record(&self, mut record: Record, outcome: &str) -> Result<(), AuditError> {
        let busy = AuditError::Busy { retry_after: RETRY };
        let place = Arc::clone(&self.notes).try_acquire_owned().map_err(|_| busy);
        let place = place.and_then(|note| Ok((note, self.place()?))).inspect_err(|_| {
            self.metrics.refused.inc();
        });
        let (note, place) = place?;
        record.phase = Phase::Noted;
        record.outcome = Some(outcome.to_owned());
        self.metrics.waiting.inc();
        let line = Line { text: record.line(), written: None, keep: true, _note: Some(note) };
        let _ = place.send(line);
        Ok(())
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
        self.blocking(deadline, move || read::newest(&dir, &filter, limit, until)).await
    }

    /// Returns lines that match, the oldest first, from where an earlier part ended.
    pub async fn export(
        &self,
        filter: Filter,
        after: Option<LogPosition>,
        deadline: Deadline,
    ) -> Result<Part, AuditError> {
        let dir = Arc::clone(&self.dir);
        let until = Deadline::after(deadline.remaining().mul_f64(0.8));
        self.blocking(deadline, move || read::export(&dir, &filter, after, until)).await
    }

    /// Lists the newest recordings of shells, the newest first.
    pub async fn recordings(&self, deadline: Deadline) -> Result<Vec<RecordingView>, AuditError> {
        let dir = Arc::clone(&self.dir);
        self.blocking(deadline, move || recording::list(&dir, MOST)).await
    }

    /// Returns a recording of a shell; none if there is none of that id.
    pub async fn recording(
        &self,
        id: String,
        deadline: Deadline,
    ) -> Result<Option<Vec<u8>>, AuditError> {
        let dir = Arc::clone(&self.dir);
        self.blocking(deadline, move || recording::fetch(&dir, &id)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        deadline: Deadline,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, AuditError> {
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
        Ok((self.place()?, self.place()?))
    }

    fn place(&self) -> Result<OwnedPermit<Line>, AuditError> {
        self.lines.clone().try_reserve_owned().map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => AuditError::Busy { retry_after: RETRY },
            mpsc::error::TrySendError::Closed(_) => AuditError::Stopping,
        })
    }
}

impl Pending {
    /// The id in the audit's lines.
    pub fn id(&self) -> &str {
        &self.record.id
    }

    /// Names the subject, where it was not known at the beginning.
    pub fn name(&mut self, name: &str) {
        self.record.name = Some(read::clipped(name.to_owned()));
    }

    /// Adds a detail of what was done, without secrets.
    pub fn detail(&mut self, key: &str, value: Value) {
        self.record.details.insert(key.to_owned(), read::bounded(value));
    }

    /// Says what the subject was before, without secrets.
    pub fn before(&mut self, value: Value) {
        self.record.before = Some(read::bounded(value));
    }

    /// Says what the subject is now, without secrets.
    pub fn after(&mut self, value: Value) {
        self.record.after = Some(read::bounded(value));
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
        let _ = place.send(Line { text: self.record.line(), written: None, keep, _note: None });
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
    log: Option<LineLog>,
    dir: Arc<Path>,
    size: Size,
    queue: mpsc::Receiver<Line>,
    failed_logins: Arc<TrackedMutex<FailedLogins>>,
    login_failed: Arc<Notify>,
    /// Outcomes and notes that could not be written. While the disk fails no write may begin, so that there
    /// are no more of them than reserved places.
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
            let due = self.failed_logins.lock().due();
            let due = due.map(|due| due.saturating_duration_since(Instant::now()));
            let idle = if batch.is_empty() { stallproof::deadline::LONGEST } else { RETRY };
            // While the disk fails, failed logins go on being counted.
            let wake = if batch.is_empty() { due.unwrap_or(idle).min(idle) } else { idle };
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
                        batch.extend(self.folded(true));
                        self.write(batch).await;
                        return;
                    }
                }
                () = self.login_failed.notified() => {}
                () = tokio::time::sleep(wake) => {}
            }
            if self.failed.is_none() {
                batch.extend(self.folded(false));
            }
            self.write(batch).await;
        }
    }

    /// Lines for the failed logins that are due, or for all of them.
    fn folded(&self, all: bool) -> Vec<Line> {
        let due = self.failed_logins.lock().take(Instant::now(), all);
        let lines = due.into_iter().map(|failures| {
            self.metrics.waiting.inc();
            // Some tens at most, because they are folded: they are kept as outcomes are.
            Line { text: failures.line(), written: None, keep: true, _note: None }
        });
        lines.collect()
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
        let mut log = self.log.take().unwrap_or_else(|| LineLog::new(&self.dir, NAME, self.size));
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
        let help = "Acts refused because they could not be recorded";
        registry.register("audit_refused", help, self.refused.clone());
        registry.register("audit_failures", "Batches that the disk refused", self.failures.clone());
    }
}

#[cfg(test)]
mod tests;
