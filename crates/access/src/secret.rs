//! `Secret` and `Fingerprint`: a secret text, and the hash that is kept of it.
//!
//! Contract: `Debug` does not show a secret, and there is no `Display`. Of a random secret its SHA-256 is
//! kept: 256 random bits cannot be guessed, so that a slow hash would add nothing.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A password, a token, a cookie.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Makes a secret of 256 random bits, as 43 characters that need no escaping.
    pub fn random() -> Self {
        Self(URL_SAFE_NO_PAD.encode(random::<32>()))
    }

    /// Returns the text itself. It must not be logged.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Compares in constant time for texts of one length.
    pub fn is(&self, text: &str) -> bool {
        self.0.as_bytes().ct_eq(text.as_bytes()).into()
    }
}

impl<'de> serde::Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The SHA-256 of a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Hashes several texts; their boundaries are part of the hash.
    pub(crate) fn of_all(texts: &[&str]) -> Self {
        let mut sha = Sha256::new();
        for text in texts {
            sha.update((text.len() as u64).to_le_bytes());
            sha.update(text);
        }
        Self(sha.finalize().into())
    }

    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn from_hex(hex: &str) -> Option<Self> {
        let digits = hex.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |of: u8| char::from(of).to_digit(16);
            *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
        }
        Some(Self(bytes))
    }

    pub(crate) fn to_base64(self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    pub(crate) fn from_base64(text: &str) -> Option<Self> {
        Some(Self(URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?))
    }
}

/// Shows the beginning, which is enough to tell two apart.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex()[..12])
    }
}

/// Returns random bytes of the operating system, which has them once it has booted.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// Returns `N` random bytes in hexadecimal, for ids that must be unique and not secret.
pub(crate) fn random_id<const N: usize>() -> String {
    random::<N>().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
