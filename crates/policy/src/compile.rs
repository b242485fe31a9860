//! `Compiler`: keeps the programs of all nodes as objects change.
//!
//! ```text
//! Change ──► objects ──► atoms (who is selected) ──► sets (unions of atoms)
//!                  └───► classes (what decides)  ──► chains ──► which sets there are
//! program(node): the node's pods, their classes, those chains, those sets
//! ```
//!
//! Contract:
//! - After any changes the programs equal those of a compiler that was told the final objects alone.
//! - A pod's change is looked at where it can matter: the atoms of its namespace and those of all
//!   namespaces, the sets of those that selected it or do now, its own class.
//! - A change of a policy recompiles the classes of pods that it may select: of its namespace, or all.
//! - Clones share the elements of sets.

mod atom;
mod chain;
mod classify;
mod merge;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use objects::kinds::GroupMode;

use atom::{Atom, Definition, Selects};

use crate::cluster::{Cluster, Key, Labels, Node, Pod, Service};
use crate::program::{
    Chain, ChainId, Class, ClassId, Element, LocalPod, Note, PolicyKind, Program, Set, SetId,
    Unsettled,
};
use crate::spec::{ClusterPolicy, Group, GuardGroup, GuardRule, NetworkPolicy, Policies, Settings};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub pods: usize,
    pub classes: usize,
    pub chains: usize,
    pub sets: usize,
    pub elements: usize,
}

/// A rule of guard, by whether it was learned, and name.
pub type RuleKey = (bool, Arc<str>);

/// What changed: None is gone.
#[derive(Clone, Debug)]
pub enum Change {
    Namespace(Arc<str>, Option<Labels>),
    Pod(Key, Option<Arc<Pod>>),
    Node(Arc<str>, Option<Node>),
    Service(Key, Option<Service>),
    Pool(Arc<str>, Option<Vec<IpNet>>),
    NetworkPolicy(Key, Option<Arc<NetworkPolicy>>),
    ClusterPolicy((PolicyKind, Arc<str>), Option<Arc<ClusterPolicy>>),
    Group(Arc<str>, Option<Arc<Group>>),
    Rule(RuleKey, Option<Arc<GuardRule>>),
    /// Several of them, which are compiled once.
    Rules(Vec<(RuleKey, Option<Arc<GuardRule>>)>),
    Settings(Settings),
}

/// Keeps the programs of all nodes as objects change.
#[derive(Clone, Debug, Default)]
pub struct Compiler {
    cluster: Cluster,
    policies: Policies,
    /// Who says to have an address; the last one has it.
    owners: BTreeMap<IpAddr, BTreeSet<(i64, Key)>>,
    pods: BTreeMap<Key, PodState>,
    atoms: BTreeMap<Atom, AtomState>,
    /// Atoms by the one namespace whose pods they can select.
    atoms_by_namespace: BTreeMap<Option<Arc<str>>, BTreeSet<Atom>>,
    /// The cluster's own ranges, as chains were built with them.
    ranges: Vec<IpNet>,
    sets: BTreeMap<SetId, SetState>,
    chains: BTreeMap<ChainId, ChainState>,
    classes: BTreeMap<ClassId, ClassState>,
    nodes: BTreeMap<Arc<str>, BTreeSet<Key>>,
    /// Classes by what decides about a pod; forgotten when a policy changes.
    known: HashMap<String, ClassId>,
    unsettled: Arc<Unsettled>,
    changed: Changed,
}

/// What may have changed in programs: those of all nodes, those of some, those with one of these sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changed {
    pub(crate) everything: bool,
    pub(crate) nodes: BTreeSet<Arc<str>>,
    pub(crate) sets: BTreeSet<SetId>,
}

#[derive(Clone, Debug)]
struct PodState {
    pod: Arc<Pod>,
    /// Those that no later pod has.
    addresses: Vec<IpAddr>,
    atoms: BTreeSet<Atom>,
    groups: Vec<Arc<str>>,
    mode: GroupMode,
    class: Option<ClassId>,
}

#[derive(Clone, Debug, Default)]
struct AtomState {
    pods: BTreeSet<Key>,
    sets: BTreeSet<SetId>,
}

#[derive(Clone, Debug)]
struct SetState {
    definition: Definition,
    /// What is in it whatever pods there are.
    fixed: BTreeSet<Element>,
    set: Set,
    chains: usize,
}

#[derive(Clone, Debug)]
struct ChainState {
    chain: Arc<Chain>,
    classes: usize,
    note: Option<Note>,
}

#[derive(Clone, Copy, Debug)]
struct ClassState {
    class: Class,
    pods: usize,
}

impl Compiler {
    pub fn new(settings: Settings) -> Self {
        let policies = Policies { settings, ..Policies::default() };
        Self { policies, ..Self::default() }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.keys()
    }

