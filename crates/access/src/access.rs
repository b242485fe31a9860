//! `Access`: authenticates users and decides what they may do.
//!
//! Contract:
//! - Authentication by token or session, and every decision, reads one snapshot: no lock, no I/O. Only a
//!   login by password takes time.
//! - A change in the store takes effect with the first request after the watch has reported it, also for
//!   users who are logged in. While the store cannot be reached, the last known state holds.
//! - Until all users, roles and tokens have been read once, an unknown user is told to come back.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use objects::kinds::{AccessRole, AccessToken, IdentityProvider, RoleMapping, User};
use objects::{Index, Kind, Objects, Within};
use prometheus_client::registry::Registry;
use stallproof::readiness::Component;
use stallproof::{Deadline, Readiness, Snapshot, Tasks};
use tokio::sync::Semaphore;

use crate::administration::Administration;
use crate::code::Codes;
use crate::directory::{Account, Directory};
use crate::identity::{AuthMethod, Identity, LOCAL, SessionId};
use crate::kube_token::{self, KubeTokens};
use crate::local::LocalToken;
use crate::login::LoginLimits;
use crate::metrics::Metrics;
use crate::oidc::{Federation, Visitors};
use crate::password::{PasswordUnchecked, Passwords};
use crate::role::{AccessRequest, Decision, Permissions, decide};
use crate::secret::{Fingerprint, Secret};
use crate::session::rotation::{self, CliCredential};
use crate::session::{OpenedSession, SessionView, Sessions};
use crate::token;

/// A handle to users, roles, tokens and sessions. Clones share everything.
#[derive(Clone, Debug)]
pub struct Access(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) objects: Objects,
    pub(crate) directory: Snapshot<Directory>,
    pub(crate) sessions: Sessions,
    pub(crate) passwords: Passwords,
    /// Serializes the changes that could remove the last administrator.
    pub(crate) last_admin: Semaphore,
    /// Set once, by the process that asks identity providers.
    pub(crate) federation: OnceLock<Federation>,
    /// Users of identity providers whom other replicas have named.
    pub(crate) visitors: Visitors,
    pub(crate) metrics: Metrics,
    codes: Codes,
    kube_tokens: KubeTokens,
    limits: LoginLimits,
    local: Option<Fingerprint>,
}

/// Why a request is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// The token or session does not exist, or no longer.
    #[error("log in, or send a valid token")]
    Unknown,
    #[error("users are still being read; come back in {retry_after:?}")]
    NotReady { retry_after: Duration },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// One error for a wrong password, an unknown user and a disabled user.
    #[error("wrong user or password")]
    Wrong,
    #[error("this login link was used already or is too old; request a new one")]
    BadCode,
    #[error("a token opens no sessions; log in with a password")]
    ByToken,
    #[error("a user of an identity provider logs in there")]
    ByProvider,
    #[error("too many tries; come back in {retry_after:?}")]
    Limited { retry_after: Duration },
    #[error(transparent)]
    PasswordUnchecked(#[from] PasswordUnchecked),
    #[error("users are still being read; come back in {retry_after:?}")]
    NotReady { retry_after: Duration },
}

/// The time to come back after while users are being read.
const SOON: Duration = Duration::from_secs(1);

impl Access {
    /// Starts to watch users, roles and tokens. Without a local token nobody can be `local`.
    pub fn start(
        objects: Objects,
        tasks: &Tasks,
        readiness: &Readiness,
        local: Option<&LocalToken>,
    ) -> Self {
        let access = Self(Arc::new(Shared {
            directory: Snapshot::new(Directory::new()),
            sessions: Sessions::new(),
            passwords: Passwords::new(tasks),
            last_admin: Semaphore::new(1),
            federation: OnceLock::new(),
            visitors: Visitors::new(),
            codes: Codes::new(),
            kube_tokens: KubeTokens::new(),
            limits: LoginLimits::new(),
            local: local.map(LocalToken::fingerprint),
            metrics: Metrics::default(),
            objects,
        }));
        let ready = Arc::new(readiness.announce("access"));
        ready.not_ready("users, roles and tokens are being read");
        access.follow::<User>(tasks, &ready);
        access.follow::<AccessRole>(tasks, &ready);
        access.follow::<AccessToken>(tasks, &ready);
        access.follow::<IdentityProvider>(tasks, &ready);
        access.follow::<RoleMapping>(tasks, &ready);
        access
    }

