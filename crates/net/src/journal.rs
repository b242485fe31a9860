//! `Journal`: the file of [`Record`]s that an [`AddressTable`] is made of. Calls block.
//!
//! ```text
//! frame   magic 4 · length 4 · synced 8 · checksum 4 · records (a JSON array, `length` bytes)
//! ```
//!
//! Contract:
//! - What `append` wrote survives the process. With `sync` it returns when the records, and all before them, are
//!   on disk; else a [`Flush`] brings them there, by whatever thread.
//! - The records of one append are one frame, and are replayed whole or not at all.
//! - A crash may leave anything in place of what was not synced: it is cut off when the file is opened.
//!   `synced` says how much of the file was on disk when a frame was written, so what is damaged
//!   before that was not left by a crash: the file is then refused, and left as it is. (The very last
//!   frame has none after it that could tell.)
//! - After an error, also one of a flush, the file is written anew from memory before anything is appended: the
//!   kernel may have given up pages that it still shows.
//! - The file is compacted when it has become several times as large as it need be: a new file takes its
//!   place by a rename, when it is on disk.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::address_table::{AddressTable, InvalidRecord, Record};

/// The last byte is the version of the format.
const MAGIC: [u8; 4] = *b"FLJ1";
const HEADER: usize = 20;
/// The longest frame: a group of assignments has some hundred KiB.
const LONGEST: usize = 64 << 20;
/// How many records one frame has when the whole table is written.
const TOGETHER: usize = 1_000;
/// The file may grow by this much, and to several times its smallest size, before it is compacted.
const SLACK: u64 = 1 << 20;
const TIMES: u64 = 4;

#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
    /// Shared with a flush.
    file: Option<Arc<File>>,
    /// The size of the file; all of it is valid.
    bytes: u64,
    /// How much of it is on disk for sure.
    synced: u64,
    /// The size after the last compaction.
    smallest: u64,
}

/// Brings what is in the file now to the disk. Nothing is held up by it.
#[derive(Debug)]
pub(crate) struct Flush {
    file: Arc<File>,
    bytes: u64,
}

/// What came of a flush.
#[derive(Debug)]
pub(crate) struct Flushed {
    flush: Flush,
    result: io::Result<()>,
}

impl Flush {
    /// Blocks, for as long as the disk takes.
    pub(crate) fn run(self) -> Flushed {
        let result = self.file.sync_data();
        Flushed { flush: self, result }
    }
}

impl Flushed {
    pub(crate) fn has_failed(&self) -> bool {
        self.result.is_err()
    }
}

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{}: cannot be opened", file.display())]
    Io {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{}: damaged at byte {at}, which no crash can do: the disk, or somebody, changed it. Addresses \
         of running pods may be in the damaged part, so drain the node, move the file away and start \
         again", file.display()
    )]
    Damaged { file: PathBuf, at: u64 },
    #[error(
        "{}: the record at byte {at} cannot be read: {why}. A newer Fairlead may have written it: run \
         that one, or drain the node, move the file away and start again", file.display()
    )]
    Unreadable { file: PathBuf, at: u64, why: String },
}

