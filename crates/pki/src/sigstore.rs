//! Signatures of images, as cosign makes them, verified offline: with keys, certificates and log keys that
//! are given, and with the log's proof that the signature carries. Nobody is asked.
//!
//! ```text
//! .sig tag (payload, annotations) ─┐
//! bundle v0.3 (DSSE) ──────────────┴──► ImageSignature ──► TrustRoot + Verifier ──► satisfied, or why not
//! ```
//!
//! Contract: a signature satisfies a verifier only if every step that the root asks for is proven: it is
//! over this image's digest, by this key or by a certificate of this identity that chains to the root's
//! certificates at the time that the log gives, is in the log (a signed promise or a proof of inclusion in
//! a signed checkpoint) and the certificate is in a log of certificates. What is missing is a refusal.

mod certificate;
mod der;
mod key;
mod log;
mod signature;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use objects::kinds::{ImageTrustRootSpec, ImageVerifier};
use rustls::pki_types::CertificateDer;
pub use rustls::pki_types::UnixTime;
use serde_json::Value;

use certificate::Certificate;
pub use key::PublicKey;
pub use signature::ImageSignature;

/// Why a signature does not satisfy a verifier, or why something cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub(crate) String);

impl Refused {
    fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// What is trusted, apart from who signed.
#[derive(Clone, Debug, Default)]
pub struct TrustRoot {
    /// Keys of the transparency log. With none, and if the root is private, no proof is asked for.
    log_keys: Vec<PublicKey>,
    /// Certificates: those that are signed by themselves are roots, the others between.
    certificates: Vec<Certificate>,
    /// Keys of the log of certificates. With none no proof of it is asked for.
    certificate_log_keys: Vec<PublicKey>,
}

/// Who must have signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verifier {
    Keypair(PublicKey),
    /// A certificate of this issuer for this subject; both are compared exactly.
    Keyless {
        issuer: String,
        subject: String,
    },
}

impl TrustRoot {
    /// A root that has only keypairs: neither certificates nor logs.
    pub fn keypairs_only() -> Self {
        Self::default()
    }

    /// Reads PEM: keys of the log, certificates, keys of the log of certificates; each may be empty.
    pub fn of_pem(
        log_keys: &str,
        certificates: &str,
        certificate_log_keys: &str,
    ) -> Result<Self, Refused> {
        let root = Self {
            log_keys: key::of_pem(log_keys)?,
            certificates: certificate::of_pem(certificates)?,
            certificate_log_keys: key::of_pem(certificate_log_keys)?,
        };
        if !certificates.trim().is_empty() && root.certificates.is_empty() {
            return Err(Refused::new("there is no certificate in what is given as certificates"));
        }
        Ok(root)
    }

    /// Reads a `trusted_root.json` of Sigstore.
    pub fn of_json(text: &str) -> Result<Self, Refused> {
        let wrong = |why: String| Refused::new(format!("this is no trusted root: {why}"));
        let root: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let keys = |field: &str| -> Result<Vec<PublicKey>, Refused> {
            items(&root[field])
                .iter()
                .map(|log| PublicKey::of_der(&bytes(&log["publicKey"]["rawBytes"])?))
                .collect()
        };
        let mut certificates = Vec::new();
        for authority in items(&root["certificateAuthorities"]) {
            for one in items(&authority["certChain"]["certificates"]) {
                certificates.push(Certificate::of_der(&bytes(&one["rawBytes"])?)?);
            }
        }
        let (log_keys, certificate_log_keys) = (keys("tlogs")?, keys("ctlogs")?);
        if log_keys.is_empty() && certificates.is_empty() {
            return Err(wrong("it has neither logs nor certificates".to_owned()));
        }
        Ok(Self { log_keys, certificates, certificate_log_keys })
    }

    /// Reads an `ImageTrustRoot`: what is trusted, and the verifiers by their names.
    pub fn of_spec(spec: &ImageTrustRootSpec) -> Result<(Self, Vec<(String, Verifier)>), Refused> {
        let root = if spec.rootless_keypairs_only {
            Self::keypairs_only()
        } else if spec.trusted_root.trim().is_empty() {
            Self::of_pem(&spec.rekor_public_key, &spec.root_cert, &spec.sct_public_key)?
        } else {
            Self::of_json(&spec.trusted_root)?
        };
        let verifier = |one: &ImageVerifier| {
            let verifier = if one.public_key.trim().is_empty() {
                let (issuer, subject) = (one.cert_issuer.clone(), one.cert_subject.clone());
                Verifier::Keyless { issuer, subject }
            } else {
                Verifier::Keypair(PublicKey::of_pem(&one.public_key)?)
            };
            Ok((one.name.clone(), verifier))
        };
        Ok((root, spec.verifiers.iter().map(verifier).collect::<Result<_, _>>()?))
    }

    /// Whether a signature of the image with this digest satisfies a verifier. `now` is the time at which
    /// a certificate must be valid where no log says when it was used.
    pub fn verify(
        &self,
        signature: &ImageSignature,
        digest: &str,
        verifier: &Verifier,
        now: UnixTime,
    ) -> Result<(), Refused> {
        signature.is_of(digest)?;
        let signer = match verifier {
            Verifier::Keypair(key) => {
                signature.is_by(key)?;
                key.clone()
            }
            Verifier::Keyless { .. } => {
                let leaf = signature.certificate()?;
                signature.is_by(leaf.key()?)?;
                leaf.key()?.clone()
            }
        };
        let logged = if self.log_keys.is_empty() {
            None
        } else {
            Some(signature.logged(&self.log_keys, &signer)?)
        };
        if let Verifier::Keyless { issuer, subject } = verifier {
            let at = logged.map_or(now, |at| UnixTime::since_unix_epoch(Duration::from_secs(at)));
            let leaf = signature.certificate()?;
            leaf.is_of(issuer, subject)?;
            let above = leaf.chains_to(&self.certificates, &signature.chain, at)?;
            if !self.certificate_log_keys.is_empty() {
                leaf.is_logged(above, &self.certificate_log_keys)?;
            }
        }
        Ok(())
    }
}

/// Bytes in base64, as JSON of protobuf has them.
fn bytes(value: &Value) -> Result<Vec<u8>, Refused> {
    let text = value.as_str().ok_or_else(|| Refused::new("bytes are missing"))?;
    STANDARD.decode(text).map_err(|error| Refused::new(format!("is no base64: {error}")))
}

fn der_of(bytes: &[u8]) -> CertificateDer<'static> {
    CertificateDer::from(bytes.to_vec())
}

#[cfg(test)]
mod tests;
