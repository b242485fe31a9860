//! `SavedLogin`: what `fairlead login` keeps of a server, and how it stays current.
//!
//! Contract:
//! - One file a server, readable by its owner only, in a directory that only its owner may enter. It is
//!   replaced as a whole.
//! - The token that is sent lasts minutes. Before it ends it is exchanged for the next one, with a lock on
//!   the file: of several commands at once one does that, because a refresh token that is used twice ends
//!   the login.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::output::Failure;

/// A login is a few lines; what is larger is another file.
const LARGEST: u64 = 64 << 10;
/// A token that ends within this time is exchanged first: the request takes a while, and clocks differ.
const EARLY: Duration = Duration::from_secs(60);
/// How long another command may take to exchange a token.
const LOCKED: Duration = Duration::from_secs(15);

#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SavedLogin {
    pub(crate) server: String,
    pub(crate) user: String,
    pub(crate) access: String,
    pub(crate) refresh: String,
    expires: Timestamp,
    /// The authority that the login was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
}

impl std::fmt::Debug for SavedLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SavedLogin")
            .field("server", &self.server)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// The tokens that a server answers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tokens {
    pub(crate) user: String,
    access: String,
    refresh: String,
    expires_in_seconds: u64,
}

impl SavedLogin {
    pub(crate) fn new(server: &str, tokens: Tokens, ca_file: Option<PathBuf>) -> Self {
        let Tokens { user, access, refresh, expires_in_seconds } = tokens;
        let expires = Timestamp::now() + Duration::from_secs(expires_in_seconds.min(86_400));
        Self { server: server.to_owned(), user, access, refresh, expires, ca_file }
    }

    pub(crate) fn is_current(&self) -> bool {
        Timestamp::now() + EARLY < self.expires
    }
}

/// The file of one server's login.
#[derive(Clone, Debug)]
pub(crate) struct LoginFile {
    path: PathBuf,
}

/// Held by whoever exchanges tokens.
#[derive(Debug)]
pub(crate) struct Locked {
    _file: File,
}

impl LoginFile {
    /// The file of a server, whether it is there or not; none without a home directory.
    pub(crate) fn of(server: &str) -> Option<Self> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let config = absolute("XDG_CONFIG_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
        Some(Self::within(&config.join("fairlead/logins"), server))
    }

    fn within(directory: &Path, server: &str) -> Self {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' };
        let name: String = server.chars().map(plain).collect();
        Self { path: directory.join(format!("{name}.json")) }
    }

    #[cfg(test)]
    fn path(&self) -> &Path {
        &self.path
    }

    /// The login that is kept; none if there is none of this server.
    pub(crate) fn read(&self, server: &str) -> Result<Option<SavedLogin>, Failure> {
        let shown = self.path.display();
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Failure(format!("the login at {shown} cannot be read: {e}"))),
        };
        let mode = file.metadata().map_or(0, |meta| meta.permissions().mode()) & 0o777;
        if mode & 0o077 != 0 {
            return Err(Failure(format!(
                "the login at {shown} can be read by others (mode {mode:03o}), so it is no secret any \
                 more: `fairlead logout {server}`, then log in again"
            )));
        }
        let mut text = String::new();
        let read = file.take(LARGEST).read_to_string(&mut text);
        let login = read.ok().and_then(|_| serde_json::from_str::<SavedLogin>(&text).ok());
        let login = login.ok_or_else(|| {
            Failure(format!("{shown} does not hold a login; delete it, and log in again"))
        })?;
        // Two servers may have one file's name; a token goes to its own server alone.
        Ok(Some(login).filter(|login| login.server == server))
    }

    pub(crate) fn write(&self, login: &SavedLogin) -> Result<(), Failure> {
        let shown = self.path.display();
        let failed = |e| Failure(format!("the login cannot be kept at {shown}: {e}"));
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let draft = self.path.with_extension(format!("{}.draft", std::process::id()));
        let written = (|| {
            let _ = std::fs::remove_file(&draft);
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(&serde_json::to_vec_pretty(login).unwrap_or_default())?;
            file.sync_all()?;
            std::fs::rename(&draft, &self.path)
        })();
        written.map_err(|e| {
            let _ = std::fs::remove_file(&draft);
            failed(e)
        })
    }

    pub(crate) fn remove(&self) -> Result<(), Failure> {
        match std::fs::remove_file(&self.path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(Failure(format!("the login at {} cannot be removed: {e}", self.path.display())))
            }
            _ => Ok(()),
        }
    }

    /// Waits for the turn to exchange tokens.
    pub(crate) async fn lock(&self) -> Result<Locked, Failure> {
        let path = self.path.with_extension("lock");
        let failed = |e| Failure(format!("{} cannot be locked: {e}", path.display()));
        let mut open = OpenOptions::new();
        let file = open.write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(failed)?;
        let until = Instant::now() + LOCKED;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Locked { _file: file }),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                    sleep(Duration::from_millis(20)).await;
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(Failure(
                        "another command has been renewing the login for too long; try again"
                            .to_owned(),
                    ));
                }
                Err(e) => return Err(failed(e.into())),
            }
        }
    }
}

#[cfg(test)]
mod tests;
