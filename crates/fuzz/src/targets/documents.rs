//! Documents that people and clusters hand in: manifests, policies, exports, reviews, reports, signatures.

use admission::{Request, Settings};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pki::sigstore::{ImageSignature, PublicKey, TrustRoot, Verifier};
use rustls::pki_types::UnixTime;
use serde_json::{Value, json};

fn value(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice(bytes).ok()
}

/// Manifests, as YAML or JSON: every object has what it is applied by.
pub(super) fn manifests(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for document in fleet::resources::apply::read(text).unwrap_or_default() {
        assert!(!document.name.is_empty() && !document.kind.is_empty());
        assert!(document.object.is_object());
    }
}

/// A policy, or an object that policies speak of.
pub(super) fn policies(bytes: &[u8]) {
    let Some(document) = value(bytes) else { return };
    let _ = policy::manifest::read(&document);
}

/// An export of NeuVector.
pub(super) fn neuvector(bytes: &[u8]) {
    let Some(document) = value(bytes) else { return };
    let documents = match document {
        Value::Array(documents) => documents,
        document => vec![document],
    };
    let _ = ::neuvector::import(&documents, &::neuvector::Settings::default());
    let _ = admission::import(&documents);
}

/// A review that an API server sends: what cannot be read is refused to the one who asked.
pub(super) fn review(bytes: &[u8]) {
    match Request::review(bytes, &Settings::new(true)) {
        Ok(request) => _ = request.passed(),
        Err(malformed) => {
            let answer = admission::response(Err(&malformed));
            assert_eq!(answer["response"]["allowed"], json!(false));
        }
    }
}

/// A report on an image, of any form; a VEX document; a signature; an exception; a root of trust.
pub(super) fn image_report(bytes: &[u8]) {
    let Some(document) = value(bytes) else { return };
    let _ = admission::document(&document, 1_700_000_000, "somebody");
}

/// A signature and a root of trust: neither makes an image signed by a key that its signer does not have.
pub(super) fn signature(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let root = TrustRoot::of_json(text).unwrap_or_else(|_| TrustRoot::keypairs_only());
    let Ok(signature) = ImageSignature::of_json(text) else { return };
    let digest = signature.digest().unwrap_or_default();
    let anybody =
        Verifier::Keyless { issuer: "https://issuer".to_owned(), subject: "me".to_owned() };
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_700_000_000));
    assert!(root.verify(&signature, &digest, &anybody, now).is_err());
}

/// A layer of an image's signature in a registry: its annotations, each with a zero after its name and after its
/// value, and what it holds. It is of no image for a key that did not sign it, and of one image at most.
pub(super) fn signature_layer(bytes: &[u8]) {
    const NAMES: [&str; 4] = [
        "dev.cosignproject.cosign/signature",
        "dev.sigstore.cosign/certificate",
        "dev.sigstore.cosign/chain",
        "dev.sigstore.cosign/bundle",
    ];
    let mut parts = bytes.splitn(NAMES.len() + 1, |byte| *byte == 0);
    let payload = parts.next().unwrap_or_default();
    let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    let annotations =
        NAMES.into_iter().zip(parts).map(|(name, part)| (name.to_owned(), text(part)));
    let Ok(signature) = ImageSignature::of_layer(payload, &annotations.collect()) else { return };
    let digest = signature.digest().unwrap_or_default();
    let key = PublicKey::of_pem(KEY).expect("it is a key");
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_700_000_000));
    let root = TrustRoot::keypairs_only();
    for verifier in [
        Verifier::Keypair(key),
        Verifier::Keyless { issuer: "https://issuer".to_owned(), subject: "me".to_owned() },
    ] {
        assert!(root.verify(&signature, &digest, &verifier, now).is_err());
    }
}

/// A key that signed nothing.
const KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqCjl9wjLiBYwUj+cTi0sh2HRN61S
onuUV/VdFlME0CYvVqyliID8x+ZjeiANODYsodxKNl8dBeLEiKxVRD+qlQ==
-----END PUBLIC KEY-----
";

/// A certificate beside a signature.
pub(super) fn certificate(bytes: &[u8]) {
    let document = json!({
        "Base64Signature": "AA==",
        "Payload": "e30=",
        "Cert": { "Raw": STANDARD.encode(bytes) },
    });
    signature(document.to_string().as_bytes());
}
