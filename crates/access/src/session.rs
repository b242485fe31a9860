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

use flow::{Map, Snapshot};
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
    alive: Snapshot<Map<Fingerprint, Arc<Session>>>,
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
            alive.retain(|_, session| session.is_alive(now));
            let own: Vec<_> = alive.values().filter(|session| session.user == *user).collect();
            let idlest = if own.len() >= PER_USER {
                idlest(own.into_iter())
            } else if alive.len() >= IN_ALL {
                idlest(alive.values())
            } else {
                None
            };
            if let Some(key) = idlest {
                alive.remove(&key);
            }
            alive.insert(key, Arc::clone(&session));
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
        let session = self.alive.read(|alive| alive.get(&id.0).cloned())?;
        session.is_alive(self.now()).then_some(session)
    }

    pub(crate) fn of(&self, user: &str) -> Vec<SessionView> {
        let now = self.now();
        let alive = self.alive.load();
        let own = alive.values().filter(|session| &*session.user == user && session.is_alive(now));
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
        self.alive.update(|alive| alive.remove(&id.0).is_some())
    }

    pub(crate) fn end_all_of(&self, user: &str) {
        self.keep(|session| &*session.user != user);
    }

    /// Ends those for which `holds` says no.
    pub(crate) fn keep(&self, holds: impl Fn(&Session) -> bool) {
        self.alive.update(|alive| {
            let before = alive.len();
            alive.retain(|_, session| holds(session));
            alive.len() != before
        });
    }

    pub(crate) fn count(&self) -> usize {
        self.alive.read(Map::len)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
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
