//! Sessions of browsers and command lines that have logged in.
//!
//! Contract:
//! - The cookie is 256 random bits; its SHA-256 is kept in memory. A restart ends every session. A command
//!   line has a pair of tokens instead, which it exchanges for the next pair ([`rotation`]).
//! - Finding a session reads a snapshot and never waits. A session ends some time after its last use
//!   ([`IDLE`], [`CLI_IDLE`]), some time after it was opened ([`LONGEST`], [`CLI_LONGEST`]), at logout, and
//!   when its user is disabled, deleted or has a new password: each use compares the account's stamp with
//!   the session's. What an identity provider no longer vouches for ends as well.
//! - There are at most [`PER_USER`] sessions of a user and [`IN_ALL`] altogether; the one that was idle
//!   longest makes room.
//! - A form of another site may send the cookie, but cannot read the CSRF token, which is sent in a
//!   header. The token is a hash of the cookie, so that it need not be kept.

pub(crate) mod rotation;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use stallproof::{Map, Snapshot};
use tokio::time::Instant;

use crate::identity::SessionId;
use crate::oidc::Grant;
use crate::secret::{Fingerprint, Secret, random};
use rotation::{CliCredential, Rotation, TokenKind};

pub const IDLE: Duration = Duration::from_secs(2 * 60 * 60);
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// A command line is used in bursts, days apart.
pub const CLI_IDLE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
pub const CLI_LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The longest session of a user whose provider gives nothing to ask it with again.
pub const UNCHECKED: Duration = Duration::from_secs(60 * 60);
/// A user's browsers, with room for forgotten sessions.
pub const PER_USER: usize = 16;
/// Each takes about 300 bytes.
pub const IN_ALL: usize = 10_000;

/// A session that was just opened, with its cookie, which is not kept.
#[derive(Debug)]
pub struct OpenedSession {
    pub user: Arc<str>,
    pub id: SessionId,
    /// The value of the cookie.
    pub cookie: Secret,
    /// The token that a request that writes must have in its header.
    pub csrf: Secret,
    /// How long the cookie can be valid.
    pub lasts: Duration,
}

/// A session as its user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    pub id: SessionId,
    pub from: IpAddr,
    pub age: Duration,
    pub idle: Duration,
    /// Whether it is a command line's.
    pub cli: bool,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    began: Instant,
    alive: Snapshot<LiveSessions>,
}

