//! API tokens: `flt_<id>_<256 random bits>`.
//!
//! Contract: the secret is shown once, by who made it; what is kept is its SHA-256, in an
//! `AccessToken` of the id's name. A token is found by that hash: how long the search takes tells
//! nothing about a token, because nobody can choose a hash's digits. The prefix is there for those
//! who scan repositories for secrets.

use jiff::Timestamp;
use objects::kinds::{AccessToken, AccessTokenSpec};

use crate::secret::{Fingerprint, Secret, random_id};

const PREFIX: &str = "flt_";

/// A token that was just made: the only time its secret is there.
#[derive(Debug)]
pub struct NewToken {
    pub id: String,
    pub secret: Secret,
    pub expires: Option<Timestamp>,
}

impl NewToken {
    pub(crate) fn make(expires: Option<Timestamp>) -> Self {
        // 48 random bits: unique among the tokens of a fleet; a collision is refused by the store.
        let id = random_id::<6>();
        Self { secret: with_id(&id), id, expires }
    }

    /// What is kept of it.
    pub(crate) fn object(&self, user: &str, description: Option<String>) -> AccessToken {
        let spec = AccessTokenSpec {
            user: user.to_owned(),
            hash: Fingerprint::of(self.secret.expose()).to_hex(),
            expires: self.expires.map(|at| at.to_string()),
            description,
        };
        AccessToken::new(&self.id, spec)
    }
}

/// A new secret in the form of a token.
pub(crate) fn with_id(id: &str) -> Secret {
    Secret::new(format!("{PREFIX}{id}_{}", Secret::random().expose()))
}

/// Whether `text` has the form of a token: what has not is not worth a hash.
pub(crate) fn looks_like_one(text: &str) -> bool {
    let id_and_secret = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
    let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    id_and_secret.is_some_and(|(id, secret)| {
        (1..=32).contains(&id.len()) && secret.len() == 43 && secret.bytes().all(plain)
    })
}

#[cfg(test)]
mod tests;
