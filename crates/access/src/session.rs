//! Sessions: a browser that has logged in.
//!
//! Contract:
//! - The cookie is 256 random bits; what is kept is its SHA-256, in memory: a restart ends every
//!   session, and people log in again.
//! - Finding one is a snapshot read and never waits. It ends [`IDLE`] after its last use, [`LONGEST`]
//!   after it was opened, at logout, and when its user is disabled, deleted or has a new password:
//!   each use compares the account's stamp with the one it was opened under.
//! - At most [`PER_USER`] of a user and [`IN_ALL`] live; the one that was idle longest makes room.
//! - A form of another site may send the cookie along, but cannot read the CSRF token, which goes in
//!   a header. It is derived from the cookie, one way, so there is nothing to keep for it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use stallproof::{Map, Snapshot};
use tokio::time::Instant;

use crate::secret::{Fingerprint, Secret};
use crate::who::SessionId;

pub const IDLE: Duration = Duration::from_secs(2 * 60 * 60);
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// A person's browsers, with room for the forgotten ones.
pub const PER_USER: usize = 16;
/// About 300 bytes each.
pub const IN_ALL: usize = 10_000;

/// A session that was just opened: the only time its cookie is there.
#[derive(Debug)]
pub struct Opened {
    pub user: Arc<str>,
    pub id: SessionId,
    /// The value of the cookie.
    pub cookie: Secret,
    /// What a request that writes must bring in its header.
    pub csrf: Secret,
    /// The longest the cookie can be of use.
    pub lasts: Duration,
}

/// A session, for its owner to recognise.
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
    alive: Snapshot<Alive>,
}

/// By cookie, and which of them are a user's.
#[derive(Clone, Debug, Default)]
struct Alive {
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
    /// Milliseconds since `Sessions` began. Written by every use, read by who makes room.
    used: AtomicU64,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), alive: Snapshot::default() }
    }

    /// Opens one under the account's present stamp.
    pub(crate) fn open(&self, user: &Arc<str>, stamp: Fingerprint, from: IpAddr) -> Opened {
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
        Opened { user: Arc::clone(user), id: session.id, cookie, csrf, lasts: LONGEST }
    }

    /// The session of a cookie; that counts as a use.
    pub(crate) fn find(&self, cookie: &str) -> Option<Arc<Session>> {
        self.alive(SessionId(Fingerprint::of(cookie))).inspect(|session| {
            session.used.fetch_max(millis(self.now()), Relaxed);
        })
    }

    /// Without using it.
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

    /// Says whether it was there.
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

    /// Ends those for which `holds` says no.
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

impl Alive {
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

    /// The dead go first. All are looked at only when there are too many in all.
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

    /// Says whether any went.
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

/// The CSRF token of a cookie.
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
