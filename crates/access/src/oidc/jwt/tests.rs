use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::json;

use super::*;

/// The public part of a key that was thrown away.
const RSA_N: &str = "obTo8UjvruTlB47nXnHePhIoChmAR99bSuBZyV-FrDScaQRPJZOi2l9MSfJs6ZP9rJhXnU8E-Ve_Gn2AuoJErEaA9Lw0\
     zfCwVHCiFDPa10BnFKIFJYCYFzyVW6rR86rANX1ubGohUDQBCc2p_1mdteWjlec9cdaFQXL7XR1a66T4Rs8EkEmz_2WY\
     Z0JKZma-p3e_HK-VENpj9lDZXqDCAW7plWVjERwcNxAyIp1CIjwu1LnG80UeFFD9rA4Q2ShkuyCUMuq8vbz05QI1yAx1\
     qbvMQVmb9Tvofcgk87BY8J0NMM8xQfe5WEirn7vzPg8u25Ko4HCe11Y_VpKl4EtwNQ";
/// Signed with it.
const RS256: &str = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6InJzYSJ9.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJ\
     zdWIiOiIxIiwiYXVkIjoiZmFpcmxlYWQifQ.QecB9AwoAV68KLhSD9SkANlRcLjA4kZRCY0HnEt6-uTJrLWSo-zeRR_E\
     -w5SCmQFuk-a0l6X_MByP1Wx8tI8urkqezSngBd_SGekh6UzzVB-4-A38Ioazffep8C5z9R9grvXhwiPmxbcj4s1r4pn\
     8gIIfagUZ7_lqHzc1LnKrPripR9Wyq3vDSaNwLb1ryvcMP59TRSRBgQmaDp41frkshtldSjtVY9FeEnQGFfGmbwLOADz\
     20CcfEuAl_I2sRcz7I-kvtzi9LFMDr04D4459fxaqKkr4jkcT8B6m7J7lpuqabz9PxTLvbuWrCfhKPD7L0NWvXJvFxNZ\
     RPUE03B2sw";
/// Its public key taken as the secret of an HMAC.
const HS256: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6InJzYSJ9.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJ\
     zdWIiOiIxIiwiYXVkIjoiZmFpcmxlYWQifQ.1EOpwA4wU0oipdZTZIwfP_LLUsRJc_iswhVApcTtjeE";

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn keys(keys: &[Value]) -> KeySet {
    KeySet::read(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

fn rsa() -> Value {
    json!({ "kty": "RSA", "kid": "rsa", "use": "sig", "n": RSA_N, "e": "AQAB" })
}

fn verify(token: &str, keys: &KeySet) -> Result<Map<String, Value>, JwtError> {
    Unverified::read(token)?.verify(keys)
}

/// A key of a provider, to sign with.
struct Signer {
    pair: Ed25519KeyPair,
    jwk: Value,
}

impl Signer {
    fn new(kid: &str) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&crate::secret::random::<32>()).unwrap();
        let x = encode(pair.public_key());
        let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x });
        Self { pair, jwk }
    }

    fn sign(&self, header: &str, payload: &str) -> String {
        let signed = format!("{}.{}", encode(header), encode(payload));
        format!("{signed}.{}", encode(self.pair.sign(signed.as_bytes())))
    }
}

fn header(alg: &str, kid: &str) -> String {
    json!({ "alg": alg, "kid": kid }).to_string()
}

