//! Tokens of kubeconfigs: `flk_…`, each of one login, for the Kubernetes API of clusters and nothing else.
//!
//! Contract:
//! - A token says whose it is, by which login it was made and until when, with a proof under a key that only
//!   this process has: nothing is kept of it. It is valid for [`LASTS`] at most, and only as long as that
//!   login is: a session that ends, an API token that is revoked and a user who is disabled take it with
//!   them. A restart ends it.
//! - It is told apart by its prefix, so that no other route takes it.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::hmac;

use crate::identity::{AuthMethod, Identity, SessionId};
use crate::secret::{Fingerprint, Secret, random};

/// A working day.
pub const LASTS: Duration = Duration::from_secs(8 * 60 * 60);

const PREFIX: &str = "flk_";
/// A user's name, an id and a time, with room.
const LONGEST: usize = 2048;

#[derive(Debug)]
pub(crate) struct KubeTokens(hmac::Key);

impl KubeTokens {
    pub(crate) fn new() -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &random::<32>()))
    }

    /// Makes a token of this login; none of who acts by no login.
    pub(crate) fn issue(&self, who: &Identity, until: Timestamp) -> Option<Secret> {
        let via = match &who.via {
            AuthMethod::Local => "local".to_owned(),
            AuthMethod::Token(id) => format!("token/{id}"),
            AuthMethod::Session(SessionId(id)) => format!("session/{}", id.to_base64()),
            AuthMethod::ResponseRule(_) => return None,
        };
        let stated = format!("{} {via} {}", until.as_millisecond(), who.user);
        let proof = URL_SAFE_NO_PAD.encode(hmac::sign(&self.0, stated.as_bytes()));
        Some(Secret::new(format!("{PREFIX}{}.{proof}", URL_SAFE_NO_PAD.encode(stated))))
    }

    /// Whose a token is, if it is one of ours and its time has not passed. Whether its login still holds is
    /// for the caller to ask.
    pub(crate) fn read(&self, text: &str, now: Timestamp) -> Option<Identity> {
        let rest = text.strip_prefix(PREFIX).filter(|_| text.len() <= LONGEST)?;
        let (stated, proof) = rest.split_once('.')?;
        let stated = URL_SAFE_NO_PAD.decode(stated).ok()?;
        let proof = URL_SAFE_NO_PAD.decode(proof).ok()?;
        hmac::verify(&self.0, &stated, &proof).ok()?;
        let stated = String::from_utf8(stated).ok()?;
        let mut parts = stated.splitn(3, ' ');
        let (until, via, user) = (parts.next()?, parts.next()?, parts.next()?);
        if Timestamp::from_millisecond(until.parse().ok()?).ok()? <= now {
            return None;
        }
        let via = match via.split_once('/') {
            None if via == "local" => AuthMethod::Local,
            Some(("token", id)) => AuthMethod::Token(id.into()),
            Some(("session", id)) => AuthMethod::Session(SessionId(Fingerprint::from_base64(id)?)),
            _ => return None,
        };
        Some(Identity { user: user.into(), via })
    }
}

/// Whether a text is meant as a kubeconfig's token.
pub fn is_kube_token(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// The password of `authorization: Basic …`: kubectl sends no bearer token to an address without TLS, such as
/// one on loopback, but what the address itself says.
pub fn basic_password(encoded: &str) -> Option<String> {
    let decoded = STANDARD.decode(encoded.trim()).ok().filter(|it| it.len() <= LONGEST * 2)?;
    let decoded = String::from_utf8(decoded).ok()?;
    decoded.split_once(':').map(|(_, password)| password.to_owned())
}

/// As a kubeconfig has certificates.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn who(via: AuthMethod) -> Identity {
        Identity { user: "ann of the shop".into(), via }
    }

    #[test]
    fn a_token_says_whose_it_is_until_its_time_has_passed() {
        let tokens = KubeTokens::new();
        let until = Timestamp::now() + LASTS;
        for via in [
            AuthMethod::Local,
            AuthMethod::Token("abc".into()),
            AuthMethod::Session(SessionId(Fingerprint::of("cookie"))),
        ] {
            let token = tokens.issue(&who(via.clone()), until).unwrap();
            assert!(is_kube_token(token.expose()));
            assert_eq!(tokens.read(token.expose(), Timestamp::now()), Some(who(via)));
            assert_eq!(tokens.read(token.expose(), until), None, "its time has passed");
            assert_eq!(KubeTokens::new().read(token.expose(), Timestamp::now()), None, "not ours");
        }
        let nobody = who(AuthMethod::ResponseRule("rule".into()));
        assert!(tokens.issue(&nobody, until).is_none());
    }

    #[test]
    fn nobody_can_change_one() {
        let tokens = KubeTokens::new();
        let token = tokens.issue(&who(AuthMethod::Local), Timestamp::now() + LASTS).unwrap();
        let (_, proof) = token.expose().rsplit_once('.').unwrap();
        let other = URL_SAFE_NO_PAD.encode("99999999999999 local root");
        for text in [
            format!("{PREFIX}{other}.{proof}"),
            token.expose().replacen(PREFIX, "fls_", 1),
            format!("{}A", token.expose()),
            PREFIX.to_owned(),
            format!("{PREFIX}."),
        ] {
            assert_eq!(tokens.read(&text, Timestamp::now()), None, "{text}");
        }
    }

    #[test]
    fn a_basic_header_has_a_password() {
        let encoded = STANDARD.encode("fairlead:flk_a.b");
        assert_eq!(basic_password(&encoded).as_deref(), Some("flk_a.b"));
        assert_eq!(basic_password("?"), None);
        assert_eq!(basic_password(&STANDARD.encode("no colon")), None);
    }
}