    fn follow<K: Kind>(&self, tasks: &Tasks, ready: &Arc<Component>)
    where
        Directory: Index<K>,
    {
        let (access, ready, stop) = (self.clone(), Arc::clone(ready), tasks.stopping());
        let mut watch = self.0.objects.watch::<K>(Within::default());
        // Without its watch a revocation would never arrive, so that the process must not go on.
        tasks.spawn_essential(format!("access watches {}", K::NAME), async move {
            while let Some(Some(event)) = stop.bound(watch.next()).await {
                access.0.directory.update(|directory| event.apply_to(directory));
                // Invalid sessions are removed: a user who is disabled and enabled again logs in again.
                if K::NAME == User::NAME {
                    access.0.sessions.keep(|session| access.holds(&session.user, session.stamp));
                }
                if access.is_ready() {
                    ready.ready();
                }
            }
        });
    }

    fn is_ready(&self) -> bool {
        self.0.directory.read(Directory::is_whole)
    }

    /// Authenticates an API token, the local token, or the access token of a command line's session.
    pub fn by_token(&self, text: &str) -> Result<Identity, Unauthenticated> {
        if rotation::is_access_token(text) {
            let session = self.0.sessions.by_access_token(text);
            let session = session.ok_or(Unauthenticated::Unknown)?;
            let holds = self.holds(&session.user, session.stamp);
            let via = AuthMethod::Session(session.id);
            let who = Identity { user: Arc::clone(&session.user), via };
            return if holds { Ok(who) } else { Err(self.unknown()) };
        }
        if !token::looks_like_one(text) {
            return Err(Unauthenticated::Unknown);
        }
        let fingerprint = Fingerprint::of(text);
        if self.0.local == Some(fingerprint) {
            return Ok(Identity { user: LOCAL.into(), via: AuthMethod::Local });
        }
        let who = self.0.directory.read(|directory| {
            let (token, account) = directory.by_token(fingerprint, Timestamp::now())?;
            Some(Identity {
                user: Arc::clone(&account.name),
                via: AuthMethod::Token(Arc::clone(&token.id)),
            })
        });
        who.ok_or_else(|| self.unknown())
    }

    /// Makes a token for a kubeconfig of `who`, and says until when it is valid. It ends with the login that
    /// it was made by.
    pub fn kube_token(&self, who: &Identity) -> Result<(Secret, Timestamp), Unauthenticated> {
        let until = Timestamp::now() + kube_token::LASTS;
        let token = self.0.kube_tokens.issue(who, until).filter(|_| self.is_still(who));
        token.map(|token| (token, until)).ok_or(Unauthenticated::Unknown)
    }

    /// Authenticates the token of a kubeconfig, which counts as a use of its session.
    pub fn by_kube_token(&self, text: &str) -> Result<Identity, Unauthenticated> {
        let who = self.0.kube_tokens.read(text, Timestamp::now());
        let who = who.filter(|who| self.is_still(who)).ok_or_else(|| self.unknown())?;
        if let AuthMethod::Session(id) = &who.via {
            self.0.sessions.used(*id);
        }
        Ok(who)
    }

    /// Authenticates a session cookie. A request that writes must have `csrf_of(cookie)` as well.
    pub fn by_session(&self, cookie: &str) -> Result<Identity, Unauthenticated> {
        let session = self.0.sessions.find(cookie).ok_or(Unauthenticated::Unknown)?;
        let who =
            Identity { user: Arc::clone(&session.user), via: AuthMethod::Session(session.id) };
        if self.holds(&session.user, session.stamp) { Ok(who) } else { Err(self.unknown()) }
    }

    /// Whether the identity is still valid, for streams that outlive the check of their request.
    pub fn is_still(&self, who: &Identity) -> bool {
        match &who.via {
            // Nobody who asks for anything.
            AuthMethod::ResponseRule(_) => false,
            // Another replica forwards requests of users whom it has authenticated.
            AuthMethod::Local => {
                self.0.local.is_some()
                    && self.0.directory.read(|directory| directory.active(&who.user).is_some())
            }
            AuthMethod::Session(id) => self.0.sessions.look(*id).is_some_and(|session| {
                session.user == who.user && self.holds(&session.user, session.stamp)
            }),
            AuthMethod::Token(id) => self.0.directory.read(|directory| {
                let token = directory.token(id);
                token.is_some_and(|token| {
                    *token.token.spec.user == *who.user
                        && directory.is_valid(token, Timestamp::now())
                })
            }),
        }
    }

