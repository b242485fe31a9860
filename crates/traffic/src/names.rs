//! `Names`: which names resolved to which addresses, as the agents of nodes that enforce rules by name told.
//!
//! Contract:
//! - What an agent told counts for connections of pods on its own node, at once: a judgement that is made after
//!   [`Names::tell`] knows of it.
//! - A name stays for [`KEPT`] after it was last told, so that a conversation is judged the same while it is
//!   kept. Of one node [`MOST`] addresses are kept; the one that was told longest ago makes room.
//! - Of a node that told nothing it is said that nothing is known: that is another thing than no name.
//!
//! Agents write it, judgements read it; neither waits for the other. Clones are the same.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use stallproof::{Map, Snapshot};

use crate::conversations::{Moment, ResolvedName};

/// How long a name stays after it was last told. Agents tell again sooner, and a conversation that nothing was
/// heard of for a day is folded.
const KEPT: Duration = Duration::from_secs(26 * 60 * 60);
/// The most addresses of one node.
const MOST: usize = 8192;
/// The most names of one address: those of a content network are many, and rules have few.
const MOST_NAMES: usize = 32;

#[derive(Clone, Debug, Default)]
pub struct Names(Snapshot<Map<Arc<str>, NodeNames>>);

/// What one node resolved.
#[derive(Clone, Debug, Default)]
struct NodeNames(Map<IpAddr, Arc<NamesOfAddress>>);

/// With when each was told last.
type NamesOfAddress = Vec<(Arc<str>, Moment)>;

impl Names {
    /// Takes in what the agent of a node told; with nothing, that it tells.
    pub fn tell(&self, node: &str, told: &[ResolvedName], now: Moment) {
        self.0.update(|nodes| {
            if told.is_empty() && nodes.contains_key(node) {
                return false;
            }
            let known = nodes.entry(node.into()).or_default();
            told.iter().for_each(|it| known.add(it, now));
            true
        });
    }

    /// The node is gone.
    pub fn forget(&self, node: &str) {
        self.0.update(|nodes| nodes.remove(node).is_some());
    }

    /// Whether an address has a name of these patterns on a node; none if the node told nothing.
    pub fn fits(&self, node: &str, address: IpAddr, patterns: &[Arc<str>]) -> Option<bool> {
        let fits =
            |(name, _): &(Arc<str>, Moment)| patterns.iter().any(|pattern| is_named(pattern, name));
        self.0.read(|nodes| {
            let NodeNames(known) = nodes.get(node)?;
            Some(known.get(&address.to_canonical()).is_some_and(|names| names.iter().any(fits)))
        })
    }

    /// The names that an address has on a node, the latest first; none if the node told nothing.
    pub fn of(&self, node: &str, address: IpAddr) -> Option<Vec<Arc<str>>> {
        self.0.read(|nodes| {
            let NodeNames(known) = nodes.get(node)?;
            let names = known.get(&address.to_canonical()).map_or(&[][..], |names| names);
            Some(names.iter().rev().map(|(name, _)| Arc::clone(name)).collect())
        })
    }
}

/// Whether a name is that of a pattern, or below it where it begins with `*.`.
fn is_named(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(parent) => name.len() > parent.len() && name.ends_with(parent),
        None => pattern == name,
    }
}

impl NodeNames {
    fn add(&mut self, ResolvedName { name, address }: &ResolvedName, now: Moment) {
        let address = address.to_canonical();
        if !self.0.contains_key(&address) && self.0.len() >= MOST {
            self.make_room(now);
        }
        let names = self.0.entry(address).or_default();
        let names = Arc::make_mut(names);
        names.retain(|(other, told)| other != name && now.since(*told) < KEPT);
        if names.len() >= MOST_NAMES {
            names.remove(0);
        }
        names.push((Arc::clone(name), now));
    }

    /// Forgets what is too old, or else the address that was told of longest ago.
    fn make_room(&mut self, now: Moment) {
        let last = |names: &Vec<(Arc<str>, Moment)>| names.last().map_or(Moment(0), |it| it.1);
        self.0.retain(|_, names| now.since(last(names)) < KEPT);
        if self.0.len() >= MOST
            && let Some(oldest) = self.0.iter().min_by_key(|it| last(it.1)).map(|it| *it.0)
        {
            self.0.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
