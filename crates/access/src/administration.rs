//! `Administration`: users, roles and tokens, changed by a user who may.
//!
//! Contract:
//! - Every call asks [`decide`](crate::decide) first: the verb on `users.fairlead.dev`,
//!   `accessroles.fairlead.dev` or `accesstokens.fairlead.dev` in the cluster [`FLEET`].
//! - Nobody can gain permissions: a caller who is not `admin` creates and changes (password, tokens,
//!   roles) only users whose roles the caller has, and who have all of the caller's roles that deny
//!   something. Only an `admin` writes roles, because whoever writes roles could write any.
//! - A caller who was deleted or disabled may do nothing, not even to themselves. The caller is checked
//!   twice: when the call begins, and in the store right before a write. Slow steps (a password hash, a
//!   wait) are between the two, so that they cannot overtake a change of the caller.
//! - The last administrator in the store cannot be removed, except by the machine's owner (`local`). Two
//!   replicas could remove one of the last two each at the same instant; the local token is the way back.
//! - A role that users have cannot be deleted: they might lose a denial with it.
//! - Callers need no permission for their own password (the present one is required) and their own
//!   tokens, which need a session or the local token. A stolen token cannot create tokens.
//! - Users of identity providers are in no store: what they may comes from mappings, and is caught up
//!   with before a write of theirs in the same way.
//! - A change is answered once this process has seen it itself, or after a second: a new token works.

mod identity;
mod subjects;
mod views;

pub use identity::{IDENTITY_PROVIDERS, MappingView, ProviderChange, ProviderView, ROLE_MAPPINGS};
pub use views::{NewUser, RoleView, TokenView, UserChange, UserView};

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use objects::kinds::{AccessRole, AccessRoleSpec, AccessToken, User, UserSpec};
use objects::{Expected, Id, Kind, Version, Within};
use stallproof::Deadline;
use tokio::sync::SemaphorePermit;

use crate::access::{Access, LoginError};
use crate::directory::Directory;
use crate::identity::{AuthMethod, Identity, LOCAL};
use crate::password::{self, PasswordUnchecked, WeakPassword};
use crate::role::{ADMIN, AccessRequest, FLEET, Role, Verb, is_built_in};
use crate::secret::Secret;
use crate::token::NewToken;

/// The resources of administration, in the cluster [`FLEET`].
pub const USERS: &str = "users.fairlead.dev";
pub const ROLES: &str = "accessroles.fairlead.dev";
pub const TOKENS: &str = "accesstokens.fairlead.dev";
pub const CLUSTERS: &str = "clusters.fairlead.dev";
pub const AUDIT: &str = "audit.fairlead.dev";