    /// Opens a session by user and password.
    pub async fn login(
        &self,
        user: &str,
        password: Secret,
        from: IpAddr,
        deadline: Deadline,
    ) -> Result<OpenedSession, LoginError> {
        let outcome = self.try_login(user, password, from, deadline).await;
        self.0.metrics.login(outcome.as_ref().err());
        outcome
    }

    async fn try_login(
        &self,
        user: &str,
        password: Secret,
        from: IpAddr,
        deadline: Deadline,
    ) -> Result<OpenedSession, LoginError> {
        let account = self.check_password(user, password, from, deadline).await?;
        self.open(&account.name, account.stamp, from).ok_or(LoginError::Wrong)
    }

    /// Opens a session, unless the user has changed meanwhile. That is checked once the session is open,
    /// so that a later removal of invalid sessions finds it.
    fn open(&self, user: &Arc<str>, stamp: Fingerprint, from: IpAddr) -> Option<OpenedSession> {
        let opened = self.0.sessions.open(user, stamp, None, from);
        if self.holds(user, stamp) {
            return Some(opened);
        }
        self.0.sessions.end(opened.id);
        None
    }

    /// Opens a session of a command line by user and password.
    pub async fn login_cli(
        &self,
        user: &str,
        password: Secret,
        from: IpAddr,
        deadline: Deadline,
    ) -> Result<CliCredential, LoginError> {
        let account = self.check_password(user, password, from, deadline).await;
        let opened = account.and_then(|account| {
            let opened = self.0.sessions.open_cli(&account.name, account.stamp, None, from);
            if self.holds(&account.name, account.stamp) {
                return Ok(opened);
            }
            self.0.sessions.end(opened.session);
            Err(LoginError::Wrong)
        });
        self.0.metrics.login(opened.as_ref().err());
        opened
    }

    /// Exchanges the refresh token of a command line for its next pair. One that was exchanged before ends
    /// the session: it was stolen.
    pub fn refresh_cli(&self, refresh: &str) -> Result<CliCredential, Unauthenticated> {
        let (credential, session) =
            self.0.sessions.rotate(refresh).ok_or(Unauthenticated::Unknown)?;
        if self.holds(&session.user, session.stamp) { Ok(credential) } else { Err(self.unknown()) }
    }

    /// Ends the session of a command line by any of its refresh tokens.
    pub fn logout_cli(&self, refresh: &str) {
        if let Some(session) = self.0.sessions.by_refresh_token(refresh) {
            self.0.sessions.end(session);
        }
    }

    /// Returns the user if the password is right.
    pub(crate) async fn check_password(
        &self,
        user: &str,
        password: Secret,
        from: IpAddr,
        deadline: Deadline,
    ) -> Result<Arc<Account>, LoginError> {
        if !self.is_ready() {
            return Err(LoginError::NotReady { retry_after: SOON });
        }
        let limited = |retry_after| LoginError::Limited { retry_after };
        let attempt = self.0.limits.attempt(user, from).map_err(limited)?;
        let account = self.0.directory.read(|directory| directory.active(user).cloned());
        let hash = account.as_ref().and_then(|account| account.password_hash().map(str::to_owned));
        match (self.0.passwords.verify(password, hash, deadline).await, account) {
            (Ok(true), Some(account)) => {
                attempt.succeeded();
                Ok(account)
            }
            (Ok(_), _) => Err(LoginError::Wrong),
            (Err(unchecked), _) => {
                attempt.did_not_happen();
                Err(unchecked.into())
            }
        }
    }

    /// Issues a code for a login link, which opens one session as `who` in a browser. An API token gets
    /// none: a session may do more, and a stolen token must not lead to one.
    pub fn login_code(&self, who: &Identity) -> Result<Secret, LoginError> {
        if matches!(who.via, AuthMethod::Token(_)) {
            return Err(LoginError::ByToken);
        }
        let account = self.0.directory.read(|directory| directory.active(&who.user).cloned());
        let account = account.filter(|_| self.is_still(who)).ok_or(LoginError::Wrong)?;
        if account.federated.is_some() {
            return Err(LoginError::ByProvider);
        }
        Ok(self.0.codes.issue(&account.name, account.stamp))
    }

