//! `Learned`: the addresses that names of a program's rules resolved to, each for as long as it lives.
//!
//! Contract: an address stays for [`GRACE`] beyond what its answer said, because pods connect at the end of
//! that time too, and for as long as a connection uses it. No clock: the time is passed in.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use policy::program::{Element, Program, Set, SetId, SetKind};
use policy::spec::domain_matches;

/// How long an address stays beyond its answer's time, or after it was seen in use.
pub(super) const GRACE: Duration = Duration::from_secs(60);
/// The longest time that an answer may ask for.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// So long before the end it is asked whether an address is in use.
pub(super) const BEFORE: Duration = Duration::from_secs(30);
/// The most addresses of one set. Past it, what ends first goes: a name that resolves to ever new
/// addresses must not fill the kernel's memory.
pub(super) const MOST: usize = 10_000;

/// An address for a set, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedAddress {
    pub set: SetId,
    pub address: IpAddr,
    pub lives: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Learned {
    /// The sets of names with what they resolved to, as a program's sets are.
    sets: BTreeMap<SetId, Set>,
    ends: BTreeMap<(SetId, IpAddr), Instant>,
}

impl Learned {
    /// The set with its addresses, if it is one of names.
    pub(super) fn set(&self, id: SetId) -> Option<&Set> {
        self.sets.get(&id)
    }

    /// Which sets of the program have to hold the addresses of a name.
    pub(super) fn wanted(
        program: &Program,
        name: &str,
        addresses: &[(IpAddr, Duration)],
    ) -> Vec<LearnedAddress> {
        let mut wanted = Vec::new();
        for (id, set) in &program.sets {
            let SetKind::Domains(patterns) = &set.kind else { continue };
            if !patterns.iter().any(|pattern| domain_matches(pattern, name)) {
                continue;
            }
            wanted.extend(addresses.iter().map(|(address, lives)| LearnedAddress {
                set: *id,
                address: *address,
                lives: (*lives).min(LONGEST) + GRACE,
            }));
        }
        wanted
    }

    pub(super) fn add(&mut self, learned: &[LearnedAddress], now: Instant) {
        for LearnedAddress { set, address, lives } in learned {
            let names = || Set::new(SetKind::Domains(Vec::new()));
            let known = self.sets.entry(*set).or_insert_with(names);
            known.elements.insert(Element::Address(*address));
            let end = self.ends.entry((*set, *address)).or_insert(now);
            *end = (*end).max(now + *lives);
        }
    }

    /// Whether there is room for one more address in the set.
    pub(super) fn has_room(&self, set: SetId) -> bool {
        self.sets.get(&set).is_none_or(|set| set.elements.len() < MOST)
    }

    /// Forgets what has ended and what no set of the program wants; returns what is about to end.
    pub(super) fn look_after(&mut self, program: &Program, now: Instant) -> Vec<(SetId, IpAddr)> {
        let is_wanted = |id: &SetId| program.sets.contains_key(id);
        let gone: Vec<_> = self
            .ends
            .iter()
            .filter(|((set, _), end)| **end <= now || !is_wanted(set))
            .map(|(key, _)| *key)
            .collect();
        for (set, address) in gone {
            self.ends.remove(&(set, address));
            if let Some(known) = self.sets.get_mut(&set) {
                known.elements.remove(&Element::Address(address));
            }
        }
        self.sets.retain(|_, set| !set.elements.is_empty());
        let ending = self.ends.iter().filter(|(_, end)| **end <= now + BEFORE);
        ending.map(|(key, _)| *key).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests;
