//! `Token`: what a new node proves itself with.
//!
//! `fl1.PAYLOAD.MAC.PIN`, each in URL-safe base64: when it was made and until when it holds, for
//! which node (`*` is any), a nonce; an HMAC-SHA-256 of that under a key that only controllers have;
//! and the SHA-256 of the authority's certificate, by which the node knows the controller before it
//! says a word. The nonce is the token's id, by which it is listed and revoked; its secret is the MAC,
//! which is not kept.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use ring::hmac;

pub const DEFAULT_TTL: Duration = Duration::from_secs(60 * 60);
/// A week: a token is for setting up, not for keeping.
pub const LONGEST_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

const VERSION: &str = "fl1";
const ANY: &str = "*";
/// Two times and a nonce.
const FIXED: usize = 3 * 8;

/// A token as it is printed, this once. Not shown in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What the authority's certificate must hash to; none of what is no token.
    pub fn pin(token: &str) -> Option<[u8; 32]> {
        let mut parts = token.trim().split('.');
        let (version, _, _, pin) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if version != VERSION || parts.next().is_some() {
            return None;
        }
        BASE64.decode(pin).ok()?.try_into().ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Tells a token from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonce(u64);

impl Nonce {
    pub(super) fn new() -> Self {
        Self(super::random())
    }

    /// As it is shown and asked for.
    pub(super) fn id(self) -> String {
        format!("{:016x}", self.0)
    }
}

/// What a genuine token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) nonce: Nonce,
    pub(super) made: Timestamp,
    pub(super) until: Timestamp,
    /// None is any.
    pub(super) node: Option<String>,
}

impl Claim {
    pub(super) fn sign(&self, key: &[u8], pin: &[u8; 32]) -> Token {
        let mut payload = Vec::with_capacity(FIXED + 64);
        payload.extend(self.made.as_millisecond().to_be_bytes());
        payload.extend(self.until.as_millisecond().to_be_bytes());
        payload.extend(self.nonce.0.to_be_bytes());
        payload.extend(self.node.as_deref().unwrap_or(ANY).as_bytes());
        let signed = format!("{VERSION}.{}", BASE64.encode(payload));
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), signed.as_bytes());
        Token(format!("{signed}.{}.{}", BASE64.encode(mac), BASE64.encode(pin)))
    }

    /// None of what was not signed with this key, whatever it is.
    pub(super) fn verify(token: &str, key: &[u8]) -> Option<Self> {
        let (rest, _pin) = token.trim().rsplit_once('.')?;
        let (signed, mac) = rest.rsplit_once('.')?;
        let mac = BASE64.decode(mac).ok()?;
        hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), signed.as_bytes(), &mac).ok()?;
        let payload = BASE64.decode(signed.strip_prefix(VERSION)?.strip_prefix('.')?).ok()?;
        let (times, node) = payload.split_at_checked(FIXED)?;
        let bytes = |at: usize| -> Option<[u8; 8]> { times.get(at..at + 8)?.try_into().ok() };
        let time = |at| Timestamp::from_millisecond(i64::from_be_bytes(bytes(at)?)).ok();
        let nonce = Nonce(u64::from_be_bytes(bytes(16)?));
        let node = std::str::from_utf8(node).ok()?;
        let node = (node != ANY).then(|| node.to_owned());
        Some(Self { nonce, made: time(0)?, until: time(8)?, node })
    }
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
