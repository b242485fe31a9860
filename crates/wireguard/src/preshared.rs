//! The key that all nodes of a mesh share beside their own: a file, which every cluster of the mesh gets by
//! its own means.
//!
//! ```text
//! # a key for each line, as `wg genpsk` writes it, and the time from which on it is used
//! 3pB0+F5HkSxb2Kh0yIhYVd6bLbdr4sVUq2ZpyfbxLkM=
//! mQ9r1O0x0sJm3v5oO5cQXk5x8K0f8i4bJx1w0pYFq2Y= 2027-01-10T03:00:00Z
//! ```
//!
//! WireGuard mixes it into each handshake, so that who records packets today and can compute private keys
//! from public ones one day cannot read them without it. It protects nothing from a node that was taken
//! over, which has it.
//!
//! Contract:
//! - At any time the key is the one whose time came last; before the first time there is none. Every node
//!   changes at the same moment by its clock, and sessions go on: a handshake that fails because another
//!   clock is some seconds behind is tried again while the session before lasts.
//! - A file that is not there, that others may read, or of which a line is no key is an error, and never
//!   "no key".

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use crate::key::PresharedKey;

/// A key with its time is some 70 bytes, and a comment about as much; two keys are in use at a time.
const LONGEST: u64 = 16 << 10;

#[derive(Debug, thiserror::Error)]
pub enum PresharedKeysError {
    #[error("the file of preshared keys {0} cannot be read")]
    Read(PathBuf, #[source] io::Error),
    #[error(
        "others than its owner may read the file of preshared keys {0} (mode {1:o}): make new keys, or \
         `chmod 600` it if you are sure that nobody did"
    )]
    Exposed(PathBuf, u32),
    #[error(
        "line {line} of the file of preshared keys {path} is no key: each line has what `wg genpsk` prints \
         and, after a space, the time from which on it is used, such as 2027-01-10T03:00:00Z"
    )]
    Malformed { path: PathBuf, line: usize },
    #[error("the file of preshared keys {0} has no key, or more than {LONGEST} bytes")]
    NoKey(PathBuf),
}

/// The keys of a file, each with the time from which on it is used, the latest last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PresharedKeys(Vec<(Timestamp, PresharedKey)>);

impl PresharedKeys {
    /// Reads a file. Blocks.
    pub(crate) fn load(path: &Path) -> Result<Self, PresharedKeysError> {
        let unreadable = |error| PresharedKeysError::Read(path.to_owned(), error);
        let file = File::open(path).map_err(unreadable)?;
        // Asked of the file that is open: what the path leads to may change.
        let mode = file.metadata().map_err(unreadable)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(PresharedKeysError::Exposed(path.to_owned(), mode));
        }
        let text = io::read_to_string(io::Read::take(file, LONGEST + 1)).map_err(unreadable)?;
        if text.len() as u64 > LONGEST {
            return Err(PresharedKeysError::NoKey(path.to_owned()));
        }
        match Self::parse(&text) {
            Ok(keys) if keys.0.is_empty() => Err(PresharedKeysError::NoKey(path.to_owned())),
            Ok(keys) => Ok(keys),
            Err(line) => Err(PresharedKeysError::Malformed { path: path.to_owned(), line }),
        }
    }

    /// Reads the text of a file; an error is the number of the line that is no key.
    fn parse(text: &str) -> Result<Self, usize> {
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace();
            let Some(key) = words.next().filter(|word| !word.starts_with('#')) else { continue };
            let key = key.parse().map_err(|_| index + 1)?;
            let from = match words.next() {
                Some(time) => time.parse().map_err(|_| index + 1)?,
                None => Timestamp::MIN,
            };
            if words.next().is_some() {
                return Err(index + 1);
            }
            keys.push((from, key));
        }
        keys.sort_by_key(|(from, _)| *from);
        Ok(Self(keys))
    }

    /// The key that is used at this time; none before the first one's time.
    pub(crate) fn at(&self, now: Timestamp) -> Option<&PresharedKey> {
        let due = self.0.iter().take_while(|(from, _)| *from <= now);
        due.last().map(|(_, key)| key)
    }

    /// How long the key of this time is used.
    pub(crate) fn until_next(&self, now: Timestamp) -> Option<Duration> {
        let (from, _) = self.0.iter().find(|(from, _)| *from > now)?;
        Duration::try_from(from.duration_since(now)).ok()
    }
}

#[cfg(test)]
mod tests;
