//! Builds the chain of a class in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use objects::kinds::GroupMode;

use super::atom::{Atom, Definition, Selects};
use super::merge::{Entry, EntryPorts, merge};
use crate::cluster::{Cluster, Pod};
use crate::evaluate::{
    cluster_source, guard_source, isolation, mode_source, network_source, own_node, quarantine,
};
use crate::program::{Chain, Direction, SetId, Source, Tier, TierKind, Verdict};
use crate::ranges::Ranges;
use crate::spec::{
    Action, ClusterPolicy, GuardGroup, GuardRule, NetworkPolicy, Peer, Policies, PortMatch,
};

/// What decides about a pod, as far as policies can tell it from others.
#[derive(Clone, Debug)]
pub(super) struct Subject<'a> {
    pub(super) pod: &'a Pod,
    /// What puts it apart.
    pub(super) quarantined: Option<Arc<str>>,
    pub(super) admin: Vec<&'a Arc<ClusterPolicy>>,
    pub(super) network: Vec<&'a Arc<NetworkPolicy>>,
    pub(super) baseline: Vec<&'a Arc<ClusterPolicy>>,
    pub(super) guard: Guarded<'a>,
}

/// What guard decides about a pod.
#[derive(Clone, Debug)]
pub(super) struct Guarded<'a> {
    pub(super) mode: GroupMode,
    /// The rules in whose `from` it is, in their order.
    pub(super) from: Vec<&'a Arc<GuardRule>>,
    pub(super) to: Vec<&'a Arc<GuardRule>>,
}

#[derive(Debug)]
pub(super) struct Built {
    pub(super) chain: Chain,
    pub(super) sets: BTreeMap<SetId, Definition>,
    pub(super) unmerged: Option<&'static str>,
}

/// None: nothing is judged in this direction.
pub(super) fn build(
    subject: &Subject<'_>,
    direction: Direction,
    policies: &Policies,
    cluster: &Cluster,
) -> Option<Built> {
    let tiers = [
        (TierKind::Quarantine, quarantined(subject, policies)),
        (TierKind::Admin, of_cluster(&subject.admin, subject.pod, direction, policies)),
        (TierKind::NetworkPolicy, of_network(subject, direction, policies)),
        (TierKind::Guard, of_guard(&subject.guard, direction, policies, cluster)),
        (TierKind::Baseline, of_cluster(&subject.baseline, subject.pod, direction, policies)),
    ];
    let mut built = Built {
        chain: Chain { direction, tiers: Vec::new() },
        sets: BTreeMap::new(),
        unmerged: None,
    };
    for (kind, entries) in tiers {
        let merged = merge(entries);
        if !merged.rules.is_empty() {
            built.chain.tiers.push(Tier { kind, rules: merged.rules });
            built.sets.extend(merged.sets);
            built.unmerged = built.unmerged.or(merged.unmerged);
        }
    }
    (!built.chain.tiers.is_empty()).then_some(built)
}

impl Entry {
    /// Matches everything.
    fn catch_all(verdict: Verdict, report: bool, source: Source) -> Self {
        Self { everyone: true, ..Self::nobody(verdict, report, EntryPorts::all(), source) }
    }

    fn nobody(verdict: Verdict, report: bool, ports: EntryPorts, source: Source) -> Self {
        Self {
            verdict,
            report,
            ports,
            everyone: false,
            atoms: BTreeSet::new(),
            networks: Ranges::default(),
            domains: BTreeSet::new(),
            own_node: false,
            without: BTreeSet::new(),
            source,
        }
    }

    fn of_peers(verdict: Verdict, ports: EntryPorts, peers: &[Peer], source: Source) -> Self {
        let mut entry = Self::nobody(verdict, false, ports, source);
        for peer in peers {
            match peer {
                Peer::Everyone => entry.everyone = true,
                Peer::Pods(selection) => {
                    entry.atoms.insert(Atom::new(Selects::Pods(selection.clone())));
                }
                Peer::Networks { networks, except } => {
                    let ranges = Ranges::of(networks).minus(&Ranges::of(except));
                    entry.networks = entry.networks.union(&ranges);
                }
                Peer::Nodes(selector) => {
                    entry.atoms.insert(Atom::new(Selects::Nodes(selector.clone())));
                }
                Peer::Domains(names) => entry.domains.extend(names.iter().cloned()),
            }
        }
        entry
    }
}

/// The destination whose ports have names is the pod itself in ingress; in egress it is the peer.
fn ports_of(ports: &[PortMatch], pod: &Pod, direction: Direction) -> EntryPorts {
    EntryPorts::new(ports, (direction == Direction::Ingress).then_some(pod))
}

fn quarantined(subject: &Subject<'_>, policies: &Policies) -> Vec<Entry> {
    let Some(by) = &subject.quarantined else { return Vec::new() };
    let deny = Verdict::Deny(policies.settings.guard);
    vec![Entry::catch_all(deny, true, quarantine(by))]
}

fn of_cluster(
    selecting: &[&Arc<ClusterPolicy>],
    pod: &Pod,
    direction: Direction,
    policies: &Policies,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    for policy in selecting {
        for (i, rule) in policy.rules(direction).iter().enumerate() {
            let verdict = match rule.action {
                Action::Accept => Verdict::Accept,
                Action::Deny => Verdict::Deny(policies.settings.cluster_policy),
                Action::Pass => Verdict::Pass,
            };
            let name = rule.name.as_deref();
            let source = cluster_source(policy.kind, &policy.name, direction, i, name);
            let ports = ports_of(&rule.ports, pod, direction);
            entries.push(Entry::of_peers(verdict, ports, &rule.peers, source));
        }
    }
    entries
}

