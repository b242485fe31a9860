//! A signature of an image, in the forms in which cosign leaves it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::certificate::{self, Certificate};
use super::key::{self, PublicKey};
use super::log::{LogEntry, hex_of};
use super::{Refused, bytes};

/// What cosign v3 signs, a statement of in-toto.
const IN_TOTO: &str = "application/vnd.in-toto+json";

/// One signature.
#[derive(Clone, Debug)]
pub struct ImageSignature {
    /// The bytes that are signed.
    message: Vec<u8>,
    /// The bytes that say of which image it is.
    payload: Vec<u8>,
    signature: Vec<u8>,
    form: Form,
    /// The signer's, where it was made without a keypair.
    leaf: Option<Certificate>,
    /// Certificates between the signer's and the root.
    pub(super) chain: Vec<Certificate>,
    entries: Vec<LogEntry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    SimpleSigning,
    Statement,
}

impl ImageSignature {
    /// A layer of a `.sig` tag: its blob and its annotations.
    pub fn of_layer(
        payload: &[u8],
        annotations: &BTreeMap<String, String>,
    ) -> Result<Self, Refused> {
        let text = |key: &str| annotations.get(key).map(String::as_str).unwrap_or_default();
        let signature = STANDARD.decode(text("dev.cosignproject.cosign/signature").trim());
        let signature = signature.ok().filter(|signature| !signature.is_empty());
        let mut found = Self {
            message: payload.to_vec(),
            payload: payload.to_vec(),
            signature: signature.ok_or_else(|| Refused::new("the layer has no signature"))?,
            form: Form::SimpleSigning,
            leaf: certificate::of_pem(text("dev.sigstore.cosign/certificate"))?.into_iter().next(),
            chain: certificate::of_pem(text("dev.sigstore.cosign/chain"))?,
            entries: Vec::new(),
        };
        let bundle = text("dev.sigstore.cosign/bundle");
        if !bundle.is_empty() {
            let bundle: Value = serde_json::from_str(bundle)
                .map_err(|error| Refused::new(format!("the log's entry is no JSON: {error}")))?;
            found.entries.push(LogEntry::of_annotation(&bundle)?);
        }
        Ok(found)
    }

    /// Reads a document: a bundle v0.3, or what `cosign download signature` prints of one signature.
    pub fn of_json(text: &str) -> Result<Self, Refused> {
        let wrong = |why: String| Refused::new(format!("this is no signature: {why}"));
        let document: Value =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let media = document["mediaType"].as_str().unwrap_or_default();
        if media.starts_with("application/vnd.dev.sigstore.bundle") {
            return Self::of_bundle(&document);
        }
        let Some(signature) = document["Base64Signature"].as_str() else {
            let why =
                "it is neither a bundle of Sigstore nor what `cosign download signature` prints";
            return Err(wrong(why.to_owned()));
        };
        let mut found = Self {
            message: bytes(&document["Payload"])?,
            payload: bytes(&document["Payload"])?,
            signature: bytes(&Value::from(signature))?,
            form: Form::SimpleSigning,
            leaf: None,
            chain: Vec::new(),
            entries: Vec::new(),
        };
        if !document["Cert"].is_null() {
            found.leaf = Some(Certificate::of_der(&bytes(&document["Cert"]["Raw"])?)?);
        }
        for one in document["Chain"].as_array().into_iter().flatten() {
            found.chain.push(Certificate::of_der(&bytes(&one["Raw"])?)?);
        }
        if !document["Bundle"].is_null() {
            found.entries.push(LogEntry::of_annotation(&document["Bundle"])?);
        }
        Ok(found)
    }