/// The result of a replay.
#[derive(Debug)]
struct Replayed {
    table: AddressTable,
    /// How many bytes are valid; after those comes what a crash left.
    good: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum ReplayError {
    Damaged { at: usize },
    Unreadable { at: usize, why: String },
}

impl Journal {
    /// Opens or makes the journal in `dir`, and replays it.
    pub(crate) fn open(dir: &Path) -> Result<(Self, AddressTable), OpenError> {
        let path = path(dir);
        let failed = |source| OpenError::Io { file: path.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        let mut options = OpenOptions::new();
        let file = options.create(true).read(true).append(true).mode(0o600).open(&path);
        let file = file.map_err(failed)?;
        // A file that a crash can take away again is no journal, nor is its directory.
        for dir in [Some(dir), dir.parent()].into_iter().flatten() {
            let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
            File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        }
        let found = fs::read(&path).map_err(failed)?;
        let Replayed { table, good } = replay(&found).map_err(|wrong| match wrong {
            ReplayError::Damaged { at } => OpenError::Damaged { file: path.clone(), at: at as u64 },
            ReplayError::Unreadable { at, why } => {
                OpenError::Unreadable { file: path.clone(), at: at as u64, why }
            }
        })?;
        if good < found.len() {
            let bytes = found.len() - good;
            tracing::warn!(file = %path.display(), bytes, "cut off what a crash left unfinished");
            file.set_len(good as u64).map_err(failed)?;
        }
        // What is there may never have been synced, and will be built upon.
        file.sync_all().map_err(failed)?;
        let (bytes, file) = (good as u64, Some(Arc::new(file)));
        let journal = Self { dir: dir.to_owned(), file, bytes, synced: bytes, smallest: 0 };
        Ok((journal, table))
    }

    /// Appends `records`; `table` is the state with them. With `sync` they are on disk when this returns.
    pub(crate) fn append(
        &mut self,
        records: &[Record],
        table: &AddressTable,
        sync: bool,
    ) -> io::Result<()> {
        if self.file.is_some() && self.bytes > SLACK + TIMES * self.smallest {
            match self.rewrite(table) {
                Err(error) if self.file.is_some() => {
                    // A disk without room for another file may have room for a record.
                    tracing::warn!(%error, "the journal of addresses cannot be compacted yet");
                    self.smallest = self.bytes / TIMES;
                }
                done => return done,
            }
        }
        let Some(file) = &self.file else { return self.rewrite(table) };
        let frame = frame(records, self.synced)?;
        let write = || {
            (&**file).write_all(&frame)?;
            if sync { file.sync_data() } else { Ok(()) }
        };
        if let Err(error) = write() {
            self.file = None;
            return Err(error);
        }
        self.bytes += frame.len() as u64;
        if sync {
            self.synced = self.bytes;
        }
        Ok(())
    }

    /// What is to be flushed, if anything is.
    pub(crate) fn flush(&self) -> Option<Flush> {
        let file = self.file.as_ref().filter(|_| self.synced < self.bytes)?;
        Some(Flush { file: Arc::clone(file), bytes: self.bytes })
    }

    /// What came of a flush. An error is one of what is in the file: it is to be written anew.
    pub(crate) fn flushed(&mut self, Flushed { flush, result }: Flushed) -> io::Result<()> {
        // A file that another has taken the place of is of no interest any more.
        if !self.file.as_ref().is_some_and(|file| Arc::ptr_eq(file, &flush.file)) {
            return Ok(());
        }
        match result {
            Ok(()) => self.synced = self.synced.max(flush.bytes),
            Err(_) => self.file = None,
        }
        result
    }

    /// How many bytes a crash leaves for sure, and how many there are.
    #[cfg(feature = "simulation")]
    pub(crate) fn on_disk(&self) -> (u64, u64) {
        (self.synced, self.bytes)
    }

    /// Behaves from now on as if the disk took no more.
    #[cfg(test)]
    pub(crate) fn fail(&mut self) {
        self.file = File::open(path(&self.dir)).ok().map(Arc::new);
    }

    pub(crate) fn sync(&mut self) -> io::Result<()> {
        match &self.file {
            Some(file) if self.synced < self.bytes => file.sync_data(),
            _ => Ok(()),
        }
    }

    /// Writes the file anew from `table`, in place of the old one.
    pub(crate) fn rewrite(&mut self, table: &AddressTable) -> io::Result<()> {
        let new = self.dir.join("addresses.journal.new");
        let mut options = OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        let mut bytes = 0;
        let mut records = table.records().peekable();
        while records.peek().is_some() {
            let together: Vec<_> = records.by_ref().take(TOGETHER).collect();
            // All of it is on disk before it is the journal.
            let frame = frame(&together, bytes)?;
            file.write_all(&frame)?;
            bytes += frame.len() as u64;
        }
        file.sync_all()?;
        // Whatever comes of it, the old file is not the one to append to.
        self.file = None;
        fs::rename(&new, path(&self.dir))?;
        File::open(&self.dir)?.sync_all()?;
        let file = Arc::new(OpenOptions::new().append(true).open(path(&self.dir))?);
        (self.file, self.bytes, self.synced, self.smallest) = (Some(file), bytes, bytes, bytes);
        Ok(())
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("addresses.journal")
}

fn frame(records: &[Record], synced: u64) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; HEADER];
    serde_json::to_writer(&mut frame, records)?;
    let length = u32::try_from(frame.len() - HEADER).ok().filter(|n| *n as usize <= LONGEST);
    let length = length.ok_or(io::ErrorKind::FileTooLarge)?;
    frame[0..4].copy_from_slice(&MAGIC);
    frame[4..8].copy_from_slice(&length.to_le_bytes());
    frame[8..16].copy_from_slice(&synced.to_le_bytes());
    let sum = checksum(&frame[4..16], &frame[HEADER..]);
    frame[16..20].copy_from_slice(&sum.to_le_bytes());
    Ok(frame)
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(header);
    sum.update(payload);
    sum.finalize()
}

struct Frame<'a> {
    synced: u64,
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads the frame that `bytes` begin with, if it is whole and right.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(HEADER)?;
        let length = u32::from_le_bytes(header[4..8].try_into().ok()?) as usize;
        let payload = rest.get(..length).filter(|_| length <= LONGEST)?;
        let synced = u64::from_le_bytes(header[8..16].try_into().ok()?);
        let sum = u32::from_le_bytes(header[16..20].try_into().ok()?);
        let right = header[..4] == MAGIC && sum == checksum(&header[4..16], payload);
        right.then_some(Self { synced, payload })
    }
}

fn replay(bytes: &[u8]) -> Result<Replayed, ReplayError> {
    let mut table = AddressTable::default();
    let mut good = 0;
    while let Some(frame) = Frame::read(&bytes[good..]) {
        let unreadable = |why: String| ReplayError::Unreadable { at: good, why };
        let records: Vec<Record> =
            serde_json::from_slice(frame.payload).map_err(|error| unreadable(error.to_string()))?;
        for record in &records {
            let applied = table.apply(record);
            applied.map_err(|error: InvalidRecord| unreadable(error.to_string()))?;
        }
        good += HEADER + frame.payload.len();
    }
    // Whoever wrote a later frame knew this one to be on disk: then no crash has done this.
    let later = (good + 1..bytes.len()).filter(|at| bytes[*at..].starts_with(&MAGIC));
    let mut later = later.filter_map(|at| Frame::read(&bytes[at..]));
    if later.any(|frame| frame.synced > good as u64) {
        return Err(ReplayError::Damaged { at: good });
    }
    Ok(Replayed { table, good })
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
