use serde_json::{Value, json};

use super::ImageTrustRoot;
use crate::Kind;

fn problems(spec: &Value) -> String {
    let root: ImageTrustRoot = serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ImageTrustRoot",
        "metadata": {"name": "x"}, "spec": spec,
    }))
    .unwrap();
    root.check().err().map(|problems| problems.to_string()).unwrap_or_default()
}

#[test]
fn a_root_says_what_is_trusted_and_who_signs() {
    let key = json!([{"name": "ci", "publicKey": "PEM"}]);
    let identity = json!([{"name": "ci", "certIssuer": "https://i", "certSubject": "a@b"}]);
    assert_eq!(problems(&json!({"rootlessKeypairsOnly": true, "verifiers": key})), "");
    assert_eq!(problems(&json!({"rootCert": "PEM", "verifiers": identity})), "");
    for (spec, says) in [
        (json!({"verifiers": key}), "nothing is fetched"),
        (json!({"rootlessKeypairsOnly": true, "verifiers": identity}), "keypairs only"),
        (json!({"rootCert": "PEM", "verifiers": []}), "no signature counts"),
        (json!({"rootCert": "PEM", "verifiers": [{"name": "ci"}]}), "either publicKey"),
        (json!({"rootCert": "PEM", "trustedRoot": "{}", "verifiers": key}), "leave the others out"),
        (json!({"rootCert": "PEM", "verifiers": [key[0], key[0]]}), "there twice"),
    ] {
        assert!(problems(&spec).contains(says), "{spec}: {}", problems(&spec));
    }
}
