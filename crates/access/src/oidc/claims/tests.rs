use proptest::prelude::*;
use serde_json::json;

use super::*;

const NOW: i64 = 1_800_000_000;

fn claims() -> Map<String, Value> {
    let Value::Object(claims) = json!({
        "iss": "https://id.example", "aud": "fairlead", "sub": "248289",
        "iat": NOW - 5, "exp": NOW + 300, "nonce": "n-0S6",
    }) else {
        unreachable!()
    };
    claims
}

fn check(claims: &Map<String, Value>) -> Result<String, String> {
    let expected = Expected {
        issuer: "https://id.example",
        client_id: "fairlead",
        nonce: Some("n-0S6"),
        now: Timestamp::from_second(NOW).unwrap(),
    };
    expected.check(claims)
}

/// The refusal of claims with one of them changed; none if they are taken.
fn refused(name: &str, value: Value) -> Option<String> {
    let mut claims = claims();
    claims.insert(name.to_owned(), value);
    check(&claims).err()
}

#[test]
fn claims_are_for_us_of_our_provider_for_this_login() {
    assert_eq!(check(&claims()), Ok("248289".to_owned()));
    for (name, value) in [
        ("iss", json!("https://id.example/")),
        ("iss", json!(["https://id.example"])),
        ("aud", json!("other")),
        ("aud", json!(["other"])),
        ("aud", json!([])),
        ("aud", json!(null)),
        ("aud", json!(["fairlead", "other"])),
        ("azp", json!("other")),
        ("nonce", json!("n-0S7")),
        ("nonce", json!(null)),
        ("sub", json!("")),
        ("sub", json!(7)),
        ("sub", json!("x".repeat(256))),
    ] {
        assert!(refused(name, value.clone()).is_some(), "{name}: {value}");
    }
    for missing in ["iss", "aud", "sub", "exp", "iat", "nonce"] {
        let mut claims = claims();
        claims.remove(missing);
        assert!(check(&claims).is_err(), "without {missing}");
    }
    assert_eq!(refused("aud", json!(["fairlead"])), None);
    let mut several = claims();
    several.insert("aud".to_owned(), json!(["other", "fairlead"]));
    several.insert("azp".to_owned(), json!("fairlead"));
    assert!(check(&several).is_ok());
}

#[test]
fn clocks_may_differ_by_a_minute_and_no_more() {
    let skew = i64::try_from(SKEW.as_secs()).unwrap();
    assert_eq!(refused("exp", json!(NOW - skew + 1)), None);
    assert!(refused("exp", json!(NOW - skew)).is_some());
    assert_eq!(refused("iat", json!(NOW + skew)), None);
    assert!(refused("iat", json!(NOW + skew + 1)).unwrap().contains("clocks"));
    assert_eq!(refused("nbf", json!(NOW + skew)), None);
    assert!(refused("nbf", json!(NOW + skew + 1)).is_some());
    assert!(refused("iat", json!(NOW - 11 * 60 - 1)).unwrap().contains("too old"));
    for odd in [json!("1800000000"), json!(null), json!([]), json!(-1.0e300)] {
        assert!(refused("exp", odd.clone()).is_some(), "{odd}");
    }
}

#[test]
fn claims_of_a_user_are_lists_of_texts_and_the_token_comes_first() {
    let Value::Object(token) = json!({ "groups": ["a", 7, "b"], "n": 1, "ok": true }) else {
        panic!()
    };
    let Value::Object(info) =
        json!({ "groups": ["c"], "email": "x@y", "realm_access": { "roles": ["r"] }, "none": [] })
    else {
        panic!()
    };
    let claims = UserClaims::of(&[&token, &info]);
    assert_eq!(claims.values("groups"), ["a", "b"]);
    assert_eq!(claims.values("email"), ["x@y"]);
    assert_eq!(claims.values("realm_access.roles"), ["r"]);
    assert_eq!(claims.values("ok"), ["true"]);
    assert!(claims.has("none") && claims.values("none").is_empty());
    assert!(!claims.has("other"));
}

#[test]
fn a_user_has_a_name_that_no_stored_user_can_have() {
    let user = |claims: Value, claim| {
        let Value::Object(claims) = claims else { panic!() };
        UserClaims::of(&[&claims]).user("corp", claim)
    };
    let named = user(json!({ "email": "ann@shop.example" }), "email");
    assert_eq!(named.as_deref(), Ok("corp:ann@shop.example"));
    let unverified = json!({ "email": "ann@shop.example", "email_verified": false });
    assert!(user(unverified, "email").unwrap_err().contains("verified"));
    assert!(user(json!({}), "email").unwrap_err().contains("userClaim"));
    for odd in ["", "a b", "a:b", "a\nb", "\u{e4}", &"x".repeat(201)] {
        assert!(user(json!({ "email": odd }), "email").is_err(), "{odd:?}");
    }
    assert!(user(json!({ "email": ["a", "b"] }), "email").is_err());
}

proptest! {
    #[test]
    fn claims_of_any_shape_are_read_within_bounds(
        names in prop::collection::vec("[a-z.]{1,8}", 0..40), deep in 0..12_usize
    ) {
        let mut value = json!(names);
        for _ in 0..deep {
            value = json!({ "a": value, "b": names });
        }
        let Value::Object(claims) = json!({ "c": value }) else { unreachable!() };
        let read = UserClaims::of(&[&claims]);
        prop_assert!(read.0.values().map(Vec::len).sum::<usize>() <= MOST_VALUES);
        let _ = check(&claims);
    }
}
