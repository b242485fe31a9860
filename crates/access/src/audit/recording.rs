//! Recordings of shells, as [asciicast v2](https://docs.asciinema.org/manual/asciicast/v2/): what a shell
//! showed, and when. What is typed is recorded only as far as the shell echoes it, so that passwords are not.
//!
//! ```text
//! shell ──► Recorder ──try──► bounded queue ──► one thread ──► <data>/audit/recordings/ID.cast
//! ```
//!
//! Contract:
//! - A recorder never waits. What the disk does not take in time ([`WAITING`] bytes may wait) is left out, and
//!   a marker in the recording says how much.
//! - A recording has [`RecordingLimits::each`] bytes at most; then a marker says that it ends there. All of them have
//!   [`RecordingLimits::all`]; the oldest are deleted for new ones.
//! - Files are readable by their owner only. Their name is the id of the audit's record.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stallproof::group_commit::GroupWriter;
use stallproof::{GroupCommit, Tasks};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Bytes of output that wait for the disk, of all shells.
const WAITING: usize = 8 << 20;
/// Messages that wait: output comes in pieces of some bytes to some kilobytes.
const QUEUE: usize = 4096;
/// The extension of the files.
const EXTENSION: &str = "cast";
/// The longest first line of a recording.
const HEADER: u64 = 64 << 10;
/// The size of a terminal that has not told its own.
const TERMINAL: (u16, u16) = (80, 24);

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingLimits {
    /// The most bytes of one recording.
    pub each: u64,
    /// The most bytes of all recordings.
    pub all: u64,
}

impl Default for RecordingLimits {
    fn default() -> Self {
        Self { each: 16 << 20, all: 1 << 30 }
    }
}

/// Whose shell it is, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedShell {
    pub user: String,
    pub cluster: String,
    pub namespace: String,
    pub pod: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    pub command: Vec<String>,
}

/// The first line of a recording.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    version: u8,
    width: u16,
    height: u16,
    timestamp: i64,
    command: String,
    title: String,
    /// Unknown to asciinema, which passes over it.
    fairlead: RecordedShell,
}

/// A recording that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingView {
    /// The id of the audit's record.
    pub id: String,
    pub shell: RecordedShell,
    pub began: Timestamp,
    pub bytes: u64,
}

/// Clones share one writer.
#[derive(Clone, Debug)]
pub struct Recordings {
    queue: GroupCommit<Message>,
    /// A permit for each byte that waits.
    room: Arc<Semaphore>,
    metrics: Metrics,
}

#[derive(Clone, Debug, Default)]
struct Metrics {
    lost: Counter,
    failures: Counter,
}

/// The recording of one shell. It ends when this is dropped.
#[derive(Debug)]
pub struct Recorder {
    id: Arc<str>,
    recordings: Recordings,
    shell: Option<RecordedShell>,
    size: (u16, u16),
    began: Instant,
    /// The beginning of a character whose end has not come.
    partial: Vec<u8>,
    /// Bytes that were left out since the last piece that was taken.
    lost: u64,
}

#[derive(Debug)]
struct Message {
    id: Arc<str>,
    what: What,
    _room: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum What {
    Begin(Vec<u8>),
    Events(Vec<u8>),
    End,
}

impl Recordings {
    /// Starts the writer. Its directory is made with the first recording.
    pub fn start(audit: &Path, limits: RecordingLimits, tasks: &Tasks) -> io::Result<Self> {
        let dir: Arc<Path> = audit.join("recordings").into();
        let metrics = Metrics::default();
        let writer = Writer { dir, limits, open: HashMap::new(), metrics: metrics.clone() };
        let queue = GroupCommit::start("shell recordings", QUEUE, writer, tasks)?;
        Ok(Self { queue, room: Arc::new(Semaphore::new(WAITING)), metrics })
    }

    /// Begins the recording of a shell, under the id of its record in the audit.
    pub fn begin(&self, id: &str, shell: RecordedShell) -> Recorder {
        Recorder {
            id: id.into(),
            recordings: self.clone(),
            shell: Some(shell),
            size: TERMINAL,
            began: Instant::now(),
            partial: Vec::new(),
            lost: 0,
        }
    }

