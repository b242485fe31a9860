//! Merges the rules of a tier: within a run of one verdict the order does not matter, so peers with the
//! same ports become one union set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use objects::kinds::{Ports, Protocol};

use super::atom::{Atom, Definition, PeerPort, Selects};
use crate::cluster::Pod;
use crate::program::{Rule, SetId, Source, Verdict};
use crate::ranges::Ranges;
use crate::spec::PortMatch;

/// The most ports that one peer may bring into a set of peers with ports: what bounds its memory at a
/// multiple of the pods. Past that, rules are listed one by one.
pub(super) const MOST_PEER_PORTS: usize = 16;

/// A rule of a policy, before it is merged.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) verdict: Verdict,
    pub(super) report: bool,
    pub(super) ports: EntryPorts,
    pub(super) everyone: bool,
    pub(super) atoms: BTreeSet<Atom>,
    pub(super) networks: Ranges,
    pub(super) domains: BTreeSet<Arc<str>>,
    /// The node that enforces the program.
    pub(super) own_node: bool,
    /// The peer must be in none of these.
    pub(super) without: BTreeSet<Definition>,
    pub(super) source: Source,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EntryPorts {
    /// Every protocol and port; the others are empty.
    all: bool,
    numbers: Vec<Ports>,
    named: BTreeSet<(Option<Protocol>, Arc<str>)>,
}

impl EntryPorts {
    pub(super) fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// `destination` is the pod whose ports have names, if it is known: in ingress.
    pub(super) fn new(ports: &[PortMatch], destination: Option<&Pod>) -> Self {
        if ports.is_empty() {
            return Self::all();
        }
        let (mut numbers, mut named) = (Vec::new(), BTreeSet::new());
        for port in ports {
            match (port, destination) {
                (PortMatch::Numbers(ports), _) => numbers.push(*ports),
                (PortMatch::Named { protocol, name }, Some(pod)) => {
                    let same = pod.ports.iter().filter(|it| {
                        it.name == *name && protocol.is_none_or(|protocol| it.protocol == protocol)
                    });
                    numbers.extend(same.map(|it| Ports {
                        protocol: it.protocol,
                        first: it.port,
                        last: it.port,
                    }));
                }
                (PortMatch::Named { protocol, name }, None) => {
                    named.insert((*protocol, Arc::clone(name)));
                }
            }
        }
        Self { all: false, numbers: canonical(numbers), named }
    }

    pub(super) fn of_numbers(ports: &[Ports]) -> Self {
        if ports.is_empty() {
            return Self::all();
        }
        Self { all: false, numbers: canonical(ports.to_vec()), named: BTreeSet::new() }
    }
}

/// Sorted, disjoint, not adjacent.
fn canonical(mut ports: Vec<Ports>) -> Vec<Ports> {
    ports.sort();
    let mut merged: Vec<Ports> = Vec::with_capacity(ports.len());
    for next in ports {
        match merged.last_mut() {
            Some(last)
                if last.protocol == next.protocol
                    && u32::from(next.first) <= u32::from(last.last) + 1 =>
            {
                last.last = last.last.max(next.last);
            }
            _ => merged.push(next),
        }
    }
    merged
}

/// The rules of one tier.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) rules: Vec<Rule>,
    pub(super) sets: BTreeMap<SetId, Definition>,
    /// Why not everything was merged that could have been.
    pub(super) unmerged: Option<&'static str>,
}

pub(super) fn merge(entries: Vec<Entry>) -> Merged {
    let mut merged = Merged::default();
    let mut run: Vec<Entry> = Vec::new();
    for entry in entries {
        let goes_on = run.last().is_some_and(|last| {
            (last.verdict, last.report, &last.without)
                == (entry.verdict, entry.report, &entry.without)
        });
        if !goes_on {
            merged.add_run(std::mem::take(&mut run));
        }
        run.push(entry);
    }
    merged.add_run(run);
    merged
}

/// Peers and the rules of policies that name them.
type Group<T> = BTreeMap<Vec<Ports>, (T, BTreeSet<Source>)>;

#[derive(Default)]
struct Run {
    everyone: Option<(EntryPorts, BTreeSet<Source>)>,
    atoms: Group<BTreeSet<Atom>>,
    networks: Group<Ranges>,
    domains: Group<BTreeSet<Arc<str>>>,
    own_node: BTreeSet<Source>,
    peer_ports: (BTreeSet<(Atom, PeerPort)>, BTreeSet<Source>),
}

