//! `Enforcer`: the program of a node, its own new pods, and the kernel that is kept to both.
//!
//! ```text
//! delta ─► Program ─┐
//!                   ├─► entries ─► PolicyDatapath: one batch ─► connections that are denied now
//! ADD, DEL ─► pods ─┘
//! ```
//!
//! An address is decided by the program's chains if the program means the pod that has it. A pod that
//! the program does not know is *pending* if a policy may isolate it, or if there is no program and the
//! node fails closed: everything is denied but what its node sends.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::nftables::Counted;
use policy::program::{
    Chain, CounterId, Delta, Direction, Gap, Packet, Program, SetEdit, SetId, SetKind,
};

use super::datapath::{
    Change, DatapathError, Decider, DenySettings, Entries, Entry, PolicyDatapath, Revoked,
};
use super::learned::{GRACE, Learned, LearnedAddress};

/// How often it is looked which addresses of names are about to end.
const LOOK_AFTER: Duration = Duration::from_secs(10);

/// What happens to a pod that policies have not arrived for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewPods {
    /// It starts at once and is denied until they have, if one may isolate it.
    #[default]
    Isolate,
    /// As `Isolate`; its start waits for them, for two seconds at most.
    Wait,
    /// Nothing is denied until they have.
    Open,
}

/// What holds on a node that has never had a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailMode {
    /// Its pods are pending.
    Closed,
    /// Nothing is denied.
    #[default]
    Open,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct EnforcerSettings {
    pub new_pods: NewPods,
    pub fail_mode: FailMode,
    pub deny: DenySettings,
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    #[error(transparent)]
    Gap(#[from] Gap),
    #[error("packets of pods here pass by netfilter: {0}")]
    Bypassed(String),
    #[error(transparent)]
    Datapath(#[from] DatapathError),
}

#[derive(Debug)]
pub struct Enforcer<D> {
    datapath: D,
    settings: EnforcerSettings,
    program: Program,
    /// The pods that this node's network has, by address: namespace and name.
    pods: BTreeMap<IpAddr, Arc<str>>,
    entries: Entries,
    /// What names resolved to.
    learned: Learned,
    looked_after: Instant,
}

impl<D: PolicyDatapath> Enforcer<D> {
    /// Makes the kernel enforce the program that was saved, or what holds without one, exactly. Pods are
    /// those that the node's network has now.
    pub fn start(
        datapath: D,
        settings: EnforcerSettings,
        saved: Option<Program>,
        pods: impl IntoIterator<Item = (IpAddr, Arc<str>)>,
    ) -> Result<Self, DatapathError> {
        let mut datapath = datapath;
        datapath.deny_by(settings.deny);
        let program = saved.unwrap_or_default();
        let pods = pods.into_iter().collect();
        let (entries, learned) = (Entries::new(), Learned::default());
        let looked_after = Instant::now();
        let mut enforcer =
            Self { datapath, settings, program, pods, entries, learned, looked_after };
        enforcer.entries = enforcer.wanted_entries();
        enforcer.restore()?;
        // What names resolved to for the agent before this one.
        let known = enforcer.datapath.learned(&enforcer.program)?;
        enforcer.datapath.learn(&known)?;
        enforcer.learned.add(&known, Instant::now());
        Ok(enforcer)
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Whether the program means the pod that has this address.
    pub fn is_settled(&self, address: IpAddr) -> bool {
        match (self.program.pods.get(&address), self.pods.get(&address)) {
            (Some(known), Some(pod)) => known.pod == *pod,
            (known, _) => known.is_some(),
        }
    }

    /// Makes the kernel's rules exactly what they should be, whatever they are.
    pub fn restore(&mut self) -> Result<(), DatapathError> {
        self.datapath.adopt(&self.program, &self.entries)
    }

    /// Restores the kernel's rules if somebody else changed them; says whether so.
    pub fn look_after(&mut self) -> Result<bool, DatapathError> {
        let disturbed = self.datapath.was_disturbed()?;
        if disturbed {
            self.restore()?;
        } else {
            self.datapath.look_after()?;
        }
        self.keep_used_addresses()?;
        Ok(disturbed)
    }

    /// Makes the program the next generation. Where it cannot be, nothing is changed.
    pub fn apply(&mut self, delta: &Delta) -> Result<(), EnforceError> {
        let mut after = self.program.clone();
        after.apply(delta)?;
        let before = std::mem::replace(&mut self.program, after);
        let touched = self.touched(delta);
        let changed = self.change_entries(touched);
        let change = Change {
            delta: Some(delta),
            before: &before,
            after: &self.program,
            entries: changed.clone(),
            all: &self.entries,
        };
        if let Err(error) = self.datapath.apply(&change) {
            self.program = before;
            self.undo(changed);
            return Err(error.into());
        }
        Ok(())
    }

    /// The addresses whose entry may be another after this delta.
    fn touched(&self, delta: &Delta) -> BTreeSet<IpAddr> {
        let everybody = || {
            let own = self.pods.keys().chain(self.program.pods.keys());
            own.chain(self.entries.keys()).copied().collect()
        };
        if delta.from == 0 {
            return everybody();
        }
        let mut touched: BTreeSet<_> = delta.pods.iter().map(|(address, _)| *address).collect();
        if delta.unsettled.is_some() {
            touched.extend(self.pods.keys().filter(|address| !self.is_settled(**address)));
        }
        touched
    }

    /// A name resolved to these addresses, for these times: packets to them are judged by rules with that
    /// name when this returns.
    pub fn learn(
        &mut self,
        name: &str,
        addresses: &[(IpAddr, Duration)],
    ) -> Result<(), DatapathError> {
        let mut wanted = Learned::wanted(&self.program, name, addresses);
        wanted.retain(|it| self.learned.has_room(it.set));
        self.datapath.learn(&wanted)?;
        self.learned.add(&wanted, Instant::now());
        Ok(())
    }

    /// The names that rules have.
    pub fn domain_names(&self) -> Vec<Arc<str>> {
        let sets = self.program.sets.values();
        let names = sets.filter_map(|set| match &set.kind {
            SetKind::Domains(names) => Some(names),
            _ => None,
        });
        names.flatten().cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Has addresses that connections still use stay.
    fn keep_used_addresses(&mut self) -> Result<(), DatapathError> {
        if self.learned.is_empty() || self.looked_after.elapsed() < LOOK_AFTER {
            return Ok(());
        }
        self.looked_after = Instant::now();
        let ending = self.learned.look_after(&self.program, Instant::now());
        if ending.is_empty() {
            return Ok(());
        }
        let used = self.datapath.in_use(&ending)?.into_iter();
        let used = used.map(|(set, address)| LearnedAddress { set, address, lives: GRACE });
        let used: Vec<_> = used.collect();
        self.datapath.learn(&used)?;
        self.learned.add(&used, Instant::now());
        Ok(())
    }

    /// The pod's addresses are about to carry packets; says whether its policies have yet to arrive.
    pub fn admit(&mut self, pod: &str, addresses: &[IpAddr]) -> Result<bool, DatapathError> {
        let pod: Arc<str> = pod.into();
        for address in addresses {
            self.pods.insert(*address, Arc::clone(&pod));
        }
        self.settle(addresses)?;
        Ok(addresses.iter().any(|address| !self.is_settled(*address)))
    }

    /// The pod that had these addresses is gone.
    pub fn release(&mut self, addresses: &[IpAddr]) -> Result<(), DatapathError> {
        for address in addresses {
            self.pods.remove(address);
        }
        self.settle(addresses)
    }

    fn settle(&mut self, addresses: &[IpAddr]) -> Result<(), DatapathError> {
        let changed = self.change_entries(addresses.iter().copied());
        if changed.is_empty() {
            return Ok(());
        }
        let change = Change {
            delta: None,
            before: &self.program,
            after: &self.program,
            entries: changed.clone(),
            all: &self.entries,
        };
        if let Err(error) = self.datapath.apply(&change) {
            self.undo(changed);
            return Err(error);
        }
        Ok(())
    }

    fn change_entries(
        &mut self,
        touched: impl IntoIterator<Item = IpAddr>,
    ) -> Vec<(IpAddr, Entry, Entry)> {
        let mut changed = Vec::new();
        for address in touched {
            let new = self.wanted_entry(address);
            let old = match new.is_empty() {
                true => self.entries.remove(&address),
                false => self.entries.insert(address, new),
            };
            let old = old.unwrap_or_default();
            if old != new {
                changed.push((address, old, new));
            }
        }
        changed
    }

    fn undo(&mut self, changed: Vec<(IpAddr, Entry, Entry)>) {
        for (address, old, _) in changed {
            match old.is_empty() {
                true => self.entries.remove(&address),
                false => self.entries.insert(address, old),
            };
        }
    }

    fn wanted_entries(&self) -> Entries {
        let all: BTreeSet<_> = self.pods.keys().chain(self.program.pods.keys()).collect();
        let wanted = all.into_iter().map(|address| (*address, self.wanted_entry(*address)));
        wanted.filter(|(_, entry)| !entry.is_empty()).collect()
    }

    fn wanted_entry(&self, address: IpAddr) -> Entry {
        if self.is_settled(address) {
            let pod = self.program.pods.get(&address);
            let class = pod.and_then(|pod| self.program.classes.get(&pod.class));
            let decider = |direction| class?.chain(direction).map(Decider::Chain);
            let egress = decider(Direction::Egress);
            let asks = egress.is_some_and(|it| self.names_domains(it));
            return Entry { egress, ingress: decider(Direction::Ingress), asks };
        }
        let Some(pod) = self.pods.get(&address) else { return Entry::default() };
        let namespace = pod.split_once('/').map_or("", |(namespace, _)| namespace);
        let may_isolate = match self.program.generation {
            0 => self.settings.fail_mode == FailMode::Closed,
            _ => self.program.unsettled.may_isolate(namespace),
        };
        match self.settings.new_pods {
            NewPods::Open => Entry::default(),
            NewPods::Isolate | NewPods::Wait if may_isolate => Entry::PENDING,
            NewPods::Isolate | NewPods::Wait => Entry::default(),
        }
    }

    /// Whether a rule of the chain names domains.
    fn names_domains(&self, decider: Decider) -> bool {
        let Decider::Chain(id) = decider else { return false };
        let is_domains = |set: SetId| {
            let set = self.program.sets.get(&set);
            set.is_some_and(|set| matches!(set.kind, SetKind::Domains(_)))
        };
        self.program.chains.get(&id).is_some_and(|chain| chain.sets().any(is_domains))
    }

    /// Ends connections that are under way and denied now.
    pub fn revoke(&mut self) -> io::Result<Revoked> {
        let Self { datapath, program, entries, learned, .. } = self;
        let denies = |decider: Option<Decider>, packet: &Packet| match decider {
            None => false,
            Some(Decider::Pending) => true,
            Some(Decider::Chain(id)) => {
                let set = |id| learned.set(id).or_else(|| program.sets.get(&id));
                let judge = |chain: &Arc<Chain>| chain.judge(packet, set).denied;
                program.chains.get(&id).is_some_and(judge)
            }
        };
        datapath.revoke(&mut |packet| {
            let entry = |address| entries.get(&address).copied().unwrap_or_default();
            denies(entry(packet.source).egress, packet)
                || denies(entry(packet.destination).ingress, packet)
        })
    }

    pub fn counters(&mut self) -> io::Result<HashMap<CounterId, Counted>> {
        self.datapath.counters()
    }
}

/// Whether a delta may deny or allow connections that are under way: it may not if it only brings pods
/// and sets that nobody talked to.
pub(super) fn may_revoke(delta: &Delta) -> bool {
    let edited = delta.sets.iter().any(|set| matches!(set.change, SetEdit::Changed { .. }));
    delta.from == 0 || edited || !delta.pods.is_empty()
}
