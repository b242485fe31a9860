use super::{AccessRole, AccessRoleSpec, AccessToken, AccessTokenSpec, Rule, User, UserSpec};
use crate::Kind;

const HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$MTIzNDU2Nzg5MGFiY2RlZg";

fn user(password_hash: Option<&str>, roles: &[&str]) -> User {
    let roles = roles.iter().map(ToString::to_string).collect();
    let password_hash = password_hash.map(ToOwned::to_owned);
    User::new("jo", UserSpec { password_hash, roles, disabled: false })
}

fn fields(kind: &impl Kind) -> Vec<String> {
    let problems = kind.check().err().unwrap_or_default();
    problems.0.into_iter().map(|(field, _)| field).collect()
}

#[test]
fn a_password_is_an_argon2id_hash_or_not_there() {
    assert_eq!(user(None, &[]).check(), Ok(()));
    assert_eq!(user(Some(HASH), &["admin"]).check(), Ok(()));
    for wrong in [
        "",
        "secret",
        "$argon2i$v=19$m=1,t=2,p=1$c2FsdA$aGFzaA",
        "$argon2id$m=1,t=2,p=1$c2FsdA$aGFzaA",
        "$argon2id$v=19$m=1,t=2,p=1$c2FsdA$",
        "$argon2id$v=19$q=1$c2FsdA$aGFzaA",
        "$argon2id$v=19$m=1,t=2,p=1$c2FsdA$aGFzaA$more",
        &format!("{HASH}{}", "A".repeat(512)),
    ] {
        let refused = user(Some(wrong), &[]).check().unwrap_err();
        assert_eq!(refused.0[0].0, "spec.passwordHash", "{wrong}");
        assert!(wrong.is_empty() || !refused.to_string().contains(wrong), "it is a secret");
    }
}

#[test]
fn roles_are_names_and_there_once() {
    assert_eq!(fields(&user(None, &["a", "B", "a"])), ["spec.roles[1]", "spec.roles[2]"]);
    let many: Vec<_> = (0..65).map(|i| format!("r{i}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(fields(&user(None, &many)), ["spec.roles"]);
}

#[test]
fn a_rule_that_can_never_apply_is_refused_with_every_reason() {
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let good = Rule {
        clusters: words(&["*"]),
        namespaces: words(&["team-?"]),
        resources: words(&["deployments.apps"]),
        verbs: words(&["get", "*"]),
    };
    let bad = Rule { clusters: vec![], verbs: words(&["get", "read", "GET*"]), ..good.clone() };
    let role = |allow, deny| AccessRole::new("r", AccessRoleSpec { allow, deny });
    assert_eq!(role(vec![good.clone()], vec![good.clone()]).check(), Ok(()));
    assert_eq!(
        fields(&role(vec![good], vec![bad])),
        ["spec.deny[0].clusters", "spec.deny[0].verbs[1]", "spec.deny[0].verbs[2]"]
    );
}

#[test]
fn a_token_has_a_hash_an_owner_and_a_time_that_can_be_read() {
    let good = AccessTokenSpec {
        user: "jo".to_owned(),
        hash: "0123456789abcdef".repeat(4),
        expires: Some("2027-01-31T12:00:00+01:00".to_owned()),
        description: Some("deployments".to_owned()),
    };
    assert_eq!(AccessToken::new("t", good.clone()).check(), Ok(()));
    let bad = AccessTokenSpec {
        user: String::new(),
        hash: good.hash.to_uppercase(),
        expires: Some("tomorrow".to_owned()),
        description: Some("\u{1b}[2J".to_owned()),
    };
    assert_eq!(
        fields(&AccessToken::new("t", bad)),
        ["spec.user", "spec.hash", "spec.expires", "spec.description"]
    );
}

#[test]
fn the_schema_takes_the_verbs_that_the_check_takes() {
    let pattern = regex::Regex::new(super::VERB).unwrap();
    for verb in super::VERBS.into_iter().chain(["*", "g?t", "*e*", "li*"]) {
        assert!(pattern.is_match(verb), "{verb}");
    }
    for verb in ["", "read", "GET", "GET*", "get ", "g-*"] {
        assert!(!pattern.is_match(verb), "{verb}");
    }
}
