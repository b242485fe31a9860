//! `AuditFiles`: the lines of the audit on disk, so that a restart forgets nothing.
//!
//! ```text
//! AuditWriter ──lines that changed, once a second──► one batch waits ──► task ──► admission.jsonl
//! ```
//!
//! Contract:
//! - Nobody waits for the disk. While it is slow or fails, one batch waits, lines go on changing in memory, and
//!   what they are by then is in the next batch. Only a line that makes room for others meanwhile is lost to the
//!   files; the writer counts it.
//! - A file has a line for each second in which a line of the audit changed. The newest of one subject counts.
//! - Files are bounded ([`SIZE`]); the oldest goes.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stallproof::line_log::{self, LogPosition};
use stallproof::{Deadline, LineLog, LogSize, Tasks};
use tokio::sync::mpsc;

use super::{AuditKey, Line, MOST_ADMISSIONS, MOST_VIOLATIONS};

const NAME: &str = "admission";
/// About two hundred thousand lines, which is many times what memory has.
const SIZE: LogSize = LogSize { each: 16 << 20, files: 8 };
/// The wait before a disk that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How long the start waits for what was kept before.
const LOAD: Duration = Duration::from_secs(10);
/// The most lines of one part of an export.
const PART: usize = 1000;

/// The files, for the one who writes the audit.
#[derive(Debug)]
pub(crate) struct AuditFiles {
    pub(crate) reader: AuditReader,
    /// One batch: the next is made when this one is on disk, with all that has changed by then.
    batches: mpsc::Sender<Vec<u8>>,
}

/// The files, for whoever reads them.
#[derive(Clone, Debug)]
pub(crate) struct AuditReader {
    dir: Arc<Path>,
    tasks: Tasks,
}

impl AuditFiles {
    /// Opens the files in a directory. They are made with the first line.
    pub(crate) fn start(dir: &Path, tasks: &Tasks) -> Self {
        let (batches, waiting) = mpsc::channel(1);
        let log = LineLog::new(dir, NAME, SIZE);
        // It ends when the writer of the audit has dropped the sender, after its last batch.
        tasks.spawn("admission audit files", write(log, waiting, tasks.clone()));
        Self { reader: AuditReader { dir: dir.into(), tasks: tasks.clone() }, batches }
    }

    /// Hands over lines to be written; false while others are being written.
    pub(crate) fn try_write(&self, lines: &[Arc<Line>]) -> bool {
        let Ok(place) = self.batches.try_reserve() else { return false };
        let mut batch = Vec::new();
        for line in lines {
            // Strings and numbers are JSON.
            if serde_json::to_writer(&mut batch, &**line).is_ok() {
                batch.push(b'\n');
            }
        }
        place.send(batch);
        true
    }

    /// Hands over the last lines, as soon as there is room.
    pub(crate) async fn finish(self, lines: &[Arc<Line>]) {
        let room = Deadline::after(LOAD).bound(self.batches.reserve()).await;
        if matches!(room, Ok(Ok(_))) {
            drop(room);
            self.try_write(lines);
        }
    }
}

impl AuditReader {
    /// The lines that were kept, the oldest first; none if the disk does not tell in time.
    pub(crate) async fn load(&self) -> Vec<Line> {
        let dir = Arc::clone(&self.dir);
        let loaded = self.blocking(Deadline::after(LOAD), move || newest(&dir)).await;
        loaded.unwrap_or_else(|why| {
            tracing::error!(%why, "the audit of admission that was kept cannot be read; it begins anew");
            Vec::new()
        })
    }

    /// Lines that are `wanted`, the oldest first, from where an earlier part ended.
    pub(crate) async fn export(
        &self,
        after: Option<LogPosition>,
        deadline: Deadline,
        wanted: impl Fn(&Line) -> bool + Send + 'static,
    ) -> Result<(Vec<Line>, Option<LogPosition>), String> {
        let dir = Arc::clone(&self.dir);
        let until = Deadline::after(deadline.remaining().mul_f64(0.8));
        let read = move || {
            let mut lines = Vec::new();
            let next = line_log::oldest_first(&dir, NAME, after, |line| {
                lines.extend(serde_json::from_slice::<Line>(line).ok().filter(|it| wanted(it)));
                lines.len() < PART && !until.has_passed()
            })?;
            Ok((lines, next))
        };
        self.blocking(deadline, read).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        deadline: Deadline,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let task = self.tasks.spawn_blocking("read admission audit", deadline, work).await;
        let task = task.map_err(|expired| expired.to_string())?;
        let read = deadline.bound(task).await.map_err(|expired| expired.to_string())?;
        read.map_err(|ended| ended.to_string())?.map_err(|error| error.to_string())
    }
}

/// The newest line of each subject, as many as memory keeps, the oldest first.
fn newest(dir: &Path) -> io::Result<Vec<Line>> {
    let mut found = Vec::new();
    let mut known = HashSet::<AuditKey>::new();
    let mut room = [MOST_ADMISSIONS, MOST_VIOLATIONS];
    line_log::newest_first(dir, NAME, |line| {
        if let Ok(line) = serde_json::from_slice::<Line>(line) {
            let room = &mut room[usize::from(line.subject.outcome.is_violation())];
            if *room > 0 && known.insert(line.subject.clone()) {
                *room -= 1;
                found.push(line);
            }
        }
        room.iter().any(|room| *room > 0)
    })?;
    found.reverse();
    Ok(found)
}

async fn write(mut log: LineLog, mut waiting: mpsc::Receiver<Vec<u8>>, tasks: Tasks) {
    let stop = tasks.stopping();
    let mut failed = false;
    while let Some(batch) = waiting.recv().await {
        let batch = Arc::new(batch);
        loop {
            let (text, deadline) =
                (Arc::clone(&batch), Deadline::after(stallproof::deadline::LONGEST));
            let work = move || {
                let done = log.append(&text);
                (log, done)
            };
            let Ok(task) = tasks.spawn_blocking("write admission audit", deadline, work).await
            else {
                return;
            };
            let Ok((back, done)) = task.await else { return };
            log = back;
            match done {
                Ok(()) => {
                    if std::mem::take(&mut failed) {
                        tracing::info!("the audit of admission can be written again");
                    }
                    break;
                }
                Err(error) => {
                    if !std::mem::replace(&mut failed, true) {
                        tracing::error!(%error, "the audit of admission cannot be written; it is kept in memory");
                    }
                    if stop.is_stopped() {
                        return;
                    }
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
