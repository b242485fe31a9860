//! Which class a pod is of, which chains classes have and which sets those need.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use objects::kinds::GroupMode;

use super::atom::{Atom, Definition, Selects};
use super::chain::{Built, Guarded, Subject, build};
use super::{ChainState, ClassState, Compiler, PodState, SetState, contribution};
use crate::cluster::Key;
use crate::program::{
    ChainId, Class, ClassId, Direction, Element, MOST_LOOKUPS, Note, Set, SetId, TierKind,
    Unsettled,
};
use crate::spec::{
    AcceptRule, Action, ActionRule, GuardGroup, GuardRule, NamespaceSelection, PortMatch,
    is_set_apart,
};

impl Compiler {
    pub(super) fn all_pods(&self) -> Vec<Key> {
        self.pods.keys().cloned().collect()
    }

    pub(super) fn pods_of(&self, namespace: &Arc<str>) -> Vec<Key> {
        let first = Key { namespace: Arc::clone(namespace), name: "".into() };
        let pods = self.pods.range(first..).take_while(|(key, _)| key.namespace == *namespace);
        pods.map(|(key, _)| key.clone()).collect()
    }

    /// Finds anew what selects these pods and what decides about them.
    pub(super) fn look_again(&mut self, pods: &[Key]) {
        let gone: Vec<_> = pods.iter().map(|key| (key, self.withdraw(key))).collect();
        for (key, before) in gone {
            self.enter(key, before);
        }
    }

    /// Finds anew what decides about these pods.
    pub(super) fn recompile(&mut self, pods: &[Key]) {
        self.known.clear();
        for key in pods {
            let had = self.pods.get(key).and_then(|state| state.class);
            self.classify(key);
            self.leave(had);
        }
        self.settle();
    }

    /// Nodes, services or pools changed.
    pub(super) fn addresses_changed(&mut self) {
        let ranges = self.cluster.ranges();
        if ranges != self.ranges {
            self.ranges = ranges;
            let named = |rule: &GuardRule| {
                [&rule.from, &rule.to]
                    .iter()
                    .any(|group| matches!(group, GuardGroup::External | GuardGroup::Unmanaged))
            };
            if self.policies.rules.values().any(|rule| named(rule)) {
                self.recompile(&self.all_pods());
            }
        }
        let sets = self.sets.iter().filter(|(_, state)| {
            state.definition.atoms().iter().any(|atom| atom.is_of_addresses())
        });
        let ids: Vec<_> = sets.map(|(id, _)| *id).collect();
        for id in ids {
            let Some(state) = self.sets.get(&id) else { continue };
            let fixed = self.fixed(&state.definition);
            if fixed == state.fixed {
                continue;
            }
            let elements = self.elements(&state.definition, &fixed);
            let Some(state) = self.sets.get_mut(&id) else { continue };
            let gone: Vec<_> =
                state.set.elements.iter().filter(|it| !elements.contains(it)).copied().collect();
            for element in gone {
                state.set.elements.remove(&element);
            }
            state.set.elements.extend(elements);
            state.fixed = fixed;
            self.changed.sets.insert(id);
        }
    }

    /// Everything that is in a set.
    fn elements(&self, definition: &Definition, fixed: &BTreeSet<Element>) -> BTreeSet<Element> {
        let mut elements = fixed.clone();
        let atoms = definition.atoms().into_iter().filter_map(|atom| self.atoms.get(atom));
        let pods: BTreeSet<_> = atoms.flat_map(|atom| &atom.pods).collect();
        let states = pods.into_iter().filter_map(|key| self.pods.get(key));
        elements.extend(states.flat_map(|state| contribution(definition, state)));
        elements
    }

    fn fixed(&self, definition: &Definition) -> BTreeSet<Element> {
        definition.fixed(|atom| self.addresses_of(atom))
    }

    /// The addresses of an atom that are no pods'. An address of a node is no Service's, whatever a
    /// Service says.
    fn addresses_of(&self, atom: &Atom) -> Vec<IpAddr> {
        let (nodes, services) = (&self.cluster.nodes, &self.cluster.services);
        let hosts = || nodes.values().flat_map(|node| node.addresses.iter().copied());
        let inner = || services.values().flat_map(|it| it.cluster_addresses.iter().copied());
        let outer = || services.values().flat_map(|it| it.ingress_addresses.iter().copied());
        match atom.selects() {
            Selects::Nodes(selector) => {
                let selected = nodes.values().filter(|it| selector.matches(Some(&it.labels)));
                selected.flat_map(|node| node.addresses.iter().copied()).collect()
            }
            Selects::Hosts => hosts().collect(),
            Selects::Services => {
                let hosts: BTreeSet<_> = hosts().collect();
                inner().filter(|it| !hosts.contains(it)).collect()
            }
            Selects::Ingress => {
                let others: BTreeSet<_> = hosts().chain(inner()).collect();
                outer().filter(|it| !others.contains(it)).collect()
            }
            Selects::Pods(_)
            | Selects::PodsWithin(_)
            | Selects::Group(_)
            | Selects::Workloads
            | Selects::Mode(_) => Vec::new(),
        }
    }

