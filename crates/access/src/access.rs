//! `Access`: who is asking, and may they?
//!
//! Contract:
//! - Telling who somebody is by token or session, and every decision, reads one snapshot: no lock, no
//!   I/O. Only a login by password takes time.
//! - A change in the store holds for the very next request after the watch has told it, also for
//!   those who are logged in. While the store cannot be reached, what it said last holds.
//! - Until all users, roles and tokens have been read once, nobody is refused as unknown: they are
//!   told to come back.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use objects::kinds::{AccessRole, AccessToken, User};
use objects::{Index, Kind, Objects, Within};
use prometheus_client::registry::Registry;
use stallproof::readiness::Component;
use stallproof::{Deadline, Readiness, Snapshot, Tasks};
use tokio::sync::Semaphore;

use crate::administration::Administration;
use crate::code::Codes;
use crate::directory::{Account, Directory};
use crate::local::LocalToken;
use crate::login::Limits;
use crate::metrics::Metrics;
use crate::password::{NoVerdict, Passwords};
use crate::role::{Ask, Decision, Permissions, decide};
use crate::secret::{Fingerprint, Secret};
use crate::session::{Opened, SessionView, Sessions};
use crate::token;
use crate::who::{LOCAL, SessionId, Via, Who};

/// Clones share everything.
#[derive(Clone, Debug)]
pub struct Access(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) objects: Objects,
    pub(crate) directory: Snapshot<Directory>,
    pub(crate) sessions: Sessions,
    pub(crate) passwords: Passwords,
    /// One at a time: the changes that could take the last administrator away.
    pub(crate) last_admin: Semaphore,
    codes: Codes,
    limits: Limits,
    local: Option<Fingerprint>,
    metrics: Metrics,
}

/// Why somebody is nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// No such token or session, or no longer.
    #[error("log in, or send a valid token")]
    Unknown,
    #[error("users are still being read; come back in {retry_after:?}")]
    NotReady { retry_after: Duration },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The same for a wrong password, a user who is not there, and one who is disabled.
    #[error("wrong user or password")]
    Wrong,
    #[error("this login link was used already or is too old; ask for a new one")]
    BadCode,
    #[error("a token opens no sessions; log in with a password")]
    ByToken,
    #[error("too many tries; come back in {retry_after:?}")]
    Limited { retry_after: Duration },
    #[error(transparent)]
    NoVerdict(#[from] NoVerdict),
    #[error("users are still being read; come back in {retry_after:?}")]
    NotReady { retry_after: Duration },
}

/// When to ask again while users are being read.
const SOON: Duration = Duration::from_secs(1);

