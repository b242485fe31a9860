use objects::kinds::Rule;

use super::*;
use crate::access::tests::{Fixture, here, rule, soon};

const PASSWORD: &str = "correct horse battery";

fn new(name: &str, roles: &[&str]) -> NewUser {
    let roles = roles.iter().map(|role| (*role).to_owned()).collect();
    NewUser { name: name.to_owned(), roles, password: Some(Secret::new(PASSWORD)) }
}

fn roles(names: &[&str]) -> UserChange {
    let names = names.iter().map(|role| (*role).to_owned()).collect();
    UserChange { roles: Some(names), disabled: None }
}

fn disabled(disabled: bool) -> UserChange {
    UserChange { roles: None, disabled: Some(disabled) }
}

/// May administer users and tokens, in the fleet.
fn managing() -> Vec<Rule> {
    vec![rule(FLEET, USERS, "*"), rule(FLEET, TOKENS, "*"), rule(FLEET, ROLES, "*")]
}

impl Fixture {
    async fn logged_in(&self, name: &str) -> Identity {
        let opened = self.access.login(name, Secret::new(PASSWORD), here(), soon()).await.unwrap();
        self.access.by_session(opened.cookie.expose()).unwrap()
    }
}

fn is_guarded<T: std::fmt::Debug>(outcome: Result<T>, word: &str) {
    match outcome {
        Err(AdministrationError::Guarded(why)) => assert!(why.contains(word), "{why}"),
        other => panic!("{other:?}"),
    }
}

fn is_not_allowed<T: std::fmt::Debug>(outcome: Result<T>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, AdministrationError::NotAllowed { .. }), "{error}");
}

#[tokio::test]
async fn an_administrator_makes_changes_and_deletes_users() {
    let fixture = Fixture::new().await;
    let owner = fixture.owner();
    let admin = fixture.access.administer(&owner);
    let ada = admin.create_user(new("ada", &["viewer"]), soon()).await.unwrap();
    assert_eq!((ada.has_password, ada.roles.as_slice()), (true, &["viewer".to_owned()][..]));
    let again = admin.create_user(new("ada", &[]), soon()).await;
    assert!(matches!(again, Err(AdministrationError::Store(objects::Error::Exists { .. }))));
    let who = fixture.logged_in("ada").await;

    let ada = admin.update_user("ada", roles(&["operator"]), soon()).await.unwrap();
    assert_eq!(ada.roles, ["operator"]);
    let names: Vec<_> = admin.users().unwrap().into_iter().map(|user| user.name).collect();
    assert_eq!(names, ["ada", LOCAL]);
    assert_eq!(fixture.access.administer(&who).own().unwrap().roles, ["operator"]);

    admin.set_password("ada", Secret::new("another horse"), soon()).await.unwrap();
    assert!(!fixture.access.is_still(&who), "the session outlived the password");
    admin.delete_user("ada", soon()).await.unwrap();
    let gone = admin.delete_user("ada", soon()).await;
    assert!(matches!(gone, Err(AdministrationError::Store(objects::Error::NotFound { .. }))));

    is_guarded(admin.create_user(new(LOCAL, &[]), soon()).await, "always there");
    is_guarded(admin.delete_user(LOCAL, soon()).await, "always there");
    is_guarded(admin.create_user(new("bob", &["no-such"]), soon()).await, "no role no-such");
    let weak = NewUser { password: Some(Secret::new("short")), ..new("bob", &[]) };
    let weak = admin.create_user(weak, soon()).await;
    assert!(matches!(weak, Err(AdministrationError::WeakPassword(WeakPassword::TooShort))));
    let bad = admin.create_user(new("Not A Name", &[]), soon()).await;
    assert!(matches!(bad, Err(AdministrationError::Store(objects::Error::Invalid { .. }))));
}

