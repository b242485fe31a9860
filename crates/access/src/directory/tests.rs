use objects::kinds::{AccessRoleSpec, AccessTokenSpec, Rule, UserSpec};
use proptest::prelude::*;

use super::*;
use crate::role::{AccessRequest, Decision, Verb, decide};

fn user(name: &str, roles: &[&str]) -> User {
    let roles = roles.iter().map(|role| (*role).to_owned()).collect();
    let mut user = User::new(name, UserSpec { password_hash: None, roles, disabled: false });
    user.metadata.uid = Some(format!("uid-of-{name}"));
    user
}

fn role(name: &str, cluster: &str) -> AccessRole {
    let all = || vec!["*".to_owned()];
    let allow = Rule {
        clusters: vec![cluster.to_owned()],
        namespaces: all(),
        resources: all(),
        verbs: all(),
    };
    AccessRole::new(name, AccessRoleSpec { allow: vec![allow], deny: vec![] })
}

fn token(id: &str, of: &str, secret: &str, expires: Option<&str>) -> AccessToken {
    let spec = AccessTokenSpec {
        user: of.to_owned(),
        hash: Fingerprint::of(secret).to_hex(),
        expires: expires.map(str::to_owned),
        description: None,
    };
    AccessToken::new(id, spec)
}

fn may(directory: &Directory, user: &str, cluster: &str) -> bool {
    let ask = AccessRequest { cluster, namespace: None, resource: "nodes", verb: Verb::Get };
    let account = directory.active(user);
    account.is_some_and(|account| {
        matches!(decide(&account.permissions, &ask), Decision::Allowed { .. })
    })
}

fn owner(directory: &Directory, secret: &str) -> Option<String> {
    let now = "2026-06-01T00:00:00Z".parse().unwrap();
    let found = directory.by_token(Fingerprint::of(secret), now);
    found.map(|(_, account)| account.name.to_string())
}