#[test]
fn tokens_of_every_kind_of_key_are_verified() {
    assert_eq!(verify(RS256, &keys(&[rsa()])).unwrap()["sub"], "1");

    let ed = Signer::new("ed");
    let token = ed.sign(&header("EdDSA", "ed"), r#"{"sub":"2"}"#);
    assert_eq!(verify(&token, &keys(&[rsa(), ed.jwk.clone()])).unwrap()["sub"], "2");

    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
    let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
    let jwk = json!({ "kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y) });
    let signed = format!("{}.{}", encode(r#"{"alg":"ES256"}"#), encode(r#"{"sub":"3"}"#));
    let signature = pair.sign(&random, signed.as_bytes()).unwrap();
    let token = format!("{signed}.{}", encode(signature));
    assert_eq!(verify(&token, &keys(&[jwk])).unwrap()["sub"], "3");
}

#[test]
fn the_key_decides_the_algorithm_and_not_the_token() {
    let known = keys(&[rsa()]);
    assert_eq!(verify(HS256, &known), Err(JwtError::Algorithm("HS256".to_owned())));
    let (payload, signature) = (encode("{}"), "");
    for alg in ["none", "None", "HS256", "HS512", "RS1", "", "rs256"] {
        let token = format!("{}.{payload}.{signature}", encode(header(alg, "rsa")));
        assert_eq!(verify(&token, &known), Err(JwtError::Algorithm(alg.to_owned())), "{alg}");
    }
    // A signature of one key, said to be one of another kind.
    let ed = Signer::new("rsa");
    let token = ed.sign(&header("RS256", "rsa"), "{}");
    assert_eq!(verify(&token, &known), Err(JwtError::Signature));
    let token = ed.sign(&header("EdDSA", "rsa"), "{}");
    assert_eq!(verify(&token, &known), Err(JwtError::UnknownKey));
    // A key that its provider uses with another algorithm alone.
    let mut other = rsa();
    other["alg"] = "RS512".into();
    assert_eq!(verify(RS256, &keys(&[other])), Err(JwtError::UnknownKey));
}

#[test]
fn a_key_is_one_of_the_provider_and_the_only_one_meant() {
    let (one, two) = (Signer::new("one"), Signer::new("two"));
    let both = keys(&[one.jwk.clone(), two.jwk.clone()]);
    let sign = |kid| one.sign(&header("EdDSA", kid), "{}");
    assert!(verify(&sign("one"), &both).is_ok());
    assert_eq!(verify(&sign("two"), &both), Err(JwtError::Signature));
    assert_eq!(verify(&sign("three"), &both), Err(JwtError::UnknownKey));
    let nameless = one.sign(r#"{"alg":"EdDSA"}"#, "{}");
    assert_eq!(verify(&nameless, &both), Err(JwtError::UnknownKey));
    assert!(verify(&nameless, &keys(std::slice::from_ref(&one.jwk))).is_ok());
    let mut encryption = one.jwk.clone();
    encryption["use"] = "enc".into();
    assert!(KeySet::read(json!({ "keys": [encryption] }).to_string().as_bytes()).is_err());
    assert!(KeySet::read(b"{}").is_err());
    assert!(KeySet::read(br#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#).is_err());
}

#[test]
fn what_is_not_understood_is_refused() {
    let ed = Signer::new("k");
    let known = keys(std::slice::from_ref(&ed.jwk));
    for header in [
        r#"{"alg":"EdDSA","kid":"k","crit":["exp"]}"#,
        r#"{"alg":"EdDSA","kid":"k","b64":false}"#,
        r#"{"alg":"EdDSA","kid":"k","typ":"at+jwt"}"#,
        r#"{"alg":"EdDSA","alg":"EdDSA","kid":"k"}"#,
        r#"{"kid":"k"}"#,
        "[]",
        "",
    ] {
        let token = ed.sign(header, "{}");
        assert!(matches!(verify(&token, &known), Err(JwtError::Malformed(_))), "{header}");
    }
    let good = header("EdDSA", "k");
    for payload in [r#"{"sub":"a","sub":"b"}"#, r#"{"aud":"a","aud":"b"}"#, "[]", "1", "", "{"] {
        let token = ed.sign(&good, payload);
        assert!(matches!(verify(&token, &known), Err(JwtError::Malformed(_))), "{payload}");
    }
    let token = ed.sign(&good, "{}");
    for odd in ["", ".", "..", "a.b", "a.b.c.d"] {
        assert!(verify(odd, &known).is_err(), "{odd:?}");
    }
    assert!(verify(&format!("{token}="), &known).is_err(), "padding");
    assert!(verify(&format!("{token}.x"), &known).is_err());
    assert!(verify(&"a".repeat(LONGEST + 1), &known).is_err());
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,300}") {
        let _ = Unverified::read(&text).map(|token| token.verify(&KeySet::default()).is_ok());
    }

    #[test]
    fn no_document_makes_the_reader_of_keys_panic(
        kty in "RSA|EC|OKP|oct", crv in "P-256|P-384|Ed25519|x", part in "[-_A-Za-z0-9]{0,100}"
    ) {
        let key = json!({ "kty": kty, "crv": crv, "n": part, "e": part, "x": part, "y": part });
        if let Ok(keys) = KeySet::read(json!({ "keys": [key] }).to_string().as_bytes()) {
            prop_assert!(verify(RS256, &keys).is_err());
        }
    }

    #[test]
    fn a_token_that_differs_anywhere_is_refused(at in 0..RS256.len(), by in 1..64_usize) {
        const ALPHABET: &[u8] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut bytes = RS256.as_bytes().to_vec();
        let place = ALPHABET.iter().position(|byte| *byte == bytes[at]);
        bytes[at] = place.map_or(b'A', |place| ALPHABET[(place + by) % 64]);
        let changed = String::from_utf8(bytes).unwrap();
        prop_assert!(verify(&changed, &keys(&[rsa()])).is_err());
    }
}