impl Merged {
    fn add_run(&mut self, entries: Vec<Entry>) {
        let Some(first) = entries.first() else { return };
        let like = Entry { source: first.source.clone(), ..first.clone() };
        let mut run = Run::default();
        entries.into_iter().for_each(|entry| run.add(entry));
        if let Some((ports, sources)) = run.everyone.take()
            && (ports.all || !ports.numbers.is_empty())
        {
            let all = ports.all;
            self.push(&like, ports.numbers, None, sources);
            if all {
                // Whatever else the run has, this has matched.
                return;
            }
        }
        run.gather_peer_ports(&mut self.unmerged);
        for (ports, (atoms, sources)) in run.atoms {
            self.push(&like, ports, Some(Definition::Addresses(atoms)), sources);
        }
        let (pairs, sources) = run.peer_ports;
        if !pairs.is_empty() {
            self.push(&like, Vec::new(), Some(Definition::AddressPorts(pairs)), sources);
        }
        for (ports, (ranges, sources)) in run.networks {
            self.push(&like, ports, Some(Definition::Networks(ranges)), sources);
        }
        for (ports, (names, sources)) in run.domains {
            self.push(&like, ports, Some(Definition::Domains(names)), sources);
        }
        if !run.own_node.is_empty() {
            self.push(&like, Vec::new(), Some(Definition::OwnNode), run.own_node);
        }
    }

    fn push(
        &mut self,
        like: &Entry,
        ports: Vec<Ports>,
        within: Option<Definition>,
        sources: BTreeSet<Source>,
    ) {
        let within = within.map(|definition| self.set(definition));
        let without = like.without.iter().map(|it| self.set(it.clone())).collect();
        let (verdict, report) = (like.verdict, like.report);
        let sources = sources.into_iter().collect();
        self.rules.push(Rule { verdict, ports, within, without, report, sources });
    }

    fn set(&mut self, definition: Definition) -> SetId {
        let id = definition.id();
        self.sets.insert(id, definition);
        id
    }
}

impl Run {
    fn add(&mut self, entry: Entry) {
        let Entry { ports, everyone, atoms, networks, domains, own_node, source, .. } = entry;
        let one = || BTreeSet::from([source.clone()]);
        if everyone {
            let (known, sources) = self.everyone.get_or_insert_default();
            known.all |= ports.all;
            known.numbers.extend(&ports.numbers);
            known.numbers = canonical(std::mem::take(&mut known.numbers));
            if known.all {
                known.numbers.clear();
            }
            if ports.all || !ports.numbers.is_empty() {
                sources.extend(one());
            }
            self.named(&ports, &Atom::all_pods(), &source);
            return;
        }
        if own_node {
            self.own_node.extend(one());
        }
        for atom in &atoms {
            self.named(&ports, atom, &source);
        }
        if !networks.is_empty() && !ports.named.is_empty() {
            let atom = Atom::new(Selects::PodsWithin(networks.clone()));
            self.named(&ports, &atom, &source);
        }
        if !ports.all && ports.numbers.is_empty() {
            return;
        }
        if !atoms.is_empty() {
            let (known, sources) = self.atoms.entry(ports.numbers.clone()).or_default();
            known.extend(atoms);
            sources.extend(one());
        }
        if !networks.is_empty() {
            let (known, sources) = self.networks.entry(ports.numbers.clone()).or_default();
            *known = known.union(&networks);
            sources.extend(one());
        }
        if !domains.is_empty() {
            let (known, sources) = self.domains.entry(ports.numbers.clone()).or_default();
            known.extend(domains);
            sources.extend(one());
        }
    }

    fn named(&mut self, ports: &EntryPorts, atom: &Atom, source: &Source) {
        for (protocol, name) in &ports.named {
            let port = PeerPort::Named(*protocol, Arc::clone(name));
            self.peer_ports.0.insert((atom.clone(), port));
            self.peer_ports.1.insert(source.clone());
        }
    }

    /// Several groups of single ports become one set of peers with ports, if that is not too large.
    fn gather_peer_ports(&mut self, unmerged: &mut Option<&'static str>) {
        let single =
            |ports: &Vec<Ports>| !ports.is_empty() && ports.iter().all(|it| it.first == it.last);
        let groups = self.atoms.keys().filter(|ports| single(ports));
        let count = groups.clone().count();
        let ports: BTreeSet<_> = groups.flatten().copied().collect();
        let (named, sources) = &mut self.peer_ports;
        if count + usize::from(!named.is_empty()) < 2 || count == 0 {
            return;
        }
        let names: BTreeSet<_> = named.iter().map(|(_, port)| port).collect();
        if ports.len() + names.len() > MOST_PEER_PORTS {
            *unmerged = Some("its rules name too many ports to list each peer with its ports");
            return;
        }
        for (ports, (atoms, of)) in self.atoms.extract_if(.., |ports, _| single(ports)) {
            for atom in atoms {
                let pairs = ports.iter().map(|it| PeerPort::Number(it.protocol, it.first));
                named.extend(pairs.map(|port| (atom.clone(), port)));
            }
            sources.extend(of);
        }
    }
}

#[cfg(test)]
mod tests;