    pub fn register(&self, registry: &mut Registry) {
        let help = "Bytes of shells that were not recorded because the disk was too slow";
        registry.register("audit_recording_lost_bytes", help, self.metrics.lost.clone());
        let help = "Times that a recording could not be written";
        registry.register("audit_recording_failures", help, self.metrics.failures.clone());
    }
}

impl Recorder {
    /// The terminal has this size from now on.
    pub fn resize(&mut self, width: u16, height: u16) {
        self.size = (width, height);
        if self.shell.is_none() {
            self.event("r", &format!("{width}x{height}"));
        }
    }

    /// The shell showed this.
    pub fn output(&mut self, bytes: &[u8]) {
        let mut bytes = if self.partial.is_empty() {
            bytes.to_vec()
        } else {
            [&std::mem::take(&mut self.partial)[..], bytes].concat()
        };
        let whole = whole_characters(&bytes);
        self.partial = bytes.split_off(whole);
        if !bytes.is_empty() {
            self.event("o", &String::from_utf8_lossy(&bytes));
        }
    }

    fn event(&mut self, kind: &str, data: &str) {
        if let Some(shell) = self.shell.take() {
            let header = header(shell, self.size);
            self.send(What::Begin(header), 0);
        }
        let at = self.began.elapsed().as_secs_f64();
        let mut lines = Vec::new();
        if self.lost > 0 {
            let lost = format!("{} bytes were not recorded: the disk was too slow", self.lost);
            lines.extend(line(&json!([at, "m", lost])));
        }
        lines.extend(line(&json!([at, kind, data])));
        if self.send(What::Events(lines), data.len()) {
            self.lost = 0;
        }
    }

    /// Hands over to the writer, or counts what is lost.
    fn send(&mut self, what: What, bytes: usize) -> bool {
        let wanted = u32::try_from(bytes).unwrap_or(u32::MAX);
        let Recordings { room, queue, metrics, .. } = &self.recordings;
        let room = Arc::clone(room).try_acquire_many_owned(wanted).ok();
        let sent = room.is_some_and(|room| {
            let message = Message { id: Arc::clone(&self.id), what, _room: Some(room) };
            queue.try_send(message).is_ok()
        });
        if !sent {
            metrics.lost.inc_by(bytes as u64);
            self.lost += bytes as u64;
        }
        sent
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.shell.is_none() {
            let message = Message { id: Arc::clone(&self.id), what: What::End, _room: None };
            // A recording whose end does not arrive is closed when its place is needed.
            let _ = self.recordings.queue.try_send(message);
        }
    }
}

fn header(shell: RecordedShell, (width, height): (u16, u16)) -> Vec<u8> {
    let RecordedShell { user, cluster, namespace, pod, .. } = &shell;
    let title = format!("{user} in {namespace}/{pod} of {cluster}");
    let (timestamp, command) = (Timestamp::now().as_second(), shell.command.join(" "));
    line(&Header { version: 2, width, height, timestamp, command, title, fairlead: shell })
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The length of what has no character cut off at its end. What is no UTF-8 at all is whole.
fn whole_characters(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    let start = (tail..bytes.len()).rev().find(|at| bytes[*at] & 0b1100_0000 != 0b1000_0000);
    let Some(start) = start else { return bytes.len() };
    let wanted = match bytes[start] {
        0b1100_0000..=0b1101_1111 => 2,
        0b1110_0000..=0b1110_1111 => 3,
        0b1111_0000..=0b1111_0111 => 4,
        _ => 1,
    };
    if start + wanted > bytes.len() { start } else { bytes.len() }
}

/// The thread that writes the files.
struct Writer {
    dir: Arc<Path>,
    limits: RecordingLimits,
    /// By the id; as many as shells are open.
    open: HashMap<Arc<str>, Open>,
    metrics: Metrics,
}

struct Open {
    file: File,
    bytes: u64,
    full: bool,
}

impl GroupWriter for Writer {
    type Request = Message;

    fn write(&mut self, group: Vec<Message>) {
        for Message { id, what, .. } in group {
            let done = match what {
                What::Begin(header) => self.begin(&id, &header),
                What::Events(events) => self.append(&id, &events),
                What::End => self.open.remove(&id).map_or(Ok(()), |open| open.file.sync_data()),
            };
            if let Err(error) = done {
                self.metrics.failures.inc();
                self.open.remove(&id);
                tracing::warn!(%id, %error, "a shell cannot be recorded any further");
            }
        }
    }

    fn panicked(&mut self, why: &str) {
        tracing::error!(why, "recordings of shells are incomplete");
    }

    fn close(self) {
        for (_, open) in self.open {
            let _ = open.file.sync_data();
        }
    }
}

impl Writer {
    fn begin(&mut self, id: &Arc<str>, header: &[u8]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        self.make_room()?;
        let path = file_of(&self.dir, id).ok_or(io::ErrorKind::InvalidInput)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(header)?;
        let open = Open { file, bytes: header.len() as u64, full: false };
        self.open.insert(Arc::clone(id), open);
        Ok(())
    }

    fn append(&mut self, id: &Arc<str>, events: &[u8]) -> io::Result<()> {
        let Some(open) = self.open.get_mut(id).filter(|open| !open.full) else { return Ok(()) };
        if open.bytes + events.len() as u64 > self.limits.each {
            open.full = true;
            let time = serde_json::from_slice::<Value>(first_line(events)).unwrap_or_default();
            let why = "the recording ends here: it has the size that one may have";
            return open.file.write_all(&line(&json!([time[0], "m", why])));
        }
        open.file.write_all(events)?;
        open.bytes += events.len() as u64;
        Ok(())
    }

    /// Deletes the oldest until one more fits.
    fn make_room(&self) -> io::Result<()> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if id_of(&entry.path()).is_none_or(|id| self.open.contains_key(&*id)) {
                continue;
            }
            let meta = entry.metadata()?;
            all.push((meta.mtime(), meta.len(), entry.path()));
        }
        all.sort();
        // Those that are open may all become as large as one may.
        let open = self.limits.each * (self.open.len() as u64 + 1);
        let mut bytes: u64 = open + all.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
        for (_, size, path) in all {
            if bytes <= self.limits.all {
                break;
            }
            fs::remove_file(path)?;
            bytes -= size;
        }
        Ok(())
    }
}

