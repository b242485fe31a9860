//! `NatTable`: the ruleset in the kernel, in a table of its own.
//!
//! Contract:
//! - What differs is one batch: made whole or not at all.
//! - Where the kernel has owned tables that persist (Linux 6.9) nobody else changes the table while this
//!   lives, and it stays when this is gone. Elsewhere the caller compares again now and then.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use kernel::nftables::{
    Batch, Chain, CommitError, Hook, ListedRule, Nftables, Rule, TABLE_OWNER, TABLE_PERSIST,
};

use super::ruleset::{BASE, Ruleset, TABLE, pool_of};
use crate::node::KernelCallError;

/// `srcnat`, where others translate source addresses too.
const SOURCE_NAT: i32 = 100;
/// How often a batch is made anew because others changed rules meanwhile.
const ATTEMPTS: usize = 8;
const EOPNOTSUPP: i32 = 95;

#[derive(Debug, thiserror::Error)]
pub enum NatError {
    #[error("the kernel's rules of masquerading cannot be asked for")]
    Socket(#[source] io::Error),
    #[error("the kernel's rules of masquerading cannot be read")]
    Read(#[source] io::Error),
    #[error("the kernel's rules of masquerading cannot be changed")]
    Commit(#[from] CommitError),
    #[error("another process owns the table {TABLE}: stop the other agent of this node")]
    Owned,
    #[error(transparent)]
    Thread(KernelCallError),
}

#[derive(Debug)]
pub struct NatTable {
    nftables: Nftables,
    /// The table's flags: those of an owned one until the kernel says that it has none.
    flags: u32,
}

impl NatTable {
    /// Opens a socket in the network namespace of the calling thread; changes nothing.
    pub fn open() -> io::Result<Self> {
        Ok(Self { nftables: Nftables::open()?, flags: TABLE_OWNER | TABLE_PERSIST })
    }

    /// Has the table not be owned, as on a kernel that knows no owners.
    #[must_use]
    pub fn unowned(mut self) -> Self {
        self.flags = 0;
        self
    }

    pub fn is_owned(&self) -> bool {
        self.flags != 0
    }

    /// Removes the table in the network namespace of the calling thread; says whether there was one.
    pub fn remove() -> io::Result<bool> {
        let mut batch = Batch::new(TABLE);
        batch.delete_table();
        match Nftables::open()?.commit(&batch, None).map_err(io::Error::from) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes the table exactly what is wanted, none for none; says whether anything changed.
    pub fn adopt(&mut self, wanted: Option<&Ruleset>) -> Result<bool, NatError> {
        let mut last = CommitError::Stale;
        for _ in 0..ATTEMPTS {
            let generation = self.nftables.generation().map_err(NatError::Read)?;
            let batch = match self.difference(wanted) {
                Err(NatError::Read(error)) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            if batch.is_empty() {
                return Ok(false);
            }
            match self.nftables.commit(&batch, Some(generation)) {
                Ok(()) => return Ok(true),
                Err(CommitError::Stale) => {}
                Err(error) if self.is_owned() && error.errno() == Some(EOPNOTSUPP) => {
                    self.flags = 0;
                }
                Err(error @ CommitError::Refused { .. }) => {
                    // The kernel's rules are not as they seemed: they are made anew.
                    tracing::warn!(%error, "rules of masquerading are made anew");
                    let there = self.nftables.table(TABLE).map_err(NatError::Read)?.is_some();
                    match self.nftables.commit(&self.whole(wanted, there), None) {
                        Ok(()) => return Ok(true),
                        Err(error) => last = error,
                    }
                }
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    /// The change that leads from what is there to what is wanted.
    fn difference(&mut self, wanted: Option<&Ruleset>) -> Result<Batch, NatError> {
        let mut batch = Batch::new(TABLE);
        let Some(table) = self.nftables.table(TABLE).map_err(NatError::Read)? else {
            return Ok(self.whole(wanted, false));
        };
        let own = self.nftables.port().map_err(NatError::Read)?;
        if table.owner.is_some_and(|owner| owner != own) {
            return Err(NatError::Owned);
        }
        let Some(wanted) = wanted else {
            batch.delete_table();
            return Ok(batch);
        };
        let orphaned = self.is_owned() && table.flags == TABLE_PERSIST;
        if table.flags != self.flags && !orphaned {
            return Ok(self.whole(Some(wanted), true));
        }
        let chains = self.nftables.chains(TABLE).map_err(NatError::Read)?;
        let chains: BTreeSet<String> = chains.into_iter().map(|chain| chain.name).collect();
        let mut rules: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for rule in self.nftables.rules(TABLE).map_err(NatError::Read)? {
            rules.entry(rule.chain).or_default().push(rule.digest);
        }
        let sets = self.nftables.sets(TABLE).map_err(NatError::Read)?;
        let sets: BTreeSet<String> = sets.into_iter().map(|set| set.name).collect();
        if orphaned {
            batch.add_table(self.flags);
        }
        wanted.sets.iter().filter(|(name, _)| !sets.contains(*name)).for_each(|(_, (set, _))| {
            batch.add_set(set);
        });
        if !chains.contains(BASE) {
            batch.add_nat_chain(BASE, Hook::Postrouting, SOURCE_NAT);
        }
        for name in wanted.chains.keys().filter(|name| !chains.contains(*name)) {
            batch.add_chain(&plain(name));
        }
        // Elements go before they come: a network may have changed hands.
        let mut more = Vec::new();
        for (name, (set, elements)) in &wanted.sets {
            let there = match sets.contains(name) {
                true => self.nftables.elements(TABLE, set).map_err(NatError::Read)?,
                false => Vec::new(),
            };
            let fewer: Vec<_> =
                there.iter().filter(|it| elements.binary_search(it).is_err()).collect();
            batch.delete_elements(set, fewer);
            let new: Vec<_> = elements.iter().filter(|it| !there.contains(it)).collect();
            more.push((set, new));
        }
        for (set, new) in more {
            batch.add_elements(set, new);
        }
        let wanted_chains = wanted.chains.iter().map(|(name, rules)| (name.as_str(), rules));
        for (name, wanted) in wanted_chains.chain([(BASE, &wanted.base)]) {
            let there = rules.get(name).map(Vec::as_slice).unwrap_or_default();
            if wanted.iter().map(|rule| rule.digest).eq(there.iter().copied()) {
                continue;
            }
            if !there.is_empty() {
                batch.delete_rules(name);
            }
            wanted.iter().for_each(|rule| batch.add_rule(name, rule));
        }
        let strange = |name: &&String| !wanted.chains.contains_key(*name) && *name != BASE;
        for name in chains.iter().filter(strange) {
            if rules.contains_key(name) {
                batch.delete_rules(name);
            }
            batch.delete_chain(name);
        }
        sets.iter().filter(|name| !wanted.sets.contains_key(*name)).for_each(|name| {
            batch.delete_set(name);
        });
        Ok(batch)
    }

    /// The batch that makes everything anew.
    fn whole(&self, wanted: Option<&Ruleset>, replace: bool) -> Batch {
        let mut batch = Batch::new(TABLE);
        if replace {
            batch.delete_table();
        }
        let Some(wanted) = wanted else { return batch };
        batch.add_table(self.flags);
        wanted.sets.values().for_each(|(set, _)| batch.add_set(set));
        batch.add_nat_chain(BASE, Hook::Postrouting, SOURCE_NAT);
        wanted.chains.keys().for_each(|name| batch.add_chain(&plain(name)));
        wanted.sets.values().for_each(|(set, elements)| batch.add_elements(set, elements));
        let mut rules = |name: &str, rules: &[Rule]| {
            rules.iter().for_each(|rule| batch.add_rule(name, rule));
        };
        wanted.chains.iter().for_each(|(name, of_chain)| rules(name, of_chain));
        rules(BASE, &wanted.base);
        batch
    }

    /// Returns how many connections of each pool were masqueraded since its rules were made.
    pub fn counted(&mut self) -> Result<BTreeMap<Arc<str>, u64>, NatError> {
        let mut counted: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        for ListedRule { chain, counted: rule, .. } in
            self.nftables.rules(TABLE).map_err(NatError::Read)?
        {
            if let (Some(pool), Some(rule)) = (pool_of(&chain), rule) {
                *counted.entry(pool.into()).or_default() += rule.packets;
            }
        }
        Ok(counted)
    }
}

fn plain(name: &str) -> Chain {
    Chain { name: name.to_owned(), hook: None, drops: false }
}
