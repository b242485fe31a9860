//! The keyless vectors are made by Sigstore's JavaScript signer with an authority, a log and a log of
//! certificates of its own (`@sigstore/sign`, `@sigstore/mock`); the mock's log entry of a DSSE envelope was
//! brought into the form that Rekor keeps, and the annotations of `.sig` layers were put together by hand.
//! Those of keypairs are made by Node.js' crypto. None is cosign's own output.

use std::collections::BTreeMap;

use super::*;

fn vectors() -> Value {
    serde_json::from_str(include_str!("tests/vectors.json")).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Long after every certificate of the vectors has ended.
fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(4_000_000_000))
}

fn layer(payload: &str, signature: &str, more: &[(&str, String)]) -> ImageSignature {
    let mut annotations: BTreeMap<String, String> = more
        .iter()
        .map(|(key, value)| (format!("dev.sigstore.cosign/{key}"), value.clone()))
        .collect();
    annotations.insert("dev.cosignproject.cosign/signature".to_owned(), signature.to_owned());
    ImageSignature::of_layer(payload.as_bytes(), &annotations).unwrap()
}

fn keyless_layer(vectors: &Value) -> ImageSignature {
    let keyless = &vectors["keyless"];
    let more = [
        ("certificate", text(&keyless["certificate"]).to_owned()),
        ("bundle", keyless["bundle"].to_string()),
    ];
    layer(text(&vectors["payload"]), text(&keyless["signature"]), &more)
}

fn root(vectors: &Value) -> TrustRoot {
    let [log, certificates, certificate_log] =
        ["rekorKey", "rootCert", "ctKey"].map(|field| text(&vectors[field]));
    TrustRoot::of_pem(log, certificates, certificate_log).unwrap()
}

fn identity(vectors: &Value) -> Verifier {
    Verifier::Keyless {
        issuer: text(&vectors["identity"]["iss"]).to_owned(),
        subject: text(&vectors["identity"]["sub"]).to_owned(),
    }
}

fn keypair(pem: &Value) -> Verifier {
    Verifier::Keypair(PublicKey::of_pem(text(pem)).unwrap())
}