    /// How many classes, chains, sets and elements there are, over all nodes.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            pods: self.pods.len(),
            classes: self.classes.len(),
            chains: self.chains.len(),
            sets: self.sets.len(),
            elements: self.sets.values().map(|state| state.set.elements.len()).sum(),
        }
    }

    /// Takes in a change.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Pod(key, pod) => self.apply_pod(key, pod),
            Change::Namespace(name, labels) => {
                if replace(&mut self.cluster.namespaces, name.clone(), labels) {
                    self.look_again(&self.pods_of(&name));
                    self.settle();
                }
            }
            Change::Node(name, node) => {
                if replace(&mut self.cluster.nodes, name, node) {
                    self.addresses_changed();
                }
            }
            Change::Pool(name, networks) => {
                if replace(&mut self.cluster.pools, name, networks) {
                    self.addresses_changed();
                }
            }
            Change::Service(key, service) => {
                let namespace = Arc::clone(&key.namespace);
                if replace(&mut self.cluster.services, key, service) {
                    self.addresses_changed();
                    if !self.policies.groups.is_empty() {
                        self.look_again(&self.pods_of(&namespace));
                    }
                }
            }
            Change::NetworkPolicy(key, policy) => {
                let namespace = Arc::clone(&key.namespace);
                if replace(&mut self.policies.network, key, policy) {
                    self.recompile(&self.pods_of(&namespace));
                }
            }
            Change::ClusterPolicy(key, policy) => {
                if replace(&mut self.policies.cluster, key, policy) {
                    self.recompile(&self.all_pods());
                }
            }
            Change::Group(name, group) => {
                match group {
                    Some(group) => _ = self.policies.groups.insert(name, group),
                    None => _ = self.policies.groups.remove(&name),
                }
                self.known.clear();
                self.look_again(&self.all_pods());
                self.settle();
            }
            Change::Rule(key, rule) => {
                if replace(&mut self.policies.rules, key, rule) {
                    self.recompile(&self.all_pods());
                }
            }
            Change::Rules(rules) => {
                let changed = rules.into_iter().fold(false, |changed, (key, rule)| {
                    replace(&mut self.policies.rules, key, rule) || changed
                });
                if changed {
                    self.recompile(&self.all_pods());
                }
            }
            Change::Settings(settings) => {
                self.policies.settings = settings;
                self.known.clear();
                self.look_again(&self.all_pods());
                self.settle();
            }
        }
    }

    /// What changed since this was asked last.
    pub(crate) fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    /// What a node is to enforce.
    pub fn program(&self, node: &str, generation: u64) -> Program {
        let mut program =
            Program { generation, unsettled: Arc::clone(&self.unsettled), ..Program::default() };
        let pods = self.nodes.get(node).into_iter().flatten();
        for state in pods.filter_map(|key| self.pods.get(key)) {
            let Some(class) = state.class else { continue };
            for address in &state.addresses {
                let pod = LocalPod { pod: state.pod.key.to_string().into(), class };
                program.pods.insert(*address, pod);
            }
            if !state.addresses.is_empty() && !program.classes.contains_key(&class) {
                self.add_class(&mut program, class);
            }
        }
        program
    }

    fn add_class(&self, program: &mut Program, id: ClassId) {
        let Some(ClassState { class, .. }) = self.classes.get(&id) else { return };
        program.classes.insert(id, *class);
        for chain_id in class.chains() {
            let Some(ChainState { chain, note, .. }) = self.chains.get(&chain_id) else { continue };
            if program.chains.insert(chain_id, Arc::clone(chain)).is_none() {
                for set in chain.sets() {
                    let state = self.sets.get(&set);
                    program.sets.extend(state.map(|state| (set, state.set.clone())));
                }
                program.notes.extend(note.clone());
            }
        }
    }

    fn apply_pod(&mut self, key: Key, pod: Option<Arc<Pod>>) {
        if self.cluster.pods.get(&key) == pod.as_ref() {
            return;
        }
        let before = self.cluster.pods.get(&key).cloned();
        let mut sharing = BTreeSet::new();
        for pod in before.iter().chain(&pod).filter(|pod| pod.is_selectable()) {
            for address in &pod.addresses {
                let owners = self.owners.get(address).into_iter().flatten();
                sharing.extend(owners.map(|(_, key)| key.clone()));
            }
        }
        if let Some(before) = before.filter(|pod| pod.is_selectable()) {
            for address in &before.addresses {
                if let Some(owners) = self.owners.get_mut(address) {
                    owners.remove(&(before.created, key.clone()));
                    if owners.is_empty() {
                        self.owners.remove(address);
                    }
                }
            }
        }
        replace(&mut self.cluster.pods, key.clone(), pod.clone());
        if let Some(pod) = pod.filter(|pod| pod.is_selectable()) {
            for address in &pod.addresses {
                self.owners.entry(*address).or_default().insert((pod.created, key.clone()));
            }
        }
        sharing.insert(key);
        // First those that lose an address, then those that have it now: an element is added once.
        let sharing: Vec<_> = sharing.into_iter().collect();
        let gone: Vec<_> = sharing.iter().map(|key| (key.clone(), self.withdraw(key))).collect();
        for (key, before) in gone {
            self.enter(&key, before);
        }
    }

    /// Takes a pod out of all sets; its state as it was.
    fn withdraw(&mut self, key: &Key) -> Option<PodState> {
        let state = self.pods.remove(key)?;
        self.contribute(&state, false);
        for atom in &state.atoms {
            if let Some(known) = self.atoms.get_mut(atom) {
                known.pods.remove(key);
            }
        }
        Some(state)
    }

    /// Puts a pod as it is now into sets and a class.
    fn enter(&mut self, key: &Key, before: Option<PodState>) {
        if let Some(before) = &before {
            self.changed.nodes.insert(Arc::clone(&before.pod.node));
            if let Some(pods) = self.nodes.get_mut(&before.pod.node) {
                pods.remove(key);
                if pods.is_empty() {
                    self.nodes.remove(&before.pod.node);
                }
            }
        }
        let pod = self.cluster.pods.get(key).filter(|pod| pod.is_selectable()).cloned();
        let had = before.and_then(|before| before.class);
        if let Some(pod) = pod {
            if !pod.node.is_empty() {
                self.nodes.entry(Arc::clone(&pod.node)).or_default().insert(key.clone());
                self.changed.nodes.insert(Arc::clone(&pod.node));
            }
            let state = self.place(&pod);
            self.contribute(&state, true);
            for atom in &state.atoms {
                if let Some(known) = self.atoms.get_mut(atom) {
                    known.pods.insert(key.clone());
                }
            }
            self.pods.insert(key.clone(), state);
            self.classify(key);
        }
        // Only now, so that a class that it stays in is not made anew.
        self.leave(had);
    }

    /// What selects a pod.
    fn place(&self, pod: &Arc<Pod>) -> PodState {
        let has = |address: &&IpAddr| {
            let owner = self.owners.get(*address).and_then(BTreeSet::last);
            owner.is_some_and(|(_, key)| *key == pod.key)
        };
        let groups = self.policies.groups_of(&self.cluster, pod);
        let mode = self.policies.mode_of(&groups);
        let groups = groups.into_iter().map(|group| Arc::clone(&group.name)).collect();
        let addresses = pod.addresses.iter().filter(has).copied().collect();
        let pod = Arc::clone(pod);
        let mut state =
            PodState { pod, addresses, atoms: BTreeSet::new(), groups, mode, class: None };
        let own = self.atoms_by_namespace.get(&Some(Arc::clone(&state.pod.key.namespace)));
        let all = own.into_iter().chain(self.atoms_by_namespace.get(&None)).flatten();
        state.atoms = all.filter(|atom| self.selects(atom, &state)).cloned().collect();
        state
    }

    fn selects(&self, atom: &Atom, state: &PodState) -> bool {
        let pod = &state.pod;
        if atom.namespace().is_some_and(|namespace| *namespace != pod.key.namespace) {
            return false;
        }
        match atom.selects() {
            Selects::Pods(selection) => {
                selection.selects(pod, self.cluster.namespaces.get(&pod.key.namespace))
            }
            Selects::PodsWithin(ranges) => {
                state.addresses.iter().any(|address| ranges.contains(*address))
            }
            Selects::Group(GuardGroup::Learned { owner, .. }) => pod.owner == *owner,
            Selects::Group(GuardGroup::Made(name)) => state.groups.contains(name),
            Selects::Workloads => true,
            Selects::Mode(mode) => state.mode == *mode,
            Selects::Group(_)
            | Selects::Nodes(_)
            | Selects::Hosts
            | Selects::Services
            | Selects::Ingress => false,
        }
    }

    /// Adds what a pod brings into sets, or takes it out.
    fn contribute(&mut self, state: &PodState, add: bool) {
        let atoms = state.atoms.iter().filter_map(|atom| self.atoms.get(atom));
        let sets: BTreeSet<SetId> = atoms.flat_map(|atom| atom.sets.iter().copied()).collect();
        for id in sets {
            let Some(known) = self.sets.get_mut(&id) else { continue };
            for element in contribution(&known.definition, state) {
                let changed = if add {
                    known.set.elements.insert(element).is_none()
                } else {
                    // What is in the set anyway stays.
                    !known.fixed.contains(&element) && known.set.elements.remove(&element).is_some()
                };
                if changed {
                    self.changed.sets.insert(id);
                }
            }
        }
    }
}

/// Says whether that changed anything.
fn replace<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> bool {
    match value {
        Some(value) if map.get(&key) == Some(&value) => false,
        Some(value) => {
            map.insert(key, value);
            true
        }
        None => map.remove(&key).is_some(),
    }
}

fn contribution(definition: &Definition, state: &PodState) -> BTreeSet<Element> {
    definition.of_pod(&state.pod, &state.addresses, |atom| state.atoms.contains(atom))
}

#[cfg(test)]
mod tests;