#[tokio::test]
async fn who_may_not_administer_may_nothing_but_their_own() {
    let fixture = Fixture::new().await;
    fixture.user("ada", &["operator"], Some(PASSWORD)).await;
    fixture.user("bob", &[], None).await;
    let who = fixture.logged_in("ada").await;
    let ada = fixture.access.administer(&who);
    is_not_allowed(ada.users());
    is_not_allowed(ada.roles());
    is_not_allowed(ada.create_user(new("eve", &[]), soon()).await);
    is_not_allowed(ada.update_user("ada", roles(&["admin"]), soon()).await);
    is_not_allowed(ada.delete_user("bob", soon()).await);
    is_not_allowed(ada.set_password("bob", Secret::new(PASSWORD), soon()).await);
    is_not_allowed(
        ada.create_role("r", AccessRoleSpec { allow: vec![], deny: vec![] }, soon()).await,
    );
    is_not_allowed(ada.create_token("bob", None, None, soon()).await);
    is_not_allowed(ada.revoke_token("000000000000", soon()).await);

    let wrong =
        ada.change_own_password(Secret::new("wrong"), Secret::new("another horse"), here(), soon());
    assert!(matches!(wrong.await, Err(AdministrationError::WrongPassword)));
    ada.change_own_password(Secret::new(PASSWORD), Secret::new("another horse"), here(), soon())
        .await
        .unwrap();
    assert!(!fixture.access.is_still(&who));
    let login = fixture.access.login("ada", Secret::new("another horse"), here(), soon()).await;
    assert!(login.is_ok());
}

#[tokio::test]
async fn tokens_are_shown_once_listed_without_secret_and_revoked() {
    let fixture = Fixture::new().await;
    fixture.user("ada", &["viewer"], Some(PASSWORD)).await;
    fixture.user("bob", &["viewer"], None).await;
    let who = fixture.logged_in("ada").await;
    let ada = fixture.access.administer(&who);
    let expires = Timestamp::now().checked_add(jiff::SignedDuration::from_hours(1)).unwrap();
    let token =
        ada.create_token("ada", Some(expires), Some("ci".to_owned()), soon()).await.unwrap();
    let program = fixture.access.by_token(token.secret.expose()).unwrap();
    assert_eq!(
        program,
        Identity { user: "ada".into(), via: AuthMethod::Token(token.id.as_str().into()) }
    );
    is_guarded(
        fixture.access.administer(&program).create_token("ada", None, None, soon()).await,
        "log in",
    );
    is_guarded(ada.create_token("ada", Some(Timestamp::UNIX_EPOCH), None, soon()).await, "passed");

    let owner = fixture.owner();
    let admin = fixture.access.administer(&owner);
    let other = admin.create_token("bob", None, None, soon()).await.unwrap();
    is_guarded(admin.create_token(LOCAL, None, None, soon()).await, "token file");
    let listed = ada.tokens();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].id.as_str(), listed[0].expired), (token.id.as_str(), false));
    assert_eq!(admin.tokens().len(), 2);
    let shown = format!("{:?} {token:?}", admin.tokens());
    assert!(!shown.contains(token.secret.expose()));

    is_not_allowed(ada.revoke_token(&other.id, soon()).await);
    ada.revoke_token(&token.id, soon()).await.unwrap();
    assert!(fixture.access.by_token(token.secret.expose()).is_err());
    admin.delete_user("bob", soon()).await.unwrap();
    assert!(fixture.access.by_token(other.secret.expose()).is_err());
    fixture.until(|| admin.tokens().is_empty()).await;
}

