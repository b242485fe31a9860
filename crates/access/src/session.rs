//! Sessions of browsers that have logged in.
//!
//! Contract:
//! - The cookie is 256 random bits; its SHA-256 is kept in memory. A restart ends every session.
//! - Finding a session reads a snapshot and never waits. A session ends [`IDLE`] after its last use,
//!   [`LONGEST`] after it was opened, at logout, and when its user is disabled, deleted or has a new
//!   password: each use compares the account's stamp with the session's.
//! - There are at most [`PER_USER`] sessions of a user and [`IN_ALL`] altogether; the one that was idle
//!   longest makes room.
//! - A form of another site may send the cookie, but cannot read the CSRF token, which is sent in a
//!   header. The token is a hash of the cookie, so that it need not be kept.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use stallproof::{Map, Snapshot};
use tokio::time::Instant;

use crate::identity::SessionId;
use crate::secret::{Fingerprint, Secret};

pub const IDLE: Duration = Duration::from_secs(2 * 60 * 60);
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
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
    from: IpAddr,
    opened: Duration,
    /// The last use, in milliseconds since `Sessions` began. Every use writes it; making room reads it.
    used: AtomicU64,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), alive: Snapshot::default() }
    }

    /// Opens a session with the account's present stamp.
    pub(crate) fn open(&self, user: &Arc<str>, stamp: Fingerprint, from: IpAddr) -> OpenedSession {
        let cookie = Secret::random();
        let key = Fingerprint::of(cookie.expose());
        let now = self.now();
        let session = Arc::new(Session {
            id: SessionId(key),
            user: Arc::clone(user),
            stamp,
            from,
            opened: now,
            used: AtomicU64::new(millis(now)),
        });
        self.alive.update(|alive| {
            alive.make_room_for(user, now);
            alive.insert(Arc::clone(&session));
            true
        });
        let csrf = csrf_of(cookie.expose());
        OpenedSession { user: Arc::clone(user), id: session.id, cookie, csrf, lasts: LONGEST }
    }

    /// Returns the session of a cookie, which counts as a use.
    pub(crate) fn find(&self, cookie: &str) -> Option<Arc<Session>> {
        self.alive(SessionId(Fingerprint::of(cookie))).inspect(|session| {
            session.used.fetch_max(millis(self.now()), Relaxed);
        })
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
        now < self.opened + LONGEST && now < self.last_use() + IDLE
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
