//! Public keys: ECDSA on P-256 and P-384, Ed25519, RSA.

use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};

use super::Refused;
use super::der::{BIT_STRING, Der, OID, SEQUENCE};

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    form: Form,
    /// As ring takes it.
    raw: Vec<u8>,
    /// SubjectPublicKeyInfo.
    der: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    P256,
    P384,
    Ed25519,
    Rsa,
}

impl PublicKey {
    /// Reads `-----BEGIN PUBLIC KEY-----`.
    pub fn of_pem(text: &str) -> Result<Self, Refused> {
        let mut keys = of_pem(text)?;
        match keys.len() {
            1 => Ok(keys.swap_remove(0)),
            0 => Err(Refused::new("there is no public key (-----BEGIN PUBLIC KEY-----)")),
            _ => Err(Refused::new("there is more than one public key")),
        }
    }

    /// Reads a SubjectPublicKeyInfo.
    pub(super) fn of_der(der: &[u8]) -> Result<Self, Refused> {
        let wrong = || Refused::new("a public key is not ECDSA on P-256 or P-384, Ed25519 or RSA");
        let read = || {
            let mut info = Der(der).expect(SEQUENCE)?.inside();
            let mut algorithm = info.expect(SEQUENCE)?.inside();
            let raw = info.expect(BIT_STRING)?.content.strip_prefix(&[0])?.to_vec();
            let form = match algorithm.expect(OID)?.content {
                RSA => Form::Rsa,
                ED25519 => Form::Ed25519,
                EC => match algorithm.expect(OID)?.content {
                    P256 => Form::P256,
                    P384 => Form::P384,
                    _ => return None,
                },
                _ => return None,
            };
            Some(Self { form, raw, der: der.to_vec() })
        };
        read().ok_or_else(wrong)
    }

    /// SHA-256 of the key, by which logs name it.
    pub(super) fn id(&self) -> [u8; 32] {
        Sha256::digest(&self.der).into()
    }

    pub(super) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Whether a signature is over a message and by this key.
    pub(super) fn signed(&self, message: &[u8], of: &[u8]) -> bool {
        let is = |algorithm: &'static dyn VerificationAlgorithm| {
            UnparsedPublicKey::new(algorithm, &self.raw).verify(message, of).is_ok()
        };
        match self.form {
            Form::P256 => is(&signature::ECDSA_P256_SHA256_ASN1),
            Form::P384 => {
                is(&signature::ECDSA_P384_SHA256_ASN1) || is(&signature::ECDSA_P384_SHA384_ASN1)
            }
            Form::Ed25519 => is(&signature::ED25519),
            Form::Rsa => is(&signature::RSA_PKCS1_2048_8192_SHA256),
        }
    }
}

/// Every public key of a text; none if it is empty.
pub(super) fn of_pem(text: &str) -> Result<Vec<PublicKey>, Refused> {
    let keys = SubjectPublicKeyInfoDer::pem_slice_iter(text.as_bytes());
    let keys: Vec<PublicKey> = keys
        .map(|key| match key {
            Ok(key) => PublicKey::of_der(key.as_ref()),
            Err(error) => Err(Refused::new(format!("a public key cannot be read: {error:?}"))),
        })
        .collect::<Result<_, _>>()?;
    if keys.is_empty() && !text.trim().is_empty() {
        return Err(Refused::new("there is no public key (-----BEGIN PUBLIC KEY-----)"));
    }
    Ok(keys)
}
