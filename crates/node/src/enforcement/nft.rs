//! `NftDatapath`: a program in nf_tables, in a table of its own.
//!
//! Contract:
//! - A packet is judged by the program before a change or by the one after it. A batch of nf_tables alone
//!   does not promise that: a packet goes through the rules of one generation and looks into the sets of
//!   whichever is current at that instant, so a new chain seems empty to it, or an old set. A change is
//!   therefore made in steps, each an atomic batch that is right by itself: what is new and nobody refers
//!   to yet; what refers to it, and elements that come; elements that go; and, when no packet can be under
//!   way in it any more, what nobody refers to. A change of elements alone, which most are, is one batch.
//! - Hooked chains are made once.
//! - Where the kernel has owned tables that persist (Linux 6.9) nobody else changes the table as long as
//!   this lives, and it stays when this is gone. Elsewhere changes of others are heard and put right.
//! - A batch names the generation of the rules that it was made for. Others change rules of their own
//!   all the time; a batch that is refused for it is sent again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use kernel::conntrack;
use kernel::nftables::{
    Batch, Chain, CommitError, Counted, Element, ForeignChanges, Nftables, Rule, Set, TABLE_OWNER,
    TABLE_PERSIST,
};
use policy::program::{ChainId, CounterId, Packet, Program, Protocol, SetId, SetKind};
use tracing::{info, warn};

use super::datapath::{Change, DatapathError, DenySettings, Entries, PolicyDatapath, Revoked};
use super::learned::{GRACE, LearnedAddress};
use super::ruleset::{self, DNS_MARK, Family, FilledSet, REVOKED, TABLE};
use crate::conntrack_source;

mod steps;

use steps::{Garbage, Steps, elements};

/// How often a batch is sent again because others changed rules meanwhile. After that it is sent without
/// a generation if the table is owned: then nobody can have changed it.
const ATTEMPTS: usize = 8;
const EOPNOTSUPP: i32 = 95;
/// How long a packet can be under way in chains that nobody refers to any more: some microseconds, and
/// longer where a virtual processor was not running.
const UNDER_WAY: Duration = Duration::from_millis(20);
/// TCP, UDP and SCTP.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

#[derive(Debug)]
pub struct NftDatapath {
    nftables: Nftables,
    connections: conntrack::Table,
    /// Hears of others' changes, where the table cannot be owned.
    foreign: Option<ForeignChanges>,
    /// The table's flags: those of an owned one until the kernel says that it has none.
    flags: u32,
    /// The generation of the rules after the last commit.
    generation: Option<u32>,
    /// What rules counted that are gone.
    past: HashMap<CounterId, Counted>,
    /// What nobody refers to any more, to be removed.
    garbage: Garbage,
    /// Whether there are the chains for DNS.
    has_dns: bool,
    deny: DenySettings,
}

/// Everything that is to be in the table.
struct Wanted {
    sets: BTreeMap<String, FilledSet>,
    chains: BTreeMap<String, (Chain, Vec<Rule>)>,
    /// The names of the sets and chains that every program has, the chains in the order of their making.
    fixed_chains: Vec<String>,
}

