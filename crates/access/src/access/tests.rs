use objects::kinds::{AccessRoleSpec, Rule, UserSpec};
use objects::{Expected, Id, Version};

use super::*;
use crate::role::Verb;
use crate::session::csrf_of;

/// Access on an embedded store of its own.
pub(crate) struct Fixture {
    pub(crate) access: Access,
    pub(crate) objects: Objects,
    pub(crate) local: LocalToken,
    tasks: Tasks,
    _data: tempfile::TempDir,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let tasks = Tasks::new("test");
        let objects = Objects::embedded(data.path(), &tasks).unwrap();
        let local = LocalToken::open(data.path()).unwrap();
        let readiness = Readiness::default();
        let access = Access::start(objects.clone(), &tasks, &readiness, Some(&local));
        let fixture = Self { access, objects, local, tasks, _data: data };
        fixture.until(|| readiness.report().ready).await;
        fixture
    }

    pub(crate) fn owner(&self) -> Identity {
        self.access.by_token(self.local.secret().expose()).unwrap()
    }

    /// Puts a user in the store, as another replica would, and waits until it is known.
    pub(crate) async fn user(&self, name: &str, roles: &[&str], password: Option<&str>) -> User {
        let password_hash = match password {
            Some(password) => {
                Some(self.access.0.passwords.hash(Secret::new(password), soon()).await.unwrap())
            }
            None => None,
        };
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        let user = User::new(name, UserSpec { password_hash, roles, disabled: false });
        let user = self.objects.create(&user, soon()).await.unwrap();
        self.until(|| self.access.0.directory.read(|all| all.account(name).is_some())).await;
        user
    }

    pub(crate) async fn role(&self, name: &str, allow: Vec<Rule>, deny: Vec<Rule>) {
        let role = AccessRole::new(name, AccessRoleSpec { allow, deny });
        self.objects.create(&role, soon()).await.unwrap();
        self.until(|| self.access.0.directory.read(|all| all.role(name).is_some())).await;
    }

    /// Changes a user in the store, as another replica would.
    async fn change(&self, name: &str, change: impl FnOnce(&mut UserSpec)) {
        let mut user: User = self.objects.get(&Id::cluster(name), soon()).await.unwrap().unwrap();
        change(&mut user.spec);
        let version = Version(user.metadata.resource_version.clone().unwrap());
        self.objects.apply(&user, Expected::Version(version), soon()).await.unwrap();
    }

    /// As another replica would.
    pub(crate) async fn disable(&self, name: &str) {
        self.change(name, |user| user.disabled = true).await;
    }

    async fn login(&self, user: &str, password: &str) -> Result<OpenedSession, LoginError> {
        self.access.login(user, Secret::new(password), here(), soon()).await
    }

    /// Waits for what a watch is about to tell.
    pub(crate) async fn until(&self, told: impl Fn() -> bool) {
        let wait = async {
            while !told() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon().bound(wait).await.expect("the watch tells it");
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.tasks.stop("the test is over");
    }
}

pub(crate) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

pub(crate) fn here() -> IpAddr {
    IpAddr::from([192, 0, 2, 1])
}

pub(crate) fn rule(clusters: &str, resources: &str, verbs: &str) -> Rule {
    let one = |word: &str| vec![word.to_owned()];
    Rule {
        clusters: one(clusters),
        namespaces: one("*"),
        resources: one(resources),
        verbs: one(verbs),
    }
}

fn pods(cluster: &str, verb: Verb) -> AccessRequest<'_> {
    AccessRequest { cluster, namespace: Some("web"), resource: "pods", verb }
}

const PASSWORD: &str = "correct horse battery";

#[tokio::test]
async fn the_owner_of_the_machine_is_an_administrator_by_the_token_file() {
    let fixture = Fixture::new().await;
    let owner = fixture.owner();
    assert_eq!((&*owner.user, &owner.via), (LOCAL, &AuthMethod::Local));
    assert!(fixture.access.decide(&owner, &pods("prod", Verb::Delete)).is_allowed());
    assert!(fixture.access.is_still(&owner));

    // Others are nobody, whatever they send.
    let almost = format!("{}x", &fixture.local.secret().expose()[..52]);
    for text in ["", "local", &almost, token::with_id("local").expose()] {
        assert_eq!(fixture.access.by_token(text), Err(Unauthenticated::Unknown), "{text}");
    }
}

#[tokio::test]
async fn a_login_link_works_once_and_opens_a_session() {
    let fixture = Fixture::new().await;
    let code = fixture.access.local_login_code().unwrap();
    let opened = fixture.access.redeem(code.expose(), here()).unwrap();
    let who = fixture.access.by_session(opened.cookie.expose()).unwrap();
    assert_eq!(&*who.user, LOCAL);
    assert!(csrf_of(opened.cookie.expose()).is(opened.csrf.expose()));
    let again = fixture.access.redeem(code.expose(), here());
    assert_eq!(again.unwrap_err(), LoginError::BadCode);

    fixture.access.logout(opened.cookie.expose());
    let gone = fixture.access.by_session(opened.cookie.expose());
    assert_eq!(gone, Err(Unauthenticated::Unknown));
    assert!(!fixture.access.is_still(&who));
}

