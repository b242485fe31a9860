//! What each user has open at the socket: bounded, so that one person's pages, or one person's program,
//! leave room for everybody else's.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use stallproof::TrackedMutex;

use crate::api::{ErrorCode, Problem};

/// Sockets of one user: one for each browser, and some programs.
pub(super) const SOCKETS: usize = 32;
/// Subscriptions of one user, over all sockets.
pub(super) const PER_USER: usize = 256;

/// Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct UserShares(Arc<TrackedMutex<HashMap<Arc<str>, Share>>>);

#[derive(Debug, Default)]
struct Share {
    sockets: usize,
    subscriptions: usize,
}

impl Default for UserShares {
    fn default() -> Self {
        Self(Arc::new(TrackedMutex::new("socket-shares", HashMap::new())))
    }
}

/// One socket or subscription of a user; dropping it gives the place back.
#[derive(Debug)]
pub(super) struct UserPlace {
    shares: UserShares,
    user: Arc<str>,
    count: fn(&mut Share) -> &mut usize,
}

impl UserShares {
    pub(super) fn socket(&self, user: &Arc<str>) -> Result<UserPlace, Problem> {
        self.take(user, |share| &mut share.sockets, SOCKETS, "sockets")
    }

    pub(super) fn subscription(&self, user: &Arc<str>) -> Result<UserPlace, Problem> {
        self.take(user, |share| &mut share.subscriptions, PER_USER, "subscriptions")
    }

    fn take(
        &self,
        user: &Arc<str>,
        count: fn(&mut Share) -> &mut usize,
        most: usize,
        what: &str,
    ) -> Result<UserPlace, Problem> {
        let mut shares = self.0.lock();
        let taken = count(shares.entry(Arc::clone(user)).or_default());
        if *taken >= most {
            let detail = format!("{user} has {most} {what} open already; close some");
            return Err(
                Problem::new(ErrorCode::Overloaded, detail).come_back(Duration::from_secs(5))
            );
        }
        *taken += 1;
        Ok(UserPlace { shares: self.clone(), user: Arc::clone(user), count })
    }
}

impl Drop for UserPlace {
    fn drop(&mut self) {
        let mut shares = self.shares.0.lock();
        if let Some(share) = shares.get_mut(&self.user) {
            *(self.count)(share) -= 1;
            if share.sockets == 0 && share.subscriptions == 0 {
                shares.remove(&self.user);
            }
        }
    }
}
