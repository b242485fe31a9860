//! One process per data directory.
//!
//! Contract: whoever holds a [`LockFile`] is alone in its directory. The kernel gives the lock up
//! when the holder ends, however it ends, so there is nothing to clean up after a crash; the file
//! stays and means nothing by itself.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

const NAME: &str = "lock";

#[derive(Debug)]
pub struct LockFile {
    _file: File,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{} is in use by another process{}; stop it or choose another directory",
        dir.display(),
        holder.as_ref().map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    Held { dir: PathBuf, holder: Option<u32> },
    #[error("cannot lock {}", dir.display())]
    Io {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl LockFile {
    /// Takes the lock of an existing directory, or says at once who has it.
    pub fn take(dir: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Io { dir: dir.to_owned(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join(NAME))
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // Only to help the user; the holder may just be writing it.
                let _ = file.read_to_string(&mut pid);
                return Err(Error::Held { dir: dir.to_owned(), holder: pid.trim().parse().ok() });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests;