fn of_network(subject: &Subject<'_>, direction: Direction, policies: &Policies) -> Vec<Entry> {
    let (mut entries, mut isolating) = (Vec::new(), Vec::new());
    for policy in &subject.network {
        let Some(rules) = policy.rules(direction) else { continue };
        let name = policy.key.to_string();
        for (i, rule) in rules.iter().enumerate() {
            let source = network_source(&name, direction, i);
            let ports = ports_of(&rule.ports, subject.pod, direction);
            entries.push(Entry::of_peers(Verdict::Accept, ports, &rule.peers, source));
        }
        let deny = Verdict::Deny(policies.settings.network_policy);
        isolating.push(Entry::catch_all(deny, false, isolation(&name)));
    }
    // No NetworkPolicy keeps a pod from the node it runs on. It stands last of what is accepted: only
    // packets that would be denied are asked for it.
    if let Some(first) = isolating.first().filter(|_| direction == Direction::Egress) {
        let source = own_node(&first.source.policy);
        let entry = Entry::nobody(Verdict::Accept, false, EntryPorts::all(), source);
        entries.push(Entry { own_node: true, ..entry });
    }
    entries.extend(isolating);
    entries
}

fn of_guard(
    guarded: &Guarded<'_>,
    direction: Direction,
    policies: &Policies,
    cluster: &Cluster,
) -> Vec<Entry> {
    let in_mode = |mode| Definition::Addresses(BTreeSet::from([Atom::new(Selects::Mode(mode))]));
    let deny = Verdict::Deny(policies.settings.guard);
    let lax = BTreeSet::from([in_mode(GroupMode::Discover), in_mode(GroupMode::Monitor)]);
    let protects = match guarded.mode {
        GroupMode::Discover => return Vec::new(),
        GroupMode::Monitor => false,
        GroupMode::Protect => true,
    };
    let rules = match direction {
        Direction::Egress => &guarded.from,
        Direction::Ingress => &guarded.to,
    };
    let mut entries = Vec::new();
    for rule in rules {
        let peer = match direction {
            Direction::Egress => &rule.to,
            Direction::Ingress => &rule.from,
        };
        let ports = EntryPorts::of_numbers(&rule.ports);
        let source = guard_source(&rule.name);
        let entry = |verdict, report| Entry::nobody(verdict, report, ports.clone(), source.clone());
        let mut push = |entry: Entry| entries.extend(in_group(entry, peer, policies, cluster));
        if rule.allows {
            push(entry(Verdict::Accept, false));
            continue;
        }
        if protects {
            push(Entry { without: lax.clone(), ..entry(deny, true) });
        }
        push(entry(Verdict::Report, true));
    }
    let source = mode_source(guarded.mode);
    let mut of_mode = |mode, verdict, report| {
        let atoms = BTreeSet::from([Atom::new(Selects::Mode(mode))]);
        let ports = EntryPorts::all();
        entries.push(Entry { atoms, ..Entry::nobody(verdict, report, ports, source.clone()) });
    };
    of_mode(GroupMode::Discover, Verdict::Pass, false);
    if protects {
        of_mode(GroupMode::Monitor, Verdict::Report, true);
        entries.push(Entry::catch_all(deny, true, source));
    } else {
        entries.push(Entry::catch_all(Verdict::Report, true, source));
    }
    entries
}

/// The entry for peers in a group of guard: what is no workload may be in it by its address.
fn in_group(
    entry: Entry,
    group: &GuardGroup,
    policies: &Policies,
    cluster: &Cluster,
) -> Vec<Entry> {
    let atom = |selects| BTreeSet::from([Atom::new(selects)]);
    let known = || {
        let kinds = [Selects::Hosts, Selects::Services, Selects::Ingress];
        let mut atoms: BTreeSet<_> = kinds.into_iter().map(Atom::new).collect();
        atoms.insert(Atom::all_pods());
        Definition::Addresses(atoms)
    };
    let ranges = || Ranges::of(&cluster.ranges());
    let beside = |entry: &Entry, definitions: Vec<Definition>| {
        entry.without.iter().cloned().chain(definitions).collect::<BTreeSet<_>>()
    };
    match group {
        GuardGroup::Any => vec![Entry { everyone: true, ..entry }],
        GuardGroup::Workloads => vec![Entry { atoms: [Atom::all_pods()].into(), ..entry }],
        GuardGroup::Hosts => vec![Entry { atoms: atom(Selects::Hosts), ..entry }],
        GuardGroup::Services => vec![Entry { atoms: atom(Selects::Services), ..entry }],
        GuardGroup::Ingress => vec![Entry { atoms: atom(Selects::Ingress), ..entry }],
        GuardGroup::External => {
            let mut inside = vec![known()];
            if !ranges().is_empty() {
                inside.push(Definition::Networks(ranges()));
            }
            vec![Entry { without: beside(&entry, inside), everyone: true, ..entry }]
        }
        GuardGroup::Unmanaged => {
            let without = beside(&entry, vec![known()]);
            vec![Entry { without, networks: ranges(), ..entry }]
        }
        GuardGroup::Learned { .. } => {
            vec![Entry { atoms: atom(Selects::Group(group.clone())), ..entry }]
        }
        GuardGroup::Made(name) => {
            let Some(made) = policies.groups.get(name) else { return Vec::new() };
            if !made.domains.is_empty() {
                let domains = made.domains.iter().cloned().collect();
                return vec![Entry { domains, ..entry }];
            }
            let workloads = Entry { atoms: atom(Selects::Group(group.clone())), ..entry.clone() };
            let pods = Definition::Addresses([Atom::all_pods()].into());
            let others = made.networks.clone().map(|networks| {
                let without = beside(&entry, vec![pods]);
                Entry { without, networks, ..entry }
            });
            [workloads].into_iter().chain(others).collect()
        }
    }
}