impl Access {
    /// Watches users, roles and tokens from now on. Without a local token nobody is `local`.
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
            codes: Codes::new(),
            limits: Limits::new(),
            local: local.map(LocalToken::fingerprint),
            metrics: Metrics::default(),
            objects,
        }));
        let ready = Arc::new(readiness.announce("access"));
        ready.not_ready("users, roles and tokens are being read");
        access.follow::<User>(tasks, &ready);
        access.follow::<AccessRole>(tasks, &ready);
        access.follow::<AccessToken>(tasks, &ready);
        access
    }

    fn follow<K: Kind>(&self, tasks: &Tasks, ready: &Arc<Component>)
    where
        Directory: Index<K>,
    {
        let (access, ready, stop) = (self.clone(), Arc::clone(ready), tasks.stopping());
        let mut watch = self.0.objects.watch::<K>(Within::default());
        // Without its watch a revocation would never arrive: the group must not go on.
        tasks.spawn_essential(format!("access watches {}", K::NAME), async move {
            while let Some(Some(event)) = stop.bound(watch.next()).await {
                access.0.directory.update(|directory| event.apply_to(directory));
                // Void sessions end for good: a user who is disabled and enabled again logs in again.
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

    /// Who sent this API token, or the local one.
    pub fn by_token(&self, text: &str) -> Result<Who, Unauthenticated> {
        if !token::looks_like_one(text) {
            return Err(Unauthenticated::Unknown);
        }
        let fingerprint = Fingerprint::of(text);
        if self.0.local == Some(fingerprint) {
            return Ok(Who { user: LOCAL.into(), via: Via::Local });
        }
        let who = self.0.directory.read(|directory| {
            let (token, account) = directory.by_token(fingerprint, Timestamp::now())?;
            Some(Who { user: Arc::clone(&account.name), via: Via::Token(Arc::clone(&token.id)) })
        });
        who.ok_or_else(|| self.unknown())
    }

    /// Who sent this session cookie. A request that writes must bring `csrf_of(cookie)` too.
    pub fn by_session(&self, cookie: &str) -> Result<Who, Unauthenticated> {
        let session = self.0.sessions.find(cookie).ok_or(Unauthenticated::Unknown)?;
        let who = Who { user: Arc::clone(&session.user), via: Via::Session(session.id) };
        if self.holds(&session.user, session.stamp) { Ok(who) } else { Err(self.unknown()) }
    }

    /// Whether who was somebody is so still: for streams, which outlive their request's check.
    pub fn is_still(&self, who: &Who) -> bool {
        match &who.via {
            // A replica vouches for others than `local`, whom it passes on to us.
            Via::Local => {
                self.0.local.is_some()
                    && self.0.directory.read(|directory| directory.active(&who.user).is_some())
            }
            Via::Session(id) => self.0.sessions.alive(*id).is_some_and(|session| {
                session.user == who.user && self.holds(&session.user, session.stamp)
            }),
            Via::Token(id) => self.0.directory.read(|directory| {
                let token = directory.token(id);
                token.is_some_and(|token| {
                    *token.token.spec.user == *who.user
                        && directory.is_valid(token, Timestamp::now())
                })
            }),
        }
    }

    /// Opens a session for who knows the password.
    pub async fn login(
        &self,
        user: &str,
        password: Secret,
        from: IpAddr,
        deadline: Deadline,
    ) -> Result<Opened, LoginError> {
        let outcome = self.try_login(user, password, from, deadline).await;
        self.0.metrics.login(&outcome);
        outcome
    }

    async fn try_login(
        &self,
        user: &str,
        password: Secret,
        from: IpAddr,
        deadline: Deadline,
    ) -> Result<Opened, LoginError> {
        let account = self.check_password(user, password, from, deadline).await?;
        self.open(&account.name, account.stamp, from).ok_or(LoginError::Wrong)
    }

    /// None when the user has changed meanwhile. Looked at once it is open: whoever ends void
    /// sessions later than that finds it.
    fn open(&self, user: &Arc<str>, stamp: Fingerprint, from: IpAddr) -> Option<Opened> {
        let opened = self.0.sessions.open(user, stamp, from);
        if self.holds(user, stamp) {
            return Some(opened);
        }
        self.0.sessions.end(opened.id);
        None
    }

    /// The user whose password it is.
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
            (Err(no_verdict), _) => {
                attempt.did_not_happen();
                Err(no_verdict.into())
            }
        }
    }

    /// A code for a login link that opens a session as `who` in a browser, once, soon. Not for who
    /// came by an API token: a session can do more, and must not be had by stealing a token.
    pub fn login_code(&self, who: &Who) -> Result<Secret, LoginError> {
        if matches!(who.via, Via::Token(_)) {
            return Err(LoginError::ByToken);
        }
        let account = self.0.directory.read(|directory| directory.active(&who.user).cloned());
        let account = account.filter(|_| self.is_still(who)).ok_or(LoginError::Wrong)?;
        Ok(self.0.codes.issue(&account.name, account.stamp))
    }

    /// A code for the link that is printed at the start, as `local`. None without a local token.
    pub fn local_login_code(&self) -> Option<Secret> {
        self.login_code(&Who { user: LOCAL.into(), via: Via::Local }).ok()
    }

    /// Opens a session for who brings the code of a login link.
    pub fn redeem(&self, code: &str, from: IpAddr) -> Result<Opened, LoginError> {
        let code = self.0.codes.redeem(code);
        let opened = code.and_then(|code| self.open(&code.user, code.stamp, from));
        let opened = opened.ok_or(LoginError::BadCode);
        self.0.metrics.login(&opened);
        opened
    }

    pub fn logout(&self, cookie: &str) {
        self.0.sessions.end(SessionId(Fingerprint::of(cookie)));
    }

    /// The sessions of `who`, to look through and end.
    pub fn sessions(&self, who: &Who) -> Vec<SessionView> {
        self.0.sessions.of(&who.user)
    }

    /// Ends one of the sessions of `who`; says whether it was there.
    pub fn end_session(&self, who: &Who, id: &str) -> bool {
        let own = self.0.sessions.of(&who.user);
        let found = own.iter().find(|session| session.id.to_string() == id);
        found.is_some_and(|session| self.0.sessions.end(session.id))
    }

    /// What `who` may do at this moment. For a whole listing take them once; a stream takes them
    /// anew as it goes.
    pub fn permissions(&self, who: &Who) -> Arc<Permissions> {
        self.0.directory.read(|directory| {
            let account = directory.active(&who.user);
            account.map(|account| Arc::clone(&account.permissions)).unwrap_or_default()
        })
    }

    /// May they? Refusals are counted.
    pub fn decide(&self, who: &Who, ask: &Ask<'_>) -> Decision {
        let decision = self.0.directory.read(|directory| {
            let account = directory.active(&who.user);
            account.map_or(Decision::NotAllowed, |account| decide(&account.permissions, ask))
        });
        self.0.metrics.decided(&decision);
        decision
    }

    /// If not, the answer is that there is no such cluster.
    pub fn may_see_cluster(&self, who: &Who, cluster: &str) -> bool {
        self.permissions(who).may_see_cluster(cluster)
    }

    /// If not, the answer is that there is no such namespace.
    pub fn may_see_namespace(&self, who: &Who, cluster: &str, namespace: &str) -> bool {
        self.permissions(who).may_see_namespace(cluster, namespace)
    }

    /// Users, roles and tokens, as far as `who` may administer them.
    pub fn administer<'a>(&'a self, who: &'a Who) -> Administration<'a> {
        Administration::new(self, who)
    }

    pub fn register(&self, registry: &mut Registry) {
        let access = self.clone();
        self.0.metrics.register(registry, move || access.0.sessions.count());
    }

    /// Whether the user is active and has not changed since `stamp` was taken.
    fn holds(&self, user: &str, stamp: Fingerprint) -> bool {
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
