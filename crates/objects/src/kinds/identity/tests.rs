use serde_json::json;

use super::*;

fn provider(name: &str, spec: serde_json::Value) -> IdentityProvider {
    IdentityProvider::new(name, serde_json::from_value(spec).unwrap())
}

fn problems(object: &impl Kind) -> Vec<String> {
    object.check().err().map_or_else(Vec::new, |all| all.0.into_iter().map(|(at, _)| at).collect())
}

#[test]
fn a_provider_needs_an_issuer_and_a_client() {
    let least = provider("corp", json!({ "issuer": "https://id.example", "clientId": "fairlead" }));
    assert_eq!(problems(&least), [""; 0]);
    assert_eq!(least.spec.user_claim, "email");
    assert_eq!(least.spec.groups_claim, "groups");
    assert_eq!(least.spec.recheck_seconds, 15);
    let bad = provider(
        "a.b",
        json!({
            "issuer": "http://id.example", "clientId": "", "scopes": ["a b"], "ca": "no",
            "redirectUri": "https://u@fairlead.example", "recheckSeconds": 1,
            "clientSecret": { "name": "", "key": "/" },
        }),
    );
    assert_eq!(
        problems(&bad),
        [
            "metadata.name",
            "spec.issuer",
            "spec.redirectUri",
            "spec.clientId",
            "spec.clientSecret.name",
            "spec.clientSecret.key",
            "spec.scopes[0]",
            "spec.ca",
            "spec.recheckSeconds",
        ]
    );
}

#[test]
fn only_loopback_may_do_without_tls() {
    let issuer = |issuer: &str| {
        let spec = json!({ "issuer": issuer, "clientId": "fairlead" });
        problems(&provider("corp", spec)).is_empty()
    };
    for good in ["http://127.0.0.1:8080/a", "http://[::1]:80", "http://localhost", "https://a/b/"] {
        assert!(issuer(good), "{good}");
    }
    for bad in [
        "http://id.example",
        "http://127.0.0.1.evil.example",
        "http://localhost@evil.example",
        "https://",
        "https:///x",
        "ftp://id.example",
        "https://id.example?x=y",
        "https://id.example#x",
        "https://id example",
    ] {
        assert!(!issuer(bad), "{bad}");
    }
}

#[test]
fn a_mapping_gives_something_to_somebody() {
    let mapping = |spec| RoleMapping::new("devs", serde_json::from_value(spec).unwrap());
    let good = mapping(json!({ "provider": "corp", "values": ["devs"], "roles": ["viewer"] }));
    assert_eq!(problems(&good), [""; 0]);
    let empty = mapping(json!({ "provider": "", "claim": "", "values": [], "roles": [] }));
    assert_eq!(problems(&empty), ["spec.provider", "spec.claim", "spec.values", "spec.roles"]);
    let odd = mapping(json!({ "provider": "corp", "values": ["a\nb"], "roles": ["A"] }));
    assert_eq!(problems(&odd), ["spec.values[0]", "spec.roles[0]"]);
}