    /// Issues a code for the link that is printed at the start, as `local`; none without a local token.
    pub fn local_login_code(&self) -> Option<Secret> {
        self.login_code(&Identity { user: LOCAL.into(), via: AuthMethod::Local }).ok()
    }

    /// Opens a session by the code of a login link.
    pub fn redeem(&self, code: &str, from: IpAddr) -> Result<OpenedSession, LoginError> {
        let code = self.0.codes.redeem(code);
        let opened = code.and_then(|code| self.open(&code.user, code.stamp, from));
        let opened = opened.ok_or(LoginError::BadCode);
        self.0.metrics.login(opened.as_ref().err());
        opened
    }

    pub fn logout(&self, cookie: &str) {
        self.0.sessions.end(SessionId(Fingerprint::of(cookie)));
    }

    /// Lists the sessions of `who`.
    pub fn sessions(&self, who: &Identity) -> Vec<SessionView> {
        self.0.sessions.of(&who.user)
    }

    /// Ends one of the sessions of `who`, and returns whether it existed.
    pub fn end_session(&self, who: &Identity, id: &str) -> bool {
        let own = self.0.sessions.of(&who.user);
        let found = own.iter().find(|session| session.id.to_string() == id);
        found.is_some_and(|session| self.0.sessions.end(session.id))
    }

    /// Returns the present permissions of `who`. A listing reads them once; a stream reads them again and
    /// again.
    pub fn permissions(&self, who: &Identity) -> Arc<Permissions> {
        self.0.directory.read(|directory| {
            let account = directory.active(&who.user);
            account.map(|account| Arc::clone(&account.permissions)).unwrap_or_default()
        })
    }

    /// Returns the names of the present roles of `who`, and the groups that their identity provider names
    /// as `PROVIDER:GROUP`; nothing for who is not active any more.
    pub fn roles_and_groups(&self, who: &Identity) -> (Vec<String>, Vec<String>) {
        self.0.directory.read(|directory| {
            let Some(account) = directory.active(&who.user) else { return Default::default() };
            let groups = account.groups(directory);
            let provider = account.federated.as_ref().map(|federated| &*federated.provider);
            let named = |group| format!("{}:{group}", provider.unwrap_or_default());
            (account.user.spec.roles.clone(), groups.into_iter().map(named).collect())
        })
    }

    /// Decides about a request, and counts refusals.
    pub fn decide(&self, who: &Identity, ask: &AccessRequest<'_>) -> Decision {
        let decision = self.0.directory.read(|directory| {
            let account = directory.active(&who.user);
            account.map_or(Decision::NotAllowed, |account| decide(&account.permissions, ask))
        });
        self.0.metrics.decided(&decision);
        decision
    }

    /// Whether `who` may know of the cluster. Otherwise the answer is that it does not exist.
    pub fn may_see_cluster(&self, who: &Identity, cluster: &str) -> bool {
        self.permissions(who).may_see_cluster(cluster)
    }

    /// Whether `who` may know of the namespace. Otherwise the answer is that it does not exist.
    pub fn may_see_namespace(&self, who: &Identity, cluster: &str, namespace: &str) -> bool {
        self.permissions(who).may_see_namespace(cluster, namespace)
    }

    /// Whether there is a user of this name, active or not.
    pub fn has_user(&self, name: &str) -> bool {
        self.0.directory.read(|directory| directory.account(name).is_some())
    }

    /// Administers users, roles and tokens as `who`.
    pub fn administer<'a>(&'a self, who: &'a Identity) -> Administration<'a> {
        Administration::new(self, who)
    }

    pub fn register(&self, registry: &mut Registry) {
        let access = self.clone();
        self.0.metrics.register(registry, move || access.0.sessions.count());
    }

    /// Whether the user is active and still has this stamp.
    pub(crate) fn holds(&self, user: &str, stamp: Fingerprint) -> bool {
        self.0
            .directory
            .read(|directory| directory.active(user).is_some_and(|account| account.stamp == stamp))
    }

    fn unknown(&self) -> Unauthenticated {
        if self.is_ready() {
            Unauthenticated::Unknown
        } else {
            Unauthenticated::NotReady { retry_after: SOON }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
