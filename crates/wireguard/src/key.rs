//! Keys of WireGuard: a private one that stays in its file, the public half that others know it by, and
//! keys that two peers share.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gotatun::x25519;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

/// Who may use a key file: its owner.
const MODE: u32 = 0o600;
/// A key and a line's end, and room to see that there is more than that.
const LONGEST: u64 = 64;

/// A private key. It is not shown, not even in logs, and is overwritten in memory when it is dropped.
#[derive(Clone)]
pub struct PrivateKey(x25519::StaticSecret);

/// A public key, which names a peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey(pub [u8; 32]);

/// A key that two peers share beside their own.
#[derive(Clone)]
pub struct PresharedKey(pub(crate) [u8; 32]);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is 32 bytes in base64, 44 characters of which the last is `=`")]
pub struct MalformedKey;

impl PrivateKey {
    /// Makes a key of the operating system's random numbers.
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(bytes.into()))
    }

    pub fn public(&self) -> PublicKey {
        PublicKey(x25519::PublicKey::from(&self.0).to_bytes())
    }

    pub(crate) fn secret(&self) -> &x25519::StaticSecret {
        &self.0
    }

    /// The key as `wg` writes it: for a configuration that is handed to somebody else's machine.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.0.as_bytes())
    }
}

impl FromStr for PrivateKey {
    type Err = MalformedKey;

    fn from_str(text: &str) -> Result<Self, MalformedKey> {
        Ok(Self(bytes(text)?.into()))
    }
}

impl PresharedKey {
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(bytes))
    }

    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.0)
    }
}

impl PartialEq for PresharedKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for PresharedKey {}

impl FromStr for PresharedKey {
    type Err = MalformedKey;

    fn from_str(text: &str) -> Result<Self, MalformedKey> {
        bytes(text).map(Self)
    }
}

impl FromStr for PublicKey {
    type Err = MalformedKey;

    fn from_str(text: &str) -> Result<Self, MalformedKey> {
        bytes(text).map(Self)
    }
}

impl TryFrom<String> for PublicKey {
    type Error = MalformedKey;

    fn try_from(text: String) -> Result<Self, MalformedKey> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

fn bytes(text: &str) -> Result<[u8; 32], MalformedKey> {
    let bytes = STANDARD.decode(text.trim()).map_err(|_| MalformedKey)?;
    bytes.try_into().map_err(|_| MalformedKey)
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(of {})", self.public())
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(hidden)")
    }
}

/// Where a node keeps its key: one file in base64, as `wg genkey` writes it.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("the key file {0} cannot be read")]
    Read(PathBuf, #[source] io::Error),
    #[error("the key file {0} cannot be written")]
    Write(PathBuf, #[source] io::Error),
    #[error(
        "others than its owner may use the key file {0} (mode {1:o}): the key may be known; remove the \
         file, so that a new key is made, or `chmod 600` it if you are sure"
    )]
    Exposed(PathBuf, u32),
    #[error("the key file {0} holds no key; remove it, so that a new key is made")]
    Malformed(PathBuf, #[source] MalformedKey),
}

impl KeyFile {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Reads the key, or makes one if there is no file. Blocks.
    pub fn load_or_create(&self) -> Result<PrivateKey, KeyFileError> {
        if let Some(key) = self.load()? {
            return Ok(key);
        }
        let key = PrivateKey::generate().map_err(|error| self.unwritable(error))?;
        self.store(&key)?;
        Ok(key)
    }

    /// Reads the key; none if there is no file. Blocks.
    pub fn load(&self) -> Result<Option<PrivateKey>, KeyFileError> {
        let unreadable = |error| KeyFileError::Read(self.path.clone(), error);
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(unreadable)?,
        };
        // Asked of the file that is open: what the path leads to may change.
        let mode = file.metadata().map_err(unreadable)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyFileError::Exposed(self.path.clone(), mode));
        }
        let text = io::read_to_string(io::Read::take(file, LONGEST)).map_err(unreadable)?;
        let malformed = |error| KeyFileError::Malformed(self.path.clone(), error);
        text.parse().map(Some).map_err(malformed)
    }

    /// Puts a key in place of the one that is there: whole, durable, and never readable by others.
    /// Blocks.
    pub fn store(&self, key: &PrivateKey) -> Result<(), KeyFileError> {
        let unwritable = |error| self.unwritable(error);
        let new = self.path.with_extension("new");
        let directory = self.path.parent().filter(|parent| *parent != Path::new(""));
        if let Some(directory) = directory {
            fs::create_dir_all(directory).map_err(unwritable)?;
        }
        // What a crash left behind may have another mode.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unwritable(error)),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&new);
        let mut file = file.map_err(unwritable)?;
        writeln!(file, "{}", key.to_base64()).map_err(unwritable)?;
        file.sync_all().map_err(unwritable)?;
        fs::rename(&new, &self.path).map_err(unwritable)?;
        let directory = File::open(directory.unwrap_or(Path::new("."))).map_err(unwritable)?;
        directory.sync_all().map_err(unwritable)
    }

    /// Removes the file, if it is there. Blocks.
    pub fn remove(&self) -> Result<(), KeyFileError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.unwritable(error)),
            _ => Ok(()),
        }
    }

    fn unwritable(&self, error: io::Error) -> KeyFileError {
        KeyFileError::Write(self.path.clone(), error)
    }
}

#[cfg(test)]
mod tests;
