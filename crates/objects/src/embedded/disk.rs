//! The redb file: `objects.redb` in the data directory, readable by its owner alone.
//!
//! Contract:
//! - A commit is on disk, whole, when `commit` returns; when it fails, whether it is there is not
//!   known until the file has been opened again.
//! - Commits have two phases. In one phase redb cannot tell a commit that was interrupted from one
//!   that rotted, and takes back the last commit in both cases; what was acknowledged would be gone
//!   without a word.
//! - Every page is verified when the file is opened: redb itself reads what it finds. A file that
//!   is damaged is an error that names it. One bit is out of reach, the one that says which of
//!   redb's two roots is the last: after a crash, the other one looks like a commit that was not
//!   finished.
//! - A new file gets its name when it is complete, so an empty one is damage, never a beginning.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use kube::core::DynamicObject;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, StorageError};
use redb::{TableDefinition, WriteTransaction};

use super::state::{Kind, State, Write};
use crate::store::Id;

const FILE: &str = "objects.redb";
const FORMAT: u64 = 1;
/// redb's cache, in bytes. The file is read when it is opened and never after; this much keeps the
/// upper pages of its trees at hand for the writer.
const CACHE: usize = 16 << 20;

/// Maps kind, namespace (empty for a cluster-scoped kind) and name to the object's JSON.
const OBJECTS: TableDefinition<'_, (&str, &str, &str), &[u8]> = TableDefinition::new("objects");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// Says why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} is in use: only one process at a time may have it open", file.display())]
    InUse { file: PathBuf },
    #[error(
        "{} is damaged; restore it from a backup, or move it away to begin anew",
        file.display()
    )]
    Damaged {
        file: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{} has format {found}, which this version does not know; use a newer one", file.display())]
    Format { file: PathBuf, found: u64 },
    #[error("cannot open {}", file.display())]
    Io {
        file: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

#[derive(Debug)]
pub(super) struct Disk {
    file: PathBuf,
    database: Database,
}

impl Disk {
    /// Opens the store in `dir`, and makes both if they do not exist.
    pub(super) fn open(dir: &Path) -> Result<(Self, State), OpenError> {
        let file = dir.join(FILE);
        // A damaged file may lead redb to where it panics.
        let opened = catch_unwind(|| {
            let at = |source| OpenError::Io { file: file.clone(), source: Box::new(source) };
            if !file.try_exists().map_err(at)? {
                create(dir, &file)?;
            }
            let (disk, format) = Self::verify(&file)?;
            if format > FORMAT {
                return Err(OpenError::Format { file: file.clone(), found: format });
            }
            let state = disk.load().map_err(|error| refused(&file, error))?;
            Ok((disk, state))
        });
        opened.unwrap_or_else(|_| Err(damaged(&file, "redb cannot make sense of it")))
    }

    fn verify(file: &Path) -> Result<(Self, u64), OpenError> {
        let at = |source| OpenError::Io { file: file.to_owned(), source: Box::new(source) };
        let handle = OpenOptions::new().read(true).write(true).open(file).map_err(at)?;
        if handle.metadata().map_err(at)?.len() == 0 {
            return Err(damaged(file, "it is empty"));
        }
        // It may have been copied here by somebody less careful.
        handle.set_permissions(Permissions::from_mode(0o600)).map_err(at)?;
        let mut database = database(file, handle)?;
        let sound = database.check_integrity().map_err(|error| refused(file, error.into()))?;
        if !sound {
            tracing::warn!(file = %file.display(), "the free space of the store was repaired");
        }
        let disk = Self { file: file.to_owned(), database };
        let format = disk.number("format").map_err(|error| refused(file, error))?;
        match format {
            Some(format) => Ok((disk, format)),
            None => Err(damaged(file, "it does not say what format it has")),
        }
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    fn number(&self, name: &str) -> Result<Option<u64>, redb::Error> {
        let numbers = self.database.begin_read()?.open_table(NUMBERS)?;
        Ok(numbers.get(name)?.map(|number| number.value()))
    }

    fn load(&self) -> Result<State, redb::Error> {
        let revision = self.number("revision")?.unwrap_or(0);
        let table = self.database.begin_read()?.open_table(OBJECTS)?;
        let mut objects = Vec::new();
        let mut kinds = std::collections::BTreeMap::<String, Kind>::new();
        for entry in table.iter()? {
            let (key, json) = entry?;
            let (kind, namespace, name) = key.value();
            let object =
                serde_json::from_slice::<DynamicObject>(json.value()).map_err(|error| {
                    StorageError::Corrupted(format!("{kind} {namespace}/{name}: {error}"))
                })?;
            let kind = kinds.entry(kind.to_owned()).or_insert_with(|| kind.into());
            let namespace = (!namespace.is_empty()).then(|| namespace.to_owned());
            objects.push((Kind::clone(kind), Id { namespace, name: name.to_owned() }, object));
        }
        Ok(State::restore(revision, objects))
    }

    pub(super) fn commit(&self, revision: u64, writes: &[Write]) -> Result<(), redb::Error> {
        let transaction = self.begin()?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            for Write { kind, id, json } in writes {
                let key = key(kind, id);
                match json {
                    Some(json) => drop(objects.insert(key, json.as_slice())?),
                    None => drop(objects.remove(key)?),
                }
            }
        }
        finish(transaction, revision)
    }

    /// Writes all of `state` to the file, whatever the file holds now.
    pub(super) fn replace(&self, state: &State) -> Result<(), redb::Error> {
        let transaction = self.begin()?;
        transaction.delete_table(OBJECTS)?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            for (kind, id, object) in state.objects() {
                let json = serde_json::to_vec(object).map_err(io::Error::from)?;
                objects.insert(key(kind, id), json.as_slice())?;
            }
        }
        finish(transaction, state.revision())
    }

    fn begin(&self) -> Result<WriteTransaction, redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_two_phase_commit(true);
        Ok(transaction)
    }
}