#[test]
fn a_role_counts_as_soon_as_it_is_there_and_no_longer() {
    let mut directory = Directory::new();
    directory.apply(user("ada", &["team"]));
    assert!(!may(&directory, "ada", "prod"));
    let problems = &directory.account("ada").unwrap().problems;
    assert_eq!(*problems, [r#"there is no role "team"; it gives nothing"#]);

    directory.apply(role("team", "prod"));
    assert!(may(&directory, "ada", "prod"));
    assert!(directory.account("ada").unwrap().problems.is_empty());
    directory.apply(role("team", "dev"));
    assert!(!may(&directory, "ada", "prod") && may(&directory, "ada", "dev"));
    directory.delete(role("team", "dev"));
    assert!(!may(&directory, "ada", "dev"));
}

#[test]
fn a_disabled_user_may_nothing_and_has_no_tokens() {
    let mut directory = Directory::new();
    directory.apply(user("ada", &["admin"]));
    directory.apply(token("t1", "ada", "secret", None));
    assert!(may(&directory, "ada", "prod"));
    assert_eq!(owner(&directory, "secret").as_deref(), Some("ada"));

    let mut disabled = user("ada", &["admin"]);
    disabled.spec.disabled = true;
    directory.apply(disabled);
    assert!(!may(&directory, "ada", "prod"));
    assert_eq!(owner(&directory, "secret"), None);
    assert!(!directory.account("ada").unwrap().is_admin());
}

#[test]
fn reserved_names_cannot_be_taken() {
    let mut directory = Directory::new();
    directory.apply(role("viewer", "*"));
    directory.apply(user("ada", &["viewer"]));
    let ask =
        AccessRequest { cluster: "c", namespace: Some("n"), resource: "pods", verb: Verb::Delete };
    let ada = &directory.account("ada").unwrap().permissions;
    assert_eq!(decide(ada, &ask), Decision::NotAllowed);

    directory.apply(user("local", &[]));
    assert!(may(&directory, "local", "prod"));
    directory.delete(user("local", &[]));
    directory.delete(role("admin", "*"));
    directory.reset(Vec::<User>::new());
    directory.reset(Vec::<AccessRole>::new());
    assert!(may(&directory, "local", "prod"));
    assert!(directory.role("admin").is_some());
}

#[test]
fn a_token_ends_when_it_expires_is_revoked_or_its_user_is_another() {
    let mut directory = Directory::new();
    directory.apply(user("ada", &[]));
    directory.apply(token("ever", "ada", "s1", None));
    directory.apply(token("past", "ada", "s2", Some("2026-05-31T23:59:59Z")));
    directory.apply(token("next", "ada", "s3", Some("2026-06-01T00:00:01Z")));
    directory.apply(token("odd", "ada", "s4", Some("tomorrow")));
    directory.apply(token("lost", "bob", "s5", None));
    directory.apply(token("owned", "ada", "s6", None).owned_by(&user("ada", &[])));
    assert!(owner(&directory, "s1").is_some() && owner(&directory, "s3").is_some());
    assert!(owner(&directory, "s6").is_some());
    for gone in ["s2", "s4", "s5", "no such"] {
        assert_eq!(owner(&directory, gone), None, "{gone}");
    }
    let problem = |id: &str| directory.token_problem(directory.token(id).unwrap());
    assert!(problem("odd").unwrap().contains("not a time"));
    assert!(problem("lost").unwrap().contains("no user"));
    assert_eq!(problem("past"), None);

    let mut another = user("ada", &[]);
    another.metadata.uid = Some("another".to_owned());
    directory.apply(another);
    assert_eq!(owner(&directory, "s6"), None);
    directory.delete(token("ever", "ada", "s1", None));
    assert_eq!(owner(&directory, "s1"), None);
}

#[test]
fn two_tokens_of_one_secret_do_not_hide_each_other_s_end() {
    let mut directory = Directory::new();
    directory.apply(user("ada", &[]));
    directory.apply(token("a", "ada", "same", None));
    directory.apply(token("b", "ada", "same", None));
    directory.delete(token("a", "ada", "same", None));
    assert!(owner(&directory, "same").is_some());
    directory.delete(token("b", "ada", "same", None));
    assert_eq!(owner(&directory, "same"), None);
}

#[test]
fn a_stamp_changes_with_the_password_and_with_the_user() {
    let stamp = |uid: &str, hash: Option<&str>| {
        let mut user = user("ada", &[]);
        user.metadata.uid = Some(uid.to_owned());
        user.spec.password_hash = hash.map(str::to_owned);
        Directory::new().account_of("ada", user).stamp
    };
    assert_eq!(stamp("1", Some("a")), stamp("1", Some("a")));
    assert_ne!(stamp("1", Some("a")), stamp("1", Some("b")));
    assert_ne!(stamp("1", Some("a")), stamp("2", Some("a")));
    assert_ne!(stamp("1", Some("a")), stamp("1", None));
}

#[test]
fn it_is_whole_when_all_three_kinds_were_told_and_shows_no_hash() {
    let mut directory = Directory::new();
    let mut ada = user("ada", &[]);
    ada.spec.password_hash = Some("$argon2id$hash".to_owned());
    directory.reset(vec![ada]);
    directory.reset(Vec::<AccessRole>::new());
    assert!(!directory.is_whole());
    directory.reset(Vec::<AccessToken>::new());
    assert!(directory.is_whole());
    assert!(!format!("{directory:?}").contains("argon2id"));
    assert!(directory.account("ada").unwrap().problems[0].contains("password cannot be used"));
}

#[derive(Clone, Debug)]
enum Change {
    User(u8, Vec<u8>),
    NoUser(u8),
    Role(u8, u8),
    NoRole(u8),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let small = 0..3u8;
    let change = prop_oneof![
        (small.clone(), proptest::collection::vec(small.clone(), 0..3))
            .prop_map(|(user, roles)| Change::User(user, roles)),
        small.clone().prop_map(Change::NoUser),
        (small.clone(), small.clone()).prop_map(|(role, cluster)| Change::Role(role, cluster)),
        small.prop_map(Change::NoRole),
    ];
    proptest::collection::vec(change, 0..20)
}

proptest! {
    /// Whatever the order of the changes, what counts is what is there in the end.
    #[test]
    fn permissions_follow_from_what_is_there(changes in changes()) {
        let mut directory = Directory::new();
        let (mut users, mut roles) = ([const { None }; 3], [None; 3]);
        for change in changes {
            match change {
                Change::User(n, of) => {
                    let names: Vec<_> = of.iter().map(|role| format!("r{role}")).collect();
                    let names: Vec<_> = names.iter().map(String::as_str).collect();
                    directory.apply(user(&format!("u{n}"), &names));
                    users[n as usize] = Some(of);
                }
                Change::NoUser(n) => {
                    directory.delete(user(&format!("u{n}"), &[]));
                    users[n as usize] = None;
                }
                Change::Role(n, cluster) => {
                    directory.apply(role(&format!("r{n}"), &format!("c{cluster}")));
                    roles[n as usize] = Some(cluster);
                }
                Change::NoRole(n) => {
                    directory.delete(role(&format!("r{n}"), "*"));
                    roles[n as usize] = None;
                }
            }
        }
        for (n, of) in users.iter().enumerate() {
            for cluster in 0..3u8 {
                let allowed = |role: &u8| roles[*role as usize] == Some(cluster);
                let expected = of.as_ref().is_some_and(|of| of.iter().any(allowed));
                prop_assert_eq!(may(&directory, &format!("u{n}"), &format!("c{cluster}")), expected);
            }
        }
    }
}
