//! The local token: the credential of whoever owns the data directory.
//!
//! Contract:
//! - It is created at the first start from 256 random bits; there is no default. Its file `<data>/token`
//!   can be read by its owner only and appears complete or not at all.
//! - One that is older than [`OLDEST`] is replaced at the next start: a copy that somebody kept is of no use
//!   for ever. Programs read the file again, as the command line does with every command.
//! - A file that others can read is refused with what to do, because it is no secret any more.
//! - The CLI sends it. It belongs to the administrator `local`. Browsers get a one-time login code
//!   instead, which is useless in a history or a log once it was used.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::secret::{Fingerprint, Secret, random_id};
use crate::token;

/// How old a token may be when a process starts.
pub(crate) const OLDEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

const FILE: &str = "token";
const ID: &str = "local";

#[derive(Clone, Debug)]
pub struct LocalToken {
    path: PathBuf,
    secret: Secret,
}

#[derive(Debug, thiserror::Error)]
pub enum LocalTokenError {
    #[error(
        "{} can be read by others (mode {mode:03o}), so it is no secret any more: delete it, and the \
         next start makes a new one",
        path.display()
    )]
    Open { path: PathBuf, mode: u32 },
    #[error(
        "{} is not a token file: delete it, and the next start makes a new one",
        path.display()
    )]
    Unreadable { path: PathBuf },
    #[error("cannot {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl LocalToken {
    /// Reads the token of the data directory, or creates it. It blocks, for the start of a process.
    pub fn open(data: &Path) -> Result<Self, LocalTokenError> {
        let path = data.join(FILE);
        match Self::read(&path)? {
            Some(token) if !is_old(&path) => Ok(token),
            Some(_) => Self::replace(data, path),
            None => Self::make(data, path),
        }
    }

    /// Reads the token of a data directory, for a client; `None` when no server has created one.
    pub fn read_from(data: &Path) -> Result<Option<Self>, LocalTokenError> {
        Self::read(&data.join(FILE))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.secret.expose())
    }

    fn read(path: &Path) -> Result<Option<Self>, LocalTokenError> {
        let failed = |doing| move |source| LocalTokenError::Io { doing, path: path.into(), source };
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("open")(error)),
        };
        // The metadata of the open file, because the path may name another one by now.
        let meta = file.metadata().map_err(failed("look at"))?;
        let mode = meta.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(LocalTokenError::Open { path: path.into(), mode });
        }
        let unreadable = || LocalTokenError::Unreadable { path: path.into() };
        let mut text = String::new();
        let limit = 1024; // A token is shorter; a device or a mistaken file is not read whole.
        (&mut file).take(limit).read_to_string(&mut text).map_err(|_| unreadable())?;
        let text = text.trim_end();
        if !meta.is_file() || !token::looks_like_one(text) {
            return Err(unreadable());
        }
        Ok(Some(Self { path: path.into(), secret: Secret::new(text) }))
    }

    /// Puts a new token in the place of an old one. The process alone has the data directory.
    fn replace(data: &Path, path: PathBuf) -> Result<Self, LocalTokenError> {
        let draft = data.join(format!(".{FILE}.{}", random_id::<6>()));
        let secret = token::with_id(ID);
        let replaced = write_draft(&draft, &secret)
            .and_then(|()| std::fs::rename(&draft, &path))
            .and_then(|()| File::open(data)?.sync_all());
        match replaced {
            Ok(()) => Ok(Self { path, secret }),
            Err(source) => {
                let _ = std::fs::remove_file(&draft);
                Err(LocalTokenError::Io { doing: "replace", path, source })
            }
        }
    }

    fn make(data: &Path, path: PathBuf) -> Result<Self, LocalTokenError> {
        let draft = data.join(format!(".{FILE}.{}", random_id::<6>()));
        let secret = token::with_id(ID);
        let failed = |source| LocalTokenError::Io { doing: "make", path: path.clone(), source };
        let made = write_draft(&draft, &secret).and_then(|()| std::fs::hard_link(&draft, &path));
        let removed = std::fs::remove_file(&draft);
        match made {
            Ok(()) => {
                removed.map_err(failed)?;
                File::open(data).and_then(|dir| dir.sync_all()).map_err(failed)?;
                Ok(Self { path, secret })
            }
            // Another process was first: its token counts.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Self::read(&path)?.ok_or_else(|| failed(error))
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// Whether the file is older than a token may be. A time in the future counts as new: clocks jump.
fn is_old(path: &Path) -> bool {
    let written = std::fs::metadata(path).and_then(|meta| meta.modified());
    let age = written.ok().and_then(|written| written.elapsed().ok());
    age.is_some_and(|age| age > OLDEST)
}

fn write_draft(draft: &Path, secret: &Secret) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    // An umask only removes permissions; a file system's default may add some.
    file.set_permissions(Permissions::from_mode(0o600))?;
    writeln!(file, "{}", secret.expose())?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
