//! Writes the history of a term, a frame at a time.

use std::time::{Duration, Instant};

use stallproof::ledger::Outcome;
use stallproof::{Deadline, Ledger, Tasks};
use tracing::{error, info, warn};

use super::files::{HistoryFiles, HistoryWriter};
use super::frame::Frame;
use crate::conversations::{Moment, Readers, View};

const KIND: &str = "history";
/// A frame of a million conversations takes some seconds; a disk that takes longer is named.
const LATE: Duration = Duration::from_secs(30);
/// For the last frame of a term.
const LAST: Duration = Duration::from_secs(2);

/// Records until `tasks` stops, and what there is then. A disk that hangs or fails holds up this task alone:
/// the next frame then tells of a longer time, and loses nothing.
pub async fn record(files: HistoryFiles, readers: Readers, ledger: Ledger, tasks: Tasks) {
    let every = files.settings().every;
    if files.settings().age.is_zero() {
        return;
    }
    ledger.expect(KIND, LATE);
    let stop = tasks.stopping();
    let mut recorder = Recorder {
        writer: Some(HistoryWriter::new(files)),
        seen: readers.view(),
        since: Moment::now(),
        has_failed: false,
    };
    let mut next = Instant::now() + every;
    loop {
        let wait = next.saturating_duration_since(Instant::now());
        let is_last = stop.bound(tokio::time::sleep(wait)).await.is_none();
        let deadline = Deadline::after(if is_last { LAST } else { stallproof::deadline::LONGEST });
        let view = readers.view();
        let recording = recorder.record(view, &ledger, &tasks, deadline);
        if is_last {
            // What is not on disk by then is lost, as by a kill.
            let _ = deadline.bound(recording).await;
            return;
        }
        if stop.bound(recording).await.is_none() || recorder.writer.is_none() {
            return;
        }
        next = Instant::now() + every;
    }
}

struct Recorder {
    /// With whoever writes; none after a thread of it panicked.
    writer: Option<HistoryWriter>,
    /// Up to here everything is on disk.
    seen: View,
    since: Moment,
    has_failed: bool,
}

impl Recorder {
    async fn record(&mut self, view: View, ledger: &Ledger, tasks: &Tasks, deadline: Deadline) {
        let Some(mut writer) = self.writer.take() else { return };
        let (now, since, seen) = (Moment::now(), self.since, self.seen.clone());
        let op = ledger.begin(KIND, "conversations", "guard");
        op.step("write");
        let newest = view.clone();
        let work = move || {
            let frames = Frame::split(since, now, newest.growth_since(&seen));
            let done = writer.append(&frames);
            if let Err(error) = writer.prune(now) {
                warn!(%error, "old history of conversations cannot be removed");
            }
            (writer, done)
        };
        let begun = tasks.spawn_blocking("guard-history", deadline, work).await;
        let Ok(begun) = begun else { return op.finish(Outcome::Expired) };
        let Ok((writer, done)) = begun.await else { return op.finish(Outcome::Failed) };
        self.writer = Some(writer);
        match done {
            Ok(()) => {
                (self.seen, self.since) = (view, now);
                if std::mem::take(&mut self.has_failed) {
                    info!("the history of conversations can be written again");
                }
                op.finish(Outcome::Done);
            }
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    op.span().in_scope(|| {
                        error!(%error, "the history of conversations cannot be written");
                    });
                }
                op.finish(Outcome::Failed);
            }
        }
    }
}
