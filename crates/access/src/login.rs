//! `LoginLimits`: how often a password may be tried.
//!
//! Contract:
//! - Attempts are counted before the password is checked, so that many at once do not pass the limit. A
//!   success gives the attempts of its user and address back.
//! - There are four limits: for one user from one address, for one address, for one user from anywhere,
//!   and for all. A refusal says when to come back.
//! - Nobody can lock a user out: attempts come back with time, and an address from which the user has
//!   logged in lately does not share the last two limits with attackers. Tokens and open sessions have
//!   no limits.
//! - Memory is bounded: four tables of [`KEYS`] entries, of fixed size, whatever names are tried.
//! - An IPv6 customer has a whole /64, which counts as one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use stallproof::TrackedMutex;
use tokio::time::Instant;

use crate::buckets::{Buckets, Rate};
use crate::secret::Fingerprint;

/// The entries of each table, which is about 2 MB.
pub const KEYS: usize = 16 * 1024;

const fn rate(burst: u32, seconds: u64) -> Rate {
    Rate { burst, every: Duration::from_secs(seconds) }
}

/// Enough for a user who mistypes, and 14,400 attempts a day for an attacker.
const PAIR: Rate = rate(5, 6);
/// Enough for an office behind one address.
const ADDRESS: Rate = rate(20, 3);
/// A botnet has 2,880 attempts a day against one user.
const USER: Rate = rate(20, 30);
/// A core checks about thirty passwords a second.
const IN_ALL: Rate = Rate { burst: 50, every: Duration::from_millis(100) };
/// How long the address of a login is remembered.
const KNOWN: Duration = Duration::from_secs(30 * 24 * 60 * 60);

type Pair = (Fingerprint, IpAddr);

#[derive(Debug)]
pub(crate) struct LoginLimits {
    pairs: Buckets<Pair>,
    addresses: Buckets<IpAddr>,
    users: Buckets<Fingerprint>,
    in_all: Buckets<()>,
    /// The addresses from which users have logged in, and when last. Successful logins write it.
    known: TrackedMutex<HashMap<Pair, Instant>>,
}

/// An attempt that was let through. It stays counted unless it is given back.
#[derive(Debug)]
pub(crate) struct LoginAttempt<'l> {
    limits: &'l LoginLimits,
    pair: Pair,
    shared: bool,
}

impl LoginLimits {
    pub(crate) fn new() -> Self {
        Self {
            pairs: Buckets::new(PAIR, KEYS),
            addresses: Buckets::new(ADDRESS, KEYS),
            users: Buckets::new(USER, KEYS),
            in_all: Buckets::new(IN_ALL, 1),
            known: TrackedMutex::new("access known addresses", HashMap::new()),
        }
    }

    /// Counts an attempt, or returns the time to come back after.
    pub(crate) fn attempt(&self, user: &str, from: IpAddr) -> Result<LoginAttempt<'_>, Duration> {
        let pair = (Fingerprint::of(user), network(from));
        let known = self.known.lock().get(&pair).is_some_and(|at| at.elapsed() < KNOWN);
        let attempt = LoginAttempt { limits: self, pair, shared: !known };
        self.pairs.take(&pair)?;
        self.addresses.take(&pair.1).inspect_err(|_| self.pairs.give_back(&pair))?;
        if attempt.shared {
            let private = |_: &Duration| {
                self.pairs.give_back(&pair);
                self.addresses.give_back(&pair.1);
            };
            self.users.take(&pair.0).inspect_err(private)?;
            self.in_all.take(&()).inspect_err(private).inspect_err(|_| {
                self.users.give_back(&pair.0);
            })?;
        }
        Ok(attempt)
    }
}

impl LoginAttempt<'_> {
    /// Reports that the password was right.
    pub(crate) fn succeeded(self) {
        let limits = self.limits;
        limits.pairs.reset(&self.pair);
        limits.users.reset(&self.pair.0);
        limits.addresses.give_back(&self.pair.1);
        let mut known = limits.known.lock();
        if known.len() >= KEYS && !known.contains_key(&self.pair) {
            let oldest = known.iter().min_by_key(|(_, at)| **at).map(|(pair, _)| *pair);
            oldest.map(|pair| known.remove(&pair));
        }
        known.insert(self.pair, Instant::now());
    }

    /// Gives the attempt back, because the password was not checked.
    pub(crate) fn did_not_happen(self) {
        let limits = self.limits;
        limits.pairs.give_back(&self.pair);
        limits.addresses.give_back(&self.pair.1);
        if self.shared {
            limits.users.give_back(&self.pair.0);
            limits.in_all.give_back(&());
        }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests;
