//! The tokens of a command line: a short-lived one to ask with, and one that is exchanged for the next
//! pair.
//!
//! Contract:
//! - An access token (`fls_…`) is valid for [`ACCESS`]; a refresh token (`flr_…`) once. Each names its
//!   session, with a proof under a key that only this session has, so that nothing is kept of them.
//! - A refresh token that was exchanged already is recognised as what it is, however old; a text that only
//!   looks like one is not, so that nobody can end a session by guessing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use crate::identity::SessionId;
use crate::secret::{Fingerprint, Secret, random};

/// A token that leaks into a log is of no use when the log is read.
pub(crate) const ACCESS: Duration = Duration::from_secs(10 * 60);
/// Three parts of 43 characters and a number, with room.
const LONGEST: usize = 160;

/// The pair of tokens that a command line keeps.
#[derive(Debug)]
pub struct CliCredential {
    pub user: Arc<str>,
    pub session: SessionId,
    /// For the header `authorization`.
    pub access: Secret,
    /// To be exchanged for the next pair, once.
    pub refresh: Secret,
    /// How long the access token is valid.
    pub lasts: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Access,
    Refresh,
}

impl TokenKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Access => "fls_",
            Self::Refresh => "flr_",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Rotation {
    key: hmac::Key,
    /// How many pairs came before the present one.
    generation: AtomicU64,
}

impl Rotation {
    pub(crate) fn new() -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &random::<32>());
        Self { key, generation: AtomicU64::new(0) }
    }

    /// Makes the pair of a generation.
    pub(crate) fn issue(
        &self,
        session: SessionId,
        user: &Arc<str>,
        generation: u64,
        now: Duration,
    ) -> CliCredential {
        let until = u64::try_from((now + ACCESS).as_millis()).unwrap_or(u64::MAX);
        CliCredential {
            user: Arc::clone(user),
            session,
            access: self.token(TokenKind::Access, session, until),
            refresh: self.token(TokenKind::Refresh, session, generation),
            lasts: ACCESS,
        }
    }

    fn token(&self, kind: TokenKind, session: SessionId, number: u64) -> Secret {
        let proof = URL_SAFE_NO_PAD.encode(hmac::sign(&self.key, &stated(kind, number)));
        Secret::new(format!("{}{}.{number}.{proof}", kind.prefix(), session.0.to_base64()))
    }

    /// Whether this session made the token. It takes the same time whatever the proof is.
    pub(crate) fn proves(&self, kind: TokenKind, number: u64, proof: &str) -> bool {
        let proof = URL_SAFE_NO_PAD.decode(proof).unwrap_or_default();
        hmac::verify(&self.key, &stated(kind, number), &proof).is_ok()
    }

    /// Goes on to the next generation; false if that was done before, by whomever.
    pub(crate) fn advance(&self, generation: u64) -> bool {
        self.generation.compare_exchange(generation, generation + 1, AcqRel, Acquire).is_ok()
    }
}

fn stated(kind: TokenKind, number: u64) -> Vec<u8> {
    format!("{}{number}", kind.prefix()).into_bytes()
}

/// Whether a text is meant as a command line's access token.
pub(crate) fn is_access_token(text: &str) -> bool {
    text.starts_with(TokenKind::Access.prefix())
}

/// The session, the number and the proof of a token.
pub(crate) fn parse(kind: TokenKind, text: &str) -> Option<(Fingerprint, u64, &str)> {
    let rest = text.strip_prefix(kind.prefix()).filter(|_| text.len() <= LONGEST)?;
    let (session, rest) = rest.split_once('.')?;
    let (number, proof) = rest.split_once('.')?;
    let is_plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let number = number.parse().ok().filter(|_| is_plain)?;
    Some((Fingerprint::from_base64(session)?, number, proof))
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
