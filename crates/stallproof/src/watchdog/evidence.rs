//! `Evidence`: what the process knew at the moment it was stuck, on disk.
//!
//! Contract: one directory per event, `<utc time>-<reason>`, one file per source, readable by the
//! owner alone. It appears whole or not at all. Nothing here can hold up the watchdog: sources run
//! side by side on threads of their own, one that hangs or panics costs only its own file (which
//! then says so), and so does a disk that is full or gone. Bounded in every direction: events kept,
//! bytes per source, one event per reason and interval, one event being written at a time.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tracing::{info, warn};

use crate::sync::Mutex;

/// Events in the directory; a dozen stack dumps tell all that the next hundred would.
const KEEP: usize = 12;
const BYTES_PER_SOURCE: usize = 8 << 20;
const SOURCE_ANSWERS_WITHIN: Duration = Duration::from_secs(3);
const ONE_PER_REASON_EVERY: Duration = Duration::from_secs(10 * 60);
/// Events of one reason closer together than this are one series.
const SERIES_GAP: SignedDuration = SignedDuration::from_hours(6);
/// Sorts by time and is a file name everywhere.
const TIME_FORMAT: &str = "%Y%m%dT%H%M%S.%3fZ";
const TIME_LEN: usize = "20260102T030405.678Z".len();
const UNFINISHED: &str = ".unfinished";

type Ask = Arc<dyn Fn() -> Vec<u8> + Send + Sync>;

/// A handle; clones write to the same directory under the same bounds.
#[derive(Clone)]
pub struct Evidence(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    answers_within: Duration,
    sources: Mutex<Vec<(&'static str, Ask)>>,
    /// When each reason was last saved. Reasons are beacon names, so they are few.
    saved: Mutex<Vec<(String, Instant)>>,
    writing: AtomicBool,
}

/// An event being written on its own thread. Dropping this does not stop it.
#[derive(Debug)]
pub struct Saving(Receiver<Option<PathBuf>>);

impl Saving {
    /// The directory written, or none if writing failed (which is logged) or is not done in time.
    pub fn wait(self, at_most: Duration) -> Option<PathBuf> {
        self.0.recv_timeout(at_most).ok().flatten()
    }
}

impl Evidence {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self::answering_within(dir.into(), SOURCE_ANSWERS_WITHIN)
    }

    fn answering_within(dir: PathBuf, answers_within: Duration) -> Self {
        Self(Arc::new(Inner {
            dir,
            answers_within,
            sources: Mutex::new(Vec::new()),
            saved: Mutex::new(Vec::new()),
            writing: AtomicBool::new(false),
        }))
    }

    /// Adds a file to every event to come. `name` is the file's name.
    pub fn source(&self, name: &'static str, ask: impl Fn() -> Vec<u8> + Send + Sync + 'static) {
        self.0.sources.lock().push((name, Arc::new(ask)));
    }

    /// Writes an event, without making the caller wait. None if this reason was saved a short time
    /// ago, or another event is being written.
    pub fn save(&self, reason: &str) -> Option<Saving> {
        let reason = file_name(reason);
        let now = Instant::now();
        let recent = |at: Instant| now.duration_since(at) < ONE_PER_REASON_EVERY;
        if self.0.saved.lock().iter().any(|(saved, at)| *saved == reason && recent(*at))
            || self.0.writing.swap(true, SeqCst)
        {
            return None;
        }
        {
            let mut saved = self.0.saved.lock();
            saved.retain(|(_, at)| recent(*at));
            saved.push((reason.clone(), now));
        }
        let (done, receiver) = sync_channel(1);
        let inner = Arc::clone(&self.0);
        let spawned = thread::Builder::new().name("evidence".into()).spawn(move || {
            let written = inner.write(&reason);
            inner.writing.store(false, SeqCst);
            let path = match written {
                Ok(path) => {
                    info!(path = %path.display(), "evidence saved");
                    Some(path)
                }
                Err(error) => {
                    warn!(%error, reason, dir = %inner.dir.display(), "evidence could not be saved");
                    None
                }
            };
            // Nobody may be waiting.
            let _ = done.try_send(path);
        });
        if let Err(error) = spawned {
            self.0.writing.store(false, SeqCst);
            warn!(%error, "evidence could not be saved: no thread");
            return None;
        }
        Some(Saving(receiver))
    }
}

