//! JSON Web Tokens of OpenID providers: read strictly, and believed only when signed with a key of theirs.
//!
//! Contract:
//! - The key decides which algorithms it verifies, never the token alone: `none` and the symmetric ones
//!   do not exist here, so that a public key cannot be taken for an HMAC's.
//! - A token names its key (`kid`), or there is exactly one that it can mean.
//! - What is not understood is refused: critical extensions, other encodings, a part too many, a claim that
//!   is there twice.
//! - Reading needs memory and time in proportion to the token, which has [`LONGEST`] bytes at most.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A token with hundreds of groups is about 20 KiB.
pub(crate) const LONGEST: usize = 64 << 10;
/// The most keys that a provider may have: it has two or three while it rotates them.
const MOST_KEYS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JwtError {
    #[error("it is not a signed JSON Web Token: {0}")]
    Malformed(&'static str),
    #[error("its algorithm {0:?} is not accepted")]
    Algorithm(String),
    /// The key may have come after the keys were read.
    #[error("it is signed with a key that the provider does not publish")]
    UnknownKey,
    #[error("its signature is wrong")]
    Signature,
}

/// A token as it came: neither its signature nor its claims were looked at.
pub(crate) struct Unverified<'t> {
    algorithm: Algorithm,
    kid: Option<String>,
    signed: &'t [u8],
    payload: Vec<u8>,
    signature: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Es256,
    Es384,
    EdDsa,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
    b64: Option<Value>,
}

impl Algorithm {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "EdDSA" => Self::EdDsa,
            _ => return None,
        })
    }
}

impl<'t> Unverified<'t> {
    pub(crate) fn read(token: &'t str) -> Result<Self, JwtError> {
        if token.len() > LONGEST {
            return Err(JwtError::Malformed("it is too long"));
        }
        let (signed, signature) =
            token.rsplit_once('.').ok_or(JwtError::Malformed("it has no parts"))?;
        let (header, payload) =
            signed.split_once('.').ok_or(JwtError::Malformed("it has too few parts"))?;
        if payload.contains('.') {
            return Err(JwtError::Malformed("it has too many parts"));
        }
        let decode = |part: &str| {
            URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed("a part is not base64url"))
        };
        let header: Header = serde_json::from_slice(&decode(header)?)
            .map_err(|_| JwtError::Malformed("its header cannot be read"))?;
        if header.crit.is_some() || header.b64.is_some() {
            return Err(JwtError::Malformed("it has extensions that must be understood"));
        }
        let is_jwt = |typ: &String| typ.eq_ignore_ascii_case("jwt");
        if !header.typ.as_ref().is_none_or(is_jwt) {
            return Err(JwtError::Malformed("it is a token of another type"));
        }
        let algorithm =
            Algorithm::parse(&header.alg).ok_or(JwtError::Algorithm(clipped(header.alg)))?;
        let (payload, signature) = (decode(payload)?, decode(signature)?);
        Ok(Self { algorithm, kid: header.kid, signed: signed.as_bytes(), payload, signature })
    }

    /// Returns the claims, if the token was signed with one of the keys.
    pub(crate) fn verify(&self, keys: &KeySet) -> Result<Map<String, Value>, JwtError> {
        let key = keys.find(self.kid.as_deref(), self.algorithm).ok_or(JwtError::UnknownKey)?;
        key.verify(self.algorithm, self.signed, &self.signature)?;
        // Before serde_json would silently take the last of two.
        serde_json::from_slice::<Registered>(&self.payload)
            .map_err(|_| JwtError::Malformed("its claims cannot be read"))?;
        serde_json::from_slice(&self.payload)
            .map_err(|_| JwtError::Malformed("its claims cannot be read"))
    }
}

/// The claims that decide about a token: each is there once at most, whatever its value is.
#[derive(Deserialize)]
#[expect(dead_code, reason = "that it can be read is the check")]
struct Registered {
    iss: Option<Value>,
    sub: Option<Value>,
    aud: Option<Value>,
    azp: Option<Value>,
    exp: Option<Value>,
    nbf: Option<Value>,
    iat: Option<Value>,
    nonce: Option<Value>,
}