impl NftDatapath {
    /// Opens sockets in the network namespace of the calling thread; changes nothing.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            nftables: Nftables::open()?,
            connections: conntrack::Table::open()?,
            foreign: None,
            flags: TABLE_OWNER | TABLE_PERSIST,
            generation: None,
            past: HashMap::new(),
            garbage: Garbage::default(),
            has_dns: false,
            deny: DenySettings::default(),
        })
    }

    /// Has the table not be owned, as on a kernel that knows no owners.
    #[must_use]
    pub fn unowned(mut self) -> Self {
        self.flags = 0;
        self
    }

    /// Removes the table, if there is one: nothing is enforced any more.
    pub fn remove() -> io::Result<()> {
        let mut batch = Batch::new(TABLE);
        batch.delete_table();
        match Nftables::open()?.commit(&batch, None) {
            Err(error) => {
                let error = io::Error::from(error);
                if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
            }
            Ok(()) => Ok(()),
        }
    }

    fn is_owned(&self) -> bool {
        self.flags != 0
    }

    fn committed(&mut self, generation: u32) {
        // The kernel passes over zero.
        self.generation = Some(generation.wrapping_add(1).max(1));
    }

    /// The batches that lead from what is there to what is wanted, in order.
    fn difference(&mut self, wanted: &Wanted) -> Result<Vec<Batch>, DatapathError> {
        let Some(table) = self.nftables.table(TABLE)? else {
            return Ok(vec![self.whole(wanted, false)]);
        };
        let own = self.nftables.port()?;
        if table.owner.is_some_and(|owner| owner != own) {
            return Err(DatapathError::Owned(TABLE));
        }
        // Without its owner a table persists, and is nobody's.
        let orphaned = self.is_owned() && table.flags == TABLE_PERSIST;
        if table.flags != self.flags && !orphaned {
            return Ok(vec![self.whole(wanted, true)]);
        }
        let chains = self.nftables.chains(TABLE)?;
        let mut rules: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for rule in self.nftables.rules(TABLE)? {
            rules.entry(rule.chain).or_default().push(rule.digest);
        }
        let sets: BTreeSet<String> =
            self.nftables.sets(TABLE)?.into_iter().map(|set| set.name).collect();
        let mut steps = Steps::default();
        if orphaned {
            steps.make.add_table(self.flags);
        }
        for (name, (set, elements)) in &wanted.sets {
            if !sets.contains(name) {
                steps.make.add_set(set);
                // A map's verdicts refer to chains.
                let step = if set.verdicts { &mut steps.switch } else { &mut steps.make };
                step.add_elements(set, elements);
                continue;
            }
            let there = self.nftables.elements(TABLE, set)?;
            let (more, fewer) = compared(elements, &there);
            // What names resolved to stays for as long as it was to.
            let fewer = if set.timeouts { Vec::new() } else { fewer };
            if set.ranges && !(more.is_empty() && fewer.is_empty()) {
                // Such a set never changes, so it was somebody else.
                return Ok(vec![self.whole(wanted, true)]);
            }
            let replaces = set.verdicts;
            steps.take(set, &fewer, replaces);
            steps.switch.add_elements(set, &more);
        }
        let known: BTreeSet<&str> = chains.iter().map(|chain| chain.name.as_str()).collect();
        let new = |chain: &Chain| !known.contains(&*chain.name);
        wanted.in_order().filter(|(it, _)| new(it)).for_each(|(it, _)| steps.make.add_chain(it));
        for (chain, wanted) in wanted.in_order() {
            let there = rules.get(&chain.name).map(Vec::as_slice).unwrap_or_default();
            if wanted.iter().map(|rule| rule.digest).eq(there.iter().copied()) {
                continue;
            }
            let step = if new(chain) { &mut steps.make } else { &mut steps.switch };
            if !there.is_empty() {
                step.delete_rules(&chain.name);
            }
            wanted.iter().for_each(|rule| step.add_rule(&chain.name, rule));
        }
        let strange = chains.into_iter().map(|chain| chain.name);
        let chains = strange.filter(|name| !wanted.chains.contains_key(name)).collect();
        let sets = sets.into_iter().filter(|name| !wanted.sets.contains_key(name)).collect();
        let last = Garbage { chains, sets, since: None }.removal();
        Ok(vec![steps.make, steps.switch, steps.take_away, last])
    }

    /// The batch that makes everything anew.
    fn whole(&self, wanted: &Wanted, replace: bool) -> Batch {
        let mut batch = Batch::new(TABLE);
        if replace {
            batch.delete_table();
        }
        batch.add_table(self.flags);
        for (set, _) in wanted.sets.values() {
            batch.add_set(set);
        }
        for (chain, _) in wanted.in_order() {
            batch.add_chain(chain);
        }
        // Elements first: no packet comes to the rules before all of it is there anyway.
        for (set, elements) in wanted.sets.values() {
            batch.add_elements(set, elements);
        }
        for (chain, rules) in wanted.in_order() {
            rules.iter().for_each(|rule| batch.add_rule(&chain.name, rule));
        }
        batch
    }

    /// Makes the batches one after the other, the first of them for this generation.
    fn commit_all(&mut self, batches: &[Batch], generation: u32) -> Result<(), CommitError> {
        self.generation = Some(generation);
        let mut batches = batches.iter().filter(|batch| !batch.is_empty()).peekable();
        while let Some(batch) = batches.next() {
            let generation = self.generation.unwrap_or(generation);
            self.generation = None;
            self.nftables.commit(batch, Some(generation))?;
            self.committed(generation);
            if batches.peek().is_some() {
                thread::sleep(UNDER_WAY);
            }
        }
        Ok(())
    }

    /// Removes what nobody refers to any more, if no packet can be under way in it.
    fn tidy(&mut self) -> Result<(), CommitError> {
        let due = self.garbage.since.is_some_and(|since| since.elapsed() >= UNDER_WAY);
        if !due {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.garbage).removal();
        self.commit(&batch)
    }

    /// Removes what nobody refers to any more and what a change makes anew.
    fn make_way(&mut self, change: &Change<'_>) -> Result<(), CommitError> {
        if let (Some(since), Some(delta)) = (self.garbage.since, change.delta) {
            let chain = |id: &ChainId| {
                let gone = |name: &String| ruleset::program_chain(name) == Some(*id);
                self.garbage.chains.iter().any(gone)
            };
            let set = |id: SetId| {
                let suffix = id.to_string();
                self.garbage.sets.iter().any(|name| name.ends_with(&suffix))
            };
            let again = delta.chains.iter().any(|(id, _)| chain(id))
                || delta.sets.iter().any(|it| set(it.id));
            if again {
                thread::sleep(UNDER_WAY.saturating_sub(since.elapsed()));
            }
        }
        self.tidy()
    }

    /// Sends a batch until the generation it names is the kernel's.
    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        for _ in 0..ATTEMPTS {
            let generation = match self.generation {
                Some(generation) => generation,
                None => self.nftables.generation().map_err(CommitError::Socket)?,
            };
            match self.nftables.commit(batch, Some(generation)) {
                Ok(()) => {
                    self.committed(generation);
                    return Ok(());
                }
                Err(CommitError::Stale) => {
                    self.generation = None;
                    if !self.is_owned() && self.was_disturbed().unwrap_or(true) {
                        return Err(CommitError::Stale);
                    }
                }
                Err(error) => {
                    self.generation = None;
                    return Err(error);
                }
            }
        }
        if self.is_owned() {
            return self.nftables.commit(batch, None);
        }
        Err(CommitError::Stale)
    }

    /// Keeps what the rules of chains that go have counted.
    fn remember(&mut self, gone: &[ChainId]) -> io::Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        for rule in self.nftables.rules(TABLE)?.into_iter().filter(|rule| rule.tag != 0) {
            if ruleset::program_chain(&rule.chain).is_some_and(|id| gone.contains(&id)) {
                add(&mut self.past, CounterId(rule.tag), rule.counted.unwrap_or_default());
            }
        }
        Ok(())
    }
}