/// How long an answer waits for our own watch to report the change.
const SEEN: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum AdministrationError {
    #[error("you may not {verb} {resource}; ask an administrator")]
    NotAllowed { verb: Verb, resource: &'static str },
    /// The caller was deleted or disabled.
    #[error("you are no longer an active user; ask an administrator")]
    Inactive,
    /// The sentence names the rule and what to do instead.
    #[error("{0}")]
    Guarded(String),
    #[error(transparent)]
    WeakPassword(#[from] WeakPassword),
    #[error("the present password is wrong")]
    WrongPassword,
    /// The present password was not checked.
    #[error(transparent)]
    Login(LoginError),
    #[error(transparent)]
    PasswordUnchecked(#[from] PasswordUnchecked),
    #[error(transparent)]
    Store(#[from] objects::Error),
}

type Result<T> = std::result::Result<T, AdministrationError>;

/// The administration of users, roles and tokens as one caller, from [`Access::administer`].
#[derive(Clone, Copy, Debug)]
pub struct Administration<'a> {
    access: &'a Access,
    who: &'a Identity,
}

impl<'a> Administration<'a> {
    pub(crate) fn new(access: &'a Access, who: &'a Identity) -> Self {
        Self { access, who }
    }

    /// Lists users, sorted by name.
    pub fn users(&self) -> Result<Vec<UserView>> {
        self.ask(Verb::List, USERS)?;
        let directory = self.access.0.directory.load();
        let mut users: Vec<_> = directory.accounts().map(|account| UserView::of(account)).collect();
        users.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(users)
    }

    /// Returns the caller's own user, which needs no permission.
    pub fn own(&self) -> Option<UserView> {
        self.access.0.directory.read(|directory| {
            directory.account(&self.who.user).map(|account| UserView::of(account))
        })
    }

    pub async fn create_user(&self, new: NewUser, deadline: Deadline) -> Result<UserView> {
        let may = || {
            self.ask(Verb::Create, USERS)?;
            self.may_give(&new.roles)
        };
        may()?;
        refuse_local(&new.name)?;
        let password_hash = match new.password {
            Some(password) => Some(self.hash(&new.name, password, deadline).await?),
            None => None,
        };
        self.catch_up(deadline).await?;
        may()?;
        let spec = UserSpec { password_hash, roles: new.roles, disabled: false };
        let user = self.access.0.objects.create(&User::new(&new.name, spec), deadline).await?;
        self.user_written(&user).await;
        Ok(self.view(&user))
    }

    pub async fn update_user(
        &self,
        name: &str,
        change: UserChange,
        deadline: Deadline,
    ) -> Result<UserView> {
        self.ask(Verb::Update, USERS)?;
        refuse_local(name)?;
        let _turn = self.turn(deadline).await?;
        self.catch_up(deadline).await?;
        let mut user = self.user(name, deadline).await?;
        self.ask(Verb::Update, USERS)?;
        self.may_touch(&user)?;
        let before = user.spec.clone();
        if let Some(roles) = change.roles {
            self.may_give(&roles)?;
            user.spec.roles = roles;
        }
        user.spec.disabled = change.disabled.unwrap_or(before.disabled);
        if is_admin(&before) && !is_admin(&user.spec) {
            self.refuse_last_admin(name, deadline).await?;
        }
        self.write(user, deadline).await
    }

    pub async fn delete_user(&self, name: &str, deadline: Deadline) -> Result<()> {
        self.ask(Verb::Delete, USERS)?;
        refuse_local(name)?;
        let _turn = self.turn(deadline).await?;
        self.catch_up(deadline).await?;
        let user = self.user(name, deadline).await?;
        self.ask(Verb::Delete, USERS)?;
        self.may_touch(&user)?;
        if is_admin(&user.spec) {
            self.refuse_last_admin(name, deadline).await?;
        }
        // Its tokens are deleted with it, because it owns them.
        let expected = expected(user.metadata.resource_version);
        self.access.0.objects.delete::<User>(&Id::cluster(name), expected, deadline).await?;
        self.access.0.sessions.end_all_of(name);
        self.seen(|directory| directory.account(name).is_none()).await;
        Ok(())
    }

    /// Sets a user's password and ends the user's sessions. `change_own_password` is for the caller's own.
    pub async fn set_password(
        &self,
        name: &str,
        password: Secret,
        deadline: Deadline,
    ) -> Result<()> {
        self.ask(Verb::Update, USERS)?;
        refuse_local(name)?;
        let mut user = self.user(name, deadline).await?;
        self.may_touch(&user)?;
        user.spec.password_hash = Some(self.hash(name, password, deadline).await?);
        self.catch_up(deadline).await?;
        self.ask(Verb::Update, USERS)?;
        self.may_touch(&user)?;
        self.write(user, deadline).await?;
        self.access.0.sessions.end_all_of(name);
        Ok(())
    }

    /// Changes the caller's password and ends all of the caller's sessions, also the present one.
    pub async fn change_own_password(
        &self,
        present: Secret,
        new: Secret,
        from: IpAddr,
        deadline: Deadline,
    ) -> Result<()> {
        let name = &*self.who.user;
        refuse_local(name)?;
        // An open session must not be a way to guess passwords past the login limits.
        let checked = self.access.check_password(name, present, from, deadline).await;
        checked.map_err(|error| match error {
            LoginError::Wrong => AdministrationError::WrongPassword,
            other => AdministrationError::Login(other),
        })?;
        let mut user = self.user(name, deadline).await?;
        user.spec.password_hash = Some(self.hash(name, new, deadline).await?);
        self.catch_up(deadline).await?;
        self.write(user, deadline).await?;
        self.access.0.sessions.end_all_of(name);
        Ok(())
    }

    /// Lists roles, the built-in ones as well, sorted by name.
    pub fn roles(&self) -> Result<Vec<RoleView>> {
        self.ask(Verb::List, ROLES)?;
        let directory = self.access.0.directory.load();
        let view = |role: &Role| RoleView {
            name: role.name().to_string(),
            built_in: is_built_in(role.name()),
            rules: role.spec().clone(),
            problems: role.problems().to_vec(),
        };
        let mut roles: Vec<_> = directory.roles().map(|stored| view(&stored.role)).collect();
        roles.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(roles)
    }

    pub async fn create_role(
        &self,
        name: &str,
        rules: AccessRoleSpec,
        deadline: Deadline,
    ) -> Result<()> {
        self.may_write_role(Verb::Create, name)?;
        self.catch_up(deadline).await?;
        self.may_write_role(Verb::Create, name)?;
        let role = AccessRole::new(name, rules);
        let role = self.access.0.objects.create(&role, deadline).await?;
        self.role_written(&role).await;
        Ok(())
    }

    pub async fn update_role(
        &self,
        name: &str,
        rules: AccessRoleSpec,
        deadline: Deadline,
    ) -> Result<()> {
        self.may_write_role(Verb::Update, name)?;
        let id = Id::cluster(name);
        let found = self.access.0.objects.get::<AccessRole>(&id, deadline).await?;
        let mut role = found.ok_or(objects::Error::NotFound { kind: AccessRole::NAME, id })?;
        role.spec = rules;
        self.catch_up(deadline).await?;
        self.may_write_role(Verb::Update, name)?;
        let expected = expected(role.metadata.resource_version.clone());
        let role = self.access.0.objects.apply(&role, expected, deadline).await?;
        self.role_written(&role).await;
        Ok(())
    }

    pub async fn delete_role(&self, name: &str, deadline: Deadline) -> Result<()> {
        self.may_write_role(Verb::Delete, name)?;
        let users = self.access.0.objects.list::<User>(&Within::default(), deadline).await?;
        let has = |user: &&User| user.spec.roles.iter().any(|role| role == name);
        let mut having: Vec<_> = users.items.iter().filter(has).map(|u| Id::of(u).name).collect();
        if !having.is_empty() {
            having.sort();
            having.truncate(5);
            let having = having.join(", ");
            let why = format!("the role {name} is still given to {having}; take it away first");
            return Err(AdministrationError::Guarded(why));
        }
        self.catch_up(deadline).await?;
        self.may_write_role(Verb::Delete, name)?;
        let id = Id::cluster(name);
        self.access.0.objects.delete::<AccessRole>(&id, Expected::Any, deadline).await?;
        self.seen(|directory| directory.role(name).is_none()).await;
        Ok(())
    }

    /// Lists the caller's own tokens, or all if the caller may list them, sorted by user and id.
    pub fn tokens(&self) -> Vec<TokenView> {
        let all = self.may(Verb::List, TOKENS);
        let (directory, now) = (self.access.0.directory.load(), Timestamp::now());
        let visible =
            directory.tokens().filter(|token| all || *token.token.spec.user == *self.who.user);
        let mut tokens: Vec<_> = visible
            .map(|token| TokenView {
                id: token.id.to_string(),
                user: token.token.spec.user.clone(),
                description: token.token.spec.description.clone(),
                expires: token.token.spec.expires.clone(),
                expired: token.has_expired(now),
                problem: directory.token_problem(token),
            })
            .collect();
        tokens.sort_by(|a, b| (&a.user, &a.id).cmp(&(&b.user, &b.id)));
        tokens
    }

    /// Creates a token and returns its secret, which is not kept.
    pub async fn create_token(
        &self,
        user: &str,
        expires: Option<Timestamp>,
        description: Option<String>,
        deadline: Deadline,
    ) -> Result<NewToken> {
        if user == LOCAL {
            let why =
                "the user local has the token file, and no other tokens; make a user for programs";
            return Err(AdministrationError::Guarded(why.to_owned()));
        }
        if expires.is_some_and(|at| at <= Timestamp::now()) {
            return Err(AdministrationError::Guarded("the expiry has passed already".to_owned()));
        }
        if matches!(self.who.via, AuthMethod::Token(_)) {
            let why = "a token cannot make tokens; log in to make one";
            return Err(AdministrationError::Guarded(why.to_owned()));
        }
        if user.contains(':') {
            let why = "a user of an identity provider has no tokens that outlive it; use `fairlead login`, \
                       or make a user for programs";
            return Err(AdministrationError::Guarded(why.to_owned()));
        }
        let own = *user == *self.who.user;
        if !own {
            self.ask(Verb::Create, TOKENS)?;
        }
        let owner = self.user(user, deadline).await?;
        self.catch_up(deadline).await?;
        if !own {
            self.ask(Verb::Create, TOKENS)?;
            self.may_touch(&owner)?;
        }
        let token = NewToken::make(expires);
        let object = token.object(user, description).owned_by(&owner);
        self.access.0.objects.create(&object, deadline).await?;
        self.seen(|directory| directory.token(&token.id).is_some()).await;
        Ok(token)
    }

    pub async fn revoke_token(&self, id: &str, deadline: Deadline) -> Result<()> {
        let object_id = Id::cluster(id);
        let found = self.access.0.objects.get::<AccessToken>(&object_id, deadline).await?;
        let own = found.as_ref().is_some_and(|token| *token.spec.user == *self.who.user);
        self.catch_up(deadline).await?;
        if !own {
            // Permission is checked before the answer reveals whether the token exists.
            self.ask(Verb::Delete, TOKENS)?;
        }
        self.access.0.objects.delete::<AccessToken>(&object_id, Expected::Any, deadline).await?;
        self.seen(|directory| directory.token(id).is_none()).await;
        Ok(())
    }

    fn may(&self, verb: Verb, resource: &str) -> bool {
        let ask = AccessRequest { cluster: FLEET, namespace: None, resource, verb };
        self.access.decide(self.who, &ask).is_allowed()
    }

    fn ask(&self, verb: Verb, resource: &'static str) -> Result<()> {
        let refused = AdministrationError::NotAllowed { verb, resource };
        if self.may(verb, resource) { Ok(()) } else { Err(refused) }
    }

    fn is_admin(&self) -> bool {
        self.access.0.directory.read(|directory| {
            directory.active(&self.who.user).is_some_and(|account| account.is_admin())
        })
    }

    /// Reads the caller from the store and waits until the directory, which every decision reads, is as
    /// new. Refuses a caller who was deleted or disabled, or whose token or session has ended.
    async fn catch_up(&self, deadline: Deadline) -> Result<()> {
        let name = &*self.who.user;
        let federated = self.access.0.directory.read(|directory| {
            directory.account(name).is_some_and(|account| account.federated.is_some())
        });
        if federated {
            self.catch_up_with_mappings(deadline).await?;
        } else if name != LOCAL {
            self.catch_up_with_store(name, deadline).await?;
        }
        if self.access.is_still(self.who) { Ok(()) } else { Err(AdministrationError::Inactive) }
    }

    /// Waits until the directory has the store's version of this user, or until the deadline.
    async fn catch_up_with_store(&self, name: &str, deadline: Deadline) -> Result<()> {
        let id = Id::cluster(name);
        loop {
            let found = self.access.0.objects.get::<User>(&id, deadline).await?;
            let found = found.filter(|user| !user.spec.disabled);
            let stored = found.ok_or(AdministrationError::Inactive)?;
            self.user_written(&stored).await;
            let version = stored.metadata.resource_version.as_ref();
            let told = self.access.0.directory.read(|directory| {
                directory.active(name).is_some_and(|account| account.is_version(version))
            });
            if told {
                return Ok(());
            }
        }
    }

    /// Compares the caller's permissions with those of a user with these roles.
    fn rank(&self, roles: &[String]) -> Rank {
        self.access.0.directory.read(|directory| {
            let Some(account) = directory.active(&self.who.user) else {
                return Rank::Nobody;
            };
            if account.is_admin() || roles.is_empty() {
                return Rank::Enough;
            }
            if let Some(role) = roles.iter().find(|role| !account.has_role(role)) {
                return Rank::Short(format!("the role {role}, which you do not have yourself"));
            }
            // An unknown role may deny something.
            let denies = |role: &&String| {
                directory.role(role).is_none_or(|stored| !stored.role.spec().deny.is_empty())
            };
            let own = account.user.spec.roles.iter().filter(denies);
            let mut missing = own.filter(|own| !roles.contains(own));
            missing.next().map_or(Rank::Enough, |role| {
                Rank::Short(format!("no role {role}, which denies you something"))
            })
        })
    }

    fn may_give(&self, roles: &[String]) -> Result<()> {
        let missing =
            self.access.0.directory.read(|directory| {
                roles.iter().find(|role| directory.role(role).is_none()).cloned()
            });
        if let Some(role) = missing {
            return Err(AdministrationError::Guarded(format!("there is no role {role}")));
        }
        match self.rank(roles) {
            Rank::Enough => Ok(()),
            Rank::Nobody => Err(AdministrationError::Inactive),
            Rank::Short(what) => Err(AdministrationError::Guarded(format!(
                "the user would have {what}; ask an admin"
            ))),
        }
    }

    fn may_touch(&self, user: &User) -> Result<()> {
        match self.rank(&user.spec.roles) {
            Rank::Enough => Ok(()),
            Rank::Nobody => Err(AdministrationError::Inactive),
            Rank::Short(what) => {
                let name = Id::of(user).name;
                Err(AdministrationError::Guarded(format!("{name} has {what}; ask an admin")))
            }
        }
    }

    fn may_write_role(&self, verb: Verb, name: &str) -> Result<()> {
        self.ask(verb, ROLES)?;
        if is_built_in(name) {
            let why = format!("the role {name} is built in; write one of another name");
            return Err(AdministrationError::Guarded(why));
        }
        if !self.is_admin() {
            let why = "only those of the role admin write roles".to_owned();
            return Err(AdministrationError::Guarded(why));
        }
        Ok(())
    }

    /// Waits for the turn to make a change that could remove the last administrator.
    async fn turn(&self, deadline: Deadline) -> Result<SemaphorePermit<'_>> {
        let turn = deadline.bound(self.access.0.last_admin.acquire()).await;
        let too_late =
            || objects::Error::TooLate { doing: "waiting for another change".to_owned() };
        Ok(turn.map_err(|_| too_late())?.expect("the semaphore is never closed"))
    }

    /// Reads the administrators from the store itself, because the directory may be older.
    async fn refuse_last_admin(&self, name: &str, deadline: Deadline) -> Result<()> {
        if &*self.who.user == LOCAL {
            return Ok(());
        }
        let users = self.access.0.objects.list::<User>(&Within::default(), deadline).await?;
        let other = |user: &User| is_admin(&user.spec) && Id::of(user).name != name;
        if users.items.iter().any(other) {
            return Ok(());
        }
        let why = format!("{name} is the last administrator; make another one first");
        Err(AdministrationError::Guarded(why))
    }

    async fn user(&self, name: &str, deadline: Deadline) -> Result<User> {
        let id = Id::cluster(name);
        let found = self.access.0.objects.get::<User>(&id, deadline).await?;
        Ok(found.ok_or(objects::Error::NotFound { kind: User::NAME, id })?)
    }

    async fn hash(&self, name: &str, password: Secret, deadline: Deadline) -> Result<String> {
        password::check_new(name, &password)?;
        Ok(self.access.0.passwords.hash(password, deadline).await?)
    }

    async fn write(&self, user: User, deadline: Deadline) -> Result<UserView> {
        let expected = expected(user.metadata.resource_version.clone());
        let user = self.access.0.objects.apply(&user, expected, deadline).await?;
        self.user_written(&user).await;
        Ok(self.view(&user))
    }

    fn view(&self, user: &User) -> UserView {
        UserView::of(&self.access.0.directory.load().account_of(&Id::of(user).name, user.clone()))
    }

    async fn user_written(&self, user: &User) {
        let version = user.metadata.resource_version.as_ref();
        let name = Id::of(user).name;
        self.seen(|directory| {
            directory.account(&name).is_some_and(|account| account.is_version(version))
        })
        .await;
    }

    async fn role_written(&self, role: &AccessRole) {
        let version = role.metadata.resource_version.as_ref();
        let name = Id::of(role).name;
        self.seen(|directory| {
            directory.role(&name).is_some_and(|stored| stored.is_version(version))
        })
        .await;
    }

    /// Waits until the directory has the change. If another change has replaced it meanwhile, the second
    /// passes and the answer is the same.
    async fn seen(&self, told: impl Fn(&Directory) -> bool) {
        let mut changes = self.access.0.directory.subscribe();
        let wait = async {
            while !self.access.0.directory.read(&told) {
                changes.changed().await;
            }
        };
        let _ = Deadline::after(SEEN).bound(wait).await;
    }
}

/// How the caller's permissions compare with those of a set of roles.
enum Rank {
    /// The caller may do everything that they may.
    Enough,
    /// The caller may not; the text names the difference.
    Short(String),
    /// The caller is unknown or disabled.
    Nobody,
}

fn is_admin(user: &UserSpec) -> bool {
    !user.disabled && user.roles.iter().any(|role| role == ADMIN)
}

fn refuse_local(name: &str) -> Result<()> {
    if name != LOCAL {
        return Ok(());
    }
    let why = "the user local is the owner of this machine's token file, and always there";
    Err(AdministrationError::Guarded(why.to_owned()))
}

fn expected(version: Option<String>) -> Expected {
    version.map_or(Expected::Any, |version| Expected::Version(Version(version)))
}

#[cfg(test)]
mod tests;