    /// Puts a pod into its class; the one that it had is left by whoever calls.
    pub(super) fn classify(&mut self, key: &Key) {
        let Some(state) = self.pods.get(key) else { return };
        let subject = self.subject(state);
        let meaning = meaning(&subject);
        let (id, built) = match self.known.get(&meaning) {
            Some(id) if self.classes.contains_key(id) => (*id, Vec::new()),
            _ => {
                let directions = [Direction::Egress, Direction::Ingress];
                let built = directions
                    .map(|direction| build(&subject, direction, &self.policies, &self.cluster));
                let chain = |built: &Option<Built>| built.as_ref().map(|it| it.chain.id());
                let class = Class { egress: chain(&built[0]), ingress: chain(&built[1]) };
                let id = class.id();
                self.known.insert(meaning, id);
                let is_new = !self.classes.contains_key(&id);
                self.classes.entry(id).or_insert(ClassState { class, pods: 0 });
                let built = built.into_iter().flatten().filter(|_| is_new);
                (id, built.collect())
            }
        };
        for built in built {
            self.add_chain(built);
        }
        if let Some(class) = self.classes.get_mut(&id) {
            class.pods += 1;
        }
        if let Some(state) = self.pods.get_mut(key) {
            if state.class != Some(id) {
                self.changed.nodes.insert(Arc::clone(&state.pod.node));
            }
            state.class = Some(id);
        }
    }

    fn add_chain(&mut self, built: Built) {
        let Built { chain, sets, unmerged } = built;
        let id = chain.id();
        if let Some(known) = self.chains.get_mut(&id) {
            known.classes += 1;
            return;
        }
        for (set, definition) in sets {
            self.add_set(set, definition);
        }
        let lookups = chain.lookups();
        let note = (lookups > MOST_LOOKUPS).then(|| {
            let why = unmerged.unwrap_or("its rules decide in turn, and order cannot be merged");
            Note::Long { chain: id, lookups, why: why.into() }
        });
        self.chains.insert(id, ChainState { chain: Arc::new(chain), classes: 1, note });
    }

    fn add_set(&mut self, id: SetId, definition: Definition) {
        if let Some(known) = self.sets.get_mut(&id) {
            known.chains += 1;
            return;
        }
        for atom in definition.atoms() {
            if !self.atoms.contains_key(atom) {
                self.add_atom(atom);
            }
            if let Some(state) = self.atoms.get_mut(atom) {
                state.sets.insert(id);
            }
        }
        let fixed = self.fixed(&definition);
        let elements = self.elements(&definition, &fixed);
        let set = Set { kind: definition.kind(), elements: elements.into_iter().collect() };
        self.sets.insert(id, SetState { definition, fixed, set, chains: 1 });
    }

    fn add_atom(&mut self, atom: &Atom) {
        let namespace = atom.namespace().cloned();
        let candidates = match &namespace {
            Some(namespace) => self.pods_of(namespace),
            None => self.all_pods(),
        };
        let mut pods = BTreeSet::new();
        for key in candidates {
            let Some(state) = self.pods.get(&key) else { continue };
            if self.selects(atom, state) {
                if let Some(state) = self.pods.get_mut(&key) {
                    state.atoms.insert(atom.clone());
                }
                pods.insert(key);
            }
        }
        self.atoms_by_namespace.entry(namespace).or_default().insert(atom.clone());
        self.atoms.insert(atom.clone(), super::AtomState { pods, sets: BTreeSet::new() });
    }

    /// One pod less is of this class.
    pub(super) fn leave(&mut self, class: Option<ClassId>) {
        let Some(id) = class else { return };
        let Some(state) = self.classes.get_mut(&id) else { return };
        state.pods -= 1;
        if state.pods == 0 {
            let Some(ClassState { class, .. }) = self.classes.remove(&id) else { return };
            class.chains().for_each(|chain| self.drop_chain(chain));
        }
    }

    fn drop_chain(&mut self, id: ChainId) {
        let Some(state) = self.chains.get_mut(&id) else { return };
        state.classes -= 1;
        if state.classes > 0 {
            return;
        }
        let Some(state) = self.chains.remove(&id) else { return };
        let sets: BTreeSet<_> = state.chain.sets().collect();
        for set in sets {
            self.drop_set(set);
        }
    }

    fn drop_set(&mut self, id: SetId) {
        let Some(state) = self.sets.get_mut(&id) else { return };
        state.chains -= 1;
        if state.chains > 0 {
            return;
        }
        let Some(state) = self.sets.remove(&id) else { return };
        for atom in state.definition.atoms() {
            let Some(known) = self.atoms.get_mut(atom) else { continue };
            known.sets.remove(&id);
            if known.sets.is_empty() {
                self.drop_atom(atom);
            }
        }
    }

    fn drop_atom(&mut self, atom: &Atom) {
        let Some(state) = self.atoms.remove(atom) else { return };
        for key in &state.pods {
            if let Some(pod) = self.pods.get_mut(key) {
                pod.atoms.remove(atom);
            }
        }
        let namespace = atom.namespace().cloned();
        if let Some(atoms) = self.atoms_by_namespace.get_mut(&namespace) {
            atoms.remove(atom);
            if atoms.is_empty() {
                self.atoms_by_namespace.remove(&namespace);
            }
        }
    }