fn first_line(lines: &[u8]) -> &[u8] {
    lines.split(|byte| *byte == b'\n').next().unwrap_or_default()
}

/// The file of a recording; none for what is no id.
fn file_of(dir: &Path, id: &str) -> Option<PathBuf> {
    let good = !id.is_empty() && id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric());
    good.then(|| dir.join(format!("{id}.{EXTENSION}")))
}

fn id_of(path: &Path) -> Option<String> {
    let is_one = path.extension().is_some_and(|extension| extension == EXTENSION);
    path.file_stem().filter(|_| is_one)?.to_str().map(ToOwned::to_owned)
}

/// The newest recordings below the audit's directory, the newest first. Blocking.
pub(super) fn list(audit: &Path, most: usize) -> io::Result<Vec<RecordingView>> {
    let entries = match fs::read_dir(audit.join("recordings")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        // One that was deleted meanwhile, or is no recording, is left out.
        found.extend(id_of(&path).and_then(|id| view(id, &path)));
    }
    found.sort_by(|a, b| (b.began, &b.id).cmp(&(a.began, &a.id)));
    found.truncate(most);
    Ok(found)
}

fn view(id: String, path: &Path) -> Option<RecordingView> {
    let file = File::open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    let mut line = String::new();
    BufReader::new(file.take(HEADER)).read_line(&mut line).ok()?;
    let Header { timestamp, fairlead: shell, .. } = serde_json::from_str(&line).ok()?;
    Some(RecordingView { id, shell, began: Timestamp::from_second(timestamp).ok()?, bytes })
}

/// The whole of a recording; none if there is none of that id. Blocking.
pub(super) fn fetch(audit: &Path, id: &str) -> io::Result<Option<Vec<u8>>> {
    let Some(path) = file_of(&audit.join("recordings"), id) else { return Ok(None) };
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