impl PolicyDatapath for NftDatapath {
    fn deny_by(&mut self, deny: DenySettings) {
        self.deny = deny;
    }

    fn adopt(&mut self, program: &Program, entries: &Entries) -> Result<(), DatapathError> {
        let wanted = Wanted::of(program, entries, self.deny);
        if !self.is_owned() && self.foreign.is_none() {
            self.foreign = Some(ForeignChanges::open(TABLE)?);
        }
        let mut last = CommitError::Stale;
        for _ in 0..ATTEMPTS {
            // Before it is read: a commit that comes in between makes ours be refused.
            let generation = self.nftables.generation()?;
            let batches = match self.difference(&wanted) {
                Ok(batches) => batches,
                // The kernel's rules went on changing while they were read.
                Err(DatapathError::Read(error)) if error.kind() == io::ErrorKind::NotFound => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.garbage = Garbage::default();
            match self.commit_all(&batches, generation) {
                Ok(()) => {
                    self.has_dns = asks(entries);
                    return Ok(());
                }
                Err(CommitError::Stale) => {}
                Err(error) if self.is_owned() && error.errno() == Some(EOPNOTSUPP) => {
                    info!("this kernel has no owned tables; changes by others are watched for");
                    self.flags = 0;
                    self.foreign = Some(ForeignChanges::open(TABLE)?);
                }
                Err(error @ CommitError::Refused { .. }) => {
                    warn!(%error, "the kernel's rules are not as they seemed; they are made anew");
                    let replace = self.nftables.table(TABLE)?.is_some();
                    let batch = self.whole(&wanted, replace);
                    match self.nftables.commit(&batch, None) {
                        Ok(()) => {
                            self.generation = None;
                            self.has_dns = asks(entries);
                            return Ok(());
                        }
                        Err(error) => last = error,
                    }
                }
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    fn apply(&mut self, change: &Change<'_>) -> Result<(), DatapathError> {
        // Chains with a hook come and go with the first and the last pod whose DNS is looked at.
        let hooks_change = asks(change.all) != self.has_dns;
        if hooks_change || change.delta.is_some_and(|delta| delta.from == 0) {
            return self.adopt(change.after, change.all);
        }
        if let Some(delta) = change.delta {
            self.remember(&delta.removed_chains)?;
        }
        let made = self.make_way(change).and_then(|()| {
            let steps = Steps::of(change, self.deny);
            for batch in [&steps.make, &steps.switch, &steps.take_away] {
                if !batch.is_empty() {
                    self.commit(batch)?;
                }
            }
            self.garbage.add(change);
            Ok(())
        });
        made.or_else(|error| {
            if !matches!(error, CommitError::Stale) {
                warn!(%error, "a change does not fit the kernel's rules; they are compared");
            }
            self.adopt(change.after, change.all)
        })
    }

    fn look_after(&mut self) -> Result<(), DatapathError> {
        Ok(self.tidy()?)
    }

    fn was_disturbed(&mut self) -> io::Result<bool> {
        let Some(foreign) = &mut self.foreign else { return Ok(false) };
        let own = self.nftables.port()?;
        let seen = foreign.read(Duration::ZERO, own)?;
        Ok(seen.changed || seen.lost)
    }

    fn revoke(&mut self, is_denied: &mut dyn FnMut(&Packet) -> bool) -> io::Result<Revoked> {
        let own: BTreeSet<IpAddr> = conntrack_source::local()?.into_iter().collect();
        let (mut denied, mut allowed) = (Vec::new(), Vec::new());
        // Most connections are one of many between the same ends.
        let mut judged: HashMap<(IpAddr, IpAddr, u8, u16), bool> = HashMap::new();
        // A listing that was disturbed has missed connections that are new, which were judged.
        self.connections.list(|entry| {
            // What the agent asks for a pod was judged when the pod asked.
            if entry.mark & DNS_MARK != 0 {
                return;
            }
            // Without ports, what a pod answers to is a request or two: the next one is judged.
            if !WITH_PORTS.contains(&entry.original.protocol) {
                return;
            }
            let (source, destination) = (entry.original.source, entry.reply.source);
            let packet = Packet {
                source,
                destination,
                protocol: Protocol(entry.original.protocol),
                port: entry.reply.source_port,
                from_own_node: own.contains(&source),
                to_own_node: own.contains(&destination),
            };
            let is_marked = entry.mark & REVOKED != 0;
            // What is over carries nothing; one that takes its place is judged as it begins.
            if entry.is_over && !is_marked {
                return;
            }
            let ends = (source, destination, entry.original.protocol, entry.reply.source_port);
            let is_denied = *judged.entry(ends).or_insert_with(|| {
                !packet.from_own_node && source != destination && is_denied(&packet)
            });
            match (is_denied, is_marked) {
                (true, false) => denied.push(entry),
                (false, true) => allowed.push(entry),
                _ => {}
            }
        })?;
        Ok(Revoked {
            ended: self.connections.mark(&denied, REVOKED, REVOKED)?,
            restored: self.connections.mark(&allowed, 0, REVOKED)?,
        })
    }

    fn learn(&mut self, learned: &[LearnedAddress]) -> Result<(), DatapathError> {
        for one in learned {
            let family = Family::of(one.address);
            let kind = SetKind::Domains(Vec::new());
            let Some(set) = ruleset::kernel_set(one.set, &kind, family) else { continue };
            let key = ruleset::octets(one.address);
            let lives = u64::try_from(one.lives.as_millis()).unwrap_or(u64::MAX).max(1);
            let element = Element { timeout: Some(lives), ..Element::new(key.clone()) };
            // Older kernels leave the time of an element that is there: it goes and comes in one batch.
            let mut again = Batch::new(TABLE);
            again.delete_elements(&set, [&Element::new(key)]);
            again.add_elements(&set, [&element]);
            match self.commit(&again) {
                Ok(()) => continue,
                Err(CommitError::Refused { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
            let mut new = Batch::new(TABLE);
            new.add_elements(&set, [&element]);
            match self.commit(&new) {
                // The set is gone, and with it whoever wanted this.
                Err(CommitError::Refused { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            }
        }
        Ok(())
    }

    fn learned(&mut self, program: &Program) -> io::Result<Vec<LearnedAddress>> {
        let mut found = Vec::new();
        for (id, set) in &program.sets {
            if !matches!(set.kind, SetKind::Domains(_)) {
                continue;
            }
            for family in Family::BOTH {
                let Some(set) = ruleset::kernel_set(*id, &set.kind, family) else { continue };
                for element in self.nftables.elements(TABLE, &set)? {
                    let address = match family {
                        Family::V4 => element.key.first_chunk::<4>().map(|it| IpAddr::from(*it)),
                        Family::V6 => element.key.first_chunk::<16>().map(|it| IpAddr::from(*it)),
                    };
                    let Some(address) = address else { continue };
                    // How much of it is left is not asked: what ends in the kernel is denied anyway.
                    found.push(LearnedAddress { set: *id, address, lives: GRACE });
                }
            }
        }
        Ok(found)
    }

    fn in_use(&mut self, addresses: &[(SetId, IpAddr)]) -> io::Result<Vec<(SetId, IpAddr)>> {
        let asked: BTreeSet<IpAddr> = addresses.iter().map(|(_, address)| *address).collect();
        let mut used = BTreeSet::new();
        self.connections.list(|entry| {
            let to = entry.reply.source.to_canonical();
            if asked.contains(&to) && entry.mark & REVOKED == 0 {
                used.insert(to);
            }
        })?;
        Ok(addresses.iter().filter(|(_, address)| used.contains(address)).copied().collect())
    }

    fn counters(&mut self) -> io::Result<HashMap<CounterId, Counted>> {
        let mut counters = self.past.clone();
        for rule in self.nftables.rules(TABLE)?.into_iter().filter(|rule| rule.tag != 0) {
            add(&mut counters, CounterId(rule.tag), rule.counted.unwrap_or_default());
        }
        Ok(counters)
    }
}

fn add(counters: &mut HashMap<CounterId, Counted>, id: CounterId, more: Counted) {
    let counted = counters.entry(id).or_default();
    counted.packets = counted.packets.saturating_add(more.packets);
    counted.bytes = counted.bytes.saturating_add(more.bytes);
}

/// Whether the DNS of some pod goes through the agent.
fn asks(entries: &Entries) -> bool {
    entries.values().any(|entry| entry.asks)
}

impl Wanted {
    fn of(program: &Program, entries: &Entries, deny: DenySettings) -> Self {
        let mut sets: BTreeMap<String, FilledSet> = BTreeMap::new();
        let mut chains = BTreeMap::new();
        let mut insert = |set: Set, elements: Vec<Element>| {
            sets.insert(set.name.clone(), (set, elements));
        };
        for set in ruleset::fixed_sets() {
            insert(set, Vec::new());
        }
        for (id, set) in &program.sets {
            ruleset::sets(*id, set).into_iter().for_each(|(set, elements)| insert(set, elements));
        }
        for (id, chain) in &program.chains {
            for compiled in ruleset::chains(*id, chain, program, deny) {
                compiled.sets.into_iter().for_each(|(set, elements)| insert(set, elements));
                for (chain, rules) in compiled.chains {
                    chains.insert(chain.name.clone(), (chain, rules));
                }
            }
        }
        let mut fixed_chains = Vec::new();
        for (chain, rules) in ruleset::fixed_chains(asks(entries)) {
            fixed_chains.push(chain.name.clone());
            chains.insert(chain.name.clone(), (chain, rules));
        }
        for (address, entry) in entries {
            for (set, element) in elements(*address, entry) {
                if let Some((_, elements)) = sets.get_mut(&set.name) {
                    elements.push(element);
                }
            }
        }
        sets.values_mut().for_each(|(_, elements)| elements.sort_unstable());
        Self { sets, chains, fixed_chains }
    }

    /// Hooked chains come last: everything that they refer to is there.
    fn in_order(&self) -> impl Iterator<Item = &(Chain, Vec<Rule>)> {
        let of_program =
            self.chains.values().filter(|(chain, _)| ruleset::program_chain(&chain.name).is_some());
        of_program.chain(self.fixed_chains.iter().filter_map(|name| self.chains.get(name)))
    }
}

/// The elements that are wanted and not there, and those that are there and not wanted. Both are sorted.
fn compared(wanted: &[Element], there: &[Element]) -> (Vec<Element>, Vec<Element>) {
    let not_in = |some: &[Element], others: &[Element]| -> Vec<Element> {
        some.iter().filter(|it| others.binary_search(it).is_err()).cloned().collect()
    };
    let fewer = not_in(there, wanted).into_iter();
    (not_in(wanted, there), fewer.map(|it| Element::new(it.key)).collect())
}
