use super::*;

#[test]
fn a_token_has_its_form_and_only_its_hash_is_kept() {
    let token = NewToken::make(Some("2030-01-01T00:00:00Z".parse().unwrap()));
    assert!(looks_like_one(token.secret.expose()), "{}", token.secret.expose());
    assert!(token.secret.expose().starts_with(&format!("flt_{}_", token.id)));

    let object = token.object("ada", Some("ci".to_owned()));
    assert_eq!(object.metadata.name.as_deref(), Some(token.id.as_str()));
    assert_eq!(object.spec.hash, Fingerprint::of(token.secret.expose()).to_hex());
    assert_eq!(object.spec.expires.as_deref(), Some("2030-01-01T00:00:00Z"));
    let random = token.secret.expose().rsplit_once(&format!("{}_", token.id)).unwrap().1;
    assert!(!format!("{token:?} {object:?}").contains(random));
}

#[test]
fn what_has_not_the_form_is_no_token() {
    let secret = "x".repeat(43);
    for text in ["", "flt_", "flt_ab", &format!("flt__{secret}"), &format!("ghp_ab_{secret}")] {
        assert!(!looks_like_one(text), "{text}");
    }
    assert!(!looks_like_one(&format!("flt_ab_{secret}x")));
    assert!(!looks_like_one(&format!("flt_ab_{}ü", "x".repeat(41))));
    assert!(looks_like_one(&format!("flt_ab_{}_", "x".repeat(42))));
}
