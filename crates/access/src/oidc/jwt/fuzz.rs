use super::*;

/// A token of an identity provider, and the same as a header and claims: none of them is signed by a key that
/// we know, so none is believed.
pub fn id_token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let keys = KeySet(vec![Key { kid: None, alg: None, public: Public::Ed25519(vec![7; 32]) }]);
    let (header, claims) = text.split_once('\n').unwrap_or((text, "{}"));
    let encoded = [header, claims, ""].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
    for token in [text, &encoded] {
        let Ok(read) = Unverified::read(token) else { continue };
        assert!(token.len() <= LONGEST);
        assert!(read.verify(&keys).is_err());
    }
}

/// The keys that a provider publishes: as many as are bounded, of kinds that are known.
pub fn key_set(bytes: &[u8]) {
    let Ok(keys) = KeySet::read(bytes) else { return };
    assert!((1..=MOST_KEYS).contains(&keys.0.len()));
    let _ = keys.to_string();
}