#[tokio::test]
async fn a_login_opens_a_session_and_a_wrong_one_tells_nothing() {
    let fixture = Fixture::new().await;
    fixture.user("ada", &["viewer"], Some(PASSWORD)).await;
    fixture.user("robot", &["viewer"], None).await;
    let opened = fixture.login("ada", PASSWORD).await.unwrap();
    let who = fixture.access.by_session(opened.cookie.expose()).unwrap();
    assert_eq!(who, Identity { user: "ada".into(), via: AuthMethod::Session(opened.id) });
    assert!(fixture.access.decide(&who, &pods("prod", Verb::Get)).is_allowed());
    assert!(!fixture.access.decide(&who, &pods("prod", Verb::Delete)).is_allowed());
    assert!(fixture.access.may_see_cluster(&who, "prod"));
    assert_eq!(fixture.access.sessions(&who).len(), 1);

    for (user, password) in [("ada", "wrong"), ("robot", PASSWORD), ("nobody", PASSWORD)] {
        assert_eq!(fixture.login(user, password).await.unwrap_err(), LoginError::Wrong, "{user}");
    }
    assert_eq!(fixture.login(LOCAL, "").await.unwrap_err(), LoginError::Wrong);
    let mut last = fixture.login("ada", "wrong").await;
    for _ in 0..10 {
        last = fixture.login("ada", "wrong").await;
    }
    assert!(matches!(last, Err(LoginError::Limited { .. })), "{last:?}");
    // Who is logged in does not notice.
    assert!(fixture.access.by_session(opened.cookie.expose()).is_ok());

    let mut registry = Registry::default();
    fixture.access.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"access_logins_total{result="ok"} 1"#,
        r#"access_logins_total{result="wrong"}"#,
        r#"access_refused_total{reason="not_allowed"} 1"#,
        "access_sessions 1",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[tokio::test]
async fn a_disabled_user_is_out_at_once_with_sessions_tokens_and_codes() {
    let fixture = Fixture::new().await;
    fixture.user("ada", &["viewer"], Some(PASSWORD)).await;
    let opened = fixture.login("ada", PASSWORD).await.unwrap();
    let who = fixture.access.by_session(opened.cookie.expose()).unwrap();
    let token = fixture.access.administer(&who).create_token("ada", None, None, soon()).await;
    let token = token.unwrap().secret;
    let by_token = fixture.access.by_token(token.expose()).unwrap();
    let code = fixture.access.login_code(&who).unwrap();
    assert_eq!(fixture.access.login_code(&by_token).unwrap_err(), LoginError::ByToken);
    assert!(fixture.access.is_still(&who) && fixture.access.is_still(&by_token));

    fixture.change("ada", |ada| ada.disabled = true).await;
    fixture.until(|| !fixture.access.is_still(&who)).await;
    assert!(fixture.access.by_session(opened.cookie.expose()).is_err());
    assert!(fixture.access.by_token(token.expose()).is_err());
    assert!(!fixture.access.is_still(&by_token));
    assert!(fixture.access.redeem(code.expose(), here()).is_err());
    assert!(fixture.access.login_code(&who).is_err());
    assert!(!fixture.access.decide(&who, &pods("prod", Verb::Get)).is_allowed());
    assert!(!fixture.access.may_see_namespace(&who, "prod", "web"));
    assert_eq!(fixture.login("ada", PASSWORD).await.unwrap_err(), LoginError::Wrong);

    fixture.change("ada", |ada| ada.disabled = false).await;
    fixture.until(|| fixture.access.by_token(token.expose()).is_ok()).await;
    assert!(fixture.access.by_session(opened.cookie.expose()).is_err());
}

#[tokio::test]
async fn a_new_password_ends_every_session_wherever_it_was_set() {
    let fixture = Fixture::new().await;
    fixture.user("ada", &["viewer"], Some(PASSWORD)).await;
    let opened = fixture.login("ada", PASSWORD).await.unwrap();
    let new = fixture.access.0.passwords.hash(Secret::new("another horse"), soon()).await.unwrap();
    fixture.change("ada", |ada| ada.password_hash = Some(new)).await;
    fixture.until(|| fixture.access.by_session(opened.cookie.expose()).is_err()).await;
    assert!(fixture.login("ada", PASSWORD).await.is_err());
    assert!(fixture.login("ada", "another horse").await.is_ok());
}

#[tokio::test]
async fn a_changed_role_holds_for_who_is_logged_in() {
    let fixture = Fixture::new().await;
    fixture.role("team", vec![rule("dev", "*", "*")], vec![]).await;
    fixture.user("ada", &["team"], Some(PASSWORD)).await;
    let opened = fixture.login("ada", PASSWORD).await.unwrap();
    let who = fixture.access.by_session(opened.cookie.expose()).unwrap();
    let may = |cluster: &str| fixture.access.decide(&who, &pods(cluster, Verb::Get)).is_allowed();
    assert!(may("dev") && !may("prod"));

    let mut role: AccessRole =
        fixture.objects.get(&Id::cluster("team"), soon()).await.unwrap().unwrap();
    role.spec.allow = vec![rule("prod", "*", "*")];
    fixture.objects.apply(&role, Expected::Any, soon()).await.unwrap();
    fixture.until(|| may("prod")).await;
    assert!(!may("dev"));
}

#[tokio::test]
async fn until_all_is_read_nobody_is_unknown() {
    let fixture = Fixture::new().await;
    // An access whose watches have told nothing yet: this test does not let them run in between.
    let tasks = Tasks::new("late");
    let access = Access::start(fixture.objects.clone(), &tasks, &Readiness::default(), None);
    let text = token::with_id("abc");
    let asked = access.by_token(text.expose());
    assert!(matches!(asked, Err(Unauthenticated::NotReady { .. })), "{asked:?}");
    assert!(access.local_login_code().is_none());
    tasks.stop("the test is over");
}

#[test]
fn the_verbs_are_those_of_the_kind() {
    let own: Vec<_> = Verb::ALL.iter().map(|verb| verb.as_str()).collect();
    assert_eq!(own, objects::kinds::VERBS);
}