    /// What decides about a pod.
    fn subject<'a>(&'a self, state: &'a PodState) -> Subject<'a> {
        let pod = &*state.pod;
        let labels = self.cluster.namespaces.get(&pod.key.namespace);
        let of_tier = |tier| {
            let mut policies = self.policies.in_order(tier);
            policies.retain(|policy| policy.subject.selects(pod, labels));
            policies
        };
        let first = Key { namespace: Arc::clone(&pod.key.namespace), name: "".into() };
        let own = self.policies.network.range(first..);
        let own = own.take_while(|(key, _)| key.namespace == pod.key.namespace);
        Subject {
            pod,
            quarantined: self.policies.put_apart(pod, labels, &state.groups),
            admin: of_tier(TierKind::Admin),
            network: own.map(|(_, policy)| policy).filter(|it| it.selects(pod)).collect(),
            baseline: of_tier(TierKind::Baseline),
            guard: self.guarded(state),
        }
    }

    fn guarded<'a>(&'a self, state: &PodState) -> Guarded<'a> {
        let mode = state.mode;
        if mode == GroupMode::Discover {
            return Guarded { mode, from: Vec::new(), to: Vec::new() };
        }
        let is_in = |group: &GuardGroup| match group {
            GuardGroup::Any | GuardGroup::Workloads => true,
            GuardGroup::Learned { namespace, owner } => {
                state.pod.key.namespace == *namespace && state.pod.owner == *owner
            }
            GuardGroup::Made(name) => state.groups.contains(name),
            _ => false,
        };
        let rules = self.policies.guard_rules();
        let from = rules.iter().filter(|rule| is_in(&rule.from)).copied().collect();
        let to = rules.iter().filter(|rule| is_in(&rule.to)).copied().collect();
        Guarded { mode, from, to }
    }

    /// Finds anew whom a policy may isolate.
    pub(super) fn settle(&mut self) {
        let policies = &self.policies;
        let guard = [Some(policies.settings.mode)]
            .into_iter()
            .chain(policies.groups.values().map(|group| group.mode))
            .any(|mode| mode == Some(GroupMode::Protect));
        let mut unsettled = Unsettled {
            everywhere: guard || policies.groups.values().any(|group| group.quarantine),
            namespaces: policies.network.keys().map(|key| Arc::clone(&key.namespace)).collect(),
        };
        let apart = self.cluster.namespaces.iter().filter(|(_, labels)| is_set_apart(labels));
        unsettled.namespaces.extend(apart.map(|(name, _)| Arc::clone(name)));
        let denies = |rule: &ActionRule| rule.action == Action::Deny;
        for policy in policies.cluster.values() {
            if !policy.ingress.iter().chain(&policy.egress).any(denies) {
                continue;
            }
            let namespaces = &policy.subject.namespaces;
            unsettled.everywhere |= matches!(namespaces,
                NamespaceSelection::Labelled(selector) if *selector == objects::Selector::default());
            let selected =
                self.cluster.namespaces.iter().filter(|it| namespaces.selects(it.0, Some(it.1)));
            unsettled.namespaces.extend(selected.map(|(name, _)| Arc::clone(name)));
        }
        if unsettled != *self.unsettled {
            self.unsettled = Arc::new(unsettled);
            self.changed.everything = true;
        }
    }
}

/// What decides about a pod, in words: pods of one meaning are of one class.
fn meaning(subject: &Subject<'_>) -> String {
    let mut text = format!("quarantined {:?}", subject.quarantined);
    let mut names = BTreeSet::new();
    let add = |text: &mut String, kind: &str, name: &dyn std::fmt::Display| {
        _ = write!(text, "; {kind} {name}");
    };
    for policy in &subject.network {
        add(&mut text, "NetworkPolicy", &policy.key);
        let rules = policy.ingress.iter().flatten();
        names.extend(rules.flat_map(|AcceptRule { ports, .. }| port_names(ports)));
    }
    for (tier, policies) in [("admin", &subject.admin), ("baseline", &subject.baseline)] {
        for policy in policies {
            add(&mut text, tier, &format_args!("{} {}", policy.kind, policy.name));
            names.extend(policy.ingress.iter().flat_map(|rule| port_names(&rule.ports)));
        }
    }
    _ = write!(text, "; {}", subject.guard.mode);
    for (end, rules) in [("from", &subject.guard.from), ("to", &subject.guard.to)] {
        for rule in rules {
            add(&mut text, end, &format_args!("{} {}", rule.learned, rule.name));
        }
    }
    let mut ports: Vec<_> =
        subject.pod.ports.iter().filter(|port| names.contains(&port.name)).collect();
    ports.sort();
    _ = write!(text, "; {ports:?}");
    text
}

fn port_names(ports: &[PortMatch]) -> impl Iterator<Item = Arc<str>> {
    ports.iter().filter_map(|port| match port {
        PortMatch::Named { name, .. } => Some(Arc::clone(name)),
        PortMatch::Numbers(_) => None,
    })
}
