//! Certificates of signers: whose they are, whom they chain to, and that a log has them.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use sha2::{Digest, Sha256};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert, ring as algorithms};

use super::der::{Der, DerValue, INTEGER, OCTET_STRING, OID, SEQUENCE, UTF8_STRING, encode};
use super::key::PublicKey;
use super::{Refused, der_of};

/// Code signing, 1.3.6.1.5.5.7.3.3.
const CODE_SIGNING: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x03];
/// Fulcio's issuer as text of DER, 1.3.6.1.4.1.57264.1.8, and as bare text, 1.3.6.1.4.1.57264.1.1.
const ISSUER: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xbf, 0x30, 0x01, 0x08];
const OLD_ISSUER: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xbf, 0x30, 0x01, 0x01];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// The list of timestamps of logs of certificates, 1.3.6.1.4.1.11129.2.4.2.
const TIMESTAMPS: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0xd6, 0x79, 0x02, 0x04, 0x02];
const EXTENSIONS: u8 = 0xa3;
const EMAIL: u8 = 0x81;
const URI: u8 = 0x86;

const ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = &[
    algorithms::ECDSA_P256_SHA256,
    algorithms::ECDSA_P256_SHA384,
    algorithms::ECDSA_P384_SHA256,
    algorithms::ECDSA_P384_SHA384,
    algorithms::ED25519,
    algorithms::RSA_PKCS1_2048_8192_SHA256,
    algorithms::RSA_PKCS1_2048_8192_SHA384,
    algorithms::RSA_PKCS1_2048_8192_SHA512,
];

/// A certificate, with what is asked of it.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    pub(super) der: CertificateDer<'static>,
    issuer: Vec<u8>,
    subject: Vec<u8>,
    /// SubjectPublicKeyInfo.
    key_info: Vec<u8>,
    key: Result<PublicKey, Refused>,
    /// Identifiers and values.
    extensions: Vec<(Vec<u8>, Vec<u8>)>,
    /// The signed part without the timestamps of logs, which were not there when they were made.
    without_timestamps: Vec<u8>,
}

/// Every certificate of a text.
pub(super) fn of_pem(text: &str) -> Result<Vec<Certificate>, Refused> {
    let certificates = CertificateDer::pem_slice_iter(text.as_bytes());
    certificates
        .map(|one| match one {
            Ok(one) => Certificate::of_der(one.as_ref()),
            Err(error) => Err(Refused::new(format!("a certificate cannot be read: {error:?}"))),
        })
        .collect()
}

impl Certificate {
    pub(super) fn of_der(der: &[u8]) -> Result<Self, Refused> {
        Self::read(der).ok_or_else(|| Refused::new("a certificate cannot be read"))
    }

    fn read(der: &[u8]) -> Option<Self> {
        let mut certificate = Der(der).expect(SEQUENCE)?.inside();
        let signed = certificate.expect(SEQUENCE)?;
        let mut fields = signed.inside();
        let mut first = fields.next()?;
        if first.tag == 0xa0 {
            first = fields.next()?;
        }
        if first.tag != INTEGER {
            return None;
        }
        fields.expect(SEQUENCE)?;
        let issuer = fields.expect(SEQUENCE)?.whole.to_vec();
        fields.expect(SEQUENCE)?;
        let subject = fields.expect(SEQUENCE)?.whole.to_vec();
        let key_info = fields.expect(SEQUENCE)?.whole.to_vec();
        let mut extensions = Vec::new();
        let mut kept = Vec::new();
        let before = signed.content.len() - fields.0.len();
        let mut rest = Vec::new();
        while let Some(field) = fields.next() {
            if field.tag != EXTENSIONS {
                rest.extend_from_slice(field.whole);
                continue;
            }
            let mut all = field.inside().expect(SEQUENCE)?.inside();
            while let Some(one) = all.next() {
                let (id, value) = extension(one)?;
                if id != TIMESTAMPS {
                    kept.extend_from_slice(one.whole);
                }
                extensions.push((id.to_vec(), value.to_vec()));
            }
            rest.extend(encode(EXTENSIONS, &encode(SEQUENCE, &kept)));
        }
        let mut without = signed.content[..before].to_vec();
        without.extend(rest);
        Some(Self {
            der: der_of(der),
            issuer,
            subject,
            key: PublicKey::of_der(&key_info),
            key_info,
            extensions,
            without_timestamps: encode(SEQUENCE, &without),
        })
    }

    pub(super) fn key(&self) -> Result<&PublicKey, Refused> {
        self.key.as_ref().map_err(Clone::clone)
    }

    fn extension(&self, id: &[u8]) -> Option<&[u8]> {
        self.extensions.iter().find(|(of, _)| of == id).map(|(_, value)| value.as_slice())
    }