#[tokio::test]
async fn nobody_rises_above_themselves() {
    let fixture = Fixture::new().await;
    fixture.role("managers", managing(), vec![]).await;
    fixture.role("careful", vec![], vec![rule("prod", "*", "delete")]).await;
    fixture.user("root", &["admin"], Some(PASSWORD)).await;
    fixture.user("mia", &["managers", "operator", "careful"], Some(PASSWORD)).await;
    let who = fixture.logged_in("mia").await;
    let mia = fixture.access.administer(&who);

    is_guarded(mia.create_user(new("x", &["admin"]), soon()).await, "role admin");
    is_guarded(mia.create_user(new("x", &["viewer"]), soon()).await, "role viewer");
    // Without what denies her something, the other one could do more.
    is_guarded(mia.create_user(new("x", &["operator"]), soon()).await, "no role careful");
    is_guarded(mia.update_user("mia", roles(&["managers", "operator"]), soon()).await, "careful");
    is_guarded(mia.set_password("root", Secret::new(PASSWORD), soon()).await, "role admin");
    is_guarded(mia.create_token("root", None, None, soon()).await, "role admin");
    is_guarded(mia.update_user("root", disabled(true), soon()).await, "role admin");
    is_guarded(mia.delete_user("root", soon()).await, "role admin");
    let all = AccessRoleSpec { allow: vec![rule("*", "*", "*")], deny: vec![] };
    is_guarded(mia.create_role("all", all, soon()).await, "admin");
    is_guarded(mia.delete_role("careful", soon()).await, "admin");

    let own = ["managers", "operator", "careful"];
    mia.create_user(new("x", &own), soon()).await.unwrap();
    mia.create_user(new("y", &[]), soon()).await.unwrap();
    mia.set_password("x", Secret::new("another horse"), soon()).await.unwrap();
}

#[tokio::test]
async fn the_last_administrator_stays_unless_the_machine_s_owner_says_so() {
    let fixture = Fixture::new().await;
    fixture.user("root", &["admin"], Some(PASSWORD)).await;
    fixture.user("second", &["admin"], Some(PASSWORD)).await;
    let who = fixture.logged_in("root").await;
    let root = fixture.access.administer(&who);
    root.update_user("second", disabled(true), soon()).await.unwrap();
    is_guarded(root.update_user("root", disabled(true), soon()).await, "last administrator");
    is_guarded(root.update_user("root", roles(&["viewer"]), soon()).await, "last administrator");
    is_guarded(root.delete_user("root", soon()).await, "last administrator");
    // Of those who may log in one is enough.
    root.update_user("second", disabled(false), soon()).await.unwrap();

    // Two who go at the same instant: one stays.
    let second = fixture.logged_in("second").await;
    let second = fixture.access.administer(&second);
    let (one, other) =
        tokio::join!(root.delete_user("second", soon()), second.delete_user("root", soon()));
    assert_eq!(one.is_ok() as u8 + other.is_ok() as u8, 1, "{one:?} {other:?}");

    // In a browser too.
    let code = fixture.access.local_login_code().unwrap();
    let opened = fixture.access.redeem(code.expose(), here()).unwrap();
    let owner = fixture.access.by_session(opened.cookie.expose()).unwrap();
    let owner = fixture.access.administer(&owner);
    let left = if one.is_ok() { "root" } else { "second" };
    owner.delete_user(left, soon()).await.unwrap();
}

#[tokio::test]
async fn roles_are_written_by_administrators_and_kept_while_they_are_given() {
    let fixture = Fixture::new().await;
    let owner = fixture.owner();
    let admin = fixture.access.administer(&owner);
    let spec =
        |cluster: &str| AccessRoleSpec { allow: vec![rule(cluster, "pods", "get")], deny: vec![] };
    is_guarded(admin.create_role("viewer", spec("*"), soon()).await, "built in");
    is_guarded(admin.update_role("admin", spec("*"), soon()).await, "built in");
    is_guarded(admin.delete_role("operator", soon()).await, "built in");

    admin.create_role("team", spec("dev"), soon()).await.unwrap();
    let listed = admin.roles().unwrap();
    let names: Vec<_> = listed.iter().map(|role| (role.name.as_str(), role.built_in)).collect();
    assert_eq!(names, [("admin", true), ("operator", true), ("team", false), ("viewer", true)]);

    admin.create_user(new("ada", &["team"]), soon()).await.unwrap();
    let ada = fixture.logged_in("ada").await;
    let sees = |cluster: &str| fixture.access.may_see_cluster(&ada, cluster);
    assert!(sees("dev") && !sees("prod"));
    admin.update_role("team", spec("prod"), soon()).await.unwrap();
    assert!(sees("prod") && !sees("dev"), "the answer came before the change");
    is_guarded(admin.delete_role("team", soon()).await, "given to ada");
    admin.update_user("ada", roles(&[]), soon()).await.unwrap();
    admin.delete_role("team", soon()).await.unwrap();
    let gone = admin.update_role("team", spec("dev"), soon()).await;
    assert!(matches!(gone, Err(AdministrationError::Store(objects::Error::NotFound { .. }))));
}

