//! API tokens: `flt_<id>_<256 random bits>`.
//!
//! Contract: the secret is shown once; its SHA-256 is kept in an `AccessToken` with the id as its name. A
//! token is found by that hash: the time of the search reveals nothing, because nobody can choose the
//! digits of a hash. The prefix is for scanners of leaked secrets.

use jiff::Timestamp;
use objects::kinds::{AccessToken, AccessTokenSpec};

use crate::secret::{Fingerprint, Secret, random_id};

const PREFIX: &str = "flt_";

/// A token that was just created, with its secret, which is not kept.
#[derive(Debug)]
pub struct NewToken {
    pub id: String,
    pub secret: Secret,
    pub expires: Option<Timestamp>,
}

impl NewToken {
    pub(crate) fn make(expires: Option<Timestamp>) -> Self {
        // 48 random bits are unique among the tokens of a fleet; the store refuses a collision.
        let id = random_id::<6>();
        Self { secret: with_id(&id), id, expires }
    }

    /// The object that is kept of it.
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

/// Makes a new secret in the form of a token.
pub(crate) fn with_id(id: &str) -> Secret {
    Secret::new(format!("{PREFIX}{id}_{}", Secret::random().expose()))
}

/// Whether `text` has the form of a token. Other texts are not hashed.
pub(crate) fn looks_like_one(text: &str) -> bool {
    let id_and_secret = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
    let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    id_and_secret.is_some_and(|(id, secret)| {
        (1..=32).contains(&id.len()) && secret.len() == 43 && secret.bytes().all(plain)
    })
}

#[cfg(test)]
mod tests;