impl Inner {
    fn write(&self, reason: &str) -> io::Result<PathBuf> {
        let answers = self.ask_all();
        private_dir(&self.dir)?;
        let unfinished = self.dir.join(UNFINISHED);
        // A leftover of a process that was killed while it wrote.
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished)?;
        }
        private_dir(&unfinished)?;
        for (name, answer) in answers {
            private_file(&unfinished.join(name))?.write_all(&answer)?;
        }
        let time = Timestamp::now().strftime(TIME_FORMAT);
        let path = self.dir.join(format!("{time}-{reason}"));
        fs::rename(&unfinished, &path)?;
        self.prune()?;
        Ok(path)
    }

    /// Every source's file: its answer, or why there is none.
    fn ask_all(&self) -> Vec<(&'static str, Vec<u8>)> {
        let sources = self.sources.lock().clone();
        let until = Instant::now() + self.answers_within;
        let (sender, receiver) = sync_channel(sources.len());
        let mut answers: Vec<(&'static str, Option<Vec<u8>>)> =
            sources.iter().map(|(name, _)| (*name, None)).collect();
        for (index, (name, ask)) in sources.into_iter().enumerate() {
            let sender = sender.clone();
            // A panic drops the sender and shows in the log; the file will say "no answer".
            // Should no thread be had, the same.
            let _ = thread::Builder::new().name(format!("evidence {name}")).spawn(move || {
                let _ = sender.try_send((index, ask()));
            });
        }
        drop(sender);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(left) {
                Ok((index, answer)) => answers[index].1 = Some(answer),
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => break,
            }
        }
        answers.into_iter().map(|(name, answer)| (name, bounded(answer))).collect()
    }

    fn prune(&self) -> io::Result<()> {
        let mut names: Vec<String> = fs::read_dir(&self.dir)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| event(name).is_some())
            .collect();
        names.sort();
        for name in surplus(&names) {
            fs::remove_dir_all(self.dir.join(name))?;
        }
        Ok(())
    }
}

fn bounded(answer: Option<Vec<u8>>) -> Vec<u8> {
    let Some(mut answer) = answer else {
        return b"no answer: this source hung or panicked\n".to_vec();
    };
    if answer.len() > BYTES_PER_SOURCE {
        let all = answer.len();
        answer.truncate(BYTES_PER_SOURCE);
        answer.extend_from_slice(format!("\n[cut: {all} bytes in all]\n").as_bytes());
    }
    answer
}

/// Which events go, oldest first. The first of a series stays longest: it shows how it began, and
/// the rest mostly repeat it.
fn surplus(sorted: &[String]) -> Vec<&String> {
    let mut first = Vec::new();
    let mut rest = Vec::new();
    let mut last_of: Vec<(&str, Timestamp)> = Vec::new();
    for name in sorted {
        let Some((time, reason)) = event(name) else {
            continue;
        };
        let last = last_of.iter_mut().find(|(of, _)| *of == reason);
        let continues = last.as_ref().is_some_and(|(_, at)| time.duration_since(*at) < SERIES_GAP);
        match last {
            Some((_, at)) => *at = time,
            None => last_of.push((reason, time)),
        }
        if continues {
            rest.push(name);
        } else {
            first.push(name);
        }
    }
    // The newest is never the one to go, even if everything else begins a series.
    let newest = sorted.last();
    let surplus = sorted.len().saturating_sub(KEEP);
    rest.into_iter().chain(first).filter(|name| Some(*name) != newest).take(surplus).collect()
}

fn event(name: &str) -> Option<(Timestamp, &str)> {
    let (time, reason) = name.split_at_checked(TIME_LEN)?;
    let civil = jiff::civil::DateTime::strptime(TIME_FORMAT, time).ok()?;
    let time = civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    Some((time, reason.strip_prefix('-')?))
}

fn file_name(reason: &str) -> String {
    reason
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._".contains(c) { c } else { '-' })
        .take(80)
        .collect()
}

fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

impl fmt::Debug for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evidence").field("dir", &self.0.dir).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