fn why(result: Result<(), Refused>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn keypairs_of_every_kind_verify_and_others_do_not() {
    let vectors = vectors();
    let (digest, payload) = (text(&vectors["digest"]), text(&vectors["payload"]));
    let alone = TrustRoot::keypairs_only();
    for name in ["p256", "p384", "ed25519", "rsa"] {
        let of = &vectors["keypair"][name];
        let signature = layer(payload, text(&of["signature"]), &[]);
        let verify =
            |digest: &str, key: &Value| alone.verify(&signature, digest, &keypair(key), now());
        assert_eq!(verify(digest, &of["publicKey"]), Ok(()), "{name}");
        assert!(why(verify(digest, &vectors["foreignKey"])).contains("not by this key"), "{name}");
        let other = format!("sha256:{}", "0".repeat(64));
        assert!(why(verify(&other, &of["publicKey"])).contains("is not of"), "{name}");
        let changed = payload.replace("web/cart", "web/card");
        let changed = layer(&changed, text(&of["signature"]), &[]);
        let refused = alone.verify(&changed, digest, &keypair(&of["publicKey"]), now());
        assert!(why(refused).contains("was changed"), "{name}");
    }
}

#[test]
fn a_keypair_of_a_root_with_a_log_must_be_in_it() {
    let vectors = vectors();
    let (digest, payload) = (text(&vectors["digest"]), text(&vectors["payload"]));
    let of = &vectors["keypair"]["p256"];
    let (root, key) = (root(&vectors), keypair(&of["publicKey"]));
    let logged = [("bundle", vectors["keypairBundle"].to_string())];
    let with = layer(payload, text(&of["signature"]), &logged);
    assert_eq!(root.verify(&with, digest, &key, now()), Ok(()));
    let without = layer(payload, text(&of["signature"]), &[]);
    assert!(why(root.verify(&without, digest, &key, now())).contains("no proof that a log has it"));
    // The entry of somebody else's signature of the same image.
    let other = [("bundle", vectors["keyless"]["bundle"].to_string())];
    let other = layer(payload, text(&of["signature"]), &other);
    assert!(why(root.verify(&other, digest, &key, now())).contains("about another signature"));
}

#[test]
fn an_identity_verifies_by_tag_and_by_bundle_long_after_its_certificate_has_ended() {
    let vectors = vectors();
    let digest = text(&vectors["digest"]);
    let bundle = ImageSignature::of_json(&vectors["bundle"].to_string()).unwrap();
    let json = TrustRoot::of_json(&vectors["trustedRoot"].to_string()).unwrap();
    for root in [root(&vectors), json] {
        for signature in [&keyless_layer(&vectors), &bundle] {
            assert_eq!(root.verify(signature, digest, &identity(&vectors), now()), Ok(()));
        }
    }
}

#[test]
fn another_identity_root_or_log_is_refused() {
    let vectors = vectors();
    let digest = text(&vectors["digest"]);
    let bundle = ImageSignature::of_json(&vectors["bundle"].to_string()).unwrap();
    let layer = keyless_layer(&vectors);
    let identity = identity(&vectors);
    let foreign = text(&vectors["foreignKey"]);
    let [log, certificates, certificate_log] =
        ["rekorKey", "rootCert", "ctKey"].map(|field| text(&vectors[field]));
    let verify = |root: &TrustRoot, signature: &ImageSignature, verifier: &Verifier| {
        why(root.verify(signature, digest, verifier, now()))
    };
    for signature in [&layer, &bundle] {
        let of = |issuer: &str, subject: &str| Verifier::Keyless {
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
        };
        let root = root(&vectors);
        let said = verify(&root, signature, &of("https://evil.example", "ci@acme.example"));
        assert!(said.contains("issuer is"), "{said}");
        let said = verify(&root, signature, &of("https://issuer.example", "eve@acme.example"));
        assert!(said.contains("subject is"), "{said}");
        let other_log = TrustRoot::of_pem(foreign, certificates, certificate_log).unwrap();
        let said = verify(&other_log, signature, &identity);
        assert!(said.contains("log that is not trusted"), "{said}");
        let other_ct = TrustRoot::of_pem(log, certificates, foreign).unwrap();
        let said = verify(&other_ct, signature, &identity);
        assert!(said.contains("no log that is trusted has the certificate"), "{said}");
        // No log says when it was made, and the certificate has ended.
        let no_log = TrustRoot::of_pem("", certificates, certificate_log).unwrap();
        let said = verify(&no_log, signature, &identity);
        assert!(said.contains("does not chain") && said.contains("Expired"), "{said}");
        let no_authority = TrustRoot::of_pem(log, "", certificate_log).unwrap();
        let said = verify(&no_authority, signature, &identity);
        assert!(said.contains("does not chain"), "{said}");
    }
    // One who signed with a keypair has no identity.
    let of = &vectors["keypair"]["p256"];
    let keyed = self::layer(text(&vectors["payload"]), text(&of["signature"]), &[]);
    let said = verify(&root(&vectors), &keyed, &identity);
    assert!(said.contains("has no certificate"), "{said}");
}

#[test]
fn every_part_of_a_bundle_that_is_changed_is_noticed() {
    let vectors = vectors();
    let (digest, root, identity) = (text(&vectors["digest"]), root(&vectors), identity(&vectors));
    let entry = "/verificationMaterial/tlogEntries/0";
    let flip = |value: &mut Value| {
        let mut bytes = STANDARD.decode(text(value)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        *value = STANDARD.encode(bytes).into();
    };
    for at in [
        "/dsseEnvelope/payload",
        "/dsseEnvelope/signatures/0/sig",
        "/verificationMaterial/certificate/rawBytes",
        &format!("{entry}/canonicalizedBody"),
        &format!("{entry}/logId/keyId"),
        &format!("{entry}/inclusionPromise/signedEntryTimestamp"),
        &format!("{entry}/inclusionProof/rootHash"),
    ] {
        let mut bundle = vectors["bundle"].clone();
        flip(bundle.pointer_mut(at).unwrap_or_else(|| panic!("{at}")));
        let verified = ImageSignature::of_json(&bundle.to_string())
            .and_then(|signature| root.verify(&signature, digest, &identity, now()));
        assert!(verified.is_err(), "{at} was changed, and nobody noticed");
    }
    for (at, to) in [
        ("integratedTime", "1"),
        ("logIndex", "1"),
        ("inclusionProof/checkpoint/envelope", "rekor.example\n1\nAAAA\n\n"),
    ] {
        let mut bundle = vectors["bundle"].clone();
        *bundle.pointer_mut(&format!("{entry}/{at}")).unwrap() = to.into();
        let signature = ImageSignature::of_json(&bundle.to_string()).unwrap();
        assert!(root.verify(&signature, digest, &identity, now()).is_err(), "{at}");
    }
    // A proof that is left out is missed.
    let mut bundle = vectors["bundle"].clone();
    bundle["verificationMaterial"]["tlogEntries"] = Value::Array(vec![]);
    let signature = ImageSignature::of_json(&bundle.to_string()).unwrap();
    let said = why(root.verify(&signature, digest, &identity, now()));
    assert!(said.contains("no proof that a log has it"), "{said}");
}

#[test]
fn what_is_no_signature_key_or_root_is_said() {
    for (text, says) in [
        ("{}", "neither a bundle"),
        ("nothing", "no signature"),
        (r#"{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json"}"#, "signs a file"),
    ] {
        let said = ImageSignature::of_json(text).unwrap_err().to_string();
        assert!(said.contains(says), "{text}: {said}");
    }
    assert!(PublicKey::of_pem("no key").unwrap_err().to_string().contains("no public key"));
    assert!(TrustRoot::of_json("{}").unwrap_err().to_string().contains("no trusted root"));
    let nonsense = [[0x30, 0x84].as_slice(), &[0xff; 8], &[0x30, 0x80, 0x00]];
    for der in nonsense {
        assert!(Certificate::of_der(der).is_err() && PublicKey::of_der(der).is_err());
    }
}