    fn of_bundle(bundle: &Value) -> Result<Self, Refused> {
        let envelope = &bundle["dsseEnvelope"];
        if envelope.is_null() {
            return Err(Refused::new(
                "the bundle signs a file, not a statement on an image; sign the image with cosign",
            ));
        }
        let payload = bytes(&envelope["payload"])?;
        let kind = envelope["payloadType"].as_str().unwrap_or_default();
        if kind != IN_TOTO {
            return Err(Refused::new(format!("the bundle signs {kind:?}, not {IN_TOTO:?}")));
        }
        let signatures = envelope["signatures"].as_array().map_or(&[][..], Vec::as_slice);
        let [signature] = signatures else {
            return Err(Refused::new("the bundle does not have exactly one signature"));
        };
        let material = &bundle["verificationMaterial"];
        let leaf = &material["certificate"]["rawBytes"];
        let entries = material["tlogEntries"].as_array().into_iter().flatten();
        let mut message = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).into_bytes();
        message.extend_from_slice(&payload);
        Ok(Self {
            message,
            payload,
            signature: bytes(&signature["sig"])?,
            form: Form::Statement,
            leaf: if leaf.is_null() { None } else { Some(Certificate::of_der(&bytes(leaf)?)?) },
            chain: Vec::new(),
            entries: entries.map(LogEntry::of_bundle).collect::<Result<_, _>>()?,
        })
    }

    /// The digest of the image that it says it is of.
    pub fn digest(&self) -> Option<String> {
        let payload: Value = serde_json::from_slice(&self.payload).ok()?;
        match self.form {
            Form::SimpleSigning => {
                Some(payload["critical"]["image"]["docker-manifest-digest"].as_str()?.to_owned())
            }
            Form::Statement => {
                let subject = payload["subject"].as_array()?.first()?;
                Some(format!("sha256:{}", subject["digest"]["sha256"].as_str()?))
            }
        }
    }

    /// Whether it says that it is of the image with this digest.
    pub(super) fn is_of(&self, digest: &str) -> Result<(), Refused> {
        let payload: Value = serde_json::from_slice(&self.payload)
            .map_err(|error| Refused::new(format!("what is signed is no JSON: {error}")))?;
        let says = match self.form {
            Form::SimpleSigning => {
                let critical = &payload["critical"];
                critical["type"] == "cosign container image signature"
                    && critical["image"]["docker-manifest-digest"] == digest
            }
            Form::Statement => {
                let mut subjects = payload["subject"].as_array().into_iter().flatten();
                let hex = digest.strip_prefix("sha256:");
                hex.is_some_and(|hex| subjects.any(|one| one["digest"]["sha256"] == hex))
            }
        };
        if says { Ok(()) } else { Err(Refused::new(format!("the signature is not of {digest}"))) }
    }

    pub(super) fn is_by(&self, key: &PublicKey) -> Result<(), Refused> {
        if key.signed(&self.message, &self.signature) {
            return Ok(());
        }
        Err(Refused::new("the signature is not by this key, or what it signs was changed"))
    }

    pub(super) fn certificate(&self) -> Result<&Certificate, Refused> {
        self.leaf.as_ref().ok_or_else(|| {
            Refused::new("the signature has no certificate: it was made with a keypair")
        })
    }

    /// Whether a trusted log has this signature by this signer; answers since when.
    pub(super) fn logged(&self, keys: &[PublicKey], signer: &PublicKey) -> Result<u64, Refused> {
        let mut why = Refused::new("the signature has no proof that a log has it");
        for entry in &self.entries {
            match self.is_entry(entry, signer).and_then(|()| entry.proven(keys)) {
                Ok(at) => return Ok(at),
                Err(refused) => why = refused,
            }
        }
        Err(why)
    }

    /// Whether a log's entry is about this signature: its message, its bytes and its signer.
    fn is_entry(&self, entry: &LogEntry, signer: &PublicKey) -> Result<(), Refused> {
        let wrong = || Refused::new("the log's entry is about another signature");
        let body: Value = serde_json::from_slice(&entry.body).map_err(|_| wrong())?;
        let spec = &body["spec"];
        let signature = STANDARD.encode(&self.signature);
        let (hash, signatures): (_, Vec<(&Value, &Value)>) = match body["kind"].as_str() {
            Some("hashedrekord") => (
                &spec["data"]["hash"],
                vec![(&spec["signature"]["content"], &spec["signature"]["publicKey"]["content"])],
            ),
            Some("dsse") => {
                let all = spec["signatures"].as_array().into_iter().flatten();
                (
                    &spec["payloadHash"],
                    all.map(|one| (&one["signature"], &one["verifier"])).collect(),
                )
            }
            other => {
                let kind = other.unwrap_or_default();
                return Err(Refused::new(format!("entries of kind {kind:?} are not understood")));
            }
        };
        let is_hash = hash["algorithm"] == "sha256"
            && hash["value"] == hex_of(&Sha256::digest(&self.payload));
        let is_signature = signatures
            .iter()
            .any(|(one, by)| **one == *signature && is_signer(by, signer).unwrap_or(false));
        if is_hash && is_signature { Ok(()) } else { Err(wrong()) }
    }
}

/// Whether an entry's key or certificate, PEM in base64, is the signer's.
fn is_signer(value: &Value, signer: &PublicKey) -> Result<bool, Refused> {
    let pem = String::from_utf8(bytes(value)?).map_err(|_| Refused::new("is no PEM"))?;
    if let Some(certificate) = certificate::of_pem(&pem)?.first() {
        return Ok(certificate.key()?.der() == signer.der());
    }
    Ok(key::of_pem(&pem)?.iter().any(|key| key.der() == signer.der()))
}
