//! Login limits: how often a password may be tried.
//!
//! Contract:
//! - Tries are counted before the password is looked at, so that many at once are no way round.
//!   A success gives the tries of its user and address back.
//! - Four limits: of one user from one address, of one address, of one user from anywhere, and in all.
//!   Who is refused is told when to come back.
//! - Nobody can lock a user out: the limits heal with time whatever is tried; and an address from
//!   which the user has logged in lately does not share the last two limits with the attackers.
//!   Tokens and open sessions are not limited.
//! - Memory is bounded: four tables of [`KEYS`] entries, of fixed size, whatever names are tried.
//! - An IPv6 customer has a whole /64, so that counts as one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use stallproof::TrackedMutex;
use tokio::time::Instant;

use crate::buckets::{Buckets, Rate};
use crate::secret::Fingerprint;

/// Of each table: about 2 MB.
pub const KEYS: usize = 16 * 1024;

const fn rate(burst: u32, seconds: u64) -> Rate {
    Rate { burst, every: Duration::from_secs(seconds) }
}

/// A person who mistypes, and then one who guesses: 14,400 tries a day.
const PAIR: Rate = rate(5, 6);
/// An office behind one address.
const ADDRESS: Rate = rate(20, 3);
/// A botnet against one user: 2,880 tries a day.
const USER: Rate = rate(20, 30);
/// A core does about thirty a second.
const IN_ALL: Rate = Rate { burst: 50, every: Duration::from_millis(100) };
/// How long an address stays known to be a user's.
const KNOWN: Duration = Duration::from_secs(30 * 24 * 60 * 60);

type Pair = (Fingerprint, IpAddr);

#[derive(Debug)]
pub(crate) struct Limits {
    pairs: Buckets<Pair>,
    addresses: Buckets<IpAddr>,
    users: Buckets<Fingerprint>,
    in_all: Buckets<()>,
    /// From where users have logged in, and when last. Written by successes.
    known: TrackedMutex<HashMap<Pair, Instant>>,
}

/// A try that was let through. Dropped, it stays counted.
#[derive(Debug)]
pub(crate) struct Try<'l> {
    limits: &'l Limits,
    pair: Pair,
    shared: bool,
}

impl Limits {
    pub(crate) fn new() -> Self {
        Self {
            pairs: Buckets::new(PAIR, KEYS),
            addresses: Buckets::new(ADDRESS, KEYS),
            users: Buckets::new(USER, KEYS),
            in_all: Buckets::new(IN_ALL, 1),
            known: TrackedMutex::new("access known addresses", HashMap::new()),
        }
    }

    /// Counts a try, or says when to come back.
    pub(crate) fn attempt(&self, user: &str, from: IpAddr) -> Result<Try<'_>, Duration> {
        let pair = (Fingerprint::of(user), network(from));
        let known = self.known.lock().get(&pair).is_some_and(|at| at.elapsed() < KNOWN);
        let attempt = Try { limits: self, pair, shared: !known };
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

impl Try<'_> {
    /// It was the right password.
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

    /// The password was not looked at: nothing was tried.
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
