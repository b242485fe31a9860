//! The redb file: `outbox.redb`, readable by its owner alone. It maps a receiver and a number to an event's JSON.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};
use tracing::warn;

use crate::event::Event;

const FILE: &str = "outbox.redb";
/// Queues are read from their beginning and written at their end: this much holds both.
const CACHE: usize = 8 << 20;
const EVENTS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("events");

/// What one queue has on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) events: u64,
    pub(super) bytes: u64,
    /// The last number that was given.
    pub(super) last: u64,
}

impl Counts {
    /// Counts one more, and gives its number.
    pub(super) fn add(&mut self, bytes: usize) -> u64 {
        self.events += 1;
        self.bytes += bytes as u64;
        self.last += 1;
        self.last
    }

    fn remove(&mut self, bytes: usize) {
        self.events = self.events.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes as u64);
    }
}

pub(super) enum Change {
    Put(Arc<str>, u64, Arc<[u8]>),
    Took(Arc<str>, u64),
    Purge(Arc<str>),
}

type Opened = Result<(Database, BTreeMap<Arc<str>, Counts>), redb::Error>;

pub(super) struct Disk {
    /// Opens the file, for the first time and after a failure.
    open: Box<dyn Fn() -> Opened + Send + Sync>,
    /// None after a failure, until it was opened again. Held for a moment by whoever reads or writes.
    database: Mutex<Option<Arc<Database>>>,
}

impl Disk {
    pub(super) fn open(dir: &Path) -> io::Result<(Self, BTreeMap<Arc<str>, Counts>)> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let file = dir.join(FILE);
        let opened = match open(&file) {
            Err(error @ redb::Error::DatabaseAlreadyOpen) => return Err(io::Error::other(error)),
            Err(redb::Error::Io(error)) if !is_damage(&error) => return Err(error),
            Err(error) => {
                let aside = file.with_extension(format!("refused-{}", jiff::Timestamp::now()));
                let (what, kept) = (stallproof::sentence(&error), aside.display().to_string());
                warn!(what, kept, "the outbox is damaged and begins anew");
                std::fs::rename(&file, &aside)?;
                open(&file)
            }
            opened => opened,
        };
        let (database, counts) = opened.map_err(io::Error::other)?;
        let open = Box::new(move || open(&file));
        Ok((Self { open, database: Mutex::new(Some(Arc::new(database))) }, counts))
    }

    /// Opens what `backend` gives in place of a file.
    #[cfg(feature = "simulation")]
    pub(super) fn over<B: redb::StorageBackend>(
        backend: impl Fn() -> B + Send + Sync + 'static,
    ) -> Result<(Self, BTreeMap<Arc<str>, Counts>), redb::Error> {
        let open =
            move || count(Builder::new().set_cache_size(CACHE).create_with_backend(backend())?);
        let (database, counts) = open()?;
        let database = Mutex::new(Some(Arc::new(database)));
        Ok((Self { open: Box::new(open), database }, counts))
    }

    fn database(&self) -> Result<Arc<Database>, redb::Error> {
        let mut held = self.database.lock();
        if let Some(database) = &*held {
            return Ok(Arc::clone(database));
        }
        let (database, _) = (self.open)()?;
        Ok(Arc::clone(held.insert(Arc::new(database))))
    }

    /// Makes all changes at once, and counts what is there afterwards. Answers what was purged. After a failure
    /// the file is opened again by whoever comes next.
    pub(super) fn commit(
        &self,
        changes: &[Change],
        counts: &mut BTreeMap<Arc<str>, Counts>,
    ) -> Result<Vec<(Arc<str>, u64)>, redb::Error> {
        let written = self.database().and_then(|database| write(&database, changes, counts));
        if written.is_err() {
            self.database.lock().take();
        }
        written
    }

    pub(super) fn read(
        &self,
        receiver: &str,
        after: u64,
        most: usize,
    ) -> Result<Vec<(u64, Event)>, redb::Error> {
        let table = self.database()?.begin_read()?.open_table(EVENTS)?;
        let mut found = Vec::new();
        for entry in table.range((receiver, after.saturating_add(1))..=(receiver, u64::MAX))? {
            if found.len() >= most {
                break;
            }
            let (key, json) = entry?;
            match serde_json::from_slice(json.value()) {
                Ok(event) => found.push((key.value().1, event)),
                // A newer version may have written it; it is passed over and goes with those before it.
                Err(error) => warn!(receiver, %error, "an event in the outbox cannot be read"),
            }
        }
        Ok(found)
    }
}

fn write(
    database: &Database,
    changes: &[Change],
    counts: &mut BTreeMap<Arc<str>, Counts>,
) -> Result<Vec<(Arc<str>, u64)>, redb::Error> {
    let mut transaction = database.begin_write()?;
    // In one phase redb cannot tell a commit that was interrupted from one that rotted.
    transaction.set_two_phase_commit(true);
    let mut purged = Vec::new();
    {
        let mut table = transaction.open_table(EVENTS)?;
        for change in changes {
            let (receiver, through) = match change {
                Change::Put(receiver, number, json) => {
                    table.insert((&**receiver, *number), &**json)?;
                    continue;
                }
                Change::Took(receiver, through) => (receiver, *through),
                Change::Purge(receiver) => (receiver, u64::MAX),
            };
            let range = (&**receiver, 0)..=(&**receiver, through);
            let mut removed = 0;
            let count = counts.entry(Arc::clone(receiver)).or_default();
            for entry in table.extract_from_if(range, |_, _| true)? {
                count.remove(entry?.1.value().len());
                removed += 1;
            }
            if matches!(change, Change::Purge(_)) {
                counts.remove(receiver);
                if removed > 0 {
                    purged.push((Arc::clone(receiver), removed));
                }
            }
        }
    }
    transaction.commit()?;
    Ok(purged)
}

fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// Opens or makes the file, and counts what is in it. A new file gets its name when it is complete, so that a
/// crash leaves no half of one.
fn open(file: &Path) -> Opened {
    if !file.try_exists()? {
        let new = file.with_extension("new");
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        drop(open_there(&new)?);
        std::fs::rename(&new, file)?;
        if let Some(dir) = file.parent() {
            File::open(dir)?.sync_all()?;
        }
    }
    open_there(file)
}

fn open_there(file: &Path) -> Opened {
    let mut options = OpenOptions::new();
    let handle =
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(file)?;
    // A damaged file may lead redb to where it panics.
    let opened = catch_unwind(|| count(Builder::new().set_cache_size(CACHE).create_file(handle)?));
    let damaged = |_| redb::Error::Corrupted("redb cannot make sense of it".to_owned());
    opened.unwrap_or_else(|panic| Err(damaged(panic)))
}

fn count(database: Database) -> Opened {
    let transaction = database.begin_write()?;
    let mut counts: BTreeMap<Arc<str>, Counts> = BTreeMap::new();
    {
        let table = transaction.open_table(EVENTS)?;
        for entry in table.iter()? {
            let (key, json) = entry?;
            let (receiver, number) = key.value();
            let known = counts.get_mut(receiver);
            let count = match known {
                Some(count) => count,
                None => counts.entry(receiver.into()).or_default(),
            };
            count.events += 1;
            count.bytes += json.value().len() as u64;
            count.last = number;
        }
    }
    transaction.commit()?;
    Ok((database, counts))
}
