//! `LoginStates`: ties the answer of a provider to the browser that began the login.
//!
//! Contract:
//! - Nothing is kept of a login that was begun: the cookie has a random secret and a time, sealed with a key
//!   of this process; state, nonce and PKCE verifier are derived from it. Strangers can begin as many
//!   logins as they like and fill nothing.
//! - An answer counts once, within [`LASTS`], with the cookie of the browser that began, for the provider
//!   that it began with.
//! - What was used is remembered until it is too old, of [`USED`] logins; a provider redeems a code once
//!   anyway.

use std::collections::VecDeque;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use sha2::{Digest, Sha256};
use stallproof::TrackedMutex;
use tokio::time::Instant;

use crate::secret::{Fingerprint, Secret, random};

/// Long enough to log in there with a second factor.
pub(crate) const LASTS: Duration = Duration::from_secs(10 * 60);
const USED: usize = 4096;

#[derive(Debug)]
pub(crate) struct LoginStates {
    key: hmac::Key,
    began: Instant,
    /// The logins that were answered, oldest first. Every answer writes it, for a few lines.
    used: TrackedMutex<VecDeque<(Fingerprint, Instant)>>,
}

/// A login that was just begun.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) cookie: Secret,
    pub(crate) state: String,
    pub(crate) nonce: String,
    /// The PKCE challenge, by S256.
    pub(crate) challenge: String,
}

/// What was derived for a login that is answered.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) nonce: Secret,
    pub(crate) verifier: Secret,
}

impl LoginStates {
    pub(crate) fn new() -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &random::<32>()),
            began: Instant::now(),
            used: TrackedMutex::new("access oidc logins", VecDeque::new()),
        }
    }

    pub(crate) fn begin(&self, provider: &str) -> Begun {
        let until = (self.began.elapsed() + LASTS).as_millis();
        let body = format!("{until}.{}", Secret::random().expose());
        let cookie = format!("{body}.{}", self.seal("cookie", provider, &body));
        let verifier = self.seal("pkce", provider, &body);
        Begun {
            state: self.seal("state", provider, &body),
            nonce: self.seal("nonce", provider, &body),
            challenge: URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)),
            cookie: Secret::new(cookie),
        }
    }

    /// Takes the answer to a login; `None` if it is not one of this browser, or was used, or is too old.
    pub(crate) fn answer(&self, provider: &str, cookie: &str, state: &str) -> Option<Answered> {
        let (body, seal) = cookie.rsplit_once('.')?;
        let (until, _) = body.split_once('.')?;
        let is = |what, text: &str| Secret::new(self.seal(what, provider, body)).is(text);
        if !is("cookie", seal) || !is("state", state) {
            return None;
        }
        let until = Duration::from_millis(until.parse().ok()?);
        if self.began.elapsed() >= until || !self.use_up(body, self.began + until) {
            return None;
        }
        Some(Answered {
            nonce: Secret::new(self.seal("nonce", provider, body)),
            verifier: Secret::new(self.seal("pkce", provider, body)),
        })
    }

    /// Returns whether it was not used before.
    fn use_up(&self, body: &str, until: Instant) -> bool {
        let (fingerprint, now) = (Fingerprint::of(body), Instant::now());
        let mut used = self.used.lock();
        if used.iter().any(|(other, _)| *other == fingerprint) {
            return false;
        }
        while used.front().is_some_and(|(_, until)| *until <= now) || used.len() >= USED {
            used.pop_front();
        }
        used.push_back((fingerprint, until));
        true
    }

    fn seal(&self, what: &str, provider: &str, body: &str) -> String {
        let text = format!("{what}\n{provider}\n{body}");
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.key, text.as_bytes()))
    }
}

#[cfg(test)]
mod tests;