fn finish(transaction: WriteTransaction, revision: u64) -> Result<(), redb::Error> {
    transaction.open_table(NUMBERS)?.insert("revision", revision)?;
    Ok(transaction.commit()?)
}

fn key<'a>(kind: &'a Kind, id: &'a Id) -> (&'a str, &'a str, &'a str) {
    (kind, id.namespace.as_deref().unwrap_or_default(), &id.name)
}

fn create(dir: &Path, file: &Path) -> Result<(), OpenError> {
    let at = |source| OpenError::Io { file: file.to_owned(), source: Box::new(source) };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(at)?;
    let new = file.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(error)),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let handle = options.read(true).write(true).create_new(true).mode(0o600).open(&new);
    let disk = Disk { file: new.clone(), database: database(&new, handle.map_err(at)?)? };
    let fill = || {
        let transaction = disk.begin()?;
        transaction.open_table(OBJECTS)?;
        transaction.open_table(NUMBERS)?.insert("format", FORMAT)?;
        finish(transaction, 0)
    };
    fill().map_err(|error| refused(file, error))?;
    drop(disk);
    // Unlike a rename, a link does not replace what another process has made meanwhile.
    match fs::hard_link(&new, file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        linked => linked.map_err(at)?,
    }
    fs::remove_file(&new).map_err(at)?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(at)
}

fn database(file: &Path, handle: File) -> Result<Database, OpenError> {
    let opened = Builder::new().set_cache_size(CACHE).create_file(handle);
    opened.map_err(|error| refused(file, error.into()))
}

fn refused(file: &Path, error: redb::Error) -> OpenError {
    let file = file.to_owned();
    match error {
        redb::Error::DatabaseAlreadyOpen => OpenError::InUse { file },
        redb::Error::Io(ref cause) if cause.kind() != io::ErrorKind::UnexpectedEof => {
            OpenError::Io { file, source: Box::new(error) }
        }
        error => OpenError::Damaged { file, source: Box::new(error) },
    }
}

fn damaged(file: &Path, why: &str) -> OpenError {
    OpenError::Damaged { file: file.to_owned(), source: why.into() }
}

#[cfg(test)]
mod tests;