/// The keys that a provider publishes and that this can use.
#[derive(Clone, Default)]
pub(crate) struct KeySet(Vec<Key>);

#[derive(Clone)]
struct Key {
    kid: Option<String>,
    /// The one algorithm that the provider uses it with, if it says so.
    alg: Option<Algorithm>,
    public: Public,
}

#[derive(Clone)]
enum Public {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads a JWK Set. A key of a kind that is not known here, or for another use, is left out.
    pub(crate) fn read(text: &[u8]) -> Result<Self, String> {
        let set: Jwks = serde_json::from_slice(text)
            .map_err(|error| format!("its keys cannot be read: {error}"))?;
        let keys: Vec<_> = set.keys.into_iter().take(MOST_KEYS).filter_map(Key::read).collect();
        if keys.is_empty() {
            return Err("it publishes no key for signatures of a kind that is accepted".to_owned());
        }
        Ok(Self(keys))
    }

    fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let fits = |key: &&Key| {
            key.public.takes(algorithm)
                && key.alg.is_none_or(|alg| alg == algorithm)
                && kid.is_none_or(|kid| key.kid.as_deref() == Some(kid))
        };
        let mut found = self.0.iter().filter(fits);
        let first = found.next()?;
        // Two keys of one name, or a token without a name: nobody knows which is meant.
        found.next().is_none().then_some(first)
    }
}

impl Key {
    fn read(key: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(key).ok()?;
        if jwk.usage.is_some_and(|usage| usage != "sig") {
            return None;
        }
        let alg = match jwk.alg.as_deref() {
            None => None,
            Some(alg) => Some(Algorithm::parse(alg)?),
        };
        let part = |part: Option<String>| URL_SAFE_NO_PAD.decode(part?).ok();
        let point = |x: Option<String>, y: Option<String>, size: usize| {
            let (x, y) = (part(x)?, part(y)?);
            let fits = x.len() == size && y.len() == size;
            fits.then(|| [&[4][..], &x, &y].concat())
        };
        let public = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => Public::Rsa { n: part(jwk.n)?, e: part(jwk.e)? },
            ("EC", Some("P-256")) => Public::P256(point(jwk.x, jwk.y, 32)?),
            ("EC", Some("P-384")) => Public::P384(point(jwk.x, jwk.y, 48)?),
            ("OKP", Some("Ed25519")) => Public::Ed25519(part(jwk.x)?),
            _ => return None,
        };
        Some(Self { kid: jwk.kid, alg, public })
    }

    fn verify(&self, by: Algorithm, signed: &[u8], signature: &[u8]) -> Result<(), JwtError> {
        let verified = match (&self.public, by) {
            (Public::Rsa { n, e }, by) => {
                let parameters = match by {
                    Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                    _ => return Err(JwtError::UnknownKey),
                };
                RsaPublicKeyComponents { n, e }.verify(parameters, signed, signature)
            }
            (Public::P256(point), Algorithm::Es256) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(signed, signature)
            }
            (Public::P384(point), Algorithm::Es384) => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point)
                    .verify(signed, signature)
            }
            (Public::Ed25519(point), Algorithm::EdDsa) => {
                UnparsedPublicKey::new(&signature::ED25519, point).verify(signed, signature)
            }
            _ => return Err(JwtError::UnknownKey),
        };
        verified.map_err(|_| JwtError::Signature)
    }
}

impl Public {
    fn takes(&self, algorithm: Algorithm) -> bool {
        use Algorithm::{EdDsa, Es256, Es384, Ps256, Rs256, Rs384, Rs512};
        match self {
            Self::Rsa { .. } => matches!(algorithm, Rs256 | Rs384 | Rs512 | Ps256),
            Self::P256(_) => algorithm == Es256,
            Self::P384(_) => algorithm == Es384,
            Self::Ed25519(_) => algorithm == EdDsa,
        }
    }
}

fn clipped(mut text: String) -> String {
    let end = text.char_indices().nth(32).map_or(text.len(), |(at, _)| at);
    text.truncate(end);
    text
}

/// Shows the names of the keys.
impl fmt::Display for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|key| key.kid.as_deref().unwrap_or("(without a name)"));
        f.write_str(&names.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.kid)).finish()
    }
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
