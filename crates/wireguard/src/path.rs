//! The way to a peer, as probes through the tunnel find it: whether it answers, how soon, how much is
//! lost, and how large packets may be.
//!
//! Each interface has one address of its own, which follows from its public key ([`address`]), and each
//! peer is allowed the address of its key: nobody has to hand addresses out. The kernel behind the tunnel
//! replies to probes, so a probe finds whether packets come through, whatever the agent there is doing.
//!
//! - [`DOWN_AFTER`] probes in a row without an answer: the way is down. [`UP_AFTER`] answers in a row: it
//!   is up again. A way of which nothing is known yet is up.
//! - The largest packet is searched from the interface's own size downwards, once small ones come
//!   through. What is dropped on the way with nobody saying so, an MTU black hole, is found so.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ipnet::{IpNet, Ipv6Net};
use tokio::time::Instant;

use crate::key::PublicKey;

/// `flwg0` in letters, behind the byte of addresses that are nobody's on the internet.
const PREFIX: [u8; 6] = [0xfd, b'f', b'l', b'w', b'g', b'0'];
const PREFIX_LENGTH: u8 = 48;
pub(crate) const DOWN_AFTER: u32 = 3;
pub(crate) const UP_AFTER: u32 = 10;
/// How many large probes of one size go unanswered before a smaller one is tried.
const SIZE_TRIES: u32 = 3;
/// What networks commonly leave of 1,500 bytes; the last fits wherever IPv6 does. WireGuard fills packets up
/// to a multiple of sixteen bytes.
const SIZES: [u32; 6] = [1_408, 1_392, 1_376, 1_344, 1_312, 1_280];
const SMALLEST: u32 = 1_280;
/// When the size is searched again: a way may get wider.
const SEARCH_AGAIN: Duration = Duration::from_secs(600);
/// How many of the last probes the loss is counted over.
const WINDOW: u32 = 32;
/// One of a few probes that is lost is not yet a loss to act on: what was not probed so often counts as if the
/// others had been answered.
const COUNTS: u32 = 10;

/// The address of an interface in the tunnel.
pub(crate) fn address(key: PublicKey) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets[..6].copy_from_slice(&PREFIX);
    octets[6..].copy_from_slice(&key.0[..10]);
    octets.into()
}

/// The address as a peer is allowed it.
pub(crate) fn allowed(key: PublicKey) -> IpNet {
    IpNet::from(IpAddr::from(address(key)))
}

/// The network of all such addresses.
pub(crate) fn network() -> IpNet {
    let mut octets = [0; 16];
    octets[..6].copy_from_slice(&PREFIX);
    IpNet::V6(Ipv6Net::new_assert(octets.into(), PREFIX_LENGTH))
}

pub(crate) fn is_probed(ip: &IpNet) -> bool {
    network().contains(ip)
}

/// What probes say of the way to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathStatus {
    /// Whether the last probes were not answered.
    pub down: bool,
    /// Of a hundred probes, so many were not answered; none before the first.
    pub loss: Option<u8>,
    pub round_trip: Option<Duration>,
    /// The largest packet that comes through; none before it is known.
    pub mtu: Option<u32>,
}

/// The state of one way.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    misses: u32,
    answers: u32,
    /// Whether it was ever answered: the first answer of all is believed at once.
    known: bool,
    down: bool,
    /// A bit for each of the last probes: one that was not answered is set.
    window: u32,
    counted: u32,
    round_trip: Option<Duration>,
    size: SizeSearch,
}

#[derive(Clone, Debug)]
struct SizeSearch {
    /// The size of the interface, which is tried first.
    most: u32,
    trying: u32,
    tries: u32,
    found: Option<u32>,
    at: Instant,
}

impl Path {
    pub(crate) fn new(mtu: u32, now: Instant) -> Self {
        let size = SizeSearch { most: mtu, trying: mtu, tries: 0, found: None, at: now };
        let (known, down) = (false, false);
        Self { misses: 0, answers: 0, known, down, window: 0, counted: 0, round_trip: None, size }
    }

    pub(crate) fn answered(&mut self, round_trip: Duration) {
        (self.misses, self.answers) = (0, self.answers.saturating_add(1));
        let was_away = self.down || !self.known;
        self.down &= self.known && self.answers < UP_AFTER;
        if was_away && !self.down {
            // What was lost while it was down, or before the first handshake, says nothing of how it is now.
            (self.window, self.counted) = (0, 0);
        }
        self.count(false);
        self.known = true;
        // As TCP does it: an eighth of what is new.
        self.round_trip = Some(match self.round_trip {
            Some(before) => (before * 7 + round_trip) / 8,
            None => round_trip,
        });
    }

    pub(crate) fn missed(&mut self) {
        self.count(true);
        (self.answers, self.misses) = (0, self.misses.saturating_add(1));
        self.down |= self.misses >= DOWN_AFTER;
    }

    fn count(&mut self, missed: bool) {
        self.window = (self.window << 1) | u32::from(missed);
        self.counted = (self.counted + 1).min(WINDOW);
    }

    /// The size of the large packet that should be sent now, if any.
    pub(crate) fn large(&self, now: Instant) -> Option<u32> {
        let answers = self.answers > 0 && !self.down;
        (answers && now >= self.size.at).then_some(self.size.trying)
    }

    pub(crate) fn large_answered(&mut self, size: u32, now: Instant) {
        let search = &mut self.size;
        if size == search.trying {
            search.found = Some(size);
            (search.trying, search.tries, search.at) = (search.most, 0, now + SEARCH_AGAIN);
        }
    }

    /// A large packet was not answered. That counts only if small ones are.
    pub(crate) fn large_missed(&mut self, size: u32, now: Instant) {
        let (answers, search) = (self.answers > 0, &mut self.size);
        if !answers || size != search.trying {
            return;
        }
        search.tries += 1;
        if search.tries < SIZE_TRIES {
            return;
        }
        search.tries = 0;
        match SIZES.into_iter().find(|smaller| *smaller < size) {
            Some(smaller) => search.trying = smaller,
            None => {
                search.found = Some(SMALLEST.min(search.most));
                (search.trying, search.at) = (search.most, now + SEARCH_AGAIN);
            }
        }
    }

    /// Whether there is something to find out soon.
    pub(crate) fn is_urgent(&self, now: Instant) -> bool {
        self.counted == 0 || self.misses > 0 || self.down || now >= self.size.at
    }

    pub(crate) fn is_up(&self) -> bool {
        self.known && !self.down
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down
    }

    /// The largest packet, if it is smaller than the interface's.
    pub(crate) fn narrow(&self) -> Option<u32> {
        self.size.found.filter(|found| *found < self.size.most)
    }

    pub(crate) fn status(&self) -> PathStatus {
        let missed = self.window & (u32::MAX >> (WINDOW - self.counted.max(1)));
        let loss = (self.counted > 0).then(|| missed.count_ones() * 100 / self.counted.max(COUNTS));
        PathStatus {
            down: self.down,
            loss: loss.map(|loss| loss as u8),
            round_trip: self.round_trip,
            mtu: self.size.found,
        }
    }
}

#[cfg(test)]
mod tests;