/// Requests of a delegated administrator wait for their turn while an administrator disables them.
#[tokio::test]
async fn who_is_disabled_while_their_requests_wait_makes_nobody_admin() {
    const REQUESTS: usize = 24;
    let fixture = Fixture::new().await;
    fixture.role("managers", managing(), vec![]).await;
    fixture.user("mia", &["managers"], Some(PASSWORD)).await;
    for n in 0..REQUESTS {
        fixture.user(&format!("friend-{n}"), &[], None).await;
    }
    let mia = fixture.logged_in("mia").await;
    // Somebody else's change is under way; all of hers wait behind it.
    let turn = fixture.access.0.last_admin.acquire().await.unwrap();
    let asked: Vec<_> = (0..REQUESTS)
        .map(|n| {
            let (access, mia) = (fixture.access.clone(), mia.clone());
            tokio::spawn(async move {
                let friend = format!("friend-{n}");
                access.administer(&mia).update_user(&friend, roles(&["admin"]), soon()).await
            })
        })
        .collect();
    // This runtime has one thread: after a turn of it each of them has been asked and waits.
    tokio::task::yield_now().await;
    fixture.disable("mia").await;
    fixture.until(|| !fixture.access.is_still(&mia)).await;
    drop(turn);
    for asked in asked {
        let outcome = asked.await.unwrap();
        assert!(matches!(outcome, Err(AdministrationError::Inactive)), "{outcome:?}");
    }
    let owner = fixture.owner();
    let users = fixture.access.administer(&owner).users().unwrap();
    let admins: Vec<_> = users.iter().filter(|user| user.roles == ["admin"]).collect();
    assert_eq!(admins.iter().map(|user| user.name.as_str()).collect::<Vec<_>>(), [LOCAL]);
}

#[tokio::test]
async fn who_is_disabled_in_the_store_writes_nothing_although_the_watch_is_late() {
    let fixture = Fixture::new().await;
    fixture.role("managers", managing(), vec![]).await;
    fixture.user("mia", &["managers", "admin"], Some(PASSWORD)).await;
    fixture.user("friend", &[], None).await;
    let who = fixture.logged_in("mia").await;
    let mia = fixture.access.administer(&who);
    fixture.disable("mia").await;
    let inactive = |outcome: Result<()>| {
        // Whatever has heard of it first says so.
        let refused = [AdministrationError::Inactive.to_string(), "you may not".to_owned()];
        let error = outcome.unwrap_err().to_string();
        assert!(refused.iter().any(|word| error.contains(word)), "{error}");
    };
    // Roles that nobody could object to, too.
    inactive(mia.create_user(new("x", &[]), soon()).await.map(drop));
    inactive(mia.update_user("friend", roles(&[]), soon()).await.map(drop));
    inactive(mia.set_password("friend", Secret::new("another horse"), soon()).await);
    inactive(mia.delete_user("friend", soon()).await);
    inactive(mia.create_token("friend", None, None, soon()).await.map(drop));
    inactive(mia.create_token("mia", None, None, soon()).await.map(drop));
    let all = AccessRoleSpec { allow: vec![rule("*", "*", "*")], deny: vec![] };
    inactive(mia.create_role("all", all, soon()).await);
    assert!(fixture.objects.get::<User>(&Id::cluster("x"), soon()).await.unwrap().is_none());
    let friend = fixture.objects.get::<User>(&Id::cluster("friend"), soon()).await.unwrap();
    assert_eq!(friend.unwrap().spec.password_hash, None);
}

#[tokio::test]
async fn a_role_that_is_not_known_may_deny_something() {
    let fixture = Fixture::new().await;
    fixture.role("managers", managing(), vec![]).await;
    // The role careful is not there (yet): what it denies her is not known.
    fixture.user("mia", &["managers", "careful"], Some(PASSWORD)).await;
    let who = fixture.logged_in("mia").await;
    let mia = fixture.access.administer(&who);
    is_guarded(mia.create_user(new("x", &["managers"]), soon()).await, "no role careful");
}