    /// Whether it is of this issuer and for this subject.
    pub(super) fn is_of(&self, issuer: &str, subject: &str) -> Result<(), Refused> {
        let new = self.extension(ISSUER).and_then(|value| {
            let text = Der(value).expect(UTF8_STRING)?;
            std::str::from_utf8(text.content).ok()
        });
        let old = || std::str::from_utf8(self.extension(OLD_ISSUER)?).ok();
        let found = new.or_else(old).unwrap_or_default();
        if found != issuer {
            let why = format!("the certificate's issuer is {found:?}, not {issuer:?}");
            return Err(Refused::new(why));
        }
        let subjects = self.subjects();
        if !subjects.iter().any(|found| found == subject) {
            let found = subjects.join(", ");
            let why = format!("the certificate's subject is {found:?}, not {subject:?}");
            return Err(Refused::new(why));
        }
        Ok(())
    }

    /// Addresses of mail and URLs that it is for.
    fn subjects(&self) -> Vec<String> {
        let names = self.extension(ALTERNATIVE_NAMES).and_then(|names| Der(names).expect(SEQUENCE));
        let mut names = names.map_or(Der(&[]), |names| names.inside());
        let mut subjects = Vec::new();
        while let Some(name) = names.next() {
            if matches!(name.tag, EMAIL | URI) {
                subjects.push(String::from_utf8_lossy(name.content).into_owned());
            }
        }
        subjects
    }

    /// Whether it is for signing code and chains to one of the roots at this time; answers the certificate
    /// that signed it.
    pub(super) fn chains_to<'c>(
        &self,
        trusted: &'c [Self],
        given: &'c [Self],
        at: UnixTime,
    ) -> Result<&'c Self, Refused> {
        let is_root = |certificate: &&Self| certificate.issuer == certificate.subject;
        let roots: Vec<_> = trusted.iter().filter(is_root).collect();
        let anchors = roots.iter().filter_map(|root| anchor_from_trusted_cert(&root.der).ok());
        let anchors: Vec<_> = anchors.collect();
        let between = trusted.iter().filter(|one| !is_root(one)).chain(given);
        let between: Vec<CertificateDer<'_>> = between.map(|one| one.der.clone()).collect();
        let leaf = EndEntityCert::try_from(&self.der)
            .map_err(|error| Refused::new(format!("the certificate cannot be read: {error}")))?;
        let usage = KeyUsage::required(CODE_SIGNING);
        leaf.verify_for_usage(ALGORITHMS, &anchors, &between, at, usage, None, None).map_err(
            |error| {
                let why = "the certificate does not chain to the root's certificates";
                Refused::new(format!("{why}: {error}"))
            },
        )?;
        let above = trusted.iter().chain(given).find(|one| one.subject == self.issuer);
        above.ok_or_else(|| Refused::new("the certificate that signed the signer's is not there"))
    }

    /// Whether a log of certificates has promised to have it.
    pub(super) fn is_logged(&self, above: &Self, keys: &[PublicKey]) -> Result<(), Refused> {
        let list = self.extension(TIMESTAMPS).and_then(|value| Der(value).expect(OCTET_STRING));
        let Some(list) = list else {
            return Err(Refused::new("the certificate has no proof that a log has it"));
        };
        let mut list = list.content.get(2..).unwrap_or_default();
        while let Some((timestamp, rest)) = prefixed(list) {
            list = rest;
            if self.is_promised(timestamp, above, keys).is_some() {
                return Ok(());
            }
        }
        Err(Refused::new("no log that is trusted has the certificate"))
    }

    /// Whether one timestamp is a trusted log's: RFC 6962, section 3.2.
    fn is_promised(&self, timestamp: &[u8], above: &Self, keys: &[PublicKey]) -> Option<()> {
        let (version, rest) = timestamp.split_at_checked(1)?;
        let (log, rest) = rest.split_at_checked(32)?;
        let (time, rest) = rest.split_at_checked(8)?;
        let (extensions, rest) = prefixed(rest)?;
        let (_algorithm, rest) = rest.split_at_checked(2)?;
        let (signature, _) = prefixed(rest)?;
        let key = keys.iter().find(|key| key.id() == log).filter(|_| version == [0])?;
        let length = |bytes: usize| u32::try_from(bytes).ok().map(u32::to_be_bytes);
        let mut message = vec![0, 0];
        message.extend_from_slice(time);
        // An entry of a certificate before it was issued.
        message.extend_from_slice(&[0, 1]);
        message.extend_from_slice(&Sha256::digest(&above.key_info));
        message.extend_from_slice(&length(self.without_timestamps.len())?[1..]);
        message.extend_from_slice(&self.without_timestamps);
        message.extend_from_slice(&length(extensions.len())?[2..]);
        message.extend_from_slice(extensions);
        key.signed(&message, signature).then_some(())
    }
}

/// What stands behind its length of two bytes, and the rest.
fn prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(2)?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(length.try_into().ok()?)))
}

fn extension(value: DerValue<'_>) -> Option<(&[u8], &[u8])> {
    let mut fields = value.inside();
    let id = fields.expect(OID)?.content;
    let mut content = fields.next()?;
    // Whether it is critical stands before it.
    if content.tag != OCTET_STRING {
        content = fields.next()?;
    }
    (content.tag == OCTET_STRING).then_some((id, content.content))
}