/// Sessions by the hash of their cookie, and the hashes of each user.
#[derive(Clone, Debug, Default)]
struct LiveSessions {
    sessions: Map<Fingerprint, Arc<Session>>,
    users: Map<Arc<str>, Vec<Fingerprint>>,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) user: Arc<str>,
    pub(crate) stamp: Fingerprint,
    /// What the user's identity provider gave for this session.
    pub(crate) grant: Option<Grant>,
    /// The tokens of a command line; a browser has a cookie.
    rotation: Option<Rotation>,
    from: IpAddr,
    opened: Duration,
    idle: Duration,
    longest: Duration,
    /// The last use, in milliseconds since `Sessions` began. Every use writes it; making room reads it.
    used: AtomicU64,
    /// The last use or the last look of an open stream, in the same milliseconds.
    looked: AtomicU64,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), alive: Snapshot::default() }
    }

    /// Opens a session with the account's present stamp.
    pub(crate) fn open(
        &self,
        user: &Arc<str>,
        stamp: Fingerprint,
        grant: Option<Grant>,
        from: IpAddr,
    ) -> OpenedSession {
        let cookie = Secret::random();
        let key = Fingerprint::of(cookie.expose());
        let session = self.insert(key, (user, stamp), grant, None, from);
        let csrf = csrf_of(cookie.expose());
        let lasts = session.longest;
        OpenedSession { user: Arc::clone(user), id: session.id, cookie, csrf, lasts }
    }

    /// Opens a session of a command line.
    pub(crate) fn open_cli(
        &self,
        user: &Arc<str>,
        stamp: Fingerprint,
        grant: Option<Grant>,
        from: IpAddr,
    ) -> CliCredential {
        let (key, rotation) = (Fingerprint::of_bytes(&random::<32>()), Rotation::new());
        let session = self.insert(key, (user, stamp), grant, Some(rotation), from);
        self.issue(&session, 0)
    }

    fn insert(
        &self,
        key: Fingerprint,
        (user, stamp): (&Arc<str>, Fingerprint),
        grant: Option<Grant>,
        rotation: Option<Rotation>,
        from: IpAddr,
    ) -> Arc<Session> {
        let now = self.now();
        let (idle, longest) =
            if rotation.is_some() { (CLI_IDLE, CLI_LONGEST) } else { (IDLE, LONGEST) };
        let unchecked = grant.as_ref().is_some_and(|grant| !grant.can_be_checked());
        let session = Arc::new(Session {
            id: SessionId(key),
            user: Arc::clone(user),
            stamp,
            grant,
            rotation,
            from,
            opened: now,
            idle,
            longest: if unchecked { UNCHECKED } else { longest },
            used: AtomicU64::new(millis(now)),
            looked: AtomicU64::new(millis(now)),
        });
        self.alive.update(|alive| {
            alive.make_room_for(user, now);
            alive.insert(Arc::clone(&session));
            true
        });
        session
    }

    fn issue(&self, session: &Session, generation: u64) -> CliCredential {
        let rotation = session.rotation.as_ref().expect("a command line's session");
        rotation.issue(session.id, &session.user, generation, self.now())
    }

    /// Returns the session of a command line's access token, which counts as a use.
    pub(crate) fn by_access_token(&self, text: &str) -> Option<Arc<Session>> {
        let (id, until, proof) = rotation::parse(TokenKind::Access, text)?;
        let session = self.alive(SessionId(id))?;
        let proven = session.rotation.as_ref()?.proves(TokenKind::Access, until, proof);
        if !proven || Duration::from_millis(until) <= self.now() {
            return None;
        }
        session.used.fetch_max(millis(self.now()), Relaxed);
        Some(session)
    }

    /// Exchanges a refresh token for the next pair. One that was exchanged before was stolen, by whoever
    /// comes now or by whoever came then: its session ends.
    pub(crate) fn rotate(&self, text: &str) -> Option<(CliCredential, Arc<Session>)> {
        let (id, generation, proof) = rotation::parse(TokenKind::Refresh, text)?;
        let session = self.alive(SessionId(id))?;
        let rotation = session.rotation.as_ref()?;
        if !rotation.proves(TokenKind::Refresh, generation, proof) {
            return None;
        }
        if !rotation.advance(generation) {
            tracing::warn!(
                user = %session.user, session = %session.id,
                "a refresh token was used twice: its session is ended"
            );
            self.end(session.id);
            return None;
        }
        session.used.fetch_max(millis(self.now()), Relaxed);
        Some((self.issue(&session, generation + 1), session))
    }

    /// Returns a session by any of its command line's tokens, however old, to end it.
    pub(crate) fn by_refresh_token(&self, text: &str) -> Option<SessionId> {
        let (id, generation, proof) = rotation::parse(TokenKind::Refresh, text)?;
        let session = self.alive(SessionId(id))?;
        let proven = session.rotation.as_ref()?.proves(TokenKind::Refresh, generation, proof);
        proven.then_some(session.id)
    }

    /// Returns the session of a cookie, which counts as a use.
    pub(crate) fn find(&self, cookie: &str) -> Option<Arc<Session>> {
        self.alive(SessionId(Fingerprint::of(cookie))).inspect(|session| {
            session.used.fetch_max(millis(self.now()), Relaxed);
        })
    }

    /// Notes a use of the session, by what is not its cookie.
    pub(crate) fn used(&self, id: SessionId) {
        if let Some(session) = self.alive(id) {
            session.used.fetch_max(millis(self.now()), Relaxed);
        }
    }

    /// As `alive`, for a stream that is open: its user is active.
    pub(crate) fn look(&self, id: SessionId) -> Option<Arc<Session>> {
        self.alive(id).inspect(|session| {
            session.looked.fetch_max(millis(self.now()), Relaxed);
        })
    }

    /// The sessions whose users were active within this time, of those that a provider vouches for.
    pub(crate) fn active_with_grant(&self, within: Duration) -> Vec<Arc<Session>> {
        let now = self.now();
        let alive = self.alive.load();
        let active = |session: &&Arc<Session>| {
            let last = session.last_use().max(Duration::from_millis(session.looked.load(Relaxed)));
            session.grant.is_some() && session.is_alive(now) && now < last + within
        };
        alive.sessions.values().filter(active).cloned().collect()
    }

    /// Whether the user has a session that has not ended.
    pub(crate) fn has_any(&self, user: &str) -> bool {
        let now = self.now();
        self.alive.read(|alive| alive.of(user).any(|session| session.is_alive(now)))
    }

    /// Returns a session that has not ended, without using it.
    pub(crate) fn alive(&self, id: SessionId) -> Option<Arc<Session>> {
        let session = self.alive.read(|alive| alive.sessions.get(&id.0).cloned())?;
        session.is_alive(self.now()).then_some(session)
    }

    pub(crate) fn of(&self, user: &str) -> Vec<SessionView> {
        let now = self.now();
        let alive = self.alive.load();
        let own = alive.of(user).filter(|session| session.is_alive(now));
        own.map(|session| SessionView {
            id: session.id,
            from: session.from,
            age: now.saturating_sub(session.opened),
            idle: now.saturating_sub(session.last_use()),
            cli: session.rotation.is_some(),
        })
        .collect()
    }

    /// Ends a session, and returns whether it existed.
    pub(crate) fn end(&self, id: SessionId) -> bool {
        self.alive.update(|alive| alive.remove(&id.0))
    }

    pub(crate) fn end_all_of(&self, user: &str) {
        self.alive.update(|alive| {
            let own: Vec<_> = alive.of(user).map(|session| session.id.0).collect();
            own.iter().for_each(|key| {
                alive.remove(key);
            });
            !own.is_empty()
        });
    }

    /// Ends the sessions for which `holds` returns false.
    pub(crate) fn keep(&self, holds: impl Fn(&Session) -> bool) {
        self.alive.update(|alive| alive.keep(|session| holds(session)));
    }

    pub(crate) fn count(&self) -> usize {
        self.alive.read(|alive| alive.sessions.len())
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl LiveSessions {
    fn of(&self, user: &str) -> impl Iterator<Item = &Arc<Session>> {
        let own = self.users.get(user).map(Vec::as_slice).unwrap_or_default();
        own.iter().filter_map(|key| self.sessions.get(key))
    }

    fn insert(&mut self, session: Arc<Session>) {
        self.users.entry(Arc::clone(&session.user)).or_default().push(session.id.0);
        self.sessions.insert(session.id.0, session);
    }

    fn remove(&mut self, key: &Fingerprint) -> bool {
        let Some(session) = self.sessions.remove(key) else {
            return false;
        };
        if let Some(own) = self.users.get_mut(&session.user) {
            own.retain(|other| other != key);
            if own.is_empty() {
                self.users.remove(&session.user);
            }
        }
        true
    }

    /// Removes ended sessions first. All sessions are checked only when there are too many altogether.
    fn make_room_for(&mut self, user: &str, now: Duration) {
        let dead = self.of(user).filter(|session| !session.is_alive(now));
        let dead: Vec<_> = dead.map(|session| session.id.0).collect();
        dead.iter().for_each(|key| {
            self.remove(key);
        });
        let idlest = if self.of(user).count() >= PER_USER {
            idlest(self.of(user))
        } else if self.sessions.len() >= IN_ALL && !self.keep(|session| session.is_alive(now)) {
            idlest(self.sessions.values())
        } else {
            None
        };
        idlest.map(|key| self.remove(&key));
    }

    /// Returns whether any was removed.
    fn keep(&mut self, holds: impl Fn(&Session) -> bool) -> bool {
        let void = self.sessions.values().filter(|session| !holds(session));
        let void: Vec<_> = void.map(|session| session.id.0).collect();
        void.iter().for_each(|key| {
            self.remove(key);
        });
        !void.is_empty()
    }
}

impl Session {
    fn is_alive(&self, now: Duration) -> bool {
        now < self.opened + self.longest && now < self.last_use() + self.idle
    }

    fn last_use(&self) -> Duration {
        Duration::from_millis(self.used.load(Relaxed))
    }
}

/// Returns the CSRF token of a cookie.
pub fn csrf_of(cookie: &str) -> Secret {
    Secret::new(Fingerprint::of_all(&["fairlead csrf", cookie]).to_base64())
}

fn idlest<'a>(sessions: impl Iterator<Item = &'a Arc<Session>>) -> Option<Fingerprint> {
    sessions.min_by_key(|session| session.last_use()).map(|session| session.id.0)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
